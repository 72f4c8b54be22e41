/*
 * The engine's events: the methods of a session, in sampled mode; what other modes have of their own
 * is in events_timed.c.
 *
 * The hot path is an event of the current request at a line or record source that was seen before.
 * It calls nothing, and looks things up by position: the line that followed the last one is the one
 * that followed it before; record sources are found by cursor and number.
 *
 * If recording has to stop, or the process forks, the session's vtable is replaced by one that does
 * nothing: there is no flag to test in each event.
 */
#include "session_private.h"

static hot_inline void count(struct session *session, struct request *request,
			     struct cell_cache *cache, uint32_t cell)
{
	uint64_t *cells = request_cells(session, request, cache, cell);

	if (likely(cells))
		add_to_cell(cells, 1);
}

/* ---- Lines ---- */

/* Something is above the request's frame, which a line may not leave there, or the thread is back. */
static __attribute__((noinline)) void set_line_closer(struct session *session,
						      struct request *request, uint64_t frame)
{
	struct frame_stack *stack = session->stack;

	if (request->frame == FRAME_STACK_ROOM)
		return; /* too deep to be shown */
	frame_stack_set(stack, request->frame, frame);
	if (frame_stack_depth(stack) != request->frame + 1)
		frame_stack_cut(stack, request->frame + 1);
	if (frame_stack_top(stack) & FRAME_TOP_IDLE) {
		frame_stack_set_idle(stack, false);
		position_resume(session);
	}
}

static hot_inline void set_line(struct session *session, struct request *request, uint32_t cell)
{
	uint64_t top = frame_stack_top(session->stack), frame = request_frame(request, cell);

	if (likely((top & (FRAME_TOP_DEPTH | FRAME_TOP_IDLE)) == request->frame + 1))
		frame_stack_set(session->stack, request->frame, frame);
	else
		set_line_closer(session, request, frame);
}

static void before_psql_line_column(struct fb_profiler_session *interface, int64_t statement_id,
				    int64_t request_id, unsigned line_number, unsigned column)
{
	struct session *session = session_of(interface);
	struct request *request = current(session, statement_id, request_id);
	struct line *line;

	if (unlikely(!request))
		return;
	line = line_find(session, request->statement, line_number, column);
	if (unlikely(!line))
		return;
	request->statement->last_line = line;
	set_line(session, request, line->cell);
}

/*
 * The next line comes at once, or the request is left.  If it is the outermost one, nothing else tells
 * that the call has ended, so the frame says that it is between lines.
 */
static void after_psql_line_column(struct fb_profiler_session *interface, int64_t statement_id,
				   int64_t request_id, unsigned line_number, unsigned column,
				   struct fb_profiler_stats *stats)
{
	struct session *session = session_of(interface);
	struct request *request = current(session, statement_id, request_id);
	struct line *line;

	(void)stats;
	if (unlikely(!request))
		return;
	line = request->statement->last_line;
	if (unlikely(line->key != ((uint64_t)line_number << 32 | column))) {
		line = line_search(session, request->statement,
				   (uint64_t)line_number << 32 | column);
		if (!line)
			return;
		request->statement->last_line = line;
	}
	if (request->frame + 1 == session->stack->bare_depth)
		set_line(session, request,
			 FRAME_CELL_BETWEEN + session->lines_left++ % FRAME_CELL_BETWEEN_COUNT);
	frame_stack_add_cost(session->stack, session->stack->event_cost[LOG_EVENT_LINE]);
	count(session, request, &line->cache, line->cell);
}

/* ---- Record sources ---- */

static hot_inline void before_record_source(struct fb_profiler_session *interface,
					    int64_t statement_id, int64_t request_id,
					    unsigned cursor_id, unsigned id, bool fetch)
{
	struct session *session = session_of(interface);
	struct request *request = current(session, statement_id, request_id);
	struct record_source *source;

	if (unlikely(!request))
		return;
	source = record_source_find(request->statement, cursor_id, id);
	if (likely(source))
		push(session, request,
		     frame_make(FRAME_RECORD_SOURCE, request->statement->index,
				source->cell + fetch));
}

static hot_inline void after_record_source(struct fb_profiler_session *interface,
					   int64_t statement_id, int64_t request_id,
					   unsigned cursor_id, unsigned id, bool fetch)
{
	struct session *session = session_of(interface);
	struct request *request = current(session, statement_id, request_id);
	struct record_source *source;
	uint32_t depth;
	uint64_t frame;

	if (unlikely(!request))
		return;
	source = record_source_find(request->statement, cursor_id, id);
	if (unlikely(!source))
		return;
	frame = frame_make(FRAME_RECORD_SOURCE, request->statement->index, source->cell + fetch);
	depth = frame_stack_depth(session->stack);
	if (likely(depth && frame_stack_at(session->stack, depth - 1) == frame))
		frame_stack_cut(session->stack, depth - 1);
	else
		position_pop_missing(session, request, frame);
	if (unlikely(frame_stack_is_bare(session->stack)))
		clock_expect_end();
	frame_stack_add_cost(session->stack,
			     session->stack->event_cost[fetch ? source->fetch : LOG_EVENT_OPEN]);
	count(session, request, fetch ? &source->fetches : &source->opens, source->cell + fetch);
}

static void before_record_source_open(struct fb_profiler_session *interface, int64_t statement_id,
				      int64_t request_id, unsigned cursor_id, unsigned id)
{
	before_record_source(interface, statement_id, request_id, cursor_id, id, false);
}

static void after_record_source_open(struct fb_profiler_session *interface, int64_t statement_id,
				     int64_t request_id, unsigned cursor_id, unsigned id,
				     struct fb_profiler_stats *stats)
{
	(void)stats;
	after_record_source(interface, statement_id, request_id, cursor_id, id, false);
}

static void before_record_source_get_record(struct fb_profiler_session *interface,
					    int64_t statement_id, int64_t request_id,
					    unsigned cursor_id, unsigned id)
{
	before_record_source(interface, statement_id, request_id, cursor_id, id, true);
}

static void after_record_source_get_record(struct fb_profiler_session *interface,
					   int64_t statement_id, int64_t request_id,
					   unsigned cursor_id, unsigned id,
					   struct fb_profiler_stats *stats)
{
	(void)stats;
	after_record_source(interface, statement_id, request_id, cursor_id, id, true);
}

/* ---- Requests ---- */

static int64_t ns_of_ticks(const struct session *session, uint64_t ticks)
{
	if (likely(session->ticks_frequency == 1000000000))
		return (int64_t)ticks;
	return (int64_t)((unsigned __int128)ticks * 1000000000 / session->ticks_frequency);
}

void on_request_start(struct fb_profiler_session *interface, struct fb_status *status,
		      int64_t statement_id, int64_t request_id, int64_t caller_statement_id,
		      int64_t caller_request_id, struct fb_timestamp_tz timestamp)
{
	struct session *session = session_of(interface);
	struct frame_stack *stack = session->stack;
	const struct request *request;
	int error = errno;

	(void)status;
	clock_settle(stack);
	request = request_start(session, statement_id, request_id, caller_statement_id,
				caller_request_id, ns_since_1970(timestamp));
	if (request)
		frame_stack_add_cost(stack, stack->event_cost[LOG_EVENT_REQUEST] +
						    (request->statement->is_function ?
							     stack->function_cost :
							     0));
	else
		session_step_aside(session);
	errno = error;
}

void on_request_finish(struct fb_profiler_session *interface, struct fb_status *status,
		       int64_t statement_id, int64_t request_id, struct fb_timestamp_tz timestamp,
		       struct fb_profiler_stats *stats)
{
	struct session *session = session_of(interface);
	struct request *request = id_table_get(&session->requests, request_id);
	int error = errno;

	(void)status;
	(void)statement_id;
	if (request)
		request_finish(session, request, ns_since_1970(timestamp),
			       ns_of_ticks(session, stats->vtable->get_elapsed_ticks(stats)));
	errno = error;
}

/* ---- Definitions ---- */

void on_define_statement2(struct fb_profiler_session *interface, struct fb_status *status,
			  int64_t statement_id, int64_t parent_statement_id, const char *type,
			  const char *schema_name, const char *package_name,
			  const char *routine_name, const char *sql_text)
{
	struct session *session = session_of(interface);
	int error = errno;

	(void)status;
	if (!statement_define(session, statement_id, parent_statement_id, type, schema_name,
			      package_name, routine_name, sql_text))
		session_step_aside(session);
	errno = error;
}

void on_define_statement(struct fb_profiler_session *interface, struct fb_status *status,
			 int64_t statement_id, int64_t parent_statement_id, const char *type,
			 const char *package_name, const char *routine_name, const char *sql_text)
{
	on_define_statement2(interface, status, statement_id, parent_statement_id, type, NULL,
			     package_name, routine_name, sql_text);
}

void on_define_cursor(struct fb_profiler_session *interface, int64_t statement_id,
		      unsigned cursor_id, const char *name, unsigned line, unsigned column)
{
	struct session *session = session_of(interface);
	int error = errno;

	if (!statement_define_cursor(session, statement_id, cursor_id, name, line, column))
		session_step_aside(session);
	errno = error;
}

void on_define_record_source(struct fb_profiler_session *interface, int64_t statement_id,
			     unsigned cursor_id, unsigned record_source_id, unsigned level,
			     const char *access_path, unsigned parent_record_source_id)
{
	struct session *session = session_of(interface);
	int error = errno;

	if (!statement_define_record_source(session, statement_id, cursor_id, record_source_id,
					    level, access_path, parent_record_source_id))
		session_step_aside(session);
	errno = error;
}

/* ---- The methods ---- */

int64_t session_get_id(struct fb_profiler_session *interface)
{
	return session_of(interface)->id;
}

static unsigned get_flags(struct fb_profiler_session *interface)
{
	(void)interface;
	return FB_PROFILER_BEFORE_EVENTS | FB_PROFILER_AFTER_EVENTS;
}

const struct fb_profiler_session_vtable sampled_vtable = {
	EVENTS_COMMON,
	.get_flags = get_flags,
	.on_request_start = on_request_start,
	.on_request_finish = on_request_finish,
	.before_psql_line_column = before_psql_line_column,
	.after_psql_line_column = after_psql_line_column,
	.before_record_source_open = before_record_source_open,
	.after_record_source_open = after_record_source_open,
	.before_record_source_get_record = before_record_source_get_record,
	.after_record_source_get_record = after_record_source_get_record,
};

/* ---- Of a session that has stepped aside ---- */

static void aside_define_statement(struct fb_profiler_session *self, struct fb_status *status,
				   int64_t statement_id, int64_t parent_statement_id,
				   const char *type, const char *package_name,
				   const char *routine_name, const char *sql_text)
{
	(void)self, (void)status, (void)statement_id, (void)parent_statement_id, (void)type;
	(void)package_name, (void)routine_name, (void)sql_text;
}

static void aside_define_statement2(struct fb_profiler_session *self, struct fb_status *status,
				    int64_t statement_id, int64_t parent_statement_id,
				    const char *type, const char *schema_name,
				    const char *package_name, const char *routine_name,
				    const char *sql_text)
{
	(void)self, (void)status, (void)statement_id, (void)parent_statement_id, (void)type;
	(void)schema_name, (void)package_name, (void)routine_name, (void)sql_text;
}

static void aside_define_cursor(struct fb_profiler_session *self, int64_t statement_id,
				unsigned cursor_id, const char *name, unsigned line,
				unsigned column)
{
	(void)self, (void)statement_id, (void)cursor_id, (void)name, (void)line, (void)column;
}

static void aside_define_record_source(struct fb_profiler_session *self, int64_t statement_id,
				       unsigned cursor_id, unsigned record_source_id,
				       unsigned level, const char *access_path,
				       unsigned parent_record_source_id)
{
	(void)self, (void)statement_id, (void)cursor_id, (void)record_source_id, (void)level;
	(void)access_path, (void)parent_record_source_id;
}

static void aside_request_start(struct fb_profiler_session *self, struct fb_status *status,
				int64_t statement_id, int64_t request_id,
				int64_t caller_statement_id, int64_t caller_request_id,
				struct fb_timestamp_tz timestamp)
{
	(void)self, (void)status, (void)statement_id, (void)request_id, (void)caller_statement_id;
	(void)caller_request_id, (void)timestamp;
}

static void aside_request_finish(struct fb_profiler_session *self, struct fb_status *status,
				 int64_t statement_id, int64_t request_id,
				 struct fb_timestamp_tz timestamp, struct fb_profiler_stats *stats)
{
	(void)self, (void)status, (void)statement_id, (void)request_id, (void)timestamp,
		(void)stats;
}

/* Lines and record sources: the same five or four numbers. */
void aside_before(struct fb_profiler_session *self, int64_t statement_id, int64_t request_id,
		  unsigned first, unsigned second)
{
	(void)self, (void)statement_id, (void)request_id, (void)first, (void)second;
}

static void aside_after(struct fb_profiler_session *self, int64_t statement_id, int64_t request_id,
			unsigned first, unsigned second, struct fb_profiler_stats *stats)
{
	(void)self, (void)statement_id, (void)request_id, (void)first, (void)second, (void)stats;
}

const struct fb_profiler_session_vtable aside_vtable = {
	ENDS_COMMON,
	.get_flags = get_flags,
	.define_statement = aside_define_statement,
	.define_cursor = aside_define_cursor,
	.define_record_source = aside_define_record_source,
	.on_request_start = aside_request_start,
	.on_request_finish = aside_request_finish,
	.before_psql_line_column = aside_before,
	.after_psql_line_column = aside_after,
	.before_record_source_open = aside_before,
	.after_record_source_open = aside_after,
	.before_record_source_get_record = aside_before,
	.after_record_source_get_record = aside_after,
	.define_statement2 = aside_define_statement2,
};
