/*
 * `fbprof calibrate`: learns where an engine keeps its position, in another process of ours, since
 * the environment of that must be another from its start, and an engine may crash.
 */
#include "command.h"

#include "../passive/layout.h"
#include "calibration.h"
#include "cost_calibration.h"
#include "scratch_root.h"
#include "table.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_DEFAULT 300 /* seconds; some 10 are needed */
#define WAIT_US		 10000

#define COST_PROCESSES 4 /* that measure what events cost, of which the mean counts */

struct options {
	gboolean show, json, quiet, costs;
	int patience;
	char *client;
	char *scratch, *identity; /* of the other process: its root and the engine's identity */
};

/* ---- Show ---- */

static char *format_offsets(const struct layout_path *path)
{
	GString *text = g_string_new(NULL);

	for (unsigned step = 0; step < path->steps; step++) {
		int32_t offset = path->offset[step];

		g_string_append_printf(text, "%s%s0x%x", step ? " -> " : "", offset < 0 ? "-" : "+",
				       (unsigned)ABS(offset));
	}
	if (path->type == LAYOUT_TEXT)
		g_string_append_printf(text, ", length at %+d", path->length);
	return g_string_free(text, FALSE);
}

static const char *begin_of(enum layout_fact fact)
{
	if (fact == LAYOUT_OUTER)
		return "context";
	if (fact <= LAYOUT_ATTACHMENT)
		return "TLS block";
	if (fact <= LAYOUT_STATEMENT || (fact >= LAYOUT_REQUEST_ID && fact <= LAYOUT_COLUMN))
		return "request";
	if (fact >= LAYOUT_SOURCE_CURSOR)
		return "record source";
	return fact < LAYOUT_ATTACHMENT_ID ? "statement" : "attachment";
}

static void print_text(const struct layout *layout, struct sink *sink)
{
	static const struct table_column columns[] = {
		{ "fact", FALSE }, { "type", FALSE }, { "from", FALSE }, { "path", FALSE }
	};
	struct table *table = table_new(columns, G_N_ELEMENTS(columns));

	sink_print(sink, "Engine    %s\nIdentity  %s\nVerified  at %" PRIu64 " moments\n\n",
		   layout->engine, layout->identity, layout->verified);
	for (enum layout_fact fact = 0; fact < LAYOUT_FACTS; fact++) {
		const struct layout_path *path = &layout->path[fact];

		table_add(table, g_strdup(layout_fact_name(fact)), NULL);
		table_add(table, g_strdup(layout_type_name(path->type)), NULL);
		table_add(table, g_strdup(begin_of(fact)), NULL);
		table_add(table, format_offsets(path), NULL);
	}
	table_print(table, sink, 0);
	table_free(table);
	for (unsigned i = 0; i < layout->plan_functions; i++) {
		const struct layout_plan_function *plan = &layout->plan[i];

		sink_print(sink, "%s: in +0x%" PRIx64 " to +0x%" PRIx64 ", register %u\n",
			   layout_event_name(plan->event), plan->start, plan->end, plan->reg);
	}
}

static void print_json_path(const struct layout_path *path, enum layout_fact fact,
			    struct sink *sink)
{
	sink_print(sink, "%s\n    \"%s\": {\"type\": \"%s\", \"offsets\": [", fact ? "," : "",
		   layout_fact_name(fact), layout_type_name(path->type));
	for (unsigned step = 0; step < path->steps; step++)
		sink_print(sink, "%s%" PRId32, step ? ", " : "", path->offset[step]);
	sink_put(sink, "]");
	if (path->type == LAYOUT_TEXT)
		sink_print(sink, ", \"length\": %" PRId32, path->length);
	sink_put(sink, "}");
}

static void print_json_plan(const struct layout_plan_function *plan, unsigned number,
			    struct sink *sink)
{
	sink_print(sink,
		   "%s\n    {\"event\": \"%s\", \"start\": %" PRIu64 ", \"end\": %" PRIu64
		   ", \"register\": %" PRIu32 ", \"offset\": %" PRId32 ", \"slot\": %" PRId32 "}",
		   number ? "," : "", layout_event_name(plan->event), plan->start, plan->end,
		   plan->reg, plan->offset, plan->slot);
}

/* As a string of JSON: it has quotes in it, or may have, and comes from a file. */
static void print_json_text(const char *text, struct sink *sink)
{
	char *valid = g_utf8_make_valid(text, -1), *line = text_line(valid);

	sink_put(sink, "\"");
	for (const char *at = line; *at; at++) {
		if (*at == '"' || *at == '\\')
			sink_put(sink, "\\");
		sink_write(sink, at, 1);
	}
	sink_put(sink, "\"");
	g_free(line);
	g_free(valid);
}

static void print_json_step(const struct layout_plan_type *type, unsigned number, struct sink *sink)
{
	sink_print(sink, "%s\n    {\"type\": %" PRIu64 ", \"step\": ", number ? "," : "",
		   type->type);
	print_json_text(type->step, sink);
	sink_put(sink, "}");
}

static void print_json(const struct layout *layout, struct sink *sink)
{
	sink_print(sink, "{\n  \"identity\": \"%s\",\n  \"engine\": ", layout->identity);
	print_json_text(layout->engine, sink);
	sink_print(sink, ",\n  \"verified\": %" PRIu64 ",\n  \"paths\": {", layout->verified);
	for (enum layout_fact fact = 0; fact < LAYOUT_FACTS; fact++)
		print_json_path(&layout->path[fact], fact, sink);
	sink_put(sink, "\n  },\n  \"plan\": [");
	for (unsigned i = 0; i < layout->plan_functions; i++)
		print_json_plan(&layout->plan[i], i, sink);
	sink_put(sink, "],\n  \"steps\": [");
	for (unsigned i = 0; i < layout->plan_types; i++)
		print_json_step(&layout->type[i], i, sink);
	sink_put(sink, "]\n}\n");
}

static void print_costs(const struct cost_table *costs, struct sink *sink)
{
	static const struct table_column columns[] = {
		{ "event", FALSE }, { "sampled", TRUE }, { "coarse", TRUE }, { "measured", TRUE }
	};
	struct table *table = table_new(columns, G_N_ELEMENTS(columns));

	for (unsigned kind = 0; kind < COSTS; kind++) {
		table_add(table, g_strdup(cost_kind_name(kind)), NULL);
		for (unsigned mode = LOG_MODE_SAMPLED; mode < COST_MODES; mode++)
			table_add(table, g_strdup_printf("%.2f", costs->cost[mode][kind] / 1024.0),
				  NULL);
	}
	table_print(table, sink, 0);
	table_free(table);
}

/* Of each kind those of sampled, coarse and measured mode, in 1/1024 of the unit. */
static void print_json_costs(const struct cost_table *costs, struct sink *sink)
{
	for (unsigned kind = 0; kind < COSTS; kind++)
		sink_print(sink, "%s\"%s\": [%d, %d, %d]", kind ? ", " : "{", cost_kind_name(kind),
			   costs->cost[LOG_MODE_SAMPLED][kind], costs->cost[LOG_MODE_COARSE][kind],
			   costs->cost[LOG_MODE_MEASURED][kind]);
	sink_put(sink, "}\n");
}

static enum command_status show_costs(const char *engine, bool json)
{
	char identity[LAYOUT_IDENTITY_SIZE], error[CACHE_ERROR_SIZE];
	struct cost_table costs;
	struct sink sink;

	if (!layout_identify(engine, identity, error) ||
	    !cost_table_load(&costs, NULL, identity, error))
		return command_fail(NULL, "%s", error);
	sink_open(&sink, STDOUT_FILENO);
	(json ? print_json_costs : print_costs)(&costs, &sink);
	return command_close_stdout(&sink);
}

static enum command_status show(const char *engine, bool json)
{
	char identity[LAYOUT_IDENTITY_SIZE], error[LAYOUT_ERROR_SIZE];
	struct layout layout;
	struct sink sink;

	if (!layout_identify(engine, identity, error) ||
	    !layout_load(&layout, NULL, identity, error))
		return command_fail(NULL, "%s", error);
	sink_open(&sink, STDOUT_FILENO);
	if (json)
		print_json(&layout, &sink);
	else
		print_text(&layout, &sink);
	return command_close_stdout(&sink);
}

/* ---- The other process ---- */

static enum command_status calibrate_costs_here(const struct options *options)
{
	const struct cost_calibration calibration = { .client = options->client,
						      .directory = options->scratch,
						      .logs = g_getenv("FBPROF_DIR") };
	enum command_status status = COMMAND_DONE;
	char sentence[CACHE_ERROR_SIZE], *error = NULL;
	struct cost_table table;

	if (!calibrate_costs(&calibration, &table, &error))
		status = command_fail(NULL, "calibrate: %s", error);
	else if (!cost_table_save(&table, options->scratch, options->identity, sentence))
		status = command_fail(NULL, "%s", sentence);
	_exit((int)status);
}

static enum command_status calibrate_here(const char *engine, const struct options *options)
{
	const struct calibration calibration = { .client = options->client,
						 .engine = engine,
						 .directory = options->scratch,
						 .identity = options->identity,
						 .quiet = options->quiet };
	char sentence[LAYOUT_ERROR_SIZE], *error = NULL;
	struct layout layout = { 0 };
	enum command_status status = COMMAND_DONE;

	if (!calibrate(&calibration, &layout, &error))
		status = command_fail(NULL, "calibrate: %s", error);
	else if (!layout_save(&layout, options->scratch, sentence))
		status = command_fail(NULL, "%s", sentence);
	/* Not by exit(): the engine's destructors are no concern of ours any more. */
	_exit((int)status);
}

/* ---- The process that waits for it ---- */

/* A Ctrl-C at the terminal is for us, who then kill it; Firebird would end by itself, and say so. */
static void set_up_child(gpointer data)
{
	static const struct rlimit none = { 0, 0 };

	(void)data;
	setsid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setrlimit(RLIMIT_CORE, &none);
}

/* Of this installation, wherever it was moved to; else where it was built for. */
static char *find_library(void)
{
	char *program = g_file_read_link("/proc/self/exe", NULL);
	char *bin = program ? g_path_get_dirname(program) : NULL;
	char *path = bin ? g_build_filename(bin, "..", "lib", "libfbprof.so", NULL) : NULL;

	g_free(program);
	g_free(bin);
	if (path && g_file_test(path, G_FILE_TEST_EXISTS))
		return path;
	g_free(path);
	return g_strdup(FBPROF_LIBDIR "/libfbprof.so");
}

/* Costs are those of libfbprof.so, which is told nothing but where its log goes; and knows no costs. */
static char **preload(char **environment, const char *directory)
{
	char *logs = g_build_filename(directory, "costs-XXXXXX", NULL), *library = find_library();

	g_mkdtemp(logs);
	environment = g_environ_setenv(environment, "LD_PRELOAD", library, TRUE);
	environment = g_environ_setenv(environment, "FBPROF_DIR", logs, TRUE);
	environment = g_environ_setenv(environment, "FBPROF_CACHE", directory, TRUE);
	g_free(library);
	g_free(logs);
	return g_environ_unsetenv(environment, "FBPROF_OPTIONS");
}

static bool start_child(const struct scratch_root *root, const char *identity,
			const struct options *options, GPid *child, char **error)
{
	char *arguments[] = { (char *)"/proc/self/exe",
			      (char *)"calibrate",
			      (char *)"--scratch",
			      root->directory,
			      (char *)"--identity",
			      (char *)identity,
			      (char *)"--client",
			      root->client,
			      root->engine,
			      options->quiet ? (char *)"--quiet" : NULL,
			      NULL,
			      NULL };
	char **environment = g_strdupv(root->environment);
	GError *problem = NULL;
	bool done;

	if (options->costs) {
		arguments[options->quiet ? 10 : 9] = (char *)"--costs";
		environment = preload(environment, root->directory);
	}
	done = g_spawn_async(root->directory, arguments, environment,
			     G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL, set_up_child,
			     NULL, child, &problem);
	g_strfreev(environment);
	if (!done) {
		*error = g_strdup_printf("cannot be calibrated: %s", problem->message);
		g_error_free(problem);
	}
	return done;
}

/* Its wait status; it is killed when it takes too long or we are to end. */
static int wait_for_child(pid_t child, int patience, bool *late)
{
	gint64 deadline = g_get_monotonic_time() + (gint64)patience * G_USEC_PER_SEC;
	int status = 0;

	*late = false;
	while (waitpid(child, &status, WNOHANG) == 0) {
		*late = g_get_monotonic_time() > deadline;
		if (*late || command_stop) {
			kill(child, SIGKILL);
			waitpid(child, &status, 0);
			break;
		}
		g_usleep(WAIT_US);
	}
	return status;
}

static enum command_status judge_child(const char *engine, int status, bool late)
{
	if (command_stop)
		return command_fail(engine, "interrupted: nothing was saved");
	if (late)
		return command_fail(engine,
				    "calibration took too long: try again with a longer --timeout");
	if (WIFSIGNALED(status))
		return command_fail(engine,
				    "Firebird crashed while it was calibrated, by signal %d: "
				    "fbprof can't read this engine's position",
				    WTERMSIG(status));
	/* What is not of ours has not been explained. */
	if (WEXITSTATUS(status) > COMMAND_FAILED)
		return command_fail(engine,
				    "Firebird ended by itself, with status %d, while it was "
				    "calibrated: fbprof can't read this engine's position",
				    WEXITSTATUS(status));
	return WEXITSTATUS(status) ? COMMAND_FAILED : COMMAND_DONE;
}

static bool keep_costs(const struct scratch_root *root, const char *identity,
		       char error[CACHE_ERROR_SIZE])
{
	struct cost_table table;

	return cost_table_load(&table, root->directory, identity, error) &&
	       cost_table_save(&table, NULL, identity, error);
}

static bool keep_layout(const struct scratch_root *root, const char *identity,
			char error[CACHE_ERROR_SIZE])
{
	struct layout layout;

	return layout_load(&layout, root->directory, identity, error) &&
	       layout_save(&layout, NULL, error);
}

static enum command_status keep(const struct scratch_root *root, const char *engine,
				const char *identity, const struct options *options)
{
	char error[LAYOUT_ERROR_SIZE], now[LAYOUT_IDENTITY_SIZE];

	if (!layout_identify(engine, now, error))
		return command_fail(NULL, "%s", error);
	if (strcmp(now, identity) != 0)
		return command_fail(engine, "was replaced meanwhile: calibrate it again");
	if (!(options->costs ? keep_costs : keep_layout)(root, identity, error))
		return command_fail(NULL, "%s", error);
	if (!options->quiet)
		fprintf(stderr, "fbprof: calibrate: saved; fbprof calibrate --show%s shows it\n",
			options->costs ? " --costs" : "");
	return COMMAND_DONE;
}

static enum command_status run_child(const struct scratch_root *root, const char *engine,
				     const char *identity, const struct options *options)
{
	enum command_status status;
	char *error = NULL;
	bool late = false;
	int wait_status;
	GPid child;

	if (!start_child(root, identity, options, &child, &error)) {
		status = command_fail(engine, "%s", error);
		g_free(error);
		return status;
	}
	wait_status = wait_for_child(child, options->patience, &late);
	status = judge_child(engine, wait_status, late);
	g_spawn_close_pid(child);
	return status;
}

/* Saves the mean of what several processes find, in the scratch directory as they do. */
static enum command_status run_for_costs(const struct scratch_root *root, const char *engine,
					 const char *identity, const struct options *options)
{
	struct cost_table mean = cost_table_default, table;
	enum command_status status = COMMAND_DONE;
	char error[CACHE_ERROR_SIZE];

	for (int i = 0; i < COST_PROCESSES && status == COMMAND_DONE; i++) {
		status = run_child(root, engine, identity, options);
		if (status != COMMAND_DONE)
			break;
		if (!cost_table_load(&table, root->directory, identity, error))
			return command_fail(NULL, "%s", error);
		for (int mode = LOG_MODE_SAMPLED; mode < COST_MODES; mode++) {
			for (int kind = 0; kind < COSTS; kind++)
				mean.cost[mode][kind] +=
					(table.cost[mode][kind] - mean.cost[mode][kind]) / (i + 1);
		}
		if (!options->quiet)
			fprintf(stderr, "fbprof: calibrate: costs, process %d of %d\n", i + 1,
				COST_PROCESSES);
	}
	if (status == COMMAND_DONE && !cost_table_save(&mean, root->directory, identity, error))
		return command_fail(NULL, "%s", error);
	return status;
}

static enum command_status calibrate_file(const char *engine, const struct options *options)
{
	char identity[LAYOUT_IDENTITY_SIZE], sentence[LAYOUT_ERROR_SIZE], *error = NULL;
	struct scratch_root root;
	enum command_status status;

	if (!layout_identify(engine, identity, sentence) || !cache_may_save(NULL, sentence))
		return command_fail(NULL, "%s", sentence);
	command_catch_signals(false);
	/* Ignored by whoever started us, it would keep the other process's status from us. */
	signal(SIGCHLD, SIG_DFL);
	if (scratch_root_make(&root, engine, options->client, &error)) {
		status = (options->costs ? run_for_costs : run_child)(&root, engine, identity,
								      options);
		if (status == COMMAND_DONE)
			status = keep(&root, engine, identity, options);
	} else {
		status = command_fail(engine, "%s", error);
	}
	scratch_root_free(&root);
	g_free(error);
	return status;
}

/* ---- The command ---- */

static enum command_status run_with(char **files, const struct options *options)
{
	if (files[1])
		return command_misuse("%s: one engine at a time", files[1]);
	if (options->json && !options->show)
		return command_misuse("--json goes with --show only");
	if (options->patience <= 0)
		return command_misuse("--timeout: must be at least 1 second");
	if (options->scratch && options->identity && options->client)
		return options->costs ? calibrate_costs_here(options) :
					calibrate_here(files[0], options);
	if (options->show)
		return (options->costs ? show_costs : show)(files[0], options->json);
	return calibrate_file(files[0], options);
}

static enum command_status run(int argc, char **argv)
{
	struct options options = { .patience = PATIENCE_DEFAULT };
	const GOptionEntry entries[] = {
		{ "show", 's', 0, G_OPTION_ARG_NONE, &options.show,
		  "Only show what is known of the engine", NULL },
		{ "costs", 'e', 0, G_OPTION_ARG_NONE, &options.costs,
		  "Measure what events cost on this machine instead, for sessions' times", NULL },
		{ "json", 'j', 0, G_OPTION_ARG_NONE, &options.json, "With --show: as JSON", NULL },
		{ "client", 'c', 0, G_OPTION_ARG_FILENAME, &options.client,
		  "The client library that goes with the engine, if it isn't found", "FILE" },
		{ "timeout", 't', 0, G_OPTION_ARG_INT, &options.patience,
		  "Give up after so many seconds, 300 unless given", "S" },
		{ "quiet", 'q', 0, G_OPTION_ARG_NONE, &options.quiet, "No progress on stderr",
		  NULL },
		{ "scratch", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_FILENAME, &options.scratch, "",
		  "" },
		{ "identity", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_STRING, &options.identity, "",
		  "" },
		{ 0 },
	};
	enum command_status status;
	char **files = NULL;

	if (command_parse(&command_calibrate, entries, argc, argv, &files, &status))
		status = run_with(files, &options);
	g_strfreev(files);
	g_free(options.client);
	g_free(options.scratch);
	g_free(options.identity);
	return status;
}

const struct command command_calibrate = {
	.name = "calibrate",
	.arguments = "ENGINE",
	.missing = "no engine given: name its file, libEngine*.so",
	.summary = "Learn where an engine keeps its position, or what its events cost",
	.help = "Where an engine keeps its position is for passive profiling; what events cost (--costs) for\n"
		"the times of sessions.\n\n"
		"ENGINE is the file that the server has loaded, plugins/libEngine13.so or the like.  It is\n"
		"loaded in a process of fbprof's own, on scratch databases in TMPDIR; nothing of the\n"
		"installation is changed.  What was found, and verified, is kept in FBPROF_CACHE, or else\n"
		"in fbprof/ of the user's cache directory, for this very file.  If it can't be verified,\n"
		"the exit status is 1.  Costs hold for this kind of CPU, too; measure them, for some 30\n"
		"seconds, when the machine does little else.",
	.run = run,
};
