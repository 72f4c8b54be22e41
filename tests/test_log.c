/*
 * The log's writer, read back by the log's reader: records, texts, chunks, blocks, sessions, limits,
 * the file itself, and a process that is killed while it writes.
 */
#define _GNU_SOURCE
#include "../output/crc32c.h"
#include "../output/log_writer.h"
#include "../output/varint.h"
#include "log_image.h"
#include "run_suite.h"
#include "scratch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct log_options options;
static unsigned stops;
static char said[1024];

static void on_stop(const char *sentence)
{
	stops++;
	snprintf(said, sizeof(said), "%s", sentence);
}

static void set_up(void)
{
	scratch_make();
	options = (struct log_options){
		.directory = scratch, .program = "test log", .clock = "none", .on_stop = on_stop
	};
}

static struct log *acquire(void)
{
	char error[1024];

	ck_assert_msg(log_acquire(log_get(), &options, error, sizeof(error)), "%s", error);
	return log_get();
}

static struct log_image *read_back(void)
{
	struct log_image *image = image_read(log_path(log_get()));

	ck_assert_uint_eq(image->lost, 0);
	return image;
}

/* A definition whose content follows from its number. */
static bool put_line(struct log_stream *stream, uint32_t number)
{
	uint8_t *place = log_record_begin(stream, LOG_REC_LINE, 4 * VARINT_MAX_SIZE);

	if (!place)
		return false;
	place = varint_put(place, 1);
	place = varint_put(place, number);
	place = varint_put(place, number % 7);
	log_record_end(stream, varint_put(place, number + 8));
	return true;
}

static void check_lines(const struct image_session *session, uint32_t first, uint32_t number)
{
	ck_assert_uint_eq(session->lines_count, number);
	for (uint32_t i = 0; i < number; i++) {
		ck_assert_uint_eq(session->lines[i].line, first + i);
		ck_assert_uint_eq(session->lines[i].column, (first + i) % 7);
		ck_assert_uint_eq(session->lines[i].cell, first + i + 8);
	}
}

/* ---- Numbers and checksums ---- */

START_TEST(crc)
{
	uint8_t bytes[300], zeros[32] = { 0 }, ones[32];
	uint32_t whole;

	memset(ones, 0xff, sizeof(ones));
	ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283);
	ck_assert_uint_eq(crc32c(0, "", 0), 0);
	/* RFC 3720, B.4 */
	ck_assert_uint_eq(crc32c(0, zeros, 32), 0x8a9136aa);
	ck_assert_uint_eq(crc32c(0, ones, 32), 0x62a8ab43);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7);
	whole = crc32c(0, bytes, sizeof(bytes));
	for (size_t cut = 0; cut <= sizeof(bytes); cut++)
		ck_assert_uint_eq(crc32c(crc32c(0, bytes, cut), bytes + cut, sizeof(bytes) - cut),
				  whole);
}
END_TEST

START_TEST(varints)
{
	uint8_t bytes[VARINT_MAX_SIZE + 1];

	for (unsigned shift = 0; shift <= 64; shift++) {
		for (int delta = -2; delta <= 2; delta++) {
			uint64_t value = (shift < 64 ? 1ull << shift : 0) + (uint64_t)delta,
				 back = ~value;
			const uint8_t *end;

			memset(bytes, 0xee, sizeof(bytes));
			end = varint_put(bytes, value);
			ck_assert_int_le(end - bytes, VARINT_MAX_SIZE);
			ck_assert_uint_eq(bytes[VARINT_MAX_SIZE], 0xee);
			ck_assert_ptr_eq(varint_get(bytes, end, &back), end);
			ck_assert_uint_eq(back, value);
			for (const uint8_t *cut = bytes; cut < end; cut++)
				ck_assert_ptr_null(varint_get(bytes, cut, &back));
		}
	}
	ck_assert_ptr_eq(varint_put(bytes, 0), bytes + 1);
	ck_assert_ptr_eq(varint_put(bytes, 127), bytes + 1);
	ck_assert_ptr_eq(varint_put(bytes, UINT64_MAX), bytes + 10);
}
END_TEST

START_TEST(malformed_varints)
{
	const uint8_t too_long[] = { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
				     0x80, 0x80, 0x80, 0x80, 0x01 };
	const uint8_t too_large[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02 };
	const uint8_t largest[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01 };
	const uint8_t padded[] = { 0x85, 0x80, 0x00 };
	uint64_t value = 0;

	ck_assert_ptr_null(varint_get(too_long, too_long + sizeof(too_long), &value));
	ck_assert_ptr_null(varint_get(too_large, too_large + sizeof(too_large), &value));
	ck_assert_ptr_null(varint_get(padded, padded, &value));
	ck_assert_ptr_eq(varint_get(largest, largest + sizeof(largest), &value),
			 largest + sizeof(largest));
	ck_assert_uint_eq(value, UINT64_MAX);
	/* Padded lengths are how records are framed. */
	ck_assert_ptr_eq(varint_get(padded, padded + 3, &value), padded + 3);
	ck_assert_uint_eq(value, 5);
}
END_TEST

/* ---- Records ---- */

START_TEST(records)
{
	struct log *log = acquire();
	struct log_image *image;
	struct log_stream stream;

	log_stream_open(&stream, log, log_new_session(log));
	/* Some 20 bytes each: several chunks, more than one extent. */
	for (uint32_t i = 0; i < 50000; i++)
		ck_assert(put_line(&stream, i));
	image = read_back();
	ck_assert_uint_eq(image->state, LOG_RECORDING);
	check_lines(image_session(image, 1), 0, 50000);
	image_free(image);
	log_stream_close(&stream);
	log_release(log);
	image = read_back();
	ck_assert_uint_eq(image->state, LOG_CLOSED);
	check_lines(image_session(image, 1), 0, 50000);
	ck_assert_uint_gt(image->usage.record_chunks, 8);
	image_free(image);
}
END_TEST

/* Records of every size around what is left of a chunk. */
START_TEST(chunk_ends)
{
	struct log *log = acquire();
	struct log_stream stream;
	struct log_image *image;
	const struct image_session *session;
	char *text = malloc(LOG_TEXT_FRAGMENT);
	uint32_t id = 0;

	memset(text, 't', LOG_TEXT_FRAGMENT);
	log_stream_open(&stream, log, log_new_session(log));
	for (size_t size = LOG_TEXT_FRAGMENT - 200; size <= LOG_TEXT_FRAGMENT; size++) {
		ck_assert(log_append_text(&stream, ++id, text, size));
		ck_assert(put_line(&stream, id - 1));
	}
	log_stream_close(&stream);
	log_release(log);
	image = read_back();
	session = image_session(image, 1);
	check_lines(session, 0, id);
	ck_assert_uint_eq(session->texts_count, id);
	for (uint32_t i = 0; i < id; i++) {
		ck_assert(session->texts[i].whole);
		ck_assert_uint_eq(session->texts[i].size, LOG_TEXT_FRAGMENT - 200 + i);
	}
	image_free(image);
	free(text);
}
END_TEST

START_TEST(largest_record)
{
	struct log *log = acquire();
	struct log_stream stream;
	struct log_image *image;
	uint8_t *place;

	log_stream_open(&stream, log, log_new_session(log));
	ck_assert(put_line(&stream, 0));
	place = log_record_begin(&stream, LOG_REC_NOTICE, LOG_RECORD_MAX - 16);
	ck_assert_ptr_nonnull(place);
	memset(place, 'n', LOG_RECORD_MAX - 16);
	log_record_end(&stream,
		       varint_put(place, LOG_RECORD_MAX - 16 - 3) + LOG_RECORD_MAX - 16 - 3);
	ck_assert(put_line(&stream, 1));
	log_stream_close(&stream);
	log_release(log);
	image = read_back();
	check_lines(image_session(image, 1), 0, 2);
	image_free(image);
}
END_TEST

START_TEST(texts)
{
	static const size_t sizes[] = {
		0, 1, LOG_TEXT_FRAGMENT - 1, LOG_TEXT_FRAGMENT, LOG_TEXT_FRAGMENT + 1, 1000000
	};
	struct log *log = acquire();
	struct log_stream stream;
	struct log_image *image;
	char *text = malloc(1000000);

	for (size_t i = 0; i < 1000000; i++)
		text[i] = (char)(i * i >> 3);
	log_stream_open(&stream, log, log_new_session(log));
	for (uint32_t i = 0; i < 6; i++)
		ck_assert(log_append_text(&stream, i + 1, text, sizes[i]));
	log_stream_close(&stream);
	log_release(log);
	image = read_back();
	for (uint32_t i = 0; i < 6; i++) {
		const struct image_text *back = image_text(image_session(image, 1), i + 1);

		ck_assert_ptr_nonnull(back);
		ck_assert(back->whole);
		ck_assert_uint_eq(back->size, sizes[i]);
		ck_assert_int_eq(memcmp(back->bytes, text, sizes[i]), 0);
	}
	image_free(image);
	free(text);
}
END_TEST

/* What was begun and never ended is not there. */
START_TEST(unfinished_record)
{
	struct log *log = acquire();
	struct log_stream stream;
	struct log_image *image;
	uint8_t *place;

	log_stream_open(&stream, log, log_new_session(log));
	ck_assert(put_line(&stream, 0));
	place = log_record_begin(&stream, LOG_REC_LINE, 100);
	memset(place, 0xff, 100);
	image = read_back();
	check_lines(image_session(image, 1), 0, 1);
	image_free(image);
	/* And another may be begun in its place. */
	ck_assert(put_line(&stream, 1));
	image = read_back();
	check_lines(image_session(image, 1), 0, 2);
	image_free(image);
	log_stream_close(&stream);
	log_release(log);
}
END_TEST

/* ---- Sessions ---- */

START_TEST(sessions_share_chunks)
{
	struct log_image *image;

	for (uint32_t i = 1; i <= 200; i++) {
		struct log *log = acquire();
		struct log_stream stream;

		ck_assert_uint_eq(log_new_session(log), i);
		log_stream_open(&stream, log, i);
		for (uint32_t line = 0; line < 10; line++)
			ck_assert(put_line(&stream, i * 100 + line));
		log_stream_close(&stream);
		/* One that writes nothing takes no chunk. */
		log_stream_open(&stream, log, i);
		log_stream_close(&stream);
		log_release(log);
	}
	ck_assert_uint_eq(scratch_logs(NULL), 1);
	image = read_back();
	ck_assert_uint_eq(image->sessions_count, 200);
	for (uint32_t i = 1; i <= 200; i++)
		check_lines(image_session(image, i), i * 100, 10);
	ck_assert_uint_eq(image->usage.record_chunks, 1);
	image_free(image);
}
END_TEST

/* By turns, in the same file: each keeps its order. */
START_TEST(sessions_side_by_side)
{
	enum {
		STREAMS = 5
	};
	struct log_stream streams[STREAMS];
	struct log_image *image;
	struct log *log = NULL;

	for (uint32_t i = 0; i < STREAMS; i++) {
		log = acquire();
		log_stream_open(&streams[i], log, log_new_session(log));
	}
	for (uint32_t line = 0; line < 20000; line++) {
		for (uint32_t i = 0; i < STREAMS; i++)
			ck_assert(put_line(&streams[i], line));
	}
	for (uint32_t i = 0; i < STREAMS; i++) {
		log_stream_close(&streams[i]);
		log_release(log);
	}
	image = read_back();
	for (uint32_t i = 0; i < STREAMS; i++)
		check_lines(image_session(image, i + 1), 0, 20000);
	image_free(image);
}
END_TEST

/* ---- Blocks ---- */

static struct log_block *put_block(struct log *log, uint32_t session, uint64_t value)
{
	struct log_block *block = log_block_new(log);

	if (!block)
		return NULL;
	ck_assert_uint_eq(block->kind, LOG_BLOCK_FREE);
	for (size_t i = 0; i < LOG_BLOCK_PAYLOAD; i++)
		ck_assert_uint_eq(block->payload[i], 0);
	block->session = session;
	block->statement = 1;
	((uint64_t *)block->payload)[0] = value;
	log_block_publish(block, LOG_BLOCK_COUNTERS);
	return block;
}

START_TEST(blocks)
{
	struct log *log = acquire();
	struct log_block *block[300];
	struct log_image *image;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < 300; i++)
		ck_assert_ptr_nonnull(block[i] = put_block(log, 1, i + 1));
	/* Not published: not there. */
	ck_assert_ptr_nonnull(log_block_new(log));
	image = read_back();
	ck_assert_uint_eq(image_session(image, 1)->executions_count, 300);
	for (uint32_t i = 0; i < 300; i++)
		sum += image_session(image, 1)->executions[i].cells[0].value;
	ck_assert_uint_eq(sum, 300 * 301 / 2);
	image_free(image);

	for (uint32_t i = 0; i < 300; i += 2)
		log_block_free(log, block[i]);
	image = read_back();
	ck_assert_uint_eq(image_session(image, 1)->executions_count, 150);
	image_free(image);

	/* The free ones first, cleared. */
	for (uint32_t i = 0; i < 150; i++)
		ck_assert_ptr_nonnull(put_block(log, 2, 1));
	image = read_back();
	ck_assert_uint_eq(image_session(image, 2)->executions_count, 150);
	ck_assert_uint_eq(image->usage.blocks, 301);
	image_free(image);
	log_release(log);

	/* The next user of the file goes on where the last one stopped. */
	acquire();
	ck_assert_ptr_nonnull(put_block(log, 3, 1));
	log_release(log);
	image = read_back();
	ck_assert_uint_eq(image->usage.blocks, 302);
	ck_assert_uint_eq(image_session(image, 1)->executions_count, 150);
	image_free(image);
}
END_TEST

/* ---- Limits ---- */

START_TEST(quota)
{
	struct log_stream stream;
	struct log_image *image;
	struct stat status;
	struct log *log;
	uint32_t lines = 0;
	char error[1024];

	options.max_bytes = 2000000;
	log = acquire();
	log_stream_open(&stream, log, log_new_session(log));
	while (put_line(&stream, lines))
		lines++;
	ck_assert_uint_eq(stops, 1);
	ck_assert_ptr_nonnull(strstr(said, "FBPROF_MAX_BYTES"));
	ck_assert_ptr_nonnull(strstr(said, log_path(log)));
	/* It is over for good, for all of them, and said once. */
	ck_assert(!put_line(&stream, lines));
	ck_assert(!log_append_text(&stream, 1, "x", 1));
	ck_assert_ptr_null(log_block_new(log));
	ck_assert_uint_eq(stops, 1);
	ck_assert(!log_acquire(log, &options, error, sizeof(error)));
	ck_assert_ptr_nonnull(strstr(error, log_path(log)));
	log_stream_close(&stream);
	log_release(log);
	ck_assert_int_eq(stat(log_path(log), &status), 0);
	ck_assert_int_le(status.st_size, 2000000);
	image = read_back();
	ck_assert_uint_eq(image->state, LOG_QUOTA_REACHED);
	check_lines(image_session(image, 1), 0, lines);
	image_free(image);

	/* Then a new file. */
	acquire();
	ck_assert_uint_eq(scratch_logs(NULL), 2);
	ck_assert_uint_eq(log_new_session(log), 1);
	log_release(log);
}
END_TEST

/* ---- The file ---- */

START_TEST(file)
{
	struct log *log = acquire();
	char wanted[64], path[PATH_MAX], error[LOG_ERROR_SIZE];
	struct log_reader *reader;
	struct stat status;

	ck_assert_uint_eq(scratch_logs(path), 1);
	ck_assert_str_eq(path, log_path(log));
	snprintf(wanted, sizeof(wanted), "/test log.%d.2", (int)getpid());
	ck_assert_msg(strstr(path, wanted) != NULL, "%s", path);
	ck_assert_int_eq(lstat(path, &status), 0);
	ck_assert(S_ISREG(status.st_mode));
	ck_assert_uint_eq(status.st_mode & 07777, 0600);
	/* What was reserved is really there. */
	ck_assert_int_ge(status.st_blocks * 512, status.st_size);

	reader = log_reader_open(path, error);
	ck_assert_msg(reader != NULL, "%s", error);
	ck_assert_str_eq(log_reader_text(reader, "program"), "test log");
	ck_assert_str_eq(log_reader_text(reader, "clock"), "none");
	ck_assert_str_eq(log_reader_text(reader, "fbprof"), PACKAGE_VERSION);
	ck_assert_ptr_nonnull(log_reader_text(reader, "host"));
	ck_assert_uint_eq(log_reader_header(reader)->pid, (uint32_t)getpid());
	ck_assert_int_eq(log_reader_liveness(reader), LOG_RECORDED);
	log_release(log);
	ck_assert_int_eq(log_reader_liveness(reader), LOG_NOT_RECORDED);
	log_reader_close(reader);
	ck_assert_uint_eq(own_mappings(".fbprof"), 0);
}
END_TEST

/* An odd program name can't leave the directory. */
START_TEST(program_names)
{
	static const char *const names[] = { "../evil", "a/b", "", "..", "new\nline" };
	struct log *log;

	options.program = names[_i];
	log = acquire();
	ck_assert_int_eq(strncmp(log_path(log), scratch, strlen(scratch)), 0);
	ck_assert_uint_eq(scratch_logs(NULL), 1);
	ck_assert_ptr_null(strchr(log_path(log) + strlen(scratch) + 1, '/'));
	log_release(log);
}
END_TEST

/* TMPDIR's private directory: not one that somebody else has prepared. */
START_TEST(default_directory)
{
	struct log *log = log_get();
	char error[1024], path[PATH_MAX];
	struct stat status;

	if (!access("/var/log/fbprof", W_OK))
		return;
	options.directory = _i ? "" : NULL;
	setenv("TMPDIR", scratch, 1);
	snprintf(path, sizeof(path), "%s/fbprof-%u", scratch, (unsigned)geteuid());

	ck_assert_int_eq(symlink(scratch, path), 0);
	ck_assert(!log_acquire(log, &options, error, sizeof(error)));
	ck_assert_ptr_nonnull(strstr(error, path));
	ck_assert_int_eq(unlink(path), 0);

	ck_assert_int_eq(mkdir(path, 0750), 0);
	ck_assert(!log_acquire(log, &options, error, sizeof(error)));
	ck_assert_int_eq(rmdir(path), 0);

	acquire();
	ck_assert_int_eq(strncmp(log_path(log), path, strlen(path)), 0);
	ck_assert_int_eq(lstat(path, &status), 0);
	ck_assert_uint_eq(status.st_mode & 07777, 0700);
	log_release(log);
}
END_TEST

/* A name that is taken, even by a symbolic link, is left alone. */
START_TEST(names_are_not_followed)
{
	const char *victim = scratch_path("victim");
	struct log *log = log_get();
	struct stat status;
	FILE *file = fopen(victim, "we");
	time_t now = time(NULL);

	fclose(file);
	for (int second = 0; second < 3; second++) {
		char name[128], when[32];
		time_t then = now + second;
		struct tm utc;

		gmtime_r(&then, &utc);
		strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &utc);
		snprintf(name, sizeof(name), "test log.%d.%s.fbprof", (int)getpid(), when);
		ck_assert_int_eq(symlink(victim, scratch_path(name)), 0);
	}
	acquire();
	ck_assert_int_eq(lstat(log_path(log), &status), 0);
	ck_assert(S_ISREG(status.st_mode));
	ck_assert_int_eq(stat(victim, &status), 0);
	ck_assert_int_eq(status.st_size, 0);
	log_release(log);
}
END_TEST

/* ---- kill -9 ---- */

/* Writes for ever, and tells by a byte whenever another 16 lines and 16 counts are in the log. */
static void write_until_killed(int acknowledge)
{
	struct log *log = log_get();
	struct log_stream stream;
	struct log_block *block;
	char error[1024];

	if (!log_acquire(log, &options, error, sizeof(error)))
		_exit(1);
	log_stream_open(&stream, log, log_new_session(log));
	block = log_block_new(log);
	block->session = 1;
	block->statement = 1;
	log_block_publish(block, LOG_BLOCK_COUNTERS);
	for (uint32_t line = 0;; line++) {
		if (!put_line(&stream, line))
			_exit(2);
		++*(volatile uint64_t *)block->payload;
		if (line % 64 == 63)
			log_append_text(&stream, line, error, line % sizeof(error));
		if (line % 16 == 15 && write(acknowledge, "", 1) != 1)
			_exit(3);
	}
}

START_TEST(killed)
{
	uint64_t random = 88172645463325252u;

	for (unsigned round = 0; round < 200; round++) {
		char path[PATH_MAX], byte;
		struct image_session *session;
		struct log_image *image;
		uint32_t acknowledged = 0, wanted;
		int ends[2], status;
		pid_t child;

		ck_assert_int_eq(pipe(ends), 0);
		child = fork();
		if (!child) {
			close(ends[0]);
			write_until_killed(ends[1]);
		}
		close(ends[1]);
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		wanted = 1 + (uint32_t)(random % 500);
		while (acknowledged < wanted && read(ends[0], &byte, 1) == 1)
			acknowledged++;
		ck_assert_int_eq(kill(child, SIGKILL), 0);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_msg(WIFSIGNALED(status), "the child ended by itself: %d",
			      WEXITSTATUS(status));
		while (read(ends[0], &byte, 1) == 1)
			acknowledged++;
		close(ends[0]);

		ck_assert_uint_eq(scratch_logs(path), 1);
		image = image_read(path);
		ck_assert_uint_eq(image->lost, 0);
		ck_assert_uint_eq(image->state, LOG_RECORDING);
		session = image_session(image, 1);
		ck_assert_uint_ge(session->lines_count, acknowledged * 16);
		for (uint32_t i = 0; i < session->lines_count; i++) {
			if (session->lines[i].line != i || session->lines[i].cell != i + 8)
				ck_abort_msg("line %u is wrong", i);
		}
		ck_assert_uint_eq(session->executions_count, 1);
		ck_assert_uint_ge(session->executions[0].cells[0].value, acknowledged * 16);
		ck_assert_uint_le(session->executions[0].cells[0].value, session->lines_count);
		image_free(image);
		unlink(path);
	}
}
END_TEST

static TCase *add_case(Suite *suite, const char *name)
{
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, set_up, scratch_remove);
	tcase_set_timeout(tcase, 300);
	suite_add_tcase(suite, tcase);
	return tcase;
}

int main(void)
{
	Suite *suite = suite_create("log");
	TCase *tcase;

	tcase = add_case(suite, "numbers");
	tcase_add_test(tcase, crc);
	tcase_add_test(tcase, varints);
	tcase_add_test(tcase, malformed_varints);

	tcase = add_case(suite, "contents");
	tcase_add_test(tcase, records);
	tcase_add_test(tcase, chunk_ends);
	tcase_add_test(tcase, largest_record);
	tcase_add_test(tcase, texts);
	tcase_add_test(tcase, unfinished_record);
	tcase_add_test(tcase, sessions_share_chunks);
	tcase_add_test(tcase, sessions_side_by_side);
	tcase_add_test(tcase, blocks);
	tcase_add_test(tcase, quota);

	tcase = add_case(suite, "file");
	tcase_add_test(tcase, file);
	tcase_add_loop_test(tcase, program_names, 0, 5);
	tcase_add_loop_test(tcase, default_directory, 0, 2);
	tcase_add_test(tcase, names_are_not_followed);

	tcase = add_case(suite, "kill");
	tcase_add_test(tcase, killed);

	return run_suite(suite);
}
