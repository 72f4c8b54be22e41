/*
 * The profiler's tables, as stock Firebird names and orders their columns, with what fbprof knows
 * besides after them.  One thread at a time.
 */
#ifndef FBPROF_PROF_TABLES_H
#define FBPROF_PROF_TABLES_H

#include "csv.h"
#include "model.h"

struct prof_table {
	const char *name; /* as in PLG$PROF_*, in lower case */
	const char *const *columns;
	void (*write_rows)(struct csv *csv, const struct model_session *session);
};

#define PROF_TABLE_COUNT 7
#define PROF_TABLE_NAMES \
	"sessions, statements, cursors, record_sources, requests, psql_stats, record_source_stats"
extern const struct prof_table prof_tables[PROF_TABLE_COUNT];

/* NULL if there is no table of that name. */
const struct prof_table *prof_table_find(const char *name);

/* Writes header and rows, ordered by the table's primary key. */
void prof_table_write(const struct prof_table *table, const struct model *model, struct sink *sink);

#endif
