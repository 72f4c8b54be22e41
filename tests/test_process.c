/*
 * Processes seen from outside and from within: their threads, and the TLS blocks of a module that was
 * loaded late, in children whose threads come and go meanwhile.
 */
#include "../passive/memory.h"
#include "../passive/process.h"
#include "passive/engine.h"
#include "run_suite.h"
#include "scratch.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODULES 40 /* with TLS, loaded before the engine: vectors of old threads must grow */
#define THREADS 60
#define UPDATES 3000

typedef struct fake_block *(*block_function)(void);

/* Written by the child, read by the test. */
struct shared {
	_Atomic uint32_t ready;
	_Atomic bool go, leave;
	pid_t ids[THREADS];
	struct fake_block *blocks[THREADS];
};

static struct shared *shared;
static const char *engine; /* file */
static block_function engine_block;
static pid_t child;
static char error[PROCESS_ERROR_SIZE];

static void set_up(void)
{
	scratch_make();
	engine = getenv("FBPROF_FAKE_ENGINE");
	ck_assert_ptr_nonnull(engine);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
}

static void tear_down(void)
{
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		child = 0;
	}
	munmap(shared, sizeof(*shared));
	scratch_remove();
}

static void pause_ms(long ms)
{
	const struct timespec time = { .tv_nsec = ms * 1000000 };

	nanosleep(&time, NULL);
}

static void wait_for(uint32_t ready)
{
	while (atomic_load(&shared->ready) != ready) {
		ck_assert_int_eq(waitpid(child, NULL, WNOHANG), 0);
		pause_ms(1);
	}
}

/* ---- In the child ---- */

static void *load(const char *path, block_function *block)
{
	void *module = dlopen(path, RTLD_NOW);

	*block = module != NULL ? (block_function)(uintptr_t)dlsym(module, "fake_block") : NULL;
	if (*block == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		abort();
	}
	return module;
}

static void *load_engine(void)
{
	return load(engine, &engine_block);
}

/* Copies are modules of their own. */
static void copy_engine(const char *to)
{
	char command[2048];

	snprintf(command, sizeof(command), "cp '%s' '%s'", getenv("FBPROF_FAKE_ENGINE"), to);
	if (system(command) != 0)
		abort();
}

static void load_others(void)
{
	block_function block;
	char name[32];

	for (unsigned i = 0; i < MODULES; i++) {
		snprintf(name, sizeof(name), "module%u.so", i);
		load(scratch_path(name), &block);
		if (i % 2 == 0)
			block()->owner = 1;
	}
}

static struct fake_block *own_block(void)
{
	struct fake_block *block = engine_block();

	block->owner = gettid();
	return block;
}

/* One in five never touches the engine. */
static void *thread_with_block(void *argument)
{
	uintptr_t index = (uintptr_t)argument;

	atomic_fetch_add(&shared->ready, 1);
	while (!atomic_load(&shared->go))
		pause_ms(1);
	shared->ids[index] = gettid();
	shared->blocks[index] = index % 5 == 4 ? NULL : own_block();
	atomic_fetch_add(&shared->ready, 1);
	for (;;)
		pause();
	return NULL;
}

static pthread_t start(void *(*function)(void *), uintptr_t argument)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, function, (void *)argument) != 0)
		abort();
	return thread;
}

static void run_crowd(void)
{
	for (unsigned i = 0; i < THREADS; i++)
		start(thread_with_block, i);
	while (atomic_load(&shared->ready) != THREADS)
		pause_ms(1);
	load_others();
	load_engine();
	atomic_store(&shared->go, true);
	for (;;)
		pause();
}

static void *short_life(void *argument)
{
	const struct timespec time = { .tv_nsec = (long)((uintptr_t)argument % 7) * 20000 };

	own_block();
	nanosleep(&time, NULL);
	return NULL;
}

/* Threads that come and go, some joined and some not. */
static void run_churn(void)
{
	load_engine();
	own_block();
	atomic_store(&shared->ready, 1);
	for (uintptr_t i = 0; !atomic_load(&shared->leave); i++) {
		pthread_t thread = start(short_life, i);

		if (i % 3 == 0)
			pthread_join(thread, NULL);
		else
			pthread_detach(thread);
		if (i % 16 == 0)
			pause_ms(1);
	}
	for (;;)
		pause();
}

static void run_reload(void)
{
	void *module = load_engine();

	own_block();
	atomic_store(&shared->ready, 1);
	while (!atomic_load(&shared->go))
		pause_ms(1);
	dlclose(module);
	atomic_store(&shared->ready, 2);
	while (!atomic_load(&shared->leave))
		pause_ms(1);
	load_engine();
	shared->blocks[0] = own_block();
	atomic_store(&shared->ready, 3);
	for (;;)
		pause();
}

static void run_late(void)
{
	atomic_store(&shared->ready, 1);
	while (!atomic_load(&shared->go))
		pause_ms(1);
	pause_ms(100);
	load_engine();
	own_block();
	for (;;)
		pause();
}

static void run_nothing(void)
{
	atomic_store(&shared->ready, 1);
	for (;;)
		pause();
}

static void start_child(void (*run)(void))
{
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run();
		_exit(0);
	}
}

/* ---- Tests ---- */

static struct process *open_child(void)
{
	struct process *process = process_open(child, error);

	ck_assert_msg(process != NULL, "%s", error);
	return process;
}

static const struct process_thread *find_thread(const struct process *process, pid_t id)
{
	for (uint32_t i = 0; i < process->count; i++) {
		if (process->threads[i].id == id)
			return &process->threads[i];
	}
	return NULL;
}

static void copy_modules(void)
{
	char name[32];

	for (unsigned i = 0; i < MODULES; i++) {
		snprintf(name, sizeof(name), "module%u.so", i);
		copy_engine(scratch_path(name));
	}
}

static void check_crowd(const struct process *process, int _i)
{
	const struct process_thread *thread;

	ck_assert_uint_eq(process->count, THREADS + 1);
	for (unsigned i = 0; i < THREADS; i++) {
		thread = find_thread(process, shared->ids[i]);
		ck_assert_ptr_nonnull(thread);
		/* A static block is there before the thread asks for it. */
		if (_i == 0 || shared->blocks[i] != NULL)
			ck_assert_uint_eq(thread->tls, (uintptr_t)shared->blocks[i]);
	}
	thread = find_thread(process, process->pid);
	ck_assert_ptr_nonnull(thread);
	if (_i == 0)
		ck_assert_uint_eq(thread->tls, 0);
}

START_TEST(blocks_of_many_threads)
{
	struct process *process;

	if (_i == 1)
		engine = getenv("FBPROF_STATIC_ENGINE");
	copy_modules();
	start_child(run_crowd);
	wait_for(2 * THREADS);
	process = open_child();
	ck_assert_ptr_nonnull(strstr(process->engine, "/libEngine"));
	ck_assert_int_eq(access(process->engine_path, R_OK), 0);
	check_crowd(process, _i);
	for (unsigned i = 0; i < 10; i++) {
		ck_assert(process_update(process));
		check_crowd(process, _i);
	}
	process_close(process);
}
END_TEST

/* A thread that lives has its id in its block, or has not yet written it. */
START_TEST(threads_come_and_go)
{
	struct process *process;
	unsigned seen = 0;

	start_child(run_churn);
	wait_for(1);
	process = open_child();
	for (unsigned i = 0; i < UPDATES; i++) {
		ck_assert(process_update(process));
		ck_assert_ptr_nonnull(find_thread(process, child));
		for (uint32_t j = 0; j < process->count; j++) {
			const struct process_thread *thread = &process->threads[j];
			int32_t alive = 0;
			pid_t owner = -1;
			struct memory_piece pieces[] = {
				{ thread->tls + offsetof(struct fake_block, owner), &owner,
				  sizeof(owner) },
				{ thread->alive, &alive, sizeof(alive) },
			};

			if (thread->tls == 0 || !memory_read(child, pieces, 2) ||
			    alive != thread->alive_when)
				continue;
			ck_assert_msg(owner == thread->id || owner == 0, "block of %d at %d", owner,
				      thread->id);
			seen += thread->id != child && owner != 0;
		}
	}
	ck_assert_uint_gt(seen, UPDATES / 100);
	process_close(process);
}
END_TEST

START_TEST(engine_is_unloaded)
{
	struct process *process;

	start_child(run_reload);
	wait_for(1);
	process = open_child();
	ck_assert(process_update(process));
	atomic_store(&shared->go, true);
	wait_for(2);
	ck_assert(!process_update(process));
	process_close(process);
	ck_assert_ptr_null(process_open(child, error));
	atomic_store(&shared->leave, true);
	wait_for(3);
	process = open_child();
	ck_assert_uint_eq(process->count, 1);
	ck_assert_uint_eq(process->threads[0].tls, (uintptr_t)shared->blocks[0]);
	process_close(process);
}
END_TEST

START_TEST(engine_comes_late)
{
	struct process *process;

	start_child(run_late);
	wait_for(1);
	ck_assert_ptr_null(process_await(child, 50, error));
	ck_assert_ptr_nonnull(strstr(error, "not a Firebird process"));
	atomic_store(&shared->go, true);
	process = process_await(child, 60000, error);
	ck_assert_msg(process != NULL, "%s", error);
	process_close(process);
}
END_TEST

START_TEST(process_ends)
{
	struct process *process;

	start_child(run_churn);
	wait_for(1);
	process = open_child();
	kill(child, SIGKILL);
	while (process_update(process))
		pause_ms(1);
	process_close(process);
	ck_assert_ptr_null(process_open(child, error));
	ck_assert_ptr_nonnull(strstr(error, "it has ended"));
	waitpid(child, NULL, 0);
	ck_assert_ptr_null(process_open(child, error));
	ck_assert_ptr_nonnull(strstr(error, "no such process"));
	child = 0;
}
END_TEST

START_TEST(from_within)
{
	struct process *process;
	struct fake_block *block;

	load_engine();
	block = own_block();
	errno = ERANGE;
	process = process_open(getpid(), error);
	ck_assert_msg(process != NULL, "%s", error);
	ck_assert_int_eq(errno, ERANGE);
	ck_assert_uint_eq(find_thread(process, gettid())->tls, (uintptr_t)block);
	process_close(process);
}
END_TEST

/* Ids inside are not ours.  (The leak check, a child of its own, can't come back from there.) */
START_TEST(pid_namespace)
{
	struct process *process;

#ifdef __SANITIZE_ADDRESS__
	return;
#endif

	copy_modules();
	if (unshare(CLONE_NEWPID) != 0)
		return;
	start_child(run_crowd);
	wait_for(2 * THREADS);
	ck_assert_int_lt(shared->ids[0], child);
	process = open_child();
	for (unsigned repeat = 0; repeat < 3; repeat++) {
		ck_assert_uint_eq(process->count, THREADS + 1);
		for (uint32_t i = 0; i < process->count; i++) {
			char path[64];

			snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)child,
				 (int)process->threads[i].id);
			ck_assert_int_eq(access(path, F_OK), 0);
			ck_assert_int_ne(process->threads[i].id, process->threads[i].alive_when);
			for (uint32_t j = 0; j < i; j++)
				ck_assert_int_ne(process->threads[i].id, process->threads[j].id);
		}
		ck_assert(process_update(process));
	}
	process_close(process);
}
END_TEST

START_TEST(another_users_process)
{
	if (geteuid() != 0)
		return;
	start_child(run_nothing);
	wait_for(1);
	ck_assert_int_eq(seteuid(65534), 0);
	ck_assert_ptr_null(process_open(child, error));
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_ptr_nonnull(strstr(error, "another user (uid 0)"));
}
END_TEST

/* The engine's file was replaced: whoever may see the mapped one has it, others are told. */
START_TEST(engine_file_is_gone)
{
	struct process *process;
	char command[2048];
	const char *copy = scratch_path("libEngineCopy.so");

	copy_engine(copy);
	engine = copy;
	start_child(run_churn);
	wait_for(1);
	snprintf(command, sizeof(command), "rm '%s'; echo new > '%s'", copy, copy);
	ck_assert_int_eq(system(command), 0);
	process = process_open(child, error);
	if (process != NULL)
		ck_assert_ptr_nonnull(strstr(process->engine_path, "map_files"));
	else
		ck_assert_ptr_nonnull(strstr(error, "removed or replaced"));
	process_close(process);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("process");
	TCase *tcase = tcase_create("process");

#ifdef __SANITIZE_THREAD__
	return RUN_SUITE_SKIPPED;
#endif

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, blocks_of_many_threads, 0, 2);
	tcase_add_test(tcase, threads_come_and_go);
	tcase_add_test(tcase, engine_is_unloaded);
	tcase_add_test(tcase, engine_comes_late);
	tcase_add_test(tcase, process_ends);
	tcase_add_test(tcase, from_within);
	tcase_add_test(tcase, pid_namespace);
	tcase_add_test(tcase, another_users_process);
	tcase_add_test(tcase, engine_file_is_gone);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
