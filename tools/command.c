/*
 * What the commands share: see command.h.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

/* If standard output was closed, the first file to be opened would get its number, and what is printed. */
static void keep_standard_files(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		/* Opened such that its use is the error that it would have been. */
		if (fcntl(fd, F_GETFD) < 0)
			open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
	}
}

void command_init(void)
{
	keep_standard_files();
	/* Not LC_NUMERIC: numbers have the same point everywhere. */
	setlocale(LC_CTYPE, "");
	/* A reader that went away is an error like others, not a death. */
	signal(SIGPIPE, SIG_IGN);
}

atomic_int command_stop;

static void note_signal(int number)
{
	(void)number;
	command_stop = 1;
}

void command_catch_signals(bool once)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	const struct sigaction action = { .sa_handler = note_signal,
					  .sa_flags = once ? (int)SA_RESETHAND : 0 };

	for (unsigned i = 0; i < G_N_ELEMENTS(signals); i++)
		sigaction(signals[i], &action, NULL);
}

static void (*_Atomic message_listener)(const char *line);

void command_listen(void (*listener)(const char *line))
{
	message_listener = listener;
}

/* Names and texts in messages come from files: nothing of them may reach the terminal as it is. */
G_GNUC_PRINTF(2, 0)
static void say(const char *file, const char *format, va_list arguments, const char *end)
{
	char *message = g_strdup_vprintf(format, arguments);
	char *shown_file = file ? g_filename_display_name(file) : NULL;
	char *whole = shown_file ? g_strdup_printf("fbprof: %s: %s%s", shown_file, message, end) :
				   g_strdup_printf("fbprof: %s%s", message, end);
	char *valid = g_utf8_make_valid(whole, -1);
	char *line = text_line(valid);
	void (*listener)(const char *line) = message_listener;

	if (listener)
		listener(line);
	else
		fprintf(stderr, "%s\n", line);
	g_free(line);
	g_free(valid);
	g_free(whole);
	g_free(shown_file);
	g_free(message);
}

enum command_status command_fail(const char *file, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(file, format, arguments, "");
	va_end(arguments);
	return COMMAND_FAILED;
}

void command_warn(const char *file, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(file, format, arguments, "");
	va_end(arguments);
}

const char *command_process_name(int pid, char name[COMMAND_NAME_SIZE])
{
	snprintf(name, COMMAND_NAME_SIZE, "process %d", pid);
	return name;
}

enum command_status command_misuse(const char *format, ...)
{
	char *end = g_strdup_printf(": see %s --help", g_get_prgname());
	va_list arguments;

	va_start(arguments, format);
	say(NULL, format, arguments, end);
	va_end(arguments);
	g_free(end);
	return COMMAND_MISUSED;
}

static enum command_status print_help(GOptionContext *context)
{
	char *help = g_option_context_get_help(context, TRUE, NULL);
	struct sink sink;

	sink_open(&sink, STDOUT_FILENO);
	sink_put(&sink, help);
	g_free(help);
	return command_close_stdout(&sink);
}

enum command_status command_print_version(void)
{
	struct sink sink;

	sink_open(&sink, STDOUT_FILENO);
	sink_put(&sink, "fbprof " PACKAGE_VERSION "\n");
	return command_close_stdout(&sink);
}

bool command_parse(const struct command *command, const GOptionEntry *entries, int argc,
		   char **argv, char ***logs, enum command_status *status)
{
	gboolean help = FALSE, version = FALSE;
	char **files = NULL;
	const GOptionEntry common[] = {
		{ "help", 'h', 0, G_OPTION_ARG_NONE, &help, "Print this help", NULL },
		{ "version", 'V', 0, G_OPTION_ARG_NONE, &version, "Print the version", NULL },
		{ G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &files, NULL, NULL },
		{ 0 },
	};
	GOptionContext *context = g_option_context_new(command->arguments);
	GError *error = NULL;
	bool go_on = false;

	g_option_context_set_summary(context, command->summary);
	g_option_context_set_description(context, command->help);
	g_option_context_set_help_enabled(context, FALSE);
	g_option_context_add_main_entries(context, entries, NULL);
	g_option_context_add_main_entries(context, common, NULL);
	if (!g_option_context_parse(context, &argc, &argv, &error))
		*status = command_misuse("%s", error->message);
	else if (help)
		*status = print_help(context);
	else if (version)
		*status = command_print_version();
	else if (files && !command->arguments)
		*status = command_misuse("%s: nothing but options is taken", *files);
	else if (!files && command->arguments && *command->arguments != '[')
		*status = command_misuse("%s", command->missing ?
						       command->missing :
						       "no log given: name a file *.fbprof");
	else
		go_on = true;
	g_clear_error(&error);
	g_option_context_free(context);
	if (!go_on)
		g_clear_pointer(&files, g_strfreev);
	if (logs)
		*logs = files;
	return go_on;
}

static void warn_moved(const struct model_session *session, int64_t old_id)
{
	command_warn(session->log->path,
		     "profile_id %" PRId64 " occurs more than once, this session gets %" PRId64,
		     old_id, session->profile_id);
}

struct model *command_load(char **logs, bool with_cancelled, enum command_status *status)
{
	struct model *model = model_new();
	char error[LOG_ERROR_SIZE];

	for (; *logs; logs++) {
		if (!model_add_log(model, *logs, with_cancelled, error))
			*status = command_fail(*logs, "%s", error);
	}
	if (!model->logs->len) {
		model_free(model);
		return NULL;
	}
	model_order_sessions(model, warn_moved);
	return model;
}

char **command_losses(const struct model_log *log)
{
	GPtrArray *sentences = g_ptr_array_new();

	for (unsigned i = 0; i < MODEL_LOSSES; i++) {
		if (log->lost[i])
			g_ptr_array_add(sentences, g_strdup_printf("%" PRIu64 " %s", log->lost[i],
								   model_loss_text(i)));
	}
	g_ptr_array_add(sentences, NULL);
	return (char **)g_ptr_array_free(sentences, FALSE);
}

void command_warn_losses(const struct model *model)
{
	for (guint i = 0; i < model->logs->len; i++) {
		const struct model_log *log = model->logs->pdata[i];
		char **losses = command_losses(log);

		for (char **loss = losses; *loss; loss++)
			command_warn(log->path, "%s", *loss);
		g_strfreev(losses);
	}
}

enum command_status command_close_stdout(struct sink *sink)
{
	int error = sink_close(sink);

	if (error == EPIPE)
		return COMMAND_FAILED;
	if (error)
		return command_fail(NULL, "stdout: cannot be written: %s: %s", strerror(error),
				    error == ENOSPC ? "free some space" : "check where it goes");
	return COMMAND_DONE;
}
