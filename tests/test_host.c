/*
 * The whole recorder against the test host: plays streams of events to the plugin and reads in the
 * log what has become of them.  Check runs each test in a process of its own.
 *
 * Where a test waits for the sampler, only the deadline that makes it fail is a matter of time.
 */
#define _GNU_SOURCE
#include "../output/log_writer.h"
#include "../sampler/sampler.h"
#include "../shim/clock.h"
#include "host.h"
#include "log_image.h"
#include "run_suite.h"
#include "scratch.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_SECONDS	 300
#define DEADLINE_SECONDS 60

static struct host host;
static struct host_attachment attachment;

/* As clock_gettime of the preloaded library. */
static int our_clock(clockid_t id, struct timespec *time)
{
	return clock_answer(id, time);
}

static void use_our_clock(void)
{
	clock_is_ours = true;
	host.clock = our_clock;
}

static unsigned threads_before;

static void set_up(void)
{
	char error[256];

	threads_before = threads_at_first();
	scratch_make();
	ck_assert_msg(host_open(&host, NULL, scratch, error, sizeof(error)), "%s", error);
	host_attach(&host, &attachment, 7);
}

static void start(const char *options)
{
	ck_assert_msg(host_start(&attachment, "a test", options), "%s", attachment.error);
}

static struct log_image *read_log(void)
{
	char path[PATH_MAX];

	ck_assert_uint_eq(scratch_logs(path), 1);
	return image_read(path);
}

/* ---- Counters ---- */

/* What a recorder must count, found in the stream without any of its cleverness. */
static struct count *expected_counts(const struct host_stream *stream, unsigned rounds,
				     bool detailed, bool timed, size_t *number)
{
	struct count *counts = malloc((stream->count + 1) * rounds * sizeof(*counts));
	/* By request: whether it had an event since its start, and who called it. */
	bool *seen = calloc((size_t)stream->last_request + 1, sizeof(*seen));
	int64_t *caller = calloc((size_t)stream->last_request + 1, sizeof(*caller));
	size_t used = 0;

	ck_assert(counts && seen && caller);
	for (size_t i = 0; i < stream->count * rounds; i++) {
		const struct host_event *event = &stream->events[i % stream->count];
		struct count count = { .statement = event->statement, .value = 1 };

		if (detailed)
			count.request = event->request +
					stream->last_request * (int64_t)(i / stream->count);
		if (event->op >= HOST_BEFORE_LINE && event->op <= HOST_AFTER_FETCH) {
			for (int64_t id = event->request; id && !seen[id]; id = caller[id])
				seen[id] = true;
		}
		count.first = event->first;
		count.second = event->second;
		switch (event->op) {
		case HOST_REQUEST_START:
			seen[event->request] = false;
			caller[event->request] = stream->details[event->first].caller_request;
			continue;
		case HOST_REQUEST_FINISH:
			count.first = count.second = 0;
			count.kind = COUNT_FINISHED;
			counts[used++] = count;
			if (seen[event->request] && !timed)
				continue;
			count.kind = timed ? COUNT_ELAPSED : COUNT_UNSAMPLED;
			count.value = stream->details[event->first].elapsed;
			break;
		case HOST_AFTER_LINE:
			count.kind = COUNT_LINE;
			break;
		case HOST_AFTER_OPEN:
			count.kind = COUNT_OPEN;
			break;
		case HOST_AFTER_FETCH:
			count.kind = COUNT_FETCH;
			break;
		default:
			continue;
		}
		counts[used++] = count;
	}
	free(seen);
	free(caller);
	*number = counts_sum_up(counts, used);
	return counts;
}

static void check_counts(const struct image_session *session, const struct host_stream *stream,
			 unsigned rounds, bool detailed)
{
	size_t wanted_number, found_number;
	struct count *wanted = expected_counts(stream, rounds, detailed,
					       session->mode != LOG_MODE_SAMPLED, &wanted_number);
	struct count *found = image_counts(session, &found_number);

	for (size_t i = 0; i < wanted_number && i < found_number; i++) {
		ck_assert_msg(
			!count_compare(&wanted[i], &found[i]) && wanted[i].value == found[i].value,
			"statement %lld request %lld kind %u %u.%u: %llu; in the log %lld %lld %u %u.%u: %llu",
			(long long)wanted[i].statement, (long long)wanted[i].request,
			wanted[i].kind, wanted[i].first, wanted[i].second,
			(unsigned long long)wanted[i].value, (long long)found[i].statement,
			(long long)found[i].request, found[i].kind, found[i].first, found[i].second,
			(unsigned long long)found[i].value);
	}
	ck_assert_uint_eq(found_number, wanted_number);
	free(wanted);
	free(found);
}

/* Each request that finished has one record, and no other has any. */
static void check_requests(const struct image_session *session, const struct host_stream *stream,
			   unsigned rounds)
{
	size_t finished = 0, started = 0, records = 0;

	for (size_t i = 0; i < stream->count; i++) {
		finished += stream->events[i].op == HOST_REQUEST_FINISH;
		started += stream->events[i].op == HOST_REQUEST_START;
	}
	for (size_t i = 0; i < session->executions_count; i++) {
		const struct image_execution *execution = &session->executions[i];

		ck_assert_uint_ne(execution->is.serial, 0);
		ck_assert_uint_le(execution->is.serial, started * rounds);
		records += execution->record;
	}
	ck_assert_uint_eq(records, finished * rounds);
}

/* Each stream, with requests told apart or not, with our clock or the engine's, on 5.0 and 6.0. */
START_TEST(counters)
{
	const struct host_stream_kind *kind = &host_stream_kinds[_i / 4];
	bool detailed = _i & 1;
	/* A sanitizer build is slow; other tests have many requests. */
	unsigned size = kind->size > 20000 ? 20000 : kind->size, rounds = 2;
	struct host_stream *stream = host_stream_make(kind->name, size);
	struct log_image *image;

	if (_i & 2) {
		use_our_clock();
		host.has_define_statement2 = true;
	}
	start(detailed ? "DETAILED_REQUESTS" : "");
	for (unsigned round = 0; round < rounds; round++)
		host_play(&attachment, stream, 0, SIZE_MAX, round);
	host_finish(&attachment);

	image = read_log();
	ck_assert_uint_eq(image->lost, 0);
	ck_assert_uint_eq(image->state, LOG_CLOSED);
	check_counts(image_session(image, 1), stream, rounds, detailed);
	/* Requests with too many lines for a record stay in their blocks. */
	if (detailed && strcmp(kind->name, "lines"))
		check_requests(image_session(image, 1), stream, rounds);
	image_free(image);
	host_stream_free(stream);
}
END_TEST

/* The groups of cells of a log in coarse or measured mode. */
static void check_group(const uint64_t *group, bool measured)
{
	ck_assert_uint_le(group[LOG_GROUP_SELF], group[LOG_GROUP_TOTAL]);
	if (!group[LOG_GROUP_COUNT])
		ck_assert_uint_eq(group[LOG_GROUP_TOTAL], 0);
	if (measured) {
		uint64_t count = group[LOG_GROUP_COUNT], total = group[LOG_GROUP_TOTAL];

		ck_assert_uint_eq(group[LOG_GROUP_TOTAL_CPU], 0);
		ck_assert_uint_eq(group[LOG_GROUP_SELF_CPU], 0);
		ck_assert_uint_le(group[LOG_GROUP_MIN], group[LOG_GROUP_MAX]);
		ck_assert_uint_le(group[LOG_GROUP_MIN] * count, total);
		ck_assert_uint_le(total, group[LOG_GROUP_MAX] * count);
	} else {
		ck_assert_uint_le(group[LOG_GROUP_SELF_CPU], group[LOG_GROUP_TOTAL_CPU]);
		ck_assert_uint_le(group[LOG_GROUP_SELF_COST], group[LOG_GROUP_TOTAL_COST]);
	}
}

/* All groups are in order.  Returns what their self times add up to. */
static uint64_t check_groups(const struct image_session *session)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < session->executions_count; i++) {
		const struct image_execution *execution = &session->executions[i];
		size_t cell = 0;

		while (cell < execution->is.cell_count) {
			uint32_t first = execution->cells[cell].cell / LOG_GROUP_CELLS;
			uint64_t group[LOG_GROUP_CELLS] = { 0 };

			for (; cell < execution->is.cell_count &&
			       execution->cells[cell].cell / LOG_GROUP_CELLS == first;
			     cell++)
				group[execution->cells[cell].cell % LOG_GROUP_CELLS] =
					execution->cells[cell].value;
			if (!first)
				continue; /* LOG_CELL_FINISHED and so on */
			check_group(group, session->mode == LOG_MODE_MEASURED);
			sum += group[LOG_GROUP_SELF];
		}
	}
	return sum;
}

static const char *const timed_options[] = { "MODE=COARSE", "MODE=COARSE,DETAILED_REQUESTS",
					     "MODE=MEASURED", "MODE=MEASURED,DETAILED_REQUESTS" };
#define TIMED_OPTIONS 4

static int64_t real_time(void)
{
	struct timespec now;

	clock_real(CLOCK_MONOTONIC_RAW, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void check_timed_session(const struct image_session *session, const char *kind,
				const struct host_stream *stream, unsigned rounds, uint64_t passed)
{
	bool detailed = session->flags & LOG_SESSION_DETAILED;
	bool ours = session->flags & LOG_SESSION_PRELOAD;

	ck_assert_uint_eq(session->nodes_count, 0);
	check_counts(session, stream, rounds, detailed);
	/* Requests with too many lines for a record stay in their blocks. */
	if (detailed && strcmp(kind, "lines"))
		check_requests(session, stream, rounds);
	/*
	 * The cached clock is ahead by 1 ns a read, and an interval began before it was noticed.  With the
	 * engine's own clock the shortest times may be in two self times.
	 */
	ck_assert_uint_le(check_groups(session),
			  passed * (ours ? 1 : 2) + 4 * stream->count * rounds + 2000000);
}

/*
 * The same in coarse and measured mode, which want to hear of nothing that comes before; times come
 * with the counters, and add up to no more than passed.  All in one process: to end one takes long.
 */
START_TEST(counters_with_times)
{
	const struct host_stream_kind *kind = &host_stream_kinds[_i];
	unsigned size = kind->size > 20000 ? 20000 : kind->size, rounds = 2, number = 0;
	struct host_stream *stream = host_stream_make_after(kind->name, size);

	for (unsigned which = 0; which < 2 * TIMED_OPTIONS; which++) {
		const char *options = timed_options[which % TIMED_OPTIONS];
		bool ours = which < TIMED_OPTIONS;
		struct image_session *session;
		struct log_image *image;
		int64_t begin;

		clock_is_ours = ours;
		host.clock = ours ? our_clock : clock_gettime;
		start(options);
		ck_assert_uint_eq(attachment.flags, FB_PROFILER_AFTER_EVENTS);
		begin = real_time();
		for (unsigned round = 0; round < rounds; round++)
			host_play(&attachment, stream, 0, SIZE_MAX, round);
		begin = real_time() - begin;
		host_finish(&attachment);

		image = read_log();
		session = image_session(image, ++number);
		ck_assert_uint_eq(image->lost, 0);
		/* The engine's own clock measures, whatever was wanted. */
		ck_assert_uint_eq(session->mode, ours && strstr(options, "COARSE") ?
							 LOG_MODE_COARSE :
							 LOG_MODE_MEASURED);
		check_timed_session(session, kind->name, stream, rounds, (uint64_t)begin);
		image_free(image);
	}
	host_stream_free(stream);
}
END_TEST

/* An engine with more to do between two events than the plugin, so that it is not all profiling. */
static int slow_clock(clockid_t id, struct timespec *time)
{
	for (int64_t until = real_time() + 1000; real_time() < until;)
		;
	return clock_answer(id, time);
}

/* The times of lines, and the cost of profiling, are nearly all of what passed. */
START_TEST(times_add_up)
{
	struct host_stream *stream = host_stream_make_after("loop", 1000);
	time_t deadline = time(NULL) + DEADLINE_SECONDS;
	bool good = false;
	double share = 0;

	use_our_clock();
	host.clock = slow_clock;
	for (uint32_t tries = 1; !good; tries++) {
		struct image_session *session;
		struct log_image *image;
		int64_t begin;

		ck_assert_msg(time(NULL) <= deadline, "the lines' share is %.3f", share);
		start(timed_options[_i]);
		begin = real_time();
		for (unsigned round = 0; round < 5; round++)
			host_play(&attachment, stream, 0, SIZE_MAX, round);
		begin = real_time() - begin;
		host_finish(&attachment);
		image = read_log();
		session = image_session(image, tries);
		share = (double)(check_groups(session) + session->totals.cost) / (double)begin;
		/* Measured times are without what the plugin took, which in a sanitizer build is much. */
		good = share <= 1.02 && share >= (_i < 2 ? 0.9 : 0.3);
		image_free(image);
	}
	host_stream_free(stream);
}
END_TEST

START_TEST(blocks_of_requests_are_recycled)
{
	struct host_stream *stream = host_stream_make("churn", 100000);
	struct log_image *image;

	start("DETAILED_REQUESTS");
	host_play(&attachment, stream, 0, SIZE_MAX, 0);
	host_finish(&attachment);
	image = read_log();
	check_requests(image_session(image, 1), stream, 1);
	/* Two for the requests, one for the totals, the rest for the call tree. */
	ck_assert_uint_le(image->usage.blocks - image->usage.free_blocks,
			  2 + image_session(image, 1)->nodes_count / 10 + 1);
	ck_assert_uint_le(image->usage.free_blocks, 3);
	image_free(image);
	host_stream_free(stream);
}
END_TEST

/* A request that has more lines than fit in a record stays in its blocks. */
START_TEST(request_too_large_for_a_record)
{
	struct host_stream *stream = host_stream_make("lines", 9000);
	struct image_session *session;
	struct log_image *image;
	unsigned records = 0;

	start("DETAILED_REQUESTS");
	host_play(&attachment, stream, 0, SIZE_MAX, 0);
	host_finish(&attachment);
	image = read_log();
	session = image_session(image, 1);
	check_counts(session, stream, 1, true);
	/* Its end has a record all the same. */
	for (size_t i = 0; i < session->executions_count; i++) {
		const struct image_execution *execution = &session->executions[i];

		ck_assert(!execution->record ||
			  execution->is.flags == (LOG_REQUEST_FINISHED | LOG_REQUEST_IN_BLOCKS));
		records += execution->record;
	}
	ck_assert_uint_ge(records, 1);
	image_free(image);
	host_stream_free(stream);
}
END_TEST

START_TEST(unsampled_time)
{
	struct host_stream *stream = host_stream_make("eventless", 10);
	struct log_image *image;
	struct count *counts;
	size_t number;

	start("");
	host_play(&attachment, stream, 0, SIZE_MAX, 0);
	host_finish(&attachment);
	image = read_log();
	counts = image_counts(image_session(image, 1), &number);
	ck_assert_uint_eq(number, 2);
	ck_assert_uint_eq(counts[0].kind, COUNT_FINISHED);
	ck_assert_uint_eq(counts[0].value, 10);
	ck_assert_uint_eq(counts[1].kind, COUNT_UNSAMPLED);
	ck_assert_uint_eq(counts[1].value, 10 * 1000 + 45);
	free(counts);
	image_free(image);
	host_stream_free(stream);
}
END_TEST

/* ---- Definitions ---- */

static struct host_stream *read_stream(const char *text)
{
	struct host_stream *stream = host_stream_new();
	FILE *file = fmemopen((char *)text, strlen(text), "r");
	char error[256];

	ck_assert_ptr_nonnull(file);
	ck_assert_msg(host_stream_read(stream, file, error, sizeof(error)), "%s", error);
	fclose(file);
	return stream;
}

START_TEST(definitions)
{
	struct host_stream *stream = read_stream("S 5 0 BLOCK - - - select\\n1\n"
						 "S 6 5 FUNCTION PUB PKG FN \\e\n"
						 "C 6 2 3 4 CUR\n"
						 "R 6 2 1 0 0 Table \"A\" Full Scan\n"
						 "R 6 2 2 1 1 -> Filter\n");
	const struct image_statement *statement;
	struct image_session *session;
	struct log_image *image;

	host.has_define_statement2 = _i;
	start("  sampling_interval = 250 ");
	host_play(&attachment, stream, 0, SIZE_MAX, 0);
	host_finish(&attachment);
	image = read_log();
	session = image_session(image, 1);
	ck_assert_uint_eq(session->starts, 1);
	ck_assert_uint_eq(session->ends, 1);
	ck_assert_uint_eq(session->totals_blocks, 1);
	ck_assert_uint_eq(session->end_reason, LOG_END_FINISHED);
	ck_assert_int_eq(session->attachment_id, 7);
	ck_assert_uint_eq(session->interval, 250000);
	ck_assert_str_eq(session->user, "SYSDBA");
	ck_assert_str_eq(session->database, "test.fdb");
	ck_assert_str_eq(session->engine, "LI-V0.0.0 test host");
	ck_assert_str_eq(session->options, "  sampling_interval = 250 ");
	ck_assert_str_eq(session->description, "a test");
	ck_assert_uint_eq(session->flags, 0);

	statement = image_statement(session, 5);
	ck_assert_str_eq(statement->type, "BLOCK");
	ck_assert_ptr_null(statement->routine);
	ck_assert_str_eq(image_text(session, statement->text)->bytes, "select\n1");
	statement = image_statement(session, 6);
	ck_assert_int_eq(statement->parent_id, 5);
	ck_assert_str_eq(statement->package, "PKG");
	ck_assert_str_eq(statement->routine, "FN");
	ck_assert_uint_eq(statement->text, 0);
	if (_i)
		ck_assert_str_eq(statement->schema, "PUB");
	else
		ck_assert_ptr_null(statement->schema);
	ck_assert_uint_eq(session->cursors, 1);
	ck_assert_uint_eq(session->sources_count, 2);
	ck_assert_uint_eq(session->sources[1].parent_id, 1);
	ck_assert_uint_eq(session->sources[1].level, 1);
	ck_assert_str_eq(image_text(session, session->sources[0].access_path)->bytes,
			 "Table \"A\" Full Scan");
	image_free(image);
	host_stream_free(stream);
}
END_TEST

START_TEST(sql_text)
{
	static const char *const options[] = { "", "SQL_TEXT=HASH", "SQL_TEXT=OFF" };
	struct host_stream *stream = host_stream_make("long-sql", 0);
	const struct image_statement *statement;
	const struct image_text *text;
	struct image_session *session;
	struct log_image *image;

	start(options[_i]);
	host_play(&attachment, stream, 0, SIZE_MAX, 0);
	host_finish(&attachment);
	image = read_log();
	session = image_session(image, 1);
	statement = image_statement(session, 101);
	text = image_text(session, statement->text);
	if (_i == 0) {
		ck_assert(text->whole);
		ck_assert_uint_eq(text->size, 200000);
		ck_assert_str_eq(text->bytes, stream->details[0].text);
	} else if (_i == 1) {
		ck_assert_str_eq(text->bytes, "hash:308fe3969f6ab205");
	} else {
		ck_assert_uint_eq(statement->text, 0);
		ck_assert_uint_eq(session->texts_count, 0);
	}
	image_free(image);
	host_stream_free(stream);
}
END_TEST

/* ---- Positions ---- */

/* Behind the `nth` event of this kind with this line (or cursor). */
static size_t place(const struct host_stream *stream, unsigned op, uint32_t first, unsigned nth)
{
	for (size_t i = 0; i < stream->count; i++) {
		if (stream->events[i].op == op && stream->events[i].first == first && !--nth)
			return i + 1;
	}
	ck_abort_msg("the stream has no such event");
	return 0;
}

static uint64_t samples_at(const struct image_session *session, const char *path)
{
	char text[4096];
	uint64_t samples = 0;

	for (size_t i = 0; i < session->nodes_count; i++) {
		if (!session->nodes[i].is.samples)
			continue;
		image_path(session, &session->nodes[i], text, sizeof(text));
		if (!strcmp(text, path))
			samples += session->nodes[i].is.samples;
	}
	return samples;
}

static void say_paths(const struct image_session *session)
{
	char text[4096];
	unsigned said = 0;

	for (size_t i = 0; i < session->nodes_count && said < 50; i++) {
		if (!session->nodes[i].is.samples)
			continue;
		said++;
		image_path(session, &session->nodes[i], text, sizeof(text));
		fprintf(stderr, "%8llu %s\n", (unsigned long long)session->nodes[i].is.samples,
			text);
	}
}

/*
 * Called where a query would be doing something: deep on the stack, or the sampler would take the
 * thread for one that has returned to its client.
 */
static __attribute__((noinline)) void doze(void)
{
	volatile char deep[65536];
	struct timespec pause = { .tv_nsec = 2000000 };

	deep[0] = deep[sizeof(deep) - 1] = 0;
	nanosleep(&pause, NULL);
	(void)deep[0];
}

/* Waits until the sampler has seen the position `path`, and then that it sees nothing else. */
static void check_position(uint32_t number, const char *path)
{
	time_t deadline = time(NULL) + DEADLINE_SECONDS;
	uint64_t samples_before = 0, all_before = 0;
	unsigned looks = 0;

	for (;;) {
		struct log_image *image = read_log();
		struct image_session *session = image_session(image, number);
		uint64_t samples = samples_at(session, path), all = 0;

		for (size_t i = 0; i < session->nodes_count; i++)
			all += session->nodes[i].is.samples;
		if (time(NULL) > deadline) {
			say_paths(session);
			ck_abort_msg("not seen, or not alone: %s", path);
		}
		/* Blocks are read one after the other: what was sampled meanwhile may be in one of them only. */
		if (looks && samples > samples_before + 3 &&
		    samples - samples_before >= all - all_before) {
			image_free(image);
			return;
		}
		looks++;
		samples_before = samples;
		all_before = all;
		image_free(image);
		doze();
	}
}

static const struct {
	const char *stream;
	unsigned op;
	uint32_t first;
	unsigned nth;
	const char *path;
} positions[] = {
	{ "loop", HOST_BEFORE_LINE, 5, 7, "101:5" },
	{ "calls", HOST_BEFORE_LINE, 4, 8,
	  "109:2 101:4 102:4 103:4 104:4 105:4 106:4 107:4 108:4" },
	{ "calls", HOST_REQUEST_START, 4, 1, "109:2 101:4 102:4" },
	{ "calls", HOST_BEFORE_LINE, 5, 8, "109:2 101:5" },
	{ "calls", HOST_BEFORE_LINE, 2, 2, "109:2" },
	{ "select", HOST_BEFORE_FETCH, 0, 9, "101 f0.1 f0.2 f0.3 f0.4 f0.5 f0.6 f0.7 f0.8 f0.9" },
	{ "select", HOST_AFTER_FETCH, 0, 16, "101 f0.1 f0.2" },
	{ "select", HOST_BEFORE_OPEN, 0, 2, "101 o0.1 o0.2" },
	{ "cursor", HOST_BEFORE_FETCH, 2, 6, "101:4 f2.1 f2.2" },
	{ "suspend", HOST_BEFORE_LINE, 11, 1, "101 f0.1 102:11" },
	{ "suspend", HOST_BEFORE_LINE, 10, 5, "101 f0.1 102:10" },
	{ "suspend", HOST_AFTER_LINE, 11, 3, "101 f0.1 102:11" },
	{ "exception", HOST_BEFORE_LINE, 3, 1, "103:3" },
	{ "exception", HOST_BEFORE_LINE, 20, 5, "103:2 101:20" },
	{ "exception", HOST_BEFORE_FETCH, 1, 8, "103:2 101:20 102:30 f1.1 f1.2" },
	{ "recursion", HOST_BEFORE_LINE, 5, 3, "101:6 101:6 101:5" },
	{ "recursion", HOST_BEFORE_LINE, 7, 98, "101:6 101:6 101:7" },
	{ "execute-statement", HOST_BEFORE_LINE, 4, 2, "101:2 102:1 103:4" },
	{ "execute-statement", HOST_BEFORE_LINE, 3, 2, "101:3" },
	{ "pause", HOST_BEFORE_LINE, 4, 2, "101:4" },
};
#define POSITIONS (sizeof(positions) / sizeof(*positions))

START_TEST(position)
{
	struct host_stream *stream = host_stream_make(positions[_i / 2].stream, 0);
	size_t here = 0;

	if (positions[_i / 2].op == HOST_REQUEST_START) {
		/* Before the first event of the callee: still in the caller's line. */
		here = place(stream, HOST_BEFORE_LINE, 4, 2);
	} else {
		here = place(stream, positions[_i / 2].op, positions[_i / 2].first,
			     positions[_i / 2].nth);
	}
	if (_i & 1)
		use_our_clock();
	start(_i & 1 ? "DETAILED_REQUESTS" : "");
	/* Where only the request is left, the engine's clock alone can't tell that it goes on. */
	if (_i & 1 || strchr(positions[_i / 2].path, ':') || strchr(positions[_i / 2].path, ' ')) {
		host_play(&attachment, stream, 0, here, 0);
		check_position(1, positions[_i / 2].path);
		host_play(&attachment, stream, here, SIZE_MAX, 0);
	}
	host_finish(&attachment);
	host_stream_free(stream);
}
END_TEST

/* After more frames than the stack has room for it is right again. */
START_TEST(position_after_deep_recursion)
{
	struct model model;
	struct model_statement *statement;
	size_t here;

	model_init(&model, host_stream_new());
	host_stream_kinds[0].make(&model, 1);
	statement = model_statement(&model, NULL, "PROCEDURE", NULL, "DEEP", "");
	model_cursor(&model, statement, 1, "C", 1);
	for (unsigned depth = 0; depth < 3000; depth++) {
		model_enter(&model, model_request(&model, statement));
		model_line(&model, 5, 9);
		model_before_fetch(&model, 1, 1);
	}
	for (unsigned depth = 0; depth < 2998; depth++) {
		model_after_fetch(&model, 1, 1);
		model_line(&model, 7, 9);
		model_finish(&model, 1);
	}
	here = model.stream->count;
	model_after_fetch(&model, 1, 1);
	model_line(&model, 8, 9);
	start(_i ? "DETAILED_REQUESTS" : "");
	host_play(&attachment, model.stream, 0, here, 0);
	check_position(1, "102:5 f1.1 102:5 f1.1");
	host_play(&attachment, model.stream, here, SIZE_MAX, 0);
	check_position(1, "102:5 f1.1 102:8");
	host_finish(&attachment);
	model_clear(&model);
	host_stream_free(model.stream);
}
END_TEST

/* Nobody executes anything: the sampler goes to sleep, and the time is nobody's. */
static void check_asleep(void)
{
	time_t deadline = time(NULL) + DEADLINE_SECONDS;

	while (!atomic_load(&sampler_asleep)) {
		struct timespec pause = { .tv_nsec = 1000000 };

		ck_assert_msg(time(NULL) <= deadline, "the sampler stays awake");
		nanosleep(&pause, NULL);
	}
}

static const char *const idle_streams[] = { "loop",    "calls",	    "select",
					    "suspend", "exception", "eventless" };
#define IDLE_STREAMS (sizeof(idle_streams) / sizeof(*idle_streams))

START_TEST(idle_when_finished)
{
	struct host_stream *stream = host_stream_make(idle_streams[_i / 2], 20);

	if (_i & 1)
		use_our_clock();
	start("");
	for (unsigned round = 0; round < 3; round++) {
		host_play(&attachment, stream, 0, SIZE_MAX, round);
		check_asleep();
	}
	ck_assert_ptr_null(clock_thread.stack);
	host_finish(&attachment);
	host_stream_free(stream);
}
END_TEST

/* In measured mode the sampler looks once a second, so that it takes a while: not each stream. */
START_TEST(idle_when_finished_timed)
{
	struct host_stream *stream = host_stream_make_after(idle_streams[_i], 20);

	use_our_clock();
	for (unsigned measured = 0; measured < (_i < 2 ? 2 : 1); measured++) {
		start(measured ? "MODE=MEASURED" : "MODE=COARSE");
		for (unsigned round = 0; round < 3; round++) {
			host_play(&attachment, stream, 0, SIZE_MAX, round);
			check_asleep();
		}
		ck_assert_ptr_null(clock_thread.stack);
		host_finish(&attachment);
	}
	host_stream_free(stream);
}
END_TEST

/* As deep on the stack as the engine's executor is below the server's main loop. */
static __attribute__((noinline)) void play_deep(struct host_stream *stream, size_t from, size_t to)
{
	volatile char deep[16384];

	deep[0] = deep[sizeof(deep) - 1] = 0;
	host_play(&attachment, stream, from, to, 0);
	(void)deep[0];
}

/* A row was sent to the client, who may take its time: no request is executing. */
START_TEST(idle_between_fetches)
{
	struct host_stream *stream = host_stream_make("select", 5);
	size_t here = place(stream, HOST_AFTER_FETCH, 0, 18);
	struct log_image *image;
	uint64_t samples;

	if (_i)
		use_our_clock();
	start("");
	play_deep(stream, 0, here);
	/* The engine reads its clock as it leaves, which here belongs to the next event. */
	if (_i) {
		struct timespec now;

		host.clock(CLOCK_MONOTONIC_RAW, &now);
	}
	check_asleep();
	image = read_log();
	samples = image_session(image, 1)->totals.samples;
	image_free(image);
	image = read_log();
	ck_assert_uint_eq(image_session(image, 1)->totals.samples, samples);
	image_free(image);
	host_play(&attachment, stream, here, here + 3, 0);
	check_position(1, "101 f0.1 f0.2 f0.3");
	host_finish(&attachment);
	host_stream_free(stream);
}
END_TEST

/*
 * In coarse mode nothing tells that a call has ended but where the thread's stack is.  The time until the
 * next call is nobody's.
 */
START_TEST(idle_without_before)
{
	struct host_stream *stream = host_stream_make_after(_i & 2 ? "suspend" : "select", 5);
	size_t here = place(stream, HOST_AFTER_FETCH, 0, _i & 2 ? 3 : 18);
	int64_t begin = real_time(), idle;
	struct log_image *image;

	use_our_clock();
	start(_i & 1 ? "MODE=COARSE,DETAILED_REQUESTS" : "MODE=COARSE");
	play_deep(stream, 0, here);
	idle = real_time();
	check_asleep();
	for (unsigned i = 0; i < 50; i++)
		doze();
	idle = real_time() - idle;
	ck_assert_int_gt(idle, 100000000);
	play_deep(stream, here, SIZE_MAX);
	begin = real_time() - begin;
	check_asleep();
	host_finish(&attachment);
	image = read_log();
	ck_assert_uint_le(check_groups(image_session(image, 1)),
			  (uint64_t)(begin - idle) + 2000000);
	image_free(image);
	host_stream_free(stream);
}
END_TEST

/*
 * A block has left a line and comes to no other: it has suspended to its client.  The engine reads its
 * clock before the event, so that nothing but the lack of more tells.
 */
START_TEST(idle_between_lines)
{
	struct host_stream *stream = host_stream_make("loop", 0);
	size_t here = place(stream, HOST_AFTER_LINE, 5, 7);

	if (_i & 1)
		use_our_clock();
	start(_i & 2 ? "DETAILED_REQUESTS" : "");
	host_play(&attachment, stream, 0, here, 0);
	check_asleep();
	host_play(&attachment, stream, here, here + 1, 0);
	check_position(1, "101:6");
	host_finish(&attachment);
	host_stream_free(stream);
}
END_TEST

/* Requests that call one another in a circle, and one that calls itself, are nonsense and do no harm. */
START_TEST(callers_in_a_circle)
{
	static const char text[] = "S 101 0 BLOCK - - - sql\n"
				   "start 101 1 101 2\nstart 101 2 101 3\nstart 101 3 101 2\n"
				   "start 101 4 101 4\n"
				   "<L 101 1 5 1\n>L 101 1 5 1\n<L 101 4 5 1\n>L 101 4 5 1\n"
				   "<L 101 3 5 1\n>L 101 3 5 1\n";
	struct host_stream *stream = host_stream_new();
	FILE *file = fmemopen((void *)(uintptr_t)text, sizeof(text) - 1, "r");
	char error[256];

	ck_assert_ptr_nonnull(file);
	ck_assert_msg(host_stream_read(stream, file, error, sizeof(error)), "%s", error);
	fclose(file);
	start("");
	host_play(&attachment, stream, 0, SIZE_MAX, 0);
	host_finish(&attachment);
	host_stream_free(stream);
}
END_TEST

/* sampled_time is the sum of all self times and costs, samples that of all samples. */
START_TEST(totals_agree)
{
	struct host_stream *stream = host_stream_make("cursor", 0);
	struct image_session *session;
	struct log_image *image;
	uint64_t time = 0, samples = 0;

	start("SAMPLING_INTERVAL=50");
	for (unsigned round = 0; round < 20; round++)
		host_play(&attachment, stream, 0, SIZE_MAX, round);
	host_finish(&attachment);
	image = read_log();
	session = image_session(image, 1);
	for (size_t i = 0; i < session->nodes_count; i++) {
		time += session->nodes[i].is.self_time + session->nodes[i].is.cost;
		samples += session->nodes[i].is.samples;
		ck_assert_uint_lt(session->nodes[i].is.parent, session->nodes[i].id);
	}
	ck_assert_uint_eq(session->totals.sampled_time, time);
	ck_assert_uint_eq(session->totals.samples, samples);
	ck_assert_uint_ge(session->totals.wakeups, samples);
	image_free(image);
	host_stream_free(stream);
}
END_TEST

/* What a thread is told never goes back, and goes on after an event, whatever the sampler does. */
START_TEST(engine_time_increases)
{
	struct host_stream *stream = host_stream_make("loop", 100);
	uint64_t last = 0;

	use_our_clock();
	start("SAMPLING_INTERVAL=50");
	for (unsigned round = 0; round < 500; round++) {
		if (round % 100 == 50)
			check_asleep();
		for (size_t i = 0; i < stream->count; i++) {
			uint8_t reads = stream->events[i].reads;

			host_play(&attachment, stream, i, i + 1, round);
			if (!reads)
				continue;
			if (i && reads == 1)
				ck_assert_uint_gt(attachment.now, last);
			else
				ck_assert_uint_ge(attachment.now, last);
			last = attachment.now;
		}
	}
	host_finish(&attachment);
	host_stream_free(stream);
}
END_TEST

/* ---- Sessions ---- */

static void end_session(unsigned how)
{
	if (how == LOG_END_FINISHED)
		host_finish(&attachment);
	else if (how == LOG_END_CANCELLED)
		host_cancel(&attachment);
	else
		host_discard(&attachment);
}

START_TEST(ends)
{
	struct host_stream *stream = host_stream_make("calls", 3);
	size_t here = place(stream, HOST_BEFORE_LINE, 4, 5);
	unsigned how = (unsigned)_i;
	struct log_image *image;

	use_our_clock();
	start("DETAILED_REQUESTS");
	host_play(&attachment, stream, 0, here, 0);
	end_session(how);
	ck_assert_ptr_null(clock_thread.stack);
	image = read_log();
	ck_assert_uint_eq(image->state, LOG_CLOSED);
	ck_assert_uint_eq(image_session(image, 1)->ends, 1);
	ck_assert_uint_eq(image_session(image, 1)->end_reason, how);
	image_free(image);
	/* The engine plays on if another session is started at once. */
	start("");
	host_play(&attachment, stream, here, SIZE_MAX, 1);
	host_finish(&attachment);
	image = read_log();
	ck_assert_uint_eq(image->lost, 0);
	ck_assert_uint_eq(image_session(image, 2)->end_reason, LOG_END_FINISHED);
	image_free(image);
	host_detach(&attachment);
	host_stream_free(stream);
}
END_TEST

/* A session that has ended but was not yet disposed of may still get events. */
START_TEST(events_after_the_end)
{
	struct host_stream *stream = host_stream_make("cursor", 3);
	struct log_image *image;

	start(_i ? "DETAILED_REQUESTS" : "");
	host_play(&attachment, stream, 0, 20, 0);
	if (_i & 1)
		attachment.session->vtable->finish(attachment.session, &attachment.status,
						   host_now());
	else
		attachment.session->vtable->cancel(attachment.session, &attachment.status);
	host_play(&attachment, stream, 0, SIZE_MAX, 0);
	attachment.session->vtable->finish(attachment.session, &attachment.status, host_now());
	host_detach(&attachment);
	image = read_log();
	ck_assert_uint_eq(image_session(image, 1)->ends, 1);
	image_free(image);
	host_stream_free(stream);
}
END_TEST

START_TEST(nothing_is_left)
{
	struct host_stream *stream = host_stream_make("cursor", 50);
	unsigned files = own_files(), threads = threads_before;
	char first[PATH_MAX], path[PATH_MAX];
	struct log_image *image;

	for (unsigned session = 1; session <= 20; session++) {
		start(session % 2 ? "" : "DETAILED_REQUESTS");
		check_threads(threads + 1);
		ck_assert_uint_gt(own_mappings(".fbprof"), 0);
		host_play(&attachment, stream, 0, SIZE_MAX, 0);
		end_session(session % 3 + 1);
		check_threads(threads);
		ck_assert_uint_eq(own_files(), files);
		ck_assert_uint_eq(own_mappings(".fbprof"), 0);
		ck_assert_uint_eq(scratch_logs(session == 1 ? first : path), 1);
	}
	ck_assert_str_eq(first, path);
	image = read_log();
	ck_assert_uint_eq(image->lost, 0);
	ck_assert_uint_eq(image->sessions_count, 20);
	for (unsigned session = 1; session <= 20; session++)
		check_counts(image_session(image, session), stream, 1, session % 2 == 0);
	image_free(image);
	host_stream_free(stream);
}
END_TEST

/* Somebody has taken the log away, or put something else in its place: a new one is made. */
START_TEST(log_was_removed)
{
	struct host_stream *stream = host_stream_make("loop", 5);
	char path[PATH_MAX], moved[PATH_MAX];
	struct log_image *image;

	start("");
	host_play(&attachment, stream, 0, SIZE_MAX, 0);
	host_finish(&attachment);
	scratch_logs(path);
	snprintf(moved, sizeof(moved), "%.*s.moved", PATH_MAX - 10, path);
	ck_assert_int_eq(_i == 2 ? truncate(path, 5000) : rename(path, moved), 0);
	if (_i == 1)
		ck_assert_int_eq(symlink(moved, path), 0);
	start("");
	host_play(&attachment, stream, 0, SIZE_MAX, 0);
	host_finish(&attachment);
	if (_i)
		ck_assert_int_eq(unlink(path), 0);
	image = read_log();
	ck_assert_uint_eq(image->sessions_count, 1);
	check_counts(image_session(image, 1), stream, 1, false);
	image_free(image);
	if (_i != 2) {
		image = image_read(moved);
		ck_assert_uint_eq(image->sessions_count, 1);
		image_free(image);
	}
	host_stream_free(stream);
}
END_TEST

/* Two threads, each with eight attachments whose calls it executes by turns. */
#define ATTACHMENTS 8

static void *play_eight(void *data)
{
	const struct host_stream *stream = data;
	static _Atomic unsigned next_id = 100;
	struct host_attachment *attachments = calloc(ATTACHMENTS, sizeof(*attachments));
	size_t step = 97;

	for (unsigned i = 0; i < ATTACHMENTS; i++) {
		host_attach(&host, &attachments[i], next_id++);
		if (!host_start(&attachments[i], NULL,
				i % 2 ? "DETAILED_REQUESTS" : "SAMPLING_INTERVAL=60"))
			return strdup(attachments[i].error);
	}
	for (size_t place = 0; place < stream->count; place += step) {
		for (unsigned i = 0; i < ATTACHMENTS; i++)
			host_play(&attachments[i], stream, place, place + step, 0);
	}
	for (unsigned i = 0; i < ATTACHMENTS; i++) {
		host_finish(&attachments[i]);
		host_detach(&attachments[i]);
	}
	free(attachments);
	return NULL;
}

START_TEST(many_sessions)
{
	struct host_stream *stream = host_stream_make(_i ? "calls" : "cursor", _i ? 200 : 500);
	unsigned threads = threads_before;
	struct log_image *image;
	pthread_t thread;
	void *mine, *theirs;

	/* Reads of our clock would end a call of which the thread is still in the middle. */
	ck_assert_int_eq(pthread_create(&thread, NULL, play_eight, stream), 0);
	mine = play_eight(stream);
	pthread_join(thread, &theirs);
	ck_assert_msg(!mine && !theirs, "%s %s", (char *)mine, (char *)theirs);
	check_threads(threads);
	image = read_log();
	ck_assert_uint_eq(image->lost, 0);
	ck_assert_uint_eq(image->sessions_count, 2 * ATTACHMENTS);
	for (unsigned i = 1; i <= 2 * ATTACHMENTS; i++) {
		struct image_session *session = image_session(image, i);

		ck_assert_uint_eq(session->end_reason, LOG_END_FINISHED);
		check_counts(session, stream, 1, session->flags & LOG_SESSION_DETAILED);
	}
	image_free(image);
	host_stream_free(stream);
}
END_TEST

/* An attachment's calls come from threads of a pool, which also look at the clock when they're not in one. */
struct hop {
	const struct host_stream *stream;
	size_t from, to;
	uint64_t last;
};

static void *play_a_part(void *data)
{
	struct hop *hop = data;
	struct timespec now;

	host_play(&attachment, hop->stream, hop->from, hop->to, 0);
	/* Without events that come before, nothing tells that the call has ended. */
	if (!(attachment.flags & FB_PROFILER_BEFORE_EVENTS) && hop->to < hop->stream->count)
		ck_assert_ptr_nonnull(clock_thread.stack);
	host.clock(CLOCK_MONOTONIC_RAW, &now);
	return NULL;
}

/* Where the next call begins. */
static size_t end_of_row(const struct host_stream *stream, size_t from)
{
	while (++from < stream->count) {
		const struct host_event *last = &stream->events[from - 1];

		if ((last->op == HOST_AFTER_FETCH || last->op == HOST_AFTER_OPEN) &&
		    last->second == 1)
			break;
	}
	return from;
}

START_TEST(threads_change)
{
	struct host_stream *stream =
		_i ? host_stream_make_after("select", 60) : host_stream_make("select", 60);
	struct hop hop = { .stream = stream };
	struct log_image *image;

	use_our_clock();
	start(_i ? timed_options[_i - 1] : "");
	for (hop.from = 0; hop.from < stream->count; hop.from = hop.to) {
		pthread_t thread;

		hop.to = end_of_row(stream, hop.from);
		ck_assert_int_eq(pthread_create(&thread, NULL, play_a_part, &hop), 0);
		pthread_join(thread, NULL);
	}
	check_asleep();
	host_finish(&attachment);
	image = read_log();
	check_counts(image_session(image, 1), stream, 1, _i == 2 || _i == 4);
	if (_i)
		check_groups(image_session(image, 1));
	image_free(image);
	host_stream_free(stream);
}
END_TEST

/*
 * Two threads execute an attachment by turns, and the one's clock is behind the other's: what one of them
 * did is no part of what the other did after it.
 */
static pthread_barrier_t turn;

struct turns {
	const struct host_stream *stream;
	bool mine;
	bool lags;
};

static void *play_every_other(void *data)
{
	struct turns *turns = data;
	const struct host_stream *stream = turns->stream;

	for (size_t from = 0, to; from < stream->count; from = to) {
		to = end_of_row(stream, from);
		/* As if it had left out much in what it executed before. */
		if (turns->lags && clock_thread.stack)
			clock_thread.offset += 10000000;
		if (turns->mine)
			host_play(&attachment, stream, from, to, 0);
		turns->mine = !turns->mine;
		pthread_barrier_wait(&turn);
	}
	return NULL;
}

/* The self times of a plan's record sources add up to the total times of its root. */
START_TEST(two_threads_in_turn)
{
	struct host_stream *stream = host_stream_make_after("select", 300);
	struct image_session *session;
	struct log_image *image;
	struct turns turns[] = { { stream, true, false }, { stream, false, true } };
	uint64_t roots = 0, all;
	pthread_t other;

	use_our_clock();
	start(timed_options[_i]);
	pthread_barrier_init(&turn, NULL, 2);
	ck_assert_int_eq(pthread_create(&other, NULL, play_every_other, &turns[0]), 0);
	play_every_other(&turns[1]);
	pthread_join(other, NULL);
	host_finish(&attachment);
	image = read_log();
	session = image_session(image, 1);
	all = check_groups(session);
	for (size_t i = 0; i < session->executions_count; i++) {
		const struct image_execution *execution = &session->executions[i];

		for (size_t c = 0; c < execution->is.cell_count; c++) {
			uint32_t cell = execution->cells[c].cell;

			for (size_t s = 0; s < session->sources_count; s++) {
				if (session->sources[s].parent_id == 0 &&
				    (cell == session->sources[s].cell + LOG_GROUP_TOTAL ||
				     cell == session->sources[s].cell + LOG_GROUP_CELLS +
						     LOG_GROUP_TOTAL))
					roots += execution->cells[c].value;
			}
		}
	}
	ck_assert_uint_eq(all, roots);
	image_free(image);
	host_stream_free(stream);
}
END_TEST

/* ---- fork ---- */

#ifdef __SANITIZE_ADDRESS__
static const bool has_safe_fork = false;
#else
static const bool has_safe_fork = true;
#endif

#ifndef __SANITIZE_THREAD__ /* it can't have threads started after a fork of several threads */
static uint64_t own_samples_at(const char *path)
{
	struct log_image *image = image_read(log_path(log_get()));
	uint64_t samples = samples_at(image_session(image, 1), path);

	image_free(image);
	return samples;
}

static bool is_seen_after_a_while(const char *path)
{
	time_t deadline = time(NULL) + DEADLINE_SECONDS;
	uint64_t before;

	for (unsigned i = 0; i < 30; i++)
		doze();
	before = own_samples_at(path);
	while (own_samples_at(path) == before && time(NULL) <= deadline)
		doze();
	return own_samples_at(path) > before;
}
#endif

/* The child ends with 0 if all is well there: Check's assertions are the parent's. */
static int in_child(const struct host_stream *stream, size_t here)
{
	char path[PATH_MAX], wanted[64];
	struct image_session *session;
	struct log_image *image;
	struct host_attachment own;

	if (own_mappings(".fbprof") || own_threads() != 1)
		return 2;
	/* What the parent's session would have got is nobody's now. */
	host_play(&attachment, stream, here, SIZE_MAX, 0);
	host_cancel(&attachment);
	host_detach(&attachment);
	if (scratch_logs(path) != 1)
		return 3;
#ifndef __SANITIZE_THREAD__
	host_attach(&host, &own, 8);
	if (!host_start(&own, "the child", "DETAILED_REQUESTS"))
		return 4;
	snprintf(wanted, sizeof(wanted), ".%d.", (int)getpid());
	if (scratch_logs(NULL) != 2)
		return 5;
	host_play(&own, stream, 0, here, 0);
	/* Stay there for so long that the sampler doubts it: it must find the thread still there. */
	if (!is_seen_after_a_while("109:2 101:4 102:4 103:4 104:4"))
		return 7;
	host_play(&own, stream, here, SIZE_MAX, 0);
	host_finish(&own);
	host_detach(&own);
	if (own_threads() != 1 || own_mappings(".fbprof"))
		return 6;
	snprintf(path, sizeof(path), "%s", log_path(log_get()));
	image = image_read(path);
	session = image_session(image, 1);
	check_counts(session, stream, 1, true);
	image_free(image);
#else
	(void)own, (void)image, (void)session, (void)wanted;
#endif
	return 0;
}

START_TEST(fork_in_a_session)
{
	struct host_stream *stream = host_stream_make("calls", 20);
	size_t here = place(stream, HOST_BEFORE_LINE, 4, 12);
	char own_path[PATH_MAX];
	struct log_image *image;
	int status;
	pid_t child;

	if (_i)
		use_our_clock();
	start("");
	scratch_logs(own_path);
	host_play(&attachment, stream, 0, here, 0);
	child = fork();
	if (!child)
		_exit(in_child(stream, here));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status), "the child was ended by signal %d", WTERMSIG(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	host_play(&attachment, stream, here, SIZE_MAX, 0);
	host_finish(&attachment);
	image = image_read(own_path);
	ck_assert_uint_eq(image->lost, 0);
	ck_assert_uint_eq(image->sessions_count, 1);
	check_counts(image_session(image, 1), stream, 1, false);
	image_free(image);
	host_stream_free(stream);
}
END_TEST

/* As a Classic listener: nobody is profiled in it, and children come and go while it starts sessions. */
START_TEST(forks_while_sessions_start)
{
	struct host_stream *stream = host_stream_make("loop", 20);
	struct host_stream *other = host_stream_make("calls", 200);
	pthread_t thread;
	void *sentence;

	ck_assert_int_eq(pthread_create(&thread, NULL, play_eight, other), 0);
	for (unsigned round = 0; round < 30; round++) {
		pid_t child;
		int status;

		start("");
		child = fork();
		if (!child) {
			host_play(&attachment, stream, 0, SIZE_MAX, 0);
			host_detach(&attachment);
			_exit(0);
		}
		host_play(&attachment, stream, 0, SIZE_MAX, 0);
		host_finish(&attachment);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_int_eq(status, 0);
	}
	pthread_join(thread, &sentence);
	ck_assert_ptr_null(sentence);
	host_stream_free(stream);
	host_stream_free(other);
}
END_TEST

/* ---- No space ---- */

static volatile sig_atomic_t signals;

static void on_signal(int signal)
{
	(void)signal;
	signals = signals + 1;
}

static void catch_signals(void)
{
	const struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGXFSZ, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGPIPE, &action, NULL);
}

/* No assertion while a limit is set: Check writes a file itself. */
static void limit_file_size(rlim_t bytes)
{
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = bytes;
	if (setrlimit(RLIMIT_FSIZE, &limit))
		abort();
}

static void make_firebird_log(size_t size)
{
	FILE *file = fopen(scratch_path("firebird.log"), "we");

	ck_assert_ptr_nonnull(file);
	while (size--)
		fputc('.', file);
	fclose(file);
}

static unsigned notices(const char *text)
{
	FILE *file = fopen(scratch_path("firebird.log"), "re");
	char *line = NULL;
	size_t room = 0;
	unsigned count = 0;

	ck_assert_ptr_nonnull(file);
	while (getline(&line, &room, file) >= 0)
		count += strstr(line, text) != NULL;
	free(line);
	fclose(file);
	return count;
}

/* 0: quota; 1: RLIMIT_FSIZE; 2 and 3: the same with DETAILED_REQUESTS. */
START_TEST(no_space)
{
	struct host_stream *stream = host_stream_make("statements", 20000);
	struct host_stream *more = host_stream_make("cursor", 100);
	struct host_attachment other;
	struct log_image *image;
	struct image_session *session;
	struct count *counts;
	struct stat status;
	char path[PATH_MAX];
	size_t number;

	catch_signals();
	make_firebird_log(3);
	host_attach(&host, &other, 8);
	if (!(_i & 1))
		setenv("FBPROF_MAX_BYTES", "1200000", 1);
	start(_i & 2 ? "DETAILED_REQUESTS" : "");
	ck_assert(host_start(&other, NULL, ""));
	if (_i & 1)
		limit_file_size(1200000);
	host_play_checking_errno(&attachment, stream, 0, SIZE_MAX, 0);
	host_play_checking_errno(&other, more, 0, SIZE_MAX, 0);
	limit_file_size(RLIM_INFINITY);
	ck_assert_int_eq(attachment.errno_changed_by, -1);
	ck_assert_int_eq(other.errno_changed_by, -1);
	ck_assert_int_eq(signals, 0);
	ck_assert_uint_eq(notices("fbprof: recording to"), 1);

	/* No new session while an old one has the log. */
	ck_assert_uint_eq(scratch_logs(path), 1);
	host_finish(&other);
	ck_assert(!host_start(&other, NULL, ""));
	ck_assert_ptr_nonnull(strstr(other.error, path));
	host_finish(&attachment);
	ck_assert_uint_eq(notices("fbprof: recording to"), 1);
	ck_assert_uint_eq(own_mappings(".fbprof"), 0);
	check_threads(threads_before);

	image = read_log();
	session = image_session(image, 1);
	ck_assert_uint_eq(image->lost, 0);
	ck_assert_uint_eq(image->state, _i & 1 ? LOG_DISK_FULL : LOG_QUOTA_REACHED);
	ck_assert_uint_gt(session->statements_count, 100);
	counts = image_counts(session, &number);
	ck_assert_uint_ge(number, 2 * (session->statements_count - 1));
	for (size_t i = 0; i < number; i++)
		ck_assert_uint_eq(counts[i].value, 1);
	free(counts);
	image_free(image);
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_int_le(status.st_size, 1200000);

	/* With the old one gone there is a new file, and it's profiled again. */
	ck_assert(host_start(&other, NULL, ""));
	ck_assert_uint_eq(scratch_logs(path), 2);
	host_play(&other, more, 0, SIZE_MAX, 0);
	host_finish(&other);
	image = image_read(log_path(log_get()));
	check_counts(image_session(image, 1), more, 1, false);
	image_free(image);
	ck_assert_int_eq(signals, 0);
	host_detach(&other);
	host_detach(&attachment);
	host_stream_free(stream);
	host_stream_free(more);
}
END_TEST

/* Not even a notice may end the server: firebird.log is over the limit, too; or stderr is broken. */
START_TEST(no_space_for_the_notice)
{
	struct host_stream *stream = host_stream_make("statements", 20000);
	struct log_image *image;
	int ends[2];

	catch_signals();
	if (_i) {
		ck_assert_int_eq(pipe(ends), 0);
		close(ends[0]);
		ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	} else {
		make_firebird_log(1300000);
	}
	start("");
	limit_file_size(1200000);
	host_play_checking_errno(&attachment, stream, 0, SIZE_MAX, 0);
	host_finish(&attachment);
	limit_file_size(RLIM_INFINITY);
	ck_assert_int_eq(attachment.errno_changed_by, -1);
	image = read_log();
	ck_assert_uint_eq(image->state, LOG_DISK_FULL);
	image_free(image);
	ck_assert_int_eq(signals, 0);
	host_stream_free(stream);
}
END_TEST

START_TEST(no_space_at_all)
{
	bool started;

	catch_signals();
	limit_file_size(1000);
	started = host_start(&attachment, NULL, "");
	limit_file_size(RLIM_INFINITY);
	ck_assert(!started);
	ck_assert_ptr_nonnull(strstr(attachment.error, "space"));
	ck_assert_uint_eq(scratch_logs(NULL), 0);
	ck_assert_int_eq(signals, 0);
	check_threads(threads_before);
}
END_TEST

/* ---- Sessions that can't be started ---- */

/* Each must fail with a sentence that names the directory and says what to do. */
static void check_refused(const char *directory)
{
	unsigned files = own_files();

	setenv("FBPROF_DIR", directory, 1);
	ck_assert_msg(!host_start(&attachment, NULL, ""), "FBPROF_DIR=%s was accepted", directory);
	ck_assert_msg(!strncmp(attachment.error, "fbprof: ", 8), "%s", attachment.error);
	ck_assert_msg(strstr(attachment.error, "FBPROF_DIR") != NULL, "%s", attachment.error);
	if (strlen(directory) < 500)
		ck_assert_msg(strstr(attachment.error, directory) != NULL, "%s", attachment.error);
	ck_assert_uint_eq(own_files(), files);
	check_threads(threads_before);
	ck_assert_uint_eq(own_mappings(".fbprof"), 0);
	setenv("FBPROF_DIR", scratch, 1);
}

START_TEST(bad_directories)
{
	static char longest[PATH_MAX * 2];
	const char *real = scratch_path("real"), *path = scratch_path("bad");
	FILE *file;

	check_refused(scratch_path("missing/logs"));
	file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	fclose(file);
	check_refused(path);
	unlink(path);

	ck_assert_int_eq(mkdir(real, 0700), 0);
	ck_assert_int_eq(symlink(real, path), 0);
	check_refused(path);
	setenv("FBPROF_DIR", scratch_path("bad/"), 1);
	ck_assert(!host_start(&attachment, NULL, ""));
	unlink(path);

	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(chmod(path, 0777), 0);
	check_refused(path);
	ck_assert_int_eq(chmod(path, 01777), 0);
	check_refused(path);
	ck_assert_int_eq(chmod(path, 0500), 0);
	if (geteuid() == 0)
		ck_assert_int_eq(seteuid(65534), 0);
	check_refused(path);
	if (getuid() == 0)
		ck_assert_int_eq(seteuid(0), 0);

	memset(longest, 'x', sizeof(longest) - 1);
	check_refused(longest);
	/* And after all that it works. */
	start("");
	host_finish(&attachment);
}
END_TEST

START_TEST(directory_is_made)
{
	const char *path = scratch_path("made");
	struct stat status;

	setenv("FBPROF_DIR", path, 1);
	start("");
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_uint_eq(status.st_mode & 07777, 0700);
	ck_assert_int_eq(stat(log_path(log_get()), &status), 0);
	ck_assert_uint_eq(status.st_mode & 07777, 0600);
	host_finish(&attachment);
}
END_TEST

START_TEST(bad_options)
{
	ck_assert(!host_start(&attachment, NULL, "SAMPLING_INTERVAL=1"));
	ck_assert_ptr_nonnull(strstr(attachment.error, "SAMPLING_INTERVAL=1"));
	ck_assert_ptr_nonnull(strstr(attachment.error, "PLUGIN_OPTIONS"));
	setenv("FBPROF_OPTIONS", "MODE=QUANTUM", 1);
	ck_assert(!host_start(&attachment, NULL, ""));
	ck_assert_ptr_nonnull(strstr(attachment.error, "FBPROF_OPTIONS"));
	unsetenv("FBPROF_OPTIONS");
	setenv("FBPROF_SAMPLER_SHARE", "101", 1);
	ck_assert(!host_start(&attachment, NULL, ""));
	ck_assert_ptr_nonnull(strstr(attachment.error, "FBPROF_SAMPLER_SHARE=101"));
	unsetenv("FBPROF_SAMPLER_SHARE");
	ck_assert_uint_eq(scratch_logs(NULL), 0);
	check_threads(threads_before);
	setenv("FBPROF_OPTIONS", "SAMPLING_INTERVAL=600,DETAILED_REQUESTS", 1);
	start("SAMPLING_INTERVAL=700");
	host_finish(&attachment);
	for (struct log_image *image = read_log(); image; image = NULL) {
		ck_assert_uint_eq(image_session(image, 1)->interval, 700000);
		ck_assert_uint_eq(image_session(image, 1)->flags, LOG_SESSION_DETAILED);
		image_free(image);
	}
}
END_TEST

/* ---- errno ---- */

static void check_errno(const struct host_stream *stream, const char *options)
{
	start(options);
	for (unsigned round = 0; round < 2; round++) {
		host_play_checking_errno(&attachment, stream, 0, SIZE_MAX, round);
		ck_assert_msg(attachment.errno_changed_by == -1, "%s: event %lld has changed errno",
			      options, (long long)attachment.errno_changed_by);
	}
	errno = 4711;
	attachment.session->vtable->get_id(attachment.session);
	ck_assert_int_eq(errno, 4711);
	attachment.session->vtable->cancel(attachment.session, &attachment.status);
	ck_assert_int_eq(errno, 4711);
	attachment.session->vtable->finish(attachment.session, &attachment.status, host_now());
	ck_assert_int_eq(errno, 4711);
	attachment.session->vtable->dispose(attachment.session);
	ck_assert_int_eq(errno, 4711);
	attachment.session = NULL;
}

START_TEST(errno_is_kept)
{
	static const char *const options[] = { "", "DETAILED_REQUESTS", "MODE=COARSE",
					       "MODE=MEASURED" };
	const struct host_stream_kind *kind = &host_stream_kinds[_i];
	struct host_stream *stream =
		host_stream_make(kind->name, kind->size > 1000 ? 1000 : kind->size);

	use_our_clock();
	for (unsigned i = 0; i < sizeof(options) / sizeof(*options); i++)
		check_errno(stream, options[i]);
	host_detach(&attachment);
	host_stream_free(stream);
}
END_TEST

/* ---- The module itself ---- */

START_TEST(registration)
{
	struct fb_profiler_plugin *plugin;

	ck_assert_uint_eq(host.registered, 2);
	plugin = host.factory->vtable->create_plugin(host.factory, &attachment.status, NULL);
	plugin->vtable->add_ref(plugin);
	plugin->vtable->set_owner(plugin, &host);
	ck_assert_ptr_eq(plugin->vtable->get_owner(plugin), &host);
	ck_assert_int_ne(plugin->vtable->release(plugin), 0);
	ck_assert_int_eq(plugin->vtable->release(plugin), 0);
	check_threads(threads_before);
	ck_assert_uint_eq(scratch_logs(NULL), 0);
	start("");
	ck_assert_uint_eq(attachment.flags, FB_PROFILER_BEFORE_EVENTS | FB_PROFILER_AFTER_EVENTS);
	ck_assert_int_gt(attachment.session->vtable->get_id(attachment.session), 0);
	host_detach(&attachment);
}
END_TEST

/* The text format gives back what was written. */
START_TEST(stream_text)
{
	struct host_stream *stream = host_stream_make(host_stream_kinds[_i].name, 7), *copy;
	char *text, *again, error[256];
	size_t size, again_size;
	FILE *file = open_memstream(&text, &size);

	host_stream_write(stream, file);
	fclose(file);
	copy = host_stream_new();
	file = fmemopen(text, size, "r");
	ck_assert_msg(host_stream_read(copy, file, error, sizeof(error)), "%s", error);
	fclose(file);
	file = open_memstream(&again, &again_size);
	host_stream_write(copy, file);
	fclose(file);
	ck_assert_str_eq(text, again);
	ck_assert_uint_eq(stream->count, copy->count);
	free(text);
	free(again);
	host_stream_free(stream);
	host_stream_free(copy);
}
END_TEST

START_TEST(wrong_stream_text)
{
	static const char *const wrong[] = { "X 1\n",	     "S 1\n",	       "start 1 2 3\n",
					     "<L 1 2 3\n",   "<L 1 2 3 4 5\n", "T 1\n",
					     "<L a 2 3 4\n", "<L 1 2 -3 4\n",  "finish 1\n",
					     "<L\n" };

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct host_stream *stream = host_stream_new();
		FILE *file = fmemopen((char *)wrong[i], strlen(wrong[i]), "r");
		char error[256];

		ck_assert_msg(!host_stream_read(stream, file, error, sizeof(error)), "%s",
			      wrong[i]);
		ck_assert_ptr_nonnull(strstr(error, "line 1"));
		fclose(file);
		host_stream_free(stream);
	}
}
END_TEST

static TCase *add_case(Suite *suite, const char *name)
{
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, set_up, scratch_remove);
	tcase_set_timeout(tcase, TIMEOUT_SECONDS);
	suite_add_tcase(suite, tcase);
	return tcase;
}

int main(void)
{
	Suite *suite = suite_create("host");
	int kinds = (int)host_stream_kind_count;
	TCase *tcase;

	tcase = add_case(suite, "counters");
	tcase_add_loop_test(tcase, counters, 0, 4 * kinds);
	tcase_add_loop_test(tcase, counters_with_times, 0, kinds);
	tcase_add_loop_test(tcase, times_add_up, 0, TIMED_OPTIONS);
	tcase_add_test(tcase, blocks_of_requests_are_recycled);
	tcase_add_test(tcase, request_too_large_for_a_record);
	tcase_add_test(tcase, unsampled_time);

	tcase = add_case(suite, "definitions");
	tcase_add_loop_test(tcase, definitions, 0, 2);
	tcase_add_loop_test(tcase, sql_text, 0, 3);
	tcase_add_test(tcase, registration);

	tcase = add_case(suite, "positions");
	tcase_add_loop_test(tcase, position, 0, 2 * POSITIONS);
	tcase_add_loop_test(tcase, position_after_deep_recursion, 0, 2);
	tcase_add_loop_test(tcase, idle_when_finished, 0, 2 * IDLE_STREAMS);
	tcase_add_loop_test(tcase, idle_when_finished_timed, 0, IDLE_STREAMS);
	tcase_add_loop_test(tcase, idle_between_fetches, 0, 2);
	tcase_add_loop_test(tcase, idle_without_before, 0, 4);
	tcase_add_loop_test(tcase, idle_between_lines, 0, 4);
	tcase_add_test(tcase, callers_in_a_circle);
	tcase_add_test(tcase, totals_agree);
	tcase_add_test(tcase, engine_time_increases);

	tcase = add_case(suite, "sessions");
	tcase_add_loop_test(tcase, ends, LOG_END_FINISHED, LOG_END_DISPOSED + 1);
	tcase_add_loop_test(tcase, events_after_the_end, 0, 2);
	tcase_add_test(tcase, nothing_is_left);
	tcase_add_loop_test(tcase, log_was_removed, 0, 3);
	tcase_add_loop_test(tcase, many_sessions, 0, 2);
	tcase_add_loop_test(tcase, threads_change, 0, 1 + TIMED_OPTIONS);
	tcase_add_loop_test(tcase, two_threads_in_turn, 0, TIMED_OPTIONS);

	tcase = add_case(suite, "fork");
	/* AddressSanitizer's allocator may be locked by a thread that the child doesn't have. */
	tcase_add_loop_test(tcase, fork_in_a_session, 0, has_safe_fork ? 2 : 0);
	tcase_add_loop_test(tcase, forks_while_sessions_start, 0, has_safe_fork ? 1 : 0);

	tcase = add_case(suite, "failures");
	tcase_add_loop_test(tcase, no_space, 0, 4);
	tcase_add_loop_test(tcase, no_space_for_the_notice, 0, 2);
	tcase_add_test(tcase, no_space_at_all);
	tcase_add_test(tcase, bad_directories);
	tcase_add_test(tcase, directory_is_made);
	tcase_add_test(tcase, bad_options);
	tcase_add_loop_test(tcase, errno_is_kept, 0, kinds);

	tcase = add_case(suite, "stream text");
	tcase_add_loop_test(tcase, stream_text, 0, kinds);
	tcase_add_test(tcase, wrong_stream_text);

	return run_suite(suite);
}
