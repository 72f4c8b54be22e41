/*
 * The id table: see id_table.h.  Linear probing; removal moves later entries up, so that there are no
 * tombstones to slow a session in which millions of requests come and go.
 */
#include "id_table.h"

#include <stdlib.h>

struct id_table_slot {
	int64_t id;
	void *value; /* NULL: free */
};

static uint32_t home(const struct id_table *table, int64_t id)
{
	return (uint32_t)(((uint64_t)id * 0x9e3779b97f4a7c15u) >> 32) & (table->room - 1);
}

static struct id_table_slot *find(const struct id_table *table, int64_t id)
{
	uint32_t i = home(table, id);

	while (table->slots[i].value && table->slots[i].id != id)
		i = (i + 1) & (table->room - 1);
	return &table->slots[i];
}

bool id_table_init(struct id_table *table)
{
	*table = (struct id_table){ .room = 16 };
	table->slots = calloc(table->room, sizeof(*table->slots));
	return table->slots != NULL;
}

static bool grow(struct id_table *table)
{
	struct id_table old = *table;

	table->room = old.room * 2;
	table->slots = table->room ? calloc(table->room, sizeof(*table->slots)) : NULL;
	if (!table->slots) {
		*table = old;
		return false;
	}
	for (uint32_t i = 0; i < old.room; i++) {
		if (old.slots[i].value)
			*find(table, old.slots[i].id) = old.slots[i];
	}
	free(old.slots);
	return true;
}

bool id_table_put(struct id_table *table, int64_t id, void *value)
{
	struct id_table_slot *slot;

	if (table->count + 1 > table->room / 4 * 3 && !grow(table))
		return false;
	slot = find(table, id);
	if (!slot->value)
		table->count++;
	slot->id = table->last_id = id;
	slot->value = table->last = value;
	return true;
}

void *id_table_find(struct id_table *table, int64_t id)
{
	void *value = find(table, id)->value;

	if (value) {
		table->last_id = id;
		table->last = value;
	}
	return value;
}

void id_table_remove(struct id_table *table, int64_t id)
{
	struct id_table_slot *hole = find(table, id);
	uint32_t mask = table->room - 1, i = (uint32_t)(hole - table->slots);

	if (!hole->value)
		return;
	if (table->last == hole->value)
		table->last = NULL;
	table->count--;
	for (;;) {
		struct id_table_slot *slot;

		i = (i + 1) & mask;
		slot = &table->slots[i];
		if (!slot->value)
			break;
		/* It may move up unless its home lies between the hole (excluded) and itself. */
		if (((i - home(table, slot->id)) & mask) >=
		    ((i - (uint32_t)(hole - table->slots)) & mask)) {
			*hole = *slot;
			hole = slot;
		}
	}
	hole->value = NULL;
}

void id_table_free(struct id_table *table, void (*release)(void *context, void *value),
		   void *context)
{
	for (uint32_t i = 0; table->slots && i < table->room; i++) {
		if (table->slots[i].value)
			release(context, table->slots[i].value);
	}
	free(table->slots);
	*table = (struct id_table){ 0 };
}
