/*
 * Uses both interposed functions in its constructor, which runs before ours if it is preloaded after
 * ours, and keeps what it got.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

char early_report[256] __attribute__((visibility("default")));

__attribute__((constructor)) static void look_around(void)
{
	struct timespec raw = { -1, -1 }, monotonic = { -1, -1 };
	int raw_result = clock_gettime(CLOCK_MONOTONIC_RAW, &raw);
	int monotonic_result = clock_gettime(CLOCK_MONOTONIC, &monotonic);
	void *self = dlopen(NULL, RTLD_NOW), *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	void *missing = dlopen("no-such-library.so", RTLD_NOW);
	const char *error = dlerror();

	snprintf(early_report, sizeof(early_report),
		 "raw %d %d, monotonic %d %d, self %d, libc %d, missing %d: %s", raw_result,
		 raw.tv_nsec >= 0, monotonic_result, monotonic.tv_nsec >= 0, self != NULL,
		 libc != NULL, missing != NULL, error ? error : "no error");
}
