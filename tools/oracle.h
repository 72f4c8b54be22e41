/*
 * What tells a calibration (calibration.h) where the engine is: the engine's own profiler from 5.0
 * on, else its monitoring tables.
 */
#ifndef FBPROF_ORACLE_H
#define FBPROF_ORACLE_H

#include "../passive/learn.h"
#include "client.h"

/* Is called with each moment that the oracle knows. */
typedef void oracle_callback(void *context, const struct learn_moment *moment);

/* ---- The profiler (oracle_profiler.c) ---- */

#define ORACLE_PROFILER "FBPROF_CALIBRATION" /* name of its plugin */

/*
 * Registers a profiler plugin that is in this program.  Right after the client library was loaded,
 * before it loads a module of its own.  Once.
 */
void oracle_profiler_register(struct fb_master *master);

/*
 * What the next moments are of: the thread that will execute, and its attachment.  The callback is
 * called in that thread, in the midst of the engine.  The texts must stay.
 */
void oracle_profiler_watch(const struct learn_moment *attachment, oracle_callback *callback,
			   void *context);

/* A statement of the client begins: what is started from now on is its, or within it. */
void oracle_profiler_statement(void);

/* ---- The monitoring tables (oracle_monitor.c) ---- */

/*
 * What an attachment is executing that is held at a gate (calibration_sql.h).  One callback, in
 * this thread, if it is a single chain of calls.  `seen` is false if the tables do not tell of this
 * gate yet.
 */
bool oracle_monitor_look(struct client_attachment *monitor, const struct learn_moment *attachment,
			 guint64 gate, bool *seen, oracle_callback *callback, void *context,
			 char **error);

#endif
