/*
 * The options of a session: FBPROF_OPTIONS in the environment, then PLUGIN_OPTIONS of START_SESSION,
 * which wins.  Comma-separated, case-insensitive, white space around words and '=' ignored.
 */
#ifndef FBPROF_OPTIONS_H
#define FBPROF_OPTIONS_H

#include "../output/log_format.h"
#include "../output/sql_text.h"
#include "../sampler/tick_clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options {
	enum log_mode mode; /* MODE; SAMPLING_INTERVAL=0 is another word for MEASURED */
	uint64_t interval;  /* SAMPLING_INTERVAL in ns; 0 if measured */
	bool stock; /* MODE=CLOCK: the stock profiler under our clock; `mode` doesn't count then */
	bool passive; /* MODE=PASSIVE: the process is recorded, whoever has a session */
	uint64_t passive_interval; /* SAMPLING_INTERVAL if given, else passive mode's default */
	unsigned plan_rate;	   /* PLAN_RATE: of passive mode, a second; 0, the default: never */
	bool detailed;		   /* DETAILED_REQUESTS */
	enum sql_text sql_text;
	enum tick_clock_choice clock; /* CLOCK: what to measure with */
};

#define OPTIONS_ERROR_SIZE 320 /* room for any sentence of options_parse() */

void options_init(struct options *options);

/*
 * Reads `text` (NULL: nothing) over what is in `options`.  `where` names its origin.  On a wrong one
 * returns false, with a sentence in `error` that names the option, the value and what is allowed,
 * and leaves `options` as it was.  No state, any thread.
 */
bool options_parse(struct options *options, const char *where, const char *text,
		   char error[OPTIONS_ERROR_SIZE]);

#endif
