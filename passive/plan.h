/*
 * The position in a plan of a process that runs the engine: which record sources a thread has active,
 * by a copy of its native stack and what was learnt of the engine (layout.h).  Used by one thread at a
 * time; the one that sampled by ptrace.
 */
#ifndef FBPROF_PASSIVE_PLAN_H
#define FBPROF_PASSIVE_PLAN_H

#include "layout.h"
#include "stack.h"
#include "stack_events.h"

struct plan_source {
	uint64_t object;  /* address of the record source */
	uint64_t request; /* address of the request that it works for; 0: not known */
	enum layout_plan_event event;
	bool root;	     /* of a cursor or sub-query */
	uint32_t function;   /* in the layout */
	uint32_t cursor, id; /* in its statement; cursor 0: not known */
	uint64_t type;	     /* address of its virtual functions: what step of a plan it is */
};

#define PLAN_DEPTH 1024

struct plan_chain {
	bool awaited;	  /* it was asked for, and will be there at a later look (process_plan.h) */
	uint64_t request; /* address of the one that was executing; 0: not known */
	uint32_t count;
	bool whole;				/* else the outer end is missing */
	struct plan_source sources[PLAN_DEPTH]; /* innermost first */
};

struct plan;

/* `engine_base` is the engine's load address.  NULL, with a sentence in `error`. */
struct plan *plan_new(pid_t process, const struct layout *layout, uint64_t engine_base,
		      char error[STACK_ERROR_SIZE]);
void plan_free(struct plan *plan);

/* The record sources in a sample of a stack. */
void plan_read(struct plan *plan, const struct stack_sample *sample, struct plan_chain *chain);

/*
 * Stops the thread for a moment, `held` ns, and calls `meanwhile` then (stack_stop()).  False, with errno, if it can't
 * be.  What was copied is read afterwards, which takes longer than the stop.
 */
bool plan_stop(struct plan *plan, pid_t thread, uint64_t *held, void (*meanwhile)(void *context),
	       void *context);
void plan_read_stopped(struct plan *plan, struct plan_chain *chain);

/*
 * The record sources in a sample that was asked for, without a stop (stack_events_take()); `meanwhile` is called as
 * soon as the sample is there.
 */
bool plan_sample_events(struct plan *plan, struct stack_events *events, struct plan_chain *chain,
			void (*meanwhile)(void *context), void *context);

/*
 * The step of the plan, as the engine explains it, without what it has in parentheses: Table "T" as "A"
 * Full Scan.  "" if it isn't known; names are read now, so that of an object that is gone they aren't.
 */
void plan_describe(const struct plan *plan, const struct plan_source *source, char *text,
		   size_t size);

#endif
