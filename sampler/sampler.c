/*
 * The sampler's thread: see sampler.h.
 *
 * `lifecycle` orders starting and stopping of the thread; `targets_mutex` guards the list of targets
 * and is held during each look at them.  The first may be held when the second is taken, not the
 * other way round; the log's mutex may be taken inside either.
 */
#define _GNU_SOURCE
#include "sampler.h"
#include "abandoned.h"
#include "pace.h"
#include "tick_clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_SECOND 1000000000ull

/* After this time without a busy target the thread sleeps until one resumes. */
#define IDLE_BEFORE_SLEEP (10 * 1000 * 1000ull)

/* Without membarrier a wake-up can be missed: then look again after this many ns. */
#define BLIND_SLEEP (10 * 1000 * 1000)

/* How often the clock of measured mode is compared with the system's. */
#define CLOCK_CHECK_INTERVAL NS_PER_SECOND

/* libunwind, later, needs some; the thread's own frames are small. */
#define STACK_SIZE (256 * 1024)

_Atomic int64_t sampler_clock;
_Atomic uint32_t sampler_asleep;
_Atomic uint32_t sampler_targets;
_Thread_local bool sampler_at_work;

static pthread_mutex_t lifecycle = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t targets_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sampler_target *targets;
static pthread_t thread;
static bool running; /* under `lifecycle` */
static _Atomic bool stopping;
static _Atomic uint32_t
	changes; /* of the targets or of `stopping`: ends the sleep of an interval */
static _Atomic uint64_t roused_at; /* ns; when an attachment ended the sampler's sleep */
static bool have_membarrier;
static struct position position; /* what is being looked at; the sampler's thread only */

static uint64_t ns_of(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * NS_PER_SECOND + (uint64_t)time->tv_nsec;
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return ns_of(&time);
}

static void publish_clock(void)
{
	atomic_store_explicit(&sampler_clock, (int64_t)now(), memory_order_relaxed);
}

/* ---- One look ---- */

static void add(uint64_t *word, uint64_t value)
{
	atomic_store_explicit((_Atomic uint64_t *)word, *word + value, memory_order_relaxed);
}

/*
 * CPU clocks are read at a rate of their own, since each read takes half a µs and more: of a busy
 * target once in so many ns, and of several in turn no more often.
 */
#define CPU_INTERVAL 1000000u

/*
 * How long the thread ran of the time since its CPU clock was read last.  If that was another thread,
 * it is taken to have run all of it: a wait is only reported when it was seen.  0 as a rule: it is
 * not to be read yet.
 */
static uint64_t cpu_time(struct sampler_target *target, uint64_t elapsed, unsigned busy_count)
{
	uint64_t clock, ran;

	target->cpu_busy += elapsed;
	if (target->cpu_busy < (uint64_t)CPU_INTERVAL * busy_count || !position.thread)
		return 0;
	clock = thread_cpu_time(position.thread);
	ran = position.thread == target->cpu_thread ? clock - target->cpu_clock : target->cpu_busy;
	if (ran > target->cpu_busy)
		ran = target->cpu_busy;
	target->cpu_thread = position.thread;
	target->cpu_clock = clock;
	target->cpu_busy = 0;
	if (target->cpu_time)
		atomic_store_explicit(target->cpu_time,
				      atomic_load_explicit(target->cpu_time, memory_order_relaxed) +
					      ran,
				      memory_order_relaxed);
	return ran;
}

/* What the events since the last look are thought to have cost. */
static uint64_t take_cost(struct sampler_target *target, uint64_t elapsed)
{
	uint64_t all;

	if (!target->cost)
		return 0;
	all = atomic_load_explicit(target->cost, memory_order_relaxed);
	return frame_stack_take_cost(all, &target->cost_seen, elapsed, elapsed);
}

static void charge(struct sampler_target *target, uint64_t elapsed, bool torn, bool stretched,
		   unsigned busy_count)
{
	struct log_session_totals *totals = target->totals;
	struct sample sample = { .cost = take_cost(target, elapsed),
				 .cpu_time = cpu_time(target, elapsed, busy_count) };
	bool charged;

	sample.time = elapsed - sample.cost;
	if (torn)
		position.count = 0; /* to the last one seen */
	charged = !target->tree || call_tree_charge(target->tree, &position, &sample);
	if (!totals)
		return;
	add(&totals->wakeups, 1);
	add(&totals->stretched, stretched);
	if (target->cost) /* or it is the executing thread's to add up */
		add(&totals->cost, sample.cost);
	if (charged) {
		add(&totals->samples, 1);
		add(&totals->sampled_time, elapsed);
	}
	if (!charged || torn) {
		add(&totals->torn_samples, 1);
		add(&totals->torn_time, elapsed);
	}
}

/* Returns whether the target was busy. */
static bool sample(struct sampler_target *target, uint64_t time, uint64_t elapsed, bool stretched,
		   unsigned busy_count)
{
	enum position_state state = target->source->read(target->source, time, &position);

	if (state == POSITION_IDLE) {
		target->deferred = 0;
		return false;
	}
	elapsed += target->deferred;
	target->deferred = 0;
	if (state == POSITION_UNSURE)
		target->deferred = elapsed;
	else
		charge(target, elapsed, state == POSITION_TORN, stretched, busy_count);
	return true;
}

static bool sample_all(uint64_t time, uint64_t elapsed, bool stretched)
{
	static unsigned busy_before = 1;
	unsigned busy = 0;

	pthread_mutex_lock(&targets_mutex);
	for (struct sampler_target *target = targets; target; target = target->next)
		busy += sample(target, time, elapsed, stretched, busy_before);
	pthread_mutex_unlock(&targets_mutex);
	busy_before = busy ? busy : 1;
	return busy != 0;
}

static uint64_t shortest_interval(void)
{
	uint64_t shortest = SAMPLER_INTERVAL_MAX;

	pthread_mutex_lock(&targets_mutex);
	for (struct sampler_target *target = targets; target; target = target->next) {
		if (target->interval < shortest)
			shortest = target->interval;
	}
	pthread_mutex_unlock(&targets_mutex);
	return shortest;
}

static bool any_busy(void)
{
	uint64_t time = now();
	bool busy = false;

	pthread_mutex_lock(&targets_mutex);
	for (struct sampler_target *target = targets; target && !busy; target = target->next)
		busy = target->source->read(target->source, time, &position) != POSITION_IDLE;
	pthread_mutex_unlock(&targets_mutex);
	return busy;
}

/* ---- Waiting ---- */

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Waits while `word` is `value`, at most until `deadline` on CLOCK_MONOTONIC (NULL: for ever). */
static void futex_wait(_Atomic uint32_t *word, uint32_t value, const struct timespec *deadline)
{
	syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, deadline, NULL,
		FUTEX_BITSET_MATCH_ANY);
}

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / NS_PER_SECOND),
				  .tv_nsec = (long)(ns % NS_PER_SECOND) };
}

/* What deadlines are counted in: unlike the raw clock, the kernel can wait by it. */
static uint64_t monotonic_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return ns_of(&time);
}

/* Something has changed: the sampler is to look now, whatever it waits for. */
static void announce_change(void)
{
	atomic_fetch_add(&changes, 1);
	futex_wake(&changes);
	sampler_rouse();
}

void sampler_rouse(void)
{
	int error = errno;
	bool before = sampler_at_work;

	sampler_at_work = true;
	atomic_store_explicit(&roused_at, now(), memory_order_relaxed);
	sampler_at_work = before;
	if (atomic_exchange(&sampler_asleep, 0))
		futex_wake(&sampler_asleep);
	errno = error;
}

/* Sleeps until an attachment resumes, or we are to stop.  Returns the time from when to charge. */
static uint64_t sleep_idle(void)
{
	struct timespec blind = timespec_of(monotonic_now() + BLIND_SLEEP);
	uint64_t roused;

	atomic_store_explicit(&roused_at, 0, memory_order_relaxed);
	atomic_store_explicit(&sampler_clock, 0, memory_order_relaxed);
	atomic_store(&sampler_asleep, 1);
	if (have_membarrier)
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	if (!any_busy() && !atomic_load(&stopping)) {
		/* Returns at once if somebody has roused us meanwhile. */
		futex_wait(&sampler_asleep, 1, have_membarrier ? NULL : &blind);
	}
	atomic_store_explicit(&sampler_asleep, 0, memory_order_relaxed);
	roused = atomic_load_explicit(&roused_at, memory_order_relaxed);
	return roused ? roused : now();
}

/* ---- Keeping within the share ---- */

static unsigned share = SAMPLER_SHARE_DEFAULT; /* under `lifecycle` while the thread doesn't run */

void sampler_set_share(unsigned percent)
{
	pthread_mutex_lock(&lifecycle);
	if (!running)
		share = percent;
	pthread_mutex_unlock(&lifecycle);
}

static uint64_t next_interval(const struct pace *pace)
{
	return pace_interval(pace, shortest_interval());
}

/* ---- The thread ---- */

/* Sleeps until `deadline` on CLOCK_MONOTONIC, or until the targets have changed since `seen`. */
static void sleep_until(uint64_t deadline, uint32_t seen)
{
	struct timespec until = timespec_of(deadline);

	futex_wait(&changes, seen, &until);
}

/*
 * Begins a series of looks at targets that are busy since `from`, as if looks had gone on before:
 * the first comes at a random time within an interval, and stands for a whole one.  So a request
 * that is shorter than an interval is seen with the right probability and charged, on average, what
 * it took.  Returns the time of the look that would have come before.
 */
static uint64_t begin_series(struct pace *pace, uint64_t from, uint64_t *deadline)
{
	uint64_t interval = next_interval(pace), late = now() - from;
	uint64_t delay = pace_random(pace, interval);

	*deadline = monotonic_now() + (delay > late ? delay - late : 0);
	return from + delay - interval;
}

static void *run(void *unused)
{
	uint64_t last_busy = now(), checked = last_busy, last, deadline;
	struct pace pace;

	(void)unused;
	sampler_at_work = true;
	/* The default slack of 50 us would turn 100 us into 150. */
	prctl(PR_SET_TIMERSLACK, 1ul);
	prctl(PR_SET_NAME, "fbprof-sampler");
	pace_init(&pace, last_busy, share, SAMPLER_INTERVAL_MAX);
	last = begin_series(&pace, last_busy, &deadline);

	for (;;) {
		uint32_t seen = atomic_load(&changes);
		uint64_t time;

		if (atomic_load(&stopping))
			break;
		sleep_until(deadline, seen);
		publish_clock();
		time = now();
		if (sample_all(time, time > last ? time - last : 0, pace_is_stretched(&pace)))
			last_busy = time;
		last = time;
		if (time - checked > CLOCK_CHECK_INTERVAL) {
			tick_clock_check();
			checked = time;
		}
		pace_keep(&pace, time);
		if (time - last_busy <= IDLE_BEFORE_SLEEP) {
			pace_next(&pace, next_interval(&pace), monotonic_now(), &deadline);
		} else {
			last_busy = sleep_idle();
			publish_clock();
			pace_pause(&pace);
			last = begin_series(&pace, last_busy, &deadline);
		}
	}
	atomic_store_explicit(&sampler_clock, 0, memory_order_relaxed);
	return NULL;
}

/* ---- Starting and stopping ---- */

static bool start(void)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	bool started;

	have_membarrier = !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
	atomic_store_explicit(&stopping, false, memory_order_relaxed);
	if (pthread_attr_init(&attributes))
		return false;
	pthread_attr_setstacksize(&attributes, STACK_SIZE);
	/* The server's signals are the server's: none is to be delivered to our thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	started = !pthread_create(&thread, &attributes, run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return started;
}

static void stop(void)
{
	atomic_store(&stopping, true);
	announce_change();
	pthread_join(thread, NULL);
}

bool sampler_add(struct sampler_target *target)
{
	bool added;

	pthread_mutex_lock(&lifecycle);
	pthread_mutex_lock(&targets_mutex);
	target->next = targets;
	targets = target;
	pthread_mutex_unlock(&targets_mutex);
	if (running)
		announce_change(); /* its interval may be shorter */
	else
		running = start();
	added = running;
	if (added)
		atomic_fetch_add_explicit(&sampler_targets, 1, memory_order_relaxed);
	else
		targets = target->next; /* no thread, so nobody else looks */
	pthread_mutex_unlock(&lifecycle);
	return added;
}

void sampler_remove(struct sampler_target *target)
{
	bool last;

	pthread_mutex_lock(&lifecycle);
	pthread_mutex_lock(&targets_mutex);
	for (struct sampler_target **link = &targets; *link; link = &(*link)->next) {
		if (*link == target) {
			*link = target->next;
			atomic_fetch_sub_explicit(&sampler_targets, 1, memory_order_relaxed);
			break;
		}
	}
	last = !targets;
	pthread_mutex_unlock(&targets_mutex);
	if (last && running) {
		stop();
		running = false;
	}
	pthread_mutex_unlock(&lifecycle);
}

void sampler_lock(void)
{
	pthread_mutex_lock(&lifecycle);
	pthread_mutex_lock(&targets_mutex);
}

void sampler_unlock(void)
{
	pthread_mutex_unlock(&targets_mutex);
	pthread_mutex_unlock(&lifecycle);
}

void sampler_forget(void)
{
	targets = NULL;
	running = false;
	atomic_store_explicit(&sampler_targets, 0, memory_order_relaxed);
	atomic_store_explicit(&sampler_clock, 0, memory_order_relaxed);
	atomic_store_explicit(&sampler_asleep, 0, memory_order_relaxed);
}
