/*
 * See passive_log.h.
 */
#include "passive_log.h"
#include "../output/log_put.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* As long as Firebird's names may be, in bytes; and paths of databases. */
#define NAME_BYTES 255u
#define PATH_BYTES 4096u

/* More cells than a frame can name are not expected of a statement; what is beyond shares the last. */
#define CELL_MAX FRAME_CELL_BETWEEN

static int64_t ns_now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void passive_log_init(struct passive_log *passive_log, struct log *log)
{
	passive_log->log = log;
	log_stream_open(&passive_log->stream, log, 0);
}

void passive_log_close(struct passive_log *passive_log)
{
	log_stream_close(&passive_log->stream);
}

/* What is written next is this session's: the stream has to say so if the last was another's. */
static bool select_session(struct passive_session *session)
{
	struct log_stream *stream = &session->log->stream;
	uint8_t *place;

	if (stream->session == session->number)
		return true;
	stream->session = session->number;
	place = log_record_begin(stream, LOG_REC_SESSION, VARINT_MAX_SIZE);
	if (place)
		log_record_end(stream, varint_put(place, session->number));
	return place != NULL;
}

static uint8_t *begin(struct passive_session *session, enum log_record_type type,
		      size_t max_payload)
{
	if (!select_session(session))
		return NULL;
	return log_record_begin(&session->log->stream, type, max_payload);
}

static void end(struct passive_session *session, uint8_t *place)
{
	log_record_end(&session->log->stream, place);
}

/* ---- Sessions ---- */

/* As START_SESSION's: when it was started, in us since 1970. */
static int64_t new_id(int64_t time)
{
	static int64_t last;
	int64_t id = time / 1000;

	if (id <= last)
		id = last + 1;
	last = id;
	return id;
}

static bool put_start(struct passive_session *session, const struct passive_attachment *attachment)
{
	const struct passive_log *log = session->log;
	int64_t time = ns_now(CLOCK_REALTIME);
	uint8_t *place = begin(session, LOG_REC_SESSION_START,
			       10 * VARINT_MAX_SIZE + 2 * NAME_BYTES + PATH_BYTES + 2 * 8);

	if (!place)
		return false;
	place = varint_put(place, (uint64_t)new_id(time));
	place = varint_put(place, attachment->id);
	place = log_put_i64(place, time);
	place = log_put_i64(place, ns_now(CLOCK_MONOTONIC));
	place = varint_put(place, log->in_process ? LOG_SESSION_PRELOAD : 0);
	place = varint_put(place, log->interval);
	place = varint_put(place, LOG_MODE_PASSIVE);
	place = log_put_string(place, attachment->user, NAME_BYTES);
	place = log_put_string(place, attachment->database, PATH_BYTES);
	place = log_put_string(place, attachment->engine, NAME_BYTES);
	place = log_put_string(place, "", 0);
	end(session, log_put_nullable(place, NULL, 0));
	return true;
}

static void free_statement(void *context, void *value);

static void session_free(struct passive_session *session)
{
	id_table_free(&session->statements, free_statement, NULL);
	call_tree_free(session->tree);
	free(session);
}

struct passive_session *passive_session_start(struct passive_log *passive_log,
					      const struct passive_attachment *attachment)
{
	struct passive_session *session = calloc(1, sizeof(*session));
	struct log_block *totals = session ? log_block_new(passive_log->log) : NULL;

	if (!totals) {
		free(session);
		return NULL;
	}
	session->log = passive_log;
	session->number = log_new_session(passive_log->log);
	session->tree = call_tree_new(passive_log->log, session->number);
	session->totals = (struct log_session_totals *)totals->payload;
	if (!id_table_init(&session->statements) || !session->tree ||
	    !put_start(session, attachment)) {
		log_block_free(passive_log->log, totals);
		session_free(session);
		return NULL;
	}
	totals->session = session->number;
	log_block_publish(totals, LOG_BLOCK_SESSION);
	return session;
}

void passive_session_end(struct passive_session *session, enum log_session_end how)
{
	uint8_t *place = begin(session, LOG_REC_SESSION_END, 8 + VARINT_MAX_SIZE);

	if (place)
		end(session, log_put_i64(varint_put(place, how), ns_now(CLOCK_REALTIME)));
	session_free(session);
}

/* ---- Statements ---- */

/* A line's value is its cell, not a pointer. */
static void free_line(void *context, void *value)
{
	(void)context;
	(void)value;
}

static void free_source(void *context, void *value)
{
	(void)context;
	free(value);
}

static void free_statement(void *context, void *value)
{
	struct logged_statement *statement = value;

	(void)context;
	id_table_free(&statement->lines, free_line, NULL);
	id_table_free(&statement->sources, free_source, NULL);
	free(statement);
}

uint64_t passive_statement_fingerprint(const struct passive_statement *statement)
{
	uint64_t hash = sql_text_fingerprint(statement->type);

	hash = hash * 31 + sql_text_fingerprint(statement->package);
	hash = hash * 31 + sql_text_fingerprint(statement->routine);
	return hash * 31 + sql_text_fingerprint(statement->sql_text);
}

/* Writes a text and sets its number.  False: recording has stopped. */
static bool put_text(struct passive_session *session, const char *text, uint32_t *number)
{
	if (!select_session(session))
		return false;
	*number = ++session->last_text;
	return log_append_text(&session->log->stream, *number, text, strlen(text));
}

/* The same for an SQL text: 0 if there is none, or it is not to be told. */
static bool put_sql_text(struct passive_session *session, const char *text, uint32_t *number)
{
	char hash[32];

	*number = 0;
	if (!*text || session->log->sql_text == SQL_TEXT_OFF)
		return true;
	if (session->log->sql_text == SQL_TEXT_HASH) {
		snprintf(hash, sizeof(hash), "hash:%016llx",
			 (unsigned long long)sql_text_fingerprint(text));
		text = hash;
	}
	return put_text(session, text, number);
}

static const char *null_if_empty(const char *text)
{
	return *text ? text : NULL;
}

static bool put_statement(struct passive_session *session, uint32_t index,
			  const struct passive_statement *what)
{
	uint32_t text;
	uint8_t *place;

	if (!put_sql_text(session, what->sql_text, &text))
		return false;
	place = begin(session, LOG_REC_STATEMENT,
		      4 * VARINT_MAX_SIZE + 4 * (NAME_BYTES + VARINT_MAX_SIZE));
	if (!place)
		return false;
	place = varint_put(place, index);
	place = varint_put(place, index);
	place = varint_put(place, 0);
	place = log_put_string(place, what->type, NAME_BYTES);
	place = log_put_nullable(place, NULL, 0);
	place = log_put_nullable(place, null_if_empty(what->package), NAME_BYTES);
	place = log_put_nullable(place, null_if_empty(what->routine), NAME_BYTES);
	end(session, varint_put(place, text));
	return true;
}

struct logged_statement *passive_session_statement(struct passive_session *session,
						   const struct passive_statement *what,
						   uint64_t fingerprint)
{
	struct logged_statement *statement =
		id_table_get(&session->statements, (int64_t)fingerprint);

	if (statement || session->last_statement == FRAME_STATEMENT_MAX)
		return statement;
	statement = calloc(1, sizeof(*statement));
	if (!statement)
		return NULL;
	statement->index = session->last_statement + 1;
	statement->cells = LOG_CELL_FIRST_FREE;
	if (!id_table_init(&statement->lines) || !id_table_init(&statement->sources) ||
	    !put_statement(session, statement->index, what) ||
	    !id_table_put(&session->statements, (int64_t)fingerprint, statement)) {
		free_statement(NULL, statement);
		return NULL;
	}
	session->last_statement++;
	return statement;
}

uint32_t passive_session_line(struct passive_session *session, struct logged_statement *statement,
			      uint32_t line, uint32_t column)
{
	int64_t key = (int64_t)((uint64_t)line << 32 | column);
	uint32_t cell = (uint32_t)(uintptr_t)id_table_get(&statement->lines, key);
	uint8_t *place;

	if (cell)
		return cell;
	if (statement->cells == CELL_MAX)
		return CELL_MAX - 1;
	place = begin(session, LOG_REC_LINE, 4 * VARINT_MAX_SIZE);
	if (!place || !id_table_put(&statement->lines, key, (void *)(uintptr_t)statement->cells))
		return 0;
	cell = statement->cells++;
	place = varint_put(place, statement->index);
	place = varint_put(place, line);
	place = varint_put(place, column);
	end(session, varint_put(place, cell));
	return cell;
}

/* ---- Record sources ---- */

/* The same text may be compiled to another plan later: then others have the ids. */
static int64_t source_key(const struct passive_source *what)
{
	uint64_t key = (uint64_t)what->cursor << 32 | what->id;

	return (int64_t)(key ^ what->type * 0x9e3779b97f4a7c15u);
}

struct logged_source *passive_session_find_source(struct logged_statement *statement,
						  const struct passive_source *what)
{
	struct logged_source *source = id_table_get(&statement->sources, source_key(what));

	return source && source->cell ? source : NULL;
}

static bool put_source(struct passive_session *session, struct logged_statement *statement,
		       const struct passive_source *what, struct logged_source *source,
		       const char *step)
{
	uint32_t text;
	uint8_t *place;

	if (statement->cells + 2 > CELL_MAX || !put_text(session, step, &text))
		return false;
	place = begin(session, LOG_REC_RECORD_SOURCE, 7 * VARINT_MAX_SIZE);
	if (!place)
		return false;
	source->level = what->parent ? what->parent->level + 1 : 0;
	source->cell = statement->cells;
	statement->cells += 2;
	place = varint_put(place, statement->index);
	place = varint_put(place, what->cursor);
	place = varint_put(place, source->id);
	place = varint_put(place, what->parent ? what->parent->id : 0);
	place = varint_put(place, source->level);
	place = varint_put(place, source->cell);
	end(session, varint_put(place, text));
	return true;
}

struct logged_source *passive_session_source(struct passive_session *session,
					     struct logged_statement *statement,
					     const struct passive_source *what, const char *step)
{
	struct logged_source *source = id_table_get(&statement->sources, source_key(what));
	uint64_t fingerprint = sql_text_fingerprint(step);

	if (!source) {
		source = calloc(1, sizeof(*source));
		if (!source || !id_table_put(&statement->sources, source_key(what), source)) {
			free(source);
			return NULL;
		}
		source->id = ++statement->last_source;
		source->fingerprint = fingerprint;
		return source;
	}
	if (source->cell)
		return source;
	if (source->fingerprint == fingerprint &&
	    !put_source(session, statement, what, source, step))
		return NULL;
	source->fingerprint = fingerprint;
	return source;
}
