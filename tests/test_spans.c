/*
 * Self times of nested spans, against an execution of which everything is known: a made-up plan, whose
 * nodes call their children in loops, with looks at random moments.
 */
#include "../shim/spans.h"
#include "run_suite.h"

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NODES 12 /* few enough for SPANS_ROOM */

struct node {
	unsigned parent; /* of 0: itself */
	uint64_t late;	 /* what its ends were told late in all */
	struct span_times expected, found;
};

static struct node nodes[NODES];
static struct spans spans, timed; /* the latter without looks, as in measured mode */
static int64_t now;
static uint64_t state;
static bool only_seen; /* spans without a look in them are not told, as in coarse mode */
static unsigned looks;
static uint64_t lateness; /* ends are told so much later at most */

static uint64_t random_below(uint64_t limit)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % limit;
}

static void add(struct span_times *to, const struct span_times *times)
{
	to->total += times->total;
	to->self += times->self;
	to->total_cost += times->total_cost;
	to->self_cost += times->self_cost;
	to->total_cpu += times->total_cpu;
	to->self_cpu += times->self_cpu;
}

/* Time passes in a node, with a look now and then; returns what to expect of it. */
static void pass(struct span_times *self)
{
	uint64_t passed = 1 + random_below(20);

	now += (int64_t)passed;
	self->self += passed;
	if (random_below(16) == 0) {
		uint64_t cost = random_below(5), cpu = random_below(9);

		spans_look(&spans, now, cost, cpu);
		self->self_cost += cost;
		self->self_cpu += cpu;
		looks++;
	}
	now++;
	self->self++;
}

/* A span ends, by both ways to keep them. */
static struct span_times end_span(uint64_t key, int64_t end, uint64_t time, bool apart)
{
	struct span_times times =
		apart ? spans_end_apart(&spans, key, end, time) : spans_end(&spans, key, end, time);

	ck_assert_uint_eq(spans_end_timed(&timed, key, end, time, apart ? key : 0), times.self);
	return times;
}

/* Returns by how much its end was told late. */
static uint64_t execute(unsigned number, unsigned depth, struct span_times *all)
{
	struct span_times self = { 0 }, inner = { 0 }, found;
	int64_t start = ++now;
	unsigned looks_before = looks;
	uint64_t late = lateness ? random_below(lateness) : 0;

	for (uint64_t rounds = random_below(6); rounds; rounds--) {
		pass(&self);
		for (unsigned child = number + 1; depth && child < NODES; child++) {
			if (nodes[child].parent != number)
				continue;
			for (uint64_t calls = random_below(4); calls; calls--) {
				if (random_below(4) == 0)
					pass(&self);
				self.self += execute(child, depth - 1, &inner);
				now++;
				self.self++;
				self.self++; /* before its start */
			}
		}
	}
	pass(&self);
	self.total = self.self + inner.total;
	self.total_cost = self.self_cost + inner.total_cost;
	self.total_cpu = self.self_cpu + inner.total_cpu;
	ck_assert_uint_eq(self.total, (uint64_t)(now - start));
	all->total += self.total;
	all->total_cost += self.total_cost;
	all->total_cpu += self.total_cpu;
	if (only_seen && looks == looks_before)
		return 0;
	now += (int64_t)late;
	nodes[number].late += late;
	found = end_span(number + 1, now, self.total, false);
	add(&nodes[number].expected, &self);
	add(&nodes[number].found, &found);
	return late;
}

static void check(unsigned number)
{
	const struct span_times *expected = &nodes[number].expected;
	const struct span_times *found = &nodes[number].found;

	ck_assert_uint_eq(found->total, expected->total);
	ck_assert_uint_eq(found->total_cost, expected->total_cost);
	ck_assert_uint_eq(found->self_cost, expected->self_cost);
	ck_assert_uint_eq(found->total_cpu, expected->total_cpu);
	ck_assert_uint_eq(found->self_cpu, expected->self_cpu);
	if (!only_seen)
		ck_assert_uint_eq(found->self, expected->self);
}

START_TEST(a_plan)
{
	for (unsigned round = 0; round < 200; round++) {
		struct span_times all = { 0 };

		state = (uint64_t)_i * 1000003 + round + 1;
		only_seen = round & 1;
		lateness = 0;
		memset(nodes, 0, sizeof(nodes));
		spans_clear(&spans);
		spans_clear(&timed);
		for (unsigned i = 1; i < NODES; i++)
			nodes[i].parent = (unsigned)random_below(i);
		for (unsigned calls = 0; calls < 3; calls++)
			execute(0, 4, &all);
		for (unsigned i = 0; i < NODES; i++)
			check(i);
	}
}
END_TEST

/*
 * Each end is told late, as if the thread were interrupted on its way to us.  What was as short may not
 * be taken for a part of what is around it, but of what is around that.
 */
START_TEST(late_ends)
{
	for (unsigned round = 0; round < 200; round++) {
		struct span_times all = { 0 };

		state = (uint64_t)_i * 1000003 + round + 1;
		only_seen = false;
		lateness = 1 + 5 * (round % 4);
		memset(nodes, 0, sizeof(nodes));
		spans_clear(&spans);
		spans_clear(&timed);
		for (unsigned i = 1; i < NODES; i++)
			nodes[i].parent = (unsigned)random_below(i);
		for (unsigned calls = 0; calls < 3; calls++)
			execute(0, 4, &all);
		for (unsigned i = 0; i < NODES; i++) {
			uint64_t late = 0;

			for (unsigned j = i + 1; j < NODES; j++)
				late += nodes[j].late;
			ck_assert_uint_eq(nodes[i].found.total, nodes[i].expected.total);
			ck_assert_uint_ge(nodes[i].found.self + late, nodes[i].expected.self);
			ck_assert_uint_le(nodes[i].found.self,
					  nodes[i].expected.self + nodes[i].late);
		}
	}
}
END_TEST

/* The end of a line is the start of the next one, of which we may hear sooner. */
START_TEST(late_lines)
{
	enum {
		LINES = 1,
		FETCH
	};
	struct span_times times;

	spans_clear(&spans);
	spans_clear(&timed);
	times = end_span(LINES, 1000 + 40, 700, true);
	ck_assert_uint_eq(times.self, 700);
	times = end_span(FETCH, 1600 + 50, 200, false);
	ck_assert_uint_eq(times.self, 200);
	times = end_span(LINES, 2000 + 10, 1000, true);
	ck_assert_uint_eq(times.total, 1000);
	ck_assert_uint_eq(times.self, 800);
	times = end_span(FETCH, 2300 + 20, 2100, false);
	ck_assert_uint_eq(times.self, 400);
	ck_assert_uint_eq(spans.count, 1);
}
END_TEST

/* More neighbours than there is room for: what encloses them still takes in all of them. */
START_TEST(without_room)
{
	struct span_times times;

	spans_clear(&spans);
	spans_look(&spans, 500, 7, 9);
	for (unsigned i = 0; i < 1000; i++)
		end_span(i + 1, 1005 + 10 * (int64_t)i, 5, false);
	ck_assert_uint_le(spans.count, SPANS_ROOM);
	times = end_span(5000, 20000, 20000, false);
	ck_assert_uint_eq(times.total, 20000);
	ck_assert_uint_eq(times.self, 15000);
	ck_assert_uint_eq(times.total_cost, 7);
	ck_assert_uint_eq(times.self_cost, 7);
	ck_assert_uint_eq(times.total_cpu, 9);
	ck_assert_uint_eq(times.self_cpu, 9);
	ck_assert_uint_eq(spans.count, 1);
}
END_TEST

/* `count` spans of a key each, one after another, as of functions; each takes 6 of 10. */
static void call_many(unsigned count)
{
	static uint64_t key = 1000;

	for (unsigned i = 0; i < count; i++) {
		now += 10;
		end_span(++key, now - 1, 6, false);
	}
}

static void check_share(const char *what, uint64_t found, uint64_t expected)
{
	ck_assert_msg(found > expected * 19 / 20 && found < expected * 21 / 20,
		      "%s: %llu instead of %llu", what, (unsigned long long)found,
		      (unsigned long long)expected);
}

/*
 * What begins among more neighbours than there is room for: a fetch that calls thousands of functions,
 * after others did and after a long sort, and in it shorter ones that call many, too.
 */
START_TEST(begins_among_many)
{
	uint64_t inner_self = 0, outer_self;
	int64_t outer_start;

	now = 0;
	spans_clear(&spans);
	spans_clear(&timed);
	call_many(3000);
	now += 500000;
	end_span(1, now, 490000, false);
	outer_start = now;
	for (unsigned i = 0; i < 200; i++) {
		int64_t start;

		call_many(300);
		start = now;
		call_many(700);
		inner_self += end_span(100, now, (uint64_t)(now - start), false).self;
		end_span(101 + i, now, (uint64_t)(now - start), false);
	}
	outer_self = end_span(2, now, (uint64_t)(now - outer_start), false).self;
	check_share("inner ones", inner_self, 200 * 700 * 4);
	check_share("the outer one", outer_self, 200 * 300 * 4);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("spans");
	TCase *tcase = tcase_create("spans");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, a_plan, 0, 5);
	tcase_add_loop_test(tcase, late_ends, 0, 5);
	tcase_add_test(tcase, late_lines);
	tcase_add_test(tcase, without_room);
	tcase_add_test(tcase, begins_among_many);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
