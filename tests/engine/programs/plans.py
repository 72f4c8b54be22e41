"""plans.py DATABASE [PLAN SECONDS OPTIONS]: executes a statement with a plan, or one of the corpus, over and over.

Without PLAN it only creates what the statements need; with "create", the database, too. OPTIONS are the session's; "off": none. First prints the id of the
thread that executes, at the end JSON: how often it was executed. What it does is undone each time. SECONDS "asked": until its
input ends, and at each line of that it prints the count so far.
"""

import select
import sys
import threading
import time

from client import Client, connect, create, execute_script, program
import corpus

SETUP = """
create table a (id integer not null primary key, b integer, c varchar(20))
^
create table d (id integer not null primary key, a integer, t varchar(20))
^
create index d_a on d (a)
^
execute block as declare i integer = 0; begin
  while (i < 3000) do begin
    insert into a values (:i, mod(:i, 50), 'x' || mod(:i, 5));
    insert into d values (:i, mod(:i, 200), 'y' || :i);
    i = i + 1;
  end
end
^
create function f (n integer) returns integer as
declare r integer;
begin
  select count(*) from d where a = :n and t > 'y1' into r;
  return r;
end
^
create procedure p (n integer) returns (x integer) as
begin
  for select id from a where b + 0 = :n order by c into x do suspend;
end
^
"""

PLANS = {
    'join': 'select first 5 skip 1 z.b, count(*), sum(char_length(d.t)) from a join d on d.a + 0 = a.id + 0'
            ' left join a z on z.id = d.id where a.b < 45 group by z.b order by 2 desc',
    'subqueries': 'select a.id, (select count(*) from d where d.a = a.b) from a where exists'
                  " (select 1 from d q where q.id + 0 = a.id and q.t > 'y') and a.id < 60",
    'window': 'select id, row_number() over (order by b), sum(id) over (partition by c) from a union all'
              ' select distinct id, a, char_length(t) from d where t starting with \'y1\'',
    'recursive': 'with recursive t as (select id, b from a where id = 0 union all'
                 ' select a.id, a.b from t join a on a.id = t.id + 3) select count(*) from t cross join'
                 ' (select first 30 id from d) k',
    'calls': 'select sum(f(a.b)) from a join p(7) on p.x = a.id',
    'cursor': 'execute block returns (n integer) as declare x integer; begin n = 0;'
              ' for select a.id from a where a.c <> \'x1\' order by a.c into x do'
              ' n = n + (select count(*) from d where d.a = :x); suspend; end',
}


def main(database, plan=None, seconds='0', options='off'):
    if plan == 'create':
        create(database)
    if plan in (None, 'create'):
        connection = connect(database)
        execute_script(connection, SETUP)
        if plan is None:  # else it may be an older engine's
            execute_script(connection, corpus.SETUP)
        connection.close()
        return 0
    client = Client(database)
    print(threading.get_native_id(), flush=True)
    if options != 'off':
        client.start_session(plan, options)
    cursor = client.connection.cursor()
    statement = cursor.prepare((PLANS | corpus.CORPUS)[plan])
    end = time.monotonic() + (1e9 if seconds == 'asked' else float(seconds))
    count = 0
    while time.monotonic() < end:
        cursor.execute(statement)
        cursor.fetchall()
        client.rollback()
        count += 1
        if seconds == 'asked' and select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                break
            print(count, flush=True)
    cursor.close()
    statement.free()
    if options != 'off':
        client.finish_session()
    client.close()
    return count


if __name__ == '__main__':
    program(main)
