/*
 * Native stacks: a thread's registers and a copy of its stack, taken while it stands still for as long
 * as it takes to copy them, and the frames in them, found by libunwind from the modules' .eh_frame.
 * Everything but the stack is read once from the process's memory, so that no file need be opened:
 * neither a container's root nor an upgraded package matters.
 */
#ifndef FBPROF_PASSIVE_STACK_H
#define FBPROF_PASSIVE_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Registers go by their numbers in DWARF (x86-64): 3 rbx, 6 rbp, 7 rsp, 12 to 15 r12 to r15, 16 rip. */
#define STACK_REGISTERS 17
#define STACK_RSP	7
#define STACK_RIP	16

/* The registers that a function gives back as it found them. */
extern const uint32_t stack_callee_saved[];
#define STACK_CALLEE_SAVED 6

/* Deep recursion in PSQL goes beyond it: such a chain is cut off at its outer end. */
#define STACK_COPY_SIZE 262144

struct stack_sample {
	uint64_t registers[STACK_REGISTERS];
	uint64_t held;			      /* ns that the thread stood still for it */
	size_t size;			      /* bytes in use, from rsp upwards */
	unsigned char bytes[STACK_COPY_SIZE]; /* the stack */
};

struct stack_frame {
	uint64_t start, end; /* of its function's unwind entry, absolute; 0: it has none */
	uint64_t cfa; /* tells frames of one function apart, as long as they live; 0: outermost */
	uint64_t ip;
	uint64_t saved[STACK_CALLEE_SAVED]; /* in the order of stack_callee_saved */
	uint32_t known;			    /* bits, likewise: the register's value is known */
};

#define STACK_ERROR_SIZE 320

/*
 * Stops a thread of another process, copies, and lets it go on, some 50 us later.  It is seized by ptrace only for that:
 * signals that come meanwhile are delivered, and system calls go on.  False, with errno, if it isn't
 * permitted or the thread has ended.  One thread at a time; it must not be being traced by another.
 * `meanwhile` (may be NULL) is called while it stands still.
 */
bool stack_stop(pid_t process, pid_t thread, struct stack_sample *sample,
		void (*meanwhile)(void *context), void *context);

/* The calling thread's own, from its caller's frame outwards. */
bool stack_own(struct stack_sample *sample);

/* The same of a signal's handler (its ucontext_t): what was interrupted.  Async-signal-safe. */
bool stack_of_context(const void *context, struct stack_sample *sample);

/* A word of the stack; false: it wasn't copied. */
bool stack_word(const struct stack_sample *sample, uint64_t address, uint64_t *word);

/* Knows the modules of a process.  Used by one thread at a time. */
struct stack_unwinder;

/* NULL, with a sentence in `error`, if the process can't be read. */
struct stack_unwinder *stack_unwinder_new(pid_t process, char error[STACK_ERROR_SIZE]);
void stack_unwinder_free(struct stack_unwinder *unwinder);

/* The file that is mapped there, with all its segments. */
bool stack_module(struct stack_unwinder *unwinder, uint64_t address, uint64_t *start,
		  uint64_t *end);

/*
 * The frames, innermost first.  Returns how many; `whole` tells whether the last one is the thread's
 * outermost.
 */
uint32_t stack_unwind(struct stack_unwinder *unwinder, const struct stack_sample *sample,
		      struct stack_frame *frames, uint32_t room, bool *whole);

#endif
