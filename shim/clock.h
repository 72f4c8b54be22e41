/*
 * The clock that the engine reads.  On a thread inside a profiled call CLOCK_MONOTONIC_RAW comes from
 * the word that the sampler moves on (sampler.h), or is the real one in measured mode; everybody else
 * gets the real clock.
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
 * one's thread a request starts and ends at once (clock.c says when that is) and without an event,
 * which only RDB$PROFILER's own procedures do; the end of that request is lost.
 *
 * In coarse and measured mode the clock of a thread lags behind the real one by what profiling itself
 * has taken since the thread came in, so that whatever the engine subtracts is without it: in coarse
 * mode by the estimated costs of the events (frame_stack.h), in measured mode by what clock_exclude()
 * has seen.
 *
 * In MODE=CLOCK no event tells which threads execute the attachment.  As long as there is such a
 * session, all threads of the process but the sampler's get the sampler's word, unless they are known
 * to be inside a profiled call.  (The engine reads this clock for little else than profiling.)  They
 * keep the sampler awake by `clock_last_read`, which changes once for each word that is told.  Beside
 * a session in measured mode they get the real clock, lest the first interval of each of its calls,
 * which begins outside, is too long.
 *
 * Then it isn't known either whose pair a thread reads, so whoever reads the clock for the first time
 * after it moved on, while anyone's pair is due, has the read that follows repeated.  That is the
 * first read of a pair because an attachment's time comes when the clock moves on, and not with the
 * 1 ns of a read.  Whose pair it was, the next event tells: clock_event().
 *
 * In sampled mode the clock is also how we learn that a call has ended: the engine reads it when it
 * leaves a request, and sends no event.
 *
 * All times are in ns.
 */
#ifndef FBPROF_CLOCK_H
#define FBPROF_CLOCK_H

#include "../sampler/frame_stack.h"
#include "../sampler/sampler.h"
#include "../sampler/tick_clock.h"
#include <time.h>

#define CLOCK_NS_PER_SECOND 1000000000

/* Never the sampler's: every read has to look closer. */
#define CLOCK_LOOK_CLOSER (-1)

struct clock_thread {
	/* The sampler's word as of the last read, if the next one may go by it. */
	int64_t word;
	/* What the thread was told last, as it was told. */
	int64_t seconds, nanoseconds;
	/* When that last moved on: in ns, and the nanoseconds of it. */
	int64_t jumped, jump;

	struct frame_stack
		*stack;	   /* of the attachment that the thread executes; NULL: none profiled */
	int64_t offset;	   /* it is told the time of so long ago */
	bool measures;	   /* it is in measured mode: */
	int64_t real;	   /* when it was told last, or what has been left out since */
	int64_t read_cost; /* what a read of the clock takes … */
	int64_t owed;	   /* … of which so much would be left out twice by an event that follows */
	int64_t fraction;  /* of a ns, that is still to be left out */
	int64_t look_closer_at;

	int64_t first; /* when that was, really, if it may have been the first of a pair; else 0 */
	uint64_t first_top, first_frame; /* where the thread was then, if inside a profiled call */
	bool expects_pair; /* it has started a session, in a call of that attachment as a rule */
	const struct frame_stack *executed; /* the attachment that it was last in; NULL: none */
	int64_t pair; /* told twice, outside of a profiled call: we don't know for whom.  0: no */
};

/* Initial-exec: one instruction to reach, and no allocation that a signal handler could meet. */
extern _Thread_local struct clock_thread clock_thread __attribute__((tls_model("initial-exec")));

typedef int clock_function(clockid_t id, struct timespec *time);

/*
 * The system's clock_gettime.  If that name is ours, a system call until the library has been loaded;
 * then written once by its constructor, or before with the same value.
 */
extern clock_function *clock_real __attribute__((visibility("hidden")));

/* Whether clock_gettime is ours in this process, that is, whether we are preloaded. */
extern bool clock_is_ours;

/*
 * A session starts for an attachment, whose engine is known to measure its clock from `next_pair` on
 * (0: any time now).
 */
void clock_expect_pair(struct frame_stack *stack, int64_t next_pair);

static inline void clock_watch(struct frame_stack *stack, int64_t next_pair)
{
	atomic_store_explicit(&stack->next_pair, next_pair, memory_order_relaxed);
}

static inline int64_t clock_next_pair(const struct frame_stack *stack)
{
	return atomic_load_explicit(&stack->next_pair, memory_order_relaxed);
}

/* How many sessions there are whose threads are not known; and how many in measured mode. */
extern _Atomic uint32_t clock_sessions_for_all, clock_sessions_measured;

/* What a thread of which nothing is known was told last, from time to time: it changes while any reads. */
extern _Atomic int64_t clock_last_read;

/*
 * An event of a session whose threads are not known: the thread is in a call of its attachment now,
 * and has read the clock for it.
 */
void clock_event(struct frame_stack *stack);

/* Whether anyone's pair is due at `time`. */
bool clock_is_pair_due(int64_t time);

/* After fork, in the child: none of the parent's sessions goes on. */
void clock_forget(void);

/* An event tells that the thread is in a call of this attachment: a pair that it saw was for it. */
void clock_settle(struct frame_stack *stack);

/*
 * The thread executes this attachment from now on; maybe on behalf of another one, to which it will
 * come back (EXECUTE STATEMENT … ON EXTERNAL).
 */
void clock_enter(struct frame_stack *stack);

/* The thread has left the attachment. */
void clock_leave(struct frame_stack *stack);

/* Whether the thread is in a call of this attachment, as far as we know. */
static inline bool clock_is_inside(const struct frame_stack *stack)
{
	return clock_thread.stack == stack && stack->thread == &clock_thread;
}

/* The next read of this thread may be the one that leaves the call. */
static inline void clock_expect_end(void)
{
	clock_thread.word = CLOCK_LOOK_CLOSER;
}

/* What the thread was told last. */
static inline int64_t clock_told(void)
{
	return clock_thread.seconds * CLOCK_NS_PER_SECOND + clock_thread.nanoseconds;
}

/*
 * An upper bound of what the engine measures if its clock has not moved on since, but for the 1 ns of
 * each read.  (Too low, harmlessly, if these have carried into a new second.)
 */
static inline uint64_t clock_since_jump(void)
{
	return (uint64_t)(clock_thread.nanoseconds - clock_thread.jump);
}

/* Measured mode, on a thread that is inside: so much, in units of COST_PER_NS_SHIFT, does not count. */
static inline void clock_leave_out(struct clock_thread *thread, int64_t work)
{
	work += thread->fraction;
	thread->fraction = work & ((1u << COST_PER_NS_SHIFT) - 1);
	thread->offset += work >> COST_PER_NS_SHIFT;
}

/* A prime, lest events that take turns are never those that are measured. */
#define CLOCK_OWN_WORK_EVERY 17

/* clock_exclude() by measuring. */
void clock_exclude_measured(struct frame_stack *stack, unsigned event);

/*
 * Measured mode, at the end of an event, on a thread that is inside: what has passed since the engine
 * read its clock, or since clock_exclude_from(), does not count, nor does what can't be seen from here,
 * which is the stack's `event_cost`.
 *
 * Reading the clock once more for it would take a third of what all of our work does.  So an event that
 * goes the usual way is taken to last as long as its kind does in the mean, by measuring one of
 * CLOCK_OWN_WORK_EVERY, and one that doesn't is measured itself: whatever is rare and slow has to call
 * clock_own_work_is_unusual().
 */
static inline void clock_exclude(struct frame_stack *stack, unsigned event)
{
	int64_t work = stack->own_work[event];

	if (__builtin_expect(stack->own_work_due <= 0 || !work, 0)) {
		clock_exclude_measured(stack, event);
		return;
	}
	stack->own_work_due--;
	clock_leave_out(&clock_thread, work);
}

/* Beside it, in measured mode: what something costs more than its kind of event does. */
static inline void clock_exclude_more(const struct frame_stack *stack, int64_t cost)
{
	if (stack->clock_mode == CLOCK_MEASURED && clock_is_inside(stack))
		clock_leave_out(&clock_thread, cost);
}

/* Until the next clock_exclude(): negative, with the number of events to come kept as its complement. */
static inline void clock_own_work_is_unusual(struct frame_stack *stack)
{
	if (stack->own_work_due >= 0)
		stack->own_work_due = ~stack->own_work_due;
}

/* `moment` is of tick_clock_now(). */
static inline void clock_exclude_from(int64_t moment)
{
	clock_thread.real = moment;
	clock_thread.owed = 0;
}

/* Of an event whose engine's read of the clock is too long ago: from now on. */
static inline void clock_exclude_from_now(const struct frame_stack *stack, unsigned event)
{
	if (stack->own_work_due <= 0 || !stack->own_work[event])
		clock_exclude_from(tick_clock_now());
}

/* CLOCK_MONOTONIC_RAW when the short way doesn't do; and in measured mode. */
int clock_look_closer(struct timespec *time);
int clock_measure(struct timespec *time);

/* What clock_measure() takes now, in ns: of several, the mean. */
int64_t clock_read_cost(void);

/* clock_gettime().  Async-signal-safe. */
static inline int clock_answer(clockid_t id, struct timespec *time)
{
	struct clock_thread *thread = &clock_thread;

	if (__builtin_expect(id != CLOCK_MONOTONIC_RAW, 0))
		return clock_real(id, time);
	if (__builtin_expect(atomic_load_explicit(&sampler_clock, memory_order_relaxed) ==
				     thread->word,
			     1)) {
		int64_t nanoseconds = thread->nanoseconds + 1;

		if (__builtin_expect(nanoseconds < CLOCK_NS_PER_SECOND, 1)) {
			thread->nanoseconds = nanoseconds;
			time->tv_nsec = nanoseconds;
			/* The engine reads the two one by one: one wide store would be in its way. */
			atomic_signal_fence(memory_order_relaxed);
			time->tv_sec = thread->seconds;
			return 0;
		}
	}
	return __builtin_expect(thread->measures, 0) ? clock_measure(time) :
						       clock_look_closer(time);
}

#endif
