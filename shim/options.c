/*
 * The option parser: see options.h.  A new option is a row of the table at the end and its function.
 */
#include "options.h"
#include "../passive/recorder.h"
#include "../sampler/sampler.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NS_PER_US 1000u

/* Longer words are certainly wrong: they are cut here, and end in dots. */
#define WORD_SIZE 64

#define MODE_DEFAULT LOG_MODE_COARSE

void options_init(struct options *options)
{
	*options = (struct options){ .mode = MODE_DEFAULT,
				     .interval = SAMPLER_INTERVAL_DEFAULT,
				     .passive_interval = RECORDER_INTERVAL_DEFAULT,
				     .sql_text = SQL_TEXT_FULL,
				     .clock = TICK_CLOCK_AUTO };
}

/* The index of `value` in `names`; -1: it isn't there, or is NULL. */
static int find_name(const char *value, const char *const *names, size_t count)
{
	/* A name that is not there is a number without one. */
	for (size_t i = 0; value && i < count; i++) {
		if (names[i] && !strcasecmp(value, names[i]))
			return (int)i;
	}
	return -1;
}

static bool read_number(const char *value, unsigned long long *number)
{
	char *end;

	if (!value || *value < '0' || *value > '9')
		return false;
	errno = 0;
	*number = strtoull(value, &end, 10);
	return !errno && !*end;
}

/* Each reads `value` (NULL: no '=' was given) and returns whether it is allowed. */

static bool set_interval(struct options *options, const char *value)
{
	unsigned long long number;

	if (!read_number(value, &number) ||
	    (number != 0 && (number < SAMPLER_INTERVAL_MIN / NS_PER_US ||
			     number > SAMPLER_INTERVAL_MAX / NS_PER_US)))
		return false;
	options->interval = number * NS_PER_US;
	if (number)
		options->passive_interval = options->interval;
	if (!number) {
		options->mode = LOG_MODE_MEASURED;
		options->stock = false;
	} else if (options->mode == LOG_MODE_MEASURED) {
		options->mode = MODE_DEFAULT;
	}
	return true;
}

static bool set_plan_rate(struct options *options, const char *value)
{
	unsigned long long number;

	if (!read_number(value, &number) || number > RECORDER_PLAN_RATE_MAX)
		return false;
	options->plan_rate = (unsigned)number;
	return true;
}

static bool set_detailed(struct options *options, const char *value)
{
	options->detailed = true;
	return !value;
}

static bool set_mode(struct options *options, const char *value)
{
	static const char *const names[] = { [LOG_MODE_SAMPLED] = "SAMPLED",
					     [LOG_MODE_COARSE] = "COARSE",
					     [LOG_MODE_MEASURED] = "MEASURED" };
	int found = find_name(value, names, sizeof(names) / sizeof(*names));

	options->stock = value && !strcasecmp(value, "CLOCK");
	options->passive = value && !strcasecmp(value, "PASSIVE");
	if (found < 0 && !options->stock && !options->passive)
		return false;
	options->mode = found < 0 ? MODE_DEFAULT : (enum log_mode)found;
	if (options->mode == LOG_MODE_MEASURED)
		options->interval = 0;
	else if (!options->interval)
		options->interval = SAMPLER_INTERVAL_DEFAULT;
	return true;
}

static bool set_sql_text(struct options *options, const char *value)
{
	static const char *const names[] = {
		[SQL_TEXT_FULL] = "FULL", [SQL_TEXT_HASH] = "HASH", [SQL_TEXT_OFF] = "OFF"
	};
	int found = find_name(value, names, sizeof(names) / sizeof(*names));

	if (found >= 0)
		options->sql_text = (enum sql_text)found;
	return found >= 0;
}

static bool set_clock(struct options *options, const char *value)
{
	static const char *const names[] = {
		[TICK_CLOCK_AUTO] = "AUTO", [TICK_CLOCK_TSC] = "TSC", [TICK_CLOCK_SYSTEM] = "SYSTEM"
	};
	int found = find_name(value, names, sizeof(names) / sizeof(*names));

	if (found >= 0)
		options->clock = (enum tick_clock_choice)found;
	return found >= 0;
}

static const struct {
	const char *name;
	bool (*set)(struct options *options, const char *value);
	const char *allowed;
} known[] = {
	{ "SAMPLING_INTERVAL", set_interval,
	  "a number of microseconds from 50 to 1000000, or 0 for MODE=MEASURED" },
	{ "DETAILED_REQUESTS", set_detailed, "no value" },
	{ "MODE", set_mode, "SAMPLED, COARSE, MEASURED, CLOCK or PASSIVE" },
	{ "SQL_TEXT", set_sql_text, "FULL, HASH or OFF" },
	{ "CLOCK", set_clock, "AUTO, TSC or SYSTEM" },
	{ "PLAN_RATE", set_plan_rate, "a number from 0 to 1000 a second" },
};

#define KNOWN_COUNT (sizeof(known) / sizeof(*known))

/* Cuts white space off both ends of the `size` bytes at `text` and copies what fits. */
static void copy_trimmed(char word[WORD_SIZE], const char *text, size_t size)
{
	while (size && strchr(" \t\r\n", *text)) {
		text++;
		size--;
	}
	while (size && strchr(" \t\r\n", text[size - 1]))
		size--;
	if (size >= WORD_SIZE) {
		memcpy(word, text, WORD_SIZE - 4);
		strcpy(word + WORD_SIZE - 4, "...");
		return;
	}
	memcpy(word, text, size);
	word[size] = 0;
}

static bool parse_one(struct options *options, const char *where, const char *text, size_t size,
		      char error[OPTIONS_ERROR_SIZE])
{
	const char *equals = memchr(text, '=', size);
	char name[WORD_SIZE], value[WORD_SIZE] = "";
	size_t used;

	copy_trimmed(name, text, equals ? (size_t)(equals - text) : size);
	if (equals)
		copy_trimmed(value, equals + 1, size - (size_t)(equals + 1 - text));
	if (!*name && !equals)
		return true; /* an empty word between commas */

	for (size_t i = 0; i < KNOWN_COUNT; i++) {
		if (strcasecmp(name, known[i].name))
			continue;
		if (known[i].set(options, equals ? value : NULL))
			return true;
		snprintf(error, OPTIONS_ERROR_SIZE, "fbprof: option %s%s%s in %s: allowed is %s",
			 known[i].name, equals ? "=" : " without a value", value, where,
			 known[i].allowed);
		return false;
	}
	used = (size_t)snprintf(error, OPTIONS_ERROR_SIZE,
				"fbprof: unknown option %s%s%s in %s: known are", name,
				equals ? "=" : "", value, where);
	for (size_t i = 0; i < KNOWN_COUNT && used < OPTIONS_ERROR_SIZE; i++)
		used += (size_t)snprintf(error + used, OPTIONS_ERROR_SIZE - used, "%s %s",
					 i ? "," : "", known[i].name);
	return false;
}

bool options_parse(struct options *options, const char *where, const char *text,
		   char error[OPTIONS_ERROR_SIZE])
{
	struct options result = *options;

	while (text) {
		size_t size = strcspn(text, ",");

		if (!parse_one(&result, where, text, size, error))
			return false;
		text = text[size] ? text + size + 1 : NULL;
	}
	*options = result;
	return true;
}
