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

/* The same for a stack that is bare, if nothing else tells that a call has ended. */
#define DOUBT_BARE_AFTER (1000 * 1000ull)

/*
 * The thread was seen in a function that the engine's executor called; what it calls instead later
 * needs at least this many bytes of stack before it can block, and the way from a server's main loop
 * to the executor needs several times more.
 */
#define MARGIN 1024

/* From one line to the next takes far less CPU time than this, in ns. */
#define BETWEEN_LINES_MAX 20000u

static int32_t thread_of(const struct frame_stack_source *source)
{
	return atomic_load_explicit(&source->stack->thread_id, memory_order_relaxed);
}

static bool is_doubtful(struct frame_stack_source *source, uint64_t now, uint64_t after)
{
	if (now - source->doubted < after)
		return false;
	source->doubted = now;
	return true;
}

/* Whether the thread has left what was read again and again. */
static bool has_left(struct frame_stack_source *source, uint64_t now)
{
	const struct frame_stack *stack = source->stack;
	bool bare = source->doubt_bare && frame_stack_is_bare(stack);

	return is_doubtful(source, now, bare ? DOUBT_BARE_AFTER : DOUBT_AFTER) &&
	       thread_has_left(thread_of(source),
			       atomic_load_explicit(&stack->thread_frame, memory_order_relaxed) +
				       MARGIN);
}

/*
 * Whether a thread that has left a line and not come to another does something else: it works, or
 * waits.  If it does neither, it has been interrupted just there, and is to be asked again.
 */
static bool does_something_else(struct frame_stack_source *source, uint64_t now)
{
	return thread_cpu_time(thread_of(source)) - source->cpu_time > BETWEEN_LINES_MAX ||
	       (is_doubtful(source, now, DOUBT_BARE_AFTER) && thread_is_blocked(thread_of(source)));
}

static enum position_state judge(struct frame_stack_source *source, uint64_t now,
				 uint64_t innermost)
{
	uint64_t top = frame_stack_top(source->stack);
	bool between = frame_is_between_lines(innermost);

	if (top != source->last_top || innermost != source->last_frame) {
		source->last_top = top;
		source->last_frame = innermost;
		source->doubted = now;
		if (!between)
			return POSITION_BUSY;
		source->doubted = 0; /* at the next look already */
		source->cpu_time = thread_cpu_time(thread_of(source));
		return POSITION_UNSURE;
	}
	if (!(between ? does_something_else(source, now) : has_left(source, now)))
		return between ? POSITION_UNSURE : POSITION_BUSY;
	frame_stack_abandon(source->stack, top);
	return POSITION_IDLE;
}

static enum position_state read_frame_stack(struct position_source *source, uint64_t now,
					    struct position *position)
{
	struct frame_stack_source *self = (struct frame_stack_source *)source;

	position->thread = thread_of(self);
	if (!frame_stack_read(self->stack, READ_TRIES, position->frames, &position->count))
		return POSITION_TORN;
	if (!position->count)
		return POSITION_IDLE;
	return judge(self, now, position->frames[position->count - 1]);
}

void frame_stack_source_init(struct frame_stack_source *source, struct frame_stack *stack,
			     bool doubt_bare)
{
	*source = (struct frame_stack_source){
		.source.read = read_frame_stack,
		.stack = stack,
		.doubt_bare = doubt_bare,
	};
}
