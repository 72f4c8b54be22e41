/*
 * What an attachment executes, as its frame stack shows it.
 *
 * Frames belong to requests.  The engine does not say when a request is left by an exception or by
 * SUSPEND, but its next event is one of a request further down: what is above that goes.
 */
#define _GNU_SOURCE
#include "session_private.h"

#include <unistd.h>

static bool is_on_stack(const struct session *session, const struct request *request)
{
	uint32_t depth = frame_stack_depth(session->stack);

	return request->was_on_stack && request->frame < depth &&
	       session->owner[request->frame] == request &&
	       frame_kind(frame_stack_at(session->stack, request->frame)) == FRAME_REQUEST;
}

/* The kernel's id of this thread, once it is known: asking costs a system call. */
static _Thread_local pid_t thread_id __attribute__((tls_model("initial-exec")));

void position_forget_thread(void)
{
	thread_id = 0;
}

void position_resume(struct session *session)
{
	struct frame_stack *stack = session->stack;

	if (!thread_id)
		thread_id = gettid();
	atomic_store_explicit(&stack->thread_id, thread_id, memory_order_relaxed);
	atomic_store_explicit(&stack->thread_frame, (uintptr_t)__builtin_frame_address(0),
			      memory_order_relaxed);
	if (clock_is_ours) {
		/* Another thread has another time; and between calls nothing goes on. */
		if (stack->thread != &clock_thread)
			spans_clear(&session->spans);
		clock_enter(stack);
	}
	sampler_wake();
}

static void push_request(struct session *session, struct request *request)
{
	if (request->serial)
		push(session, request, frame_make_serial(request->serial));
	request->frame = frame_stack_depth(session->stack);
	request->was_on_stack = true;
	push(session, request, request_frame(request, 0));
}

/* Drops frames of other requests from the top until one of `request` (NULL: none) is topmost. */
static void drop_above(struct session *session, const struct request *request)
{
	uint32_t depth = frame_stack_depth(session->stack), before = depth;

	while (depth && session->owner[depth - 1] != request)
		depth--;
	if (depth != before)
		frame_stack_cut(session->stack, depth);
}

/*
 * A request without a caller is either the statement of a new call, or of EXECUTE STATEMENT within
 * one.  As calls of an attachment do not overlap, the attachment is in the latter case in the middle
 * of something, in a line or a record source, and its thread has not left it.
 */
static bool is_new_call(const struct session *session)
{
	const struct frame_stack *stack = session->stack;

	return (frame_stack_top(stack) & FRAME_TOP_IDLE) || frame_stack_is_bare(stack) ||
	       (clock_is_ours && !clock_is_inside(stack));
}

/*
 * Puts a request that has no frame on the stack, above its callers, which get frames if they have
 * none.  (A request that suspends loses its frame when its caller goes on, and gets a new one when it
 * is resumed.)
 */
static void enter_stack(struct session *session, struct request *request)
{
	struct request *caller = request, *above = NULL;

	for (uint32_t steps = 0; caller && !is_on_stack(session, caller); steps++) {
		if (steps == session->requests.count) {
			/* Callers in a circle are nonsense, but no reason to hang. */
			request->above = NULL;
			above = request;
			caller = NULL;
			break;
		}
		caller->above = above;
		above = caller;
		caller = caller->caller_id ? id_table_get(&session->requests, caller->caller_id) :
					     NULL;
	}
	if (caller)
		drop_above(session, caller);
	else if (frame_stack_depth(session->stack) && is_new_call(session))
		frame_stack_cut(session->stack, 0);
	for (; above; above = above->above)
		push_request(session, above);
}

struct request *position_enter(struct session *session, int64_t statement_id, int64_t request_id)
{
	int error = errno;
	struct request *request = id_table_get(&session->requests, request_id);

	clock_own_work_is_unusual(session->stack);
	if (!request)
		request = request_start(session, statement_id, request_id, 0, 0,
					ns_now(CLOCK_REALTIME));
	errno = error;
	if (!request) {
		session_step_aside(session);
		return NULL;
	}
	if (is_on_stack(session, request))
		drop_above(session, request);
	else
		enter_stack(session, request);
	session->current = request;
	return request;
}

/*
 * Pops down to and including the frame of this record source.  It is topmost, unless an exception
 * has left requests above it, or the session was started or paused since it was pushed.
 */
void position_pop_missing(struct session *session, const struct request *request, uint64_t frame)
{
	for (uint32_t i = frame_stack_depth(session->stack); i > request->frame + 1; i--) {
		if (frame_stack_at(session->stack, i - 1) == frame &&
		    session->owner[i - 1] == request) {
			frame_stack_cut(session->stack, i - 1);
			return;
		}
	}
}

void position_leave(struct session *session, struct request *request)
{
	struct frame_stack *stack = session->stack;
	uint32_t depth;

	if (!is_on_stack(session, request)) {
		/* Its frames are gone, but it may be current without one: never trust a freed request. */
		if (session->current == request)
			session->current = &no_request;
		return;
	}
	depth = request->frame - (request->serial ? 1 : 0);
	frame_stack_cut(stack, depth);
	if (!depth) {
		frame_stack_set_idle(stack, true);
		clock_leave(stack);
		spans_clear(&session->spans);
	}
	session->current = depth ? session->owner[depth - 1] : &no_request;
}
