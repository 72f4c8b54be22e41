/*
 * The processes that are recorded: one that was asked for, and the children that it has or will have,
 * for a Classic server has a process for each connection.  Each is recorded once it has loaded an
 * engine whose layout is known.  One thread at a time.
 */
#ifndef FBPROF_TARGETS_H
#define FBPROF_TARGETS_H

#include "process_plan.h"
#include "recorder.h"

struct targets;

#define TARGETS_ERROR_SIZE LAYOUT_ERROR_SIZE

struct targets_options {
	pid_t pid;
	bool children;	     /* follow its children, too */
	const char *layouts; /* directory of the layout cache; NULL: the default (layout.h) */
	/* process_plan_open() or the like, if record sources are to be recorded, too; else NULL. */
	bool (*open_plan)(const struct process *process, const struct layout *layout,
			  struct process_plan *plan, char error[STACK_ERROR_SIZE]);
	/* Says why a child, or the record sources of a process, are not recorded; may be NULL. */
	void (*warn)(pid_t pid, const char *sentence);
};

/*
 * NULL, with a sentence in `error` that says what to do, if the process is no Firebird, can't be read,
 * or its engine's layout isn't known.  That there is no engine in it yet is no error.
 */
struct targets *targets_new(struct recorder *recorder, const struct targets_options *options,
			    char error[TARGETS_ERROR_SIZE]);

/* Takes them from the recorder, too. */
void targets_free(struct targets *targets);

/*
 * Looks for new children, engines that were loaded meanwhile, and processes that have ended; to be
 * called some times a second.  False: all have ended, or the process's engine can't be recorded: then
 * `error` says why.  Empty: it has ended.
 */
bool targets_update(struct targets *targets, char error[TARGETS_ERROR_SIZE]);

/* How many processes are recorded now. */
unsigned targets_recorded(const struct targets *targets);

#endif
