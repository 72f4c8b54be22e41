/*
 * `fbprof timing`: what reading a clock costs on this machine, whether clocks go only forward, and
 * what fbprof measures with.
 */
#include "command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "table.h"
#include "text.h"
#include "timing.h"

#define NS_PER_SECOND 1000000000.0

#define DEFAULT_DURATION 3.0
#define DURATION_MIN	 0.1
#define DURATION_MAX	 3600.0

/* One step in so many is not shown by its length any more. */
#define HISTOGRAM_REST 10000

/* What is found out in a run. */
struct findings {
	struct tick_clock_facts facts;
	enum tick_clock_reason state;
	const struct timing_clock *only; /* --clock; NULL: all */
	struct timing *timings;		 /* one a clock */
	struct timing_race race;
};

/* ---- Measuring ---- */

static bool is_wanted(const struct findings *findings, const struct timing_clock *clock)
{
	return (!findings->only || findings->only == clock) &&
	       !timing_obstacle(clock, &findings->facts);
}

/* Nothing but on a terminal; NULL wipes the line out. */
static void show_progress(const char *what, unsigned step, unsigned steps)
{
	if (!isatty(STDERR_FILENO))
		return;
	if (what)
		fprintf(stderr, "\r\033[Ktiming %s, %u of %u", what, step, steps);
	else
		fputs("\r\033[K", stderr);
	fflush(stderr);
}

static void measure_all(struct findings *findings, double seconds)
{
	bool race = !findings->only || findings->only->ours;
	unsigned steps = race, step = 0;
	int64_t share;

	for (unsigned i = 0; i < timing_clock_count; i++)
		steps += is_wanted(findings, &timing_clocks[i]);
	share = (int64_t)(seconds * NS_PER_SECOND) / MAX(steps, 1);
	for (unsigned i = 0; i < timing_clock_count; i++) {
		if (!is_wanted(findings, &timing_clocks[i]))
			continue;
		show_progress(timing_clocks[i].name, ++step, steps);
		timing_measure(&timing_clocks[i], &findings->facts, share, &findings->timings[i]);
	}
	if (race) {
		show_progress("between CPUs", ++step, steps);
		timing_race(share, &findings->race);
	}
	show_progress(NULL, 0, 0);
	findings->state = tick_clock_state();
}

/* ---- What is known of the counter ---- */

static void print_line(struct sink *sink, const char *name, const char *value)
{
	sink_print(sink, "%-13s %s\n", name, value);
}

static void print_pick(const struct findings *findings, struct sink *sink)
{
	struct tick_clock_facts forced;

	sink_print(sink, "fbprof measures with %s: %s.\n",
		   findings->state == TICK_CLOCK_COUNTER_USED ?
			   "the processor's counter" :
			   "the system's clock, CLOCK_MONOTONIC_RAW",
		   tick_clock_reason_text(findings->state));
	if (findings->state != TICK_CLOCK_NOT_TRUSTED)
		return;
	tick_clock_examine(&tick_clock_this_machine, TICK_CLOCK_TSC, &forced);
	if (forced.reason == TICK_CLOCK_COUNTER_USED)
		sink_put(sink, "The counter would be used with the session's option CLOCK=TSC.\n");
}

static void print_frequency(const struct tick_clock_facts *facts, struct sink *sink)
{
	char *line;

	if (facts->told)
		line = g_strdup_printf("%.6f GHz (%s)", (double)facts->told / NS_PER_SECOND,
				       facts->told_by);
	else
		line = g_strdup("not told");
	print_line(sink, "Rate told", line);
	g_free(line);
	if (facts->measured)
		line = g_strdup_printf("%.6f GHz, give or take %.1f ppm",
				       (double)facts->measured / NS_PER_SECOND,
				       (double)facts->uncertainty / 1000);
	else
		line = g_strdup("not measured");
	print_line(sink, "Rate found", line);
	g_free(line);
}

static void print_facts(const struct tick_clock_facts *facts, struct sink *sink)
{
	char *source = text_line(*facts->clock_source ? facts->clock_source : "unknown");
	char *line = g_strdup_printf("%s%s", source,
				     facts->trusted ? ", the counter" :
				     facts->offered ? "; could be the counter" :
						      "; the counter is not offered");

	print_line(sink, "Kernel's time", line);
	g_free(line);
	g_free(source);
	line = g_strdup_printf("%s, %s%s%s",
			       facts->invariant ? "invariant" : "not known to be invariant",
			       facts->allowed ? "may be read" : "may not be read",
			       facts->rdtscp ? ", with RDTSCP" : "",
			       facts->hypervisor ? ", on a guest" : "");
	print_line(sink, "Counter", line);
	g_free(line);
	print_frequency(facts, sink);
	sink_put(sink, "\n");
}

/* ---- Tables ---- */

static char *format_time(double ns)
{
	return ns < 1000 ? g_strdup_printf("%.1f ns", ns) : text_lone_time((uint64_t)ns);
}

static void print_summary(const struct findings *findings, struct sink *sink)
{
	static const struct table_column columns[] = { { "read", TRUE },     { "least", TRUE },
						       { "step", TRUE },     { "steps", TRUE },
						       { "backward", TRUE }, { "clock", FALSE },
						       { "what", FALSE } };
	struct table *table = table_new(columns, G_N_ELEMENTS(columns));

	for (unsigned i = 0; i < timing_clock_count; i++) {
		const struct timing_clock *clock = &timing_clocks[i];
		const struct timing *timing = &findings->timings[i];

		if (!is_wanted(findings, clock))
			continue;
		table_add(table, format_time(timing->mean), NULL);
		table_add(table, format_time(timing->least), NULL);
		table_add(table,
			  timing->least_step > 0 ? format_time(timing->least_step) :
						   g_strdup("none"),
			  NULL);
		table_add(table, g_strdup_printf("%" PRIu64, timing->steps), NULL);
		table_add(table, g_strdup_printf("%" PRIu64, timing->backward), NULL);
		table_add(table, g_strdup(clock->name), NULL);
		table_add(table, g_strdup(clock->what), NULL);
	}
	table_print(table, sink, 0);
	table_free(table);
	for (unsigned i = 0; i < timing_clock_count; i++) {
		const char *obstacle = timing_obstacle(&timing_clocks[i], &findings->facts);

		if (obstacle && (!findings->only || findings->only == &timing_clocks[i]))
			sink_print(sink, "Not %s: %s.\n", timing_clocks[i].name, obstacle);
	}
}

static void print_race(const struct timing_race *race, struct sink *sink)
{
	if (!race->threads)
		return;
	if (race->threads == 1)
		sink_put(sink, "\nThere is one CPU, so times of several can't differ.\n");
	else
		sink_print(sink,
			   "\nBetween %u CPUs tick-clock-ordered went backward in %" PRIu64
			   " of %" PRIu64 " reads.\n",
			   race->threads, race->backward, race->reads);
}

static void add_bucket(struct table *table, uint64_t count, uint64_t running, uint64_t steps,
		       unsigned bucket)
{
	table_add(table, g_strdup_printf("%.4f", 100.0 * (double)count / (double)steps), NULL);
	table_add(table, g_strdup_printf("%.4f", 100.0 * (double)running / (double)steps), NULL);
	table_add(table, g_strdup_printf("%" PRIu64, count), NULL);
	table_add(table, g_strdup_printf("below %" PRIu64 " ns", (uint64_t)1 << bucket), NULL);
}

/* All but the last few by powers of 2; those in one row. */
static void print_histogram(const struct timing_clock *clock, const struct timing *timing,
			    struct sink *sink)
{
	static const struct table_column columns[] = {
		{ "%", TRUE }, { "running %", TRUE }, { "count", TRUE }, { "step", FALSE }
	};
	struct table *table = table_new(columns, G_N_ELEMENTS(columns));
	uint64_t steps = timing->steps, running = 0, rest = 0;
	unsigned last = 0;

	for (unsigned i = 0; i < TIMING_BUCKETS; i++) {
		uint64_t count = timing->buckets[i];

		if (!count)
			continue;
		last = i;
		if (running >= steps - steps / HISTOGRAM_REST) {
			rest += count;
			continue;
		}
		running += count;
		add_bucket(table, count, running, steps, i);
	}
	if (rest)
		add_bucket(table, rest, running + rest, steps, last);
	sink_print(sink, "\nFrom one read of %s to the next:\n", clock->name);
	table_print(table, sink, 0);
	table_free(table);
}

/* ---- The command ---- */

static void print_all(const struct findings *findings, struct sink *sink)
{
	print_pick(findings, sink);
	sink_put(sink, "\n");
	print_facts(&findings->facts, sink);
	print_summary(findings, sink);
	print_race(&findings->race, sink);
	for (unsigned i = 0; i < timing_clock_count; i++) {
		if (is_wanted(findings, &timing_clocks[i]))
			print_histogram(&timing_clocks[i], &findings->timings[i], sink);
	}
}

/* Says loudly what no clock may do; of the one that fbprof uses it is a failure. */
static enum command_status judge(const struct findings *findings)
{
	enum command_status status = COMMAND_DONE;

	for (unsigned i = 0; i < timing_clock_count; i++) {
		const struct timing_clock *clock = &timing_clocks[i];
		const struct timing *timing = &findings->timings[i];

		if (!timing->backward)
			continue;
		command_warn(NULL,
			     "%s went backward in %" PRIu64 " of %" PRIu64
			     " steps, by up to %.0f ns%s",
			     clock->name, timing->backward, timing->steps, timing->farthest,
			     clock->ours ? ": start sessions with CLOCK=SYSTEM" : "");
		if (clock->ours)
			status = COMMAND_FAILED;
	}
	if (findings->race.backward)
		status = command_fail(NULL,
				      "tick-clock-ordered went backward between CPUs, by up to "
				      "%" PRId64 " ns: start sessions with CLOCK=SYSTEM",
				      findings->race.farthest);
	if (findings->race.given_up)
		status = command_fail(NULL,
				      "the counter drifted from the system's clock: start sessions "
				      "with CLOCK=SYSTEM");
	return status;
}

static enum command_status run_with(const struct timing_clock *only, double seconds)
{
	struct findings findings = { .only = only };
	enum command_status status, written;
	struct sink sink;

	tick_clock_examine(&tick_clock_this_machine, TICK_CLOCK_AUTO, &findings.facts);
	if (only && timing_obstacle(only, &findings.facts))
		return command_fail(NULL, "%s: cannot be timed, %s: name another clock", only->name,
				    timing_obstacle(only, &findings.facts));
	tick_clock_init(TICK_CLOCK_AUTO, NULL);
	findings.timings = g_new0(struct timing, timing_clock_count);
	measure_all(&findings, seconds);
	sink_open(&sink, STDOUT_FILENO);
	print_all(&findings, &sink);
	written = command_close_stdout(&sink);
	status = judge(&findings);
	g_free(findings.timings);
	return status == COMMAND_DONE ? written : status;
}

static enum command_status find_clock(const char *name, const struct timing_clock **found)
{
	GString *names = g_string_new(NULL);
	enum command_status status = COMMAND_DONE;

	*found = NULL;
	for (unsigned i = 0; i < timing_clock_count; i++) {
		if (strcmp(timing_clocks[i].name, name) == 0)
			*found = &timing_clocks[i];
		g_string_append_printf(names, "%s%s", i ? ", " : "", timing_clocks[i].name);
	}
	if (!*found)
		status = command_misuse("--clock %s: must be one of %s", name, names->str);
	g_string_free(names, TRUE);
	return status;
}

static enum command_status run(int argc, char **argv)
{
	double seconds = DEFAULT_DURATION;
	char *name = NULL;
	const GOptionEntry entries[] = {
		{ "duration", 'd', 0, G_OPTION_ARG_DOUBLE, &seconds,
		  "Seconds that all clocks take together, 3 unless given", "S" },
		{ "clock", 'c', 0, G_OPTION_ARG_STRING, &name, "Only this clock", "NAME" },
		{ 0 },
	};
	const struct timing_clock *only = NULL;
	enum command_status status;

	if (!command_parse(&command_timing, entries, argc, argv, NULL, &status))
		return status;
	if (!(seconds >= DURATION_MIN && seconds <= DURATION_MAX))
		status = command_misuse("--duration: must be from 0.1 to 3600 seconds");
	else
		status = name ? find_clock(name, &only) : COMMAND_DONE;
	if (status == COMMAND_DONE)
		status = run_with(only, seconds);
	g_free(name);
	return status;
}

const struct command command_timing = {
	.name = "timing",
	.summary = "Show what clocks cost on this machine, and which one fbprof measures with",
	.help = "A read's time is the mean of batches, loop included; the least is of the best batch.\n"
		"A step is the least time other than 0 from one read to the next.  No clock may go\n"
		"backward; if fbprof's own does, the exit status is 1.",
	.run = run,
};
