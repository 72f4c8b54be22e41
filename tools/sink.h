/*
 * A buffered file to write to, which remembers its first error until it is closed, so that writers
 * of tables and reports need not look at each call.  One thread at a time.
 */
#ifndef FBPROF_SINK_H
#define FBPROF_SINK_H

#include <glib.h>

struct sink {
	int fd;
	int error; /* errno of the first failure; nothing is written after it */
	GString *pending;
};

/* `fd` stays the caller's. */
void sink_open(struct sink *sink, int fd);

void sink_write(struct sink *sink, const char *bytes, gsize size);
void sink_put(struct sink *sink, const char *text);
void sink_print(struct sink *sink, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* Writes what is pending; returns 0 or the first error's number. */
int sink_close(struct sink *sink);

#endif
