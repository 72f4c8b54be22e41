/*
 * Record sources: see calibration_plan.h.  Two workloads on databases of their own, with all kinds of plans;
 * several record sources for each way in which the engine executes one.
 */
#include "calibration_plan.h"

#include "engine_module.h"
#include "oracle_plan.h"

#include <glib.h>

#define OWNER	       "SYSDBA"
#define VERIFIED_LEAST 2000 /* events */

static const char *const definitions[] = {
	"create table a (id integer not null primary key, b integer, c varchar(20))",
	"create table d (id integer not null primary key, a integer, t varchar(20))",
	"create index d_a on d (a)",
	"create index a_b on a (b, id)",
	"create global temporary table g (id integer) on commit preserve rows",
	"create view v as select a.b, count(*) n from a left join d on d.a = a.id group by a.b",

	"execute block as declare i integer = 0; begin\n"
	"  while (i < 60) do begin\n"
	"    insert into a values (:i, mod(:i, 7), 'x' || mod(:i, 5));\n"
	"    insert into d values (:i, mod(:i, 20), 'y' || :i);\n"
	"    i = i + 1;\n"
	"  end\n"
	"end",

	"create function f (n integer) returns integer as\n"
	"  declare r integer;\n"
	"begin\n"
	"  select count(*) from d where a = :n into r;\n"
	"  return r + (select count(*) from a where id < :n);\n"
	"end",

	"create procedure p (n integer) returns (x integer) as\n"
	"begin\n"
	"  for select id from a where b + 0 = :n order by c into x do\n"
	"    suspend;\n"
	"end",

	"create procedure q (n integer) returns (x integer) as\n"
	"  declare c cursor for (select id from a where b = :n);\n"
	"  declare s scroll cursor for (select id from d where a + 0 = :n order by t);\n"
	"begin\n"
	"  open c;\n"
	"  fetch c into x;\n"
	"  while (row_count > 0) do begin\n"
	"    suspend;\n"
	"    fetch c into x;\n"
	"  end\n"
	"  close c;\n"
	"  open s;\n"
	"  fetch last from s into x;\n"
	"  suspend;\n"
	"  fetch prior from s into x;\n"
	"  fetch first from s into x;\n"
	"  fetch relative 1 from s into x;\n"
	"  suspend;\n"
	"  close s;\n"
	"  if (n > 0) then\n"
	"    for select x from q(:n - 1) into x do\n"
	"      suspend;\n"
	"end",

	"create procedure r (n integer) as\n"
	"  declare m integer;\n"
	"  declare s1 scroll cursor for (select id from a where b = :n);\n"
	"  declare s2 scroll cursor for (select id from d where a = :n order by t);\n"
	"  declare s3 scroll cursor for (select count(*) i from a union all select id from d);\n"
	"begin\n"
	"  open s1;\n"
	"  fetch absolute 3 from s1 into m;\n"
	"  fetch relative -1 from s1 into m;\n"
	"  open s2;\n"
	"  fetch absolute 3 from s2 into m;\n"
	"  fetch relative -1 from s2 into m;\n"
	"  open s3;\n"
	"  fetch absolute 3 from s3 into m;\n"
	"  fetch relative -1 from s3 into m;\n"
	"  close s1;\n"
	"  close s2;\n"
	"  close s3;\n"
	"  m = (select max(id) from a where b = :n) + f(n);\n"
	"  update d set t = 'z' || :m\n"
	"    where a = :n and exists (select 1 from a where a.id = d.a and a.b > 0);\n"
	"  delete from d where id < 0;\n"
	"  merge into g using (select id from a where b = :n) s on g.id = s.id\n"
	"    when matched then update set id = s.id\n"
	"    when not matched then insert values (s.id);\n"
	"end",
	NULL
};

#define BLOCK(query) \
	"execute block as declare n bigint; begin for " query " into n do begin end end"

static const char *const learning[] = {
	BLOCK("select first 5 skip 1 count(*) + sum(f(a.b)) from a join d on d.a = a.id left join a "
	      "a_name_that_is_longer_than_a_short_text on "
	      "a_name_that_is_longer_than_a_short_text.id + 0 = d.id where a.b < 5 group by a.b "
	      "order by 1 desc"),
	BLOCK("select x + (select count(*) from d where d.a + 0 = x) + (select max(id) from d "
	      "where d.a = x) from p(3)"),
	BLOCK("select sum(id) over (partition by b) + row_number() over (order by b) from a where "
	      "exists (select 1 from d where d.a = a.id) union all select id from d where id in "
	      "(1, 5, 7)"),
	BLOCK("with recursive t as (select id from a where id = 1 union all select a.id from t "
	      "join a on a.id = t.id + 1 where a.id < 20) select id from t"),
	BLOCK("select count(*) from a full join d on d.id + 0 = a.id + 5"),
	BLOCK("select distinct b from a where id > 3 and b in (select a from d where id > 3)"),
	BLOCK("select v.n + coalesce(q.x, 0) from v left join q(v.b) q on 1 = 1 where v.b < 3"),
	BLOCK("select count(*) from a join d on a.c || 1 = d.t || 1"),
	BLOCK("select a.id from a where b = 3 or id = 5 or id between 7 and 9 order by id"),
	BLOCK("select id from a where id = 3 union select id from d where id = 4"),
	BLOCK("select id from a order by id rows 3"),
	BLOCK("select id from d where a = 2 order by a, t with lock"),
	BLOCK("select a.id from mon$attachments cross join a"),
	BLOCK("select count(*) from (select first 10 id from d order by t) x join g on g.id = x.id"),
	BLOCK("select first 3 id from a where a.b = any (select a from d) and a.b <> all (select b "
	      "from a where id < 0)"),
	"execute block as begin execute procedure r(1); execute procedure r(2); end",
	"execute block as declare x integer; declare c cursor for (select id from a where b = 3);\n"
	"begin\n"
	"  open c; fetch c into x; close c;\n"
	"  for execute statement ('select count(*) from d where a = ?') (3) into x do begin end\n"
	"  for select id from d where a = 3 into x as cursor k do\n"
	"    update d set t = t where current of k;\n"
	"end",
	NULL
};

static const char *const verifying[] = {
	BLOCK("select first 7 max(f(z.b)) from d left join a z on z.id = d.a join a "
	      "a_name_that_is_longer_than_a_short_text on "
	      "a_name_that_is_longer_than_a_short_text.id = d.id + 0 group by z.b order by 1"),
	BLOCK("select x * (select min(id) from d where a + 0 = x) from p(1) where exists (select 1 "
	      "from d q where q.id = x)"),
	BLOCK("select rank() over (order by c desc) + count(*) over (partition by c) from a where "
	      "b + 0 < 4 union all select a from d where a between 3 and 5"),
	BLOCK("with recursive deeper as (select id, a from d where id = 40 union all select d.id, "
	      "d.a from d join deeper on d.id = deeper.id - 2) select a from deeper"),
	BLOCK("select count(*) from d full join (select id + 1 i from a) x on x.i = d.id + 0"),
	BLOCK("select b from a group by b having count(*) > (select count(*) from d where d.a = "
	      "a.b)"),
	BLOCK("select q.x from a left join q(a.b) q on q.x > 10 where a.id < 4"),
	BLOCK("select sum(a.id) from d join a on a.b + 0 = d.a + 0 join v on v.b + 0 = a.b + 0"),
	BLOCK("select id from d where a = 3 or a = 4 order by id desc rows 2 to 5"),
	BLOCK("select count(*) from mon$statements, d where d.id < 3"),
	BLOCK("select distinct a from d where id < 9 union select b from a order by 1"),
	BLOCK("select id from d where id in (5, 6) with lock"),
	BLOCK("select d.id from d join a on a.id = d.id where :n is null or a.b = :n"),
	BLOCK("select 2 * x from q(4)"),
	BLOCK("select (select first 1 skip 2 id from d where d.a = a.b order by t) from a where id "
	      "in (select id from d where t > 'y')"),
	"execute block as declare i integer = 3;\n"
	"begin\n"
	"  while (i > 0) do begin\n"
	"    execute procedure r(:i);\n"
	"    i = i - 1;\n"
	"    in autonomous transaction do\n"
	"      update a set c = c where id = (select max(id) from d);\n"
	"  end\n"
	"end",
	"execute block as declare x integer;\n"
	"  declare c cursor for (select max(id) i from a group by b);\n"
	"begin\n"
	"  open c;\n"
	"  fetch c into x;\n"
	"  fetch c into x;\n"
	"  close c;\n"
	"  begin\n"
	"    for select id from a order by c into x do\n"
	"      if (x = 3) then x = 1 / (x - 3);\n"
	"  when any do\n"
	"    x = (select count(*) from d);\n"
	"  end\n"
	"  execute statement 'update d set t = upper(t) where a = 5';\n"
	"end",
	NULL
};

#define START_SESSION                                     \
	"execute block as declare id bigint; begin id = " \
	"rdb$profiler.start_session('calibration', null, null, '" ORACLE_PLAN "'); end"
#define FINISH_SESSION "execute procedure rdb$profiler.finish_session"

/* A workload on a fresh database, whose events the learner is told. */
static bool run(const struct client *client, const char *directory, const char *name,
		const char *const *statements, struct learn_plan *learn, char **error)
{
	struct client_attachment attachment = { .client = client };
	char *path = g_strdup_printf("%s/%s.fdb", directory, name);
	bool done = client_create_database(client, &attachment, path, OWNER, error) &&
		    client_execute_all(&attachment, definitions, error) &&
		    client_execute(&attachment, START_SESSION, error);

	if (done) {
		oracle_plan_watch(learn);
		done = client_execute_all(&attachment, statements, error);
		oracle_plan_watch(NULL);
		done = done && client_execute(&attachment, FINISH_SESSION, error);
	}
	client_detach(&attachment);
	g_free(path);
	return done;
}

static bool learn_and_verify(const struct client *client, const char *directory,
			     struct learn_plan *learn, struct layout *layout, char **error)
{
	char sentence[LAYOUT_ERROR_SIZE];
	struct layout learnt = *layout;
	uint64_t verified = 0;

	if (!run(client, directory, "plans_learning", learning, learn, error))
		return false;
	if (learn_plan_settle(learn, sentence) &&
	    !run(client, directory, "plans_verifying", verifying, learn, error))
		return false;
	if (!learn_plan_result(learn, &learnt, &verified, sentence)) {
		*error = g_strdup(sentence);
		return false;
	}
	if (verified < VERIFIED_LEAST) {
		*error = g_strdup_printf("there were only %" G_GUINT64_FORMAT " events of %d",
					 verified, VERIFIED_LEAST);
		return false;
	}
	*layout = learnt;
	return true;
}

bool calibrate_plan(const struct client *client, const char *engine, const char *directory,
		    struct layout *layout, char **error)
{
	struct engine_module module;
	char sentence[LAYOUT_ERROR_SIZE];
	struct learn_plan *learn;
	bool done;

	engine_module_find(engine, &module);
	learn = learn_plan_new(module.code, sentence);
	if (!learn) {
		*error = g_strdup(sentence);
		return false;
	}
	done = learn_and_verify(client, directory, learn, layout, error);
	learn_plan_free(learn);
	return done;
}
