/*
 * The part of a calibration that is about record sources (passive/learn_steps.h), for engines without a
 * profiler: a thread executes, and its stacks are looked at.
 */
#ifndef FBPROF_CALIBRATION_STACKS_H
#define FBPROF_CALIBRATION_STACKS_H

#include "../passive/layout.h"
#include "client.h"

#include <stdbool.h>

/*
 * With the engine loaded, and a layout of all but record sources.  Makes databases in `directory`.  Uses SIGUSR2.
 * Returns false, with a sentence in `error` (to be freed), if it isn't verified; the layout is then as it
 * was.
 */
bool calibrate_stacks(const struct client *client, const char *engine, const char *directory,
		      struct layout *layout, char **error);

#endif
