/*
 * How values are put into a record's payload (log_format.h), besides varints.  Each returns the end of
 * what it wrote at `to`.  Any thread; no state.
 */
#ifndef FBPROF_LOG_PUT_H
#define FBPROF_LOG_PUT_H

#include "varint.h"
#include <string.h>

static inline uint8_t *log_put_i64(uint8_t *to, int64_t value)
{
	memcpy(to, &value, sizeof(value));
	return to + sizeof(value);
}

/* At most `limit` bytes of `text`. */
static inline uint8_t *log_put_string(uint8_t *to, const char *text, size_t limit)
{
	size_t size = strnlen(text, limit);

	to = varint_put(to, size);
	memcpy(to, text, size);
	return to + size;
}

/* NULL is told apart from the empty string. */
static inline uint8_t *log_put_nullable(uint8_t *to, const char *text, size_t limit)
{
	size_t size;

	if (!text)
		return varint_put(to, 0);
	size = strnlen(text, limit);
	to = varint_put(to, size + 1);
	memcpy(to, text, size);
	return to + size;
}

#endif
