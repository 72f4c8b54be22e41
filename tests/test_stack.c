/*
 * Native stacks of our own and of another process, and what is remembered of positions in plans.
 */
#include "../passive/plan_memory.h"
#include "../passive/stack.h"
#include "../passive/stack_events.h"
#include "run_suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAMES 256

static struct stack_sample sample;
static struct stack_frame frames[FRAMES];

/* How often the function at this address is among the frames. */
static unsigned count_frames(uint32_t count, const void *function)
{
	unsigned found = 0;

	for (uint32_t i = 0; i < count; i++)
		found += frames[i].start == (uint64_t)(uintptr_t)function;
	return found;
}

static struct stack_unwinder *new_unwinder(pid_t process)
{
	char error[STACK_ERROR_SIZE];
	struct stack_unwinder *unwinder = stack_unwinder_new(process, error);

	ck_assert_msg(unwinder != NULL, "%s", error);
	return unwinder;
}

__attribute__((noinline)) static int descend(unsigned depth, int (*at_the_end)(void))
{
	volatile int result = depth ? descend(depth - 1, at_the_end) : at_the_end();

	return result + 1;
}

static int take_own(void)
{
	return stack_own(&sample) ? 0 : -1000;
}

START_TEST(own_stack)
{
	struct stack_unwinder *unwinder = new_unwinder(getpid());
	uint64_t word;
	bool whole;
	uint32_t count;

	ck_assert_int_eq(descend(9, take_own), 10);
	count = stack_unwind(unwinder, &sample, frames, FRAMES, &whole);
	ck_assert(whole);
	ck_assert_uint_eq(count_frames(count, (const void *)descend), 10);
	for (uint32_t i = 1; i + 1 < count; i++)
		ck_assert_uint_gt(frames[i].cfa, frames[i - 1].cfa);
	ck_assert(stack_word(&sample, sample.registers[STACK_RSP], &word));
	ck_assert(!stack_word(&sample, sample.registers[STACK_RSP] - 8, &word));
	ck_assert(!stack_word(&sample, sample.registers[STACK_RSP] + sample.size - 4, &word));
	stack_unwinder_free(unwinder);
}
END_TEST

START_TEST(room_for_few_frames)
{
	struct stack_unwinder *unwinder = new_unwinder(getpid());
	bool whole;

	descend(9, take_own);
	ck_assert_uint_eq(stack_unwind(unwinder, &sample, frames, 4, &whole), 4);
	ck_assert(!whole);
	stack_unwinder_free(unwinder);
}
END_TEST

static int wait_for_signal(void)
{
	for (;;)
		pause();
	return 0;
}

static void count_call(void *context)
{
	++*(unsigned *)context;
}

static void sleep_ms(void *context)
{
	(void)context;
	usleep(1000);
}

/* Its stack is seen, and neither its wait nor a signal is lost; and it is told how long it was held. */
START_TEST(stopped_process)
{
	pid_t child = fork();
	struct stack_unwinder *unwinder;
	unsigned calls = 0;
	bool whole;
	int status;

	ck_assert_int_ge(child, 0);
	if (!child)
		_exit(descend(5, wait_for_signal));
	usleep(20000);
	unwinder = new_unwinder(child);
	for (unsigned i = 0; i < 50; i++) {
		uint32_t count;

		ck_assert(stack_stop(child, child, &sample, count_call, &calls));
		count = stack_unwind(unwinder, &sample, frames, FRAMES, &whole);
		ck_assert(whole);
		ck_assert_uint_eq(count_frames(count, (const void *)descend), 6);
	}
	ck_assert_uint_eq(calls, 50);
	ck_assert(stack_stop(child, child, &sample, sleep_ms, NULL));
	ck_assert_uint_ge(sample.held, 1000000);
	kill(child, SIGUSR1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
	ck_assert(!stack_stop(child, child, &sample, NULL, NULL));
	ck_assert_int_eq(errno, ESRCH);
	stack_unwinder_free(unwinder);
}
END_TEST

/* ---- Samples of a thread that goes on ---- */

struct worker {
	_Atomic pid_t thread; /* 0: not there yet */
	atomic_bool end;
	unsigned depth;
	pthread_t handle;
};

static struct worker worker;

static int work(void)
{
	atomic_store(&worker.thread, gettid());
	while (!atomic_load_explicit(&worker.end, memory_order_relaxed))
		;
	return 0;
}

static int sleep_and_work(void)
{
	atomic_store(&worker.thread, gettid());
	usleep(500000);
	return work();
}

static void *descend_in_thread(void *at_the_end)
{
	descend(worker.depth, (int (*)(void))at_the_end);
	return NULL;
}

/* NULL: events aren't permitted here.  It has been said. */
static struct stack_events *start_worker(unsigned depth, int (*at_the_end)(void))
{
	char error[STACK_ERROR_SIZE];
	struct stack_events *events = stack_events_open(gettid(), error);

	if (!events) {
		fprintf(stderr, "not tested: %s\n", error);
		return NULL;
	}
	stack_events_close(events);
	worker.depth = depth;
	atomic_store(&worker.thread, 0);
	atomic_store(&worker.end, false);
	ck_assert_int_eq(
		pthread_create(&worker.handle, NULL, descend_in_thread, (void *)at_the_end), 0);
	while (!atomic_load(&worker.thread))
		usleep(100);
	events = stack_events_open(atomic_load(&worker.thread), error);
	ck_assert_msg(events != NULL, "%s", error);
	return events;
}

static void end_worker(struct stack_events *events)
{
	atomic_store(&worker.end, true);
	pthread_join(worker.handle, NULL);
	if (!stack_events_await(events))
		stack_events_ask(events);
	stack_events_close(events);
}

/* Other programs may have the CPU for a while. */
static bool take_in_time(struct stack_events *events)
{
	for (unsigned i = 0; i < 3000; i++) {
		if (stack_events_take(events, &sample))
			return true;
		usleep(1000);
	}
	return false;
}

static void check_samples(struct stack_events *events, unsigned depth)
{
	struct stack_unwinder *unwinder = new_unwinder(getpid());
	bool whole;

	for (unsigned i = 0; i < 20; i++) {
		uint32_t count;

		ck_assert(!stack_events_await(events));
		ck_assert(stack_events_ask(events));
		ck_assert(stack_events_await(events));
		ck_assert(take_in_time(events));
		count = stack_unwind(unwinder, &sample, frames, FRAMES, &whole);
		ck_assert(whole);
		ck_assert_uint_eq(count_frames(count, (const void *)descend), depth + 1);
	}
	stack_unwinder_free(unwinder);
}

START_TEST(running_thread)
{
	struct stack_events *events;

#ifdef __SANITIZE_THREAD__
	return; /* its runtime, where a sample may be, has no unwind tables throughout */
#endif
	events = start_worker(5, work);
	if (!events)
		return;
	check_samples(events, 5);
	end_worker(events);
}
END_TEST

/* The sample comes when it goes on. */
START_TEST(thread_that_waits)
{
	struct stack_events *events = start_worker(5, sleep_and_work);

	if (!events)
		return;
	ck_assert(stack_events_ask(events));
	ck_assert(!stack_events_take(events, &sample));
	usleep(10000);
	ck_assert(!stack_events_take(events, &sample));
	ck_assert(stack_events_await(events));
	ck_assert(take_in_time(events));
	end_worker(events);
}
END_TEST

static struct position position_of(uint32_t count, uint64_t first)
{
	static struct position position;

	position.count = count;
	for (uint32_t i = 0; i < count; i++)
		position.frames[i] = first + i;
	return position;
}

START_TEST(last_place_in_a_plan)
{
	struct plan_memory *memory = plan_memory_new();
	struct position *bare = malloc(sizeof(*bare)), *full = malloc(sizeof(*full));

	ck_assert(memory && bare && full);
	*bare = position_of(2, 10);
	plan_memory_complete(memory, bare);
	ck_assert_uint_eq(bare->count, 2);
	*full = position_of(5, 100);
	plan_memory_put(memory, bare, full);
	plan_memory_complete(memory, bare);
	ck_assert_uint_eq(bare->count, 5);
	ck_assert_uint_eq(bare->frames[4], 104);
	*bare = position_of(2, 10);
	*full = position_of(3, 200);
	plan_memory_put(memory, bare, full);
	plan_memory_complete(memory, bare);
	ck_assert_uint_eq(bare->count, 3);
	ck_assert_uint_eq(bare->frames[0], 200);
	*bare = position_of(2, 11);
	plan_memory_complete(memory, bare);
	ck_assert_uint_eq(bare->frames[0], 11);
	/* None drives another one out. */
	for (uint32_t i = 0; i < 100; i++) {
		*bare = position_of(2, 1000 + i);
		*full = position_of(3, 2000 + i);
		plan_memory_put(memory, bare, full);
	}
	for (uint32_t i = 0; i < 100; i++) {
		*bare = position_of(2, 1000 + i);
		plan_memory_complete(memory, bare);
		ck_assert_uint_eq(bare->frames[0], 2000 + i);
	}
	plan_memory_free(memory);
	free(bare);
	free(full);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stack");
	TCase *all = tcase_create("all");

	tcase_add_test(all, own_stack);
	tcase_add_test(all, room_for_few_frames);
	tcase_add_test(all, stopped_process);
	tcase_add_test(all, running_thread);
	tcase_add_test(all, thread_that_waits);
	tcase_add_test(all, last_place_in_a_plan);
	suite_add_tcase(suite, all);
	return run_suite(suite);
}
