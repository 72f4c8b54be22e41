/*
 * See recorder.h.
 *
 * What was read out of another program's memory is believed only if it was there twice: a position is
 * checked by whoever reads it (position.h), which statements it speaks of is in known_statements.h, and
 * who an attachment is, is believed if the thread still works for it afterwards.
 */
#include "recorder.h"
#include "../sampler/pace.h"
#include "../sampler/sampler.h"
#include "known_statements.h"
#include "owed_time.h"
#include "passive_log.h"
#include "plan_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_SECOND 1000000000u

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

/* An attachment that was seen at work. */
struct watched_attachment {
	uint64_t address, id;
	struct passive_session *session;
	struct known_statements known;
	struct plan_memory *plans; /* NULL: nothing was seen yet */
	uint64_t last_seen;
	struct recorder_watch *watch;
	struct watched_attachment *next;
};

struct watched_thread {
	pid_t id;
	struct watched_attachment *attachment; /* that it worked for last; NULL: none */
	uint64_t cpu_charged;		       /* of its CPU clock; 0: never read */
	uint64_t cpu_busy;		       /* ns charged since */
	uint64_t plan_due;		       /* when its record sources are to be looked at */
	uint64_t held;			       /* ns that it stood still for the look before */
	struct owed_time owed;
};

/* A process. */
struct recorder_watch {
	struct recorder_source *source;
	uint64_t updated, last;		/* look; 0: none yet */
	struct watched_thread *threads; /* as the source's */
	uint32_t count;
	struct recorder_watch *next;
};

struct recorder {
	struct recorder_options options;
	struct recorder_totals totals;
	struct passive_log log;
	struct pace pace;
	uint64_t last_busy, deadline;
	uint32_t busy_before;
	struct recorder_watch *watches;
	struct watched_attachment *attachments;
	uint32_t attachment_count;

	/* What is being looked at. */
	struct passive_position position, again; /* and what it is when it is read once more */
	struct position frames, full;		 /* of its requests; with its record sources */
	struct logged_statement *statements[PASSIVE_DEPTH]; /* of its requests */
	struct plan_chain chain;
	struct text_room room;
	char user[256], database[4096];
};

/* A thread that is being looked at. */
struct look {
	struct recorder *recorder;
	struct recorder_watch *watch;
	struct recorder_source *source;
	const struct process_thread *process_thread;
	struct watched_thread *thread;
	uint64_t now, elapsed;
	struct passive_head first; /* that was seen; the time is its */
	bool with_plan;		   /* record sources are to be read for the position */
};

/* Of `requests` only what is in use. */
static void copy_position(struct passive_position *to, const struct passive_position *from)
{
	memcpy(to, from,
	       offsetof(struct passive_position, requests) + from->count * sizeof(*from->requests));
}

/* Reads the position once more, into `again`. */
static bool read_again(const struct look *look)
{
	return look->source->read(look->source, look->process_thread, &look->recorder->again) ==
	       PASSIVE_BUSY;
}

/* ---- Attachments ---- */

static void end_attachment(struct recorder *recorder, struct watched_attachment *attachment,
			   enum log_session_end how)
{
	struct recorder_watch *watch = attachment->watch;
	struct watched_attachment **link = &recorder->attachments;

	passive_session_end(attachment->session, how);
	for (uint32_t i = 0; i < watch->count; i++) {
		if (watch->threads[i].attachment == attachment)
			watch->threads[i].attachment = NULL;
	}
	while (*link != attachment)
		link = &(*link)->next;
	*link = attachment->next;
	recorder->attachment_count--;
	known_statements_free(&attachment->known);
	plan_memory_free(attachment->plans);
	free(attachment);
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

static struct watched_attachment *new_attachment(const struct look *look)
{
	struct recorder *recorder = look->recorder;
	const struct passive_position *position = &look->recorder->position;
	const struct passive_attachment what = { position->attachment_id, recorder->user,
						 recorder->database, look->source->engine };
	struct watched_attachment *attachment = calloc(1, sizeof(*attachment));

	if (attachment)
		attachment->session = passive_session_start(&recorder->log, &what);
	if (!attachment || !attachment->session ||
	    !known_statements_init(&attachment->known, look->source, attachment->session,
				   &recorder->room)) {
		if (attachment && attachment->session)
			passive_session_end(attachment->session, LOG_END_DISPOSED);
		free(attachment);
		recorder->totals.stopped = true;
		return NULL;
	}
	attachment->address = position->attachment;
	attachment->id = position->attachment_id;
	attachment->watch = look->watch;
	attachment->next = recorder->attachments;
	recorder->attachments = attachment;
	recorder->attachment_count++;
	recorder->totals.sessions++;
	return attachment;
}

/* The first sight of an attachment.  NULL: it can't be told for certain, or can't be kept. */
static struct watched_attachment *meet_attachment(const struct look *look)
{
	struct recorder *recorder = look->recorder;
	const struct passive_position *position = &look->recorder->position;

	look->source->text(look->source, LAYOUT_USER, position->attachment, recorder->user,
			   sizeof(recorder->user));
	look->source->text(look->source, LAYOUT_DATABASE, position->attachment, recorder->database,
			   sizeof(recorder->database));
	if (!read_again(look) || recorder->again.attachment != position->attachment ||
	    recorder->again.attachment_id != position->attachment_id)
		return NULL;
	if (recorder->attachment_count == SESSIONS_MAX)
		end_longest_idle(recorder);
	return new_attachment(look);
}

static bool is_at(const struct watched_attachment *attachment, const struct look *look)
{
	const struct passive_position *position = &look->recorder->position;

	return attachment->address == position->attachment &&
	       attachment->id == position->attachment_id && attachment->watch == look->watch;
}

/* The attachment that the thread works for becomes the thread's.  False: see meet_attachment(). */
static bool find_attachment(const struct look *look)
{
	struct watched_attachment *attachment = look->thread->attachment;

	if (attachment && is_at(attachment, look))
		return true;
	attachment = look->recorder->attachments;
	while (attachment && !is_at(attachment, look))
		attachment = attachment->next;
	if (look->thread->attachment)
		look->thread->owed = (struct owed_time){ 0 };
	look->thread->attachment = attachment ? attachment : meet_attachment(look);
	return look->thread->attachment != NULL;
}

/* ---- Statements and lines ---- */

/*
 * Finds the statements of the position, which may have to be read again for that.  False: they aren't
 * certain, or can't be kept.
 */
static bool find_statements(struct look *look)
{
	struct recorder *recorder = look->recorder;
	struct known_statements *known = &look->thread->attachment->known;

	for (unsigned i = 0; i < TRIES; i++) {
		if (known_statements_find(known, &recorder->position, recorder->statements))
			return true;
		recorder->totals.stopped |= known->stopped;
		if (known->stopped || !read_again(look) ||
		    recorder->again.attachment != recorder->position.attachment ||
		    recorder->again.attachment_id != recorder->position.attachment_id)
			return false;
		copy_position(&recorder->position, &recorder->again);
		known_statements_position_read(known);
		look->with_plan = false; /* it was of another moment */
	}
	return false;
}

/* Makes frames of the position.  False: it has to be dropped. */
static bool make_frames(struct look *look)
{
	const struct passive_position *position = &look->recorder->position;
	struct passive_session *session = look->thread->attachment->session;

	if (!find_statements(look))
		return false;
	look->recorder->frames.count = position->count;
	for (uint32_t i = 0; i < position->count; i++) {
		const struct passive_request *request = &position->requests[i];
		struct logged_statement *statement = look->recorder->statements[i];
		uint32_t cell = 0;

		if (request->line)
			cell = passive_session_line(session, statement, request->line,
						    request->column);
		if (request->line && !cell) {
			look->recorder->totals.stopped = true;
			return false;
		}
		look->recorder->frames.frames[i] =
			frame_make(FRAME_REQUEST, statement->index, cell);
	}
	return true;
}

/* ---- Record sources ---- */

/* One that is new is known for certain at its second sight: NULL until then. */
static const struct logged_source *find_source(const struct look *look,
					       struct logged_statement *statement,
					       const struct plan_source *source,
					       const struct logged_source *parent)
{
	const struct passive_source what = { source->cursor, source->id, source->type,
					     source->root ? NULL : parent };
	struct logged_source *logged = passive_session_find_source(statement, &what);
	char step[1024];

	if (logged)
		return logged;
	look->source->step(look->source, source, step, sizeof(step));
	logged = passive_session_source(look->thread->attachment->session, statement, &what,
					*step ? step : "Record source");
	if (!logged)
		look->recorder->totals.stopped = true;
	return logged && logged->cell ? logged : NULL;
}

/* Adds the record sources of a request, outermost first.  False: one isn't known for certain. */
static bool add_sources(const struct look *look, uint32_t depth, struct position *full)
{
	const struct plan_chain *chain = &look->recorder->chain;
	struct logged_statement *statement = look->recorder->statements[depth];
	const struct logged_source *logged = NULL;

	for (uint32_t i = chain->count; i-- > 0;) {
		const struct plan_source *source = &chain->sources[i];

		if (source->request != look->recorder->position.requests[depth].request)
			continue;
		logged = find_source(look, statement, source, logged);
		if (!logged || full->count == FRAME_STACK_ROOM)
			return false;
		full->frames[full->count++] =
			frame_make(FRAME_RECORD_SOURCE, statement->index,
				   logged->cell + (source->event == LAYOUT_PLAN_FETCH));
	}
	return true;
}

/* Remembers where in plans the thread is, if that was just read. */
static void note_plan(const struct look *look)
{
	struct recorder *recorder = look->recorder;
	struct watched_attachment *attachment = look->thread->attachment;

	if (!recorder->chain.whole && !recorder->chain.count)
		return;
	recorder->full.count = 0;
	for (uint32_t i = 0; i < recorder->frames.count; i++) {
		if (recorder->full.count == FRAME_STACK_ROOM)
			return;
		recorder->full.frames[recorder->full.count++] = recorder->frames.frames[i];
		if (!add_sources(look, i, &recorder->full))
			return;
	}
	if (!attachment->plans)
		attachment->plans = plan_memory_new();
	if (attachment->plans)
		plan_memory_put(attachment->plans, &recorder->frames, &recorder->full);
}

/* Of many threads at work each is looked at more seldom. */
#define PLAN_THREADS 8

static bool is_plan_due(const struct look *look)
{
	struct recorder *recorder = look->recorder;
	unsigned rate = recorder->options.plan_rate;
	uint64_t interval;

	if (!rate || !look->source->read_plan || look->now < look->thread->plan_due)
		return false;
	interval = NS_PER_SECOND / rate;
	if (recorder->busy_before > PLAN_THREADS)
		interval = interval * recorder->busy_before / PLAN_THREADS;
	look->thread->plan_due = look->now + interval / 2 + pace_random(&recorder->pace, interval);
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
static uint64_t cpu_time(const struct look *look)
{
	struct watched_thread *thread = look->thread;
	uint64_t clock, ran;

	thread->cpu_busy += look->elapsed;
	if (thread->cpu_busy < (uint64_t)CPU_INTERVAL * look->recorder->busy_before)
		return 0;
	clock = look->source->cpu_time(look->source, thread->id);
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

static void charge(const struct look *look)
{
	struct recorder *recorder = look->recorder;
	struct passive_session *session = look->thread->attachment->session;
	const struct sample sample = { .time = look->elapsed, .cpu_time = cpu_time(look) };

	if (!call_tree_charge(session->tree, &recorder->frames, &sample)) {
		recorder->totals.stopped = true;
		return;
	}
	add(&session->totals->wakeups, 1);
	add(&session->totals->stretched, pace_is_stretched(&recorder->pace));
	add(&session->totals->samples, 1);
	add(&session->totals->sampled_time, look->elapsed);
	recorder->totals.samples++;
	recorder->totals.time += look->elapsed;
}

/*
 * A look that told nothing certain.  Its time is owed to what was seen first: where requests are short,
 * looks are often torn, and their share would be lost.  It is counted with the last attachment that was
 * seen, if any.
 */
static void drop(const struct look *look)
{
	struct watched_attachment *attachment = look->thread->attachment;

	look->recorder->totals.torn++;
	owed_time_add(&look->thread->owed, &look->first, look->elapsed, look->now);
	if (!attachment)
		return;
	add(&attachment->session->totals->torn_samples, 1);
	add(&attachment->session->totals->torn_time, look->elapsed);
}

/*
 * What is told may be what came after the head that was seen first: the time of the look isn't its then.
 * False: nothing is to be charged to it.
 */
static bool settle(struct look *look)
{
	const struct passive_position *position = &look->recorder->position;
	const struct passive_request *innermost = &position->requests[position->count - 1];
	const struct passive_head told = { innermost->statement, innermost->line,
					   innermost->column };
	uint64_t owed = owed_time_take(&look->thread->owed, &told, look->now);

	if (!look->first.statement || passive_head_is(&look->first, &told)) {
		look->elapsed += owed;
		return true;
	}
	owed_time_add(&look->thread->owed, &look->first, look->elapsed, look->now);
	look->elapsed = owed;
	return owed > 0;
}

/*
 * Reads the position, and stops the thread for that if its record sources are due: also if the position
 * is torn, for else a thread would be stopped, and its record sources be seen, mostly where it stays longer.
 */
static enum passive_state read_position(struct look *look)
{
	struct recorder_source *source = look->source;
	struct passive_position *position = &look->recorder->position;
	enum passive_state state = PASSIVE_TORN;

	for (unsigned i = 0; i < TRIES && state == PASSIVE_TORN; i++) {
		state = source->read(source, look->process_thread, position);
		if (!look->first.statement)
			look->first = position->first;
	}
	look->with_plan = source->read_stopped && state != PASSIVE_IDLE && is_plan_due(look);
	if (!look->with_plan)
		return state;
	state = source->read_stopped(source, look->process_thread, position, &look->thread->held);
	look->first = position->first;
	return state;
}

/* Where threads aren't stopped the record sources are asked for when the position is certain. */
static void read_plan(struct look *look)
{
	struct recorder *recorder = look->recorder;

	if (!look->source->read_stopped)
		look->with_plan = is_plan_due(look);
	if (!look->with_plan)
		return;
	recorder->chain.awaited = false;
	look->source->read_plan(look->source, look->process_thread, &recorder->position,
				&recorder->chain);
	if (recorder->chain.awaited)
		look->thread->plan_due = 0;
	note_plan(look);
}

/* As read_position(); and then the attachment that the thread works for is known.  False: nothing is. */
static bool read_attachment(struct look *look, enum passive_state *state)
{
	struct watched_attachment *before = look->thread->attachment, *attachment;

	if (before)
		known_statements_begin(&before->known);
	*state = read_position(look);
	if (*state != PASSIVE_BUSY || !find_attachment(look))
		return false;
	attachment = look->thread->attachment;
	if (attachment != before)
		known_statements_begin(&attachment->known);
	known_statements_position_read(&attachment->known);
	return true;
}

/* Time in which the thread stood still for us is nobody's. */
static void leave_out_stop(struct look *look)
{
	struct watched_thread *thread = look->thread;

	look->elapsed -= thread->held < look->elapsed ? thread->held : look->elapsed;
	thread->held = 0;
}

static void look_at(struct look *look)
{
	enum passive_state state;
	bool certain, is_due;

	leave_out_stop(look);
	certain = read_attachment(look, &state);
	if (state == PASSIVE_IDLE && !look->first.statement) {
		look->thread->owed.anybodys = 0;
		return;
	}
	look->recorder->totals.busy++;
	look->recorder->last_busy = look->now;
	if (!certain || !make_frames(look)) {
		drop(look);
		return;
	}
	look->thread->attachment->last_seen = look->now;
	is_due = settle(look);
	read_plan(look);
	if (look->thread->attachment->plans)
		plan_memory_complete(look->thread->attachment->plans, &look->recorder->frames);
	if (is_due)
		charge(look);
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

/* What is known of a thread stays with it; as a rule at its place, or behind that if others have ended. */
static const struct watched_thread *find_thread(const struct recorder_watch *watch, pid_t id,
						uint32_t place)
{
	for (uint32_t i = 0; i < watch->count; i++) {
		const struct watched_thread *thread = &watch->threads[(place + i) % watch->count];

		if (thread->id == id)
			return thread;
	}
	return NULL;
}

/* False: the process has ended, or memory is out; nobody looks at it any more. */
static bool update(struct recorder_watch *watch)
{
	struct recorder_source *source = watch->source;
	struct watched_thread *threads;
	uint32_t place = 0;

	if (!source->update(source))
		return false;
	threads = calloc(source->count + 1, sizeof(*threads));
	if (!threads)
		return false;
	for (uint32_t i = 0; i < source->count; i++) {
		const struct watched_thread *known =
			find_thread(watch, source->threads[i].id, place);

		if (known)
			threads[i] = *known;
		place = known ? (uint32_t)(known - watch->threads) + 1 : place;
		threads[i].id = source->threads[i].id;
	}
	free(watch->threads);
	watch->threads = threads;
	watch->count = source->count;
	return true;
}

static void look_at_process(struct recorder *recorder, struct recorder_watch *watch, uint64_t now)
{
	uint64_t elapsed = watch->last && now > watch->last ? now - watch->last : 0;

	watch->last = now;
	if (!watch->threads || now - watch->updated >= UPDATE_INTERVAL) {
		watch->updated = now;
		if (!update(watch)) {
			watch->source->ended = true;
			end_watch(recorder, watch, LOG_END_DISPOSED);
			return;
		}
	}
	watch->source->begin_look(watch->source);
	for (uint32_t i = 0; i < watch->count; i++) {
		struct look look = {
			.recorder = recorder,
			.watch = watch,
			.source = watch->source,
			.process_thread = &watch->source->threads[i],
			.thread = &watch->threads[i],
			.now = now,
			.elapsed = elapsed,
		};

		if (look.process_thread->tls)
			look_at(&look);
	}
}

/* ---- The recorder ---- */

uint64_t recorder_look(struct recorder *recorder, uint64_t now)
{
	uint64_t interval = recorder->options.interval;
	struct recorder_watch *watch = recorder->watches, *next;

	if (!recorder->last_busy)
		recorder->last_busy = now;
	recorder->totals.busy = 0;
	for (; watch; watch = next) {
		next = watch->next;
		look_at_process(recorder, watch, now);
	}
	recorder->busy_before = recorder->totals.busy ? recorder->totals.busy : 1;
	recorder->totals.looks++;
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
	pace_init(&recorder->pace, passive_clock(), options->share, SAMPLER_INTERVAL_MAX);
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
