/*
 * Notices: see notice.h.  The line is written by one write() on a file opened for appending, so that
 * it can't mix with the engine's own.
 */
#define _GNU_SOURCE
#include "notice.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char log_file[PATH_MAX];
static char last_said[256];

void notice_set_directory(const char *directory)
{
	pthread_mutex_lock(&mutex);
	if (directory && *directory)
		snprintf(log_file, sizeof(log_file), "%s/firebird.log", directory);
	pthread_mutex_unlock(&mutex);
}

void notice_forget(void)
{
	pthread_mutex_init(&mutex, NULL);
}

/* As the engine writes its log: host and time, then the text indented. */
static int format(char *text, size_t size, const char *sentence)
{
	char host[256] = "", when[64] = "";
	time_t now = time(NULL);
	struct tm local;

	gethostname(host, sizeof(host) - 1);
	if (localtime_r(&now, &local))
		strftime(when, sizeof(when), "%a %b %e %H:%M:%S %Y", &local);
	return snprintf(text, size, "\n%s\t%s\n\tfbprof: %s\n\n", host, when, sentence);
}

/* Writing must not end the server: a file may be over its limit, and a pipe's reader gone. */
static void block_signals(sigset_t *blocked, sigset_t *before)
{
	sigemptyset(blocked);
	sigaddset(blocked, SIGXFSZ);
	sigaddset(blocked, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, blocked, before);
}

static void drop_signals(const sigset_t *blocked, const sigset_t *before,
			 const sigset_t *pending_before)
{
	const struct timespec at_once = { 0 };
	sigset_t ours = *blocked;

	/* What was pending before is somebody else's. */
	if (sigismember(pending_before, SIGXFSZ))
		sigdelset(&ours, SIGXFSZ);
	if (sigismember(pending_before, SIGPIPE))
		sigdelset(&ours, SIGPIPE);
	while (sigtimedwait(&ours, NULL, &at_once) > 0)
		;
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

void notice(const char *sentence)
{
	sigset_t blocked, before, pending;
	char text[PATH_MAX + 1024];
	int error = errno, size, fd = -1;
	ssize_t written = -1;

	block_signals(&blocked, &before);
	sigpending(&pending);
	pthread_mutex_lock(&mutex);
	if (strncmp(last_said, sentence, sizeof(last_said) - 1)) {
		snprintf(last_said, sizeof(last_said), "%s", sentence);
		size = format(text, sizeof(text), sentence);
		if (size >= (int)sizeof(text))
			size = (int)sizeof(text) - 1;
		if (*log_file)
			fd = open(log_file, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0) {
			written = write(fd, text, (size_t)size);
			close(fd);
		}
		if (written != size)
			dprintf(STDERR_FILENO, "fbprof: %s\n", sentence);
	}
	pthread_mutex_unlock(&mutex);
	drop_signals(&blocked, &before, &pending);
	errno = error;
}
