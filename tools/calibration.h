/*
 * Calibration: learns the layout of an engine (passive/layout.h) in a process of its own, on
 * scratch databases, by the engine's own profiler or monitoring tables.
 */
#ifndef FBPROF_CALIBRATION_H
#define FBPROF_CALIBRATION_H

#include "../passive/layout.h"

#include <stdbool.h>

struct calibration {
	const char *client;    /* the client library that goes with the engine */
	const char *engine;    /* the engine's file, as this process will load it */
	const char *directory; /* for databases; exists, and is emptied by the caller */
	const char *identity;  /* of the engine's file */
	bool quiet;	       /* no progress on stderr */
};

/*
 * In a process whose environment makes Firebird load that engine.  Returns false, with a sentence
 * in `error` (to be freed), if the layout can't be learnt or is not verified.
 */
bool calibrate(const struct calibration *calibration, struct layout *layout, char **error);

#endif
