/*
 * Statements within statements: the requests of the contexts below come first, in order.
 */
#include "../passive/outer.h"
#include "run_suite.h"

#include <check.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTEXTS 3
#define CHAIN	 2 /* requests of a context */

struct request {
	struct request *caller;
	struct statement {
		uint64_t id;
	} * statement;
	uint64_t id;
	uint32_t line, column;
};

struct context {
	struct context *below;
	struct request *request;
	void *attachment;
};

static struct layout layout;
static struct context contexts[CONTEXTS]; /* the thread's own first */
static struct request requests[CONTEXTS * CHAIN];
static struct statement statements[CONTEXTS * CHAIN];
static struct context *tls;
static int attachment, other_attachment;
static struct passive_position position;

static uint64_t address(const void *object)
{
	return (uint64_t)(uintptr_t)object;
}

static void set_path(enum layout_fact fact, enum layout_type type, unsigned steps, size_t last)
{
	layout.path[fact] = (struct layout_path){ .type = type, .steps = steps };
	layout.path[fact].offset[steps - 1] = (int32_t)last;
}

/*
 * Requests are numbered from the innermost one outwards, and tell their number by line, id and
 * statement.
 */
static void set_up(void)
{
	set_path(LAYOUT_REQUEST, LAYOUT_POINTER, 2, offsetof(struct context, request));
	set_path(LAYOUT_ATTACHMENT, LAYOUT_POINTER, 2, offsetof(struct context, attachment));
	set_path(LAYOUT_OUTER, LAYOUT_POINTER, 1, offsetof(struct context, below));
	set_path(LAYOUT_CALLER, LAYOUT_POINTER, 1, offsetof(struct request, caller));
	set_path(LAYOUT_STATEMENT, LAYOUT_POINTER, 1, offsetof(struct request, statement));
	set_path(LAYOUT_REQUEST_ID, LAYOUT_U64, 1, offsetof(struct request, id));
	set_path(LAYOUT_LINE, LAYOUT_U32, 1, offsetof(struct request, line));
	set_path(LAYOUT_COLUMN, LAYOUT_U32, 1, offsetof(struct request, column));
	set_path(LAYOUT_STATEMENT_ID, LAYOUT_U64, 1, offsetof(struct statement, id));
	for (unsigned i = 0; i < CONTEXTS; i++)
		contexts[i] = (struct context){ i + 1 < CONTEXTS ? &contexts[i + 1] : NULL,
						&requests[i * CHAIN], &attachment };
	for (unsigned i = 0; i < CONTEXTS * CHAIN; i++) {
		statements[i].id = 100 + i;
		requests[i] = (struct request){ i % CHAIN + 1 < CHAIN ? &requests[i + 1] : NULL,
						&statements[i], 200 + i, 300 + i, 400 + i };
	}
	tls = &contexts[0];
	position.attachment = address(&attachment);
	position.count = CHAIN;
	for (unsigned i = 0; i < CHAIN; i++)
		position.requests[i] = (struct passive_request){ .line = 300 + CHAIN - 1 - i };
}

static bool read_outer(void)
{
	return outer_read(getpid(), &layout, address(&tls), address(&contexts[0]),
			  address(contexts[0].below), &position);
}

/* The innermost so many, outermost first. */
static void check_chain(unsigned count)
{
	ck_assert_uint_eq(position.count, count);
	for (unsigned i = 0; i < count; i++)
		ck_assert_uint_eq(position.requests[i].line, 300 + count - 1 - i);
}

START_TEST(all_contexts)
{
	const struct passive_request *outermost = &position.requests[0];
	const unsigned last = CONTEXTS * CHAIN - 1;

	ck_assert(outer_is_known(&layout));
	ck_assert_uint_eq(outer_place(&layout, address(&contexts[1].request)),
			  address(&contexts[1].below));
	ck_assert(read_outer());
	check_chain(CONTEXTS * CHAIN);
	ck_assert_uint_eq(outermost->request, address(&requests[last]));
	ck_assert_uint_eq(outermost->statement, address(&statements[last]));
	ck_assert_uint_eq(outermost->request_id, 200 + last);
	ck_assert_uint_eq(outermost->statement_id, 100 + last);
	ck_assert_uint_eq(outermost->column, 400 + last);
}
END_TEST

START_TEST(of_the_same_attachment)
{
	contexts[2].attachment = &other_attachment;
	ck_assert(read_outer());
	check_chain(2 * CHAIN);
}
END_TEST

/* A context in which nothing is executed has none; what is below it counts. */
START_TEST(empty_context)
{
	contexts[1].request = NULL;
	ck_assert(read_outer());
	ck_assert_uint_eq(position.count, 2 * CHAIN);
	ck_assert_uint_eq(position.requests[0].line, 300 + CONTEXTS * CHAIN - 1);
}
END_TEST

START_TEST(changed)
{
	tls = &contexts[1];
	ck_assert(!read_outer());
	check_chain(CHAIN);
	tls = &contexts[0];
	requests[CHAIN].caller = (struct request *)16; /* can't be read */
	ck_assert(!read_outer());
	check_chain(CHAIN);
}
END_TEST

/* Endless chains, as may be read while one is changed. */
START_TEST(too_many)
{
	requests[CHAIN + 1].caller = &requests[CHAIN];
	ck_assert(!read_outer());
	check_chain(CHAIN);
	set_up();
	contexts[2].below = &contexts[1];
	ck_assert(!read_outer());
	check_chain(CHAIN);
}
END_TEST

/* As a statement is prepared within another one: what executes is below. */
START_TEST(no_request)
{
	static int32_t alive = 1;
	struct process_thread thread = { .tls = address(&tls),
					 .alive = address(&alive),
					 .alive_when = 1,
					 .ahead = passive_ahead_new() };

	contexts[0].request = NULL;
	ck_assert_int_eq(passive_read(getpid(), &layout, &thread, &position), PASSIVE_BUSY);
	ck_assert_uint_eq(position.count, 2 * CHAIN);
	ck_assert_uint_eq(position.attachment, address(&attachment));
	ck_assert_uint_eq(position.requests[0].line, 300 + CONTEXTS * CHAIN - 1);
	ck_assert_uint_eq(position.requests[2 * CHAIN - 1].line, 300 + CHAIN);
	contexts[0].below = NULL;
	ck_assert_int_eq(passive_read(getpid(), &layout, &thread, &position), PASSIVE_IDLE);
	ck_assert_uint_eq(position.count, 0);
	contexts[0].request = &requests[0];
	ck_assert_int_eq(passive_read(getpid(), &layout, &thread, &position), PASSIVE_BUSY);
	check_chain(CHAIN);
	free(thread.ahead);
}
END_TEST

START_TEST(unknown)
{
	layout.path[LAYOUT_OUTER].type = LAYOUT_ABSENT;
	ck_assert(!outer_is_known(&layout));
	set_up();
	layout.path[LAYOUT_LINE].steps = 2;
	ck_assert(!outer_is_known(&layout));
	set_up();
	layout.path[LAYOUT_ATTACHMENT].offset[0] = 8;
	ck_assert(!outer_is_known(&layout));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { all_contexts,  of_the_same_attachment,
				       empty_context, changed,
				       too_many,      no_request,
				       unknown,	      NULL };

	return run_tests("outer", set_up, NULL, tests);
}
