/*
 * What events cost (shim/cost_table.h): measured on the engine and the machine at hand, in a process of
 * its own that has libfbprof.so preloaded, on a scratch database.  From one process to the next it differs
 * by some percent, as the code lies elsewhere: take the mean of several.
 */
#ifndef FBPROF_COST_CALIBRATION_H
#define FBPROF_COST_CALIBRATION_H

#include "../shim/cost_table.h"

#include <stdbool.h>

struct cost_calibration {
	const char *client;    /* the client library that goes with the engine */
	const char *directory; /* for the database; exists, and is emptied by the caller */
	const char *logs;      /* where libfbprof.so writes its log */
};

/*
 * Some 7 s.  False, with a sentence in `error` (to be freed): something failed, or the machine was too
 * busy for what was found to explain what was measured.
 */
bool calibrate_costs(const struct cost_calibration *calibration, struct cost_table *table,
		     char **error);

#endif
