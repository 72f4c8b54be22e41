/*
 * Where a blocked thread is, from /proc/self/task/<id>/syscall: see abandoned.h.  The kernel prints
 * "running", or the system call, its arguments, the stack pointer and the program counter
 * (proc(5)).
 */
#include "abandoned.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool thread_has_left(int32_t thread, uintptr_t frame)
{
	char path[64], text[256], *stack_pointer;
	ssize_t size;
	int fd;

	if (!thread)
		return false;
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)thread);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	size = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (size <= 0 || !memchr("0123456789-", text[0], 11))
		return false;
	text[size] = 0;

	/* The last but one of the numbers. */
	stack_pointer = strrchr(text, ' ');
	while (stack_pointer > text && stack_pointer[-1] != ' ')
		stack_pointer--;
	return stack_pointer && strtoull(stack_pointer, NULL, 16) > frame;
}
