/*
 * The rows of `fbprof report`: where the time went, summed over sessions by what things are
 * called, so that the same routine or SQL text is the same row everywhere.  One thread.
 */
#ifndef FBPROF_REPORT_ROWS_H
#define FBPROF_REPORT_ROWS_H

#include "model.h"

/* Of what there are rows besides requests; flags. */
enum report_by {
	REPORT_BY_STATEMENT = 0,
	REPORT_BY_LINE = 1,
	REPORT_BY_RECORD_SOURCE = 2,
	REPORT_BY_ALL = REPORT_BY_LINE | REPORT_BY_RECORD_SOURCE
};

struct report_row {
	struct model_time time;
	uint64_t blind_time;   /* of the self time: its CPU time is not known */
	uint64_t count;	       /* lines executed, records fetched, or requests finished */
	bool counted;	       /* in some session; else `count` means nothing */
	uint32_t line, column; /* 0: none; of a record source, its cursor's */
	char *where;	       /* one harmless line */

	/* Within report_rows.c: the session added last and the row's group in it. */
	const struct model_session *session;
	uint32_t group;
};

struct report_rows {
	enum report_by by;
	GPtrArray *rows;    /* struct report_row */
	uint64_t self_time; /* sums over all rows */
	uint64_t samples;
	uint64_t sampled_time, coarse_time, measured_time; /* the self time by mode */
	bool has_cpu_time;				   /* of any session */
	/* In total times of requests, but in no self time. */
	uint64_t unsampled_time; /* sampled: of what raised no event */
	uint64_t outside_time;	 /* others: outside of lines and record sources, at most so much */

	/* Within report_rows.c: identities of rows, and of statements with a number each. */
	GHashTable *by_identity;
	GHashTable *names;
};

void report_rows_init(struct report_rows *rows, enum report_by by);
void report_rows_clear(struct report_rows *rows);

/*
 * Adds a session.  The self time of what has no row of its own goes to the nearest row around it in
 * the same request, at the latest the request's.  If sampled, self times add up to the sampled time.
 * If not, only the request is known to be around, and its own self time counts only where it can't
 * have that of another row in it: in a statement with lines, which have all that it calls.
 */
void report_rows_add(struct report_rows *rows, const struct model_session *session);

/* What was waited of a row's self time.  False: its CPU time is not known. */
bool report_row_wait(const struct report_row *row, uint64_t *wait);

#endif
