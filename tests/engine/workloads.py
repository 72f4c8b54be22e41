"""The corpus: what Firebird can execute, one construct or plan a workload, deterministic in every row and id.

A workload is a function that gets a client.Client whose session has been started (unless own_sessions)
and whose docstring is not needed: its name says what it exercises. `setup` is DDL and data, run before
by another attachment; statements end in a line with a lone ^. Workloads read no system table that the
stock plugin changes when it creates its own tables (rdb$relations and its kin): rdb$database and
rdb$types are safe.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass
class Workload:
    name: str
    body: Callable
    setup: str
    charset: str
    own_sessions: bool


WORKLOADS: dict[str, Workload] = {}


def workload(setup: str = '', charset: str = 'UTF8', own_sessions: bool = False):
    def register(body):
        assert body.__name__ not in WORKLOADS
        WORKLOADS[body.__name__] = Workload(body.__name__, body, setup, charset, own_sessions)
        return body
    return register


BASE = """
create table dept (id integer not null primary key, name varchar(30) not null)
^
create table emp (id integer not null primary key, dept_id integer references dept,
  boss_id integer, name varchar(40), salary numeric(10, 2), grade integer)
^
create table num (n integer not null primary key)
^
create table heap (a integer, b integer, c varchar(20))
^
create table journal (what varchar(80), n integer)
^
create exception oops 'Oops'
^
create exception fine 'All is fine'
^
create sequence seq
^
execute block as
  declare i integer = 0;
begin
  while (i < 10) do
  begin
    insert into dept values (:i, 'Department ' || :i);
    i = i + 1;
  end
  i = 0;
  while (i < 200) do
  begin
    insert into emp values (:i, mod(:i, 9), iif(:i = 0, null, :i / 3), 'Employee ' || mod(:i * 7, 200),
      1000 + mod(:i * 37, 501), mod(:i, 5));
    i = i + 1;
  end
  i = 0;
  while (i < 500) do
  begin
    insert into num values (:i);
    i = i + 1;
  end
  i = 0;
  while (i < 300) do
  begin
    insert into heap values (:i, mod(:i * 13, 50), 'c' || mod(:i, 17));
    i = i + 1;
  end
end
^
create index emp_grade on emp (grade)
^
create index emp_boss on emp (boss_id)
^
create descending index emp_salary on emp (salary)
^
"""


# PSQL: control flow ------------------------------------------------------------------------------

@workload()
def while_loop_if_and_case(c):
    c.run("""execute block returns (total integer, odd integer, text varchar(100)) as
  declare i integer = 0;
begin
  total = 0;
  odd = 0;
  text = '';
  while (i < 100) do
  begin
    if (mod(i, 2) = 1) then
      odd = odd + 1;
    else if (mod(i, 3) = 0) then
      total = total + case mod(i, 4) when 0 then 10 when 2 then 20 else 30 end;
    else
    begin
      total = total + iif(i > 50, 1, 2);
      text = left(text || i, 20);
    end
    i = i + 1;
  end
  suspend;
end""")


@workload()
def statements_on_one_line(c):
    c.run('execute block returns (x integer) as declare i integer = 0; begin x = 0; '
          'while (i < 50) do begin x = x + i; i = i + 1; end suspend; x = -1; suspend; end')


@workload()
def leave_and_continue_with_labels(c):
    c.run("""execute block returns (n integer) as
  declare i integer = 0;
  declare j integer;
begin
  n = 0;
  outer_loop:
  while (i < 20) do
  begin
    i = i + 1;
    j = 0;
    inner_loop:
    while (true) do
    begin
      j = j + 1;
      if (j = 3 and mod(i, 2) = 0) then
        continue outer_loop;
      if (j > 5) then
        leave;
      if (i = 15) then
        leave outer_loop;
      if (mod(j, 2) = 0) then
        continue;
      n = n + 1;
    end
  end
  suspend;
end""")


@workload("""
create procedure early (n integer) returns (x integer) as
begin
  x = n;
  if (n > 3) then
    exit;
  x = -n;
  suspend;
end
^
""")
def exit_from_procedure_and_block(c):
    c.run("""execute block returns (s integer) as
  declare i integer = 0;
  declare x integer;
begin
  s = 0;
  while (true) do
  begin
    execute procedure early(i) returning_values x;
    s = s + x;
    i = i + 1;
    if (i = 8) then
    begin
      suspend;
      exit;
    end
  end
  s = 0;
end""")
    for n in (2, 5):
        c.run('select * from early(?)', n)


@workload()
def block_with_parameters(c):
    sql = """execute block (a integer = ?, b varchar(10) = ?) returns (x integer, y varchar(30)) as
begin
  while (a > 0) do
  begin
    x = a;
    y = b || a;
    suspend;
    a = a - 1;
  end
end"""
    c.run(sql, 3, 'abc')
    c.run(sql, 5, 'd')


@workload()
def block_without_result(c):
    c.run('execute block as declare i integer = 0;\nbegin\n  while (i < 10) do\n    i = i + 1;\nend')


@workload()
def empty_block(c):
    c.run('execute block as begin end')


@workload()
def long_block_of_many_lines(c):
    lines = '\n'.join(f'  n = n + {i};' for i in range(1500))
    c.run(f'execute block returns (n integer) as\nbegin\n  n = 0;\n{lines}\n  suspend;\nend')


@workload()
def wide_columns_of_one_line(c):
    assignments = ' '.join('n = n + 1;' for _ in range(400))
    c.run(f'execute block returns (n integer) as begin n = 0; {assignments} suspend; end')


# PSQL: routines ----------------------------------------------------------------------------------

@workload("""
create procedure level3 (n integer) returns (x integer) as
begin
  x = n * 2;
end
^
create procedure level2 (n integer) returns (x integer) as
  declare i integer = 0;
  declare y integer;
begin
  x = 0;
  while (i < n) do
  begin
    execute procedure level3(i) returning_values y;
    x = x + y;
    i = i + 1;
  end
end
^
create procedure level1 (n integer) returns (x integer) as
begin
  execute procedure level2(n) returning_values x;
  execute procedure level2(n + 1) returning_values x;
end
^
""")
def nested_procedures(c):
    c.run('execute procedure level1(5)')
    c.run('execute block returns (x integer) as begin execute procedure level1(3) returning_values x; suspend; end')


@workload("""
create procedure two_outputs (a integer) returns (x integer, y varchar(20)) as
begin
  x = a + 1;
  y = 'y' || a;
end
^
""")
def execute_procedure_with_outputs(c):
    c.run('execute procedure two_outputs(?)', 7)
    c.run('execute procedure two_outputs 8')


SELECTABLE = """
create procedure numbers (low integer, high integer) returns (n integer) as
begin
  n = low;
  while (n < high) do
  begin
    suspend;
    n = n + 1;
  end
end
^
create procedure pairs (high integer) returns (a integer, b integer) as
begin
  for select n from numbers(0, :high) into a do
    for select n from numbers(:a, :high) into b do
      suspend;
end
^
"""


@workload(SELECTABLE)
def selectable_procedure_to_its_end(c):
    c.run('select * from numbers(1, 20)')
    c.run('select sum(a * b) from pairs(8)')


@workload(SELECTABLE)
def selectable_procedure_not_to_its_end(c):
    cursor = c.open('select * from numbers(1, 1000)')
    cursor.fetch(7)
    cursor.close()
    cursor = c.open('select * from pairs(10)')
    cursor.fetch(15)
    cursor.close()
    c.run('select first 3 n from numbers(1, 1000)')


@workload(SELECTABLE)
def selectable_procedure_still_open_at_the_end(c):
    c.open('select * from numbers(1, 1000)').fetch(4)
    c.open('select * from pairs(20)').fetch(30)


@workload(SELECTABLE)
def procedure_joined_with_table(c):
    c.run('select e.id, p.n from emp e left join numbers(0, e.grade) p on true where e.id < 12 order by 1, 2')
    c.run('select count(*) from num n cross join numbers(0, mod(n.n, 4)) p where n.n < 50')


@workload("""
create procedure countdown (n integer) returns (depth integer) as
begin
  depth = 0;
  if (n > 0) then
  begin
    execute procedure countdown(n - 1) returning_values depth;
    depth = depth + 1;
  end
end
^
create procedure tree (boss integer, depth integer) returns (id integer, lvl integer) as
begin
  for select id from emp where boss_id is not distinct from :boss and id < 60 order by id into id do
  begin
    lvl = depth;
    suspend;
    for select id, lvl from tree(:id, :depth + 1) into id, lvl do
      suspend;
  end
end
^
""")
def recursive_procedures(c):
    c.run('execute procedure countdown(30)')
    c.run('select * from tree(null, 0)')


@workload("""
create function fibonacci (n integer) returns bigint as
begin
  if (n < 2) then
    return n;
  return fibonacci(n - 1) + fibonacci(n - 2);
end
^
""")
def recursive_function(c):
    c.run('select fibonacci(11) from rdb$database')
    c.run('execute block returns (x bigint) as begin x = fibonacci(6); suspend; end')


@workload("""
create function plus_one (n integer) returns integer as
begin
  return n + 1;
end
^
create function is_big (n numeric(10, 2)) returns boolean deterministic as
begin
  return n > 1400;
end
^
""")
def functions_in_select_list_and_condition(c):
    c.run('select id, plus_one(grade) from emp where is_big(salary) order by plus_one(id)')
    c.run('select sum(plus_one(n)) from num where plus_one(n) < 20')


@workload("""
create package calc as
begin
  procedure walk (n integer) returns (x integer);
  function is_even (n integer) returns boolean;
  function is_odd (n integer) returns boolean;
end
^
create package body calc as
begin
  function is_even (n integer) returns boolean as
  begin
    if (n = 0) then
      return true;
    return is_odd(n - 1);
  end

  function is_odd (n integer) returns boolean as
  begin
    if (n = 0) then
      return false;
    return is_even(n - 1);
  end

  function hidden (n integer) returns integer
  as
  begin
    return n * n;
  end

  procedure walk (n integer) returns (x integer) as
    declare i integer = 0;
  begin
    while (i < n) do
    begin
      x = hidden(i);
      if (is_even(i)) then
        suspend;
      i = i + 1;
    end
  end
end
^
""")
def package_routines(c):
    c.run('select * from calc.walk(9)')
    c.run('select calc.is_odd(7), calc.is_even(4) from rdb$database')


@workload("""
create procedure with_subroutines (n integer) returns (x integer, y integer) as
  declare function square (a integer) returns integer as
  begin
    return a * a;
  end
  declare procedure halves (a integer) returns (h integer) as
  begin
    while (a > 0) do
    begin
      a = a / 2;
      h = square(a);
      suspend;
    end
  end
begin
  x = square(n);
  for select h from halves(:n) into y do
    suspend;
end
^
""")
def sub_functions_and_sub_procedures(c):
    c.run('select * from with_subroutines(20)')
    c.run("""execute block returns (s integer) as
  declare total integer = 0;
  declare function twice (a integer) returns integer as
  begin
    return a + a;
  end
  declare procedure accumulate (a integer) as
  begin
    total = total + twice(a);
  end
  declare i integer = 0;
begin
  while (i < 6) do
  begin
    execute procedure accumulate(i);
    i = i + 1;
  end
  s = total;
  suspend;
end""")


@workload("""
create procedure nothing as
begin
end
^
""")
def many_requests(c):
    c.run("""execute block as
  declare i integer = 0;
begin
  while (i < 3000) do
  begin
    execute procedure nothing;
    i = i + 1;
  end
end""")


# PSQL: triggers ----------------------------------------------------------------------------------

@workload("""
create trigger emp_before for emp before insert or update or delete position 0 as
begin
  if (inserting) then
    new.grade = coalesce(new.grade, 3);
  else if (updating) then
    new.salary = new.salary + 1;
  else
    insert into journal values ('delete', old.id);
end
^
create trigger emp_after_first for emp after insert position 1 as
begin
  insert into journal values ('first', new.id);
end
^
create trigger emp_after_second for emp after insert or update position 2 as
  declare n integer;
begin
  select count(*) from journal into n;
  insert into journal values ('second', :n);
end
^
""")
def row_triggers(c):
    c.run("insert into emp (id, name) values (1000, 'A')")
    c.run("insert into emp (id, name) select 1001 + n, 'B' from num where n < 10")
    c.run('update emp set grade = grade + 1 where id between 1000 and 1004')
    c.run('delete from emp where id > 1005')
    c.run('select * from journal')


@workload("""
create view emp_names as select id, name from emp
^
create trigger emp_names_insert for emp_names before insert as
begin
  insert into emp (id, name) values (new.id, upper(new.name));
end
^
create trigger emp_names_update for emp_names before update as
begin
  update emp set name = new.name where id = old.id;
end
^
""")
def triggers_of_a_view(c):
    c.run("insert into emp_names values (500, 'x')")
    c.run("update emp_names set name = 'y' where id between 3 and 6")
    c.run('select * from emp_names where id > 195')


@workload("""
create table visits (what varchar(30))
^
create trigger on_start on transaction start as
begin
  rdb$set_context('USER_SESSION', 'starts', 
    coalesce(cast(rdb$get_context('USER_SESSION', 'starts') as integer), 0) + 1);
end
^
create trigger on_commit on transaction commit as
begin
  if (rdb$get_context('USER_SESSION', 'counting') = '1') then
    insert into visits values ('commit');
end
^
create trigger on_rollback on transaction rollback as
begin
  rdb$set_context('USER_SESSION', 'rolled back', 1);
end
^
""")
def database_triggers(c):
    # Only from here on, since the stock plugin's own transactions fire them as well.
    c.run("execute block as begin rdb$set_context('USER_SESSION', 'counting', 1); end")
    c.run('select count(*) from num')
    c.commit()
    c.run("insert into visits values ('here')")
    c.commit()
    c.run("insert into visits values ('not here')")
    c.rollback()
    c.run('select * from visits where what = ?', 'here')


@workload("""
create table parent (id integer not null primary key, v integer check (v < 1000))
^
create table child (id integer not null primary key,
  parent_id integer references parent on delete cascade on update cascade,
  doubled computed by (parent_id * 2))
^
insert into parent select n, n from num where n < 20
^
insert into child (id, parent_id) select n, mod(n, 20) from num where n < 60
^
""")
def constraints_cascades_and_computed_columns(c):
    c.run('delete from parent where id in (3, 5)')
    c.run('update parent set id = id + 100 where id = 7')
    c.fails('update parent set v = 5000 where id = 1')
    c.fails('insert into child (id, parent_id) values (900, 900)')
    c.run('select sum(doubled), count(*) from child')


# PSQL: dynamic and autonomous --------------------------------------------------------------------

@workload()
def execute_statement_plain(c):
    c.run("""execute block returns (n integer) as
  declare i integer = 0;
begin
  while (i < 5) do
  begin
    execute statement 'select count(*) from num where n < ' || (i * 10) into n;
    suspend;
    i = i + 1;
  end
  execute statement 'insert into journal values (''dynamic'', 1)';
  execute statement 'insert into journal values (''dynamic'', 1)';
end""")


@workload()
def execute_statement_with_parameters(c):
    c.run("""execute block returns (a integer, b varchar(40)) as
  declare i integer = 0;
begin
  while (i < 6) do
  begin
    execute statement ('select id, name from emp where id = ?') (i) into a, b;
    suspend;
    execute statement ('select id, name from emp where id = :k and grade >= :g') (k := i, g := 0) into a, b;
    suspend;
    i = i + 1;
  end
end""")


@workload()
def execute_statement_in_autonomous_transaction(c):
    c.run("""execute block as
  declare i integer = 0;
begin
  while (i < 3) do
  begin
    execute statement ('insert into journal values (?, ?)') ('autonomous', i) with autonomous transaction;
    execute statement ('insert into journal values (?, ?)') ('common', i) with common transaction;
    i = i + 1;
  end
end""")
    c.rollback()
    c.run('select what, n from journal')


@workload("""
create procedure spend (n integer) as
begin
  execute statement ('insert into journal values (?, ?)') ('caller', n) with caller privileges;
end
^
create procedure outer_spend (n integer) as
begin
  execute statement ('execute procedure spend(?)') (n);
  execute statement 'execute block as begin execute procedure spend(1); end';
end
^
""")
def execute_statement_nested(c):
    c.run('execute procedure outer_spend(4)')
    c.run('execute procedure outer_spend(5)')
    c.run('select * from journal')


@workload()
def execute_statement_of_a_block_with_its_own_error(c):
    c.run("""execute block returns (x integer) as
  declare i integer = 0;
begin
  while (i < 4) do
  begin
    begin
      execute statement 'execute block as begin exception oops; end';
    when any do
      x = -1;
    end
    begin
      execute statement 'select no_such_column from emp' into x;
    when any do
      x = -2;
    end
    suspend;
    i = i + 1;
  end
end""")


@workload()
def for_execute_statement(c):
    c.run("""execute block returns (id integer, name varchar(40)) as
  declare t integer = 0;
begin
  for execute statement 'select id, name from emp where grade = 2 order by id' into id, name do
  begin
    t = t + id;
    suspend;
    if (id > 100) then
      leave;
  end
  for execute statement ('select n from num where n between ? and ?') (5, 9) into id do
    suspend;
end""")


@workload()
def autonomous_transactions(c):
    c.run("""execute block as
  declare i integer = 0;
begin
  while (i < 4) do
  begin
    in autonomous transaction do
    begin
      insert into journal values ('kept', :i);
      if (i = 2) then
        update journal set n = n + 100 where what = 'kept';
    end
    begin
      in autonomous transaction do
      begin
        insert into journal values ('lost', :i);
        exception oops;
      end
    when any do
      i = i;
    end
    i = i + 1;
  end
end""")
    c.rollback()
    c.run('select * from journal order by n')


# PSQL: cursors -----------------------------------------------------------------------------------

@workload()
def for_select(c):
    c.run("""execute block returns (total integer, best integer) as
  declare a integer;
  declare b integer;
begin
  total = 0;
  for select id, grade from emp where grade > 1 order by name into a, b do
  begin
    total = total + a;
    select max(id) from emp where boss_id = :a into best;
  end
  suspend;
end""")


@workload()
def for_select_as_cursor_and_where_current_of(c):
    c.run("""execute block returns (n integer) as
begin
  n = 0;
  for select id, grade, salary from emp where id < 40 for update as cursor e do
  begin
    if (e.grade = 0) then
      delete from emp where current of e;
    else if (e.grade < 3) then
      update emp set salary = e.salary + 10 where current of e;
    n = n + 1;
  end
  suspend;
end""")
    c.run('select sum(salary), count(*) from emp')


@workload()
def explicit_cursors(c):
    c.run("""execute block returns (a integer, b varchar(40)) as
  declare i integer = 0;
  declare e cursor for (select id, name from emp where grade = 1 order by id);
  declare d cursor for (select id, name from dept);
begin
  open e;
  fetch e into a, b;
  while (row_count = 1 and i < 10) do
  begin
    suspend;
    fetch e into a, b;
    i = i + 1;
  end
  close e;
  open d;
  while (true) do
  begin
    fetch d;
    if (row_count = 0) then
      leave;
    a = d.id;
    b = d.name;
    suspend;
  end
  close d;
  open e;
  fetch e into a, b;
  suspend;
  close e;
end""")


@workload("""
create procedure opener (n integer) returns (a integer) as
  declare e cursor for (select id from emp order by id);
begin
  open e;
  while (n > 0) do
  begin
    fetch e into a;
    n = n - 1;
  end
end
^
""")
def explicit_cursor_left_open(c):
    c.run('execute procedure opener(5)')
    c.run("""execute block returns (a integer) as
  declare e cursor for (select id from emp where grade = 4);
begin
  execute procedure opener(3) returning_values a;
  open e;
  fetch e into a;
  suspend;
  fetch e into a;
end""")


@workload()
def scrollable_cursor_in_a_block(c):
    c.run("""execute block returns (a integer) as
  declare e scroll cursor for (select id from emp where grade = 3 order by id);
begin
  open e;
  fetch last from e into a; suspend;
  fetch first from e into a; suspend;
  fetch next from e into a; suspend;
  fetch absolute 5 from e into a; suspend;
  fetch relative -2 from e into a; suspend;
  fetch prior from e into a; suspend;
  fetch absolute 500 from e into a; suspend;
  fetch prior from e into a; suspend;
  close e;
end""")


@workload()
def scrollable_cursor_of_the_client(c):
    cursor = c.open('select id, name from emp where grade = 3 order by id', scrollable=True)
    cursor.move('last')
    cursor.move('first')
    cursor.move('next')
    cursor.move('absolute', 7)
    cursor.move('relative', -3)
    cursor.move('prior')
    cursor.move('absolute', 999)
    cursor.close()


@workload()
def block_fetched_in_part(c):
    sql = """execute block returns (n integer) as
begin
  n = 0;
  while (n < 1000) do
  begin
    n = n + 1;
    suspend;
  end
end"""
    cursor = c.open(sql)
    cursor.fetch(12)
    cursor.close()
    c.open(sql).fetch(5)


@workload()
def positioned_update_from_the_client(c):
    cursor = c.open('select id, name from emp where id < 30 for update', name='CUR')
    for _ in range(6):
        cursor.fetch()
        c.run("update emp set name = name || '!' where current of CUR")
    cursor.fetch()
    c.run('delete from emp where current of CUR')
    cursor.close()
    c.run('select name from emp where id < 10')


@workload()
def interleaved_cursors(c):
    first = c.open('select id from emp where grade = 0')
    second = c.open('select n from num where mod(n, 7) = 0')
    third = c.open('execute block returns (x integer) as\nbegin\n  x = 0;\n  while (true) do\n  begin\n'
                   '    x = x + 1;\n    suspend;\n  end\nend')
    for _ in range(5):
        first.fetch(2)
        third.fetch(3)
        second.fetch(1)
        c.run('select count(*) from dept')
    second.rest()
    first.close()
    second.close()
    third.close()


# PSQL: exceptions --------------------------------------------------------------------------------

FAILING = """
create procedure fails_at (n integer) returns (x integer) as
begin
  x = 100 / (n - 3);
  if (n = 5) then
    exception oops;
  if (n = 6) then
    exception fine 'number ' || n;
  x = x + 1;
end
^
create function checked (n integer) returns integer as
  declare x integer;
begin
  execute procedure fails_at(n) returning_values x;
  return x;
end
^
"""


@workload(FAILING)
def exception_caught_in_the_same_block(c):
    c.run("""execute block returns (n integer, what varchar(20)) as
begin
  n = 0;
  while (n < 8) do
  begin
    n = n + 1;
    what = 'no';
    begin
      if (mod(n, 3) = 0) then
        exception oops;
      if (mod(n, 3) = 1) then
        exception fine;
      what = 'nothing';
    when exception oops do
      what = 'oops';
    when exception fine do
    begin
      what = 'fine';
      n = n + 0;
    end
    end
    suspend;
  end
end""")


@workload(FAILING)
def exception_caught_in_the_caller(c):
    c.run("""execute block returns (n integer, x integer) as
begin
  n = 0;
  while (n < 9) do
  begin
    n = n + 1;
    begin
      x = checked(n);
    when gdscode arith_except do
      x = -1;
    when any do
      x = -2;
    end
    suspend;
  end
end""")


@workload(FAILING)
def exception_in_a_loop_with_when_any(c):
    c.run("""execute block returns (bad integer) as
  declare i integer = 0;
  declare x integer;
begin
  bad = 0;
  while (i < 200) do
  begin
    begin
      x = 10 / mod(i, 4);
    when any do
      bad = bad + 1;
    end
    i = i + 1;
  end
  suspend;
end""")


@workload(FAILING)
def exception_raised_again(c):
    c.fails("""execute block as
  declare x integer;
begin
  begin
    x = checked(5);
  when any do
  begin
    insert into journal values ('seen', sqlcode);
    exception;
  end
  end
end""")
    c.run('select count(*) from journal')


@workload(FAILING)
def exception_not_caught(c):
    c.fails('execute block as begin\n  exception oops;\nend')
    c.fails("""execute block as
  declare i integer = 0;
begin
  while (true) do
  begin
    i = i + 1;
    if (i = 20) then
      i = 1 / 0;
  end
end""")
    c.run('select count(*) from dept')


@workload(FAILING)
def exception_not_caught_in_nested_routines(c):
    c.fails('execute procedure fails_at(3)')
    c.fails('select checked(6) from rdb$database')
    c.fails('execute block as declare x integer;\nbegin\n  x = checked(1);\n  x = checked(5);\n  x = checked(2);\nend')
    c.run('select checked(1) from rdb$database')


@workload("""
create trigger emp_refuses for emp before insert position 0 as
begin
  if (new.id > 1003) then
    exception oops;
end
^
create trigger emp_counts for emp after insert as
begin
  insert into journal values ('inserted', new.id);
end
^
""")
def exception_in_a_trigger(c):
    c.fails("insert into emp (id) select 1000 + n from num where n < 10")
    c.run("""execute block as
  declare i integer = 1000;
begin
  while (i < 1008) do
  begin
    insert into emp (id) values (:i);
    i = i + 1;
    when any do
      i = i + 1;
  end
end""")
    c.run('select count(*) from journal')


@workload("""
create procedure breaks_off (high integer) returns (n integer) as
begin
  n = 0;
  while (true) do
  begin
    n = n + 1;
    if (n > high) then
      exception oops;
    suspend;
  end
end
^
""")
def exception_between_fetches(c):
    cursor = c.open('select n from breaks_off(6)')
    cursor.fetch(6)
    c._fails(lambda: cursor.fetch(1))
    cursor.close()
    c.run("""execute block returns (n integer) as
begin
  for select n from breaks_off(4) into n do
    suspend;
  when any do
  begin
    n = -1;
    suspend;
  end
end""")


@workload()
def error_in_an_expression_of_a_plan(c):
    c.fails('select 100 / (n - 50) from num order by n')
    c.fails('select id from emp where 1 / (id - 150) > 5')
    c.run('select count(*) from num')


@workload()
def statement_executed_again_after_its_error(c):
    statement = c.prepare('select 100 / (n - cast(? as integer)) from num where n < 20')
    for divisor in (3, 200, 5, 300):
        if divisor < 20:
            statement.fails(divisor)
        else:
            statement.run(divisor)


# PSQL: data --------------------------------------------------------------------------------------

@workload()
def returning_in_a_block_and_in_dsql(c):
    c.run("""execute block returns (a integer, b numeric(10, 2)) as
begin
  insert into emp (id, salary) values (900, 5) returning id, salary into a, b;
  suspend;
  update emp set salary = salary * 2 where id = 900 returning old.salary + new.salary into b;
  suspend;
  delete from emp where id = 900 returning id into a;
  suspend;
end""")
    c.run('insert into emp (id, salary) values (901, 5) returning id, salary')
    c.run('update emp set salary = salary + 1 where id < 5 returning id, new.salary')
    c.run('delete from emp where id = 901 returning id')


@workload()
def sequences_and_context_variables(c):
    c.run("""execute block returns (n bigint) as
  declare i integer = 0;
begin
  while (i < 5) do
  begin
    n = next value for seq;
    rdb$set_context('USER_TRANSACTION', 'n', n);
    suspend;
    i = i + 1;
  end
end""")


@workload()
def blobs_and_list(c):
    c.run("select dept_id, list(name, ';') from emp where id < 40 group by dept_id")
    c.run("""execute block returns (size integer) as
  declare b blob sub_type text;
  declare i integer = 0;
begin
  b = '';
  while (i < 50) do
  begin
    b = b || 'abcdefgh';
    i = i + 1;
  end
  size = char_length(b);
  suspend;
end""")


@workload("""
create global temporary table scratch (a integer, b varchar(10)) on commit delete rows
^
""")
def temporary_table(c):
    c.run("insert into scratch select n, 'x' from num where n < 30")
    c.run('select count(*) from scratch where a > 10')


# Plans -------------------------------------------------------------------------------------------

@workload()
def full_scan_with_filter(c):
    c.run('select a, c from heap where b = 7')
    c.run("select count(*) from heap where c like '%1' and a + b > 100")


@workload()
def index_scans(c):
    c.run('select name from emp where id = 17')
    c.run('select id from emp where id between 50 and 70')
    c.run('select id from emp where grade = 2')
    c.run('select id from emp where boss_id is null')
    c.run("select count(*) from dept where id in (1, 3, 5)")
    c.run('select first 5 id from emp order by id')
    c.run('select first 5 salary from emp order by salary desc')


@workload()
def bitmap_and_or(c):
    c.run('select count(*) from emp where grade = 2 and boss_id = 9')
    c.run('select count(*) from emp where grade = 2 or boss_id = 9 or id = 4')
    c.run('select count(*) from emp where (grade = 1 or grade = 3) and salary > 1200')


@workload()
def sorts(c):
    c.run('select a, b, c from heap order by b, a desc')
    c.run('select name from emp order by name')
    c.run('select c from heap where a < 100 order by c, b')


@workload()
def hash_join(c):
    c.run('select count(*), sum(h.a) from heap h join heap g on g.b = h.b')
    c.run('select count(*) from heap h join heap g on g.b = h.b and g.c = h.c')


@workload()
def merge_join(c):
    c.run('select count(*) from heap h join heap g on g.b = h.b plan merge (sort (h natural), sort (g natural))')


@workload()
def nested_loop_join(c):
    c.run('select count(*) from emp e join dept d on d.id = e.dept_id join emp b on b.id = e.boss_id'
          ' where e.grade = 3')
    c.run('select count(*) from dept d cross join num n where n.n < 20')


@workload()
def outer_joins(c):
    c.run('select d.name, count(e.id) from dept d left join emp e on e.dept_id = d.id group by d.name')
    c.run('select count(*) from heap h full join num n on n.n = h.b where h.a < 100 or h.a is null')
    c.run('select count(*) from emp e right join num n on n.n = e.id where n.n < 250')


@workload()
def subqueries(c):
    c.run('select count(*) from dept d where exists (select 1 from emp e where e.dept_id = d.id and e.grade = 4)')
    c.run('select count(*) from dept d where not exists (select 1 from emp e where e.dept_id = d.id)')
    c.run('select count(*) from emp where dept_id in (select id from dept where id > 4)')
    c.run('select count(*) from heap where b not in (select n from num where n < 40)')
    c.run('select id, (select max(salary) from emp e where e.dept_id = d.id) from dept d')
    c.run('select count(*) from heap where a > (select avg(b) from heap)')
    c.run('select count(*) from emp where salary >= all (select salary from emp where grade = 2)')
    c.run('select count(*) from emp where salary < any (select salary from emp where grade = 2)')
    c.run('select singular_count from (select count(*) singular_count from dept d'
          ' where singular (select 1 from emp e where e.dept_id = d.id))')


@workload()
def aggregates(c):
    c.run('select count(*), min(a), max(b), avg(a), sum(b) from heap')
    c.run('select c, count(distinct b), sum(a) from heap group by c having count(*) > 17')
    c.run('select distinct b from heap')
    c.run('select grade, count(*) from emp group by grade order by 2 desc, 1')
    c.run('select max(id), min(id) from emp')


@workload()
def unions(c):
    c.run('select id from dept union select grade from emp order by 1')
    c.run('select id from dept union all select n from num where n < 15')
    c.run('select count(*) from (select a from heap union all select b from heap union all select n from num)')


@workload()
def union_of_many(c):
    c.run(' union all '.join(f'select n + {i} x from num where n = {i}' for i in range(120)))


@workload()
def recursive_cte(c):
    c.run('with recursive t (id, lvl) as (select id, 0 from emp where boss_id is null'
          ' union all select e.id, t.lvl + 1 from emp e join t on t.id = e.boss_id where e.id < 120)'
          ' select lvl, count(*) from t group by lvl')
    c.run('with recursive r (n) as (select 1 from rdb$database union all select n + 1 from r where n < 50)'
          ' select sum(n) from r')


@workload()
def window_functions(c):
    c.run('select id, sum(salary) over (partition by grade order by id), rank() over (order by salary desc)'
          ' from emp where id < 50')
    c.run('select a, lag(a) over (order by a), first_value(b) over (partition by c order by a),'
          ' ntile(4) over (order by a) from heap where a < 60')
    c.run('select id, avg(salary) over (order by id rows between 2 preceding and 2 following) from emp where id < 20')


@workload()
def first_skip_rows_offset(c):
    c.run('select first 5 skip 3 id from emp')
    c.run('select id from emp order by name rows 4 to 9')
    c.run('select id from emp order by id offset 10 rows fetch first 4 rows only')
    c.run('select count(*) from (select a from heap rows 50)')


@workload()
def derived_and_lateral_tables(c):
    c.run('select t.grade, t.total from (select grade, sum(salary) total from emp group by grade) t'
          ' where t.total > 100')
    c.run('select d.id, x.best from dept d cross join lateral'
          ' (select max(salary) best from emp e where e.dept_id = d.id) x')
    c.run('with t as (select id, grade from emp where grade > 2)'
          ' select count(*) from t a join t b on b.grade = a.grade')


@workload("""
create view rich (id, name, dept) as
  select e.id, e.name, d.name from emp e join dept d on d.id = e.dept_id where e.salary > 1300
^
""")
def view_in_a_query(c):
    c.run('select * from rich where id < 100 order by name')
    c.run('select count(*) from rich r join rich s on s.dept = r.dept')


# DML ---------------------------------------------------------------------------------------------

@workload()
def inserts(c):
    c.run("insert into journal values ('one', 1)")
    c.run("insert into journal values ('one', 1)")
    c.run('insert into journal values (?, ?)', 'two', 2)
    c.run("insert into journal select c, a from heap where a < 40")


@workload()
def updates_and_deletes(c):
    c.run('update emp set salary = salary * 1.1 where grade = 1')
    c.run('update heap set b = (select count(*) from dept) where a < 30')
    c.run('delete from heap where b > 40')
    c.run('delete from emp where id = 33')
    c.run('update or insert into dept values (3, ?) matching (id)', 'new name')
    c.run('update or insert into dept values (77, ?) matching (id)', 'seventy-seven')
    c.run('update emp set grade = grade + 1 order by id desc rows 10')


@workload("""
create table target (id integer not null primary key, name varchar(30))
^
insert into target select id, name from dept
^
""")
def merge(c):
    c.run("""merge into target d using (select n, n * 2 m from num where n between 5 and 14) s on d.id = s.n
when matched and s.m > 12 then update set name = 'merged ' || s.m
when matched then delete
when not matched then insert values (s.n, 'fresh')""")
    c.run('select * from target')


@workload()
def prepared_statements_executed_many_times(c):
    select = c.prepare('select name from emp where id = ?')
    insert = c.prepare('insert into journal values (?, ?)')
    block = c.prepare('execute block (n integer = ?) returns (m integer) as\nbegin\n  m = n * 2;\n  suspend;\nend')
    for i in range(40):
        select.run(i)
        insert.run('many', i)
        if i % 3 == 0:
            block.run(i)
    part = select.open(5)
    part.close()
    c.run('select count(*) from journal')


@workload()
def savepoints_and_transactions(c):
    c.run("insert into journal values ('a', 1)")
    c.run('savepoint sp')
    c.run("insert into journal values ('b', 2)")
    c.run('rollback to savepoint sp')
    c.run('select count(*) from journal')
    c.commit()
    c.run('select count(*) from journal')
    c.rollback()


@workload()
def ddl_inside_a_session(c):
    c.commit()  # the stock plugin has just created its tables in another transaction
    c.run('create table brand_new (x integer)')
    c.commit()
    c.run('insert into brand_new select n from num where n < 5')
    c.run('create procedure brand_new_procedure returns (n integer) as\nbegin\n'
          '  for select x from brand_new into n do\n    suspend;\nend')
    c.commit()
    c.run('select * from brand_new_procedure')
    c.run('alter procedure brand_new_procedure returns (n integer) as\nbegin\n  n = 1;\n  suspend;\nend')
    c.commit()
    c.run('select * from brand_new_procedure')


@workload()
def system_tables(c):
    c.run('select count(*) from rdb$types a join rdb$types b on b.rdb$field_name = a.rdb$field_name')
    c.run("select first 3 rdb$type_name from rdb$types where rdb$field_name = 'RDB$OBJECT_TYPE' order by rdb$type")
    c.run('select count(*) from mon$database')


# Texts -------------------------------------------------------------------------------------------

@workload("""
create table "Größe ""in"" Zöllen" ("Länge, lang" integer, "naïve
Spalte" integer)
^
insert into "Größe ""in"" Zöllen" values (1, 2)
^
create procedure "Прибавить, ""и"" ещё" ("α" integer) returns ("β" integer) as
begin
  "β" = "α" + 1;
  suspend;
end
^
create trigger "触发器" for "Größe ""in"" Zöllen" before insert as
begin
  new."Länge, lang" = new."Länge, lang" + 1;
end
^
""")
def utf8_quotes_and_newlines(c):
    c.run('select "Länge, lang", "naïve\nSpalte" from "Größe ""in"" Zöllen"')
    c.run("select 'Zeile 1\nZeile 2, mit \"Anführung\" und ''Apostroph''', '日本語', '🦉' from rdb$database")
    c.run('select * from "Прибавить, ""и"" ещё"(41)')
    c.run('insert into "Größe ""in"" Zöllen" values (5, 6)')
    c.run('''execute block returns ("ё" varchar(20)) as
  declare "курсор ""1""" cursor for (select "Länge, lang" a from "Größe ""in"" Zöllen");
  declare a integer;
begin
  open "курсор ""1""";
  fetch "курсор ""1""" into a;
  "ё" = _utf8 'ё' || a;
  suspend;
end''')


@workload()
def line_ends_tabs_and_comments(c):
    c.run('select 1\r\n  from rdb$database\r\n -- comment, with "quotes"\r\n where 1 = 1')
    c.run('select\t2 /* a\rb */ from rdb$database\n')
    c.run('  \n\n  select 3 from rdb$database  \n  ')
    c.run("execute block returns (x varchar(10)) as\r\nbegin\r\n  x = ',';\r\n\r\n  suspend;\r\n"
          "  x = '\r\n';\r\n  suspend;\r\nend")
    c.run("select '' from rdb$database")
    c.run("select ',;|\\\x01\x1b[31m' from rdb$database")


@workload(charset='WIN1252')
def another_character_set(c):
    c.run("select 'Größe €' from rdb$database")
    c.run("insert into journal values ('Ärger', 1)")
    c.run('select count(*) from journal where what = ?', 'Ärger')


@workload()
def very_long_text(c):
    numbers = ', '.join(map(str, range(1400)))
    c.run(f'select count(*) from num where n in ({numbers}) /*{"ü" * 40000}*/')


# Sessions ----------------------------------------------------------------------------------------

@workload(own_sessions=True)
def session_without_description(c):
    c.start_session()
    c.run('select count(*) from dept')
    c.finish_session()


@workload(own_sessions=True)
def session_of_odd_description(c):
    c.start_session('Quotes " \' , newline\n and ünïcödé 🦉 ' + 'x' * 200)
    c.run('select count(*) from dept')
    c.finish_session()


@workload(own_sessions=True)
def empty_session(c):
    c.start_session('nothing happens')
    c.finish_session()


@workload(own_sessions=True)
def several_sessions_in_turn(c):
    for i in range(4):
        c.start_session(f'session {i}')
        c.run('select count(*) from num where n < ?', i)
        c.finish_session()
        c.run('select count(*) from dept')


@workload(own_sessions=True)
def prepared_statement_across_sessions(c):
    statement = c.prepare('select name from emp where id = ?')
    statement.run(1)
    for i in range(3):
        c.start_session(f'session {i}')
        statement.run(i)
        statement.run(i)
        c.finish_session()
        statement.run(9)


@workload(SELECTABLE, own_sessions=True)
def cursor_open_across_the_session_bounds(c):
    cursor = c.open('select n from numbers(0, 100)')
    cursor.fetch(3)
    c.start_session('within')
    cursor.fetch(4)
    c.run('select count(*) from dept')
    cursor.fetch(2)
    c.finish_session()
    cursor.fetch(2)


@workload(SELECTABLE, own_sessions=True)
def pause_and_resume(c):
    c.start_session('paused')
    cursor = c.open('select n from numbers(0, 100)')
    cursor.fetch(3)
    c.run('select count(*) from dept')
    c.profiler('pause_session')
    c.run('select count(*) from dept')
    c.run('select count(*) from num')
    cursor.fetch(5)
    c.profiler('resume_session')
    c.run('select count(*) from dept')
    cursor.fetch(2)
    c.profiler('pause_session(true)')
    c.run('select count(*) from heap')
    c.profiler('resume_session')
    c.run('select count(*) from dept')
    c.finish_session()


@workload(own_sessions=True)
def pause_and_resume_inside_a_block(c):
    c.start_session('paused inside')
    c.run("""execute block returns (n integer) as
  declare i integer = 0;
begin
  while (i < 30) do
  begin
    if (i = 10) then
      execute procedure rdb$profiler.pause_session;
    if (i = 20) then
      execute procedure rdb$profiler.resume_session;
    select count(*) from num where n < :i into n;
    i = i + 1;
  end
  suspend;
end""")
    c.finish_session()


@workload(own_sessions=True)
def session_started_and_finished_inside_a_block(c):
    session = """execute block returns (id bigint) as
  declare i integer = 0;
  declare n integer;
begin
  while (i < 10) do
  begin
    select count(*) from num where n < :i into n;
    i = i + 1;
  end
  id = rdb$profiler.start_session('inside', null, null, null, OPTIONS);
  while (i < 20) do
  begin
    select count(*) from num where n < :i into n;
    i = i + 1;
  end
  execute procedure rdb$profiler.finish_session(true);
  while (i < 30) do
    i = i + 1;
  suspend;
end"""
    c.profile_ids.append(c.scalar(session.replace('OPTIONS', "'DETAILED_REQUESTS'" if c.detailed else 'null')))


@workload(own_sessions=True)
def flushes_inside_a_session(c):
    c.start_session('flushed')
    for i in range(3):
        c.run('select count(*) from num where n < 50')
        c.run(f'select {i} from rdb$database')
        c.profiler('flush')
    c.run("""execute block as
  declare i integer = 0;
begin
  while (i < 9) do
  begin
    i = i + 1;
    if (mod(i, 3) = 0) then
      execute procedure rdb$profiler.flush;
  end
end""")
    c.finish_session()


@workload(own_sessions=True)
def session_started_while_one_runs(c):
    c.start_session('first')
    c.run('select count(*) from dept')
    c.start_session('second')
    c.run('select count(*) from num')
    c.finish_session()


@workload(own_sessions=True)
def finish_without_flush_then_flush(c):
    c.start_session('first')
    c.run('select count(*) from dept')
    c.profiler('finish_session(false)')
    c.run('select count(*) from num')
    c.start_session('second')
    c.run('select count(*) from heap')
    c.profiler('finish_session(false)')
    c.profiler('flush')
