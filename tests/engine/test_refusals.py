"""What passive mode's commands say when something is wrong: one line, that names it and what to do; and status 1."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import firebird_env as env
from test_record import fbprof, table

ENGINE = env.FIREBIRD / 'plugins/libEngine13.so'

# As root without what makes root more than another user: for the tests of what is forbidden.
WITHOUT_RIGHTS = ['setpriv', '--bounding-set=-all', '--inh-caps=-all'] if os.geteuid() == 0 else []


def refused(done: subprocess.CompletedProcess, sentence: str) -> None:
    assert (done.returncode, done.stdout) == (1, ''), done
    assert re.fullmatch(f'fbprof: .*{sentence}.*\n', done.stderr), done.stderr


@contextlib.contextmanager
def client_of(root, database, *prefix):
    """endless.py at work, embedded, behind some other program."""
    process = subprocess.Popen([*prefix, *env.python_program('endless.py', database, 'busy', '-')],
                               env=env.environment(root), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# fbprof record -----------------------------------------------------------------------------------

def test_engine_that_was_replaced(scratch, database, root, layouts):
    """Only who may see the mapped file can still identify it; anybody else is told, and doesn't wait for ever."""
    engine = root / 'plugins/libEngine13.so'
    (root / 'plugins').unlink()
    shutil.copytree(env.FIREBIRD / 'plugins', root / 'plugins')
    with client_of(root, database, *WITHOUT_RIGHTS) as client:
        engine.unlink()
        engine.write_bytes(b'new')
        command = [*WITHOUT_RIGHTS, env.FBPROF, 'record', '--pid', client.pid, '--duration', 30, '-o', scratch / 'log']
        refused(env.run(command, env.environment(FBPROF_CACHE=str(layouts)), check=False),
                'was removed or replaced since it started: restart the server, or run this as root')
    assert env.logs(scratch / 'log') == []


def test_another_users_process(layouts):
    command = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', env.FBPROF]
    if os.geteuid() != 0 or env.run([*command, '--version'], check=False).returncode != 0:
        pytest.skip('no other user here who could run fbprof')
    done = env.run([*command, 'record', '--pid', os.getpid()], env.environment(FBPROF_CACHE=str(layouts)), check=False)
    refused(done, r'process \d+: it belongs to another user \(uid 0\): run this as root')


def without_record_sources(layouts: Path, directory: Path) -> Path:
    """The layout as if calibration had found none."""
    directory.mkdir()
    for file in layouts.iterdir():
        lines = [line for line in file.read_text().splitlines(keepends=True)
                 if not line.startswith(('plan ', 'step ', 'sha256 '))]
        text = ''.join(lines)
        (directory / file.name).write_text(f'{text}sha256 {hashlib.sha256(text.encode()).hexdigest()}\n')
    return directory


def test_layout_without_record_sources(scratch, database, root, layouts):
    """Lines are recorded all the same, but it is said."""
    layouts = without_record_sources(layouts, scratch / 'layouts')
    with client_of(root, database) as client:
        arguments = ['record', '--pid', client.pid, '--duration', '0.5', '-o', scratch / 'log']
        done = fbprof(*arguments, layouts=layouts)
        assert re.fullmatch(r'fbprof: process \d+: its record sources are not recorded: .* fbprof calibrate .*\n',
                            done.stderr), done.stderr
        assert fbprof(*arguments, '--plan-rate', '0', layouts=layouts).stderr == ''
    for log in env.logs(scratch / 'log'):
        assert table(log, 'psql_stats')


@pytest.mark.parametrize('where, sentence', [
    ('/proc', 'cannot create a log in /proc .* or set --output'),
    ('file', 'is not a directory, or is a symbolic link: name a real one in --output'),
    ('none/log', 'cannot create the log directory .* or set --output'),
    ('/tmp', 'can be changed by other users: set --output to one of this user\'s own'),
])
def test_directory_that_cannot_be(scratch, where, sentence):
    (scratch / 'file').touch()
    refused(fbprof('record', '--pid', os.getpid(), '-o', scratch / where, check=False), sentence)


# What is printed ---------------------------------------------------------------------------------

@pytest.mark.parametrize('where, message', [
    ('>&-', 'fbprof: stdout: cannot be written: Bad file descriptor: .*\n'),
    ('>/dev/full', 'fbprof: stdout: cannot be written: No space left on device: free some space\n'),
    ('| true', ''),
])
def test_output_that_goes_nowhere(scratch, database, root, layouts, where, message):
    """It fails, and the log is as it should be: nothing of what is printed goes there."""
    with client_of(root, database) as client:
        script = f'set -o pipefail; "$0" record --pid {client.pid} --duration 0.5 -o "$1" {where}'
        done = env.run(['bash', '-c', script, env.FBPROF, scratch / 'log'],
                       env.environment(FBPROF_CACHE=str(layouts)), check=False)
    assert done.returncode == 1
    assert re.fullmatch(message, done.stderr), done.stderr
    log, = env.logs(scratch / 'log')
    assert table(log, 'psql_stats')


def test_top_without_a_reader(database, root, layouts):
    with client_of(root, database) as client:
        script = f'set -o pipefail; "$0" top --once --delay 0.2 --pid {client.pid} | true'
        done = env.run(['bash', '-c', script, env.FBPROF], env.environment(FBPROF_CACHE=str(layouts)), check=False)
    assert (done.returncode, done.stderr) == (1, '')


# fbprof calibrate --------------------------------------------------------------------------------

def test_engines_that_are_no_files(scratch):
    """A pipe that nobody writes to, and a device without an end, aren't waited for."""
    os.mkfifo(scratch / 'libEngine13.so')
    for file in scratch / 'libEngine13.so', '/dev/zero':
        refused(fbprof('calibrate', file, check=False), "is no file: name the engine's file")
    refused(fbprof('calibrate', scratch, check=False), "is no file: name the engine's file")


def test_cache_that_may_not_be_read(scratch, layouts):
    """It isn't said to be empty: calibrating again would be in vain."""
    cache = Path(shutil.copytree(layouts, scratch / 'cache'))
    cache.chmod(0)
    done = env.run([*WITHOUT_RIGHTS, env.FBPROF, 'calibrate', '--show', ENGINE],
                   env.environment(FBPROF_CACHE=str(cache)), check=False)
    cache.chmod(0o700)
    refused(done, 'cannot be read: Permission denied: let this user read it, or set FBPROF_CACHE')


@pytest.mark.parametrize('client', ['none', '/bin/true'])
def test_client_library_that_is_none(scratch, client):
    done = fbprof('calibrate', '--client', client, ENGINE, layouts=scratch / 'cache', check=False)
    refused(done, f'no client library: .*{client}: .*: name libfbclient.so.2 with --client')


def test_interrupted_at_the_terminal(scratch):
    """Ctrl-C is sent to all of a group: one message, and nothing is left."""
    (scratch / 'tmp').mkdir()
    variables = env.environment(FBPROF_CACHE=str(scratch / 'cache'), TMPDIR=str(scratch / 'tmp'))
    process = subprocess.Popen([env.FBPROF, 'calibrate', '--quiet', ENGINE], env=variables, stderr=subprocess.PIPE,
                               text=True, start_new_session=True)
    child, = env.wait_until(lambda: env.children(process.pid), 'the engine is loaded in a process of its own')
    time.sleep(0.7)
    os.killpg(process.pid, signal.SIGINT)
    error = process.communicate(timeout=env.PATIENCE)[1]
    assert process.returncode == 1
    assert re.fullmatch('fbprof: .*: interrupted: nothing was saved\n', error), error
    assert not env.alive(child)
    assert not any((scratch / 'cache').iterdir())
    assert not any((scratch / 'tmp').iterdir())


# fbprof passive ----------------------------------------------------------------------------------

def test_nothing_to_switch():
    refused(fbprof('passive', 'status', '--pid', os.getpid(), check=False), 'has no recorder to switch: .* fbprof record')
    refused(fbprof('passive', 'status', '--pid', 2 ** 22 + 1, check=False), 'no such process: give the PID of a server')


@pytest.mark.parametrize('size', [0, 8192])
def test_control_that_is_none(size):
    """What has its name but not its form isn't touched: whoever made it could shorten it meanwhile."""
    fd = os.memfd_create('fbprof-passive')
    try:
        os.ftruncate(fd, size)
        done = fbprof('passive', 'on', '--pid', os.getpid(), check=False)
    finally:
        os.close(fd)
    refused(done, 'its recorder is of another version than this fbprof')
