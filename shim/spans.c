/*
 * Self times of nested spans: see spans.h.
 */
#include "spans.h"

#include <stdbool.h>

/* What is joined for want of room can't be joined with others by its key. */
#define JOINED UINT64_MAX

/*
 * In how many parts of their age joined spans are told apart, if there is room.  So some 5 are left for
 * each time that the age is e times as long, which are 16 times between 100 ns and a second.
 */
#define PARTS 4

/* So many are to be left at most. */
#define ENOUGH (SPANS_ROOM * 3 / 4)

/* `later` follows on the span. */
static void join(struct span *span, const struct span *later)
{
	span->time += later->time;
	span->cost += later->cost;
	span->cpu += later->cpu;
	span->look_cost += later->look_cost;
	span->look_cpu += later->look_cpu;
	span->end = later->end;
}

static int64_t begin_of(const struct span *span)
{
	return span->begin == span->end ? span->end - (int64_t)span->time : span->begin;
}

static void join_for_room(struct span *span, const struct span *later)
{
	span->begin = begin_of(span);
	join(span, later);
	span->key = span->key || later->key ? JOINED : 0;
}

/* Neighbours that ended within this part of the time since then. */
static void join_old(struct spans *spans, int64_t parts)
{
	int64_t now = spans->span[spans->count].end;
	uint32_t to = 1;

	for (uint32_t from = 2; from <= spans->count; from++) {
		struct span *span = &spans->span[to];
		const struct span *later = &spans->span[from];

		if (later->end - begin_of(span) <= (now - later->end) / parts)
			join_for_room(span, later);
		else
			spans->span[++to] = *later;
	}
	spans->count = to;
}

void spans_make_room(struct spans *spans)
{
	for (int64_t parts = PARTS; parts && spans->count > ENOUGH; parts /= 2)
		join_old(spans, parts);
	if (spans->count < SPANS_ROOM)
		return;
	join_for_room(&spans->span[1], &spans->span[2]);
	for (uint32_t i = 2; i < spans->count; i++)
		spans->span[i] = spans->span[i + 1];
	spans->count--;
}

static uint64_t take_share(uint64_t *value, int64_t part, int64_t whole)
{
	uint64_t share = (uint64_t)((unsigned __int128)*value * (uint64_t)part / (uint64_t)whole);

	*value -= share;
	return share;
}

struct span spans_take_part(struct span *span, int64_t start)
{
	int64_t part = span->end - start, whole = span->end - span->begin;
	struct span taken = {
		.begin = start,
		.end = span->end,
		.time = take_share(&span->time, part, whole),
		.cost = take_share(&span->cost, part, whole),
		.cpu = take_share(&span->cpu, part, whole),
		.look_cost = take_share(&span->look_cost, part, whole),
		.look_cpu = take_share(&span->look_cpu, part, whole),
		.key = span->key,
	};

	span->end = start;
	return taken;
}

static void push(struct spans *spans, const struct span *span)
{
	if (spans->count == SPANS_ROOM)
		spans_make_room(spans);
	spans->span[++spans->count] = *span;
}

void spans_look(struct spans *spans, int64_t moment, uint64_t cost, uint64_t cpu)
{
	push(spans, &(struct span){ .end = moment,
				    .begin = moment,
				    .cost = cost,
				    .cpu = cpu,
				    .look_cost = cost,
				    .look_cpu = cpu });
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
	before->begin = before->end; /* what encloses the one encloses both */
	for (uint32_t i = 1; i < looks; i++)
		join(before + 1, before + 1 + i);
	spans->count -= looks ? looks - 1 : 0;
	return true;
}

static struct span_times take_in(struct spans *spans, uint64_t key, uint64_t outside, int64_t end,
				 uint64_t time)
{
	struct span_times times = { .total = time, .self = time };
	struct span span = { .end = end, .begin = end, .time = time, .key = key };
	int64_t start = end - (int64_t)time;

	while (spans->span[spans->count].end > start) {
		struct span *last = &spans->span[spans->count], inner = *last;

		if (last->key && last->key == outside)
			break;
		if (last->begin <= start)
			inner = spans_take_part(last, start);
		else
			spans->count--;
		times.self -= inner.time < times.self ? inner.time : times.self;
		times.total_cost += inner.cost;
		times.total_cpu += inner.cpu;
		times.self_cost += inner.look_cost;
		times.self_cpu += inner.look_cpu;
	}
	span.cost = times.total_cost; /* the looks in it are nobody else's any more */
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
