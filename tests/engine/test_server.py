"""Real servers, Super and Classic, under the preload: many attachments, many sessions, every command of a session."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import firebird_env as env
import prof_tables

ATTACHMENTS = 16
SESSIONS = 200


@pytest.fixture(scope='module')
def plain_server(session_scratch, queries_database):
    """A stock server, without the preload."""
    directory = session_scratch / 'server-plain'
    directory.mkdir()
    with env.Server(directory) as server:
        server.database = Path(shutil.copy(queries_database, directory / 'test.fdb'))
        yield server


@pytest.fixture(scope='module')
def true_results(plain_server):
    """What the queries return when nothing is preloaded."""
    return run_queries(plain_server, plain_server.root)[0]


@pytest.fixture
def server(server_of_each_mode):
    return server_of_each_mode


def run_queries(server, root, rounds: int = 1, session: str = '', options: str | None = None):
    """All queries, `rounds` times, in one attachment; what they returned, and the session's id."""
    return run_at_once(server, root, rounds, [session], options)[0]


def run_at_once(server, root, rounds: int, sessions: list[str], options: str | None) -> list:
    """A process for each of `sessions`, which are descriptions, or empty for none; all begin together."""
    processes = [subprocess.Popen(env.python_program('run_queries.py', server.dsn(server.database), rounds, session,
                                                     options or '-'),
                                  env=env.environment(root), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                 for session in sessions]
    try:
        for process in processes:
            assert process.stdout.readline() == 'ready\n'
        for process in processes:
            process.stdin.write('go\n')
            process.stdin.flush()
        return [json.loads(process.communicate(timeout=env.PATIENCE)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def process_of(client) -> int:
    """The process that executes an attachment: the server, or in Classic mode its child."""
    client.commit()
    pid = client.scalar('select mon$server_pid from mon$attachments where mon$attachment_id = current_connection')
    client.commit()
    return pid


def tables_of(server) -> prof_tables.Tables:
    return prof_tables.tables_of_directory(env.dump(env.logs(server.log_dir), server.directory / 'csv'))


def session_of(tables: prof_tables.Tables, description: str) -> dict:
    found = [row for row in tables['sessions'] if row['description'] == description]
    assert len(found) == 1, f'{len(found)} sessions are called {description}: {tables["sessions"]}'
    return found[0]


def only(tables: prof_tables.Tables, profile_id: int) -> prof_tables.Tables:
    return {name: [row for row in rows if row['profile_id'] == profile_id] for name, rows in tables.items()}


def fetches_by_statement(tables: prof_tables.Tables, profile_id: int) -> Counter:
    """Text of a statement → fetches of its plans' roots."""
    texts = {row['statement_id']: row['sql_text'] for row in tables['statements'] if row['profile_id'] == profile_id}
    counts = Counter()
    for row in tables['record_source_stats']:
        if row['profile_id'] == profile_id and row['record_source_id'] == 1:
            counts[texts[row['statement_id']]] += row['fetch_counter']
    return counts


def profiler_traces(pid: int) -> list[str]:
    """What of fbprof a process holds at this moment: threads, descriptors."""
    return ([f'thread {name}' for name in env.threads(pid).values() if name.startswith('fbprof')]
            + [f'descriptor of {target}' for target in env.descriptors(pid).values() if '.fbprof' in target])


# Nobody profiles ---------------------------------------------------------------------------------

def test_server_in_which_nobody_profiles_is_untouched(server, attach, root, true_results):
    assert run_queries(server, root)[0] == true_results
    client = attach()
    for pid in {server.pid, process_of(client)}:
        assert profiler_traces(pid) == []
    client.close()
    assert not server.log_dir.exists(), 'a directory was created although nobody profiled'


# Many at once ------------------------------------------------------------------------------------

@pytest.mark.parametrize('options', [None, 'DETAILED_REQUESTS', 'SAMPLING_INTERVAL=50'])
def test_sixteen_attachments_at_once(server, root, true_results, options):
    """Half of them profiled: results as ever, and each session counts its own attachment and nothing else."""
    rounds = 5
    sessions = [f'attachment {i}' if i % 2 else '' for i in range(ATTACHMENTS)]
    answers = run_at_once(server, root, rounds, sessions, options)
    for results, _ in answers:
        assert results == true_results * rounds

    ids = [profile_id for _, profile_id in answers if profile_id is not None]
    assert len(ids) == ATTACHMENTS // 2
    assert len(set(ids)) == len(ids), f'sessions share an id: {ids}'
    tables = tables_of(server)
    first = None
    for i, profile_id in zip(range(1, ATTACHMENTS, 2), ids):
        row = session_of(tables, f'attachment {i}')
        assert row['profile_id'] == profile_id
        assert row['finish_timestamp'] is not None
        mine = prof_tables.canonical(only(tables, profile_id), profile_ids=[profile_id])
        del mine['sessions']
        first = first or mine
        differences = prof_tables.compare({'sessions': Counter(), **first}, {'sessions': Counter(), **mine})
        assert not differences, prof_tables.explain(differences, 'attachment 1', f'attachment {i}')


def test_sessions_count_as_in_the_stock_server(server, root, plain_server):
    """One attachment through the network, against the stock plugin in a stock server."""
    _, stock_id = run_queries(plain_server, root, 2, 'the same')
    _, our_id = run_queries(server, root, 2, 'the same')
    with env.Attachment(plain_server.dsn(plain_server.database), root) as attachment:
        stock = only(attachment.snapshot_tables()['tables'], stock_id)
    left = prof_tables.canonical(stock, profile_ids=[stock_id])
    right = prof_tables.canonical(only(tables_of(server), our_id), profile_ids=[our_id])
    for tables in left, right:  # whatever depends on the stock plugin's clock, see young_clock.c
        for table in ('sessions', 'statements', 'requests'):
            tables[table] = Counter()
    differences = prof_tables.compare(left, right)
    assert not differences, prof_tables.explain(differences, 'stock', 'fbprof')


def test_two_hundred_sessions_leave_nothing_behind(server, attach):
    """No thread, descriptor or mapping more after the last session than after the fifth."""
    client = attach()
    pid = process_of(client)
    before = None
    ids = []
    for number in range(1, SESSIONS + 1):
        ids.append(client.start_session(f'session {number}', 'DETAILED_REQUESTS' if number % 3 == 0 else None))
        client.run('select count(*) from num')
        client.run('execute procedure mix(20)')
        client.finish_session()
        client.commit()
        if number == 5:
            env.wait_until(lambda: not profiler_traces(pid), 'the traces of five sessions vanish')
            before = len(env.threads(pid)), len(env.descriptors(pid)), len(env.mappings(pid))
    env.wait_until(lambda: not profiler_traces(pid), 'the traces of the last session vanish')
    threads, descriptors, mappings = len(env.threads(pid)), len(env.descriptors(pid)), len(env.mappings(pid))
    assert threads <= before[0], env.threads(pid)
    assert descriptors <= before[1], env.descriptors(pid)
    # The engine's own memory may have grown by some pieces; a mapping a session would be 195.
    assert mappings <= before[2] + SESSIONS // 10, '\n'.join(env.mappings(pid))
    client.close()

    tables = tables_of(server)
    assert len(tables['sessions']) == SESSIONS
    for number, profile_id in enumerate(ids, 1):
        assert session_of(tables, f'session {number}')['profile_id'] == profile_id
        assert fetches_by_statement(tables, profile_id)['select count(*) from num'] == 2


# The commands of a session -----------------------------------------------------------------------

def test_pause_and_resume(server, attach):
    client = attach()
    profile_id = client.start_session('paused')
    client.run('select 1 from dept')
    client.profiler('pause_session')
    client.run('select 2 from dept')
    client.profiler('resume_session')
    client.run('select 3 from dept')
    client.finish_session()
    client.close()
    counts = fetches_by_statement(tables_of(server), profile_id)
    assert (counts['select 1 from dept'], counts['select 2 from dept'], counts['select 3 from dept']) == (11, 0, 11)


def test_second_start_finishes_the_first_session(server, attach):
    client = attach()
    first = client.start_session('first')
    client.run('select 1 from dept')
    second = client.start_session('second')
    client.run('select 2 from dept')
    client.finish_session()
    client.close()
    assert first != second
    tables = tables_of(server)
    assert session_of(tables, 'first')['finish_timestamp'] is not None
    assert session_of(tables, 'second')['finish_timestamp'] is not None
    assert fetches_by_statement(tables, first)['select 2 from dept'] == 0
    assert fetches_by_statement(tables, second)['select 2 from dept'] == 11


@pytest.mark.parametrize('end', ['cancel_session', 'discard', 'finish_session(false)', 'flush'])
def test_session_after_each_way_to_end_one(server, attach, end):
    """Whatever became of the first, the next session is whole."""
    client = attach()
    client.start_session('ended')
    client.run('select 1 from dept')
    client.profiler(end)
    client.run('select 2 from dept')
    after = client.start_session('after')
    client.run('select 3 from dept')
    client.finish_session()
    client.close()
    counts = fetches_by_statement(tables_of(server), after)
    assert (counts['select 2 from dept'], counts['select 3 from dept']) == (0, 11)


def test_commands_without_a_session_do_nothing(server, attach):
    client = attach()
    for command in ('pause_session', 'pause_session(true)', 'resume_session', 'cancel_session', 'discard', 'flush',
                    'finish_session(true)', 'finish_session(false)', 'set_flush_interval(1)'):
        client.profiler(command)
    assert client.run('select count(*) from dept') == [[10]]
    client.close()
    assert env.logs(server.log_dir) == []


def test_flush_interval(server, attach):
    """The engine flushes by a timer thread, in the midst of statements."""
    client = attach()
    profile_id = client.scalar("select rdb$profiler.start_session('flushed', 1) from rdb$database")
    runs = 0
    text = 'select count(*) from num a cross join num b'
    for _ in range(30):
        client.run(text)
        runs += 1
    client.finish_session()
    client.close()
    assert fetches_by_statement(tables_of(server), profile_id)[text] == 2 * runs


def test_detach_without_finish(server, attach):
    """The session ends with its attachment, and nothing it counted is lost."""
    client = attach()
    pid = process_of(client)
    profile_id = client.start_session('left')
    client.run('select 1 from dept')
    client.commit()
    client.close()
    tables = tables_of(server)
    assert session_of(tables, 'left')['profile_id'] == profile_id
    assert fetches_by_statement(tables, profile_id)['select 1 from dept'] == 11
    if pid == server.pid:
        env.wait_until(lambda: not profiler_traces(pid), 'the traces of the session vanish')


def test_detach_with_an_open_cursor(server, attach):
    client = attach()
    profile_id = client.start_session('left open')
    client.leave_open('select n from some_numbers(1000)', 5)
    client.detach()
    client.close()
    assert server.process.poll() is None
    assert session_of(tables_of(server), 'left open')['profile_id'] == profile_id


def test_session_of_another_attachment(server, attach):
    """START_SESSION and FINISH_SESSION with ATTACHMENT_ID: the other attachment is profiled, not the caller."""
    target, caller = attach(), attach()
    target.run('select 1 from dept')
    target.commit()
    start = "select rdb$profiler.start_session('remote', null, ?, null, 'DETAILED_REQUESTS') from rdb$database"
    profile_id = caller.scalar(start, target.attachment_id)
    caller.run('select 2 from dept')
    target.run('select 3 from dept')
    target.run('execute procedure mix(10)')
    caller.run('execute procedure rdb$profiler.finish_session(true, ?)', target.attachment_id)
    target.run('select 4 from dept')
    target.close()
    caller.close()
    tables = tables_of(server)
    row = session_of(tables, 'remote')
    assert (row['profile_id'], row['attachment_id']) == (profile_id, target.attachment_id)
    assert row['finish_timestamp'] is not None
    counts = fetches_by_statement(tables, profile_id)
    assert counts['select 3 from dept'] == 11
    assert counts['select 2 from dept'] == counts['select 4 from dept'] == 0
    assert any(row['routine_name'] == 'MIX' for row in only(tables, profile_id)['statements'])


def test_session_of_a_busy_attachment(server, attach, root):
    """The target is at work when another attachment starts, pauses, resumes and finishes its session."""
    caller = attach()
    start = "select rdb$profiler.start_session('busy', null, ?) from rdb$database"
    with env.Endless(server.dsn(server.database), 'joins', 'off', root=root) as target:
        seen = target.seen(1)
        for _ in range(3):
            caller.scalar(start, target.attachment_id)
            for command in ('pause_session(false, ?)', 'resume_session(?)', 'flush(?)', 'finish_session(true, ?)'):
                caller.run(f'execute procedure rdb$profiler.{command}', target.attachment_id)
                seen = target.seen(seen + 1)
    assert len([row for row in tables_of(server)['sessions'] if row['description'] == 'busy']) == 3


def test_statement_cancelled_while_profiled(server, attach, root):
    """A statement ended by another attachment: the session goes on and counts what follows."""
    from programs.endless import AFTERWARDS
    killer = attach()
    with env.Endless(server.dsn(server.database), 'cancelled', root=root) as victim:
        def cancel():
            killer.run('delete from mon$statements where mon$attachment_id = ? and mon$state = 1',
                       victim.attachment_id)
            killer.commit()
            return victim.process.poll() is not None

        env.wait_until(cancel, 'the statement is cancelled', interval=0.2)
        assert 'cancelled' in victim.remainder()[1]
    tables = tables_of(server)
    assert session_of(tables, 'endless')['finish_timestamp'] is not None
    assert fetches_by_statement(tables, victim.profile_id)[AFTERWARDS] == 11


def test_attachment_killed_while_profiled(server, attach, root):
    """Its session ends with it; what it counted stays."""
    from programs.endless import STATEMENT
    killer = attach()
    with env.Endless(server.dsn(server.database), 'busy', root=root) as victim:
        killer.run('delete from mon$attachments where mon$attachment_id = ?', victim.attachment_id)
        killer.commit()
        assert 'error' in victim.remainder()[1]
    killer.close()
    if victim.executor == server.pid:
        env.wait_until(lambda: not profiler_traces(server.pid), 'the traces of the session vanish')
    tables = tables_of(server)
    assert session_of(tables, 'endless')['profile_id'] == victim.profile_id
    assert fetches_by_statement(tables, victim.profile_id)[STATEMENT] <= 2  # the kill may come first


def test_client_vanishes_while_profiled(server, root):
    """The client's process is killed; the server notices when it next writes, and goes on."""
    with env.Endless(server.dsn(server.database), 'rows', root=root) as client:
        client.seen(100)
    if client.executor == server.pid:
        env.wait_until(lambda: not profiler_traces(server.pid), 'the traces of the session vanish')
    else:
        env.wait_until(lambda: not env.alive(client.executor), 'the connection ends')
    assert session_of(tables_of(server), 'endless')['profile_id'] == client.profile_id


def test_log_read_while_the_session_runs(server, attach):
    """Dump, info and report of a live process; what the client has seen done is in the dump."""
    client = attach()
    profile_id = client.start_session('live')
    for done in range(1, 4):
        client.run('select 7 from dept')
        tables = tables_of(server)
        assert session_of(tables, 'live')['finish_timestamp'] is None
        assert fetches_by_statement(tables, profile_id)['select 7 from dept'] == 11 * done
    log, = env.logs(server.log_dir)
    assert env.run([env.FBPROF_DUMP, '--info', log]).stdout
    assert env.run([env.FBPROF, 'report', log]).stdout
    client.finish_session()
    client.close()


def test_server_stops_cleanly_while_sessions_run(server, root):
    """SIGTERM with two attachments profiled, one in the midst of a statement."""
    dsn = server.dsn(server.database)
    with (env.Endless(dsn, 'rows', root=root) as first, env.Endless(dsn, 'busy', root=root) as second):
        first.seen(100)
        server.process.send_signal(signal.SIGTERM)
        # Classic's listener leaves SIGTERM to its default action.
        assert server.process.wait(env.PATIENCE) in (0, -signal.SIGTERM), server.printed()
        for client in (first, second):
            if client.executor != server.pid:  # Classic leaves its children to their clients
                client.process.kill()
    server.check_log()
    tables = tables_of(server)
    assert {row['description'] for row in tables['sessions']} == {'endless'}
    assert len(tables['sessions']) == 2
