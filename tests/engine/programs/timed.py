"""timed.py DATABASE SCENARIO OPTIONS: one profiled statement of a second or so, and how long the client waited for it.

OPTIONS "-" stands for NULL. Prints {text, elapsed, idle, alone, unprofiled}: elapsed in seconds is the time inside
calls that execute and fetch, idle the time the client spent elsewhere in between, alone what each of two loops took
unprofiled, unprofiled the CPU time that the statement took without a session.

The scenario two_densities has two statements instead, in turn: {texts, alone}.
"""

import statistics
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
  while (i < 20000) do
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


def two_loops(first: int, second: int, turns: int) -> str:
    """Equal loops on lines 9 to 10 and 11 to 12, so that their events are equally dense. They take turns, so that
    what else the machine does falls on both alike."""
    return f"""execute block as
  declare i integer;
  declare j integer;
  declare turn integer = 0;
begin
  while (turn < {turns}) do
  begin
    i = 0; j = 0; turn = turn + 1;
    while (i < {first}) do
      i = i + 1;
    while (j < {second}) do
      j = j + 1;
  end
end"""


# Two statements of about the same length, the one with some million events, the other with some hundred.
DENSE = """execute block as
  declare i integer = 0;
begin
  while (i < 200000) do
    i = i + 1;
end"""

SPARSE = """execute block as
  declare i integer = 0;
  declare h varbinary(64);
begin
  while (i < 300) do
  begin
    h = crypt_hash(rpad('', 8000, 'x') using sha512);
    i = i + 1;
  end
end"""

TEXTS = {'psql_loop': PSQL_LOOP, 'cross_join': CROSS_JOIN, 'cursor_loop': CURSOR_LOOP, 'procedure_calls': CALLS,
         'sleeping_client': IN_PIECES, 'failing_then_idle': FAILING,
         'two_loops': two_loops(150000, 50000, 30)}
LOOPS_ALONE = two_loops(150000, 0, 1), two_loops(0, 50000, 1)


def time_alone(client: Client, texts, rounds: int) -> list[float]:
    """How long each statement takes unprofiled: the best of many times, in alternation.

    By the thread's CPU clock, for the longer one is interrupted more often on a busy machine.
    """
    cursor = client.connection.cursor()
    statements = [cursor.prepare(text) for text in texts]
    best = [float('inf')] * len(statements)
    for _ in range(rounds):
        for number, statement in enumerate(statements):
            start = time.thread_time()
            cursor.execute(statement)
            if statement._out_cnt:
                cursor.fetchall()
            best[number] = min(best[number], time.thread_time() - start)
    cursor.close()
    for statement in statements:
        statement.free()
    return best


def run_in_turn(client: Client, options: str | None) -> dict:
    """Each statement profiled, and unprofiled while the session pauses: both meet the same machine."""
    texts = DENSE, SPARSE
    watches = [[Stopwatch() for _ in range(40)] for _ in texts]
    client.start_session('two densities', options)
    cursor = client.connection.cursor()
    statements = [cursor.prepare(text) for text in texts]
    for watch in zip(*watches):
        client.profiler('pause_session(false)')
        for number, statement in enumerate(statements):
            with watch[number]:
                cursor.execute(statement)
        client.profiler('resume_session')
        for statement in statements:
            cursor.execute(statement)
    cursor.close()
    for statement in statements:
        statement.free()
    client.finish_session()
    client.close()
    return {'texts': texts, 'alone': [statistics.median(watch.elapsed for watch in each) for each in watches]}


def main(database, scenario, options):
    client = Client(database)
    if scenario == 'two_densities':
        return run_in_turn(client, None if options == '-' else options)
    alone = time_alone(client, LOOPS_ALONE, 40) if scenario == 'two_loops' else None
    if scenario == 'procedure_calls':
        client.run('create procedure p_work as declare i integer = 0; begin while (i < 400) do i = i + 1; end')
        client.commit()
    text = TEXTS[scenario]
    # It is compared with measured times, where they must not come out shorter.
    unprofiled = time_alone(client, [text], 2)[0] if 'MEASURED' in options and 'failing' not in scenario else None
    client.start_session(scenario, None if options == '-' else options)
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
    client.finish_session()
    client.close()
    return {'text': text, 'elapsed': watch.elapsed, 'idle': idle, 'alone': alone, 'unprofiled': unprofiled}


program(main)
