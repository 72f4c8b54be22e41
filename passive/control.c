/*
 * See control.h.
 */
#include "control.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void control_set(_Atomic uint32_t *word, uint32_t value)
{
	uint32_t before = atomic_load(word);

	while (!atomic_compare_exchange_weak(word, &before,
					     ((before + CONTROL_CHANGE) & ~CONTROL_VALUE) | value))
		;
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void control_wait(const _Atomic uint32_t *word, uint32_t seen, uint64_t deadline)
{
	const struct timespec until = { .tv_sec = (time_t)(deadline / 1000000000),
					.tv_nsec = (long)(deadline % 1000000000) };

	syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, deadline ? &until : NULL, NULL,
		FUTEX_BITSET_MATCH_ANY);
}
