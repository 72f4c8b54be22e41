/*
 * The clock that the engine reads.  On a thread inside a profiled call CLOCK_MONOTONIC_RAW comes from
 * the word that the sampler moves on (sampler.h); everybody else gets the real clock.
 *
 * The engine does two things with it that we have to know:
 *
 *   - It drops the end of a request in which no time has passed.  So the first read after an event
 *     is always at least 1 ns after the read before.
 *   - Every 30 s it takes the difference of two reads in a row for the cost of a read, and from then
 *     on subtracts that from all it measures.  If the clock moved on between these two, nothing would
 *     be left.  So a read that follows another one with no event between them gets the same time.
 *     On a thread of which we don't know yet that its call is profiled only if it follows at once,
 *     or if the pair is to be expected.
 *
 * It is also how we learn that a call has ended: the engine reads its clock when it leaves a
 * request, and sends no event.
 */
#ifndef FBPROF_CLOCK_H
#define FBPROF_CLOCK_H

#include "../sampler/frame_stack.h"
#include "../sampler/sampler.h"
#include <time.h>

struct clock_thread {
	struct frame_stack
		*stack; /* of the attachment that the thread executes; NULL: none profiled */
	uint64_t last;	/* what the thread was told last, in sampler_clock's form */

	/* Outside of a profiled call: */
	bool repeated; /* it was told so twice */
	enum {
		NO_PAIR,
		FIRST,
		SECOND
	} expects_pair; /* which of the engine's pair may come next */
};

/* Initial-exec: one instruction to reach, and no allocation that a signal handler could meet. */
extern _Thread_local struct clock_thread clock_thread __attribute__((tls_model("initial-exec")));

/* Whether clock_gettime is ours in this process, that is, whether we are preloaded. */
extern bool clock_is_ours;

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

/* The engine's first pair is about to come on this thread: it starts the attachment's first session. */
void clock_expect_pair(void);

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
