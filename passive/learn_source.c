#include "learn_source.h"

#include "image_own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ids and texts are looked for in so many bytes of a record source; the engine's smallest has 56. */
#define OBJECT_SIZE 192u
#define WORDS	    (OBJECT_SIZE / 4)
/* Larger ones are parts of addresses. */
#define ID_MAX 1000000u
/* A table is a larger object, a name a small one. */
#define TABLE_SIZE 1024u
#define NAME_SIZE  64u

struct definition {
	struct key key;
	char *access_path;
	bool root, looked;
};

#define TEXT_PATHS 256u

/* Paths that led to a text in the first object, and the types (bits) where they don't. */
struct text_paths {
	uint64_t types; /* that have such a text */
	uint32_t count;
	struct layout_path all[TEXT_PATHS];
	uint64_t failed[TEXT_PATHS];
};

#define STEPS	  4
#define STEP_SIZE sizeof(((struct layout_plan_type *)0)->step)

struct known_type {
	uint64_t type;
	bool root;
	struct {
		unsigned count;
		char step[STEP_SIZE];
	} steps[STEPS];
};

struct learn_source {
	uint64_t base;
	struct definition *definitions;
	uint32_t count, room;
	struct bindings ids[WORDS];
	uint32_t greatest[WORDS];
	bool not_cursor[WORDS];
	struct text_paths tables, aliases;
	uint32_t type_count;
	struct known_type types[LAYOUT_PLAN_TYPES];
};

struct learn_source *learn_source_new(uint64_t engine_base)
{
	struct learn_source *learn = calloc(1, sizeof(*learn));

	if (learn)
		learn->base = engine_base;
	return learn;
}

void learn_source_free(struct learn_source *learn)
{
	if (!learn)
		return;
	for (uint32_t i = 0; i < learn->count; i++)
		free(learn->definitions[i].access_path);
	free(learn->definitions);
	for (unsigned i = 0; i < WORDS; i++)
		bindings_free(&learn->ids[i]);
	free(learn);
}

void learn_source_define(struct learn_source *learn, const struct key *key, const char *access_path,
			 bool root)
{
	struct definition *definition;

	if (learn->count == learn->room) {
		uint32_t room = learn->room ? 2 * learn->room : 64;

		definition = reallocarray(learn->definitions, room, sizeof(*definition));
		if (!definition)
			return; /* it tells texts only */
		learn->definitions = definition;
		learn->room = room;
	}
	definition = &learn->definitions[learn->count];
	*definition = (struct definition){ .key = *key,
					   .access_path = strdup(access_path),
					   .root = root };
	if (definition->access_path)
		learn->count++;
}

/* ---- Texts ---- */

/* Is it there, with NUL at its end? */
static bool text_at(uint64_t address, const char *text)
{
	char there[256];
	size_t size = strlen(text) + 1;

	return size <= sizeof(there) && own_image_read(address, there, size) &&
	       memcmp(there, text, size) == 0;
}

static bool leads_to(uint64_t object, const struct layout_path *path, const char *text)
{
	uint64_t address = object + (uint64_t)path->offset[0];

	for (uint32_t i = 1; i < path->steps; i++) {
		if (!own_image_read(address, &address, sizeof(address)))
			return false;
		address += (uint64_t)path->offset[i];
	}
	if (path->type == LAYOUT_TEXT_ZERO && !own_image_read(address, &address, sizeof(address)))
		return false;
	return text_at(address, text);
}

static void add_path(struct text_paths *paths, enum layout_type type, uint32_t steps,
		     const int32_t *offsets)
{
	struct layout_path *path = &paths->all[paths->count];

	if (paths->count == TEXT_PATHS)
		return;
	*path = (struct layout_path){ .type = type, .steps = steps };
	memcpy(path->offset, offsets, steps * sizeof(*offsets));
	paths->count++;
}

/* A text in an object of this size that the first `steps` offsets lead to; and behind its pointers. */
static void search_object(struct text_paths *paths, uint64_t address, uint32_t size, uint32_t steps,
			  int32_t *offsets, const char *text)
{
	unsigned char bytes[TABLE_SIZE];
	size_t length = strlen(text) + 1;

	if (!own_image_read(address, bytes, size))
		return;
	for (uint32_t i = 0; i + 8 <= size; i++) {
		uint64_t pointer;

		offsets[steps] = (int32_t)i;
		memcpy(&pointer, bytes + i, sizeof(pointer));
		if (i + length <= size && memcmp(bytes + i, text, length) == 0)
			add_path(paths, LAYOUT_TEXT_INLINE, steps + 1, offsets);
		if (i % 8 || pointer < 4096)
			continue;
		if (text_at(pointer, text))
			add_path(paths, LAYOUT_TEXT_ZERO, steps + 1, offsets);
		/* A record source leads to a table, that to a name, and the name has the text. */
		if (steps < 2)
			search_object(paths, pointer, steps ? NAME_SIZE : TABLE_SIZE, steps + 1,
				      offsets, text);
	}
}

static void learn_text(struct text_paths *paths, uint64_t object, uint32_t type, const char *text)
{
	int32_t offsets[LAYOUT_STEPS];
	bool begun = paths->types;

	paths->types |= 1ull << type;
	if (!begun) {
		search_object(paths, object, OBJECT_SIZE, 0, offsets, text);
		return;
	}
	for (uint32_t i = 0; i < paths->count; i++) {
		if (!leads_to(object, &paths->all[i], text))
			paths->failed[i] |= 1ull << type;
	}
}

/* What is between this and the next quote. */
static bool copy_quoted(const char *from, char *to, size_t room)
{
	const char *end = strchr(from, '"');

	if (!end || end == from || (size_t)(end - from) >= room)
		return false;
	memcpy(to, from, (size_t)(end - from));
	to[end - from] = 0;
	return true;
}

/* Table "T" as "A" Full Scan */
static void learn_names(struct learn_source *learn, uint64_t object, uint32_t type,
			const char *access_path)
{
	static const char table[] = "-> Table \"", as[] = "\" as \"";
	const char *at = strstr(access_path, table);
	char name[256];

	if (!at || !copy_quoted(at + strlen(table), name, sizeof(name)))
		return;
	learn_text(&learn->tables, object, type, name);
	at = strstr(at, as);
	if (at && copy_quoted(at + strlen(as), name, sizeof(name)))
		learn_text(&learn->aliases, object, type, name);
}

/* ---- Steps ---- */

/* A class may be several steps, as a sort and a unique sort: each is counted, once there is room. */
static void count_step(struct known_type *type, const char *step)
{
	for (unsigned i = 0; i < STEPS; i++) {
		if (!type->steps[i].count)
			strcpy(type->steps[i].step, step);
		if (strcmp(type->steps[i].step, step))
			continue;
		type->steps[i].count++;
		return;
	}
}

static const char *most_common(const struct known_type *type)
{
	unsigned most = 0;

	for (unsigned i = 1; i < STEPS; i++) {
		if (type->steps[i].count > type->steps[most].count)
			most = i;
	}
	return type->steps[most].step;
}

/* Returns which type it is; LAYOUT_PLAN_TYPES: there are too many. */
static uint32_t learn_step(struct learn_source *learn, uint64_t virtual_functions,
			   const char *access_path)
{
	uint64_t offset = virtual_functions - learn->base;
	char step[STEP_SIZE];
	uint32_t i = 0;

	layout_copy_step(step, sizeof(step), access_path);
	while (i < learn->type_count && learn->types[i].type != offset)
		i++;
	if (i == LAYOUT_PLAN_TYPES)
		return i;
	if (i == learn->type_count)
		learn->types[learn->type_count++].type = offset;
	count_step(&learn->types[i], step);
	return i;
}

/* ---- All of it ---- */

static struct definition *find_definition(const struct learn_source *learn, const struct key *key)
{
	for (uint32_t i = learn->count; i-- > 0;) {
		if (key_equal(&learn->definitions[i].key, key))
			return &learn->definitions[i];
	}
	return NULL;
}

void learn_source_look(struct learn_source *learn, const struct key *key, uint64_t object)
{
	struct definition *definition = find_definition(learn, key);
	uint64_t virtual_functions;
	uint32_t words[WORDS], type;

	if (!own_image_read(object, words, sizeof(words)))
		return; /* it ends where the memory does */
	for (unsigned i = 0; i < WORDS; i++) {
		uint64_t value = (uint64_t)key->first << 32 | words[i];

		learn->not_cursor[i] |= words[i] != key->cursor;
		if (bindings_add(&learn->ids[i], key, value) && words[i] > learn->greatest[i])
			learn->greatest[i] = words[i];
	}
	if (!definition || definition->looked)
		return;
	definition->looked = true;
	memcpy(&virtual_functions, words, sizeof(virtual_functions));
	type = learn_step(learn, virtual_functions, definition->access_path);
	if (type < LAYOUT_PLAN_TYPES)
		learn->types[type].root |= definition->root;
	if (type < LAYOUT_PLAN_TYPES)
		learn_names(learn, object, type, definition->access_path);
}

static void put_word(struct layout_path *path, unsigned word)
{
	*path = (struct layout_path){ .type = LAYOUT_U32,
				      .steps = 1,
				      .offset = { 4 * (int32_t)word } };
}

/* The first that always was the cursor's id; of those that are one-to-one, the one of small numbers. */
static void put_ids(const struct learn_source *learn, struct layout *layout)
{
	int cursor = -1, id = -1;

	/* The first two words are the address of the virtual functions. */
	for (int i = WORDS; i-- > 2;) {
		if (!learn->not_cursor[i])
			cursor = i;
		if (!learn->ids[i].broken && learn->greatest[i] <= ID_MAX &&
		    (id < 0 || learn->greatest[i] < learn->greatest[id]))
			id = i;
	}
	if (cursor >= 0)
		put_word(&layout->path[LAYOUT_SOURCE_CURSOR], (unsigned)cursor);
	if (id >= 0)
		put_word(&layout->path[LAYOUT_SOURCE_ID], (unsigned)id);
}

static int count_types(uint64_t types)
{
	return __builtin_popcountll(types);
}

/* A short one; and a short text is also found in the buffer that the pointer to longer ones lies behind. */
static bool is_better(const struct layout_path *path, const struct layout_path *than)
{
	if (path->steps != than->steps)
		return path->steps < than->steps;
	return path->type == LAYOUT_TEXT_ZERO && than->type != LAYOUT_TEXT_ZERO;
}

/* The path that holds for most types, and of those the best.  Returns for which types it does. */
static uint64_t put_text(const struct text_paths *paths, struct layout_path *path)
{
	uint64_t held = 0;

	for (uint32_t i = 0; i < paths->count; i++) {
		uint64_t holds = paths->types & ~paths->failed[i];
		int better = count_types(holds) - count_types(held);

		if (better > 0 || (better == 0 && held && is_better(&paths->all[i], path))) {
			held = holds;
			*path = paths->all[i];
		}
	}
	return held;
}

void learn_source_result(const struct learn_source *learn, struct layout *layout)
{
	uint64_t tables = put_text(&learn->tables, &layout->path[LAYOUT_SOURCE_TABLE]);
	uint64_t aliases = put_text(&learn->aliases, &layout->path[LAYOUT_SOURCE_ALIAS]);

	put_ids(learn, layout);
	layout->plan_types = learn->type_count;
	for (uint32_t i = 0; i < learn->type_count; i++) {
		struct layout_plan_type *type = &layout->type[i];

		type->type = learn->types[i].type;
		type->root = learn->types[i].root;
		type->has_table = tables >> i & 1;
		type->has_alias = aliases >> i & 1;
		strcpy(type->step, most_common(&learn->types[i]));
	}
}
