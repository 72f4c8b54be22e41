"""plans.py DATABASE [SESSION...]: statements with all kinds of plans, once for each SESSION (its PLUGIN_OPTIONS; "-" for
NULL, "off" for none), every time with texts of their own. Prints how many rows they had."""

from client import Client, execute_script, program

SETUP = """
create table a (id integer not null primary key, b integer, c varchar(20))
^
create table d (id integer not null primary key, a integer, t varchar(20))
^
create index d_a on d (a)
^
create index a_b on a (b, id)
^
execute block as declare i integer = 0; begin
  while (i < 60) do begin
    insert into a values (:i, mod(:i, 7), 'x' || mod(:i, 5));
    insert into d values (:i, mod(:i, 20), 'y' || :i);
    i = i + 1;
  end
end
^
create global temporary table g (id integer) on commit preserve rows
^
create function f (n integer) returns integer as
declare r integer;
begin
  select count(*) from d where a = :n into r;
  r = r + (select count(*) from a where id < :n);
  return r;
end
^
create procedure p (n integer) returns (x integer) as
begin
  for select id from a where b + 0 = :n order by c into x do suspend;
end
^
create procedure q (n integer) returns (x integer) as
declare c cursor for (select id from a where b = :n);
declare s scroll cursor for (select id from d where a + 0 = :n order by t);
begin
  open c;
  fetch c into x;
  while (row_count > 0) do begin
    suspend;
    fetch c into x;
  end
  close c;
  open s;
  fetch last from s into x;
  suspend;
  fetch prior from s into x;
  fetch first from s into x;
  fetch absolute 2 from s into x;
  fetch relative 1 from s into x;
  suspend;
  close s;
  if (n > 0) then
    for select x from q(:n - 1) into x do suspend;
end
^
create procedure r (n integer) as
declare m integer;
declare s1 scroll cursor for (select id from a where b = :n);
declare s2 scroll cursor for (select id from d where a = :n order by t);
declare s3 scroll cursor for (select count(*) n from a union all select id from d);
begin
  open s1;
  fetch absolute 3 from s1 into m;
  fetch relative -1 from s1 into m;
  open s2;
  fetch absolute 3 from s2 into m;
  fetch relative -1 from s2 into m;
  open s3;
  fetch absolute 3 from s3 into m;
  fetch relative -1 from s3 into m;
  close s1;
  close s2;
  close s3;
  m = (select max(id) from a where b = :n) + f(n);
  update d set t = 'z' || :m where a = :n and exists (select 1 from a where a.id = d.a and a.b > 0);
  delete from d where id < 0;
  merge into g using (select id from a where b = :n) s on g.id = s.id
    when matched then update set id = s.id when not matched then insert values (s.id);
  when any do m = 0;
end
^
create view v as select a.b, count(*) n from a left join d on d.a = a.id group by a.b
^
"""

QUERIES = (
    'select first 5 skip 1 a.b, count(*), sum(f(a.b)) from a join d on d.a = a.id'
    ' left join a a_name_that_is_quite_long_as_an_alias on a_name_that_is_quite_long_as_an_alias.id + 0 = d.id where a.b < 5 group by a.b order by 2 desc',
    'select x, (select count(*) from d where d.a + 0 = x), (select max(t) from d where d.a = x) from p(3)',
    'select id, row_number() over (order by b), sum(id) over (partition by b) from a'
    ' where exists (select 1 from d where d.a = a.id) union all select id, 0, 0 from d where id in (1, 5, 7)',
    'with recursive t as (select id, b from a where id = 1 union all'
    ' select a.id, a.b from t join a on a.id = t.id + 1 where a.id < 20) select * from t',
    'select count(*) from a full join d on d.id + 0 = a.id + 5',
    'select distinct c from a where id > 3 and b in (select a from d where id > 3)',
    'select v.b, v.n, q.x from v left join q(v.b) q on 1 = 1 where v.b < 3',
    'select count(*) from a join d on a.c || 1 = d.t || 1',
    'select a.id from a where b = 3 or id = 5 or id between 7 and 9 order by id',
    'select * from a where id = 3 union select * from d where id = 4',
    'select id from a order by id desc rows 3',
    'select id from d where a = 2 order by a, t for update with lock',
    'select a.rdb$db_key, mon$user from mon$attachments cross join a',
    'select count(*) from (select first 10 id from d order by t) x join g on g.id = x.id',
    'select list(c) from (select distinct c from a order by c)',
    'select first 3 id from a where a.b = any (select a from d) and a.b <> all (select b from a where id < 0)',
)

BLOCKS = (
    'execute block (n integer = ?) as begin execute procedure r(n); execute procedure r(n + 1); end',
    'execute block (n integer = ?) returns (x integer) as declare c cursor for (select id from a where b = :n);'
    ' begin open c; fetch c into x; suspend; close c;'
    " for execute statement ('select count(*) from d where a = ?') (n) into x do suspend;"
    ' for select id from d where a = :n into x as cursor k do update d set t = t where current of k; end',
)


def run_all(client: Client, comment: str) -> int:
    rows = 0
    for query in QUERIES:
        rows += len(client.run(f'{query} /* {comment} */'))
    for block in BLOCKS:
        for n in range(4):
            rows += len(client.run(f'{block} /* {comment} */', n))
    scrolled = client.open(f'select id from a order by c /* {comment} */', scrollable=True)
    rows += len([scrolled.move('last'), scrolled.move('absolute', 4), scrolled.move('relative', -2)])
    scrolled.close()
    return rows


def main(database, *sessions):
    client = Client(database)
    execute_script(client.connection, SETUP)
    rows = []
    for i, options in enumerate(sessions):
        if options != 'off':
            client.start_session(None, None if options == '-' else options)
        rows.append(run_all(client, f'{i}'))
        if options != 'off':
            client.finish_session()
        client.commit()
    client.close()
    return rows


if __name__ == '__main__':
    program(main)
