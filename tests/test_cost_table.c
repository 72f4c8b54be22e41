/*
 * Costs of events in the cache: what is saved is loaded, and nothing else is.
 */
#include "../shim/cost_table.h"
#include "run_suite.h"
#include "scratch.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define IDENTITY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER	 "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"

static char error[CACHE_ERROR_SIZE];

/* Another number for each cost, of either sign. */
static struct cost_table make_table(void)
{
	struct cost_table table = cost_table_default;

	for (int mode = LOG_MODE_SAMPLED; mode < COST_MODES; mode++) {
		for (int kind = 0; kind < COSTS; kind++)
			table.cost[mode][kind] = (mode * COSTS + kind) * (kind % 2 ? -1000 : 1000);
	}
	return table;
}

static void save_one(void)
{
	struct cost_table table = make_table();

	ck_assert_msg(cost_table_save(&table, scratch, IDENTITY, error), "%s", error);
}

/* Another text under the same name, with a checksum that is right. */
static void replace(const char *old, const char *new)
{
	struct cache_text changed = { .size = 0 };
	char text[CACHE_FILE_ROOM], *place;

	ck_assert_msg(cache_load(scratch, IDENTITY, "costs", text, error), "%s", error);
	place = strstr(text, old);
	ck_assert_ptr_nonnull(place);
	cache_add(&changed, "%.*s%s%s", (int)(place - text), text, new, place + strlen(old));
	ck_assert(cache_save(scratch, IDENTITY, "costs", &changed, error));
}

static void check_refused(const char *identity, const char *sentence)
{
	struct cost_table table;

	memset(&table, 1, sizeof(table));
	ck_assert(!cost_table_load(&table, scratch, identity, error));
	ck_assert_msg(strstr(error, sentence) != NULL, "%s", error);
	ck_assert_mem_eq(&table, &cost_table_default, sizeof(table));
}

START_TEST(saved_is_loaded)
{
	struct cost_table table = make_table(), loaded;

	ck_assert(!cost_table_is_known(scratch, IDENTITY));
	check_refused(IDENTITY, "no costs of this engine: run fbprof calibrate");
	save_one();
	ck_assert(cost_table_is_known(scratch, IDENTITY));
	ck_assert_msg(cost_table_load(&loaded, scratch, IDENTITY, error), "%s", error);
	ck_assert_mem_eq(&table, &loaded, sizeof(table));
	check_refused(OTHER, "no costs of this engine");
}
END_TEST

START_TEST(foreign)
{
	save_one();
	replace("\ncpu ", "\ncpu another");
	check_refused(IDENTITY, "is of another kind of CPU");
	save_one();
	replace(IDENTITY, OTHER);
	check_refused(IDENTITY, "is of another kind of CPU, another engine or fbprof");
}
END_TEST

START_TEST(damaged)
{
	static const struct {
		const char *old, *new;
	} damages[] = {
		{ "\nsampled ", "\nsample " },
		{ "\ncoarse ", "\ncoarse x" },
		{ "\nmeasured ", "\nmeasured 1 " },
		{ "\nmeasured ", "\nmeasured 99999999999 " },
		{ "\nmeasured", "\n" },
	};
	FILE *file;

	for (unsigned i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		save_one();
		replace(damages[i].old, damages[i].new);
		check_refused(IDENTITY, "is damaged");
	}
	file = fopen(scratch_path(IDENTITY ".costs"), "w");
	ck_assert_ptr_nonnull(file);
	fputs("fbprof-costs 1\n", file);
	fclose(file);
	check_refused(IDENTITY, "is damaged or can't be read");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { saved_is_loaded, foreign, damaged, NULL };

	return run_tests("cost_table", scratch_make, scratch_remove, tests);
}
