/*
 * How the recorder's thread in a server is told to begin and to end: a word in shared memory, which has
 * no name in any directory.  Whoever may trace the process finds it as one of its open files,
 * /proc/PID/fd/N, and maps it, too.  The thread waits for the word to change by a futex, so that it
 * costs nothing while it is off, and no signal of the server's is touched.
 */
#ifndef FBPROF_CONTROL_H
#define FBPROF_CONTROL_H

#include <stdatomic.h>
#include <stdint.h>

#define CONTROL_NAME	 "fbprof-passive" /* of memfd_create(2): /memfd:fbprof-passive */
#define CONTROL_MAGIC	 0x32737670u
#define CONTROL_SENTENCE 4352
#define CONTROL_REMARK	 512

enum control_wanted {
	CONTROL_OFF = 0,
	CONTROL_ON = 1,
	CONTROL_EXIT = 2 /* the process's own: it ends */
};

enum control_state {
	CONTROL_IDLE = 0,    /* off */
	CONTROL_WAITING = 1, /* on, but there is no engine yet */
	CONTROL_RECORDING = 2,
	CONTROL_FAILED = 3 /* `sentence` says why; off and on tries again */
};

struct control {
	uint32_t magic;
	/* A futex: `wanted` in the low two bits, above them a number of changes. */
	_Atomic uint32_t wanted;
	/* The thread's: a futex likewise, changed when all else that belongs to it is there. */
	_Atomic uint32_t state;
	char sentence[CONTROL_SENTENCE]; /* the log's path, or what went wrong */
	char remark
		[CONTROL_REMARK]; /* why record sources aren't recorded; "": they are, or are not wanted */
};

#define CONTROL_VALUE  3u
#define CONTROL_CHANGE 4u

static inline uint32_t control_value(const _Atomic uint32_t *word)
{
	return atomic_load_explicit(word, memory_order_acquire) & CONTROL_VALUE;
}

/* Changes the value and wakes up whoever waits for that, in whatever process. */
void control_set(_Atomic uint32_t *word, uint32_t value);

/* Waits until the word is not `seen` any more, or until `deadline`, in ns of CLOCK_MONOTONIC; 0: none. */
void control_wait(const _Atomic uint32_t *word, uint32_t seen, uint64_t deadline);

#endif
