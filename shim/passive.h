/*
 * MODE=PASSIVE in FBPROF_OPTIONS: a thread in the server that records all attachments by reading where
 * they are in memory (passive/recorder.h), from the moment that the engine is loaded.  In a process
 * whose FBPROF_OPTIONS don't say so there is no thread, and nothing of this costs anything.
 *
 * `fbprof passive` switches it off and on (passive/control.h).  While it is off, the thread sleeps.
 */
#ifndef FBPROF_SHIM_PASSIVE_H
#define FBPROF_SHIM_PASSIVE_H

/*
 * An engine is about to be loaded: starts the thread if it is wanted and not there yet.  What goes wrong
 * is said once in the server's log.  Any thread; keeps errno.
 */
void passive_engine_loads(void);

/* After fork, in the child: the thread and its memory are the parent's. */
void passive_forget(void);

#endif
