/*
 * Positions read while a thread runs on: whatever is told must have been so, as each request tells where
 * it was called from.  FBPROF_LONG_TESTS=1 in the environment: a minute of each.
 */
#include "../passive/memory.h"
#include "../passive/position.h"
#include "../passive/process.h"
#include "passive/engine.h"
#include "run_suite.h"

#include <check.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_LEVELS PASSIVE_DEPTH
#define STATEMENT   1000 /* id of the outermost; that of a level is so much more */

static struct layout layout;

static void set_path(enum layout_fact fact, enum layout_type type, int32_t first, int32_t second)
{
	layout.path[fact] = (struct layout_path){ .type = type,
						  .steps = second < 0 ? 1 : 2,
						  .offset = { first, second } };
}

static void make_layout(void)
{
	set_path(LAYOUT_REQUEST, LAYOUT_POINTER, 0, offsetof(struct fake_context, request));
	set_path(LAYOUT_ATTACHMENT, LAYOUT_POINTER, 0, offsetof(struct fake_context, attachment));
	set_path(LAYOUT_CALLER, LAYOUT_POINTER, offsetof(struct fake_request, caller), -1);
	set_path(LAYOUT_STATEMENT, LAYOUT_POINTER, offsetof(struct fake_request, statement), -1);
	set_path(LAYOUT_REQUEST_ID, LAYOUT_U64, offsetof(struct fake_request, id), -1);
	set_path(LAYOUT_LINE, LAYOUT_U32, offsetof(struct fake_request, line), -1);
	set_path(LAYOUT_COLUMN, LAYOUT_U32, offsetof(struct fake_request, column), -1);
	set_path(LAYOUT_STATEMENT_ID, LAYOUT_U64, offsetof(struct fake_statement, id), -1);
	set_path(LAYOUT_PROCEDURE, LAYOUT_TEXT_ZERO, offsetof(struct fake_statement, procedure),
		 -1);
	set_path(LAYOUT_TRIGGER, LAYOUT_TEXT_ZERO, offsetof(struct fake_statement, trigger), -1);
	set_path(LAYOUT_ATTACHMENT_ID, LAYOUT_U64, offsetof(struct fake_attachment, id), -1);
}

/* ---- A child whose requests call one another ---- */

static struct fake_context context;
static struct fake_attachment attachment = { 77 };
static struct fake_statement statements[MOST_LEVELS];
static struct fake_request requests[MOST_LEVELS];
static uint64_t last_id, now_at;
static unsigned levels, loops;

static void store(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
	atomic_signal_fence(memory_order_seq_cst);
}

#define STORE(place, value) store(&(place), &(typeof(place)){ value }, sizeof(place))

static void spin(void)
{
	for (unsigned i = 0; i < loops; i++)
		atomic_signal_fence(memory_order_seq_cst);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* So many take so long on this machine, as this is built. */
static unsigned loops_in(unsigned ns)
{
	double began, shortest = 1;

	loops = 100000;
	for (unsigned i = 0; i < 20; i++) {
		began = seconds();
		spin();
		if (seconds() - began < shortest)
			shortest = seconds() - began;
	}
	return (unsigned)(ns * 1e-9 / shortest * loops) + 1;
}

/*
 * In the order of the engine's looper.  Three lines at each level; each calls the next level, whose
 * column is the caller's line.  No line comes twice: so what an earlier look told of a call, which helps
 * where the same line calls again, can't be of another one.
 */
static void run_level(unsigned level, unsigned end)
{
	struct fake_request *request = &requests[level], *caller = context.request;
	uint32_t from = caller != NULL ? caller->line : 0;

	STORE(request->id, ++last_id * MOST_LEVELS + level);
	STORE(request->line, 0);
	STORE(request->column, from);
	STORE(context.request, request);
	STORE(request->caller, caller);
	for (unsigned i = 0; i < 3; i++) {
		STORE(request->line, (uint32_t)++now_at);
		spin();
		if (level + 1 < end)
			run_level(level + 1, i == 1 ? end - 1 : level + 2);
	}
	STORE(request->caller, NULL);
	STORE(context.request, caller);
}

static void run_engine(void)
{
	void *module = dlopen(getenv("FBPROF_FAKE_ENGINE"), RTLD_NOW);
	struct fake_block *(*block)(void) =
		(struct fake_block * (*)(void))(uintptr_t)dlsym(module, "fake_block");

	for (unsigned i = 0; i < MOST_LEVELS; i++) {
		statements[i].id = STATEMENT + i;
		if (i > 0)
			*(i % 2 ? &statements[i].trigger : &statements[i].procedure) = "name";
		requests[i].statement = &statements[i];
	}
	context.attachment = &attachment;
	for (;;) {
		STORE(block()->context, &context);
		for (unsigned i = 0; i < 20; i++)
			run_level(0, levels);
		STORE(block()->context, NULL);
		spin();
	}
}

static pid_t start_engine(void)
{
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_engine();
	}
	return child;
}

/* ---- Tests ---- */

struct tally {
	unsigned idle, busy, torn;
};

static void check_position(const struct passive_position *position)
{
	ck_assert_uint_eq(position->attachment_id, attachment.id);
	ck_assert_uint_ge(position->count, 1);
	for (uint32_t i = 0; i < position->count; i++) {
		const struct passive_request *request = &position->requests[i];

		ck_assert_uint_eq(request->statement_id, STATEMENT + i);
		ck_assert_uint_eq(request->request_id % MOST_LEVELS, i);
		if (i > 0)
			ck_assert_uint_eq(request->column, position->requests[i - 1].line);
	}
}

/* Looks at random times, and as seldom as the recorder. */
static struct tally look(struct process *process, unsigned looks)
{
	static struct passive_position position;
	struct tally tally = { 0 };
	double end = seconds() + 60;
	bool is_long = getenv("FBPROF_LONG_TESTS") != NULL;

	for (unsigned i = 0; is_long ? seconds() < end : i < looks; i++) {
		const struct timespec interval = { .tv_nsec = 20000 + rand() % 100000 };

		nanosleep(&interval, NULL);
		switch (passive_read(process->pid, &layout, &process->threads[0], &position)) {
		case PASSIVE_IDLE:
			tally.idle++;
			break;
		case PASSIVE_TORN:
			tally.torn++;
			break;
		case PASSIVE_BUSY:
			tally.busy++;
			check_position(&position);
		}
	}
	return tally;
}

static const struct {
	unsigned levels, line_time; /* in ns */
} workloads[] = { { 1, 300 }, { 2, 50 }, { 2, 1000 }, { 5, 1000 }, { 30, 3000 }, { 1024, 30000 } };

#define WORKLOADS ((int)(sizeof(workloads) / sizeof(workloads[0])))

START_TEST(told_as_it_was)
{
	char error[PROCESS_ERROR_SIZE];
	struct process *process;
	struct tally tally;
	pid_t child;

	levels = workloads[_i].levels;
	loops = loops_in(workloads[_i].line_time);
	child = start_engine();
	process = process_await(child, 60000, error);
	ck_assert_msg(process != NULL, "%s", error);
	while (process->threads[0].tls == 0)
		ck_assert(process_update(process));
	tally = look(process, levels > 100 ? 1000 : 5000);
	process_close(process);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	printf("%u levels, %u ns a line: %u busy, %u idle, %u torn\n", levels,
	       workloads[_i].line_time, tally.busy, tally.idle, tally.torn);
	ck_assert_uint_gt(tally.busy, 100);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("position");
	TCase *tcase = tcase_create("position");

#ifdef __SANITIZE_THREAD__
	return RUN_SUITE_SKIPPED;
#endif

	make_layout();
	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, told_as_it_was, 0, WORKLOADS);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
