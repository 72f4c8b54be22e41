/*
 * What an event costs the engine by its kind and the session's mode, in 1/1024 of the unit that
 * event_cost.h measures.  That depends on the engine and on the kind of CPU: `fbprof calibrate --costs` measures
 * it, and keeps what it found in the cache.  Who has not run it gets what was measured elsewhere.
 */
#ifndef FBPROF_COST_TABLE_H
#define FBPROF_COST_TABLE_H

#include "../output/log_format.h"
#include "../passive/cache.h"

#include <stdint.h>

/* What costs more of itself, beyond the kinds of events that the log knows. */
enum cost_kind {
	COST_FUNCTION =
		LOG_EVENTS, /* a request of a function, which the engine runs in three steps */
	COST_DETAILED,	    /* a request that is told apart: its own counters, its record … */
	COST_CELL,	    /* … and each of its cells that it looks up */
	COST_READ, /* a read of the clock, beyond what one of many in a row takes; measured */
	COSTS
};

#define COST_MODES (LOG_MODE_MEASURED + 1)

struct cost_table {
	int32_t cost[COST_MODES][COSTS];
};

/* Of the official 5.0.4 for x86-64, on a Xeon with AMX (family 6, model 167). */
extern const struct cost_table cost_table_default;

/* "line" and so on. */
const char *cost_kind_name(unsigned kind);

/*
 * IDENTITY.costs in the cache (cache.h).  False, with a sentence, and the default: there is none, it is
 * damaged, or of another kind of CPU or version of fbprof.  Any thread; no state.
 */
bool cost_table_load(struct cost_table *table, const char *directory, const char *identity,
		     char error[CACHE_ERROR_SIZE]);
bool cost_table_is_known(const char *directory, const char *identity);
bool cost_table_save(const struct cost_table *table, const char *directory, const char *identity,
		     char error[CACHE_ERROR_SIZE]);

#endif
