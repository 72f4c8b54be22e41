/*
 * The commands of `fbprof`, and what they share: options, errors, reading logs.  One thread.
 *
 * A command is a file cmd_NAME.c with a struct command, one line here and one in fbprof.c.
 */
#ifndef FBPROF_COMMAND_H
#define FBPROF_COMMAND_H

#include <glib.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "model.h"
#include "sink.h"

enum command_status {
	COMMAND_DONE = 0,
	COMMAND_FAILED = 1,
	COMMAND_MISUSED = 2
};

struct command {
	const char *name;
	const char *arguments; /* for the usage line; NULL: takes none; "[LOG]": or none */
	const char *missing;   /* what to say if there are none; NULL: that of logs */
	const char *summary;   /* one line for the list of commands */
	const char *help;      /* below the options in --help; may be NULL */
	enum command_status (*run)(int argc, char **argv);
};

extern const struct command command_calibrate;
extern const struct command command_dump;
extern const struct command command_passive;
extern const struct command command_record;
extern const struct command command_report;
extern const struct command command_timing;
extern const struct command command_top;

/* Once, first thing in a main(). */
void command_init(void);

/*
 * From now on SIGINT, SIGTERM and SIGHUP set `command_stop` instead of ending the program; if `once`, only the
 * first of each does.  Any thread may read it, and set it.
 */
extern atomic_int command_stop;
void command_catch_signals(bool once);

/* Prints "fbprof: FILE: sentence", without FILE if that is NULL, and returns COMMAND_FAILED. */
enum command_status command_fail(const char *file, const char *format, ...) G_GNUC_PRINTF(2, 3);
void command_warn(const char *file, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* What messages call a process, as their FILE. */
#define COMMAND_NAME_SIZE 32
const char *command_process_name(int pid, char name[COMMAND_NAME_SIZE]);

/*
 * While a command has the whole screen, messages go to `listener` instead of standard error, as one
 * harmless line each; NULL ends that.  It may be called by any thread.
 */
void command_listen(void (*listener)(const char *line));

/* Prints what is wrong with the command line and where its help is. */
enum command_status command_misuse(const char *format, ...) G_GNUC_PRINTF(1, 2);

/*
 * Handles the options, --help and --version among them.  True: go on, with the arguments in `logs`,
 * which is the caller's: at least one, or NULL if they may be left out and were; of a command that takes
 * none, `logs` may be NULL.  False: return `status`.
 */
bool command_parse(const struct command *command, const GOptionEntry *entries, int argc,
		   char **argv, char ***logs, enum command_status *status);

/*
 * Reads the logs into a new model.  One that cannot be read is a message and makes `status`
 * COMMAND_FAILED, which is otherwise left as it is; the others are read.  NULL if there are none.
 */
struct model *command_load(char **logs, bool with_cancelled, enum command_status *status);

/* A sentence for each kind of thing that was torn or missing; g_strfreev() frees them. */
char **command_losses(const struct model_log *log);

/* The same as warnings on stderr, for all logs. */
void command_warn_losses(const struct model *model);

enum command_status command_print_version(void);

/* Ends output to stdout: an error is a message, unless nobody reads on. */
enum command_status command_close_stdout(struct sink *sink);

#endif
