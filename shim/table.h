/*
 * A hash table from the engine's 64-bit ids to pointers, for one thread at a time.  Ids are mostly
 * consecutive, so a multiplication spreads them well.
 */
#ifndef FBPROF_TABLE_H
#define FBPROF_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table {
	struct table_slot *slots; /* open addressing, a power of two */
	uint32_t room, count;
	int64_t last_id; /* that was put or found last, as it is often asked for again … */
	void *last;	 /* … or NULL */
};

/* Return false if memory is out; the table is then as it was. */
bool table_init(struct table *table);
bool table_put(struct table *table, int64_t id, void *value);

/* Without a look at what was found last. */
void *table_find(struct table *table, int64_t id);

/* NULL if there is none. */
static inline void *table_get(struct table *table, int64_t id)
{
	return table->last && table->last_id == id ? table->last : table_find(table, id);
}

void table_remove(struct table *table, int64_t id);

/* Calls `release` for each value and frees the table.  Works on one that is all zeros. */
void table_free(struct table *table, void (*release)(void *context, void *value), void *context);

#endif
