/*
 * CSV as RFC 4180 has it: UTF-8, lines end in CR LF, NULL is an empty field, an empty string is "".
 * One thread at a time.
 */
#ifndef FBPROF_CSV_H
#define FBPROF_CSV_H

#include <stdint.h>

#include "sink.h"

struct csv {
	struct sink *sink;
	unsigned column;  /* of the next field */
	unsigned columns; /* that the header has */
};

/* Writes the names of the columns; NULL ends them. */
void csv_begin(struct csv *csv, struct sink *sink, const char *const *columns);

/* One field each. */
void csv_null(struct csv *csv);
void csv_text(struct csv *csv, const char *text); /* NULL is allowed */
void csv_signed(struct csv *csv, int64_t value);
void csv_unsigned(struct csv *csv, uint64_t value);
void csv_id(struct csv *csv, int64_t value);	       /* 0 is NULL */
void csv_moment(struct csv *csv, int64_t nanoseconds); /* 0 is NULL */

/* Ends the row, which must be complete. */
void csv_end_row(struct csv *csv);

#endif
