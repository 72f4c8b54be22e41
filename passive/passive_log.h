/*
 * What passive mode writes to the log (LOG_MODE_PASSIVE): a session for each attachment that was seen
 * at work, its statements and lines once each, and its call tree.  All sessions share one stream, for
 * there may be thousands of them.  Used by one thread at a time; libc only, as it runs in servers, too.
 */
#ifndef FBPROF_PASSIVE_LOG_H
#define FBPROF_PASSIVE_LOG_H

#include "../output/log_writer.h"
#include "../output/sql_text.h"
#include "../sampler/call_tree.h"
#include "../sampler/id_table.h"

struct passive_log {
	struct log *log; /* acquired by whoever made this */
	struct log_stream stream;
	enum sql_text sql_text;
	uint64_t interval; /* ns */
	bool in_process;   /* the recorder runs in the process that it records */
};

/* What is known of an attachment; strings are copied. */
struct passive_attachment {
	uint64_t id;
	const char *user, *database, *engine;
};

/* What is known of a statement; "" for what is not. */
struct passive_statement {
	const char *type; /* as Firebird's profiler calls it */
	const char *routine, *package, *sql_text;
};

struct passive_session {
	struct passive_log *log;
	uint32_t number;
	struct call_tree *tree;
	struct log_session_totals *totals;
	struct id_table statements; /* struct logged_statement, by fingerprint */
	uint32_t last_statement, last_text;
};

/* A statement of a session. */
struct logged_statement {
	uint32_t index;	       /* in the session, which is its id in the log, too */
	uint32_t cells;	       /* in use */
	struct id_table lines; /* cell by line << 32 | column */
	uint32_t last_source;
	struct id_table sources; /* struct logged_source, by what tells them apart */
};

/* A record source of a statement, as it is in its frames. */
struct passive_source {
	uint32_t cursor, id;
	uint64_t type;			    /* of its class */
	const struct logged_source *parent; /* NULL: none */
};

struct logged_source {
	uint32_t id, level;
	uint32_t cell;	      /* of opening it; the next is of fetching; 0: not written yet */
	uint64_t fingerprint; /* of its step, as it was read last */
};

void passive_log_init(struct passive_log *passive_log, struct log *log);
void passive_log_close(struct passive_log *passive_log);

/* NULL, as for all that follow: recording has stopped (log_writer.h), or memory is out. */
struct passive_session *passive_session_start(struct passive_log *passive_log,
					      const struct passive_attachment *attachment);

/* Ends and frees it. */
void passive_session_end(struct passive_session *session, enum log_session_end how);

/* Equal for statements that are the same by what is known of them. */
uint64_t passive_statement_fingerprint(const struct passive_statement *statement);

/* The statement with this fingerprint, written if it is new. */
struct logged_statement *passive_session_statement(struct passive_session *session,
						   const struct passive_statement *what,
						   uint64_t fingerprint);

/* The cell of a line, written if it is new; 0: see above. */
uint32_t passive_session_line(struct passive_session *session, struct logged_statement *statement,
			      uint32_t line, uint32_t column);

/*
 * A record source that was seen before.  NULL: it is new, or not certain yet, and its step has to be
 * read.
 */
struct logged_source *passive_session_find_source(struct logged_statement *statement,
						  const struct passive_source *what);

/*
 * The same with its step.  It is written when the same step has been read twice, as its memory may have been freed
 * before it was read: until then its cell is 0.
 */
struct logged_source *passive_session_source(struct passive_session *session,
					     struct logged_statement *statement,
					     const struct passive_source *what, const char *step);

#endif
