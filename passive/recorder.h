/*
 * The recorder of passive mode: looks again and again where each thread of some processes is, and
 * charges the time since the last look to that position.  What it finds goes to the log, a session for
 * each attachment.
 *
 * A recorder belongs to one thread, which calls it when the next look is due: a thread of its own in a
 * server, the main thread of `fbprof record`.  libc only.  Times are in ns.
 */
#ifndef FBPROF_RECORDER_H
#define FBPROF_RECORDER_H

#include "../output/log_writer.h"
#include "../output/sql_text.h"
#include "plan.h"
#include "position.h"

/* The mean interval between looks, in ns, unless the user wants another one. */
#define RECORDER_INTERVAL_DEFAULT 1000000u

/* So often a second the record sources of a thread are looked at, unless the user wants otherwise; 0: never. */
#define RECORDER_PLAN_RATE_DEFAULT 100
#define RECORDER_PLAN_RATE_MAX	   1000

/*
 * A process to be recorded, as the recorder sees it; process_source.h is the real one.  Belongs to the
 * caller, and is used until recorder_remove() or recorder_free().
 */
struct recorder_source {
	/* Reads the list of threads anew.  False: the process has ended. */
	bool (*update)(struct recorder_source *source);

	/* Before all threads are looked at, one after another. */
	void (*begin_look)(struct recorder_source *source);

	/* As passive_read() and passive_text(). */
	enum passive_state (*read)(struct recorder_source *source,
				   const struct process_thread *thread,
				   struct passive_position *position);
	void (*text)(struct recorder_source *source, enum layout_fact fact, uint64_t object,
		     char *text, size_t size);

	/*
	 * As read(), while the thread stands still, some 50 us, `held` ns of them for us, and its stack is copied.  NULL:
	 * threads aren't stopped.
	 */
	enum passive_state (*read_stopped)(struct recorder_source *source,
					   const struct process_thread *thread,
					   struct passive_position *position, uint64_t *held);
	/*
	 * The record sources that the thread had active at a position that was just read, out of that copy, or else
	 * sampled (stack_events.h): an empty chain that isn't whole, if they can't be told.  NULL where they aren't.
	 */
	void (*read_plan)(struct recorder_source *source, const struct process_thread *thread,
			  const struct passive_position *position, struct plan_chain *chain);
	/* A record source's step of the plan, as plan_describe(). */
	void (*step)(struct recorder_source *source, const struct plan_source *what, char *text,
		     size_t size);

	/*
	 * Whether a statement's texts are what they were, in one system call.  `witness` is NULL at
	 * first: then it is made, for whatever is there now, and the answer is no.  free() frees it.
	 */
	bool (*is_same)(struct recorder_source *source, uint64_t statement, void **witness);

	uint64_t (*clock)(void); /* ns of CLOCK_MONOTONIC */

	/* CPU time that a thread has used so far; 0: unknown.  May be some ms late. */
	uint64_t (*cpu_time)(struct recorder_source *source, pid_t thread);

	const struct process_thread *threads; /* as of the last update() */
	uint32_t count;
	const char *engine; /* its version, for people */

	bool ended; /* the recorder's: it has let go of the source */
	struct recorder_watch *watch;
};

struct recorder_options {
	struct log_options log;
	uint64_t interval;  /* the mean; SAMPLER_INTERVAL_MIN to _MAX */
	unsigned plan_rate; /* looks at a thread's record sources, a second, on average; 0: none */
	unsigned share;	    /* percent of a CPU that the thread may use for looks */
	enum sql_text sql_text;
	bool in_process; /* the recorder is a thread of the process that it records */
};

/* Sums since the start. */
struct recorder_totals {
	uint64_t looks;	   /* at all threads each */
	uint64_t samples;  /* charged */
	uint64_t torn;	   /* looks at a position that changed while it was read */
	uint64_t time;	   /* charged */
	uint32_t sessions; /* begun */
	uint32_t busy;	   /* threads that were at work at the last look */
	bool stopped;	   /* the log is full (log_writer.h): nothing is recorded any more */
};

struct recorder;

/* NULL, with a sentence in `error` that says what to do, if the log can't be opened. */
struct recorder *recorder_new(const struct recorder_options *options, char *error,
			      size_t error_size);

/* Ends all sessions and lets go of the log. */
void recorder_free(struct recorder *recorder);

/* False: out of memory. */
bool recorder_add(struct recorder *recorder, struct recorder_source *source);
void recorder_remove(struct recorder *recorder, struct recorder_source *source);

/*
 * Looks at all threads, at `now`, which is a time of CLOCK_MONOTONIC.  Returns when the next look is
 * due.
 */
uint64_t recorder_look(struct recorder *recorder, uint64_t now);

const struct recorder_totals *recorder_totals(const struct recorder *recorder);

/* Of the log's file. */
const char *recorder_path(const struct recorder *recorder);

#endif
