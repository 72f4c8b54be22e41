/*
 * The floor: the cheapest profiler that an engine which isn't rebuilt can have.  Preloaded instead of
 * fbprof, this library gives the engine a clock that costs next to nothing and a plugin that does
 * nothing; what a session then costs is what the engine itself spends on its events.
 *
 * FLOOR_EVENTS says which events the plugin asks for: 1 before, 2 after, 3 both.  Without it the
 * engine gets the plugin that it asked for, under the same clock.  FLOOR_COUNT=1 has the plugin count
 * its events, to see that they arrive, and say how many there were when the process ends.
 *
 * Made for the benchmark, where one attachment runs one session of less than 30 s.
 */
#define _GNU_SOURCE
#include "../../shim/firebird.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef __OPTIMIZE__
#error "build with -O2: a call in tail position must become a jump"
#endif

#define EXPORT __attribute__((visibility("default")))

typedef void *dlopen_function(const char *file, int mode);
typedef int clock_function(clockid_t id, struct timespec *time);

static int clock_by_system_call(clockid_t id, struct timespec *time)
{
	return (int)syscall(SYS_clock_gettime, id, time);
}

static clock_function *real_clock_gettime = clock_by_system_call;
static dlopen_function *real_dlopen;

__attribute__((constructor)) static void find_real_functions(void)
{
	clock_function *clock = (clock_function *)dlsym(RTLD_NEXT, "clock_gettime");

	real_dlopen = (dlopen_function *)dlsym(RTLD_NEXT, "dlopen");
	if (clock)
		real_clock_gettime = clock;
}

/* ---- The clock ---- */

/*
 * The time as of the ticker's last look, seconds << 30 | nanoseconds; 0: there is no ticker.  Reads
 * of a thread are 1 ns apart at least, for the engine drops the end of a request that took no time.
 * A thread can't read it more often than once per ns, so that its time never is ahead of the real
 * one.  The nanoseconds may come to more than a second when the ticker is late: the engine, the only
 * reader of this clock, adds them up with the seconds.
 */
static struct {
	_Atomic uint64_t word;
} __attribute__((aligned(64))) shared_clock;

#define SECONDS_SHIFT	 30
#define NANOSECONDS_MASK ((1u << SECONDS_SHIFT) - 1)
#define INITIAL_EXEC	 __attribute__((tls_model("initial-exec")))

static _Thread_local uint64_t last INITIAL_EXEC;

/*
 * When a session begins the engine takes the difference of two reads for the cost of one, and
 * subtracts it from what it measures ever after: if it weren't 0, intervals of 1 ns were 0, and ends
 * of requests were not sent.  So these two get the same time.
 */
static _Thread_local enum {
	NO_PAIR,
	FIRST,
	SECOND
} pair INITIAL_EXEC;

static void expect_pair(void)
{
	pair = FIRST;
	last = 0;
}

static int answer(uint64_t now, struct timespec *time)
{
	time->tv_sec = (time_t)(now >> SECONDS_SHIFT);
	time->tv_nsec = (long)(now & NANOSECONDS_MASK);
	return 0;
}

/* The ticker has moved the clock on since the thread's last read, or a pair makes it look so. */
__attribute__((noinline)) static int answer_moved(uint64_t now, struct timespec *time)
{
	static _Thread_local uint64_t first INITIAL_EXEC;

	switch (pair) {
	case FIRST:
		pair = SECOND;
		first = now;
		return answer(now, time);
	case SECOND:
		pair = NO_PAIR;
		now = first;
		break;
	case NO_PAIR:
		break;
	}
	last = now;
	return answer(now, time);
}

EXPORT int clock_gettime(clockid_t id, struct timespec *time)
{
	uint64_t now;

	if (id != CLOCK_MONOTONIC_RAW)
		return real_clock_gettime(id, time);
	now = atomic_load_explicit(&shared_clock.word, memory_order_relaxed);
	if (__builtin_expect(!now, 0))
		return real_clock_gettime(id, time);
	if (__builtin_expect(now > last, 0))
		return answer_moved(now, time);
	return answer(++last, time);
}

/* ---- The ticker ---- */

#define INTERVAL 100000u /* ns: fbprof's default */

static bool counting;
static unsigned long ticks;

static void move_clock(void)
{
	struct timespec time;

	real_clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	atomic_store_explicit(&shared_clock.word,
			      (uint64_t)time.tv_sec << SECONDS_SHIFT | (uint64_t)time.tv_nsec,
			      memory_order_relaxed);
}

/* Moves the clock on every 50 to 150 us.  What it misses when it is late it doesn't make up for. */
static void *tick(void *unused)
{
	struct timespec time;
	uint64_t deadline = 0, now;
	unsigned random = 1;

	(void)unused;
	prctl(PR_SET_TIMERSLACK, 1ul);
	prctl(PR_SET_NAME, "floor-ticker");
	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &time);
		now = (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
		random = random * 1103515245 + 12345;
		deadline += INTERVAL / 2 + (random >> 8) % INTERVAL;
		if (deadline < now)
			deadline = now + INTERVAL / 4;
		time.tv_sec = (time_t)(deadline / 1000000000);
		time.tv_nsec = (long)(deadline % 1000000000);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
		move_clock();
		ticks++;
	}
	return NULL;
}

static void start_clock(void)
{
	pthread_t thread;
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	move_clock();
	if (pthread_create(&thread, NULL, tick, NULL))
		abort();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	expect_pair();
}

/* ---- The session ---- */

/*
 * One function for all methods that do nothing, whatever their arguments, which in the calling
 * conventions of the C compilers for Linux are the caller's business.
 */
static void nothing()
{
}

static int64_t get_id(struct fb_profiler_session *session)
{
	(void)session;
	return 1;
}

static unsigned get_flags(struct fb_profiler_session *session)
{
	(void)session;
	return (unsigned)atoi(getenv("FLOOR_EVENTS"));
}

static unsigned long before, after, finished;

static void count_before()
{
	before++;
}

static void count_after()
{
	after++;
}

static void count_finished()
{
	finished++;
}

__attribute__((destructor)) static void show_counts(void)
{
	if (counting)
		fprintf(stderr, "floor: before %lu, after %lu, finished %lu, ticks %lu\n", before,
			after, finished, ticks);
}

static const struct fb_profiler_session_vtable empty_vtable = {
	.version = FB_PROFILER_SESSION_VERSION,
	.dispose = nothing,
	.get_id = get_id,
	.get_flags = get_flags,
	.cancel = nothing,
	.finish = nothing,
	.define_statement = nothing,
	.define_cursor = nothing,
	.define_record_source = nothing,
	.on_request_start = nothing,
	.on_request_finish = nothing,
	.before_psql_line_column = nothing,
	.after_psql_line_column = nothing,
	.before_record_source_open = nothing,
	.after_record_source_open = nothing,
	.before_record_source_get_record = nothing,
	.after_record_source_get_record = nothing,
	.define_statement2 = nothing,
};

static struct fb_profiler_session_vtable counting_vtable(void)
{
	struct fb_profiler_session_vtable vtable = empty_vtable;

	vtable.on_request_finish = count_finished;
	vtable.before_psql_line_column = count_before;
	vtable.after_psql_line_column = count_after;
	vtable.before_record_source_open = count_before;
	vtable.after_record_source_open = count_after;
	vtable.before_record_source_get_record = count_before;
	vtable.after_record_source_get_record = count_after;
	return vtable;
}

/* ---- The plugin ---- */

static void *plugin_owner;

static void set_owner(struct fb_profiler_plugin *plugin, void *owner)
{
	(void)plugin;
	plugin_owner = owner;
}

static void *get_owner(struct fb_profiler_plugin *plugin)
{
	(void)plugin;
	return plugin_owner;
}

static int release(struct fb_profiler_plugin *plugin)
{
	(void)plugin;
	return 1; /* it is static: never the last reference */
}

static struct fb_profiler_session *start_session(struct fb_profiler_plugin *plugin,
						 struct fb_status *status, const char *description,
						 const char *options,
						 struct fb_timestamp_tz timestamp)
{
	static struct fb_profiler_session_vtable with_counts;
	static struct fb_profiler_session session = { .vtable = &empty_vtable };

	(void)plugin, (void)status, (void)description, (void)options, (void)timestamp;
	if (counting) {
		with_counts = counting_vtable();
		session.vtable = &with_counts;
	}
	expect_pair();
	return &session;
}

static struct fb_profiler_plugin *create_plugin(struct fb_plugin_factory *factory,
						struct fb_status *status, void *config)
{
	static const struct fb_profiler_plugin_vtable vtable = {
		.version = FB_PROFILER_PLUGIN_VERSION,
		.add_ref = nothing,
		.release = release,
		.set_owner = set_owner,
		.get_owner = get_owner,
		.init = nothing,
		.start_session = start_session,
		.flush = nothing,
	};
	static struct fb_profiler_plugin plugin = { .vtable = &vtable };

	(void)factory, (void)status, (void)config;
	return &plugin;
}

EXPORT void firebird_plugin(struct fb_master *master)
{
	static const struct fb_plugin_factory_vtable vtable = {
		.version = FB_PLUGIN_FACTORY_VERSION,
		.create_plugin = create_plugin,
	};
	static struct fb_plugin_factory factory = { .vtable = &vtable };
	struct fb_plugin_manager *manager = master->vtable->get_plugin_manager(master);

	manager->vtable->register_plugin_factory(manager, FB_PLUGIN_TYPE_PROFILER,
						 "Default_Profiler", &factory);
}

/* ---- How it gets there: see shim/preload.c ---- */

static void *own_handle(int mode)
{
	Dl_info info;

	if (!dladdr((void *)own_handle, &info))
		abort();
	return real_dlopen(info.dli_fname, mode | RTLD_NOLOAD);
}

EXPORT void *dlopen(const char *file, int mode)
{
	if (file && strstr(file, "/libDefault_Profiler.so")) {
		const char *count = getenv("FLOOR_COUNT");

		counting = count && !strcmp(count, "1");
		if (!atomic_load(&shared_clock.word))
			start_clock();
		if (getenv("FLOOR_EVENTS"))
			return own_handle(mode);
	}
	return real_dlopen(file, mode);
}
