/*
 * Unsigned LEB128, as the log's records use it.  Any thread; no state.
 */
#ifndef FBPROF_VARINT_H
#define FBPROF_VARINT_H

#include <stddef.h>
#include <stdint.h>

#define VARINT_MAX_SIZE 10

/* Writes `value` at `to`, which has room for VARINT_MAX_SIZE bytes; returns the end. */
static inline uint8_t *varint_put(uint8_t *to, uint64_t value)
{
	while (value >= 0x80) {
		*to++ = (uint8_t)value | 0x80;
		value >>= 7;
	}
	*to++ = (uint8_t)value;
	return to;
}

/* Reads a value at `from`, never beyond `end`; returns what follows it, or NULL if it is not whole. */
static inline const uint8_t *varint_get(const uint8_t *from, const uint8_t *end, uint64_t *value)
{
	uint64_t result = 0;

	for (unsigned shift = 0; shift < 64 && from < end; shift += 7) {
		uint8_t byte = *from++;

		if (shift == 63 && byte > 1)
			return NULL;
		result |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*value = result;
			return from;
		}
	}
	return NULL;
}

#endif
