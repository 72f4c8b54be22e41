/*
 * A hash table from the engine's 64-bit ids to pointers, for one thread at a time.  Ids are mostly
 * consecutive, so a multiplication spreads them well.
 */
#ifndef FBPROF_ID_TABLE_H
#define FBPROF_ID_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct id_table {
	struct id_table_slot *slots; /* open addressing, a power of two */
	uint32_t room, count;
	int64_t last_id; /* that was put or found last, as it is often asked for again … */
	void *last;	 /* … or NULL */
};

/* Return false if memory is out; the table is then as it was. */
bool id_table_init(struct id_table *table);
bool id_table_put(struct id_table *table, int64_t id, void *value);

/* Without a look at what was found last. */
void *id_table_find(struct id_table *table, int64_t id);

/* NULL if there is none. */
static inline void *id_table_get(struct id_table *table, int64_t id)
{
	return table->last && table->last_id == id ? table->last : id_table_find(table, id);
}

void id_table_remove(struct id_table *table, int64_t id);

/* Calls `release` for each value and frees the table.  Works on one that is all zeros. */
void id_table_free(struct id_table *table, void (*release)(void *context, void *value),
		   void *context);

#endif
