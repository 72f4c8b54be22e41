/*
 * A buffered file to write to: see sink.h.
 */
#include "sink.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define SINK_BUFFER 65536

void sink_open(struct sink *sink, int fd)
{
	sink->fd = fd;
	sink->error = 0;
	sink->pending = g_string_sized_new(SINK_BUFFER + 4096);
}

static void flush(struct sink *sink)
{
	gsize done = 0;

	while (!sink->error && done < sink->pending->len) {
		gssize written =
			write(sink->fd, sink->pending->str + done, sink->pending->len - done);

		if (written >= 0)
			done += (gsize)written;
		else if (errno != EINTR)
			sink->error = errno;
	}
	g_string_truncate(sink->pending, 0);
}

void sink_write(struct sink *sink, const char *bytes, gsize size)
{
	g_string_append_len(sink->pending, bytes, (gssize)size);
	if (sink->pending->len >= SINK_BUFFER)
		flush(sink);
}

void sink_put(struct sink *sink, const char *text)
{
	sink_write(sink, text, strlen(text));
}

void sink_print(struct sink *sink, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	g_string_append_vprintf(sink->pending, format, arguments);
	va_end(arguments);
	sink_write(sink, "", 0);
}

int sink_close(struct sink *sink)
{
	flush(sink);
	g_string_free(sink->pending, TRUE);
	sink->pending = NULL;
	return sink->error;
}
