/*
 * The engine's events in coarse and measured mode: only what comes after a line, an open or a fetch,
 * with the time that it took by the engine, which is in its own group of cells.
 *
 * In coarse mode the engine's clock stands still between the sampler's looks but for 1 ns a read, so
 * nearly all events took no time and are only counted.  One during which the clock has moved on
 * stands for all of that time: the engine's subtraction does the sampling.
 */
#include "../sampler/tick_clock.h"
#include "session_private.h"

/*
 * Without events that come before, only this one tells that the thread is in a call: the attachment may
 * have been idle, or another thread's.
 */
static __attribute__((noinline)) void come_back(struct session *session)
{
	struct frame_stack *stack = session->stack;
	bool was_idle = frame_stack_top(stack) & FRAME_TOP_IDLE;

	clock_own_work_is_unusual(stack);
	if (was_idle)
		frame_stack_set_idle(stack, false);
	if (was_idle || (clock_is_ours && !clock_is_inside(stack)))
		position_resume(session);
}

static inline bool is_back(const struct frame_stack *stack)
{
	return !(frame_stack_top(stack) & FRAME_TOP_IDLE) &&
	       (!clock_is_ours || clock_is_inside(stack));
}

/* The innermost position that we know of: what ended last. */
static void show_position(struct session *session, const struct request *request, uint32_t cell)
{
	struct frame_stack *stack = session->stack;

	if (request->frame < frame_stack_depth(stack))
		frame_stack_set(stack, request->frame, request_frame(request, cell));
}

/* When what ended last did so, in ns, by the engine's clock. */
static int64_t moment(void)
{
	return clock_is_ours ? clock_told() : ns_now(CLOCK_MONOTONIC_RAW);
}

/* What the sampler has found since the last look goes to the spans that are open. */
static void take_looks(struct session *session)
{
	struct frame_stack *stack = session->stack;
	uint64_t cpu;

	if (!stack->first_jump)
		return;
	cpu = atomic_load_explicit(&stack->cpu_time, memory_order_relaxed);
	spans_look(&session->spans, stack->first_jump, stack->jump_cost, cpu - session->cpu_seen);
	add_to_cell(&session->target.totals->cost, stack->jump_cost);
	session->cpu_seen = cpu;
	stack->first_jump = 0;
	stack->jump_cost = 0;
}

static __attribute__((noinline)) void keep_coarse_time(struct session *session,
						       const struct request *request, uint32_t cell,
						       uint64_t *group, uint64_t key, uint64_t time,
						       bool is_line)
{
	struct span_times times;

	if (time <= clock_since_jump())
		return;
	if (unlikely(!is_back(session->stack)))
		come_back(session);
	take_looks(session);
	if (is_line)
		times = spans_end_apart(&session->spans, key, moment(), time);
	else
		times = spans_end(&session->spans, key, moment(), time);
	add_to_cell(group + LOG_GROUP_TOTAL, times.total);
	add_to_cell(group + LOG_GROUP_SELF, times.self);
	add_to_cell(group + LOG_GROUP_TOTAL_CPU, times.total_cpu);
	add_to_cell(group + LOG_GROUP_SELF_CPU, times.self_cpu);
	add_to_cell(group + LOG_GROUP_TOTAL_COST, times.total_cost);
	add_to_cell(group + LOG_GROUP_SELF_COST, times.self_cost);
	show_position(session, request, cell);
}

/* What the position shows is of no use here, but that the attachment is busy. */
static hot_inline void keep_measured_time(struct session *session, uint64_t *group, uint64_t key,
					  uint64_t time, bool is_line, enum log_event event)
{
	struct frame_stack *stack = session->stack;

	if (unlikely(!is_back(stack)))
		come_back(session);
	add_to_cell(group + LOG_GROUP_TOTAL, time);
	add_to_cell(group + LOG_GROUP_SELF,
		    spans_end_timed(&session->spans, key, moment(), time, is_line ? key : 0));
	if (unlikely(time < group[LOG_GROUP_MIN] || group[LOG_GROUP_COUNT] == 1))
		set_cell(group + LOG_GROUP_MIN, time);
	if (unlikely(time > group[LOG_GROUP_MAX]))
		set_cell(group + LOG_GROUP_MAX, time);
	session->started_at = 0;
	if (likely(clock_is_ours))
		clock_exclude(stack, event);
}

static inline uint64_t elapsed(struct fb_profiler_stats *stats)
{
	return stats->vtable->get_elapsed_ticks(stats);
}

/*
 * The keys of spans: of no other request, for those come and go in the same memory, and what encloses
 * one of them needn't enclose the next.
 */
static inline uint64_t line_key(int64_t request_id)
{
	return (uint64_t)request_id << 24;
}

static inline uint64_t source_key(int64_t request_id, const struct record_source *source)
{
	return (uint64_t)request_id << 24 | source->cell;
}

/*
 * All lines of a request are of one key: whatever encloses one of them encloses the next one too.  A
 * line began after the last one had ended, so if the clock has not moved on since then, nothing is to
 * be kept.
 */
static hot_inline void after_line(struct fb_profiler_session *interface, int64_t statement_id,
				  int64_t request_id, unsigned line_number, unsigned column,
				  struct fb_profiler_stats *stats, bool coarse)
{
	struct session *session = session_of(interface);
	struct request *request = current(session, statement_id, request_id);
	struct line *line;
	uint64_t *group;

	if (unlikely(!request))
		return;
	line = line_find(session, request->statement, line_number, column);
	if (unlikely(!line))
		return;
	request->statement->last_line = line;
	group = request_cells(session, request, &line->cache, line->cell);
	if (unlikely(!group))
		return;
	add_to_cell(group + LOG_GROUP_COUNT, 1);
	if (!coarse) {
		keep_measured_time(session, group, line_key(request_id), elapsed(stats), true,
				   LOG_EVENT_LINE);
		return;
	}
	frame_stack_add_cost(session->stack, session->stack->event_cost[LOG_EVENT_LINE]);
	if (unlikely(request->jumped != clock_thread.jumped)) {
		request->jumped = clock_thread.jumped;
		keep_coarse_time(session, request, line->cell, group, line_key(request_id),
				 elapsed(stats), true);
	}
}

static hot_inline void after_record_source(struct fb_profiler_session *interface,
					   int64_t statement_id, int64_t request_id,
					   unsigned cursor_id, unsigned id,
					   struct fb_profiler_stats *stats, bool fetch, bool coarse)
{
	struct session *session = session_of(interface);
	struct request *request = current(session, statement_id, request_id);
	struct record_source *source;
	uint32_t cell;
	uint64_t *group, time;

	if (unlikely(!request))
		return;
	source = record_source_find(request->statement, cursor_id, id);
	if (unlikely(!source))
		return;
	cell = source->cell + (fetch ? LOG_GROUP_CELLS : 0);
	group = request_cells(session, request, fetch ? &source->fetches : &source->opens, cell);
	if (unlikely(!group))
		return;
	add_to_cell(group + LOG_GROUP_COUNT, 1);
	time = elapsed(stats);
	if (!coarse) {
		keep_measured_time(session, group, source_key(request_id, source), time, false,
				   fetch ? source->fetch : LOG_EVENT_OPEN);
		return;
	}
	frame_stack_add_cost(session->stack,
			     session->stack->event_cost[fetch ? source->fetch : LOG_EVENT_OPEN]);
	if (unlikely(time > clock_since_jump()))
		keep_coarse_time(session, request, cell, group, source_key(request_id, source),
				 time, false);
}

static unsigned get_flags(struct fb_profiler_session *interface)
{
	(void)interface;
	return FB_PROFILER_AFTER_EVENTS;
}

/* The three events of a mode, with everything else as in sampled mode. */
#define TIMED_EVENTS(mode, coarse)                                                               \
	static void mode##_line(struct fb_profiler_session *self, int64_t statement,             \
				int64_t request, unsigned line, unsigned column,                 \
				struct fb_profiler_stats *stats)                                 \
	{                                                                                        \
		after_line(self, statement, request, line, column, stats, coarse);               \
	}                                                                                        \
	static void mode##_open(struct fb_profiler_session *self, int64_t statement,             \
				int64_t request, unsigned cursor, unsigned id,                   \
				struct fb_profiler_stats *stats)                                 \
	{                                                                                        \
		after_record_source(self, statement, request, cursor, id, stats, false, coarse); \
	}                                                                                        \
	static void mode##_fetch(struct fb_profiler_session *self, int64_t statement,            \
				 int64_t request, unsigned cursor, unsigned id,                  \
				 struct fb_profiler_stats *stats)                                \
	{                                                                                        \
		after_record_source(self, statement, request, cursor, id, stats, true, coarse);  \
	}

TIMED_EVENTS(coarse, true)
TIMED_EVENTS(measured, false)

/*
 * A request starts within the event that is its first, which leaves out all since the engine's read of
 * its clock.  Or, if it has none, within its finish: then the engine has done nothing but profile
 * since the start.
 */
static void measured_start(struct fb_profiler_session *self, struct fb_status *status,
			   int64_t statement, int64_t request, int64_t caller_statement,
			   int64_t caller_request, struct fb_timestamp_tz timestamp)
{
	struct session *session = session_of(self);

	session->started_at = tick_clock_now();
	on_request_start(self, status, statement, request, caller_statement, caller_request,
			 timestamp);
}

/* The engine closes cursors before it: only what is surely ours is left out. */
static void measured_finish(struct fb_profiler_session *self, struct fb_status *status,
			    int64_t statement, int64_t request, struct fb_timestamp_tz timestamp,
			    struct fb_profiler_stats *stats)
{
	struct session *session = session_of(self);
	const struct request *ended = id_table_get(&session->requests, request);
	bool is_function = ended && ended->statement->is_function;

	if (session->started_at) {
		clock_own_work_is_unusual(session->stack);
		clock_exclude_from(session->started_at);
		session->started_at = 0;
	} else {
		clock_exclude_from_now(session->stack, LOG_EVENT_REQUEST);
	}
	on_request_finish(self, status, statement, request, timestamp, stats);
	if (!clock_is_inside(session->stack))
		return;
	clock_exclude(session->stack, LOG_EVENT_REQUEST);
	if (is_function)
		clock_exclude_more(session->stack, session->stack->function_cost);
}

/* clang-format off */
#define TIMED_VTABLE(mode) {                                                                       \
	EVENTS_COMMON,                                                                             \
	.get_flags = get_flags,                                                                    \
	.before_psql_line_column = aside_before,                                                   \
	.after_psql_line_column = mode##_line,                                                     \
	.before_record_source_open = aside_before,                                                 \
	.after_record_source_open = mode##_open,                                                   \
	.before_record_source_get_record = aside_before,                                           \
	.after_record_source_get_record = mode##_fetch,                                            \
	.on_request_start = mode##_start,                                                          \
	.on_request_finish = mode##_finish,                                                        \
}
/* clang-format on */

#define coarse_start  on_request_start
#define coarse_finish on_request_finish

const struct fb_profiler_session_vtable coarse_vtable = TIMED_VTABLE(coarse);
const struct fb_profiler_session_vtable measured_vtable = TIMED_VTABLE(measured);
