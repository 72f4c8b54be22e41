/*
 * `fbprof record`: records a running server from outside, without a session, a preload or a restart.
 */
#include "command.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "recording.h"
#include "text.h"

#define NS_PER_SECOND	  1000000000.0
#define PROGRESS_INTERVAL 500000000u
#define DURATION_MAX	  (366 * 86400.0)

/* What a recording is like so far. */
struct progress {
	struct recording *recording;
	uint64_t start, cpu_start;
};

static char *describe(const struct progress *progress)
{
	const struct recorder_totals *totals = recording_totals(progress->recording);
	uint64_t elapsed = recording_now() - progress->start;
	char *time = text_lone_time(elapsed), share[32], *text;

	g_ascii_formatd(share, sizeof(share), "%.1f",
			100.0 * (double)(recording_cpu_time() - progress->cpu_start) /
				(double)MAX(elapsed, 1));
	text = g_strdup_printf("%" PRIu64 " samples of %" PRIu32 " attachments in %s, with %s %% of"
			       " a CPU",
			       totals->samples, totals->sessions, time, share);
	g_free(time);
	return text;
}

/* Nothing but on a terminal. */
static void show_progress(const struct progress *progress)
{
	const struct recorder_totals *totals = recording_totals(progress->recording);
	unsigned processes = recording_processes(progress->recording);
	char *text;

	if (!isatty(STDERR_FILENO))
		return;
	text = describe(progress);
	fprintf(stderr, "\r\033[K%s; now %" PRIu32 " at work, in %u process%s. Ctrl-C ends it",
		text, totals->busy, processes, processes == 1 ? "" : "es");
	fflush(stderr);
	g_free(text);
}

static void wipe_progress(void)
{
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
}

static enum command_status print_result(const struct progress *progress)
{
	const struct recorder_totals *totals = recording_totals(progress->recording);
	char *text = describe(progress), *path = text_line(recording_path(progress->recording));
	struct sink sink;

	sink_open(&sink, STDOUT_FILENO);
	sink_print(&sink, "%s", text);
	if (totals->torn)
		sink_print(&sink, "; %" PRIu64 " more were torn", totals->torn);
	sink_print(&sink, "\n%s%s\n",
		   totals->looks && !totals->samples ? "Nothing was executed meanwhile: " : "",
		   path);
	g_free(path);
	g_free(text);
	return command_close_stdout(&sink);
}

static enum command_status record(const struct recording_options *options, const char *directory,
				  double duration)
{
	struct progress progress = { 0 };
	enum command_status status, printed = COMMAND_DONE;
	uint64_t until, end;

	/* The first one ends the recording, the second one the program. */
	command_catch_signals(true);
	progress.recording = recording_new(options, directory, "--output");
	if (!progress.recording)
		return COMMAND_FAILED;
	progress.start = recording_now();
	progress.cpu_start = recording_cpu_time();
	end = duration > 0 ? progress.start + (uint64_t)(duration * NS_PER_SECOND) : UINT64_MAX;
	for (;;) {
		until = MIN(end, recording_now() + PROGRESS_INTERVAL);
		if (!recording_run(progress.recording, until) || command_stop || until >= end)
			break;
		show_progress(&progress);
	}
	wipe_progress();
	status = recording_status(progress.recording);
	/* What failed before anything was seen has no result, and nothing in its log. */
	if (status == COMMAND_DONE || recording_totals(progress.recording)->samples)
		printed = print_result(&progress);
	else
		unlink(recording_path(progress.recording));
	recording_free(progress.recording);
	return status == COMMAND_DONE ? printed : status;
}

static enum command_status check_and_record(const struct recording_options *options,
					    const char *directory, double duration)
{
	enum command_status status = recording_options_check(options);

	if (status != COMMAND_DONE)
		return status;
	if (!(duration >= 0 && duration <= DURATION_MAX))
		return command_misuse(
			"--duration: must be a number of seconds, at most a year, or 0 "
			"for no end");
	return record(options, directory, duration);
}

static enum command_status run(int argc, char **argv)
{
	struct recording_options options = RECORDING_OPTIONS_DEFAULT;
	double duration = 0;
	char *directory = NULL;
	const GOptionEntry entries[] = {
		RECORDING_ENTRIES(&options),
		{ "duration", 'd', 0, G_OPTION_ARG_DOUBLE, &duration,
		  "Seconds to record; until Ctrl-C, or the process ends, unless given", "S" },
		{ "output", 'o', 0, G_OPTION_ARG_FILENAME, &directory,
		  "Directory for the log; FBPROF_DIR, /var/log/fbprof or a private one unless "
		  "given",
		  "DIR" },
		{ 0 },
	};
	enum command_status status;

	if (command_parse(&command_record, entries, argc, argv, NULL, &status))
		status = check_and_record(&options, directory, duration);
	recording_options_clear(&options);
	g_free(directory);
	return status;
}

const struct command command_record = {
	.name = "record",
	.summary = "Profile a running server from outside, without a restart or a session",
	.help = "Looks where each attachment's thread is, some times a millisecond or a second, in the\n"
		"server's own memory: nothing is changed there.  Needs the right to trace the process (its\n"
		"user, or root), and what `fbprof calibrate` has learnt of its engine.\n"
		"Children of the process are recorded, too: Classic has one for each connection.",
	.run = run,
};
