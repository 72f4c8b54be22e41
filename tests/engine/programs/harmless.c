/*
 * A program that has nothing to do with Firebird, but uses what fbprof interposes, and hard: threads, clocks,
 * signals, dlopen relative to the caller's RUNPATH, fork. Its output is the same with and without the preload.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ticks;
static const clockid_t clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_THREAD_CPUTIME_ID };

static void on_alarm(int signal_number)
{
	struct timespec now;

	(void)signal_number;
	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	ticks++;
}

static int before(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

static void *read_clocks(void *failures)
{
	for (unsigned clock = 0; clock < sizeof(clocks) / sizeof(*clocks); clock++) {
		struct timespec last = { 0 }, now;

		for (int i = 0; i < 100000; i++) {
			if (clock_gettime(clocks[clock], &now) || (clock && before(&now, &last)))
				__atomic_add_fetch((int *)failures, 1, __ATOMIC_RELAXED);
			last = now;
		}
	}
	return NULL;
}

static int count_tasks(void)
{
	DIR *directory = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	while (directory && (entry = readdir(directory)))
		count += entry->d_name[0] != '.';
	if (directory)
		closedir(directory);
	return count;
}

/* A joined thread may take a moment to vanish. */
static int count_threads(void)
{
	for (int i = 0; i < 200 && count_tasks() > 1; i++)
		usleep(10000);
	return count_tasks();
}

static int work(void)
{
	pthread_t threads[8];
	int failures = 0;

	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, read_clocks, &failures);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	return failures;
}

int main(void)
{
	struct itimerval timer = { .it_interval.tv_usec = 1000, .it_value.tv_usec = 1000 };
	struct timespec now;
	void *library;
	int status;
	pid_t child;

	signal(SIGALRM, on_alarm);
	setitimer(ITIMER_REAL, &timer, NULL);
	printf("clock failures %d\n", work());
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	printf("signals arrived %d\n", ticks > 0);
	printf("bad clock %d\n", clock_gettime(12345, &now));

	/* Found by the RUNPATH of this program, which dlopen learns from the caller's address. */
	library = dlopen("libneighbour.so", RTLD_NOW);
	printf("neighbour %s\n", library ? ((const char *(*)(void))dlsym(library, "neighbour"))() : dlerror());
	printf("again %d\n", dlopen("libneighbour.so", RTLD_NOW | RTLD_NOLOAD) == library);
	printf("missing %s\n", dlopen("libno_such_library.so", RTLD_NOW) ? "?" : dlerror());
	printf("self %d\n", dlopen(NULL, RTLD_NOW) != NULL);
	printf("own Default_Profiler %s\n", dlopen("libDefault_Profiler_of_mine.so", RTLD_NOW) ? "?" : dlerror());

	fflush(stdout);
	child = fork();
	if (child == 0) {
		printf("child: clock failures %d, threads %d\n", work(), count_threads());
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, &status, 0);
	printf("child ended %d, threads %d\n", status, count_threads());
	return 3;
}
