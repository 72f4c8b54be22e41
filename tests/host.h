/*
 * The test host: plays the engine's part towards our plugin, so that tests, instruction counts,
 * sanitizers and fuzzers need no Firebird.
 *
 * It has two halves.  A *stream* is a list of events as the engine sends them to a session, made by
 * the *engine model* (model_*, which knows the engine's order of events) or read from text.  A *host*
 * is a fake IMaster and what hangs on it; it starts a session and plays streams to it.  A stream and
 * an attachment are used by one thread at a time; playing leaves the stream alone, so that several
 * threads may play the same one.
 *
 * The text format: one event a line, fields separated by one space, "-" for NULL, \s \n \t \r \\ \-
 * and \e (the empty string) inside a field; the last field of S, C and R may have plain spaces.
 * Empty lines and those that begin with # are skipped.
 *	S statement parent type schema package routine sql
 *	C statement cursor line column name
 *	R statement cursor id parent level access-path
 *	start statement request caller-statement caller-request
 *	finish statement request elapsed-ns
 *	<L statement request line column		before a line, >L after it
 *	<O statement request cursor id			before an open, >O after it
 *	<F statement request cursor id			before a fetch, >F after it
 *	T						the engine reads its clock
 */
#ifndef FBPROF_TESTS_HOST_H
#define FBPROF_TESTS_HOST_H

#include "../shim/firebird.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

/* ---- Streams ---- */

enum host_op {
	HOST_DEFINE_STATEMENT,
	HOST_DEFINE_CURSOR,
	HOST_DEFINE_RECORD_SOURCE,
	HOST_REQUEST_START,
	HOST_REQUEST_FINISH,
	HOST_BEFORE_LINE,
	HOST_AFTER_LINE,
	HOST_BEFORE_OPEN,
	HOST_AFTER_OPEN,
	HOST_BEFORE_FETCH,
	HOST_AFTER_FETCH,
	HOST_CLOCK, /* only when nothing follows: else it is counted in `reads` of the next event */
	HOST_OPS
};

#define HOST_NO_SLOT UINT16_MAX

struct host_event {
	uint8_t op;    /* enum host_op */
	uint8_t reads; /* how often the engine reads its clock before it */
	uint16_t
		slot; /* before and after: where the time in between is kept; HOST_NO_SLOT: nowhere */
	uint32_t
		first; /* line or cursor id; definitions, start and finish: index of their detail */
	uint32_t second; /* column or record source id */
	int64_t statement, request;
};

/* What the rarer events have to say. */
struct host_detail {
	int64_t other_statement; /* parent, or the caller's */
	int64_t caller_request;
	uint64_t elapsed;
	uint32_t cursor, id, parent, level, line, column;
	char *type, *schema, *package, *name; /* name: of routine or cursor */
	char *text;			      /* SQL or access path */
};

struct host_open {
	uint8_t op;
	uint32_t first, second;
	int64_t request;
};

struct host_stream {
	struct host_event *events;
	size_t count, room;
	struct host_detail *details;
	size_t detail_count, detail_room;
	int64_t last_request; /* the highest id: the next round's ids are above it */
	unsigned pending_reads;
	struct host_open *open; /* before-events without their after-event so far */
	size_t open_count, open_room;
};

struct host_stream *host_stream_new(void);
void host_stream_free(struct host_stream *stream);

/* Reads the text format.  Returns false, and one sentence in `error`, if a line is wrong. */
bool host_stream_read(struct host_stream *stream, FILE *file, char *error, size_t error_size);
void host_stream_write(const struct host_stream *stream, FILE *file);

/* ---- The engine model ---- */

/* A statement or routine.  Ids are given when it is made; it is defined when a request needs it. */
struct model_statement;
struct model_request;

struct model {
	struct host_stream *stream;
	struct model_request *current; /* the innermost looper's; NULL: the client has control */
	struct model_statement *statements;
	struct model_request *requests;
	int64_t last_statement, last_request;
	bool paused;
	bool after_only; /* the session wants no events that come before: they start no request */
};

void model_init(struct model *model, struct host_stream *stream);
void model_clear(struct model *model);

struct model_statement *model_statement(struct model *model, struct model_statement *parent,
					const char *type, const char *package, const char *routine,
					const char *sql);
int64_t model_statement_id(const struct model_statement *statement);

/* A cursor with a plan of `depth` record sources, each the parent of the next; ids 1 to `depth`. */
void model_cursor(struct model *model, struct model_statement *statement, uint32_t id,
		  const char *name, uint32_t depth);

struct model_request *model_request(struct model *model, struct model_statement *statement);
int64_t model_request_id(const struct model_request *request);

/* The engine enters the request's loop, called by the current one (NULL caller: by the client). */
void model_enter(struct model *model, struct model_request *request);
/* EXECUTE STATEMENT: as above, but the engine knows no caller. */
void model_enter_alone(struct model *model, struct model_request *request);
/* The current request comes to another line. */
void model_line(struct model *model, uint32_t line, uint32_t column);
/* Record sources of the current request; nest them as the plan does. */
void model_before_open(struct model *model, uint32_t cursor, uint32_t id);
void model_after_open(struct model *model, uint32_t cursor, uint32_t id);
void model_before_fetch(struct model *model, uint32_t cursor, uint32_t id);
void model_after_fetch(struct model *model, uint32_t cursor, uint32_t id);
/* Opens, or fetches from, the whole plan of a cursor. */
void model_open_plan(struct model *model, uint32_t cursor, uint32_t depth);
void model_fetch_plan(struct model *model, uint32_t cursor, uint32_t depth);
/* The current request leaves its loop: suspended, or returning to its client. */
void model_leave(struct model *model);
/* The same, and is over. */
void model_finish(struct model *model, uint64_t elapsed);
/* An exception takes the current request out of its loop: no event tells of it. */
void model_throw(struct model *model);
/* The end of a request that is not in its loop, as when the engine unwinds it. */
void model_unwind(struct model *model, struct model_request *request, uint64_t elapsed);
/* While paused the model emits nothing. */
void model_pause(struct model *model, bool paused);

/* ---- Streams with a name ---- */

struct host_stream_kind {
	const char *name, *what;
	void (*make)(struct model *model, unsigned size);
	unsigned size; /* the default */
	const char *options;
};

extern const struct host_stream_kind host_stream_kinds[];
extern const size_t host_stream_kind_count;

/* NULL if there is none of that name.  `size` 0: the default. */
struct host_stream *host_stream_make(const char *name, unsigned size);

/* The same for a session that takes only events that come after.  (The others are there, to be timed.) */
struct host_stream *host_stream_make_after(const char *name, unsigned size);

/* ---- The host ---- */

typedef int host_clock(clockid_t id, struct timespec *time);

struct host {
	struct fb_master master;
	struct fb_plugin_manager manager;
	struct fb_config_manager config;
	struct fb_plugin_factory *factory; /* registered as Default_Profiler */
	unsigned registered;		   /* how many names were */
	struct fb_plugin_module *module;   /* NULL: none registered */
	const char *log_directory;	   /* where firebird.log is; NULL: no answer */
	bool has_define_statement2;	   /* 6.0 */
	host_clock *clock;		   /* what the engine's reads get */
};

struct host_attachment {
	struct fb_attachment interface;
	struct fb_status status;
	struct host *host;
	int64_t id;
	const char *user, *database;
	char error[1024]; /* what the plugin said, "" if nothing was wrong */
	struct fb_profiler_plugin *plugin;
	struct fb_profiler_session *session;
	unsigned flags;
	uint64_t ticks[4096]; /* by host_event.slot */
	uint64_t now;
	int64_t errno_changed_by; /* host_play_checking_errno(): index of an event that did, or -1 */
};

/* `library` NULL: the plugin linked into this program; else a module to dlopen. */
bool host_open(struct host *host, const char *library, const char *log_directory, char *error,
	       size_t error_size);

void host_attach(struct host *host, struct host_attachment *attachment, int64_t id);
/* Releases the plugin; disposes of a session that is still there, as a detach does. */
void host_detach(struct host_attachment *attachment);

/* START_SESSION.  False: `error` has the plugin's sentence. */
bool host_start(struct host_attachment *attachment, const char *description, const char *options);
void host_finish(struct host_attachment *attachment);
void host_cancel(struct host_attachment *attachment);
void host_discard(struct host_attachment *attachment);

/*
 * Plays the events from `from` up to, not including, `to` (SIZE_MAX: all), of those that come before
 * and after only what the session has asked for.  In rounds above 0 the statements are already
 * defined, and requests have other ids.
 */
void host_play(struct host_attachment *attachment, const struct host_stream *stream, size_t from,
	       size_t to, unsigned round);
void host_play_checking_errno(struct host_attachment *attachment, const struct host_stream *stream,
			      size_t from, size_t to, unsigned round);

struct fb_timestamp_tz host_now(void);

#endif
