#include "own_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * So many threads have events at a time: each takes a file descriptor and 68 KB of locked memory, and the recorder looks
 * at no more in a second (recorder.c, PLAN_THREADS).
 */
#define EVENTS_MAX 16

/* Updates in which a thread was not sampled, some 50 ms each, until its events are closed, or given to another. */
#define IDLE_UPDATES	  200
#define REPLACEABLE_AFTER 2

struct thread_events {
	pid_t thread;
	unsigned idle;		 /* updates since it was looked at last */
	struct plan_place place; /* of the thread, when the sample was asked for */
	struct stack_events *events;
};

struct own_plan {
	struct plan *plan;
	uint32_t count;
	struct thread_events threads[EVENTS_MAX];
};

static void close_events(struct own_plan *own, uint32_t index)
{
	stack_events_close(own->threads[index].events);
	own->threads[index] = own->threads[--own->count];
}

/* False: all are in use. */
static bool make_room(struct own_plan *own)
{
	uint32_t oldest = 0;

	if (own->count < EVENTS_MAX)
		return true;
	for (uint32_t i = 1; i < own->count; i++) {
		if (own->threads[i].idle > own->threads[oldest].idle)
			oldest = i;
	}
	if (own->threads[oldest].idle < REPLACEABLE_AFTER)
		return false;
	close_events(own, oldest);
	return true;
}

static struct thread_events *find_events(struct own_plan *own, pid_t thread)
{
	char error[STACK_ERROR_SIZE];
	struct stack_events *events;

	for (uint32_t i = 0; i < own->count; i++) {
		if (own->threads[i].thread == thread) {
			own->threads[i].idle = 0;
			return &own->threads[i];
		}
	}
	/* It went well once: now it is too many of them, or the thread has just ended. */
	events = make_room(own) ? stack_events_open(thread, error) : NULL;
	if (!events)
		return NULL;
	own->threads[own->count] = (struct thread_events){ .thread = thread, .events = events };
	return &own->threads[own->count++];
}

/* ---- As a process's ---- */

/* At one look it is asked for, at a later one it is taken. */
static bool sample(void *context, pid_t thread, struct plan_place *place, struct plan_chain *chain,
		   void (*meanwhile)(void *context), void *meanwhile_context)
{
	struct own_plan *own = context;
	struct thread_events *of = find_events(own, thread);
	bool taken = false;

	if (!of)
		return false;
	if (stack_events_await(of->events)) {
		taken = plan_sample_events(own->plan, of->events, chain, meanwhile,
					   meanwhile_context);
		*place = of->place;
	} else if (stack_events_ask(of->events)) {
		of->place = *place;
	}
	chain->awaited = stack_events_await(of->events);
	return taken;
}

static void describe(const void *context, const struct plan_source *source, char *text, size_t size)
{
	const struct own_plan *own = context;

	plan_describe(own->plan, source, text, size);
}

static bool is_there(const struct process *process, pid_t thread)
{
	for (uint32_t i = 0; i < process->count; i++) {
		if (process->threads[i].id == thread)
			return true;
	}
	return false;
}

static void update(void *context, const struct process *process)
{
	struct own_plan *own = context;

	for (uint32_t i = own->count; i-- > 0;) {
		if (++own->threads[i].idle > IDLE_UPDATES ||
		    !is_there(process, own->threads[i].thread))
			close_events(own, i);
	}
}

static void free_own(void *context)
{
	struct own_plan *own = context;

	while (own->count)
		close_events(own, own->count - 1);
	plan_free(own->plan);
	free(own);
}

/* Whether events can be had at all is found out by the own thread. */
static bool are_permitted(char error[STACK_ERROR_SIZE])
{
	struct stack_events *events = stack_events_open(gettid(), error);

	stack_events_close(events);
	return events != NULL;
}

__attribute__((visibility("default"))) bool fbprof_own_plan_open(const struct process *process,
								 const struct layout *layout,
								 struct process_plan *plan,
								 char error[STACK_ERROR_SIZE])
{
	struct own_plan *own;

	if (!are_permitted(error))
		return false;
	own = calloc(1, sizeof(*own));
	if (!own) {
		snprintf(error, STACK_ERROR_SIZE, "out of memory");
		return false;
	}
	own->plan = plan_new(process->pid, layout, process->engine_base, error);
	if (!own->plan) {
		free(own);
		return false;
	}
	*plan = (struct process_plan){ .context = own,
				       .sample = sample,
				       .describe = describe,
				       .update = update,
				       .free = free_own };
	return true;
}
