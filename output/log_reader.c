/*
 * The log reader: see log_reader.h for its promises, FORMAT.md for the rules it follows.
 *
 * One read is three steps: list the chunks by kind; read the blocks; read the records, those of chunks
 * that appeared meanwhile too.  All that changes while the recorder runs is copied once, by pread(),
 * and only the copy is looked at.
 */
#include "log_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crc32c.h"
#include "varint.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "structures are read as they lie in the file");

struct chunk_list {
	uint64_t *numbers;
	size_t count, room;
};

struct log_reader {
	int fd;
	struct log_header header;
	struct chunk_list blocks, records;
	uint64_t listed; /* chunks that were put on a list, or given up */
	uint64_t lost[LOG_LOSSES];
	struct log_usage usage;
	union {
		struct log_chunk_header header;
		uint8_t bytes[LOG_CHUNK_SIZE];
	} chunk;
	struct log_cell
		cells[LOG_RECORD_MAX / 2]; /* of one execution: a pair has two bytes or more */
};

/* One walk over the records or blocks of a reader. */
struct walk {
	struct log_reader *reader;
	const struct log_visitor *visitor;
	void *data;
};

/* ---- Opening ---- */

__attribute__((format(printf, 2, 3))) static void set_error(char error[LOG_ERROR_SIZE],
							    const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, LOG_ERROR_SIZE, format, arguments);
	va_end(arguments);
}

/* Reads until `size` bytes are there or the file ends; returns how many, or -1. */
static ssize_t read_at(int fd, void *to, size_t size, uint64_t offset)
{
	size_t done = 0;

	while (done < size) {
		ssize_t got = pread(fd, (char *)to + done, size - done, (off_t)(offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -1;
		if (got == 0)
			break;
		done += (size_t)got;
	}
	return (ssize_t)done;
}

static uint32_t header_crc(const struct log_header *header)
{
	static const uint8_t no_crc[sizeof(header->crc)];
	const uint8_t *bytes = (const uint8_t *)header;
	size_t at = offsetof(struct log_header, crc);
	uint32_t crc = crc32c(0, bytes, at);

	crc = crc32c(crc, no_crc, sizeof(no_crc));
	at += sizeof(no_crc);
	return crc32c(crc, bytes + at, offsetof(struct log_header, chunk_count) - at);
}

static bool check_header(const struct log_header *header, size_t size, char error[LOG_ERROR_SIZE])
{
	if (memcmp(header->magic, LOG_MAGIC, size < LOG_MAGIC_SIZE ? size : LOG_MAGIC_SIZE) != 0)
		set_error(error, "not an fbprof log: give a file that ends in .fbprof");
	else if (size == 0)
		set_error(error, "the file is empty, nothing can be read: copy the log again");
	else if (size < sizeof(*header))
		set_error(error, "ends within its header, nothing can be read: copy the log again");
	else if (header->version > LOG_VERSION)
		set_error(error,
			  "log version %" PRIu32 ", this fbprof reads up to %d: use a newer fbprof",
			  header->version, LOG_VERSION);
	else if (header_crc(header) != header->crc)
		set_error(error, "the header is damaged, nothing can be read: copy the log again");
	else if (header->version != 0 && header->version < LOG_VERSION)
		set_error(error,
			  "log version %" PRIu32
			  ", this fbprof reads %d: use the fbprof that wrote it",
			  header->version, LOG_VERSION);
	else if (header->version == 0 || header->header_size != LOG_HEADER_SIZE ||
		 header->chunk_size != LOG_CHUNK_SIZE)
		set_error(error, "the header makes no sense: this log was not made by fbprof");
	else
		return true;
	return false;
}

/* Also makes sure that the file can be read at any offset and that reading it will end. */
static bool read_header(struct log_reader *reader, char error[LOG_ERROR_SIZE])
{
	struct stat status;
	ssize_t size;

	if (fstat(reader->fd, &status) != 0) {
		set_error(error, "cannot be read: %s", strerror(errno));
		return false;
	}
	if (!S_ISREG(status.st_mode)) {
		set_error(error, "not a regular file: give a log");
		return false;
	}
	size = read_at(reader->fd, &reader->header, sizeof(reader->header), 0);
	if (size < 0) {
		set_error(error, "cannot be read: %s", strerror(errno));
		return false;
	}
	return check_header(&reader->header, (size_t)size, error);
}

struct log_reader *log_reader_open_fd(int fd, char error[LOG_ERROR_SIZE])
{
	struct log_reader *reader = calloc(1, sizeof(*reader));

	if (!reader) {
		set_error(error, "out of memory: close something");
		close(fd);
		return NULL;
	}
	reader->fd = fd;
	if (!read_header(reader, error)) {
		log_reader_close(reader);
		return NULL;
	}
	return reader;
}

struct log_reader *log_reader_open(const char *path, char error[LOG_ERROR_SIZE])
{
	/* Neither wait for a FIFO's writer nor get a terminal. */
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0) {
		const char *what_to_do = errno == EACCES ? ": become its owner or root" :
					 errno == ENOENT ? ": check the name" :
							   "";

		set_error(error, "cannot be opened: %s%s", strerror(errno), what_to_do);
		return NULL;
	}
	return log_reader_open_fd(fd, error);
}

void log_reader_close(struct log_reader *reader)
{
	if (!reader)
		return;
	close(reader->fd);
	free(reader->blocks.numbers);
	free(reader->records.numbers);
	free(reader);
}

/* ---- Questions ---- */

const struct log_header *log_reader_header(const struct log_reader *reader)
{
	return &reader->header;
}

const char *log_reader_text(const struct log_reader *reader, const char *key)
{
	const char *at = reader->header.text;
	const char *end = at + sizeof(reader->header.text);
	size_t key_size = strlen(key);

	while (at < end && *at) {
		size_t size = strnlen(at, (size_t)(end - at));

		if (at + size == end)
			break;
		if (size > key_size && memcmp(at, key, key_size) == 0 && at[key_size] == '=')
			return at + key_size + 1;
		at += size + 1;
	}
	return NULL;
}

enum log_liveness log_reader_liveness(const struct log_reader *reader)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };

	if (fcntl(reader->fd, F_OFD_GETLK, &lock) != 0)
		return LOG_LIVENESS_UNKNOWN;
	return lock.l_type == F_UNLCK ? LOG_NOT_RECORDED : LOG_RECORDED;
}

const uint64_t *log_reader_lost(const struct log_reader *reader)
{
	return reader->lost;
}

const struct log_usage *log_reader_usage(const struct log_reader *reader)
{
	return &reader->usage;
}

const char *log_loss_text(enum log_loss loss)
{
	static const char *const texts[LOG_LOSSES] = {
		[LOG_LOSS_CUT_CHUNKS] = "chunks cut off: the file is shorter than its header says",
		[LOG_LOSS_CHUNKS] = "chunks damaged: what they held is missing",
		[LOG_LOSS_TORN_RECORDS] =
			"records torn: they and the rest of their chunks are missing",
		[LOG_LOSS_RECORDS] = "records that make no sense: they were left out",
		[LOG_LOSS_BLOCKS] =
			"blocks that make no sense: their counters or times are missing",
		[LOG_LOSS_NODES] = "call tree nodes that make no sense: their times are missing",
		[LOG_LOSS_UNKNOWN] =
			"entries of an unknown kind skipped: a newer fbprof may read them",
	};

	return texts[loss];
}

/* ---- Chunks ---- */

static uint64_t chunk_offset(uint64_t number)
{
	return LOG_HEADER_SIZE + number * LOG_CHUNK_SIZE;
}

static bool list_chunk(struct chunk_list *list, uint64_t number)
{
	if (list->count == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		uint64_t *numbers = realloc(list->numbers, room * sizeof(*numbers));

		if (!numbers)
			return false;
		list->numbers = numbers;
		list->room = room;
	}
	list->numbers[list->count++] = number;
	return true;
}

static bool chunk_header_is_good(const struct log_chunk_header *header, uint64_t number)
{
	return header->magic == LOG_CHUNK_MAGIC && header->index == number &&
	       crc32c(0, header, offsetof(struct log_chunk_header, crc)) == header->crc;
}

/* The first chunk from `number` on that has data.  A file of one huge hole must not take for ever. */
static uint64_t skip_hole(const struct log_reader *reader, uint64_t number, uint64_t end)
{
	off_t data = lseek(reader->fd, (off_t)chunk_offset(number), SEEK_DATA);
	uint64_t next;

	if (data < 0)
		return errno == ENXIO ? end : number;
	if ((uint64_t)data < chunk_offset(number))
		return number;
	next = ((uint64_t)data - LOG_HEADER_SIZE) / LOG_CHUNK_SIZE;
	return next < end ? next : end;
}

/* How many of the chunks that the header speaks of are in the file, be it in part. */
static uint64_t chunks_present(struct log_reader *reader)
{
	const size_t at = offsetof(struct log_header, chunk_count);
	struct stat status;
	uint64_t size, whole;

	/* A file that shrank below its header keeps the counts read when it was opened. */
	read_at(reader->fd, (char *)&reader->header + at, sizeof(reader->header) - at, at);
	size = fstat(reader->fd, &status) == 0 ? (uint64_t)status.st_size : 0;
	reader->usage.file_size = size;
	reader->usage.chunks = reader->header.chunk_count;

	whole = size <= LOG_HEADER_SIZE ? 0 : (size - LOG_HEADER_SIZE) / LOG_CHUNK_SIZE;
	if (whole >= reader->header.chunk_count)
		return reader->header.chunk_count;
	reader->lost[LOG_LOSS_CUT_CHUNKS] = reader->header.chunk_count - whole;
	return size > chunk_offset(whole) ? whole + 1 : whole;
}

/* Puts the chunks that were not there at the last call on their lists; false if memory ran out. */
static bool list_chunks(struct log_reader *reader)
{
	uint64_t end = chunks_present(reader);

	while (reader->listed < end) {
		uint64_t number = reader->listed++;
		struct log_chunk_header header;
		ssize_t size = read_at(reader->fd, &header, sizeof(header), chunk_offset(number));

		if (size >= 0 && size < (ssize_t)sizeof(header)) {
			break; /* counted as cut */
		} else if (size < 0 || !chunk_header_is_good(&header, number)) {
			reader->listed = skip_hole(reader, reader->listed, end);
			reader->lost[LOG_LOSS_CHUNKS] += reader->listed - number;
		} else if (header.kind == LOG_CHUNK_BLOCKS || header.kind == LOG_CHUNK_RECORDS) {
			if (!list_chunk(header.kind == LOG_CHUNK_BLOCKS ? &reader->blocks :
									  &reader->records,
					number))
				return false;
		} else {
			reader->lost[LOG_LOSS_UNKNOWN]++;
		}
	}
	return true;
}

/*
 * Reads a listed chunk, of which `there` bytes follow the header, fewer if the file was cut.  The
 * copy's `used` is older than what it speaks of, since the kernel copies upwards.
 */
static bool read_chunk(struct log_reader *reader, uint64_t number, size_t *there)
{
	const struct log_chunk_header *header = &reader->chunk.header;
	ssize_t size =
		read_at(reader->fd, reader->chunk.bytes, LOG_CHUNK_SIZE, chunk_offset(number));

	if (size < (ssize_t)sizeof(*header) || !chunk_header_is_good(header, number)) {
		reader->lost[LOG_LOSS_CHUNKS]++;
		return false;
	}
	*there = (size_t)size - sizeof(*header);
	return true;
}

/* ---- Blocks ---- */

static void visit_counters(const struct walk *walk, const struct log_block *block)
{
	struct log_cell *cells = walk->reader->cells;
	struct log_execution execution = {
		.serial = block->serial,
		.statement = block->statement,
		.request_id = (int64_t)block->request_id,
		.caller_statement_id = (int64_t)block->caller_statement_id,
		.caller_request_id = (int64_t)block->caller_request_id,
		.start_time = block->start_time,
		.cells = cells,
	};

	if (block->statement == 0 || block->first % LOG_BLOCK_CELLS != 0 ||
	    block->first > LOG_NODE_CELL_MASK) {
		walk->reader->lost[LOG_LOSS_BLOCKS]++;
		return;
	}
	for (uint32_t i = 0; i < LOG_BLOCK_CELLS; i++) {
		uint64_t value;

		memcpy(&value, block->payload + i * sizeof(value), sizeof(value));
		if (value)
			cells[execution.cell_count++] =
				(struct log_cell){ block->first + i, value };
	}
	if (walk->visitor->counters)
		walk->visitor->counters(walk->data, block->session, &execution);
}

static void visit_nodes(const struct walk *walk, const struct log_block *block)
{
	uint32_t size = block->item_size;

	if (size < sizeof(struct log_node) || size > LOG_BLOCK_PAYLOAD ||
	    block->count > LOG_BLOCK_PAYLOAD / size || block->first == 0 ||
	    block->first > UINT32_MAX - LOG_BLOCK_PAYLOAD) {
		walk->reader->lost[LOG_LOSS_BLOCKS]++;
		return;
	}
	for (uint32_t i = 0; i < block->count; i++) {
		struct log_node node;

		memcpy(&node, block->payload + (size_t)i * size, sizeof(node));
		if (node.statement == 0 || node.parent >= block->first + i)
			walk->reader->lost[LOG_LOSS_NODES]++;
		else if (walk->visitor->node)
			walk->visitor->node(walk->data, block->session, block->first + i, &node);
	}
}

static void visit_totals(const struct walk *walk, const struct log_block *block)
{
	struct log_session_totals totals;

	memcpy(&totals, block->payload, sizeof(totals));
	if (walk->visitor->totals)
		walk->visitor->totals(walk->data, block->session, &totals);
}

static void visit_block(const struct walk *walk, const struct log_block *block)
{
	struct log_reader *reader = walk->reader;

	if (block->kind == LOG_BLOCK_FREE) {
		reader->usage.free_blocks++;
		return;
	}
	if (block->session == 0) {
		reader->lost[LOG_LOSS_BLOCKS]++;
		return;
	}
	switch (block->kind) {
	case LOG_BLOCK_COUNTERS:
		visit_counters(walk, block);
		break;
	case LOG_BLOCK_NODES:
		visit_nodes(walk, block);
		break;
	case LOG_BLOCK_SESSION:
		visit_totals(walk, block);
		break;
	default:
		reader->lost[LOG_LOSS_UNKNOWN]++;
	}
}

static void visit_block_chunk(const struct walk *walk, uint64_t number)
{
	struct log_reader *reader = walk->reader;
	const uint8_t *at = reader->chunk.bytes + sizeof(struct log_chunk_header);
	struct log_block block;
	size_t there;
	uint64_t used;

	if (!read_chunk(reader, number, &there))
		return;
	used = reader->chunk.header.used;
	if (used > LOG_BLOCKS_PER_CHUNK) {
		reader->lost[LOG_LOSS_BLOCKS]++;
		used = LOG_BLOCKS_PER_CHUNK;
	}
	if (used > there / sizeof(block))
		used = there / sizeof(block);
	reader->usage.block_chunks++;
	reader->usage.blocks += used;
	for (; used > 0; used--, at += sizeof(block)) {
		memcpy(&block, at, sizeof(block));
		visit_block(walk, &block);
	}
}

/* ---- Fields of records: a field that is not there or out of range makes the whole record bad ---- */

struct fields {
	const uint8_t *at, *end;
	bool bad;
};

static uint64_t take(struct fields *fields)
{
	uint64_t value = 0;
	const uint8_t *next = fields->bad ? NULL : varint_get(fields->at, fields->end, &value);

	if (!next) {
		fields->bad = true;
		return 0;
	}
	fields->at = next;
	return value;
}

static uint32_t take_within(struct fields *fields, uint32_t least, uint32_t most)
{
	uint64_t value = take(fields);

	if (value < least || value > most) {
		fields->bad = true;
		return 0;
	}
	return (uint32_t)value;
}

static uint32_t take_u32(struct fields *fields)
{
	return take_within(fields, 0, UINT32_MAX);
}

/* Statements and texts are numbered from 1. */
static uint32_t take_index(struct fields *fields)
{
	return take_within(fields, 1, UINT32_MAX);
}

static int64_t take_i64(struct fields *fields)
{
	int64_t value = 0;

	if (fields->bad || fields->end - fields->at < (ptrdiff_t)sizeof(value)) {
		fields->bad = true;
		return 0;
	}
	memcpy(&value, fields->at, sizeof(value));
	fields->at += sizeof(value);
	return value;
}

static struct log_string take_bytes(struct fields *fields, uint64_t size)
{
	struct log_string string = { NULL, 0 };

	if (fields->bad || size > (uint64_t)(fields->end - fields->at)) {
		fields->bad = true;
		return string;
	}
	string.bytes = (const char *)fields->at;
	string.size = size;
	fields->at += size;
	return string;
}

static struct log_string take_rest(struct fields *fields)
{
	return take_bytes(fields, (uint64_t)(fields->end - fields->at));
}

static struct log_string take_string(struct fields *fields)
{
	return take_bytes(fields, take(fields));
}

static struct log_string take_nullable(struct fields *fields)
{
	uint64_t size = take(fields);

	return size ? take_bytes(fields, size - 1) : (struct log_string){ NULL, 0 };
}

/* ---- Records ---- */

static void visit_session_start(const struct walk *walk, uint32_t session, struct fields *fields)
{
	struct log_session_start start = {
		.profile_id = (int64_t)take(fields),
		.attachment_id = (int64_t)take(fields),
	};

	start.start_time = take_i64(fields);
	start.start_monotonic = (uint64_t)take_i64(fields);
	start.flags = take(fields);
	start.sampling_interval = take(fields);
	start.mode = take(fields);
	start.user = take_string(fields);
	start.database = take_string(fields);
	start.engine = take_string(fields);
	start.options = take_string(fields);
	start.description = take_nullable(fields);
	if (!fields->bad && walk->visitor->session_start)
		walk->visitor->session_start(walk->data, session, &start);
}

static void visit_session_end(const struct walk *walk, uint32_t session, struct fields *fields)
{
	uint64_t reason = take(fields);
	int64_t time = take_i64(fields);

	if (!fields->bad && walk->visitor->session_end)
		walk->visitor->session_end(walk->data, session, reason, time);
}

static void visit_text(const struct walk *walk, uint32_t session, struct fields *fields)
{
	uint32_t id = take_index(fields);
	uint64_t to_come = take(fields);
	struct log_string part = take_rest(fields);

	if (!fields->bad && walk->visitor->text)
		walk->visitor->text(walk->data, session, id, to_come, part);
}

static void visit_statement(const struct walk *walk, uint32_t session, struct fields *fields)
{
	struct log_statement statement = { .index = take_index(fields) };

	statement.id = (int64_t)take(fields);
	statement.parent_id = (int64_t)take(fields);
	statement.type = take_string(fields);
	statement.schema = take_nullable(fields);
	statement.package = take_nullable(fields);
	statement.routine = take_nullable(fields);
	statement.text = take_u32(fields);
	if (!fields->bad && walk->visitor->statement)
		walk->visitor->statement(walk->data, session, &statement);
}

static void visit_cursor(const struct walk *walk, uint32_t session, struct fields *fields)
{
	struct log_cursor cursor = { .statement = take_index(fields) };

	cursor.id = take_u32(fields);
	cursor.name = take_nullable(fields);
	cursor.line = take_u32(fields);
	cursor.column = take_u32(fields);
	if (!fields->bad && walk->visitor->cursor)
		walk->visitor->cursor(walk->data, session, &cursor);
}

static void visit_record_source(const struct walk *walk, uint32_t session, struct fields *fields)
{
	struct log_record_source source = { .statement = take_index(fields) };

	source.cursor_id = take_u32(fields);
	source.id = take_u32(fields);
	source.parent_id = take_u32(fields);
	source.level = take_u32(fields);
	source.cell = take_within(fields, LOG_CELL_FIRST_FREE, LOG_NODE_CELL_MASK - 1);
	source.access_path = take_u32(fields);
	if (!fields->bad && walk->visitor->record_source)
		walk->visitor->record_source(walk->data, session, &source);
}

static void visit_line(const struct walk *walk, uint32_t session, struct fields *fields)
{
	struct log_line line = { .statement = take_index(fields) };

	line.line = take_u32(fields);
	line.column = take_u32(fields);
	line.cell = take_within(fields, LOG_CELL_FIRST_FREE, LOG_NODE_CELL_MASK);
	if (!fields->bad && walk->visitor->line)
		walk->visitor->line(walk->data, session, &line);
}

static size_t take_cells(struct fields *fields, struct log_cell *cells)
{
	uint32_t cell = 0;
	size_t count = 0;

	while (!fields->bad && fields->at < fields->end) {
		cell += take_within(fields, 0, LOG_NODE_CELL_MASK - cell);
		cells[count++] = (struct log_cell){ cell, take(fields) };
	}
	return count;
}

static void visit_request(const struct walk *walk, uint32_t session, struct fields *fields)
{
	struct log_execution execution = { .serial = take(fields) };

	execution.statement = take_index(fields);
	execution.request_id = (int64_t)take(fields);
	execution.caller_statement_id = (int64_t)take(fields);
	execution.caller_request_id = (int64_t)take(fields);
	execution.start_time = take_i64(fields);
	execution.duration = take(fields);
	execution.flags = take(fields);
	execution.elapsed = take(fields);
	execution.cells = walk->reader->cells;
	execution.cell_count = take_cells(fields, walk->reader->cells);
	if (!fields->bad && walk->visitor->request)
		walk->visitor->request(walk->data, session, &execution);
}

static void visit_notice(const struct walk *walk, uint32_t session, struct fields *fields)
{
	struct log_string notice = take_string(fields);

	if (!fields->bad && walk->visitor->notice)
		walk->visitor->notice(walk->data, session, notice);
}

/* The process, 0, has nothing but notices.  NO_SESSION: the chunk has not said yet. */
#define NO_SESSION UINT32_MAX

static void visit_record(const struct walk *walk, uint32_t *session, uint8_t type,
			 struct fields *fields)
{
	static void (*const visits[])(const struct walk *, uint32_t, struct fields *) = {
		[LOG_REC_SESSION_START] = visit_session_start,
		[LOG_REC_SESSION_END] = visit_session_end,
		[LOG_REC_TEXT] = visit_text,
		[LOG_REC_STATEMENT] = visit_statement,
		[LOG_REC_CURSOR] = visit_cursor,
		[LOG_REC_RECORD_SOURCE] = visit_record_source,
		[LOG_REC_LINE] = visit_line,
		[LOG_REC_REQUEST] = visit_request,
		[LOG_REC_NOTICE] = visit_notice,
	};

	if (type == LOG_REC_SESSION) {
		*session = take_within(fields, 0, NO_SESSION - 1);
		if (fields->bad)
			*session = NO_SESSION;
	} else if (type >= sizeof(visits) / sizeof(*visits) || !visits[type]) {
		walk->reader->lost[LOG_LOSS_UNKNOWN]++;
	} else if (*session == NO_SESSION || (*session == 0 && type != LOG_REC_NOTICE)) {
		fields->bad = true;
	} else {
		visits[type](walk, *session, fields);
	}
	if (fields->bad)
		walk->reader->lost[LOG_LOSS_RECORDS]++;
}

/* Finds the record at `at`; returns what follows it, or NULL if it is torn. */
static const uint8_t *frame_record(const uint8_t *at, const uint8_t *end, uint8_t *type,
				   struct fields *fields)
{
	const size_t framing = sizeof(*type) + sizeof(uint32_t);
	const uint8_t *body;
	uint64_t size;
	uint32_t crc;

	body = varint_get(at, end, &size);
	if (!body || (size_t)(end - body) < framing || size > (size_t)(end - body) - framing ||
	    size + framing + (size_t)(body - at) > LOG_RECORD_MAX)
		return NULL;
	*type = *body;
	*fields = (struct fields){ .at = body + 1, .end = body + 1 + size };
	memcpy(&crc, fields->end, sizeof(crc));
	if (crc32c(0, body, size + 1) != crc)
		return NULL;
	return fields->end + sizeof(crc);
}

static void visit_record_chunk(const struct walk *walk, uint64_t number)
{
	struct log_reader *reader = walk->reader;
	const uint8_t *at = reader->chunk.bytes + sizeof(struct log_chunk_header);
	const uint8_t *end;
	uint32_t session = NO_SESSION;
	size_t there;

	if (!read_chunk(reader, number, &there))
		return;
	end = at + (reader->chunk.header.used < there ? reader->chunk.header.used : there);
	reader->usage.record_chunks++;
	reader->usage.record_bytes += (size_t)(end - at);
	while (at < end) {
		struct fields fields;
		uint8_t type;

		at = frame_record(at, end, &type, &fields);
		if (!at) {
			reader->lost[LOG_LOSS_TORN_RECORDS]++;
			break;
		}
		visit_record(walk, &session, type, &fields);
	}
}

bool log_reader_read(struct log_reader *reader, const struct log_visitor *visitor, void *data)
{
	const struct walk walk = { reader, visitor, data };

	memset(reader->lost, 0, sizeof(reader->lost));
	memset(&reader->usage, 0, sizeof(reader->usage));
	reader->blocks.count = reader->records.count = reader->listed = 0;

	if (!list_chunks(reader))
		return false;
	/* Downwards: nodes appear while we read, and a node should not be seen without its parent. */
	for (size_t i = reader->blocks.count; i > 0; i--)
		visit_block_chunk(&walk, reader->blocks.numbers[i - 1]);
	/* Records of requests whose blocks were freed meanwhile may be in chunks that are new. */
	if (!list_chunks(reader))
		return false;
	for (size_t i = 0; i < reader->records.count; i++)
		visit_record_chunk(&walk, reader->records.numbers[i]);
	return true;
}
