/*
 * The recorder of passive mode, on a process that exists only here: who is where at each look, and when
 * that changes, is the test's to say.  What it then finds in the log must be that.
 */
#define _GNU_SOURCE
#include "../passive/owed_time.h"
#include "../passive/recorder.h"
#include "log_image.h"
#include "run_suite.h"
#include "scratch.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS	1000000u
#define SECOND	1000000000ull
#define THREADS 4

/* Addresses of objects. */
#define ATTACHMENT 0x1000
#define BLOCK	   0x2000
#define PROCEDURE  0x3000

struct request {
	uint64_t statement, id;
	uint32_t line, column;
};

/* What a thread executes. */
struct place {
	bool torn;
	struct passive_head first; /* seen, before what is told */
	unsigned attachment;	   /* its id; 0: idle */
	uint32_t count;
	struct request requests[3];
};

struct statement {
	uint64_t address;
	const char *text, *procedure, *package;
};

static struct process_thread threads[THREADS];
static struct place places[THREADS];
static struct statement statements[8];
static uint64_t cpu[THREADS];
static unsigned reads;
static void (*after_read)(void); /* what happens right after a position was read */
static bool alive;
static uint64_t moment; /* in ns */

static uint64_t tell_time(void)
{
	return moment;
}

static bool update(struct recorder_source *source)
{
	source->threads = threads;
	source->count = THREADS;
	return alive;
}

static enum passive_state read_place(struct recorder_source *source,
				     const struct process_thread *thread,
				     struct passive_position *position)
{
	const struct place place = places[thread->tls - 1];
	uint64_t when = moment;

	(void)source;
	reads++;
	position->first = place.first;
	if (after_read)
		after_read();
	if (place.torn)
		return PASSIVE_TORN;
	if (!place.attachment)
		return PASSIVE_IDLE;
	position->when = when;
	position->attachment = ATTACHMENT + place.attachment;
	position->attachment_id = place.attachment;
	position->count = place.count;
	for (uint32_t i = 0; i < place.count; i++)
		position->requests[i] = (struct passive_request){
			.request = place.requests[i].id * 16,
			.statement = place.requests[i].statement,
			.request_id = place.requests[i].id,
			.line = place.requests[i].line,
			.column = place.requests[i].column,
		};
	return PASSIVE_BUSY;
}

static void read_text(struct recorder_source *source, enum layout_fact fact, uint64_t object,
		      char *text, size_t size)
{
	const char *found = NULL;

	(void)source;
	if (fact == LAYOUT_USER)
		found = object == ATTACHMENT + 1 ? "SYSDBA" : "SOMEBODY";
	else if (fact == LAYOUT_DATABASE)
		found = "/data/shop.fdb";
	for (unsigned i = 0; i < sizeof(statements) / sizeof(*statements); i++) {
		if (statements[i].address != object)
			continue;
		if (fact == LAYOUT_SQL_TEXT)
			found = statements[i].text;
		else if (fact == LAYOUT_PROCEDURE)
			found = statements[i].procedure;
		else if (fact == LAYOUT_PROCEDURE_PACKAGE)
			found = statements[i].package;
	}
	snprintf(text, size, "%s", found ? found : "");
}

static void begin_look(struct recorder_source *source)
{
	(void)source;
}

/* The witness is the statement as it was. */
static bool is_same(struct recorder_source *source, uint64_t statement, void **witness)
{
	const struct statement *found = NULL, *before = *witness;

	(void)source;
	for (unsigned i = 0; i < sizeof(statements) / sizeof(*statements); i++) {
		if (statements[i].address == statement)
			found = &statements[i];
	}
	ck_assert_ptr_nonnull(found);
	if (before)
		return found->text == before->text && found->procedure == before->procedure;
	*witness = malloc(sizeof(*found));
	memcpy(*witness, found, sizeof(*found));
	return false;
}

static uint64_t read_cpu(struct recorder_source *source, pid_t thread)
{
	(void)source;
	return cpu[thread - 100];
}

static struct recorder_source source = {
	.update = update,
	.read = read_place,
	.text = read_text,
	.begin_look = begin_look,
	.is_same = is_same,
	.clock = tell_time,
	.cpu_time = read_cpu,
	.engine = "5.0.4",
};

/* A thread stands still for as long as it is torn otherwise: what is read then is certain. */
#define HELD (MS / 4)

static unsigned stops;

static enum passive_state read_stopped(struct recorder_source *of,
				       const struct process_thread *thread,
				       struct passive_position *position, uint64_t *held)
{
	bool *torn = &places[thread->tls - 1].torn, was_torn = *torn;
	enum passive_state state;

	stops++;
	*torn = false;
	state = read_place(of, thread, position);
	*torn = was_torn;
	*held = HELD;
	return state;
}

static void read_plan(struct recorder_source *of, const struct process_thread *thread,
		      const struct passive_position *position, struct plan_chain *chain)
{
	(void)of;
	(void)thread;
	(void)position;
	chain->count = 0;
	chain->whole = false;
}

static struct recorder_options options;
static struct recorder *recorder;
static uint64_t now;

static void start(void)
{
	char error[1024];

	recorder = recorder_new(&options, error, sizeof(error));
	ck_assert_msg(recorder != NULL, "%s", error);
	ck_assert(recorder_add(recorder, &source));
}

static void set_up(void)
{
	scratch_make();
	memset(places, 0, sizeof(places));
	memset(statements, 0, sizeof(statements));
	memset(cpu, 0, sizeof(cpu));
	for (unsigned i = 0; i < THREADS; i++)
		threads[i] = (struct process_thread){ .id = (pid_t)(100 + i), .tls = i + 1 };
	statements[0] = (struct statement){ BLOCK, "execute block as begin end", NULL, NULL };
	statements[1] = (struct statement){ PROCEDURE, NULL, "PAY", "SALARIES" };
	options = (struct recorder_options){
		.log = { .directory = scratch,
			 .program = "firebird",
			 .pid = 4711,
			 .clock = "none" },
		.interval = MS,
		.share = 100,
	};
	alive = true;
	now = SECOND;
	reads = 0;
	after_read = NULL;
	source.ended = false;
	source.read_stopped = NULL;
	source.read_plan = NULL;
	start();
}

/* So many looks, 1 ms apart. */
static void look(unsigned count)
{
	while (count--) {
		recorder_look(recorder, now);
		now += MS;
	}
}

static struct log_image *finish(void)
{
	char path[PATH_MAX];
	struct log_image *image;

	snprintf(path, sizeof(path), "%s", recorder_path(recorder));
	recorder_free(recorder);
	recorder = NULL;
	image = image_read(path);
	ck_assert_uint_eq(image->lost, 0);
	return image;
}

static void run_block(unsigned thread, unsigned attachment, uint64_t id, uint32_t line)
{
	places[thread] = (struct place){ .attachment = attachment,
					 .count = 1,
					 .requests = { { BLOCK, id, line, 3 } } };
}

/* The time of the node with this path of kinds and lines below the root: 0 for a request. */
static const struct log_node *find_node(const struct image_session *session, const uint32_t *lines,
					unsigned count)
{
	uint32_t parent = 0;
	const struct log_node *found = NULL;

	for (unsigned i = 0; i < count; i++) {
		found = NULL;
		for (size_t j = 0; j < session->nodes_count && !found; j++) {
			const struct log_node *node = &session->nodes[j].is;
			uint32_t line = 0;

			for (size_t k = 0; k < session->lines_count; k++) {
				if (session->lines[k].statement == node->statement &&
				    session->lines[k].cell == (node->position & LOG_NODE_CELL_MASK))
					line = session->lines[k].line;
			}
			if (node->parent == parent && line == lines[i]) {
				found = node;
				parent = session->nodes[j].id;
			}
		}
		ck_assert_msg(found != NULL, "no node for line %u", lines[i]);
	}
	return found;
}

/* Two attachments at work, one of them half the time. */
START_TEST(shares)
{
	struct log_image *image;
	struct image_session *session;

	run_block(0, 1, 10, 7);
	for (unsigned i = 0; i < 100; i++) {
		run_block(2, 2, 20, 8);
		look(1);
		places[2].attachment = 0;
		look(1);
	}
	run_block(0, 1, 10, 9);
	look(50);
	ck_assert_uint_eq(recorder_totals(recorder)->samples, 350);
	image = finish();
	ck_assert_uint_eq(image->sessions_count, 2);
	session = image_session(image, 1);
	ck_assert_uint_eq(session->mode, LOG_MODE_PASSIVE);
	ck_assert_uint_eq(session->interval, MS);
	ck_assert_int_eq(session->attachment_id, 1);
	ck_assert_str_eq(session->user, "SYSDBA");
	ck_assert_str_eq(session->database, "/data/shop.fdb");
	ck_assert_str_eq(session->engine, "5.0.4");
	ck_assert_uint_eq(session->end_reason, LOG_END_FINISHED);
	ck_assert_uint_eq(session->statements_count, 1);
	ck_assert_str_eq(session->statements[0].type, "BLOCK");
	ck_assert_str_eq(image_text(session, session->statements[0].text)->bytes,
			 "execute block as begin end");
	/* The first look stands for no time. */
	ck_assert_uint_eq(find_node(session, (uint32_t[]){ 0, 7 }, 2)->self_time, 199 * MS);
	ck_assert_uint_eq(find_node(session, (uint32_t[]){ 0, 9 }, 2)->self_time, 50 * MS);
	ck_assert_uint_eq(session->totals.sampled_time, 249 * MS);
	ck_assert_uint_eq(session->totals.samples, 250);
	session = image_session(image, 2);
	ck_assert_str_eq(session->user, "SOMEBODY");
	ck_assert_uint_eq(find_node(session, (uint32_t[]){ 0, 8 }, 2)->self_time, 99 * MS);
	image_free(image);
}
END_TEST

START_TEST(calls)
{
	struct log_image *image;
	struct image_session *session;

	places[1] = (struct place){
		.attachment = 1,
		.count = 3,
		.requests = { { BLOCK, 1, 4, 1 }, { PROCEDURE, 2, 11, 5 }, { PROCEDURE, 3, 12, 5 } }
	};
	look(11);
	places[1].count = 2;
	look(10);
	image = finish();
	session = image_session(image, 1);
	ck_assert_uint_eq(session->nodes_count, 6);
	ck_assert_uint_eq(find_node(session, (uint32_t[]){ 0, 4, 0, 11, 0, 12 }, 6)->self_time,
			  10 * MS);
	ck_assert_uint_eq(find_node(session, (uint32_t[]){ 0, 4, 0, 11 }, 4)->self_time, 10 * MS);
	ck_assert_uint_eq(session->statements_count, 2);
	ck_assert_str_eq(session->statements[1].type, "PROCEDURE");
	ck_assert_str_eq(session->statements[1].routine, "PAY");
	ck_assert_str_eq(session->statements[1].package, "SALARIES");
	ck_assert_uint_eq(session->statements[1].text, 0);
	image_free(image);
}
END_TEST

/*
 * A position that changes all the time tells nothing, and the next one gets its time; one that is there
 * at the third try is as good as any.
 */
static void settle(void)
{
	if (reads % 3 == 2)
		places[0].torn = false;
}

START_TEST(torn)
{
	struct log_image *image;
	struct image_session *session;

	run_block(0, 1, 1, 5);
	look(11);
	places[0].torn = true;
	look(10);
	ck_assert_uint_eq(recorder_totals(recorder)->torn, 10);
	after_read = settle;
	reads = 0;
	look(10);
	ck_assert_uint_eq(recorder_totals(recorder)->torn, 10);
	image = finish();
	session = image_session(image, 1);
	ck_assert_uint_eq(session->totals.torn_samples, 10);
	ck_assert_uint_eq(session->totals.torn_time, 10 * MS);
	ck_assert_uint_eq(session->totals.samples, 21);
	ck_assert_uint_eq(session->totals.sampled_time, 30 * MS);
	image_free(image);
}
END_TEST

static const struct passive_head in_line_5 = { BLOCK, 5, 3 }, in_line_6 = { BLOCK, 6, 3 };

/*
 * What was seen first and what is told then: the time is that of the first, and is charged to it when it
 * is told.  Also if nothing is told, or the thread is idle by then.
 */
START_TEST(told_too_late)
{
	struct log_image *image;
	struct image_session *session;

	run_block(0, 1, 1, 5);
	look(11);
	run_block(0, 1, 1, 6);
	look(10);
	places[0].first = in_line_5;
	look(4);
	places[0].torn = true;
	look(3);
	places[0].torn = false;
	places[0].attachment = 0;
	look(2);
	run_block(0, 1, 1, 6);
	places[0].first = in_line_6;
	look(5);
	run_block(0, 1, 1, 5);
	look(1);
	ck_assert_uint_eq(recorder_totals(recorder)->torn, 5);
	image = finish();
	session = image_session(image, 1);
	ck_assert_uint_eq(find_node(session, (uint32_t[]){ 0, 5 }, 2)->self_time, 20 * MS);
	ck_assert_uint_eq(find_node(session, (uint32_t[]){ 0, 6 }, 2)->self_time, 15 * MS);
	ck_assert_uint_eq(session->totals.samples, 27);
	ck_assert_uint_eq(session->totals.sampled_time, 35 * MS);
	image_free(image);
}
END_TEST

/* What is owed is paid once; to anybody, if it was not seen who it is, or there is no room, or it is late. */
START_TEST(owed)
{
	struct owed_time owed = { 0 };
	struct passive_head head = in_line_5;

	owed_time_add(&owed, &in_line_5, 3, 10);
	owed_time_add(&owed, &in_line_6, 5, 20);
	owed_time_add(&owed, &in_line_5, 4, 30);
	ck_assert_uint_eq(owed_time_take(&owed, &in_line_5, 40), 7);
	ck_assert_uint_eq(owed_time_take(&owed, &in_line_5, 50), 0);
	owed_time_add(&owed, &(struct passive_head){ 0 }, 9, 60);
	ck_assert_uint_eq(owed_time_take(&owed, &in_line_5, 70), 9);
	ck_assert_uint_eq(owed_time_take(&owed, &in_line_5, OWED_FOR + 21), 5);
	ck_assert_uint_eq(owed_time_take(&owed, &in_line_6, OWED_FOR + 21), 0);
	for (head.line = 1; head.line <= OWED_HEADS + 2; head.line++)
		owed_time_add(&owed, &head, head.line, 100);
	ck_assert_uint_eq(owed.anybodys, 2 * OWED_HEADS + 3);
	owed_time_add(&owed, &head, 1, OWED_FOR + 101);
	head.line = 1;
	ck_assert_uint_eq(owed_time_take(&owed, &head, OWED_FOR + 102),
			  (OWED_HEADS + 2) * (OWED_HEADS + 3) / 2);
	ck_assert_uint_eq(owed.count, 1);
}
END_TEST

/* Each look stops the thread, be it torn or not, and what it was held for is in no time. */
START_TEST(stopped)
{
	struct log_image *image;
	struct image_session *session;

	recorder_free(recorder);
	options.plan_rate = 1000000;
	source.read_stopped = read_stopped;
	source.read_plan = read_plan;
	stops = 0;
	start();
	run_block(0, 1, 1, 5);
	look(11);
	run_block(0, 1, 1, 6);
	places[0].torn = true;
	look(20);
	ck_assert_uint_eq(stops, 31);
	ck_assert_uint_eq(recorder_totals(recorder)->torn, 0);
	image = finish();
	session = image_session(image, 1);
	ck_assert_uint_eq(find_node(session, (uint32_t[]){ 0, 5 }, 2)->self_time, 10 * (MS - HELD));
	ck_assert_uint_eq(find_node(session, (uint32_t[]){ 0, 6 }, 2)->self_time, 20 * (MS - HELD));
	image_free(image);
}
END_TEST

/* Another statement where one was, and the same one elsewhere. */
START_TEST(reused_address)
{
	struct log_image *image;
	struct image_session *session;

	run_block(0, 1, 1, 5);
	look(11);
	statements[0].text = "execute block as begin /* another */ end";
	run_block(0, 1, 2, 5);
	look(10);
	statements[2] = (struct statement){ BLOCK + 8, "execute block as begin end", NULL, NULL };
	run_block(0, 1, 3, 5);
	places[0].requests[0].statement = BLOCK + 8;
	look(10);
	image = finish();
	session = image_session(image, 1);
	ck_assert_uint_eq(session->statements_count, 2);
	ck_assert_uint_eq(session->nodes_count, 4);
	for (uint32_t i = 0; i < 4; i++) {
		const struct log_node *node = &session->nodes[i].is;

		if (node->position >> LOG_NODE_CELL_BITS == LOG_NODE_LINE)
			ck_assert_uint_eq(node->self_time, (node->statement == 1 ? 20 : 10) * MS);
	}
	image_free(image);
}
END_TEST

/* By the time that its texts have been read, the request has ended, and another one runs the statement. */
static void leave(void)
{
	places[0].requests[0].id++;
}

START_TEST(short_requests)
{
	struct log_image *image;
	struct image_session *session;

	run_block(0, 1, 1, 5);
	after_read = leave;
	look(11);
	ck_assert_uint_eq(recorder_totals(recorder)->torn, 0);
	image = finish();
	session = image_session(image, 1);
	ck_assert_uint_eq(session->statements_count, 1);
	ck_assert_uint_eq(session->totals.sampled_time, 10 * MS);
	image_free(image);
}
END_TEST

/*
 * Statements come and go at the same address, also between the reads of one look: each is in a line of
 * its own, and no other line may be charged to it.
 */
#define PREPARE 50000 /* what it takes, in ns */

static const char *const texts[] = { "the one in line 1", "the one in line 2", "that in line 3" };

static void replace(void)
{
	unsigned which = (unsigned)rand() % 3;

	if (rand() % 3)
		return;
	moment += PREPARE;
	statements[0].text = texts[which];
	run_block(0, 1, places[0].requests[0].id + 1, which + 1);
}

START_TEST(statements_come_and_go)
{
	const struct recorder_totals *totals = recorder_totals(recorder);
	struct image_session *session;
	struct log_image *image;

	srand(1);
	run_block(0, 1, 1, 1);
	statements[0].text = texts[0];
	after_read = replace;
	look(3000);
	ck_assert_uint_ge(totals->samples, 1500);
	image = finish();
	session = image_session(image, 1);
	ck_assert_uint_eq(session->statements_count, 3);
	ck_assert_uint_eq(session->lines_count, 3);
	for (size_t i = 0; i < session->lines_count; i++) {
		const struct log_line *line = &session->lines[i];
		const struct image_statement *statement = &session->statements[line->statement - 1];

		ck_assert_str_eq(image_text(session, statement->text)->bytes,
				 texts[line->line - 1]);
	}
	image_free(image);
}
END_TEST

START_TEST(process_ends)
{
	struct log_image *image;

	run_block(0, 1, 1, 5);
	look(5);
	alive = false;
	look(100);
	ck_assert(source.ended);
	ck_assert_uint_eq(recorder_totals(recorder)->busy, 0);
	recorder_remove(recorder, &source);
	image = finish();
	ck_assert_uint_eq(image_session(image, 1)->end_reason, LOG_END_DISPOSED);
	image_free(image);
}
END_TEST

/* There are not so many sessions at a time, but all that was sampled is there. */
START_TEST(many_attachments)
{
	const unsigned attachments = 700;
	struct log_image *image;
	uint64_t time = 0;

	for (unsigned i = 0; i < attachments; i++) {
		run_block(i % THREADS, i + 1, i + 1, 5);
		look(2);
		places[i % THREADS].attachment = 0;
	}
	ck_assert_uint_eq(recorder_totals(recorder)->sessions, attachments);
	image = finish();
	ck_assert_uint_eq(image->sessions_count, attachments);
	for (unsigned i = 0; i < attachments; i++) {
		time += image->sessions[i].totals.sampled_time;
		ck_assert_uint_eq(image->sessions[i].ends, 1);
	}
	ck_assert_uint_eq(time, (2 * attachments - 1) * (uint64_t)MS);
	image_free(image);
}
END_TEST

/* A thread that runs a quarter of the time, by a clock that is late and coarse. */
START_TEST(waits)
{
	const struct log_node *node;
	struct log_image *image;

	run_block(0, 1, 1, 5);
	cpu[0] = SECOND;
	for (unsigned i = 0; i < 1000; i++) {
		look(1);
		if (i % 16 == 0)
			cpu[0] += 4 * MS;
	}
	image = finish();
	node = find_node(image_session(image, 1), (uint32_t[]){ 0, 5 }, 2);
	ck_assert_uint_eq(node->self_time, 999 * MS);
	ck_assert_uint_ge(node->cpu_time, 235 * MS);
	ck_assert_uint_le(node->cpu_time, 265 * MS);
	image_free(image);
}
END_TEST

START_TEST(hidden_texts)
{
	static const char *const expected[] = { [SQL_TEXT_HASH] = "hash:", [SQL_TEXT_OFF] = NULL };
	const struct image_session *session;
	struct log_image *image;

	recorder_free(recorder);
	options.sql_text = (enum sql_text)_i;
	start();
	run_block(0, 1, 1, 5);
	look(10);
	image = finish();
	session = image_session(image, 1);
	if (expected[_i])
		ck_assert_int_eq(strncmp(image_text(session, session->statements[0].text)->bytes,
					 expected[_i], strlen(expected[_i])),
				 0);
	else
		ck_assert_uint_eq(session->statements[0].text, 0);
	image_free(image);
}
END_TEST

/* Looks come at irregular intervals of the mean that was asked for, and less often if nobody is at work. */
START_TEST(intervals)
{
	uint64_t due = now, shortest = UINT64_MAX, longest = 0, last;

	run_block(0, 1, 1, 5);
	for (unsigned i = 0; i < 10000; i++) {
		last = due;
		due = recorder_look(recorder, due);
		if (due - last < shortest)
			shortest = due - last;
		if (due - last > longest)
			longest = due - last;
	}
	ck_assert_uint_ge(due - now, 9800ull * MS);
	ck_assert_uint_le(due - now, 10200ull * MS);
	ck_assert_uint_le(shortest, 510000);
	ck_assert_uint_ge(longest, 1490000);
	places[0].attachment = 0;
	for (unsigned i = 0; i < 1000; i++) {
		last = due;
		due = recorder_look(recorder, due);
	}
	ck_assert_uint_ge(due - last, 4 * MS);
}
END_TEST

static void tear_down(void)
{
	if (recorder)
		recorder_free(recorder);
	recorder = NULL;
	scratch_remove();
}

int main(void)
{
	Suite *suite = suite_create("recorder");
	TCase *tcase = tcase_create("recorder");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, shares);
	tcase_add_test(tcase, calls);
	tcase_add_test(tcase, torn);
	tcase_add_test(tcase, told_too_late);
	tcase_add_test(tcase, owed);
	tcase_add_test(tcase, stopped);
	tcase_add_test(tcase, reused_address);
	tcase_add_test(tcase, short_requests);
	tcase_add_test(tcase, statements_come_and_go);
	tcase_add_test(tcase, process_ends);
	tcase_add_test(tcase, many_attachments);
	tcase_add_test(tcase, waits);
	tcase_add_loop_test(tcase, hidden_texts, SQL_TEXT_HASH, SQL_TEXT_OFF + 1);
	tcase_add_test(tcase, intervals);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
