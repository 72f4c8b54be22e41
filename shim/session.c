/*
 * A session's start and end: see session.h.  What happens between is in events.c.
 */
#define _GNU_SOURCE
#include "../output/log_put.h"
#include "environment.h"
#include "event_cost.h"
#include "notice.h"
#include "passive.h"
#include "session_private.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct request no_request = { .id = INT64_MIN };

/* Guards the list of all sessions of the process, and what else of this file threads share. */
static pthread_mutex_t sessions_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct session *sessions;

void session_step_aside(struct session *session)
{
	session->interface.vtable = &aside_vtable;
	frame_stack_cut(session->stack, 0);
	frame_stack_set_idle(session->stack, true);
	session->current = &no_request;
}

/* ---- Time ---- */

#define DAYS_FROM_1858_TO_1970 40587

int64_t ns_since_1970(struct fb_timestamp_tz timestamp)
{
	int64_t seconds = ((int64_t)timestamp.date - DAYS_FROM_1858_TO_1970) * 86400;

	return seconds * 1000000000 + (int64_t)timestamp.time * 100000;
}

int64_t ns_now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* ---- What the engine remembers from one session of an attachment to the next ---- */

/*
 * When the engine will measure its clock again for attachments that have no session now: it remembers
 * for as long as the attachment lives, we until that time has come.
 */
static struct {
	struct next_pair {
		uint64_t attachment;
		int64_t time;  /* as in clock.h */
		int64_t until; /* CLOCK_MONOTONIC, in ns */
	} * entries;
	size_t count, room;
} next_pairs;

uint64_t attachment_key(const struct attachment_info *attachment)
{
	return (sql_text_fingerprint(attachment->database) ^ (uint64_t)attachment->id) *
	       0x9e3779b97f4a7c15u;
}

/* Takes the attachment's out, and those that are over; 0: it has none. */
int64_t take_next_pair(uint64_t attachment)
{
	int64_t now = ns_now(CLOCK_MONOTONIC);
	int64_t time = 0;
	size_t kept = 0;

	pthread_mutex_lock(&sessions_mutex);
	for (size_t i = 0; i < next_pairs.count; i++) {
		const struct next_pair *entry = &next_pairs.entries[i];

		if (entry->attachment == attachment)
			time = entry->time;
		else if (entry->until > now)
			next_pairs.entries[kept++] = *entry;
	}
	next_pairs.count = kept;
	pthread_mutex_unlock(&sessions_mutex);
	return time;
}

/* The two clocks differ by far less than a second in 30. */
#define NEXT_PAIR_KEPT (31 * 1000000000ll)

/* Without memory, the attachment counts as new when it starts its next session. */
void keep_next_pair(uint64_t attachment, int64_t time)
{
	pthread_mutex_lock(&sessions_mutex);
	if (next_pairs.count == next_pairs.room) {
		size_t room = next_pairs.room ? 2 * next_pairs.room : 16;
		struct next_pair *entries = realloc(next_pairs.entries, room * sizeof(*entries));

		if (entries) {
			next_pairs.entries = entries;
			next_pairs.room = room;
		}
	}
	if (next_pairs.count < next_pairs.room)
		next_pairs.entries[next_pairs.count++] =
			(struct next_pair){ attachment, time,
					    ns_now(CLOCK_MONOTONIC) + NEXT_PAIR_KEPT };
	pthread_mutex_unlock(&sessions_mutex);
}

/* ---- End ---- */

/* What events cost at last: see log_session_totals. */
static void put_event_costs(struct session *session)
{
	for (unsigned i = 0; i < LOG_EVENTS; i++)
		set_cell(&session->target.totals->event_cost[i],
			 session->stack->event_cost[i] > 0 ?
				 (uint64_t)(session->stack->event_cost[i] * 1000) >>
					 COST_PER_NS_SHIFT :
				 0);
}

static void put_session_end(struct session *session, enum log_session_end how, int64_t time)
{
	uint8_t *place =
		log_record_begin(&session->stream, LOG_REC_SESSION_END, 8 + VARINT_MAX_SIZE);

	if (place) {
		place = varint_put(place, how);
		log_record_end(&session->stream, log_put_i64(place, time));
	}
}

/* Ends recording; what the log has stays there. */
static void end(struct session *session, enum log_session_end how, int64_t time)
{
	int error = errno;

	session_step_aside(session);
	if (session->recording) {
		session->recording = false;
		if (session->options.mode == LOG_MODE_MEASURED)
			atomic_fetch_sub(&clock_sessions_measured, 1);
		sampler_remove(&session->target);
		put_event_costs(session);
		put_session_end(session, how, time);
		log_stream_close(&session->stream);
		log_release(session->stream.log);
	}
	errno = error;
}

void session_cancel(struct fb_profiler_session *interface, struct fb_status *status)
{
	(void)status;
	end(session_of(interface), LOG_END_CANCELLED, ns_now(CLOCK_REALTIME));
}

void session_finish(struct fb_profiler_session *interface, struct fb_status *status,
		    struct fb_timestamp_tz timestamp)
{
	(void)status;
	end(session_of(interface), LOG_END_FINISHED, ns_since_1970(timestamp));
}

static void free_request(void *context, void *request)
{
	(void)context;
	request_free(request);
}

static void free_statement(void *context, void *statement)
{
	(void)context;
	statement_free(statement);
}

static void session_free(struct session *session)
{
	id_table_free(&session->requests, free_request, session);
	id_table_free(&session->statements, free_statement, session);
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

void session_dispose(struct fb_profiler_session *interface)
{
	struct session *session = session_of(interface);
	int error = errno;

	clock_leave(session->stack);
	keep_next_pair(session->attachment, clock_next_pair(session->stack));
	end(session, LOG_END_DISPOSED, ns_now(CLOCK_REALTIME));
	pthread_mutex_lock(&sessions_mutex);
	*session->link = session->next;
	if (session->next)
		session->next->link = session->link;
	pthread_mutex_unlock(&sessions_mutex);
	session_free(session);
	errno = error;
}

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
		session_step_aside(session);
	}
	clock_forget();
	position_forget_thread();
	log_forget(log_get());
	sampler_forget();
	frame_stack_forget();
	passive_forget();
	notice_forget();
	log_unlock(log_get());
	sampler_unlock();
	pthread_mutex_unlock(&sessions_mutex);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void session_watch_forks(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
}

/* ---- Start ---- */

/*
 * A session's id, which START_SESSION returns and the tables call profile_id: when it was started, in
 * us since 1970.  So ids of different processes (Classic) and times don't meet in one table.
 */
static int64_t new_id(void)
{
	static int64_t last;
	int64_t id;

	pthread_mutex_lock(&sessions_mutex);
	id = ns_now(CLOCK_REALTIME) / 1000;
	if (id <= last)
		id = last + 1;
	last = id;
	pthread_mutex_unlock(&sessions_mutex);
	return id;
}

static bool put_session_start(struct session *session, const struct attachment_info *attachment,
			      const char *options_text, const char *description, int64_t start_time)
{
	/* START_SESSION takes 255 characters for each of the two texts, of up to 4 bytes. */
	const size_t text_limit = 1020;
	unsigned flags = (session->options.detailed ? LOG_SESSION_DETAILED : 0) |
			 (clock_is_ours ? LOG_SESSION_PRELOAD : 0);
	uint8_t *place =
		log_record_begin(&session->stream, LOG_REC_SESSION_START,
				 12 * VARINT_MAX_SIZE + sizeof(*attachment) + 2 * text_limit);

	if (!place)
		return false;
	place = varint_put(place, (uint64_t)session->id);
	place = varint_put(place, (uint64_t)attachment->id);
	place = log_put_i64(place, start_time);
	place = log_put_i64(place, ns_now(CLOCK_MONOTONIC));
	place = varint_put(place, flags);
	place = varint_put(place, session->options.interval);
	place = varint_put(place, session->options.mode);
	place = log_put_string(place, attachment->user, sizeof(attachment->user));
	place = log_put_string(place, attachment->database, sizeof(attachment->database));
	place = log_put_string(place, attachment->engine, sizeof(attachment->engine));
	place = log_put_string(place, options_text ? options_text : "", text_limit);
	place = log_put_nullable(place, description && *description ? description : NULL,
				 text_limit);
	log_record_end(&session->stream, place);
	return true;
}

static bool start_recording(struct session *session, const struct attachment_info *attachment,
			    const char *options_text, const char *description, int64_t start_time,
			    char *error, size_t error_size)
{
	struct log_options log_options;
	struct log *log = log_get();
	unsigned share;

	if (!environment_log_options(&log_options, error, error_size) ||
	    !environment_sampler_share(&share, error, error_size))
		return false;
	sampler_set_share(share);
	if (!log_acquire(log, &log_options, error, error_size))
		return false;
	log_stream_open(&session->stream, log, log_new_session(log));
	session->totals_block = log_block_new(log);
	if (session->options.mode == LOG_MODE_SAMPLED)
		session->target.tree = call_tree_new(log, session->stream.session);
	if (session->totals_block &&
	    (session->target.tree || session->options.mode != LOG_MODE_SAMPLED) &&
	    put_session_start(session, attachment, options_text, description, start_time)) {
		session->totals_block->session = session->stream.session;
		log_block_publish(session->totals_block, LOG_BLOCK_SESSION);
		frame_stack_source_init(&session->source, session->stack, !clock_is_ours);
		session->target.source = &session->source.source;
		session->target.totals =
			(struct log_session_totals *)session->totals_block->payload;
		session->target.interval = session->options.mode == LOG_MODE_MEASURED ?
						   SAMPLER_INTERVAL_MAX :
						   session->options.interval;
		if (session->options.mode == LOG_MODE_SAMPLED)
			session->target.cost = &session->stack->cost;
		session->target.cpu_time = &session->stack->cpu_time;
		put_event_costs(session);
		session->recording = sampler_add(&session->target);
		if (!session->recording)
			snprintf(
				error, error_size,
				"the sampler's thread could not be started: check the limit of threads");
	} else {
		snprintf(
			error, error_size,
			"no space is left in %s, or no memory: free some, or raise FBPROF_MAX_BYTES",
			log_path(log));
	}
	if (!session->recording) {
		log_stream_close(&session->stream);
		log_release(log);
	}
	return session->recording;
}

static const struct fb_profiler_session_vtable *vtable_of(enum log_mode mode)
{
	switch (mode) {
	case LOG_MODE_COARSE:
		return &coarse_vtable;
	case LOG_MODE_MEASURED:
		return &measured_vtable;
	case LOG_MODE_SAMPLED:
	case LOG_MODE_PASSIVE: /* is no session's mode */
		break;
	}
	return &sampled_vtable;
}

/* Without events that come before, nothing tells whether the outermost request is in a line. */
static void set_clock_mode(struct session *session)
{
	struct frame_stack *stack = session->stack;

	switch (session->options.mode) {
	case LOG_MODE_SAMPLED:
	case LOG_MODE_PASSIVE: /* is no session's mode */
		stack->clock_mode = CLOCK_SAMPLED;
		stack->bare_depth = session->options.detailed ? 2 : 1;
		break;
	case LOG_MODE_COARSE:
		stack->clock_mode = CLOCK_COARSE;
		stack->bare_depth = 0;
		break;
	case LOG_MODE_MEASURED:
		tick_clock_init(session->options.clock, clock_real);
		stack->clock_mode = CLOCK_MEASURED;
		stack->bare_depth = 0;
		break;
	}
}

struct fb_profiler_session *session_start(const struct attachment_info *attachment,
					  const struct options *options, const char *options_text,
					  const char *description, struct fb_timestamp_tz timestamp,
					  uint64_t ticks_frequency, char *error, size_t error_size)
{
	struct session *session = calloc(1, sizeof(*session));
	bool ready = false;

	session_watch_forks();
	if (session) {
		session->current = &no_request;
		spans_clear(&session->spans);
		session->options = *options;
		/* The engine's own clock doesn't wait for the sampler: all its times are measured. */
		if (!clock_is_ours && options->mode == LOG_MODE_COARSE)
			session->options.mode = LOG_MODE_MEASURED;
		session->interface.vtable = vtable_of(session->options.mode);
		session->group_cells =
			session->options.mode == LOG_MODE_SAMPLED ? 1 : LOG_GROUP_CELLS;
		session->ticks_frequency = ticks_frequency;
		session->id = new_id();
		session->stack = frame_stack_new();
		session->owner = malloc(FRAME_STACK_ROOM * sizeof(struct request *));
		ready = session->stack && session->owner && id_table_init(&session->statements) &&
			id_table_init(&session->requests);
	}
	if (!ready) {
		snprintf(error, error_size, "out of memory");
	} else {
		set_clock_mode(session);
		event_cost_init(session->stack, session->options.mode, session->options.detailed);
		ready = start_recording(session, attachment, options_text, description,
					ns_since_1970(timestamp), error, error_size);
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
	if (session->options.mode == LOG_MODE_MEASURED)
		atomic_fetch_add(&clock_sessions_measured, 1);
	session->attachment = attachment_key(attachment);
	clock_expect_pair(session->stack, take_next_pair(session->attachment));
	return &session->interface;
}
