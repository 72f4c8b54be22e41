/*
 * What a log says, in arrays that tests can look through.  Made with output/log_reader.h; ends the
 * test if the log can't be read.
 */
#ifndef FBPROF_TESTS_LOG_IMAGE_H
#define FBPROF_TESTS_LOG_IMAGE_H

#include "../output/log_reader.h"

#include <stdint.h>

struct image_text {
	uint32_t id;
	bool whole;
	char *bytes;
	size_t size;
};

struct image_statement {
	uint32_t index, text;
	int64_t id, parent_id;
	char *type, *schema, *package, *routine; /* NULL for NULL */
};

/* A block of counters, or a LOG_REC_REQUEST. */
struct image_execution {
	struct log_execution is; /* its cells are below */
	struct log_cell *cells;
	bool record;
};

struct image_node {
	uint32_t id;
	struct log_node is;
};

#define IMAGE_ARRAY(type, name) \
	struct type *name;      \
	size_t name##_count, name##_room

struct image_session {
	uint32_t number;
	unsigned starts, ends;
	uint64_t end_reason;
	int64_t profile_id, attachment_id, end_time;
	uint64_t flags, interval, mode;
	char *user, *database, *engine, *options, *description;
	struct log_session_totals totals;
	unsigned totals_blocks;
	IMAGE_ARRAY(image_text, texts);
	IMAGE_ARRAY(image_statement, statements);
	IMAGE_ARRAY(log_line, lines);
	IMAGE_ARRAY(log_record_source, sources);
	IMAGE_ARRAY(image_execution, executions);
	IMAGE_ARRAY(image_node, nodes);
	unsigned cursors;
};

struct log_image {
	IMAGE_ARRAY(image_session, sessions);
	uint32_t state;
	struct log_usage usage;
	uint64_t lost; /* the sum of all that was */
};

struct log_image *image_read(const char *path);
void image_free(struct log_image *image);

/* Session number `number`; ends the test if it isn't there. */
struct image_session *image_session(struct log_image *image, uint32_t number);

const struct image_statement *image_statement(const struct image_session *session, int64_t id);
const struct image_text *image_text(const struct image_session *session, uint32_t id);
const struct image_node *image_node(const struct image_session *session, uint32_t id);

enum count_kind {
	COUNT_FINISHED,
	COUNT_UNSAMPLED, /* not a number, but ns, as the next */
	COUNT_ELAPSED,
	COUNT_LINE,
	COUNT_OPEN,
	COUNT_FETCH
};

/* How often something happened, in terms of the engine's ids. */
struct count {
	int64_t statement;
	int64_t request;	/* 0: all of the statement's */
	uint32_t kind;		/* enum count_kind */
	uint32_t first, second; /* line and column, or cursor and record source */
	uint64_t value;
};

/* Sorted, none is 0, equal keys added up; without the times of lines and record sources.  To be freed. */
struct count *image_counts(const struct image_session *session, size_t *number);
int count_compare(const void *a, const void *b); /* the keys, for qsort */
size_t counts_sum_up(struct count *counts, size_t number);

/*
 * The path of a node, as text: "statement id:line" for requests and "cursor.id" for record sources,
 * with "o" or "f" before, from the outermost, separated by spaces.  A request in no line: "id".  Of
 * long paths only the innermost IMAGE_PATH_NODES, after "...".
 */
#define IMAGE_PATH_NODES 40u
void image_path(const struct image_session *session, const struct image_node *node, char *text,
		size_t size);

#endif
