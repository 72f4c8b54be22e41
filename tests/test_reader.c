/*
 * Tests of the log reader and the model, on logs that log_builder.c makes: what is read, what is lost,
 * and that no damage to a log does more than lose something.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../output/log_reader.h"
#include "../tools/model.h"
#include "../tools/prof_tables.h"
#include "../tools/report_rows.h"
#include "log_builder.h"
#include "run_suite.h"

#define START  1796031881000000000
#define SECOND 1000000000

static struct log_builder builder;
static struct log_payload payload;

static void setup(void)
{
	log_builder_init(&builder);
	payload.size = 0;
}

static void teardown(void)
{
	log_builder_clear(&builder);
}

/* ---- Helpers ---- */

static struct log_reader *open_log(size_t size)
{
	char error[LOG_ERROR_SIZE];

	return log_reader_open_fd(log_builder_file(&builder, size), error);
}

static struct model *load_flags(bool with_cancelled)
{
	struct model *model = model_new();
	struct log_reader *reader = open_log(builder.size);

	ck_assert_ptr_nonnull(reader);
	ck_assert(model_add_reader(model, reader, "dir/some.fbprof", with_cancelled));
	model_order_sessions(model, NULL);
	log_reader_close(reader);
	return model;
}

static struct model *load(void)
{
	return load_flags(false);
}

static const struct model_log *log_of(const struct model *model)
{
	return model->logs->pdata[0];
}

static const struct model_session *only_session(const struct model *model)
{
	ck_assert_uint_eq(model->sessions->len, 1);
	return model->sessions->pdata[0];
}

static void assert_lost(const struct model *model, unsigned loss, uint64_t count)
{
	for (unsigned i = 0; i < MODEL_LOSSES; i++)
		ck_assert_msg(log_of(model)->lost[i] == (i == loss ? count : 0), "%lu %s",
			      (unsigned long)log_of(model)->lost[i], model_loss_text(i));
}

static void assert_nothing_lost(const struct model *model)
{
	assert_lost(model, MODEL_LOSSES, 0);
}

static const struct model_request *request_at(const struct model_session *session, guint index)
{
	ck_assert_uint_lt(index, session->request_count);
	return &session->requests[index];
}

static void assert_count(const struct model_request *request, uint32_t cell, uint64_t value,
			 uint64_t self_time, uint64_t total_time, uint64_t samples)
{
	const struct model_count *count = model_request_count(request, cell);
	const struct model_time *time;

	ck_assert_ptr_nonnull(count);
	ck_assert_uint_eq(count->value, value);
	time = model_count_time(request, count);
	ck_assert_uint_eq(time->self_time, self_time);
	ck_assert_uint_eq(time->total_time, total_time);
	ck_assert_uint_eq(time->samples, samples);
}

/* What the procedure's definitions are called in a mode with groups of cells. */
enum {
	LINE = 8,
	OPEN = 16,
	FETCH = 24
};

/*
 * A session whose statement 1, a procedure, has a line (cell 8) and a record source (cells 9, 10; with
 * groups 16 and 24).
 */
static void build_definitions_at(int64_t profile_id, uint64_t flags, enum log_mode mode,
				 uint32_t cursor_line, uint32_t cursor_column, const char *plan)
{
	log_builder_session(&builder, 1);
	log_builder_session_of_mode(&builder, profile_id, flags, mode, "first");
	log_builder_statement(&builder, 1, 100, "PROCEDURE", "PKG", "PROC", 0);
	log_builder_line(&builder, 1, 7, 3, 8);
	log_builder_text(&builder, 1, 0, plan);
	log_builder_cursor(&builder, 1, 1, "C", cursor_line, cursor_column);
	log_builder_record_source(&builder, 1, 1, 1, 0, mode == LOG_MODE_SAMPLED ? 9 : OPEN, 1);
}

static void build_definitions_of(int64_t profile_id, uint64_t flags, enum log_mode mode)
{
	build_definitions_at(profile_id, flags, mode, 6, 2,
			     "Select Expression\n    -> Table \"T\" Full Scan");
}

static void build_definitions(int64_t profile_id, uint64_t flags)
{
	build_definitions_of(profile_id, flags, LOG_MODE_SAMPLED);
}

static const struct log_builder_node procedure_nodes[] = {
	{ 0, 1, LOG_NODE_REQUEST, 0, 0, 100, 1, 0, 0 },
	{ 1, 1, LOG_NODE_LINE, 8, 0, 200, 2, 0, 0 },
	{ 2, 1, LOG_NODE_RECORD_SOURCE, 9, 0, 400, 4, 0, 0 },
	{ 2, 1, LOG_NODE_RECORD_SOURCE, 10, 0, 800, 8, 0, 0 },
};

static const uint64_t coarse_groups[][LOG_GROUP_CELLS] = {
	{ 50, 1000, 200, 500, 120, 100, 20 },
	{ 5, 400, 400, 410, 410, 10, 10 },
	{ 500, 390, 390, 0, 0, 60, 60 },
};

static const uint64_t measured_groups[][LOG_GROUP_CELLS] = {
	{ 50, 1000, 200, 0, 0, 7, 90 },
	{ 5, 400, 400, 0, 0, 80, 81 },
	{ 500, 390, 390, 0, 0, 1, 40 },
};

/* The procedure's counters with their times. */
static struct log_builder_execution grouped_execution(enum log_mode mode)
{
	struct log_builder_execution all = {
		.statement = 1,
		.start = START,
		.cells = { { LOG_CELL_FINISHED, 5 }, { LOG_CELL_ELAPSED, 1100 } },
	};

	for (uint32_t i = 0; i < 3; i++)
		log_builder_group(&all, LINE + i * LOG_GROUP_CELLS,
				  mode == LOG_MODE_COARSE ? coarse_groups[i] : measured_groups[i]);
	return all;
}

static void build_counters(enum log_mode mode)
{
	const struct log_builder_execution sampled = {
		.statement = 1,
		.start = START,
		.cells = { { 0, 5 }, { 8, 50 }, { 9, 5 }, { 10, 500 } },
	};
	const struct log_builder_execution grouped = grouped_execution(mode);

	log_builder_counters(&builder, 1, mode == LOG_MODE_SAMPLED ? &sampled : &grouped);
}

/* The small log that is truncated and damaged: blocks first, records in two chunks. */
static void build_small_log_of(enum log_mode mode)
{
	const struct log_builder_execution high = { .statement = 1, .first = 64, .start = START };

	log_builder_totals(&builder, 1, 15, 1500);
	build_counters(mode);
	log_builder_counters(&builder, 1, &high);
	if (mode == LOG_MODE_SAMPLED)
		log_builder_nodes(&builder, 1, 1, procedure_nodes, 4);
	build_definitions_of(3, 0, mode);
	log_builder_chunk(&builder, LOG_CHUNK_RECORDS);
	log_builder_session(&builder, 1);
	log_builder_text(&builder, 2, strlen("1 from rdb$database"), "select ");
	log_builder_text(&builder, 2, 0, "1 from rdb$database");
	log_builder_statement(&builder, 2, 101, "BLOCK", NULL, NULL, 2);
	log_builder_session_end(&builder, LOG_END_FINISHED, START + SECOND);
	log_builder_session(&builder, 0);
	log_payload_string(&payload, "a notice");
	log_builder_record(&builder, LOG_REC_NOTICE, &payload);
}

static void build_small_log(void)
{
	build_small_log_of(LOG_MODE_SAMPLED);
}

/* ---- What is read ---- */

START_TEST(small_log)
{
	struct model *model;
	const struct model_session *session;
	const struct model_statement *statement;
	const struct model_record_source *source;
	const struct model_request *request;

	build_small_log();
	model = load();
	assert_nothing_lost(model);
	ck_assert_str_eq(log_of(model)->name, "some.fbprof");
	ck_assert_str_eq(log_of(model)->program, "builder");
	ck_assert_str_eq(log_of(model)->host, "nowhere");
	ck_assert_str_eq(log_of(model)->clock, "none");
	ck_assert_uint_eq(log_of(model)->pid, 4711);
	ck_assert_int_eq(log_of(model)->liveness, LOG_NOT_RECORDED);
	ck_assert_uint_eq(log_of(model)->usage.chunks, 3);
	ck_assert_uint_eq(log_of(model)->usage.blocks, 4);
	ck_assert_str_eq(log_of(model)->notices->pdata[0], "a notice");

	session = only_session(model);
	ck_assert_int_eq(session->profile_id, 3);
	ck_assert_int_eq(session->attachment_id, 12);
	ck_assert_str_eq(session->user, "SYSDBA");
	ck_assert_str_eq(session->description, "first");
	ck_assert_uint_eq(session->sampling_interval, 100000);
	ck_assert_int_eq(session->end, MODEL_FINISHED);
	ck_assert_int_eq(session->end_time, START + SECOND);
	ck_assert_uint_eq(session->totals.samples, 15);
	ck_assert_uint_eq(session->totals.torn_samples, 3);
	ck_assert_uint_eq(session->sampled_time, 1500);

	ck_assert_uint_eq(session->statements->len, 2);
	statement = session->statements->pdata[0];
	ck_assert_int_eq(statement->id, 100);
	ck_assert_str_eq(statement->package, "PKG");
	ck_assert_ptr_null(statement->sql_text);
	statement = session->statements->pdata[1];
	ck_assert_str_eq(statement->sql_text, "select 1 from rdb$database");
	ck_assert_ptr_null(statement->routine);
	source = session->record_sources->pdata[0];
	ck_assert_str_eq(source->access_path, "Select Expression\n    -> Table \"T\" Full Scan");
	ck_assert_str_eq(model_find_cursor(source)->name, "C");

	ck_assert_uint_eq(session->request_count, 1);
	request = request_at(session, 0);
	ck_assert_int_eq(request->start_time, START);
	ck_assert_int_eq(request->finish_time, 0);
	ck_assert_uint_eq(model_request_total_time(request), 1500);
	assert_count(request, 0, 5, 100, 1500, 1);
	assert_count(request, 8, 50, 200, 1400, 2);
	assert_count(request, 9, 5, 400, 400, 4);
	assert_count(request, 10, 500, 800, 800, 8);
	model_free(model);
}
END_TEST

/* ids are signed 64-bit; strings need not be UTF-8; what is empty is NULL, as in the stock tables. */
START_TEST(odd_values)
{
	struct model *model;
	const struct model_session *session;
	const struct model_statement *statement;

	log_builder_session(&builder, 1);
	log_builder_session_start(&builder, INT64_MIN, 0, "");
	log_builder_text(&builder, 7, 0, "caf\xe9 \xf0\x9f\x90\xa6");
	log_builder_statement(&builder, 1, -5, "BLOCK", "", "", 7);
	log_payload_varint(&payload, 9);
	log_payload_varint(&payload, 0);
	log_payload_bytes(&payload, "a\0b", 3);
	log_builder_record(&builder, LOG_REC_TEXT, &payload);
	log_builder_statement(&builder, 2, INT64_MAX, "BLOCK", NULL, NULL, 9);
	model = load();
	assert_nothing_lost(model);
	session = only_session(model);
	ck_assert_int_eq(session->profile_id, INT64_MIN);
	ck_assert_ptr_null(session->description);
	statement = session->statements->pdata[0];
	ck_assert_int_eq(statement->id, -5);
	ck_assert_ptr_null(statement->package);
	ck_assert_ptr_null(statement->routine);
	ck_assert_str_eq(statement->sql_text, "caf\xef\xbf\xbd \xf0\x9f\x90\xa6");
	statement = session->statements->pdata[1];
	ck_assert_int_eq(statement->id, INT64_MAX);
	ck_assert_str_eq(statement->sql_text, "a\xef\xbf\xbd"
					      "b");
	model_free(model);
}
END_TEST

START_TEST(session_ends)
{
	static const struct {
		int reason; /* 0: no record */
		enum log_state state;
		enum model_session_end end;
	} cases[] = {
		{ LOG_END_FINISHED, LOG_CLOSED, MODEL_FINISHED },
		{ LOG_END_CANCELLED, LOG_CLOSED, MODEL_CANCELLED },
		{ LOG_END_DISPOSED, LOG_RECORDING, MODEL_DETACHED },
		{ 0, LOG_DISK_FULL, MODEL_STOPPED },
		{ 0, LOG_RECORDING, MODEL_KILLED },
		{ 0, LOG_QUOTA_REACHED, MODEL_STOPPED },
		{ 0, LOG_CLOSED, MODEL_END_LOST },
	};
	struct model *model;

	build_definitions(1, 0);
	log_builder_set_state(&builder, cases[_i].state);
	if (cases[_i].reason)
		log_builder_session_end(&builder, (uint64_t)cases[_i].reason, START);
	model = load_flags(true);
	ck_assert_int_eq(only_session(model)->end, cases[_i].end);
	model_free(model);

	model = load_flags(false);
	ck_assert_uint_eq(model->sessions->len, cases[_i].reason != LOG_END_CANCELLED);
	ck_assert_uint_eq(model->cancelled_count, cases[_i].reason == LOG_END_CANCELLED);
	model_free(model);
}
END_TEST

START_TEST(living_recorder)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };
	char path[32], error[LOG_ERROR_SIZE];
	struct model *model = model_new();
	int fd;

	build_definitions(1, 0);
	log_builder_set_state(&builder, LOG_RECORDING);
	fd = log_builder_file(&builder, builder.size);
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ck_assert(model_add_log(model, path, false, error));
	ck_assert_int_eq(log_of(model)->liveness, LOG_RECORDED);
	ck_assert_int_eq(only_session(model)->end, MODEL_RUNNING);
	close(fd);
	model_free(model);
}
END_TEST

/* A kill between appending LOG_REC_REQUEST and freeing the blocks leaves both. */
START_TEST(record_replaces_blocks)
{
	struct log_builder_execution execution = {
		.serial = 9,
		.statement = 1,
		.request_id = 77,
		.start = START,
		.duration = 1000,
		.flags = LOG_REQUEST_FINISHED,
		.cells = { { 0, 1 }, { 8, 10 } },
	};
	struct model *model;
	const struct model_request *request;

	log_builder_counters(&builder, 1, &execution);
	execution.serial = 10; /* still running */
	execution.request_id = 78;
	log_builder_counters(&builder, 1, &execution);
	build_definitions(1, LOG_SESSION_DETAILED);
	execution.serial = 9;
	execution.request_id = 77;
	execution.cells[1].value = 11;
	log_builder_request(&builder, &execution);
	model = load();
	assert_nothing_lost(model);
	ck_assert_uint_eq(only_session(model)->request_count, 2);
	request = request_at(only_session(model), 0);
	ck_assert_int_eq(request->id, 77);
	ck_assert_int_eq(request->finish_time, START + 1000);
	assert_count(request, 0, 1, 0, 0, 0);
	assert_count(request, 8, 11, 0, 0, 0);
	request = request_at(only_session(model), 1);
	ck_assert_int_eq(request->id, 78);
	ck_assert_int_eq(request->finish_time, 0);
	assert_count(request, 8, 10, 0, 0, 0);
	model_free(model);
}
END_TEST

/* The engine may report a request again: one row, first start, last finish. */
START_TEST(executions_with_one_id)
{
	struct log_builder_execution execution = {
		.serial = 1,
		.statement = 1,
		.request_id = 77,
		.caller_statement_id = 5,
		.caller_request_id = 6,
		.start = START + SECOND,
		.duration = 100,
		.flags = LOG_REQUEST_FINISHED,
		.cells = { { 0, 1 }, { 1, 30 }, { 8, 10 } },
	};
	const struct log_builder_node nodes[] = {
		{ 0, 1, LOG_NODE_REQUEST, 0, 1, 100, 1, 0, 0 },
		{ 0, 1, LOG_NODE_REQUEST, 0, 2, 100, 1, 0, 0 },
		{ 2, 1, LOG_NODE_LINE, 8, 0, 50, 1, 0, 0 },   /* of the request that it is in */
		{ 0, 1, LOG_NODE_REQUEST, 0, 4, 7, 1, 0, 0 }, /* never seen */
	};
	struct model *model;
	const struct model_request *request;

	log_builder_nodes(&builder, 1, 1, nodes, 4);
	build_definitions(1, LOG_SESSION_DETAILED);
	log_builder_request(&builder, &execution);
	execution.serial = 2;
	execution.start = START;
	execution.duration = 50;
	log_builder_request(&builder, &execution);
	execution.serial = 3;
	execution.start = START + SECOND;
	execution.duration = SECOND;
	log_builder_request(&builder, &execution);
	model = load();
	assert_lost(model, MODEL_LOSS_REQUESTS, 1);
	ck_assert_uint_eq(only_session(model)->request_count, 1);
	ck_assert_uint_eq(only_session(model)->sampled_time, 257);
	request = request_at(only_session(model), 0);
	ck_assert_int_eq(request->start_time, START);
	ck_assert_int_eq(request->finish_time, START + 2 * SECOND);
	ck_assert_int_eq(request->caller_statement_id, 5);
	ck_assert_int_eq(request->caller_id, 6);
	assert_count(request, 0, 3, 200, 250, 2);
	assert_count(request, 8, 30, 50, 50, 1);
	ck_assert_uint_eq(model_request_total_time(request), 250 + 90);
	model_free(model);
}
END_TEST

/* P's line 7 calls P, whose line 7 calls P: totals are those of the outermost. */
START_TEST(recursion)
{
	const struct log_builder_execution all = {
		.statement = 1,
		.start = START,
		.cells = { { 0, 3 }, { 8, 3 } },
	};
	const struct log_builder_node nodes[] = {
		{ 0, 1, LOG_NODE_REQUEST, 0, 0, 1, 1, 0, 0 },
		{ 1, 1, LOG_NODE_LINE, 8, 0, 10, 1, 0, 0 },
		{ 2, 1, LOG_NODE_REQUEST, 0, 0, 100, 1, 0, 0 },
		{ 3, 1, LOG_NODE_LINE, 8, 0, 1000, 1, 0, 0 },
		{ 4, 1, LOG_NODE_REQUEST, 0, 0, 10000, 1, 0, 0 },
		{ 0, 1, LOG_NODE_REQUEST, 0, 0, 5, 1, 0, 0 },
	};
	struct model *model;
	const struct model_request *request;

	log_builder_counters(&builder, 1, &all);
	log_builder_nodes(&builder, 1, 1, nodes, 6);
	build_definitions(1, 0);
	model = load();
	assert_nothing_lost(model);
	request = request_at(only_session(model), 0);
	assert_count(request, 0, 3, 10106, 11116, 4);
	assert_count(request, 8, 3, 1010, 11110, 2);
	model_free(model);
}
END_TEST

/* Equal profile_ids in several logs: the first keeps it, the next free ones go to the others. */
START_TEST(equal_profile_ids)
{
	static const int64_t ids[] = { 1, 1, 2, 1 };
	static const int64_t expected[] = { 1, 2, 3, 4 };
	struct model *model = model_new();

	for (unsigned i = 0; i < 4; i++) {
		struct log_reader *reader;

		log_builder_clear(&builder);
		log_builder_init(&builder);
		build_definitions(ids[i], 0);
		reader = open_log(builder.size);
		ck_assert(model_add_reader(model, reader, "log", false));
		log_reader_close(reader);
	}
	model_order_sessions(model, NULL);
	ck_assert_uint_eq(model->sessions->len, 4);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(((struct model_session *)model->sessions->pdata[i])->profile_id,
				 expected[i]);
	model_free(model);
}
END_TEST

/* The rows of a report add up to the sampled time, whatever there are rows of. */
START_TEST(report_adds_up)
{
	static const struct {
		enum report_by by;
		unsigned rows;
		uint64_t request_self_time;
	} cases[] = {
		{ REPORT_BY_ALL, 3, 100 },
		{ REPORT_BY_LINE, 2, 100 },
		{ REPORT_BY_RECORD_SOURCE, 2, 300 },
		{ REPORT_BY_STATEMENT, 1, 1500 },
	};
	struct model *model;
	struct report_rows rows;
	uint64_t self_time = 0, request_self_time = 0;

	build_small_log();
	model = load();
	report_rows_init(&rows, cases[_i].by);
	report_rows_add(&rows, only_session(model));
	ck_assert_uint_eq(rows.rows->len, cases[_i].rows);
	for (guint i = 0; i < rows.rows->len; i++) {
		const struct report_row *row = rows.rows->pdata[i];

		self_time += row->time.self_time;
		if (strcmp(row->where, "PKG.PROC") == 0 && !row->line) {
			request_self_time = row->time.self_time;
			ck_assert_uint_eq(row->time.total_time, 1500);
			ck_assert_uint_eq(row->count, 5);
		}
	}
	ck_assert_uint_eq(self_time, 1500);
	ck_assert_uint_eq(rows.self_time, 1500);
	ck_assert_uint_eq(request_self_time, cases[_i].request_self_time);
	report_rows_clear(&rows);
	model_free(model);
}
END_TEST

/* ---- Modes without a call tree ---- */

static const struct model_time *time_of(const struct model_request *request, uint32_t cell)
{
	const struct model_count *count = model_request_count(request, cell);

	ck_assert_ptr_nonnull(count);
	return model_count_time(request, count);
}

START_TEST(coarse_log)
{
	const struct model_session *session;
	const struct model_request *request;
	const struct model_time *time;
	struct model *model;

	build_small_log_of(LOG_MODE_COARSE);
	model = load();
	assert_nothing_lost(model);
	session = only_session(model);
	ck_assert_str_eq(model_session_mode(session), "coarse");
	ck_assert(session->has_cpu_time);
	ck_assert_uint_eq(session->totals.stretched, 1);
	ck_assert_uint_eq(session->totals.cost, 1000);
	ck_assert_uint_eq(session->totals.event_cost[LOG_EVENT_FETCH], 3000);
	request = request_at(session, 0);
	ck_assert_uint_eq(request->count_count, 4);
	assert_count(request, 0, 5, 100, 1100, 0);
	assert_count(request, LINE, 50, 200, 1000, 0);
	assert_count(request, OPEN, 5, 400, 400, 0);
	assert_count(request, FETCH, 500, 390, 390, 0);
	time = time_of(request, LINE);
	ck_assert_uint_eq(time->total_cpu_time, 500);
	ck_assert_uint_eq(time->self_cpu_time, 120);
	ck_assert_uint_eq(time->total_cost, 100);
	ck_assert_uint_eq(time->self_cost, 20);
	ck_assert_uint_eq(time->min_time, 0);
	time = time_of(request, 0);
	ck_assert_uint_eq(time->total_cpu_time, 500);
	ck_assert_uint_eq(time->total_cost, 100);
	ck_assert_uint_eq(model_request_total_time(request), 1100);
	ck_assert_uint_eq(model_request_wait_time(request), 600);
	model_free(model);
}
END_TEST

START_TEST(measured_log)
{
	const struct model_session *session;
	const struct model_request *request;
	const struct model_time *time;
	struct model *model;

	build_small_log_of(LOG_MODE_MEASURED);
	model = load();
	assert_nothing_lost(model);
	session = only_session(model);
	ck_assert_str_eq(model_session_mode(session), "measured");
	ck_assert(!session->has_cpu_time);
	request = request_at(session, 0);
	assert_count(request, 0, 5, 100, 1100, 0);
	assert_count(request, LINE, 50, 200, 1000, 0);
	time = time_of(request, LINE);
	ck_assert_uint_eq(time->min_time, 7);
	ck_assert_uint_eq(time->max_time, 90);
	ck_assert_uint_eq(time->total_cost, 0);
	ck_assert_uint_eq(time->self_cost, 0);
	model_free(model);
}
END_TEST

/* Executions of one request: sums, the least and the greatest; what was not counted has neither. */
START_TEST(folded_extremes)
{
	static const uint64_t groups[][LOG_GROUP_CELLS] = {
		{ 2, 30, 30, 0, 0, 10, 20 },
		{ 0, 1, 1, 0, 0, 1, 1 }, /* killed before it was counted */
		{ 3, 60, 40, 0, 0, 5, 30 },
		{ 1, 0, 0, 0, 0, 0, 0 }, /* took less than a ns */
		{ 0 },
	};
	static const uint64_t least[] = { 10, 10, 5, 0, 0 };
	static const uint64_t greatest[] = { 20, 20, 30, 30, 30 };
	uint64_t count = 0, total = 0;

	for (unsigned used = 1; used <= G_N_ELEMENTS(groups); used++) {
		const struct model_request *request;
		const struct model_time *time;
		struct model *model;

		log_builder_clear(&builder);
		log_builder_init(&builder);
		build_definitions_of(1, LOG_SESSION_DETAILED, LOG_MODE_MEASURED);
		/* In either order. */
		for (unsigned i = 0; i < used; i++) {
			struct log_builder_execution execution = {
				.serial = i + 1,
				.statement = 1,
				.request_id = 77,
				.start = START,
				.duration = 100,
				.flags = LOG_REQUEST_FINISHED,
				.cells = { { 0, 1 }, { LOG_CELL_ELAPSED, 100 } },
			};

			log_builder_group(&execution, LINE, groups[_i ? used - 1 - i : i]);
			log_builder_request(&builder, &execution);
		}
		count += groups[used - 1][LOG_GROUP_COUNT];
		total += groups[used - 1][LOG_GROUP_TOTAL];
		model = load();
		assert_nothing_lost(model);
		request = request_at(only_session(model), 0);
		assert_count(request, 0, used, 100 * used - total, 100 * used, 0);
		time = time_of(request, LINE);
		ck_assert_uint_eq(model_request_count(request, LINE)->value, count);
		ck_assert_uint_eq(time->total_time, total);
		ck_assert_uint_eq(time->min_time, least[used - 1]);
		ck_assert_uint_eq(time->max_time, greatest[used - 1]);
		model_free(model);
	}
}
END_TEST

/* What runs has no elapsed time yet; its lines or its largest root have some. */
START_TEST(unfinished_requests)
{
	struct log_builder_execution lines = {
		.serial = 1, .statement = 1, .request_id = 1, .cells = { { LOG_CELL_ELAPSED, 10 } }
	};
	struct log_builder_execution no_lines = { .serial = 2, .statement = 2, .request_id = 2 };
	struct log_builder_execution nothing = { .serial = 3, .statement = 1, .request_id = 3 };
	const struct model_request *request;
	struct model *model;

	for (uint32_t i = 0; i < 3; i++)
		log_builder_group(&lines, LINE + 8 * i, coarse_groups[i]);
	log_builder_group(&no_lines, 8, coarse_groups[1]);
	log_builder_group(&no_lines, 16, coarse_groups[2]);
	log_builder_group(&no_lines, 24, coarse_groups[0]); /* inside the first one */
	log_builder_group(&no_lines, 40, coarse_groups[1]); /* of a sub-query */
	log_builder_counters(&builder, 1, &lines);
	log_builder_counters(&builder, 1, &no_lines);
	log_builder_counters(&builder, 1, &nothing);
	build_definitions_of(1, LOG_SESSION_DETAILED, LOG_MODE_COARSE);
	log_builder_statement(&builder, 2, 101, "BLOCK", NULL, NULL, 0);
	log_builder_record_source(&builder, 2, 1, 1, 0, 8, 0);
	log_builder_record_source(&builder, 2, 1, 2, 1, 24, 0);
	log_builder_record_source(&builder, 2, 2, 1, 0, 40, 0);
	model = load();
	assert_nothing_lost(model);
	ck_assert_uint_eq(only_session(model)->request_count, 3);
	request = request_at(only_session(model), 0);
	assert_count(request, 0, 0, 0, 1000, 0);
	ck_assert_uint_eq(time_of(request, 0)->total_cost, 100);
	request = request_at(only_session(model), 1);
	ck_assert_int_eq(request->id, 3);
	assert_count(request, 0, 0, 0, 0, 0);
	request = request_at(only_session(model), 2);
	assert_count(request, 0, 0, 0, 790, 0);
	ck_assert_uint_eq(time_of(request, 0)->total_cost, 70);
	ck_assert_uint_eq(model_request_wait_time(request), 790 + 70 - 410);
	model_free(model);
}
END_TEST

/* Groups of a statement's second block, and of a record that skips some. */
START_TEST(far_groups)
{
	struct log_builder_execution far = { .statement = 1, .first = 64, .start = START };
	struct model *model;

	log_builder_group(&far, 120, measured_groups[0]);
	log_builder_counters(&builder, 1, &far);
	build_definitions_of(1, 0, LOG_MODE_MEASURED);
	log_builder_line(&builder, 1, 9, 9, 120);
	model = load();
	assert_nothing_lost(model);
	assert_count(request_at(only_session(model), 0), 120, 50, 200, 1000, 0);
	model_free(model);
}
END_TEST

static const struct report_row *find_row(const struct report_rows *rows, const char *where)
{
	for (guint i = 0; i < rows->rows->len; i++) {
		const struct report_row *row = rows->rows->pdata[i];

		if (strcmp(row->where, where) == 0 && !row->line)
			return row;
	}
	ck_abort_msg("no row %s", where);
	return NULL;
}

/*
 * A procedure that is called by a statement, whose time it is: rows add up to the time of lines and
 * record sources, which is not counted twice.
 */
START_TEST(untreed_report)
{
	static const struct {
		enum report_by by;
		unsigned rows;
		uint64_t request_self_time;
	} cases[] = {
		{ REPORT_BY_ALL, 4, 0 },
		{ REPORT_BY_LINE, 4, 0 }, /* with one for the line of the cursor */
		{ REPORT_BY_RECORD_SOURCE, 3, 200 },
		{ REPORT_BY_STATEMENT, 2, 990 },
	};
	const struct log_builder_execution caller = {
		.statement = 2,
		.start = START,
		.cells = { { LOG_CELL_FINISHED, 1 }, { LOG_CELL_ELAPSED, 1200 } },
	};
	const struct report_row *row;
	struct report_rows rows;
	uint64_t self_time = 0, wait;
	struct model *model;

	log_builder_counters(&builder, 1, &caller);
	build_counters(LOG_MODE_COARSE);
	build_definitions_of(1, 0, LOG_MODE_COARSE);
	log_builder_text(&builder, 2, 0, "execute procedure pkg.proc");
	log_builder_statement(&builder, 2, 101, "BLOCK", NULL, NULL, 2);
	model = load();
	assert_nothing_lost(model);
	report_rows_init(&rows, cases[_i].by);
	report_rows_add(&rows, only_session(model));
	ck_assert_uint_eq(rows.rows->len, cases[_i].rows);
	for (guint i = 0; i < rows.rows->len; i++)
		self_time += ((struct report_row *)rows.rows->pdata[i])->time.self_time;
	ck_assert_uint_eq(self_time, 990);
	ck_assert_uint_eq(rows.self_time, 990);
	ck_assert_uint_eq(rows.coarse_time, 990);
	ck_assert_uint_eq(rows.outside_time, 1200 - 990);
	ck_assert(rows.has_cpu_time);
	row = find_row(&rows, "PKG.PROC");
	ck_assert_uint_eq(row->count, 5);
	ck_assert_uint_eq(row->time.total_time, 1100);
	ck_assert_uint_eq(row->time.self_time, cases[_i].request_self_time);
	if (cases[_i].by == REPORT_BY_STATEMENT) {
		ck_assert(report_row_wait(row, &wait));
		ck_assert_uint_eq(wait, 990 + 90 - 530);
	}
	row = find_row(&rows, "execute procedure pkg.proc");
	ck_assert_uint_eq(row->count, 1);
	ck_assert_uint_eq(row->time.total_time, 1200);
	ck_assert_uint_eq(row->time.self_time, 0);
	ck_assert(!report_row_wait(row, &wait));
	report_rows_clear(&rows);
	model_free(model);
}
END_TEST

/*
 * A query in an expression begins further on in its line: its time is that line's.  Its plan's root tells
 * the place, and if it doesn't, the cursor.
 */
START_TEST(query_within_line)
{
	static const struct {
		uint32_t line, column;
		const char *plan;
	} cases[] = {
		{ 7, 9, "Select Expression\n    -> Table \"T\" Full Scan" },
		{ 6, 2, "Sub-query (line 7, column 9)" },
		{ 6, 2, "Sub-query (line 8, column 1)" },
	};
	const struct report_row *row = NULL;
	struct report_rows rows;
	struct model *model;

	build_counters(LOG_MODE_COARSE);
	build_definitions_at(1, 0, LOG_MODE_COARSE, cases[_i].line, cases[_i].column,
			     cases[_i].plan);
	model = load();
	report_rows_init(&rows, REPORT_BY_LINE);
	report_rows_add(&rows, only_session(model));
	ck_assert_uint_eq(rows.rows->len, 2);
	for (guint i = 0; i < rows.rows->len; i++) {
		if (((struct report_row *)rows.rows->pdata[i])->line)
			row = rows.rows->pdata[i];
	}
	ck_assert_ptr_nonnull(row);
	ck_assert_uint_eq(row->line, 7);
	ck_assert_uint_eq(row->column, 3);
	ck_assert_uint_eq(row->time.self_time, 990);
	report_rows_clear(&rows);
	model_free(model);
}
END_TEST

/* A block's own time is in nothing else; its CPU time is not known. */
START_TEST(block_with_lines)
{
	struct log_builder_execution block = {
		.statement = 2,
		.start = START,
		.cells = { { LOG_CELL_FINISHED, 1 }, { LOG_CELL_ELAPSED, 1200 } },
	};
	const struct report_row *row;
	struct report_rows rows;
	struct model *model;
	uint64_t wait;

	log_builder_group(&block, LINE, coarse_groups[0]);
	log_builder_counters(&builder, 1, &block);
	build_definitions_of(1, 0, LOG_MODE_COARSE);
	log_builder_text(&builder, 2, 0, "execute block");
	log_builder_statement(&builder, 2, 101, "BLOCK", NULL, NULL, 2);
	log_builder_line(&builder, 2, 1, 1, LINE);
	model = load();
	assert_nothing_lost(model);
	report_rows_init(&rows, REPORT_BY_ALL);
	report_rows_add(&rows, only_session(model));
	row = find_row(&rows, "execute block");
	ck_assert_uint_eq(row->time.self_time, 200);
	ck_assert(!report_row_wait(row, &wait));
	ck_assert_uint_eq(rows.outside_time, 0);
	report_rows_clear(&rows);
	report_rows_init(&rows, REPORT_BY_STATEMENT);
	report_rows_add(&rows, only_session(model));
	row = find_row(&rows, "execute block");
	ck_assert_uint_eq(row->time.self_time, 400);
	ck_assert(report_row_wait(row, &wait));
	ck_assert_uint_eq(wait, 100);
	report_rows_clear(&rows);
	model_free(model);
}
END_TEST

/* Costs and CPU times are summed as times are: of a recursive call the outermost. */
START_TEST(sampled_costs)
{
	const struct log_builder_execution all = {
		.statement = 1,
		.start = START,
		.cells = { { 0, 2 }, { 8, 2 } },
	};
	const struct log_builder_node nodes[] = {
		{ 0, 1, LOG_NODE_REQUEST, 0, 0, 1, 1, 2, 0 },
		{ 1, 1, LOG_NODE_LINE, 8, 0, 10, 1, 20, 7 },
		{ 2, 1, LOG_NODE_REQUEST, 0, 0, 100, 1, 200, 70 },
		{ 3, 1, LOG_NODE_LINE, 8, 0, 1000, 1, 2000, 2500 },
	};
	const struct model_time *time;
	struct model *model;

	log_builder_counters(&builder, 1, &all);
	log_builder_nodes(&builder, 1, 1, nodes, 4);
	build_definitions(1, 0);
	model = load();
	assert_nothing_lost(model);
	ck_assert(only_session(model)->has_cpu_time);
	time = time_of(request_at(only_session(model), 0), 0);
	ck_assert_uint_eq(time->self_cost, 202);
	ck_assert_uint_eq(time->total_cost, 2222);
	ck_assert_uint_eq(time->self_cpu_time, 70);
	ck_assert_uint_eq(time->total_cpu_time, 2577);
	time = time_of(request_at(only_session(model), 0), 8);
	ck_assert_uint_eq(time->self_cost, 2020);
	ck_assert_uint_eq(time->total_cost, 2220);
	ck_assert_uint_eq(time->self_cpu_time, 2507);
	ck_assert_uint_eq(time->total_cpu_time, 2577);
	ck_assert_uint_eq(model_wait(10, 5, 7), 8);
	ck_assert_uint_eq(model_wait(10, 5, 2), 10); /* cost is CPU time */
	ck_assert_uint_eq(model_wait(10, 5, 16), 0);
	model_free(model);
}
END_TEST

/* ---- What is lost ---- */

START_TEST(unknown_modes)
{
	static const uint64_t modes[] = { 0, 5, UINT64_C(0x100000001), UINT64_MAX };
	struct model *model;

	log_builder_session(&builder, 2);
	log_builder_session_of_mode(&builder, 2, 0, modes[_i], NULL);
	log_builder_statement(&builder, 1, 100, "BLOCK", NULL, NULL, 0);
	log_builder_line(&builder, 1, 1, 1, 8);
	build_definitions(1, 0);
	model = load();
	assert_lost(model, MODEL_LOSS_MODES, 1);
	ck_assert_int_eq(only_session(model)->profile_id, 1);
	model_free(model);
}
END_TEST

/* A start that comes behind what it should explain. */
START_TEST(late_start)
{
	struct model *model;

	log_builder_session(&builder, 1);
	log_builder_statement(&builder, 1, 100, "BLOCK", NULL, NULL, 0);
	log_builder_line(&builder, 1, 1, 1, 9);
	log_builder_session_of_mode(&builder, 1, 0, LOG_MODE_COARSE, NULL);
	model = load();
	ck_assert_uint_eq(model->sessions->len, 0);
	ck_assert_uint_eq(log_of(model)->lost[LOG_LOSS_RECORDS], 1);
	ck_assert_uint_eq(log_of(model)->lost[MODEL_LOSS_SESSIONS], 1);
	model_free(model);
}
END_TEST

START_TEST(bad_groups)
{
	struct log_builder_execution all = grouped_execution(LOG_MODE_MEASURED);
	struct log_builder_execution odd = {
		.statement = 1,
		.cells = { { LOG_CELL_UNSAMPLED, 1 },
			   { 7, 1 },
			   { LINE + LOG_GROUP_TOTAL_CPU, 1 },
			   { LINE + LOG_GROUP_CELLS - 1, 1 },
			   { 40, 1 },
			   { 41, 1 } },
	};
	struct model *model;

	log_builder_counters(&builder, 1, &all);
	log_builder_nodes(&builder, 1, 1, procedure_nodes, 4);
	build_definitions_of(1, 0, LOG_MODE_MEASURED);
	log_builder_line(&builder, 1, 2, 1, 33);		  /* not the first of a group */
	log_builder_record_source(&builder, 1, 1, 2, 0, 36, 0);	  /* likewise */
	log_builder_line(&builder, 1, 2, 1, FETCH);		  /* taken */
	log_builder_record_source(&builder, 1, 1, 2, 0, LINE, 0); /* likewise */
	log_builder_record_source(&builder, 1, 1, 2, 0, LOG_NODE_CELL_MASK - 7, 0); /* no room */
	log_builder_request(&builder, &odd);
	model = load();
	ck_assert_uint_eq(log_of(model)->lost[LOG_LOSS_RECORDS], 5);
	ck_assert_uint_eq(log_of(model)->lost[MODEL_LOSS_NODES], 4);
	ck_assert_uint_eq(log_of(model)->lost[MODEL_LOSS_COUNTS], 4 + 1);
	ck_assert_uint_eq(only_session(model)->node_count, 0);
	assert_count(request_at(only_session(model), 0), LINE, 50, 200, 1000, 0);
	model_free(model);
}
END_TEST

START_TEST(undefined_things)
{
	const struct log_builder_execution all = {
		.statement = 1, .cells = { { 0, 1 }, { 8, 1 }, { 20, 1 } }, /* no cell 20 */
	};
	const struct log_builder_execution stranger = { .statement = 8, .cells = { { 0, 1 } } };
	const struct log_builder_node nodes[] = {
		{ 0, 1, LOG_NODE_REQUEST, 0, 0, 1, 1, 0, 0 },
		{ 1, 1, LOG_NODE_LINE, 20, 0, 10, 1, 0, 0 },	  /* no cell 20 */
		{ 2, 1, LOG_NODE_LINE, 8, 0, 100, 1, 0, 0 },	  /* goes to node 1 */
		{ 1, 1, LOG_NODE_LINE, 9, 0, 1000, 1, 0, 0 },	  /* a record source */
		{ 1, 9, LOG_NODE_REQUEST, 0, 0, 10000, 1, 0, 0 }, /* no statement 9 */
	};
	struct model *model;
	const struct model_log *log;
	const struct model_session *session;

	log_builder_counters(&builder, 1, &all);
	log_builder_counters(&builder, 1, &stranger);
	log_builder_counters(&builder, 2, &all); /* no session 2 */
	log_builder_nodes(&builder, 1, 1, nodes, 5);
	build_definitions(1, 0);
	log_builder_statement(&builder, 2, 101, "BLOCK", NULL, NULL, 55); /* no text 55 */
	model = load();
	log = log_of(model);
	session = only_session(model);
	ck_assert_uint_eq(log->lost[MODEL_LOSS_COUNTS], 2);
	ck_assert_uint_eq(log->lost[MODEL_LOSS_SESSIONS], 1);
	ck_assert_uint_eq(log->lost[MODEL_LOSS_NODES], 3);
	ck_assert_uint_eq(log->lost[MODEL_LOSS_CALLERS], 0);
	ck_assert_uint_eq(log->lost[MODEL_LOSS_TEXTS], 1);
	assert_count(request_at(session, 0), 0, 1, 1, 101, 1);
	assert_count(request_at(session, 0), 8, 1, 100, 100, 1);
	model_free(model);
}
END_TEST

START_TEST(missing_caller)
{
	struct model *model;

	log_builder_nodes(&builder, 1, 17, procedure_nodes, 3); /* 18's parent is 1, 19's is 2 */
	build_definitions(1, 0);
	model = load();
	ck_assert_uint_eq(log_of(model)->lost[MODEL_LOSS_CALLERS], 2);
	ck_assert_uint_eq(only_session(model)->node_count, 3);
	ck_assert_uint_eq(only_session(model)->sampled_time, 700);
	model_free(model);
}
END_TEST

START_TEST(nonsense)
{
	const struct log_builder_execution first_is_odd = { .statement = 1, .first = 3 };
	const struct log_builder_execution no_statement = { .statement = 0 };
	const struct log_builder_node nodes[] = {
		{ 1, 1, LOG_NODE_REQUEST, 0, 0, 1, 1, 0, 0 }, /* its own parent */
		{ 0, 0, LOG_NODE_REQUEST, 0, 0, 1, 1, 0, 0 }, /* no statement */
	};
	struct model *model;

	log_builder_counters(&builder, 1, &first_is_odd);
	log_builder_counters(&builder, 1, &no_statement);
	log_builder_counters(&builder, 0, &first_is_odd);
	log_builder_nodes(&builder, 1, 1, nodes, 2);
	log_builder_nodes(&builder, 1, 0, nodes, 1);
	log_builder_nodes(&builder, 1, 1, nodes, 0);
	build_definitions(1, 0);
	log_builder_record(&builder, LOG_REC_LINE, &payload); /* no fields */
	log_builder_record(&builder, LOG_REC_SESSION_START, &payload);
	log_builder_line(&builder, 1, 1, 1, LOG_CELL_UNSAMPLED); /* not free */
	log_builder_line(&builder, 1, 8, 1, 8);			 /* taken */
	log_builder_record(&builder, 200, &payload);		 /* from the future */
	log_builder_session(&builder, 0);
	log_builder_line(&builder, 1, 1, 1, 19); /* the process has no lines */
	log_builder_chunk(&builder, LOG_CHUNK_RECORDS);
	log_builder_line(&builder, 1, 1, 1, 19); /* of which session? */
	log_builder_chunk(&builder, 5);		 /* from the future */
	model = load();
	ck_assert_uint_eq(log_of(model)->lost[LOG_LOSS_BLOCKS], 4);
	ck_assert_uint_eq(log_of(model)->lost[LOG_LOSS_NODES], 2);
	ck_assert_uint_eq(log_of(model)->lost[LOG_LOSS_RECORDS], 6);
	ck_assert_uint_eq(log_of(model)->lost[LOG_LOSS_UNKNOWN], 2);
	ck_assert_uint_eq(only_session(model)->record_sources->len, 1);
	model_free(model);
}
END_TEST

/* A newer recorder's longer nodes, and fields that it adds to records. */
START_TEST(surplus)
{
	struct model *model;
	uint8_t *block;

	log_builder_nodes(&builder, 1, 1, procedure_nodes, 4);
	block = builder.bytes + builder.parts[0].end - sizeof(struct log_block);
	memmove(block + 64 + 56, block + 64 + 48,
		48); /* the second node, 56 bytes after the first */
	block[16] = 56;
	block[20] = 2;
	build_definitions(1, 0);
	log_payload_varint(&payload, 1);
	log_payload_varint(&payload, 30);
	log_payload_varint(&payload, 1);
	log_payload_varint(&payload, 30);
	log_payload_string(&payload, "something new");
	log_builder_record(&builder, LOG_REC_LINE, &payload);
	model = load();
	ck_assert_uint_eq(only_session(model)->node_count, 2);
	ck_assert_uint_eq(only_session(model)->sampled_time, 300);
	ck_assert_uint_eq(log_of(model)->lost[LOG_LOSS_RECORDS], 0);
	model_free(model);
}
END_TEST

START_TEST(not_a_log)
{
	char error[LOG_ERROR_SIZE], bytes[] = "select 1 from rdb$database";
	int ends[2];

	ck_assert_ptr_null(log_reader_open("/nonexistent/log", error));
	ck_assert_ptr_nonnull(strstr(error, "No such file"));
	ck_assert_ptr_null(log_reader_open("/", error));
	ck_assert_ptr_nonnull(strstr(error, "not a regular file"));
	ck_assert_int_eq(pipe(ends), 0);
	close(ends[1]);
	ck_assert_ptr_null(log_reader_open_fd(ends[0], error));
	ck_assert_ptr_nonnull(strstr(error, "not a regular file"));

	ck_assert_ptr_null(open_log(0));
	memcpy(builder.bytes, bytes, sizeof(bytes));
	ck_assert_ptr_null(open_log(builder.size));
}
END_TEST

START_TEST(other_version)
{
	char error[LOG_ERROR_SIZE];

	builder.bytes[8] = 3;
	log_builder_seal_header(&builder);
	ck_assert_ptr_null(log_reader_open_fd(log_builder_file(&builder, builder.size), error));
	ck_assert_ptr_nonnull(strstr(error, "version 3"));
	builder.bytes[8] = 1;
	log_builder_seal_header(&builder);
	ck_assert_ptr_null(log_reader_open_fd(log_builder_file(&builder, builder.size), error));
	ck_assert_ptr_nonnull(strstr(error, "version 1"));
	builder.bytes[8] = 0;
	log_builder_seal_header(&builder);
	ck_assert_ptr_null(open_log(builder.size));
	builder.bytes[8] = 2;
	builder.bytes[16] = 1; /* chunk_size */
	log_builder_seal_header(&builder);
	ck_assert_ptr_null(open_log(builder.size));
}
END_TEST

/* A file with a hole of 8 TB, and a header that promises even more. */
START_TEST(huge_hole)
{
	char error[LOG_ERROR_SIZE];
	struct log_reader *reader;
	const struct log_visitor visitor = { 0 };
	int fd;

	build_small_log();
	builder.bytes[offsetof(struct log_header, chunk_count) + 5] = 1;
	fd = log_builder_file(&builder, builder.size);
	ck_assert_int_eq(ftruncate(fd, (off_t)1 << 43), 0);
	reader = log_reader_open_fd(fd, error);
	ck_assert_ptr_nonnull(reader);
	ck_assert(log_reader_read(reader, &visitor, NULL));
	ck_assert_uint_eq(log_reader_usage(reader)->blocks, 4);
	ck_assert_uint_gt(log_reader_lost(reader)[LOG_LOSS_CUT_CHUNKS], 1u << 20);
	ck_assert_uint_gt(log_reader_lost(reader)[LOG_LOSS_CHUNKS], 1u << 20);
	log_reader_close(reader);
}
END_TEST

/* ---- Every truncation, every bit ---- */

struct seen {
	unsigned records, blocks, nodes;
};

static void see_session_start(void *data, uint32_t session, const struct log_session_start *start)
{
	(void)session, (void)start;
	((struct seen *)data)->records++;
}

static void see_session_end(void *data, uint32_t session, uint64_t reason, int64_t time)
{
	(void)session, (void)reason, (void)time;
	((struct seen *)data)->records++;
}

static void see_text(void *data, uint32_t session, uint32_t id, uint64_t to_come,
		     struct log_string part)
{
	(void)session, (void)id, (void)to_come, (void)part;
	((struct seen *)data)->records++;
}

static void see_statement(void *data, uint32_t session, const struct log_statement *statement)
{
	(void)session, (void)statement;
	((struct seen *)data)->records++;
}

static void see_cursor(void *data, uint32_t session, const struct log_cursor *cursor)
{
	(void)session, (void)cursor;
	((struct seen *)data)->records++;
}

static void see_source(void *data, uint32_t session, const struct log_record_source *source)
{
	(void)session, (void)source;
	((struct seen *)data)->records++;
}

static void see_line(void *data, uint32_t session, const struct log_line *line)
{
	(void)session, (void)line;
	((struct seen *)data)->records++;
}

static void see_notice(void *data, uint32_t session, struct log_string notice)
{
	(void)session, (void)notice;
	((struct seen *)data)->records++;
}

static void see_counters(void *data, uint32_t session, const struct log_execution *execution)
{
	(void)session, (void)execution;
	((struct seen *)data)->blocks++;
}

static void see_totals(void *data, uint32_t session, const struct log_session_totals *totals)
{
	(void)session, (void)totals;
	((struct seen *)data)->blocks++;
}

static void see_node(void *data, uint32_t session, uint32_t id, const struct log_node *node)
{
	(void)session, (void)id, (void)node;
	((struct seen *)data)->nodes++;
}

static const struct log_visitor see_all = {
	.counters = see_counters,
	.node = see_node,
	.totals = see_totals,
	.session_start = see_session_start,
	.session_end = see_session_end,
	.text = see_text,
	.statement = see_statement,
	.cursor = see_cursor,
	.record_source = see_source,
	.line = see_line,
	.notice = see_notice,
};

/* What of the whole log lies before a tear at `size`. */
static struct seen expected_before(size_t size)
{
	struct seen expected = { 0 };

	for (unsigned i = 0; i < builder.part_count; i++) {
		const struct log_builder_part *part = &builder.parts[i];

		if (part->end > size || (!part->block && part->kind == LOG_REC_SESSION))
			continue;
		if (!part->block)
			expected.records++;
		else if (part->kind == LOG_BLOCK_NODES)
			expected.nodes += G_N_ELEMENTS(procedure_nodes);
		else
			expected.blocks++;
	}
	return expected;
}

/* The whole way that a log goes in the tools; what comes out does not matter here. */
static void use(struct log_reader *reader)
{
	struct model *model = model_new();
	struct report_rows rows;
	struct sink sink;

	ck_assert(model_add_reader(model, reader, "log", true));
	model_order_sessions(model, NULL);
	sink_open(&sink, -1); /* writing fails */
	report_rows_init(&rows, REPORT_BY_ALL);
	for (unsigned i = 0; i < PROF_TABLE_COUNT; i++)
		prof_table_write(&prof_tables[i], model, &sink);
	for (guint i = 0; i < model->sessions->len; i++)
		report_rows_add(&rows, model->sessions->pdata[i]);
	report_rows_clear(&rows);
	sink_close(&sink);
	model_free(model);
}

/* Whether the model can be another one than at the sizes next to it: using it takes long. */
static bool ends_a_part(size_t size)
{
	for (unsigned i = 0; i < builder.part_count; i++) {
		size_t end = builder.parts[i].end;

		if (size + 1 >= end && size <= end + 1)
			return true;
	}
	return false;
}

/* Everything before the tear is there, and it is said that something is missing. */
START_TEST(truncations)
{
	char error[LOG_ERROR_SIZE];
	struct log_reader *reader;
	size_t size;
	int fd;

	build_small_log_of((enum log_mode)_i);
	fd = log_builder_file(&builder, builder.size);
	reader = log_reader_open_fd(dup(fd), error);
	ck_assert_ptr_nonnull(reader);
	for (size = builder.size - 1; size >= LOG_HEADER_SIZE; size--) {
		struct seen seen = { 0 }, expected = expected_before(size);

		ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
		ck_assert(log_reader_read(reader, &see_all, &seen));
		ck_assert_uint_eq(seen.records, expected.records);
		ck_assert_uint_eq(seen.blocks, expected.blocks);
		ck_assert_uint_eq(seen.nodes, expected.nodes);
		ck_assert_uint_gt(log_reader_lost(reader)[LOG_LOSS_CUT_CHUNKS], 0);
		if (ends_a_part(size))
			use(reader);
	}
	log_reader_close(reader);
	for (; size > 0; size--) {
		ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
		ck_assert_ptr_null(log_reader_open_fd(dup(fd), error));
	}
	close(fd);
}
END_TEST

/* Where bytes mean something: the header, chunk headers, and what is in use after them. */
static bool is_used(size_t offset)
{
	size_t in_chunk = (offset - LOG_HEADER_SIZE) % LOG_CHUNK_SIZE;
	size_t chunk = offset - in_chunk, end = chunk;

	if (offset < LOG_HEADER_SIZE)
		return offset < 256 || offset >= 3060;
	for (unsigned i = 0; i < builder.part_count; i++) {
		if (builder.parts[i].end > chunk && builder.parts[i].end <= chunk + LOG_CHUNK_SIZE)
			end = builder.parts[i].end;
	}
	return in_chunk < sizeof(struct log_chunk_header) || offset < end;
}

/* What must be noticed, for there is a checksum over it. */
static void assert_noticed(const struct log_reader *reader, size_t offset)
{
	size_t in_chunk = (offset - LOG_HEADER_SIZE) % LOG_CHUNK_SIZE;
	const struct log_chunk_header *chunk = (void *)(builder.bytes + offset - in_chunk);
	const uint64_t *lost = log_reader_lost(reader);

	if (in_chunk < offsetof(struct log_chunk_header, used))
		ck_assert_uint_eq(lost[LOG_LOSS_CHUNKS], 1);
	else if (in_chunk >= sizeof(*chunk) && chunk->kind == LOG_CHUNK_RECORDS)
		ck_assert_uint_eq(lost[LOG_LOSS_TORN_RECORDS], 1);
}

static void flip(int fd, struct log_reader *reader, size_t offset, int bit)
{
	uint8_t byte = builder.bytes[offset] ^ (uint8_t)(1 << bit);
	char error[LOG_ERROR_SIZE];

	ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)offset), 1);
	if (offset >= LOG_HEADER_SIZE) {
		use(reader);
		assert_noticed(reader, offset);
		return;
	}
	reader = log_reader_open_fd(dup(fd), error);
	ck_assert((reader == NULL) == (offset < offsetof(struct log_header, chunk_count)));
	if (reader)
		use(reader);
	log_reader_close(reader);
}

START_TEST(bit_flips)
{
	char error[LOG_ERROR_SIZE];
	struct log_reader *reader;
	int fd;

	build_small_log_of((enum log_mode)_i);
	fd = log_builder_file(&builder, builder.size);
	reader = log_reader_open_fd(dup(fd), error);
	ck_assert_ptr_nonnull(reader);
	for (size_t offset = 0; offset < builder.size; offset++) {
		if (!is_used(offset))
			continue;
		for (int bit = 0; bit < 8; bit++)
			flip(fd, reader, offset, bit);
		ck_assert_int_eq(pwrite(fd, &builder.bytes[offset], 1, (off_t)offset), 1);
	}
	log_reader_close(reader);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reader");
	TCase *reading = tcase_create("reading");
	TCase *losses = tcase_create("losses");
	TCase *damage = tcase_create("damage");

	tcase_add_checked_fixture(reading, setup, teardown);
	tcase_add_test(reading, small_log);
	tcase_add_test(reading, odd_values);
	tcase_add_loop_test(reading, session_ends, 0, 7);
	tcase_add_test(reading, living_recorder);
	tcase_add_test(reading, record_replaces_blocks);
	tcase_add_test(reading, executions_with_one_id);
	tcase_add_test(reading, recursion);
	tcase_add_test(reading, equal_profile_ids);
	tcase_add_loop_test(reading, report_adds_up, 0, 4);
	tcase_add_test(reading, sampled_costs);
	tcase_add_test(reading, coarse_log);
	tcase_add_test(reading, measured_log);
	tcase_add_loop_test(reading, folded_extremes, 0, 2);
	tcase_add_test(reading, unfinished_requests);
	tcase_add_test(reading, far_groups);
	tcase_add_loop_test(reading, untreed_report, 0, 4);
	tcase_add_loop_test(reading, query_within_line, 0, 3);
	tcase_add_test(reading, block_with_lines);
	suite_add_tcase(suite, reading);

	tcase_add_checked_fixture(losses, setup, teardown);
	tcase_add_loop_test(losses, unknown_modes, 0, 4);
	tcase_add_test(losses, late_start);
	tcase_add_test(losses, bad_groups);
	tcase_add_test(losses, undefined_things);
	tcase_add_test(losses, missing_caller);
	tcase_add_test(losses, nonsense);
	tcase_add_test(losses, surplus);
	tcase_add_test(losses, not_a_log);
	tcase_add_test(losses, other_version);
	tcase_add_test(losses, huge_hole);
	suite_add_tcase(suite, losses);

	tcase_add_checked_fixture(damage, setup, teardown);
	tcase_set_timeout(damage, 300);
	tcase_add_loop_test(damage, truncations, LOG_MODE_SAMPLED, LOG_MODE_MEASURED + 1);
	tcase_add_loop_test(damage, bit_flips, LOG_MODE_SAMPLED, LOG_MODE_MEASURED + 1);
	suite_add_tcase(suite, damage);

	return run_suite(suite);
}
