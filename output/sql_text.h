/*
 * What of SQL texts goes to a log, since they may hold secrets.  No state; any thread.
 */
#ifndef FBPROF_SQL_TEXT_H
#define FBPROF_SQL_TEXT_H

#include <stdint.h>

enum sql_text {
	SQL_TEXT_FULL,
	SQL_TEXT_HASH, /* only a fingerprint, which tells statements apart without showing them */
	SQL_TEXT_OFF
};

/* FNV-1a. */
static inline uint64_t sql_text_fingerprint(const char *text)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (; *text; text++)
		hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
	return hash;
}

#endif
