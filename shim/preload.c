/*
 * What is interposed when the library is preloaded: dlopen, so that the engine finds our plugin in
 * place of Default_Profiler, and clock_gettime, so that it reads our clock.
 *
 * The dynamic linker searches by the RPATH and the namespace of whoever called dlopen, which it knows
 * by the return address.  So what isn't for us must reach it by a jump, with the caller's return
 * address on the stack: the compiler makes one of a call in tail position at -O2, which the build
 * sees to and tests/preload checks.
 *
 * Both may be called before our constructor has run (another library's may come first) and from
 * signal handlers.  Until the real functions are known, clock_gettime makes the system call itself.
 */
#define _GNU_SOURCE
#include "clock.h"
#include "passive.h"
#include "stock.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#if !defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#error "build with -O2: a call in tail position must become a jump"
#endif

typedef void *dlopen_function(const char *file, int mode);

#define EXPORT __attribute__((visibility("default")))

/* Written once, by the constructor or by whoever comes before it with the same value. */
static _Atomic(dlopen_function *) real_dlopen;

static dlopen_function *find_dlopen(void)
{
	dlopen_function *found = (dlopen_function *)dlsym(RTLD_NEXT, "dlopen");

	atomic_store_explicit(&real_dlopen, found, memory_order_relaxed);
	return found;
}

/* Whether the process calls our clock_gettime: not if the engine loaded us as a mere plugin. */
static bool is_interposed(void)
{
	Dl_info theirs, ours;

	return dladdr(dlsym(RTLD_DEFAULT, "clock_gettime"), &theirs) &&
	       dladdr((void *)is_interposed, &ours) && theirs.dli_fbase == ours.dli_fbase;
}

__attribute__((constructor)) static void find_real_functions(void)
{
	clock_function *clock = (clock_function *)dlsym(RTLD_NEXT, "clock_gettime");

	find_dlopen();
	if (clock)
		clock_real = clock;
	clock_is_ours = is_interposed();
}

/*
 * "…/Default_Profiler", with or without "lib" before and ".so" behind: the engine tries them in
 * turn, but only those that exist as a file.
 */
static bool is_profiler_module(const char *file)
{
	const char *name = strrchr(file, '/');

	name = name ? name + 1 : file;
	if (!strncmp(name, "lib", 3))
		name += 3;
	if (strncmp(name, "Default_Profiler", 16))
		return false;
	return !name[16] || !strcmp(name + 16, ".so");
}

/* "…/libEngine13.so", and of whatever version. */
static bool is_engine_module(const char *file)
{
	const char *name = strrchr(file, '/');

	name = name ? name + 1 : file;
	if (!strncmp(name, "lib", 3))
		name += 3;
	return !strncmp(name, "Engine", 6);
}

/* A handle for this library, counted like any other; NULL if it can't be had. */
static void *own_handle(int mode)
{
	Dl_info info;
	dlopen_function *open = atomic_load_explicit(&real_dlopen, memory_order_relaxed);

	if (!dladdr((void *)own_handle, &info))
		return NULL;
	return open(info.dli_fname, (mode & ~(RTLD_GLOBAL | RTLD_DEEPBIND)) | RTLD_NOLOAD);
}

EXPORT void *dlopen(const char *file, int mode)
{
	dlopen_function *open = atomic_load_explicit(&real_dlopen, memory_order_relaxed);

	if (__builtin_expect(!open, 0))
		open = find_dlopen();
	if (__builtin_expect(file && is_profiler_module(file), 0)) {
		void *handle = own_handle(mode);

		if (handle) {
			stock_asked_for(file);
			return handle;
		}
	}
	if (__builtin_expect(file && is_engine_module(file), 0))
		passive_engine_loads();
	return open(file, mode);
}

EXPORT int clock_gettime(clockid_t id, struct timespec *time)
{
	return clock_answer(id, time);
}
