/*
 * Native stacks of our own and of another process, and what is remembered of positions in plans.
 */
#include "../passive/plan_memory.h"
#include "../passive/stack.h"
#include "run_suite.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
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
	tcase_add_test(all, last_place_in_a_plan);
	suite_add_tcase(suite, all);
	return run_suite(suite);
}
