#include "plan.h"

#include "memory.h"
#include "position.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define FRAMES_MAX 8192

/* A record source that was seen to work for another one, or, with 0, for none. */
struct link {
	uint64_t outer, inner;
};

#define LINKS 4096u

struct plan {
	pid_t process;
	struct layout layout;
	uint64_t base, start, end; /* of the engine's image */
	struct stack_unwinder *unwinder;
	unsigned registers[LAYOUT_PLAN_FUNCTIONS]; /* indexes in stack_frame.saved */
	uint32_t head;				   /* so many bytes of a record source are read */
	struct link links[LINKS]; /* by a hash; a newer one takes the place of an older one */
	struct stack_sample sample;
	struct stack_frame frames[FRAMES_MAX];
};

/* What is read of a record source: its virtual functions and, not far behind, its ids. */
#define HEAD_MAX 256u

static bool find_registers(struct plan *plan)
{
	for (uint32_t i = 0; i < plan->layout.plan_functions; i++) {
		unsigned j = 0;

		while (j < STACK_CALLEE_SAVED && stack_callee_saved[j] != plan->layout.plan[i].reg)
			j++;
		if (j == STACK_CALLEE_SAVED)
			return false;
		plan->registers[i] = j;
	}
	return true;
}

/* Where a u32 lies in the head; 0, where the virtual functions are: it isn't told. */
static uint32_t place_of(const struct plan *plan, enum layout_fact fact)
{
	const struct layout_path *path = &plan->layout.path[fact];

	if (path->type != LAYOUT_U32 || path->steps != 1 || path->offset[0] <= 0 ||
	    path->offset[0] > (int32_t)(HEAD_MAX - sizeof(uint32_t)))
		return 0;
	return (uint32_t)path->offset[0];
}

static uint32_t head_size(const struct plan *plan)
{
	uint32_t cursor = place_of(plan, LAYOUT_SOURCE_CURSOR);
	uint32_t id = place_of(plan, LAYOUT_SOURCE_ID), last = cursor > id ? cursor : id;

	return last + sizeof(uint64_t) > HEAD_MAX ? HEAD_MAX : last + sizeof(uint64_t);
}

struct plan *plan_new(pid_t process, const struct layout *layout, uint64_t engine_base,
		      char error[STACK_ERROR_SIZE])
{
	struct plan *plan = calloc(1, sizeof(*plan));

	if (!plan) {
		snprintf(error, STACK_ERROR_SIZE, "out of memory");
		return NULL;
	}
	plan->process = process;
	plan->layout = *layout;
	plan->base = engine_base;
	plan->head = head_size(plan);
	plan->unwinder = stack_unwinder_new(process, error);
	if (!plan->unwinder)
		goto failed;
	if (!layout->plan_functions || !find_registers(plan)) {
		snprintf(error, STACK_ERROR_SIZE,
			 "its layout doesn't tell them: run fbprof calibrate on its file anew");
		goto failed;
	}
	if (!stack_module(plan->unwinder, engine_base, &plan->start, &plan->end)) {
		snprintf(error, STACK_ERROR_SIZE, "no engine is where it is said to be");
		goto failed;
	}
	return plan;
failed:
	plan_free(plan);
	return NULL;
}

void plan_free(struct plan *plan)
{
	if (!plan)
		return;
	stack_unwinder_free(plan->unwinder);
	free(plan);
}

/* ---- Frames to objects ---- */

static int find_function(const struct plan *plan, const struct stack_frame *frame)
{
	uint64_t start = frame->start - plan->base;

	for (uint32_t i = 0; i < plan->layout.plan_functions; i++) {
		if (plan->layout.plan[i].start == start)
			return (int)i;
	}
	return -1;
}

/* Where the function has it; false: not now. */
static bool find_object(const struct plan *plan, const struct stack_sample *sample, int function,
			const struct stack_frame *frame, uint64_t *object)
{
	unsigned index = plan->registers[function];
	int32_t offset = plan->layout.plan[function].offset;

	*object = frame->saved[index];
	if (!(frame->known & 1u << index))
		return false;
	return !offset || stack_word(sample, *object + (uint64_t)(int64_t)offset, object);
}

static void read_frames(const struct plan *plan, const struct stack_sample *sample, uint32_t count,
			struct plan_chain *chain)
{
	uint32_t owned = 0; /* sources whose request is known */

	chain->request = 0;
	chain->count = 0;
	for (uint32_t i = 0; i < count && chain->count < PLAN_DEPTH; i++) {
		const struct stack_frame *frame = &plan->frames[i];
		int found = find_function(plan, frame);
		uint64_t object;

		if (found < 0)
			continue;
		if (!find_object(plan, sample, found, frame, &object))
			continue;
		if (plan->layout.plan[found].event == LAYOUT_PLAN_REQUEST) {
			if (!chain->request)
				chain->request = object;
			while (owned < chain->count)
				chain->sources[owned++].request = object;
			continue;
		}
		chain->sources[chain->count++] =
			(struct plan_source){ .object = object,
					      .event = plan->layout.plan[found].event,
					      .function = (uint32_t)found };
	}
}

/* NULL: calibration did not meet this one. */
static const struct layout_plan_type *find_type(const struct plan *plan, uint64_t type)
{
	for (uint32_t i = 0; i < plan->layout.plan_types; i++) {
		if (plan->layout.type[i].type == type)
			return &plan->layout.type[i];
	}
	return NULL;
}

/* A record source begins with the address of its virtual functions, which are in the engine's data. */
static bool is_method(const struct plan *plan, const struct plan_source *source)
{
	const struct layout_plan_function *function = &plan->layout.plan[source->function];
	uint64_t method;

	if (function->slot < 0)
		return true;
	return memory_load(plan->process, source->type + 8 * (uint64_t)function->slot, &method,
			   sizeof(method)) &&
	       method == plan->base + function->start && find_type(plan, source->type - plan->base);
}

static bool accept_head(const struct plan *plan, const unsigned char *head,
			struct plan_source *source)
{
	const struct layout_plan_type *type;
	uint32_t cursor = place_of(plan, LAYOUT_SOURCE_CURSOR);
	uint32_t id = place_of(plan, LAYOUT_SOURCE_ID);

	memcpy(&source->type, head, sizeof(source->type));
	if (source->type < plan->start || source->type >= plan->end)
		return false;
	if (!is_method(plan, source))
		return false;
	source->type -= plan->base;
	type = find_type(plan, source->type);
	source->root = type && type->root;
	if (cursor)
		memcpy(&source->cursor, head + cursor, sizeof(source->cursor));
	/* Without an id it is told apart from the others by where it is, as long as it is there. */
	source->id = (uint32_t)(source->object >> 4);
	if (id)
		memcpy(&source->id, head + id, sizeof(source->id));
	return true;
}

#define HEADS 32u /* in one system call */

/* Reads the heads of some record sources; returns how many could be. */
static uint32_t read_heads(const struct plan *plan, const struct plan_source *sources,
			   uint32_t count, unsigned char *heads)
{
	struct iovec local = { heads, (size_t)count * plan->head }, remote[HEADS];
	ssize_t size;

	for (uint32_t i = 0; i < count; i++)
		remote[i] = (struct iovec){ (void *)sources[i].object, plan->head };
	size = process_vm_readv(plan->process, &local, 1, remote, count, 0);
	return size > 0 ? (uint32_t)size / plan->head : 0;
}

/* Completes the sources from the objects themselves; what is none is left out. */
static void read_objects(const struct plan *plan, struct plan_chain *chain)
{
	unsigned char heads[HEADS * HEAD_MAX];
	uint32_t kept = 0, place = 0;

	while (place < chain->count) {
		uint32_t count = chain->count - place < HEADS ? chain->count - place : HEADS;
		uint32_t good = read_heads(plan, &chain->sources[place], count, heads);

		for (uint32_t i = 0; i < good; i++) {
			struct plan_source source = chain->sources[place + i];

			if (accept_head(plan, heads + i * plan->head, &source))
				chain->sources[kept++] = source;
		}
		place += good < count ? good + 1 : count; /* the next one can't be read */
	}
	chain->count = kept;
}

/* ---- The innermost frame ---- */

static struct link *find_link(struct plan *plan, uint64_t outer, uint64_t inner)
{
	uint64_t hash = (outer ^ inner << 1) * 0x9e3779b97f4a7c15u;

	return &plan->links[hash >> 32 & (LINKS - 1)];
}

/*
 * A function that has just begun, or is about to return, still or again has its caller's value in the register: it
 * may well be another record source.  So one that is interrupted itself counts only if its record source was
 * seen inside the next one when it had called something.
 */
static void judge_innermost(struct plan *plan, struct plan_chain *chain)
{
	uint64_t inner = chain->sources[0].object;
	uint64_t outer = chain->count > 1 ? chain->sources[1].object : 0;
	const struct link *link = find_link(plan, outer, inner);

	if (link->outer == outer && link->inner == inner)
		return;
	chain->count--;
	memmove(&chain->sources[0], &chain->sources[1], chain->count * sizeof(chain->sources[0]));
}

static void note_links(struct plan *plan, const struct plan_chain *chain)
{
	for (uint32_t i = 0; i < chain->count; i++) {
		uint64_t inner = chain->sources[i].object;
		uint64_t outer = i + 1 < chain->count ? chain->sources[i + 1].object : 0;

		*find_link(plan, outer, inner) = (struct link){ outer, inner };
	}
}

void plan_read(struct plan *plan, const struct stack_sample *sample, struct plan_chain *chain)
{
	uint32_t count =
		stack_unwind(plan->unwinder, sample, plan->frames, FRAMES_MAX, &chain->whole);
	uint64_t first;
	bool interrupted;

	read_frames(plan, sample, count, chain);
	first = chain->count ? chain->sources[0].object : 0;
	read_objects(plan, chain);
	interrupted = count && chain->count && chain->sources[0].object == first &&
		      find_function(plan, &plan->frames[0]) >= 0;
	if (interrupted)
		judge_innermost(plan, chain);
	else
		note_links(plan, chain);
}

bool plan_stop(struct plan *plan, pid_t thread, uint64_t *held, void (*meanwhile)(void *context),
	       void *context)
{
	if (!stack_stop(plan->process, thread, &plan->sample, meanwhile, context))
		return false;
	*held = plan->sample.held;
	return true;
}

void plan_read_stopped(struct plan *plan, struct plan_chain *chain)
{
	plan_read(plan, &plan->sample, chain);
}

bool plan_sample_events(struct plan *plan, struct stack_events *events, struct plan_chain *chain,
			void (*meanwhile)(void *context), void *context)
{
	if (!stack_events_take(events, &plan->sample))
		return false;
	meanwhile(context);
	plan_read(plan, &plan->sample, chain);
	return true;
}

/* ---- Texts ---- */

/* Puts the name into the first quotes of a step. */
static void put_names(const struct plan *plan, const struct plan_source *source,
		      const struct layout_plan_type *type, char *text, size_t size)
{
	char table[256] = "", alias[256] = "";
	const char *quotes = strstr(type->step, "\"\"");
	int before = quotes ? (int)(quotes - type->step) : 0;

	if (quotes && type->has_table)
		passive_text(plan->process, &plan->layout, LAYOUT_SOURCE_TABLE, source->object,
			     table, sizeof(table));
	if (quotes && type->has_alias)
		passive_text(plan->process, &plan->layout, LAYOUT_SOURCE_ALIAS, source->object,
			     alias, sizeof(alias));
	if (*table && *alias && strcmp(table, alias))
		snprintf(text, size, "%.*s\"%s\" as \"%s\"%s", before, type->step, table, alias,
			 quotes + 2);
	else if (*table || *alias)
		snprintf(text, size, "%.*s\"%s\"%s", before, type->step, *table ? table : alias,
			 quotes + 2);
	else
		snprintf(text, size, "%s", type->step);
}

void plan_describe(const struct plan *plan, const struct plan_source *source, char *text,
		   size_t size)
{
	const struct layout_plan_type *type = find_type(plan, source->type);

	text[0] = 0;
	if (type)
		put_names(plan, source, type, text, size);
}
