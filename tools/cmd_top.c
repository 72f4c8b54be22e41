/*
 * `fbprof top`: what a server is doing now, on one screen: of a process, which it records by itself, or
 * of a log that is being written.
 *
 * The recorder has a thread of its own and writes a log in a private directory; the screen is made of
 * that log, as of any other.
 */
#include "command.h"

#include <curses.h>
#include <errno.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "recording.h"
#include "text.h"
#include "top_view.h"

#define NS_PER_SECOND 1000000000.0
#define DELAY_MIN     0.1
#define DELAY_MAX     3600.0
#define ONCE_ROWS     60

struct top_options {
	struct recording_options recording;
	double delay;
	gboolean once;
};

/* A process that is recorded meanwhile. */
struct background {
	struct recording *recording;
	GThread *thread;
	char *directory, *path; /* of its log */
	int over;		/* atomic; the thread's: it has ended by itself */
};

/* ---- Messages, which must not come in between ---- */

static GMutex message_mutex;
static char *message; /* the last one */

static void keep_message(const char *line)
{
	g_mutex_lock(&message_mutex);
	g_free(message);
	message = g_strdup(line);
	g_mutex_unlock(&message_mutex);
}

/* The caller's; NULL: there was none. */
static char *last_message(void)
{
	char *copy;

	g_mutex_lock(&message_mutex);
	copy = g_strdup(message);
	g_mutex_unlock(&message_mutex);
	return copy;
}

/* ---- Recording ---- */

static void *record(void *data)
{
	struct background *background = data;

	recording_run(background->recording, UINT64_MAX);
	g_atomic_int_set(&background->over, 1);
	return NULL;
}

static void remove_directory(struct background *background)
{
	if (background->path)
		g_unlink(background->path);
	if (background->directory)
		g_rmdir(background->directory);
	g_free(background->path);
	g_free(background->directory);
}

/* False, with a message: it can't be recorded. */
static bool start_recording(struct background *background, const struct recording_options *options)
{
	GError *error = NULL;

	background->directory = g_dir_make_tmp("fbprof-top-XXXXXX", &error);
	if (!background->directory) {
		command_fail(NULL, "%s: set TMPDIR to a directory that you may write to",
			     error->message);
		g_clear_error(&error);
		return false;
	}
	background->recording = recording_new(options, background->directory, "TMPDIR");
	if (!background->recording) {
		remove_directory(background);
		return false;
	}
	background->path = g_strdup(recording_path(background->recording));
	background->thread = g_thread_try_new("fbprof-recorder", record, background, &error);
	if (background->thread)
		return true;
	command_fail(NULL, "no thread can be started: %s: end other programs, or raise the limit",
		     error->message);
	g_clear_error(&error);
	recording_free(background->recording);
	remove_directory(background);
	return false;
}

static enum command_status end_recording(struct background *background)
{
	enum command_status status;

	command_stop = 1;
	g_thread_join(background->thread);
	status = recording_status(background->recording);
	recording_free(background->recording);
	remove_directory(background);
	return status;
}

/* ---- A look ---- */

/* What is looked at. */
struct subject {
	struct background *background; /* NULL: a log */
	const char *path;
	struct top_view view;
};

static char *describe(const struct subject *subject, const struct model_log *log)
{
	char *who =
		g_strdup_printf("fbprof top: %s, pid %u on %s", log->program ? log->program : "?",
				log->pid, log->host ? log->host : "?");
	char *line = g_strdup_printf("%s%s", who,
				     subject->background &&
						     g_atomic_int_get(&subject->background->over) ?
					     ": it has ended" :
				     log->state == LOG_RECORDING ? "" :
								   ": the log is closed");
	char *harmless = text_line(line);

	g_free(line);
	g_free(who);
	return harmless;
}

/* NULL, with a message: the log can't be read. */
static GPtrArray *look(struct subject *subject, unsigned width, unsigned height)
{
	struct model *model = model_new();
	char error[LOG_ERROR_SIZE], *head;
	GPtrArray *lines = NULL;

	if (model_add_log(model, subject->path, false, error)) {
		model_order_sessions(model, NULL);
		head = describe(subject, model->logs->pdata[0]);
		lines = top_view_show(&subject->view, model, recording_now(), head, width, height);
		g_free(head);
	} else {
		command_fail(subject->path, "%s", error);
	}
	model_free(model);
	return lines;
}

/* ---- Plain text ---- */

static unsigned terminal_width(void)
{
	struct winsize size;

	return isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) ? size.ws_col : 0;
}

static enum command_status show_once(struct subject *subject, double delay)
{
	GPtrArray *lines;
	struct sink sink;

	if (subject->background) {
		uint64_t end = recording_now() + (uint64_t)(delay * NS_PER_SECOND);

		while (!command_stop && recording_now() < end &&
		       !g_atomic_int_get(&subject->background->over))
			g_usleep(20000);
	}
	lines = look(subject, terminal_width(), ONCE_ROWS);
	if (!lines)
		return COMMAND_FAILED;
	sink_open(&sink, STDOUT_FILENO);
	for (guint i = 0; i < lines->len; i++) {
		const struct top_line *line = lines->pdata[i];

		sink_print(&sink, "%s\n", line->text);
	}
	g_ptr_array_unref(lines);
	return command_close_stdout(&sink);
}

/* ---- The screen ---- */

enum screen_pair {
	PAIR_HOT = 1,
	PAIR_WARM,
	PAIR_COLD
};

static void init_colors(void)
{
	const char *no_color = g_getenv("NO_COLOR");

	if ((no_color && *no_color) || !has_colors())
		return;
	start_color();
	use_default_colors();
	init_pair(PAIR_HOT, COLOR_RED, -1);
	init_pair(PAIR_WARM, COLOR_YELLOW, -1);
	init_pair(PAIR_COLD, COLOR_GREEN, -1);
}

static attr_t attributes_of(enum top_style style)
{
	switch (style) {
	case TOP_TITLE:
		return A_BOLD;
	case TOP_HOT:
		return (attr_t)COLOR_PAIR(PAIR_HOT);
	case TOP_WARM:
		return (attr_t)COLOR_PAIR(PAIR_WARM);
	case TOP_COLD:
		return (attr_t)COLOR_PAIR(PAIR_COLD);
	case TOP_PLAIN:
		break;
	}
	return A_NORMAL;
}

/* In a locale that isn't UTF-8, curses would take each byte for a character. */
static void draw_text(int row, const char *text)
{
	char *ascii;

	if (g_get_charset(NULL)) {
		mvaddstr(row, 0, text);
		return;
	}
	ascii = g_strdup(text);
	for (char *at = ascii; *at; at++)
		*at = (unsigned char)*at >= 0x80 ? '?' : *at;
	mvaddstr(row, 0, ascii);
	g_free(ascii);
}

static void draw(const GPtrArray *lines)
{
	char *said = last_message();
	int rows = LINES - 1;

	erase();
	for (guint i = 0; i < lines->len && (int)i < rows; i++) {
		const struct top_line *line = lines->pdata[i];

		attrset(attributes_of(line->style));
		draw_text((int)i, line->text);
	}
	attrset(A_REVERSE);
	draw_text(rows, said ? said : "q quits, space looks at once");
	attrset(A_NORMAL);
	refresh();
	g_free(said);
}

/* Waits for the next look.  False: the user has enough. */
static bool wait_for_key(double delay)
{
	uint64_t end = recording_now() + (uint64_t)(delay * NS_PER_SECOND);

	while (!command_stop) {
		uint64_t now = recording_now();
		int key;

		if (now >= end)
			return true;
		/* Signals are looked for now and then, whatever the system makes of them. */
		timeout((int)MIN((end - now) / 1000000 + 1, 200));
		key = getch();
		if (key == 'q' || key == 'Q' || key == 3)
			return false;
		if (key == ' ' || key == KEY_RESIZE)
			return true;
	}
	return false;
}

static enum command_status show_screen(struct subject *subject, double delay)
{
	SCREEN *screen = newterm(NULL, stdout, stdin);
	enum command_status status = COMMAND_DONE;
	char *said;

	if (!screen)
		return command_fail(NULL, "TERM: this terminal can't be used for a screen: add "
					  "--once for plain text");
	command_listen(keep_message);
	cbreak();
	noecho();
	curs_set(0);
	keypad(stdscr, TRUE);
	init_colors();
	do {
		GPtrArray *lines = look(subject, (unsigned)COLS, (unsigned)LINES - 1);

		if (!lines) {
			status = COMMAND_FAILED;
			break;
		}
		draw(lines);
		g_ptr_array_unref(lines);
	} while (wait_for_key(delay));
	endwin();
	delscreen(screen);
	command_listen(NULL);
	said = last_message();
	if (said)
		fprintf(stderr, "%s\n", said);
	g_free(said);
	return status;
}

/* ---- The command ---- */

static enum command_status show(struct subject *subject, const struct top_options *options)
{
	enum command_status status;

	top_view_init(&subject->view);
	status = options->once ? show_once(subject, options->delay) :
				 show_screen(subject, options->delay);
	top_view_clear(&subject->view);
	return status;
}

static enum command_status show_process(const struct top_options *options)
{
	struct background background = { 0 };
	struct subject subject = { .background = &background };
	enum command_status status, recorded;

	if (!start_recording(&background, &options->recording))
		return COMMAND_FAILED;
	subject.path = background.path;
	status = show(&subject, options);
	recorded = end_recording(&background);
	return status == COMMAND_DONE ? recorded : status;
}

static enum command_status check(const struct top_options *options, char **logs)
{
	if (!options->recording.pid && !logs)
		return command_misuse("nothing to show: name a log, or give --pid");
	if (logs && (options->recording.pid || logs[1]))
		return command_misuse("%s: only one log, or --pid, can be shown",
				      logs[logs[1] != 0]);
	if (!(options->delay >= DELAY_MIN && options->delay <= DELAY_MAX))
		return command_misuse("--delay: must be from 0.1 to 3600 seconds");
	if (!options->once && (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)))
		return command_misuse("stdout is no terminal: add --once for plain text");
	return logs ? COMMAND_DONE : recording_options_check(&options->recording);
}

static enum command_status check_and_show(const struct top_options *options, char **logs)
{
	enum command_status status = check(options, logs);
	struct subject log = { .path = logs ? logs[0] : NULL };

	if (status != COMMAND_DONE)
		return status;
	command_catch_signals(false);
	return logs ? show(&log, options) : show_process(options);
}

static enum command_status run(int argc, char **argv)
{
	struct top_options options = { .recording = RECORDING_OPTIONS_DEFAULT, .delay = 2 };
	const GOptionEntry entries[] = {
		RECORDING_ENTRIES(&options.recording),
		{ "delay", 'd', 0, G_OPTION_ARG_DOUBLE, &options.delay,
		  "Seconds from one look to the next, 2 unless given", "S" },
		{ "once", '1', 0, G_OPTION_ARG_NONE, &options.once,
		  "Show one look as plain text; of a process, after the delay", NULL },
		{ 0 },
	};
	enum command_status status;
	char **logs;

	if (command_parse(&command_top, entries, argc, argv, &logs, &status))
		status = check_and_show(&options, logs);
	recording_options_clear(&options.recording);
	g_strfreev(logs);
	return status;
}

const struct command command_top = {
	.name = "top",
	.arguments = "[LOG]",
	.summary = "Show what a server is doing now, on one screen",
	.help = "Of a process, which is recorded meanwhile as by fbprof record, or of a log that is being\n"
		"written.  \"now\" is the share of the time since the look before, \"all\" that of all.",
	.run = run,
};
