/*
 * An engine that this process has loaded, by its file.  Any thread; no state.
 */
#ifndef FBPROF_ENGINE_MODULE_H
#define FBPROF_ENGINE_MODULE_H

#include <stdbool.h>
#include <stdint.h>

struct engine_module {
	const void *code;  /* in it */
	uint64_t tls;	   /* the calling thread's TLS block; 0: it has none yet */
	uint64_t tls_size; /* bytes */
};

/* `file`: as the linker knows it.  False, and all zeros: it isn't loaded. */
bool engine_module_find(const char *file, struct engine_module *module);

#endif
