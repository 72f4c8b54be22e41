/*
 * What the sampler samples: something that can tell at any moment what an attachment is executing.
 * Published frame stacks are one kind; positions read out of the engine's memory are to be another.
 */
#ifndef FBPROF_POSITION_SOURCE_H
#define FBPROF_POSITION_SOURCE_H

#include "frame_stack.h"
#include <stddef.h>

enum position_state {
	POSITION_IDLE,	 /* not executing: nothing to charge */
	POSITION_BUSY,	 /* `frames` tells */
	POSITION_UNSURE, /* busy or idle: the next look will tell.  If busy, it stands for both */
	POSITION_TORN	 /* executing, but its position changed while it was read */
};

struct position {
	int32_t thread; /* the kernel's id of the thread that executes; 0: unknown */
	uint32_t count;
	uint64_t frames[FRAME_STACK_ROOM]; /* as in frame_stack.h, outermost first */
};

struct position_source {
	/*
	 * Reads the position.  `now` is the time of this look in ns, of a clock that only goes forward.
	 * The sampler's thread; must not block.
	 */
	enum position_state (*read)(struct position_source *source, uint64_t now,
				    struct position *position);
};

/* A frame stack as a source. */
struct frame_stack_source {
	struct position_source source;
	struct frame_stack *stack;
	bool doubt_bare;	       /* nothing tells when a call ends, so we have to guess */
	uint64_t last_top, last_frame; /* what was seen last … */
	uint64_t doubted;	       /* … when it was new or last doubted … */
	uint64_t cpu_time;	       /* … and the thread's, if it was between lines */
};

/*
 * `doubt_bare`: the executing thread does not mark the stack idle when a call ends.  Then the sampler
 * has to find out soon whether it is still there when only the outermost request is on the stack.
 */
void frame_stack_source_init(struct frame_stack_source *source, struct frame_stack *stack,
			     bool doubt_bare);

#endif
