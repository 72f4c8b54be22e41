/*
 * See known_chain.h.
 */
#include "known_chain.h"

#include <string.h>

bool known_chain_find(const struct known_chain *chain, uint64_t request, uint32_t guess,
		      uint32_t *place)
{
	if (guess < chain->count && chain->requests[guess].request == request) {
		*place = guess;
		return true;
	}
	for (uint32_t i = chain->count; i-- > 0;) {
		if (chain->requests[i].request == request) {
			*place = i;
			return true;
		}
	}
	return false;
}

uint32_t known_chain_path(const struct known_chain *chain, uint64_t head,
			  uint32_t path[PASSIVE_DEPTH])
{
	uint32_t depth = 0, place;

	if (!known_chain_find(chain, head, chain->depth - 1, &place))
		return 0;
	while (place >= chain->depth) {
		uint64_t caller = chain->requests[place].caller;

		if (depth == KNOWN_SPARE)
			return 0;
		path[depth++] = place;
		if (caller == 0)
			return depth;
		if (!known_chain_find(chain, caller, chain->depth - 1, &place))
			return 0;
	}
	if (depth + place + 1 > PASSIVE_DEPTH)
		return 0;
	for (uint32_t i = place + 1; i-- > 0;)
		path[depth++] = i;
	return depth;
}

/* The inner ones of the chain, and what was in it before. */
uint32_t known_chain_likely(const struct known_chain *chain, uint64_t *requests, uint32_t room)
{
	uint32_t spare = chain->count - chain->depth, inner = room / 2, count = 0;

	if (spare < room - inner)
		inner = room - spare;
	for (uint32_t i = chain->depth; i > 0 && count < inner; i--)
		requests[count++] = chain->requests[i - 1].request;
	for (uint32_t i = chain->depth; i < chain->count && count < room; i++)
		requests[count++] = chain->requests[i].request;
	return count;
}

/* A path is some spare places, and then those of the chain one after the other. */
static bool is_in_path(const struct known_chain *chain, const uint32_t *path, uint32_t depth,
		       uint32_t place)
{
	for (uint32_t i = 0; i < depth; i++) {
		if (path[i] == place)
			return true;
		if (path[i] < chain->depth)
			return place < path[i] && place >= path[depth - 1];
	}
	return false;
}

/* Those of the old chain that are in it no more, and then what was spare before. */
static uint32_t find_spares(const struct known_chain *chain, const uint32_t *path, uint32_t depth,
			    struct known_request spares[KNOWN_SPARE])
{
	uint32_t count = 0, low = chain->depth > KNOWN_SPARE ? chain->depth - KNOWN_SPARE : 0;

	for (uint32_t i = chain->depth; i-- > low;) {
		if (chain->requests[i].request != 0 && !is_in_path(chain, path, depth, i))
			spares[count++] = chain->requests[i];
	}
	for (uint32_t i = chain->depth; i < chain->count && count < KNOWN_SPARE; i++) {
		if (chain->requests[i].request != 0 && !is_in_path(chain, path, depth, i))
			spares[count++] = chain->requests[i];
	}
	return count;
}

/* Those of the chain move outwards, if at all; spare ones may be in their way. */
static void move_path(struct known_chain *chain, const uint32_t *path, uint32_t depth)
{
	struct known_request called[KNOWN_SPARE];
	uint32_t count = 0;

	while (count < depth && path[count] >= chain->depth) {
		called[count] = chain->requests[path[count]];
		count++;
	}
	for (uint32_t i = 0; i < depth - count; i++)
		chain->requests[i] = chain->requests[path[depth - 1 - i]];
	for (uint32_t i = 0; i < count; i++)
		chain->requests[depth - 1 - i] = called[i];
}

/* What is fresh need not stay where it was. */
static void forget_fresh(struct known_chain *chain, const struct known_request *fresh,
			 uint32_t fresh_count)
{
	for (uint32_t i = 0; i < chain->count; i++) {
		for (uint32_t j = 0; j < fresh_count; j++) {
			if (chain->requests[i].request == fresh[j].request)
				chain->requests[i].request = 0;
		}
	}
}

bool known_chain_arrange(struct known_chain *chain, const uint32_t *path, uint32_t depth,
			 const struct known_request *fresh, uint32_t fresh_count)
{
	struct known_request spares[KNOWN_SPARE];
	uint32_t new_depth = depth + fresh_count, spare;

	if (new_depth > PASSIVE_DEPTH)
		return false;
	if (new_depth == chain->depth && fresh_count == 0 && path[0] == new_depth - 1)
		return true;
	forget_fresh(chain, fresh, fresh_count);
	spare = find_spares(chain, path, depth, spares);
	move_path(chain, path, depth);
	for (uint32_t i = 0; i < fresh_count; i++)
		chain->requests[depth + i] = fresh[fresh_count - 1 - i];
	memcpy(&chain->requests[new_depth], spares, spare * sizeof(spares[0]));
	chain->depth = new_depth;
	chain->count = new_depth + spare;
	return true;
}

void known_chain_forget(struct known_chain *chain)
{
	chain->depth = chain->count = 0;
}
