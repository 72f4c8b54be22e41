"""kill -9 in the middle of profiled work: the log has all of it that the client saw done."""

from __future__ import annotations

import os
import signal
import time

import pytest

import firebird_env as env
import prof_tables

# Lines of the block in programs/endless.py, executed once a row.
FIRST, SECOND = 6, 7


def line_counters(tables: prof_tables.Tables) -> dict[int, int]:
    counters = {}
    for row in tables['psql_stats']:
        counters[row['line_num']] = counters.get(row['line_num'], 0) + row['counter']
    return counters


def check_log_tools(log) -> None:
    assert env.run([env.FBPROF_DUMP, '--info', log]).stdout
    assert env.run([env.FBPROF, 'report', log]).stdout


def log_of(log_dir, pid: int):
    found = [log for log in env.logs(log_dir) if f'.{pid}.' in log.name]
    assert len(found) == 1, f'logs of process {pid}: {found}, in all {env.logs(log_dir)}'
    return found[0]


def tables_after_kill(log_dir, pid: int, directory) -> prof_tables.Tables:
    log = log_of(log_dir, pid)
    check_log_tools(log)
    tables = prof_tables.tables_of_directory(env.dump([log], directory))
    session, = tables['sessions']
    assert session['description'] == 'endless'
    assert session['finish_timestamp'] is None
    return tables


@pytest.mark.parametrize('options', [None, 'DETAILED_REQUESTS'])
@pytest.mark.parametrize('mode', ['Super', 'Classic'])
@pytest.mark.parametrize('rows', [1, 3000])
def test_server_killed_while_rows_are_fetched(scratch, database, root, profiler, mode, options, rows):
    with env.Server(scratch / 'server', mode, preload=profiler) as server:
        with env.Endless(server.dsn(database), 'rows', options, root=root) as client:
            seen = client.seen(rows)
            os.kill(client.executor, signal.SIGKILL)
            last, error = client.remainder()
            assert error, 'the client did not notice'
        tables = tables_after_kill(server.log_dir, client.executor, scratch / 'csv')
    counters = line_counters(tables)
    assert counters[FIRST] >= max(seen, last)
    assert counters[SECOND] >= max(seen, last)


@pytest.mark.parametrize('options', [None, 'DETAILED_REQUESTS'])
def test_server_killed_between_many_statements(scratch, database, root, profiler, options):
    """Whole statements with their plans."""
    from programs.endless import STATEMENT
    with env.Server(scratch / 'server', preload=profiler) as server:
        with env.Endless(server.dsn(database), 'statements', options, root=root) as client:
            client.seen(300)
            os.kill(client.executor, signal.SIGKILL)
            done, _ = client.remainder()
        tables = tables_after_kill(server.log_dir, client.executor, scratch / 'csv')
    done = max(done, 300)
    statement_id, = [row['statement_id'] for row in tables['statements'] if row['sql_text'] == STATEMENT]
    roots = [row for row in tables['record_source_stats']
             if row['statement_id'] == statement_id and row['record_source_id'] == 1]
    assert sum(row['open_counter'] for row in roots) >= done
    assert sum(row['fetch_counter'] for row in roots) >= done
    requests = [row for row in tables['requests'] if row['statement_id'] == statement_id]
    assert len(requests) >= done if options else len(requests) == 1


@pytest.mark.parametrize('attempt', range(3))
def test_embedded_client_killed(scratch, database, root, profiler, attempt):
    log_dir = scratch / 'logs'
    with env.Endless(database, 'rows', root=root, preload=profiler, log_dir=log_dir) as client:
        seen = client.seen(500 * (attempt + 1))
        client.process.kill()
        last, _ = client.remainder()
    counters = line_counters(tables_after_kill(log_dir, client.executor, scratch / 'csv'))
    assert counters[FIRST] >= max(seen, last)
    assert counters[SECOND] >= max(seen, last)


def test_killed_in_the_midst_of_one_long_statement(scratch, database, root, profiler):
    """Its time so far is in the log as well."""
    log_dir = scratch / 'logs'
    with env.Endless(database, 'busy', root=root, preload=profiler, log_dir=log_dir) as client:
        time.sleep(1.5)
    tables = tables_after_kill(log_dir, client.executor, scratch / 'csv')
    assert max(line_counters(tables).values()) > 10000
    assert sum(row['total_elapsed_time'] for row in tables['psql_stats']) > 0.5e9


def test_log_of_a_process_still_alive(scratch, database, root, profiler):
    """Report, info and dump while the loop runs on; counters never fall from one look to the next."""
    log_dir = scratch / 'logs'
    with env.Endless(database, 'rows', root=root, preload=profiler, log_dir=log_dir) as client:
        last = 0
        for look in range(5):
            seen = client.seen(200 * (look + 1))
            log = log_of(log_dir, client.executor)
            check_log_tools(log)
            tables = prof_tables.tables_of_directory(env.dump([log], scratch / f'csv{look}'))
            counter = line_counters(tables)[FIRST]
            assert counter >= max(seen, last)
            last = counter


def test_truncated_log_yields_what_is_before_the_tear(scratch, database, root, profiler):
    """Cut anywhere, a log is read without a crash: exit code 0, or 1 and one line that says why."""
    log_dir = scratch / 'logs'
    env.run_program('run_workload.py', database, 'nested_procedures', 1, 0, root=root, preload=profiler,
                    log_dir=log_dir)
    log, = env.logs(log_dir)
    whole = log.read_bytes()
    cut = scratch / 'cut.fbprof'
    for size in [0, 1, 7, 64, 100, 4095, 4096, 4097, *(len(whole) * part // 20 for part in range(1, 20))]:
        cut.write_bytes(whole[:size])
        for command in ([env.FBPROF_DUMP, cut, '-o', scratch / 'cut-csv'], [env.FBPROF_DUMP, '--info', cut],
                        [env.FBPROF, 'report', cut]):
            done = env.run(command, check=False)
            assert done.returncode in (0, 1), f'{command[0].name} of {size} bytes: {done.returncode}, {done.stderr}'
            if done.returncode == 1:
                assert done.stderr.startswith('fbprof') and str(cut) in done.stderr, done.stderr
