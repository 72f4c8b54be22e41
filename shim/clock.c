/*
 * The engine's clock: see clock.h.  Everything here is on the engine's hottest path while a session
 * runs: no call, no division, and one word that another thread writes.
 */
#include "clock.h"

_Thread_local struct clock_thread clock_thread;
bool clock_is_ours;

#define NS_PER_SECOND 1000000000u

#define unlikely(condition) __builtin_expect(!!(condition), 0)

static uint64_t pack(const struct timespec *time)
{
	return (uint64_t)time->tv_sec << SAMPLER_CLOCK_SECONDS_SHIFT | (uint64_t)time->tv_nsec;
}

/* The next ns, carried into the seconds when they are full. */
static uint64_t next(uint64_t packed)
{
	packed++;
	if (unlikely((packed & SAMPLER_CLOCK_NANOSECONDS_MASK) == NS_PER_SECOND))
		packed += (1ull << SAMPLER_CLOCK_SECONDS_SHIFT) - NS_PER_SECOND;
	return packed;
}

/*
 * What the two reads of a pair may be apart, in ns.  They take 20 to 60; outside of a profiled call,
 * where the first pair comes, caches may be cold.  No call of a statement is that short.
 */
#define AT_ONCE 300u
#define AT_ONCE_OUTSIDE 1000u

static uint64_t ns_of(uint64_t packed)
{
	return (packed >> SAMPLER_CLOCK_SECONDS_SHIFT) * NS_PER_SECOND + (packed & SAMPLER_CLOCK_NANOSECONDS_MASK);
}

static void unpack(uint64_t packed, struct timespec *time)
{
	time->tv_sec = (time_t)(packed >> SAMPLER_CLOCK_SECONDS_SHIFT);
	time->tv_nsec = (long)(packed & SAMPLER_CLOCK_NANOSECONDS_MASK);
}

static uint64_t read_real(clock_function *real)
{
	struct timespec time;

	real(CLOCK_MONOTONIC_RAW, &time);
	return pack(&time);
}

/* The real time, for a thread that is in no profiled call that we know of. */
static int read_outside(struct clock_thread *thread, struct timespec *time, clock_function *real)
{
	uint64_t packed = read_real(real);

	/* The cached clock, which it may have been told before, can be some ns ahead. */
	if (packed <= thread->last)
		packed = next(thread->last);
	/* A third read is not of the pair any more, and time must pass for it. */
	if (!thread->repeated && ns_of(packed) - ns_of(thread->last) < AT_ONCE_OUTSIDE) {
		thread->repeated = true;
	} else {
		thread->repeated = false;
		thread->last = packed;
	}
	unpack(thread->last, time);
	return 0;
}

/*
 * The read follows another one without an event.  If the sampler has moved the clock on between them
 * just now, they may be the engine's pair: the second one doesn't get to know.
 */
static uint64_t read_again(uint64_t last, uint64_t packed, clock_function *real)
{
	if (packed <= last || ns_of(read_real(real)) - ns_of(packed) < AT_ONCE)
		return last;
	return packed;
}

int clock_read(struct timespec *time, clock_function *real)
{
	struct clock_thread *thread = &clock_thread;
	struct frame_stack *stack = thread->stack;
	uint64_t packed = atomic_load_explicit(&sampler_clock, memory_order_relaxed);

	if (unlikely(!stack))
		return read_outside(thread, time, real);
	if (unlikely(stack->thread != thread)) {
		/* Another thread has executed the attachment since: our call ended long ago. */
		thread->stack = NULL;
		return read_outside(thread, time, real);
	}
	if (unlikely(!packed))
		packed = read_real(real);
	if (unlikely(stack->clock_reads++))
		packed = read_again(thread->last, packed, real);
	else if (packed <= thread->last)
		packed = next(thread->last);
	if (frame_stack_is_bare(stack)) {
		frame_stack_set_idle(stack, true);
		clock_leave(stack);
	}
	thread->last = packed;
	unpack(packed, time);
	return 0;
}
