/*
 * The frame stack: where an attachment publishes what it is executing, for the sampler to read.
 *
 * One thread at a time writes a stack: the one that executes the attachment.  The engine's own locks
 * order one such thread before the next.  Any thread may read.
 *
 * It is a seqlock whose sequence number and depth share one word, `top`:
 *
 *   - A frame above the depth is invisible, so a push writes the frame first and `top` then.  A pop
 *     only writes `top`.  Each push and pop changes the version, so `top` never repeats.
 *   - A reader loads `top`, the frames below the depth, and `top` again.  If it is the same, no frame
 *     that was read has been popped meanwhile, thus none was overwritten by a later push.  This needs
 *     that a reader who sees the frame of a later push also sees the `top` of the pop before it: all
 *     stores are release and all loads acquire.  (On x86-64 these are plain moves.)
 *   - frame_stack_set() changes a visible frame in place, by one store and without a new version: a
 *     reader sees the old or the new frame, and with the frames around it either is a position
 *     that really was.
 *
 * `top`, `cost` and the first six frames share a cache line, so that reading a plan of usual depth
 * costs the sampler one miss, and the executor one when it writes next.
 */
#ifndef FBPROF_FRAME_STACK_H
#define FBPROF_FRAME_STACK_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Frames are words, so that each is read and written whole.  From the top bits down: kind (2),
 * statement index (24), cell (24); or kind and the request's serial.
 */
enum frame_kind {
	FRAME_REQUEST = 0, /* an execution of a statement; its cell is the current line, or 0 */
	FRAME_SERIAL = 1,  /* below a FRAME_REQUEST: which execution, if they are told apart */
	FRAME_RECORD_SOURCE = 2, /* being opened or fetched from, as the cell tells */
};

#define FRAME_KIND_SHIFT      62
#define FRAME_STATEMENT_SHIFT 24
#define FRAME_CELL_MASK	      0xffffffu
#define FRAME_STATEMENT_MAX   0xffffffu
#define FRAME_SERIAL_MASK     ((1ull << FRAME_KIND_SHIFT) - 1)

/*
 * Cells from here on stand for no line, like 0: the outermost request has left a line.  Either the
 * next one comes at once, or the call has ended.  So that a reader can tell, there are 65536 of them,
 * which take turns: with 256, a loop was found in the same one in some percent of all looks.
 */
#define FRAME_CELL_BETWEEN_COUNT 65536u
#define FRAME_CELL_BETWEEN	 (FRAME_CELL_MASK - FRAME_CELL_BETWEEN_COUNT + 1)

static inline uint64_t frame_make(enum frame_kind kind, uint32_t statement, uint32_t cell)
{
	return (uint64_t)kind << FRAME_KIND_SHIFT | (uint64_t)statement << FRAME_STATEMENT_SHIFT |
	       cell;
}

static inline uint64_t frame_make_serial(uint64_t serial)
{
	return (uint64_t)FRAME_SERIAL << FRAME_KIND_SHIFT | (serial & FRAME_SERIAL_MASK);
}

static inline enum frame_kind frame_kind(uint64_t frame)
{
	return (enum frame_kind)(frame >> FRAME_KIND_SHIFT);
}

static inline uint32_t frame_statement(uint64_t frame)
{
	return (uint32_t)(frame >> FRAME_STATEMENT_SHIFT) & FRAME_STATEMENT_MAX;
}

static inline uint32_t frame_cell(uint64_t frame)
{
	return (uint32_t)frame & FRAME_CELL_MASK;
}

static inline bool frame_is_between_lines(uint64_t frame)
{
	return frame_kind(frame) == FRAME_REQUEST && frame_cell(frame) >= FRAME_CELL_BETWEEN;
}

static inline bool frame_is_in_line(uint64_t frame)
{
	return frame_cell(frame) != 0 && frame_cell(frame) < FRAME_CELL_BETWEEN;
}

/*
 * Firebird allows 1000 levels of PSQL calls; with DETAILED_REQUESTS and a cursor open at each level
 * that makes 4000 frames.  What is deeper still is not published.
 */
#define FRAME_STACK_ROOM 4096u

/*
 * `top`, from the low bits up: depth, whether the attachment is idle, version.  The idle bit has a
 * second writer, the sampler (frame_stack_abandon()), which exchanges it by comparison; the executing
 * thread may then overwrite it by a store, as it does when it isn't idle at all.
 */
#define FRAME_TOP_DEPTH	  0xffffffull
#define FRAME_TOP_IDLE	  0x1000000ull
#define FRAME_TOP_VERSION 0x2000000ull

/* Costs of events are kept in units of 1/1024 ns, since one takes only a few ns. */
#define COST_PER_NS_SHIFT 10

/* The last so many measurements of how fast the machine is. */
#define COST_UNITS 4

/* What the clock of a profiled call is made of, see shim/clock.h. */
enum clock_mode {
	CLOCK_SAMPLED,
	CLOCK_COARSE,
	CLOCK_MEASURED
};

struct frame_stack {
	alignas(128) _Atomic uint64_t top;
	_Atomic uint64_t cost; /* of all events so far; written by the executing thread, relaxed */
	_Atomic uint64_t frame[FRAME_STACK_ROOM];

	/* The rest is the executing thread's own; it has its cache line. */
	alignas(128) void *thread; /* whose clock is ours, see clock.h; NULL: nobody's */
	struct frame_stack *outer; /* what that thread executed before and will come back to */
	enum clock_mode clock_mode;
	uint32_t bare_depth;   /* depth with only the outermost request on the stack; 0: unknown */
	uint32_t pairs_missed; /* this and the next four: see clock.h */
	int64_t event_cost[5]; /* by enum log_event, in units of COST_PER_NS_SHIFT; this and the */
	uint64_t cost_unit[COST_UNITS]; /* next three: see shim/event_cost.h */
	int64_t cost_updated;
	int64_t read_cost;	 /* ns; measured mode: of a read of the clock */
	int64_t batch_read_cost; /* ns; the same, of many in a row */
	int64_t own_work[5];	 /* by enum log_event; this and the next one: see clock_exclude() */
	int32_t own_work_due;
	uint32_t cost_mode;
	bool cost_detailed;
	int64_t function_cost; /* what a request of a function costs more … */
	int64_t cell_cost;     /* … and one that is told apart for each cell of its own */
	uint64_t cost_seen;    /* of `cost`, the clock has been put back by so much */
	int64_t first_jump;    /* when the clock moved on, first since that was taken notice of */
	uint64_t jump_cost;    /* ns that it was put back since */
	_Atomic int64_t next_pair; /* other threads read it */

	/* Which thread it was that ended the idle time, and how deep its stack was: see abandoned.h. */
	_Atomic int32_t thread_id;
	_Atomic uintptr_t thread_frame;

	struct frame_stack *next_free, *next_made;

	/* The sampler's: what it has seen of the thread's CPU time, in ns, relaxed. */
	alignas(128) _Atomic uint64_t cpu_time;
};

/* No time is as late: nobody expects the engine's pair. */
#define FRAME_STACK_NO_PAIR INT64_MAX

/*
 * All stacks that were ever made, by `next_made`; pushed by frame_stack_new() under its lock, with
 * release, so that whoever loads it with acquire can walk them at any time: none is ever unmapped.
 */
extern _Atomic(struct frame_stack *) frame_stacks;

/* A stack with nothing on it, idle; recycled ones first.  NULL: out of memory. */
struct frame_stack *frame_stack_new(void);

/*
 * Recycles a stack, which is never unmapped: a thread that executed the attachment before may still
 * look whether it is the one in `thread`.
 */
void frame_stack_free(struct frame_stack *stack);

/* ---- The executing thread ---- */

static inline uint64_t frame_stack_top(const struct frame_stack *stack)
{
	return atomic_load_explicit(&stack->top, memory_order_relaxed);
}

static inline uint32_t frame_stack_depth(const struct frame_stack *stack)
{
	return (uint32_t)(frame_stack_top(stack) & FRAME_TOP_DEPTH);
}

/* Counts what an event costs, in units of COST_PER_NS_SHIFT. */
static inline void frame_stack_add_cost(struct frame_stack *stack, int64_t cost)
{
	atomic_store_explicit(&stack->cost,
			      atomic_load_explicit(&stack->cost, memory_order_relaxed) +
				      (uint64_t)cost,
			      memory_order_relaxed);
}

static inline uint64_t frame_stack_cost(const struct frame_stack *stack)
{
	return atomic_load_explicit(&stack->cost, memory_order_relaxed);
}

/*
 * Of time that has passed, in ns, what the events meanwhile are thought to have cost, at most `most`:
 * `all` is the cost of all events so far, `seen` the part of it that was taken off.  What there is no
 * room for is taken off the next time, but no more than has passed now: if costs are thought too high,
 * they may not eat up the waiting that comes later.
 */
static inline uint64_t frame_stack_take_cost(uint64_t all, uint64_t *seen, uint64_t passed,
					     uint64_t most)
{
	uint64_t cost = (all - *seen) >> COST_PER_NS_SHIFT;

	if (cost > most)
		cost = most;
	*seen += cost << COST_PER_NS_SHIFT;
	if ((all - *seen) >> COST_PER_NS_SHIFT > passed)
		*seen = all - (passed << COST_PER_NS_SHIFT);
	return cost;
}

/* The frame at `depth` (from 0); only below the stack's depth. */
static inline uint64_t frame_stack_at(const struct frame_stack *stack, uint32_t depth)
{
	return atomic_load_explicit(&stack->frame[depth], memory_order_relaxed);
}

/*
 * Pushes a frame, unless the stack is full.  Returns whether the attachment was idle: then the caller
 * has to wake the sampler.
 */
static inline bool frame_stack_push(struct frame_stack *stack, uint64_t frame)
{
	uint64_t top = frame_stack_top(stack);
	uint64_t depth = top & FRAME_TOP_DEPTH;

	if (__builtin_expect(depth == FRAME_STACK_ROOM, 0))
		return false;
	atomic_store_explicit(&stack->frame[depth], frame, memory_order_release);
	atomic_store_explicit(&stack->top, (top & ~FRAME_TOP_IDLE) + FRAME_TOP_VERSION + 1,
			      memory_order_release);
	return (top & FRAME_TOP_IDLE) != 0;
}

/* Pops down to `depth`, which is not above the present one. */
static inline void frame_stack_cut(struct frame_stack *stack, uint32_t depth)
{
	uint64_t top = frame_stack_top(stack);

	atomic_store_explicit(&stack->top, (top & ~FRAME_TOP_DEPTH) + FRAME_TOP_VERSION + depth,
			      memory_order_release);
}

/* Changes a visible frame. */
static inline void frame_stack_set(struct frame_stack *stack, uint32_t depth, uint64_t frame)
{
	atomic_store_explicit(&stack->frame[depth], frame, memory_order_release);
}

/* Says that the attachment has returned to its client (or, with false, that it is back). */
static inline void frame_stack_set_idle(struct frame_stack *stack, bool idle)
{
	uint64_t top = frame_stack_top(stack);

	atomic_store_explicit(&stack->top,
			      (top & ~FRAME_TOP_IDLE) + FRAME_TOP_VERSION +
				      (idle ? FRAME_TOP_IDLE : 0),
			      memory_order_release);
}

/*
 * Only the outermost request is on the stack, in no line and no record source: if the engine now
 * reads its clock, it does so as it leaves for the client (or, a moment before the next event, as
 * it comes back).
 */
static inline bool frame_stack_is_bare(const struct frame_stack *stack)
{
	return stack->bare_depth && frame_stack_depth(stack) == stack->bare_depth &&
	       !frame_is_in_line(frame_stack_at(stack, stack->bare_depth - 1));
}

/* ---- Readers ---- */

/*
 * Copies the frames, outermost first, into `frames`, which has room for FRAME_STACK_ROOM, and their
 * number into `count`.  Returns false if the stack changed during each of `tries` attempts.  The
 * number is 0 if the attachment is idle.
 */
bool frame_stack_read(const struct frame_stack *stack, unsigned tries, uint64_t *frames,
		      uint32_t *count);

/*
 * For the sampler, when it finds that the thread has long left what the stack shows: marks the stack
 * idle if it is still as it was when `top` was read.
 */
static inline void frame_stack_abandon(struct frame_stack *stack, uint64_t top)
{
	atomic_compare_exchange_strong_explicit(&stack->top, &top, top | FRAME_TOP_IDLE,
						memory_order_release, memory_order_relaxed);
}

/* After fork, in the child: its locks are its own. */
void frame_stack_forget(void);

#endif
