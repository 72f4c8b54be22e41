/*
 * Samples of native stacks by perf_event_open(): asked for, the kernel copies a thread's registers and the top of its
 * stack, 60 KB, when it has run for a while.  Nothing is stopped, no signal is sent; a thread that waits is sampled when
 * it goes on.  One thread at a time may use it.  In the own process it needs no right but that the kernel's setting
 * allows it (kernel.perf_event_paranoid at most 2); for others the right to ptrace them, too.
 */
#ifndef FBPROF_STACK_EVENTS_H
#define FBPROF_STACK_EVENTS_H

#include "stack.h"

struct stack_events;

/*
 * For samples of this thread; until one is asked for, it costs the thread nothing.  NULL, with a sentence in
 * `error` that says what to do.
 */
struct stack_events *stack_events_open(pid_t thread, char error[STACK_ERROR_SIZE]);
void stack_events_close(struct stack_events *events);

/* Asks for a sample, which comes when the thread has run for 0.5 ms.  Not while one is awaited.  False: it can't be. */
bool stack_events_ask(struct stack_events *events);

/* Whether a sample that was asked for hasn't been taken yet. */
bool stack_events_await(const struct stack_events *events);

/* Takes it.  False: it hasn't come yet, or is none. */
bool stack_events_take(struct stack_events *events, struct stack_sample *sample);

#endif
