/*
 * The clock to measure with: its arithmetic, when the counter is refused, and that time never goes
 * backward, whatever happens to it.  Meant for ThreadSanitizer, too.  FBPROF_LONG_TESTS=1 in the
 * environment makes the tests across CPUs take 10 s each.
 *
 * Each test is a process of its own, as the clock is decided once a process.
 */
#define _GNU_SOURCE
#include "../sampler/tick_clock.h"
#include "run_suite.h"
#include "scratch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NS_PER_SECOND	1000000000
#define NS_PER_MS	1000000
#define NS_PER_YEAR	(366 * 86400ll * NS_PER_SECOND)
#define PARTS		1000000000
#define THREADS_MAX	4
#define TIMEOUT_SECONDS 300

typedef unsigned __int128 wide;

static int64_t raw_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return (int64_t)time.tv_sec * NS_PER_SECOND + time.tv_nsec;
}

static void pause_for(long ns)
{
	const struct timespec time = { .tv_nsec = ns };

	nanosleep(&time, NULL);
}

/* ---- Arithmetic ---- */

static const uint64_t frequencies[] = { 4000001,    19200000,	24000000,    1000000000,
					2299998000, 3800000000, 10000000000, 18000000000 };

#define FREQUENCIES (sizeof(frequencies) / sizeof(*frequencies))

static uint64_t mult_for(uint64_t hertz)
{
	return (uint64_t)(((wide)NS_PER_SECOND << TICK_CLOCK_SHIFT) / hertz);
}

/* At most 1 ns below the truth, and what the rounding of `mult` makes of so many ticks. */
START_TEST(conversion_is_exact)
{
	uint64_t hertz = frequencies[_i], mult = mult_for(hertz);
	wide century = (wide)hertz * 100 * 366 * 86400;
	uint64_t last = century > UINT64_MAX ? UINT64_MAX : (uint64_t)century;
	uint64_t ticks = 1;

	ck_assert_int_eq(tick_clock_convert(0, mult), 0);
	for (bool done = false; !done; ticks = ticks * 3 + 1) {
		wide truth;
		int64_t ns;

		done = ticks > last / 4;
		if (done)
			ticks = last;
		truth = (wide)ticks * NS_PER_SECOND / hertz;
		ns = tick_clock_convert(ticks, mult);
		ck_assert_int_ge(ns, 0);
		ck_assert(ns <= (int64_t)truth);
		ck_assert((uint64_t)((int64_t)truth - ns) <= 1 + (ticks >> TICK_CLOCK_SHIFT));
		ck_assert_int_ge(ns, tick_clock_convert(ticks - 1, mult));
	}
}
END_TEST

/* A machine that was up for 100 years, and a process that runs for another 100. */
START_TEST(no_overflow_in_200_years)
{
	uint64_t hertz = 4000000000u, mult = mult_for(hertz);
	const struct tick_clock_line line = { .from = 100 * 366 * 86400ull * hertz,
					      .room = UINT64_MAX - (UINT64_MAX >> 4),
					      .mult = mult,
					      .ns = 100 * NS_PER_YEAR };
	int64_t ns = tick_clock_at(&line, line.from + 100 * 366 * 86400ull * hertz);

	ck_assert_int_le(ns, 200 * NS_PER_YEAR);
	ck_assert_int_gt(ns, 200 * NS_PER_YEAR - 1000);
	ck_assert_int_eq(tick_clock_at(&line, line.from), line.ns);
}
END_TEST

/* Whatever line a thread has found, the value depends on the ticks alone. */
START_TEST(lines_join)
{
	const struct tick_clock_line first = {
		.from = 1000, .room = UINT64_MAX / 2, .mult = mult_for(1000000000), .ns = 5000
	};
	const struct tick_clock_line second = { .from = 2000,
						.room = UINT64_MAX / 2,
						.mult = mult_for(2000000000),
						.ns = 6000,
						.before = &first };
	const struct tick_clock_line third = { .from = 3000,
					       .room = UINT64_MAX / 2,
					       .mult = mult_for(1000000000),
					       .ns = 6500,
					       .before = &second };
	int64_t last = 0;

	for (uint64_t ticks = 0; ticks < 4000; ticks++) {
		int64_t ns = tick_clock_at(&third, ticks);

		ck_assert_int_ge(ns, last);
		if (ticks < 3000)
			ck_assert_int_eq(ns, tick_clock_at(&second, ticks));
		if (ticks < 2000)
			ck_assert_int_eq(ns, tick_clock_at(&first, ticks));
		last = ns;
	}
	ck_assert_int_eq(tick_clock_at(&third, 0), 5000);
	ck_assert_int_eq(tick_clock_at(&third, 1500), 5500);
	ck_assert_int_eq(tick_clock_at(&third, 2500), 6250);
	ck_assert_int_eq(tick_clock_at(&third, 3999), 7499);
}
END_TEST

/* ---- Made-up machines ---- */

static uint64_t told_khz; /* by the made-up hypervisor */
static bool invariant, allowed;
static _Atomic int64_t
	system_ahead; /* ns that the made-up system's clock is ahead of the real one */

static void put_file(const char *name, const char *text)
{
	int file = open(scratch_path(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(write(file, text, strlen(text)), (ssize_t)strlen(text));
	close(file);
}

static void put_sources(const char *current, const char *available)
{
	put_file("current_clocksource", current);
	put_file("available_clocksource", available);
}

static void made_up_cpuid(uint32_t leaf, uint32_t registers[4])
{
	static const char name[13] = "KVMKVMKVM\0\0";

	memset(registers, 0, 4 * sizeof(*registers));
	switch (leaf) {
	case 0:
		registers[0] = 0x16;
		break;
	case 1:
		registers[2] = 1u << 31;
		break;
	case 0x40000000:
		registers[0] = 0x40000010;
		memcpy(&registers[1], name, 12);
		break;
	case 0x40000010:
		registers[0] = (uint32_t)told_khz;
		break;
	case 0x80000000:
		registers[0] = 0x80000008;
		break;
	case 0x80000007:
		registers[3] = invariant ? 1u << 8 : 0;
		break;
	}
}

static bool made_up_permission(void)
{
	return allowed;
}

static int made_up_system(clockid_t id, struct timespec *time)
{
	int64_t ns = raw_now() + atomic_load_explicit(&system_ahead, memory_order_relaxed);

	(void)id;
	time->tv_sec = ns / NS_PER_SECOND;
	time->tv_nsec = ns % NS_PER_SECOND;
	return 0;
}

static struct tick_clock_machine machine = {
	.cpuid = made_up_cpuid,
	.may_read = made_up_permission,
	.system = made_up_system,
};

static void set_up(void)
{
	scratch_make();
	machine.sysfs = scratch;
	invariant = allowed = true;
	put_sources(TICK_CLOCK_COUNTER "\n", TICK_CLOCK_COUNTER " hpet acpi_pm \n");
}

static void tear_down(void)
{
	scratch_remove();
}

static enum tick_clock_reason examine(enum tick_clock_choice choice)
{
	struct tick_clock_facts facts;

	tick_clock_examine(&machine, choice, &facts);
	ck_assert_ptr_nonnull(tick_clock_reason_text(facts.reason));
	return facts.reason;
}

/* Whether this machine, under its made-up sysfs, has a counter that works at all. */
static bool counter_works(void)
{
	return examine(TICK_CLOCK_AUTO) == TICK_CLOCK_COUNTER_USED;
}

/* What must not be used isn't, and the clock is the system's then. */
static void check_refused(enum tick_clock_choice choice, enum tick_clock_reason reason)
{
	int64_t before, now;

	ck_assert_int_eq(examine(choice), reason);
	ck_assert_int_eq(tick_clock_init_on(&machine, choice), reason);
	ck_assert_int_eq(tick_clock_state(), reason);
	ck_assert_uint_eq(tick_clock_current()->room, 0);
	before = raw_now();
	now = tick_clock_now();
	ck_assert_int_le(before, now);
	ck_assert_int_le(now, tick_clock_now_ordered());
	ck_assert_int_le(now, raw_now());
	ck_assert(!tick_clock_check());
}

START_TEST(system_can_be_forced)
{
	check_refused(TICK_CLOCK_SYSTEM, TICK_CLOCK_SYSTEM_WANTED);
}
END_TEST

START_TEST(kernel_uses_another)
{
	put_sources("hpet\n", TICK_CLOCK_COUNTER " hpet\n");
	check_refused(TICK_CLOCK_AUTO, TICK_CLOCK_NOT_TRUSTED);
}
END_TEST

START_TEST(guest_with_another)
{
	put_sources("kvm-clock\n", "kvm-clock " TICK_CLOCK_COUNTER " acpi_pm\n");
	check_refused(TICK_CLOCK_AUTO, TICK_CLOCK_NOT_TRUSTED);
}
END_TEST

START_TEST(similar_name)
{
	put_sources(TICK_CLOCK_COUNTER "-early\n",
		    TICK_CLOCK_COUNTER "-early x" TICK_CLOCK_COUNTER "\n");
	ck_assert_int_eq(examine(TICK_CLOCK_AUTO), TICK_CLOCK_NOT_TRUSTED);
	check_refused(TICK_CLOCK_TSC, TICK_CLOCK_NOT_OFFERED);
}
END_TEST

START_TEST(unreadable_sysfs)
{
	machine.sysfs = "/nowhere";
	ck_assert_int_eq(examine(TICK_CLOCK_TSC), TICK_CLOCK_NOT_OFFERED);
	check_refused(TICK_CLOCK_AUTO, TICK_CLOCK_NOT_TRUSTED);
}
END_TEST

START_TEST(overlong_sysfs)
{
	char text[4096];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	put_sources(text, text);
	ck_assert_int_eq(examine(TICK_CLOCK_TSC), TICK_CLOCK_NOT_OFFERED);
	check_refused(TICK_CLOCK_AUTO, TICK_CLOCK_NOT_TRUSTED);
}
END_TEST

START_TEST(forbidden)
{
	allowed = false;
	check_refused(TICK_CLOCK_TSC, TICK_CLOCK_FORBIDDEN);
}
END_TEST

#if defined(__x86_64__)

START_TEST(not_invariant)
{
	invariant = false;
	check_refused(TICK_CLOCK_TSC, TICK_CLOCK_NOT_INVARIANT);
}
END_TEST

static int clock_by_system_call(clockid_t id, struct timespec *time)
{
	return (int)syscall(SYS_clock_gettime, id, time);
}

/* In earnest: a read of the counter would be SIGSEGV, also in the vDSO. */
START_TEST(counter_is_a_trap)
{
	machine = tick_clock_this_machine;
	machine.system = clock_by_system_call;
	if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV))
		return;
	ck_assert_int_eq(tick_clock_init_on(&machine, TICK_CLOCK_TSC), TICK_CLOCK_FORBIDDEN);
	ck_assert_int_gt(tick_clock_now(), 0);
	ck_assert_int_gt(tick_clock_now_ordered(), 0);
	ck_assert(!tick_clock_check());
	ck_assert_int_eq(prctl(PR_SET_TSC, PR_TSC_ENABLE), 0);
}
END_TEST

START_TEST(told_frequency_must_agree)
{
	struct tick_clock_facts facts;

	if (!counter_works())
		return;
	tick_clock_examine(&machine, TICK_CLOCK_AUTO, &facts);
	ck_assert_uint_gt(facts.measured, 0);
	told_khz = facts.measured / 1000;
	tick_clock_examine(&machine, TICK_CLOCK_AUTO, &facts);
	ck_assert_int_eq(facts.reason, TICK_CLOCK_COUNTER_USED);
	ck_assert_uint_eq(facts.told, told_khz * 1000);
	ck_assert_ptr_nonnull(facts.told_by);
	told_khz += told_khz / 20;
	check_refused(TICK_CLOCK_AUTO, TICK_CLOCK_IMPLAUSIBLE);
}
END_TEST

#endif

static int64_t accelerating_since;

/* A clock that runs faster and faster: by two fifths after 10 ms, which no load can hide. */
static int accelerating_system(clockid_t id, struct timespec *time)
{
	int64_t passed = raw_now() - accelerating_since, ns;

	(void)id;
	ns = accelerating_since + passed +
	     (int64_t)((wide)passed * (wide)passed * 20 / NS_PER_SECOND);
	time->tv_sec = ns / NS_PER_SECOND;
	time->tv_nsec = ns % NS_PER_SECOND;
	return 0;
}

START_TEST(unsteady)
{
	if (!counter_works())
		return;
	accelerating_since = raw_now();
	machine.system = accelerating_system;
	ck_assert_int_eq(examine(TICK_CLOCK_AUTO), TICK_CLOCK_UNSTEADY);
	accelerating_since = raw_now();
	ck_assert_int_eq(tick_clock_init_on(&machine, TICK_CLOCK_AUTO), TICK_CLOCK_UNSTEADY);
	ck_assert_uint_eq(tick_clock_current()->room, 0);
}
END_TEST

/* ---- One thread ---- */

START_TEST(decided_once)
{
	ck_assert_int_eq(tick_clock_init(TICK_CLOCK_SYSTEM, NULL), TICK_CLOCK_SYSTEM_WANTED);
	ck_assert_int_eq(tick_clock_init(TICK_CLOCK_AUTO, NULL), TICK_CLOCK_SYSTEM_WANTED);
	ck_assert_int_eq(tick_clock_state(), TICK_CLOCK_SYSTEM_WANTED);
}
END_TEST

START_TEST(system_before_it_is_decided)
{
	int64_t before = raw_now(), now = tick_clock_now();

	ck_assert_int_le(before, now);
	ck_assert_int_le(now, raw_now());
	ck_assert(!tick_clock_check());
	/* Nor does the decision turn time back. */
	now = tick_clock_now_ordered();
	tick_clock_init(TICK_CLOCK_AUTO, NULL);
	ck_assert_int_le(now, tick_clock_now_ordered());
}
END_TEST

START_TEST(errno_stays)
{
	machine.sysfs = "/nowhere";
	errno = 4711;
	tick_clock_init_on(&machine, TICK_CLOCK_TSC);
	ck_assert_int_eq(errno, 4711);
	tick_clock_now();
	tick_clock_check();
	ck_assert_int_eq(errno, 4711);
}
END_TEST

static const enum tick_clock_choice choices[] = { TICK_CLOCK_AUTO, TICK_CLOCK_TSC,
						  TICK_CLOCK_SYSTEM };

START_TEST(goes_forward_on_a_thread)
{
	int64_t last = 0;

	tick_clock_init(choices[_i], NULL);
	for (int i = 0; i < 1000000; i++) {
		int64_t now = tick_clock_now();

		ck_assert_int_ge(now, last);
		last = now;
	}
}
END_TEST

/*
 * What the clock may be off: what a check tolerates, and what the least certain rate so far explains,
 * which was right only as far as it was known.
 */
static int64_t bound(int64_t passed)
{
	static uint64_t uncertainty;
	uint64_t current = tick_clock_current()->uncertainty;

	if (current > uncertainty)
		uncertainty = current;
	return TICK_CLOCK_DRIFT_MAX + 10000 + (int64_t)((wide)passed * uncertainty / PARTS);
}

/* Between two reads of ours the system's clock shows a time between them, give or take the bound. */
START_TEST(agrees_with_the_system)
{
	int64_t begin = raw_now(), raw = begin, worst = 0;

	tick_clock_init(choices[_i], NULL);
	while (raw - begin < NS_PER_SECOND / 2) {
		int64_t before = tick_clock_now_ordered(), after;

		raw = raw_now();
		after = tick_clock_now_ordered();
		ck_assert_int_le(before - bound(raw - begin), raw);
		ck_assert_int_ge(after + bound(raw - begin), raw);
		if (before - raw > worst)
			worst = before - raw;
		if (raw - after > worst)
			worst = raw - after;
		ck_assert(!tick_clock_check());
	}
	printf("%s: at most %" PRId64 " ns off\n", tick_clock_reason_text(tick_clock_state()),
	       worst);
}
END_TEST

static int64_t drifting_since;

/* From a moment on it runs faster or slower by 100 ppm, which a check tolerates for half a second. */
static int drifting_system(clockid_t id, struct timespec *time)
{
	int64_t ahead = atomic_load_explicit(&system_ahead, memory_order_relaxed);
	int64_t ns = raw_now();

	(void)id;
	ns += (ns - drifting_since) * ahead / 10000;
	time->tv_sec = ns / NS_PER_SECOND;
	time->tv_nsec = ns % NS_PER_SECOND;
	return 0;
}

static int64_t drifting_now(void)
{
	struct timespec time;

	drifting_system(CLOCK_MONOTONIC_RAW, &time);
	return (int64_t)time.tv_sec * NS_PER_SECOND + time.tv_nsec;
}

/*
 * What the first rate was wrong by is made up for, and the rate is right from then on.  Only a
 * machine that stops us for longer than CHECKS_APART_MAX leaves that open, or one that took so long
 * for the first rate that the next one comes too late.
 */
#define CHECKS_APART_MAX (100 * NS_PER_MS)
#define BASELINE_MAX	 (40 * NS_PER_MS)

START_TEST(rate_is_refined)
{
	int64_t last = 0, ours, before, after, checked, allowed;
	unsigned refined = 0;

	if (!counter_works())
		return;
	machine.system = drifting_system;
	ck_assert_int_eq(tick_clock_init_on(&machine, TICK_CLOCK_AUTO), TICK_CLOCK_COUNTER_USED);
	if (tick_clock_current()->baseline > BASELINE_MAX) {
		printf("too busy to tell\n");
		return;
	}
	checked = drifting_since = raw_now();
	atomic_store(&system_ahead, _i ? 1 : -1);
	while (checked - drifting_since < NS_PER_SECOND) {
		const struct tick_clock_line *line = tick_clock_current();
		bool given_up;

		pause_for(NS_PER_MS);
		given_up = tick_clock_check();
		if (raw_now() - checked > CHECKS_APART_MAX) {
			printf("too busy to tell\n");
			return;
		}
		checked = raw_now();
		ck_assert(!given_up);
		refined += tick_clock_current() != line;
		for (int i = 0; i < 1000; i++) {
			ours = tick_clock_now();
			ck_assert_int_ge(ours, last);
			last = ours;
		}
	}
	before = drifting_now();
	ours = tick_clock_now_ordered();
	after = drifting_now();
	/* Unrefined it would be 100 us by now, with nothing made up for 16 us. */
	allowed = 5000 + (int64_t)((wide)NS_PER_SECOND * tick_clock_current()->uncertainty / PARTS);
	printf("refined %u times: from %" PRId64 " to %" PRId64 " ns off\n", refined, ours - after,
	       ours - before);
	ck_assert_uint_ge(refined, 1);
	ck_assert_int_ge(ours, before - allowed);
	ck_assert_int_le(ours, after + allowed);
}
END_TEST

/* A child goes on with its parent's clock, or decides for itself. */
START_TEST(fork_is_no_matter)
{
	int64_t before;
	pid_t child;
	int status;

	if (_i)
		tick_clock_init(TICK_CLOCK_AUTO, NULL);
	before = tick_clock_now_ordered();
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		bool right = tick_clock_now_ordered() >= before;

		tick_clock_init(TICK_CLOCK_AUTO, NULL);
		right &= tick_clock_now_ordered() >= before;
		tick_clock_check();
		right &= tick_clock_now_ordered() >= before;
		_exit(!right);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- Several threads ---- */

static _Atomic int64_t last_seen;
static _Atomic uint64_t reads, backward;
static _Atomic int64_t farthest;
static _Atomic bool over;

/* The CPU in the process's mask with this number; -1: there are fewer. */
static int nth_cpu(int n)
{
	cpu_set_t mask;

	if (sched_getaffinity(getpid(), sizeof(mask), &mask))
		return -1;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &mask) && !n--)
			return cpu;
	}
	return -1;
}

static void note_backward(int64_t by)
{
	int64_t most = atomic_load(&farthest);

	atomic_fetch_add(&backward, 1);
	while (by > most && !atomic_compare_exchange_weak(&farthest, &most, by))
		;
}

/* Passes the latest time on: whoever has seen it must not read an earlier one. */
static void *pass_on(void *number)
{
	int cpu = nth_cpu((int)(intptr_t)number);
	uint64_t count = 0;
	cpu_set_t mask;

	if (cpu >= 0) {
		CPU_ZERO(&mask);
		CPU_SET(cpu, &mask);
		sched_setaffinity(0, sizeof(mask), &mask);
	}
	while (!atomic_load_explicit(&over, memory_order_relaxed)) {
		int64_t seen = atomic_load_explicit(&last_seen, memory_order_acquire);
		int64_t now = tick_clock_now_ordered();

		if (now < seen)
			note_backward(seen - now);
		else
			atomic_compare_exchange_strong(&last_seen, &seen, now);
		count++;
	}
	atomic_fetch_add(&reads, count);
	return NULL;
}

static int64_t long_duration(void)
{
	const char *wanted = getenv("FBPROF_LONG_TESTS");

	return wanted && !strcmp(wanted, "1") ? 10ll * NS_PER_SECOND : NS_PER_SECOND / 2;
}

/* Lets the threads run, with a check each 10 ms, and a jump of the system's clock in the middle. */
static unsigned pass_on_for(int64_t duration, int64_t jump)
{
	pthread_t threads[THREADS_MAX];
	int64_t begin = raw_now();
	unsigned given_up = 0, lines = 0;
	const struct tick_clock_line *line = tick_clock_current();

	for (intptr_t i = 0; i < THREADS_MAX; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, pass_on, (void *)i), 0);
	while (raw_now() - begin < duration) {
		pause_for(10 * NS_PER_MS);
		if (raw_now() - begin > duration / 2)
			atomic_store_explicit(&system_ahead, jump, memory_order_relaxed);
		given_up += tick_clock_check();
		lines += tick_clock_current() != line;
		line = tick_clock_current();
	}
	/* On a busy machine a check may find nothing out. */
	for (int tries = 0; jump && !given_up && tries < 1000; tries++) {
		pause_for(NS_PER_MS);
		given_up += tick_clock_check();
	}
	atomic_store(&over, true);
	for (int i = 0; i < THREADS_MAX; i++)
		pthread_join(threads[i], NULL);
	printf("%s: %" PRIu64 " reads, %u lines more, %" PRIu64 " steps backward, at most %" PRId64
	       " ns\n",
	       tick_clock_reason_text(tick_clock_state()), atomic_load(&reads), lines,
	       atomic_load(&backward), atomic_load(&farthest));
	return given_up;
}

START_TEST(goes_forward_across_cpus)
{
	tick_clock_init(choices[_i], NULL);
	pass_on_for(long_duration(), 0);
	ck_assert_uint_gt(reads, 0);
	ck_assert_uint_eq(backward, 0);
}
END_TEST

/* The counter is given up while threads read it, once, and for good; time goes on. */
START_TEST(gives_up_without_going_back)
{
	static const int64_t jumps[] = { NS_PER_MS, -NS_PER_MS, 3600ll * NS_PER_SECOND,
					 -3600ll * NS_PER_SECOND };
	int64_t before, now;

	if (!counter_works())
		return;
	ck_assert_int_eq(tick_clock_init_on(&machine, TICK_CLOCK_AUTO), TICK_CLOCK_COUNTER_USED);
	ck_assert_uint_eq(pass_on_for(long_duration(), jumps[_i]), 1);
	ck_assert_uint_eq(backward, 0);
	ck_assert_int_eq(tick_clock_state(), TICK_CLOCK_DRIFTED);
	ck_assert_int_eq(tick_clock_init(TICK_CLOCK_TSC, NULL), TICK_CLOCK_DRIFTED);
	/* It neither stands still nor forgets what it was ahead. */
	before = raw_now();
	now = tick_clock_now_ordered();
	ck_assert_int_ge(now, before);
	ck_assert_int_ge(now, before + jumps[_i]);
	pause_for(NS_PER_MS);
	ck_assert_int_ge(tick_clock_now_ordered(), now + NS_PER_MS / 2);
}
END_TEST

static void *decide(void *result)
{
	*(enum tick_clock_reason *)result = tick_clock_init(TICK_CLOCK_AUTO, NULL);
	return NULL;
}

START_TEST(all_come_first)
{
	enum tick_clock_reason results[8];
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, decide, &results[i]), 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(results[i], tick_clock_state());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tick clock");
	TCase *tcase = tcase_create("arithmetic");

	tcase_add_loop_test(tcase, conversion_is_exact, 0, FREQUENCIES);
	tcase_add_test(tcase, no_overflow_in_200_years);
	tcase_add_test(tcase, lines_join);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("refusals");
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, TIMEOUT_SECONDS);
	tcase_add_test(tcase, system_can_be_forced);
	tcase_add_test(tcase, kernel_uses_another);
	tcase_add_test(tcase, guest_with_another);
	tcase_add_test(tcase, similar_name);
	tcase_add_test(tcase, unreadable_sysfs);
	tcase_add_test(tcase, overlong_sysfs);
	tcase_add_test(tcase, forbidden);
#if defined(__x86_64__)
	tcase_add_test(tcase, not_invariant);
	tcase_add_test(tcase, counter_is_a_trap);
	tcase_add_test(tcase, told_frequency_must_agree);
#endif
	tcase_add_test(tcase, unsteady);
	tcase_add_test(tcase, errno_stays);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("time");
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, TIMEOUT_SECONDS);
	tcase_add_test(tcase, decided_once);
	tcase_add_test(tcase, system_before_it_is_decided);
	tcase_add_loop_test(tcase, goes_forward_on_a_thread, 0, 3);
	tcase_add_loop_test(tcase, agrees_with_the_system, 0, 3);
	tcase_add_loop_test(tcase, rate_is_refined, 0, 2);
	tcase_add_loop_test(tcase, fork_is_no_matter, 0, 2);
	tcase_add_loop_test(tcase, goes_forward_across_cpus, 0, 3);
	tcase_add_loop_test(tcase, gives_up_without_going_back, 0, 4);
	tcase_add_test(tcase, all_come_first);
	suite_add_tcase(suite, tcase);

	return run_suite(suite);
}
