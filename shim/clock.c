/*
 * The engine's clock when it has moved on, or may have to be repeated: see clock.h, where the short
 * way is.
 */
#include "clock.h"
#include "event_cost.h"

#include <sys/syscall.h>
#include <unistd.h>

_Thread_local struct clock_thread clock_thread = { .word = CLOCK_LOOK_CLOSER };
bool clock_is_ours;
_Atomic uint32_t clock_sessions_for_all, clock_sessions_measured;
_Atomic int64_t clock_last_read;

static int clock_by_system_call(clockid_t id, struct timespec *time)
{
	return (int)syscall(SYS_clock_gettime, id, time);
}

clock_function *clock_real = clock_by_system_call;

#define NS_PER_SECOND CLOCK_NS_PER_SECOND

#define unlikely(condition) __builtin_expect(!!(condition), 0)

/*
 * The engine's rule, from its PerformanceStopWatch: a pair comes when more than 30,000 whole ms have
 * passed since the second read of the last one; at first, since time 0.
 */
#define PAIR_INTERVAL 30001000000

/*
 * How far apart the two reads of a pair may be.  They take 20 to 60 ns once the code is in the caches,
 * some 100 the first time, and much longer if the thread is interrupted between them.  If nothing
 * else can come between two reads, or most likely it is a pair, there is time for that.  If the
 * thread's last attachment has had its pair, the other reads are most likely those of a statement
 * without events, as INSERT, which takes 700 ns and more.  Under a sanitizer everything takes longer.
 */
#define PAIR_APART_SURELY 10000000
#define PAIR_APART_LIKELY 10000
#ifdef __SANITIZE_THREAD__
#define PAIR_APART_UNLIKELY PAIR_APART_LIKELY
#else
#define PAIR_APART_UNLIKELY 600
#endif

/* Reads look closer for so long before a pair is due: more than the clock moves on at once. */
#define PAIR_WATCH NS_PER_SECOND

/*
 * A pair that was due so often and did not come is not expected for another 30 s: the clocks of a
 * machine that has run for over 106 days overflow in the engine's rule, and its next version may have
 * another one.
 */
#define PAIRS_MISSED_MAX 8

/* Work that took so many times as long as usual, or that part of it, is something else. */
#define OWN_WORK_OUTLIER 4

/*
 * Measured mode: if more was left out than has passed, the clock stands still until that is over, but
 * no longer than so many ns: the estimates are too high then.
 */
#define AHEAD_MAX 10000

/* Enough for their mean to be right to a ns; they take a µs together. */
#define READS_TO_MEASURE 32

/* A pair of an unknown attachment tells for so long that the next read is none. */
#define PAIR_SETTLES NS_PER_SECOND

static int64_t read_real(void)
{
	struct timespec time;

	clock_real(CLOCK_MONOTONIC_RAW, &time);
	return time.tv_sec * NS_PER_SECOND + time.tv_nsec;
}

/* `value` is not less than what the thread was told last; a division would be the dearest part. */
static int tell(struct clock_thread *thread, int64_t value, struct timespec *time)
{
	int64_t nanoseconds = thread->nanoseconds + (value - clock_told());

	if (unlikely(nanoseconds >= 2 * NS_PER_SECOND)) {
		thread->seconds = value / NS_PER_SECOND;
		nanoseconds = value % NS_PER_SECOND;
	} else if (unlikely(nanoseconds >= NS_PER_SECOND)) {
		thread->seconds++;
		nanoseconds -= NS_PER_SECOND;
	}
	thread->nanoseconds = nanoseconds;
	time->tv_sec = thread->seconds;
	time->tv_nsec = thread->nanoseconds;
	return 0;
}

/* The thread is about to be told that its clock has moved on. */
static void jump(struct clock_thread *thread, int64_t value)
{
	int64_t nanoseconds = thread->nanoseconds + (value - clock_told());

	thread->jumped = value;
	thread->jump = nanoseconds < NS_PER_SECOND ? nanoseconds : value % NS_PER_SECOND;
}

/* The clock has not moved on: 1 ns more than it told last. */
static int64_t stand_still(struct clock_thread *thread)
{
	if (thread->nanoseconds + 1 == NS_PER_SECOND)
		thread->jump -= NS_PER_SECOND;
	return clock_told() + 1;
}

/* Whether `now` follows at once upon a read that may have been the first of a pair. */
static bool follows_first(const struct clock_thread *thread, int64_t now, int64_t apart)
{
	return thread->first && now < thread->first + apart;
}

/* ---- In and out ---- */

void clock_settle(struct frame_stack *stack)
{
	struct clock_thread *thread = &clock_thread;

	if (thread->pair && thread->pair >= clock_next_pair(stack))
		clock_watch(stack, thread->pair + PAIR_INTERVAL);
	thread->pair = thread->first = 0;
	thread->expects_pair = false;
	thread->executed = stack;
}

void clock_expect_pair(struct frame_stack *stack, int64_t next_pair)
{
	clock_watch(stack, next_pair);
	clock_thread.word = CLOCK_LOOK_CLOSER;
	clock_thread.pair = clock_thread.first = 0;
	clock_thread.expects_pair = true;
}

void clock_enter(struct frame_stack *stack)
{
	struct clock_thread *thread = &clock_thread;

	if (!clock_is_inside(stack)) {
		if (!thread->stack) {
			thread->offset = 0;
			thread->real = clock_told();
		}
		/* If it is our own, another thread has been here since: our time goes on as it was. */
		if (thread->stack != stack)
			stack->outer = thread->stack;
		stack->cost_seen = frame_stack_cost(stack);
		stack->first_jump = 0;
		stack->jump_cost = 0;
		stack->thread = thread;
		thread->stack = stack;
		thread->word = CLOCK_LOOK_CLOSER;
		thread->measures = false;
	}
	clock_settle(stack);
}

void clock_leave(struct frame_stack *stack)
{
	struct clock_thread *thread = &clock_thread;

	if (thread->stack == stack) {
		thread->stack = stack->outer;
		thread->word = CLOCK_LOOK_CLOSER;
		thread->measures = false;
	}
}

/* ---- Outside of a profiled call ---- */

bool clock_is_pair_due(int64_t time)
{
	struct frame_stack *stack = atomic_load_explicit(&frame_stacks, memory_order_acquire);

	while (stack && time < clock_next_pair(stack))
		stack = stack->next_made;
	return stack != NULL;
}

static int64_t pair_apart(const struct clock_thread *thread, int64_t told)
{
	int64_t next_pair;

	if (thread->expects_pair)
		return PAIR_APART_SURELY;
	next_pair = thread->executed ? clock_next_pair(thread->executed) : FRAME_STACK_NO_PAIR;
	return next_pair != FRAME_STACK_NO_PAIR && told < next_pair ? PAIR_APART_UNLIKELY :
								      PAIR_APART_LIKELY;
}

static int64_t read_outside(struct clock_thread *thread, int64_t now)
{
	int64_t told = clock_told();

	if (unlikely(thread->first && follows_first(thread, now, pair_apart(thread, told)))) {
		thread->first = 0;
		thread->expects_pair = false;
		thread->pair = told;
		return told;
	}
	/* The cached clock, which it may have been told before, can be some ns ahead. */
	told = now > told ? now : told + 1;
	if (thread->pair && told > thread->pair + PAIR_SETTLES)
		thread->pair = 0;
	thread->first = !thread->pair && clock_is_pair_due(told) ? now : 0;
	jump(thread, told);
	return told;
}

/* ---- The same, while there are sessions whose threads are not known ---- */

void clock_event(struct frame_stack *stack)
{
	struct clock_thread *thread = &clock_thread;
	int64_t due = clock_next_pair(stack);

	if (unlikely(clock_told() >= due)) {
		/* If it was missed, at least it was read since the clock last moved on. */
		bool seen = thread->pair && thread->pair >= due;

		clock_watch(stack, (seen ? thread->pair : thread->jumped) + PAIR_INTERVAL);
	}
	thread->pair = thread->first = 0;
}

void clock_forget(void)
{
	clock_thread.stack = NULL;
	clock_thread.word = CLOCK_LOOK_CLOSER;
	clock_thread.measures = false;
	atomic_store_explicit(&clock_sessions_for_all, 0, memory_order_relaxed);
	atomic_store_explicit(&clock_sessions_measured, 0, memory_order_relaxed);
}

/* The sampler is to stay awake, or to wake up. */
static void tell_sampler(int64_t value)
{
	if (atomic_load_explicit(&clock_last_read, memory_order_relaxed) != value)
		atomic_store_explicit(&clock_last_read, value, memory_order_relaxed);
	sampler_wake();
}

/* Whether this read is the second of what may be a pair; if not, whether it may be the first. */
static bool is_second_of_pair(struct clock_thread *thread, int64_t told)
{
	int64_t now = read_real();

	if (thread->first && follows_first(thread, now, pair_apart(thread, told))) {
		thread->first = 0;
		thread->expects_pair = false;
		thread->pair = told;
		thread->word = CLOCK_LOOK_CLOSER;
		return true;
	}
	if (thread->pair && told > thread->pair + PAIR_SETTLES)
		thread->pair = 0;
	thread->first = thread->pair ? 0 : now;
	if (thread->first)
		thread->word = CLOCK_LOOK_CLOSER;
	return false;
}

static int64_t read_for_all(struct clock_thread *thread, int64_t word)
{
	int64_t told = clock_told(), value;

	if (atomic_load_explicit(&clock_sessions_measured, memory_order_relaxed))
		word = 0;
	value = word ? word : read_real();
	tell_sampler(value);
	thread->word = word ? word : CLOCK_LOOK_CLOSER;
	if (unlikely(thread->first || clock_is_pair_due(value)) && is_second_of_pair(thread, told))
		return told;
	if (value <= told)
		return stand_still(thread);
	jump(thread, value);
	return value;
}

/* ---- Inside ---- */

static uint64_t innermost(const struct frame_stack *stack)
{
	uint32_t depth = frame_stack_depth(stack);

	return depth ? frame_stack_at(stack, depth - 1) : 0;
}

/*
 * The attachment's pair is due.  Each event moves the position or costs something, so if neither has
 * changed, none came between.
 */
static __attribute__((noinline, cold)) int64_t
read_due(struct clock_thread *thread, struct frame_stack *stack, int64_t value, int64_t now)
{
	uint64_t top = frame_stack_top(stack) ^ frame_stack_cost(stack), frame = innermost(stack);

	if (follows_first(thread, now, PAIR_APART_SURELY) && top == thread->first_top &&
	    frame == thread->first_frame) {
		clock_watch(stack, clock_told() + PAIR_INTERVAL);
		thread->first = 0;
		stack->pairs_missed = 0;
		return clock_told();
	}
	if (thread->first && ++stack->pairs_missed == PAIRS_MISSED_MAX) {
		clock_watch(stack, value + PAIR_INTERVAL);
		thread->first = 0;
		stack->pairs_missed = 0;
		return value;
	}
	thread->first = now;
	thread->first_top = top;
	thread->first_frame = frame;
	return value;
}

/* The clock has moved on to `value`: less what the events since then are thought to have cost. */
static int64_t take_off_cost(struct clock_thread *thread, struct frame_stack *stack, int64_t value,
			     int64_t told)
{
	uint64_t passed = (uint64_t)(value - told); /* 1 at least, which is left */
	uint64_t cost = frame_stack_take_cost(frame_stack_cost(stack), &stack->cost_seen, passed,
					      passed - 1);

	stack->jump_cost += cost;
	thread->offset += (int64_t)cost;
	value -= (int64_t)cost;
	if (!stack->first_jump)
		stack->first_jump = value;
	return value;
}

static int64_t read_inside(struct clock_thread *thread, struct frame_stack *stack, int64_t now)
{
	int64_t told = clock_told(), value = now - thread->offset;

	if (value <= told)
		return stand_still(thread);
	if (stack->clock_mode == CLOCK_COARSE)
		value = take_off_cost(thread, stack, value, told);
	jump(thread, value);
	return value;
}

/*
 * Measured mode, the short way.  What the read itself takes is left out: half of it, one supposes, is
 * before the counter is read, half after that.
 */
int clock_measure(struct timespec *time)
{
	struct clock_thread *thread = &clock_thread;
	int64_t now = tick_clock_now(), value = now - thread->offset, told = clock_told();

	if (unlikely(now > thread->look_closer_at ||
		     (thread->stack && thread->stack->thread != thread)))
		return clock_look_closer(time);
	thread->real = now;
	thread->offset += thread->read_cost;
	thread->owed = thread->read_cost / 2;
	if (unlikely(value <= told)) {
		if (told - value > AHEAD_MAX)
			thread->offset -= told - value - AHEAD_MAX;
		value = told + 1;
	}
	return tell(thread, value, time);
}

void clock_exclude_measured(struct frame_stack *stack, unsigned event)
{
	struct clock_thread *thread = &clock_thread;
	int64_t now = tick_clock_now(), took = now - thread->real - thread->owed;
	int64_t work = (took << COST_PER_NS_SHIFT) + stack->event_cost[event];
	int64_t mean = stack->own_work[event];

	if (work <= 0)
		work = 1;
	thread->offset += work >> COST_PER_NS_SHIFT;
	thread->owed = 0;
	thread->real = now;
	if (stack->own_work_due < 0) {
		stack->own_work_due = ~stack->own_work_due;
		return;
	}
	stack->own_work_due = CLOCK_OWN_WORK_EVERY - 1;
	if (!mean || work < mean / OWN_WORK_OUTLIER)
		mean = work; /* what was taken for usual was not */
	else if (work > mean * OWN_WORK_OUTLIER)
		work = mean * OWN_WORK_OUTLIER; /* an interrupt */
	stack->own_work[event] = (7 * mean + work) / 8;
}

int64_t clock_read_cost(void)
{
	struct clock_thread saved = clock_thread;
	struct timespec time;
	int64_t start, end;

	clock_thread.measures = true;
	clock_thread.look_closer_at = INT64_MAX;
	start = tick_clock_now();
	for (unsigned i = 0; i < READS_TO_MEASURE; i++)
		clock_answer(CLOCK_MONOTONIC_RAW, &time);
	end = tick_clock_now();
	clock_thread = saved;
	return (end - start) / READS_TO_MEASURE;
}

int clock_look_closer(struct timespec *time)
{
	struct clock_thread *thread = &clock_thread;
	struct frame_stack *stack = thread->stack;
	int64_t word = atomic_load_explicit(&sampler_clock, memory_order_relaxed), value;

	if (unlikely(stack && stack->thread != thread)) {
		/* Another thread has executed the attachment since: our call ended long ago. */
		stack = thread->stack = NULL;
		thread->word = CLOCK_LOOK_CLOSER;
		thread->measures = false;
	}
	if (!stack) {
		thread->word = CLOCK_LOOK_CLOSER;
		if (!atomic_load_explicit(&sampler_targets, memory_order_relaxed) ||
		    sampler_at_work)
			return clock_real(CLOCK_MONOTONIC_RAW, time);
		if (atomic_load_explicit(&clock_sessions_for_all, memory_order_relaxed))
			return tell(thread, read_for_all(thread, word), time);
		return tell(thread, read_outside(thread, read_real()), time);
	}
	if (stack->clock_mode == CLOCK_MEASURED) {
		event_cost_keep_up(stack, thread->real);
		thread->real = tick_clock_now();
		value = read_inside(thread, stack, thread->real);
		thread->owed = 0;
		thread->read_cost = stack->read_cost;
		thread->measures = value < clock_next_pair(stack) - PAIR_WATCH;
		thread->look_closer_at = thread->real + EVENT_COST_INTERVAL;
	} else {
		value = read_inside(thread, stack, word ? word : read_real());
		event_cost_keep_up(stack, value);
		thread->word = word ? word : CLOCK_LOOK_CLOSER;
	}
	if (unlikely(value >= clock_next_pair(stack) - PAIR_WATCH)) {
		thread->word = CLOCK_LOOK_CLOSER;
		if (value >= clock_next_pair(stack))
			value = read_due(thread, stack, value, read_real());
	}
	if (frame_stack_is_bare(stack)) {
		frame_stack_set_idle(stack, true);
		clock_leave(stack);
	}
	return tell(thread, value, time);
}
