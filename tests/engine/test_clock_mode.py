"""MODE=CLOCK: the stock profiler and its PLG$PROF_* tables, with right times, for fbprof moves its clock on."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

import firebird_env as env
import prof_tables
from test_exact import Outcome, check_stock, compare, young_clock  # noqa: F401
from test_server import fetches_by_statement, only, process_of, profiler_traces, run_at_once, session_of, tables_of
from test_truth import check_shares_of_two_loops, first_good_try, requests_of

CLOCK = 'MODE=CLOCK'

WORKLOADS = ['nested_procedures', 'recursive_procedures', 'selectable_procedure_not_to_its_end', 'row_triggers',
             'execute_statement_in_autonomous_transaction', 'exception_caught_in_the_caller', 'interleaved_cursors',
             'many_requests', 'full_scan_with_filter', 'subqueries', 'several_sessions_in_turn',
             'flushes_inside_a_session']



# The same rows ------------------------------------------------------------------------------------

def run_workload(directory, base_database, preload, name: str, detailed: bool, **extra: str) -> Outcome:
    directory.mkdir()
    root = env.make_root(directory / 'root')
    database = shutil.copy(base_database, directory / 'test.fdb')
    value = env.run_program('run_workload.py', database, name, int(detailed), 1, root=root, preload=preload,
                            log_dir=directory / 'logs', **extra)
    return Outcome(directory, value['results'], value['profile_ids'], value['attachment_id'], value['tables'],
                   value['layout'], env.firebird_log(root))


@pytest.mark.parametrize('detailed', [False, True], ids=['aggregated', 'detailed'])
@pytest.mark.parametrize('workload', WORKLOADS)
def test_same_rows_as_stock(scratch, base_database, young_clock, profiler, workload, detailed):  # noqa: F811
    """Under FBPROF_OPTIONS, so that the session is started as if there was no fbprof."""
    with ThreadPoolExecutor(2) as pool:
        stock = pool.submit(run_workload, scratch / 'stock', base_database, young_clock, workload, detailed)
        ours = pool.submit(run_workload, scratch / 'ours', base_database, profiler, workload, detailed,
                           FBPROF_OPTIONS=CLOCK)
    stock, ours = stock.result(), ours.result()
    check_stock(stock)
    check_stock(ours)
    assert ours.results == stock.results, 'a query gave another result'
    assert ours.profile_ids == stock.profile_ids
    message = compare(stock, ours, 'stock', 'MODE=CLOCK')
    if message:
        pytest.fail(f'{workload}: {message}\nkept in {scratch}', pytrace=False)
    assert not (scratch / 'ours/logs').exists(), 'a log was written'


# True times ---------------------------------------------------------------------------------------

def run_timed(scratch, database, root, profiler, scenario, options, attempt):
    """→ what the client measured, the tables that the stock profiler wrote."""
    copy = shutil.copy(database, scratch / f'{attempt}.fdb')
    timing = env.run_program('timed.py', copy, scenario, options, root=root, preload=profiler,
                             log_dir=scratch / 'logs')
    with env.Attachment(copy, root) as attachment:
        return timing, attachment.snapshot_tables()['tables']


@pytest.mark.parametrize('options', [CLOCK, f'{CLOCK},SAMPLING_INTERVAL=1000,DETAILED_REQUESTS'])
def test_shares_of_two_loops(scratch, database, root, profiler, options):
    """Within 3 points of the truth; the stock clock is off by twenty."""
    check_shares_of_two_loops(lambda attempt: run_timed(scratch, database, root, profiler, 'two_loops', options,
                                                        attempt))


@pytest.mark.parametrize('scenario', ['psql_loop', 'cursor_loop', 'sleeping_client', 'failing_then_idle'])
def test_lines_and_requests_add_up(scratch, database, root, profiler, scenario):
    """To what the client waited for, the profiler's own work included; its pauses are not in it."""

    def attempt_once(attempt):
        timing, tables = run_timed(scratch, database, root, profiler, scenario, f'{CLOCK},DETAILED_REQUESTS', attempt)
        row, = requests_of(tables, timing['text'])
        lines = sum(line['total_elapsed_time'] for line in tables['psql_stats']
                    if line['statement_id'] == row['statement_id']) / 1e9
        ratio = lines / timing['elapsed']
        # Lines that enclose nothing: their sum is the block's. The cursor's fetches are in a line.
        return 0.9 <= ratio <= 1.03, (f'lines {lines:.4f} s, waited {timing["elapsed"]:.4f} s, ratio {ratio:.4f};'
                                      f' elsewhere {timing["idle"]:.3f} s')

    first_good_try(attempt_once, f'{scenario}: the lines and the time waited for differ')


# An embedded client that exits --------------------------------------------------------------------

def test_exit_within_a_session(scratch, database, profiler):
    """The engine is shut down by what the stock module's destructor tells it, as in stock."""
    said = []
    for options, preload in ('-', None), (CLOCK, profiler):
        root = env.make_root(scratch / f'root-{len(said)}')
        copy = shutil.copy(database, scratch / f'{len(said)}.fdb')
        done = env.run(env.python_program('exit_in_session.py', copy, options), env.environment(root, preload=preload),
                       check=False)
        lines = [line for line in env.firebird_log(root).splitlines() if line.startswith('\t')]
        said.append((done.returncode, done.stdout, done.stderr, lines))
    assert said[0] == said[1]
    assert said[0][0] == 7


# Servers ------------------------------------------------------------------------------------------

@pytest.fixture
def server(server_of_each_mode):
    return server_of_each_mode


def snapshot(attach) -> prof_tables.Tables:
    client = attach()
    tables = client.snapshot_tables()['tables']
    client.close()
    return tables


def session_ended(pid: int) -> None:
    env.wait_until(lambda: not profiler_traces(pid), 'the traces of the session vanish')


def test_pause_and_resume(server, attach):
    client = attach()
    profile_id = client.start_session('paused', CLOCK)
    client.run('select 1 from dept')
    client.profiler('pause_session(true)')
    client.run('select 2 from dept')
    client.profiler('resume_session')
    client.run('select 3 from dept')
    client.finish_session()
    client.close()
    counts = fetches_by_statement(snapshot(attach), profile_id)
    assert (counts['select 1 from dept'], counts['select 2 from dept'], counts['select 3 from dept']) == (11, 0, 11)


@pytest.mark.parametrize('options', [CLOCK, f'{CLOCK}, DETAILED_REQUESTS', None])
def test_second_start_finishes_the_first_session(server, attach, options):
    """None: the second one is fbprof's own; the first's rows are written by its flush all the same."""
    client = attach()
    first = client.start_session('first', CLOCK)
    client.run('select 1 from dept')
    second = client.start_session('second', options)
    client.run('select 2 from dept')
    client.finish_session()
    client.close()
    tables = snapshot(attach)
    assert session_of(tables, 'first')['profile_id'] == first
    assert session_of(tables, 'first')['finish_timestamp'] is not None
    assert fetches_by_statement(tables, first)['select 1 from dept'] == 11
    assert fetches_by_statement(tables, first)['select 2 from dept'] == 0
    others = tables if options else tables_of(server)
    assert session_of(others, 'second')['profile_id'] == second
    assert fetches_by_statement(others, second)['select 2 from dept'] == 11


def test_fbprof_session_first(server, attach):
    client = attach()
    first = client.start_session('first')
    client.run('select 1 from dept')
    second = client.start_session('second', CLOCK)
    client.run('select 2 from dept')
    client.finish_session()
    client.close()
    counts = fetches_by_statement(tables_of(server), first)
    assert (counts['select 1 from dept'], counts['select 2 from dept']) == (11, 0)
    counts = fetches_by_statement(snapshot(attach), second)
    assert (counts['select 1 from dept'], counts['select 2 from dept']) == (0, 11)


@pytest.mark.parametrize('end', ['cancel_session', 'discard', 'finish_session(false)', 'flush'])
def test_each_way_to_end_a_session(server, attach, end):
    client = attach()
    pid = process_of(client)
    client.start_session('ended', CLOCK)
    client.run('select 1 from dept')
    client.profiler(end)
    if end != 'flush':
        session_ended(pid)
    after = client.start_session('after', CLOCK)
    client.run('select 3 from dept')
    client.finish_session()
    session_ended(pid)
    client.close()
    tables = snapshot(attach)
    assert fetches_by_statement(tables, after)['select 3 from dept'] == 11
    written = {row['description'] for row in tables['sessions']}
    assert ('ended' in written) == (end in ('finish_session(false)', 'flush')), written


def test_detach_without_finish(server, attach):
    """Nothing is written, as in stock; and nothing is left."""
    client = attach()
    pid = process_of(client)
    client.start_session('left', CLOCK)
    client.leave_open('select n from some_numbers(1000)', 5)
    client.detach()
    client.close()
    if pid == server.pid:
        session_ended(pid)
    assert snapshot(attach)['sessions'] == []


def test_session_of_another_attachment(server, attach):
    target, caller = attach(), attach()
    target.run('select 1 from dept')
    target.commit()
    start = f"select rdb$profiler.start_session('remote', null, ?, null, '{CLOCK}') from rdb$database"
    profile_id = caller.scalar(start, target.attachment_id)
    target.run('select 3 from dept')
    caller.run('execute procedure rdb$profiler.finish_session(true, ?)', target.attachment_id)
    target.run('select 4 from dept')
    target.close()
    caller.close()
    counts = fetches_by_statement(snapshot(attach), profile_id)
    assert (counts['select 3 from dept'], counts['select 4 from dept']) == (11, 0)


def test_flush_interval(server, attach):
    client = attach()
    profile_id = client.scalar(f"select rdb$profiler.start_session('flushed', 1, null, null, '{CLOCK}')"
                               ' from rdb$database')
    text, runs = 'select count(*) from num a cross join num b', 20
    for _ in range(runs):
        client.run(text)
    client.finish_session()
    client.close()
    assert fetches_by_statement(snapshot(attach), profile_id)[text] == 2 * runs


def test_many_sessions_leave_nothing_behind(server, attach):
    client = attach()
    pid = process_of(client)
    before = None
    for number in range(1, 41):
        client.start_session(f'session {number}', f'{CLOCK},DETAILED_REQUESTS' if number % 3 == 0 else CLOCK)
        client.run('execute procedure mix(20)')
        client.finish_session()
        client.commit()
        if number == 5:
            session_ended(pid)
            before = len(env.threads(pid)), len(env.descriptors(pid))
    session_ended(pid)
    assert len(env.threads(pid)) <= before[0], env.threads(pid)
    assert len(env.descriptors(pid)) <= before[1], env.descriptors(pid)
    client.close()
    assert len(snapshot(attach)['sessions']) == 40
    assert env.logs(server.log_dir) == [], 'a log was written'


def test_beside_sessions_of_other_modes(server, root, attach):
    """In one server: attachments without a session, and with sessions of each kind; all see what they should."""
    rounds = 5
    kinds = [None, 'MODE=SAMPLED', CLOCK, f'{CLOCK},DETAILED_REQUESTS', 'SAMPLING_INTERVAL=0']
    attach().start_session('idle', CLOCK)
    with ThreadPoolExecutor(len(kinds)) as pool:
        jobs = [pool.submit(run_at_once, server, root, rounds, [kind or ''] * 2, kind) for kind in kinds]
    answers = {kind: job.result() for kind, job in zip(kinds, jobs)}
    expected = answers[None][0][0]
    ours, stock = tables_of(server), snapshot(attach)
    for kind, pair in answers.items():
        seen = []
        for results, profile_id in pair:
            assert results == expected
            if kind:
                tables = only(stock if kind.startswith(CLOCK) else ours, profile_id)
                seen.append(fetches_by_statement(tables, profile_id))
                assert tables['sessions'][0]['finish_timestamp'] is not None
                for row in tables['requests'] if 'DETAILED' in kind else ():
                    # The end of the one that started the session is lost in stock, too.
                    assert row['total_elapsed_time'] is None or row['total_elapsed_time'] > 0
        if kind:
            assert seen[0] == seen[1] and seen[0]
    sampled = answers['MODE=SAMPLED'][0][1]
    clock = answers[CLOCK][0][1]
    assert fetches_by_statement(ours, sampled) == fetches_by_statement(stock, clock)


# What can't be ------------------------------------------------------------------------------------

@pytest.mark.parametrize('options, said', [
    (f'{CLOCK}, NONSENSE', 'unknown option NONSENSE'),
    (f'{CLOCK}, SAMPLING_INTERVAL=7', 'SAMPLING_INTERVAL=7'),
    (f'{CLOCK}, SQL_TEXT=HASH', 'the stock profiler keeps all texts'),
])
def test_refused_options(scratch, database, root, profiler, options, said):
    with env.Attachment(database, root, preload=profiler) as client:
        with pytest.raises(env.DatabaseError, match=said):
            client.start_session('refused', options)
        client.start_session('right', CLOCK)
        client.finish_session()


def own_plugins(root, profiler) -> None:
    """A folder of plugins of this root's own, fbprof among them."""
    plugins = (root / 'plugins').resolve()
    (root / 'plugins').unlink()
    (root / 'plugins').mkdir()
    for entry in plugins.iterdir():
        (root / 'plugins' / entry.name).symlink_to(entry)
    shutil.copy(profiler, root / 'plugins/libfbprof.so')


def test_without_the_preload(database, root, profiler):
    own_plugins(root, profiler)
    with env.Attachment(database, root) as client:
        with pytest.raises(env.DatabaseError, match='fbprof: MODE=CLOCK needs LD_PRELOAD'):
            client.scalar(f"select rdb$profiler.start_session('no', null, null, 'fbprof', '{CLOCK}') from rdb$database")


def test_without_the_stock_profiler(scratch, database, root, profiler):
    own_plugins(root, profiler)
    (root / 'plugins/libDefault_Profiler.so').unlink()
    with env.Attachment(database, root, preload=profiler, log_dir=scratch / 'logs') as client:
        with pytest.raises(env.DatabaseError, match='fbprof: MODE=CLOCK needs the stock profiler'):
            client.start_session('no', CLOCK)
        client.start_session('sampled')
        client.finish_session()
