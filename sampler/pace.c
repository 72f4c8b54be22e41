/*
 * See pace.h.
 */
#include "pace.h"

#include <time.h>

/* The unit of `stretch`. */
#define PACE_UNIT 1024u

/* No use in more: that is from 50 us to 1 s. */
#define STRETCH_MAX (PACE_UNIT * 20000u)

/* Long enough for some looks, and for the kernel's accounting to be true. */
#define PACE_WINDOW 10000000u

void pace_init(struct pace *pace, uint64_t random, unsigned share, uint64_t longest)
{
	*pace = (struct pace){
		.random = random | 1, .share = share, .longest = longest, .stretch = PACE_UNIT
	};
}

/* xorshift64*: irregular enough. */
static uint64_t random_next(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dull;
}

uint64_t pace_random(struct pace *pace, uint64_t limit)
{
	return (uint64_t)(((unsigned __int128)random_next(&pace->random) * limit) >> 64);
}

static uint64_t own_cpu_time(void)
{
	struct timespec time;

	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time))
		return 0;
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/*
 * What a look takes depends on the machine (on a guest, 15 µs for being woken alone) and on how many
 * attachments are busy, so it is measured: a quarter of the way, at each step, to the interval at
 * which the last looks would have kept within the share.
 */
void pace_keep(struct pace *pace, uint64_t time)
{
	uint64_t cpu, wanted;

	if (pace->wall && time - pace->wall < PACE_WINDOW)
		return;
	cpu = own_cpu_time();
	if (pace->wall) {
		wanted = pace->stretch * (cpu - pace->cpu) * 100 /
			 ((time - pace->wall) * pace->share);
		pace->stretch = (3 * pace->stretch + wanted) / 4;
		if (pace->stretch < PACE_UNIT)
			pace->stretch = PACE_UNIT;
		if (pace->stretch > STRETCH_MAX)
			pace->stretch = STRETCH_MAX;
	}
	pace->wall = time;
	pace->cpu = cpu;
}

void pace_pause(struct pace *pace)
{
	pace->wall = 0;
}

uint64_t pace_interval(const struct pace *pace, uint64_t wanted)
{
	uint64_t interval = wanted * pace->stretch / PACE_UNIT;

	return interval < pace->longest ? interval : pace->longest;
}

bool pace_is_stretched(const struct pace *pace)
{
	return pace->stretch > PACE_UNIT + PACE_UNIT / 8;
}

void pace_next(struct pace *pace, uint64_t interval, uint64_t now, uint64_t *deadline)
{
	*deadline += interval / 2 + pace_random(pace, interval);
	if (*deadline < now || *deadline > now + 2 * interval)
		*deadline = now + interval / 4;
}
