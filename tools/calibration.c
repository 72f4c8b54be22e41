/*
 * The calibration: see calibration.h.  What an oracle knows goes to the learner, stage by stage,
 * and then to verification.  Two oracles: with the profiler all is in one thread; with the
 * monitoring tables a thread executes, and another one holds it at gates (calibration_sql.h) and
 * looks.
 */
#include "calibration.h"

#include "calibration_plan.h"
#include "calibration_sql.h"
#include "calibration_stacks.h"
#include "client.h"
#include "engine_module.h"
#include "oracle.h"
#include "oracle_plan.h"

#include <fcntl.h>
#include <glib.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWNER	    "SYSDBA"
#define OTHER_OWNER "OWNER_OF_THE_SECOND_DATABASE" /* at most 31 characters, for Firebird 3 */

/*
 * So many moments must agree.  Each of the monitoring tables takes some 5 ms, one of the profiler
 * next to none.
 */
#define VERIFIED_LEAST_PROFILER 2000
#define VERIFIED_LEAST_MONITOR	1000
#define VERIFYING_RUNS_MONITOR	20 /* of a workload with 50 gates */

#define ATTACHMENTS_BEFORE 5   /* so that ids differ from one database to the other */
#define GATES		   150 /* that are locked, in a run of a workload */
#define LOOKS		   4   /* at a gate, until it is seen */
#define POLL_US		   500
#define GATE_PATIENCE_US   5000000

/* A database that a workload runs on, and who runs it. */
struct scratch_database {
	const char *alias, *user;
	char *path;
};

enum {
	FIRST_LEARNING,
	SECOND_LEARNING,
	VERIFYING,
	DATABASES
};

struct state {
	const struct calibration *calibration;
	struct client *client;
	struct scratch_database databases[DATABASES];
	bool profiler; /* this oracle, or else the monitoring tables */

	struct learner *learner;
	const struct layout *verifying; /* NULL: learning */
	guint64 moments, agreed, idle, idle_seen;
	char first_error[LAYOUT_ERROR_SIZE];
};

/* ---- The engine's TLS block ---- */

/* The calling thread's; false if the engine is not loaded or has none in this thread yet. */
static bool own_tls(const struct state *state, struct engine_module *module)
{
	return engine_module_find(state->calibration->engine, module) && module->tls &&
	       module->tls_size;
}

/* ---- Messages ---- */

G_GNUC_PRINTF(2, 3)
static void progress(const struct state *state, const char *format, ...)
{
	va_list arguments;
	char *text;

	if (state->calibration->quiet)
		return;
	va_start(arguments, format);
	text = g_strdup_vprintf(format, arguments);
	va_end(arguments);
	fprintf(stderr, "fbprof: calibrate: %s\n", text);
	g_free(text);
}

/* ---- Moments ---- */

static void on_moment(void *context, const struct learn_moment *moment)
{
	struct state *state = context;
	char error[LAYOUT_ERROR_SIZE];

	state->moments++;
	if (!state->verifying) {
		learner_feed(state->learner, moment);
	} else if (learn_verify(state->verifying, moment, error)) {
		state->agreed++;
	} else if (!*state->first_error) {
		memcpy(state->first_error, error, sizeof(error));
	}
}

/* Between two statements, in the thread that executes. */
static void check_idle(struct state *state, uint64_t tls)
{
	if (!state->verifying)
		return;
	state->idle++;
	state->idle_seen += learn_idle(state->verifying, tls);
}

/* ---- Databases ---- */

static bool create_database(struct state *state, unsigned number,
			    const struct calibration_workload *workload, char **error)
{
	struct scratch_database *database = &state->databases[number];
	struct client_attachment attachment;
	bool done;

	done = client_create_database(state->client, &attachment, database->path, database->user,
				      error) &&
	       client_execute_all(&attachment, workload->definitions, error);
	client_detach(&attachment);
	for (unsigned i = 0; done && i < ATTACHMENTS_BEFORE * (number + 1); i++) {
		done = client_attach(state->client, &attachment, database->alias, database->user,
				     error);
		client_detach(&attachment);
	}
	return done;
}

static bool create_databases(struct state *state, char **error)
{
	static const char *const aliases[DATABASES] = { "first_learning", "second_learning",
							"verifying" };

	for (unsigned i = 0; i < DATABASES; i++) {
		state->databases[i].alias = aliases[i];
		state->databases[i].user = i == SECOND_LEARNING ? OTHER_OWNER : OWNER;
		state->databases[i].path =
			g_strdup_printf("%s/%s.fdb", state->calibration->directory, aliases[i]);
		if (!create_database(
			    state, i,
			    i == VERIFYING ? &calibration_verifying : &calibration_learning, error))
			return false;
	}
	return true;
}

/* ---- Running a workload ---- */

static bool run_statements(struct state *state, struct client_attachment *attachment,
			   const char *const *statements, uint64_t tls, char **error)
{
	for (; *statements; statements++) {
		oracle_profiler_statement();
		if (!client_run(attachment, *statements, error))
			return false;
		check_idle(state, tls);
	}
	return client_commit(attachment, error);
}

static bool attach(struct state *state, const struct scratch_database *database,
		   struct client_attachment *attachment, struct learn_moment *moment, char **error)
{
	struct engine_module module;
	char *id;

	if (!client_attach(state->client, attachment, database->alias, database->user, error))
		return false;
	id = client_query(attachment,
			  "select cast(current_connection as varchar(20)) from rdb$database",
			  error);
	if (!id)
		return false;
	if (!own_tls(state, &module)) {
		*error = g_strdup("the engine keeps nothing in thread-local storage: fbprof can't "
				  "read this engine's position");
		g_free(id);
		return false;
	}
	*moment = (struct learn_moment){ .tls = module.tls,
					 .attachment_id = g_ascii_strtoull(id, NULL, 10),
					 .user = database->user,
					 .database = database->path };
	g_free(id);
	return true;
}

static const struct calibration_workload *workload_of(const struct state *state,
						      const struct scratch_database *database)
{
	return database == &state->databases[VERIFYING] ? &calibration_verifying :
							  &calibration_learning;
}

/* ---- By the profiler ---- */

#define START_SESSION                                                                \
	"execute block as declare id bigint; begin id = rdb$profiler.start_session(" \
	"'calibration', null, null, '" ORACLE_PROFILER "'); end"
#define FINISH_SESSION "execute procedure rdb$profiler.finish_session"

static bool run_profiled(struct state *state, const struct scratch_database *database, char **error)
{
	struct client_attachment attachment = { .client = state->client };
	struct learn_moment moment;
	bool done;

	done = attach(state, database, &attachment, &moment, error) &&
	       client_commit(&attachment, error);
	if (done) {
		oracle_profiler_watch(&moment, on_moment, state);
		done = client_execute(&attachment, START_SESSION, error) &&
		       run_statements(state, &attachment, workload_of(state, database)->statements,
				      moment.tls, error) &&
		       client_execute(&attachment, FINISH_SESSION, error);
	}
	client_detach(&attachment);
	if (done)
		check_idle(state, moment.tls);
	return done;
}

/* ---- By the monitoring tables ---- */

/* The thread that executes. */
struct worker {
	struct state *state;
	const struct scratch_database *database;
	GThread *thread;
	struct learn_moment moment;
	pid_t id;
	bool done;	    /* well; once it has ended */
	char *error;	    /* if not */
	_Atomic bool ready; /* it is attached: what is above is valid … */
	_Atomic bool go;    /* … and it may begin */
	_Atomic bool ended;
};

static gpointer work(gpointer data)
{
	struct worker *worker = data;
	struct client_attachment attachment = { .client = worker->state->client };

	worker->id = gettid();
	worker->done = attach(worker->state, worker->database, &attachment, &worker->moment,
			      &worker->error) &&
		       client_commit(&attachment, &worker->error);
	atomic_store(&worker->ready, true);
	while (!atomic_load(&worker->go))
		g_usleep(POLL_US);
	worker->done = worker->done &&
		       run_statements(worker->state, &attachment,
				      workload_of(worker->state, worker->database)->statements,
				      worker->moment.tls, &worker->error);
	client_detach(&attachment);
	atomic_store(&worker->ended, true);
	return NULL;
}

static char *read_task(pid_t thread, const char *name)
{
	char *path = g_strdup_printf("/proc/self/task/%d/%s", thread, name), *text = NULL;

	g_file_get_contents(path, &text, NULL, NULL);
	g_free(path);
	return text ? text : g_strdup("");
}

/* How long it ran, in ns.  False unless it sleeps. */
static bool is_asleep(pid_t thread, guint64 *ran)
{
	char *times = read_task(thread, "schedstat"), *state = read_task(thread, "stat");
	bool asleep = strstr(state, ") S ") != NULL;

	*ran = g_ascii_strtoull(times, NULL, 10);
	g_free(times);
	g_free(state);
	return asleep;
}

/* It has not run between two looks, so it waits for the lock of a gate. */
static bool is_held(pid_t thread)
{
	guint64 before, after;

	if (!is_asleep(thread, &before))
		return false;
	g_usleep(POLL_US);
	return is_asleep(thread, &after) && before == after;
}

static guint64 read_gate(struct client_attachment *monitor, char **error)
{
	char *text = client_query(
		monitor, "select cast(gen_id(gate, 0) as varchar(20)) from rdb$database", error);
	guint64 gate = text ? g_ascii_strtoull(text, NULL, 10) : G_MAXUINT64;

	g_free(text);
	return gate;
}

/* Waits until the thread is held at that gate; false if it has ended, or `error`. */
static bool wait_at_gate(struct worker *worker, struct client_attachment *monitor, guint64 gate,
			 char **error)
{
	for (guint64 waited = 0; waited < GATE_PATIENCE_US; waited += POLL_US) {
		guint64 passed = read_gate(monitor, error);

		if (passed == G_MAXUINT64 || atomic_load(&worker->ended))
			return false;
		if (passed == gate && is_held(worker->id))
			return true;
		g_usleep(POLL_US);
	}
	*error = g_strdup("a statement was to wait for a row's lock, and did not");
	return false;
}

/* Makes the rows of the next gates, and locks each in a transaction of its own. */
static bool lock_gates(struct client_attachment *holder, struct client_attachment *locks,
		       guint64 passed, char **error)
{
	char *sql = g_strdup_printf(
		"execute block as declare i integer = 0; begin while (i < %d) do begin i = i + 1; "
		"update or insert into gates values (%" G_GUINT64_FORMAT " + :i, 0); end end",
		GATES, passed);
	bool done = client_execute(holder, sql, error) && client_commit(holder, error);

	g_free(sql);
	for (unsigned i = 0; done && i < GATES; i++) {
		locks[i] = (struct client_attachment){ .client = holder->client,
						       .database = holder->database };
		sql = g_strdup_printf("update gates set hits = 0 where id = %" G_GUINT64_FORMAT,
				      passed + i + 1);
		done = client_execute(&locks[i], sql, error);
		g_free(sql);
	}
	return done;
}

/* The tables may be late; that an attachment is never seen there is no error. */
static bool look(struct worker *worker, struct client_attachment *monitor, guint64 gate,
		 char **error)
{
	bool seen = false, done = true;

	for (unsigned i = 0; done && !seen && i < LOOKS; i++)
		done = oracle_monitor_look(monitor, &worker->moment, gate, &seen, on_moment,
					   worker->state, error);
	return done;
}

/* Lets the thread go from gate to gate, and looks at each. */
static bool look_at_gates(struct worker *worker, struct client_attachment *monitor,
			  struct client_attachment *locks, guint64 passed, char **error)
{
	bool done = true;

	atomic_store(&worker->go, true);
	for (unsigned i = 0; done && i < GATES; i++) {
		if (wait_at_gate(worker, monitor, passed + i + 1, error))
			done = look(worker, monitor, passed + i + 1, error);
		else
			done = *error == NULL;
		client_rollback(&locks[i]);
	}
	for (unsigned i = 0; i < GATES; i++)
		client_rollback(&locks[i]);
	return done;
}

static bool run_monitored(struct state *state, const struct scratch_database *database,
			  char **error)
{
	struct client_attachment monitor = { .client = state->client },
				 locks[GATES] = { { .client = state->client } };
	struct worker worker = { .state = state, .database = database };
	guint64 passed = 0;
	bool done;

	worker.thread = g_thread_new("worker", work, &worker);
	while (!atomic_load(&worker.ready))
		g_usleep(POLL_US);
	done = client_attach(state->client, &monitor, database->alias, database->user, error) &&
	       (passed = read_gate(&monitor, error)) != G_MAXUINT64 &&
	       lock_gates(&monitor, locks, passed, error) &&
	       look_at_gates(&worker, &monitor, locks, passed, error);
	for (unsigned i = 0; i < GATES; i++)
		client_rollback(&locks[i]);
	atomic_store(&worker.go, true);
	g_thread_join(worker.thread);
	client_detach(&monitor);
	if (done && !worker.done) {
		*error = worker.error;
		return false;
	}
	g_free(worker.error);
	return done;
}

/* ---- Learning ---- */

static bool run(struct state *state, unsigned database, char **error)
{
	return state->profiler ? run_profiled(state, &state->databases[database], error) :
				 run_monitored(state, &state->databases[database], error);
}

static bool learn(struct state *state, char **error)
{
	char sentence[LAYOUT_ERROR_SIZE];

	for (unsigned stage = 0; stage < LEARN_STAGES; stage++) {
		state->moments = 0;
		if (!run(state, FIRST_LEARNING, error) || !run(state, SECOND_LEARNING, error))
			return false;
		progress(state, "learning, %u of %u: %" G_GUINT64_FORMAT " moments, %u paths left",
			 stage + 1, LEARN_STAGES, state->moments, learner_paths(state->learner));
		if (!learner_settle(state->learner, sentence)) {
			*error = g_strdup(sentence);
			return false;
		}
	}
	return true;
}

/* ---- Verifying ---- */

static bool judge(const struct state *state, char **error)
{
	guint64 least = state->profiler ? VERIFIED_LEAST_PROFILER : VERIFIED_LEAST_MONITOR;

	if (state->agreed < state->moments)
		*error = g_strdup_printf("the layout was not verified, %" G_GUINT64_FORMAT
					 " of %" G_GUINT64_FORMAT
					 " moments differ (%s): fbprof can't "
					 "read this engine's position",
					 state->moments - state->agreed, state->moments,
					 state->first_error);
	else if (state->moments < least)
		*error = g_strdup_printf("the layout was not verified: there were only "
					 "%" G_GUINT64_FORMAT " moments of %" G_GUINT64_FORMAT,
					 state->moments, least);
	else if (state->idle_seen < state->idle)
		*error = g_strdup_printf("the layout was not verified: an idle thread seemed to "
					 "execute %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT
					 " times: fbprof can't read this engine's position",
					 state->idle - state->idle_seen, state->idle);
	else
		return true;
	return false;
}

/* The profiler does not tell the lines of callers, so the tables are asked in any case. */
static bool run_to_verify(struct state *state, char **error)
{
	const struct scratch_database *database = &state->databases[VERIFYING];
	unsigned runs = state->profiler ? 1 : VERIFYING_RUNS_MONITOR;
	bool done = !state->profiler || run_profiled(state, database, error);

	for (unsigned i = 0; done && i < runs; i++)
		done = run_monitored(state, database, error);
	return done;
}

static bool verify(struct state *state, struct layout *layout, char **error)
{
	*layout = *learner_layout(state->learner);
	state->verifying = layout;
	state->moments = 0;
	if (!run_to_verify(state, error) || !judge(state, error))
		return false;
	progress(state,
		 "verified: %" G_GUINT64_FORMAT " moments agree, and %" G_GUINT64_FORMAT
		 " between statements",
		 state->agreed, state->idle);
	layout->verified = state->agreed;
	return true;
}

/* ---- The whole ---- */

/* Its version, and what it has to tell the position by. */
static bool ask_engine(struct state *state, struct layout *layout, char **error)
{
	const struct scratch_database *database = &state->databases[FIRST_LEARNING];
	struct client_attachment attachment = { .client = state->client };
	char *version = NULL, *profiler = NULL;
	bool done =
		client_attach(state->client, &attachment, database->alias, database->user, error);

	if (done)
		version = client_query(&attachment,
				       "select rdb$get_context('SYSTEM', 'ENGINE_VERSION') "
				       "from rdb$database",
				       error);
	if (version)
		profiler = client_query(&attachment,
					"select cast(count(*) as varchar(20)) from rdb$packages "
					"where rdb$package_name = 'RDB$PROFILER' and "
					"rdb$system_flag = 1",
					error);
	client_detach(&attachment);
	if (profiler) {
		g_strlcpy(layout->engine, version, sizeof(layout->engine));
		state->profiler = strcmp(profiler, "1") == 0;
		progress(state, "Firebird %s tells its position by %s", version,
			 state->profiler ? "its profiler" : "its monitoring tables");
	}
	g_free(version);
	g_free(profiler);
	return profiler != NULL;
}

/* Where the engine tells of record sources.  Without them the rest is as good. */
static void learn_plans(struct state *state, struct layout *layout)
{
	char *error = NULL;

	const struct calibration *calibration = state->calibration;
	bool done = state->profiler ? calibrate_plan(state->client, calibration->engine,
						     calibration->directory, layout, &error) :
				      calibrate_stacks(state->client, calibration->engine,
						       calibration->directory, layout, &error);

	if (done)
		progress(state, "record sources: %u functions, %u steps of plans",
			 layout->plan_functions, layout->plan_types);
	else
		progress(state, "record sources are not told: %s", error);
	g_free(error);
}

static bool calibrate_with(struct state *state, struct layout *layout, char **error)
{
	char engine[sizeof(layout->engine)];
	struct engine_module module;

	if (!create_databases(state, error) || !ask_engine(state, layout, error))
		return false;
	memcpy(engine, layout->engine, sizeof(engine));
	if (!own_tls(state, &module)) {
		*error = g_strdup_printf(
			"it was not this file that Firebird loaded, or it keeps nothing in "
			"thread-local storage: fbprof can't read this engine's position");
		return false;
	}
	state->learner = learner_new(module.tls_size);
	if (!learn(state, error) || !verify(state, layout, error))
		return false;
	learn_plans(state, layout);
	memcpy(layout->engine, engine, sizeof(engine));
	g_strlcpy(layout->identity, state->calibration->identity, sizeof(layout->identity));
	return true;
}

bool calibrate(const struct calibration *calibration, struct layout *layout, char **error)
{
	struct state state = { .calibration = calibration };
	bool done;

	*error = NULL;
	state.client = client_load(calibration->client, error);
	if (!state.client)
		return false;
	oracle_profiler_register(client_master(state.client));
	oracle_plan_register(client_master(state.client));
	done = calibrate_with(&state, layout, error);
	if (state.learner)
		learner_free(state.learner);
	for (unsigned i = 0; i < DATABASES; i++)
		g_free(state.databases[i].path);
	return done;
}
