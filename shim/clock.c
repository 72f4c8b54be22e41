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
 * What the two reads of the engine's pair may be apart, in ns.  They take 20 to 60 once the code is in
 * the caches, several 100 the first time.  A request that raises no event takes 120 and more.
 */
#define AT_ONCE		    100u
#define AT_ONCE_IF_EXPECTED 100000u

/* The engine measures its clock's cost again after 30 s. */
#define PAIR_INTERVAL (29 * (uint64_t)NS_PER_SECOND)

static uint64_t ns_of(uint64_t packed)
{
	return (packed >> SAMPLER_CLOCK_SECONDS_SHIFT) * NS_PER_SECOND +
	       (packed & SAMPLER_CLOCK_NANOSECONDS_MASK);
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

/*
 * Whether the time that passed since the read before is to be hidden: that read may have been the
 * first of a pair.
 */
static bool is_second_of_pair(struct clock_thread *thread, uint64_t passed)
{
	bool second = passed < (thread->expects_pair == SECOND ? AT_ONCE_IF_EXPECTED : AT_ONCE) &&
		      !thread->repeated;

	if (thread->expects_pair == FIRST || passed > PAIR_INTERVAL)
		thread->expects_pair = SECOND;
	else
		thread->expects_pair = NO_PAIR;
	thread->repeated = second;
	return second;
}

void clock_expect_pair(void)
{
	clock_thread.expects_pair = FIRST;
}

int clock_read_outside(struct timespec *time, clock_function *real)
{
	struct clock_thread *thread = &clock_thread;
	uint64_t packed = read_real(real);

	/* The cached clock, which it may have been told before, can be some ns ahead. */
	if (packed <= thread->last)
		packed = next(thread->last);
	if (!is_second_of_pair(thread, ns_of(packed) - ns_of(thread->last)))
		thread->last = packed;
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

	if (unlikely(stack->thread != thread)) {
		/* Another thread has executed the attachment since: our call ended long ago. */
		thread->stack = NULL;
		return clock_read_outside(time, real);
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
