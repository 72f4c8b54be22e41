/*
 * Learns where a native stack tells the position in a plan (enum layout_plan_event), from the events of
 * a profiler session in the own process.
 *
 * A frame that is there before an activity (an open, a fetch, a line) and is still there after it, and
 * is the innermost such frame, is of the function that executes the activity.  Of these functions the
 * register is looked for that is one-to-one with what they work on.  A second workload must then agree
 * at every event: the objects in the frames of the whole stack are those of the open activities.
 *
 * Called on the thread that executes, within the event; one thread at a time.
 */
#ifndef FBPROF_LEARN_PLAN_H
#define FBPROF_LEARN_PLAN_H

#include "layout.h"

struct learn_plan;

struct learn_plan_event {
	enum layout_plan_event kind; /* LAYOUT_PLAN_REQUEST: a line of PSQL begins or ends */
	bool before;
	int64_t statement, request; /* ids */
	uint32_t cursor, source;    /* of an open or fetch, as the session tells them */
	uint64_t request_address;   /* by an already learnt path; 0: not known */
};

/* `engine`: any address in its code.  NULL, with a sentence in `error`, if it can't begin. */
struct learn_plan *learn_plan_new(const void *engine, char error[LAYOUT_ERROR_SIZE]);
void learn_plan_free(struct learn_plan *learn);

/* A record source is defined: its parent, 0 if none, and its step of the plan. */
void learn_plan_define(struct learn_plan *learn, int64_t statement, uint32_t cursor,
		       uint32_t source, uint32_t parent, const char *access_path);
void learn_plan_event(struct learn_plan *learn, const struct learn_plan_event *event);

/* After the first workload: what comes from now on is to agree.  False: no rule is left. */
bool learn_plan_settle(struct learn_plan *learn, char error[LAYOUT_ERROR_SIZE]);

/*
 * After the second: puts functions and the facts of record sources into `layout`, and returns true; or
 * says what disagreed.  `verified` is how many events agreed.
 */
bool learn_plan_result(const struct learn_plan *learn, struct layout *layout, uint64_t *verified,
		       char error[LAYOUT_ERROR_SIZE]);

#endif
