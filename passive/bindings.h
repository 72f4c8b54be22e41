/*
 * What is one-to-one: a key with one value, for ever; a value with one key, until it passes to a later
 * one, as the memory of an object that is gone is given to another.  One thread at a time.
 */
#ifndef FBPROF_BINDINGS_H
#define FBPROF_BINDINGS_H

#include <stdbool.h>
#include <stdint.h>

/* What an activity works on: a record source, or (with all but `first` 0) a request. */
struct key {
	int64_t first; /* statement or request: later ones have higher numbers */
	uint32_t cursor, source;
};

struct binding {
	struct key key;
	uint64_t value;
};

/* All zeros: nothing is bound yet. */
struct bindings {
	struct binding *all;
	uint32_t count, room;
	bool broken;
};

bool key_equal(const struct key *a, const struct key *b);

/* False, from then on, if it contradicts what was bound (or memory is out). */
bool bindings_add(struct bindings *bindings, const struct key *key, uint64_t value);

/* They are broken afterwards. */
void bindings_free(struct bindings *bindings);

#endif
