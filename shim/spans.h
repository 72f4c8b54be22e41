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
 * Room for the spans that wait for one that takes them in: at most one for each different line or
 * record source on each level.  When it is full, neighbours are joined, and a span that began between
 * them has a self time that is too long.
 */
#define SPANS_ROOM 64

struct span {
	int64_t end;
	uint64_t time, cost, cpu; /* in all, in ns */
	uint64_t key;		  /* 0: a look */
};

struct spans {
	uint32_t count;
	struct span span[SPANS_ROOM];
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

/*
 * The same, if it is easy: nothing was in it, and the last one that ended had the same key.  Returns
 * false, and has done nothing, if it isn't.
 */
static inline bool spans_end_next(struct spans *spans, uint64_t key, int64_t end, uint64_t time,
				  bool apart)
{
	struct span *last = &spans->span[spans->count - 1];

	if (!spans->count || last->key != key || (!apart && last->end > end - (int64_t)time))
		return false;
	last->time += time;
	last->end = end;
	return true;
}

/* Nothing encloses what is there. */
static inline void spans_clear(struct spans *spans)
{
	spans->count = 0;
}

#endif
