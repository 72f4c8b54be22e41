/*
 * A table of text for people: columns are as wide as their widest cell, the last one is cut off where
 * the terminal ends.  One thread at a time.
 */
#ifndef FBPROF_TABLE_H
#define FBPROF_TABLE_H

#include "sink.h"

struct table;

struct table_column {
	const char *title;
	gboolean right; /* align to the right */
};

/* `columns` must outlive the table. */
struct table *table_new(const struct table_column *columns, unsigned count);
void table_free(struct table *table);

/*
 * Adds the next cell of the row, or the first one of another row.  Takes `text`, one line without
 * control characters.  `color` is a constant SGR parameter such as "31", or NULL.
 */
void table_add(struct table *table, char *text, const char *color);

/* `width` 0: nothing is cut off. */
void table_print(const struct table *table, struct sink *sink, unsigned width);

#endif
