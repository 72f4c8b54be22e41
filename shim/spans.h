/*
 * Self times from events that only tell when something ended, and how long it took.
 *
 * A span is what was between start and end of something: a line, a fetch.  Spans of a thread are
 * nested or apart, and they end inside out.  So when one ends, those that ended after it began are in
 * it, and what they took is not its own.  They are kept on a stack until a span takes them in.  One
 * that follows on a span of the same key is joined with it: whatever encloses the one encloses both,
 * since if something had ended between them it would have taken in the first, and nothing can begin
 * in a line or fetch before, and end after it.
 *
 * Ends may be told a little late, by how long it takes us to hear of them: then what ended in as short
 * a time after a span began is not taken for a part of it.  Unless the end of one is the start of the
 * next: such spans must have the same key, and be told apart by spans_end_apart().
 *
 * What profiling itself took, and CPU time, come as looks at a moment: they belong to the spans that
 * were open then.
 *
 * Used by the thread that executes the attachment.
 */
#ifndef FBPROF_SPANS_H
#define FBPROF_SPANS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Room for the spans that wait for one that takes them in.  Requests that are called are of a new key
 * each, so there may be any number of them, in the fetch of an aggregate, for instance.  When it is
 * full, neighbours are joined: the longer ago, the longer the time in which they ended may be.  Of what
 * began in that time it isn't known any more which of them are in it: they are thought to be spread
 * evenly over it.
 */
#define SPANS_ROOM 128

struct span {
	int64_t end;
	int64_t begin; /* of those that were joined for want of room, the first one's start; else `end` */
	uint64_t time, cost, cpu;     /* in all, in ns */
	uint64_t look_cost, look_cpu; /* of looks: it is the own one of what they are in */
	uint64_t key;		      /* 0: only looks */
};

struct spans {
	uint32_t count;
	struct span span[1 + SPANS_ROOM]; /* the first one is older than all, and stays */
};

struct span_times {
	uint64_t total, self;
	uint64_t total_cost, self_cost;
	uint64_t total_cpu, self_cpu;
};

/* A look at `moment`, which stands for so much. */
void spans_look(struct spans *spans, int64_t moment, uint64_t cost, uint64_t cpu);

/* Something has ended at `end` that took `time`. */
struct span_times spans_end(struct spans *spans, uint64_t key, int64_t end, uint64_t time);

/* The same, of a key whose spans are never within one another. */
struct span_times spans_end_apart(struct spans *spans, uint64_t key, int64_t end, uint64_t time);

/* Joins some that ended long ago. */
void spans_make_room(struct spans *spans);

/* Takes what was after `start` out of some that were joined, and began to end before. */
struct span spans_take_part(struct span *span, int64_t start);

/*
 * The same without looks, thus without costs and CPU time, for each and every span; returns the self
 * time.  Spans with the key `outside` are not within this one: its own, if it is apart; else 0.
 */
static inline uint64_t spans_end_timed(struct spans *spans, uint64_t key, int64_t end,
				       uint64_t time, uint64_t outside)
{
	struct span *last = &spans->span[spans->count];
	int64_t start = end - (int64_t)time;
	uint64_t self = time;

	for (; last->end > start && last->key != outside; last--) {
		uint64_t inner = last->time;

		if (__builtin_expect(last->begin <= start, 0))
			inner = spans_take_part(last, start).time;
		self -= inner < self ? inner : self;
		if (last->end <= start)
			break;
	}
	if (last->key == key) {
		last->time += time;
	} else {
		if (__builtin_expect(last == &spans->span[SPANS_ROOM], 0)) {
			spans->count = SPANS_ROOM;
			spans_make_room(spans);
			last = &spans->span[spans->count];
		}
		last++;
		last->key = key;
		last->time = time;
	}
	last->begin = last->end = end;
	spans->count = (uint32_t)(last - spans->span);
	return self;
}

/* Nothing encloses what is there.  Also to be called before the first span. */
static inline void spans_clear(struct spans *spans)
{
	spans->count = 0;
	spans->span[0].end = INT64_MIN;
}

#endif
