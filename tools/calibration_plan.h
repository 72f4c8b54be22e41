/*
 * The part of a calibration that is about record sources (passive/learn_plan.h): only engines with a
 * profiler tell enough.
 */
#ifndef FBPROF_CALIBRATION_PLAN_H
#define FBPROF_CALIBRATION_PLAN_H

#include "../passive/layout.h"
#include "client.h"

#include <stdbool.h>

/*
 * With oracle_plan.h's plugin registered and the engine loaded.  Makes databases in `directory`.  Returns
 * false, with a sentence in `error` (to be freed), if it isn't verified; the layout is then as it was.
 */
bool calibrate_plan(const struct client *client, const char *engine, const char *directory,
		    struct layout *layout, char **error);

#endif
