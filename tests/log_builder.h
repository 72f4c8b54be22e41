/*
 * Builds small logs for tests, byte by byte as FORMAT.md says and without any code of the writer: if
 * both agree with the reader, the description is right.  Nothing is checked, so that bad logs can be
 * built as well.  One thread.
 */
#ifndef FBPROF_LOG_BUILDER_H
#define FBPROF_LOG_BUILDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../output/log_format.h"

#define LOG_BUILDER_PARTS 64

/* A record or block: what a reader must find if the file reaches up to `end`. */
struct log_builder_part {
	bool block;
	uint32_t kind; /* enum log_record_type or enum log_block_kind */
	size_t end;
};

struct log_builder {
	uint8_t *bytes;
	size_t size;
	uint32_t chunk_kind;				  /* of the last chunk */
	struct log_builder_part parts[LOG_BUILDER_PARTS]; /* the first ones, in file order */
	unsigned part_count;
};

/* The bytes of a record's payload. */
struct log_payload {
	uint8_t bytes[LOG_RECORD_MAX];
	size_t size;
};

/* A closed log of version 2 without chunks. */
void log_builder_init(struct log_builder *builder);
void log_builder_clear(struct log_builder *builder);

/* Makes checksums right again after somebody changed the header's or the last chunk's bytes. */
void log_builder_seal_header(struct log_builder *builder);

void log_builder_set_state(struct log_builder *builder, enum log_state state);

/* A file in memory with the first `size` bytes. */
int log_builder_file(const struct log_builder *builder, size_t size);

/* Records and blocks go to the last chunk.  A new one is begun if they do not fit it, or by hand. */
void log_builder_chunk(struct log_builder *builder, uint32_t kind);

void log_payload_varint(struct log_payload *payload, uint64_t value);
void log_payload_i64(struct log_payload *payload, int64_t value);
void log_payload_bytes(struct log_payload *payload, const void *bytes, size_t size);
void log_payload_string(struct log_payload *payload, const char *string);
void log_payload_nullable(struct log_payload *payload, const char *string);

void log_builder_record(struct log_builder *builder, uint32_t type,
			const struct log_payload *payload);

void log_builder_session(struct log_builder *builder, uint32_t session);
void log_builder_session_start(struct log_builder *builder, int64_t profile_id, uint64_t flags,
			       const char *description);
/* The same in another mode than LOG_MODE_SAMPLED, which may be one that is not known. */
void log_builder_session_of_mode(struct log_builder *builder, int64_t profile_id, uint64_t flags,
				 uint64_t mode, const char *description);
void log_builder_session_end(struct log_builder *builder, uint64_t reason, int64_t time);
void log_builder_text(struct log_builder *builder, uint32_t id, uint64_t to_come, const char *part);
void log_builder_statement(struct log_builder *builder, uint32_t index, int64_t id,
			   const char *type, const char *package, const char *routine,
			   uint32_t text);
void log_builder_cursor(struct log_builder *builder, uint32_t statement, uint32_t id,
			const char *name, uint32_t line, uint32_t column);
void log_builder_record_source(struct log_builder *builder, uint32_t statement, uint32_t cursor,
			       uint32_t id, uint32_t parent, uint32_t cell, uint32_t text);
void log_builder_line(struct log_builder *builder, uint32_t statement, uint32_t line,
		      uint32_t column, uint32_t cell);

/* A cell's number and its value. */
struct log_builder_cell {
	uint32_t cell;
	uint64_t value;
};

/* An execution, as a record or as one counter block for the cells from `first` on. */
struct log_builder_execution {
	uint64_t serial;
	uint32_t statement;
	uint64_t request_id, caller_statement_id, caller_request_id;
	int64_t start;
	uint64_t duration;		   /* in records only */
	uint64_t flags;			   /* likewise */
	uint32_t first;			   /* in blocks only */
	struct log_builder_cell cells[32]; /* by rising number; value 0 ends them */
};

void log_builder_request(struct log_builder *builder,
			 const struct log_builder_execution *execution);
void log_builder_counters(struct log_builder *builder, uint32_t session,
			  const struct log_builder_execution *execution);

/* Adds a group of cells, of which 0 is left out, behind those that the execution has. */
void log_builder_group(struct log_builder_execution *execution, uint32_t cell,
		       const uint64_t values[LOG_GROUP_CELLS]);

/* A block of any content. */
void log_builder_block(struct log_builder *builder, const struct log_block *block);

struct log_builder_node {
	uint32_t parent, statement;
	enum log_node_kind kind;
	uint32_t cell, serial;
	uint64_t self_time, samples, cost, cpu_time;
};

/* At most 10, with ids from `first` on. */
void log_builder_nodes(struct log_builder *builder, uint32_t session, uint32_t first,
		       const struct log_builder_node *nodes, uint32_t count);
/* With 3 torn samples, 1 stretched, 1 us of cost: 2.5, 0, 3 and 0.1 ns an event. */
void log_builder_totals(struct log_builder *builder, uint32_t session, uint64_t samples,
			uint64_t sampled_time);

#endif
