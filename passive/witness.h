/*
 * Tells whether the texts of a statement are still what they were when they were read: the pointers
 * that led to them, and the texts, are kept, and are read again in one system call.  Any thread; no
 * state but the witness, which is its owner's.
 */
#ifndef FBPROF_WITNESS_H
#define FBPROF_WITNESS_H

#include "layout.h"

#include <sys/types.h>

struct witness;

/* Reads what leads to the statement's names and text.  free() frees it.  NULL: no memory. */
struct witness *witness_new(pid_t process, const struct layout *layout, uint64_t statement);

/* Whether all of that is still there.  True means nothing for what could not be read at first. */
bool witness_agrees(pid_t process, const struct witness *witness);

#endif
