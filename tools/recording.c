/*
 * See recording.h.
 */
#include "recording.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "../passive/position.h"
#include "../passive/targets.h"
#include "../sampler/sampler.h"

/* How often new children, engines and ends of processes are looked for. */
#define UPDATE_INTERVAL 100000000u

struct recording {
	struct recorder *recorder;
	struct targets *targets;
	int pid;
	uint64_t due, updated;
	bool over;
	enum command_status status;
};

/* ---- Options ---- */

static const char *const sql_texts
	[] = { [SQL_TEXT_FULL] = "full", [SQL_TEXT_HASH] = "hash", [SQL_TEXT_OFF] = "off" };

/* -1: it is none of them. */
static int find_sql_text(const char *name)
{
	for (unsigned i = 0; i < G_N_ELEMENTS(sql_texts); i++) {
		if (!name || strcmp(name, sql_texts[i]) == 0)
			return (int)i;
	}
	return -1;
}

void recording_options_clear(struct recording_options *options)
{
	g_free(options->sql_text);
	g_free(options->layouts);
}

enum command_status recording_options_check(const struct recording_options *options)
{
	if (options->pid <= 0)
		return command_misuse("--pid: must be given, the number of a process");
	if (!(options->interval >= SAMPLER_INTERVAL_MIN / 1000.0 &&
	      options->interval <= SAMPLER_INTERVAL_MAX / 1000.0))
		return command_misuse("--interval: must be from 50 to 1000000 microseconds");
	if (options->share < 1 || options->share > 100)
		return command_misuse("--share=%d: must be from 1 to 100 percent", options->share);
	if (options->plan_rate < 0 || options->plan_rate > RECORDER_PLAN_RATE_MAX)
		return command_misuse("--plan-rate=%d: must be from 0 to %d a second",
				      options->plan_rate, RECORDER_PLAN_RATE_MAX);
	if (find_sql_text(options->sql_text) < 0)
		return command_misuse("--sql-text=%s: must be one of full, hash, off",
				      options->sql_text);
	return COMMAND_DONE;
}

/* ---- Start and end ---- */

uint64_t recording_now(void)
{
	return passive_clock();
}

uint64_t recording_cpu_time(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void warn_stopped(const char *sentence)
{
	command_warn(NULL, "%s", sentence);
}

static void warn_process(pid_t pid, const char *sentence)
{
	char name[COMMAND_NAME_SIZE];

	command_warn(command_process_name((int)pid, name), "%s", sentence);
}

static void fail(struct recording *recording, const char *sentence)
{
	char name[COMMAND_NAME_SIZE];

	recording->status =
		command_fail(command_process_name(recording->pid, name), "%s", sentence);
}

/* What it is called, for the log's name. */
static void read_program(int pid, char name[64])
{
	char path[64], *content = NULL;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	*name = 0;
	if (g_file_get_contents(path, &content, NULL, NULL))
		g_strlcpy(name, g_strchomp(content), 64);
	g_free(content);
}

/* The log's directory has to be named from the root on. */
static char *absolute(const char *directory)
{
	return directory ? g_canonicalize_filename(directory, NULL) :
			   g_strdup(g_getenv("FBPROF_DIR"));
}

/* The log's sentences name what a server's directory is named by. */
static void fail_log(const char *sentence, const char *named_by)
{
	char **parts = g_strsplit(sentence, "FBPROF_DIR", -1), *text = g_strjoinv(named_by, parts);

	command_fail(NULL, "%s", text);
	g_free(text);
	g_strfreev(parts);
}

static bool open_recorder(struct recording *recording, const struct recording_options *options,
			  const char *directory, const char *named_by)
{
	char program[64], error[1024], *where = absolute(directory);
	const struct recorder_options recorder_options = {
		.log = { .directory = where,
			 .program = program,
			 .pid = options->pid,
			 .clock = "CLOCK_MONOTONIC, of the recorder",
			 .on_stop = warn_stopped },
		.interval = (uint64_t)(options->interval * 1000),
		.share = (unsigned)options->share,
		.plan_rate = (unsigned)options->plan_rate,
		.sql_text = (enum sql_text)find_sql_text(options->sql_text),
	};

	read_program(options->pid, program);
	recording->recorder = recorder_new(&recorder_options, error, sizeof(error));
	g_free(where);
	if (!recording->recorder)
		fail_log(error, directory ? named_by : "FBPROF_DIR");
	return recording->recorder != NULL;
}

static bool open_targets(struct recording *recording, const struct recording_options *options)
{
	const struct targets_options targets_options = { .pid = options->pid,
							 .children = true,
							 .layouts = options->layouts,
							 .open_plan = options->plan_rate ?
									      process_plan_open :
									      NULL,
							 .warn = warn_process };
	char error[TARGETS_ERROR_SIZE];

	recording->targets = targets_new(recording->recorder, &targets_options, error);
	if (recording->targets)
		return true;
	fail(recording, error);
	/* A log in which nothing was recorded is of no use. */
	unlink(recorder_path(recording->recorder));
	return false;
}

struct recording *recording_new(const struct recording_options *options, const char *directory,
				const char *named_by)
{
	struct recording *recording = g_new0(struct recording, 1);

	recording->pid = options->pid;
	/* The default slack of 50 us would make intervals longer. */
	prctl(PR_SET_TIMERSLACK, 1ul);
	if (open_recorder(recording, options, directory, named_by) &&
	    open_targets(recording, options)) {
		recording->due = recording->updated = recording_now();
		return recording;
	}
	recording_free(recording);
	return NULL;
}

void recording_free(struct recording *recording)
{
	if (recording->targets)
		targets_free(recording->targets);
	if (recording->recorder)
		recorder_free(recording->recorder);
	g_free(recording);
}

/* ---- The loop ---- */

static void sleep_until(uint64_t time)
{
	const struct timespec until = { .tv_sec = (time_t)(time / 1000000000),
					.tv_nsec = (long)(time % 1000000000) };

	/* A signal ends it, too. */
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static void update(struct recording *recording, uint64_t now)
{
	char error[TARGETS_ERROR_SIZE];

	recording->updated = now;
	if (targets_update(recording->targets, error))
		return;
	recording->over = true;
	if (*error)
		fail(recording, error);
}

bool recording_run(struct recording *recording, uint64_t until)
{
	while (!recording->over && !command_stop) {
		uint64_t now;

		sleep_until(MIN(recording->due, until));
		now = recording_now();
		if (now >= recording->due)
			recording->due = recorder_look(recording->recorder, now);
		if (recorder_totals(recording->recorder)->stopped) {
			recording->over = true;
			recording->status = COMMAND_FAILED;
		} else if (now - recording->updated >= UPDATE_INTERVAL) {
			update(recording, now);
		}
		if (now >= until)
			break;
	}
	return !recording->over;
}

enum command_status recording_status(const struct recording *recording)
{
	return recording->status;
}

const struct recorder_totals *recording_totals(const struct recording *recording)
{
	return recorder_totals(recording->recorder);
}

const char *recording_path(const struct recording *recording)
{
	return recorder_path(recording->recorder);
}

unsigned recording_processes(const struct recording *recording)
{
	return targets_recorded(recording->targets);
}
