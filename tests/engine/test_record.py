"""Passive mode: `fbprof record` and `fbprof top` of servers that know nothing of it, and MODE=PASSIVE in one."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

import firebird_env as env
from passive import await_session, finished, record, table


def fbprof(*arguments, layouts: Path | None = None, check: bool = True) -> subprocess.CompletedProcess:
    extra = {'FBPROF_CACHE': str(layouts)} if layouts else {}
    return env.run([env.FBPROF, *arguments], env.environment(**extra), check=check)


def lines_of_sessions(log: Path) -> dict[str, Counter]:
    """Attachment → samples by line number."""
    attachments = {row['profile_id']: row['attachment_id'] for row in table(log, 'sessions')
                   if 'security' not in row['database']}
    found: dict[str, Counter] = {}
    for row in table(log, 'psql_stats'):
        if row['profile_id'] in attachments:
            found.setdefault(attachments[row['profile_id']], Counter())[int(row['line_num'])] += int(row['samples'])
    return found


# Servers -----------------------------------------------------------------------------------------

def keep_reading(client: env.Endless, seconds: float) -> None:
    """A client of rows is at work only as long as somebody reads what it prints."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        client.seen(0)


def read_until_seen(client: env.Endless, log_dir: Path) -> None:
    """Until its attachment has a session in one of the logs."""
    def seen() -> bool:
        keep_reading(client, 0.2)
        return any(row['attachment_id'] == str(client.attachment_id) for log in env.logs(log_dir)
                   for row in table(log, 'sessions'))

    env.wait_until(seen, f'a session of attachment {client.attachment_id}')


@contextlib.contextmanager
def two_clients(server, database, root):
    """One is in a loop of one line for ever, one fetches rows of a block."""
    with env.Endless(server.dsn(database), 'busy', 'off', root=root) as first, \
            env.Endless(server.dsn(database), 'rows', 'off', root=root) as second:
        yield first, second


@pytest.mark.parametrize('mode', ['Super', 'Classic'])
def test_server_from_outside(scratch, database, root, layouts, mode):
    """Never restarted, never preloaded; in Classic connections come after the start, each with its own process."""
    with env.Server(scratch / 'server', mode) as server:
        recorder = record(server.pid, scratch / 'log', layouts)
        with two_clients(server, database, root) as (first, second):
            keep_reading(second, 1.5)
            recorder.send_signal(signal.SIGINT)
            log = finished(recorder)
        server.check_log()
    sessions = {row['attachment_id']: row for row in table(log, 'sessions') if row['database'] == str(database)}
    assert set(sessions) == {str(first.attachment_id), str(second.attachment_id)}
    for row in sessions.values():
        assert row['user_name'] == env.USER.upper()
        assert row['database'] == str(database)
        assert (row['mode'], row['sampling_interval'], row['end_reason']) == ('passive', '1000000', 'finished')
    lines = lines_of_sessions(log)
    assert set(lines[str(first.attachment_id)]) == {1}
    assert set(lines[str(second.attachment_id)]) <= {4, 5, 6, 7, 8, 9}
    texts = [row['sql_text'] for row in table(log, 'statements')]
    assert sum(text.startswith('execute block as declare i bigint') for text in texts) == 1
    report = env.run([env.FBPROF, 'report', log]).stdout
    assert re.search(r'^ *% +self +wait +total +samples +line +where$', report, re.MULTILINE)
    assert 'passive every 1.000 ms, from another process' in report


def test_process_that_ends(scratch, database, root, layouts):
    """The recording ends with it, and so do its sessions."""
    with env.Endless(database, 'busy', 'off', root=root) as client:
        recorder = record(client.executor, scratch / 'log', layouts)
        await_session(scratch / 'log')
        time.sleep(0.5)
        os.kill(client.executor, signal.SIGKILL)
        log = finished(recorder)
    row, = table(log, 'sessions')
    assert row['end_reason'] == 'detached'
    assert int(row['samples']) > 50


def test_killed_recorder(scratch, database, root, layouts):
    """What had been sampled is in the log; the server goes on."""
    with env.Endless(database, 'joins', 'off', root=root) as client:
        recorder = record(client.executor, scratch / 'log', layouts)
        await_session(scratch / 'log')
        time.sleep(0.5)
        recorder.kill()
        recorder.communicate()
        client.seen(client.seen(1) + 10)
    row, = table(env.logs(scratch / 'log')[0], 'sessions')
    assert row['end_reason'] == 'killed'
    assert int(row['samples']) > 20


def test_nothing_is_taken_for_something_else(scratch, database, root, layouts):
    """At 10 kHz, while statements of other texts take each other's places in memory: each is in its own lines only."""
    with env.Server(scratch / 'server') as server:
        clients = [subprocess.Popen(env.python_program('telling_lines.py', server.dsn(database), 4, seed),
                                    env=env.environment(root), stdout=subprocess.PIPE, text=True) for seed in range(4)]
        with env.Attachment(server.dsn(database), root):  # so that there is an engine all the while
            recorder = record(server.pid, scratch / 'log', layouts, '--interval', 100, '--share', 100)
            done = [int(client.communicate(timeout=env.PATIENCE)[0]) for client in clients]
            assert [client.returncode for client in clients] == [0] * 4
            recorder.send_signal(signal.SIGINT)
            log = finished(recorder)
        server.check_log()
    names = {(row['profile_id'], row['statement_id']): row['routine_name'] or row['sql_text']
             for row in table(log, 'statements')}
    seen = 0
    for row in table(log, 'psql_stats'):
        name = names[row['profile_id'], row['statement_id']]
        told = re.search(r'/\* line (\d+) \*/$|^P\d+_(\d+)$', name)
        if told:
            seen += int(row['samples'])
            assert int(row['line_num']) in (1, int(told[1] or told[2])), name
    sessions = table(log, 'sessions')
    samples, torn = (sum(int(row[column]) for row in sessions) for column in ('samples', 'torn_samples'))
    print(f'{sum(done)} statements, {len(sessions)} sessions, {samples} samples, {seen} of them told, {torn} torn')
    assert sum(done) > 200 and seen > 500


# Inside a server ---------------------------------------------------------------------------------

def traces(pid: int) -> list[str]:
    return ([name for name in env.threads(pid).values() if name.startswith('fbprof')]
            + [target for target in env.descriptors(pid).values() if 'fbprof' in target])


@pytest.mark.parametrize('mode', ['Super', 'Classic'])
def test_in_process(scratch, database, root, profiler, layouts, mode):
    """From the first connection on; switched off, it holds no file and uses no CPU; sessions work beside it."""
    with env.Server(scratch / 'server', mode, preload=profiler,
                    extra={'FBPROF_OPTIONS': 'MODE=PASSIVE,PLAN_RATE=100', 'FBPROF_CACHE': str(layouts)}) as server:
        with two_clients(server, database, root) as (first, second), \
                env.Attachment(server.dsn(database), root) as client:
            pid = first.executor
            for client_pid in first.executor, second.executor:
                env.wait_until(lambda: fbprof('passive', 'status', '--pid', client_pid).stdout.startswith('on, to '),
                               'recording')
            client.start_session('beside it', 'MODE=COARSE')
            client.run('select count(*) from num')
            client.finish_session()
            read_until_seen(second, server.log_dir)
            assert fbprof('passive', 'off', '--pid', pid).stdout == 'off\n'
            assert [trace for trace in traces(pid) if trace.endswith('.fbprof')] == []
            assert 'anon_inode:[perf_event]' not in env.descriptors(pid).values()
            thread, = [thread for thread, name in env.threads(pid).items() if name == 'fbprof-passive']
            before = Path(f'/proc/{pid}/task/{thread}/schedstat').read_text()
            time.sleep(0.3)
            assert Path(f'/proc/{pid}/task/{thread}/schedstat').read_text() == before
            on = fbprof('passive', 'on', '--pid', pid).stdout
            assert on.startswith('on, ')
            time.sleep(0.3)
        server.check_log()
    logs = env.logs(server.log_dir)
    # The server's own work in its security database has sessions, too.
    sessions = [row for log in logs for row in table(log, 'sessions') if row['database'] == str(database)]
    by_mode = Counter(row['mode'] for row in sessions)
    assert by_mode['coarse'] == 1
    assert sum(row['attachment_id'] == str(first.attachment_id) for row in sessions) == 2
    assert sum(row['attachment_id'] == str(second.attachment_id) for row in sessions) >= 1
    assert {row['end_reason'] for row in sessions if row['mode'] == 'passive'} <= {'finished', 'detached'}


def test_embedded_from_start_to_end(scratch, database, root, profiler, layouts):
    """The log is closed when the process ends."""
    env.isql(root, f"connect '{database}';\nset term ^;\nexecute block as declare i integer = 0;"
                   ' begin while (i < 10000000) do i = i + 1; end^\n', preload=profiler,
             log_dir=scratch / 'log', FBPROF_OPTIONS='MODE=PASSIVE,SAMPLING_INTERVAL=200,SQL_TEXT=HASH',
             FBPROF_CACHE=str(layouts))
    log, = env.logs(scratch / 'log')
    assert 'state          closed\n' in env.run([env.FBPROF_DUMP, '--info', log]).stdout
    assert {row['sampling_interval'] for row in table(log, 'sessions')} == {'200000'}
    assert {row['sql_text'][:5] for row in table(log, 'statements') if row['sql_text']} == {'hash:'}


def test_nobody_asked_for_it(scratch, database, root, profiler):
    with env.Endless(database, 'joins', 'off', root=root, preload=profiler, log_dir=scratch / 'log') as client:
        client.seen(3)
        assert traces(client.executor) == []
        refused = fbprof('passive', 'on', '--pid', client.executor, check=False)
    assert refused.returncode == 1
    assert re.fullmatch(r'fbprof: process \d+: has no recorder to switch: .*MODE=PASSIVE.*record --pid \d+ .*\n',
                        refused.stderr)
    assert not (scratch / 'log').exists()


def test_unknown_layout_in_process(scratch, database, root, profiler):
    """One line in firebird.log, and queries as ever."""
    empty = scratch / 'empty'
    empty.mkdir()
    with env.Endless(database, 'joins', 'off', root=root, preload=profiler, log_dir=scratch / 'log',
                     FBPROF_OPTIONS='MODE=PASSIVE', FBPROF_CACHE=str(empty)) as client:
        client.seen(3)
        status = env.wait_until(lambda: [answer for answer in [fbprof('passive', 'status', '--pid', client.executor,
                                                                      check=False)] if answer.returncode], 'failure')
        client.seen(10)
    assert 'fbprof calibrate' in status[0].stderr


# What can't be recorded --------------------------------------------------------------------------

def test_refusals(scratch, database, root, layouts):
    empty = scratch / 'empty'
    empty.mkdir()
    log_dir = scratch / 'log'
    for arguments, sentence in {
        ('--pid', os.getpid()): r'process \d+: not a Firebird process.*',
        ('--pid', 2 ** 22 + 1): r'process \d+: no such process.*',
    }.items():
        done = fbprof('record', *arguments, '-o', log_dir, layouts=layouts, check=False)
        assert (done.returncode, done.stdout) == (1, '')
        assert re.fullmatch(rf'fbprof: {sentence}\n', done.stderr), done.stderr
    with env.Endless(database, 'busy', 'off', root=root) as client:
        done = fbprof('record', '--pid', client.executor, '-o', log_dir, layouts=empty, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r'fbprof: process \d+: .*no layout of this engine: run fbprof calibrate.*\n', done.stderr)
    assert env.logs(log_dir) == [], 'an empty log was left'


@pytest.mark.parametrize('arguments', [
    ['record'],
    ['record', '--pid', '0'],
    ['record', '--pid', '1', '--interval', '49'],
    ['record', '--pid', '1', '--duration', '-1'],
    ['record', '--pid', '1', '--share', '0'],
    ['record', '--pid', '1', '--sql-text', 'some'],
    ['record', '--pid', '1', 'a.fbprof'],
    ['passive', '--pid', '1'],
    ['passive', 'maybe', '--pid', '1'],
    ['passive', 'on'],
    ['top'],
    ['top', 'a.fbprof', '--pid', '1'],
    ['top', '--pid', '1', '--delay', '0', '--once'],
    ['top', '--pid', '1'],  # no terminal
])
def test_misuse(arguments):
    done = fbprof(*arguments, check=False)
    assert (done.returncode, done.stdout) == (2, '')
    assert re.fullmatch(r'fbprof: .*: see fbprof \w+ --help\n', done.stderr)


# The screen --------------------------------------------------------------------------------------

def test_top_as_text(scratch, database, root, layouts):
    with env.Endless(database, 'busy', 'off', root=root) as client:
        done = fbprof('top', '--once', '--delay', '0.5', '--pid', client.executor, layouts=layouts)
        assert f'pid {client.executor} on ' in done.stdout
        assert re.search(rf'^█+ 100.0 100.0 .* {client.attachment_id} SYSDBA {database}$', done.stdout, re.MULTILINE)
        assert re.search(r'^█+ 100.0 100.0 .*  execute block as declare i bigint', done.stdout, re.MULTILINE)
        assert re.search(r'^█+ +[\d.]+ +[\d.]+ .*  1:\d+ execute block as declare', done.stdout, re.MULTILINE)
        recorder = record(client.executor, scratch / 'log', layouts)
        env.wait_until(lambda: env.logs(scratch / 'log'), 'a log')
        time.sleep(0.5)
        done = fbprof('top', '--once', env.logs(scratch / 'log')[0])
        assert 'execute block as declare i bigint' in done.stdout
        recorder.send_signal(signal.SIGTERM)
        finished(recorder)


def run_on_terminal(arguments, layouts, act, term='xterm') -> tuple[int, bytes]:
    """Exit code, and what the terminal was sent; act(process, master) does something meanwhile."""
    master, slave = pty.openpty()
    process = subprocess.Popen([env.FBPROF, *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave,
                               env=env.environment(FBPROF_CACHE=str(layouts), TERM=term, LC_ALL='C.UTF-8'))
    os.close(slave)
    sent = b''
    deadline = time.monotonic() + env.PATIENCE
    acted = False
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.1)[0]:
            try:
                part = os.read(master, 65536)
            except OSError:
                break
            if not part:
                break
            sent += part
        if not acted and b'line' in sent:
            acted = True
            act(process, master)
    os.close(master)
    return process.wait(env.PATIENCE), sent


@pytest.mark.parametrize('end', ['q', signal.SIGINT, signal.SIGTERM])
def test_top_on_a_terminal(database, root, layouts, end):
    """The terminal is as before at the end: the other screen is left, the cursor is there."""
    def act(process, master):
        time.sleep(0.5)
        if end == 'q':
            os.write(master, b'q')
        else:
            process.send_signal(end)

    with env.Endless(database, 'busy', 'off', root=root) as client:
        status, sent = run_on_terminal(['top', '--pid', client.executor, '--delay', '0.2'], layouts, act)
    assert status == 0
    assert sent.startswith(b'\x1b[?1049h')
    assert b'execute block as declare' in sent
    assert sent.rindex(b'\x1b[?1049l') > sent.rindex(b'\x1b[?1049h')
    assert sent.rindex(b'\x1b[?12l\x1b[?25h') > sent.rindex(b'\x1b[?25l')


def test_top_on_no_terminal_that_it_knows(database, root, layouts):
    with env.Endless(database, 'busy', 'off', root=root) as client:
        status, sent = run_on_terminal(['top', '--pid', client.executor], layouts, lambda *_: None, term='none')
    assert status == 1
    assert sent.count(b'\n') == 1 and b'fbprof: TERM: ' in sent and b'--once' in sent
