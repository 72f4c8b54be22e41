/*
 * See cost_calibration.h.
 *
 * Workloads with different numbers of lines, opens, fetches and requests run with and without a session
 * in turn, some of them also with DETAILED_REQUESTS.  What a workload costs is the difference of the
 * shortest times, which are those that the rest of the machine disturbed least: in sampled and coarse
 * mode of the elapsed ones; in measured mode of what the session tells and the unprofiled time, with what
 * was taken off already.  The costs are those for which the squares of what is then missed, as parts of
 * the unprofiled times, are least.
 */
#include "cost_calibration.h"
#include "../passive/position.h"
#include "client.h"
#include "model.h"

#include <glib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS	 4 /* of a workload; while what is missed is too much, so many more … */
#define ATTEMPTS 3 /* … until it is so often */

/* May be missed, as a part of the unprofiled time, by the weight of the workload. */
#define MISSED_MOST 0.12

/*
 * What hardly shows in any workload stays near what was measured elsewhere: to be off by that much of
 * itself counts as much as to miss this part of a workload's time.
 */
#define PRIOR	    0.01
#define PRIOR_LEAST 1000 /* of a cost that is next to nothing */

/* READ is only about what is a record source's and what its parent's, which no sum shows. */
#define FITTED COST_READ

static const char *const definitions[] = {
	"create procedure p_nop as begin end",
	"create procedure p_lines as declare n integer; begin n = 1; n = 2; n = 3; n = 4; n = 5; n = 6; "
	"end",
	"create table t (id integer not null primary key, parent integer)",
	"execute block as declare i integer = 1000; begin while (i < 1100) do begin "
	"insert into t values (:i, :i - 1); i = i + 1; end end",
	"create table sale (id integer not null, item integer not null, quantity integer not null, "
	"price numeric(10, 2) not null)",
	"execute block as declare i integer = 0; begin while (i < 27000) do begin "
	"insert into sale values (:i, mod(:i * 7, 1500), 1 + mod(:i, 5), 10.5); i = i + 1; end end",
	"create function f_depth (n integer) returns integer as declare m integer; begin "
	"if (n <= 0) then return 0; select parent from t where id = 1000 + :n into m; "
	"return f_depth(m - 1000) + 1; end",
	NULL,
};

/*
 * Some 5 to 30 ms each.  How much an event's work overlaps with the engine's depends on what that does, by
 * some ns: a fetch costs more in a scan of records than in a cross join, a line more where lines do next to
 * nothing.  The weights say what is likely where a database is busy.
 */
static const struct workload {
	const char *name, *sql;
	bool detailed;
	double weight;
} workloads[] = {
#define REQUESTS                                                                            \
	"execute block as declare i integer = 0; begin while (i < 15000) do begin execute " \
	"procedure p_nop; i = i + 1; end end"
#define CALLS                                                                              \
	"execute block as declare i integer = 0; begin while (i < 8000) do begin execute " \
	"procedure p_lines; i = i + 1; end end"
#define FUNCTIONS                                                                                    \
	"execute block as declare i integer = 0; declare x integer; begin while (i < 800) do begin " \
	"x = f_depth(12); i = i + 1; end end"
	{ "lines",
	  "execute block as declare i integer = 0; begin while (i < 400000) do i = i + 1; end",
	  false, 1 },
	{ "fetches",
	  "select cast(count(*) as varchar(20)) from (select 1 x from rdb$types a cross join rdb$types b "
	  "cross join rdb$types c rows 300000)",
	  false, 1 },
	{ "cursor",
	  "execute block as declare i integer = 0; declare x integer; begin for select 1 from rdb$types a "
	  "cross join rdb$types b cross join rdb$types c rows 150000 into x do i = i + 1; end",
	  false, 1 },
	{ "scans",
	  "select cast(max(n) as varchar(20)) from (select t.id, sum(s.quantity) n from t left join "
	  "sale s on s.item = t.id where t.id < 1006 group by t.id)",
	  false, 2 },
	{ "requests", REQUESTS, false, 1 },
	{ "opens",
	  "execute block as declare i integer = 0; declare x integer; begin while (i < 25000) do begin "
	  "select 1 from rdb$database into x; i = i + 1; end end",
	  false, 1 },
	{ "calls", CALLS, false, 1 },
	{ "functions", FUNCTIONS, false, 1 },
	{ "requests", REQUESTS, true, 1 },
	{ "calls", CALLS, true, 1 },
	{ "functions", FUNCTIONS, true, 1 },
};

#define WORKLOADS G_N_ELEMENTS(workloads)

static const struct {
	enum log_mode mode;
	const char *name;
} modes[] = { { LOG_MODE_SAMPLED, "SAMPLED" },
	      { LOG_MODE_COARSE, "COARSE" },
	      { LOG_MODE_MEASURED, "MEASURED" } };

#define MODES G_N_ELEMENTS(modes)

/* Of a workload in a mode: the shortest times in ns, and what it counts of each kind. */
struct found {
	double off, profiled, reported;
	double count[FITTED];
};

struct state {
	const struct cost_calibration *calibration;
	struct client_attachment attachment;
	GArray *sessions; /* the index in `found` of each, in the order in which they are started */
	struct found found[MODES][WORKLOADS];
	GArray *units[MODES]; /* ns: of each session … */
	double unit[MODES];   /* … and their median */
};

/* ---- Running ---- */

static bool time_statement(struct state *state, const char *sql, double *shortest, char **error)
{
	uint64_t began = passive_clock();
	double took;

	if (!client_run(&state->attachment, sql, error))
		return false;
	took = (double)(passive_clock() - began);
	if (*shortest == 0 || took < *shortest)
		*shortest = took;
	return true;
}

static bool run_once(struct state *state, unsigned mode, unsigned number, char **error)
{
	const struct workload *workload = &workloads[number];
	struct found *found = &state->found[mode][number];
	unsigned index = mode * WORKLOADS + number;
	char *start = g_strdup_printf(
		"execute block as declare id bigint; begin id = rdb$profiler.start_session('costs', "
		"null, null, null, 'MODE=%s%s'); end",
		modes[mode].name, workload->detailed ? ",DETAILED_REQUESTS" : "");
	bool done = time_statement(state, workload->sql, &found->off, error) &&
		    client_execute(&state->attachment, start, error) &&
		    time_statement(state, workload->sql, &found->profiled, error) &&
		    client_execute(&state->attachment,
				   "execute procedure rdb$profiler.finish_session(true)", error) &&
		    client_commit(&state->attachment, error);

	g_free(start);
	if (done)
		g_array_append_val(state->sessions, index);
	return done;
}

static bool run_rounds(struct state *state, char **error)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned mode = 0; mode < MODES; mode++) {
			for (unsigned i = 0; i < WORKLOADS; i++) {
				if (!run_once(state, mode, i, error))
					return false;
			}
		}
	}
	return true;
}

/* ---- What the log says ---- */

static void add_count(struct found *found, const struct model_cell *cell, double value,
		      bool detailed)
{
	enum log_event event = LOG_EVENT_LINE;

	switch (cell->kind) {
	case MODEL_CELL_UNSAMPLED:
		return;
	case MODEL_CELL_REQUEST:
		found->count[LOG_EVENT_REQUEST] += value;
		if (g_strcmp0(cell->statement->type, "FUNCTION") == 0)
			found->count[COST_FUNCTION] += value;
		if (detailed)
			found->count[COST_DETAILED] += value;
		return;
	case MODEL_CELL_LINE:
		break;
	case MODEL_CELL_OPEN:
		event = LOG_EVENT_OPEN;
		break;
	case MODEL_CELL_FETCH:
		event = cell->record_source->parent_id ? LOG_EVENT_FETCH : LOG_EVENT_ROW;
	}
	found->count[event] += value;
	if (detailed && value > 0)
		found->count[COST_CELL]++;
}

/* The statement that was timed is the longest that is no routine's. */
static void read_request(struct found *found, const struct model_request *request, bool detailed)
{
	const struct model_count *counts = model_request_counts(request);
	double time = (double)model_request_total_time(request);

	for (uint32_t i = 0; i < request->count_count; i++) {
		const struct model_cell *cell = model_find_cell(request->statement, counts[i].cell);

		if (cell)
			add_count(found, cell, (double)counts[i].value, detailed);
	}
	if (!request->statement->routine && time > found->reported)
		found->reported = time;
}

/* What the log says that a request costs is by the default, as the unit that was measured meanwhile. */
static double unit_of(const struct model_session *session, bool detailed)
{
	const int32_t *costs = cost_table_default.cost[session->mode];
	double request = costs[LOG_EVENT_REQUEST] + (detailed ? costs[COST_DETAILED] : 0);

	return (double)session->totals.event_cost[LOG_EVENT_REQUEST] / 1000 * 1024 / request;
}

static void read_session(struct state *state, const struct model_session *session, unsigned index)
{
	unsigned mode = index / WORKLOADS;
	bool detailed = workloads[index % WORKLOADS].detailed;
	struct found *found = &state->found[mode][index % WORKLOADS], one = { 0 };
	double unit = unit_of(session, detailed);

	for (uint32_t i = 0; i < session->request_count; i++)
		read_request(&one, &session->requests[i], detailed);
	if (found->reported == 0 || one.reported < found->reported)
		found->reported = one.reported;
	memcpy(found->count, one.count, sizeof(one.count));
	g_array_append_val(state->units[mode], unit);
}

static gint compare_numbers(gconstpointer left, gconstpointer right)
{
	return MODEL_ORDER(*(const double *)left, *(const double *)right);
}

static double take_median(GArray *numbers)
{
	double median;

	g_array_sort(numbers, compare_numbers);
	median = g_array_index(numbers, double, numbers->len / 2);
	g_array_set_size(numbers, 0);
	return median;
}

/* NULL, with a sentence: there is none. */
static char *find_log(const struct state *state, char **error)
{
	const char *directory = state->calibration->logs;
	GDir *dir = g_dir_open(directory, 0, NULL);
	const char *name = dir ? g_dir_read_name(dir) : NULL;
	char *path = name ? g_build_filename(directory, name, NULL) : NULL;

	if (dir)
		g_dir_close(dir);
	if (!path)
		*error = g_strdup(
			"libfbprof.so wrote no log: it must be in lib/ beside the bin/ that fbprof "
			"is in");
	return path;
}

static bool read_log(struct state *state, char **error)
{
	char *path = find_log(state, error), sentence[LOG_ERROR_SIZE];
	struct model *model = model_new();
	bool done = false;

	if (!path) {
		model_free(model);
		return false;
	}
	if (!model_add_log(model, path, false, sentence)) {
		*error = g_strdup(sentence);
	} else if (model->sessions->len != state->sessions->len) {
		*error = g_strdup_printf("the log has %u sessions of %u", model->sessions->len,
					 state->sessions->len);
	} else {
		model_order_sessions(model, NULL);
		for (guint i = 0; i < model->sessions->len; i++)
			read_session(state, model->sessions->pdata[i],
				     g_array_index(state->sessions, unsigned, i));
		for (unsigned mode = 0; mode < MODES; mode++)
			state->unit[mode] = take_median(state->units[mode]);
		done = true;
	}
	model_free(model);
	g_free(path);
	return done;
}

/* ---- Costs ---- */

/* What a workload's events cost, in ns. */
static double cost_of(const struct state *state, unsigned mode, unsigned number)
{
	const int32_t *costs = cost_table_default.cost[modes[mode].mode];
	const struct found *found = &state->found[mode][number];
	double taken_off = 0;

	if (modes[mode].mode != LOG_MODE_MEASURED)
		return found->profiled - found->off;
	for (unsigned i = 0; i < FITTED; i++)
		taken_off += found->count[i] * costs[i] / 1024 * state->unit[mode];
	return found->reported - found->off + taken_off;
}

/* What one event of a kind costs, in 1/1024 of the unit, as a part of the workload's time. */
static double part_of(const struct state *state, unsigned mode, unsigned number, unsigned kind)
{
	const struct found *found = &state->found[mode][number];

	return found->count[kind] * state->unit[mode] / 1024 / found->off;
}

/* A sum of squares as its normal equations; the last column is the right side. */
struct equations {
	double rows[FITTED][FITTED + 1];
};

static void add_equation(struct equations *equations, const double left[FITTED], double right)
{
	for (unsigned i = 0; i < FITTED; i++) {
		for (unsigned j = 0; j < FITTED; j++)
			equations->rows[i][j] += left[i] * left[j];
		equations->rows[i][FITTED] += left[i] * right;
	}
}

/* By Gauss; without pivots, as what equations add to has a prior for each kind: positive definite. */
static void solve(struct equations *equations, double solution[FITTED])
{
	for (unsigned i = 0; i < FITTED; i++) {
		for (unsigned j = 0; j < FITTED; j++) {
			double factor = equations->rows[j][i] / equations->rows[i][i];

			for (unsigned k = i; j != i && k <= FITTED; k++)
				equations->rows[j][k] -= factor * equations->rows[i][k];
		}
	}
	for (unsigned i = 0; i < FITTED; i++)
		solution[i] = equations->rows[i][FITTED] / equations->rows[i][i];
}

static void fit(const struct state *state, unsigned mode, int32_t costs[COSTS])
{
	const int32_t *prior = cost_table_default.cost[modes[mode].mode];
	struct equations equations = { 0 };
	double solution[FITTED];

	for (unsigned i = 0; i < FITTED; i++) {
		double left[FITTED] = { 0 };

		left[i] = PRIOR / (abs(prior[i]) + PRIOR_LEAST);
		add_equation(&equations, left, left[i] * prior[i]);
	}
	for (unsigned number = 0; number < WORKLOADS; number++) {
		double left[FITTED], weight = workloads[number].weight;

		for (unsigned i = 0; i < FITTED; i++)
			left[i] = weight * part_of(state, mode, number, i);
		add_equation(&equations, left,
			     weight * cost_of(state, mode, number) /
				     state->found[mode][number].off);
	}
	solve(&equations, solution);
	for (unsigned i = 0; i < FITTED; i++)
		costs[i] = (int32_t)lround(solution[i]);
	for (unsigned i = FITTED; i < COSTS; i++)
		costs[i] = prior[i];
}

/* By how much the costs miss what a workload took, as a part of its time. */
static double missed_by(const struct state *state, unsigned mode, unsigned number,
			const int32_t costs[COSTS])
{
	double cost = 0;

	for (unsigned i = 0; i < FITTED; i++)
		cost += part_of(state, mode, number, i) * costs[i];
	return cost - cost_of(state, mode, number) / state->found[mode][number].off;
}

static double missed_most(const struct state *state, unsigned mode, const int32_t costs[COSTS])
{
	double most = 0;

	for (unsigned number = 0; number < WORKLOADS; number++) {
		double missed = missed_by(state, mode, number, costs);

		g_debug("costs: %s, %s%s: off %.2f ms, cost %.2f ms, missed by %+.1f %%",
			modes[mode].name, workloads[number].name,
			workloads[number].detailed ? " detailed" : "",
			state->found[mode][number].off / 1e6, cost_of(state, mode, number) / 1e6,
			missed * 100);
		most = MAX(most, workloads[number].weight * fabs(missed));
	}
	return most;
}

/* ---- The whole ---- */

static bool has_profiler(struct state *state, char **error)
{
	char *version = client_query(&state->attachment,
				     "select cast(rdb$get_context('SYSTEM', 'ENGINE_VERSION') as "
				     "varchar(20)) from rdb$database",
				     error);
	bool has = version && g_ascii_strtoull(version, NULL, 10) >= 5;

	if (version && !has)
		*error = g_strdup_printf("Firebird %s has no profiler, so its events cost nothing: "
					 "--costs is for 5.0 and later",
					 version);
	g_free(version);
	return has;
}

static bool prepare(struct state *state, struct client **client, char **error)
{
	char *path = g_strdup_printf("%s/costs-%d.fdb", state->calibration->directory, getpid());
	bool done;

	*client = client_load(state->calibration->client, error);
	done = *client &&
	       client_create_database(*client, &state->attachment, path, "SYSDBA", error) &&
	       has_profiler(state, error) &&
	       client_execute_all(&state->attachment, definitions, error);
	g_free(path);
	return done;
}

static bool find_costs(struct state *state, struct cost_table *table, char **error)
{
	double missed = 0;

	for (unsigned i = 0; i < ATTEMPTS; i++) {
		if (!run_rounds(state, error) || !read_log(state, error))
			return false;
		*table = cost_table_default;
		missed = 0;
		for (unsigned mode = 0; mode < MODES; mode++) {
			int32_t *costs = table->cost[modes[mode].mode];

			fit(state, mode, costs);
			missed = MAX(missed, missed_most(state, mode, costs));
		}
		if (missed <= MISSED_MOST)
			return true;
	}
	*error = g_strdup_printf("the costs of events don't explain what was measured, by %.0f %%: "
				 "the machine is too busy; try again when it isn't",
				 missed * 100);
	return false;
}

bool calibrate_costs(const struct cost_calibration *calibration, struct cost_table *table,
		     char **error)
{
	struct state *state = g_new0(struct state, 1);
	struct client *client;
	bool done;

	state->calibration = calibration;
	state->sessions = g_array_new(FALSE, FALSE, sizeof(unsigned));
	for (unsigned mode = 0; mode < MODES; mode++)
		state->units[mode] = g_array_new(FALSE, FALSE, sizeof(double));
	done = prepare(state, &client, error) && find_costs(state, table, error);
	client_detach(&state->attachment);
	g_array_free(state->sessions, TRUE);
	for (unsigned mode = 0; mode < MODES; mode++)
		g_array_free(state->units[mode], TRUE);
	g_free(state);
	return done;
}
