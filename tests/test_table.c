/*
 * The table of ids against a simple model, with ids as the engine gives them and as it never would.
 */
#include "../sampler/id_table.h"
#include "run_suite.h"

#include <check.h>
#include <stdlib.h>

#define MODEL_SIZE 600u

static struct id_table table;
static int64_t ids[MODEL_SIZE];
static void *values[MODEL_SIZE]; /* NULL: not in the table */

static void set_up(void)
{
	ck_assert(id_table_init(&table));
}

static void count_value(void *context, void *value)
{
	ck_assert_ptr_nonnull(value);
	++*(unsigned *)context;
}

static unsigned free_table(void)
{
	unsigned count = 0;

	id_table_free(&table, count_value, &count);
	return count;
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

START_TEST(empty)
{
	ck_assert_ptr_null(id_table_get(&table, 0));
	ck_assert_ptr_null(id_table_get(&table, -1));
	id_table_remove(&table, 5);
	ck_assert_uint_eq(free_table(), 0);
	/* Of all zeros, and twice. */
	ck_assert_uint_eq(free_table(), 0);
}
END_TEST

START_TEST(put_replaces)
{
	int first, second;

	ck_assert(id_table_put(&table, 7, &first));
	ck_assert(id_table_put(&table, 7, &second));
	ck_assert_ptr_eq(id_table_get(&table, 7), &second);
	ck_assert_uint_eq(table.count, 1);
	id_table_remove(&table, 7);
	ck_assert_ptr_null(id_table_get(&table, 7));
	ck_assert_uint_eq(free_table(), 0);
}
END_TEST

/* Several families of ids: consecutive, far apart, equal in their low bits, at both ends of the range. */
static int64_t make_id(int family, uint32_t i)
{
	switch (family) {
	case 0:
		return i + 1;
	case 1:
		return (int64_t)i << 32;
	case 2:
		return (int64_t)((uint64_t)i *
				 0xf1de83e19937733du); /* inverse of the table's multiplier */
	case 3:
		return i % 2 ? INT64_MAX - i : INT64_MIN + i;
	default:
		return -(int64_t)i * 16;
	}
}

START_TEST(random_operations)
{
	uint64_t random = 88172645463325252u + (uint64_t)_i;
	unsigned present = 0;

	for (uint32_t i = 0; i < MODEL_SIZE; i++)
		ids[i] = make_id(_i % 5, i);
	for (unsigned step = 0; step < 200000; step++) {
		uint64_t number = next_random(&random);
		/* Now a few, now many of them are in the table. */
		uint32_t i = (uint32_t)(number >> 32) % (step / 20000 % 2 ? MODEL_SIZE : 20);

		switch (number % 4) {
		case 0:
		case 1:
			present += !values[i];
			values[i] = &ids[number % MODEL_SIZE];
			ck_assert(id_table_put(&table, ids[i], values[i]));
			break;
		case 2:
			present -= !!values[i];
			values[i] = NULL;
			id_table_remove(&table, ids[i]);
			break;
		default:
			if (id_table_get(&table, ids[i]) != values[i])
				ck_abort_msg("step %u: id %lld is wrong", step, (long long)ids[i]);
		}
		if (table.count != present)
			ck_abort_msg("step %u: %u instead of %u", step, table.count, present);
		if (step % 1000 == 0) {
			for (uint32_t k = 0; k < MODEL_SIZE; k++)
				ck_assert_ptr_eq(id_table_get(&table, ids[k]), values[k]);
		}
	}
	ck_assert_uint_eq(free_table(), present);
}
END_TEST

/* Requests that come and go for hours: the table does not grow. */
START_TEST(churn)
{
	int value;

	for (int64_t id = 1; id < 1000000; id++) {
		if (!id_table_put(&table, id, &value))
			ck_abort_msg("out of memory");
		if (id > 8)
			id_table_remove(&table, id - 8);
	}
	ck_assert_uint_eq(table.count, 8);
	ck_assert_uint_le(table.room, 32);
	ck_assert_uint_eq(free_table(), 8);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("table");
	TCase *tcase = tcase_create("table");

	tcase_add_checked_fixture(tcase, set_up, NULL);
	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, empty);
	tcase_add_test(tcase, put_replaces);
	tcase_add_loop_test(tcase, random_operations, 0, 10);
	tcase_add_test(tcase, churn);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
