/*
 * Where in plans positions were last seen.  The position in a plan is looked at more seldom than requests and lines: in
 * between, time goes to where the same position was in its plans when that was looked at last.  So the
 * time of a position is shared out among its record sources as often as they were seen there.
 *
 * One thread at a time; libc only.
 */
#ifndef FBPROF_PLAN_MEMORY_H
#define FBPROF_PLAN_MEMORY_H

#include "../sampler/position_source.h"

struct plan_memory;

/* NULL: out of memory. */
struct plan_memory *plan_memory_new(void);
void plan_memory_free(struct plan_memory *memory);

/* `bare`: requests only; `full`: with the record sources that were active. */
void plan_memory_put(struct plan_memory *memory, const struct position *bare,
		     const struct position *full);

/* Completes a position of requests only, if it was seen before. */
void plan_memory_complete(const struct plan_memory *memory, struct position *position);

#endif
