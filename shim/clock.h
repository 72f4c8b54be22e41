/*
 * The clock that the engine reads.  On a thread inside a profiled call CLOCK_MONOTONIC_RAW comes from
 * the word that the sampler moves on (sampler.h); everybody else gets the real clock.
 *
 * The engine does two things with it that we have to know:
 *
 *   - It drops the end of a request in which no time has passed.  So each read of a thread is at
 *     least 1 ns after the read before.
 *   - It measures what a read costs: if more than 30 s have passed since it did so last for this
 *     attachment, a read is followed at once by a second one, and the difference is subtracted from
 *     all that it measures in the next 30 s.  If the clock moved on between these two, nothing would
 *     be left.  So the second read of such a pair, and it alone, gets the time of the first.
 *
 * Which read that is follows from the engine's own rule, kept in each attachment's frame stack as
 * `next_pair`, the time from which a read is followed by another one.  As long as nobody's time has
 * come, no read is repeated.  If it has, a read that follows at once is taken for the second of the
 * pair.  That can be wrong in one case: the attachment whose pair is due is idle, and on another
 * one's thread a request starts and ends within PAIR_APART (clock.c) and without an event, which only
 * RDB$PROFILER's own procedures do; the end of that request is lost.
 *
 * The clock is also how we learn that a call has ended: the engine reads it when it leaves a request,
 * and sends no event.
 */
#ifndef FBPROF_CLOCK_H
#define FBPROF_CLOCK_H

#include "../sampler/frame_stack.h"
#include "../sampler/sampler.h"
#include <time.h>

/* Times are in sampler_clock's form, which can be compared. */
struct clock_thread {
	struct frame_stack
		*stack; /* of the attachment that the thread executes; NULL: none profiled */
	uint64_t last;	/* what the thread was told last */

	uint64_t first; /* when that was, really, if it may have been the first of a pair; else 0 */
	uint64_t first_top, first_frame; /* where the thread was then, if inside a profiled call */
	uint64_t pair; /* told twice, outside of a profiled call: we don't know for whom.  0: no */
};

/* Initial-exec: one instruction to reach, and no allocation that a signal handler could meet. */
extern _Thread_local struct clock_thread clock_thread __attribute__((tls_model("initial-exec")));

/* Whether clock_gettime is ours in this process, that is, whether we are preloaded. */
extern bool clock_is_ours;

/*
 * A session starts for an attachment, whose engine is known to expect its pair at `next_pair` (0: any
 * time now).
 */
static inline void clock_watch(struct frame_stack *stack, uint64_t next_pair)
{
	atomic_store_explicit(&stack->next_pair, next_pair, memory_order_relaxed);
}

static inline uint64_t clock_next_pair(const struct frame_stack *stack)
{
	return atomic_load_explicit(&stack->next_pair, memory_order_relaxed);
}

/* An event tells that the thread is in a call of this attachment: a pair that it saw was for it. */
void clock_settle(struct frame_stack *stack);

/*
 * The thread executes this attachment from now on; maybe on behalf of another one, to which it will
 * come back (EXECUTE STATEMENT … ON EXTERNAL).
 */
static inline void clock_enter(struct frame_stack *stack)
{
	if (clock_thread.stack != stack) {
		stack->outer = clock_thread.stack;
		clock_thread.stack = stack;
		stack->thread = &clock_thread;
	}
	clock_settle(stack);
}

/* Whether the thread is in a call of this attachment, as far as we know. */
static inline bool clock_is_inside(const struct frame_stack *stack)
{
	return clock_thread.stack == stack && stack->thread == &clock_thread;
}

/* The thread has left the attachment. */
static inline void clock_leave(struct frame_stack *stack)
{
	if (clock_thread.stack == stack)
		clock_thread.stack = stack->outer;
}

typedef int clock_function(clockid_t id, struct timespec *time);

/*
 * CLOCK_MONOTONIC_RAW for a thread whose clock_thread.stack is set, and for other threads of a process
 * that has a session.
 */
int clock_read(struct timespec *time, clock_function *real);
int clock_read_outside(struct timespec *time, clock_function *real);

/* clock_gettime(), with the real one at hand.  Async-signal-safe. */
static inline int clock_answer(clockid_t id, struct timespec *time, clock_function *real)
{
	if (__builtin_expect(id == CLOCK_MONOTONIC_RAW, 0)) {
		if (clock_thread.stack)
			return clock_read(time, real);
		if (atomic_load_explicit(&sampler_targets, memory_order_relaxed))
			return clock_read_outside(time, real);
	}
	return real(id, time);
}

#endif
