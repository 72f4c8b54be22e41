/*
 * The program in which the library is preloaded, or not: test_preload.c runs it both ways and compares
 * what it prints.  Usage: probe WHAT DIRECTORY-OF-THE-MODULES
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *directory;

/* Found by dlopen(NULL), if that is what it should be. */
extern const int probe_marker;
const int probe_marker __attribute__((visibility("default"))) = 42;

static void *open_module(const char *name, int mode)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return dlopen(path, mode);
}

static void say_error(const char *what)
{
	const char *error = dlerror();

	printf("%s: %s\n", what, error ? error : "no error");
}

/* Which file a symbol of a handle comes from. */
static void say_origin(const char *what, void *handle, const char *symbol)
{
	void *address = handle ? dlsym(handle, symbol) : NULL;
	Dl_info info;

	if (!handle)
		say_error(what);
	else if (!address || !dladdr(address, &info))
		printf("%s: %s not found\n", what, symbol);
	else
		printf("%s: %s\n", what,
		       strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 :
						      info.dli_fname);
}

static void *sibling_of(void *opener, int mode)
{
	void *(*open_sibling)(int) = opener ? (void *(*)(int))dlsym(opener, "open_sibling") : NULL;

	return open_sibling ? open_sibling(mode) : NULL;
}

static void probe_sibling(void)
{
	static const char *const openers[] = { "opener_rpath.so", "opener_runpath.so" };

	/* From here it can't be found. */
	say_origin("from the program", dlopen("sibling.so", RTLD_NOW), "sibling_name");
	for (unsigned i = 0; i < 2; i++) {
		void *opener = open_module(openers[i], RTLD_NOW | RTLD_LOCAL), *sibling;

		say_origin(openers[i], opener, "open_sibling");
		printf("not loaded yet: %d\n", sibling_of(opener, RTLD_NOW | RTLD_NOLOAD) == NULL);
		dlerror();
		sibling = sibling_of(opener, RTLD_NOW | RTLD_LOCAL);
		say_origin("its sibling", sibling, "sibling_name");
		printf("local: %d\n", dlsym(RTLD_DEFAULT, "sibling_name") == NULL);
		dlerror();
		if (sibling)
			dlclose(sibling);
		if (opener)
			dlclose(opener);
	}
}

static void probe_missing(void)
{
	printf("%d\n", dlopen("no-such-library.so", RTLD_NOW) == NULL);
	say_error("missing");
	printf("%d\n", dlopen("/nonexistent/library.so", RTLD_LAZY) == NULL);
	say_error("missing directory");
	printf("%d\n", dlopen("/dev/null", RTLD_LAZY) == NULL);
	say_error("no library");
	printf("%d\n", dlopen("libc.so.6", 0) == NULL);
	say_error("bad mode");
	printf("%d\n", dlopen("", RTLD_NOW) != NULL);
	say_error("empty");
	say_error("read twice");
}

static void probe_self(void)
{
	void *self = dlopen(NULL, RTLD_NOW);
	const int *marker = self ? dlsym(self, "probe_marker") : NULL;

	printf("marker %d\n", marker ? *marker : -1);
	printf("libc %d\n", dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD) != NULL);
}

static void probe_namespace(void)
{
	char path[4096];
	void *opener, *sibling;
	Lmid_t base = -1, other = -1;

	snprintf(path, sizeof(path), "%s/opener_runpath.so", directory);
	opener = dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
	say_origin("opener", opener, "open_sibling");
	sibling = sibling_of(opener, RTLD_NOW | RTLD_LOCAL);
	say_origin("sibling", sibling, "sibling_name");
	if (!opener || !sibling)
		return;
	dlinfo(opener, RTLD_DI_LMID, &base);
	dlinfo(sibling, RTLD_DI_LMID, &other);
	printf("same namespace: %d, a new one: %d\n", base == other, other != LM_ID_BASE);
	printf("not in ours: %d\n", open_module("sibling.so", RTLD_NOW | RTLD_NOLOAD) == NULL);
}

static void probe_clocks(void)
{
	static const int ids[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 99, -1, -100 };
	struct timespec before, after;

	for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
		struct timespec time = { -1, -1 };
		int result;

		errno = 0;
		result = clock_gettime(ids[i], &time);
		printf("clock %d: %d errno %d, set %d\n", ids[i], result, errno, time.tv_nsec >= 0);
	}
	clock_gettime(CLOCK_MONOTONIC_RAW, &before);
	usleep(2000);
	clock_gettime(CLOCK_MONOTONIC_RAW, &after);
	printf("goes on: %d\n",
	       after.tv_sec > before.tv_sec || after.tv_nsec > before.tv_nsec + 1000000);
}

static void probe_profiler(void)
{
	static const char *const names[] = { "libDefault_Profiler.so",	"Default_Profiler.so",
					     "libDefault_Profiler",	"libDefault_Profiler.so.1",
					     "libDefault_Profiler2.so", "xlibDefault_Profiler.so" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		void *handle = open_module(names[i], RTLD_NOW);
		void *entry = handle ? dlsym(handle, "firebird_plugin") : NULL;
		Dl_info info;

		printf("%s: %s\n", names[i],
		       !entry		    ? "none" :
		       dladdr(entry, &info) ? strrchr(info.dli_fname, '/') + 1 :
					      "unknown");
		if (handle)
			dlclose(handle);
	}
	/* Counted like any handle: after any number of closes it still works. */
	for (unsigned i = 0; i < 100; i++) {
		void *handle = open_module("libDefault_Profiler.so", RTLD_NOW);

		if (!handle || !dlsym(handle, "firebird_plugin") || dlclose(handle)) {
			printf("round %u failed\n", i);
			break;
		}
	}
	printf("global: %d\n", dlsym(RTLD_DEFAULT, "sibling_name") != NULL);
}

#define THREADS 2
#define SIGNALS 300

static _Atomic bool finished;
static _Atomic unsigned handled, wrong;

static void on_signal(int signal)
{
	struct timespec raw, monotonic;

	(void)signal;
	if (clock_gettime(CLOCK_MONOTONIC_RAW, &raw) || clock_gettime(CLOCK_MONOTONIC, &monotonic))
		atomic_fetch_add(&wrong, 1);
	atomic_fetch_add(&handled, 1);
}

static void *read_clock(void *unused)
{
	struct timespec last = { 0 };

	while (!atomic_load(&finished)) {
		struct timespec now;

		clock_gettime(CLOCK_MONOTONIC_RAW, &now);
		if (now.tv_sec < last.tv_sec ||
		    (now.tv_sec == last.tv_sec && now.tv_nsec < last.tv_nsec))
			atomic_fetch_add(&wrong, 1);
		last = now;
	}
	return unused;
}

static void probe_signals(void)
{
	const struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	pthread_t threads[THREADS];

	sigaction(SIGUSR1, &action, NULL);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, read_clock, NULL);
	/* One that comes while another is pending is lost, so their number says nothing. */
	for (unsigned i = 0; i < SIGNALS || !atomic_load(&handled); i++) {
		pthread_kill(threads[i % THREADS], SIGUSR1);
		sched_yield();
	}
	atomic_store(&finished, true);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("handled: %d, wrong %u\n", atomic_load(&handled) > 0, atomic_load(&wrong));
}

/* What early.so has seen in its constructor, and whether interposer.so gets our calls. */
static void probe_others(void)
{
	const char *report = dlsym(RTLD_DEFAULT, "early_report");
	const _Atomic unsigned *dlopens = dlsym(RTLD_DEFAULT, "interposer_dlopens");
	const _Atomic unsigned *clocks = dlsym(RTLD_DEFAULT, "interposer_clocks");
	struct timespec time;
	unsigned before;

	printf("early: %s\n", report ? report : "not here");
	if (!dlopens || !clocks)
		return;
	before = atomic_load(dlopens);
	dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	printf("dlopen %u\n", atomic_load(dlopens) - before);
	before = atomic_load(clocks);
	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	clock_gettime(CLOCK_REALTIME, &time);
	printf("clock_gettime %u\n", atomic_load(clocks) - before);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*probe)(void);
	} probes[] = {
		{ "sibling", probe_sibling }, { "missing", probe_missing },
		{ "self", probe_self },	      { "namespace", probe_namespace },
		{ "clocks", probe_clocks },   { "profiler", probe_profiler },
		{ "signals", probe_signals }, { "others", probe_others },
	};

	if (argc != 3)
		return 2;
	directory = argv[2];
	for (size_t i = 0; i < sizeof(probes) / sizeof(*probes); i++) {
		if (!strcmp(argv[1], probes[i].name)) {
			probes[i].probe();
			return 0;
		}
	}
	return 2;
}
