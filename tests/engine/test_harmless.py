"""What the preload must never do: change another program, create what nobody asked for, fail a query."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

import firebird_env as env
import prof_tables

# Other programs ----------------------------------------------------------------------------------

PYTHON = """
import ctypes, ctypes.util, os, subprocess, sys, threading, time
values = []
threads = [threading.Thread(target=lambda i=i: values.append(sum(range(i * 1000)))) for i in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
def tasks():
    # A joined thread may take a moment to vanish.
    for _ in range(200):
        if len(os.listdir('/proc/self/task')) == 1: break
        time.sleep(0.01)
    return len(os.listdir('/proc/self/task'))
print(sorted(values), tasks())
before = time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
print(time.clock_gettime(time.CLOCK_MONOTONIC_RAW) >= before)
try:
    ctypes.CDLL('libno_such_library.so')
except OSError as error:
    print(error)
print(ctypes.CDLL(None).getpid() == os.getpid())
print(subprocess.run(['cat'], input=b'through a child', capture_output=True).stdout)
pid = os.fork()
if pid == 0:
    print('child', tasks(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
sys.exit(5)
"""

BASH = """
set -o pipefail
echo $((6 * 7)); ls /proc/self/task | wc -l; ls /proc/$$/task | wc -l
seq 1 30000 | sort -R --parallel=4 | sort -n --parallel=4 | tail -1
(sleep 0.1; echo in the background) & wait
cat <<< 'here'; false; echo $?
no_such_command 2>&1 | sed 's/.*: //'
exit 4
"""


def same_with_and_without(command, profiler, log_dir, **kwargs):
    """Run twice; the same output and exit code, and nothing written."""
    plain = env.run(command, env.environment(log_dir=log_dir), check=False, **kwargs)
    preloaded = env.run(command, env.environment(log_dir=log_dir, preload=profiler), check=False, **kwargs)
    assert (preloaded.returncode, preloaded.stdout, preloaded.stderr) == \
        (plain.returncode, plain.stdout, plain.stderr)
    assert not log_dir.exists(), f'{log_dir} was created'
    return plain


def test_bash_is_untouched(scratch, profiler):
    assert same_with_and_without(['bash', '-c', BASH], profiler, scratch / 'logs').returncode == 4


def test_python_is_untouched(scratch, profiler):
    assert same_with_and_without([sys.executable, '-c', PYTHON], profiler, scratch / 'logs').returncode == 5


def test_threads_clocks_signals_dlopen_and_fork_are_untouched(scratch, profiler):
    """dlopen must see its caller: libraries are found through the RUNPATH of who asks."""
    compiler = os.environ.get('CC', 'cc').split()
    flags = ['-O2', '-Wall', '-Wextra', '-pthread', '-fPIC']
    (scratch / 'near').mkdir()
    (scratch / 'far').mkdir()
    env.run([*compiler, *flags, '-shared', env.PROGRAMS / 'farther.c', '-o', scratch / 'far/libfarther.so'])
    env.run([*compiler, *flags, '-shared', env.PROGRAMS / 'neighbour.c', '-Wl,-rpath,$ORIGIN/../far',
             '-o', scratch / 'near/libneighbour.so', '-ldl'])
    env.run([*compiler, *flags, env.PROGRAMS / 'harmless.c', '-Wl,-rpath,$ORIGIN/near', '-o', scratch / 'harmless',
             '-ldl'])
    plain = same_with_and_without([scratch / 'harmless'], profiler, scratch / 'logs')
    assert plain.returncode == 3
    assert 'neighbour found\n' in plain.stdout
    assert 'clock failures 0\n' in plain.stdout


def test_isql_without_a_session_is_untouched(scratch, database, root, profiler):
    script = f"connect '{database}';\nselect count(*) from emp;\nselect first 3 name from emp order by 1;\n"
    log_dir = scratch / 'logs'
    assert env.isql(root, script, preload=profiler, log_dir=log_dir) == env.isql(root, script, log_dir=log_dir)
    assert not log_dir.exists()


# Where a log can't be --------------------------------------------------------------------------

def run_sessions(database, root, log_dir, profiler, work='small', options=('-', 'DETAILED_REQUESTS'), **extra):
    return env.run_program('sessions_in.py', database, work, *options, root=root, preload=profiler, log_dir=log_dir,
                           **extra)


def expected_results(database, root, scratch, work='small', count=2):
    """What the same work returns with nothing preloaded, in a database of its own."""
    other = shutil.copy(database, scratch / 'expected.fdb')
    options = ('-', 'DETAILED_REQUESTS')[:count]
    return [answer['results'] for answer in env.run_program('sessions_in.py', other, work, *options, root=root)]


def check_survived(answers, expected, log_dir):
    """All queries gave what they always give; a session that could not start said why."""
    assert [answer['results'] for answer in answers] == expected
    for answer in answers:
        if 'error' in answer:
            assert 'fbprof' in answer['error'] and str(log_dir) in answer['error'], answer['error']


@pytest.fixture
def tiny_filesystem(scratch):
    """mount(size) → a directory on a tmpfs of its own."""
    mounted = []

    def mount(size: str, options: str = 'rw'):
        directory = scratch / 'tiny'
        directory.mkdir()
        command = ['mount', '-t', 'tmpfs', '-o', f'size={size},mode=0700,{options}', 'tmpfs', directory]
        if os.geteuid() != 0 or not shutil.which('mount'):
            pytest.skip('mounting a tiny filesystem takes root')
        done = env.run(command, check=False)
        if done.returncode:
            pytest.skip(f'no tiny filesystem can be mounted here: {done.stderr.strip()}')
        mounted.append(directory)
        return directory

    yield mount
    for directory in mounted:
        subprocess.run(['umount', directory], check=True)


def test_log_directory_is_made_for_its_owner_alone(scratch, database, root, profiler):
    log_dir = scratch / 'logs'
    run_sessions(database, root, log_dir, profiler)
    log, = env.logs(log_dir)
    assert log_dir.stat().st_mode & 0o777 == 0o700
    assert log.stat().st_mode & 0o777 == 0o600


def test_log_directory_whose_parent_is_missing(scratch, database, root, profiler):
    expected = expected_results(database, root, scratch)
    log_dir = scratch / 'missing/parent/logs'
    check_survived(run_sessions(database, root, log_dir, profiler), expected, log_dir)


def test_log_directory_is_a_file(scratch, database, root, profiler):
    expected = expected_results(database, root, scratch)
    log_dir = scratch / 'file'
    log_dir.write_text('precious')
    check_survived(run_sessions(database, root, log_dir, profiler), expected, log_dir)
    assert log_dir.read_text() == 'precious'


def test_log_directory_is_a_symbolic_link(scratch, database, root, profiler):
    """Nothing is written through it."""
    expected = expected_results(database, root, scratch)
    target = scratch / 'target'
    target.mkdir()
    log_dir = scratch / 'link'
    log_dir.symlink_to(target)
    check_survived(run_sessions(database, root, log_dir, profiler), expected, log_dir)
    assert list(target.iterdir()) == []
    assert log_dir.is_symlink()


def test_log_directory_that_others_can_write(scratch, database, root, profiler):
    """Somebody else could plant files there: either refused, or used with the log safe from others."""
    expected = expected_results(database, root, scratch)
    log_dir = scratch / 'open'
    log_dir.mkdir()
    log_dir.chmod(0o777)
    check_survived(run_sessions(database, root, log_dir, profiler), expected, log_dir)
    for log in env.logs(log_dir):
        assert log.stat().st_mode & 0o777 == 0o600


def test_log_directory_is_read_only(scratch, database, root, profiler, tiny_filesystem):
    expected = expected_results(database, root, scratch)
    if os.geteuid() == 0:
        log_dir = tiny_filesystem('64k', 'ro')
    else:
        log_dir = scratch / 'read-only'
        log_dir.mkdir(mode=0o500)
    check_survived(run_sessions(database, root, log_dir, profiler), expected, log_dir)
    assert env.logs(log_dir) == []


@pytest.mark.parametrize('size', ['4k', '64k', '1m', '3m'])
def test_full_filesystem(scratch, database, root, profiler, tiny_filesystem, size):
    """Full at once, or in the midst of a session: recording ends with one line, the queries don't notice."""
    expected = expected_results(database, root, scratch, 'large')
    log_dir = tiny_filesystem(size)
    done = env.run(env.python_program('sessions_in.py', database, 'large', '-', 'DETAILED_REQUESTS'),
                   env.environment(root, preload=profiler, log_dir=log_dir))
    answers = json.loads(done.stdout)
    check_survived(answers, expected, log_dir)
    # The engine hasn't made a firebird.log here, so stderr is the place. A session that can't start says it itself.
    said = [line for line in (env.firebird_log(root) + done.stderr).splitlines() if 'fbprof: ' in line]
    assert said or all('error' in answer for answer in answers), 'nobody was told that recording has ended'
    assert len(said) <= 2, said
    assert all(str(log_dir) in line for line in said), said
    for log in env.logs(log_dir):
        env.run([env.FBPROF_DUMP, '--info', log])


def test_full_filesystem_under_a_server(scratch, database, root, profiler, tiny_filesystem):
    """The server lives on, and serves."""
    log_dir = tiny_filesystem('256k')
    lines = '\n'.join('n = n + 1;' for _ in range(2000))
    with env.Server(scratch, preload=profiler, extra={'FBPROF_DIR': str(log_dir)}) as server:
        for number in range(3):
            with env.Attachment(server.dsn(database), root) as client:
                try:
                    client.start_session('full', 'DETAILED_REQUESTS')
                except env.DatabaseError as error:
                    assert str(log_dir) in str(error)
                for _ in range(10):
                    text = f'execute block returns (n integer) as begin n = {number};\n{lines}\nsuspend; end'
                    assert client.run(text) == [[number + 2000]]
                client.finish_session()
        assert server.process.poll() is None
        server.check_log()


# Options -----------------------------------------------------------------------------------------

BAD_OPTIONS = {
    'NO_SUCH_OPTION': ['NO_SUCH_OPTION', 'SAMPLING_INTERVAL', 'DETAILED_REQUESTS'],
    'NO_SUCH_OPTION=7': ['NO_SUCH_OPTION', '7', 'SAMPLING_INTERVAL'],
    'SAMPLING_INTERVAL=10': ['SAMPLING_INTERVAL', '10', '50', '1000000'],
    'SAMPLING_INTERVAL=1000001': ['SAMPLING_INTERVAL', '1000001', '50', '1000000'],
    'SAMPLING_INTERVAL=abc': ['SAMPLING_INTERVAL', 'abc', '50', '1000000'],
    'SAMPLING_INTERVAL=100us': ['SAMPLING_INTERVAL', '100us', '50', '1000000'],
    'SAMPLING_INTERVAL=-100': ['SAMPLING_INTERVAL', '-100', '50', '1000000'],
    'SAMPLING_INTERVAL=18446744073709551716': ['SAMPLING_INTERVAL', '18446744073709551716', '50', '1000000'],
    'SAMPLING_INTERVAL=': ['SAMPLING_INTERVAL', '50', '1000000'],
    'SAMPLING_INTERVAL': ['SAMPLING_INTERVAL', '50', '1000000'],
    'DETAILED_REQUESTS=perhaps': ['DETAILED_REQUESTS', 'perhaps'],
    'DETAILED_REQUESTS, SAMPLING_INTERVAL=10': ['SAMPLING_INTERVAL', '10', '50', '1000000'],
}


def test_wrong_options_fail_with_a_sentence(scratch, database, root, profiler):
    """It names the option, the value and what is allowed; the attachment works on, and so does a later session."""
    options = [*BAD_OPTIONS, 'SAMPLING_INTERVAL=1000']
    answers = run_sessions(database, root, scratch / 'logs', profiler, options=options)
    complaints = []
    for (option, words), answer in zip(BAD_OPTIONS.items(), answers):
        error = answer.get('error')
        if error is None:
            complaints.append(f'{option}: accepted')
        else:
            complaints += [f'{option}: no {word} in: {error}' for word in words if word not in error]
    assert not complaints, '\n'.join(complaints)
    assert 'session' in answers[-1], answers[-1]
    assert all(answer['results'] == answers[0]['results'] for answer in answers)


GOOD_OPTIONS = ['', ' ', 'detailed_requests', 'Sampling_Interval=50', 'SAMPLING_INTERVAL=1000000',
                'sampling_interval=200,detailed_requests', ' DETAILED_REQUESTS , SAMPLING_INTERVAL=100 ']


def test_good_options_are_taken_in_any_case_and_order(scratch, database, root, profiler):
    answers = run_sessions(database, root, scratch / 'logs', profiler, options=GOOD_OPTIONS)
    assert [answer.get('error') for answer in answers] == [None] * len(GOOD_OPTIONS)


def test_options_from_the_environment(scratch, database, root, profiler):
    """FBPROF_OPTIONS holds when PLUGIN_OPTIONS says nothing; a wrong one fails START_SESSION as well."""
    log_dir = scratch / 'logs'
    run_sessions(database, root, log_dir, profiler, options=['-'], FBPROF_OPTIONS='DETAILED_REQUESTS')
    tables = prof_tables.tables_of_directory(env.dump(env.logs(log_dir), scratch / 'csv'))
    assert all(row['request_id'] > 0 for row in tables['requests'])
    answer, = run_sessions(database, root, log_dir, profiler, options=['-'], FBPROF_OPTIONS='SAMPLING_INTERVAL=9')
    assert 'FBPROF_OPTIONS' in answer['error'] and '9' in answer['error']
