/*
 * The call tree of a session: a node for each distinct path that was sampled, with its time.  The
 * nodes are in the log's blocks and thus survive the process; the index to find them is private.
 * Used by the sampler's thread only.
 */
#ifndef FBPROF_CALL_TREE_H
#define FBPROF_CALL_TREE_H

#include "../output/log_writer.h"
#include "position_source.h"

struct call_tree;

/* NULL: out of memory. */
struct call_tree *call_tree_new(struct log *log, uint32_t session);
void call_tree_free(struct call_tree *tree);

/* What a look stands for; times in ns. */
struct sample {
	uint64_t time; /* without `cost` */
	uint64_t cost; /* of profiling itself */
	uint64_t cpu_time;
};

/*
 * Adds a sample to the node of this position.  With no frames it goes to the position of the call
 * before, if there was one.  Returns false if it could not be kept (recording has stopped, out of
 * memory, no position).
 */
bool call_tree_charge(struct call_tree *tree, const struct position *position,
		      const struct sample *sample);

#endif
