#include "memory.h"

#include <errno.h>
#include <sys/uio.h>

bool memory_read(pid_t process, const struct memory_piece *pieces, unsigned count)
{
	struct iovec there[MEMORY_PIECES], here[MEMORY_PIECES];
	int saved = errno;
	ssize_t size = 0, got;

	for (unsigned i = 0; i < count; i++) {
		there[i] = (struct iovec){ (void *)(uintptr_t)pieces[i].from, pieces[i].size };
		here[i] = (struct iovec){ pieces[i].to, pieces[i].size };
		size += (ssize_t)pieces[i].size;
	}
	got = process_vm_readv(process, here, count, there, count, 0);
	errno = saved;
	return got == size;
}

bool memory_load(pid_t process, uint64_t from, void *to, size_t size)
{
	struct memory_piece piece = { from, to, size };

	return memory_read(process, &piece, 1);
}

bool memory_text(pid_t process, uint64_t from, char *text, size_t size)
{
	size_t got = 0;

	/* Not across a page's end in one read: the next page need not be there. */
	while (got + 1 < size) {
		size_t part = 256 - (from + got) % 256;

		if (part > size - 1 - got)
			part = size - 1 - got;
		if (!memory_load(process, from + got, text + got, part))
			break;
		for (size_t end = got + part; got < end; got++) {
			if (text[got] == '\0')
				return true;
		}
	}
	text[got] = '\0';
	return got + 1 == size;
}
