/*
 * `fbprof report`: where the time went, as a table for people.
 */
#include "command.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "log_info.h"
#include "report_rows.h"
#include "table.h"
#include "text.h"

#define DEFAULT_LIMIT 40

/* Of a long statement, where nothing tells how wide lines may be. */
#define DEFAULT_WHERE_WIDTH 120

/* Sessions that the header names one by one. */
#define SESSIONS_NAMED 5

#define BAR_WIDTH 8

struct report_options {
	int64_t session;
	char *by;
	char *sort;
	int limit;
	gboolean all;
};

struct choice {
	const char *name;
	int value;
};

enum report_sort {
	SORT_SELF,
	SORT_TOTAL,
	SORT_COUNT
};

static const struct choice by_choices[] = {
	{ "all", REPORT_BY_ALL },
	{ "line", REPORT_BY_LINE },
	{ "record-source", REPORT_BY_RECORD_SOURCE },
	{ "statement", REPORT_BY_STATEMENT },
	{ 0 },
};

static const struct choice sort_choices[] = {
	{ "self", SORT_SELF },
	{ "total", SORT_TOTAL },
	{ "count", SORT_COUNT },
	{ 0 },
};

/* The terminal that stdout is, if it is one. */
struct screen {
	bool terminal;
	bool colors;
	unsigned width; /* 0: unlimited */
};

static struct screen find_screen(void)
{
	const char *no_color = g_getenv("NO_COLOR"), *term = g_getenv("TERM");
	struct screen screen = { .terminal = isatty(STDOUT_FILENO) };
	struct winsize size;

	if (!screen.terminal)
		return screen;
	screen.colors = !(no_color && *no_color) && term && strcmp(term, "dumb") != 0;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
		screen.width = size.ws_col;
	return screen;
}

/* ---- The header ---- */

static void print_line(struct sink *sink, const char *name, const char *value)
{
	char *line = text_line(value);

	sink_print(sink, "%-9s %s\n", name, line);
	g_free(line);
}

static void print_log(const struct model_log *log, struct sink *sink)
{
	char **losses = command_losses(log);
	char *line = g_strdup_printf("%s: %s", log->name, log_info_state(log));

	print_line(sink, "Log", line);
	g_free(line);
	for (guint i = 0; i < log->notices->len; i++)
		print_line(sink, "Notice", log->notices->pdata[i]);
	for (char **loss = losses; *loss; loss++)
		print_line(sink, "Warning", *loss);
	g_strfreev(losses);
}

static void print_session(const struct model_session *session, struct sink *sink)
{
	char *who = log_info_session(session), *mode = log_info_mode(session);
	char *line = g_strdup_printf("%s: %s, %s", who, session->database, mode);

	print_line(sink, "Session", line);
	g_free(line);
	g_free(mode);
	g_free(who);
}

static void print_samples(const struct model *model, const struct report_rows *rows,
			  struct sink *sink)
{
	char *time = text_lone_time(rows->sampled_time);
	uint64_t torn = 0;

	for (guint i = 0; i < model->sessions->len; i++) {
		const struct model_session *session = model->sessions->pdata[i];

		torn += session->totals.torn_samples;
	}
	sink_print(sink, "%-9s %s in %" PRIu64 " samples", "Sampled", time, rows->samples);
	if (torn)
		sink_print(sink, ", %" PRIu64 " more were torn", torn);
	sink_put(sink, "\n");
	g_free(time);
}

/* A line that begins with a time, unless there is none. */
static void print_sum(struct sink *sink, const char *name, uint64_t time, const char *text)
{
	char *number = text_lone_time(time);

	if (time)
		sink_print(sink, "%-9s %s %s\n", name, number, text);
	g_free(number);
}

/* Whether it is so for any session. */
static bool any(const struct model *model, bool (*is_so)(const struct model_session *session))
{
	for (guint i = 0; i < model->sessions->len; i++) {
		const struct model_session *session = model->sessions->pdata[i];

		if (is_so(session))
			return true;
	}
	return false;
}

static void print_cost(const struct model *model, struct sink *sink)
{
	char *cost = log_info_cost((struct model_session *const *)(void *)model->sessions->pdata,
				   model->sessions->len);

	if (cost)
		sink_print(sink,
			   "%-9s profiling itself took about %s, which is not in these times\n",
			   "Cost", cost);
	g_free(cost);
}

static void print_sums(const struct model *model, const struct report_rows *rows, struct sink *sink)
{
	if (any(model, model_is_sampled) || !model->sessions->len)
		print_samples(model, rows, sink);
	print_sum(sink, "Coarse", rows->coarse_time,
		  "of lines and record sources, by a clock that moves at the sampling interval");
	print_sum(sink, "Measured", rows->measured_time, "of lines and record sources, each timed");
	print_sum(sink, "Unsampled", rows->unsampled_time,
		  "in requests that raised no event: in total times only");
	print_sum(sink, "Outside", rows->outside_time,
		  "in statements, outside of lines and record sources: in total times only");
	print_cost(model, sink);
}

static void print_header(const struct model *model, const struct report_rows *rows,
			 struct sink *sink)
{
	guint named = MIN(model->sessions->len, SESSIONS_NAMED);

	for (guint i = 0; i < model->logs->len; i++)
		print_log(model->logs->pdata[i], sink);
	for (guint i = 0; i < named; i++)
		print_session(model->sessions->pdata[i], sink);
	if (model->sessions->len > named)
		sink_print(sink, "%-9s and %u more\n", "", model->sessions->len - named);
	if (model->cancelled_count)
		sink_print(sink, "%-9s %u cancelled sessions left out: add --all to see them\n", "",
			   model->cancelled_count);
	print_sums(model, rows, sink);
	sink_put(sink, "\n");
}

/* ---- The table ---- */

static int compare_rows(const void *left, const void *right, void *data)
{
	const struct report_row *a = *(const struct report_row *const *)left;
	const struct report_row *b = *(const struct report_row *const *)right;
	const enum report_sort *sort = data;
	int self = MODEL_ORDER(b->time.self_time, a->time.self_time);
	int total = MODEL_ORDER(b->time.total_time, a->time.total_time);
	int count = MODEL_ORDER(b->count, a->count);
	int order = *sort == SORT_TOTAL ? total : *sort == SORT_COUNT ? count : self;

	if (!order)
		order = self ? self : total ? total : count;
	if (!order)
		order = strcmp(a->where, b->where);
	if (!order)
		order = MODEL_ORDER(a->line, b->line);
	return order ? order : MODEL_ORDER(a->column, b->column);
}

/* A bar in eighths of a column. */
static char *make_bar(double share)
{
	static const char *const parts[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
	unsigned eighths = (unsigned)(share * BAR_WIDTH * 8 + 0.5);
	GString *bar = g_string_new(NULL);

	for (unsigned i = 0; i < eighths / 8 && i < BAR_WIDTH; i++)
		g_string_append(bar, "█");
	if (eighths < BAR_WIDTH * 8)
		g_string_append(bar, parts[eighths % 8]);
	return g_string_free(bar, FALSE);
}

static const char *bar_color(double share)
{
	return share >= 0.2 ? "31" : share >= 0.05 ? "33" : "32";
}

enum report_column {
	COLUMN_BAR, /* on a terminal only */
	COLUMN_SHARE,
	COLUMN_SELF,
	COLUMN_WAIT, /* only if a session knows CPU time */
	COLUMN_TOTAL,
	COLUMN_SAMPLES, /* only if a session was sampled */
	COLUMN_COUNT,	/* only if a session counts */
	COLUMN_LINE,
	COLUMN_WHERE,
	COLUMNS
};

static const struct table_column all_columns[COLUMNS] = {
	[COLUMN_BAR] = { "", FALSE },	     [COLUMN_SHARE] = { "%", TRUE },
	[COLUMN_SELF] = { "self", TRUE },    [COLUMN_WAIT] = { "wait", TRUE },
	[COLUMN_TOTAL] = { "total", TRUE },  [COLUMN_SAMPLES] = { "samples", TRUE },
	[COLUMN_COUNT] = { "count", TRUE },  [COLUMN_LINE] = { "line", TRUE },
	[COLUMN_WHERE] = { "where", FALSE },
};

struct report_table {
	struct table *table;
	struct screen screen;
	bool shown[COLUMNS];
	uint64_t all_self_time;
	struct text_unit self_unit, total_unit;
};

/* Adds the next cell of a row, unless its column isn't shown.  Takes `text`; NULL is empty. */
static void add_cell(struct report_table *to, enum report_column column, char *text)
{
	if (to->shown[column])
		table_add(to->table, text ? text : g_strdup(""), NULL);
	else
		g_free(text);
}

static void add_share(struct report_table *to, uint64_t self_time)
{
	double share = to->all_self_time ? (double)self_time / (double)to->all_self_time : 0;
	char digits[32];

	if (to->screen.terminal)
		table_add(to->table, make_bar(share), to->screen.colors ? bar_color(share) : NULL);
	g_ascii_formatd(digits, sizeof(digits), "%.2f", 100 * share);
	add_cell(to, COLUMN_SHARE, g_strdup(digits));
	add_cell(to, COLUMN_SELF, text_time(self_time, to->self_unit));
}

static void add_wait(struct report_table *to, const struct report_row *row)
{
	uint64_t wait;

	add_cell(to, COLUMN_WAIT,
		 report_row_wait(row, &wait) ? text_time(wait, to->self_unit) : NULL);
}

static void add_row(struct report_table *to, const struct report_row *row)
{
	GString *where = g_string_new(row->where);

	add_share(to, row->time.self_time);
	add_wait(to, row);
	add_cell(to, COLUMN_TOTAL, text_time(row->time.total_time, to->total_unit));
	add_cell(to, COLUMN_SAMPLES, g_strdup_printf("%" PRIu64, row->time.samples));
	add_cell(to, COLUMN_COUNT, row->counted ? g_strdup_printf("%" PRIu64, row->count) : NULL);
	add_cell(to, COLUMN_LINE,
		 row->line ? g_strdup_printf("%" PRIu32 ":%" PRIu32, row->line, row->column) :
			     NULL);
	if (!to->screen.width)
		text_truncate(where, DEFAULT_WHERE_WIDTH);
	add_cell(to, COLUMN_WHERE, g_string_free(where, FALSE));
}

/* The sum of the rows that are not shown. */
static struct report_row sum_rest(const GPtrArray *rows, guint shown)
{
	struct report_row rest = { 0 };

	for (guint i = shown; i < rows->len; i++) {
		const struct report_row *row = rows->pdata[i];

		model_time_add(&rest.time, &row->time);
		rest.blind_time += row->blind_time;
	}
	return rest;
}

static void add_rest(struct report_table *to, const struct report_row *rest, guint count)
{
	add_share(to, rest->time.self_time);
	add_wait(to, rest);
	add_cell(to, COLUMN_TOTAL, NULL);
	add_cell(to, COLUMN_SAMPLES, g_strdup_printf("%" PRIu64, rest->time.samples));
	add_cell(to, COLUMN_COUNT, NULL);
	add_cell(to, COLUMN_LINE, NULL);
	add_cell(to, COLUMN_WHERE, g_strdup_printf("%u more: --limit 0 shows all", count));
}

/* Puts the columns that are shown into `columns`; returns how many. */
static unsigned choose_columns(struct report_table *to, const struct report_rows *rows,
			       const struct model *model, struct table_column columns[COLUMNS])
{
	unsigned count = 0;

	for (unsigned i = 0; i < COLUMNS; i++)
		to->shown[i] = true;
	to->shown[COLUMN_BAR] = to->screen.terminal;
	to->shown[COLUMN_WAIT] = rows->has_cpu_time;
	to->shown[COLUMN_SAMPLES] = any(model, model_is_sampled);
	to->shown[COLUMN_COUNT] = any(model, model_has_counts);
	for (unsigned i = 0; i < COLUMNS; i++) {
		if (to->shown[i])
			columns[count++] = all_columns[i];
	}
	return count;
}

static void print_table(const struct report_rows *rows, const struct model *model,
			enum report_sort sort, guint limit, struct sink *sink)
{
	struct report_table to = { .screen = find_screen(), .all_self_time = rows->self_time };
	guint shown = limit ? MIN(limit, rows->rows->len) : rows->rows->len;
	struct table_column columns[COLUMNS];
	unsigned column_count = choose_columns(&to, rows, model, columns);
	struct report_row rest;
	uint64_t largest_self, largest_total = 0;

	g_ptr_array_sort_with_data(rows->rows, compare_rows, &sort);
	rest = sum_rest(rows->rows, shown);
	largest_self = rest.time.self_time;
	for (guint i = 0; i < shown; i++) {
		const struct report_row *row = rows->rows->pdata[i];

		largest_self = MAX(largest_self, row->time.self_time);
		largest_total = MAX(largest_total, row->time.total_time);
	}
	to.self_unit = text_unit_for(largest_self);
	to.total_unit = text_unit_for(largest_total);
	to.table = table_new(columns, column_count);
	for (guint i = 0; i < shown; i++)
		add_row(&to, rows->rows->pdata[i]);
	if (shown < rows->rows->len)
		add_rest(&to, &rest, rows->rows->len - shown);
	table_print(to.table, sink, to.screen.width);
	table_free(to.table);
}

/* ---- The command ---- */

/* Leaves only the session that was asked for. */
static enum command_status select_session(struct model *model, int64_t profile_id)
{
	GString *known = g_string_new(NULL);
	enum command_status status;

	for (guint i = model->sessions->len; i > 0; i--) {
		const struct model_session *session = model->sessions->pdata[i - 1];
		char *id = g_strdup_printf("%" PRId64 "%s", session->profile_id,
					   known->len ? ", " : "");

		g_string_prepend(known, id);
		g_free(id);
		if (session->profile_id != profile_id)
			g_ptr_array_remove_index(model->sessions, i - 1);
	}
	status = model->sessions->len ?
			 COMMAND_DONE :
			 command_fail(NULL, "no session %" PRId64 " here: %s%s", profile_id,
				      known->len ? "there are " : "there is none", known->str);
	g_string_free(known, TRUE);
	return status;
}

static enum command_status report(struct model *model, const struct report_options *options,
				  enum report_by by, enum report_sort sort)
{
	struct report_rows rows;
	struct sink sink;

	report_rows_init(&rows, by);
	for (guint i = 0; i < model->sessions->len; i++)
		report_rows_add(&rows, model->sessions->pdata[i]);
	sink_open(&sink, STDOUT_FILENO);
	print_header(model, &rows, &sink);
	if (rows.rows->len)
		print_table(&rows, model, sort, (guint)options->limit, &sink);
	else
		sink_put(&sink, "Nothing was executed in these sessions.\n");
	report_rows_clear(&rows);
	return command_close_stdout(&sink);
}

/* Looks `name` up, NULL being the first; a message if it is none of them. */
static enum command_status choose(const char *option, const char *name,
				  const struct choice *choices, int *value)
{
	GString *names = g_string_new(NULL);
	enum command_status status = COMMAND_MISUSED;

	for (const struct choice *choice = choices; choice->name; choice++) {
		if (status == COMMAND_MISUSED && (!name || strcmp(choice->name, name) == 0)) {
			*value = choice->value;
			status = COMMAND_DONE;
		}
		g_string_append_printf(names, "%s%s", names->len ? ", " : "", choice->name);
	}
	if (status != COMMAND_DONE)
		command_misuse("%s=%s: must be one of %s", option, name, names->str);
	g_string_free(names, TRUE);
	return status;
}

static enum command_status check_options(const struct report_options *options, int *by, int *sort)
{
	enum command_status status = choose("--by", options->by, by_choices, by);

	if (status == COMMAND_DONE)
		status = choose("--sort", options->sort, sort_choices, sort);
	if (status == COMMAND_DONE && options->limit < 0)
		status = command_misuse("--limit=%d: must be 0 (all rows) or more", options->limit);
	return status;
}

static enum command_status run_with_logs(char **logs, const struct report_options *options)
{
	struct model *model = NULL;
	int by, sort;
	enum command_status status = check_options(options, &by, &sort), read = COMMAND_DONE;

	if (status == COMMAND_DONE)
		model = command_load(logs, options->all, &read);
	if (model && options->session != INT64_MIN)
		status = select_session(model, options->session);
	if (model && status == COMMAND_DONE)
		status = report(model, options, (enum report_by)by, (enum report_sort)sort);
	model_free(model);
	return status == COMMAND_DONE ? read : status;
}

static enum command_status run(int argc, char **argv)
{
	struct report_options options = { .session = INT64_MIN, .limit = DEFAULT_LIMIT };
	const GOptionEntry entries[] = {
		{ "session", 's', 0, G_OPTION_ARG_INT64, &options.session,
		  "Only the session with this profile_id", "ID" },
		{ "by", 'b', 0, G_OPTION_ARG_STRING, &options.by,
		  "Rows: all (the default), line, record-source, statement", "WHAT" },
		{ "sort", 'o', 0, G_OPTION_ARG_STRING, &options.sort,
		  "Order: self (the default), total, count", "COLUMN" },
		{ "limit", 'n', 0, G_OPTION_ARG_INT, &options.limit,
		  "So many rows, 40 unless given; 0 for all", "N" },
		{ "all", 'a', 0, G_OPTION_ARG_NONE, &options.all, "Include cancelled sessions",
		  NULL },
		{ 0 },
	};
	enum command_status status;
	char **logs;

	if (command_parse(&command_report, entries, argc, argv, &logs, &status)) {
		status = run_with_logs(logs, &options);
		g_strfreev(logs);
	}
	g_free(options.by);
	g_free(options.sort);
	return status;
}

const struct command command_report = {
	.name = "report",
	.arguments = "LOG...",
	.summary = "Show where the time went",
	.help = "Self time is what was spent there and in nothing further inside; it adds up to 100%.\n"
		"Of it the thread waited for `wait`.  Total time includes what was called.  Count is\n"
		"executions of a line, fetches from a record source, finished requests of a statement.",
	.run = run,
};
