/*
 * Frame stacks as position sources: see position_source.h.  The sampler's thread only.
 */
#include "abandoned.h"
#include "position_source.h"

/*
 * How often a position is read anew if it changes meanwhile.  A read takes a few dozen ns, and the
 * shortest events are about as long; what still fails after so many tries is charged as torn.
 */
#define READ_TRIES 16

/* A position that hasn't changed for so many ns is doubted: the question costs about 10 us. */
#define DOUBT_AFTER (10 * 1000 * 1000ull)

/* See `bare_is_idle`: a few looks, so that a stack that is bare for a moment at a time is not idle. */
#define BARE_IDLE_AFTER (1000 * 1000ull)

/*
 * The thread was seen in a function that the engine's executor called; what it calls instead later
 * needs at least this many bytes of stack before it can block, and the way from a server's main loop
 * to the executor needs several times more.
 */
#define MARGIN 1024

/* Whether the thread has left what was read again and again. */
static bool is_left(struct frame_stack_source *source, uint64_t now)
{
	const struct frame_stack *stack = source->stack;

	if (frame_stack_is_bare(stack)) {
		/* Its thread may wait above the record source in which it was seen: no use in asking. */
		return source->bare_is_idle && now - source->unchanged_since >= BARE_IDLE_AFTER;
	}
	if (now - source->doubted < DOUBT_AFTER)
		return false;
	source->doubted = now;
	return thread_has_left(atomic_load_explicit(&stack->thread_id, memory_order_relaxed),
			       atomic_load_explicit(&stack->thread_frame, memory_order_relaxed) +
				       MARGIN);
}

static enum position_state judge(struct frame_stack_source *source, uint64_t now,
				 uint64_t innermost)
{
	uint64_t top = frame_stack_top(source->stack);
	bool between = frame_is_between_lines(innermost);

	if (top != source->last_top || innermost != source->last_frame) {
		source->last_top = top;
		source->last_frame = innermost;
		source->unchanged_since = source->doubted = now;
		return between ? POSITION_UNSURE : POSITION_BUSY;
	}
	if (!between && !is_left(source, now))
		return POSITION_BUSY;
	frame_stack_abandon(source->stack, top);
	return POSITION_IDLE;
}

static enum position_state read_frame_stack(struct position_source *source, uint64_t now,
					    struct position *position)
{
	struct frame_stack_source *self = (struct frame_stack_source *)source;

	if (!frame_stack_read(self->stack, READ_TRIES, position->frames, &position->count))
		return POSITION_TORN;
	if (!position->count)
		return POSITION_IDLE;
	return judge(self, now, position->frames[position->count - 1]);
}

void frame_stack_source_init(struct frame_stack_source *source, struct frame_stack *stack,
			     bool bare_is_idle)
{
	*source = (struct frame_stack_source){
		.source.read = read_frame_stack,
		.stack = stack,
		.bare_is_idle = bare_is_idle,
	};
}
