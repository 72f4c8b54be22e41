#include "plan_memory.h"

#include <stdlib.h>
#include <string.h>

/* So many positions are remembered; one that comes later may take another's place. */
#define SLOTS 512u

struct slot {
	uint64_t hash; /* of the requests; 0: none */
	uint32_t count, room;
	uint64_t *frames;
};

struct plan_memory {
	struct slot slots[SLOTS];
};

struct plan_memory *plan_memory_new(void)
{
	return calloc(1, sizeof(struct plan_memory));
}

void plan_memory_free(struct plan_memory *memory)
{
	if (!memory)
		return;
	for (uint32_t i = 0; i < SLOTS; i++)
		free(memory->slots[i].frames);
	free(memory);
}

/* Never 0.  That two positions have the same one is too unlikely to matter. */
static uint64_t hash_of(const struct position *position)
{
	uint64_t hash = position->count;

	for (uint32_t i = 0; i < position->count; i++) {
		hash = (hash ^ position->frames[i]) * 0x9e3779b97f4a7c15u;
		hash ^= hash >> 29;
	}
	return hash ? hash : 1;
}

void plan_memory_put(struct plan_memory *memory, const struct position *bare,
		     const struct position *full)
{
	uint64_t hash = hash_of(bare);
	struct slot *slot = &memory->slots[hash % SLOTS];

	if (slot->room < full->count) {
		free(slot->frames);
		slot->frames = malloc(full->count * sizeof(*slot->frames));
		slot->room = slot->frames ? full->count : 0;
	}
	slot->hash = slot->room ? hash : 0;
	slot->count = full->count;
	if (slot->room)
		memcpy(slot->frames, full->frames, full->count * sizeof(*slot->frames));
}

void plan_memory_complete(const struct plan_memory *memory, struct position *position)
{
	uint64_t hash = hash_of(position);
	const struct slot *slot = &memory->slots[hash % SLOTS];

	if (slot->hash != hash)
		return;
	position->count = slot->count;
	memcpy(position->frames, slot->frames, slot->count * sizeof(*slot->frames));
}
