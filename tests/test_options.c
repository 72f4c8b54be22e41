/*
 * The options of a session: each of them, and what is said of wrong ones.
 */
#include "../sampler/sampler.h"
#include "../shim/options.h"
#include "run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct options options;
static char error[OPTIONS_ERROR_SIZE];

static void set_up(void)
{
	options_init(&options);
	strcpy(error, "nothing was said");
}

static bool parse(const char *text)
{
	return options_parse(&options, "PLUGIN_OPTIONS", text, error);
}

static void accept(const char *text)
{
	ck_assert_msg(parse(text), "\"%s\": %s", text, error);
}

/* The sentence must have all of what follows, up to NULL; the options must stay as they were. */
static void refuse(const char *text, const char *first, const char *second, const char *third)
{
	const char *const wanted[] = { first, second, third };
	struct options before = options;

	ck_assert_msg(!parse(text), "\"%s\" was accepted", text);
	for (size_t i = 0; i < 3 && wanted[i]; i++)
		ck_assert_msg(strstr(error, wanted[i]) != NULL, "\"%s\": \"%s\" lacks \"%s\"", text,
			      error, wanted[i]);
	ck_assert_msg(!strncmp(error, "fbprof: ", 8), "%s", error);
	ck_assert_ptr_nonnull(strstr(error, "PLUGIN_OPTIONS"));
	ck_assert_ptr_null(strchr(error, '\n'));
	ck_assert(strlen(error) < OPTIONS_ERROR_SIZE - 1);
	ck_assert_uint_eq(options.interval, before.interval);
	ck_assert_int_eq(options.mode, before.mode);
	ck_assert_int_eq(options.stock, before.stock);
	ck_assert_int_eq(options.detailed, before.detailed);
	ck_assert_int_eq(options.sql_text, before.sql_text);
	ck_assert_int_eq(options.clock, before.clock);
}

/* The value that the text gives an option. */
#define ACCEPT(text, option, value)                      \
	do {                                             \
		accept(text);                            \
		ck_assert_int_eq(options.option, value); \
	} while (0)

START_TEST(defaults)
{
	ck_assert_uint_eq(options.interval, SAMPLER_INTERVAL_DEFAULT);
	ck_assert_int_ne(options.mode, LOG_MODE_MEASURED);
	ck_assert(!options.detailed);
	ck_assert_int_eq(options.sql_text, SQL_TEXT_FULL);
	ck_assert_int_eq(options.clock, TICK_CLOCK_AUTO);
	accept(NULL);
	accept("");
	ck_assert_uint_eq(options.interval, SAMPLER_INTERVAL_DEFAULT);
}
END_TEST

START_TEST(interval)
{
	static const char *const wrong[] = { "49",
					     "1",
					     "-0",
					     "0us",
					     "1000001",
					     "-100",
					     "+100",
					     "100us",
					     "1e3",
					     "0x100",
					     "",
					     " ",
					     "ten",
					     "100.5",
					     "99999999999999999999999999",
					     "18446744073709551716" /* 100 beyond 2^64 */ };
	char text[128];

	accept("SAMPLING_INTERVAL=50");
	ck_assert_uint_eq(options.interval, 50000);
	accept("SAMPLING_INTERVAL=1000000");
	ck_assert_uint_eq(options.interval, 1000000000);
	accept("SAMPLING_INTERVAL=00100");
	ck_assert_uint_eq(options.interval, 100000);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		snprintf(text, sizeof(text), "SAMPLING_INTERVAL=%s", wrong[i]);
		refuse(text, "SAMPLING_INTERVAL=", "from 50 to 1000000", "0 for MODE=MEASURED");
	}
	refuse("SAMPLING_INTERVAL", "SAMPLING_INTERVAL without a value", "50", NULL);
	refuse("SAMPLING_INTERVAL=49", "SAMPLING_INTERVAL=49", NULL, NULL);
}
END_TEST

START_TEST(detailed_requests)
{
	accept("DETAILED_REQUESTS");
	ck_assert(options.detailed);
	refuse("DETAILED_REQUESTS=1", "DETAILED_REQUESTS=1", "no value", NULL);
	refuse("DETAILED_REQUESTS=", "DETAILED_REQUESTS=", "no value", NULL);
}
END_TEST

START_TEST(mode)
{
	static const char all[] = "SAMPLED, COARSE, MEASURED, CLOCK or PASSIVE";

	ACCEPT("MODE=COARSE", mode, LOG_MODE_COARSE);
	ck_assert_uint_eq(options.interval, SAMPLER_INTERVAL_DEFAULT);
	ACCEPT("MODE=SAMPLED", mode, LOG_MODE_SAMPLED);
	ck_assert_uint_eq(options.interval, SAMPLER_INTERVAL_DEFAULT);
	ACCEPT("MODE=MEASURED", mode, LOG_MODE_MEASURED);
	ck_assert_uint_eq(options.interval, 0);
	refuse("MODE=FAST", "MODE=FAST", all, NULL);
	refuse("MODE", "MODE without a value", all, NULL);
	refuse("MODE=", "MODE=", all, NULL);
	refuse("MODE=0", "MODE=0", all, NULL);
	refuse("MODE=COARSER", "MODE=COARSER", all, NULL);
}
END_TEST

/*
 * SAMPLING_INTERVAL=0 is MODE=MEASURED.  Where the two contradict one another, the last one given says
 * which mode it is; an interval that was given stays, if there is one in that mode.
 */
START_TEST(mode_and_interval)
{
	static const struct {
		const char *text;
		enum log_mode mode;
		uint64_t interval;
	} right[] = {
		{ "SAMPLING_INTERVAL=0", LOG_MODE_MEASURED, 0 },
		{ "SAMPLING_INTERVAL=000", LOG_MODE_MEASURED, 0 },
		{ "MODE=MEASURED,SAMPLING_INTERVAL=0", LOG_MODE_MEASURED, 0 },
		{ "SAMPLING_INTERVAL=200,MODE=MEASURED", LOG_MODE_MEASURED, 0 },
		{ "MODE=COARSE,SAMPLING_INTERVAL=0", LOG_MODE_MEASURED, 0 },
		{ "MODE=SAMPLED,SAMPLING_INTERVAL=0", LOG_MODE_MEASURED, 0 },
		{ "SAMPLING_INTERVAL=0,MODE=COARSE", LOG_MODE_COARSE, SAMPLER_INTERVAL_DEFAULT },
		{ "SAMPLING_INTERVAL=0,MODE=SAMPLED", LOG_MODE_SAMPLED, SAMPLER_INTERVAL_DEFAULT },
		{ "MODE=COARSE,SAMPLING_INTERVAL=300", LOG_MODE_COARSE, 300000 },
		{ "SAMPLING_INTERVAL=300,MODE=COARSE", LOG_MODE_COARSE, 300000 },
		{ "SAMPLING_INTERVAL=300,MODE=SAMPLED", LOG_MODE_SAMPLED, 300000 },
		{ "MODE=COARSE,MODE=SAMPLED", LOG_MODE_SAMPLED, SAMPLER_INTERVAL_DEFAULT },
		{ "MODE=SAMPLED,MODE=MEASURED,MODE=COARSE", LOG_MODE_COARSE,
		  SAMPLER_INTERVAL_DEFAULT },
		{ "mode = coarse, sampling_interval = 50", LOG_MODE_COARSE, 50000 },
		{ "Mode=Measured", LOG_MODE_MEASURED, 0 },
	};

	for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
		options_init(&options);
		accept(right[i].text);
		ck_assert_msg(options.mode == right[i].mode &&
				      options.interval == right[i].interval,
			      "\"%s\": mode %d, %llu ns", right[i].text, (int)options.mode,
			      (unsigned long long)options.interval);
	}
}
END_TEST

/* A number above 0 after MEASURED means that sampling is wanted, by the mode that is the default. */
START_TEST(interval_after_measured)
{
	struct options usual;

	options_init(&usual);
	accept("MODE=MEASURED,SAMPLING_INTERVAL=300");
	ck_assert_int_eq(options.mode, usual.mode);
	ck_assert_uint_eq(options.interval, 300000);
	/* So PLUGIN_OPTIONS of a session can overrule those of the server. */
	options_init(&options);
	ck_assert(options_parse(&options, "FBPROF_OPTIONS", "MODE=MEASURED", error));
	ACCEPT("DETAILED_REQUESTS", mode, LOG_MODE_MEASURED);
	ACCEPT("MODE=COARSE", mode, LOG_MODE_COARSE);
	ck_assert_uint_eq(options.interval, SAMPLER_INTERVAL_DEFAULT);
	ACCEPT("SAMPLING_INTERVAL=0", mode, LOG_MODE_MEASURED);
	refuse("MODE=COARSE,NONSENSE", "NONSENSE", NULL, NULL);
}
END_TEST

START_TEST(the_stock_profiler)
{
	accept("MODE=CLOCK");
	ck_assert(options.stock);
	accept("SAMPLING_INTERVAL=500, DETAILED_REQUESTS");
	ck_assert(options.stock && options.detailed);
	ck_assert_uint_eq(options.interval, 500000);
	accept("MODE=SAMPLED");
	ck_assert(!options.stock);
	accept("mode=clock, SAMPLING_INTERVAL=0");
	ck_assert(!options.stock);
	ck_assert_int_eq(options.mode, LOG_MODE_MEASURED);
	accept("MODE=Clock");
	ck_assert(options.stock);
	ck_assert_uint_eq(options.interval, SAMPLER_INTERVAL_DEFAULT);
	refuse("MODE=CLOCKS", "MODE=CLOCKS", "CLOCK", NULL);
}
END_TEST

/* It is the process that is recorded so: sessions are as they would be without it. */
START_TEST(passive)
{
	accept("SAMPLING_INTERVAL=200");
	ck_assert(!options.passive);
	ck_assert_uint_eq(options.passive_interval, 200000);
	options_init(&options);
	accept("MODE=PASSIVE, SQL_TEXT=OFF");
	ck_assert(options.passive && !options.stock);
	ck_assert_uint_eq(options.passive_interval, 1000000);
	ck_assert_int_eq(options.mode, LOG_MODE_COARSE);
	ck_assert_uint_eq(options.interval, SAMPLER_INTERVAL_DEFAULT);
	accept("SAMPLING_INTERVAL=500");
	ck_assert(options.passive);
	ck_assert_uint_eq(options.passive_interval, 500000);
	accept("MODE=COARSE");
	ck_assert(!options.passive);
	refuse("MODE=PASSIVELY", "MODE=PASSIVELY", "PASSIVE", NULL);
	ck_assert_uint_eq(options.plan_rate, 0);
	accept("plan_rate=1000");
	ck_assert_uint_eq(options.plan_rate, 1000);
	accept("PLAN_RATE=0");
	ck_assert_uint_eq(options.plan_rate, 0);
	refuse("PLAN_RATE=1001", "PLAN_RATE=1001", "0 to 1000", NULL);
	refuse("PLAN_RATE=-1", "PLAN_RATE=-1", "0 to 1000", NULL);
	refuse("PLAN_RATE=often", "PLAN_RATE=often", "0 to 1000", NULL);
	refuse("PLAN_RATE", "PLAN_RATE without a value", "0 to 1000", NULL);
}
END_TEST

START_TEST(sql_text)
{
	ACCEPT("SQL_TEXT=HASH", sql_text, SQL_TEXT_HASH);
	ACCEPT("SQL_TEXT=OFF", sql_text, SQL_TEXT_OFF);
	ACCEPT("SQL_TEXT=FULL", sql_text, SQL_TEXT_FULL);
	refuse("SQL_TEXT=ON", "SQL_TEXT=ON", "FULL, HASH or OFF", NULL);
	refuse("SQL_TEXT", "SQL_TEXT without a value", NULL, NULL);
	refuse("SQL_TEXT=FULL HASH", "FULL HASH", NULL, NULL);
}
END_TEST

START_TEST(clock_to_measure_with)
{
	ACCEPT("CLOCK=TSC", clock, TICK_CLOCK_TSC);
	ACCEPT("clock=system", clock, TICK_CLOCK_SYSTEM);
	ACCEPT("CLOCK=AUTO", clock, TICK_CLOCK_AUTO);
	refuse("CLOCK=RDTSC", "CLOCK=RDTSC", "AUTO, TSC or SYSTEM", NULL);
	refuse("CLOCK", "CLOCK without a value", NULL, NULL);
	refuse("CLOCK=", "CLOCK=", "AUTO", NULL);
}
END_TEST

START_TEST(case_does_not_matter)
{
	accept("sampling_interval=200,Detailed_Requests,sql_Text=hash,mode=Sampled");
	ck_assert_uint_eq(options.interval, 200000);
	ck_assert(options.detailed);
	ck_assert_int_eq(options.sql_text, SQL_TEXT_HASH);
}
END_TEST

START_TEST(white_space)
{
	accept(" \tSAMPLING_INTERVAL \r\n=\t 300 , DETAILED_REQUESTS\n,SQL_TEXT = OFF ");
	ck_assert_uint_eq(options.interval, 300000);
	ck_assert(options.detailed);
	ck_assert_int_eq(options.sql_text, SQL_TEXT_OFF);
	refuse("SAMPLING INTERVAL=100", "SAMPLING INTERVAL", NULL, NULL);
	refuse("DETAILED_REQUESTS MODE=SAMPLED", "unknown", NULL, NULL);
}
END_TEST

START_TEST(empty_words)
{
	accept(",");
	accept(",,, ,\t,");
	accept(",DETAILED_REQUESTS,,SAMPLING_INTERVAL=60,");
	ck_assert(options.detailed);
	ck_assert_uint_eq(options.interval, 60000);
	refuse("=", "unknown", NULL, NULL);
	refuse("=5", "unknown", "5", NULL);
	refuse("DETAILED_REQUESTS, =", "unknown", NULL, NULL);
}
END_TEST

START_TEST(later_ones_win)
{
	accept("SAMPLING_INTERVAL=100,SAMPLING_INTERVAL=700");
	ck_assert_uint_eq(options.interval, 700000);
	/* As START_SESSION does it: the environment first, then PLUGIN_OPTIONS. */
	options_init(&options);
	ck_assert(options_parse(&options, "FBPROF_OPTIONS", "SAMPLING_INTERVAL=500,SQL_TEXT=OFF",
				error));
	accept("SAMPLING_INTERVAL=250");
	ck_assert_uint_eq(options.interval, 250000);
	ck_assert_int_eq(options.sql_text, SQL_TEXT_OFF);
}
END_TEST

START_TEST(all_or_nothing)
{
	refuse("SAMPLING_INTERVAL=500,DETAILED_REQUESTS,NONSENSE", "NONSENSE", NULL, NULL);
	refuse("NONSENSE,SAMPLING_INTERVAL=500", "NONSENSE", NULL, NULL);
	ck_assert_uint_eq(options.interval, SAMPLER_INTERVAL_DEFAULT);
}
END_TEST

START_TEST(unknown_ones)
{
	refuse("NONSENSE", "unknown option NONSENSE", "SAMPLING_INTERVAL", "DETAILED_REQUESTS");
	refuse("NONSENSE=VALUE", "NONSENSE=VALUE", "SQL_TEXT", "MODE");
	refuse("SAMPLING_INTERVALS=100", "SAMPLING_INTERVALS", NULL, NULL);
	refuse("SAMPLING_INTERVA=100", "unknown", NULL, NULL);
	refuse("SAMPLING_INTERVAL=100=200", "SAMPLING_INTERVAL=100=200", NULL, NULL);
	refuse("SQL_TEXT==FULL", "=FULL", NULL, NULL);
	refuse("DETAILED_REQUESTS;MODE=SAMPLED", "unknown", NULL, NULL);
	ck_assert(!options_parse(&options, "FBPROF_OPTIONS", "X", error));
	ck_assert_ptr_nonnull(strstr(error, "FBPROF_OPTIONS"));
}
END_TEST

/* What is too long for any option is wrong, even if its beginning would be right. */
START_TEST(overlong_words)
{
	static char text[100000];
	size_t size;

	memset(text, 'X', sizeof(text) - 1);
	refuse(text, "unknown option XXXX", NULL, NULL);
	memset(text, '=', sizeof(text) - 1);
	refuse(text, "unknown option", NULL, NULL);
	size = (size_t)sprintf(text, "SAMPLING_INTERVAL=");
	memset(text + size, '0', 60);
	strcpy(text + size + 60, "100junk");
	refuse(text, "SAMPLING_INTERVAL=0000", NULL, NULL);
	strcpy(text + size + 60, "1000000000");
	refuse(text, "SAMPLING_INTERVAL=0000", NULL, NULL);
	memset(text, ' ', sizeof(text) - 1);
	accept(text);
	memcpy(text + 70000, "SAMPLING_INTERVAL", 17);
	memcpy(text + 80000, "=", 1);
	memcpy(text + 90000, "123", 3);
	accept(text);
	ck_assert_uint_eq(options.interval, 123000);
	memset(text, ',', sizeof(text) - 1);
	accept(text);
}
END_TEST

/* Any bytes at all: no crash, and a sentence that ends. */
START_TEST(arbitrary_bytes)
{
	char text[64];
	uint64_t random = 88172645463325252u;

	for (unsigned round = 0; round < 20000; round++) {
		static const char alphabet[] = "=,, \t\nSAMPLING_INTERVAL50MODE\x80\xff\x01%s%n";

		for (size_t i = 0; i < sizeof(text) - 1; i++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			text[i] = alphabet[random % (sizeof(alphabet) - 1)];
		}
		text[random % sizeof(text)] = 0;
		text[sizeof(text) - 1] = 0;
		options_init(&options);
		memset(error, 'x', sizeof(error));
		if (!parse(text))
			ck_assert_ptr_nonnull(memchr(error, 0, sizeof(error)));
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { defaults,
				       interval,
				       detailed_requests,
				       mode,
				       mode_and_interval,
				       interval_after_measured,
				       the_stock_profiler,
				       passive,
				       sql_text,
				       clock_to_measure_with,
				       case_does_not_matter,
				       white_space,
				       empty_words,
				       later_ones_win,
				       all_or_nothing,
				       unknown_ones,
				       overlong_words,
				       arbitrary_bytes,
				       NULL };

	return run_tests("options", set_up, NULL, tests);
}
