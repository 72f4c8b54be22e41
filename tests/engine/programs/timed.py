"""timed.py DATABASE SCENARIO OPTIONS: one profiled statement of a second or more, and how long the client waited for it.

OPTIONS "-" stands for NULL, "off" for no session at all. Prints {text, elapsed, idle}: elapsed in seconds is
the time inside calls that execute and fetch, idle the time the client spent elsewhere in between.
"""

import time

from client import Client, DatabaseError, program


class Stopwatch:
    def __init__(self):
        self.elapsed = 0.0

    def __enter__(self):
        self.start = time.monotonic()

    def __exit__(self, *exc):
        self.elapsed += time.monotonic() - self.start


PSQL_LOOP = """execute block as
  declare i integer = 0;
begin
  while (i < 10000000) do
    i = i + 1;
end"""

CROSS_JOIN = 'select count(*) from num a cross join num b cross join dept c cross join (select first 4 n from num) d'

CURSOR_LOOP = """execute block returns (s bigint) as
  declare x integer;
begin
  s = 0;
  for select a.n from num a cross join num b cross join (select first 16 n from num) c into x do
    s = s + x;
  suspend;
end"""

CALLS = """execute block as
  declare i integer = 0;
begin
  while (i < 100000) do
  begin
    execute procedure p_work;
    i = i + 1;
  end
end"""

IN_PIECES = """execute block returns (n integer) as
  declare i integer;
begin
  n = 0;
  while (n < 10) do
  begin
    i = 0;
    while (i < 1000000) do
      i = i + 1;
    n = n + 1;
    suspend;
  end
end"""

FAILING = """execute block as
  declare i integer = 0;
begin
  while (i < 10000000) do
    i = i + 1;
  exception oops;
end"""


def two_loops(first: int, second: int) -> str:
    """Equal loops on lines 5 to 6 and 7 to 8, so that their events are equally dense."""
    return f"""execute block as
  declare i integer = 0;
  declare j integer = 0;
begin
  while (i < {first}) do
    i = i + 1;
  while (j < {second}) do
    j = j + 1;
end"""


TEXTS = {'psql_loop': PSQL_LOOP, 'cross_join': CROSS_JOIN, 'cursor_loop': CURSOR_LOOP, 'procedure_calls': CALLS,
         'sleeping_client': IN_PIECES, 'failing_then_idle': FAILING,
         'two_loops': two_loops(9000000, 3000000), 'first_loop': two_loops(9000000, 0),
         'second_loop': two_loops(0, 3000000)}


def main(database, scenario, options):
    client = Client(database)
    if scenario == 'procedure_calls':
        client.run('create procedure p_work as declare i integer = 0; begin while (i < 80) do i = i + 1; end')
        client.commit()
    if options != 'off':
        client.start_session(scenario, None if options == '-' else options)
    text = TEXTS[scenario]
    cursor = client.connection.cursor()
    statement = cursor.prepare(text)
    watch = Stopwatch()
    begin = time.monotonic()
    with watch:
        try:
            cursor.execute(statement)
        except DatabaseError:
            assert scenario == 'failing_then_idle'
    if scenario == 'failing_then_idle':
        time.sleep(1)
    elif statement._out_cnt:
        while True:
            with watch:
                row = cursor.fetchone()
            if row is None:
                break
            if scenario == 'sleeping_client':
                time.sleep(0.15)
    idle = time.monotonic() - begin - watch.elapsed
    cursor.close()
    statement.free()
    if options != 'off':
        client.finish_session()
    client.close()
    return {'text': text, 'elapsed': watch.elapsed, 'idle': idle}


program(main)
