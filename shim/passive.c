/*
 * See passive.h.
 *
 * The thread is started when an engine is loaded, as processes that never load one (Classic's listener,
 * clients) have nothing to record.  It is never joined: at the process's exit it is asked to end the
 * log, and is waited for at most EXIT_PATIENCE.
 */
#define _GNU_SOURCE
#include "passive.h"
#include "../passive/control.h"
#include "../passive/own_plan.h"
#include "../passive/position.h"
#include "../passive/targets.h"
#include "../sampler/sampler.h"
#include "environment.h"
#include "notice.h"
#include "options.h"
#include "session.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_SECOND 1000000000ull

/* How often the thread looks whether the engine was loaded or unloaded, and the log has grown. */
#define UPDATE_INTERVAL	  200000000u
#define ROTATION_INTERVAL (10 * NS_PER_SECOND)

#define EXIT_PATIENCE (NS_PER_SECOND / 4)

/* A look at a thread takes some 150 KB. */
#define STACK_SIZE (1024 * 1024)

static pthread_mutex_t start_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static bool started;
static int control_fd = -1;

/* Set before the thread starts. */
static struct control *control;
static struct recorder_options recorder_options;

/* ---- The thread ---- */

static void tell(enum control_state state, const char *sentence)
{
	if (sentence)
		snprintf(control->sentence, sizeof(control->sentence), "%s", sentence);
	control_set(&control->state, state);
}

static void tell_failure(const char *sentence)
{
	char whole[CONTROL_SENTENCE];

	snprintf(whole, sizeof(whole), "MODE=PASSIVE: %.4000s", sentence);
	notice(whole);
	tell(CONTROL_FAILED, sentence);
}

/* The state as it is while all goes well. */
static void tell_progress(const struct recorder *recorder, const struct targets *targets)
{
	enum control_state state = targets_recorded(targets) ? CONTROL_RECORDING : CONTROL_WAITING;

	if (control_value(&control->state) != state)
		tell(state, recorder_path(recorder));
}

/* ---- Record sources ---- */

/* The module is beside this library, and stays loaded.  NULL, with a sentence, if it can't be loaded. */
static own_plan_open_function *load_module(char error[STACK_ERROR_SIZE])
{
	own_plan_open_function *open = NULL;
	char path[4096 + sizeof(OWN_PLAN_MODULE)];
	const char *slash;
	void *module;
	Dl_info own;

	if (!dladdr((void *)load_module, &own) || !(slash = strrchr(own.dli_fname, '/')) ||
	    slash - own.dli_fname > 4096) {
		snprintf(error, STACK_ERROR_SIZE, "preload libfbprof.so by its path");
		return NULL;
	}
	snprintf(path, sizeof(path), "%.*s/" OWN_PLAN_MODULE, (int)(slash - own.dli_fname),
		 own.dli_fname);
	module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (module)
		open = (own_plan_open_function *)dlsym(module, OWN_PLAN_OPEN);
	if (!open)
		snprintf(error, STACK_ERROR_SIZE,
			 "libunwind must be installed, and " OWN_PLAN_MODULE
			 " be beside libfbprof.so: %.200s",
			 dlerror());
	return open;
}

/* Without record sources the rest is recorded all the same. */
static bool open_plan(const struct process *process, const struct layout *layout,
		      struct process_plan *plan, char error[STACK_ERROR_SIZE])
{
	own_plan_open_function *open = load_module(error);
	bool done = open && open(process, layout, plan, error);

	snprintf(control->remark, sizeof(control->remark), "%s", done ? "" : error);
	return done;
}

/* ---- Recording ---- */

/* Looks until it is switched off.  False: something failed.  Returns early with `rotate` set. */
static bool look(struct recorder *recorder, struct targets *targets, bool *rotate)
{
	const struct recorder_totals *totals = recorder_totals(recorder);
	uint64_t updated = 0, started_at = passive_clock(), due = started_at, time;
	uint32_t seen = atomic_load(&control->wanted);
	char error[TARGETS_ERROR_SIZE];

	while ((seen & CONTROL_VALUE) == CONTROL_ON && !totals->stopped && !*rotate) {
		control_wait(&control->wanted, seen, due);
		seen = atomic_load(&control->wanted);
		time = passive_clock();
		if (time >= due)
			due = recorder_look(recorder, time);
		if (time - updated < UPDATE_INTERVAL)
			continue;
		updated = time;
		if (!targets_update(targets, error)) {
			tell_failure(error);
			return false;
		}
		tell_progress(recorder, targets);
		*rotate = time - started_at > ROTATION_INTERVAL && log_is_grown(log_get());
	}
	if (totals->stopped)
		tell(CONTROL_FAILED, "recording has stopped: firebird.log says why");
	return !totals->stopped;
}

/* Records until it is switched off.  False: something failed, and was told. */
static bool record(bool *rotate)
{
	const struct targets_options targets_options = {
		.pid = getpid(), .open_plan = recorder_options.plan_rate ? open_plan : NULL
	};
	char error[TARGETS_ERROR_SIZE];
	struct recorder *recorder = recorder_new(&recorder_options, error, sizeof(error));
	struct targets *targets;
	bool done = false;

	*rotate = false;
	if (!recorder) {
		tell_failure(error);
		return false;
	}
	targets = targets_new(recorder, &targets_options, error);
	if (targets) {
		done = look(recorder, targets, rotate);
		targets_free(targets);
	} else {
		tell_failure(error);
	}
	recorder_free(recorder);
	return done;
}

static void *run(void *unused)
{
	bool rotate;

	(void)unused;
	sampler_at_work = true; /* the clock is real for this thread */
	prctl(PR_SET_TIMERSLACK, 1ul);
	prctl(PR_SET_NAME, "fbprof-passive");
	for (;;) {
		uint32_t seen = atomic_load(&control->wanted);

		switch (seen & CONTROL_VALUE) {
		case CONTROL_EXIT:
			tell(CONTROL_IDLE, "");
			return NULL;
		case CONTROL_ON:
			if (record(&rotate))
				continue;
			break;
		default:
			tell(CONTROL_IDLE, "");
		}
		control_wait(&control->wanted, seen, 0);
	}
}

/* ---- Its start and end ---- */

/* Memory that other processes can map, but not shorten under us. */
static bool make_control(void)
{
	int fd = memfd_create(CONTROL_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return false;
	if (!ftruncate(fd, sizeof(*control)) &&
	    !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!control || control == MAP_FAILED) {
		control = NULL;
		close(fd);
		return false;
	}
	madvise(control, sizeof(*control), MADV_DONTFORK);
	control->magic = CONTROL_MAGIC;
	atomic_init(&control->wanted, CONTROL_ON);
	atomic_init(&control->state, CONTROL_WAITING);
	control_fd = fd;
	return true;
}

static void drop_control(void)
{
	munmap(control, sizeof(*control));
	control = NULL;
	close(control_fd);
	control_fd = -1;
}

static bool start_thread(void)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	bool done;

	if (pthread_attr_init(&attributes))
		return false;
	pthread_attr_setstacksize(&attributes, STACK_SIZE);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	/* The server's signals are the server's: none is to be delivered to our thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	done = !pthread_create(&thread, &attributes, run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return done;
}

static bool read_options(const char *text, bool *wanted, char *error, size_t error_size)
{
	struct options options;

	options_init(&options);
	*wanted = false;
	if (!options_parse(&options, "FBPROF_OPTIONS", text, error))
		return true; /* START_SESSION says what is wrong; and it isn't known that we are wanted */
	*wanted = options.passive;
	recorder_options = (struct recorder_options){ .interval = options.passive_interval,
						      .plan_rate = options.plan_rate,
						      .sql_text = options.sql_text,
						      .in_process = true };
	return !*wanted || (environment_log_options(&recorder_options.log, error, error_size) &&
			    environment_sampler_share(&recorder_options.share, error, error_size));
}

static void start(const char *text)
{
	char error[1024] = "";
	bool wanted;

	if (!read_options(text, &wanted, error, sizeof(error))) {
		notice(error);
		return;
	}
	if (!wanted)
		return;
	recorder_options.log.clock = "CLOCK_MONOTONIC";
	session_watch_forks();
	if (make_control()) {
		if (start_thread())
			return;
		drop_control();
	}
	notice("MODE=PASSIVE: its thread could not be started: check the limits of "
	       "threads, open files and memory");
}

void passive_engine_loads(void)
{
	const char *text = secure_getenv("FBPROF_OPTIONS");
	int error = errno;

	if (text && *text) {
		pthread_mutex_lock(&start_mutex);
		if (!started) {
			started = true;
			start(text);
		}
		pthread_mutex_unlock(&start_mutex);
	}
	errno = error;
}

void passive_forget(void)
{
	pthread_mutex_init(&start_mutex, NULL);
	if (control_fd >= 0)
		close(control_fd);
	control_fd = -1;
	control = NULL;
	started = false;
}

/* So that a log says that it is whole. */
__attribute__((destructor)) static void end(void)
{
	uint64_t deadline = passive_clock() + EXIT_PATIENCE;
	uint32_t state;

	if (!control)
		return;
	control_set(&control->wanted, CONTROL_EXIT);
	while ((state = atomic_load(&control->state), state & CONTROL_VALUE) != CONTROL_IDLE &&
	       passive_clock() < deadline)
		control_wait(&control->state, state, deadline);
}
