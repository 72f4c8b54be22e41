/*
 * See abandoned.h.  Where a blocked thread is comes from /proc/self/task/<id>/syscall, in which the
 * kernel prints "running", or the system call, its arguments, the stack pointer and the program
 * counter (proc(5)).
 */
#include "abandoned.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The stack pointer of a blocked thread; UINTPTR_MAX if it is gone, 0 if it isn't blocked. */
static uintptr_t blocked_at(int32_t thread)
{
	char path[64], text[256], *stack_pointer;
	ssize_t size;
	int fd;

	if (!thread)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)thread);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? UINTPTR_MAX : 0;
	size = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (size <= 0 || !memchr("0123456789-", text[0], 11))
		return 0;
	text[size] = 0;

	/* The last but one of the numbers. */
	stack_pointer = strrchr(text, ' ');
	while (stack_pointer > text && stack_pointer[-1] != ' ')
		stack_pointer--;
	return stack_pointer ? strtoull(stack_pointer, NULL, 16) : 0;
}

bool thread_is_blocked(int32_t thread)
{
	return blocked_at(thread) != 0;
}

bool thread_has_left(int32_t thread, uintptr_t frame)
{
	return blocked_at(thread) > frame;
}

uint64_t thread_cpu_time(int32_t thread)
{
	/* As the kernel encodes it, and pthread_getcpuclockid(3) too: a thread's scheduler clock. */
	clockid_t clock = (clockid_t)((~(uint32_t)thread << 3) | 6);
	struct timespec time;

	if (!thread || clock_gettime(clock, &time))
		return 0;
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}
