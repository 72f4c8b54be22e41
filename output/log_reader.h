/*
 * Reads a log that anyone may have made: while it is written, after a kill, cut short or damaged.
 *
 * Nothing in the file is trusted: each length, index and offset is checked, memory stays within a
 * small multiple of the file's size, and what cannot be read is counted and left out.  The file is
 * read by pread(), never mapped: another process may truncate it at any moment.
 * For the tools; a reader is used by one thread at a time.  libc only.
 */
#ifndef FBPROF_LOG_READER_H
#define FBPROF_LOG_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log_format.h"

/* Bytes of the file, not ended by NUL, which need not be UTF-8; `bytes` is NULL for NULL. */
struct log_string {
	const char *bytes;
	size_t size;
};

struct log_session_start {
	int64_t profile_id;
	int64_t attachment_id;
	int64_t start_time; /* ns since 1970 UTC, as are all moments here */
	uint64_t start_monotonic;
	uint64_t flags; /* enum log_session_flags */
	uint64_t sampling_interval;
	uint64_t mode; /* enum log_mode, or what this version doesn't know */
	struct log_string user, database, engine, options, description;
};

struct log_statement {
	uint32_t index;
	int64_t id, parent_id;
	struct log_string type, schema, package, routine;
	uint32_t text; /* 0: none */
};

struct log_cursor {
	uint32_t statement;
	uint32_t id;
	struct log_string name;
	uint32_t line, column;
};

struct log_record_source {
	uint32_t statement;
	uint32_t cursor_id, id, parent_id, level;
	uint32_t cell;	      /* the first of the group for opens */
	uint32_t access_path; /* text id, 0: none */
};

struct log_line {
	uint32_t statement;
	uint32_t line, column;
	uint32_t cell; /* the first of its group */
};

struct log_cell {
	uint32_t cell;
	uint64_t value;
};

/* Counts of one execution, or of all executions of a statement: a LOG_REC_REQUEST or one block. */
struct log_execution {
	uint64_t serial;
	uint32_t statement;
	int64_t request_id, caller_statement_id, caller_request_id;
	int64_t start_time;
	uint64_t duration; /* this and the next two: 0 in a block */
	uint64_t flags;	   /* enum log_request_flags */
	uint64_t elapsed;
	const struct log_cell *cells; /* those that are not 0, by rising number */
	size_t cell_count;
};

/* What the reader calls; each may be NULL.  Pointers are valid during the call only. */
struct log_visitor {
	/* Blocks, which are read first. */
	void (*counters)(void *data, uint32_t session, const struct log_execution *execution);
	void (*node)(void *data, uint32_t session, uint32_t id, const struct log_node *node);
	void (*totals)(void *data, uint32_t session, const struct log_session_totals *totals);

	/* Records, those of one session in the order in which they were written. */
	void (*session_start)(void *data, uint32_t session, const struct log_session_start *start);
	void (*session_end)(void *data, uint32_t session, uint64_t reason, int64_t time);
	/* A fragment of a text, and how many bytes of it are to come in others. */
	void (*text)(void *data, uint32_t session, uint32_t id, uint64_t to_come,
		     struct log_string part);
	void (*statement)(void *data, uint32_t session, const struct log_statement *statement);
	void (*cursor)(void *data, uint32_t session, const struct log_cursor *cursor);
	void (*record_source)(void *data, uint32_t session, const struct log_record_source *source);
	void (*line)(void *data, uint32_t session, const struct log_line *line);
	void (*request)(void *data, uint32_t session, const struct log_execution *execution);
	void (*notice)(void *data, uint32_t session, struct log_string notice);
};

/* What was found torn or missing. */
enum log_loss {
	LOG_LOSS_CUT_CHUNKS,   /* chunks beyond the end of the file, or across it */
	LOG_LOSS_CHUNKS,       /* chunks whose header is damaged, or that cannot be read */
	LOG_LOSS_TORN_RECORDS, /* records with a wrong length or checksum */
	LOG_LOSS_RECORDS,      /* whole records whose fields make no sense */
	LOG_LOSS_BLOCKS,       /* blocks whose fields make no sense */
	LOG_LOSS_NODES,	       /* call tree nodes likewise */
	LOG_LOSS_UNKNOWN,      /* records and blocks of a kind that this version does not know */
	LOG_LOSSES
};

/* What a log is made of, as of the last log_reader_read(). */
struct log_usage {
	uint64_t file_size;
	uint64_t chunks;
	uint64_t record_chunks, record_bytes;
	uint64_t block_chunks, blocks, free_blocks;
};

enum log_liveness {
	LOG_NOT_RECORDED, /* no process records into this file */
	LOG_RECORDED,
	LOG_LIVENESS_UNKNOWN /* the file system knows no locks */
};

struct log_reader;

#define LOG_ERROR_SIZE 160

/* Opens a log.  NULL upon failure: then `error` says what, and what to do, without the path. */
struct log_reader *log_reader_open(const char *path, char error[LOG_ERROR_SIZE]);

/* The same for an open file, which belongs to the reader from now on, also upon failure. */
struct log_reader *log_reader_open_fd(int fd, char error[LOG_ERROR_SIZE]);

void log_reader_close(struct log_reader *reader);

/* The header as it is in the file; its mutable part as of the last log_reader_read(). */
const struct log_header *log_reader_header(const struct log_reader *reader);

/* The value of a key of the header's text, or NULL. */
const char *log_reader_text(const struct log_reader *reader, const char *key);

enum log_liveness log_reader_liveness(const struct log_reader *reader);

/* Reads the log once through; may be repeated.  False if memory ran out. */
bool log_reader_read(struct log_reader *reader, const struct log_visitor *visitor, void *data);

/* What the last log_reader_read() lost, by enum log_loss, and a sentence (without the count) each. */
const uint64_t *log_reader_lost(const struct log_reader *reader);
const char *log_loss_text(enum log_loss loss);

const struct log_usage *log_reader_usage(const struct log_reader *reader);

#endif
