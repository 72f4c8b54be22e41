/*
 * Tells whether a thread has returned from a function, without that function's help.
 *
 * The engine does not always say that it has left a request: not after PAUSE_SESSION, nor when an
 * exception escapes while another is being handled.  The frame stack then shows a position that was
 * left long ago.  But a server's thread that has nothing to do waits in a system call, far up its own
 * stack: if its stack pointer is above a frame, the function of that frame has returned.
 */
#ifndef FBPROF_ABANDONED_H
#define FBPROF_ABANDONED_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Whether `thread` (an id in this process) is blocked with all of its stack above `frame`, or is
 * gone.  False if it is running, or can't be asked.  `frame` is the address of a stack frame whose
 * callers are to be gone too.  Opens a file in /proc: for rare use.  Any thread.
 */
bool thread_has_left(int32_t thread, uintptr_t frame);

#endif
