/*
 * A process that runs Firebird's engine, seen from outside or from within: where the engine is loaded,
 * which threads there are, and where each has the engine's TLS block.  Nothing is stopped for it, only
 * memory and /proc are read: glibc and the dynamic linker publish descriptors of their own structures.
 */
#ifndef FBPROF_PROCESS_H
#define FBPROF_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct process_thread {
	pid_t id;
	uint64_t tls; /* the engine's TLS block; 0: the thread has none yet */
};

struct process {
	pid_t pid;
	char engine[4096];    /* the engine's file as in /proc/PID/maps … */
	char engine_path[64]; /* … and a path to open it by, in whatever mount namespace it is */
	uint64_t engine_base; /* load address */
	struct process_thread *threads;
	uint32_t count;
	struct process_private *private;
};

#define PROCESS_ERROR_SIZE 320

/*
 * Returns NULL, with a sentence in `error` that says what to do, if there is no such process, it runs
 * no engine, or we may not read it.  process_close() frees it.
 */
struct process *process_open(pid_t pid, char error[PROCESS_ERROR_SIZE]);
void process_close(struct process *process);

/* Reads the list of threads anew.  False: the process has ended (or the engine was unloaded). */
bool process_update(struct process *process);

#endif
