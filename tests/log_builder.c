/*
 * Builds small logs for tests: see log_builder.h.  Offsets are written out on purpose.
 */
#include "log_builder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HEADER_SIZE	  4096
#define CHUNK_SIZE	  65536
#define CHUNK_HEADER_SIZE 64
#define BLOCK_SIZE	  576
#define BLOCK_HEADER_SIZE 64
#define NODE_SIZE	  48

/* Where things are in the header, in a chunk's header, and in a block. */
enum {
	HEADER_VERSION = 8,
	HEADER_HEADER_SIZE = 12,
	HEADER_CHUNK_SIZE = 16,
	HEADER_CRC = 20,
	HEADER_START = 24,
	HEADER_MONOTONIC = 32,
	HEADER_PID = 40,
	HEADER_TEXT = 48,
	HEADER_CHUNK_COUNT = 3072,
	HEADER_STATE = 3080,

	CHUNK_MAGIC = 0,
	CHUNK_KIND = 4,
	CHUNK_INDEX = 8,
	CHUNK_CRC = 20,
	CHUNK_USED = 24,

	BLOCK_KIND = 0,
	BLOCK_SESSION = 4,
	BLOCK_STATEMENT = 8,
	BLOCK_FIRST = 12,
	BLOCK_ITEM_SIZE = 16,
	BLOCK_COUNT = 20,
	BLOCK_SERIAL = 24,
	BLOCK_REQUEST_ID = 32,
	BLOCK_CALLER_STATEMENT = 40,
	BLOCK_CALLER_REQUEST = 48,
	BLOCK_START = 56,
};

/* CRC-32C bit by bit. */
static uint32_t checksum(const uint8_t *bytes, size_t size)
{
	uint32_t crc = 0xffffffff;

	for (size_t i = 0; i < size; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
	}
	return ~crc;
}

static void put(uint8_t *at, uint64_t value, size_t size)
{
	for (size_t i = 0; i < size; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get(const uint8_t *at, size_t size)
{
	uint64_t value = 0;

	for (size_t i = 0; i < size; i++)
		value |= (uint64_t)at[i] << 8 * i;
	return value;
}

/* ---- The file ---- */

static void grow(struct log_builder *builder, size_t size)
{
	builder->bytes = realloc(builder->bytes, builder->size + size);
	if (!builder->bytes)
		abort();
	memset(builder->bytes + builder->size, 0, size);
	builder->size += size;
}

void log_builder_init(struct log_builder *builder)
{
	static const char text[] = "program=builder\0host=nowhere\0fbprof=0.0.0\0clock=none\0";
	uint8_t *header;

	memset(builder, 0, sizeof(*builder));
	grow(builder, HEADER_SIZE);
	header = builder->bytes;
	memcpy(header,
	       "\x89"
	       "FBPROF\n",
	       8);
	put(header + HEADER_VERSION, 2, 4);
	put(header + HEADER_HEADER_SIZE, HEADER_SIZE, 4);
	put(header + HEADER_CHUNK_SIZE, CHUNK_SIZE, 4);
	put(header + HEADER_START, 1796031881123456789, 8);
	put(header + HEADER_MONOTONIC, 5000, 8);
	put(header + HEADER_PID, 4711, 4);
	memcpy(header + HEADER_TEXT, text, sizeof(text));
	log_builder_seal_header(builder);
	log_builder_set_state(builder, LOG_CLOSED);
}

void log_builder_clear(struct log_builder *builder)
{
	free(builder->bytes);
	builder->bytes = NULL;
}

void log_builder_seal_header(struct log_builder *builder)
{
	put(builder->bytes + HEADER_CRC, 0, 4);
	put(builder->bytes + HEADER_CRC, checksum(builder->bytes, HEADER_CHUNK_COUNT), 4);
}

void log_builder_set_state(struct log_builder *builder, enum log_state state)
{
	put(builder->bytes + HEADER_STATE, state, 4);
}

int log_builder_file(const struct log_builder *builder, size_t size)
{
	int fd = memfd_create("log", MFD_CLOEXEC);

	for (size_t done = 0; done < size;) {
		ssize_t written = write(fd, builder->bytes + done, size - done);

		if (written <= 0)
			abort();
		done += (size_t)written;
	}
	return fd;
}

static uint8_t *last_chunk(struct log_builder *builder)
{
	return builder->bytes + builder->size - CHUNK_SIZE;
}

void log_builder_chunk(struct log_builder *builder, uint32_t kind)
{
	uint64_t index = get(builder->bytes + HEADER_CHUNK_COUNT, 8);
	uint8_t *chunk;

	grow(builder, CHUNK_SIZE);
	chunk = last_chunk(builder);
	put(chunk + CHUNK_MAGIC, 0x4b4e4843, 4);
	put(chunk + CHUNK_KIND, kind, 4);
	put(chunk + CHUNK_INDEX, index, 8);
	put(chunk + CHUNK_CRC, checksum(chunk, CHUNK_CRC), 4);
	put(builder->bytes + HEADER_CHUNK_COUNT, index + 1, 8);
	builder->chunk_kind = kind;
}

static void add_part(struct log_builder *builder, bool block, uint32_t kind, const uint8_t *end)
{
	if (builder->part_count == LOG_BUILDER_PARTS)
		return;
	builder->parts[builder->part_count++] =
		(struct log_builder_part){ block, kind, (size_t)(end - builder->bytes) };
}

/* ---- Records ---- */

void log_payload_bytes(struct log_payload *payload, const void *bytes, size_t size)
{
	memcpy(payload->bytes + payload->size, bytes, size);
	payload->size += size;
}

void log_payload_varint(struct log_payload *payload, uint64_t value)
{
	do {
		uint8_t byte = value & 127;

		value /= 128;
		payload->bytes[payload->size++] = value ? byte + 128 : byte;
	} while (value);
}

void log_payload_i64(struct log_payload *payload, int64_t value)
{
	put(payload->bytes + payload->size, (uint64_t)value, 8);
	payload->size += 8;
}

void log_payload_string(struct log_payload *payload, const char *string)
{
	log_payload_varint(payload, strlen(string));
	log_payload_bytes(payload, string, strlen(string));
}

void log_payload_nullable(struct log_payload *payload, const char *string)
{
	log_payload_varint(payload, string ? strlen(string) + 1 : 0);
	if (string)
		log_payload_bytes(payload, string, strlen(string));
}

/* The last chunk, if it is of that kind and has that much room, or else a new one. */
static uint8_t *chunk_with_room(struct log_builder *builder, uint32_t kind, size_t item_size,
				size_t size)
{
	if (builder->chunk_kind == kind) {
		uint8_t *chunk = last_chunk(builder);

		if (CHUNK_HEADER_SIZE + get(chunk + CHUNK_USED, 8) * item_size + size <= CHUNK_SIZE)
			return chunk;
	}
	log_builder_chunk(builder, kind);
	return last_chunk(builder);
}

void log_builder_record(struct log_builder *builder, uint32_t type,
			const struct log_payload *payload)
{
	struct log_payload length = { .size = 0 };
	uint8_t *chunk, *at, *checked;

	log_payload_varint(&length, payload->size);
	chunk = chunk_with_room(builder, LOG_CHUNK_RECORDS, 1, length.size + 1 + payload->size + 4);
	at = chunk + CHUNK_HEADER_SIZE + get(chunk + CHUNK_USED, 8);
	memcpy(at, length.bytes, length.size);
	checked = at + length.size;
	*checked = (uint8_t)type;
	memcpy(checked + 1, payload->bytes, payload->size);
	at = checked + 1 + payload->size;
	put(at, checksum(checked, payload->size + 1), 4);
	put(chunk + CHUNK_USED, (uint64_t)(at + 4 - chunk - CHUNK_HEADER_SIZE), 8);
	add_part(builder, false, type, at + 4);
}

void log_builder_session(struct log_builder *builder, uint32_t session)
{
	struct log_payload payload = { .size = 0 };

	log_payload_varint(&payload, session);
	log_builder_record(builder, LOG_REC_SESSION, &payload);
}

void log_builder_session_start(struct log_builder *builder, int64_t profile_id, uint64_t flags,
			       const char *description)
{
	log_builder_session_of_mode(builder, profile_id, flags, 1, description);
}

void log_builder_session_of_mode(struct log_builder *builder, int64_t profile_id, uint64_t flags,
				 uint64_t mode, const char *description)
{
	struct log_payload payload = { .size = 0 };

	log_payload_varint(&payload, (uint64_t)profile_id);
	log_payload_varint(&payload, 12);
	log_payload_i64(&payload, 1796031881123456789);
	log_payload_i64(&payload, 6000);
	log_payload_varint(&payload, flags);
	log_payload_varint(&payload, mode == 3 ? 0 : 100000);
	log_payload_varint(&payload, mode);
	log_payload_string(&payload, "SYSDBA");
	log_payload_string(&payload, "employee.fdb");
	log_payload_string(&payload, "5.0.4");
	log_payload_string(&payload, "");
	log_payload_nullable(&payload, description);
	log_builder_record(builder, LOG_REC_SESSION_START, &payload);
}

void log_builder_session_end(struct log_builder *builder, uint64_t reason, int64_t time)
{
	struct log_payload payload = { .size = 0 };

	log_payload_varint(&payload, reason);
	log_payload_i64(&payload, time);
	log_builder_record(builder, LOG_REC_SESSION_END, &payload);
}

void log_builder_text(struct log_builder *builder, uint32_t id, uint64_t to_come, const char *part)
{
	struct log_payload payload = { .size = 0 };

	log_payload_varint(&payload, id);
	log_payload_varint(&payload, to_come);
	log_payload_bytes(&payload, part, strlen(part));
	log_builder_record(builder, LOG_REC_TEXT, &payload);
}

void log_builder_statement(struct log_builder *builder, uint32_t index, int64_t id,
			   const char *type, const char *package, const char *routine,
			   uint32_t text)
{
	struct log_payload payload = { .size = 0 };

	log_payload_varint(&payload, index);
	log_payload_varint(&payload, (uint64_t)id);
	log_payload_varint(&payload, 0);
	log_payload_string(&payload, type);
	log_payload_nullable(&payload, NULL);
	log_payload_nullable(&payload, package);
	log_payload_nullable(&payload, routine);
	log_payload_varint(&payload, text);
	log_builder_record(builder, LOG_REC_STATEMENT, &payload);
}

void log_builder_cursor(struct log_builder *builder, uint32_t statement, uint32_t id,
			const char *name, uint32_t line, uint32_t column)
{
	struct log_payload payload = { .size = 0 };

	log_payload_varint(&payload, statement);
	log_payload_varint(&payload, id);
	log_payload_nullable(&payload, name);
	log_payload_varint(&payload, line);
	log_payload_varint(&payload, column);
	log_builder_record(builder, LOG_REC_CURSOR, &payload);
}

void log_builder_record_source(struct log_builder *builder, uint32_t statement, uint32_t cursor,
			       uint32_t id, uint32_t parent, uint32_t cell, uint32_t text)
{
	struct log_payload payload = { .size = 0 };

	log_payload_varint(&payload, statement);
	log_payload_varint(&payload, cursor);
	log_payload_varint(&payload, id);
	log_payload_varint(&payload, parent);
	log_payload_varint(&payload, parent ? 1 : 0);
	log_payload_varint(&payload, cell);
	log_payload_varint(&payload, text);
	log_builder_record(builder, LOG_REC_RECORD_SOURCE, &payload);
}

void log_builder_line(struct log_builder *builder, uint32_t statement, uint32_t line,
		      uint32_t column, uint32_t cell)
{
	struct log_payload payload = { .size = 0 };

	log_payload_varint(&payload, statement);
	log_payload_varint(&payload, line);
	log_payload_varint(&payload, column);
	log_payload_varint(&payload, cell);
	log_builder_record(builder, LOG_REC_LINE, &payload);
}

void log_builder_request(struct log_builder *builder, const struct log_builder_execution *execution)
{
	struct log_payload payload = { .size = 0 };
	uint32_t before = 0;

	log_payload_varint(&payload, execution->serial);
	log_payload_varint(&payload, execution->statement);
	log_payload_varint(&payload, execution->request_id);
	log_payload_varint(&payload, execution->caller_statement_id);
	log_payload_varint(&payload, execution->caller_request_id);
	log_payload_i64(&payload, execution->start);
	log_payload_varint(&payload, execution->duration);
	log_payload_varint(&payload, execution->flags);
	log_payload_varint(&payload, execution->duration);
	for (const struct log_builder_cell *cell = execution->cells; cell->value; cell++) {
		log_payload_varint(&payload, cell->cell - before);
		log_payload_varint(&payload, cell->value);
		before = cell->cell;
	}
	log_builder_record(builder, LOG_REC_REQUEST, &payload);
}

/* ---- Blocks ---- */

static uint8_t *new_block(struct log_builder *builder, uint32_t kind, uint32_t session)
{
	uint8_t *chunk = chunk_with_room(builder, LOG_CHUNK_BLOCKS, BLOCK_SIZE, BLOCK_SIZE);
	uint64_t used = get(chunk + CHUNK_USED, 8);
	uint8_t *block = chunk + CHUNK_HEADER_SIZE + used * BLOCK_SIZE;

	put(chunk + CHUNK_USED, used + 1, 8);
	put(block + BLOCK_KIND, kind, 4);
	put(block + BLOCK_SESSION, session, 4);
	add_part(builder, true, kind, block + BLOCK_SIZE);
	return block;
}

void log_builder_block(struct log_builder *builder, const struct log_block *block)
{
	memcpy(new_block(builder, block->kind, block->session), block, BLOCK_SIZE);
}

void log_builder_group(struct log_builder_execution *execution, uint32_t cell,
		       const uint64_t values[LOG_GROUP_CELLS])
{
	struct log_builder_cell *end = execution->cells;

	while (end->value)
		end++;
	for (uint32_t i = 0; i < LOG_GROUP_CELLS; i++) {
		if (values[i])
			*end++ = (struct log_builder_cell){ cell + i, values[i] };
	}
}

void log_builder_counters(struct log_builder *builder, uint32_t session,
			  const struct log_builder_execution *execution)
{
	uint8_t *block = new_block(builder, LOG_BLOCK_COUNTERS, session);

	put(block + BLOCK_STATEMENT, execution->statement, 4);
	put(block + BLOCK_FIRST, execution->first, 4);
	put(block + BLOCK_SERIAL, execution->serial, 8);
	put(block + BLOCK_REQUEST_ID, execution->request_id, 8);
	put(block + BLOCK_CALLER_STATEMENT, execution->caller_statement_id, 8);
	put(block + BLOCK_CALLER_REQUEST, execution->caller_request_id, 8);
	put(block + BLOCK_START, (uint64_t)execution->start, 8);
	for (const struct log_builder_cell *cell = execution->cells; cell->value; cell++)
		put(block + BLOCK_HEADER_SIZE + (cell->cell - execution->first) * 8, cell->value,
		    8);
}

void log_builder_nodes(struct log_builder *builder, uint32_t session, uint32_t first,
		       const struct log_builder_node *nodes, uint32_t count)
{
	uint8_t *block = new_block(builder, LOG_BLOCK_NODES, session);

	put(block + BLOCK_FIRST, first, 4);
	put(block + BLOCK_ITEM_SIZE, NODE_SIZE, 4);
	put(block + BLOCK_COUNT, count, 4);
	for (uint32_t i = 0; i < count; i++) {
		uint8_t *at = block + BLOCK_HEADER_SIZE + i * NODE_SIZE;

		put(at, nodes[i].parent, 4);
		put(at + 4, nodes[i].statement, 4);
		put(at + 8, (uint64_t)nodes[i].kind << 24 | nodes[i].cell, 4);
		put(at + 12, nodes[i].serial, 4);
		put(at + 16, nodes[i].self_time, 8);
		put(at + 24, nodes[i].samples, 8);
		put(at + 32, nodes[i].cost, 8);
		put(at + 40, nodes[i].cpu_time, 8);
	}
}

void log_builder_totals(struct log_builder *builder, uint32_t session, uint64_t samples,
			uint64_t sampled_time)
{
	uint8_t *block = new_block(builder, LOG_BLOCK_SESSION, session);

	put(block + BLOCK_HEADER_SIZE, samples, 8);
	put(block + BLOCK_HEADER_SIZE + 8, sampled_time, 8);
	put(block + BLOCK_HEADER_SIZE + 16, 3, 8);
	put(block + BLOCK_HEADER_SIZE + 24, 300, 8);
	put(block + BLOCK_HEADER_SIZE + 32, samples + 3, 8);
	put(block + BLOCK_HEADER_SIZE + 40, 1, 8);
	put(block + BLOCK_HEADER_SIZE + 48, 1000, 8);
	put(block + BLOCK_HEADER_SIZE + 56, 2500, 8);
	put(block + BLOCK_HEADER_SIZE + 72, 3000, 8);
	put(block + BLOCK_HEADER_SIZE + 80, 100, 8);
}
