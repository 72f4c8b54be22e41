/*
 * Counters in the log: those of a statement, or of one of its requests.  They are written by the
 * thread that executes the attachment, and by no other; readers of the log see each store whole.
 */
#ifndef FBPROF_COUNTERS_H
#define FBPROF_COUNTERS_H

#include "../output/log_writer.h"
#include <stdatomic.h>

/* A block of the log for each 64 cells. */
struct counters {
	struct log_block **blocks;
	uint32_t count;
	struct log_block *first[1]; /* what `blocks` points to while one is enough */
};

void counters_init(struct counters *counters);

/*
 * Adds blocks until there is one for `cell`; each gets the header's fields from `head`.  Returns false
 * if recording has stopped or memory is out.
 */
bool counters_grow(struct counters *counters, struct log *log, const struct log_block *head,
		   uint32_t cell);

/* Lets go of the blocks: back to the log, or, if that is NULL, they stay in it as they are. */
void counters_release(struct counters *counters, struct log *log);

static inline uint64_t *cell_at(const struct counters *counters, uint32_t cell)
{
	return (uint64_t *)counters->blocks[cell / LOG_BLOCK_CELLS]->payload +
	       cell % LOG_BLOCK_CELLS;
}

/* This thread is the cell's only writer, so reading it back needs no order. */
static inline void set_cell(uint64_t *cell, uint64_t value)
{
	atomic_store_explicit((_Atomic uint64_t *)cell, value, memory_order_relaxed);
}

static inline void add_to_cell(uint64_t *cell, uint64_t value)
{
	set_cell(cell, *cell + value);
}

#endif
