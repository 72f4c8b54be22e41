/*
 * What an event costs the engine, from the read of its clock to the end of ours: so much is taken off
 * the times of coarse and sampled mode, and in measured mode, of what lies outside of what it can see.
 *
 * The cost of an event depends on its kind, the engine and the machine.  The first two are constants
 * of this file's table, in units of a small piece of work that is like an event's: loads, stores and
 * arithmetic in the caches.  The third is what that piece takes here and now, measured on the
 * executing thread when a session starts and every 10 ms, which takes some µs: what others do on the
 * machine, and how fast the core is with it, changes within 100 ms.
 */
#ifndef FBPROF_EVENT_COST_H
#define FBPROF_EVENT_COST_H

#include "../output/log_format.h"
#include "../sampler/frame_stack.h"

/*
 * Measures the machine anew and sets the stack's event costs; `detailed`: requests are told apart.  The
 * executing thread.
 */
void event_cost_init(struct frame_stack *stack, enum log_mode mode, bool detailed);

/* The same, briefly, if it is time to; `now` in ns of any clock. */
void event_cost_update(struct frame_stack *stack, int64_t now);

#define EVENT_COST_INTERVAL 10000000

static inline void event_cost_keep_up(struct frame_stack *stack, int64_t now)
{
	if (__builtin_expect(now - stack->cost_updated > EVENT_COST_INTERVAL, 0))
		event_cost_update(stack, now);
}

#endif
