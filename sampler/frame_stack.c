/*
 * The parts of the frame stack that are not on the executor's path.  frame_stack.h has the argument
 * why reading is sound.
 */
#include "frame_stack.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t free_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct frame_stack *free_stacks;
_Atomic(struct frame_stack *) frame_stacks;

struct frame_stack *frame_stack_new(void)
{
	struct frame_stack *stack;
	bool made = false;

	pthread_mutex_lock(&free_mutex);
	stack = free_stacks;
	if (stack)
		free_stacks = stack->next_free;
	pthread_mutex_unlock(&free_mutex);
	if (!stack) {
		/* Pages of frames that are never reached are never touched, thus never allocated. */
		stack = aligned_alloc(alignof(struct frame_stack), sizeof(*stack));
		if (!stack)
			return NULL;
		atomic_init(&stack->top, 0);
		atomic_init(&stack->next_pair, FRAME_STACK_NO_PAIR);
		made = true;
	}
	stack->thread = NULL;
	stack->outer = NULL;
	stack->bare_depth = 1;
	stack->pairs_missed = 0;
	stack->clock_mode = CLOCK_SAMPLED;
	stack->cost_seen = stack->jump_cost = 0;
	stack->first_jump = 0;
	memset(stack->event_cost, 0, sizeof(stack->event_cost));
	stack->cost_updated = 0;
	stack->read_cost = stack->batch_read_cost = 0;
	memset(stack->own_work, 0, sizeof(stack->own_work));
	stack->own_work_due = 0;
	memset(stack->cost_unit, 0, sizeof(stack->cost_unit));
	stack->cost_mode = 0;
	stack->cost_detailed = false;
	stack->function_cost = stack->cell_cost = 0;
	atomic_init(&stack->cost, 0);
	atomic_init(&stack->cpu_time, 0);
	atomic_init(&stack->thread_id, 0);
	atomic_init(&stack->thread_frame, 0);
	stack->next_free = NULL;
	frame_stack_cut(stack, 0);
	frame_stack_set_idle(stack, true);
	if (made) {
		pthread_mutex_lock(&free_mutex);
		stack->next_made = atomic_load_explicit(&frame_stacks, memory_order_relaxed);
		atomic_store_explicit(&frame_stacks, stack, memory_order_release);
		pthread_mutex_unlock(&free_mutex);
	}
	return stack;
}

void frame_stack_free(struct frame_stack *stack)
{
	if (!stack)
		return;
	stack->thread = NULL;
	atomic_store_explicit(&stack->next_pair, FRAME_STACK_NO_PAIR, memory_order_relaxed);
	frame_stack_cut(stack, 0);
	frame_stack_set_idle(stack, true);
	pthread_mutex_lock(&free_mutex);
	stack->next_free = free_stacks;
	free_stacks = stack;
	pthread_mutex_unlock(&free_mutex);
}

void frame_stack_forget(void)
{
	pthread_mutex_init(&free_mutex, NULL);
}

bool frame_stack_read(const struct frame_stack *stack, unsigned tries, uint64_t *frames,
		      uint32_t *count)
{
	while (tries--) {
		uint64_t top = atomic_load_explicit(&stack->top, memory_order_acquire);
		uint32_t depth = (uint32_t)(top & FRAME_TOP_DEPTH);

		if (top & FRAME_TOP_IDLE) {
			*count = 0;
			return true;
		}
		for (uint32_t i = 0; i < depth; i++)
			frames[i] = atomic_load_explicit(&stack->frame[i], memory_order_acquire);
		if (atomic_load_explicit(&stack->top, memory_order_relaxed) == top) {
			*count = depth;
			return true;
		}
	}
	return false;
}
