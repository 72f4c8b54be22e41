/*
 * Self times of nested spans: see spans.h.
 */
#include "spans.h"

#include <stdbool.h>

/* What is joined for want of room can't be joined with others by its key. */
#define JOINED UINT64_MAX

static void join(struct span *span, const struct span *later)
{
	span->time += later->time;
	span->cost += later->cost;
	span->cpu += later->cpu;
	span->end = later->end;
}

/* Joins pairs of the older half, so that this is not due again at the next span. */
void spans_make_room(struct spans *spans)
{
	uint32_t to = 1, from = 1;

	for (; from <= SPANS_ROOM / 2; from += 2) {
		struct span pair = spans->span[from];

		join(&pair, &spans->span[from + 1]);
		pair.end = spans->span[from].end;
		pair.key = pair.key || spans->span[from + 1].key ? JOINED : 0;
		spans->span[to++] = pair;
	}
	for (; from <= SPANS_ROOM; from++)
		spans->span[to++] = spans->span[from];
	spans->count = to - 1;
}

static void push(struct spans *spans, const struct span *span)
{
	if (spans->count == SPANS_ROOM)
		spans_make_room(spans);
	spans->span[++spans->count] = *span;
}

void spans_look(struct spans *spans, int64_t moment, uint64_t cost, uint64_t cpu)
{
	push(spans, &(struct span){ .end = moment, .cost = cost, .cpu = cpu });
}

/*
 * Joins a span with the last one, if that has the same key.  The looks since then were outside of
 * both, and what encloses one of them encloses all, like the two spans: they are joined, too.
 */
static bool join_same(struct spans *spans, const struct span *span)
{
	uint32_t looks = 0;
	struct span *before;

	while (looks < spans->count && !spans->span[spans->count - looks].key)
		looks++;
	if (looks == spans->count)
		return false;
	before = &spans->span[spans->count - looks];
	if (before->key != span->key)
		return false;
	join(before, span);
	for (uint32_t i = 1; i < looks; i++)
		join(before + 1, before + 1 + i);
	spans->count -= looks ? looks - 1 : 0;
	return true;
}

static struct span_times take_in(struct spans *spans, uint64_t key, uint64_t outside, int64_t end,
				 uint64_t time)
{
	struct span_times times = { .total = time, .self = time };
	struct span span = { .end = end, .time = time, .key = key };
	int64_t start = end - (int64_t)time;

	while (spans->span[spans->count].end > start) {
		const struct span *inner = &spans->span[spans->count];

		if (inner->key && inner->key == outside)
			break;
		spans->count--;
		times.total_cost += inner->cost;
		times.total_cpu += inner->cpu;
		if (inner->key) {
			times.self -= inner->time < times.self ? inner->time : times.self;
		} else {
			times.self_cost += inner->cost;
			times.self_cpu += inner->cpu;
		}
	}
	span.cost = times.total_cost;
	span.cpu = times.total_cpu;
	if (!join_same(spans, &span))
		push(spans, &span);
	return times;
}

struct span_times spans_end(struct spans *spans, uint64_t key, int64_t end, uint64_t time)
{
	return take_in(spans, key, 0, end, time);
}

struct span_times spans_end_apart(struct spans *spans, uint64_t key, int64_t end, uint64_t time)
{
	return take_in(spans, key, key, end, time);
}
