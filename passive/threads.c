#include "threads.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define MAX_THREADS  65536 /* in a damaged list we would go round for ever */
#define SPAN_SIZE    2048
#define BATCH	     16
#define PATIENCE     8 /* readings of a list that changes meanwhile */
#define SLOT_LISTS   1024
#define UNALLOCATED  UINT64_MAX /* glibc's TLS_DTV_UNALLOCATED */
#define NOT_STATIC   0		/* glibc's NO_TLS_OFFSET and FORCED_DYNAMIC_TLS_OFFSET */
#define NEVER_STATIC UINT64_MAX

/* How glibc describes a field. */
struct field {
	uint32_t bits, count, offset;
};

struct threads_layout {
	uint64_t heads[2]; /* glibc's stacks (of pthread_create) and those of others (main) */
	struct field next, previous, list, id, vector;
	uint64_t low, high; /* the part of a descriptor that has all of these fields */
	struct field block, block_address, generation;
	uint64_t slot;	 /* where the linker tells which module has our id */
	uint64_t module; /* the module's link_map */
	uint64_t id_of_module;
	uint64_t static_from, static_offset; /* where it is told, and what */
	uint64_t module_generation;
	struct field slot_generation, slot_module;
};

/* A module's id and what belongs to it. */
struct slots {
	struct field list, length, next, slots;
	uint64_t global;
};

static bool describe(pid_t process, const struct image *libc, const char *name, struct field *field)
{
	uint64_t address = image_symbol(process, libc, name);

	return address != 0 && memory_load(process, address, field, sizeof(*field));
}

static bool describe_threads(pid_t process, const struct image *libc, uint64_t global,
			     struct threads_layout *layout)
{
	struct field used, user;

	if (!describe(process, libc, "_thread_db_rtld_global__dl_stack_used", &used) ||
	    !describe(process, libc, "_thread_db_rtld_global__dl_stack_user", &user) ||
	    !describe(process, libc, "_thread_db_list_t_next", &layout->next) ||
	    !describe(process, libc, "_thread_db_list_t_prev", &layout->previous) ||
	    !describe(process, libc, "_thread_db_pthread_list", &layout->list) ||
	    !describe(process, libc, "_thread_db_pthread_tid", &layout->id) ||
	    !describe(process, libc, "_thread_db_pthread_dtvp", &layout->vector) ||
	    !describe(process, libc, "_thread_db_dtv_dtv", &layout->block) ||
	    !describe(process, libc, "_thread_db_dtv_t_pointer_val", &layout->block_address) ||
	    !describe(process, libc, "_thread_db_dtv_t_counter", &layout->generation))
		return false;
	layout->heads[0] = global + used.offset;
	layout->heads[1] = global + user.offset;
	return true;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* All fields of a thread are read at once: they must be near enough. */
static bool measure(struct threads_layout *layout)
{
	const uint64_t places[] = { (uint64_t)layout->list.offset + layout->next.offset,
				    (uint64_t)layout->list.offset + layout->previous.offset,
				    layout->id.offset, layout->vector.offset };

	layout->low = layout->high = places[0];
	for (unsigned i = 1; i < sizeof(places) / sizeof(places[0]); i++) {
		if (places[i] < layout->low)
			layout->low = places[i];
		if (places[i] > layout->high)
			layout->high = places[i];
	}
	layout->high += sizeof(uint64_t);
	return layout->high - layout->low <= SPAN_SIZE && layout->id.bits == 32 &&
	       layout->vector.bits == 64 && layout->block.bits >= 64;
}

/* The linker's list of modules with TLS, in pieces of some length each. */
static bool find_slot(pid_t process, const struct slots *slots, struct threads_layout *layout)
{
	uint64_t index = layout->id_of_module, list, length;

	if (!memory_load(process, slots->global + slots->list.offset, &list, sizeof(list)))
		return false;
	for (unsigned i = 0; list != 0 && i < SLOT_LISTS; i++) {
		if (!memory_load(process, list + slots->length.offset, &length, sizeof(length)))
			return false;
		if (index < length) {
			layout->slot = list + slots->slots.offset + index * (slots->slots.bits / 8);
			return true;
		}
		index -= length;
		if (!memory_load(process, list + slots->next.offset, &list, sizeof(list)))
			return false;
	}
	return false;
}

static bool describe_module(pid_t process, const struct image *libc, uint64_t global,
			    struct threads_layout *layout)
{
	struct slots slots = { .global = global };
	struct field id, offset;

	if (!describe(process, libc, "_thread_db_link_map_l_tls_modid", &id) ||
	    !describe(process, libc, "_thread_db_link_map_l_tls_offset", &offset) ||
	    !describe(process, libc, "_thread_db_rtld_global__dl_tls_dtv_slotinfo_list",
		      &slots.list) ||
	    !describe(process, libc, "_thread_db_dtv_slotinfo_list_len", &slots.length) ||
	    !describe(process, libc, "_thread_db_dtv_slotinfo_list_next", &slots.next) ||
	    !describe(process, libc, "_thread_db_dtv_slotinfo_list_slotinfo", &slots.slots) ||
	    !describe(process, libc, "_thread_db_dtv_slotinfo_gen", &layout->slot_generation) ||
	    !describe(process, libc, "_thread_db_dtv_slotinfo_map", &layout->slot_module) ||
	    !memory_load(process, layout->module + id.offset, &layout->id_of_module,
			 sizeof(uint64_t)))
		return false;
	layout->static_from = layout->module + offset.offset;
	return layout->id_of_module != 0 && find_slot(process, &slots, layout);
}

/* False: another module has the id by now, or none. */
static bool is_loaded(pid_t process, struct threads_layout *layout)
{
	uint64_t module;
	struct memory_piece pieces[] = {
		{ layout->slot + layout->slot_module.offset, &module, sizeof(module) },
		{ layout->slot + layout->slot_generation.offset, &layout->module_generation,
		  sizeof(uint64_t) },
		{ layout->static_from, &layout->static_offset, sizeof(uint64_t) },
	};

	return memory_read(process, pieces, 3) && module == layout->module;
}

bool threads_open(struct threads *threads, pid_t process, const struct image *linker,
		  const struct image *libc, const struct image *module)
{
	uint64_t global = image_symbol(process, linker, "_rtld_global");
	struct threads_layout *layout = calloc(1, sizeof(*layout));

	*threads = (struct threads){ .process = process, .layout = layout };
	if (layout != NULL) {
		layout->module = module->map;
		if (global != 0 && describe_threads(process, libc, global, layout) &&
		    measure(layout) && describe_module(process, libc, global, layout) &&
		    is_loaded(process, layout))
			return true;
	}
	threads_close(threads);
	return false;
}

void threads_close(struct threads *threads)
{
	free(threads->entries);
	free(threads->layout);
	threads->entries = NULL;
	threads->layout = NULL;
	threads->count = threads->room = 0;
}

static uint64_t load_u64(const unsigned char *from)
{
	uint64_t value;

	memcpy(&value, from, sizeof(value));
	return value;
}

/* From the part of a descriptor that was read. */
static void decode(const struct threads_layout *layout, uint64_t descriptor,
		   const unsigned char *span, struct threads_entry *entry)
{
	const unsigned char *start = span - layout->low;

	entry->descriptor = descriptor;
	entry->next = load_u64(start + layout->list.offset + layout->next.offset);
	entry->previous = load_u64(start + layout->list.offset + layout->previous.offset);
	memcpy(&entry->id, start + layout->id.offset, sizeof(entry->id));
	entry->vector = load_u64(start + layout->vector.offset);
}

/* Descriptors that were read ahead, in the order of the last update. */
struct ahead {
	uint32_t first, count;
	struct threads_entry entries[BATCH];
};

/* Reads descriptors from entry `first` on, where they were.  None of them if one is there no more. */
static void read_ahead(const struct threads *threads, uint32_t first, struct ahead *ahead)
{
	const struct threads_layout *layout = threads->layout;
	size_t size = layout->high - layout->low;
	unsigned char spans[BATCH][SPAN_SIZE];
	struct memory_piece pieces[BATCH] = { 0 };
	uint32_t count = least(threads->count - first, BATCH);

	for (uint32_t i = 0; i < count; i++)
		pieces[i] =
			(struct memory_piece){ threads->entries[first + i].descriptor + layout->low,
					       spans[i], size };
	ahead->first = first;
	ahead->count = memory_read(threads->process, pieces, count) ? count : 0;
	for (uint32_t i = 0; i < ahead->count; i++)
		decode(layout, threads->entries[first + i].descriptor, spans[i],
		       &ahead->entries[i]);
}

static bool read_one(const struct threads *threads, uint64_t descriptor,
		     struct threads_entry *entry)
{
	const struct threads_layout *layout = threads->layout;
	unsigned char span[SPAN_SIZE];

	if (!memory_load(threads->process, descriptor + layout->low, span,
			 layout->high - layout->low))
		return false;
	decode(layout, descriptor, span, entry);
	return true;
}

/* A walk through glibc's lists. */
struct walk {
	const struct threads *threads;
	struct threads_entry *found;
	uint32_t count, room;
	uint32_t expected; /* of the former entries, the one that should be next */
	struct ahead ahead;
};

static bool read_next(struct walk *walk, uint64_t descriptor, struct threads_entry *entry)
{
	const struct threads *threads = walk->threads;
	uint32_t expected = walk->expected;

	/* A new thread is at the front, one that ended is missing: look a little further. */
	for (uint32_t i = expected; i < threads->count && i < expected + BATCH; i++) {
		if (threads->entries[i].descriptor != descriptor)
			continue;
		walk->expected = i + 1;
		if (i - walk->ahead.first >= walk->ahead.count)
			read_ahead(threads, i, &walk->ahead);
		if (i - walk->ahead.first >= walk->ahead.count)
			break;
		*entry = walk->ahead.entries[i - walk->ahead.first];
		return true;
	}
	return read_one(threads, descriptor, entry);
}

static bool append(struct walk *walk, const struct threads_entry *entry)
{
	if (walk->count == walk->room) {
		uint32_t room = walk->room == 0 ? 64 : walk->room * 2;
		struct threads_entry *more = realloc(walk->found, room * sizeof(*more));

		if (more == NULL)
			return false;
		walk->found = more;
		walk->room = room;
	}
	walk->found[walk->count++] = *entry;
	return true;
}

/*
 * A thread that ends meanwhile takes its descriptor to another list: each must know the one that we
 * came from.
 */
static bool walk_list(struct walk *walk, uint64_t head)
{
	const struct threads_layout *layout = walk->threads->layout;
	uint64_t previous = head, node;

	if (!memory_load(walk->threads->process, head + layout->next.offset, &node, sizeof(node)))
		return false;
	while (node != head) {
		struct threads_entry entry = { 0 };

		if (node == 0 || walk->count == MAX_THREADS ||
		    !read_next(walk, node - layout->list.offset, &entry) ||
		    entry.previous != previous || !append(walk, &entry))
			return false;
		previous = node;
		node = entry.next;
	}
	return true;
}

/* What a thread's vector tells about the module. */
struct vector {
	uint64_t generation, block;
	uint64_t address; /* of the vector, when the rest had been read */
};

/*
 * The module's block of a thread, as __tls_get_addr() would find it.  An older vector may have a block
 * of an earlier module with the same id.  A static block needs no entry in the vector.
 */
static uint64_t block_of(const struct threads_layout *layout, const struct threads_entry *entry,
			 const struct vector *vector)
{
	if (entry->id <= 0)
		return 0;
	if (entry->vector != 0 && vector->address == entry->vector &&
	    vector->generation >= layout->module_generation && vector->block != UNALLOCATED)
		return vector->block;
	if (layout->static_offset == NOT_STATIC || layout->static_offset == NEVER_STATIC)
		return 0;
	return entry->descriptor - layout->static_offset;
}

/* False: one of them could not be read. */
static bool read_vectors(const struct threads *threads, struct threads_entry *entries,
			 uint32_t count)
{
	const struct threads_layout *layout = threads->layout;
	struct memory_piece pieces[3 * BATCH];
	struct vector vectors[BATCH] = { 0 };
	unsigned used = 0;
	uint64_t block = layout->block.offset + layout->id_of_module * (layout->block.bits / 8) +
			 layout->block_address.offset;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t vector = entries[i].vector;

		if (entries[i].id <= 0 || vector == 0)
			continue;
		/* In this order: the generation is moved on after old blocks were dropped. */
		pieces[used++] = (struct memory_piece){ vector + layout->generation.offset,
							&vectors[i].generation, 8 };
		pieces[used++] = (struct memory_piece){ vector + block, &vectors[i].block, 8 };
		pieces[used++] =
			(struct memory_piece){ entries[i].descriptor + layout->vector.offset,
					       &vectors[i].address, 8 };
	}
	if (used != 0 && !memory_read(threads->process, pieces, used))
		return false;
	for (uint32_t i = 0; i < count; i++)
		entries[i].tls = block_of(layout, &entries[i], &vectors[i]);
	return true;
}

/* A vector that is too short for the module may lie at the end of what can be read: then one by one. */
static void find_blocks(const struct threads *threads, struct threads_entry *entries,
			uint32_t count)
{
	for (uint32_t i = 0; i < count; i += BATCH) {
		uint32_t batch = least(count - i, BATCH);

		if (read_vectors(threads, entries + i, batch))
			continue;
		for (uint32_t j = i; j < i + batch; j++) {
			if (!read_vectors(threads, entries + j, 1))
				entries[j].tls = 0;
		}
	}
}

static bool walk_lists(struct walk *walk)
{
	walk->count = walk->expected = 0;
	walk->ahead.count = 0;
	return walk_list(walk, walk->threads->layout->heads[0]) &&
	       walk_list(walk, walk->threads->layout->heads[1]);
}

enum threads_result threads_update(struct threads *threads)
{
	struct walk walk = { .threads = threads };
	bool whole = false;

	if (!is_loaded(threads->process, threads->layout))
		return THREADS_GONE;
	for (unsigned i = 0; !whole && i < PATIENCE; i++)
		whole = walk_lists(&walk);
	if (!whole) {
		free(walk.found);
		return THREADS_UNSTEADY;
	}
	find_blocks(threads, walk.found, walk.count);
	free(threads->entries);
	threads->entries = walk.found;
	threads->count = walk.count;
	threads->room = walk.room;
	return THREADS_READ;
}

uint64_t threads_id_address(const struct threads *threads, const struct threads_entry *entry)
{
	return entry->descriptor + threads->layout->id.offset;
}
