/*
 * What looks like an engine to a reader of memory: a module with a TLS block that is loaded by dlopen(),
 * and requests that call one another.  For tests of reading alone, where each value must be known.
 */
#ifndef FBPROF_TESTS_ENGINE_H
#define FBPROF_TESTS_ENGINE_H

#include <stdint.h>
#include <sys/types.h>

/* If it has a name, it is of a procedure or trigger, which is always called. */
struct fake_statement {
	uint64_t id;
	const char *procedure, *trigger;
};

struct fake_request {
	uint64_t gap;
	struct fake_statement *statement;
	uint64_t id; /* another at each start */
	struct fake_request *caller;
	char other[512];
	uint32_t line, column;
};

struct fake_attachment {
	uint64_t id;
};

/* As the engine's thread_db. */
struct fake_context {
	uint64_t gap[3];
	struct fake_attachment *attachment;
	struct fake_request *request;
};

struct fake_block {
	struct fake_context *context;
	uint64_t filler[27];
	pid_t owner; /* thread */
};

/* The calling thread's TLS block.  By dlsym(). */
struct fake_block *fake_block(void);

#endif
