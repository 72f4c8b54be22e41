/*
 * Logs in memory, as every command wants them: sessions with their statements, cursors, record
 * sources, lines, requests with counters, and the call tree with its times.
 *
 * A model is built once from one or several logs and does not change afterwards.  What a log has no
 * definition for is counted in `lost` and left out.  Strings are valid UTF-8 without NULs, and belong
 * to the model, as does everything else.  One thread at a time.
 */
#ifndef FBPROF_MODEL_H
#define FBPROF_MODEL_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#include "../output/log_reader.h"

/* Goes on where enum log_loss ends. */
enum model_loss {
	MODEL_LOSS_SESSIONS = LOG_LOSSES, /* sessions whose start is missing */
	MODEL_LOSS_MODES,		  /* sessions of an unknown mode */
	MODEL_LOSS_COUNTS,		  /* counters of something undefined */
	MODEL_LOSS_NODES,		  /* call tree nodes of something undefined */
	MODEL_LOSS_CALLERS,		  /* call tree nodes whose parent is missing */
	MODEL_LOSS_REQUESTS,		  /* call tree nodes of requests that have no row */
	MODEL_LOSS_TEXTS,		  /* texts whose end is missing, or all of them */
	MODEL_LOSSES
};

/* Without the count, which comes before it. */
const char *model_loss_text(unsigned loss);

/* One file. */
struct model_log {
	char *path;
	const char *name;    /* the path's last component */
	const char *program; /* this and the next three: NULL if the log doesn't say */
	const char *host;
	const char *fbprof;
	const char *clock;
	uint32_t pid;
	int64_t start_time;
	enum log_state state;
	enum log_liveness liveness;
	struct log_usage usage;
	GPtrArray *notices; /* char *: what the recorder had to say */
	uint64_t lost[MODEL_LOSSES];
};

/*
 * Times are in ns and without cost, which is what profiling itself took; CPU time is what the thread
 * ran of time and cost together.  Where a log doesn't know something it is 0.
 */
struct model_time {
	uint64_t self_time; /* here and in nothing further inside that is counted */
	uint64_t
		total_time; /* with all inside; of recursive calls the outermost if sampled, else all */
	uint64_t samples;			/* of the self time; sampled only */
	uint64_t self_cost, total_cost;		/* not if measured */
	uint64_t self_cpu_time, total_cpu_time; /* likewise */
	uint64_t min_time, max_time;		/* of one count, if there is any; measured only */
};

/* The sums; minimum and maximum stay as they are. */
void model_time_add(struct model_time *to, const struct model_time *from);

/*
 * What the thread waited of a time.  CPU time is sampled more seldom than the time and may exceed it;
 * and cost is all CPU time.
 */
static inline uint64_t model_wait(uint64_t time, uint64_t cost, uint64_t cpu_time)
{
	uint64_t waited = time + cost > cpu_time ? time + cost - cpu_time : 0;

	return MIN(waited, time);
}

struct model_session;

enum model_session_end {
	MODEL_RUNNING, /* the process is still recording */
	MODEL_KILLED,  /* the process ended, or the log was copied, before the session did */
	MODEL_FINISHED,
	MODEL_CANCELLED,
	MODEL_DETACHED,
	MODEL_STOPPED, /* recording stopped for want of space */
	MODEL_END_LOST
};

/* "finished" and so on. */
const char *model_session_end_name(enum model_session_end end);

/* "sampled", "coarse", "measured" or "passive". */
const char *model_session_mode(const struct model_session *session);

/* Whether its times were sampled: they are in the call tree. */
bool model_is_sampled(const struct model_session *session);

/* Whether it counts what is executed.  If not, all counts are 0 and mean nothing. */
bool model_has_counts(const struct model_session *session);

struct model_session {
	struct model_log *log;
	int64_t profile_id; /* unique in the model */
	int64_t attachment_id;
	int64_t start_time; /* ns since 1970 UTC, as are all moments here */
	int64_t end_time;   /* only if the log has it: MODEL_FINISHED and the next ones */
	enum model_session_end end;
	enum log_mode mode;
	bool has_cpu_time;
	bool detailed;
	bool preloaded;
	uint64_t sampling_interval; /* ns */
	const char *user, *database, *engine, *options;
	const char *description; /* NULL: none */
	struct log_session_totals totals;
	uint64_t sampled_time; /* sum of the self times of `nodes` */

	/* Structs below, in the order of the tables' primary keys. */
	GPtrArray *statements;
	GPtrArray *cursors;
	GPtrArray *record_sources;
	struct model_request *requests;
	uint32_t request_count;

	GHashTable *cells;	    /* set of struct model_cell, by statement and number */
	struct model_count *counts; /* of all requests, in their order */
	uint64_t count_count;
	struct model_time *times; /* of the counts that have any */
	uint32_t time_count;
	struct model_node
		*nodes; /* by rising id: a parent before its children; none if not sampled */
	uint32_t node_count;
};

struct model_statement {
	struct model_session *session;
	uint32_t number; /* in the order of definition, from 0 */
	int64_t id;
	int64_t parent_id; /* 0: none */
	const char *type;
	const char *schema, *package, *routine, *sql_text; /* NULL: none */
};

struct model_cursor {
	struct model_statement *statement;
	uint32_t id;
	const char *name;      /* NULL: none */
	uint32_t line, column; /* 0: none */
};

struct model_record_source {
	struct model_statement *statement;
	uint32_t cursor_id, id;
	uint32_t parent_id; /* 0: none */
	uint32_t level;
	const char *access_path; /* "" if it was lost */
};

enum model_cell_kind {
	MODEL_CELL_REQUEST,   /* the request itself: counts finished executions */
	MODEL_CELL_UNSAMPLED, /* ns of executions that the sampler could not see */
	MODEL_CELL_LINE,
	MODEL_CELL_OPEN,
	MODEL_CELL_FETCH
};

/* What is counted and timed.  Of a group of cells it is the first one, the counter. */
struct model_cell {
	struct model_statement *statement;
	uint32_t number;
	enum model_cell_kind kind;
	uint32_t line, column;			   /* MODEL_CELL_LINE */
	struct model_record_source *record_source; /* MODEL_CELL_OPEN, MODEL_CELL_FETCH */
};

/*
 * One counter of one request.  With DETAILED_REQUESTS there are many millions of them, and few were
 * ever sampled, hence numbers instead of pointers and times.
 */
struct model_count {
	uint32_t cell; /* see model_find_cell() */
	uint32_t time; /* index in the session's times; the first one is zero */
	uint64_t value;
};

/* A row of PLG$PROF_REQUESTS: an execution, or all executions of a statement (id 0). */
struct model_request {
	struct model_statement *statement;
	int64_t id;
	int64_t caller_statement_id, caller_id; /* 0: none */
	int64_t start_time;
	int64_t finish_time;  /* 0: unknown */
	uint64_t first_count; /* in the session's counts: that of MODEL_CELL_REQUEST */
	uint32_t count_count; /* by rising cell number */
	uint32_t serial;      /* within model_load.c */
};

#define MODEL_NO_NODE UINT32_MAX

/* A node of the call tree.  Nodes name each other by their index in the session's array. */
struct model_node {
	uint32_t id;
	uint32_t parent, first_child, next_sibling;
	const struct model_cell *cell;
	struct model_request *request; /* the row that its time belongs to; NULL: lost */
	uint64_t self_time, total_time, samples;
	uint64_t self_cost, total_cost, self_cpu_time, total_cpu_time;
};

struct model {
	GPtrArray *logs;	  /* struct model_log */
	GPtrArray *sessions;	  /* struct model_session, by profile_id */
	unsigned cancelled_count; /* sessions left out because they were cancelled */
	GStringChunk *strings;
};

/* For model_load.c; data may be NULL. */
struct model_session *model_session_new(struct model_log *log);
void model_session_free(void *data);
void model_session_sort(struct model_session *session);
int model_compare_counts(const void *left, const void *right);
#define MODEL_ORDER(a, b) (((a) > (b)) - ((a) < (b)))

struct model *model_new(void);
void model_free(struct model *model);

/*
 * Reads a log into the model.  False upon failure: then `error` says what, and what to do, without
 * the path.  Cancelled sessions are left out unless `with_cancelled`.
 */
bool model_add_log(struct model *model, const char *path, bool with_cancelled,
		   char error[LOG_ERROR_SIZE]);

/* The same for an open log, which stays the caller's.  False: out of memory. */
bool model_add_reader(struct model *model, struct log_reader *reader, const char *path,
		      bool with_cancelled);

/*
 * Orders the sessions and makes their profile_ids unique: `moved` (may be NULL) is called for each
 * that gets the next free one, with the number that it had.
 */
void model_order_sessions(struct model *model,
			  void (*moved)(const struct model_session *session, int64_t old_id));

/* NULL: undefined. */
struct model_cell *model_find_cell(const struct model_statement *statement, uint32_t number);
const struct model_statement *model_find_statement(const struct model_session *session, int64_t id);
const struct model_cursor *model_find_cursor(const struct model_record_source *source);

/* The root of the plan that a record source is in, or of what is known of it. */
const struct model_record_source *model_find_root(const struct model_record_source *source);

/* The counts of a request, request->count_count of them. */
const struct model_count *model_request_counts(const struct model_request *request);

/* The count of one of its cells, or NULL. */
struct model_count *model_request_count(const struct model_request *request, uint32_t cell);

const struct model_time *model_count_time(const struct model_request *request,
					  const struct model_count *count);

/*
 * With all that it called, and what could not be sampled.  Not sampled: as the engine told it of
 * finished executions, but at least its lines' total times, or if it has none, those of its largest
 * root record source, since others may be sub-queries inside that.
 */
uint64_t model_request_total_time(const struct model_request *request);

/* Of the time whose CPU time is known: not sampled, what its lines or its root waited. */
uint64_t model_request_wait_time(const struct model_request *request);

/* Walks the call tree: `enter` is called before a node's children, `leave` (may be NULL) after. */
void model_walk(const struct model_session *session, void (*enter)(uint32_t node, void *data),
		void (*leave)(uint32_t node, void *data), void *data);

#define MODEL_NO_GROUP UINT32_MAX

/*
 * Sums the times of a session's nodes by group, into `times`, which has `group_count` elements:
 * `groups` gives the group of each node, or MODEL_NO_GROUP.  The total time of a group is that of its
 * nodes that are below no other of them.
 */
void model_sum_times(const struct model_session *session, const uint32_t *groups,
		     uint32_t group_count, struct model_time *times);

#endif
