/*
 * What events cost: see event_cost.h.
 */
#include "event_cost.h"
#include "../passive/image.h"
#include "../passive/layout.h"
#include "clock.h"
#include "cost_table.h"
#include "notice.h"

#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the unit: so many at once are some 100 times as long as reading the clock. */
#define UNITS 64

/* A thread that was interrupted meanwhile, or runs beside another one, says nothing of its own speed. */
#define BATCHES_AT_START 15
#define BATCHES_NOW	 4

/*
 * About as long as an event, and of the same stuff: dependent and independent arithmetic, loads and
 * stores that hit the nearest cache, branches that are foreseen.  Where it lies decides how fast it is,
 * by a quarter: so that is always the same.
 */
static __attribute__((noinline, aligned(64))) uint64_t work(uint64_t *table, uint64_t seed,
							    unsigned units)
{
	uint64_t a = seed, b = ~seed;

	for (unsigned i = 0; i < units; i++) {
		for (unsigned j = 0; j < 8; j++) {
			uint64_t *slot = &table[(a >> 5) & 31];

			if (*slot == a)
				b++;
			*slot += b;
			a = a * 0x9e3779b97f4a7c15u + j;
			b ^= table[j] >> 7;
		}
	}
	return a ^ b;
}

/* What a unit takes, in units of COST_PER_NS_SHIFT. */
static uint64_t measure(void)
{
	static _Atomic uint64_t sink;
	uint64_t table[32] = { 0 };
	struct timespec before, after;
	int64_t ns;

	clock_real(CLOCK_MONOTONIC_RAW, &before);
	atomic_store_explicit(&sink, work(table, (uint64_t)before.tv_nsec, UNITS),
			      memory_order_relaxed);
	clock_real(CLOCK_MONOTONIC_RAW, &after);
	ns = (after.tv_sec - before.tv_sec) * CLOCK_NS_PER_SECOND + after.tv_nsec - before.tv_nsec;
	return ((uint64_t)ns << COST_PER_NS_SHIFT) / UNITS;
}

/* What a unit takes when nothing disturbs: the least that was seen in this process; 0: none was. */
static _Atomic uint64_t least_unit;

/* Of the engine at hand and this machine, if they were calibrated; set by the first session. */
static struct cost_table costs_here;

static void load_table(void)
{
	char path[PATH_MAX], identity[LAYOUT_IDENTITY_SIZE], error[CACHE_ERROR_SIZE];
	struct image linker, engine;

	costs_here = cost_table_default;
	if (image_linker(getpid(), &linker) &&
	    image_find(getpid(), &linker, "libEngine", &engine, path, sizeof(path)) &&
	    layout_identify(path, identity, error) && cost_table_is_known(NULL, identity) &&
	    !cost_table_load(&costs_here, NULL, identity, error))
		notice(error);
}

static int64_t cost_of(const struct frame_stack *stack, unsigned kind, uint64_t unit)
{
	return costs_here.cost[stack->cost_mode][kind] * (int64_t)unit / 1024;
}

/* What disturbs a single measurement makes it longer; what slows down the machine, all of them. */
static uint64_t recent_unit(const struct frame_stack *stack)
{
	uint64_t unit = stack->cost_unit[0];

	for (unsigned i = 1; i < COST_UNITS; i++) {
		if (stack->cost_unit[i] < unit)
			unit = stack->cost_unit[i];
	}
	return unit;
}

/*
 * A core that is shared with another thread, of this machine or of another guest's, slows down the
 * engine twice as much as it does our piece of work, which needs nothing but the nearest caches: by
 * 1.3 when that slows down by 1.15, by 1.7 when by 1.3 (execute block, a loop, 50 times).  Hence the
 * square.
 */
static void set_costs(struct frame_stack *stack)
{
	uint64_t unit = recent_unit(stack);
	uint64_t least = atomic_load_explicit(&least_unit, memory_order_relaxed);

	if (!least || unit < least)
		atomic_store_explicit(&least_unit, unit, memory_order_relaxed);
	else
		unit = unit * unit / least;
	for (unsigned i = 0; i < LOG_EVENTS; i++)
		stack->event_cost[i] = cost_of(stack, i, unit);
	stack->function_cost = cost_of(stack, COST_FUNCTION, unit);
	stack->read_cost =
		stack->batch_read_cost + (cost_of(stack, COST_READ, unit) >> COST_PER_NS_SHIFT);
	if (stack->read_cost < 0)
		stack->read_cost = 0;
	if (stack->cost_detailed) {
		stack->event_cost[LOG_EVENT_REQUEST] += cost_of(stack, COST_DETAILED, unit);
		stack->cell_cost = cost_of(stack, COST_CELL, unit);
	}
}

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

void event_cost_init(struct frame_stack *stack, enum log_mode mode, bool detailed)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uint64_t batches[BATCHES_AT_START];

	pthread_once(&once, load_table);
	for (unsigned i = 0; i < BATCHES_AT_START; i++)
		batches[i] = measure();
	qsort(batches, BATCHES_AT_START, sizeof(*batches), compare);
	for (unsigned i = 0; i < COST_UNITS; i++)
		stack->cost_unit[i] = batches[BATCHES_AT_START / 4];
	stack->cost_updated = 0;
	stack->cost_mode = (uint32_t)mode;
	stack->cost_detailed = detailed;
	if (mode == LOG_MODE_MEASURED) {
		for (unsigned i = 0; i < BATCHES_AT_START; i++)
			batches[i] = (uint64_t)clock_read_cost();
		qsort(batches, BATCHES_AT_START, sizeof(*batches), compare);
		stack->batch_read_cost = (int64_t)batches[BATCHES_AT_START / 2];
	}
	set_costs(stack);
}

/* The first measurement warms up the caches, so the shortest of a few counts. */
void event_cost_update(struct frame_stack *stack, int64_t now)
{
	uint64_t unit = measure();

	for (unsigned i = 1; i < BATCHES_NOW; i++) {
		uint64_t other = measure();

		if (other < unit)
			unit = other;
	}
	if (stack->cost_updated) {
		memmove(&stack->cost_unit[1], stack->cost_unit,
			sizeof(stack->cost_unit) - sizeof(stack->cost_unit[0]));
		stack->cost_unit[0] = unit;
		set_costs(stack);
	}
	if (stack->cost_updated && stack->cost_mode == LOG_MODE_MEASURED) {
		int64_t read_cost = clock_read_cost();

		for (unsigned i = 1; i < BATCHES_NOW; i++) {
			int64_t other = clock_read_cost();

			if (other < read_cost)
				read_cost = other;
		}
		if (read_cost < 3 * stack->batch_read_cost)
			stack->batch_read_cost = (3 * stack->batch_read_cost + read_cost + 2) / 4;
	}
	stack->cost_updated = now;
}
