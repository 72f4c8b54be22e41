/*
 * See environment.h.
 */
#include "environment.h"
#include "../sampler/sampler.h"
#include "clock.h"
#include "notice.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Less is not worth while: the first file takes a quarter of that. */
#define MAX_BYTES_MIN (1024 * 1024u)

/* FBPROF_MAX_BYTES: a number of bytes, or with K, M or G behind it of 1024 times as many each. */
static bool read_max_bytes(uint64_t *bytes, char *error, size_t error_size)
{
	static const char units[] = "KMG";
	const char *text = secure_getenv("FBPROF_MAX_BYTES"), *unit;
	unsigned long long number;
	char *end;
	unsigned shift = 0;

	*bytes = 0;
	if (!text || !*text)
		return true;
	errno = 0;
	number = strtoull(text, &end, 10);
	unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	if (unit && !end[1]) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
	}
	if (errno || *end || *text < '0' || *text > '9' || number > UINT64_MAX >> shift ||
	    number << shift < MAX_BYTES_MIN) {
		snprintf(
			error, error_size,
			"FBPROF_MAX_BYTES=%.40s: allowed is a number of bytes from 1M on, K, M or G behind it multiply",
			text);
		return false;
	}
	*bytes = number << shift;
	return true;
}

bool environment_log_options(struct log_options *options, char *error, size_t error_size)
{
	*options = (struct log_options){
		.directory = secure_getenv("FBPROF_DIR"),
		.program = program_invocation_short_name,
		.clock = clock_is_ours ? "CLOCK_MONOTONIC_RAW, ours" : "CLOCK_MONOTONIC_RAW",
		.on_stop = notice,
	};
	return read_max_bytes(&options->max_bytes, error, error_size);
}

bool environment_sampler_share(unsigned *result, char *error, size_t error_size)
{
	const char *text = secure_getenv("FBPROF_SAMPLER_SHARE");
	unsigned long share = SAMPLER_SHARE_DEFAULT;
	char *end;

	if (text && *text) {
		share = strtoul(text, &end, 10);
		if (*text < '0' || *text > '9' || *end || share < 1 || share > 100) {
			snprintf(
				error, error_size,
				"FBPROF_SAMPLER_SHARE=%.40s: allowed is a number of percent from 1 to 100",
				text);
			return false;
		}
	}
	*result = (unsigned)share;
	return true;
}
