/*
 * Builds the part of a model that comes from one log: see model.h.
 *
 * While the reader calls, each session number of the log gets a `struct loading`, which keeps blocks
 * as they are, since they come before the definitions.  Afterwards each becomes a model_session:
 * executions are sorted and those of one request folded, then the call tree is put together, and at
 * last its times are summed for each count.  In modes without a call tree, counts bring their times
 * along.
 *
 * With DETAILED_REQUESTS a log may hold tens of millions of executions, so that each takes no more
 * than a struct model_request and its counts, and those are kept in flat arrays, as are times.
 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

struct text {
	GString *bytes;
	uint64_t to_come; /* bytes after those */
	bool complete;
	const char *string; /* made when first asked for */
};

/* A counter block, whose cells are kept in the session's block_cells. */
struct kept_block {
	struct log_execution execution;
	guint first_cell;
};

struct kept_node {
	uint32_t id;
	struct log_node node;
};

/* A session while its log is read. */
struct loading {
	struct model *model;
	struct model_log *log;
	uint32_t session_number;
	struct model_session *session;
	bool started, ended;
	bool mode_is_unknown;
	GHashTable *texts;	/* id → struct text */
	GHashTable *statements; /* index in the log → struct model_statement */
	GArray *blocks;		/* struct kept_block */
	GArray *block_cells;	/* struct log_cell */
	GArray *nodes;		/* struct kept_node */
	GArray *executions;	/* struct model_request, whose counts are in `counts` */
	GArray *counts;		/* struct model_count */
	GArray *times;		/* struct model_time, of counts; the first one is zero */
	/*
	 * Low 32 bits of the serials that blocks and nodes speak of → 0, then RECORDED if there is a
	 * LOG_REC_REQUEST, then the request's index + 1.
	 */
	GHashTable *serials;
};

#define RECORDED GUINT_TO_POINTER(UINT32_MAX)

/* A log while it is read. */
struct load {
	struct model *model;
	struct model_log *log;
	GHashTable *sessions; /* number → struct loading */
};

/* ---- Small things ---- */

/* Bytes that are not UTF-8 become U+FFFD: a connection's character set may be NONE. */
static const char *keep_string(struct model *model, const char *bytes, size_t size)
{
	const char *kept;
	char *valid;

	if (g_utf8_validate(bytes, (gssize)size, NULL))
		return g_string_chunk_insert_len(model->strings, bytes, (gssize)size);
	valid = g_utf8_make_valid(bytes, (gssize)size);
	kept = g_string_chunk_insert(model->strings, valid);
	g_free(valid);
	return kept;
}

static const char *keep(struct loading *loading, struct log_string string)
{
	return keep_string(loading->model, string.bytes, string.size);
}

/* As the stock tables have it: what is empty is NULL. */
static const char *keep_nullable(struct loading *loading, struct log_string string)
{
	return string.size ? keep(loading, string) : NULL;
}

static void free_text(void *data)
{
	struct text *text = data;

	g_string_free(text->bytes, TRUE);
	g_free(text);
}

/* ---- Sessions being loaded ---- */

static struct loading *loading_new(struct load *load, uint32_t session_number)
{
	struct loading *loading = g_new0(struct loading, 1);

	loading->model = load->model;
	loading->log = load->log;
	loading->session_number = session_number;
	loading->session = model_session_new(load->log);
	loading->texts = g_hash_table_new_full(NULL, NULL, NULL, free_text);
	loading->statements = g_hash_table_new(NULL, NULL);
	loading->blocks = g_array_new(FALSE, FALSE, sizeof(struct kept_block));
	loading->block_cells = g_array_sized_new(FALSE, FALSE, sizeof(struct log_cell), 64);
	loading->nodes = g_array_new(FALSE, FALSE, sizeof(struct kept_node));
	loading->executions = g_array_new(FALSE, FALSE, sizeof(struct model_request));
	loading->counts = g_array_sized_new(FALSE, FALSE, sizeof(struct model_count), 64);
	loading->times = g_array_new(FALSE, TRUE, sizeof(struct model_time));
	g_array_set_size(loading->times, 1);
	loading->serials = g_hash_table_new(NULL, NULL);
	return loading;
}

static void loading_free(void *data)
{
	struct loading *loading = data;

	model_session_free(loading->session);
	g_hash_table_unref(loading->texts);
	g_hash_table_unref(loading->statements);
	g_hash_table_unref(loading->serials);
	g_array_unref(loading->blocks);
	g_array_unref(loading->block_cells);
	g_array_unref(loading->nodes);
	g_clear_pointer(&loading->executions, g_array_unref);
	g_clear_pointer(&loading->counts, g_array_unref);
	g_clear_pointer(&loading->times, g_array_unref);
	g_free(loading);
}

static struct loading *loading_of(void *data, uint32_t session_number)
{
	struct load *load = data;
	struct loading *loading =
		g_hash_table_lookup(load->sessions, GUINT_TO_POINTER(session_number));

	if (!loading) {
		loading = loading_new(load, session_number);
		g_hash_table_insert(load->sessions, GUINT_TO_POINTER(session_number), loading);
	}
	return loading;
}

/* ---- Definitions ---- */

static struct model_statement *find_statement(struct loading *loading, uint32_t index)
{
	return g_hash_table_lookup(loading->statements, GUINT_TO_POINTER(index));
}

/* NULL if the statement has that cell already. */
static struct model_cell *add_cell(struct model_statement *statement, uint32_t number,
				   enum model_cell_kind kind)
{
	struct model_cell *cell;

	if (model_find_cell(statement, number))
		return NULL;
	cell = g_new0(struct model_cell, 1);
	cell->statement = statement;
	cell->number = number;
	cell->kind = kind;
	g_hash_table_add(statement->session->cells, cell);
	return cell;
}

static bool mode_is_known(uint64_t mode)
{
	return mode >= LOG_MODE_SAMPLED && mode <= LOG_MODE_PASSIVE;
}

/* Not while the start is missing: such a session is left out as a whole. */
static bool has_groups(const struct model_session *session)
{
	return session->mode == LOG_MODE_COARSE || session->mode == LOG_MODE_MEASURED;
}

/* How many cells a line has, and each of the two halves of a record source. */
static uint32_t group_cells(const struct model_session *session)
{
	return has_groups(session) ? LOG_GROUP_CELLS : 1;
}

static void on_session_start(void *data, uint32_t number, const struct log_session_start *start)
{
	struct loading *loading = loading_of(data, number);
	struct model_session *session = loading->session;

	/* The mode tells what definitions mean: a start behind them is none. */
	if (loading->started || session->statements->len) {
		loading->log->lost[LOG_LOSS_RECORDS]++;
		return;
	}
	loading->started = true;
	loading->mode_is_unknown = !mode_is_known(start->mode);
	session->mode = loading->mode_is_unknown ? LOG_MODE_SAMPLED : (enum log_mode)start->mode;
	session->profile_id = start->profile_id;
	session->attachment_id = start->attachment_id;
	session->start_time = start->start_time;
	session->detailed = start->flags & LOG_SESSION_DETAILED;
	session->preloaded = start->flags & LOG_SESSION_PRELOAD;
	session->sampling_interval = start->sampling_interval;
	session->user = keep(loading, start->user);
	session->database = keep(loading, start->database);
	session->engine = keep(loading, start->engine);
	session->options = keep(loading, start->options);
	session->description = keep_nullable(loading, start->description);
}

static void on_session_end(void *data, uint32_t number, uint64_t reason, int64_t time)
{
	static const enum model_session_end ends[] = {
		[LOG_END_FINISHED] = MODEL_FINISHED,
		[LOG_END_CANCELLED] = MODEL_CANCELLED,
		[LOG_END_DISPOSED] = MODEL_DETACHED,
	};
	struct loading *loading = loading_of(data, number);

	if (loading->ended || reason < LOG_END_FINISHED || reason > LOG_END_DISPOSED) {
		loading->log->lost[LOG_LOSS_RECORDS]++;
		return;
	}
	loading->ended = true;
	loading->session->end = ends[reason];
	loading->session->end_time = time;
}

static void on_text(void *data, uint32_t number, uint32_t id, uint64_t to_come,
		    struct log_string part)
{
	struct loading *loading = loading_of(data, number);
	struct text *text = g_hash_table_lookup(loading->texts, GUINT_TO_POINTER(id));

	if (!text) {
		text = g_new0(struct text, 1);
		text->bytes = g_string_new(NULL);
		g_hash_table_insert(loading->texts, GUINT_TO_POINTER(id), text);
	}
	if (text->complete || (text->bytes->len && text->to_come != to_come + part.size)) {
		loading->log->lost[LOG_LOSS_RECORDS]++;
		return;
	}
	g_string_append_len(text->bytes, part.bytes, (gssize)part.size);
	text->to_come = to_come;
	text->complete = to_come == 0;
}

/* NULL for id 0 and for what is lost.  Of an incomplete text, what is there. */
static const char *find_text(struct loading *loading, uint32_t id)
{
	struct text *text = g_hash_table_lookup(loading->texts, GUINT_TO_POINTER(id));

	if (id == 0)
		return NULL;
	if (!text || !text->complete)
		loading->log->lost[MODEL_LOSS_TEXTS]++;
	if (!text)
		return NULL;
	if (!text->string) {
		text->string = keep_string(loading->model, text->bytes->str, text->bytes->len);
		text->complete = true; /* a fragment that comes now is out of place */
	}
	return text->string;
}

static void on_statement(void *data, uint32_t number, const struct log_statement *from)
{
	struct loading *loading = loading_of(data, number);
	struct model_statement *statement;

	if (find_statement(loading, from->index)) {
		loading->log->lost[LOG_LOSS_RECORDS]++;
		return;
	}
	statement = g_new0(struct model_statement, 1);
	statement->session = loading->session;
	statement->number = loading->session->statements->len;
	statement->id = from->id;
	statement->parent_id = from->parent_id;
	statement->type = keep(loading, from->type);
	statement->schema = keep_nullable(loading, from->schema);
	statement->package = keep_nullable(loading, from->package);
	statement->routine = keep_nullable(loading, from->routine);
	statement->sql_text = find_text(loading, from->text);
	if (statement->sql_text && !*statement->sql_text)
		statement->sql_text = NULL;
	g_ptr_array_add(loading->session->statements, statement);
	g_hash_table_insert(loading->statements, GUINT_TO_POINTER(from->index), statement);
	add_cell(statement, LOG_CELL_FINISHED, MODEL_CELL_REQUEST);
	add_cell(statement, LOG_CELL_UNSAMPLED, MODEL_CELL_UNSAMPLED);
}

static void on_cursor(void *data, uint32_t number, const struct log_cursor *from)
{
	struct loading *loading = loading_of(data, number);
	struct model_statement *statement = find_statement(loading, from->statement);
	struct model_cursor *cursor;

	if (!statement) {
		loading->log->lost[LOG_LOSS_RECORDS]++;
		return;
	}
	cursor = g_new0(struct model_cursor, 1);
	cursor->statement = statement;
	cursor->id = from->id;
	cursor->name = keep_nullable(loading, from->name);
	cursor->line = from->line;
	cursor->column = from->column;
	g_ptr_array_add(loading->session->cursors, cursor);
}

static void on_record_source(void *data, uint32_t number, const struct log_record_source *from)
{
	struct loading *loading = loading_of(data, number);
	struct model_statement *statement = find_statement(loading, from->statement);
	uint32_t group = group_cells(loading->session);
	struct model_record_source *source;
	const char *access_path;

	if (!statement || from->cell % group || from->cell + group > LOG_NODE_CELL_MASK ||
	    model_find_cell(statement, from->cell) ||
	    model_find_cell(statement, from->cell + group)) {
		loading->log->lost[LOG_LOSS_RECORDS]++;
		return;
	}
	access_path = find_text(loading, from->access_path);
	source = g_new0(struct model_record_source, 1);
	source->statement = statement;
	source->cursor_id = from->cursor_id;
	source->id = from->id;
	source->parent_id = from->parent_id;
	source->level = from->level;
	source->access_path = access_path ? access_path : "";
	g_ptr_array_add(loading->session->record_sources, source);
	add_cell(statement, from->cell, MODEL_CELL_OPEN)->record_source = source;
	add_cell(statement, from->cell + group, MODEL_CELL_FETCH)->record_source = source;
}

static void on_line(void *data, uint32_t number, const struct log_line *from)
{
	struct loading *loading = loading_of(data, number);
	struct model_statement *statement = find_statement(loading, from->statement);
	struct model_cell *cell = NULL;

	if (statement && from->cell % group_cells(loading->session) == 0)
		cell = add_cell(statement, from->cell, MODEL_CELL_LINE);
	if (!cell) {
		loading->log->lost[LOG_LOSS_RECORDS]++;
		return;
	}
	cell->line = from->line;
	cell->column = from->column;
}

static void on_notice(void *data, uint32_t number, struct log_string notice)
{
	struct load *load = data;

	(void)number;
	g_ptr_array_add(load->log->notices,
			(char *)keep_string(load->model, notice.bytes, notice.size));
}

/* ---- Requests and their counts ---- */

static void want_serial(struct loading *loading, uint32_t serial)
{
	if (serial)
		g_hash_table_insert(loading->serials, GUINT_TO_POINTER(serial), NULL);
}

/* In sampled mode each cell is a counter. */
static void add_cells(struct loading *loading, const struct log_cell *cells, size_t cell_count)
{
	for (size_t i = 0; i < cell_count; i++) {
		const struct model_count count = { .cell = cells[i].cell, .value = cells[i].value };

		g_array_append_val(loading->counts, count);
	}
}

/* Where a cell of a group goes to, but for its first one; NULL: there is no such cell. */
static uint64_t *field_of_cell(enum log_mode mode, struct model_time *time, uint32_t cell)
{
	bool coarse = mode == LOG_MODE_COARSE;

	if (cell < LOG_CELL_FIRST_FREE)
		return cell == LOG_CELL_ELAPSED ? &time->total_time : NULL;
	switch (cell % LOG_GROUP_CELLS) {
	case LOG_GROUP_TOTAL:
		return &time->total_time;
	case LOG_GROUP_SELF:
		return &time->self_time;
	case LOG_GROUP_TOTAL_CPU:
		return coarse ? &time->total_cpu_time : NULL;
	case LOG_GROUP_SELF_CPU:
		return coarse ? &time->self_cpu_time : NULL;
	case LOG_GROUP_TOTAL_COST: /* LOG_GROUP_MIN */
		return coarse ? &time->total_cost : &time->min_time;
	case LOG_GROUP_SELF_COST: /* LOG_GROUP_MAX */
		return coarse ? &time->self_cost : &time->max_time;
	}
	return NULL;
}

/* In the others the first cell of a group is its counter, and the others are its time. */
static void add_groups(struct loading *loading, const struct log_cell *cells, size_t cell_count)
{
	size_t i = 0;

	while (i < cell_count) {
		struct model_count count = { .cell = cells[i].cell & ~(LOG_GROUP_CELLS - 1u) };
		struct model_time time = { 0 };
		bool has_time = false;

		for (; i < cell_count && cells[i].cell - count.cell < LOG_GROUP_CELLS; i++) {
			uint64_t *field =
				field_of_cell(loading->session->mode, &time, cells[i].cell);

			if (cells[i].cell == count.cell) {
				count.value = cells[i].value;
			} else if (field) {
				*field = cells[i].value;
				has_time = true;
			} else {
				loading->log->lost[MODEL_LOSS_COUNTS]++;
			}
		}
		if (has_time) {
			count.time = loading->times->len;
			g_array_append_val(loading->times, time);
		}
		g_array_append_val(loading->counts, count);
	}
}

static void add_execution(struct loading *loading, const struct log_execution *from,
			  const struct log_cell *cells)
{
	struct model_request execution = {
		.statement = find_statement(loading, from->statement),
		.id = from->request_id,
		.caller_statement_id = from->caller_statement_id,
		.caller_id = from->caller_request_id,
		.start_time = from->start_time,
		.first_count = loading->counts->len,
		.serial = (uint32_t)from->serial,
	};

	if (!execution.statement) {
		loading->log->lost[MODEL_LOSS_COUNTS] += MAX(from->cell_count, 1);
		return;
	}
	if (from->flags & LOG_REQUEST_FINISHED)
		execution.finish_time = (int64_t)((uint64_t)from->start_time + from->duration);
	if (has_groups(loading->session))
		add_groups(loading, cells, from->cell_count);
	else
		add_cells(loading, cells, from->cell_count);
	execution.count_count = (uint32_t)(loading->counts->len - execution.first_count);
	g_array_append_val(loading->executions, execution);
}

static void on_request(void *data, uint32_t number, const struct log_execution *execution)
{
	struct loading *loading = loading_of(data, number);
	void *serial = GUINT_TO_POINTER((guint)execution->serial);

	if (!(execution->flags & LOG_REQUEST_IN_BLOCKS) &&
	    g_hash_table_contains(loading->serials, serial))
		g_hash_table_insert(loading->serials, serial, RECORDED);
	add_execution(loading, execution, execution->cells);
}

static void on_counters(void *data, uint32_t number, const struct log_execution *execution)
{
	struct loading *loading = loading_of(data, number);
	const struct kept_block block = { *execution, loading->block_cells->len };

	want_serial(loading, (uint32_t)execution->serial);
	g_array_append_val(loading->blocks, block);
	g_array_append_vals(loading->block_cells, execution->cells, (guint)execution->cell_count);
}

/* Adds the counter blocks of what was not finished, or is not told apart. */
static void add_blocks(struct loading *loading)
{
	for (guint i = 0; i < loading->blocks->len; i++) {
		const struct kept_block *block =
			&g_array_index(loading->blocks, struct kept_block, i);
		void *serial = GUINT_TO_POINTER((guint)block->execution.serial);

		/* A LOG_REC_REQUEST replaces them, as a rule. */
		if (g_hash_table_lookup(loading->serials, serial) != RECORDED)
			add_execution(loading, &block->execution,
				      &g_array_index(loading->block_cells, struct log_cell,
						     block->first_cell));
	}
}

/* Where nothing is counted, what has been seen stands for a request of its statement with that in it. */
static void add_seen(struct loading *loading)
{
	GHashTableIter iter;
	void *key;

	g_hash_table_iter_init(&iter, loading->session->cells);
	while (g_hash_table_iter_next(&iter, &key, NULL)) {
		const struct model_cell *cell = key;
		const struct model_count count = { .cell = cell->number };
		const struct model_request execution = {
			.statement = cell->statement,
			.first_count = loading->counts->len,
			.count_count = 1,
		};

		if (cell->kind == MODEL_CELL_UNSAMPLED)
			continue;
		g_array_append_val(loading->counts, count);
		g_array_append_val(loading->executions, execution);
	}
}

static int compare_requests(const void *left, const void *right)
{
	const struct model_request *a = left, *b = right;
	int order = MODEL_ORDER(a->statement->id, b->statement->id);

	if (!order)
		order = MODEL_ORDER(a->id, b->id);
	return order ? order : MODEL_ORDER(a->statement->number, b->statement->number);
}

/* Adds up two counts of the same thing.  Of what was not counted, minimum and maximum mean nothing. */
static void add_count(struct loading *loading, struct model_count *to,
		      const struct model_count *from)
{
	struct model_time *times = &g_array_index(loading->times, struct model_time, 0);
	struct model_time sum = times[to->time];
	const struct model_time *other = &times[from->time];
	uint32_t index = to->time ? to->time : from->time;

	if (index) {
		model_time_add(&sum, other);
		if (!to->value || (from->value && other->min_time < sum.min_time))
			sum.min_time = other->min_time;
		if (!to->value || (from->value && other->max_time > sum.max_time))
			sum.max_time = other->max_time;
		times[index] = sum;
		to->time = index;
	}
	to->value += from->value;
}

/* Puts an execution's counts at the end of its request's; all requests have one of cell 0. */
static void append_counts(struct loading *loading, struct model_request *to,
			  const struct model_request *from)
{
	const struct model_count *counts =
		&g_array_index(loading->counts, struct model_count, from->first_count);
	struct model_count *own = &loading->session->counts[to->first_count];

	for (uint32_t i = 0; i < from->count_count; i++) {
		if (counts[i].cell == LOG_CELL_FINISHED)
			add_count(loading, own, &counts[i]);
		else if (model_find_cell(to->statement, counts[i].cell))
			own[to->count_count++] = counts[i];
		else
			loading->log->lost[MODEL_LOSS_COUNTS]++;
	}
}

/* Sorts a request's counts by cell and adds up those of the same one. */
static void fold_counts(struct loading *loading, struct model_request *request)
{
	struct model_session *session = loading->session;
	struct model_count *counts = &session->counts[request->first_count];
	uint32_t sorted = 1, count = 1;

	while (sorted < request->count_count && counts[sorted - 1].cell < counts[sorted].cell)
		sorted++;
	if (sorted < request->count_count) {
		qsort(counts, request->count_count, sizeof(*counts), model_compare_counts);
		for (uint32_t i = 1; i < request->count_count; i++) {
			if (counts[i].cell == counts[count - 1].cell)
				add_count(loading, &counts[count - 1], &counts[i]);
			else
				counts[count++] = counts[i];
		}
		request->count_count = count;
	}
	session->count_count = request->first_count + request->count_count;
}

static void fold_execution(struct model_request *to, const struct model_request *from)
{
	if (from->start_time && (!to->start_time || from->start_time < to->start_time))
		to->start_time = from->start_time;
	to->finish_time = MAX(to->finish_time, from->finish_time);
}

/* Makes the session's requests of the executions: those with the same request_id are one row. */
static void fold_executions(struct loading *loading)
{
	struct model_session *session = loading->session;
	GArray *executions = loading->executions;
	struct model_request *to = NULL;

	g_array_sort(executions, compare_requests);
	session->counts = g_new(struct model_count, (gsize)loading->counts->len + executions->len);
	for (guint i = 0; i < executions->len; i++) {
		const struct model_request from =
			g_array_index(executions, struct model_request, i);
		void *serial = GUINT_TO_POINTER(from.serial);

		if (to && compare_requests(to, &from) == 0) {
			fold_execution(to, &from);
		} else {
			if (to)
				fold_counts(loading, to);
			/* In place: there are never more requests than executions. */
			to = &g_array_index(executions, struct model_request,
					    session->request_count++);
			*to = from;
			to->first_count = session->count_count;
			to->count_count = 1;
			session->counts[to->first_count] = (struct model_count){ 0 };
		}
		append_counts(loading, to, &from);
		if (g_hash_table_contains(loading->serials, serial))
			g_hash_table_insert(loading->serials, serial,
					    GUINT_TO_POINTER(session->request_count));
	}
	if (to)
		fold_counts(loading, to);
	session->requests = (struct model_request *)(void *)g_array_free(executions, FALSE);
	loading->executions = NULL;
	g_clear_pointer(&loading->counts, g_array_unref); /* it may be large */
}

/* ---- The call tree ---- */

static void on_totals(void *data, uint32_t number, const struct log_session_totals *totals)
{
	loading_of(data, number)->session->totals = *totals;
}

static void on_node(void *data, uint32_t number, uint32_t id, const struct log_node *node)
{
	struct loading *loading = loading_of(data, number);
	const struct kept_node kept = { id, *node };

	want_serial(loading, node->serial);
	g_array_append_val(loading->nodes, kept);
}

static int compare_nodes(const void *left, const void *right)
{
	const struct kept_node *a = left, *b = right;

	return MODEL_ORDER(a->id, b->id);
}

/* What a node's statement and position speak of; NULL: nothing that is defined. */
static struct model_cell *cell_of_node(struct loading *loading, const struct log_node *node)
{
	struct model_statement *statement = find_statement(loading, node->statement);
	struct model_cell *cell =
		statement ? model_find_cell(statement, node->position & LOG_NODE_CELL_MASK) : NULL;

	if (!cell)
		return NULL;
	switch (node->position >> LOG_NODE_CELL_BITS) {
	case LOG_NODE_REQUEST:
		return cell->kind == MODEL_CELL_REQUEST ? cell : NULL;
	case LOG_NODE_LINE:
		return cell->kind == MODEL_CELL_LINE ? cell : NULL;
	case LOG_NODE_RECORD_SOURCE:
		return cell->record_source ? cell : NULL;
	}
	return NULL;
}

/* The place of a node id among the first `count` of the sorted nodes, or MODEL_NO_NODE. */
static uint32_t find_node(const GArray *nodes, uint32_t count, uint32_t id)
{
	uint32_t low = 0, high = count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		uint32_t there = g_array_index(nodes, struct kept_node, middle).id;

		if (there == id)
			return middle;
		if (there < id)
			low = middle + 1;
		else
			high = middle;
	}
	return MODEL_NO_NODE;
}

/*
 * Copies nodes with known cells to the session, and their serials to `serials`.  Children of one that
 * is left out go to its parent, which called them too.
 */
static void define_nodes(struct loading *loading, uint32_t *serials)
{
	const GArray *kept = loading->nodes;
	struct model_session *session = loading->session;
	/* Of each kept node, or of its nearest ancestor. */
	uint32_t *place = g_new(uint32_t, kept->len);

	for (guint i = 0; i < kept->len; i++) {
		const struct kept_node *from = &g_array_index(kept, struct kept_node, i);
		const struct model_cell *cell = cell_of_node(loading, &from->node);
		uint32_t parent = find_node(kept, i, from->node.parent);

		if (from->node.parent && parent == MODEL_NO_NODE)
			loading->log->lost[MODEL_LOSS_CALLERS]++;
		place[i] = parent == MODEL_NO_NODE ? MODEL_NO_NODE : place[parent];
		if (!cell || (i && from->id == g_array_index(kept, struct kept_node, i - 1).id)) {
			loading->log->lost[MODEL_LOSS_NODES]++;
			continue;
		}
		session->nodes[session->node_count] = (struct model_node){
			.id = from->id,
			.parent = place[i],
			.first_child = MODEL_NO_NODE,
			.next_sibling = MODEL_NO_NODE,
			.cell = cell,
			.self_time = from->node.self_time,
			.total_time = from->node.self_time,
			.samples = from->node.samples,
			.self_cost = from->node.cost,
			.total_cost = from->node.cost,
			.self_cpu_time = from->node.cpu_time,
			.total_cpu_time = from->node.cpu_time,
		};
		serials[session->node_count] = from->node.serial;
		place[i] = session->node_count++;
	}
	g_free(place);
}

static void link_nodes(struct model_session *session)
{
	struct model_node *nodes = session->nodes;

	for (uint32_t i = session->node_count; i > 0; i--) {
		struct model_node *node = &nodes[i - 1];

		session->sampled_time += node->self_time;
		session->has_cpu_time |= node->self_cpu_time != 0;
		if (node->parent == MODEL_NO_NODE)
			continue;
		nodes[node->parent].total_time += node->total_time;
		nodes[node->parent].total_cost += node->total_cost;
		nodes[node->parent].total_cpu_time += node->total_cpu_time;
		node->next_sibling = nodes[node->parent].first_child;
		nodes[node->parent].first_child = i - 1;
	}
}

/* For finding out to which request a line or record source belongs: to the one that it is in. */
struct request_walk {
	struct loading *loading;
	const uint32_t *serials;
	struct model_request **open;  /* by statement: its innermost request */
	struct model_request **outer; /* by node of a request: the one that was open before */
};

/* The row of all executions of a statement, if they are not told apart. */
static struct model_request *find_common_request(const struct model_session *session,
						 struct model_statement *statement)
{
	const struct model_request key = { .statement = statement };

	if (!session->request_count)
		return NULL;
	return bsearch(&key, session->requests, session->request_count, sizeof(key),
		       compare_requests);
}

static struct model_request *request_of_serial(struct loading *loading,
					       struct model_statement *statement, uint32_t serial)
{
	struct model_session *session = loading->session;
	void *index = g_hash_table_lookup(loading->serials, GUINT_TO_POINTER(serial));
	struct model_request *request;

	if (!serial)
		return find_common_request(session, statement);
	if (!index || index == RECORDED) /* that record was of an undefined statement */
		return NULL;
	request = &session->requests[GPOINTER_TO_UINT(index) - 1];
	return request->statement == statement ? request : NULL;
}

static void request_enter(uint32_t i, void *data)
{
	const struct request_walk *walk = data;
	struct model_node *node = &walk->loading->session->nodes[i];
	struct model_request **open = &walk->open[node->cell->statement->number];

	if (node->cell->kind == MODEL_CELL_REQUEST || walk->serials[i] || !*open)
		node->request =
			request_of_serial(walk->loading, node->cell->statement, walk->serials[i]);
	else
		node->request = *open;
	if (node->cell->kind == MODEL_CELL_REQUEST) {
		walk->outer[i] = *open;
		*open = node->request;
	}
	if (!node->request && node->samples)
		walk->loading->log->lost[MODEL_LOSS_REQUESTS]++;
}

static void request_leave(uint32_t i, void *data)
{
	const struct request_walk *walk = data;
	const struct model_cell *cell = walk->loading->session->nodes[i].cell;

	if (cell->kind == MODEL_CELL_REQUEST)
		walk->open[cell->statement->number] = walk->outer[i];
}

static void build_tree(struct loading *loading)
{
	struct model_session *session = loading->session;
	uint32_t *serials = g_new(uint32_t, loading->nodes->len);
	struct request_walk walk = {
		.loading = loading,
		.serials = serials,
		.open = g_new0(struct model_request *, session->statements->len),
		.outer = g_new(struct model_request *, loading->nodes->len),
	};

	g_array_sort(loading->nodes, compare_nodes);
	session->nodes = g_new(struct model_node, loading->nodes->len);
	define_nodes(loading, serials);
	link_nodes(session);
	model_walk(session, request_enter, request_leave, &walk);
	g_free(walk.open);
	g_free(walk.outer);
	g_free(serials);
}

/* The group of a node's time is the index of its count's time, which gets one if it is the first. */
static uint32_t group_of_node(struct model_session *session, const struct model_node *node)
{
	struct model_count *count =
		node->request ? model_request_count(node->request, node->cell->number) : NULL;

	if (!count)
		return MODEL_NO_GROUP;
	if (!count->time)
		count->time = session->time_count++;
	return count->time;
}

static void time_counts(struct model_session *session)
{
	uint32_t *groups = g_new(uint32_t, session->node_count);

	session->time_count = 1;
	for (uint32_t i = 0; i < session->node_count; i++)
		groups[i] = group_of_node(session, &session->nodes[i]);
	session->times = g_new(struct model_time, session->time_count);
	model_sum_times(session, groups, session->time_count, session->times);
	g_free(groups);
}

/* ---- Times without a call tree ---- */

/*
 * What of a request's time is in its lines or, if it has none, in its root record source.  Roots of
 * sub-queries may be inside another one: the largest stands for all of them.
 */
struct request_parts {
	bool has_lines;
	struct model_time lines, root;
	struct model_time
		source; /* the root that is being added up: open and fetch are neighbours */
	const struct model_record_source *of;
};

static void add_part(struct request_parts *parts, const struct model_cell *cell,
		     const struct model_time *time)
{
	if (cell->kind == MODEL_CELL_LINE) {
		parts->has_lines = true;
		model_time_add(&parts->lines, time);
	} else if (cell->record_source && !cell->record_source->parent_id) {
		if (cell->record_source != parts->of)
			parts->source = (struct model_time){ 0 };
		parts->of = cell->record_source;
		model_time_add(&parts->source, time);
		if (parts->source.total_time >= parts->root.total_time)
			parts->root = parts->source;
	}
}

/* What is known of the request by itself is its elapsed time only, and that of finished executions. */
static void time_request(struct loading *loading, const struct model_request *request)
{
	struct model_session *session = loading->session;
	struct model_count *counts = &session->counts[request->first_count];
	struct request_parts parts = { 0 };
	const struct model_time *inside;
	struct model_time time;

	for (uint32_t i = 1; i < request->count_count; i++)
		add_part(&parts, model_find_cell(request->statement, counts[i].cell),
			 &g_array_index(loading->times, struct model_time, counts[i].time));
	inside = parts.has_lines ? &parts.lines : &parts.root;
	time = g_array_index(loading->times, struct model_time, counts->time);
	time.total_time = MAX(time.total_time, inside->total_time);
	time.self_time = time.total_time - inside->total_time;
	time.total_cost = inside->total_cost;
	time.total_cpu_time = inside->total_cpu_time;
	if (counts->time) {
		g_array_index(loading->times, struct model_time, counts->time) = time;
	} else if (time.total_time || time.total_cost || time.total_cpu_time) {
		counts->time = loading->times->len;
		g_array_append_val(loading->times, time);
	}
}

static void time_requests(struct loading *loading)
{
	struct model_session *session = loading->session;

	loading->log->lost[MODEL_LOSS_NODES] += loading->nodes->len;
	for (uint32_t i = 0; i < session->request_count; i++)
		time_request(loading, &session->requests[i]);
	session->time_count = loading->times->len;
	session->times = (struct model_time *)(void *)g_array_free(loading->times, FALSE);
	loading->times = NULL;
	for (uint32_t i = 0; i < session->time_count && !session->has_cpu_time; i++)
		session->has_cpu_time = session->times[i].total_cpu_time != 0 ||
					session->times[i].self_cpu_time != 0;
}

/* ---- The end ---- */

static enum model_session_end end_without_record(const struct model_log *log)
{
	switch (log->state) {
	case LOG_RECORDING:
		return log->liveness == LOG_NOT_RECORDED ? MODEL_KILLED : MODEL_RUNNING;
	case LOG_DISK_FULL:
	case LOG_QUOTA_REACHED:
		return MODEL_STOPPED;
	case LOG_CLOSED:
		break;
	}
	return MODEL_END_LOST;
}

/* Hands the session over to the model, or drops it. */
static void finish_session(struct loading *loading, bool with_cancelled)
{
	struct model_session *session = loading->session;

	if (!loading->started || loading->mode_is_unknown) {
		loading->log->lost[loading->started ? MODEL_LOSS_MODES : MODEL_LOSS_SESSIONS]++;
		return;
	}
	if (!loading->ended)
		session->end = end_without_record(loading->log);
	if (session->end == MODEL_CANCELLED && !with_cancelled) {
		loading->model->cancelled_count++;
		return;
	}
	if (model_has_counts(session))
		add_blocks(loading);
	else
		add_seen(loading);
	fold_executions(loading);
	if (has_groups(session)) {
		time_requests(loading);
	} else {
		build_tree(loading);
		time_counts(session);
	}
	model_session_sort(session);
	g_ptr_array_add(loading->model->sessions, session);
	loading->session = NULL;
}

static int compare_loadings(const void *left, const void *right)
{
	const struct loading *a = left, *b = right;

	return MODEL_ORDER(a->session_number, b->session_number);
}

static void finish_sessions(struct load *load, bool with_cancelled)
{
	GList *loadings = g_hash_table_get_values(load->sessions);

	loadings = g_list_sort(loadings, compare_loadings);
	for (GList *at = loadings; at; at = at->next) {
		struct loading *loading = at->data;

		finish_session(loading, with_cancelled);
		g_hash_table_remove(load->sessions, GUINT_TO_POINTER(loading->session_number));
	}
	g_list_free(loadings);
}

static const char *keep_header_text(struct model *model, const struct log_reader *reader,
				    const char *key)
{
	const char *text = log_reader_text(reader, key);

	return text ? keep_string(model, text, strlen(text)) : NULL;
}

static struct model_log *log_new(struct model *model, const struct log_reader *reader,
				 const char *path)
{
	struct model_log *log = g_new0(struct model_log, 1);
	const char *slash;

	log->path = g_filename_display_name(path);
	slash = strrchr(log->path, '/');
	log->name = slash ? slash + 1 : log->path;
	log->program = keep_header_text(model, reader, "program");
	log->host = keep_header_text(model, reader, "host");
	log->fbprof = keep_header_text(model, reader, "fbprof");
	log->clock = keep_header_text(model, reader, "clock");
	log->pid = log_reader_header(reader)->pid;
	log->start_time = log_reader_header(reader)->start_realtime;
	log->notices = g_ptr_array_new();
	return log;
}

bool model_add_reader(struct model *model, struct log_reader *reader, const char *path,
		      bool with_cancelled)
{
	static const struct log_visitor visitor = {
		.counters = on_counters,
		.node = on_node,
		.totals = on_totals,
		.session_start = on_session_start,
		.session_end = on_session_end,
		.text = on_text,
		.statement = on_statement,
		.cursor = on_cursor,
		.record_source = on_record_source,
		.line = on_line,
		.request = on_request,
		.notice = on_notice,
	};
	struct load load = { .model = model, .log = log_new(model, reader, path) };
	bool read;

	g_ptr_array_add(model->logs, load.log);
	load.sessions = g_hash_table_new_full(NULL, NULL, NULL, loading_free);
	/* Asked before reading: a session that ends meanwhile is then known to have ended. */
	load.log->liveness = log_reader_liveness(reader);
	read = log_reader_read(reader, &visitor, &load);
	if (read) {
		load.log->state = log_reader_header(reader)->state;
		load.log->usage = *log_reader_usage(reader);
		for (unsigned i = 0; i < LOG_LOSSES; i++)
			load.log->lost[i] += log_reader_lost(reader)[i];
		finish_sessions(&load, with_cancelled);
	}
	g_hash_table_unref(load.sessions);
	return read;
}
