/*
 * What a thread executes, read by a layout (layout.h) out of the engine's memory.
 */
#ifndef FBPROF_PASSIVE_POSITION_H
#define FBPROF_PASSIVE_POSITION_H

#include "layout.h"
#include "process.h"

#define PASSIVE_DEPTH 1024 /* Firebird allows 1000 levels of calls */

enum passive_state {
	PASSIVE_IDLE, /* not in the engine, or in no request */
	PASSIVE_BUSY,
	PASSIVE_TORN, /* it changed while it was read */
};

struct passive_request {
	uint64_t request, statement; /* addresses, to read texts by */
	uint64_t request_id, statement_id;
	uint32_t line, column;
};

/* In ns: to prepare the shortest statement takes more than twice as long, so none took another one's place. */
#define PASSIVE_PROMPT 20000

/* ns of CLOCK_MONOTONIC, by which positions tell when they were read. */
uint64_t passive_clock(void);

/* What a thread executes itself: a statement, and where in it. */
struct passive_head {
	uint64_t statement; /* address; 0: it wasn't seen */
	uint32_t line, column;
};

static inline bool passive_head_is(const struct passive_head *a, const struct passive_head *b)
{
	return a->statement == b->statement && a->line == b->line && a->column == b->column;
}

struct passive_position {
	uint64_t when;	     /* ns of CLOCK_MONOTONIC: it was so then, or later */
	uint64_t attachment; /* address */
	uint64_t attachment_id;
	/*
	 * Of the first time that a head was seen, also if nothing was told: if it had to be read again, what is
	 * told may be what came next.
	 */
	struct passive_head first;
	uint32_t count;
	struct passive_request requests[PASSIVE_DEPTH]; /* outermost first */
};

/*
 * Reads the position of a thread: what is BUSY was so at one instant, but for the line of the head, which
 * may be that of half a microsecond before or after.  Mostly two system calls, at the addresses that were
 * found last; so of one thread only one caller at a time.
 */
enum passive_state passive_read(pid_t process, const struct layout *layout,
				const struct process_thread *thread,
				struct passive_position *position);

/* What is read ahead next time, for a thread that has a TLS block; free() frees it.  NULL: no memory. */
struct passive_ahead *passive_ahead_new(void);

/* A text of an object; "" if there is none or it can't be read.  `size` includes NUL. */
void passive_text(pid_t process, const struct layout *layout, enum layout_fact fact,
		  uint64_t object, char *text, size_t size);

#endif
