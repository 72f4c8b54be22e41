/*
 * What the files of a session share: session.c starts and ends it, events.c is what the engine calls
 * meanwhile, statement.c, request.c and position.c are what that needs.
 *
 * Everything here is called by the thread that executes the attachment; the engine's own locks order
 * one such thread before the next.  Of what is shared, the frame stack is the sampler's to read
 * (frame_stack.h), the counters are other processes' (counters.h), and the list of all sessions, for
 * fork, has a mutex (session.c).
 */
#ifndef FBPROF_SESSION_PRIVATE_H
#define FBPROF_SESSION_PRIVATE_H

#include "../sampler/id_table.h"
#include "clock.h"
#include "counters.h"
#include "session.h"
#include "spans.h"

#include <errno.h>

#define likely(condition)   __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

/* For what events are made of: each has its own copy, without the tests that it doesn't need. */
#define hot_inline inline __attribute__((always_inline))

/*
 * Cells of the request that was there last, so that they needn't be looked up again.  Requests are
 * known by their serial; if they aren't told apart, it is 0, and the cells are the statement's.
 */
struct cell_cache {
	uint64_t serial; /* NO_SERIAL: empty */
	uint64_t *cells;
};

#define NO_SERIAL UINT64_MAX

struct line {
	uint64_t key;	   /* line << 32 | column; NO_LINE: the free slot of the hash table */
	struct line *next; /* the line that came after it the last time */
	struct cell_cache cache;
	uint32_t cell;
};

#define NO_LINE UINT64_MAX

struct record_source {
	struct cell_cache opens, fetches;
	uint32_t cell;	/* the first one, for opens; 0: unknown */
	uint32_t fetch; /* enum log_event: what a fetch costs */
};

struct cursor {
	struct record_source *sources; /* by id */
	uint32_t count;
};

struct statement {
	int64_t id;
	uint32_t index; /* from 1 */
	bool is_function;
	uint32_t cells;	    /* how many are in use */
	struct line *lines; /* open addressing, a power of two */
	uint32_t line_room, line_count;
	struct line *last_line;
	struct cursor *cursors; /* by cursor id */
	uint32_t cursor_count;
	struct counters counters; /* unless requests are told apart */
};

struct request {
	int64_t id;
	struct statement *statement;
	struct counters *counters;
	int64_t caller_id; /* 0: none */
	int64_t jumped;	   /* coarse mode: the clock's last move when a line ended; see clock.h */
	struct request *above; /* while its frame is about to be pushed: the one to push next */
	uint32_t frame;	       /* where on the stack it is, or was */
	bool was_on_stack;
	uint64_t serial; /* 0: not told apart */
	struct counters own_counters;
	struct request *next_free;
};

struct session {
	struct fb_profiler_session interface;
	struct request *current; /* whose frames are topmost; &no_request: nobody's */
	struct frame_stack *stack;
	struct request **owner; /* of each frame on the stack */

	struct id_table statements, requests; /* by id */
	struct request *free_requests;
	uint32_t last_statement, last_text;
	uint32_t lines_left;  /* by the outermost request, see FRAME_CELL_BETWEEN */
	uint32_t group_cells; /* of a line; see LOG_GROUP_CELLS */
	struct spans spans;   /* not in sampled mode */
	int64_t started_at; /* measured mode: the last request, if nothing has come since; else 0 */
	uint64_t cpu_seen;  /* of the stack's cpu_time */
	uint64_t last_serial;
	struct options options;
	uint64_t ticks_frequency;
	int64_t id;
	uint64_t attachment; /* tells it from others of the process */

	struct log_stream stream;
	struct log_block *totals_block;
	struct frame_stack_source source;
	struct sampler_target target;
	bool recording; /* the sampler has it, the log is acquired */

	struct session *next, **link; /* all sessions of the process */
};

/* No request has this id, so an event never finds it current. */
extern struct request no_request;

static inline struct session *session_of(struct fb_profiler_session *interface)
{
	return (struct session *)interface;
}

/*
 * events.c, events_timed.c: the methods of a session that records, one table a mode, and of one that
 * has stepped aside.
 */
extern const struct fb_profiler_session_vtable sampled_vtable, coarse_vtable, measured_vtable,
	aside_vtable;

void on_define_statement(struct fb_profiler_session *interface, struct fb_status *status,
			 int64_t statement_id, int64_t parent_statement_id, const char *type,
			 const char *package_name, const char *routine_name, const char *sql_text);
void on_define_statement2(struct fb_profiler_session *interface, struct fb_status *status,
			  int64_t statement_id, int64_t parent_statement_id, const char *type,
			  const char *schema_name, const char *package_name,
			  const char *routine_name, const char *sql_text);
void on_define_cursor(struct fb_profiler_session *interface, int64_t statement_id,
		      unsigned cursor_id, const char *name, unsigned line, unsigned column);
void on_define_record_source(struct fb_profiler_session *interface, int64_t statement_id,
			     unsigned cursor_id, unsigned record_source_id, unsigned level,
			     const char *access_path, unsigned parent_record_source_id);
void on_request_start(struct fb_profiler_session *interface, struct fb_status *status,
		      int64_t statement_id, int64_t request_id, int64_t caller_statement_id,
		      int64_t caller_request_id, struct fb_timestamp_tz timestamp);
void on_request_finish(struct fb_profiler_session *interface, struct fb_status *status,
		       int64_t statement_id, int64_t request_id, struct fb_timestamp_tz timestamp,
		       struct fb_profiler_stats *stats);
int64_t session_get_id(struct fb_profiler_session *interface);

/* What all tables have in common, and all but the last. */
#define ENDS_COMMON                                                         \
	.version = FB_PROFILER_SESSION_VERSION, .dispose = session_dispose, \
	.get_id = session_get_id, .cancel = session_cancel, .finish = session_finish

#define EVENTS_COMMON                                                                            \
	ENDS_COMMON, .define_statement = on_define_statement, .define_cursor = on_define_cursor, \
		     .define_record_source = on_define_record_source,                            \
		     .define_statement2 = on_define_statement2

/* An event that nobody wants. */
void aside_before(struct fb_profiler_session *self, int64_t statement_id, int64_t request_id,
		  unsigned first, unsigned second);

/* session.c: profiling ends, the query goes on. */
void session_step_aside(struct session *session);
/* The methods that end it. */
void session_cancel(struct fb_profiler_session *interface, struct fb_status *status);
void session_finish(struct fb_profiler_session *interface, struct fb_status *status,
		    struct fb_timestamp_tz timestamp);
void session_dispose(struct fb_profiler_session *interface);

/* session.c: times in ns. */
int64_t ns_since_1970(struct fb_timestamp_tz timestamp);
int64_t ns_now(clockid_t clock);

/* ---- statement.c ---- */

/* These return false or NULL if recording has stopped or memory is out: the session has to step aside. */
bool statement_define(struct session *session, int64_t id, int64_t parent_id, const char *type,
		      const char *schema, const char *package, const char *routine,
		      const char *sql);
bool statement_define_cursor(struct session *session, int64_t statement_id, unsigned cursor_id,
			     const char *name, unsigned line, unsigned column);
bool statement_define_record_source(struct session *session, int64_t statement_id,
				    unsigned cursor_id, unsigned id, unsigned level,
				    const char *access_path, unsigned parent_id);
struct statement *statement_find(struct session *session, int64_t id);
void statement_free(struct statement *statement);

/* The line with this key, given a cell if it is new.  NULL: the session has stepped aside. */
struct line *line_search(struct session *session, struct statement *statement, uint64_t key);

/* The line that was executed after the last one before is the one that comes now, nearly always. */
static hot_inline struct line *line_find(struct session *session, struct statement *statement,
					 unsigned line_number, unsigned column)
{
	uint64_t key = (uint64_t)line_number << 32 | column;
	struct line *line = statement->last_line->next;

	if (unlikely(line->key != key))
		line = line_search(session, statement, key);
	return line;
}

/* NULL if it was not defined. */
static hot_inline struct record_source *record_source_find(const struct statement *statement,
							   unsigned cursor_id, unsigned id)
{
	const struct cursor *cursor = &statement->cursors[cursor_id];

	if (unlikely(cursor_id >= statement->cursor_count || id >= cursor->count ||
		     !cursor->sources[id].cell))
		return NULL;
	return &cursor->sources[id];
}

/* ---- request.c ---- */

/* The request with this id, begun if it is new.  NULL: recording has stopped or memory is out. */
struct request *request_start(struct session *session, int64_t statement_id, int64_t id,
			      int64_t caller_statement_id, int64_t caller_id, int64_t start_time);

/* It has finished, at `time` in ns since 1970, and took `elapsed` ns by the engine's clock. */
void request_finish(struct session *session, struct request *request, int64_t time,
		    int64_t elapsed);

/* Only at the session's end: what has not finished stays in the log as it is. */
void request_free(struct request *request);

/*
 * Finds the cells from `cell` on, which are neighbours within a group, and makes them if they are new.
 * NULL: the session has stepped aside.
 */
uint64_t *request_find_cells(struct session *session, struct request *request,
			     struct cell_cache *cache, uint32_t cell);

static hot_inline uint64_t *request_cells(struct session *session, struct request *request,
					  struct cell_cache *cache, uint32_t cell)
{
	if (likely(cache->serial == request->serial))
		return cache->cells;
	return request_find_cells(session, request, cache, cell);
}

/* ---- position.c ---- */

/* Makes a request current: its frames are topmost afterwards.  NULL: the session has stepped aside. */
struct request *position_enter(struct session *session, int64_t statement_id, int64_t request_id);

/* The thread comes back to an attachment that was idle. */
void position_resume(struct session *session);

/* Pops down to and including this frame, which is not topmost as it should be. */
void position_pop_missing(struct session *session, const struct request *request, uint64_t frame);

/* After fork, in the child: its only thread has another id. */
void position_forget_thread(void);

/* The request has finished: its frames go, and what is above them. */
void position_leave(struct session *session, struct request *request);

/* The frame of a request in its line `cell`. */
static inline uint64_t request_frame(const struct request *request, uint32_t cell)
{
	return frame_make(FRAME_REQUEST, request->statement->index, cell);
}

static hot_inline void push(struct session *session, struct request *request, uint64_t frame)
{
	uint32_t depth = frame_stack_depth(session->stack);

	if (unlikely(depth == FRAME_STACK_ROOM))
		return;
	session->owner[depth] = request;
	if (unlikely(frame_stack_push(session->stack, frame)))
		position_resume(session);
}

static hot_inline struct request *current(struct session *session, int64_t statement_id,
					  int64_t request_id)
{
	struct request *request = session->current;

	if (unlikely(request->id != request_id))
		request = position_enter(session, statement_id, request_id);
	return request;
}

#endif
