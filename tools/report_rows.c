/*
 * The rows of `fbprof report`: see report_rows.h.
 */
#include "report_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "text.h"

/* Bytes of a name or text that are looked at: more would not be shown anyway. */
#define SHOWN_SIZE 400

/* A session while it is added. */
struct adding {
	struct report_rows *rows;
	const struct model_session *session;
	guint *names;	       /* by statement number: see name_statement() */
	GHashTable *row_of;    /* cell or record source → row */
	GPtrArray *group_rows; /* row of each group */
};

static void free_row(void *data)
{
	struct report_row *row = data;

	g_free(row->where);
	g_free(row);
}

void report_rows_init(struct report_rows *rows, enum report_by by)
{
	*rows = (struct report_rows){ .by = by };
	rows->rows = g_ptr_array_new_with_free_func(free_row);
	rows->by_identity = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	rows->names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
}

void report_rows_clear(struct report_rows *rows)
{
	g_hash_table_unref(rows->by_identity);
	g_hash_table_unref(rows->names);
	g_ptr_array_unref(rows->rows);
}

/* ---- What things are called ---- */

/* The first line of a text, or what is looked at of it. */
static gsize first_line_size(const char *text)
{
	gsize size = strcspn(text, "\r\n");

	if (size > SHOWN_SIZE)
		size = (gsize)(g_utf8_find_prev_char(text, text + SHOWN_SIZE) - text);
	return size;
}

static void append_start(GString *to, const char *text)
{
	gsize size = strlen(text);

	if (size > SHOWN_SIZE)
		size = (gsize)(g_utf8_find_prev_char(text, text + SHOWN_SIZE) - text);
	g_string_append_len(to, text, (gssize)size);
}

/* A routine's full name, or the start of an SQL text. */
static void append_name(GString *to, const struct model_statement *statement)
{
	const char *const parts[] = { statement->schema, statement->package, statement->routine };
	const char *separator = "";

	for (unsigned i = 0; i < G_N_ELEMENTS(parts); i++) {
		if (!parts[i])
			continue;
		g_string_append(to, separator);
		append_start(to, parts[i]);
		separator = ".";
	}
	if (!*separator && statement->sql_text) {
		append_start(to, statement->sql_text);
	} else if (!*separator) {
		append_start(to, statement->type);
		g_string_append_printf(to, " %" PRId64 " (its text was not recorded)",
				       statement->id);
	}
}

static const struct model_statement *parent_of(const struct model_statement *statement)
{
	return statement->parent_id ?
		       model_find_statement(statement->session, statement->parent_id) :
		       NULL;
}

static char *describe(const struct model_cell *cell)
{
	const struct model_statement *parent = parent_of(cell->statement);
	GString *where = g_string_new(NULL);
	char *line;

	if (cell->record_source) {
		const char *path = cell->record_source->access_path;

		path += strspn(path, " ");
		path += g_str_has_prefix(path, "-> ") ? 3 : 0;
		g_string_append_len(where, path, (gssize)first_line_size(path));
		g_string_append(where, " in ");
	}
	append_name(where, cell->statement);
	if (parent) {
		g_string_append(where, " of ");
		append_name(where, parent);
	}
	line = text_line(where->str);
	g_string_free(where, TRUE);
	return line;
}

static void append_statement_identity(GString *identity, const struct model_statement *statement)
{
	const char *const parts[] = { statement->type, statement->schema, statement->package,
				      statement->routine, statement->sql_text };

	for (unsigned i = 0; i < G_N_ELEMENTS(parts); i++) {
		/* With lengths, so that no two lists of parts look the same. */
		if (parts[i])
			g_string_append_printf(identity, "%zu:%s", strlen(parts[i]), parts[i]);
		else
			g_string_append_c(identity, '-');
	}
	if (!statement->routine && !statement->sql_text)
		g_string_append_printf(identity, "#%p", (const void *)statement);
}

/* A number from 1, equal for statements that are the same in different sessions and logs. */
static guint name_statement(struct adding *adding, const struct model_statement *statement)
{
	const struct model_statement *parent = parent_of(statement);
	GHashTable *names = adding->rows->names;
	guint *name = &adding->names[statement->number];
	GString *identity;

	if (*name)
		return *name;
	identity = g_string_new(NULL);
	append_statement_identity(identity, statement);
	if (parent)
		append_statement_identity(identity, parent);
	*name = GPOINTER_TO_UINT(g_hash_table_lookup(names, identity->str));
	if (!*name) {
		*name = g_hash_table_size(names) + 1;
		g_hash_table_insert(names, g_strdup(identity->str), GUINT_TO_POINTER(*name));
	}
	g_string_free(identity, TRUE);
	return *name;
}

static char *identify(struct adding *adding, const struct model_cell *cell)
{
	const struct model_record_source *source = cell->record_source;
	guint name = name_statement(adding, cell->statement);

	if (source)
		return g_strdup_printf("%u source %" PRIu32 " %" PRIu32 " %.*s", name,
				       source->cursor_id, source->id,
				       (int)first_line_size(source->access_path),
				       source->access_path);
	if (cell->kind == MODEL_CELL_LINE)
		return g_strdup_printf("%u line %" PRIu32 " %" PRIu32, name, cell->line,
				       cell->column);
	return g_strdup_printf("%u", name);
}

/* ---- Rows ---- */

static struct report_row *row_new(const struct model_cell *cell)
{
	struct report_row *row = g_new0(struct report_row, 1);
	const struct model_cursor *cursor =
		cell->record_source ? model_find_cursor(cell->record_source) : NULL;

	row->line = cursor ? cursor->line : cell->line;
	row->column = cursor ? cursor->column : cell->column;
	row->where = describe(cell);
	return row;
}

static struct report_row *find_row(struct adding *adding, const struct model_cell *cell)
{
	char *identity = identify(adding, cell);
	struct report_row *row = g_hash_table_lookup(adding->rows->by_identity, identity);

	if (row) {
		g_free(identity);
		return row;
	}
	row = row_new(cell);
	g_ptr_array_add(adding->rows->rows, row);
	g_hash_table_insert(adding->rows->by_identity, identity, row);
	return row;
}

static bool has_row(const struct adding *adding, const struct model_cell *cell)
{
	switch (cell->kind) {
	case MODEL_CELL_REQUEST:
		return true;
	case MODEL_CELL_LINE:
		return adding->rows->by & REPORT_BY_LINE;
	case MODEL_CELL_OPEN:
	case MODEL_CELL_FETCH:
		return adding->rows->by & REPORT_BY_RECORD_SOURCE;
	case MODEL_CELL_UNSAMPLED:
		break;
	}
	return false;
}

/* The row of a cell, remembered by `key`, with its group in this session. */
static struct report_row *row_of_key(struct adding *adding, const void *key,
				     const struct model_cell *cell)
{
	struct report_row *row = g_hash_table_lookup(adding->row_of, key);

	if (!row) {
		row = find_row(adding, cell);
		g_hash_table_insert(adding->row_of, (void *)key, row);
	}
	if (row->session != adding->session) {
		row->session = adding->session;
		row->group = adding->group_rows->len;
		g_ptr_array_add(adding->group_rows, row);
	}
	return row;
}

/* The row of a cell that has one. */
static struct report_row *row_of_cell(struct adding *adding, const struct model_cell *cell)
{
	return row_of_key(adding, cell->record_source ? (const void *)cell->record_source : cell,
			  cell);
}

static uint32_t group_of_node(struct adding *adding, const uint32_t *groups,
			      const struct model_node *node)
{
	const struct model_node *nodes = adding->session->nodes;
	const struct model_statement *statement = node->cell->statement;

	if (has_row(adding, node->cell))
		return row_of_cell(adding, node->cell)->group;
	if (node->parent != MODEL_NO_NODE && nodes[node->parent].cell->statement == statement)
		return groups[node->parent];
	return row_of_cell(adding, model_find_cell(statement, LOG_CELL_FINISHED))->group;
}

static void add_times(struct adding *adding)
{
	const struct model_session *session = adding->session;
	uint32_t *groups = g_new(uint32_t, session->node_count);
	struct model_time *times;

	for (uint32_t i = 0; i < session->node_count; i++)
		groups[i] = group_of_node(adding, groups, &session->nodes[i]);
	times = g_new(struct model_time, adding->group_rows->len);
	model_sum_times(session, groups, adding->group_rows->len, times);
	for (guint i = 0; i < adding->group_rows->len; i++) {
		struct report_row *row = adding->group_rows->pdata[i];

		model_time_add(&row->time, &times[i]);
		if (!session->has_cpu_time)
			row->blind_time += times[i].self_time;
		adding->rows->sampled_time += times[i].self_time;
		adding->rows->samples += times[i].samples;
	}
	g_free(times);
	g_free(groups);
}

/* ---- Times without a call tree: each count has its own ---- */

static bool has_lines(const struct model_request *request)
{
	const struct model_count *counts = model_request_counts(request);

	for (uint32_t i = 1; i < request->count_count; i++) {
		if (model_find_cell(request->statement, counts[i].cell)->kind == MODEL_CELL_LINE)
			return true;
	}
	return false;
}

/* What the rows of a session take of the time that its statements took. */
struct shares {
	uint64_t statements; /* total times of what is no routine, and so was not called */
	uint64_t rows;	     /* self times of rows */
	uint64_t outside;    /* of statements, where another row's time may be in it */
};

static void add_request_time(struct adding *adding, const struct model_request *request,
			     struct shares *shares)
{
	const struct model_count *own = model_request_counts(request);
	const struct model_time *time = model_count_time(request, own);
	struct report_row *row =
		row_of_cell(adding, model_find_cell(request->statement, LOG_CELL_FINISHED));

	row->time.total_time += time->total_time;
	row->time.total_cost += time->total_cost;
	row->time.total_cpu_time += time->total_cpu_time;
	if (request->statement->routine)
		return; /* its self time is its caller's, too */
	shares->statements += time->total_time;
	if (has_lines(request)) {
		row->time.self_time += time->self_time;
		row->blind_time += time->self_time;
		shares->rows += time->self_time;
	} else {
		shares->outside += time->self_time;
	}
}

struct place {
	uint32_t line, column;
};

static bool is_before(struct place place, const struct model_cell *line)
{
	return place.line < line->line || (place.line == line->line && place.column < line->column);
}

/*
 * Where the plan of a record source is in the text; 0: it isn't told.  Sub-queries have a plan of their own,
 * whose root tells its place, in the cursor of the statement around.
 */
static struct place place_of(const struct model_record_source *source)
{
	const struct model_record_source *root = model_find_root(source);
	const struct model_cursor *cursor = model_find_cursor(source);
	const char *text = strstr(root->access_path, " (line ");
	struct place place;

	if (text && text - root->access_path < (ptrdiff_t)first_line_size(root->access_path) &&
	    sscanf(text, " (line %" SCNu32 ", column %" SCNu32 ")", &place.line, &place.column) ==
		    2)
		return place;
	return cursor ? (struct place){ cursor->line, cursor->column } : (struct place){ 0, 0 };
}

/* The line that such a place is in: the last one that begins before it.  NULL: there is none. */
static const struct model_cell *line_around(const struct model_request *request, struct place place)
{
	const struct model_count *counts = model_request_counts(request);
	const struct model_cell *found = NULL;

	for (uint32_t i = 0; i < request->count_count; i++) {
		const struct model_cell *cell = model_find_cell(request->statement, counts[i].cell);

		if (cell->kind == MODEL_CELL_LINE && !is_before(place, cell) &&
		    (!found || is_before((struct place){ found->line, found->column }, cell)))
			found = cell;
	}
	return found;
}

/* Where the time of a cell goes that has no row: to the line of its plan, or to its statement. */
static struct report_row *row_around(struct adding *adding, const struct model_request *request,
				     const struct model_cell *cell)
{
	struct place place = { 0, 0 };
	const struct model_cell *line;

	if (cell->record_source && (adding->rows->by & REPORT_BY_LINE))
		place = place_of(cell->record_source);
	if (!place.line)
		return row_of_cell(adding, model_find_cell(cell->statement, LOG_CELL_FINISHED));
	line = line_around(request, place);
	if (!line) {
		const struct model_cell of_plan = { .statement = cell->statement,
						    .kind = MODEL_CELL_LINE,
						    .line = place.line,
						    .column = place.column };

		return row_of_key(adding, cell->record_source, &of_plan);
	}
	return row_of_cell(adding, line);
}

static void add_count_time(struct adding *adding, const struct model_request *request,
			   const struct model_cell *cell, struct model_time time,
			   struct shares *shares)
{
	bool own_row = has_row(adding, cell);
	struct report_row *row =
		own_row ? row_of_cell(adding, cell) : row_around(adding, request, cell);

	if (!own_row)
		time.total_time = time.total_cost = time.total_cpu_time = 0;
	model_time_add(&row->time, &time);
	if (!adding->session->has_cpu_time)
		row->blind_time += time.self_time;
	shares->rows += time.self_time;
}

static void add_untreed_times(struct adding *adding)
{
	const struct model_session *session = adding->session;
	struct report_rows *rows = adding->rows;
	struct shares shares = { 0 };

	for (uint32_t i = 0; i < session->request_count; i++) {
		const struct model_request *request = &session->requests[i];
		const struct model_count *counts = model_request_counts(request);

		add_request_time(adding, request, &shares);
		for (uint32_t j = 1; j < request->count_count; j++)
			add_count_time(adding, request,
				       model_find_cell(request->statement, counts[j].cell),
				       *model_count_time(request, &counts[j]), &shares);
	}
	if (session->mode == LOG_MODE_COARSE)
		rows->coarse_time += shares.rows;
	else
		rows->measured_time += shares.rows;
	if (shares.statements > shares.rows)
		rows->outside_time += MIN(shares.outside, shares.statements - shares.rows);
}

bool report_row_wait(const struct report_row *row, uint64_t *wait)
{
	*wait = model_wait(row->time.self_time - row->blind_time, row->time.self_cost,
			   row->time.self_cpu_time);
	return row->time.self_time > row->blind_time;
}

static void add_count(struct adding *adding, const struct model_cell *cell, uint64_t value)
{
	struct report_row *row;

	if (cell->kind == MODEL_CELL_UNSAMPLED) {
		cell = model_find_cell(cell->statement, LOG_CELL_FINISHED);
		row_of_cell(adding, cell)->time.total_time += value;
		adding->rows->unsampled_time += value;
	} else if (has_row(adding, cell)) {
		/* Opens have a row, too, but are not what is counted there. */
		row = row_of_cell(adding, cell);
		row->counted = true;
		row->count += cell->kind == MODEL_CELL_OPEN ? 0 : value;
	}
}

static void add_counts(struct adding *adding)
{
	const struct model_session *session = adding->session;

	for (uint32_t i = 0; i < session->request_count; i++) {
		const struct model_request *request = &session->requests[i];
		const struct model_count *counts = model_request_counts(request);

		for (uint32_t j = 0; j < request->count_count; j++)
			add_count(adding, model_find_cell(request->statement, counts[j].cell),
				  counts[j].value);
	}
}

void report_rows_add(struct report_rows *rows, const struct model_session *session)
{
	struct adding adding = {
		.rows = rows,
		.session = session,
		.names = g_new0(guint, session->statements->len),
		.row_of = g_hash_table_new(NULL, NULL),
		.group_rows = g_ptr_array_new(),
	};

	if (model_is_sampled(session))
		add_times(&adding);
	else
		add_untreed_times(&adding);
	if (model_has_counts(session))
		add_counts(&adding);
	rows->self_time = rows->sampled_time + rows->coarse_time + rows->measured_time;
	rows->has_cpu_time |= session->has_cpu_time;
	g_ptr_array_unref(adding.group_rows);
	g_hash_table_unref(adding.row_of);
	g_free(adding.names);
}
