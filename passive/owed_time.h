/*
 * Time of looks at a thread that is charged later.
 *
 * A look may see what the thread executes (the head), and be too late to tell who called it.  To look
 * again finds the thread rather where it stays than where it doesn't, so what is found then is not to have
 * the time of the look.  It goes to the next position with the same head that is told for certain: whether
 * a look comes too late depends on the head, hardly on where it was called from.
 *
 * Used by whoever looks at the thread; times in ns.
 */
#ifndef FBPROF_PASSIVE_OWED_TIME_H
#define FBPROF_PASSIVE_OWED_TIME_H

#include "position.h"

/* So many heads are remembered; what is owed to one more is anybody's. */
#define OWED_HEADS 16

/* A head that was not seen again for so long hardly will be: what it is owed is anybody's. */
#define OWED_FOR 20000000u

struct owed_head {
	struct passive_head head;
	uint64_t time, since;
};

/* All zero: nothing is owed. */
struct owed_time {
	uint64_t anybodys; /* whatever the thread is found to execute next */
	uint32_t count;
	struct owed_head heads[OWED_HEADS];
};

/* Owes `time` to a head; if it has no statement, to anybody. */
void owed_time_add(struct owed_time *owed, const struct passive_head *head, uint64_t time,
		   uint64_t now);

/* What a position with this head is owed, which then isn't owed any more. */
uint64_t owed_time_take(struct owed_time *owed, const struct passive_head *head, uint64_t now);

#endif
