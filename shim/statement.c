/*
 * Statements of a session, with their lines, cursors and record sources: what gives them cells, and
 * says so in the log.  Looking up what is known is in session_private.h.
 */
#include "../output/log_put.h"
#include "session_private.h"

#include <stdio.h>
#include <stdlib.h>

/* Longer names don't exist in Firebird (63 characters of at most 4 bytes); a plan's text may be long. */
#define NAME_BYTES 255u

/* More cells than a frame can name are not expected of a statement; what is beyond shares the last. */
#define CELL_MAX FRAME_CELL_BETWEEN

/* ---- Texts ---- */

/* Writes a text and returns its number; 0 if there is none or recording has stopped. */
static uint32_t put_text(struct session *session, const char *text)
{
	if (!log_append_text(&session->stream, session->last_text + 1, text, strlen(text)))
		return 0;
	return ++session->last_text;
}

/* Tells statements apart without showing them. */
static uint32_t put_fingerprint(struct session *session, const char *text)
{
	char hex[32];

	snprintf(hex, sizeof(hex), "hash:%016llx", (unsigned long long)sql_text_fingerprint(text));
	return put_text(session, hex);
}

/* ---- Tables of lines ---- */

/* A hash table of free slots.  NULL: out of memory. */
static struct line *lines_new(uint32_t room)
{
	struct line *lines = malloc(room * sizeof(*lines));

	for (uint32_t i = 0; lines && i < room; i++)
		lines[i] =
			(struct line){ .key = NO_LINE, .next = lines, .cache.serial = NO_SERIAL };
	return lines;
}

/* ---- Statements ---- */

static uint32_t new_cells(struct statement *statement, uint32_t number)
{
	uint32_t cell = statement->cells;

	if (cell + number > CELL_MAX)
		return CELL_MAX - number;
	statement->cells += number;
	return cell;
}

static struct statement *statement_new(struct session *session, int64_t id)
{
	struct statement *statement = calloc(1, sizeof(*statement));

	if (!statement)
		return NULL;
	statement->id = id;
	statement->index = session->last_statement + 1;
	statement->cells = LOG_CELL_FIRST_FREE;
	statement->line_room = 4;
	statement->lines = lines_new(statement->line_room);
	statement->last_line = statement->lines;
	counters_init(&statement->counters);
	if (!statement->lines || statement->index > FRAME_STATEMENT_MAX ||
	    !id_table_put(&session->statements, id, statement)) {
		free(statement->lines);
		free(statement);
		return NULL;
	}
	session->last_statement++;
	return statement;
}

void statement_free(struct statement *statement)
{
	counters_release(&statement->counters, NULL);
	for (uint32_t i = 0; i < statement->cursor_count; i++)
		free(statement->cursors[i].sources);
	free(statement->cursors);
	free(statement->lines);
	free(statement);
}

bool statement_define(struct session *session, int64_t id, int64_t parent_id, const char *type,
		      const char *schema, const char *package, const char *routine, const char *sql)
{
	struct statement *statement = id_table_get(&session->statements, id);
	uint32_t text = 0;
	uint8_t *place;

	if (statement)
		return true;
	statement = statement_new(session, id);
	if (!statement)
		return false;
	statement->is_function = type && !strcmp(type, "FUNCTION");
	if (sql && *sql && session->options.sql_text == SQL_TEXT_FULL)
		text = put_text(session, sql);
	else if (sql && *sql && session->options.sql_text == SQL_TEXT_HASH)
		text = put_fingerprint(session, sql);
	place = log_record_begin(&session->stream, LOG_REC_STATEMENT,
				 4 * VARINT_MAX_SIZE + 4 * (NAME_BYTES + VARINT_MAX_SIZE));
	if (!place)
		return false;
	place = varint_put(place, statement->index);
	place = varint_put(place, (uint64_t)id);
	place = varint_put(place, (uint64_t)parent_id);
	place = log_put_string(place, type ? type : "", NAME_BYTES);
	place = log_put_nullable(place, schema, NAME_BYTES);
	place = log_put_nullable(place, package, NAME_BYTES);
	place = log_put_nullable(place, routine, NAME_BYTES);
	log_record_end(&session->stream, varint_put(place, text));
	return true;
}

/* An event may speak of a statement that was never defined, if the definition failed. */
struct statement *statement_find(struct session *session, int64_t id)
{
	struct statement *statement = id_table_get(&session->statements, id);

	if (!statement && statement_define(session, id, 0, "", NULL, NULL, NULL, NULL))
		statement = id_table_get(&session->statements, id);
	return statement;
}

/* ---- Lines ---- */

static uint32_t line_slot(const struct line *lines, uint32_t room, uint64_t key)
{
	uint32_t slot = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32) & (room - 1);

	while (lines[slot].key != NO_LINE && lines[slot].key != key)
		slot = (slot + 1) & (room - 1);
	return slot;
}

static bool lines_grow(struct statement *statement)
{
	uint32_t room = statement->line_room * 2;
	struct line *lines = lines_new(room);

	if (!lines)
		return false;
	for (uint32_t i = 0; i < statement->line_room; i++) {
		const struct line *line = &statement->lines[i];

		if (line->key != NO_LINE) {
			struct line *moved = &lines[line_slot(lines, room, line->key)];

			moved->key = line->key;
			moved->cell = line->cell;
			moved->cache = line->cache;
		}
	}
	free(statement->lines);
	statement->lines = lines;
	statement->line_room = room;
	statement->last_line = lines;
	return true;
}

/* The first sight of a line: gives it a cell and says so in the log. */
static struct line *line_define(struct session *session, struct statement *statement, uint64_t key)
{
	struct line *line;
	uint8_t *place;

	if (statement->line_count + 1 > statement->line_room / 4 * 3 && !lines_grow(statement))
		return NULL;
	place = log_record_begin(&session->stream, LOG_REC_LINE, 4 * VARINT_MAX_SIZE);
	if (!place)
		return NULL;
	line = &statement->lines[line_slot(statement->lines, statement->line_room, key)];
	line->key = key;
	line->cell = new_cells(statement, session->group_cells);
	statement->line_count++;
	place = varint_put(place, statement->index);
	place = varint_put(place, key >> 32);
	place = varint_put(place, (uint32_t)key);
	log_record_end(&session->stream, varint_put(place, line->cell));
	return line;
}

struct line *line_search(struct session *session, struct statement *statement, uint64_t key)
{
	struct line *line =
		&statement->lines[line_slot(statement->lines, statement->line_room, key)];

	if (unlikely(line->key == NO_LINE)) {
		int error = errno;

		clock_own_work_is_unusual(session->stack);
		line = line_define(session, statement, key);
		errno = error;
		if (!line) {
			session_step_aside(session);
			return NULL;
		}
	}
	statement->last_line->next = line;
	return line;
}

/* ---- Cursors and record sources ---- */

/* Room for index `index` in an array of zeros; doubled, so that growing is rare. */
static bool array_grow(void **array, uint32_t *count, size_t item_size, uint32_t index)
{
	uint32_t room = *count ? *count : 4;
	char *grown;

	if (index < *count)
		return true;
	if (index > CELL_MAX)
		return false;
	while (room <= index)
		room *= 2;
	grown = realloc(*array, room * item_size);
	if (!grown)
		return false;
	memset(grown + *count * item_size, 0, (room - *count) * item_size);
	*array = grown;
	*count = room;
	return true;
}

bool statement_define_record_source(struct session *session, int64_t statement_id,
				    unsigned cursor_id, unsigned id, unsigned level,
				    const char *access_path, unsigned parent_id)
{
	struct statement *statement = statement_find(session, statement_id);
	struct record_source *source;
	struct cursor *cursor;
	uint32_t text;
	uint8_t *place;

	if (!statement || !array_grow((void **)&statement->cursors, &statement->cursor_count,
				      sizeof(struct cursor), cursor_id))
		return false;
	cursor = &statement->cursors[cursor_id];
	if (!array_grow((void **)&cursor->sources, &cursor->count, sizeof(struct record_source),
			id))
		return false;
	source = &cursor->sources[id];
	if (source->cell)
		return true;
	source->cell = new_cells(statement, 2 * session->group_cells);
	source->fetch = parent_id ? LOG_EVENT_FETCH : LOG_EVENT_ROW;
	source->opens.serial = source->fetches.serial = NO_SERIAL;
	text = put_text(session, access_path ? access_path : "");
	place = log_record_begin(&session->stream, LOG_REC_RECORD_SOURCE, 7 * VARINT_MAX_SIZE);
	if (!place)
		return false;
	place = varint_put(place, statement->index);
	place = varint_put(place, cursor_id);
	place = varint_put(place, id);
	place = varint_put(place, parent_id);
	place = varint_put(place, level);
	place = varint_put(place, source->cell);
	log_record_end(&session->stream, varint_put(place, text));
	return true;
}

bool statement_define_cursor(struct session *session, int64_t statement_id, unsigned cursor_id,
			     const char *name, unsigned line, unsigned column)
{
	struct statement *statement = statement_find(session, statement_id);
	uint8_t *place = NULL;

	if (statement)
		place = log_record_begin(&session->stream, LOG_REC_CURSOR,
					 5 * VARINT_MAX_SIZE + NAME_BYTES);
	if (!place)
		return false;
	place = varint_put(place, statement->index);
	place = varint_put(place, cursor_id);
	place = log_put_nullable(place, name, NAME_BYTES);
	place = varint_put(place, line);
	log_record_end(&session->stream, varint_put(place, column));
	return true;
}
