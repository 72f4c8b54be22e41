"""Positions read out of real engines, embedded, Super and Classic, 5.0, 4.0 and 3.0: none is ever wrong."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

import firebird_env as env
import telltale

POSITIONS = Path(os.environ.get('FBPROF_OBJ') or env.REPOSITORY / 'build/obj').resolve() / 'fbprof-positions'


class Looking:
    """fbprof-positions at work, up to stop()."""

    def __init__(self, pid: int, layouts: Path, interval_us: int, seconds: float = env.PATIENCE):
        self.process = subprocess.Popen([POSITIONS, str(pid), str(seconds), str(interval_us)],
                                        env=env.environment(FBPROF_CACHE=str(layouts)), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = self.process.stdout.readline()
        assert first == 'looking\n', self.process.communicate()[1]

    def stop(self) -> telltale.Seen:
        out, error = self.process.communicate()
        assert self.process.returncode == 0, error
        return telltale.parse(out)


def start_isql(root: Path, target: str, script: str) -> subprocess.Popen:
    isql = subprocess.Popen([root / 'bin/isql-fb', '-q', '-bail', '-ch', 'utf8', *isql_login(target), target],
                            env=env.environment(root), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)
    isql.stdin.write(script)
    isql.stdin.flush()
    return isql


def isql_login(target: str) -> list[str]:
    return ['-user', env.USER, '-password', env.PASSWORD] if ':' in target else []


def finish(isql: subprocess.Popen) -> None:
    out, _ = isql.communicate(timeout=env.PATIENCE)
    assert isql.returncode == 0, out


def make_identities(root: Path, target: str, count: int, work: int = 1) -> list[telltale.Identity]:
    made = [telltale.Identity(tag, work=work) for tag in range(1, count + 1)]
    finish(start_isql(root, target, ''.join(identity.setup_script() for identity in made)))
    return made


def check_totals(seen: telltale.Seen, samples, tags: int) -> None:
    """These routines take a microsecond or two each: more of them is torn than of any real workload."""
    assert seen.totals['torn'] < 0.15 * seen.totals['busy'], seen.totals
    assert samples['rootless'] < 0.005 * seen.totals['busy'], samples
    assert all(samples[tag] > 50 for tag in range(1, tags + 1)), samples


# All in each way, but not each in all.
WAYS = ['5.0.4 embedded', '5.0.4 Super', '5.0.4 Classic', '4.0.7 Super', '3.0.14 Classic', 'debian-3.0 Super']


@pytest.mark.parametrize('way', WAYS)
def test_tells_the_truth(scratch, calibrated, way):
    version, mode = way.split()
    calibration = calibrated(version)
    if mode == 'embedded':
        check_embedded(scratch, calibration)
    else:
        check_server(scratch, calibration, mode)


def check_embedded(scratch: Path, calibration) -> None:
    root = env.make_root(scratch / 'root', calibration.runtime)
    database = str(scratch / 'own.fdb')
    env.isql(root, f"create database '{database}';")
    identity, = make_identities(root, database, 1)
    isql = start_isql(root, database, 'select 1 from rdb$database;\n')
    env.wait_until(lambda: 'libEngine' in ''.join(env.mappings(isql.pid)), 'the engine is loaded')
    looking = Looking(isql.pid, calibration.cache, 100)
    isql.stdin.write(identity.work_script(20))
    finish(isql)
    seen = looking.stop()
    check_totals(seen, telltale.check(seen, [identity]), 1)


def check_server(scratch: Path, calibration, mode: str) -> None:
    with env.Server(scratch / 'server', mode, runtime=calibration.runtime) as server:
        target = server.dsn(scratch / 'own.fdb')
        env.isql(server.root, f"create database '{scratch / 'own.fdb'}';")
        made = make_identities(server.root, target, 6)
        with contextlib.ExitStack() as stack:
            stay = start_isql(server.root, target, 'select 1 from rdb$database;\n')
            stack.callback(finish, stay)
            env.wait_until(lambda: any('libEngine' in ''.join(env.mappings(pid)) for pid in server.pids()),
                           'the engine is loaded')
            looking = Looking(server.pid, calibration.cache, 100)
            works = [start_isql(server.root, target, identity.work_script(4)) for identity in made]
            for work in works:
                finish(work)
            seen = looking.stop()
        check_totals(seen, telltale.check(seen, made), 6)
        server.check_log()


# Two lines take turns, then one lasts.
CONNECTING = ['create trigger connecting on connect as declare i integer = 0;', 'begin', '  while (i < 2000000) do',
              '    i = i + 1;', '  select count(*) from rdb$fields a, rdb$fields b, rdb$relations c into i;', 'end']


@pytest.mark.parametrize('version', ['5.0.4', '3.0.14'])
def test_trigger_without_caller(scratch, calibrated, version):
    """One of the database is outermost, and is seen, whether its line changes or not."""
    calibration = calibrated(version)
    with env.Server(scratch / 'server', runtime=calibration.runtime) as server:
        target = server.dsn(scratch / 'own.fdb')
        env.isql(server.root, f"create database '{scratch / 'own.fdb'}';")
        stay = start_isql(server.root, target, 'set term ^ ;\n' + '\n'.join(CONNECTING) + '^\ncommit^\nset term ; ^\n')
        env.wait_until(lambda: 'libEngine' in ''.join(env.mappings(server.pid)), 'the engine is loaded')
        looking = Looking(server.pid, calibration.cache, 100)
        for _ in range(3):
            finish(start_isql(server.root, target, 'select 1 from rdb$database;\n'))
        seen = looking.stop()
        finish(stay)
        server.check_log()
    lines = Counter()
    for count, _, frames in seen.positions:
        if seen.statements[frames[0][0]][:2] == ('trigger', 'CONNECTING'):
            lines[frames[0][1]] += count
    assert set(lines) <= set(range(1, 7)), lines
    assert lines[3] + lines[4] > 50 and lines[5] > 50, lines


# Unrest ------------------------------------------------------------------------------------------

LONG = os.environ.get('FBPROF_LONG_TESTS') == '1'
SECONDS = 600 if LONG else 8
MOST_TORN = 0.01 if LONG else 0.02  # of few samples, those of one thread that is kept from running may be 1 %
ATTACHMENTS = 32


def kill_clients(root: Path, target: str, identity: telltale.Identity, deadline: float) -> None:
    """Clients that go without a word, in the middle of their work."""
    while time.monotonic() < deadline:
        isql = start_isql(root, target, identity.work_script(1))
        time.sleep(0.3)
        isql.kill()
        isql.communicate()


class Unrest:
    """Attachments to a server come, go, fail, change their routines, kill one another's statements, and clients are
    killed, for SECONDS from outlive() on, which the server survives."""

    def __init__(self, server: env.Server, database: Path):
        self.server, self.target = server, server.dsn(database)
        env.isql(server.root, f"create database '{database}';")
        self.identities = make_identities(server.root, self.target, ATTACHMENTS + 1, work=10)

    def outlive(self, root: Path) -> None:
        unrest = subprocess.Popen(env.python_program('unrest.py', self.target, ATTACHMENTS, SECONDS),
                                  stdout=subprocess.PIPE, env=env.environment(root), text=True)
        kill_clients(self.server.root, self.target, self.identities[-1], time.monotonic() + SECONDS)
        out, _ = unrest.communicate(timeout=env.PATIENCE)
        assert self.server.process.poll() is None, env.firebird_log(self.server.root)
        done = json.loads(out)
        print(done)
        for what in ('attached', 'work', 'failed', 'ddl', 'kill', 'work failed'):
            assert done.get(what, 0) > 0, done

    def check(self, seen: telltale.Seen, most_torn: float) -> Counter:
        """Nothing of it contradicts itself; how many samples each identity has."""
        print(seen.totals)
        samples = telltale.check(seen, self.identities)
        assert seen.totals['torn'] < most_torn * seen.totals['busy'], seen.totals
        assert all(samples[identity.tag] > 0 for identity in self.identities), samples
        return samples


def test_unrest(scratch, root, calibrated):
    """It is looked at every 100 µs, from outside."""
    with env.Server(scratch / 'server') as server:
        unrest = Unrest(server, scratch / 'own.fdb')
        # Without a transaction, which would keep old versions of records, so that more and more time is spent there.
        stay = start_isql(server.root, unrest.target, 'select 1 from rdb$database;\ncommit;\n')
        env.wait_until(lambda: 'libEngine' in ''.join(env.mappings(server.pid)), 'the engine is loaded')
        looking = Looking(server.pid, calibrated('5.0.4').cache, 100, SECONDS + env.PATIENCE)
        unrest.outlive(root)
        seen = looking.stop()
        finish(stay)
        server.check_log()
    samples = unrest.check(seen, MOST_TORN)
    assert samples['rootless'] < 0.005 * seen.totals['busy'], samples


def seen_in_log(log: Path) -> telltale.Seen:
    """Of each line that has samples only itself, without what called it."""
    tables = {name: list(csv.DictReader(env.run([env.FBPROF_DUMP, '--table', name, log]).stdout.splitlines(True)))
              for name in ('sessions', 'statements', 'psql_stats')}
    return telltale.Seen(
        [(int(row['samples']), row['profile_id'],
          [((row['profile_id'], row['statement_id']), int(row['line_num']), 0)]) for row in tables['psql_stats']],
        {(row['profile_id'], row['statement_id']): (row['statement_type'], row['routine_name'], row['sql_text'])
         for row in tables['statements']},
        {'busy': sum(int(row['samples']) for row in tables['sessions']),
         'torn': sum(int(row['torn_samples']) for row in tables['sessions'])})


def test_unrest_from_within(scratch, root, profiler, calibrated):
    """The server looks at itself every 100 µs. No attachment lives long, and a sample or two of each is torn, as a
    statement that is new is gone before its text is read."""
    with env.Server(scratch / 'server', preload=profiler,
                    extra={'FBPROF_OPTIONS': 'MODE=PASSIVE,SAMPLING_INTERVAL=100', 'FBPROF_SAMPLER_SHARE': '100',
                           'FBPROF_CACHE': str(calibrated('5.0.4').cache)}) as server:
        unrest = Unrest(server, scratch / 'own.fdb')
        unrest.outlive(root)
        server.check_log()
    log, = env.logs(server.log_dir)
    unrest.check(seen_in_log(log), 0.04)
