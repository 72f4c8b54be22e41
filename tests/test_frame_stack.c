/*
 * The frame stack and the sampler's sleep: what a reader on another thread may see, that no wake-up
 * is lost, and that the engine's clock never stands still.  Meant for ThreadSanitizer, too.
 */
#define _GNU_SOURCE
#include "../output/log_writer.h"
#include "../sampler/sampler.h"
#include "../sampler/tick_clock.h"
#include "../shim/clock.h"
#include "run_suite.h"
#include "scratch.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEADLINE_SECONDS 60
#define TIMEOUT_SECONDS	 300

static struct frame_stack *stack;
static uint64_t frames[FRAME_STACK_ROOM];
static uint32_t count;

static void set_up(void)
{
	stack = frame_stack_new();
	ck_assert_ptr_nonnull(stack);
}

static void tear_down(void)
{
	frame_stack_free(stack);
}

static void read_stack(void)
{
	ck_assert(frame_stack_read(stack, 1, frames, &count));
}

/* ---- One thread ---- */

START_TEST(frames_are_words)
{
	uint64_t frame = frame_make(FRAME_RECORD_SOURCE, FRAME_STATEMENT_MAX, FRAME_CELL_MASK);

	ck_assert_int_eq(frame_kind(frame), FRAME_RECORD_SOURCE);
	ck_assert_uint_eq(frame_statement(frame), FRAME_STATEMENT_MAX);
	ck_assert_uint_eq(frame_cell(frame), FRAME_CELL_MASK);
	frame = frame_make(FRAME_REQUEST, 0, 0);
	ck_assert_uint_eq(frame, 0);
	frame = frame_make_serial(UINT64_MAX);
	ck_assert_int_eq(frame_kind(frame), FRAME_SERIAL);
	ck_assert_uint_eq(frame & FRAME_SERIAL_MASK, FRAME_SERIAL_MASK);
	frame = frame_make_serial(0x123456789abcdefu);
	ck_assert_uint_eq(frame & FRAME_SERIAL_MASK, 0x123456789abcdefu);
}
END_TEST

START_TEST(new_stack_is_idle)
{
	read_stack();
	ck_assert_uint_eq(count, 0);
	ck_assert_uint_eq(frame_stack_depth(stack), 0);
}
END_TEST

START_TEST(push_cut_set)
{
	ck_assert(frame_stack_push(stack, 10));
	ck_assert(!frame_stack_push(stack, 20));
	ck_assert(!frame_stack_push(stack, 30));
	read_stack();
	ck_assert_uint_eq(count, 3);
	ck_assert_uint_eq(frames[0], 10);
	ck_assert_uint_eq(frames[2], 30);
	frame_stack_set(stack, 1, 21);
	read_stack();
	ck_assert_uint_eq(frames[1], 21);
	frame_stack_cut(stack, 1);
	read_stack();
	ck_assert_uint_eq(count, 1);
	ck_assert_uint_eq(frame_stack_at(stack, 0), 10);
	frame_stack_push(stack, 40);
	read_stack();
	ck_assert_uint_eq(count, 2);
	ck_assert_uint_eq(frames[1], 40);
}
END_TEST

START_TEST(idle)
{
	frame_stack_push(stack, 1);
	frame_stack_push(stack, 2);
	frame_stack_set_idle(stack, true);
	read_stack();
	ck_assert_uint_eq(count, 0);
	ck_assert_uint_eq(frame_stack_depth(stack), 2);
	/* A pop is no sign of life; a push is. */
	frame_stack_cut(stack, 1);
	read_stack();
	ck_assert_uint_eq(count, 0);
	ck_assert(frame_stack_push(stack, 3));
	read_stack();
	ck_assert_uint_eq(count, 2);
	frame_stack_set_idle(stack, true);
	frame_stack_set_idle(stack, false);
	read_stack();
	ck_assert_uint_eq(count, 2);
	ck_assert_uint_eq(frames[1], 3);
}
END_TEST

START_TEST(bare)
{
	ck_assert(!frame_stack_is_bare(stack));
	frame_stack_push(stack, frame_make(FRAME_REQUEST, 5, 0));
	ck_assert(frame_stack_is_bare(stack));
	frame_stack_set(stack, 0, frame_make(FRAME_REQUEST, 5, 9));
	ck_assert(!frame_stack_is_bare(stack));
	frame_stack_set(stack, 0, frame_make(FRAME_REQUEST, 5, 0));
	frame_stack_push(stack, frame_make(FRAME_RECORD_SOURCE, 5, 2));
	ck_assert(!frame_stack_is_bare(stack));
	/* With serials below the requests. */
	frame_stack_cut(stack, 0);
	stack->bare_depth = 2;
	frame_stack_push(stack, frame_make_serial(77));
	ck_assert(!frame_stack_is_bare(stack));
	frame_stack_push(stack, frame_make(FRAME_REQUEST, 5, 0));
	ck_assert(frame_stack_is_bare(stack));
}
END_TEST

/* What is deeper than the room does no harm. */
START_TEST(too_deep)
{
	for (uint32_t i = 0; i < FRAME_STACK_ROOM + 1000; i++)
		frame_stack_push(stack, i + 1);
	read_stack();
	ck_assert_uint_eq(count, FRAME_STACK_ROOM);
	for (uint32_t i = 0; i < count; i++)
		ck_assert_uint_eq(frames[i], i + 1);
	frame_stack_cut(stack, 5);
	read_stack();
	ck_assert_uint_eq(count, 5);
}
END_TEST

START_TEST(abandoned)
{
	uint64_t top;

	frame_stack_push(stack, 1);
	top = frame_stack_top(stack);
	frame_stack_push(stack, 2);
	frame_stack_abandon(stack, top);
	read_stack();
	ck_assert_uint_eq(count, 2);
	frame_stack_abandon(stack, frame_stack_top(stack));
	read_stack();
	ck_assert_uint_eq(count, 0);
	ck_assert(frame_stack_push(stack, 3));
	read_stack();
	ck_assert_uint_eq(count, 3);
}
END_TEST

START_TEST(recycled)
{
	struct frame_stack *second = frame_stack_new(), *third;

	ck_assert_ptr_ne(second, stack);
	frame_stack_push(second, 1);
	second->bare_depth = 2;
	frame_stack_free(second);
	third = frame_stack_new();
	ck_assert_ptr_eq(third, second);
	ck_assert_uint_eq(frame_stack_depth(third), 0);
	ck_assert_uint_eq(third->bare_depth, 1);
	ck_assert(frame_stack_push(third, 1));
	frame_stack_free(third);
	frame_stack_free(NULL);
}
END_TEST

/* ---- One writer, two readers ---- */

/*
 * Frame i holds: statement = i; cell = identity << 8 | line.  The identity is made from the frame
 * below: its identity and its line at the moment of the push.  A line changes only while its frame is
 * topmost, so that in each position that ever was, identities fit the lines below.
 */
#define HAMMER_DEPTH 40u
#define HAMMER_STEPS 300000u

static _Atomic bool writing;

static uint32_t identity_above(uint64_t below)
{
	uint32_t cell = frame_cell(below);

	return ((cell >> 8) * 31 + (cell & 0xff) * 7 + 1) & 0xffff;
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static uint64_t make_frame(uint32_t depth, uint64_t below, uint32_t line)
{
	return frame_make(FRAME_REQUEST, depth, identity_above(below) << 8 | (line & 0xff));
}

static void *write_frames(void *data)
{
	uint64_t own[HAMMER_DEPTH], random = 0x9e3779b97f4a7c15u;
	uint32_t depth = 0;

	(void)data;
	for (uint32_t step = 0; step < HAMMER_STEPS; step++) {
		uint64_t number = next_random(&random);

		switch (number % 8) {
		case 0:
		case 1:
		case 2:
			if (depth == HAMMER_DEPTH)
				break;
			own[depth] = make_frame(depth, depth ? own[depth - 1] : 0,
						(uint32_t)(number >> 32));
			frame_stack_push(stack, own[depth++]);
			break;
		case 3:
			depth = depth ? (uint32_t)(number >> 32) % depth : 0;
			frame_stack_cut(stack, depth);
			break;
		case 4:
			if (number >> 60 == 0)
				frame_stack_set_idle(stack, number >> 59 & 1);
			break;
		default:
			if (!depth)
				break;
			own[depth - 1] = make_frame(depth - 1, depth > 1 ? own[depth - 2] : 0,
						    (uint32_t)(number >> 32));
			frame_stack_set(stack, depth - 1, own[depth - 1]);
		}
	}
	atomic_store(&writing, false);
	return NULL;
}

struct reader {
	pthread_t thread;
	bool abandons;
	uint64_t read, torn, wrong;
	uint64_t frames[FRAME_STACK_ROOM];
};

static bool is_right(const uint64_t *read_frames, uint32_t number)
{
	for (uint32_t i = 0; i < number; i++) {
		uint64_t below = i ? read_frames[i - 1] : 0;

		if (frame_statement(read_frames[i]) != i ||
		    frame_cell(read_frames[i]) >> 8 != identity_above(below))
			return false;
	}
	return true;
}

static void *read_frames_until_the_end(void *data)
{
	struct reader *reader = data;
	uint32_t number;

	while (atomic_load(&writing) || !reader->read) {
		if (!frame_stack_read(stack, 4, reader->frames, &number)) {
			reader->torn++;
			continue;
		}
		reader->read++;
		reader->wrong += !is_right(reader->frames, number);
		if (reader->abandons && reader->read % 64 == 0)
			frame_stack_abandon(stack, frame_stack_top(stack));
	}
	return NULL;
}

START_TEST(readers_see_what_was)
{
	static struct reader readers[2];
	pthread_t writer;

	readers[1].abandons = _i;
	atomic_store(&writing, true);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&readers[i].thread, NULL, read_frames_until_the_end,
						&readers[i]),
				 0);
	ck_assert_int_eq(pthread_create(&writer, NULL, write_frames, NULL), 0);
	pthread_join(writer, NULL);
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(readers[i].thread, NULL);
		ck_assert_uint_eq(readers[i].wrong, 0);
		ck_assert_uint_gt(readers[i].read, 0);
	}
}
END_TEST

/* ---- The sampler ---- */

static struct log_session_totals totals;
static struct frame_stack_source source;
static struct sampler_target target;

static void set_up_sampler(void)
{
	struct log_options options = { .program = "test", .clock = "" };
	char error[1024];

	set_up();
	scratch_make();
	options.directory = scratch;
	ck_assert_msg(log_acquire(log_get(), &options, error, sizeof(error)), "%s", error);
	frame_stack_source_init(&source, stack, false);
	target.source = &source.source;
	target.totals = &totals;
	target.interval = SAMPLER_INTERVAL_MIN;
	target.tree = call_tree_new(log_get(), log_new_session(log_get()));
	ck_assert(target.tree && sampler_add(&target));
}

static void tear_down_sampler(void)
{
	sampler_remove(&target);
	call_tree_free(target.tree);
	log_release(log_get());
	scratch_remove();
	tear_down();
}

static uint64_t samples(void)
{
	return atomic_load_explicit((_Atomic uint64_t *)&totals.samples, memory_order_relaxed);
}

static bool is_late(time_t deadline)
{
	const struct timespec pause = { .tv_nsec = 20000 };

	nanosleep(&pause, NULL);
	return time(NULL) > deadline;
}

/* A call that begins just as the sampler lies down, or a little before, is seen. */
START_TEST(no_wake_is_lost)
{
	uint64_t random = 88172645463325252u;
	const char *wanted = getenv("FBPROF_TEST_ROUNDS");
	unsigned rounds = wanted ? (unsigned)atoi(wanted) : 300;

	for (unsigned round = 0; round < rounds; round++) {
		time_t deadline = time(NULL) + DEADLINE_SECONDS;
		uint64_t before;

		if (round % 4) {
			while (!atomic_load_explicit(&sampler_asleep, memory_order_relaxed))
				ck_assert_msg(time(NULL) <= deadline,
					      "the sampler doesn't go to sleep");
			for (uint64_t spin = next_random(&random) % (round % 4 * 1000); spin;
			     spin--)
				__asm__ volatile("");
		} else {
			const struct timespec pause = {
				.tv_nsec = 9000000 + (long)(next_random(&random) % 2000000)
			};

			nanosleep(&pause, NULL);
		}
		before = samples();
		ck_assert(frame_stack_push(stack, frame_make(FRAME_REQUEST, 1, 2)));
		sampler_wake();
		while (samples() == before)
			ck_assert_msg(!is_late(deadline), "round %u: nobody has looked", round);
		frame_stack_cut(stack, 0);
		frame_stack_set_idle(stack, true);
	}
}
END_TEST

START_TEST(sampler_ends_with_its_last_target)
{
	/* Without a tree: this one is never busy. */
	struct sampler_target second = { .source = target.source, .interval = target.interval };
	unsigned threads = own_threads();

	ck_assert(sampler_add(&second));
	check_threads(threads);
	sampler_remove(&target);
	check_threads(threads);
	sampler_remove(&second);
	check_threads(threads - 1);
	ck_assert_uint_eq(atomic_load(&sampler_clock), 0);
	ck_assert_uint_eq(atomic_load(&sampler_asleep), 0);
	for (unsigned round = 0; round < 200; round++) {
		ck_assert(sampler_add(&second));
		sampler_remove(&second);
	}
	ck_assert(sampler_add(&target));
}
END_TEST

/* A thread that goes in and out of profiled calls is never told a time that it was told before. */
static uint64_t ask(uint64_t *wrong)
{
	struct timespec time;

	clock_answer(CLOCK_MONOTONIC_RAW, &time);
	*wrong += time.tv_nsec < 0 || time.tv_nsec > 999999999;
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Leaves out so many ns, and what has passed since the last read. */
static void exclude(struct frame_stack *own, uint64_t ns)
{
	own->event_cost[LOG_EVENT_LINE] = ns << COST_PER_NS_SHIFT;
	clock_own_work_is_unusual(own);
	clock_exclude(own, LOG_EVENT_LINE);
}

/*
 * What an event does to the clock: in coarse mode it costs something, in measured mode something is left
 * out.  Now and then far more than has passed, which must not take it back.
 */
static void make_event(struct frame_stack *own, uint64_t number)
{
	uint64_t cost = number % 64 == 0 ? 5000000 : number % 100;

	if (!clock_is_inside(own))
		return;
	switch (own->clock_mode) {
	case CLOCK_COARSE:
		frame_stack_add_cost(own, cost << COST_PER_NS_SHIFT);
		break;
	case CLOCK_MEASURED:
		if (number % 16 == 0)
			clock_exclude_from(tick_clock_now());
		exclude(own, cost);
		break;
	default:
		break;
	}
}

static void *read_clock(void *data)
{
	struct frame_stack *own = frame_stack_new(), *inner = frame_stack_new();
	uint64_t last = 0, wrong = 0, random = (uint64_t)(uintptr_t)own | 1;

	own->clock_mode = *(enum clock_mode *)data;
	own->bare_depth = own->clock_mode == CLOCK_SAMPLED;
	for (unsigned call = 0; call < 3000; call++) {
		uint64_t number = next_random(&random), now;

		if (frame_stack_push(own, frame_make(FRAME_REQUEST, 1, 3)))
			clock_enter(own);
		for (unsigned reads = number % 50; reads; reads--) {
			now = ask(&wrong);
			wrong += now <= last;
			last = now;
			make_event(own, next_random(&random));
			/* Another attachment's call within this one, in any mode. */
			if (reads == 7 && inner->clock_mode != own->clock_mode)
				clock_enter(inner);
			if (reads == 3)
				clock_leave(inner);
		}
		clock_leave(inner);
		inner->clock_mode =
			(enum clock_mode)(number >> 16 & 1 ? CLOCK_COARSE : CLOCK_MEASURED);
		inner->bare_depth = 0;
		frame_stack_cut(own, 0);
		frame_stack_set_idle(own, true);
		clock_leave(own);
		for (unsigned reads = number >> 8 & 3; reads; reads--) {
			now = ask(&wrong);
			wrong += now <= last;
			last = now;
		}
	}
	frame_stack_free(inner);
	frame_stack_free(own);
	return (void *)(uintptr_t)wrong;
}

START_TEST(clock_goes_on)
{
	static enum clock_mode modes[] = { CLOCK_SAMPLED, CLOCK_COARSE, CLOCK_MEASURED };
	pthread_t threads[3];

	clock_is_ours = true;
	tick_clock_init(TICK_CLOCK_AUTO, clock_real);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_clock, &modes[i]), 0);
	/* Meanwhile the sampler wakes and sleeps. */
	for (unsigned round = 0; round < 10; round++) {
		time_t deadline = time(NULL) + DEADLINE_SECONDS;

		frame_stack_push(stack, frame_make(FRAME_REQUEST, 1, 2));
		sampler_wake();
		frame_stack_cut(stack, 0);
		frame_stack_set_idle(stack, true);
		while (!atomic_load(&sampler_asleep))
			ck_assert(!is_late(deadline));
	}
	for (unsigned i = 0; i < 3; i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
}
END_TEST

/* The nanoseconds carry into the seconds. */
START_TEST(clock_carries)
{
	struct timespec time;

	frame_stack_push(stack, frame_make(FRAME_REQUEST, 1, 3));
	clock_enter(stack);
	clock_thread.seconds = 5000000000;
	clock_thread.nanoseconds = 999999998;
	clock_answer(CLOCK_MONOTONIC_RAW, &time);
	ck_assert_int_eq(time.tv_sec, 5000000000);
	ck_assert_int_eq(time.tv_nsec, 999999999);
	clock_answer(CLOCK_MONOTONIC_RAW, &time);
	ck_assert_int_eq(time.tv_sec, 5000000001);
	ck_assert_int_eq(time.tv_nsec, 0);
	clock_leave(stack);
	clock_thread.seconds = clock_thread.nanoseconds = 0;
}
END_TEST

static int64_t told(void)
{
	struct timespec time;

	clock_answer(CLOCK_MONOTONIC_RAW, &time);
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

/*
 * Whether one of the next pairs of reads is told the same time.  Not always the first: the thread may be
 * interrupted between the two.
 */
static bool repeats_soon(void)
{
	for (unsigned tries = 0; tries < 1000000; tries++) {
		int64_t first = told();

		if (told() == first)
			return true;
	}
	return false;
}

static bool never_repeats(void)
{
	int64_t last = told();

	for (unsigned reads = 0; reads < 1000; reads++) {
		int64_t now = told();

		if (now <= last)
			return false;
		last = now;
	}
	return true;
}

static bool expects_pair_in_30_s(int64_t since)
{
	return (clock_next_pair(stack) - since) / 1000000000 == 30;
}

static void set_clock_mode(int mode)
{
	tick_clock_init(TICK_CLOCK_AUTO, clock_real);
	stack->clock_mode = (enum clock_mode)mode;
	stack->bare_depth = mode == CLOCK_SAMPLED;
}

/* In coarse mode the clock is put back by what events cost, as far as it goes; the rest is owed. */
START_TEST(coarse_clock_without_cost)
{
	struct timespec pause = { .tv_nsec = 3000000 };
	int64_t before, real;

	set_clock_mode(CLOCK_COARSE);
	frame_stack_push(stack, frame_make(FRAME_REQUEST, 1, 3));
	clock_enter(stack);
	before = told();
	nanosleep(&pause, NULL);
	frame_stack_add_cost(stack, 2000000ull << COST_PER_NS_SHIFT);
	real = told();
	/* At least 3 ms less 2 ms; and nobody has moved a cached clock. */
	ck_assert_int_ge(real - before, 1000000);
	ck_assert_uint_eq(stack->jump_cost, 2000000);
	frame_stack_add_cost(stack, 1000000000ull << COST_PER_NS_SHIFT);
	nanosleep(&pause, NULL);
	before = told();
	ck_assert_int_eq(before, real + 1);
	ck_assert_int_eq(told(), before + 1);
	/* … but no more than has passed: the next pause is all there but for as much as this one. */
	pause.tv_nsec = 50000000;
	nanosleep(&pause, NULL);
	ck_assert_int_ge(told(), before + 40000000);
	clock_leave(stack);
	/* Outside it is the real time at once. */
	clock_watch(stack, FRAME_STACK_NO_PAIR);
	atomic_fetch_add(&sampler_targets, 1);
	ck_assert_int_ge(told(), before + 4000000);
	ck_assert(never_repeats());
	atomic_fetch_sub(&sampler_targets, 1);
}
END_TEST

/* In measured mode what is left out is not told, and a read itself is not either. */
START_TEST(measured_clock_without_cost)
{
	struct timespec pause = { .tv_nsec = 3000000 };
	int64_t before, begin = tick_clock_now();

	set_clock_mode(CLOCK_MEASURED);
	frame_stack_push(stack, frame_make(FRAME_REQUEST, 1, 3));
	clock_enter(stack);
	before = told();
	nanosleep(&pause, NULL);
	ck_assert_int_ge(told() - before, 3000000);
	before = told();
	nanosleep(&pause, NULL);
	exclude(stack, 0);
	ck_assert_int_lt(told() - before, tick_clock_now() - begin - 3000000);
	/* Far more than has passed: it stands still, but no longer than AHEAD_MAX. */
	before = told();
	exclude(stack, 1000000000);
	ck_assert_int_eq(told(), before + 1);
	nanosleep(&pause, NULL);
	ck_assert_int_ge(told(), before + 2900000);
	clock_leave(stack);
}
END_TEST

/* A measuring clock looks for what may have changed from time to time, and long before a pair is due. */
static void watch_at_once(int64_t next_pair)
{
	clock_watch(stack, next_pair);
	clock_thread.measures = false;
}

/* Only the second read of the engine's pair is told the same time again, and that once in 30 s. */
START_TEST(pair_inside)
{
	set_clock_mode(_i);
	ck_assert_int_eq(clock_next_pair(stack), FRAME_STACK_NO_PAIR);
	frame_stack_push(stack, frame_make(FRAME_REQUEST, 1, 3));
	clock_enter(stack);
	ck_assert(never_repeats());
	watch_at_once(0);
	ck_assert(repeats_soon());
	ck_assert(expects_pair_in_30_s(clock_told()));
	ck_assert(never_repeats());
	watch_at_once(clock_told() + 100);
	ck_assert(repeats_soon());
	ck_assert(never_repeats());
	clock_leave(stack);
}
END_TEST

/* A pair that the engine doesn't measure is given up. */
START_TEST(pair_missed)
{
	frame_stack_push(stack, frame_make(FRAME_REQUEST, 1, 3));
	clock_enter(stack);
	clock_watch(stack, 0);
	for (unsigned reads = 0; reads < 20; reads++) {
		int64_t before = clock_told();

		ck_assert_int_gt(told(), before);
		frame_stack_push(stack, frame_make(FRAME_RECORD_SOURCE, 1, 5));
		frame_stack_cut(stack, 1);
	}
	ck_assert(expects_pair_in_30_s(clock_told() - 20));
	clock_leave(stack);
}
END_TEST

/* Outside, the attachment is known only from the event that follows. */
START_TEST(pair_outside)
{
	struct frame_stack *other = frame_stack_new();
	int64_t pair;

	atomic_fetch_add(&sampler_targets, 1);
	clock_watch(other, FRAME_STACK_NO_PAIR - 1);
	ck_assert(never_repeats());
	clock_watch(stack, 0);
	ck_assert(repeats_soon());
	ck_assert(never_repeats());
	clock_settle(other);
	ck_assert_int_eq(clock_next_pair(other), FRAME_STACK_NO_PAIR - 1);
	ck_assert_int_eq(clock_next_pair(stack), 0);

	ck_assert(repeats_soon());
	pair = clock_told();
	clock_settle(stack);
	ck_assert(expects_pair_in_30_s(pair));
	ck_assert(never_repeats());
	clock_watch(stack, FRAME_STACK_NO_PAIR);
	atomic_fetch_sub(&sampler_targets, 1);
	frame_stack_free(other);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("frame stack");
	TCase *tcase = tcase_create("frame stack");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, TIMEOUT_SECONDS);
	tcase_add_test(tcase, frames_are_words);
	tcase_add_test(tcase, new_stack_is_idle);
	tcase_add_test(tcase, push_cut_set);
	tcase_add_test(tcase, idle);
	tcase_add_test(tcase, bare);
	tcase_add_test(tcase, too_deep);
	tcase_add_test(tcase, abandoned);
	tcase_add_test(tcase, recycled);
	tcase_add_loop_test(tcase, readers_see_what_was, 0, 2);
	tcase_add_test(tcase, clock_carries);
	tcase_add_test(tcase, coarse_clock_without_cost);
	tcase_add_test(tcase, measured_clock_without_cost);
	tcase_add_loop_test(tcase, pair_inside, CLOCK_SAMPLED, CLOCK_MEASURED + 1);
	tcase_add_test(tcase, pair_missed);
	tcase_add_test(tcase, pair_outside);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("sampler");
	tcase_add_checked_fixture(tcase, set_up_sampler, tear_down_sampler);
	tcase_set_timeout(tcase, TIMEOUT_SECONDS);
	tcase_add_test(tcase, no_wake_is_lost);
	tcase_add_test(tcase, sampler_ends_with_its_last_target);
	tcase_add_test(tcase, clock_goes_on);
	suite_add_tcase(suite, tcase);

	return run_suite(suite);
}
