/*
 * Measuring clocks: see timing.h.
 *
 * Each clock has its own copy of the loops, with its read inlined: a call would cost as much as some of
 * the clocks.
 */
#include "timing.h"

#include <glib.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_SECOND 1000000000

/* Reads between two looks at the time: enough that a look is no matter. */
#define BATCH 1000

#define RACERS_MAX 8
/* Between two checks of the clock against the system's while threads read it, in µs. */
#define CHECK_INTERVAL 10000

typedef int64_t read_function(void);

static inline int64_t read_system(clockid_t id)
{
	struct timespec time;

	clock_gettime(id, &time);
	return (int64_t)time.tv_sec * NS_PER_SECOND + time.tv_nsec;
}

/* ---- The loops ---- */

static inline __attribute__((always_inline)) void
measure_cost(struct timing *timing, read_function *read, int64_t duration)
{
	int64_t begin = read_system(CLOCK_MONOTONIC_RAW), before = begin, now = begin;
	uint64_t batches = 0;

	while (now - begin < duration) {
		double batch;

		for (int i = 0; i < BATCH; i++) {
			int64_t value = read();

			__asm__ volatile("" : : "r"(value));
		}
		now = read_system(CLOCK_MONOTONIC_RAW);
		batch = (double)(now - before) / BATCH;
		if (!batches || batch < timing->least)
			timing->least = batch;
		before = now;
		batches++;
	}
	timing->mean = batches ? (double)(now - begin) / BATCH / (double)batches : 0;
}

static void note_backward(struct timing *timing, double ns)
{
	timing->backward++;
	timing->farthest = MAX(timing->farthest, ns);
}

static inline unsigned bucket_of(uint64_t ns)
{
	unsigned bits = ns ? 64 - (unsigned)__builtin_clzll(ns) : 0;

	return MIN(bits, TIMING_BUCKETS - 1);
}

static inline __attribute__((always_inline)) void
measure_steps(struct timing *timing, read_function *read, int64_t duration, double scale)
{
	int64_t begin = read_system(CLOCK_MONOTONIC_RAW), before = read(), least = INT64_MAX;

	while (read_system(CLOCK_MONOTONIC_RAW) - begin < duration) {
		for (int i = 0; i < BATCH; i++) {
			int64_t now = read(), step = now - before;

			before = now;
			timing->steps++;
			if (step < 0) {
				note_backward(timing, -(double)step * scale);
				continue;
			}
			timing->buckets[bucket_of((uint64_t)((double)step * scale))]++;
			if (step && step < least)
				least = step;
		}
	}
	timing->least_step = least == INT64_MAX ? 0 : (double)least * scale;
}

static inline __attribute__((always_inline)) void
measure(struct timing *timing, read_function *read, int64_t duration, double scale)
{
	memset(timing, 0, sizeof(*timing));
	/* The first reads find neither code nor data in the caches. */
	for (int i = 0; i < BATCH; i++)
		read();
	measure_cost(timing, read, duration / 2);
	measure_steps(timing, read, duration / 2, scale);
}

/* ---- The clocks ---- */

#define CLOCK(name, expression)                                                           \
	static inline int64_t read_##name(void)                                           \
	{                                                                                 \
		return expression;                                                        \
	}                                                                                 \
	static void measure_##name(struct timing *timing, int64_t duration, double scale) \
	{                                                                                 \
		measure(timing, read_##name, duration, scale);                            \
	}

CLOCK(counter, (int64_t)tick_clock_ticks())
CLOCK(counter_ordered, (int64_t)tick_clock_ticks_ordered())
CLOCK(tick_clock, tick_clock_now())
CLOCK(tick_clock_ordered, tick_clock_now_ordered())
CLOCK(raw, read_system(CLOCK_MONOTONIC_RAW))
CLOCK(monotonic, read_system(CLOCK_MONOTONIC))
CLOCK(coarse, read_system(CLOCK_MONOTONIC_COARSE))
CLOCK(cpu, read_system(CLOCK_THREAD_CPUTIME_ID))

#if defined(__x86_64__)

static inline int64_t ticks_by_rdtscp(void)
{
	uint32_t low, high, cpu;

	__asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(cpu) : : "memory");
	return (int64_t)((uint64_t)high << 32 | low);
}

CLOCK(rdtscp, ticks_by_rdtscp())

#define COUNTER		"rdtsc"
#define COUNTER_ORDERED "lfence-rdtsc"
#else
#define COUNTER		"cntvct"
#define COUNTER_ORDERED "isb-cntvct"
#endif

const struct timing_clock timing_clocks[] = {
	{ .name = COUNTER,
	  .what = "the processor's counter, not ordered",
	  .counter = true,
	  .measure = measure_counter },
	{ .name = COUNTER_ORDERED,
	  .what = "… after all that comes before it",
	  .counter = true,
	  .measure = measure_counter_ordered },
#if defined(__x86_64__)
	{ .name = "rdtscp",
	  .what = "… the same by one instruction",
	  .counter = true,
	  .rdtscp = true,
	  .measure = measure_rdtscp },
#endif
	{ .name = "tick-clock",
	  .what = "fbprof's clock, for durations on a thread",
	  .ours = true,
	  .measure = measure_tick_clock },
	{ .name = "tick-clock-ordered",
	  .what = "fbprof's clock, for times that threads compare",
	  .ours = true,
	  .measure = measure_tick_clock_ordered },
	{ .name = "raw",
	  .what = "CLOCK_MONOTONIC_RAW, which Firebird reads",
	  .measure = measure_raw },
	{ .name = "monotonic", .what = "CLOCK_MONOTONIC", .measure = measure_monotonic },
	{ .name = "coarse", .what = "CLOCK_MONOTONIC_COARSE", .measure = measure_coarse },
	{ .name = "cpu",
	  .what = "CLOCK_THREAD_CPUTIME_ID, the thread's CPU time",
	  .measure = measure_cpu },
};

const unsigned timing_clock_count = G_N_ELEMENTS(timing_clocks);

const char *timing_obstacle(const struct timing_clock *clock, const struct tick_clock_facts *facts)
{
	if (!clock->counter)
		return NULL;
	if (facts->reason == TICK_CLOCK_NO_COUNTER)
		return "there is none";
	if (!facts->allowed)
		return "it may not be read here";
	if (clock->rdtscp && !facts->rdtscp)
		return "the processor doesn't have it";
	return facts->measured ? NULL : "its rate is not known";
}

void timing_measure(const struct timing_clock *clock, const struct tick_clock_facts *facts,
		    int64_t duration, struct timing *timing)
{
	clock->measure(timing, duration,
		       clock->counter ? (double)NS_PER_SECOND / (double)facts->measured : 1);
}

/* ---- Between CPUs ---- */

struct racer {
	struct race *race;
	int cpu;
	uint64_t reads, backward;
	int64_t farthest;
};

struct race {
	_Atomic int64_t last_seen;
	_Atomic bool over;
	struct racer racers[RACERS_MAX];
};

static void *run_racer(void *data)
{
	struct racer *racer = data;
	struct race *race = racer->race;
	cpu_set_t mask;

	CPU_ZERO(&mask);
	CPU_SET(racer->cpu, &mask);
	sched_setaffinity(0, sizeof(mask), &mask);
	while (!atomic_load_explicit(&race->over, memory_order_relaxed)) {
		int64_t seen = atomic_load_explicit(&race->last_seen, memory_order_acquire);
		int64_t now = tick_clock_now_ordered();

		racer->reads++;
		if (now >= seen) {
			atomic_compare_exchange_strong(&race->last_seen, &seen, now);
		} else {
			racer->backward++;
			racer->farthest = MAX(racer->farthest, seen - now);
		}
	}
	return NULL;
}

/* The CPUs that we may use, from the first one to the last one, if there are more than racers. */
static unsigned choose_cpus(struct race *race)
{
	int usable[CPU_SETSIZE];
	unsigned count = 0, racers;
	cpu_set_t mask;

	if (sched_getaffinity(0, sizeof(mask), &mask))
		return 0;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &mask))
			usable[count++] = cpu;
	}
	racers = MIN(count, RACERS_MAX);
	for (unsigned i = 0; i < racers; i++)
		race->racers[i] = (struct racer){
			.race = race, .cpu = usable[racers > 1 ? i * (count - 1) / (racers - 1) : 0]
		};
	return racers;
}

void timing_race(int64_t duration, struct timing_race *result)
{
	int64_t begin = read_system(CLOCK_MONOTONIC_RAW);
	struct race race = { .over = false };
	GThread *threads[RACERS_MAX];
	unsigned count = choose_cpus(&race);

	*result = (struct timing_race){ .threads = count };
	if (count < 2)
		return;
	for (unsigned i = 0; i < count; i++)
		threads[i] = g_thread_new("racer", run_racer, &race.racers[i]);
	while (read_system(CLOCK_MONOTONIC_RAW) - begin < duration) {
		g_usleep(CHECK_INTERVAL);
		result->given_up |= tick_clock_check();
	}
	atomic_store(&race.over, true);
	for (unsigned i = 0; i < count; i++) {
		g_thread_join(threads[i]);
		result->reads += race.racers[i].reads;
		result->backward += race.racers[i].backward;
		result->farthest = MAX(result->farthest, race.racers[i].farthest);
	}
}
