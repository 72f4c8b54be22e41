/*
 * The engine's clock: see clock.h.  Everything here is on the engine's hottest path while a session
 * runs: no call, no division, and one word that another thread writes.
 */
#include "clock.h"

_Thread_local struct clock_thread clock_thread;
bool clock_is_ours;

#define NS_PER_SECOND 1000000000u

static uint64_t pack(const struct timespec *time)
{
	return (uint64_t)time->tv_sec << SAMPLER_CLOCK_SECONDS_SHIFT | (uint64_t)time->tv_nsec;
}

/* The next ns, carried into the seconds when they are full. */
static uint64_t next(uint64_t packed)
{
	packed++;
	if (__builtin_expect((packed & SAMPLER_CLOCK_NANOSECONDS_MASK) == NS_PER_SECOND, 0))
		packed += (1ull << SAMPLER_CLOCK_SECONDS_SHIFT) - NS_PER_SECOND;
	return packed;
}

int clock_read(struct timespec *time, clock_function *real)
{
	struct clock_thread *thread = &clock_thread;
	struct frame_stack *stack = thread->stack;
	uint64_t packed = atomic_load_explicit(&sampler_clock, memory_order_relaxed);

	if (__builtin_expect(stack->thread != thread, 0)) {
		/* Another thread has executed the attachment since: our call ended long ago. */
		thread->stack = NULL;
		return real(CLOCK_MONOTONIC_RAW, time);
	}
	if (frame_stack_is_bare(stack)) {
		frame_stack_set_idle(stack, true);
		clock_leave(stack);
	}
	if (__builtin_expect(!packed, 0)) {
		real(CLOCK_MONOTONIC_RAW, time);
		packed = pack(time);
	}
	if (packed <= thread->last)
		packed = next(thread->last);
	thread->last = packed;
	time->tv_sec = (time_t)(packed >> SAMPLER_CLOCK_SECONDS_SHIFT);
	time->tv_nsec = (long)(packed & SAMPLER_CLOCK_NANOSECONDS_MASK);
	return 0;
}
