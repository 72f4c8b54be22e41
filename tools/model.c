/*
 * What can be asked of a model once it is built: see model.h.  Building it is in model_load.c.
 */
#include "model.h"

#include <stdlib.h>

static void free_log(void *data)
{
	struct model_log *log = data;

	g_ptr_array_unref(log->notices);
	g_free(log->path);
	g_free(log);
}

static guint cell_hash(const void *data)
{
	const struct model_cell *cell = data;
	uint64_t key = (uint64_t)cell->statement->number << 32 | cell->number;

	return (guint)((key ^ key >> 29) * 0x9e3779b97f4a7c15u >> 32);
}

static gboolean cell_equal(const void *left, const void *right)
{
	const struct model_cell *a = left, *b = right;

	return a->statement == b->statement && a->number == b->number;
}

struct model_session *model_session_new(struct model_log *log)
{
	struct model_session *session = g_new0(struct model_session, 1);

	session->log = log;
	session->statements = g_ptr_array_new_with_free_func(g_free);
	session->cursors = g_ptr_array_new_with_free_func(g_free);
	session->record_sources = g_ptr_array_new_with_free_func(g_free);
	session->cells = g_hash_table_new_full(cell_hash, cell_equal, g_free, NULL);
	return session;
}

void model_session_free(void *data)
{
	struct model_session *session = data;

	if (!session)
		return;

	g_ptr_array_unref(session->statements);
	g_ptr_array_unref(session->cursors);
	g_ptr_array_unref(session->record_sources);
	g_hash_table_unref(session->cells);
	g_free(session->requests);
	g_free(session->counts);
	g_free(session->times);
	g_free(session->nodes);
	g_free(session);
}

/* ---- Orders, those of the tables' primary keys ---- */

static int compare_statements(const void *left, const void *right)
{
	const struct model_statement *a = *(const struct model_statement *const *)left;
	const struct model_statement *b = *(const struct model_statement *const *)right;

	return MODEL_ORDER(a->id, b->id);
}

static int compare_cursors(const void *left, const void *right)
{
	const struct model_cursor *a = *(const struct model_cursor *const *)left;
	const struct model_cursor *b = *(const struct model_cursor *const *)right;
	int order = MODEL_ORDER(a->statement->id, b->statement->id);

	return order ? order : MODEL_ORDER(a->id, b->id);
}

static int compare_record_sources(const void *left, const void *right)
{
	const struct model_record_source *a = *(const struct model_record_source *const *)left;
	const struct model_record_source *b = *(const struct model_record_source *const *)right;
	int order = MODEL_ORDER(a->statement->id, b->statement->id);

	if (!order)
		order = MODEL_ORDER(a->cursor_id, b->cursor_id);
	return order ? order : MODEL_ORDER(a->id, b->id);
}

void model_session_sort(struct model_session *session)
{
	g_ptr_array_sort(session->statements, compare_statements);
	g_ptr_array_sort(session->cursors, compare_cursors);
	g_ptr_array_sort(session->record_sources, compare_record_sources);
}

static const void *find(const GPtrArray *sorted, const void *key, GCompareFunc compare)
{
	void **found = NULL;

	if (sorted->len)
		found = bsearch(&key, sorted->pdata, sorted->len, sizeof(key), compare);
	return found ? *found : NULL;
}

struct model_cell *model_find_cell(const struct model_statement *statement, uint32_t number)
{
	/* The key is only looked at. */
	const struct model_cell key = { .statement = (struct model_statement *)statement,
					.number = number };

	return g_hash_table_lookup(statement->session->cells, &key);
}

const struct model_statement *model_find_statement(const struct model_session *session, int64_t id)
{
	const struct model_statement key = { .id = id };

	return find(session->statements, &key, compare_statements);
}

const struct model_cursor *model_find_cursor(const struct model_record_source *source)
{
	const struct model_cursor key = { .statement = source->statement, .id = source->cursor_id };

	return find(source->statement->session->cursors, &key, compare_cursors);
}

const struct model_record_source *model_find_root(const struct model_record_source *source)
{
	const struct model_record_source *parent = source;

	/* Parents come first, so a log with circles ends the search, too. */
	while (parent && parent->parent_id && parent->parent_id < parent->id) {
		const struct model_record_source key = { .statement = source->statement,
							 .cursor_id = source->cursor_id,
							 .id = parent->parent_id };

		source = parent;
		parent = find(source->statement->session->record_sources, &key,
			      compare_record_sources);
	}
	return parent ? parent : source;
}

/* ---- Models ---- */

struct model *model_new(void)
{
	struct model *model = g_new0(struct model, 1);

	model->logs = g_ptr_array_new_with_free_func(free_log);
	model->sessions = g_ptr_array_new_with_free_func(model_session_free);
	model->strings = g_string_chunk_new(4096);
	return model;
}

void model_free(struct model *model)
{
	if (!model)
		return;
	g_ptr_array_unref(model->sessions);
	g_ptr_array_unref(model->logs);
	g_string_chunk_free(model->strings);
	g_free(model);
}

bool model_add_log(struct model *model, const char *path, bool with_cancelled,
		   char error[LOG_ERROR_SIZE])
{
	struct log_reader *reader = log_reader_open(path, error);
	bool read;

	if (!reader)
		return false;
	read = model_add_reader(model, reader, path, with_cancelled);
	if (!read)
		g_strlcpy(error, "out of memory: give fewer logs at a time", LOG_ERROR_SIZE);
	log_reader_close(reader);
	return read;
}

const char *model_loss_text(unsigned loss)
{
	static const char *const texts[MODEL_LOSSES] = {
		[MODEL_LOSS_SESSIONS] = "sessions whose start is missing: they were left out",
		[MODEL_LOSS_MODES] =
			"sessions of an unknown mode left out: a newer fbprof may read them",
		[MODEL_LOSS_COUNTS] = "counters of something undefined: they were left out",
		[MODEL_LOSS_NODES] =
			"call tree nodes of something undefined: their times are missing",
		[MODEL_LOSS_CALLERS] =
			"call tree nodes whose caller is missing: its total time lacks theirs",
		[MODEL_LOSS_REQUESTS] =
			"call tree nodes of unknown requests: no request has their times",
		[MODEL_LOSS_TEXTS] = "texts missing or incomplete",
	};

	return loss < LOG_LOSSES ? log_loss_text(loss) : texts[loss];
}

const char *model_session_end_name(enum model_session_end end)
{
	static const char *const names[] = {
		[MODEL_RUNNING] = "running",   [MODEL_KILLED] = "killed",
		[MODEL_FINISHED] = "finished", [MODEL_CANCELLED] = "cancelled",
		[MODEL_DETACHED] = "detached", [MODEL_STOPPED] = "stopped",
		[MODEL_END_LOST] = "unknown",
	};

	return names[end];
}

const char *model_session_mode(const struct model_session *session)
{
	static const char *const names[] = {
		[LOG_MODE_SAMPLED] = "sampled",
		[LOG_MODE_COARSE] = "coarse",
		[LOG_MODE_MEASURED] = "measured",
		[LOG_MODE_PASSIVE] = "passive",
	};

	return names[session->mode];
}

bool model_is_sampled(const struct model_session *session)
{
	return session->mode == LOG_MODE_SAMPLED || session->mode == LOG_MODE_PASSIVE;
}

bool model_has_counts(const struct model_session *session)
{
	return session->mode != LOG_MODE_PASSIVE;
}

/* ---- Times ---- */

void model_time_add(struct model_time *to, const struct model_time *from)
{
	to->self_time += from->self_time;
	to->total_time += from->total_time;
	to->samples += from->samples;
	to->self_cost += from->self_cost;
	to->total_cost += from->total_cost;
	to->self_cpu_time += from->self_cpu_time;
	to->total_cpu_time += from->total_cpu_time;
}

/* ---- Requests ---- */

const struct model_count *model_request_counts(const struct model_request *request)
{
	return &request->statement->session->counts[request->first_count];
}

int model_compare_counts(const void *left, const void *right)
{
	const struct model_count *a = left, *b = right;

	return MODEL_ORDER(a->cell, b->cell);
}

struct model_count *model_request_count(const struct model_request *request, uint32_t cell)
{
	const struct model_count key = { .cell = cell };

	return bsearch(&key, model_request_counts(request), request->count_count, sizeof(key),
		       model_compare_counts);
}

const struct model_time *model_count_time(const struct model_request *request,
					  const struct model_count *count)
{
	return &request->statement->session->times[count->time];
}

uint64_t model_request_total_time(const struct model_request *request)
{
	const struct model_count *counts = model_request_counts(request);
	const struct model_count *unsampled = model_request_count(request, LOG_CELL_UNSAMPLED);

	return model_count_time(request, counts)->total_time + (unsampled ? unsampled->value : 0);
}

uint64_t model_request_wait_time(const struct model_request *request)
{
	const struct model_time *time = model_count_time(request, model_request_counts(request));
	bool sampled = model_is_sampled(request->statement->session);

	return model_wait(time->total_time - (sampled ? 0 : time->self_time), time->total_cost,
			  time->total_cpu_time);
}

/* ---- Sessions ---- */

static int compare_sessions(const void *left, const void *right)
{
	const struct model_session *a = *(struct model_session *const *)left;
	const struct model_session *b = *(struct model_session *const *)right;

	return MODEL_ORDER(a->profile_id, b->profile_id);
}

static bool is_taken(GHashTable *taken, int64_t id)
{
	return g_hash_table_contains(taken, GSIZE_TO_POINTER((gsize)id));
}

static int64_t next_free_id(GHashTable *taken, int64_t id)
{
	do
		id = (int64_t)((uint64_t)id + 1); /* wraps around instead of overflowing */
	while (is_taken(taken, id));
	return id;
}

void model_order_sessions(struct model *model,
			  void (*moved)(const struct model_session *session, int64_t old_id))
{
	GHashTable *taken = g_hash_table_new(NULL, NULL);
	int64_t previous = 0, last_given = INT64_MIN;

	/* A stable sort: of those with the same id, the first log's session keeps it. */
	g_ptr_array_sort(model->sessions, compare_sessions);
	for (guint i = 0; i < model->sessions->len; i++) {
		struct model_session *session = model->sessions->pdata[i];

		g_hash_table_add(taken, GSIZE_TO_POINTER((gsize)session->profile_id));
	}
	for (guint i = 0; i < model->sessions->len; i++) {
		struct model_session *session = model->sessions->pdata[i];
		int64_t id = session->profile_id;

		if (i > 0 && id == previous) {
			last_given = next_free_id(taken, MAX(id, last_given));
			g_hash_table_add(taken, GSIZE_TO_POINTER((gsize)last_given));
			session->profile_id = last_given;
			if (moved)
				moved(session, id);
		}
		previous = id;
	}
	g_ptr_array_sort(model->sessions, compare_sessions);
	g_hash_table_unref(taken);
}

/* ---- The call tree ---- */

void model_walk(const struct model_session *session, void (*enter)(uint32_t node, void *data),
		void (*leave)(uint32_t node, void *data), void *data)
{
	const struct model_node *nodes = session->nodes;

	for (uint32_t root = 0; root < session->node_count; root++) {
		uint32_t node = nodes[root].parent == MODEL_NO_NODE ? root : MODEL_NO_NODE;

		while (node != MODEL_NO_NODE) {
			enter(node, data);
			if (nodes[node].first_child != MODEL_NO_NODE) {
				node = nodes[node].first_child;
				continue;
			}
			while (node != MODEL_NO_NODE) {
				if (leave)
					leave(node, data);
				if (nodes[node].next_sibling != MODEL_NO_NODE) {
					node = nodes[node].next_sibling;
					break;
				}
				node = nodes[node].parent;
			}
		}
	}
}

struct sums {
	const struct model_node *nodes;
	const uint32_t *groups;
	struct model_time *times;
	uint32_t *open; /* by group: how many of its nodes are being walked through */
};

static void sum_enter(uint32_t node, void *data)
{
	const struct sums *sums = data;
	const struct model_node *from = &sums->nodes[node];
	uint32_t group = sums->groups[node];
	struct model_time *to;

	if (group == MODEL_NO_GROUP)
		return;
	to = &sums->times[group];
	to->self_time += from->self_time;
	to->samples += from->samples;
	to->self_cost += from->self_cost;
	to->self_cpu_time += from->self_cpu_time;
	if (sums->open[group]++ == 0) {
		to->total_time += from->total_time;
		to->total_cost += from->total_cost;
		to->total_cpu_time += from->total_cpu_time;
	}
}

static void sum_leave(uint32_t node, void *data)
{
	const struct sums *sums = data;

	if (sums->groups[node] != MODEL_NO_GROUP)
		sums->open[sums->groups[node]]--;
}

void model_sum_times(const struct model_session *session, const uint32_t *groups,
		     uint32_t group_count, struct model_time *times)
{
	struct sums sums = { session->nodes, groups, times, g_new0(uint32_t, group_count) };

	for (uint32_t i = 0; i < group_count; i++)
		times[i] = (struct model_time){ 0 };
	model_walk(session, sum_enter, sum_leave, &sums);
	g_free(sums.open);
}
