/*
 * Finding out whether the processor's counter can be used as a clock, and keeping it true: see
 * tick_clock.h.  Nothing here is hot but tick_clock_elsewhere() where there is no counter.
 *
 * When to trust it.  The kernel watches the counters of all processors against each other and against
 * other timers, and gives them up when they don't agree; on a guest it knows what the host promises.
 * So AUTO asks only whether the kernel's own clock source is the counter, and that the counter is
 * invariant.  "tsc" beside a current "kvm-clock" or "hyperv_clocksource_tsc_page" is not enough:
 * kernels of today rank the counter above these as soon as the host promises that it is invariant,
 * so one that hasn't chosen it knows a reason, a migration to come for instance.  Whoever knows better
 * says TSC.
 *
 * How it is kept true.  The rate is measured against CLOCK_MONOTONIC_RAW, which runs at a constant
 * rate, unlike CLOCK_MONOTONIC; what the processor tells of its frequency only has to agree.  A
 * comparison is two reads of the counter around one of the system's clock, the closest of several; the
 * farther two comparisons are apart, the better the rate.  A refinement is two lines: one that makes
 * up for the error so far by running a little faster or slower, and one at the new rate.  They begin
 * some time after they are published, so no thread can have gone on by the old line beyond their
 * beginning.  Their number is bounded, as each wants eight times the time of the one before.
 *
 * All state is `tick_clock_line` and a pool of lines, of which none is used twice.  So nothing has to
 * be done about fork.
 */
#define _GNU_SOURCE
#include "tick_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define NS_PER_SECOND 1000000000
#define NS_PER_MS     1000000
#define PARTS	      1000000000 /* uncertainties are in units of 1e-9 */

/* The first measurement: two halves, so that they can be compared. */
#define HALF_BASELINE (10 * NS_PER_MS)
/* What is decided is decided for good, so a moment's disturbance must not decide it. */
#define MEASUREMENTS 3
/* The halves may differ by this, in 1e-9, and what the reads' durations leave open. */
#define HALVES_DIFFER_MAX 500000
/* Above this uncertainty the machine is too busy, or its clocks too slow, to measure anything. */
#define UNCERTAINTY_MAX 1000000
/* Frequencies told are rounded to MHz in places; a guest that is told its host's is off by more. */
#define TOLD_DIFFERS_MAX (PARTS / 100)

/* A comparison is the closest of so many; most are disturbed by nothing. */
#define TRIES 10
/* In ns: of a wider comparison a check does not conclude anything. */
#define WIDTH_MAX 10000

/*
 * A new rate once the past is so many times longer.  Less would make more lines, more would leave a
 * coarse rate for longer.
 */
#define REFINE_FACTOR 8
/* When a line begins after it was made; the sampler may be held up before it publishes it. */
#define LEAD (100 * NS_PER_MS)
/* Errors are made up for at this rate, in units of 1e-9: below what anyone can see in a duration. */
#define CATCH_UP 1000000
/* If the kernel keeps its time by another oscillator, the two may wander by this, in 1e-9. */
#define WANDER_MAX 50000

/* Lines hold for so long. */
#define ROOM_NS (100 * 366 * 86400ull * NS_PER_SECOND)

/* 2 for each of the at most 13 refinements in 100 years, and some for forks and races. */
#define LINES 64

/* Before the decision. */
static const struct tick_clock_line system_line = { .system = clock_gettime,
						    .reason = TICK_CLOCK_SYSTEM_WANTED };

_Atomic(const struct tick_clock_line *) tick_clock_line = &system_line;

static struct tick_clock_line lines[LINES];
static _Atomic unsigned lines_used;

static struct tick_clock_line drifted_line;

static const char *const reason_texts[TICK_CLOCK_REASONS] = {
	[TICK_CLOCK_COUNTER_USED] = "the counter is invariant, and the kernel trusts it",
	[TICK_CLOCK_SYSTEM_WANTED] = "the system's clock was asked for",
	[TICK_CLOCK_NO_COUNTER] = "no counter is known for this architecture",
	[TICK_CLOCK_FORBIDDEN] = "the counter may not be read here: see prctl(2), PR_SET_TSC",
	[TICK_CLOCK_NOT_INVARIANT] = "the counter is not invariant: its rate changes",
	[TICK_CLOCK_NOT_TRUSTED] = "the kernel keeps its own time by something else",
	[TICK_CLOCK_NOT_OFFERED] = "the kernel does not offer the counter as a clock source",
	[TICK_CLOCK_UNSTEADY] = "the counter's rate could not be measured: no two attempts agree",
	[TICK_CLOCK_IMPLAUSIBLE] =
		"the counter's rate is not what the processor or the hypervisor says it is",
	[TICK_CLOCK_DRIFTED] = "the counter has drifted from the system's clock",
};

const char *tick_clock_reason_text(enum tick_clock_reason reason)
{
	return reason_texts[reason];
}

/* ---- This machine ---- */

static void ask_cpuid(uint32_t leaf, uint32_t registers[4])
{
	memset(registers, 0, 4 * sizeof(*registers));
#if defined(__x86_64__)
	__cpuid_count(leaf, 0, registers[0], registers[1], registers[2], registers[3]);
#else
	(void)leaf;
#endif
}

static bool may_read_counter(void)
{
#if defined(__x86_64__)
	int mode = 0;

	return prctl(PR_GET_TSC, &mode) == 0 && mode == PR_TSC_ENABLE;
#else
	return true;
#endif
}

const struct tick_clock_machine tick_clock_this_machine = {
	.sysfs = "/sys/devices/system/clocksource/clocksource0",
	.cpuid = ask_cpuid,
	.may_read = may_read_counter,
	.system = clock_gettime,
};

/* ---- What the kernel and the processor say ---- */

/* Reads a file of one line; "" if it can't be read.  What doesn't fit is left out. */
static void read_word(const char *directory, const char *name, char *text, size_t size)
{
	int folder = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC), file = -1;
	ssize_t got = 0;

	if (folder >= 0) {
		file = openat(folder, name, O_RDONLY | O_CLOEXEC);
		close(folder);
	}
	if (file >= 0) {
		got = read(file, text, size - 1);
		close(file);
	}
	text[got > 0 ? got : 0] = 0;
	text[strcspn(text, "\n")] = 0;
}

#ifdef TICK_CLOCK_COUNTER

/* Whether `word` is one of those in `words`, with blanks between them. */
static bool has_word(const char *words, const char *word)
{
	size_t size = strlen(word);

	for (const char *found = words; (found = strstr(found, word)); found += size) {
		if ((found == words || found[-1] == ' ') &&
		    (found[size] == ' ' || found[size] == 0))
			return true;
	}
	return false;
}

static void ask_kernel(const char *sysfs, struct tick_clock_facts *facts)
{
	char available[4 * TICK_CLOCK_NAME_SIZE];

	read_word(sysfs, "current_clocksource", facts->clock_source, sizeof(facts->clock_source));
	read_word(sysfs, "available_clocksource", available, sizeof(available));
	facts->trusted = !strcmp(facts->clock_source, TICK_CLOCK_COUNTER);
	facts->offered = has_word(available, TICK_CLOCK_COUNTER);
}

#endif

#if defined(__x86_64__)

enum {
	EAX,
	EBX,
	ECX,
	EDX
};

#define LEAF_FEATURES	    1u
#define LEAF_TSC	    0x15u
#define LEAF_FREQUENCY	    0x16u
#define LEAF_HYPERVISOR	    0x40000000u
#define LEAF_TIMING	    0x40000010u /* VMware's; KVM has it, too */
#define LEAF_EXTENDED	    0x80000000u
#define LEAF_EXTENDED_FLAGS 0x80000001u
#define LEAF_POWER	    0x80000007u

static bool is_vmware_or_kvm(const uint32_t registers[4])
{
	char name[13] = "";

	memcpy(name, &registers[EBX], 12);
	return !strcmp(name, "VMwareVMware") || !strcmp(name, "KVMKVMKVM");
}

/* Hz; 0 if nobody tells. */
static void ask_frequency(const struct tick_clock_machine *machine, uint32_t highest,
			  struct tick_clock_facts *facts)
{
	uint32_t answer[4];

	/* On a guest the hypervisor knows better: it may scale the counter. */
	if (facts->hypervisor) {
		machine->cpuid(LEAF_HYPERVISOR, answer);
		if (is_vmware_or_kvm(answer) && answer[EAX] >= LEAF_TIMING) {
			machine->cpuid(LEAF_TIMING, answer);
			facts->told = answer[EAX] * 1000ull;
			facts->told_by = "hypervisor, CPUID 0x40000010";
		}
	}
	if (!facts->told && highest >= LEAF_TSC) {
		machine->cpuid(LEAF_TSC, answer);
		if (answer[EAX] && answer[EBX]) {
			facts->told = (uint64_t)answer[ECX] * answer[EBX] / answer[EAX];
			facts->told_by = "CPUID 0x15";
		}
		/* No crystal's frequency, but a ratio: then the counter runs at the base frequency. */
		if (answer[EAX] && answer[EBX] && !answer[ECX] && highest >= LEAF_FREQUENCY) {
			machine->cpuid(LEAF_FREQUENCY, answer);
			facts->told = (answer[EAX] & 0xffffu) * 1000000ull;
			facts->told_by = "CPUID 0x16";
		}
	}
	if (!facts->told)
		facts->told_by = NULL;
}

static void ask_processor(const struct tick_clock_machine *machine, struct tick_clock_facts *facts)
{
	uint32_t answer[4], highest, highest_extended;

	machine->cpuid(0, answer);
	highest = answer[EAX];
	machine->cpuid(LEAF_EXTENDED, answer);
	highest_extended = answer[EAX];
	if (highest >= LEAF_FEATURES) {
		machine->cpuid(LEAF_FEATURES, answer);
		facts->hypervisor = answer[ECX] >> 31;
	}
	if (highest_extended >= LEAF_EXTENDED_FLAGS) {
		machine->cpuid(LEAF_EXTENDED_FLAGS, answer);
		facts->rdtscp = answer[EDX] >> 27 & 1;
	}
	if (highest_extended >= LEAF_POWER) {
		machine->cpuid(LEAF_POWER, answer);
		facts->invariant = answer[EDX] >> 8 & 1;
	}
	ask_frequency(machine, highest, facts);
}

#elif defined(__aarch64__)

static void ask_processor(const struct tick_clock_machine *machine, struct tick_clock_facts *facts)
{
	(void)machine;
	facts->invariant = true; /* by the architecture */
	__asm__("mrs %0, cntfrq_el0" : "=r"(facts->told));
	facts->told_by = "CNTFRQ_EL0";
}

#endif

/* ---- Comparing two clocks ---- */

static int64_t read_system(tick_clock_system *system)
{
	struct timespec time;

	system(CLOCK_MONOTONIC_RAW, &time);
	return (int64_t)time.tv_sec * NS_PER_SECOND + time.tv_nsec;
}

static struct tick_clock_comparison compare(tick_clock_system *system)
{
	struct tick_clock_comparison best = { .width = UINT64_MAX };

	for (int i = 0; i < TRIES; i++) {
		uint64_t before = tick_clock_ticks_ordered();
		int64_t ns = read_system(system);
		uint64_t width = tick_clock_ticks_ordered() - before;

		if (width < best.width)
			best = (struct tick_clock_comparison){ before + width / 2, width, ns };
	}
	return best;
}

struct rate {
	uint64_t mult;
	uint64_t baseline;    /* ns */
	uint64_t uncertainty; /* 1e-9 */
};

/* False if there is no sense in it. */
static bool rate_between(const struct tick_clock_comparison *from,
			 const struct tick_clock_comparison *to, struct rate *rate)
{
	uint64_t ticks = to->ticks - from->ticks, width = from->width / 2 + to->width / 2;
	unsigned __int128 mult;

	if (to->ns <= from->ns || (int64_t)ticks <= 0)
		return false;
	rate->baseline = (uint64_t)(to->ns - from->ns);
	mult = ((unsigned __int128)rate->baseline << TICK_CLOCK_SHIFT) / ticks;
	/* Not zero, and ticks below 256 ns. */
	if (!mult || mult >> 64)
		return false;
	rate->mult = (uint64_t)mult;
	rate->uncertainty =
		width >= ticks ? PARTS : (uint64_t)((unsigned __int128)width * PARTS / ticks);
	return true;
}

/* How much two rates or frequencies differ, in 1e-9; at most PARTS. */
static uint64_t difference(uint64_t a, uint64_t b)
{
	uint64_t larger = a > b ? a : b, smaller = a > b ? b : a;

	return larger ? (uint64_t)((unsigned __int128)(larger - smaller) * PARTS / larger) : 0;
}

static void sleep_until(int64_t end, tick_clock_system *system)
{
	for (int64_t left; (left = end - read_system(system)) > 0;) {
		const struct timespec time = { .tv_nsec = left < HALF_BASELINE ? (long)left :
										 HALF_BASELINE };

		nanosleep(&time, NULL);
	}
}

/* The rate over two halves, which must agree.  `last` is the comparison at the end. */
static bool measure(tick_clock_system *system, struct rate *rate,
		    struct tick_clock_comparison *last)
{
	struct tick_clock_comparison first = compare(system), middle;
	struct rate halves[2];

	sleep_until(first.ns + HALF_BASELINE, system);
	middle = compare(system);
	sleep_until(middle.ns + HALF_BASELINE, system); /* which may have come late */
	*last = compare(system);
	return rate_between(&first, &middle, &halves[0]) &&
	       rate_between(&middle, last, &halves[1]) && rate_between(&first, last, rate) &&
	       rate->uncertainty <= UNCERTAINTY_MAX &&
	       difference(halves[0].mult, halves[1].mult) <=
		       HALVES_DIFFER_MAX + halves[0].uncertainty + halves[1].uncertainty;
}

static uint64_t hertz(uint64_t mult)
{
	return (uint64_t)(((unsigned __int128)NS_PER_SECOND << TICK_CLOCK_SHIFT) / mult);
}

/* ---- The decision ---- */

#ifdef TICK_CLOCK_COUNTER

/* What can be said before anything is measured. */
static enum tick_clock_reason judge(const struct tick_clock_facts *facts,
				    enum tick_clock_choice choice)
{
	if (choice == TICK_CLOCK_SYSTEM)
		return TICK_CLOCK_SYSTEM_WANTED;
	if (!facts->allowed)
		return TICK_CLOCK_FORBIDDEN;
	if (!facts->invariant)
		return TICK_CLOCK_NOT_INVARIANT;
	if (choice == TICK_CLOCK_AUTO && !facts->trusted)
		return TICK_CLOCK_NOT_TRUSTED;
	if (choice == TICK_CLOCK_TSC && !facts->offered)
		return TICK_CLOCK_NOT_OFFERED;
	return TICK_CLOCK_COUNTER_USED;
}

static void look_at(const struct tick_clock_machine *machine, enum tick_clock_choice choice,
		    struct tick_clock_facts *facts)
{
	memset(facts, 0, sizeof(*facts));
	ask_kernel(machine->sysfs, facts);
	ask_processor(machine, facts);
	facts->allowed = machine->may_read();
	facts->reason = judge(facts, choice);
}

/* Measures; takes the counter's use back if it doesn't come out right. */
static void measure_facts(const struct tick_clock_machine *machine, struct tick_clock_facts *facts,
			  struct rate *rate, struct tick_clock_comparison *last)
{
	enum tick_clock_reason verdict = TICK_CLOCK_COUNTER_USED;
	bool measured = false;

	for (int i = 0; i < MEASUREMENTS && !measured; i++)
		measured = measure(machine->system, rate, last);
	if (!measured) {
		verdict = TICK_CLOCK_UNSTEADY;
	} else {
		facts->measured = hertz(rate->mult);
		facts->uncertainty = rate->uncertainty;
		if (facts->told && difference(facts->told, facts->measured) > TOLD_DIFFERS_MAX)
			verdict = TICK_CLOCK_IMPLAUSIBLE;
	}
	if (facts->reason == TICK_CLOCK_COUNTER_USED)
		facts->reason = verdict;
}

#else

static void look_at(const struct tick_clock_machine *machine, enum tick_clock_choice choice,
		    struct tick_clock_facts *facts)
{
	memset(facts, 0, sizeof(*facts));
	read_word(machine->sysfs, "current_clocksource", facts->clock_source,
		  sizeof(facts->clock_source));
	facts->reason =
		choice == TICK_CLOCK_SYSTEM ? TICK_CLOCK_SYSTEM_WANTED : TICK_CLOCK_NO_COUNTER;
}

static void measure_facts(const struct tick_clock_machine *machine, struct tick_clock_facts *facts,
			  struct rate *rate, struct tick_clock_comparison *last)
{
	(void)machine;
	(void)facts;
	(void)rate;
	(void)last;
}

#endif

void tick_clock_examine(const struct tick_clock_machine *machine, enum tick_clock_choice choice,
			struct tick_clock_facts *facts)
{
	struct tick_clock_comparison last;
	struct rate rate;

	look_at(machine, choice, facts);
	if (facts->allowed && facts->invariant)
		measure_facts(machine, facts, &rate, &last);
}

/* ---- Lines ---- */

/* One to fill in; NULL if there are no more. */
static struct tick_clock_line *take_line(void)
{
	unsigned used = atomic_load_explicit(&lines_used, memory_order_relaxed);

	do {
		if (used >= LINES)
			return NULL;
	} while (!atomic_compare_exchange_weak(&lines_used, &used, used + 1));
	return &lines[used];
}

/* Ticks in `ns` at this rate, at most 15/16 of what can be counted: the rest is before the line. */
static uint64_t ticks_in(uint64_t ns, uint64_t mult)
{
	unsigned __int128 ticks = ((unsigned __int128)ns << TICK_CLOCK_SHIFT) / mult;
	uint64_t most = UINT64_MAX - (UINT64_MAX >> 4);

	return ticks > most ? most : (uint64_t)ticks;
}

static void draw(struct tick_clock_line *line, uint64_t mult, uint64_t from, int64_t ns)
{
	line->from = from;
	line->room = ticks_in(ROOM_NS, mult);
	line->mult = mult;
	line->ns = ns;
}

int64_t tick_clock_elsewhere(const struct tick_clock_line *line, uint64_t ticks)
{
	while (line->room && ticks - line->from >= line->room) {
		if (!line->before)
			return line->ns;
		line = line->before;
	}
	return line->room ? line->ns + tick_clock_convert(ticks - line->from, line->mult) :
			    read_system(line->system) + line->ns;
}

enum tick_clock_reason tick_clock_state(void)
{
	return tick_clock_current()->reason;
}

/* ---- The first line ---- */

enum tick_clock_reason tick_clock_init_on(const struct tick_clock_machine *machine,
					  enum tick_clock_choice choice)
{
	const struct tick_clock_line *undecided = &system_line;
	struct tick_clock_line *line;
	struct tick_clock_facts facts;
	struct tick_clock_comparison last;
	struct rate rate;
	int error = errno;

	if (tick_clock_current() != undecided)
		return tick_clock_state();
	look_at(machine, choice, &facts);
	if (facts.reason == TICK_CLOCK_COUNTER_USED)
		measure_facts(machine, &facts, &rate, &last);
	errno = error;

	line = take_line();
	if (!line)
		return tick_clock_state(); /* of the many who were here at once, one has won */
	line->system = machine->system;
	line->reason = facts.reason;
	if (facts.reason == TICK_CLOCK_COUNTER_USED) {
		/*
		 * Through the earliest of the ticks that may belong to this time: who has read the
		 * system's clock before doesn't find ours behind it.
		 */
		draw(line, rate.mult, last.ticks - last.width / 2, last.ns);
		line->baseline = rate.baseline;
		line->wander = facts.trusted ? 0 : WANDER_MAX;
		line->uncertainty = line->wander + rate.uncertainty;
		line->anchor = last;
	}
	atomic_compare_exchange_strong(&tick_clock_line, &undecided, line);
	return tick_clock_state();
}

enum tick_clock_reason tick_clock_init(enum tick_clock_choice choice, tick_clock_system *system)
{
	struct tick_clock_machine machine = tick_clock_this_machine;

	if (system)
		machine.system = system;
	return tick_clock_init_on(&machine, choice);
}

/* ---- Keeping it true ---- */

static void publish(const struct tick_clock_line *line)
{
	atomic_store_explicit(&tick_clock_line, line, memory_order_release);
}

/* `error`: ns that the clock is ahead of the system's, at most. */
static void give_up(const struct tick_clock_line *line, int64_t error)
{
	drifted_line.system = line->system;
	drifted_line.reason = TICK_CLOCK_DRIFTED;
	/* And 1 us for what it gains until all have noticed. */
	error += 1000;
	drifted_line.ns = error > 0 ? error : 0;
	publish(&drifted_line);
}

/* Two lines, from LEAD after `now`: one to make up for the error, one at the new rate. */
static void refine(const struct tick_clock_line *line, const struct tick_clock_comparison *now)
{
	struct tick_clock_line *bend, *onward;
	uint64_t lead = ticks_in(LEAD, line->mult), owed, catch_up;
	struct rate rate;
	int64_t error;

	if (!rate_between(&line->anchor, now, &rate))
		return;
	bend = take_line();
	onward = take_line();
	if (!bend || !onward)
		return;

	bend->from = now->ticks + lead;
	bend->ns = tick_clock_at(line, bend->from);
	error = bend->ns - now->ns - tick_clock_convert(lead, rate.mult);
	owed = (uint64_t)(error < 0 ? -error : error);
	catch_up = rate.mult / (PARTS / CATCH_UP);
	draw(bend, error < 0 ? rate.mult + catch_up : rate.mult - catch_up, bend->from, bend->ns);
	bend->before = line;
	bend->system = line->system;

	lead = ticks_in(owed * (PARTS / CATCH_UP), rate.mult);
	draw(onward, rate.mult, bend->from + lead, bend->ns + tick_clock_convert(lead, bend->mult));
	onward->before = bend;
	onward->system = line->system;
	onward->reason = line->reason;
	onward->baseline = rate.baseline;
	onward->uncertainty = line->wander + rate.uncertainty;
	onward->wander = line->wander;
	onward->owed = owed;
	onward->anchor = line->anchor;

	/* Held up for so long that others may be where the lines begin already?  Another time, then. */
	if (tick_clock_ticks_ordered() - now->ticks < (bend->from - now->ticks) / 2)
		publish(onward);
}

bool tick_clock_check(void)
{
	const struct tick_clock_line *line = tick_clock_current();
	struct tick_clock_comparison now;
	uint64_t passed, width, allowed;
	int64_t error;

	if (!line->room)
		return false;
	now = compare(line->system);
	width = (uint64_t)tick_clock_convert(now.width, line->mult);
	if (width > WIDTH_MAX)
		return false;
	error = tick_clock_at(line, now.ticks) - now.ns;
	passed = now.ticks - line->from;
	allowed = TICK_CLOCK_DRIFT_MAX + width;
	if (passed < line->room)
		allowed += (uint64_t)((unsigned __int128)tick_clock_convert(passed, line->mult) *
				      line->uncertainty / PARTS);
	else
		allowed += line->owed; /* it hasn't begun */
	if ((uint64_t)(error < 0 ? -error : error) > allowed) {
		give_up(line, error + (int64_t)width);
		return true;
	}
	if (passed < line->room &&
	    now.ns - line->anchor.ns >= (int64_t)line->baseline * REFINE_FACTOR)
		refine(line, &now);
	return false;
}
