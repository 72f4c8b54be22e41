/*
 * A process that runs Firebird's engine, seen from outside or from within (pid = getpid()): where the engine is loaded,
 * which threads there are, and where each has the engine's TLS block.  Nothing is stopped for it, only
 * memory and /proc are read: glibc and the dynamic linker publish descriptors of their own structures.
 */
#ifndef FBPROF_PROCESS_H
#define FBPROF_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct process_thread {
	pid_t id;		     /* as we see it, in whatever PID namespace the process is */
	uint64_t tls;		     /* the engine's TLS block; 0: the thread has none yet */
	uint64_t alive;		     /* address of an int32 that is … */
	int32_t alive_when;	     /* … this as long as the thread lives */
	struct passive_ahead *ahead; /* private to position.h: kept as long as the thread lives */
};

struct process {
	pid_t pid;
	char engine[4096];	/* the engine's file as the process knows it … */
	char engine_path[4160]; /* … and a path to open it by, in whatever mount namespace it is */
	uint64_t engine_base;	/* load address */
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

/*
 * The same, but waits up to `milliseconds` for the engine to be loaded: a server loads it when somebody
 * connects.
 */
struct process *process_await(pid_t pid, unsigned milliseconds, char error[PROCESS_ERROR_SIZE]);

void process_close(struct process *process);

/*
 * Reads the list of threads anew.  A few system calls if nothing has changed, so that it can be done
 * often.  False: the process has ended, or has unloaded the engine (a server may, if nobody is
 * connected for a minute): close it, and open it anew.
 */
bool process_update(struct process *process);

#endif
