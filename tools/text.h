/*
 * Text for people: times with their units, moments, and strings from a log made safe for a terminal.
 * No state; any thread.  All strings are UTF-8; those that are returned are the caller's to free.
 */
#ifndef FBPROF_TEXT_H
#define FBPROF_TEXT_H

#include <glib.h>
#include <stdint.h>

/* One unit and number of decimals for a whole column, so that its points line up. */
struct text_unit {
	const char *name;
	double nanoseconds;
	int decimals;
};

/* The unit for a column in which `largest` is the largest time. */
struct text_unit text_unit_for(uint64_t largest);

char *text_time(uint64_t nanoseconds, struct text_unit unit);

/* A lone time, in the unit that suits it. */
char *text_lone_time(uint64_t nanoseconds);

char *text_size(uint64_t bytes);

/* ISO 8601 in UTC with four digits of the second, which is as fine as Firebird's timestamps. */
char *text_moment(int64_t nanoseconds);

/*
 * Makes one harmless line of a string from strangers: runs of white space become one space, and
 * control and invisible format characters become \u escapes.
 */
char *text_line(const char *text);

/* Columns that a terminal takes for the text, which has no control characters. */
unsigned text_width(const char *text);

/* Cuts the text down to `width` columns, the last one for an ellipsis. */
void text_truncate(GString *text, unsigned width);

#endif
