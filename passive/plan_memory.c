#include "plan_memory.h"

#include <stdlib.h>
#include <string.h>

/*
 * So many positions are remembered.  Each has its place among a few: had it but one, two that are often
 * met might drive each other out for ever, and neither's record sources be told.
 */
#define SLOTS  512u
#define PLACES 8u

struct slot {
	uint64_t hash; /* of the requests; 0: none */
	uint64_t put;  /* when; the one that was longest ago gives way */
	uint32_t count, room;
	uint64_t *frames;
};

struct plan_memory {
	uint64_t puts;
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

/* That of the position, or where it may be put. */
static uint32_t find_slot(const struct plan_memory *memory, uint64_t hash)
{
	uint32_t first = (uint32_t)(hash % (SLOTS / PLACES)) * PLACES, oldest = first;

	for (uint32_t i = first; i < first + PLACES; i++) {
		if (memory->slots[i].hash == hash)
			return i;
		if (memory->slots[i].put < memory->slots[oldest].put)
			oldest = i;
	}
	return oldest;
}

void plan_memory_put(struct plan_memory *memory, const struct position *bare,
		     const struct position *full)
{
	uint64_t hash = hash_of(bare);
	struct slot *slot = &memory->slots[find_slot(memory, hash)];

	if (slot->room < full->count) {
		free(slot->frames);
		slot->frames = malloc(full->count * sizeof(*slot->frames));
		slot->room = slot->frames ? full->count : 0;
	}
	slot->hash = slot->room ? hash : 0;
	slot->put = ++memory->puts;
	slot->count = full->count;
	if (slot->room)
		memcpy(slot->frames, full->frames, full->count * sizeof(*slot->frames));
}

void plan_memory_complete(const struct plan_memory *memory, struct position *position)
{
	uint64_t hash = hash_of(position);
	const struct slot *slot = &memory->slots[find_slot(memory, hash)];

	if (slot->hash != hash)
		return;
	position->count = slot->count;
	memcpy(position->frames, slot->frames, slot->count * sizeof(*slot->frames));
}
