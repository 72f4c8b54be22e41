/*
 * See recorder.h.
 *
 * What was read out of another program's memory is believed only if it was there twice: a position is
 * checked by whoever reads it (position.h), and texts are checked here, by reading the position again
 * after them: if the same request of the same statement is still there, the statement was not freed
 * meanwhile.
 */
#include "recorder.h"
#include "../sampler/pace.h"
#include "../sampler/sampler.h"
#include "passive_log.h"

#include <stdlib.h>
#include <string.h>

/* How often the lists of threads are read anew. */
#define UPDATE_INTERVAL 50000000u

/* If nobody was at work for so long, looks are so much more seldom. */
#define IDLE_AFTER    200000000u
#define IDLE_INTERVAL 10000000u

/*
 * CPU clocks are read once in so many ns of a busy thread, and of several in turn no more often.
 * Another process's clock may lag behind by a tick of the kernel, thus what it is ahead of the time that
 * was charged is kept for later, but no more than that: a thread also works between its requests.
 */
#define CPU_INTERVAL 4000000u
#define CPU_LAG	     10000000u

/* A position that changed while it was read is read again so often. */
#define TRIES 3

/* Attachments whose sessions are open at a time: the one that was idle longest gives way. */
#define SESSIONS_MAX 256

/* Of SQL texts, what is recorded. */
#define TEXT_BYTES 65536

/* An attachment that was seen at work. */
struct watched_attachment {
	uint64_t address, id;
	struct passive_session *session;
	uint64_t last_seen;
	struct recorder_watch *watch;
	struct watched_attachment *next;
};

struct watched_thread {
	pid_t id;
	struct watched_attachment *attachment; /* that it worked for last; NULL: none */
	uint64_t cpu_charged;		       /* of its CPU clock; 0: never read */
	uint64_t cpu_busy;		       /* ns charged since */
};

/* A process. */
struct recorder_watch {
	struct recorder_source *source;
	uint64_t updated;
	struct watched_thread *threads; /* as the source's */
	uint32_t count;
	struct recorder_watch *next;
};

struct recorder {
	struct recorder_options options;
	struct recorder_totals totals;
	struct passive_log log;
	struct pace pace;
	uint64_t last, last_busy, deadline;
	uint32_t busy_before;
	struct recorder_watch *watches;
	struct watched_attachment *attachments;
	uint32_t attachment_count;

	/* What is being looked at. */
	struct passive_position position, again;
	struct position frames;
	char routine[256], package[256], user[256], database[4096], sql_text[TEXT_BYTES];
};

/* ---- Attachments ---- */

static void forget_attachment(struct recorder *recorder, struct watched_attachment *attachment)
{
	struct recorder_watch *watch = attachment->watch;

	for (uint32_t i = 0; i < watch->count; i++) {
		if (watch->threads[i].attachment == attachment)
			watch->threads[i].attachment = NULL;
	}
	for (struct watched_attachment **link = &recorder->attachments; *link;
	     link = &(*link)->next) {
		if (*link == attachment) {
			*link = attachment->next;
			break;
		}
	}
	recorder->attachment_count--;
	free(attachment);
}

static void end_attachment(struct recorder *recorder, struct watched_attachment *attachment,
			   enum log_session_end how)
{
	passive_session_end(attachment->session, how);
	forget_attachment(recorder, attachment);
}

static void end_longest_idle(struct recorder *recorder)
{
	struct watched_attachment *oldest = recorder->attachments;

	for (struct watched_attachment *at = oldest; at; at = at->next) {
		if (at->last_seen < oldest->last_seen)
			oldest = at;
	}
	end_attachment(recorder, oldest, LOG_END_FINISHED);
}

static void read_attachment(struct recorder *recorder, struct recorder_source *source,
			    uint64_t address)
{
	source->text(source, LAYOUT_USER, address, recorder->user, sizeof(recorder->user));
	source->text(source, LAYOUT_DATABASE, address, recorder->database,
		     sizeof(recorder->database));
}

/* The first sight of an attachment.  NULL: its position has changed meanwhile, or it can't be kept. */
static struct watched_attachment *new_attachment(struct recorder *recorder,
						 struct recorder_watch *watch,
						 const struct process_thread *thread)
{
	struct recorder_source *source = watch->source;
	const struct passive_position *position = &recorder->position, *again = &recorder->again;
	struct watched_attachment *attachment;

	read_attachment(recorder, source, position->attachment);
	if (source->read(source, thread, &recorder->again) != PASSIVE_BUSY ||
	    again->attachment != position->attachment ||
	    again->attachment_id != position->attachment_id)
		return NULL;
	if (recorder->attachment_count == SESSIONS_MAX)
		end_longest_idle(recorder);
	attachment = calloc(1, sizeof(*attachment));
	if (!attachment)
		return NULL;
	attachment->session = passive_session_start(
		&recorder->log,
		&(struct passive_attachment){ position->attachment_id, recorder->user,
					      recorder->database, source->engine });
	if (!attachment->session) {
		free(attachment);
		recorder->totals.stopped = true;
		return NULL;
	}
	attachment->address = position->attachment;
	attachment->id = position->attachment_id;
	attachment->watch = watch;
	attachment->next = recorder->attachments;
	recorder->attachments = attachment;
	recorder->attachment_count++;
	recorder->totals.sessions++;
	return attachment;
}

static bool is_at(const struct watched_attachment *attachment, const struct recorder_watch *watch,
		  const struct passive_position *position)
{
	return attachment->address == position->attachment &&
	       attachment->id == position->attachment_id && attachment->watch == watch;
}

static struct watched_attachment *find_attachment(struct recorder *recorder,
						  struct recorder_watch *watch,
						  struct watched_thread *thread,
						  const struct process_thread *process_thread)
{
	struct watched_attachment *attachment = thread->attachment;

	if (attachment && is_at(attachment, watch, &recorder->position))
		return attachment;
	for (attachment = recorder->attachments; attachment; attachment = attachment->next) {
		if (is_at(attachment, watch, &recorder->position))
			break;
	}
	if (!attachment)
		attachment = new_attachment(recorder, watch, process_thread);
	thread->attachment = attachment;
	return attachment;
}

/* ---- Statements and lines ---- */

/* Statements have ids, or are where they are. */
static uint64_t statement_key(const struct passive_request *request)
{
	return request->statement_id ? request->statement_id : request->statement;
}

static uint64_t read_statement(struct recorder *recorder, struct recorder_source *source,
			       uint64_t address)
{
	source->text(source, LAYOUT_ROUTINE, address, recorder->routine, sizeof(recorder->routine));
	source->text(source, LAYOUT_PACKAGE, address, recorder->package, sizeof(recorder->package));
	source->text(source, LAYOUT_SQL_TEXT, address, recorder->sql_text,
		     sizeof(recorder->sql_text));
	return (sql_text_fingerprint(recorder->routine) * 31 +
		sql_text_fingerprint(recorder->package)) *
		       31 +
	       sql_text_fingerprint(recorder->sql_text);
}

/* Whether the thread is still in the request at this depth, so that what it leads to is still there. */
static bool is_still_there(struct recorder *recorder, struct recorder_source *source,
			   const struct process_thread *thread, uint32_t depth)
{
	const struct passive_request *before = &recorder->position.requests[depth];
	const struct passive_request *now = &recorder->again.requests[depth];

	return source->read(source, thread, &recorder->again) == PASSIVE_BUSY &&
	       recorder->again.count > depth && now->request_id == before->request_id &&
	       now->request == before->request && now->statement == before->statement;
}

/*
 * The statement of a request, written to the log if it is new.  NULL: what it is could not be read
 * for certain this time, or it can't be kept.  A short request is hardly ever still there when its
 * statement's texts have been read; then the same texts at two looks will do.
 */
static struct logged_statement *find_statement(struct recorder *recorder,
					       struct recorder_source *source,
					       struct watched_attachment *attachment,
					       const struct process_thread *thread, uint32_t depth)
{
	const struct passive_request *request = &recorder->position.requests[depth];
	uint64_t key = statement_key(request), fingerprint;
	struct logged_statement *statement = passive_session_statement(attachment->session, key);
	const struct passive_statement what = { request->statement_id, recorder->routine,
						recorder->package, recorder->sql_text };

	if (!statement)
		return NULL;
	if (statement->index &&
	    (request->statement_id || statement->request_id == request->request_id))
		return statement;
	fingerprint = read_statement(recorder, source, request->statement);
	if (statement->fingerprint != fingerprint &&
	    !is_still_there(recorder, source, thread, depth)) {
		if (!statement->index)
			statement->fingerprint = fingerprint;
		return NULL;
	}
	if (statement->index && statement->fingerprint != fingerprint) {
		/* It has no id, and another one is where it was. */
		passive_session_forget(attachment->session, key);
		statement = passive_session_statement(attachment->session, key);
		if (!statement)
			return NULL;
	}
	statement->fingerprint = fingerprint;
	statement->request_id = request->request_id;
	if (!statement->index && !passive_session_define(attachment->session, statement, &what)) {
		recorder->totals.stopped = true;
		return NULL;
	}
	return statement;
}

/* Makes frames of the position.  False: it has to be dropped. */
static bool make_frames(struct recorder *recorder, struct recorder_source *source,
			struct watched_attachment *attachment, const struct process_thread *thread)
{
	const struct passive_position *position = &recorder->position;

	recorder->frames.count = position->count;
	for (uint32_t i = 0; i < position->count; i++) {
		const struct passive_request *request = &position->requests[i];
		struct logged_statement *statement =
			find_statement(recorder, source, attachment, thread, i);
		uint32_t cell = 0;

		if (!statement)
			return false;
		if (request->line)
			cell = passive_session_line(attachment->session, statement, request->line,
						    request->column);
		if (request->line && !cell) {
			recorder->totals.stopped = true;
			return false;
		}
		recorder->frames.frames[i] = frame_make(FRAME_REQUEST, statement->index, cell);
	}
	return true;
}

/* ---- One look ---- */

static void add(uint64_t *word, uint64_t value)
{
	atomic_store_explicit((_Atomic uint64_t *)word, *word + value, memory_order_relaxed);
}

/*
 * How long the thread ran of the time since its CPU clock was read last; 0 as a rule: it is not to be
 * read yet.  A wait is only told when it was seen, so a thread that is new ran all the time.
 */
static uint64_t cpu_time(struct recorder *recorder, struct recorder_source *source,
			 struct watched_thread *thread, uint64_t elapsed)
{
	uint64_t clock, ran;

	thread->cpu_busy += elapsed;
	if (thread->cpu_busy < (uint64_t)CPU_INTERVAL * recorder->busy_before)
		return 0;
	clock = source->cpu_time(source, thread->id);
	if (!clock)
		return 0;
	if (!thread->cpu_charged)
		thread->cpu_charged = clock > thread->cpu_busy ? clock - thread->cpu_busy : 0;
	ran = clock > thread->cpu_charged ? clock - thread->cpu_charged : 0;
	if (ran > thread->cpu_busy)
		ran = thread->cpu_busy;
	thread->cpu_charged += ran;
	if (clock > thread->cpu_charged + CPU_LAG)
		thread->cpu_charged = clock - CPU_LAG;
	thread->cpu_busy = 0;
	return ran;
}

static void charge(struct recorder *recorder, struct recorder_source *source,
		   struct watched_thread *thread, uint64_t elapsed)
{
	struct passive_session *session = thread->attachment->session;
	const struct sample sample = { .time = elapsed,
				       .cpu_time = cpu_time(recorder, source, thread, elapsed) };

	if (!call_tree_charge(session->tree, &recorder->frames, &sample)) {
		recorder->totals.stopped = true;
		return;
	}
	add(&session->totals->wakeups, 1);
	add(&session->totals->stretched, pace_is_stretched(&recorder->pace));
	add(&session->totals->samples, 1);
	add(&session->totals->sampled_time, elapsed);
	recorder->totals.samples++;
	recorder->totals.time += elapsed;
}

/* The attachment is the last one that was seen, if any. */
static void drop(struct recorder *recorder, struct watched_thread *thread, uint64_t elapsed)
{
	recorder->totals.torn++;
	if (!thread->attachment)
		return;
	add(&thread->attachment->session->totals->torn_samples, 1);
	add(&thread->attachment->session->totals->torn_time, elapsed);
}

static void look_at(struct recorder *recorder, struct recorder_watch *watch, uint32_t index,
		    uint64_t now, uint64_t elapsed)
{
	struct recorder_source *source = watch->source;
	const struct process_thread *process_thread = &source->threads[index];
	struct watched_thread *thread = &watch->threads[index];
	enum passive_state state = PASSIVE_TORN;

	for (unsigned i = 0; i < TRIES && state == PASSIVE_TORN; i++)
		state = source->read(source, process_thread, &recorder->position);
	if (state == PASSIVE_IDLE)
		return;
	recorder->totals.busy++;
	recorder->last_busy = now;
	if (state == PASSIVE_TORN || !find_attachment(recorder, watch, thread, process_thread) ||
	    !make_frames(recorder, source, thread->attachment, process_thread)) {
		drop(recorder, thread, elapsed);
		return;
	}
	thread->attachment->last_seen = now;
	charge(recorder, source, thread, elapsed);
}

/* ---- Processes ---- */

static void end_watch(struct recorder *recorder, struct recorder_watch *watch,
		      enum log_session_end how)
{
	struct watched_attachment *attachment = recorder->attachments, *next;

	for (; attachment; attachment = next) {
		next = attachment->next;
		if (attachment->watch == watch)
			end_attachment(recorder, attachment, how);
	}
	for (struct recorder_watch **link = &recorder->watches; *link; link = &(*link)->next) {
		if (*link == watch) {
			*link = watch->next;
			break;
		}
	}
	watch->source->watch = NULL;
	free(watch->threads);
	free(watch);
}

/* What is known of a thread stays with it. */
static const struct watched_thread *find_thread(const struct recorder_watch *watch, pid_t id)
{
	for (uint32_t i = 0; i < watch->count; i++) {
		if (watch->threads[i].id == id)
			return &watch->threads[i];
	}
	return NULL;
}

/* False: the process has ended, or memory is out; nobody looks at it any more. */
static bool update(struct recorder_watch *watch)
{
	struct recorder_source *source = watch->source;
	struct watched_thread *threads;

	if (!source->update(source))
		return false;
	threads = calloc(source->count + 1, sizeof(*threads));
	if (!threads)
		return false;
	for (uint32_t i = 0; i < source->count; i++) {
		const struct watched_thread *known = find_thread(watch, source->threads[i].id);

		if (known)
			threads[i] = *known;
		threads[i].id = source->threads[i].id;
	}
	free(watch->threads);
	watch->threads = threads;
	watch->count = source->count;
	return true;
}

static void look_at_process(struct recorder *recorder, struct recorder_watch *watch, uint64_t now,
			    uint64_t elapsed)
{
	if (now - watch->updated >= UPDATE_INTERVAL) {
		watch->updated = now;
		if (!update(watch)) {
			watch->source->ended = true;
			end_watch(recorder, watch, LOG_END_DISPOSED);
			return;
		}
	}
	for (uint32_t i = 0; i < watch->count; i++) {
		if (watch->source->threads[i].tls)
			look_at(recorder, watch, i, now, elapsed);
	}
}

/* ---- The recorder ---- */

uint64_t recorder_look(struct recorder *recorder, uint64_t now)
{
	uint64_t elapsed = recorder->last && now > recorder->last ? now - recorder->last : 0;
	uint64_t interval = recorder->options.interval;
	struct recorder_watch *watch = recorder->watches, *next;

	recorder->totals.busy = 0;
	for (; watch; watch = next) {
		next = watch->next;
		look_at_process(recorder, watch, now, elapsed);
	}
	recorder->busy_before = recorder->totals.busy ? recorder->totals.busy : 1;
	recorder->totals.looks++;
	recorder->last = now;
	pace_keep(&recorder->pace, now);
	if (now - recorder->last_busy > IDLE_AFTER && interval < IDLE_INTERVAL)
		interval = IDLE_INTERVAL;
	pace_next(&recorder->pace, pace_interval(&recorder->pace, interval), now,
		  &recorder->deadline);
	return recorder->deadline;
}

bool recorder_add(struct recorder *recorder, struct recorder_source *source)
{
	struct recorder_watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return false;
	watch->source = source;
	watch->next = recorder->watches;
	recorder->watches = watch;
	source->watch = watch;
	source->ended = false;
	return true;
}

void recorder_remove(struct recorder *recorder, struct recorder_source *source)
{
	if (source->watch)
		end_watch(recorder, source->watch, LOG_END_FINISHED);
}

struct recorder *recorder_new(const struct recorder_options *options, char *error,
			      size_t error_size)
{
	struct recorder *recorder = calloc(1, sizeof(*recorder));
	struct log *log = log_get();
	struct timespec time;

	if (!recorder) {
		snprintf(error, error_size, "out of memory: free some");
		return NULL;
	}
	if (!log_acquire(log, &options->log, error, error_size)) {
		free(recorder);
		return NULL;
	}
	recorder->options = *options;
	passive_log_init(&recorder->log, log);
	recorder->log.sql_text = options->sql_text;
	recorder->log.interval = options->interval;
	recorder->log.in_process = options->in_process;
	recorder->busy_before = 1;
	clock_gettime(CLOCK_MONOTONIC, &time);
	pace_init(&recorder->pace, (uint64_t)time.tv_nsec, options->share, SAMPLER_INTERVAL_MAX);
	return recorder;
}

void recorder_free(struct recorder *recorder)
{
	while (recorder->watches)
		end_watch(recorder, recorder->watches, LOG_END_FINISHED);
	passive_log_close(&recorder->log);
	log_release(recorder->log.log);
	free(recorder);
}

const struct recorder_totals *recorder_totals(const struct recorder *recorder)
{
	return &recorder->totals;
}

const char *recorder_path(const struct recorder *recorder)
{
	return log_path(recorder->log.log);
}
