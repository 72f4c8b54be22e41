/*
 * When a sampler looks: at irregular intervals, so that it doesn't march in step with what it samples,
 * and so seldom that it keeps within its share of a CPU.  For one thread, the one that looks.
 */
#ifndef FBPROF_PACE_H
#define FBPROF_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct pace {
	uint64_t random;  /* not 0: the state of the generator */
	unsigned share;	  /* percent of a CPU that the thread may use; 1 to 100 */
	uint64_t longest; /* ns: no interval gets longer than this */

	/* Within pace.c: how much longer than wanted intervals are, and since when that was reckoned. */
	uint64_t stretch, wall, cpu;
};

void pace_init(struct pace *pace, uint64_t random, unsigned share, uint64_t longest);

/* Uniform between 0 and `limit`. */
uint64_t pace_random(struct pace *pace, uint64_t limit);

/* After each look, at `time` in ns of any clock that only goes forward: measures what looks take. */
void pace_keep(struct pace *pace, uint64_t time);

/* After a pause, which is not to count as time without work. */
void pace_pause(struct pace *pace);

/* The interval in ns that keeps within the share, if `wanted` is the one that is wanted. */
uint64_t pace_interval(const struct pace *pace, uint64_t wanted);

/* Whether intervals are noticeably longer than wanted. */
bool pace_is_stretched(const struct pace *pace);

/*
 * Moves the deadline of a look on to the next one's, on average one interval later: between half and
 * one and a half.  A sampler that is late does not run after the looks that it missed.
 */
void pace_next(struct pace *pace, uint64_t interval, uint64_t now, uint64_t *deadline);

#endif
