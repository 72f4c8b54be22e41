/*
 * The call tree: see call_tree.h.  Nodes are found by hash of (parent, position); the path of the
 * last sample is kept, so that only what has changed since is looked up.
 */
#include "call_tree.h"

#include <stdlib.h>
#include <string.h>

#define NODES_PER_BLOCK (LOG_BLOCK_PAYLOAD / sizeof(struct log_node))

struct slot {
	uint32_t parent, statement, position, serial;
	uint32_t node; /* 0: free */
};

struct call_tree {
	struct log *log;
	uint32_t session;

	struct slot *slots; /* open addressing; a power of two of them, at most 3/4 used */
	uint32_t slot_count;
	struct log_block **blocks; /* node n is in blocks[(n - 1) / NODES_PER_BLOCK] */
	uint32_t block_room;
	uint32_t node_count;

	/* The frames charged last and the node that each leads to. */
	uint32_t last_count;
	uint64_t last_frame[FRAME_STACK_ROOM];
	uint32_t last_node[FRAME_STACK_ROOM];
};

struct call_tree *call_tree_new(struct log *log, uint32_t session)
{
	/* Not cleared: most of the last path's room is never touched. */
	struct call_tree *tree = malloc(sizeof(*tree));

	if (!tree)
		return NULL;
	tree->log = log;
	tree->session = session;
	tree->slot_count = 64;
	tree->slots = calloc(tree->slot_count, sizeof(*tree->slots));
	tree->blocks = NULL;
	tree->block_room = tree->node_count = tree->last_count = 0;
	if (!tree->slots) {
		free(tree);
		return NULL;
	}
	return tree;
}

void call_tree_free(struct call_tree *tree)
{
	if (!tree)
		return;
	free(tree->slots);
	free(tree->blocks);
	free(tree);
}

static struct log_node *node_at(struct call_tree *tree, uint32_t node)
{
	struct log_block *block = tree->blocks[(node - 1) / NODES_PER_BLOCK];

	return (struct log_node *)block->payload + (node - 1) % NODES_PER_BLOCK;
}

/* Multiply-and-fold over the four words; the constants are odd and have no pattern. */
static uint32_t hash(const struct slot *key)
{
	uint64_t h = ((uint64_t)key->parent << 32 | key->position) * 0x9e3779b97f4a7c15u;

	h ^= h >> 32;
	h += (uint64_t)key->statement << 32 | key->serial;
	h *= 0xd6e8feb86659fd93u;
	return (uint32_t)(h >> 32);
}

static struct slot *find(struct slot *slots, uint32_t count, const struct slot *key)
{
	for (uint32_t i = hash(key) & (count - 1);; i = (i + 1) & (count - 1)) {
		struct slot *slot = &slots[i];

		if (!slot->node ||
		    (slot->parent == key->parent && slot->position == key->position &&
		     slot->statement == key->statement && slot->serial == key->serial))
			return slot;
	}
}

static bool grow_index(struct call_tree *tree)
{
	uint32_t count = tree->slot_count * 2;
	struct slot *slots = count ? calloc(count, sizeof(*slots)) : NULL;

	if (!slots)
		return false;
	for (uint32_t i = 0; i < tree->slot_count; i++) {
		if (tree->slots[i].node)
			*find(slots, count, &tree->slots[i]) = tree->slots[i];
	}
	free(tree->slots);
	tree->slots = slots;
	tree->slot_count = count;
	return true;
}

static struct log_block *add_block(struct call_tree *tree)
{
	uint32_t index = tree->node_count / NODES_PER_BLOCK;
	struct log_block *block;

	if (index == tree->block_room) {
		uint32_t room = tree->block_room ? tree->block_room * 2 : 16;
		struct log_block **blocks =
			realloc(tree->blocks, room * sizeof(struct log_block *));

		if (!blocks)
			return NULL;
		tree->blocks = blocks;
		tree->block_room = room;
	}
	block = log_block_new(tree->log);
	if (!block)
		return NULL;
	block->session = tree->session;
	block->first = tree->node_count + 1;
	block->item_size = sizeof(struct log_node);
	log_block_publish(block, LOG_BLOCK_NODES);
	tree->blocks[index] = block;
	return block;
}

/* The node for `key`, made if it is new; 0 if that fails. */
static uint32_t child(struct call_tree *tree, const struct slot *key)
{
	struct slot *slot = find(tree->slots, tree->slot_count, key);
	struct log_block *block;
	struct log_node *node;

	if (slot->node)
		return slot->node;
	if (tree->node_count + 1 > tree->slot_count / 4 * 3) {
		if (!grow_index(tree))
			return 0;
		slot = find(tree->slots, tree->slot_count, key);
	}
	if (tree->node_count % NODES_PER_BLOCK == 0 && !add_block(tree))
		return 0;

	block = tree->blocks[tree->node_count / NODES_PER_BLOCK];
	node = (struct log_node *)block->payload + tree->node_count % NODES_PER_BLOCK;
	node->parent = key->parent;
	node->statement = key->statement;
	node->position = key->position;
	node->serial = key->serial;
	atomic_store_explicit((_Atomic uint32_t *)&block->count,
			      tree->node_count % NODES_PER_BLOCK + 1, memory_order_release);

	*slot = *key;
	slot->node = ++tree->node_count;
	return slot->node;
}

static uint32_t position_of(enum log_node_kind kind, uint32_t cell)
{
	return (uint32_t)kind << LOG_NODE_CELL_BITS | cell;
}

/* The node that `frame` leads to below `parent`, where `before` is the frame under it. */
static uint32_t descend(struct call_tree *tree, uint32_t parent, uint64_t before, uint64_t frame)
{
	struct slot key = { .parent = parent, .statement = frame_statement(frame) };

	switch (frame_kind(frame)) {
	case FRAME_SERIAL:
		return parent;
	case FRAME_REQUEST:
		if (frame_kind(before) == FRAME_SERIAL)
			key.serial = (uint32_t)before;
		key.position = position_of(LOG_NODE_REQUEST, 0);
		parent = child(tree, &key);
		if (!parent || !frame_is_in_line(frame))
			return parent;
		key.parent = parent;
		key.serial = 0;
		key.position = position_of(LOG_NODE_LINE, frame_cell(frame));
		return child(tree, &key);
	case FRAME_RECORD_SOURCE:
		key.position = position_of(LOG_NODE_RECORD_SOURCE, frame_cell(frame));
		return child(tree, &key);
	}
	return parent;
}

static uint32_t find_node(struct call_tree *tree, const struct position *position)
{
	const uint64_t *frames = position->frames;
	uint32_t same = 0, node;

	while (same < position->count && same < tree->last_count &&
	       frames[same] == tree->last_frame[same])
		same++;
	node = same ? tree->last_node[same - 1] : 0;
	for (uint32_t i = same; i < position->count; i++) {
		/* A node of 0 below the first frame means that the tree could not grow. */
		node = descend(tree, node, i ? frames[i - 1] : 0, frames[i]);
		if (!node && frame_kind(frames[i]) != FRAME_SERIAL) {
			tree->last_count = i;
			return 0;
		}
		tree->last_frame[i] = frames[i];
		tree->last_node[i] = node;
	}
	tree->last_count = position->count;
	return node;
}

/* Adds to a word of the log of which this thread is the only writer; readers see old or new. */
static void add(uint64_t *word, uint64_t value)
{
	atomic_store_explicit((_Atomic uint64_t *)word, *word + value, memory_order_relaxed);
}

bool call_tree_charge(struct call_tree *tree, const struct position *position,
		      const struct sample *sample)
{
	struct log_node *charged;
	uint32_t node = 0;

	if (position->count)
		node = find_node(tree, position);
	else if (tree->last_count)
		node = tree->last_node[tree->last_count - 1];
	if (!node)
		return false;
	charged = node_at(tree, node);
	add(&charged->self_time, sample->time);
	add(&charged->cost, sample->cost);
	add(&charged->cpu_time, sample->cpu_time);
	add(&charged->samples, 1);
	return true;
}
