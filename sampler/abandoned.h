/*
 * Tells what a thread does, without its help: whether it has returned from a function, for instance.
 *
 * The engine does not always say that it has left a request: not after PAUSE_SESSION, nor when an
 * exception escapes while another is being handled.  The frame stack then shows a position that was
 * left long ago.  But a server's thread that has nothing to do waits in a system call, far up its own
 * stack: if its stack pointer is above a frame, the function of that frame has returned.
 *
 * Threads are named by their ids in this process, 0 for none.  Any thread may ask.
 */
#ifndef FBPROF_ABANDONED_H
#define FBPROF_ABANDONED_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Whether the thread is blocked in a system call, or is gone; not if it runs, or would if there were
 * a CPU for it, or if it can't be asked.  Opens a file in /proc, some 10 us: for rare use.
 */
bool thread_is_blocked(int32_t thread);

/* The same, with all of its stack above `frame`, the address of a frame whose callers are gone, too. */
bool thread_has_left(int32_t thread, uintptr_t frame);

/* The CPU time that the thread has used, in ns; 0 if it is gone.  A system call, some 500 ns. */
uint64_t thread_cpu_time(int32_t thread);

#endif
