/*
 * The program fbprof: finds the command and runs it.
 */
#include "command.h"

#include <string.h>
#include <unistd.h>

static const struct command *const commands[] = {
	&command_calibrate, &command_dump,   &command_passive, &command_record,
	&command_report,    &command_timing, &command_top,
};

static enum command_status print_commands(void)
{
	struct sink sink;

	sink_open(&sink, STDOUT_FILENO);
	sink_put(&sink, "Usage:\n  fbprof COMMAND [OPTION...] [LOG...]\n\nCommands:\n");
	for (unsigned i = 0; i < G_N_ELEMENTS(commands); i++)
		sink_print(&sink, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
	sink_put(&sink, "\nfbprof help COMMAND says more; so does man fbprof.\n");
	return command_close_stdout(&sink);
}

static const struct command *find_command(const char *name)
{
	for (unsigned i = 0; i < G_N_ELEMENTS(commands); i++) {
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	}
	return NULL;
}

static enum command_status run_command(const char *name, int argc, char **argv)
{
	const struct command *command = find_command(name);
	enum command_status status;
	char *program;

	if (!command)
		return command_misuse("%s: no such command", name);
	program = g_strdup_printf("fbprof %s", name);
	g_set_prgname(program);
	status = command->run(argc, argv);
	g_free(program);
	return status;
}

/* `fbprof help COMMAND` is `fbprof COMMAND --help`. */
static enum command_status run_help(const char *name)
{
	char *arguments[] = { (char *)name, (char *)"--help", NULL };

	return name ? run_command(name, 2, arguments) : print_commands();
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;

	command_init();
	g_set_prgname("fbprof");
	if (!name)
		return command_misuse("no command given");
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		return print_commands();
	if (strcmp(name, "help") == 0)
		return run_help(argv[2]);
	if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
		return command_print_version();
	return run_command(name, argc - 1, argv + 1);
}
