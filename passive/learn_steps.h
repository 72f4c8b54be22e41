/*
 * Learns where a native stack tells the position in a plan (enum layout_plan_event) of an engine that has no events,
 * from samples of stacks and the plans that the engine explains.
 *
 * A frame of a virtual function, with the object in a register: the object begins with the address of
 * its class's virtual functions, and the frame's function is one of them, always at the same place.  Of the
 * classes that are seen so, one that is seen in just those statements whose plan has a certain step is that
 * step.  With other statements, the steps on each stack must then be on one path of the plan.
 *
 * In the process that runs the engine; one thread at a time, which is not the one that executes.
 */
#ifndef FBPROF_LEARN_STEPS_H
#define FBPROF_LEARN_STEPS_H

#include "layout.h"
#include "stack.h"

struct learn_steps;

/* `engine`: any address in its code.  NULL, with a sentence in `error`, if it can't begin. */
struct learn_steps *learn_steps_new(const void *engine, char error[LAYOUT_ERROR_SIZE]);
void learn_steps_free(struct learn_steps *learn);

/* Another statement is executed from now on; `explained` is its plan in detail. */
void learn_steps_begin(struct learn_steps *learn, const char *explained);

/* A stack while it is executed, with the addresses of the requests at that moment, innermost first. */
void learn_steps_sample(struct learn_steps *learn, const struct stack_sample *sample,
			const uint64_t *requests, uint32_t count);

/* After the statements to learn from: the next ones are to agree. */
void learn_steps_settle(struct learn_steps *learn);

/* As learn_plan_result(). */
bool learn_steps_result(const struct learn_steps *learn, struct layout *layout, uint64_t *verified,
			char error[LAYOUT_ERROR_SIZE]);

#endif
