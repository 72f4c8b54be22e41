/*
 * Measures clocks: what a read costs, how far apart two reads are, whether time goes backward.  Prints
 * nothing.  One thread at a time; timing_race() has threads of its own.
 */
#ifndef FBPROF_TIMING_H
#define FBPROF_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#include "../sampler/tick_clock.h"

/* Bucket 0 is for steps below 1 ns, n for those from 2^(n-1) ns on; the last one has no end. */
#define TIMING_BUCKETS 40

struct timing {
	/* In ns; of a read, in batches, with its loop: */
	double mean, least;

	/* Of each two reads in a row: */
	uint64_t steps;
	uint64_t buckets[TIMING_BUCKETS];
	double least_step; /* ns, the least above 0; 0: the clock stood still */
	uint64_t backward; /* steps that were negative; in no bucket */
	double farthest;   /* ns, of these */
};

struct timing_clock {
	const char *name;
	const char *what;
	bool counter; /* reads ticks, which must be allowed and of a known rate */
	bool rdtscp;  /* … by that instruction */
	bool ours;    /* what fbprof measures with */
	/* Takes about `duration` ns.  `scale` is ns a tick if `counter`. */
	void (*measure)(struct timing *timing, int64_t duration, double scale);
};

extern const struct timing_clock timing_clocks[];
extern const unsigned timing_clock_count;

/* Why the clock can't be measured here; NULL: it can. */
const char *timing_obstacle(const struct timing_clock *clock, const struct tick_clock_facts *facts);

void timing_measure(const struct timing_clock *clock, const struct tick_clock_facts *facts,
		    int64_t duration, struct timing *timing);

/*
 * Threads on different CPUs pass the time on: each reads tick_clock_now_ordered() after it has seen
 * what the others read.
 */
struct timing_race {
	unsigned threads;
	uint64_t reads;
	uint64_t backward; /* reads of an earlier time than one seen before */
	int64_t farthest;  /* ns, of these */
	bool given_up;	   /* the counter was found wrong meanwhile */
};

void timing_race(int64_t duration, struct timing_race *race);

#endif
