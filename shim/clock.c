/*
 * The engine's clock: see clock.h.  Everything here is on the engine's hottest path while a session
 * runs: no call, no division, and one word that another thread writes.
 */
#include "clock.h"

_Thread_local struct clock_thread clock_thread;
bool clock_is_ours;

#define NS_PER_SECOND 1000000000u

#define unlikely(condition) __builtin_expect(!!(condition), 0)

/*
 * The engine's rule, from its PerformanceStopWatch: a pair comes when more than 30,000 whole ms have
 * passed since the second read of the last one; at first, since time 0.
 */
#define PAIR_INTERVAL_SECONDS	  30
#define PAIR_INTERVAL_NANOSECONDS 1000000

/*
 * How far apart the two reads of a pair may be, in ns.  They take 20 to 60 once the code is in the
 * caches, up to 700 the first time.  A statement without events, like INSERT, takes several 1000.
 */
#define PAIR_APART 2000u

/*
 * A pair that was due so often and did not come is not expected for another 30 s: the clocks of a
 * machine that has run for over 106 days overflow in the engine's rule, and its next version may have
 * another one.
 */
#define PAIRS_MISSED_MAX 8

/* A pair of an unknown attachment tells for so many seconds that the next read is none. */
#define PAIR_SETTLES_SECONDS 1

static uint64_t pack(const struct timespec *time)
{
	return (uint64_t)time->tv_sec << SAMPLER_CLOCK_SECONDS_SHIFT | (uint64_t)time->tv_nsec;
}

static uint64_t later(uint64_t packed, uint64_t seconds, uint64_t nanoseconds)
{
	packed += (seconds << SAMPLER_CLOCK_SECONDS_SHIFT) + nanoseconds;
	if (unlikely((packed & SAMPLER_CLOCK_NANOSECONDS_MASK) >= NS_PER_SECOND))
		packed += (1ull << SAMPLER_CLOCK_SECONDS_SHIFT) - NS_PER_SECOND;
	return packed;
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

static uint64_t pair_after(uint64_t packed)
{
	return later(packed, PAIR_INTERVAL_SECONDS, PAIR_INTERVAL_NANOSECONDS);
}

/* Whether `now` follows at once upon a read that may have been the first of a pair. */
static bool follows_first(const struct clock_thread *thread, uint64_t now)
{
	return thread->first && now < later(thread->first, 0, PAIR_APART);
}

/* ---- Outside of a profiled call ---- */

static bool is_anyones_pair_due(uint64_t packed)
{
	struct frame_stack *stack = atomic_load_explicit(&frame_stacks, memory_order_acquire);

	while (stack && packed < clock_next_pair(stack))
		stack = stack->next_made;
	return stack != NULL;
}

void clock_settle(struct frame_stack *stack)
{
	struct clock_thread *thread = &clock_thread;

	if (thread->pair && thread->pair >= clock_next_pair(stack))
		clock_watch(stack, pair_after(thread->pair));
	thread->pair = thread->first = 0;
}

int clock_read_outside(struct timespec *time, clock_function *real)
{
	struct clock_thread *thread = &clock_thread;
	uint64_t now = read_real(real);

	if (unlikely(follows_first(thread, now))) {
		thread->first = 0;
		thread->pair = thread->last;
	} else {
		/* The cached clock, which it may have been told before, can be some ns ahead. */
		thread->last = now > thread->last ? now : later(thread->last, 0, 1);
		if (thread->pair && now > later(thread->pair, PAIR_SETTLES_SECONDS, 0))
			thread->pair = 0;
		thread->first = !thread->pair && is_anyones_pair_due(thread->last) ? now : 0;
	}
	unpack(thread->last, time);
	return 0;
}

/* ---- Inside ---- */

static uint64_t innermost(const struct frame_stack *stack)
{
	uint32_t depth = frame_stack_depth(stack);

	return depth ? frame_stack_at(stack, depth - 1) : 0;
}

/*
 * The attachment's pair is due.  Each event moves the position, so if it is where it was, none came
 * between.
 */
static __attribute__((noinline, cold)) uint64_t
read_due(struct clock_thread *thread, struct frame_stack *stack, uint64_t packed, uint64_t now)
{
	uint64_t top = frame_stack_top(stack), frame = innermost(stack);

	if (follows_first(thread, now) && top == thread->first_top &&
	    frame == thread->first_frame) {
		clock_watch(stack, pair_after(thread->last));
		thread->first = 0;
		stack->pairs_missed = 0;
		return thread->last;
	}
	if (thread->first && ++stack->pairs_missed == PAIRS_MISSED_MAX) {
		clock_watch(stack, pair_after(packed));
		thread->first = 0;
		stack->pairs_missed = 0;
		return packed;
	}
	thread->first = now;
	thread->first_top = top;
	thread->first_frame = frame;
	return packed;
}

int clock_read(struct timespec *time, clock_function *real)
{
	struct clock_thread *thread = &clock_thread;
	struct frame_stack *stack = thread->stack;
	uint64_t packed = atomic_load_explicit(&sampler_clock, memory_order_relaxed);

	if (unlikely(stack->thread != thread)) {
		/* Another thread has executed the attachment since: our call ended long ago. */
		thread->stack = NULL;
		return clock_read_outside(time, real);
	}
	if (unlikely(!packed))
		packed = read_real(real);
	if (packed <= thread->last)
		packed = later(thread->last, 0, 1);
	if (unlikely(packed >= clock_next_pair(stack)))
		packed = read_due(thread, stack, packed, read_real(real));
	if (frame_stack_is_bare(stack)) {
		frame_stack_set_idle(stack, true);
		clock_leave(stack);
	}
	thread->last = packed;
	unpack(packed, time);
	return 0;
}
