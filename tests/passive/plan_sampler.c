/*
 * plan_sampler CACHE ENGINE PID THREAD HZ SECONDS WAY: takes samples of a thread's position in plans, and prints
 * each chain of steps, outermost first, with how often it was seen; then what sampling took.  WAY: "stop" (ptrace) or "events" (perf).  For the
 * tests of passive/plan.h.  HZ 0: none, only the time is waited for.
 */
#include "../../passive/plan.h"
#include "../../passive/stack_events.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHAINS 4096

static struct seen {
	char *chain;
	unsigned count;
} seen[CHAINS];
static unsigned seen_count;

static struct layout layout;
static struct plan_chain chain;
static struct stack_sample stack;

static uint64_t now_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* The load address: where the file that the path ends with is mapped first. */
static uint64_t find_engine(int pid)
{
	char path[64], line[4608];
	uint64_t base = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "r");
	while (maps && !base && fgets(line, sizeof(line), maps)) {
		if (strstr(line, "/libEngine"))
			base = strtoull(line, NULL, 16);
	}
	if (maps)
		fclose(maps);
	return base;
}

static void count_chain(const char *text)
{
	unsigned i = 0;

	while (i < seen_count && strcmp(seen[i].chain, text))
		i++;
	if (i == CHAINS)
		return;
	if (i == seen_count)
		seen[seen_count++].chain = strdup(text);
	seen[i].count++;
}

/* Those of one request after the other: "|" between. */
static void format_chain(const struct plan *plan, char *text, size_t size)
{
	size_t used = 0;

	text[0] = 0;
	for (uint32_t i = chain.count; i-- > 0;) {
		char step[600];
		const char *between = "";

		if (i + 1 < chain.count)
			between = chain.sources[i].request == chain.sources[i + 1].request ? " > " :
											     " | ";
		plan_describe(plan, &chain.sources[i], step, sizeof(step));
		used += (size_t)snprintf(text + used, size - used, "%s%s", between, step);
		if (used >= size)
			return;
	}
}

static bool take(int process, int thread, struct stack_events *events)
{
	if (!events)
		return stack_stop(process, thread, &stack, NULL, NULL);
	if (stack_events_await(events))
		return stack_events_take(events, &stack);
	stack_events_ask(events);
	return false;
}

static void sample(struct plan *plan, int process, int thread, double hz, double seconds,
		   struct stack_events *events)
{
	uint64_t end = now_ns(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9);
	uint64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID), stopped = 0, read = 0;
	unsigned samples = 0, failed = 0, cut = 0;
	static char text[65536];

	srand(1);
	for (uint64_t now; (now = now_ns(CLOCK_MONOTONIC)) < end;) {
		/* Half to one and a half of the interval: no rhythm of the workload is met. */
		uint64_t pause =
			hz ? (uint64_t)(1e9 / hz * (0.5 + rand() / (double)RAND_MAX)) : end - now;
		struct timespec time = { (time_t)(pause / 1000000000u),
					 (long)(pause % 1000000000u) };

		nanosleep(&time, NULL);
		if (!hz)
			break;
		now = now_ns(CLOCK_MONOTONIC);
		if (!take(process, thread, events)) {
			failed++;
			continue;
		}
		samples++;
		stopped += now_ns(CLOCK_MONOTONIC) - now;
		now = now_ns(CLOCK_MONOTONIC);
		plan_read(plan, &stack, &chain);
		read += now_ns(CLOCK_MONOTONIC) - now;
		cut += !chain.whole;
		format_chain(plan, text, sizeof(text));
		count_chain(text);
	}
	for (unsigned i = 0; i < seen_count; i++)
		printf("%u\t%s\n", seen[i].count, seen[i].chain);
	printf("samples %u failed %u cut %u stop_us %.1f read_us %.1f cpu_ms %.1f\n", samples,
	       failed, cut, samples ? stopped / 1e3 / samples : 0.0,
	       samples ? read / 1e3 / samples : 0.0,
	       (now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / 1e6);
}

int main(int argc, char **argv)
{
	char identity[LAYOUT_IDENTITY_SIZE], error[LAYOUT_ERROR_SIZE];
	struct stack_events *events = NULL;
	struct plan *plan;

	if (argc != 8) {
		fprintf(stderr, "usage: plan_sampler CACHE ENGINE PID THREAD HZ SECONDS WAY\n");
		return 2;
	}
	if (!layout_identify(argv[2], identity, error) ||
	    !layout_load(&layout, argv[1], identity, error)) {
		fprintf(stderr, "plan_sampler: %s\n", error);
		return 1;
	}
	plan = plan_new(atoi(argv[3]), &layout, find_engine(atoi(argv[3])), error);
	if (!plan) {
		fprintf(stderr, "plan_sampler: %s\n", error);
		return 1;
	}
	if (strcmp(argv[7], "events") == 0) {
		events = stack_events_open(atoi(argv[4]), error);
		if (!events) {
			fprintf(stderr, "plan_sampler: %s\n", error);
			return 77;
		}
	}
	sample(plan, atoi(argv[3]), atoi(argv[4]), atof(argv[5]), atof(argv[6]), events);
	stack_events_close(events);
	plan_free(plan);
	return 0;
}
