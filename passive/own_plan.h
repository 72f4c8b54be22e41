/*
 * The position in plans of the own process's threads: by perf events (stack_events.h), as a server is not to be
 * stopped.  This is a module of its own, libfbprof-plan.so, which is loaded when record sources are wanted in a
 * process that records itself: so nothing else in a server ever loads libunwind.
 *
 * Used by one thread, the recorder's, which must be no thread of the engine's.
 */
#ifndef FBPROF_OWN_PLAN_H
#define FBPROF_OWN_PLAN_H

#include "process_plan.h"

#define OWN_PLAN_MODULE "libfbprof-plan.so"
#define OWN_PLAN_OPEN	"fbprof_own_plan_open"

/* False, with a sentence in `error` that says what to do: it can't be had.  Else it is freed by its free(). */
typedef bool own_plan_open_function(const struct process *process, const struct layout *layout,
				    struct process_plan *plan, char error[STACK_ERROR_SIZE]);

own_plan_open_function fbprof_own_plan_open;

#endif
