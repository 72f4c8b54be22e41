/*
 * Another library that interposes the same two functions, by RTLD_NEXT, as tracers and debugging
 * malloc libraries do: before or after ours, both must get every call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

_Atomic unsigned interposer_dlopens EXPORT;
_Atomic unsigned interposer_clocks EXPORT;

EXPORT void *dlopen(const char *file, int mode)
{
	static void *(*next)(const char *, int);

	if (!next)
		next = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
	atomic_fetch_add(&interposer_dlopens, 1);
	return next(file, mode);
}

EXPORT int clock_gettime(clockid_t id, struct timespec *time)
{
	static int (*next)(clockid_t, struct timespec *);

	if (!next)
		next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	atomic_fetch_add(&interposer_clocks, 1);
	return next(id, time);
}
