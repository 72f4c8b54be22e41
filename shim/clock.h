/*
 * The clock that the engine reads.  On a thread inside a profiled call CLOCK_MONOTONIC_RAW comes from
 * the word that the sampler moves on (sampler.h), plus at least 1 ns at each read: the engine drops
 * events of a request in which no time has passed.  Everybody else gets the real clock.
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
	struct frame_stack *stack; /* of the attachment that the thread executes; NULL: none profiled */
	uint64_t last;		   /* what the thread was told last, in sampler_clock's form */
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

/*
 * Answers CLOCK_MONOTONIC_RAW on a thread whose clock_thread.stack is set.  `real` is asked if the
 * time is not ours to tell.  Async-signal-safe.
 */
int clock_read(struct timespec *time, clock_function *real);

#endif
