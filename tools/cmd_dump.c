/*
 * `fbprof dump`, also the program fbprof-dump: the profiler's tables as CSV, or what a log holds.
 */
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "log_info.h"
#include "prof_tables.h"

struct dump_options {
	char *directory;
	char *table;
	gboolean info;
	gboolean all;
};

/* ---- Tables as files ---- */

/* A file that gets its name only once it is complete. */
struct new_file {
	char *name;
	char *temporary; /* NULL: not there, or renamed */
};

static enum command_status write_new_file(struct new_file *file, const char *directory,
					  const struct prof_table *table, const struct model *model)
{
	struct sink sink;
	int fd, error;

	file->name = g_strdup_printf("%s/%s.csv", directory, table->name);
	file->temporary = g_strdup_printf("%s/.%s.csv.XXXXXX", directory, table->name);
	fd = g_mkstemp_full(file->temporary, O_WRONLY | O_CLOEXEC, 0666);
	if (fd < 0) {
		error = errno;
		g_clear_pointer(&file->temporary, g_free);
		return command_fail(directory, "no file can be made in it: %s: choose another -o",
				    strerror(error));
	}
	sink_open(&sink, fd);
	prof_table_write(table, model, &sink);
	error = sink_close(&sink);
	if (!error && fsync(fd) != 0)
		error = errno;
	if (close(fd) != 0 && !error)
		error = errno;
	if (error)
		return command_fail(file->name, "cannot be written: %s: choose another -o",
				    strerror(error));
	return COMMAND_DONE;
}

static enum command_status name_new_file(struct new_file *file)
{
	if (rename(file->temporary, file->name) != 0)
		return command_fail(file->name, "cannot be replaced: %s: choose another -o",
				    strerror(errno));
	g_clear_pointer(&file->temporary, g_free);
	return COMMAND_DONE;
}

static void new_file_free(struct new_file *file)
{
	if (file->temporary)
		unlink(file->temporary);
	g_free(file->temporary);
	g_free(file->name);
}

/* All tables are written before the first one is given its name.  `only` NULL: all of them. */
static enum command_status dump_files(const struct model *model, const char *directory,
				      const struct prof_table *only)
{
	const struct prof_table *tables = only ? only : prof_tables;
	unsigned count = only ? 1 : PROF_TABLE_COUNT;
	struct new_file files[PROF_TABLE_COUNT] = { 0 };
	enum command_status status = COMMAND_DONE;

	if (g_mkdir_with_parents(directory, 0777) != 0)
		return command_fail(directory, "cannot be made a directory: %s: choose another -o",
				    strerror(errno));
	for (unsigned i = 0; i < count && status == COMMAND_DONE; i++)
		status = write_new_file(&files[i], directory, &tables[i], model);
	for (unsigned i = 0; i < count && status == COMMAND_DONE; i++)
		status = name_new_file(&files[i]);
	for (unsigned i = 0; i < count; i++)
		new_file_free(&files[i]);
	return status;
}

/* ---- The command ---- */

static enum command_status dump(const struct model *model, const struct dump_options *options,
				const struct prof_table *only)
{
	enum command_status status = COMMAND_DONE;
	struct sink sink;

	command_warn_losses(model);
	if (options->directory)
		status = dump_files(model, options->directory, only);
	if (status != COMMAND_DONE || (options->directory && !options->info))
		return status;
	sink_open(&sink, STDOUT_FILENO);
	if (options->info)
		log_info_print(model, &sink);
	else
		prof_table_write(only, model, &sink);
	return command_close_stdout(&sink);
}

static enum command_status check_options(const struct dump_options *options,
					 const struct prof_table **only)
{
	*only = options->table ? prof_table_find(options->table) : NULL;
	if (options->table && !*only)
		return command_misuse("--table=%s: must be one of " PROF_TABLE_NAMES,
				      options->table);
	if (!options->directory && !options->table && !options->info)
		return command_misuse("nothing to do: add -o DIR for all tables as CSV files, "
				      "--table NAME for one, or --info");
	if (!options->directory && options->table && options->info)
		return command_misuse("--table and --info both want stdout: leave one out");
	return COMMAND_DONE;
}

static enum command_status run(int argc, char **argv)
{
	struct dump_options options = { 0 };
	const GOptionEntry entries[] = {
		{ "output", 'o', 0, G_OPTION_ARG_FILENAME, &options.directory,
		  "Write all tables (or the one of --table) as DIR/TABLE.csv", "DIR" },
		{ "table", 't', 0, G_OPTION_ARG_STRING, &options.table,
		  "Write this table to stdout", "NAME" },
		{ "info", 'i', 0, G_OPTION_ARG_NONE, &options.info,
		  "Say what the log holds and what is missing from it", NULL },
		{ "all", 'a', 0, G_OPTION_ARG_NONE, &options.all, "Include cancelled sessions",
		  NULL },
		{ 0 },
	};
	enum command_status status, read = COMMAND_DONE;
	const struct prof_table *only;
	struct model *model;
	char **logs;

	if (command_parse(&command_dump, entries, argc, argv, &logs, &status)) {
		status = check_options(&options, &only);
		model = status == COMMAND_DONE ? command_load(logs, options.all, &read) : NULL;
		if (model)
			status = dump(model, &options, only);
		if (status == COMMAND_DONE)
			status = read;
		model_free(model);
		g_strfreev(logs);
	}
	g_free(options.directory);
	g_free(options.table);
	return status;
}

const struct command command_dump = {
	.name = "dump",
	.arguments = "LOG...",
	.summary = "Write the profiler's tables as CSV",
	.help = "Tables: " PROF_TABLE_NAMES ".\n"
		"They have the columns of PLG$PROF_*, then fbprof's own.  Times are in nanoseconds,\n"
		"NULL is an empty field.",
	.run = run,
};
