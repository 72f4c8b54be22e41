/*
 * Reads another process's memory, or our own, by process_vm_readv: a bad address is an error and never
 * a fault.  Any thread; no state.
 */
#ifndef FBPROF_MEMORY_H
#define FBPROF_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MEMORY_PIECES 16

struct memory_piece {
	uint64_t from; /* there */
	void *to;
	size_t size;
};

/* At most MEMORY_PIECES in one system call.  True if all were read whole; keeps errno. */
bool memory_read(pid_t process, const struct memory_piece *pieces, unsigned count);

#endif
