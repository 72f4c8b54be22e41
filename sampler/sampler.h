/*
 * The sampler: one thread a process, which wakes at irregular intervals, asks each profiled
 * attachment for its position and charges the time since the last look to it.  The thread exists
 * while there is a target, and sleeps for good while all targets are idle.
 */
#ifndef FBPROF_SAMPLER_H
#define FBPROF_SAMPLER_H

#include "call_tree.h"
#include "position_source.h"

/* SAMPLING_INTERVAL in ns: what is allowed, and the default. */
#define SAMPLER_INTERVAL_MIN	 50000u
#define SAMPLER_INTERVAL_MAX	 1000000000u
#define SAMPLER_INTERVAL_DEFAULT 100000u

/* A profiled attachment.  Belongs to whoever added it; the sampler uses it until it is removed. */
struct sampler_target {
	struct position_source *source;
	struct call_tree *tree;		   /* NULL: only the clock is wanted */
	struct log_session_totals *totals; /* in the log; NULL: not kept */
	uint64_t interval;		   /* ns; the shortest of all targets counts */
	const _Atomic uint64_t *cost;	   /* of events, as in frame_stack.h; NULL: unknown */
	_Atomic uint64_t *cpu_time;	   /* where to add up CPU time, in ns; NULL: nowhere */

	/* The sampler's: */
	uint64_t deferred;  /* ns of looks that were unsure */
	uint64_t cost_seen; /* of `cost` */
	int32_t cpu_thread; /* whose CPU clock was read last … */
	uint64_t cpu_clock; /* … and what it was */
	uint64_t cpu_busy;  /* ns of looks since */
	struct sampler_target *next;
};

/*
 * What the sampler may use of a CPU, in percent.  If looks at the shortest interval would take more,
 * all intervals are stretched.
 */
#define SAMPLER_SHARE_DEFAULT 5

/* For the next time that the thread is started; 1 to 100. */
void sampler_set_share(unsigned percent);

/* Returns false if the thread could not be started.  Any thread but the sampler's. */
bool sampler_add(struct sampler_target *target);

/* When it returns, the sampler uses the target no more.  With the last one the thread ends. */
void sampler_remove(struct sampler_target *target);

/*
 * The time that engine threads see: CLOCK_MONOTONIC_RAW as of the sampler's last look, in ns; 0 while
 * the sampler sleeps: read the real clock.  Written by the sampler's thread alone, relaxed: it orders
 * nothing.
 */
extern _Atomic int64_t sampler_clock;

/* Whether this thread runs the sampler's code: what it then reads of a clock is real in any case. */
extern _Thread_local bool sampler_at_work __attribute__((tls_model("initial-exec")));

/* How many targets there are; for whoever wants to know whether anybody is profiled at all. */
extern _Atomic uint32_t sampler_targets;

/*
 * For an executing thread that has stopped being idle, after it has published its position.  Costs
 * one load while the sampler is awake.
 */
extern _Atomic uint32_t sampler_asleep;
void sampler_rouse(void);

static inline void sampler_wake(void)
{
	/*
	 * Relaxed, though the sampler must not miss us: it publishes `sampler_asleep`, has all other
	 * threads pass a memory barrier (membarrier), and only then looks at the positions for the
	 * last time.  Either it sees our position or we see that it sleeps.
	 */
	if (__builtin_expect(atomic_load_explicit(&sampler_asleep, memory_order_relaxed) != 0, 0))
		sampler_rouse();
}

/* Around fork: the child has no sampler, and none of the parent's targets. */
void sampler_lock(void);
void sampler_unlock(void);
void sampler_forget(void);

#endif
