/*
 * Writes the log (FORMAT.md).  It runs inside the server, so it needs nothing but libc, never waits
 * for anything but the disk, and gives up for good instead of failing a query.
 *
 * A struct log is one process's file.  Its functions may be called by any thread.  A struct
 * log_stream has one writer at a time, usually the thread that executes the attachment.  Blocks are
 * handed out to one writer each, and change in place afterwards.
 */
#ifndef FBPROF_LOG_WRITER_H
#define FBPROF_LOG_WRITER_H

#include "log_format.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct log;

struct log_options {
	const char *directory; /* FBPROF_DIR; NULL or empty: /var/log/fbprof, else a private one */
	const char *program;   /* for the file's name */
	pid_t pid;	       /* of the process that is profiled; 0: this one */
	const char *clock;     /* what times are measured with, for the header */
	uint64_t max_bytes;    /* FBPROF_MAX_BYTES; 0: the default, 1 GiB */
	/* Called at most once a file, by whatever thread found out, when recording had to stop. */
	void (*on_stop)(const char *sentence);
};

#define LOG_DEFAULT_MAX_BYTES (1024ull * 1024 * 1024)

/* The log of a process in which nobody records; costs nothing.  Never fails. */
struct log *log_get(void);

/*
 * Opens the log for one more session, and creates its file if there is none.  On failure returns
 * false and one sentence in `error`: what went wrong, and what to do.  Each success is undone by a
 * log_release(); with the last one all mappings and the file are let go.
 */
bool log_acquire(struct log *log, const struct log_options *options, char *error,
		 size_t error_size);
void log_release(struct log *log);

/* The path of the file that is, or was last, written; "" if there was none. */
const char *log_path(const struct log *log);

/* Whether the file has grown to its share of the quota: the next one to open it alone gets a new one. */
bool log_is_grown(struct log *log);

/* A number for a new session, from 1 in each file. */
uint32_t log_new_session(struct log *log);

/* ---- Records ---- */

struct log_stream {
	struct log *log;
	uint32_t session;
	struct log_chunk_header *chunk; /* NULL: none yet */
	uint64_t index, used;		/* of it; what the file says, anybody may have changed */
	uint8_t *record;		/* the record that is being written */
};

void log_stream_open(struct log_stream *stream, struct log *log, uint32_t session);
void log_stream_close(struct log_stream *stream);

/*
 * Begins a record whose payload takes at most `max_payload` bytes (<= LOG_RECORD_MAX less 16), and
 * returns where the payload goes, or NULL if recording has stopped.  log_record_end() takes the end
 * of what was written there and makes the record visible.
 */
uint8_t *log_record_begin(struct log_stream *stream, enum log_record_type type, size_t max_payload);
void log_record_end(struct log_stream *stream, uint8_t *end);

/* Appends a text of any length in fragments.  Returns false if recording has stopped. */
bool log_append_text(struct log_stream *stream, uint32_t text_id, const char *text, size_t size);

/* ---- Blocks ---- */

/*
 * A block of zeros with kind LOG_BLOCK_FREE, or NULL if recording has stopped.  The caller fills the
 * header and publishes it with log_block_publish().
 */
struct log_block *log_block_new(struct log *log);
void log_block_publish(struct log_block *block, enum log_block_kind kind);

/* Takes a block back: the reader ignores it from now on, and another session may get it. */
void log_block_free(struct log *log, struct log_block *block);

/* After fork, in the child: forgets the parent's file, which stays the parent's. */
void log_forget(struct log *log);

/* Around fork, in the parent, so that the child finds no lock held. */
void log_lock(struct log *log);
void log_unlock(struct log *log);

#endif
