/*
 * Sessions of MODE=CLOCK: see clock_session.h.
 */
#include "clock_session.h"
#include "clock.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What Firebird 5.0 has; 6.0 appends a method. */
#define VERSION_MIN 3u

/* A pair is watched for so long before it is due. */
#define PAIR_WATCH CLOCK_NS_PER_SECOND

struct clock_session {
	struct position_source source;
	struct sampler_target target;
	struct fb_profiler_session *session;
	const struct fb_profiler_session_vtable *stock; /* its own vtable */
	/* Copies of it; `unused` points to us. */
	struct fb_profiler_session_vtable plain, watching;
	struct frame_stack *stack; /* always empty: for its `next_pair` */
	uint64_t attachment;

	/* The sampler's: */
	int64_t last_read; /* clock_last_read as of its last look */
	bool watches;
};

static struct clock_session *session_of(const struct fb_profiler_session *session)
{
	const struct fb_profiler_session_vtable *vtable =
		__atomic_load_n(&session->vtable, __ATOMIC_RELAXED);

	return vtable->unused;
}

/* ---- Events, while they are watched ---- */

static const struct fb_profiler_session_vtable *notice_event(struct fb_profiler_session *session)
{
	struct clock_session *self = session_of(session);

	clock_event(self->stack);
	return self->stock;
}

static void on_request_start(struct fb_profiler_session *session, struct fb_status *status,
			     int64_t statement_id, int64_t request_id, int64_t caller_statement_id,
			     int64_t caller_request_id, struct fb_timestamp_tz timestamp)
{
	notice_event(session)->on_request_start(session, status, statement_id, request_id,
						caller_statement_id, caller_request_id, timestamp);
}

static void on_request_finish(struct fb_profiler_session *session, struct fb_status *status,
			      int64_t statement_id, int64_t request_id,
			      struct fb_timestamp_tz timestamp, struct fb_profiler_stats *stats)
{
	notice_event(session)->on_request_finish(session, status, statement_id, request_id,
						 timestamp, stats);
}

static void after_psql_line_column(struct fb_profiler_session *session, int64_t statement_id,
				   int64_t request_id, unsigned line, unsigned column,
				   struct fb_profiler_stats *stats)
{
	notice_event(session)->after_psql_line_column(session, statement_id, request_id, line,
						      column, stats);
}

static void after_record_source_open(struct fb_profiler_session *session, int64_t statement_id,
				     int64_t request_id, unsigned cursor_id,
				     unsigned record_source_id, struct fb_profiler_stats *stats)
{
	notice_event(session)->after_record_source_open(session, statement_id, request_id,
							cursor_id, record_source_id, stats);
}

static void after_record_source_get_record(struct fb_profiler_session *session,
					   int64_t statement_id, int64_t request_id,
					   unsigned cursor_id, unsigned record_source_id,
					   struct fb_profiler_stats *stats)
{
	notice_event(session)->after_record_source_get_record(session, statement_id, request_id,
							      cursor_id, record_source_id, stats);
}

/* ---- The sampler's look: it only wants to know whether anybody reads the clock ---- */

static void set_vtable(struct clock_session *self, bool watches)
{
	__atomic_store_n(&self->session->vtable, watches ? &self->watching : &self->plain,
			 __ATOMIC_RELEASE);
	self->watches = watches;
}

static enum position_state read_position(struct position_source *source, uint64_t now,
					 struct position *position)
{
	struct clock_session *self = (struct clock_session *)source;
	int64_t last_read = atomic_load_explicit(&clock_last_read, memory_order_relaxed);
	bool busy = last_read != self->last_read;
	bool watches = !busy || clock_is_pair_due((int64_t)now + PAIR_WATCH);

	self->last_read = last_read;
	if (watches != self->watches)
		set_vtable(self, watches);
	position->thread = 0;
	position->count = 0;
	return busy ? POSITION_BUSY : POSITION_IDLE;
}

/* ---- Start and end ---- */

static void clock_session_free(struct clock_session *self)
{
	if (self)
		frame_stack_free(self->stack);
	free(self);
}

static void dispose(struct fb_profiler_session *session)
{
	struct clock_session *self = session_of(session);
	const struct fb_profiler_session_vtable *stock = self->stock;
	int error = errno;

	/* In a child of fork there is none to count off. */
	if (atomic_load(&clock_sessions_for_all))
		atomic_fetch_sub(&clock_sessions_for_all, 1);
	sampler_remove(&self->target);
	session->vtable = stock;
	keep_next_pair(self->attachment, clock_next_pair(self->stack));
	clock_session_free(self);
	errno = error;
	stock->dispose(session);
}

static struct fb_profiler_session_vtable copy_of(struct clock_session *self)
{
	struct fb_profiler_session_vtable copy = { 0 };

	memcpy(&copy, self->stock,
	       self->stock->version < FB_PROFILER_SESSION_VERSION ?
		       offsetof(struct fb_profiler_session_vtable, define_statement2) :
		       sizeof(copy));
	if (copy.version > FB_PROFILER_SESSION_VERSION)
		copy.version = FB_PROFILER_SESSION_VERSION;
	copy.unused = self;
	copy.dispose = dispose;
	return copy;
}

static void make_vtables(struct clock_session *self)
{
	self->plain = self->watching = copy_of(self);
	self->watching.on_request_start = on_request_start;
	self->watching.on_request_finish = on_request_finish;
	self->watching.after_psql_line_column = after_psql_line_column;
	self->watching.after_record_source_open = after_record_source_open;
	self->watching.after_record_source_get_record = after_record_source_get_record;
}

/* Takes over the stock profiler's session; false, and the sentence, if that can't be. */
static bool adopt(struct clock_session *self, struct fb_profiler_session *session, char *error,
		  size_t error_size)
{
	self->session = session;
	self->stock = session->vtable;
	if (self->stock->version < VERSION_MIN) {
		snprintf(error, error_size,
			 "MODE=CLOCK doesn't know this version of the stock profiler");
		return false;
	}
	make_vtables(self);
	set_vtable(self, true);
	if (!sampler_add(&self->target)) {
		session->vtable = self->stock;
		snprintf(error, error_size,
			 "the sampler's thread could not be started: check the limit of threads");
		return false;
	}
	atomic_fetch_add(&clock_sessions_for_all, 1);
	clock_expect_pair(self->stack, take_next_pair(self->attachment));
	return true;
}

struct fb_profiler_session *clock_session_start(struct fb_profiler_plugin *stock,
						const struct attachment_info *attachment,
						const struct options *options,
						struct fb_status *status, const char *description,
						struct fb_timestamp_tz timestamp, char *error,
						size_t error_size)
{
	struct clock_session *self = calloc(1, sizeof(*self));
	struct fb_profiler_session *session;

	session_watch_forks();
	if (self)
		self->stack = frame_stack_new();
	if (!self || !self->stack) {
		clock_session_free(self);
		snprintf(error, error_size, "out of memory");
		return NULL;
	}
	self->source.read = read_position;
	self->target.source = &self->source;
	self->target.interval = options->interval;
	self->attachment = attachment_key(attachment);
	session = stock->vtable->start_session(stock, status, description,
					       options->detailed ? "DETAILED_REQUESTS" : "",
					       timestamp);
	if (session && adopt(self, session, error, error_size))
		return session;
	clock_session_free(self);
	if (session) {
		session->vtable->cancel(session, status);
		session->vtable->dispose(session);
	}
	return NULL;
}
