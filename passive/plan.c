#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define FRAMES_MAX 8192

struct plan {
	pid_t process;
	struct layout layout;
	uint64_t base, start, end; /* of the engine's image */
	struct stack_unwinder *unwinder;
	unsigned registers[LAYOUT_PLAN_FUNCTIONS]; /* indexes in stack_frame.saved */
	uint32_t head;				   /* so many bytes of a record source are read */
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
			 "the layout doesn't tell record sources: run fbprof calibrate anew");
		goto failed;
	}
	if (!stack_module(plan->unwinder, engine_base, &plan->start, &plan->end)) {
		snprintf(error, STACK_ERROR_SIZE, "process %d has no engine where it is said to be",
			 (int)process);
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

static void read_frames(const struct plan *plan, uint32_t count, struct plan_chain *chain)
{
	uint32_t owned = 0; /* sources whose request is known */

	chain->count = 0;
	for (uint32_t i = 0; i < count && chain->count < PLAN_DEPTH; i++) {
		const struct stack_frame *frame = &plan->frames[i];
		int found = find_function(plan, frame);
		uint64_t object;

		if (found < 0 || !(frame->known & 1u << plan->registers[found]))
			continue;
		object = frame->saved[plan->registers[found]];
		if (plan->layout.plan[found].event == LAYOUT_PLAN_REQUEST) {
			while (owned < chain->count)
				chain->sources[owned++].request = object;
			continue;
		}
		chain->sources[chain->count++] =
			(struct plan_source){ .object = object,
					      .event = plan->layout.plan[found].event };
	}
}

/*
 * A function that is just beginning or ending, innermost, may have something else in its register.  A
 * record source begins with the address of its virtual functions, which are in the engine's data.
 */
static bool accept_head(const struct plan *plan, const unsigned char *head,
			struct plan_source *source)
{
	uint32_t cursor = place_of(plan, LAYOUT_SOURCE_CURSOR);
	uint32_t id = place_of(plan, LAYOUT_SOURCE_ID);

	memcpy(&source->type, head, sizeof(source->type));
	if (source->type < plan->start || source->type >= plan->end)
		return false;
	if (cursor)
		memcpy(&source->cursor, head + cursor, sizeof(source->cursor));
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

void plan_read(struct plan *plan, const struct stack_sample *sample, struct plan_chain *chain)
{
	uint32_t count =
		stack_unwind(plan->unwinder, sample, plan->frames, FRAMES_MAX, &chain->whole);

	read_frames(plan, count, chain);
	read_objects(plan, chain);
}

bool plan_sample(struct plan *plan, pid_t thread, struct plan_chain *chain)
{
	if (!stack_stop(plan->process, thread, &plan->sample))
		return false;
	plan_read(plan, &plan->sample, chain);
	return true;
}
