/*
 * Learns what a record source says of itself, from the objects in frames (learn_plan.h) and what a
 * session tells of them: its ids, its step of the plan, its table and alias.  In the process that runs
 * the engine; one thread at a time.
 */
#ifndef FBPROF_LEARN_SOURCE_H
#define FBPROF_LEARN_SOURCE_H

#include "bindings.h"
#include "layout.h"

struct learn_source;

/* `engine_base`: load address.  NULL: memory is out. */
struct learn_source *learn_source_new(uint64_t engine_base);
void learn_source_free(struct learn_source *learn);

/* `access_path`: its step of the plan, as the engine explains it.  `root`: it has no parent. */
void learn_source_define(struct learn_source *learn, const struct key *key, const char *access_path,
			 bool root);

/* The record source is the object there. */
void learn_source_look(struct learn_source *learn, const struct key *key, uint64_t object);

/* Puts what is left into the layout: facts without a path are absent. */
void learn_source_result(const struct learn_source *learn, struct layout *layout);

#endif
