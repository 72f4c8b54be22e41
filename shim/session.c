/*
 * The session: the engine's events become counters in the log and frames on the frame stack.
 *
 * Everything is called by the thread that executes the attachment; the engine's own locks order one
 * such thread before the next.  Of what is shared, the frame stack is the sampler's to read
 * (frame_stack.h), the counters are other processes' (single relaxed stores), and the list of all
 * sessions, for fork, has a mutex.
 *
 * The hot path is an event of the current request at a line or record source that was seen before.
 * It calls nothing, and looks things up by position: the line that followed the last one is the one
 * that followed it before; record sources are found by cursor and number.
 *
 * If recording has to stop, or the process forks, the session's vtable is replaced by one that does
 * nothing: there is no flag to test in each event.
 */
#define _GNU_SOURCE
#include "session.h"
#include "clock.h"
#include "notice.h"
#include "table.h"
#include "../output/log_writer.h"
#include "../output/varint.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

/* Longer names don't exist in Firebird (63 characters of at most 4 bytes); a plan's text may be long. */
#define NAME_BYTES 255u

/* More cells than a frame can name are not expected of a statement; what is beyond shares the last. */
#define CELL_MAX FRAME_CELL_BETWEEN

/* Counters of a statement, or of one of its requests: a block of the log for each 64 cells. */
struct counters {
	struct log_block **blocks;
	uint32_t count;
	struct log_block *first[1]; /* what `blocks` points to while one is enough */
};

struct line {
	uint64_t key;  /* line << 32 | column */
	uint32_t cell; /* 0: the free slot of the hash table */
	uint32_t next; /* the slot of the line that came after it the last time */
};

struct cursor {
	uint32_t *cells; /* by record source id; the cell that counts opens, 0: unknown */
	uint32_t count;
};

struct statement {
	int64_t id;
	uint32_t index; /* from 1 */
	uint32_t cells; /* how many are in use */
	struct line *lines; /* open addressing, a power of two */
	uint32_t line_room, line_count, last_line;
	struct cursor *cursors; /* by cursor id */
	uint32_t cursor_count;
	struct counters counters; /* unless requests are told apart */
};

struct request {
	int64_t id;
	struct statement *statement;
	struct counters *counters;
	int64_t caller_id;   /* 0: none */
	struct request *above; /* while its frame is about to be pushed: the one to push next */
	uint32_t frame;	     /* where on the stack it is, or was */
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

	struct table statements, requests; /* by id */
	struct request *free_requests;
	uint32_t last_statement, last_text;
	uint32_t lines_left; /* by the outermost request, see FRAME_CELL_BETWEEN */
	uint64_t last_serial;
	struct options options;
	uint64_t ticks_frequency;
	int64_t id;

	struct log_stream stream;
	struct log_block *totals_block;
	struct frame_stack_source source;
	struct sampler_target target;
	bool recording; /* the sampler has it, the log is acquired */
	bool forked;	/* the log and the sampler are another process's */

	struct session *next, **link; /* all sessions of the process */
};

/* No request has this id, so an event never finds it current. */
static struct request no_request = { .id = INT64_MIN };

static pthread_mutex_t sessions_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct session *sessions;

static const struct fb_profiler_session_vtable recording_vtable, aside_vtable;

static struct session *session_of(struct fb_profiler_session *interface)
{
	return (struct session *)interface;
}

/* Profiling ends, the query goes on. */
static void step_aside(struct session *session)
{
	session->interface.vtable = &aside_vtable;
	frame_stack_cut(session->stack, 0);
	frame_stack_set_idle(session->stack, true);
	session->current = &no_request;
}

/* ---- Time ---- */

#define DAYS_FROM_1858_TO_1970 40587

static int64_t ns_since_1970(struct fb_timestamp_tz timestamp)
{
	int64_t seconds = ((int64_t)timestamp.date - DAYS_FROM_1858_TO_1970) * 86400;

	return seconds * 1000000000 + (int64_t)timestamp.time * 100000;
}

static int64_t ns_of_ticks(const struct session *session, uint64_t ticks)
{
	if (likely(session->ticks_frequency == 1000000000))
		return (int64_t)ticks;
	return (int64_t)((unsigned __int128)ticks * 1000000000 / session->ticks_frequency);
}

static int64_t ns_now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* ---- Records ---- */

static uint8_t *put_i64(uint8_t *to, int64_t value)
{
	memcpy(to, &value, sizeof(value));
	return to + sizeof(value);
}

static uint8_t *put_string(uint8_t *to, const char *text, size_t limit)
{
	size_t size = strnlen(text, limit);

	to = varint_put(to, size);
	memcpy(to, text, size);
	return to + size;
}

static uint8_t *put_nullable(uint8_t *to, const char *text, size_t limit)
{
	size_t size;

	if (!text)
		return varint_put(to, 0);
	size = strnlen(text, limit);
	to = varint_put(to, size + 1);
	memcpy(to, text, size);
	return to + size;
}

/* Writes a text and returns its number; 0 if there is none or recording has stopped. */
static uint32_t put_text(struct session *session, const char *text)
{
	if (!log_append_text(&session->stream, session->last_text + 1, text, strlen(text)))
		return 0;
	return ++session->last_text;
}

/* FNV-1a. */
static uint64_t fingerprint(const char *text)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (; *text; text++)
		hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
	return hash;
}

/* Tells statements apart without showing them. */
static uint32_t put_fingerprint(struct session *session, const char *text)
{
	char hex[32];

	snprintf(hex, sizeof(hex), "hash:%016llx", (unsigned long long)fingerprint(text));
	return put_text(session, hex);
}

/* ---- Counters ---- */

static void counters_init(struct counters *counters)
{
	counters->blocks = counters->first;
	counters->count = 0;
}

static uint64_t *cell_at(const struct counters *counters, uint32_t cell)
{
	return (uint64_t *)counters->blocks[cell / LOG_BLOCK_CELLS]->payload + cell % LOG_BLOCK_CELLS;
}

static void counters_release(struct session *session, struct counters *counters, bool free_blocks)
{
	for (uint32_t i = 0; free_blocks && i < counters->count; i++)
		log_block_free(session->stream.log, counters->blocks[i]);
	if (counters->blocks != counters->first)
		free(counters->blocks);
	counters_init(counters);
}

/* Adds blocks until there is one for `cell`.  Each repeats what the first one says. */
static bool counters_grow(struct session *session, struct counters *counters, const struct log_block *head,
			  uint32_t cell)
{
	while (counters->count <= cell / LOG_BLOCK_CELLS) {
		struct log_block **blocks, *block;

		if (counters->count) {
			size_t size = (counters->count + 1) * sizeof(struct log_block *);

			blocks = realloc(counters->blocks == counters->first ? NULL : counters->blocks, size);
			if (!blocks)
				return false;
			if (counters->blocks == counters->first)
				blocks[0] = counters->first[0];
			counters->blocks = blocks;
		}
		block = log_block_new(session->stream.log);
		if (!block)
			return false;
		block->session = session->stream.session;
		block->statement = head->statement;
		block->serial = head->serial;
		block->request_id = head->request_id;
		block->caller_statement_id = head->caller_statement_id;
		block->caller_request_id = head->caller_request_id;
		block->start_time = head->start_time;
		block->first = counters->count * LOG_BLOCK_CELLS;
		log_block_publish(block, LOG_BLOCK_COUNTERS);
		counters->blocks[counters->count++] = block;
	}
	return true;
}

/* This thread is the cell's only writer, so reading it back needs no order. */
static void add_to_cell(uint64_t *cell, uint64_t value)
{
	atomic_store_explicit((_Atomic uint64_t *)cell, *cell + value, memory_order_relaxed);
}

static __attribute__((noinline, cold)) void count_in_new_block(struct session *session, struct request *request,
							       uint32_t cell)
{
	int error = errno;

	if (counters_grow(session, request->counters, request->counters->blocks[0], cell))
		add_to_cell(cell_at(request->counters, cell), 1);
	else
		step_aside(session);
	errno = error;
}

static inline void count(struct session *session, struct request *request, uint32_t cell)
{
	if (likely(cell / LOG_BLOCK_CELLS < request->counters->count))
		add_to_cell(cell_at(request->counters, cell), 1);
	else
		count_in_new_block(session, request, cell);
}

/* ---- Statements ---- */

static uint32_t new_cells(struct statement *statement, uint32_t number)
{
	uint32_t cell = statement->cells;

	if (cell + number > CELL_MAX)
		return CELL_MAX - 1;
	statement->cells += number;
	return cell;
}

static struct statement *statement_new(struct session *session, int64_t id)
{
	struct statement *statement = calloc(1, sizeof(*statement));

	if (!statement)
		return NULL;
	statement->id = id;
	statement->index = session->last_statement + 1;
	statement->cells = LOG_CELL_FIRST_FREE;
	statement->line_room = 4;
	statement->lines = calloc(statement->line_room, sizeof(*statement->lines));
	counters_init(&statement->counters);
	if (!statement->lines || statement->index > FRAME_STATEMENT_MAX ||
	    !table_put(&session->statements, id, statement)) {
		free(statement->lines);
		free(statement);
		return NULL;
	}
	session->last_statement++;
	return statement;
}

static void statement_free(struct session *session, struct statement *statement)
{
	counters_release(session, &statement->counters, false);
	for (uint32_t i = 0; i < statement->cursor_count; i++)
		free(statement->cursors[i].cells);
	free(statement->cursors);
	free(statement->lines);
	free(statement);
}

static bool define_statement(struct session *session, int64_t id, int64_t parent_id, const char *type,
			     const char *schema, const char *package, const char *routine, const char *sql)
{
	struct statement *statement = table_get(&session->statements, id);
	uint32_t text = 0;
	uint8_t *place;

	if (statement)
		return true;
	statement = statement_new(session, id);
	if (!statement)
		return false;
	if (sql && *sql && session->options.sql_text == SQL_TEXT_FULL)
		text = put_text(session, sql);
	else if (sql && *sql && session->options.sql_text == SQL_TEXT_HASH)
		text = put_fingerprint(session, sql);
	place = log_record_begin(&session->stream, LOG_REC_STATEMENT, 4 * VARINT_MAX_SIZE + 4 * (NAME_BYTES + VARINT_MAX_SIZE));
	if (!place)
		return false;
	place = varint_put(place, statement->index);
	place = varint_put(place, (uint64_t)id);
	place = varint_put(place, (uint64_t)parent_id);
	place = put_string(place, type ? type : "", NAME_BYTES);
	place = put_nullable(place, schema, NAME_BYTES);
	place = put_nullable(place, package, NAME_BYTES);
	place = put_nullable(place, routine, NAME_BYTES);
	log_record_end(&session->stream, varint_put(place, text));
	return true;
}

/* An event may speak of a statement that was never defined, if the definition failed. */
static struct statement *statement_find(struct session *session, int64_t id)
{
	struct statement *statement = table_get(&session->statements, id);

	if (!statement && define_statement(session, id, 0, "", NULL, NULL, NULL, NULL))
		statement = table_get(&session->statements, id);
	return statement;
}

/* ---- Lines ---- */

static uint32_t line_slot(const struct line *lines, uint32_t room, uint64_t key)
{
	uint32_t slot = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32) & (room - 1);

	while (lines[slot].cell && lines[slot].key != key)
		slot = (slot + 1) & (room - 1);
	return slot;
}

static bool lines_grow(struct statement *statement)
{
	uint32_t room = statement->line_room * 2;
	struct line *lines = calloc(room, sizeof(*lines));

	if (!lines)
		return false;
	for (uint32_t i = 0; i < statement->line_room; i++) {
		const struct line *line = &statement->lines[i];

		if (line->cell)
			lines[line_slot(lines, room, line->key)] = (struct line){ .key = line->key, .cell = line->cell };
	}
	free(statement->lines);
	statement->lines = lines;
	statement->line_room = room;
	statement->last_line = 0;
	return true;
}

/* The first sight of a line: gives it a cell and says so in the log. */
static struct line *line_define(struct session *session, struct statement *statement, uint64_t key)
{
	struct line *line;
	uint8_t *place;

	if (statement->line_count + 1 > statement->line_room / 4 * 3 && !lines_grow(statement))
		return NULL;
	place = log_record_begin(&session->stream, LOG_REC_LINE, 4 * VARINT_MAX_SIZE);
	if (!place)
		return NULL;
	line = &statement->lines[line_slot(statement->lines, statement->line_room, key)];
	line->key = key;
	line->cell = new_cells(statement, 1);
	statement->line_count++;
	place = varint_put(place, statement->index);
	place = varint_put(place, key >> 32);
	place = varint_put(place, (uint32_t)key);
	log_record_end(&session->stream, varint_put(place, line->cell));
	return line;
}

static __attribute__((noinline)) struct line *line_search(struct session *session, struct statement *statement,
							  uint64_t key)
{
	struct line *line = &statement->lines[line_slot(statement->lines, statement->line_room, key)];

	if (unlikely(!line->cell)) {
		int error = errno;

		line = line_define(session, statement, key);
		errno = error;
		if (!line) {
			step_aside(session);
			return NULL;
		}
	}
	statement->lines[statement->last_line].next = (uint32_t)(line - statement->lines);
	return line;
}

/* The line that was executed after the last one before is the one that comes now, nearly always. */
static inline struct line *line_find(struct session *session, struct statement *statement, unsigned line_number,
				     unsigned column)
{
	uint64_t key = (uint64_t)line_number << 32 | column;
	struct line *line = &statement->lines[statement->lines[statement->last_line].next];

	if (unlikely(line->key != key || !line->cell))
		line = line_search(session, statement, key);
	return line;
}

/* ---- Record sources ---- */

/* Room for index `index` in an array of zeros; doubled, so that growing is rare. */
static bool array_grow(void **array, uint32_t *count, size_t item_size, uint32_t index)
{
	uint32_t room = *count ? *count : 4;
	char *grown;

	if (index < *count)
		return true;
	if (index > CELL_MAX)
		return false;
	while (room <= index)
		room *= 2;
	grown = realloc(*array, room * item_size);
	if (!grown)
		return false;
	memset(grown + *count * item_size, 0, (room - *count) * item_size);
	*array = grown;
	*count = room;
	return true;
}

static bool define_record_source(struct session *session, int64_t statement_id, unsigned cursor_id, unsigned id,
				 unsigned level, const char *access_path, unsigned parent_id)
{
	struct statement *statement = statement_find(session, statement_id);
	struct cursor *cursor;
	uint32_t text;
	uint8_t *place;

	if (!statement ||
	    !array_grow((void **)&statement->cursors, &statement->cursor_count, sizeof(struct cursor), cursor_id))
		return false;
	cursor = &statement->cursors[cursor_id];
	if (!array_grow((void **)&cursor->cells, &cursor->count, sizeof(uint32_t), id))
		return false;
	if (cursor->cells[id])
		return true;
	cursor->cells[id] = new_cells(statement, 2);
	text = put_text(session, access_path ? access_path : "");
	place = log_record_begin(&session->stream, LOG_REC_RECORD_SOURCE, 7 * VARINT_MAX_SIZE);
	if (!place)
		return false;
	place = varint_put(place, statement->index);
	place = varint_put(place, cursor_id);
	place = varint_put(place, id);
	place = varint_put(place, parent_id);
	place = varint_put(place, level);
	place = varint_put(place, cursor->cells[id]);
	log_record_end(&session->stream, varint_put(place, text));
	return true;
}

/* The cell that counts how often the record source was opened; 0 if it was not defined. */
static inline uint32_t record_source_cell(const struct statement *statement, unsigned cursor_id, unsigned id)
{
	const struct cursor *cursor;

	if (unlikely(cursor_id >= statement->cursor_count))
		return 0;
	cursor = &statement->cursors[cursor_id];
	return likely(id < cursor->count) ? cursor->cells[id] : 0;
}

/* ---- Requests ---- */

/* `head` tells the log who it is. */
static struct request *request_new(struct session *session, int64_t id, struct statement *statement,
				   struct log_block *head)
{
	struct request *request = session->free_requests;

	if (request)
		session->free_requests = request->next_free;
	else if (!(request = malloc(sizeof(*request))))
		return NULL;
	*request = (struct request){ .id = id, .statement = statement, .caller_id = (int64_t)head->caller_request_id };
	counters_init(&request->own_counters);
	head->statement = statement->index;
	if (session->options.detailed) {
		request->counters = &request->own_counters;
		request->serial = head->serial = ++session->last_serial;
		head->request_id = (uint64_t)id;
	} else {
		request->counters = &statement->counters;
		head->caller_statement_id = head->caller_request_id = 0;
	}
	if (!counters_grow(session, request->counters, head, 0) || !table_put(&session->requests, id, request)) {
		counters_release(session, &request->own_counters, true);
		free(request);
		return NULL;
	}
	return request;
}

/* Only at the session's end: what has not finished stays in the log as it is. */
static void request_free(struct session *session, struct request *request)
{
	counters_release(session, &request->own_counters, false);
	free(request);
}

static struct request *request_start(struct session *session, int64_t statement_id, int64_t id,
				     int64_t caller_statement_id, int64_t caller_id, int64_t start_time)
{
	struct log_block head = {
		.caller_statement_id = (uint64_t)caller_statement_id,
		.caller_request_id = (uint64_t)caller_id,
		.start_time = start_time,
	};
	struct statement *statement;
	struct request *request = table_get(&session->requests, id);

	if (request)
		return request;
	statement = statement_find(session, statement_id);
	return statement ? request_new(session, id, statement, &head) : NULL;
}

/* The frame of a request in its line `cell`. */
static inline uint64_t request_frame(const struct request *request, uint32_t cell)
{
	return frame_make(FRAME_REQUEST, request->statement->index, cell);
}

static inline bool is_on_stack(const struct session *session, const struct request *request)
{
	uint32_t depth = frame_stack_depth(session->stack);

	return request->was_on_stack && request->frame < depth && session->owner[request->frame] == request &&
	       frame_kind(frame_stack_at(session->stack, request->frame)) == FRAME_REQUEST;
}

/* The kernel's id of this thread, once it is known: asking costs a system call. */
static _Thread_local pid_t thread_id __attribute__((tls_model("initial-exec")));

/* The thread comes back to an attachment that was idle. */
static __attribute__((noinline)) void resume(struct session *session)
{
	struct frame_stack *stack = session->stack;

	if (!thread_id)
		thread_id = gettid();
	atomic_store_explicit(&stack->thread_id, thread_id, memory_order_relaxed);
	atomic_store_explicit(&stack->thread_frame, (uintptr_t)__builtin_frame_address(0), memory_order_relaxed);
	if (clock_is_ours)
		clock_enter(stack);
	sampler_wake();
}

static inline void push(struct session *session, struct request *request, uint64_t frame)
{
	uint32_t depth = frame_stack_depth(session->stack);

	if (unlikely(depth == FRAME_STACK_ROOM))
		return;
	session->owner[depth] = request;
	if (unlikely(frame_stack_push(session->stack, frame)))
		resume(session);
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

	while (caller && !is_on_stack(session, caller)) {
		caller->above = above;
		above = caller;
		caller = caller->caller_id ? table_get(&session->requests, caller->caller_id) : NULL;
		if (caller == request)
			break; /* nonsense, but no reason to hang */
	}
	if (caller)
		drop_above(session, caller);
	else if (frame_stack_depth(session->stack) && is_new_call(session))
		frame_stack_cut(session->stack, 0);
	for (; above; above = above->above)
		push_request(session, above);
}

/* Makes a request current: its frames are topmost afterwards.  NULL: the session steps aside. */
static __attribute__((noinline)) struct request *enter(struct session *session, int64_t statement_id,
						       int64_t request_id)
{
	int error = errno;
	struct request *request = table_get(&session->requests, request_id);

	if (!request)
		request = request_start(session, statement_id, request_id, 0, 0, ns_now(CLOCK_REALTIME));
	errno = error;
	if (!request) {
		step_aside(session);
		return NULL;
	}
	if (is_on_stack(session, request))
		drop_above(session, request);
	else
		enter_stack(session, request);
	session->current = request;
	return request;
}

static inline struct request *current(struct session *session, int64_t statement_id, int64_t request_id)
{
	struct request *request = session->current;

	session->stack->clock_reads = 0;
	if (unlikely(request->id != request_id))
		request = enter(session, statement_id, request_id);
	return request;
}

/* ---- Events ---- */

/* Frames of the request's record sources may not outlast the line; none is there as a rule. */
static inline void set_line(struct session *session, struct request *request, uint32_t cell)
{
	struct frame_stack *stack = session->stack;
	uint64_t top = frame_stack_top(stack);

	if (unlikely(request->frame == FRAME_STACK_ROOM))
		return; /* too deep to be shown */
	frame_stack_set(stack, request->frame, request_frame(request, cell));
	if (unlikely((top & FRAME_TOP_DEPTH) != request->frame + 1))
		frame_stack_cut(stack, request->frame + 1);
	if (unlikely(top & FRAME_TOP_IDLE)) {
		frame_stack_set_idle(stack, false);
		resume(session);
	}
}

static inline uint32_t between_lines(struct session *session)
{
	return FRAME_CELL_BETWEEN + (session->lines_left++ & 255);
}

static void before_psql_line_column(struct fb_profiler_session *interface, int64_t statement_id, int64_t request_id,
				    unsigned line_number, unsigned column)
{
	struct session *session = session_of(interface);
	struct request *request = current(session, statement_id, request_id);
	struct line *line;

	if (unlikely(!request))
		return;
	line = line_find(session, request->statement, line_number, column);
	if (unlikely(!line))
		return;
	request->statement->last_line = (uint32_t)(line - request->statement->lines);
	set_line(session, request, line->cell);
}

static void after_psql_line_column(struct fb_profiler_session *interface, int64_t statement_id, int64_t request_id,
				   unsigned line_number, unsigned column, struct fb_profiler_stats *stats)
{
	struct session *session = session_of(interface);
	struct request *request = current(session, statement_id, request_id);
	struct statement *statement;
	struct line *line;

	(void)stats;
	if (unlikely(!request))
		return;
	statement = request->statement;
	line = &statement->lines[statement->last_line];
	if (unlikely(line->key != ((uint64_t)line_number << 32 | column) || !line->cell)) {
		line = line_find(session, statement, line_number, column);
		if (!line)
			return;
		statement->last_line = (uint32_t)(line - statement->lines);
	}
	set_line(session, request, request->frame + 1 == session->stack->bare_depth ? between_lines(session) : 0);
	count(session, request, line->cell);
}

static inline void before_record_source(struct fb_profiler_session *interface, int64_t statement_id,
					int64_t request_id, unsigned cursor_id, unsigned id, uint32_t fetched)
{
	struct session *session = session_of(interface);
	struct request *request = current(session, statement_id, request_id);
	uint32_t cell;

	if (unlikely(!request))
		return;
	cell = record_source_cell(request->statement, cursor_id, id);
	if (likely(cell))
		push(session, request, frame_make(FRAME_RECORD_SOURCE, request->statement->index, cell + fetched));
}

/*
 * Pops down to and including the frame of this record source.  It is topmost, unless an exception
 * has left requests above it, or the session was started or paused since it was pushed.
 */
static __attribute__((noinline)) void pop_missing(struct session *session, const struct request *request, uint64_t frame)
{
	for (uint32_t i = frame_stack_depth(session->stack); i > request->frame + 1; i--) {
		if (frame_stack_at(session->stack, i - 1) == frame && session->owner[i - 1] == request) {
			frame_stack_cut(session->stack, i - 1);
			return;
		}
	}
}

static inline void after_record_source(struct fb_profiler_session *interface, int64_t statement_id,
				       int64_t request_id, unsigned cursor_id, unsigned id, uint32_t fetched)
{
	struct session *session = session_of(interface);
	struct request *request = current(session, statement_id, request_id);
	uint32_t cell, depth;
	uint64_t frame;

	if (unlikely(!request))
		return;
	cell = record_source_cell(request->statement, cursor_id, id);
	if (unlikely(!cell))
		return;
	frame = frame_make(FRAME_RECORD_SOURCE, request->statement->index, cell + fetched);
	depth = frame_stack_depth(session->stack);
	if (likely(depth && frame_stack_at(session->stack, depth - 1) == frame))
		frame_stack_cut(session->stack, depth - 1);
	else
		pop_missing(session, request, frame);
	count(session, request, cell + fetched);
}

static void before_record_source_open(struct fb_profiler_session *interface, int64_t statement_id,
				      int64_t request_id, unsigned cursor_id, unsigned id)
{
	before_record_source(interface, statement_id, request_id, cursor_id, id, 0);
}

static void after_record_source_open(struct fb_profiler_session *interface, int64_t statement_id, int64_t request_id,
				     unsigned cursor_id, unsigned id, struct fb_profiler_stats *stats)
{
	(void)stats;
	after_record_source(interface, statement_id, request_id, cursor_id, id, 0);
}

static void before_record_source_get_record(struct fb_profiler_session *interface, int64_t statement_id,
					    int64_t request_id, unsigned cursor_id, unsigned id)
{
	before_record_source(interface, statement_id, request_id, cursor_id, id, 1);
}

static void after_record_source_get_record(struct fb_profiler_session *interface, int64_t statement_id,
					   int64_t request_id, unsigned cursor_id, unsigned id,
					   struct fb_profiler_stats *stats)
{
	(void)stats;
	after_record_source(interface, statement_id, request_id, cursor_id, id, 1);
}

static void on_request_start(struct fb_profiler_session *interface, struct fb_status *status, int64_t statement_id,
			     int64_t request_id, int64_t caller_statement_id, int64_t caller_request_id,
			     struct fb_timestamp_tz timestamp)
{
	struct session *session = session_of(interface);
	int error = errno;

	(void)status;
	if (!request_start(session, statement_id, request_id, caller_statement_id, caller_request_id,
			   ns_since_1970(timestamp)))
		step_aside(session);
	errno = error;
}

/*
 * A request that has finished, in one record with its counts, instead of its blocks.  Too many of
 * them for a record stay in the blocks.
 */
static bool put_request(struct session *session, const struct request *request, int64_t finish_time,
			int64_t elapsed, bool *stays)
{
	const struct counters *counters = request->counters;
	const struct log_block *head = counters->blocks[0];
	uint32_t last = 0, cells = request->statement->cells;
	size_t size = 16 * VARINT_MAX_SIZE;
	uint8_t *place;

	if (cells > counters->count * LOG_BLOCK_CELLS)
		cells = counters->count * LOG_BLOCK_CELLS;
	for (uint32_t cell = 0; cell < cells; cell++)
		size += *cell_at(counters, cell) ? 2 * VARINT_MAX_SIZE : 0;
	*stays = size > LOG_RECORD_MAX - 16;
	if (*stays)
		return true;

	place = log_record_begin(&session->stream, LOG_REC_REQUEST, size);
	if (!place)
		return false;
	place = varint_put(place, request->serial);
	place = varint_put(place, request->statement->index);
	place = varint_put(place, head->request_id);
	place = varint_put(place, head->caller_statement_id);
	place = varint_put(place, head->caller_request_id);
	place = put_i64(place, head->start_time);
	place = varint_put(place, finish_time > head->start_time ? (uint64_t)(finish_time - head->start_time) : 0);
	place = varint_put(place, 1);
	place = varint_put(place, (uint64_t)elapsed);
	for (uint32_t cell = 0; cell < cells; cell++) {
		uint64_t value = *cell_at(counters, cell);

		if (value) {
			place = varint_put(place, cell - last);
			place = varint_put(place, value);
			last = cell;
		}
	}
	log_record_end(&session->stream, place);
	return true;
}

static void leave_stack(struct session *session, struct request *request)
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
	}
	session->current = depth ? session->owner[depth - 1] : &no_request;
}

static void on_request_finish(struct fb_profiler_session *interface, struct fb_status *status, int64_t statement_id,
			      int64_t request_id, struct fb_timestamp_tz timestamp, struct fb_profiler_stats *stats)
{
	struct session *session = session_of(interface);
	struct request *request = table_get(&session->requests, request_id);
	int error = errno;
	int64_t elapsed = ns_of_ticks(session, stats->vtable->get_elapsed_ticks(stats));

	(void)status;
	(void)statement_id;
	if (!request)
		return;
	leave_stack(session, request);
	table_remove(&session->requests, request_id);
	if (!request->was_on_stack)
		add_to_cell(cell_at(request->counters, LOG_CELL_UNSAMPLED), (uint64_t)elapsed);
	add_to_cell(cell_at(request->counters, LOG_CELL_FINISHED), 1);
	if (request->serial) {
		bool stays;

		if (put_request(session, request, ns_since_1970(timestamp), elapsed, &stays))
			counters_release(session, &request->own_counters, !stays);
		else
			step_aside(session);
	}
	request->next_free = session->free_requests;
	session->free_requests = request;
	errno = error;
}

/* ---- Definitions ---- */

static void on_define_statement2(struct fb_profiler_session *interface, struct fb_status *status,
				 int64_t statement_id, int64_t parent_statement_id, const char *type,
				 const char *schema_name, const char *package_name, const char *routine_name,
				 const char *sql_text)
{
	struct session *session = session_of(interface);
	int error = errno;

	(void)status;
	if (!define_statement(session, statement_id, parent_statement_id, type, schema_name, package_name,
			      routine_name, sql_text))
		step_aside(session);
	errno = error;
}

static void on_define_statement(struct fb_profiler_session *interface, struct fb_status *status, int64_t statement_id,
				int64_t parent_statement_id, const char *type, const char *package_name,
				const char *routine_name, const char *sql_text)
{
	on_define_statement2(interface, status, statement_id, parent_statement_id, type, NULL, package_name,
			     routine_name, sql_text);
}

static void on_define_cursor(struct fb_profiler_session *interface, int64_t statement_id, unsigned cursor_id,
			     const char *name, unsigned line, unsigned column)
{
	struct session *session = session_of(interface);
	int error = errno;
	struct statement *statement = statement_find(session, statement_id);
	uint8_t *place = NULL;

	if (statement)
		place = log_record_begin(&session->stream, LOG_REC_CURSOR, 5 * VARINT_MAX_SIZE + NAME_BYTES);
	if (place) {
		place = varint_put(place, statement->index);
		place = varint_put(place, cursor_id);
		place = put_nullable(place, name, NAME_BYTES);
		place = varint_put(place, line);
		log_record_end(&session->stream, varint_put(place, column));
	} else {
		step_aside(session);
	}
	errno = error;
}

static void on_define_record_source(struct fb_profiler_session *interface, int64_t statement_id, unsigned cursor_id,
				    unsigned record_source_id, unsigned level, const char *access_path,
				    unsigned parent_record_source_id)
{
	struct session *session = session_of(interface);
	int error = errno;

	if (!define_record_source(session, statement_id, cursor_id, record_source_id, level, access_path,
				  parent_record_source_id))
		step_aside(session);
	errno = error;
}

/* ---- Start and end ---- */

static int64_t get_id(struct fb_profiler_session *interface)
{
	return session_of(interface)->id;
}

static unsigned get_flags(struct fb_profiler_session *interface)
{
	(void)interface;
	return FB_PROFILER_BEFORE_EVENTS | FB_PROFILER_AFTER_EVENTS;
}

static void put_session_end(struct session *session, enum log_session_end how, int64_t time)
{
	uint8_t *place = log_record_begin(&session->stream, LOG_REC_SESSION_END, 8 + VARINT_MAX_SIZE);

	if (place) {
		place = varint_put(place, how);
		log_record_end(&session->stream, put_i64(place, time));
	}
}

/* Ends recording; what the log has stays there. */
static void end(struct session *session, enum log_session_end how, int64_t time)
{
	int error = errno;

	step_aside(session);
	if (session->recording) {
		session->recording = false;
		sampler_remove(&session->target);
		put_session_end(session, how, time);
		log_stream_close(&session->stream);
		log_release(session->stream.log);
	}
	errno = error;
}

static void cancel(struct fb_profiler_session *interface, struct fb_status *status)
{
	(void)status;
	end(session_of(interface), LOG_END_CANCELLED, ns_now(CLOCK_REALTIME));
}

static void finish(struct fb_profiler_session *interface, struct fb_status *status, struct fb_timestamp_tz timestamp)
{
	(void)status;
	end(session_of(interface), LOG_END_FINISHED, ns_since_1970(timestamp));
}

static void free_request(void *context, void *request)
{
	request_free(context, request);
}

static void free_statement(void *context, void *statement)
{
	statement_free(context, statement);
}

static void session_free(struct session *session)
{
	table_free(&session->requests, free_request, session);
	table_free(&session->statements, free_statement, session);
	while (session->free_requests) {
		struct request *request = session->free_requests;

		session->free_requests = request->next_free;
		free(request);
	}
	call_tree_free(session->target.tree);
	frame_stack_free(session->stack);
	free(session->owner);
	free(session);
}

static void dispose(struct fb_profiler_session *interface)
{
	struct session *session = session_of(interface);
	int error = errno;

	clock_leave(session->stack);
	end(session, LOG_END_DISPOSED, ns_now(CLOCK_REALTIME));
	pthread_mutex_lock(&sessions_mutex);
	*session->link = session->next;
	if (session->next)
		session->next->link = session->link;
	pthread_mutex_unlock(&sessions_mutex);
	session_free(session);
	errno = error;
}

static const struct fb_profiler_session_vtable recording_vtable = {
	.version = FB_PROFILER_SESSION_VERSION,
	.dispose = dispose,
	.get_id = get_id,
	.get_flags = get_flags,
	.cancel = cancel,
	.finish = finish,
	.define_statement = on_define_statement,
	.define_cursor = on_define_cursor,
	.define_record_source = on_define_record_source,
	.on_request_start = on_request_start,
	.on_request_finish = on_request_finish,
	.before_psql_line_column = before_psql_line_column,
	.after_psql_line_column = after_psql_line_column,
	.before_record_source_open = before_record_source_open,
	.after_record_source_open = after_record_source_open,
	.before_record_source_get_record = before_record_source_get_record,
	.after_record_source_get_record = after_record_source_get_record,
	.define_statement2 = on_define_statement2,
};

/* ---- A session that has stepped aside ---- */

static void aside_define_statement(struct fb_profiler_session *self, struct fb_status *status, int64_t statement_id,
				   int64_t parent_statement_id, const char *type, const char *package_name,
				   const char *routine_name, const char *sql_text)
{
	(void)self, (void)status, (void)statement_id, (void)parent_statement_id, (void)type;
	(void)package_name, (void)routine_name, (void)sql_text;
}

static void aside_define_statement2(struct fb_profiler_session *self, struct fb_status *status, int64_t statement_id,
				    int64_t parent_statement_id, const char *type, const char *schema_name,
				    const char *package_name, const char *routine_name, const char *sql_text)
{
	(void)self, (void)status, (void)statement_id, (void)parent_statement_id, (void)type;
	(void)schema_name, (void)package_name, (void)routine_name, (void)sql_text;
}

static void aside_define_cursor(struct fb_profiler_session *self, int64_t statement_id, unsigned cursor_id,
				const char *name, unsigned line, unsigned column)
{
	(void)self, (void)statement_id, (void)cursor_id, (void)name, (void)line, (void)column;
}

static void aside_define_record_source(struct fb_profiler_session *self, int64_t statement_id, unsigned cursor_id,
				       unsigned record_source_id, unsigned level, const char *access_path,
				       unsigned parent_record_source_id)
{
	(void)self, (void)statement_id, (void)cursor_id, (void)record_source_id, (void)level;
	(void)access_path, (void)parent_record_source_id;
}

static void aside_request_start(struct fb_profiler_session *self, struct fb_status *status, int64_t statement_id,
				int64_t request_id, int64_t caller_statement_id, int64_t caller_request_id,
				struct fb_timestamp_tz timestamp)
{
	(void)self, (void)status, (void)statement_id, (void)request_id, (void)caller_statement_id;
	(void)caller_request_id, (void)timestamp;
}

static void aside_request_finish(struct fb_profiler_session *self, struct fb_status *status, int64_t statement_id,
				 int64_t request_id, struct fb_timestamp_tz timestamp, struct fb_profiler_stats *stats)
{
	(void)self, (void)status, (void)statement_id, (void)request_id, (void)timestamp, (void)stats;
}

/* Lines and record sources: the same five or four numbers. */
static void aside_before(struct fb_profiler_session *self, int64_t statement_id, int64_t request_id, unsigned first,
			 unsigned second)
{
	(void)self, (void)statement_id, (void)request_id, (void)first, (void)second;
}

static void aside_after(struct fb_profiler_session *self, int64_t statement_id, int64_t request_id, unsigned first,
			unsigned second, struct fb_profiler_stats *stats)
{
	(void)self, (void)statement_id, (void)request_id, (void)first, (void)second, (void)stats;
}

static const struct fb_profiler_session_vtable aside_vtable = {
	.version = FB_PROFILER_SESSION_VERSION,
	.dispose = dispose,
	.get_id = get_id,
	.get_flags = get_flags,
	.cancel = cancel,
	.finish = finish,
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

/* ---- Fork: Classic's listener, or anything that a server starts ---- */

static void before_fork(void)
{
	pthread_mutex_lock(&sessions_mutex);
	sampler_lock();
	log_lock(log_get());
}

static void after_fork_in_parent(void)
{
	log_unlock(log_get());
	sampler_unlock();
	pthread_mutex_unlock(&sessions_mutex);
}

/* The child has neither the sampler's thread nor the log's mappings: its sessions end here. */
static void after_fork_in_child(void)
{
	for (struct session *session = sessions; session; session = session->next) {
		session->recording = false;
		session->forked = true;
		step_aside(session);
	}
	clock_thread.stack = NULL;
	thread_id = 0;
	log_forget(log_get());
	sampler_forget();
	frame_stack_forget();
	log_unlock(log_get());
	sampler_unlock();
	pthread_mutex_unlock(&sessions_mutex);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ---- Starting ---- */

/*
 * A session's id, which START_SESSION returns and the tables call profile_id: when it was started, in
 * us since 1970.  So ids of different processes (Classic) and times don't meet in one table.
 */
static int64_t new_id(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static int64_t last;
	int64_t id;

	pthread_mutex_lock(&mutex);
	id = ns_now(CLOCK_REALTIME) / 1000;
	if (id <= last)
		id = last + 1;
	last = id;
	pthread_mutex_unlock(&mutex);
	return id;
}

/*
 * Whether the attachment hasn't started a session lately, as far as we remember: the engine then
 * measures what a read of its clock costs (clock.h).
 */
static bool is_first_of_attachment(const struct attachment_info *attachment)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static struct {
		uint64_t who;
		int64_t when;
	} recent[64]; /* direct-mapped: whoever is pushed out counts as new */
	uint64_t who = (fingerprint(attachment->database) ^ (uint64_t)attachment->id) * 0x9e3779b97f4a7c15u;
	size_t slot = who >> 58;
	int64_t now = ns_now(CLOCK_MONOTONIC);
	bool first;

	pthread_mutex_lock(&mutex);
	first = recent[slot].who != who || now - recent[slot].when > 30 * 1000000000ll;
	recent[slot].who = who;
	recent[slot].when = now;
	pthread_mutex_unlock(&mutex);
	return first;
}

static bool put_session_start(struct session *session, const struct attachment_info *attachment,
			      const char *options_text, const char *description, int64_t start_time)
{
	/* START_SESSION takes 255 characters for each of the two texts, of up to 4 bytes. */
	const size_t text_limit = 1020;
	unsigned flags = (session->options.detailed ? LOG_SESSION_DETAILED : 0) |
			 (clock_is_ours ? LOG_SESSION_PRELOAD : 0);
	uint8_t *place = log_record_begin(&session->stream, LOG_REC_SESSION_START,
					  12 * VARINT_MAX_SIZE + sizeof(*attachment) + 2 * text_limit);

	if (!place)
		return false;
	place = varint_put(place, (uint64_t)session->id);
	place = varint_put(place, (uint64_t)attachment->id);
	place = put_i64(place, start_time);
	place = put_i64(place, ns_now(CLOCK_MONOTONIC));
	place = varint_put(place, flags);
	place = varint_put(place, session->options.interval);
	place = put_string(place, attachment->user, sizeof(attachment->user));
	place = put_string(place, attachment->database, sizeof(attachment->database));
	place = put_string(place, attachment->engine, sizeof(attachment->engine));
	place = put_string(place, options_text ? options_text : "", text_limit);
	place = put_nullable(place, description && *description ? description : NULL, text_limit);
	log_record_end(&session->stream, place);
	return true;
}

static bool start_recording(struct session *session, const struct attachment_info *attachment,
			    const char *options_text, const char *description, int64_t start_time, char *error,
			    size_t error_size)
{
	const char *limit = secure_getenv("FBPROF_MAX_BYTES");
	struct log_options log_options = {
		.directory = secure_getenv("FBPROF_DIR"),
		.program = program_invocation_short_name,
		.clock = clock_is_ours ? "CLOCK_MONOTONIC_RAW, as of the sampler's last look" : "CLOCK_MONOTONIC_RAW",
		.max_bytes = limit ? strtoull(limit, NULL, 10) : 0,
		.on_stop = notice,
	};
	struct log *log = log_get();

	if (!log_acquire(log, &log_options, error, error_size))
		return false;
	log_stream_open(&session->stream, log, log_new_session(log));
	session->totals_block = log_block_new(log);
	session->target.tree = call_tree_new(log, session->stream.session);
	if (session->totals_block && session->target.tree &&
	    put_session_start(session, attachment, options_text, description, start_time)) {
		session->totals_block->session = session->stream.session;
		log_block_publish(session->totals_block, LOG_BLOCK_SESSION);
		frame_stack_source_init(&session->source, session->stack, !clock_is_ours);
		session->target.source = &session->source.source;
		session->target.totals = (struct log_session_totals *)session->totals_block->payload;
		session->target.interval = session->options.interval;
		session->recording = sampler_add(&session->target);
		if (!session->recording)
			snprintf(error, error_size, "the sampler's thread could not be started: check the limit of threads");
	} else {
		snprintf(error, error_size, "no space is left in %s, or no memory: free some, or raise FBPROF_MAX_BYTES",
			 log_path(log));
	}
	if (!session->recording) {
		log_stream_close(&session->stream);
		log_release(log);
	}
	return session->recording;
}

struct fb_profiler_session *session_start(const struct attachment_info *attachment, const struct options *options,
					  const char *options_text, const char *description,
					  struct fb_timestamp_tz timestamp, uint64_t ticks_frequency, char *error,
					  size_t error_size)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct session *session = calloc(1, sizeof(*session));
	bool ready = false;

	pthread_once(&once, watch_forks);
	if (session) {
		session->interface.vtable = &recording_vtable;
		session->current = &no_request;
		session->options = *options;
		session->ticks_frequency = ticks_frequency;
		session->id = new_id();
		session->stack = frame_stack_new();
		session->owner = malloc(FRAME_STACK_ROOM * sizeof(struct request *));
		ready = session->stack && session->owner && table_init(&session->statements) &&
			table_init(&session->requests);
	}
	if (!ready) {
		snprintf(error, error_size, "out of memory");
	} else {
		session->stack->bare_depth = options->detailed ? 2 : 1;
		ready = start_recording(session, attachment, options_text, description, ns_since_1970(timestamp),
					error, error_size);
	}
	if (!ready) {
		if (session)
			session_free(session);
		return NULL;
	}
	pthread_mutex_lock(&sessions_mutex);
	session->next = sessions;
	session->link = &sessions;
	if (sessions)
		sessions->link = &session->next;
	sessions = session;
	pthread_mutex_unlock(&sessions_mutex);
	if (is_first_of_attachment(attachment))
		clock_expect_pair();
	return &session->interface;
}
