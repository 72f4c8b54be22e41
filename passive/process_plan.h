/*
 * The position in plans of a process's threads, as its source (process_source.h) asks for it.  It is handed over, so
 * that only who wants it is linked with libunwind.
 */
#ifndef FBPROF_PROCESS_PLAN_H
#define FBPROF_PROCESS_PLAN_H

#include "plan.h"
#include "process.h"

/* Where the innermost request of a thread is. */
struct plan_place {
	uint64_t request;
	uint32_t line, column;
};

struct process_plan {
	void *context;
	/* As plan_stop() and plan_read_stopped(); or NULL. */
	bool (*stop)(void *context, pid_t thread, uint64_t *held, void (*meanwhile)(void *context),
		     void *meanwhile_context);
	void (*read_stopped)(void *context, struct plan_chain *chain);
	/*
	 * Where threads aren't stopped: a sample is asked for at one look, and taken at a later one; in between this
	 * returns false, and `chain` says that it is awaited.  `place` tells where the thread is now, and then where it
	 * was when this sample was asked for.
	 */
	bool (*sample)(void *context, pid_t thread, struct plan_place *place,
		       struct plan_chain *chain, void (*meanwhile)(void *context),
		       void *meanwhile_context);
	/* As plan_describe() and plan_free(). */
	void (*describe)(const void *context, const struct plan_source *source, char *text,
			 size_t size);
	void (*free)(void *context);
	/* The list of threads was read anew; may be NULL. */
	void (*update)(void *context, const struct process *process);
};

/*
 * False, with a sentence in `error`: the layout doesn't tell it, or it can't be read.  Else it is freed
 * by its free().
 */
bool process_plan_open(const struct process *process, const struct layout *layout,
		       struct process_plan *plan, char error[STACK_ERROR_SIZE]);

#endif
