/*
 * Which statement is at an address, in the memory of an engine that goes on meanwhile: what was there a
 * moment ago may have been freed since, and another one be there now.
 *
 * As long as the same request runs it, a statement stays where it is; so a request that was seen before
 * tells for certain.  Otherwise its texts are checked.  If that is done within PASSIVE_PROMPT after the
 * position was read, there was no time for another one: a statement must be prepared before it can be
 * where one was.  Else they are checked once more, with the position read in between: if they were the
 * same before and after, they were at that moment.  An attachment's; used by the recorder.
 */
#ifndef FBPROF_KNOWN_STATEMENTS_H
#define FBPROF_KNOWN_STATEMENTS_H

#include "passive_log.h"
#include "recorder.h"

/* Of SQL texts, what is recorded. */
#define TEXT_BYTES 65536

/* Where texts are read to; one for all attachments. */
struct text_room {
	char routine[256], package[256], sql_text[TEXT_BYTES];
};


struct known_statements {
	struct recorder_source *source;
	struct passive_session *session;
	struct text_room *room;
	struct id_table by_address;
	bool stopped; /* the log is full, or memory is out */

	/* What was read, in the order in which it was: each read has the next number. */
	uint64_t last_read, look, position;
};

/* False: out of memory. */
bool known_statements_init(struct known_statements *known, struct recorder_source *source,
			   struct passive_session *session, struct text_room *room);
void known_statements_free(struct known_statements *known);

/* Before a look. */
void known_statements_begin(struct known_statements *known);

/* The position was read, in this look for the first time or once more. */
void known_statements_position_read(struct known_statements *known);

/*
 * Finds the statements of a position's requests, and writes to the log what is new.  False: it isn't
 * certain that they were there when the position was read; another read may help, unless `stopped`.
 */
bool known_statements_find(struct known_statements *known, const struct passive_position *position,
			   struct logged_statement **statements);

#endif
