/*
 * The position in plans of a process's threads, as its source (process_source.h) asks for it.  It is handed over, so
 * that only who wants it is linked with libunwind.
 */
#ifndef FBPROF_PROCESS_PLAN_H
#define FBPROF_PROCESS_PLAN_H

#include "plan.h"
#include "process.h"

struct process_plan {
	void *context;
	/* As plan_sample(), plan_describe() and plan_free(). */
	bool (*sample)(void *context, pid_t thread, struct plan_chain *chain,
		       void (*meanwhile)(void *context), void *meanwhile_context);
	void (*describe)(const void *context, const struct plan_source *source, char *text,
			 size_t size);
	void (*free)(void *context);
};

/*
 * False, with a sentence in `error`: the layout doesn't tell it, or it can't be read.  Else it is freed
 * by its free().
 */
bool process_plan_open(const struct process *process, const struct layout *layout,
		       struct process_plan *plan, char error[STACK_ERROR_SIZE]);

#endif
