/*
 * Stacks: see calibration_stacks.h.  The executing thread is stopped by a signal, whose handler copies its stack and
 * waits while the other thread reads its requests: this process is ours, and so are its signals.
 */
#include "calibration_stacks.h"

#include "../passive/learn_steps.h"
#include "../passive/memory.h"
#include "engine_module.h"

#include <glib.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define OWNER	       "SYSDBA"
#define SAMPLES	       120 /* of a statement */
#define INTERVAL_US    1000
#define PATIENCE_US    2000000
#define REQUESTS_MAX   64
#define VERIFIED_LEAST 300 /* stacks */

static const char *const definitions[] = {
	"create table a (id integer not null primary key, b integer, c varchar(20))",
	"create table d (id integer not null primary key, a integer, t varchar(20))",
	"create index d_a on d (a)",
	"execute block as declare i integer = 0; begin\n"
	"  while (i < 2000) do begin\n"
	"    insert into a values (:i, mod(:i, 50), 'x' || mod(:i, 5));\n"
	"    insert into d values (:i, mod(:i, 200), 'y' || :i);\n"
	"    i = i + 1;\n"
	"  end\n"
	"end",
	"create procedure p (n integer) returns (x integer) as\n"
	"begin\n"
	"  x = 0;\n"
	"  while (x < n) do begin\n"
	"    x = x + 1;\n"
	"    suspend;\n"
	"  end\n"
	"end",
	"create procedure q (n integer) returns (x integer) as\n"
	"begin\n"
	"  execute procedure p(n) returning_values x;\n"
	"  suspend;\n"
	"end",
	NULL
};

/*
 * Each step is in another set of statements than the others.  Not here: unique sorts, as they are done by the same
 * class as others; windows, as classes that have no step of their own take part in them.
 */
static const char *const learning[] = {
	"select id from a",
	"select count(*) from a",
	"select count(*) from a cross join (select id from d rows 20) x",
	"select id from a where b + 0 = 3",
	"select id from d order by t",
	"select first 1900 id from a",
	"select skip 3 id from a",
	"select id from a union all select id from d",
	"select count(*) from d where a between 5 and 150",
	"select id from a order by id",
	"select count(*) from a join d on a.c || 1 = d.t || 1",
	"with recursive r as (select id from a where id = 1 union all select a.id from r join a on "
	"a.id = r.id + 1 where a.id < 300) select id from r",
	"select count(*) from a full join d on d.id = a.id + 5 and d.a = a.b",
	"select d.id from d left join a on a.id + 0 = d.a and d.id > 1990",
	"select x from p(3000)",
	"select max((select max(d.id) from d where d.a = a.b)) from a where id < 200",
	NULL
};

static const char *const verifying[] = {
	"select first 700 count(*) from a the_alias where id > 5 group by b order by 1",
	"select count(*) from a join d on d.a = a.b and d.id + 0 > a.id",
	"select d.t from d left join a on a.id = d.a order by d.t",
	"select count(*) from p(500) join d on d.id + 0 = p.x + 3 group by p.x",
	"select id from a where c = 'x1' union all select sum(id) from d group by a",
	"select id + (select max(id) from d where d.a = the_other_one.b) from a the_other_one where b < 30",
	"select first 100 skip 10 id from a order by c",
	"select count(*) from d by_index where a between 7 and 160",
	"select count(*) from a in_full where b + 0 < 40",
	"select count(*) from d join a on a.c || 'y' = d.t || 'x' where a.id > 7",
	"with recursive r as (select id, a from d where id = 3 union all select d.id, d.a from r join "
	"d on d.id = r.id + 2 where d.id < 500) select a from r",
	"select count(*) from (select id from a where b < 9) x full join d on d.id = x.id",
	NULL
};

/* ---- The signal ---- */

enum {
	RUNNING,
	ASKED,
	COPYING,
	STOPPED,
};

static struct {
	_Atomic int state;
	struct stack_sample sample;
} taken;

static void stop_here(int number, siginfo_t *info, void *context)
{
	int asked = ASKED;

	(void)number;
	(void)info;
	/* It may come when nobody waits for it any more. */
	if (!atomic_compare_exchange_strong(&taken.state, &asked, COPYING))
		return;
	stack_of_context(context, &taken.sample);
	atomic_store(&taken.state, STOPPED);
	while (atomic_load(&taken.state) == STOPPED)
		sched_yield();
}

/* ---- The thread that executes ---- */

struct worker {
	const struct client *client;
	const char *engine, *path;
	GThread *thread;
	pid_t id;
	uint64_t tls;
	const char *_Atomic sql; /* NULL: it is to end */
	_Atomic unsigned executed;
	_Atomic bool ready, ended;
	char *error;
};

struct turn {
	struct worker *worker;
	const char *sql;
	bool begun;
};

/* Counts what has been executed. */
static bool goes_on(void *context)
{
	struct turn *turn = context;

	if (turn->begun)
		atomic_fetch_add(&turn->worker->executed, 1);
	turn->begun = true;
	return atomic_load(&turn->worker->sql) == turn->sql;
}

static gpointer work(gpointer data)
{
	struct worker *worker = data;
	struct client_attachment attachment = { .client = worker->client };
	struct engine_module module;
	bool done = client_attach(worker->client, &attachment, worker->path, OWNER, &worker->error);
	const char *sql;

	engine_module_find(worker->engine, &module);
	worker->tls = module.tls;
	worker->id = gettid();
	atomic_store(&worker->ready, true);
	while (done && (sql = atomic_load(&worker->sql))) {
		char *block_sql = g_strdup_printf("execute block as declare n varchar(100); begin "
						  "for %s into n do begin end end",
						  sql);

		done = client_repeat(&attachment, block_sql, goes_on,
				     &(struct turn){ .worker = worker, .sql = sql },
				     &worker->error);
		g_free(block_sql);
	}
	atomic_store(&worker->ended, true);
	client_detach(&attachment);
	return NULL;
}

static bool start_worker(struct worker *worker)
{
	worker->thread = g_thread_new("worker", work, worker);
	while (!atomic_load(&worker->ready))
		g_usleep(INTERVAL_US);
	return worker->tls != 0;
}

static void end_worker(struct worker *worker)
{
	atomic_store(&worker->sql, NULL);
	g_thread_join(worker->thread);
}

/* ---- Samples ---- */

/* Where a path of pointers leads; 0: nowhere. */
static uint64_t follow(const struct layout_path *path, uint64_t address)
{
	address += (uint64_t)(int64_t)path->offset[0];
	for (uint32_t i = 1; i < path->steps && address; i++) {
		if (!memory_load(getpid(), address, &address, sizeof(address)) || !address)
			return 0;
		address += (uint64_t)(int64_t)path->offset[i];
	}
	if (!memory_load(getpid(), address, &address, sizeof(address)))
		return 0;
	return address;
}

/* Innermost first. */
static uint32_t read_requests(const struct layout *layout, uint64_t tls,
			      uint64_t requests[REQUESTS_MAX])
{
	uint64_t request = follow(&layout->path[LAYOUT_REQUEST], tls);
	uint32_t count = 0;

	for (; request && count < REQUESTS_MAX; count++) {
		requests[count] = request;
		request = follow(&layout->path[LAYOUT_CALLER], request);
	}
	return count;
}

/* Nothing is allocated while the thread is stopped: it may be in the midst of that. */
static bool take(const struct worker *worker, const struct layout *layout,
		 uint64_t requests[REQUESTS_MAX], uint32_t *count)
{
	atomic_store(&taken.state, ASKED);
	if (tgkill(getpid(), worker->id, SIGUSR2) != 0)
		return false;
	for (unsigned waited = 0; atomic_load(&taken.state) != STOPPED; waited++) {
		int asked = ASKED;

		if ((waited > PATIENCE_US / 10 || atomic_load(&worker->ended)) &&
		    atomic_compare_exchange_strong(&taken.state, &asked, RUNNING))
			return false;
		g_usleep(10);
	}
	*count = read_requests(layout, worker->tls, requests);
	atomic_store(&taken.state, RUNNING);
	return true;
}

static bool sample_statement(struct worker *worker, const struct layout *layout,
			     struct learn_steps *learn, const char *sql)
{
	unsigned executed = atomic_load(&worker->executed);
	uint64_t requests[REQUESTS_MAX];
	uint32_t count;

	atomic_store(&worker->sql, sql);
	/* The one that was executed before may still be; and this one is compiled first. */
	while (atomic_load(&worker->executed) < executed + 2 && !atomic_load(&worker->ended))
		g_usleep(INTERVAL_US);
	for (unsigned i = 0; i < SAMPLES; i++) {
		g_usleep((gulong)g_random_int_range(INTERVAL_US / 2, INTERVAL_US * 3 / 2));
		if (!take(worker, layout, requests, &count))
			return false;
		learn_steps_sample(learn, &taken.sample, requests, count);
	}
	return true;
}

static bool sample_all(struct worker *worker, struct client_attachment *attachment,
		       const struct layout *layout, struct learn_steps *learn,
		       const char *const *statements, char **error)
{
	for (; *statements; statements++) {
		char *plan = client_explain(attachment, *statements, error);

		if (!plan)
			return false;
		learn_steps_begin(learn, plan);
		g_free(plan);
		if (!sample_statement(worker, layout, learn, *statements)) {
			*error = worker->error ? g_strdup(worker->error) :
						 g_strdup("the thread that executes is stuck");
			return false;
		}
	}
	return true;
}

/* ---- The whole ---- */

static bool judge(const struct learn_steps *learn, struct layout *layout, char **error)
{
	char sentence[LAYOUT_ERROR_SIZE];
	struct layout learnt = *layout;
	uint64_t verified = 0;

	if (!learn_steps_result(learn, &learnt, &verified, sentence)) {
		*error = g_strdup(sentence);
		return false;
	}
	if (verified < VERIFIED_LEAST) {
		*error = g_strdup_printf("there were only %" G_GUINT64_FORMAT " stacks of %d",
					 verified, VERIFIED_LEAST);
		return false;
	}
	*layout = learnt;
	return true;
}

static bool learn_and_verify(struct worker *worker, struct client_attachment *attachment,
			     struct layout *layout, char **error)
{
	struct engine_module module;
	char sentence[LAYOUT_ERROR_SIZE];
	struct learn_steps *learn;
	bool done;

	engine_module_find(worker->engine, &module);
	learn = learn_steps_new(module.code, sentence);
	if (!learn) {
		*error = g_strdup(sentence);
		return false;
	}
	atomic_store(&worker->sql, learning[0]);
	done = start_worker(worker) &&
	       sample_all(worker, attachment, layout, learn, learning, error);
	learn_steps_settle(learn);
	done = done && sample_all(worker, attachment, layout, learn, verifying, error) &&
	       judge(learn, layout, error);
	end_worker(worker);
	learn_steps_free(learn);
	return done;
}

bool calibrate_stacks(const struct client *client, const char *engine, const char *directory,
		      struct layout *layout, char **error)
{
	struct sigaction action = { .sa_sigaction = stop_here,
				    .sa_flags = SA_SIGINFO | SA_RESTART };
	struct client_attachment attachment = { .client = client };
	char *path = g_strdup_printf("%s/stacks.fdb", directory);
	struct worker worker = { .client = client, .engine = engine, .path = path };
	bool done;

	*error = NULL;
	sigaction(SIGUSR2, &action, NULL);
	done = client_create_database(client, &attachment, path, OWNER, error) &&
	       client_execute_all(&attachment, definitions, error) &&
	       learn_and_verify(&worker, &attachment, layout, error);
	if (!done && !*error)
		*error = g_strdup(worker.error ? worker.error : "nothing could be executed");
	g_free(worker.error);
	client_detach(&attachment);
	g_free(path);
	return done;
}
