/*
 * Samples of native stacks by perf_event_open(): the kernel copies a thread's registers and the top of its stack
 * while it runs, at a rate of its CPU time.  Nothing is stopped, no signal is sent; a thread that waits
 * is not sampled.  In the own process it needs no right but that the kernel's setting allows it
 * (kernel.perf_event_paranoid at most 2); for others the right to ptrace them, too.
 */
#ifndef FBPROF_STACK_EVENTS_H
#define FBPROF_STACK_EVENTS_H

#include "stack.h"

struct stack_events;

/*
 * Samples a thread from now on, each `period` ns of its CPU time.  NULL, with errno: EACCES or EPERM where it isn't
 * permitted, ENOSYS or ENOENT where the kernel has none, ESRCH.
 */
struct stack_events *stack_events_open(pid_t thread, uint64_t period);
void stack_events_close(struct stack_events *events);

/*
 * Takes the newest sample since the last call, and drops the others.  False: there is none.  `time` is of
 * CLOCK_MONOTONIC, in ns.
 */
bool stack_events_take(struct stack_events *events, struct stack_sample *sample, uint64_t *time);

#endif
