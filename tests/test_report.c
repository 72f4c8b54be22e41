/*
 * Tests of what `fbprof report` and `fbprof dump --info` say: columns and sentences by what a session's
 * mode knows.
 */
#define _GNU_SOURCE
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../tools/command.h"
#include "log_builder.h"
#include "run_suite.h"

#define SECOND 1000000000

static struct log_builder builder;
static char output[65536];

static void setup(void)
{
	log_builder_init(&builder);
}

static void teardown(void)
{
	log_builder_clear(&builder);
}

/* Runs a command with the log; what it says on stdout is in `output`. */
static void run(const struct command *command, const char *option)
{
	char path[32], name[] = "fbprof", *argv[4] = { name };
	int log = log_builder_file(&builder, builder.size);
	int screen = dup(STDOUT_FILENO), to = memfd_create("output", MFD_CLOEXEC), argc = 1;
	ssize_t size;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", log);
	if (option)
		argv[argc++] = (char *)option;
	argv[argc++] = path;
	fflush(stdout);
	dup2(to, STDOUT_FILENO);
	ck_assert_int_eq(command->run(argc, argv), COMMAND_DONE);
	dup2(screen, STDOUT_FILENO);
	size = pread(to, output, sizeof(output) - 1, 0);
	ck_assert_int_ge(size, 0);
	output[size] = 0;
	close(screen);
	close(to);
	close(log);
}

static void assert_said(const char *text)
{
	ck_assert_msg(strstr(output, text) != NULL, "no \"%s\" in:\n%s", text, output);
}

static void assert_not_said(const char *text)
{
	ck_assert_msg(strstr(output, text) == NULL, "\"%s\" in:\n%s", text, output);
}

/* A block of two lines: one computes for 3 s, one waits for 1 s.  A session for each mode. */
static void build_sampled(uint32_t session, uint64_t cpu_time)
{
	const struct log_builder_execution all = {
		.statement = 1, .cells = { { LOG_CELL_FINISHED, 1 }, { 8, 3000 }, { 9, 1 } }
	};
	const struct log_builder_node nodes[] = {
		{ 0, 1, LOG_NODE_REQUEST, 0, 0, 0, 0, 0, 0 },
		{ 1, 1, LOG_NODE_LINE, 8, 0, 3 * (uint64_t)SECOND, 30000, 1000, cpu_time },
		{ 1, 1, LOG_NODE_LINE, 9, 0, SECOND, 10000, 0, 0 },
	};

	log_builder_totals(&builder, session, 40000, 4 * (uint64_t)SECOND);
	log_builder_counters(&builder, session, &all);
	log_builder_nodes(&builder, session, 1, nodes, 3);
}

static void build_grouped(uint32_t session, enum log_mode mode)
{
	const uint64_t s = SECOND;
	const uint64_t coarse[][LOG_GROUP_CELLS] = {
		{ 3000, 3 * s, 3 * s, 3 * s + 1000, 3 * s + 1000, 1000, 1000 }, { 1, s, s }
	};
	const uint64_t measured[][LOG_GROUP_CELLS] = {
		{ 3000, 3 * s, 3 * s, 0, 0, 900000, 1100000 }, { 1, s, s, 0, 0, s, s }
	};
	struct log_builder_execution all = {
		.statement = 1,
		.cells = { { LOG_CELL_FINISHED, 1 }, { LOG_CELL_ELAPSED, 4 * s } },
	};

	for (uint32_t i = 0; i < 2; i++)
		log_builder_group(&all, 8 + 8 * i,
				  mode == LOG_MODE_COARSE ? coarse[i] : measured[i]);
	if (mode == LOG_MODE_COARSE)
		log_builder_totals(&builder, session, 0, 4 * s);
	log_builder_counters(&builder, session, &all);
}

static void define(uint32_t session, enum log_mode mode)
{
	log_builder_session(&builder, session);
	log_builder_session_of_mode(&builder, session, 0, mode, NULL);
	log_builder_text(&builder, 1, 0, "execute block");
	log_builder_statement(&builder, 1, 100, "BLOCK", NULL, NULL, 1);
	log_builder_line(&builder, 1, 7, 3, 8);
	log_builder_line(&builder, 1, 8, 3,
			 mode == LOG_MODE_SAMPLED || mode == LOG_MODE_PASSIVE ? 9 : 16);
}

START_TEST(sampled)
{
	build_sampled(1, 3 * (uint64_t)SECOND + 1000);
	define(1, LOG_MODE_SAMPLED);
	run(&command_report, NULL);
	assert_said(", sampled every 100.0 µs");
	assert_said("Sampled   4.000 s in 40000 samples, 3 more were torn\n");
	assert_said("Cost      profiling itself took about 1.0 µs (2.5 ns a line, 3.0 ns a fetch, "
		    "0.1 ns a request), which is not in these times\n");
	assert_said("    %     self     wait    total  samples  count  line  where\n"
		    "75.00  3.000 s  0.000 s  3.000 s    30000   3000   7:3  execute block\n"
		    "25.00  1.000 s  1.000 s  1.000 s    10000      1   8:3  execute block\n");
	assert_not_said("Coarse");
	assert_not_said("Measured");
	run(&command_dump, "--info");
	assert_said("  samples      40000 of 4.000 s, 3 torn of 300 ns\n");
	assert_said(
		"  interval     100.0 µs asked for, 100.0 µs reached: 4.000 s in 40003 wake-ups, "
		"1 of them late to spare the CPU\n");
	assert_said("  cost         1.0 µs (2.5 ns a line, 3.0 ns a fetch, 0.1 ns a request)\n");
}
END_TEST

/* Nothing is said of waiting if no CPU time was taken. */
START_TEST(no_cpu_time)
{
	build_sampled(1, 0);
	define(1, LOG_MODE_SAMPLED);
	run(&command_report, NULL);
	assert_said("    %     self    total  samples  count  line  where\n");
}
END_TEST

START_TEST(coarse)
{
	build_grouped(1, LOG_MODE_COARSE);
	define(1, LOG_MODE_COARSE);
	run(&command_report, NULL);
	assert_said(", coarse every 100.0 µs");
	assert_said("Coarse    4.000 s of lines and record sources, by a clock");
	assert_said("Cost      profiling itself took about 1.0 µs");
	assert_said("    %     self     wait    total  count  line  where\n"
		    "75.00  3.000 s  0.000 s  3.000 s   3000   7:3  execute block\n"
		    "25.00  1.000 s  1.000 s  1.000 s      1   8:3  execute block\n"
		    " 0.00  0.000 s           4.000 s      1        execute block\n");
	assert_not_said("Sampled");
	assert_not_said("Outside");
	run(&command_dump, "--info");
	assert_said("  interval     100.0 µs asked for");
	assert_not_said("  samples");
}
END_TEST

/* By line, the time of a record source is that of the line where its cursor is. */
START_TEST(source_by_line)
{
	const uint64_t s = SECOND;
	const uint64_t fetched[LOG_GROUP_CELLS] = { 500, 2 * s, 2 * s, 2 * s, 2 * s };
	struct log_builder_execution all = {
		.statement = 1,
		.cells = { { LOG_CELL_FINISHED, 1 }, { LOG_CELL_ELAPSED, 2 * s } },
	};

	log_builder_group(&all, 32, fetched);
	log_builder_totals(&builder, 1, 0, 2 * s);
	log_builder_counters(&builder, 1, &all);
	define(1, LOG_MODE_COARSE);
	log_builder_text(&builder, 2, 0, "Table \"T\" Full Scan");
	log_builder_cursor(&builder, 1, 1, NULL, 7, 3);
	log_builder_record_source(&builder, 1, 1, 1, 0, 24, 2);
	run(&command_report, "--by=line");
	assert_said("100.00  2.000 s  0.000 s  0.000 s          7:3  execute block\n");
	run(&command_report, "--by=statement");
	assert_said("100.00  2.000 s  0.000 s  2.000 s      1        execute block\n");
}
END_TEST

START_TEST(measured)
{
	build_grouped(1, LOG_MODE_MEASURED);
	define(1, LOG_MODE_MEASURED);
	run(&command_report, NULL);
	assert_said(", measured, with");
	assert_said("Measured  4.000 s of lines and record sources, each timed\n");
	assert_said("    %     self    total  count  line  where\n"
		    "75.00  3.000 s  3.000 s   3000   7:3  execute block\n");
	assert_not_said("Cost");
	run(&command_dump, "--info");
	assert_said("  mode         measured, with");
	assert_not_said("  interval");
	assert_not_said("  cost");
}
END_TEST

/* As sampled, but nothing is counted, and there is nothing that profiling costs the server. */
static void build_passive(uint32_t session)
{
	const struct log_builder_node nodes[] = {
		{ 0, 1, LOG_NODE_REQUEST, 0, 0, 0, 0, 0, 0 },
		{ 1, 1, LOG_NODE_LINE, 8, 0, 3 * (uint64_t)SECOND, 3000, 0, 3 * (uint64_t)SECOND },
		{ 1, 1, LOG_NODE_LINE, 9, 0, SECOND, 1000, 0, 0 },
	};
	const struct log_session_totals totals = { .samples = 4000,
						   .sampled_time = 4 * (uint64_t)SECOND,
						   .wakeups = 4000,
						   .torn_samples = 2,
						   .torn_time = 2000000 };
	struct log_block block = { .kind = LOG_BLOCK_SESSION, .session = session };

	memcpy(block.payload, &totals, sizeof(totals));
	log_builder_block(&builder, &block);
	log_builder_nodes(&builder, session, 1, nodes, 3);
}

START_TEST(passive)
{
	build_passive(1);
	define(1, LOG_MODE_PASSIVE);
	run(&command_report, NULL);
	assert_said(", passive every 100.0 µs, from another process\n");
	assert_said("Sampled   4.000 s in 4000 samples, 2 more were torn\n");
	assert_said("    %     self     wait    total  samples  line  where\n"
		    "75.00  3.000 s  0.000 s  3.000 s     3000   7:3  execute block\n"
		    "25.00  1.000 s  1.000 s  1.000 s     1000   8:3  execute block\n"
		    " 0.00  0.000 s           4.000 s        0        execute block\n");
	assert_not_said("Cost");
	assert_not_said("count");
	run(&command_dump, "--info");
	assert_said("  samples      4000 of 4.000 s, 2 torn of 2.000 ms\n");
	assert_said("  interval     100.0 µs asked for, 1.000 ms reached");
	assert_not_said("  cost");
	assert_said("1 requests, 3 call tree nodes");
}
END_TEST

/* What counts and what doesn't are one row, whose count is of the former. */
START_TEST(passive_and_sampled)
{
	build_passive(1);
	build_sampled(2, 3 * (uint64_t)SECOND);
	define(1, LOG_MODE_PASSIVE);
	define(2, LOG_MODE_SAMPLED);
	run(&command_report, NULL);
	assert_said("75.00  6.000 s  0.000 s  6.000 s    33000   3000   7:3  execute block\n");
}
END_TEST

/* The same lines in sessions of several modes are one row each. */
START_TEST(mixed)
{
	build_sampled(1, 3 * (uint64_t)SECOND);
	build_grouped(2, LOG_MODE_COARSE);
	build_grouped(3, LOG_MODE_MEASURED);
	define(1, LOG_MODE_SAMPLED);
	define(2, LOG_MODE_COARSE);
	define(3, LOG_MODE_MEASURED);
	run(&command_report, NULL);
	assert_said("Sampled   4.000 s in");
	assert_said("Coarse    4.000 s of");
	assert_said("Measured  4.000 s of");
	assert_said("    %     self     wait     total  samples  count  line  where\n"
		    "75.00  9.000 s  0.000 s   9.000 s    30000   9000   7:3  execute block\n"
		    "25.00  3.000 s  2.000 s   3.000 s    10000      3   8:3  execute block\n"
		    " 0.00  0.000 s           12.000 s        0      3        execute block\n");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("report");
	TCase *tcase = tcase_create("report");

	command_init();
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, sampled);
	tcase_add_test(tcase, no_cpu_time);
	tcase_add_test(tcase, coarse);
	tcase_add_test(tcase, source_by_line);
	tcase_add_test(tcase, measured);
	tcase_add_test(tcase, passive);
	tcase_add_test(tcase, passive_and_sampled);
	tcase_add_test(tcase, mixed);
	suite_add_tcase(suite, tcase);

	return run_suite(suite);
}
