/*
 * The log's writer: see log_writer.h for who may call what, FORMAT.md for the layout.
 *
 * The file grows by extents, which are reserved on disk before they are mapped: a store can't fail
 * for want of space (SIGBUS) later on.  Extents stay mapped until the last session has ended.
 *
 * One mutex guards everything but the contents of chunks and blocks that were handed out.  It nests
 * inside nothing else, and is held across posix_fallocate and mmap only when the file grows.
 *
 * Another process reads the file meanwhile, and we may be killed at any instant: whatever makes
 * something visible (chunk_count, used, kind) is stored last, with release order.
 */
#define _GNU_SOURCE
#include "log_writer.h"
#include "crc32c.h"
#include "varint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Space is reserved 256 KiB at a time at first, so that a small log is small, then 4 MiB. */
#define EXTENT_MIN_CHUNKS 4u
#define EXTENT_MAX_CHUNKS 64u

/*
 * Rotation: once a file has grown to its share of the quota, the next session that finds no other one
 * running begins a new file.  The oldest files of this process give way when the quota is reached.
 */
#define FILES_KEPT 3u

/* A partly used records chunk is given to another session if it has at least this much room. */
#define WORTHWHILE_ROOM 2048u

/* Length of a record's length field: a varint padded to a fixed size, so that it can be filled in last. */
#define LENGTH_SIZE  3u
#define FRAMING_SIZE (LENGTH_SIZE + 1 + 4)

struct mapping {
	struct mapping *next;
	void *address;
	size_t size;
};

/*
 * Chunks with room left, to be used by the next session: their numbers, since mappings come and go.
 * We don't ask the file what we know ourselves: it may have been damaged meanwhile.
 */
struct chunk_list {
	struct {
		uint64_t index, used;
	} * chunk;
	size_t count, room;
};

/* A file that this process has written, and would know again. */
struct log_file {
	char path[PATH_MAX];
	dev_t device;
	ino_t inode;
	uint64_t size; /* bytes reserved */
};

struct log {
	pthread_mutex_t mutex;
	unsigned users;
	int fd;
	struct log_file file;		 /* the present one, or the last */
	struct log_file old[FILES_KEPT]; /* those before it, oldest first */
	unsigned old_count;
	struct log_header *header; /* NULL: not open */
	void (*on_stop)(const char *sentence);
	uint64_t max_bytes;

	struct mapping *mappings;
	uint8_t *extent;	/* where the unused chunks of the newest extent are mapped */
	uint64_t extent_chunks; /* how many of them */
	uint64_t chunk_count;	/* handed out so far in this file */
	uint32_t last_session;

	struct chunk_list spare_records;
	uint64_t blocks_chunk_index; /* the chunk that blocks are taken from; UINT64_MAX: none */
	struct log_chunk_header *blocks_chunk; /* the same, if mapped */
	uint64_t blocks_used;		       /* of it */
	struct log_block **free_blocks;
	size_t free_count, free_room;
	_Atomic bool stopped;
};

static struct log the_log = {
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.fd = -1,
	.blocks_chunk_index = UINT64_MAX,
};

struct log *log_get(void)
{
	return &the_log;
}

void log_lock(struct log *log)
{
	pthread_mutex_lock(&log->mutex);
}

void log_unlock(struct log *log)
{
	pthread_mutex_unlock(&log->mutex);
}

const char *log_path(const struct log *log)
{
	return log->file.path;
}

/* How many chunks the file has space for. */
static uint64_t reserved_chunks(const struct log *log)
{
	return (log->file.size - LOG_HEADER_SIZE) / LOG_CHUNK_SIZE;
}

/* Makes a store visible to readers of the file only after all that was stored before it. */
#define store_release(field, value)                                             \
	atomic_store_explicit((_Atomic __typeof__(*(field)) *)(field), (value), \
			      memory_order_release)

static bool fail(char *error, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static bool fail(char *error, size_t size, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, size, format, arguments);
	va_end(arguments);
	return false;
}

/* ---- The file ---- */

/*
 * Opens the directory for logs without following a symbolic link in its last component, makes it if
 * it isn't there, and refuses one in which a stranger could plant or replace files.
 */
static int open_directory(const char *path, bool ours, char *error, size_t error_size)
{
	struct stat status;
	int fd;

	if (mkdir(path, 0700) && errno != EEXIST) {
		fail(error, error_size,
		     "cannot create the log directory %s (%s): create it for this user, or set FBPROF_DIR",
		     path, strerror(errno));
		return -1;
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		if (errno == ELOOP || errno == ENOTDIR)
			fail(error, error_size,
			     "the log directory %s is not a directory, or is a symbolic link: name a real one in FBPROF_DIR",
			     path);
		else
			fail(error, error_size,
			     "cannot open the log directory %s (%s): check FBPROF_DIR", path,
			     strerror(errno));
		return -1;
	}
	if (fstat(fd, &status) || (status.st_uid != geteuid() && (ours || status.st_uid)) ||
	    status.st_mode & (ours ? 077 : S_IWOTH)) {
		fail(error, error_size,
		     "the log directory %s can be changed by other users: set FBPROF_DIR to one of this user's own, of mode 0700",
		     path);
		close(fd);
		return -1;
	}
	return fd;
}

static int choose_directory(const char *wanted, char *path, size_t size, char *error,
			    size_t error_size)
{
	static const char system_directory[] = "/var/log/fbprof";
	const char *temporary;

	if (wanted && *wanted) {
		size_t length = (size_t)snprintf(path, size, "%s", wanted);

		/* With a slash at its end a symbolic link would be followed. */
		while (length > 1 && path[length - 1] == '/')
			path[--length] = 0;
		return open_directory(path, false, error, error_size);
	}
	if (!access(system_directory, W_OK | X_OK)) {
		snprintf(path, size, "%s", system_directory);
		return open_directory(path, false, error, error_size);
	}
	temporary = secure_getenv("TMPDIR");
	snprintf(path, size, "%s/fbprof-%u", temporary && *temporary ? temporary : "/tmp",
		 (unsigned)geteuid());
	return open_directory(path, true, error, error_size);
}

/* Adds "key=value" to the header's text; returns the place for the next one. */
static char *add_text(char *place, char *end, const char *key, const char *value)
{
	int size = snprintf(place, (size_t)(end - place), "%s=%s", key, value);

	return size >= 0 && size < end - place - 1 ? place + size + 1 : place;
}

static pid_t profiled(const struct log_options *options)
{
	return options->pid ? options->pid : getpid();
}

static void fill_header(struct log_header *header, const struct log_options *options)
{
	struct timespec realtime, monotonic;
	char host[256] = "";
	char *place = header->text, *end = header->text + sizeof(header->text);

	clock_gettime(CLOCK_MONOTONIC, &monotonic);
	clock_gettime(CLOCK_REALTIME, &realtime);
	gethostname(host, sizeof(host) - 1);

	memcpy(header->magic, LOG_MAGIC, LOG_MAGIC_SIZE);
	header->version = LOG_VERSION;
	header->header_size = LOG_HEADER_SIZE;
	header->chunk_size = LOG_CHUNK_SIZE;
	header->start_realtime = realtime.tv_sec * 1000000000LL + realtime.tv_nsec;
	header->start_monotonic = monotonic.tv_sec * 1000000000LL + monotonic.tv_nsec;
	header->pid = (uint32_t)profiled(options);
	place = add_text(place, end, "fbprof", PACKAGE_VERSION);
	place = add_text(place, end, "program", options->program);
	place = add_text(place, end, "host", host);
	place = add_text(place, end, "clock", options->clock);
	header->crc = crc32c(0, header, offsetof(struct log_header, chunk_count));
}

static void set_path(struct log *log, const char *directory, const char *name)
{
	size_t length = strlen(directory);

	/* PATH_MAX holds any path that could be opened. */
	memcpy(log->file.path, directory, length + 1);
	snprintf(log->file.path + length, sizeof(log->file.path) - length, "/%s", name);
}

/* Reserves the bytes from `from` to `to`.  Returns 0 or an error number; never raises a signal. */
static int reserve(int fd, uint64_t from, uint64_t to)
{
	struct rlimit limit;
	int error;

	/* Beyond this limit the kernel would send SIGXFSZ, which ends most programs. */
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY &&
	    to > limit.rlim_cur)
		return EFBIG;
	do
		error = posix_fallocate(fd, (off_t)from, (off_t)(to - from));
	while (error == EINTR);
	return error;
}

static void *map(struct log *log, uint64_t offset, size_t size)
{
	struct mapping *mapping = malloc(sizeof(*mapping));
	void *address;

	if (!mapping)
		return NULL;
	address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, log->fd, (off_t)offset);
	if (address == MAP_FAILED) {
		free(mapping);
		return NULL;
	}
	/* A forked child must not write to its parent's log. */
	madvise(address, size, MADV_DONTFORK);
	mapping->address = address;
	mapping->size = size;
	mapping->next = log->mappings;
	log->mappings = mapping;
	return address;
}

static void close_file(struct log *log)
{
	while (log->mappings) {
		struct mapping *mapping = log->mappings;

		log->mappings = mapping->next;
		munmap(mapping->address, mapping->size);
		free(mapping);
	}
	if (log->fd >= 0)
		close(log->fd);
	log->fd = -1;
	log->header = NULL;
	log->extent = NULL;
	log->extent_chunks = 0;
	log->blocks_chunk = NULL;
	free(log->free_blocks);
	log->free_blocks = NULL;
	log->free_count = log->free_room = 0;
}

/* A write lock on the first byte, held by the open file, tells readers that we are alive. */
static void mark_alive(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };

	fcntl(fd, F_OFD_SETLK, &lock);
}

static bool is_same_file(const struct log_file *file, const struct stat *status)
{
	return status->st_dev == file->device && status->st_ino == file->inode &&
	       (uint64_t)status->st_size >= file->size;
}

/* The oldest of the former files makes room.  False: there is none. */
static bool delete_oldest(struct log *log)
{
	struct log_file *oldest = log->old;
	struct stat status;

	if (!log->old_count)
		return false;
	/* Somebody may have moved it, and put something else in its place. */
	if (!lstat(oldest->path, &status) && is_same_file(oldest, &status))
		unlink(oldest->path);
	memmove(oldest, oldest + 1, --log->old_count * sizeof(*oldest));
	return true;
}

static uint64_t bytes_of_old_files(const struct log *log)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < log->old_count; i++)
		bytes += log->old[i].size;
	return bytes;
}

/* The present file becomes a former one. */
static void retire_file(struct log *log)
{
	if (!*log->file.path)
		return;
	if (log->old_count == FILES_KEPT)
		delete_oldest(log);
	log->old[log->old_count++] = log->file;
	log->file.path[0] = 0;
}

static bool is_grown(const struct log *log)
{
	return log->file.size > log->max_bytes / (FILES_KEPT + 1);
}

/*
 * Opens the file that this process used before, unless it has grown to its share or somebody has
 * taken it away meanwhile.
 */
static bool reopen_file(struct log *log)
{
	struct stat status;

	if (!*log->file.path || log->stopped || is_grown(log))
		return false;
	log->fd = open(log->file.path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (log->fd < 0)
		return false;
	if (fstat(log->fd, &status) || !is_same_file(&log->file, &status) ||
	    !(log->header = map(log, 0, LOG_HEADER_SIZE))) {
		close_file(log);
		return false;
	}
	mark_alive(log->fd);
	store_release(&log->header->state, LOG_RECORDING);
	return true;
}

/* A program's name in a file's: nothing that leaves the directory or upsets a terminal. */
static void copy_program(char to[65], const char *program)
{
	snprintf(to, 65, "%s", *program ? program : "unknown");
	for (; *to; to++) {
		if (*to == '/' || (unsigned char)*to < ' ' || *to == 0x7f)
			*to = '_';
	}
}

static bool create_file(struct log *log, const struct log_options *options, char *error,
			size_t error_size)
{
	char directory[PATH_MAX - NAME_MAX - 2], name[NAME_MAX], program[65], when[32];
	time_t now = time(NULL);
	struct tm utc;
	const uint64_t size = LOG_HEADER_SIZE + EXTENT_MIN_CHUNKS * (uint64_t)LOG_CHUNK_SIZE;
	struct stat status;
	int directory_fd, problem;

	if (options->directory && *options->directory && *options->directory != '/')
		return fail(
			error, error_size,
			"FBPROF_DIR=%.200s is relative to who knows what: name it from the root on",
			options->directory);
	if (options->directory && strlen(options->directory) >= sizeof(directory))
		return fail(
			error, error_size,
			"the path of the log directory is too long: set FBPROF_DIR to a shorter one");
	directory_fd = choose_directory(options->directory, directory, sizeof(directory), error,
					error_size);
	if (directory_fd < 0)
		return false;

	gmtime_r(&now, &utc);
	strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &utc);
	copy_program(program, options->program);
	snprintf(name, sizeof(name), "%s.%d.%s.fbprof", program, (int)profiled(options), when);
	for (unsigned attempt = 2; attempt < 100; attempt++) {
		log->fd = openat(directory_fd, name,
				 O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (log->fd >= 0 || errno != EEXIST)
			break;
		snprintf(name, sizeof(name), "%s.%d.%s.%u.fbprof", program, (int)profiled(options),
			 when, attempt);
	}
	if (log->fd < 0) {
		problem = errno;
		close(directory_fd);
		return fail(
			error, error_size,
			"cannot create a log in %s (%s): make it writable for this user, or set FBPROF_DIR",
			directory, strerror(problem));
	}

	problem = reserve(log->fd, 0, size);
	if (!problem && (fstat(log->fd, &status) || !(log->header = map(log, 0, LOG_HEADER_SIZE))))
		problem = errno;
	if (problem) {
		unlinkat(directory_fd, name, 0);
		close(directory_fd);
		close_file(log);
		return fail(
			error, error_size,
			"cannot reserve space for a log in %s (%s): free some, or set FBPROF_DIR",
			directory, strerror(problem));
	}
	close(directory_fd);
	mark_alive(log->fd);
	retire_file(log);
	set_path(log, directory, name);
	log->file.device = status.st_dev;
	log->file.inode = status.st_ino;
	log->file.size = size;
	log->chunk_count = 0;
	log->last_session = 0;
	log->spare_records.count = 0;
	log->blocks_chunk_index = UINT64_MAX;
	atomic_store_explicit(&log->stopped, false, memory_order_relaxed);
	fill_header(log->header, options);
	return true;
}

bool log_acquire(struct log *log, const struct log_options *options, char *error, size_t error_size)
{
	bool open = true;

	log_lock(log);
	if (log->stopped && log->users)
		open = fail(
			error, error_size,
			"recording to %s has stopped (disk full or FBPROF_MAX_BYTES): finish the running sessions first",
			log->file.path);
	else if (!log->users) {
		log->on_stop = options->on_stop;
		log->max_bytes = options->max_bytes ? options->max_bytes : LOG_DEFAULT_MAX_BYTES;
		open = reopen_file(log) || create_file(log, options, error, error_size);
	}
	if (open)
		log->users++;
	log_unlock(log);
	return open;
}

void log_release(struct log *log)
{
	log_lock(log);
	if (--log->users == 0) {
		if (!log->stopped)
			store_release(&log->header->state, LOG_CLOSED);
		close_file(log);
	}
	log_unlock(log);
}

void log_forget(struct log *log)
{
	struct mapping *next;

	/* The mappings themselves were not inherited (MADV_DONTFORK): only the notes about them. */
	for (struct mapping *mapping = log->mappings; mapping; mapping = next) {
		next = mapping->next;
		free(mapping);
	}
	log->mappings = NULL;
	close_file(log);
	log->users = 0;
	log->file.path[0] = 0;
	log->old_count = 0;
}

bool log_is_grown(struct log *log)
{
	bool grown;

	log_lock(log);
	grown = is_grown(log);
	log_unlock(log);
	return grown;
}

uint32_t log_new_session(struct log *log)
{
	uint32_t session;

	log_lock(log);
	session = ++log->last_session;
	log_unlock(log);
	return session;
}

/* ---- Chunks.  The mutex is held. ---- */

static void stop(struct log *log, enum log_state state, const char *why)
{
	char sentence[PATH_MAX + 256];

	if (atomic_exchange_explicit(&log->stopped, true, memory_order_relaxed))
		return;
	store_release(&log->header->state, state);
	snprintf(sentence, sizeof(sentence),
		 "recording to %s has stopped: %s; queries go on unprofiled", log->file.path, why);
	if (log->on_stop)
		log->on_stop(sentence);
}

static bool add_extent(struct log *log)
{
	uint64_t reserved = reserved_chunks(log);
	uint64_t chunks = reserved - log->chunk_count; /* of a file that was opened again */
	uint64_t start, end;
	char why[128];
	int problem;

	if (!chunks) {
		chunks = reserved < EXTENT_MAX_CHUNKS ? reserved : EXTENT_MAX_CHUNKS;
		start = log->file.size;
		while (start + chunks * LOG_CHUNK_SIZE + bytes_of_old_files(log) > log->max_bytes &&
		       delete_oldest(log))
			;
		/* The last extents are as small as they need be. */
		while (chunks > 1 && start + chunks * LOG_CHUNK_SIZE > log->max_bytes)
			chunks /= 2;
		if (start + chunks * LOG_CHUNK_SIZE > log->max_bytes) {
			stop(log, LOG_QUOTA_REACHED, "it has reached FBPROF_MAX_BYTES");
			return false;
		}
		for (;; chunks /= 2) {
			end = start + chunks * LOG_CHUNK_SIZE;
			problem = reserve(log->fd, start, end);
			if (!problem || chunks == 1)
				break;
		}
		if (problem) {
			snprintf(why, sizeof(why), "no space could be reserved (%s)",
				 strerror(problem));
			stop(log, LOG_DISK_FULL, why);
			return false;
		}
		log->file.size = end;
	}
	log->extent = map(log, LOG_HEADER_SIZE + log->chunk_count * LOG_CHUNK_SIZE,
			  chunks * LOG_CHUNK_SIZE);
	if (!log->extent) {
		stop(log, LOG_DISK_FULL, "it could not be mapped (out of memory or mappings)");
		return false;
	}
	log->extent_chunks = chunks;
	return true;
}

static struct log_chunk_header *new_chunk(struct log *log, enum log_chunk_kind kind)
{
	struct log_chunk_header *chunk;

	if (log->stopped || (!log->extent_chunks && !add_extent(log)))
		return NULL;
	chunk = (struct log_chunk_header *)log->extent;
	log->extent += LOG_CHUNK_SIZE;
	log->extent_chunks--;
	chunk->magic = LOG_CHUNK_MAGIC;
	chunk->kind = kind;
	chunk->index = log->chunk_count++;
	chunk->crc = crc32c(0, chunk, offsetof(struct log_chunk_header, crc));
	store_release(&log->header->chunk_count, log->chunk_count);
	return chunk;
}

/* Maps a chunk of an earlier time again. */
static struct log_chunk_header *old_chunk(struct log *log, uint64_t index)
{
	return map(log, LOG_HEADER_SIZE + index * LOG_CHUNK_SIZE, LOG_CHUNK_SIZE);
}

/* ---- Records ---- */

void log_stream_open(struct log_stream *stream, struct log *log, uint32_t session)
{
	*stream = (struct log_stream){ .log = log, .session = session };
}

void log_stream_close(struct log_stream *stream)
{
	struct log *log = stream->log;
	struct chunk_list *spare = &log->spare_records;
	bool worthwhile = stream->chunk && stream->used + WORTHWHILE_ROOM <= LOG_CHUNK_ROOM;

	stream->chunk = NULL;
	if (!worthwhile)
		return;
	log_lock(log);
	if (spare->count == spare->room) {
		size_t room = spare->room ? spare->room * 2 : 16;
		void *chunk = realloc(spare->chunk, room * sizeof(*spare->chunk));

		if (chunk) {
			spare->chunk = chunk;
			spare->room = room;
		}
	}
	if (spare->count < spare->room) {
		spare->chunk[spare->count].index = stream->index;
		spare->chunk[spare->count++].used = stream->used;
	}
	log_unlock(log);
}

/* Framing around the record's payload, which ends at `end`; makes it visible. */
static void commit(struct log_stream *stream, uint8_t *end)
{
	uint8_t *record = stream->record;
	uint32_t length = (uint32_t)(end - (record + LENGTH_SIZE + 1));
	uint32_t crc = crc32c(0, record + LENGTH_SIZE, length + 1);

	record[0] = (uint8_t)(length | 0x80);
	record[1] = (uint8_t)(length >> 7 | 0x80);
	record[2] = (uint8_t)(length >> 14 & 0x7f);
	memcpy(end, &crc, 4);
	stream->used = (uint64_t)(end + 4 - (uint8_t *)(stream->chunk + 1));
	store_release(&stream->chunk->used, stream->used);
}

/* Gives the stream a chunk and says in it whose records follow. */
static bool next_chunk(struct log_stream *stream)
{
	struct log *log = stream->log;
	struct chunk_list *spare = &log->spare_records;
	struct log_chunk_header *chunk = NULL;

	log_lock(log);
	/* Only a stream's first chunk may be an old one: readers rely on rising chunk numbers. */
	if (!stream->chunk && !log->stopped && spare->count) {
		spare->count--;
		chunk = old_chunk(log, spare->chunk[spare->count].index);
		stream->index = spare->chunk[spare->count].index;
		stream->used = spare->chunk[spare->count].used;
	}
	if (!chunk) {
		chunk = new_chunk(log, LOG_CHUNK_RECORDS);
		stream->index = log->chunk_count - 1;
		stream->used = 0;
	}
	log_unlock(log);
	if (!chunk)
		return false;

	stream->chunk = chunk;
	stream->record = (uint8_t *)(chunk + 1) + stream->used;
	stream->record[LENGTH_SIZE] = LOG_REC_SESSION;
	commit(stream, varint_put(stream->record + LENGTH_SIZE + 1, stream->session));
	return true;
}

uint8_t *log_record_begin(struct log_stream *stream, enum log_record_type type, size_t max_payload)
{
	size_t size = max_payload + FRAMING_SIZE;

	if (atomic_load_explicit(&stream->log->stopped, memory_order_relaxed))
		return NULL;
	while (!stream->chunk || stream->used + size > LOG_CHUNK_ROOM) {
		if (!next_chunk(stream))
			return NULL;
	}
	stream->record = (uint8_t *)(stream->chunk + 1) + stream->used;
	stream->record[LENGTH_SIZE] = (uint8_t)type;
	return stream->record + LENGTH_SIZE + 1;
}

void log_record_end(struct log_stream *stream, uint8_t *end)
{
	commit(stream, end);
}

bool log_append_text(struct log_stream *stream, uint32_t text_id, const char *text, size_t size)
{
	do {
		size_t part = size < LOG_TEXT_FRAGMENT ? size : LOG_TEXT_FRAGMENT;
		uint8_t *place = log_record_begin(stream, LOG_REC_TEXT, part + 2 * VARINT_MAX_SIZE);

		if (!place)
			return false;
		size -= part;
		place = varint_put(place, text_id);
		place = varint_put(place, size);
		memcpy(place, text, part);
		text += part;
		log_record_end(stream, place + part);
	} while (size);
	return true;
}

/* ---- Blocks ---- */

static struct log_block *take_block(struct log *log)
{
	struct log_chunk_header *chunk;

	if (log->stopped)
		return NULL;
	if (log->free_count) {
		struct log_block *block = log->free_blocks[--log->free_count];

		memset((uint8_t *)block + sizeof(block->kind), 0,
		       sizeof(*block) - sizeof(block->kind));
		return block;
	}
	if (!log->blocks_chunk && log->blocks_chunk_index != UINT64_MAX)
		log->blocks_chunk = old_chunk(log, log->blocks_chunk_index);
	if (!log->blocks_chunk || log->blocks_used == LOG_BLOCKS_PER_CHUNK) {
		log->blocks_chunk = new_chunk(log, LOG_CHUNK_BLOCKS);
		if (!log->blocks_chunk)
			return NULL;
		log->blocks_chunk_index = log->chunk_count - 1;
		log->blocks_used = 0;
	}
	chunk = log->blocks_chunk;
	store_release(&chunk->used, log->blocks_used + 1);
	return (struct log_block *)(chunk + 1) + log->blocks_used++;
}

struct log_block *log_block_new(struct log *log)
{
	struct log_block *block;

	log_lock(log);
	block = take_block(log);
	log_unlock(log);
	return block;
}

void log_block_publish(struct log_block *block, enum log_block_kind kind)
{
	store_release(&block->kind, kind);
}

void log_block_free(struct log *log, struct log_block *block)
{
	store_release(&block->kind, LOG_BLOCK_FREE);
	log_lock(log);
	if (log->free_count == log->free_room) {
		size_t room = log->free_room ? log->free_room * 2 : 64;
		struct log_block **blocks =
			realloc(log->free_blocks, room * sizeof(struct log_block *));

		if (blocks) {
			log->free_blocks = blocks;
			log->free_room = room;
		}
	}
	if (log->free_count < log->free_room) /* else it is lost, which is only a waste */
		log->free_blocks[log->free_count++] = block;
	log_unlock(log);
}
