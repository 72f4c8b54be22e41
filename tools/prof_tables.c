/*
 * The profiler's tables: see prof_tables.h.  Each has its columns and, below them, the function that
 * fills them in the same order.
 *
 * Rows exist where stock Firebird has them: a line or record source that was never executed to its end
 * has none, though it may have been sampled; where nothing is counted, what was sampled has one.  What
 * a session's mode or its recorder does not know is NULL.
 */
#include "prof_tables.h"

#include <string.h>

/* ---- What is known ---- */

static bool has_cost(const struct model_session *session)
{
	return session->mode != LOG_MODE_MEASURED;
}

/* Of events: a passive session has none. */
static bool has_event_costs(const struct model_session *session)
{
	return session->mode == LOG_MODE_SAMPLED || session->mode == LOG_MODE_COARSE;
}

static bool has_extremes(const struct model_session *session)
{
	return session->mode == LOG_MODE_MEASURED;
}

static void write_known(struct csv *csv, bool known, uint64_t number)
{
	if (known)
		csv_unsigned(csv, number);
	else
		csv_null(csv);
}

/* ---- sessions ---- */

static const char *const session_columns[] = {
	"profile_id",
	"attachment_id",
	"user_name",
	"description",
	"start_timestamp",
	"finish_timestamp",
	/* fbprof */
	"database",
	"mode",
	"sampling_interval",
	"samples",
	"torn_samples",
	"engine",
	"host",
	"log",
	"end_reason",
	"cost",
	"line_cost_ps",
	"open_cost_ps",
	"fetch_cost_ps",
	"request_cost_ps",
	"row_cost_ps",
	"stretched",
	NULL,
};

static void write_session(struct csv *csv, const struct model_session *session)
{
	csv_signed(csv, session->profile_id);
	csv_signed(csv, session->attachment_id);
	csv_text(csv, session->user);
	csv_text(csv, session->description);
	csv_moment(csv, session->start_time);
	csv_moment(csv, session->end == MODEL_FINISHED ? session->end_time : 0);
	csv_text(csv, session->database);
	csv_text(csv, model_session_mode(session));
	csv_unsigned(csv, session->sampling_interval);
	write_known(csv, model_is_sampled(session), session->totals.samples);
	write_known(csv, model_is_sampled(session), session->totals.torn_samples);
	csv_text(csv, session->engine);
	csv_text(csv, session->log->host);
	csv_text(csv, session->log->name);
	csv_text(csv, model_session_end_name(session->end));
	write_known(csv, has_event_costs(session), session->totals.cost);
	for (unsigned i = 0; i < LOG_EVENTS; i++)
		write_known(csv, has_event_costs(session), session->totals.event_cost[i]);
	write_known(csv, has_cost(session), session->totals.stretched);
	csv_end_row(csv);
}

/* ---- statements ---- */

static const char *const statement_columns[] = {
	"profile_id",
	"statement_id",
	"parent_statement_id",
	"statement_type",
	"package_name",
	"routine_name",
	"sql_text",
	/* fbprof */
	"schema_name",
	NULL,
};

static void write_statements(struct csv *csv, const struct model_session *session)
{
	for (guint i = 0; i < session->statements->len; i++) {
		const struct model_statement *statement = session->statements->pdata[i];

		csv_signed(csv, session->profile_id);
		csv_signed(csv, statement->id);
		csv_id(csv, statement->parent_id);
		csv_text(csv, statement->type);
		csv_text(csv, statement->package);
		csv_text(csv, statement->routine);
		csv_text(csv, statement->sql_text);
		csv_text(csv, statement->schema);
		csv_end_row(csv);
	}
}

/* ---- cursors ---- */

static const char *const cursor_columns[] = {
	"profile_id", "statement_id", "cursor_id", "name", "line_num", "column_num", NULL,
};

static void write_cursors(struct csv *csv, const struct model_session *session)
{
	for (guint i = 0; i < session->cursors->len; i++) {
		const struct model_cursor *cursor = session->cursors->pdata[i];

		csv_signed(csv, session->profile_id);
		csv_signed(csv, cursor->statement->id);
		csv_unsigned(csv, cursor->id);
		csv_text(csv, cursor->name);
		csv_id(csv, cursor->line);
		csv_id(csv, cursor->column);
		csv_end_row(csv);
	}
}

/* ---- record_sources ---- */

static const char *const record_source_columns[] = {
	"profile_id", "statement_id", "cursor_id", "record_source_id", "parent_record_source_id",
	"level",      "access_path",  NULL
};

static void write_record_sources(struct csv *csv, const struct model_session *session)
{
	for (guint i = 0; i < session->record_sources->len; i++) {
		const struct model_record_source *source = session->record_sources->pdata[i];

		csv_signed(csv, session->profile_id);
		csv_signed(csv, source->statement->id);
		csv_unsigned(csv, source->cursor_id);
		csv_unsigned(csv, source->id);
		csv_id(csv, source->parent_id);
		csv_unsigned(csv, source->level);
		csv_text(csv, source->access_path);
		csv_end_row(csv);
	}
}

/* ---- requests ---- */

static const char *const request_columns[] = {
	"profile_id",
	"statement_id",
	"request_id",
	"caller_statement_id",
	"caller_request_id",
	"start_timestamp",
	"finish_timestamp",
	"total_elapsed_time",
	/* fbprof */
	"self_time",
	"samples",
	"finish_count",
	"raw_total_time",
	"raw_self_time",
	"cpu_time",
	"self_cpu_time",
	"wait_time",
	"self_wait_time",
	NULL,
};

/* The start of the rows of tables that have one for each request. */
static void write_request_key(struct csv *csv, const struct model_request *request)
{
	csv_signed(csv, request->statement->session->profile_id);
	csv_signed(csv, request->statement->id);
	csv_signed(csv, request->id);
}

/* Outside of its lines and record sources, a request's cost and CPU time are known if sampled only. */
static void write_request_costs(struct csv *csv, const struct model_request *request,
				const struct model_time *time)
{
	const struct model_session *session = request->statement->session;
	bool sampled = model_is_sampled(session), has_cpu_time = session->has_cpu_time;

	write_known(csv, has_cost(session), model_request_total_time(request) + time->total_cost);
	write_known(csv, sampled, time->self_time + time->self_cost);
	write_known(csv, has_cpu_time, time->total_cpu_time);
	write_known(csv, has_cpu_time && sampled, time->self_cpu_time);
	write_known(csv, has_cpu_time, model_request_wait_time(request));
	write_known(csv, has_cpu_time && sampled,
		    model_wait(time->self_time, time->self_cost, time->self_cpu_time));
}

static void write_requests(struct csv *csv, const struct model_session *session)
{
	for (uint32_t i = 0; i < session->request_count; i++) {
		const struct model_request *request = &session->requests[i];
		const struct model_count *own = model_request_counts(request);
		const struct model_time *time = model_count_time(request, own);

		write_request_key(csv, request);
		csv_id(csv, request->caller_statement_id);
		csv_id(csv, request->caller_id);
		csv_moment(csv, request->start_time);
		csv_moment(csv, request->finish_time);
		csv_unsigned(csv, model_request_total_time(request));
		csv_unsigned(csv, time->self_time);
		write_known(csv, model_is_sampled(session), time->samples);
		write_known(csv, model_has_counts(session), own->value);
		write_request_costs(csv, request, time);
		csv_end_row(csv);
	}
}

/* ---- psql_stats ---- */

static const char *const psql_stats_columns[] = {
	"profile_id",
	"statement_id",
	"request_id",
	"line_num",
	"column_num",
	"counter",
	"min_elapsed_time",
	"max_elapsed_time",
	"total_elapsed_time",
	/* fbprof */
	"self_time",
	"samples",
	"raw_total_time",
	"raw_self_time",
	"cpu_time",
	"self_cpu_time",
	"wait_time",
	"self_wait_time",
	NULL,
};

/* What was executed so often, and how long it took. */
struct stats {
	const struct model_cell *cell;
	uint64_t value;
	const struct model_time *time;
};

static struct stats stats_of(const struct model_request *request, const struct model_count *count)
{
	return (struct stats){
		.cell = model_find_cell(request->statement, count->cell),
		.value = count->value,
		.time = model_count_time(request, count),
	};
}

static bool has_row(const struct stats *stats)
{
	return stats->value || !model_has_counts(stats->cell->statement->session);
}

static void write_stats(struct csv *csv, const struct model_session *session,
			const struct stats *stats)
{
	bool has_both = has_extremes(session) && stats->value;

	write_known(csv, model_has_counts(session), stats->value);
	write_known(csv, has_both, stats->time->min_time);
	write_known(csv, has_both, stats->time->max_time);
	csv_unsigned(csv, stats->time->total_time);
}

static uint64_t total_wait(const struct model_time *time)
{
	return model_wait(time->total_time, time->total_cost, time->total_cpu_time);
}

static void write_line_costs(struct csv *csv, const struct model_session *session,
			     const struct model_time *time)
{
	write_known(csv, has_cost(session), time->total_time + time->total_cost);
	write_known(csv, has_cost(session), time->self_time + time->self_cost);
	write_known(csv, session->has_cpu_time, time->total_cpu_time);
	write_known(csv, session->has_cpu_time, time->self_cpu_time);
	write_known(csv, session->has_cpu_time, total_wait(time));
	write_known(csv, session->has_cpu_time,
		    model_wait(time->self_time, time->self_cost, time->self_cpu_time));
}

static int compare_lines(const void *left, const void *right)
{
	const struct model_cell *a = ((const struct stats *)left)->cell;
	const struct model_cell *b = ((const struct stats *)right)->cell;
	int order = MODEL_ORDER(a->line, b->line);

	return order ? order : MODEL_ORDER(a->column, b->column);
}

static void collect_lines(const struct model_request *request, GArray *lines)
{
	const struct model_count *counts = model_request_counts(request);

	g_array_set_size(lines, 0);
	for (uint32_t i = 0; i < request->count_count; i++) {
		const struct stats stats = stats_of(request, &counts[i]);

		if (stats.cell->kind == MODEL_CELL_LINE && has_row(&stats))
			g_array_append_val(lines, stats);
	}
	g_array_sort(lines, compare_lines);
}

static void write_psql_stats(struct csv *csv, const struct model_session *session)
{
	GArray *lines = g_array_new(FALSE, FALSE, sizeof(struct stats));

	for (uint32_t i = 0; i < session->request_count; i++) {
		collect_lines(&session->requests[i], lines);
		for (guint j = 0; j < lines->len; j++) {
			const struct stats *stats = &g_array_index(lines, struct stats, j);

			write_request_key(csv, &session->requests[i]);
			csv_unsigned(csv, stats->cell->line);
			csv_unsigned(csv, stats->cell->column);
			write_stats(csv, session, stats);
			csv_unsigned(csv, stats->time->self_time);
			write_known(csv, model_is_sampled(session), stats->time->samples);
			write_line_costs(csv, session, stats->time);
			csv_end_row(csv);
		}
	}
	g_array_unref(lines);
}

/* ---- record_source_stats ---- */

static const char *const record_source_stats_columns[] = {
	"profile_id", "statement_id", "request_id", "cursor_id", "record_source_id", "open_counter",
	"open_min_elapsed_time", "open_max_elapsed_time", "open_total_elapsed_time",
	"fetch_counter", "fetch_min_elapsed_time", "fetch_max_elapsed_time",
	"fetch_total_elapsed_time",
	/* fbprof */
	"open_self_time", "fetch_self_time", "open_samples", "fetch_samples", "open_raw_total_time",
	"fetch_raw_total_time", "open_cpu_time", "fetch_cpu_time", "open_wait_time",
	"fetch_wait_time", "self_wait_time", NULL
};

struct source_stats {
	const struct model_record_source *source;
	struct stats open, fetch;
};

static int compare_sources(const void *left, const void *right)
{
	const struct model_record_source *a = ((const struct source_stats *)left)->source;
	const struct model_record_source *b = ((const struct source_stats *)right)->source;
	int order = MODEL_ORDER(a->cursor_id, b->cursor_id);

	return order ? order : MODEL_ORDER(a->id, b->id);
}

/* The element for `source`, if it is the last one, or else a new one. */
static struct source_stats *last_source(GArray *sources, const struct model_record_source *source)
{
	static const struct model_time no_time;
	const struct source_stats none = { source, { .time = &no_time }, { .time = &no_time } };

	if (!sources->len ||
	    g_array_index(sources, struct source_stats, sources->len - 1).source != source)
		g_array_append_val(sources, none);
	return &g_array_index(sources, struct source_stats, sources->len - 1);
}

/* The counts of opens and fetches are neighbours if both are there. */
static void collect_sources(const struct model_request *request, GArray *sources)
{
	const struct model_count *counts = model_request_counts(request);

	g_array_set_size(sources, 0);
	for (uint32_t i = 0; i < request->count_count; i++) {
		const struct stats stats = stats_of(request, &counts[i]);

		if (!stats.cell->record_source || !has_row(&stats))
			continue;
		if (stats.cell->kind == MODEL_CELL_OPEN)
			last_source(sources, stats.cell->record_source)->open = stats;
		else
			last_source(sources, stats.cell->record_source)->fetch = stats;
	}
	g_array_sort(sources, compare_sources);
}

static void write_source_costs(struct csv *csv, const struct model_session *session,
			       const struct model_time *open, const struct model_time *fetch)
{
	bool has_cpu_time = session->has_cpu_time;

	write_known(csv, has_cost(session), open->total_time + open->total_cost);
	write_known(csv, has_cost(session), fetch->total_time + fetch->total_cost);
	write_known(csv, has_cpu_time, open->total_cpu_time);
	write_known(csv, has_cpu_time, fetch->total_cpu_time);
	write_known(csv, has_cpu_time, total_wait(open));
	write_known(csv, has_cpu_time, total_wait(fetch));
	write_known(csv, has_cpu_time,
		    model_wait(open->self_time + fetch->self_time,
			       open->self_cost + fetch->self_cost,
			       open->self_cpu_time + fetch->self_cpu_time));
}

static void write_record_source_stats(struct csv *csv, const struct model_session *session)
{
	GArray *sources = g_array_new(FALSE, FALSE, sizeof(struct source_stats));

	for (uint32_t i = 0; i < session->request_count; i++) {
		collect_sources(&session->requests[i], sources);
		for (guint j = 0; j < sources->len; j++) {
			const struct source_stats *at =
				&g_array_index(sources, struct source_stats, j);

			write_request_key(csv, &session->requests[i]);
			csv_unsigned(csv, at->source->cursor_id);
			csv_unsigned(csv, at->source->id);
			write_stats(csv, session, &at->open);
			write_stats(csv, session, &at->fetch);
			csv_unsigned(csv, at->open.time->self_time);
			csv_unsigned(csv, at->fetch.time->self_time);
			write_known(csv, model_is_sampled(session), at->open.time->samples);
			write_known(csv, model_is_sampled(session), at->fetch.time->samples);
			write_source_costs(csv, session, at->open.time, at->fetch.time);
			csv_end_row(csv);
		}
	}
	g_array_unref(sources);
}

/* ---- All of them ---- */

const struct prof_table prof_tables[PROF_TABLE_COUNT] = {
	{ "sessions", session_columns, write_session },
	{ "statements", statement_columns, write_statements },
	{ "cursors", cursor_columns, write_cursors },
	{ "record_sources", record_source_columns, write_record_sources },
	{ "requests", request_columns, write_requests },
	{ "psql_stats", psql_stats_columns, write_psql_stats },
	{ "record_source_stats", record_source_stats_columns, write_record_source_stats },
};

const struct prof_table *prof_table_find(const char *name)
{
	for (unsigned i = 0; i < PROF_TABLE_COUNT; i++) {
		if (strcmp(prof_tables[i].name, name) == 0)
			return &prof_tables[i];
	}
	return NULL;
}

void prof_table_write(const struct prof_table *table, const struct model *model, struct sink *sink)
{
	struct csv csv;

	csv_begin(&csv, sink, table->columns);
	for (guint i = 0; i < model->sessions->len; i++)
		table->write_rows(&csv, model->sessions->pdata[i]);
}
