/*
 * Recording a running server from outside, for `fbprof record` and `fbprof top`: options, errors and the
 * loop around a recorder.  One thread at a time, which is the one that looks.
 */
#ifndef FBPROF_RECORDING_H
#define FBPROF_RECORDING_H

#include "../passive/recorder.h"
#include "command.h"

struct recording_options {
	int pid;	 /* 0: none given */
	double interval; /* us */
	int share;	 /* percent of a CPU */
	int plan_rate;	 /* looks at a thread's record sources, a second; 0: none */
	char *sql_text;	 /* NULL: full */
	char *layouts;	 /* directory of layouts; NULL: the default */
};

#define RECORDING_OPTIONS_DEFAULT                                           \
	{                                                                   \
		.interval = RECORDER_INTERVAL_DEFAULT / 1000.0, .share = 5, \
		.plan_rate = RECORDER_PLAN_RATE_DEFAULT                     \
	}

/* The entries for these options, to be put into an array of GOptionEntry. */
#define RECORDING_ENTRIES(options)                                                                                                    \
	{ "pid",                                                                                                                      \
	  'p',                                                                                                                        \
	  0,                                                                                                                          \
	  G_OPTION_ARG_INT,                                                                                                           \
	  &(options)->pid,                                                                                                            \
	  "The server, or another process that runs Firebird's engine",                                                               \
	  "PID" },                                                                                                                    \
		{ "interval",                                                                                                         \
		  'i',                                                                                                                \
		  0,                                                                                                                  \
		  G_OPTION_ARG_DOUBLE,                                                                                                \
		  &(options)->interval,                                                                                               \
		  "Microseconds between looks on average, from 50 to 1000000; 1000 unless given",                                     \
		  "US" },                                                                                                             \
		{ "share",                                                                                                            \
		  0,                                                                                                                  \
		  0,                                                                                                                  \
		  G_OPTION_ARG_INT,                                                                                                   \
		  &(options)->share,                                                                                                  \
		  "Percent of a CPU that looking may take, 5 unless given: else looks get fewer",                                     \
		  "N" },                                                                                                              \
		{ "plan-rate",                                                                                                        \
		  0,                                                                                                                  \
		  0,                                                                                                                  \
		  G_OPTION_ARG_INT,                                                                                                   \
		  &(options)->plan_rate,                                                                                              \
		  "How often a thread is stopped, some 50 us, to see its record sources: times a second, 100 unless given; 0: never", \
		  "HZ" },                                                                                                             \
		{ "sql-text",                                                                                                         \
		  0,                                                                                                                  \
		  0,                                                                                                                  \
		  G_OPTION_ARG_STRING,                                                                                                \
		  &(options)->sql_text,                                                                                               \
		  "What to keep of SQL texts: full (the default), hash, off",                                                         \
		  "WHAT" },                                                                                                           \
	{                                                                                                                             \
		"layouts", 0, 0, G_OPTION_ARG_FILENAME, &(options)->layouts,                                                          \
			"Where `fbprof calibrate` left what it learnt of the engine", "DIR"                                           \
	}

void recording_options_clear(struct recording_options *options);

/* A message if an option is wrong. */
enum command_status recording_options_check(const struct recording_options *options);

struct recording;

/*
 * `directory`: where the log goes; NULL: as for the library (log_writer.h); `named_by`: what the user
 * has named it by, for messages.  NULL, with a message, if the process can't be recorded.
 */
struct recording *recording_new(const struct recording_options *options, const char *directory,
				const char *named_by);

/* Ends the log. */
void recording_free(struct recording *recording);

/*
 * Records until `until`, in ns of CLOCK_MONOTONIC, or `command_stop` is set.  False: it is over, as the
 * process has ended, or something failed: recording_status().
 */
bool recording_run(struct recording *recording, uint64_t until);

/* COMMAND_FAILED if something has gone wrong since the start; there was a message then. */
enum command_status recording_status(const struct recording *recording);

const struct recorder_totals *recording_totals(const struct recording *recording);
const char *recording_path(const struct recording *recording);

/* How many processes are recorded now. */
unsigned recording_processes(const struct recording *recording);

/* Now, in ns of CLOCK_MONOTONIC. */
uint64_t recording_now(void);

/* CPU time of the calling thread in ns. */
uint64_t recording_cpu_time(void);

#endif
