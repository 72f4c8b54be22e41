/*
 * See log_image.h.
 */
#include "log_image.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *add_item(void *array, size_t *count, size_t *room, size_t item_size)
{
	if (*count == *room) {
		*room = *room ? *room * 2 : 16;
		array = realloc(array, *room * item_size);
		ck_assert_ptr_nonnull(array);
	}
	memset((char *)array + *count * item_size, 0, item_size);
	++*count;
	return array;
}

/* A new item, all zeros, at the end of the array `name` of `owner`. */
#define ADD(owner, name)                                                                        \
	((owner)->name = add_item((owner)->name, &(owner)->name##_count, &(owner)->name##_room, \
				  sizeof(*(owner)->name)),                                      \
	 &(owner)->name[(owner)->name##_count - 1])

static char *text_of(struct log_string string)
{
	return string.bytes ? strndup(string.bytes, string.size) : NULL;
}

static struct image_session *session_at(struct log_image *image, uint32_t number)
{
	struct image_session *session;

	for (size_t i = 0; i < image->sessions_count; i++) {
		if (image->sessions[i].number == number)
			return &image->sessions[i];
	}
	session = ADD(image, sessions);
	session->number = number;
	return session;
}

/* ---- What the reader calls ---- */

static void on_execution(struct log_image *image, uint32_t number,
			 const struct log_execution *execution, bool record)
{
	struct image_execution *copy = ADD(session_at(image, number), executions);
	size_t size = execution->cell_count * sizeof(*execution->cells);

	copy->is = *execution;
	copy->record = record;
	if (size) {
		copy->cells = malloc(size);
		ck_assert_ptr_nonnull(copy->cells);
		memcpy(copy->cells, execution->cells, size);
	}
	copy->is.cells = copy->cells;
}

static void on_counters(void *data, uint32_t session, const struct log_execution *execution)
{
	on_execution(data, session, execution, false);
}

static void on_request(void *data, uint32_t session, const struct log_execution *execution)
{
	on_execution(data, session, execution, true);
}

static void on_node(void *data, uint32_t session, uint32_t id, const struct log_node *node)
{
	struct image_node *copy = ADD(session_at(data, session), nodes);

	copy->id = id;
	copy->is = *node;
}

static void on_totals(void *data, uint32_t number, const struct log_session_totals *totals)
{
	struct image_session *session = session_at(data, number);

	session->totals = *totals;
	session->totals_blocks++;
}

static void on_session_start(void *data, uint32_t number, const struct log_session_start *start)
{
	struct image_session *session = session_at(data, number);

	session->starts++;
	session->profile_id = start->profile_id;
	session->attachment_id = start->attachment_id;
	session->flags = start->flags;
	session->interval = start->sampling_interval;
	session->mode = start->mode;
	session->user = text_of(start->user);
	session->database = text_of(start->database);
	session->engine = text_of(start->engine);
	session->options = text_of(start->options);
	session->description = text_of(start->description);
}

static void on_session_end(void *data, uint32_t number, uint64_t reason, int64_t time)
{
	struct image_session *session = session_at(data, number);

	session->ends++;
	session->end_reason = reason;
	session->end_time = time;
}

static void on_text(void *data, uint32_t number, uint32_t id, uint64_t to_come,
		    struct log_string part)
{
	struct image_session *session = session_at(data, number);
	struct image_text *text = (struct image_text *)image_text(session, id);

	if (!text) {
		text = ADD(session, texts);
		text->id = id;
	}
	text->bytes = realloc(text->bytes, text->size + part.size + 1);
	ck_assert_ptr_nonnull(text->bytes);
	memcpy(text->bytes + text->size, part.bytes, part.size);
	text->size += part.size;
	text->bytes[text->size] = 0;
	text->whole = to_come == 0;
}

static void on_statement(void *data, uint32_t number, const struct log_statement *statement)
{
	struct image_statement *copy = ADD(session_at(data, number), statements);

	copy->index = statement->index;
	copy->id = statement->id;
	copy->parent_id = statement->parent_id;
	copy->text = statement->text;
	copy->type = text_of(statement->type);
	copy->schema = text_of(statement->schema);
	copy->package = text_of(statement->package);
	copy->routine = text_of(statement->routine);
}

static void on_cursor(void *data, uint32_t number, const struct log_cursor *cursor)
{
	(void)cursor;
	session_at(data, number)->cursors++;
}

static void on_record_source(void *data, uint32_t number, const struct log_record_source *source)
{
	*ADD(session_at(data, number), sources) = *source;
}

static void on_line(void *data, uint32_t number, const struct log_line *line)
{
	*ADD(session_at(data, number), lines) = *line;
}

struct log_image *image_read(const char *path)
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
	};
	struct log_image *image = calloc(1, sizeof(*image));
	char error[LOG_ERROR_SIZE];
	struct log_reader *reader = log_reader_open(path, error);

	ck_assert_ptr_nonnull(image);
	ck_assert_msg(reader != NULL, "%s: %s", path, error);
	ck_assert(log_reader_read(reader, &visitor, image));
	image->state = log_reader_header(reader)->state;
	image->usage = *log_reader_usage(reader);
	for (unsigned i = 0; i < LOG_LOSSES; i++)
		image->lost += log_reader_lost(reader)[i];
	log_reader_close(reader);
	return image;
}

void image_free(struct log_image *image)
{
	for (size_t s = 0; s < image->sessions_count; s++) {
		struct image_session *session = &image->sessions[s];

		for (size_t i = 0; i < session->texts_count; i++)
			free(session->texts[i].bytes);
		for (size_t i = 0; i < session->statements_count; i++) {
			free(session->statements[i].type);
			free(session->statements[i].schema);
			free(session->statements[i].package);
			free(session->statements[i].routine);
		}
		for (size_t i = 0; i < session->executions_count; i++)
			free(session->executions[i].cells);
		free(session->user);
		free(session->database);
		free(session->engine);
		free(session->options);
		free(session->description);
		free(session->texts);
		free(session->statements);
		free(session->lines);
		free(session->sources);
		free(session->executions);
		free(session->nodes);
	}
	free(image->sessions);
	free(image);
}

/* ---- Looking things up ---- */

struct image_session *image_session(struct log_image *image, uint32_t number)
{
	size_t before = image->sessions_count;
	struct image_session *session = session_at(image, number);

	ck_assert_msg(image->sessions_count == before, "session %u is not in the log", number);
	return session;
}

const struct image_statement *image_statement(const struct image_session *session, int64_t id)
{
	for (size_t i = 0; i < session->statements_count; i++) {
		if (session->statements[i].id == id)
			return &session->statements[i];
	}
	return NULL;
}

const struct image_text *image_text(const struct image_session *session, uint32_t id)
{
	for (size_t i = session->texts_count; i--;) {
		if (session->texts[i].id == id)
			return &session->texts[i];
	}
	return NULL;
}

const struct image_node *image_node(const struct image_session *session, uint32_t id)
{
	/* Where it is if they came in order. */
	if (id && id <= session->nodes_count && session->nodes[id - 1].id == id)
		return &session->nodes[id - 1];
	for (size_t i = 0; i < session->nodes_count; i++) {
		if (session->nodes[i].id == id)
			return &session->nodes[i];
	}
	return NULL;
}

/* Statements are numbered in the order of their definition. */
static int64_t statement_id(const struct image_session *session, uint32_t index)
{
	if (index && index <= session->statements_count &&
	    session->statements[index - 1].index == index)
		return session->statements[index - 1].id;
	ck_abort_msg("statement index %u is not defined", index);
	return 0;
}

/* ---- Counts ---- */

/* What the cells of each statement mean; made once, since there may be many executions. */
struct meaning {
	uint32_t statement, cell, kind, first, second;
};

static int compare_meanings(const void *a, const void *b)
{
	const struct meaning *x = a, *y = b;

	if (x->statement != y->statement)
		return x->statement < y->statement ? -1 : 1;
	return x->cell < y->cell ? -1 : x->cell > y->cell;
}

static uint32_t group_cells(const struct image_session *session)
{
	return session->mode == LOG_MODE_SAMPLED ? 1 : LOG_GROUP_CELLS;
}

static struct meaning *meanings_of(const struct image_session *session, size_t *number)
{
	size_t room = session->lines_count + 2 * session->sources_count + 1, count = 0;
	struct meaning *meanings = malloc(room * sizeof(*meanings));

	ck_assert_ptr_nonnull(meanings);
	for (size_t i = 0; i < session->lines_count; i++) {
		const struct log_line *line = &session->lines[i];

		meanings[count++] = (struct meaning){ line->statement, line->cell, COUNT_LINE,
						      line->line, line->column };
	}
	for (size_t i = 0; i < session->sources_count; i++) {
		const struct log_record_source *source = &session->sources[i];

		meanings[count++] = (struct meaning){ source->statement, source->cell, COUNT_OPEN,
						      source->cursor_id, source->id };
		meanings[count++] =
			(struct meaning){ source->statement, source->cell + group_cells(session),
					  COUNT_FETCH, source->cursor_id, source->id };
	}
	qsort(meanings, count, sizeof(*meanings), compare_meanings);
	*number = count;
	return meanings;
}

static struct count count_of(const struct image_session *session, const struct meaning *meanings,
			     size_t number, const struct log_execution *execution,
			     const struct log_cell *cell)
{
	struct meaning key = { .statement = execution->statement, .cell = cell->cell };
	const struct meaning *meaning;
	struct count count = { .statement = statement_id(session, execution->statement),
			       .request = execution->request_id,
			       .value = cell->value };

	if (cell->cell < LOG_CELL_FIRST_FREE) {
		count.kind = cell->cell == LOG_CELL_FINISHED  ? COUNT_FINISHED :
			     cell->cell == LOG_CELL_UNSAMPLED ? COUNT_UNSAMPLED :
								COUNT_ELAPSED;
		ck_assert_uint_le(cell->cell, LOG_CELL_ELAPSED);
		return count;
	}
	meaning = bsearch(&key, meanings, number, sizeof(*meanings), compare_meanings);
	ck_assert_msg(meaning != NULL, "cell %u of statement %u is not defined", cell->cell,
		      execution->statement);
	count.kind = meaning->kind;
	count.first = meaning->first;
	count.second = meaning->second;
	return count;
}

int count_compare(const void *a, const void *b)
{
	const struct count *x = a, *y = b;

	if (x->statement != y->statement)
		return x->statement < y->statement ? -1 : 1;
	if (x->request != y->request)
		return x->request < y->request ? -1 : 1;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return x->second < y->second ? -1 : x->second > y->second;
}

size_t counts_sum_up(struct count *counts, size_t number)
{
	size_t kept = 0;

	qsort(counts, number, sizeof(*counts), count_compare);
	for (size_t i = 0; i < number; i++) {
		if (kept && !count_compare(&counts[kept - 1], &counts[i]))
			counts[kept - 1].value += counts[i].value;
		else if (counts[i].value)
			counts[kept++] = counts[i];
	}
	return kept;
}

static int compare_serials(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

struct count *image_counts(const struct image_session *session, size_t *number)
{
	size_t meaning_count, room = 1, count = 0, finished_count = 0;
	struct meaning *meanings = meanings_of(session, &meaning_count);
	uint64_t *finished = malloc((session->executions_count + 1) * sizeof(*finished));
	struct count *counts;

	for (size_t i = 0; i < session->executions_count; i++) {
		room += session->executions[i].is.cell_count;
		if (session->executions[i].record &&
		    !(session->executions[i].is.flags & LOG_REQUEST_IN_BLOCKS))
			finished[finished_count++] = session->executions[i].is.serial;
	}
	qsort(finished, finished_count, sizeof(*finished), compare_serials);
	counts = malloc(room * sizeof(*counts));
	ck_assert_ptr_nonnull(counts);
	for (size_t i = 0; i < session->executions_count; i++) {
		const struct image_execution *execution = &session->executions[i];

		/* A request's record replaces its blocks. */
		if (!execution->record && execution->is.serial &&
		    bsearch(&execution->is.serial, finished, finished_count, sizeof(*finished),
			    compare_serials))
			continue;
		for (size_t c = 0; c < execution->is.cell_count; c++) {
			const struct log_cell *cell = &execution->cells[c];

			if (cell->cell < LOG_CELL_FIRST_FREE ||
			    cell->cell % group_cells(session) == LOG_GROUP_COUNT)
				counts[count++] = count_of(session, meanings, meaning_count,
							   &execution->is, cell);
		}
	}
	free(finished);
	free(meanings);
	*number = counts_sum_up(counts, count);
	return counts;
}

/* ---- The call tree ---- */

static void put_node(const struct image_session *session, const struct image_node *node, char *text,
		     size_t size)
{
	uint32_t kind = node->is.position >> LOG_NODE_CELL_BITS,
		 cell = node->is.position & LOG_NODE_CELL_MASK;
	long long id = statement_id(session, node->is.statement);

	if (kind == LOG_NODE_REQUEST) {
		snprintf(text, size, "%lld", id);
		return;
	}
	for (size_t i = 0; kind == LOG_NODE_LINE && i < session->lines_count; i++) {
		const struct log_line *line = &session->lines[i];

		if (line->statement == node->is.statement && line->cell == cell)
			snprintf(text, size, ":%u", line->line);
	}
	for (size_t i = 0; kind == LOG_NODE_RECORD_SOURCE && i < session->sources_count; i++) {
		const struct log_record_source *source = &session->sources[i];

		if (source->statement == node->is.statement &&
		    (source->cell == cell || source->cell + 1 == cell))
			snprintf(text, size, "%c%u.%u", source->cell == cell ? 'o' : 'f',
				 source->cursor_id, source->id);
	}
}

static void path_of(const struct image_session *session, const struct image_node *node,
		    unsigned depth, char *text, size_t size)
{
	char own[64] = "?";
	size_t used;

	*text = 0;
	if (node->is.parent) {
		const struct image_node *parent = image_node(session, node->is.parent);

		ck_assert_msg(parent != NULL, "node %u has no parent %u", node->id,
			      node->is.parent);
		if (depth < IMAGE_PATH_NODES)
			path_of(session, parent, depth + 1, text, size);
		else
			snprintf(text, size, "...");
	}
	put_node(session, node, own, sizeof(own));
	used = strlen(text);
	snprintf(text + used, size - used, "%s%s", used && *own != ':' ? " " : "", own);
}

void image_path(const struct image_session *session, const struct image_node *node, char *text,
		size_t size)
{
	path_of(session, node, 0, text, size);
}
