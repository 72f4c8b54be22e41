/*
 * The log format: one header, shared by the writer (in the server) and the reader (in the tools).
 *
 * FORMAT.md describes the format in prose, with the rules that a reader must follow.  This file has
 * its constants and structures and nothing else.  All integers are little-endian, and all structures
 * are laid out so that no compiler inserts padding.
 */
#ifndef FBPROF_LOG_FORMAT_H
#define FBPROF_LOG_FORMAT_H

#include <stdint.h>

#define LOG_MAGIC \
	"\x89"    \
	"FBPROF\n"
#define LOG_MAGIC_SIZE 8
#define LOG_VERSION    2

#define LOG_HEADER_SIZE 4096u
#define LOG_CHUNK_SIZE	65536u

/* What has become of the recording.  A log whose process was killed stays LOG_RECORDING. */
enum log_state {
	LOG_RECORDING = 0,
	LOG_CLOSED = 1,	   /* the last session ended and the process let go of the file */
	LOG_DISK_FULL = 2, /* no space could be reserved; events after that moment are missing */
	LOG_QUOTA_REACHED =
		3 /* FBPROF_MAX_BYTES was reached; events after that moment are missing */
};

/* Bytes 0 to 4095 of the file.  Everything before `chunk_count` is written once and checksummed. */
struct log_header {
	char magic[LOG_MAGIC_SIZE];
	uint32_t version;
	uint32_t header_size;
	uint32_t chunk_size;
	uint32_t crc;		 /* CRC-32C of the header's first 3072 bytes with this field zero */
	int64_t start_realtime;	 /* ns since 1970-01-01 UTC */
	int64_t start_monotonic; /* ns of CLOCK_MONOTONIC at the same moment */
	uint32_t pid;		 /* of the process that is profiled */
	uint32_t reserved;
	char text[3024]; /* "key=value" strings, each ended by NUL; an empty one ends the list */

	/* Changed while recording, each word by a single store; not covered by the checksum. */
	uint64_t
		chunk_count; /* chunks in use: the file is header_size + chunk_count * chunk_size */
	uint32_t state;	     /* enum log_state */
	uint32_t reserved2;
	uint8_t reserved3[1008];
};

enum log_chunk_kind {
	LOG_CHUNK_RECORDS = 1, /* a run of records, see below */
	LOG_CHUNK_BLOCKS = 2   /* an array of struct log_block */
};

#define LOG_CHUNK_MAGIC 0x4b4e4843u /* "CHNK" */

/* The first 64 bytes of each chunk. */
struct log_chunk_header {
	uint32_t magic;
	uint32_t kind;
	uint64_t index; /* this chunk's number in the file, from 0 */
	uint32_t reserved;
	uint32_t crc;  /* CRC-32C of the 20 bytes before */
	uint64_t used; /* mutable: bytes of records, or number of blocks, after this header */
	uint8_t reserved2[32];
};

#define LOG_CHUNK_ROOM (LOG_CHUNK_SIZE - sizeof(struct log_chunk_header))

/* ---- Blocks: fixed-size areas whose contents change in place while the server runs ---- */

enum log_block_kind {
	LOG_BLOCK_FREE = 0,
	LOG_BLOCK_COUNTERS =
		1,	      /* payload: cells `first` to `first` + 63 of a statement, u64 each */
	LOG_BLOCK_NODES = 2,  /* payload: call tree nodes with ids from `first` on */
	LOG_BLOCK_SESSION = 3 /* payload: struct log_session_totals */
};

#define LOG_BLOCK_PAYLOAD 512u
#define LOG_BLOCK_CELLS	  (LOG_BLOCK_PAYLOAD / 8u)

struct log_block {
	uint32_t kind;	    /* enum log_block_kind; stored last, with release order */
	uint32_t session;   /* session number in this file, from 1 */
	uint32_t statement; /* COUNTERS: the statement's index in the session, from 1 */
	uint32_t first;
	uint32_t item_size; /* NODES: bytes of a node, so that later versions may add to it */
	uint32_t count;	    /* NODES: nodes in use */
	uint64_t serial; /* COUNTERS: number of this execution in the session; 0: of all of them */
	uint64_t request_id; /* COUNTERS: as the engine says; 0 when requests are not told apart */
	uint64_t caller_statement_id; /* likewise; 0 when unknown */
	uint64_t caller_request_id;
	int64_t start_time; /* COUNTERS: (first) start of the request, ns since 1970 UTC */
	uint8_t payload[LOG_BLOCK_PAYLOAD];
};

#define LOG_BLOCKS_PER_CHUNK (LOG_CHUNK_ROOM / sizeof(struct log_block))

/*
 * Cells of a statement.  The first ones are always there.  A line has a group of cells, a record
 * source two groups one behind the other: opened, fetched.  LOG_REC_LINE and LOG_REC_RECORD_SOURCE
 * tell where they begin.  A group is a single cell in LOG_MODE_SAMPLED, which counts, and in
 * LOG_MODE_PASSIVE, where it is only a number; otherwise LOG_GROUP_CELLS of them, from a multiple of
 * that on: enum log_group_cell.
 */
enum log_fixed_cell {
	LOG_CELL_FINISHED = 0, /* executions that the engine reported as finished */
	LOG_CELL_UNSAMPLED =
		1, /* ns of executions that raised no other event, told by the engine; SAMPLED */
	LOG_CELL_ELAPSED = 2, /* ns of the finished executions, less cost; not SAMPLED */
	LOG_CELL_FIRST_FREE = 8
};

/*
 * Times are in ns.  Total: from before to after, with all that is called in between.  Self: without
 * what the calls took that have a group of their own.  Cost: what profiling itself took of that, by
 * estimate; it is not in the times.
 */
enum log_group_cell {
	LOG_GROUP_COUNT = 0,
	LOG_GROUP_TOTAL = 1,
	LOG_GROUP_SELF = 2,
	LOG_GROUP_TOTAL_CPU = 3, /* COARSE: of the total time, the thread ran for so long */
	LOG_GROUP_SELF_CPU = 4,
	LOG_GROUP_TOTAL_COST = 5, /* COARSE */
	LOG_GROUP_SELF_COST = 6,
	LOG_GROUP_MIN = 5, /* MEASURED: the shortest and the longest total time of one count */
	LOG_GROUP_MAX = 6,
	LOG_GROUP_CELLS = 8
};

enum log_node_kind {
	LOG_NODE_REQUEST = 0,	    /* an execution of a statement or routine */
	LOG_NODE_LINE = 1,	    /* a line of it */
	LOG_NODE_RECORD_SOURCE = 2, /* cell tells which one, and whether it was opened or fetched */
};

#define LOG_NODE_CELL_BITS 24
#define LOG_NODE_CELL_MASK ((1u << LOG_NODE_CELL_BITS) - 1)

/*
 * A node of the session's call tree; only in LOG_MODE_SAMPLED and LOG_MODE_PASSIVE.  Its times are those sampled with it
 * innermost.
 */
struct log_node {
	uint32_t parent;    /* node id; 0 for a root.  Always smaller than the node's own id */
	uint32_t statement; /* the statement's index in the session */
	uint32_t position;  /* enum log_node_kind << LOG_NODE_CELL_BITS | cell */
	uint32_t serial;    /* LOG_NODE_REQUEST: low 32 bits of its serial; 0 when not told apart */
	uint64_t self_time; /* ns, less cost */
	uint64_t samples;
	uint64_t cost;	   /* ns that profiling itself took meanwhile, by estimate */
	uint64_t cpu_time; /* ns that the thread ran, of self_time + cost */
};

/* Kinds of events, by what they cost. */
enum log_event {
	LOG_EVENT_LINE = 0, /* a line: before and after */
	LOG_EVENT_OPEN = 1,
	LOG_EVENT_FETCH = 2,
	LOG_EVENT_REQUEST = 3, /* start and finish */
	LOG_EVENT_ROW = 4,     /* a fetch of a record source that has no parent */
	LOG_EVENTS = 5
};

struct log_session_totals {
	uint64_t samples;      /* samples charged to a node */
	uint64_t sampled_time; /* ns charged: the sum of all self times */
	uint64_t torn_samples; /* samples dropped because the position changed while it was read */
	uint64_t torn_time;    /* ns of them, charged to other samples of the attachment */
	uint64_t wakeups;      /* of the sampler while this session was busy */
	uint64_t stretched;    /* of these, so many came late to keep within the sampler's share */
	uint64_t cost;	       /* ns that profiling itself took, by estimate: sum of all costs */
	uint64_t event_cost[LOG_EVENTS]; /* ps that an event is thought to cost, as of now */
};

/*
 * ---- Records: appended, never changed ----
 *
 * A record is: varint length of the payload; u8 type; payload; u32 CRC-32C over type and payload.
 * Varints are unsigned LEB128 of at most 64 bits.  A string is a varint length and so many bytes of
 * UTF-8.  A nullable string is a varint: 0 for NULL, else length + 1, then the bytes.
 * Unless said otherwise a field is a varint.  Readers ignore unknown types and surplus fields.
 */
#define LOG_RECORD_MAX	  49152u /* bytes, framing included; no record crosses a chunk's end */
#define LOG_TEXT_FRAGMENT 32768u

enum log_record_type {
	/* The records that follow in this chunk belong to: session number (0: the process) */
	LOG_REC_SESSION = 1,
	/*
	 * profile_id, attachment_id, i64 start (ns UTC, 8 bytes), u64 monotonic ns (8 bytes), flags
	 * (enum log_session_flags), sampling interval in ns, enum log_mode, then strings: user,
	 * database, engine, options as given; description (nullable)
	 */
	LOG_REC_SESSION_START = 2,
	/* enum log_session_end, i64 time (ns UTC, 8 bytes) */
	LOG_REC_SESSION_END = 3,
	/* text id in the session from 1, how many bytes are still to come after these, the bytes */
	LOG_REC_TEXT = 4,
	/*
	 * statement index from 1, statement_id, parent_statement_id (0: none), string type, nullable
	 * strings: schema, package, routine; text id (0: none or not recorded)
	 */
	LOG_REC_STATEMENT = 5,
	/* statement index, cursor_id, nullable string name, line (0: none), column (0: none) */
	LOG_REC_CURSOR = 6,
	/*
	 * statement index, cursor_id, record_source_id, parent id (0: none), level, first cell of
	 * the group for opens (the one for fetches is behind it), access path text id
	 */
	LOG_REC_RECORD_SOURCE = 7,
	/* statement index, line, column, first cell */
	LOG_REC_LINE = 8,
	/*
	 * A request that has finished, when requests are told apart.  It replaces all counter blocks
	 * of this session with this serial, unless it has LOG_REQUEST_IN_BLOCKS.
	 * serial, statement index, request_id, caller_statement_id, caller_request_id, i64 start
	 * (ns UTC, 8 bytes), duration in ns by the engine's timestamps, flags (enum
	 * log_request_flags), elapsed ns that the engine reported, then pairs (cell - previous cell,
	 * which is 0 at first; value) of the cells that are not 0, to the end
	 */
	LOG_REC_REQUEST = 9,
	/* string: something that the recorder has to say to people */
	LOG_REC_NOTICE = 10
};

enum log_session_flags {
	LOG_SESSION_DETAILED = 1, /* DETAILED_REQUESTS: one row for each request */
	LOG_SESSION_PRELOAD = 2	  /* recorded under LD_PRELOAD: the engine's clock was ours */
};

/* How times are known. */
enum log_mode {
	LOG_MODE_SAMPLED = 1,  /* the call tree has them */
	LOG_MODE_COARSE = 2,   /* cells have them, by a clock that moves with the sampler's looks */
	LOG_MODE_MEASURED = 3, /* cells have them, each event timed */
	LOG_MODE_PASSIVE = 4,  /* the call tree has them; nothing is counted */
};

enum log_request_flags {
	LOG_REQUEST_FINISHED = 1, /* the engine reported its end */
	LOG_REQUEST_IN_BLOCKS = 2 /* too many cells for a record: they stay in its blocks */
};

enum log_session_end {
	LOG_END_FINISHED = 1, /* FINISH_SESSION, or another START_SESSION */
	LOG_END_CANCELLED = 2,
	LOG_END_DISPOSED = 3 /* detach or DISCARD: the engine let go of it without a word */
};

_Static_assert(sizeof(struct log_header) == LOG_HEADER_SIZE, "header fills its page");
_Static_assert(__builtin_offsetof(struct log_header, chunk_count) == 3072, "checksummed part");
_Static_assert(sizeof(struct log_chunk_header) == 64, "chunk header is a cache line");
_Static_assert(sizeof(struct log_block) == 9 * 64, "blocks are whole cache lines");
_Static_assert(sizeof(struct log_node) == 48, "nodes have no padding");
_Static_assert(sizeof(struct log_session_totals) <= LOG_BLOCK_PAYLOAD, "totals fit a block");

#endif
