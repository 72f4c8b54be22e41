/*
 * See witness.h.
 */
#include "witness.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

/* Of a text, how much is kept at each of its ends; shorter ones are kept whole. */
#define TEXT_END 1024u

/* Of a text that ends with NUL, what is kept; names are shorter. */
#define NAME_SIZE 256u

#define BYTES_MAX 8192u

static const enum layout_fact facts[] = { LAYOUT_SQL_TEXT,	    LAYOUT_PROCEDURE,
					  LAYOUT_FUNCTION,	    LAYOUT_TRIGGER,
					  LAYOUT_PROCEDURE_PACKAGE, LAYOUT_FUNCTION_PACKAGE };

struct witness {
	bool whole; /* nothing was left out */
	unsigned count;
	uint32_t size;
	struct {
		uint64_t address;
		uint32_t size;
	} pieces[MEMORY_PIECES];
	unsigned char bytes[]; /* of the pieces, one after another */
};

/* While it is put together. */
struct draft {
	pid_t process;
	struct witness *witness;
};

/* Reads a piece and keeps it.  False: it can't be read, or there is no room. */
static bool keep(struct draft *draft, uint64_t address, uint32_t size, void *copy)
{
	struct witness *witness = draft->witness;
	unsigned char *bytes = witness->bytes + witness->size;

	if (witness->count == MEMORY_PIECES || size > BYTES_MAX - witness->size ||
	    !memory_load(draft->process, address, bytes, size)) {
		witness->whole = false;
		return false;
	}
	if (copy)
		memcpy(copy, bytes, size);
	witness->pieces[witness->count].address = address;
	witness->pieces[witness->count++].size = size;
	witness->size += size;
	return true;
}

/* Both ends of a text whose length is known. */
static void keep_text(struct draft *draft, uint64_t text, uint32_t length)
{
	uint32_t head = length < 2 * TEXT_END ? length : TEXT_END;

	if (head)
		keep(draft, text, head, NULL);
	if (length > head)
		keep(draft, text + length - TEXT_END, TEXT_END, NULL);
}

static void keep_name(struct draft *draft, uint64_t text)
{
	char name[NAME_SIZE];

	memory_text(draft->process, text, name, sizeof(name));
	keep(draft, text, (uint32_t)strnlen(name, sizeof(name) - 1) + 1, NULL);
}

static void keep_fact(struct draft *draft, const struct layout_path *path, uint64_t object)
{
	uint64_t pointer = object, address = 0;
	uint32_t length;

	for (uint32_t i = 0; i < path->steps; i++) {
		address = pointer + (uint64_t)(int64_t)path->offset[i];
		if (i + 1 < path->steps &&
		    (!keep(draft, address, sizeof(pointer), &pointer) || !pointer))
			return;
	}
	switch (path->type) {
	case LAYOUT_TEXT:
		if (keep(draft, address, sizeof(pointer), &pointer) &&
		    keep(draft, address + (uint64_t)(int64_t)path->length, sizeof(length),
			 &length) &&
		    pointer)
			keep_text(draft, pointer, length);
		break;
	case LAYOUT_TEXT_ZERO:
		if (keep(draft, address, sizeof(pointer), &pointer) && pointer)
			keep_name(draft, pointer);
		break;
	case LAYOUT_TEXT_INLINE:
		keep_name(draft, address);
		break;
	default:
		break;
	}
}

struct witness *witness_new(pid_t process, const struct layout *layout, uint64_t statement)
{
	struct draft draft = { process, malloc(sizeof(struct witness) + BYTES_MAX) };
	struct witness *smaller;

	if (!draft.witness)
		return NULL;
	memset(draft.witness, 0, sizeof(*draft.witness));
	draft.witness->whole = true;
	for (unsigned i = 0; i < sizeof(facts) / sizeof(*facts); i++)
		keep_fact(&draft, &layout->path[facts[i]], statement);
	smaller = realloc(draft.witness, sizeof(struct witness) + draft.witness->size);
	return smaller ? smaller : draft.witness;
}

bool witness_agrees(pid_t process, const struct witness *witness)
{
	struct memory_piece pieces[MEMORY_PIECES];
	unsigned char bytes[BYTES_MAX];
	uint32_t size = 0;

	if (!witness->whole)
		return false;
	for (unsigned i = 0; i < witness->count; i++) {
		pieces[i] = (struct memory_piece){ witness->pieces[i].address, bytes + size,
						   witness->pieces[i].size };
		size += witness->pieces[i].size;
	}
	return witness->count && memory_read(process, pieces, witness->count) &&
	       !memcmp(bytes, witness->bytes, size);
}
