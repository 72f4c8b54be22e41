/*
 * Reads another process's memory, or our own, by process_vm_readv: a bad address is an error and never
 * a fault.  Any thread; no state.  All keep errno.
 */
#ifndef FBPROF_MEMORY_H
#define FBPROF_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MEMORY_PIECES 64

struct memory_piece {
	uint64_t from; /* there */
	void *to;
	size_t size;
};

/*
 * At most MEMORY_PIECES in one system call, which reads them in this order.  True if all were read
 * whole.
 */
bool memory_read(pid_t process, const struct memory_piece *pieces, unsigned count);

/* A single piece. */
bool memory_load(pid_t process, uint64_t from, void *to, size_t size);

/*
 * A text that ends with NUL; `size` includes it.  A longer one is cut.  False if it could not be read
 * to its end; `text` has what could.
 */
bool memory_text(pid_t process, uint64_t from, char *text, size_t size);

#endif
