/*
 * The threads of a process, and where each has the TLS block of a module: out of glibc's own lists, by
 * the descriptors that glibc publishes for debuggers (_thread_db_*, the ones that libthread_db uses).
 * One thread at a time may use a list; nothing of the process is stopped.
 */
#ifndef FBPROF_THREADS_H
#define FBPROF_THREADS_H

#include "image.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct threads_entry {
	uint64_t descriptor;	 /* glibc's struct pthread, which is the thread pointer, too */
	uint64_t next, previous; /* in glibc's list */
	int32_t id;	 /* in the process's own PID namespace; 0 or below: none (any more) */
	uint64_t vector; /* its vector of TLS blocks */
	uint64_t tls;	 /* the module's block; 0: none yet */
};

struct threads {
	pid_t process;
	struct threads_layout *layout;
	struct threads_entry *entries; /* as of the last update */
	uint32_t count, room;
};

enum threads_result {
	THREADS_READ,
	THREADS_UNSTEADY, /* changed all the while: `entries` are the former ones */
	THREADS_GONE	  /* the module was unloaded, or there is no such process */
};

/* False: not a glibc that publishes its descriptors in .dynsym (2.34 and later do), or no memory. */
bool threads_open(struct threads *threads, pid_t process, const struct image *linker,
		  const struct image *libc, const struct image *module);
void threads_close(struct threads *threads);

/* Reads the list anew.  What has not changed costs a system call for some dozen threads. */
enum threads_result threads_update(struct threads *threads);

/* Address of the thread's id, which is 0 once it has ended. */
uint64_t threads_id_address(const struct threads *threads, const struct threads_entry *entry);

#endif
