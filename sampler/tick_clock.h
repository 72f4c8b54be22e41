/*
 * The clock to measure with: the processor's own counter where the kernel trusts it, else the
 * system's clock.  This header hides which one; all values are ns of CLOCK_MONOTONIC_RAW's epoch.
 *
 *   x86-64    the time-stamp counter, if it is invariant and the kernel's own clock source
 *   aarch64   the virtual counter (CNTVCT_EL0), if it is the kernel's own clock source
 *   otherwise CLOCK_MONOTONIC_RAW, which the vDSO answers without a system call
 *
 * One read takes, on a Xeon under KVM: tick_clock_now() 11 ns, of which 10 are the counter's,
 * tick_clock_now_ordered() 19 ns, the system's clock 23 ns.  `fbprof timing` shows it for any machine.
 *
 * Reading is for any thread, also in a signal handler and after fork: no lock, no allocation, no
 * system call unless the system's clock makes one, errno stays as it was.
 *
 * How true it is.  Right after tick_clock_init() the rate is known to some 1e-6 (the error of two
 * comparisons 20 ms apart), and is known eight times better after each tick_clock_check() that has
 * eight times as long a past to look at.  Each check that comes out right has found the clock
 * within TICK_CLOCK_DRIFT_MAX, and what the rate's known error allows since it was set, of
 * CLOCK_MONOTONIC_RAW.
 *
 * It never goes backward: not on a thread, not when the rate is refined, not when the counter is
 * given up.  Between threads: see tick_clock_now_ordered().
 */
#ifndef FBPROF_TICK_CLOCK_H
#define FBPROF_TICK_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum tick_clock_choice {
	TICK_CLOCK_AUTO, /* the counter if the kernel keeps its own time by it */
	TICK_CLOCK_TSC, /* the counter if it is invariant and the kernel doesn't call it unstable */
	TICK_CLOCK_SYSTEM /* CLOCK_MONOTONIC_RAW */
};

/* Why the clock is what it is; tick_clock_reason_text() has the sentences. */
enum tick_clock_reason {
	TICK_CLOCK_COUNTER_USED,
	TICK_CLOCK_SYSTEM_WANTED,
	TICK_CLOCK_NO_COUNTER,	  /* an architecture we know none of */
	TICK_CLOCK_FORBIDDEN,	  /* prctl(PR_SET_TSC): reading it is SIGSEGV */
	TICK_CLOCK_NOT_INVARIANT, /* its rate follows the processor's */
	TICK_CLOCK_NOT_TRUSTED,	  /* the kernel keeps its time by something else */
	TICK_CLOCK_NOT_OFFERED,	  /* … and wouldn't by this one */
	TICK_CLOCK_UNSTEADY,	  /* it could not be measured, or two measurements differ */
	TICK_CLOCK_IMPLAUSIBLE,	  /* the processor tells another frequency than was measured */
	TICK_CLOCK_DRIFTED,	  /* it was used, until tick_clock_check() found it wrong */
	TICK_CLOCK_REASONS
};

typedef int tick_clock_system(clockid_t id, struct timespec *time);

/*
 * Decides, once a process; measures the counter for 20 ms, asleep (60 if it can't be measured).
 * Later calls change nothing, and return what was decided.  Any thread; takes no lock, so a fork at
 * any moment leaves the child with a clock that works.  Two threads that come first at the same time
 * both measure, one wins.
 *
 * `system` is the real clock_gettime (NULL: the one this file is linked to).  A preloaded library
 * must pass what dlsym(RTLD_NEXT) finds: its own clock_gettime tells threads in a profiled call the
 * time of the sampler's last look, and lets no time pass between two reads close together.  Not a
 * system call, though that would need no such care: it takes longer than the vDSO by more than what
 * we want to measure, which makes the comparison that much less certain, and reading the clock dear
 * wherever there is no counter.
 */
enum tick_clock_reason tick_clock_init(enum tick_clock_choice choice, tick_clock_system *system);

/*
 * Compares the clock with the system's, refines the rate or gives the counter up.  To be called
 * now and then, once a second for instance, by one thread at a time: the sampler's.  Takes about 1 µs.
 *
 * Returns true once: when the counter was given up just now.  From then on the clock is the
 * system's for good, plus what it was ahead at that moment, as it may not go backward.
 */
bool tick_clock_check(void);

/* Why the clock is what it is now.  Any thread. */
enum tick_clock_reason tick_clock_state(void);
const char *tick_clock_reason_text(enum tick_clock_reason reason);

/* What a check tolerates, in ns, beyond the known error of the rate. */
#define TICK_CLOCK_DRIFT_MAX 50000

/* ---- Detection, piece by piece: for `fbprof timing` and tests ---- */

/* What is asked about the machine. */
struct tick_clock_machine {
	const char *sysfs; /* the directory of the kernel's clock source */
	void (*cpuid)(uint32_t leaf, uint32_t registers[4]); /* eax, ebx, ecx, edx; subleaf 0 */
	bool (*may_read)(void); /* whether the counter may be read by this thread */
	tick_clock_system *system;
};

extern const struct tick_clock_machine tick_clock_this_machine;

#define TICK_CLOCK_NAME_SIZE 64

struct tick_clock_facts {
	enum tick_clock_reason reason;
	char clock_source[TICK_CLOCK_NAME_SIZE]; /* the kernel's; empty: unknown */
	bool trusted;				 /* it is the counter */
	bool offered;				 /* it could be */
	bool allowed;				 /* the thread may read it */
	bool invariant;
	bool hypervisor;      /* we are a guest */
	bool rdtscp;	      /* the instruction is there */
	uint64_t told;	      /* Hz, by the processor or the hypervisor; 0: not told */
	const char *told_by;  /* which register or leaf */
	uint64_t measured;    /* Hz; 0: not measured */
	uint64_t uncertainty; /* of it, in units of 1e-9 */
};

/* Fills in `facts`, decides nothing.  Measures if the counter may be read and is invariant. */
void tick_clock_examine(const struct tick_clock_machine *machine, enum tick_clock_choice choice,
			struct tick_clock_facts *facts);

/* tick_clock_init() on a machine that may be a made-up one. */
enum tick_clock_reason tick_clock_init_on(const struct tick_clock_machine *machine,
					  enum tick_clock_choice choice);

/* ---- Reading ---- */

/* The same moment by both clocks: within `width` ticks, of which `ticks` is the middle. */
struct tick_clock_comparison {
	uint64_t ticks;
	uint64_t width;
	int64_t ns;
};

/*
 * A straight line from ticks to ns.  Lines are filled in before they are published and never change:
 * whoever has found one may take his time with it, and a rate that is refined is another line.
 */
struct tick_clock_line {
	uint64_t from; /* ticks where it begins */
	uint64_t room; /* ticks for which it holds; 0: the system's clock */
	uint64_t mult; /* ns a tick, in units of 2^-TICK_CLOCK_SHIFT */
	int64_t ns;    /* at `from`; of the system's clock: what is added to it */
	const struct tick_clock_line *before; /* for ticks before `from` */
	tick_clock_system *system;

	/* For tick_clock_check(): */
	enum tick_clock_reason reason;
	uint64_t baseline;    /* ns over which its rate was measured */
	uint64_t uncertainty; /* of the rate, in units of 1e-9, `wander` included */
	uint64_t wander;      /* what another oscillator's rate may differ in by the hour */
	uint64_t owed;	      /* ns that the clock may be wrong until the line begins */
	struct tick_clock_comparison anchor; /* since when the next rate is to be measured */
} __attribute__((aligned(64)));

extern _Atomic(const struct tick_clock_line *) tick_clock_line;

/* Ticks may be up to 256 ns long, and the rounding of `mult` is below 1e-15 for those of any TSC. */
#define TICK_CLOCK_SHIFT 56

/* Ticks since a line's beginning, fewer than its room, to ns; rounds down. */
static inline int64_t tick_clock_convert(uint64_t ticks, uint64_t mult)
{
	return (int64_t)(uint64_t)(((unsigned __int128)ticks * mult) >> TICK_CLOCK_SHIFT);
}

/*
 * The counter.  The compiler must not move memory accesses across it; the processor may, and may
 * read the counter some 10 ns earlier or later than its place in the program says.
 *
 * With `ordered` all that comes before has been done, loads included.  On x86-64 by LFENCE and not by
 * RDTSCP, which promises the same: each takes some 7 ns more than RDTSC, but RDTSCP isn't in every
 * processor and writes a register that nobody wants.
 */
#if defined(__x86_64__)

#define TICK_CLOCK_COUNTER "tsc" /* its name among the kernel's clock sources */

static inline uint64_t tick_clock_ticks(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

static inline uint64_t tick_clock_ticks_ordered(void)
{
	uint32_t low, high;

	__asm__ volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

#elif defined(__aarch64__)

#define TICK_CLOCK_COUNTER "arch_sys_counter"

static inline uint64_t tick_clock_ticks(void)
{
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks) : : "memory");
	return ticks;
}

static inline uint64_t tick_clock_ticks_ordered(void)
{
	uint64_t ticks;

	__asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks) : : "memory");
	return ticks;
}

#else

static inline uint64_t tick_clock_ticks(void)
{
	return 0;
}

static inline uint64_t tick_clock_ticks_ordered(void)
{
	return 0;
}

#endif

/* For ticks before `line`, or when `line` is the system's clock, which doesn't look at `ticks`. */
int64_t tick_clock_elsewhere(const struct tick_clock_line *line, uint64_t ticks);

static inline int64_t tick_clock_at(const struct tick_clock_line *line, uint64_t ticks)
{
	uint64_t passed = ticks - line->from;

	/* Ticks before the line wrap around, and are too many. */
	if (__builtin_expect(passed >= line->room, 0))
		return tick_clock_elsewhere(line, ticks);
	return line->ns + tick_clock_convert(passed, line->mult);
}

static inline const struct tick_clock_line *tick_clock_current(void)
{
	return atomic_load_explicit(&tick_clock_line, memory_order_acquire);
}

/*
 * The time, for durations on the calling thread.  As the counter is read without waiting for what
 * comes before, it must not be compared with a time that another thread has passed on: use the
 * next one for that.  Without tick_clock_init() it is the system's clock.
 *
 * The line is looked at twice.  First to see whether there is a counter at all: where it is forbidden,
 * reading it is SIGSEGV.  Then once more, after the counter: a line that has replaced this one
 * meanwhile begins later than now, so the value depends on nothing but the ticks.
 */
static inline int64_t tick_clock_now(void)
{
	const struct tick_clock_line *line = tick_clock_current();
	uint64_t ticks;

	if (__builtin_expect(!line->room, 0))
		return tick_clock_elsewhere(line, 0);
	ticks = tick_clock_ticks();
	return tick_clock_at(tick_clock_current(), ticks);
}

/*
 * The time, not before anything that the calling thread has seen: if it has read (acquire) what
 * another thread stored (release) after its own read of the clock, the result is not less.
 */
static inline int64_t tick_clock_now_ordered(void)
{
	const struct tick_clock_line *line = tick_clock_current();
	uint64_t ticks;

	if (__builtin_expect(!line->room, 0))
		return tick_clock_elsewhere(line, 0);
	ticks = tick_clock_ticks_ordered();
	return tick_clock_at(tick_clock_current(), ticks);
}

#endif
