"""`fbprof calibrate`: the layouts of real engines are learnt and verified, and no other file's is used."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import firebird_env as env
from passive import table

VERSIONS = ['5.0.4', '4.0.7', '3.0.14']

# Firebird 3 and 4 have no ids of statements.
FACTS = {'request', 'attachment', 'caller', 'statement', 'request_id', 'line', 'column', 'sql_text', 'procedure',
         'function', 'trigger', 'procedure_package', 'function_package', 'attachment_id', 'user', 'database'}


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def cache(scratch) -> Path:
    return scratch / 'cache'


@pytest.fixture
def variables(scratch, cache) -> dict[str, str]:
    (scratch / 'tmp').mkdir()
    return env.environment(FBPROF_CACHE=str(cache), TMPDIR=str(scratch / 'tmp'))


def calibrate(variables: dict[str, str], *arguments) -> subprocess.CompletedProcess:
    return env.run([env.FBPROF, 'calibrate', *arguments], variables, check=False)


def refused(done: subprocess.CompletedProcess, status: int, sentence: str) -> None:
    assert (done.returncode, done.stdout) == (status, '')
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(f'fbprof: .*{sentence}.*', last), done.stderr


@pytest.mark.parametrize('version', VERSIONS)
def test_learns_and_verifies(version, calibrated):
    """The whole, on a real engine: what is saved is shown, and the installation stays as it was."""
    calibration = calibrated(version)
    done, engine = calibration.done, calibration.engine
    assert (done.returncode, done.stdout) == (0, ''), done.stderr
    assert re.search(r'verified: \d+ moments agree', done.stderr)
    assert [file.name for file in calibration.cache.iterdir()] == [f'{sha256(engine)}.layout']
    assert not calibration.runtime_changed
    assert list(calibration.tmp.iterdir()) == []

    layout = json.loads(calibrate(calibration.environment, '--show', '--json', engine).stdout)
    assert (layout['identity'], layout['engine']) == (sha256(engine), version)
    assert layout['verified'] >= (2000 if version == '5.0.4' else 1000)
    known = {fact for fact, path in layout['paths'].items() if path['type'] != 'absent'}
    assert known >= FACTS | ({'statement_id'} if version == '5.0.4' else set())
    for fact, path in layout['paths'].items():
        assert (len(path['offsets']) > 0) == (fact in known), fact

    text = calibrate(calibration.environment, '--show', engine).stdout
    assert re.search(rf'^Engine +{re.escape(version)}$', text, re.MULTILINE)
    assert re.search(r'^line +u32 +request +\+0x[0-9a-f]+$', text, re.MULTILINE)


def test_costs(scratch, database, root, profiler, measured_costs):
    """Measured, shown, and used by sessions; or not saved, as the machine was too busy to tell."""
    done, engine = measured_costs.done, measured_costs.engine
    if 'the machine is too busy' in done.stderr:
        refused(done, 1, "the costs of events don't explain what was measured, by \\d+ %")
        assert not any(measured_costs.cache.iterdir())
        return
    assert (done.returncode, done.stdout) == (0, ''), done.stderr
    assert 'costs, process 1 of ' in done.stderr
    assert [file.name for file in measured_costs.cache.iterdir()] == [f'{sha256(engine)}.costs']

    show = '--show', '--costs', engine
    costs = json.loads(calibrate(measured_costs.environment, '--json', *show).stdout)
    assert set(costs) == {'line', 'open', 'fetch', 'request', 'row', 'function', 'detailed', 'cell', 'read'}
    assert all(cost > 0 for kind in ('line', 'fetch', 'request', 'row') for cost in costs[kind][:2])
    assert len(calibrate(measured_costs.environment, *show).stdout.splitlines()) == 1 + len(costs)

    env.run_program('timed.py', shutil.copy(database, scratch / 'copy.fdb'), 'psql_loop', 'MODE=COARSE', root=root,
                    preload=profiler, log_dir=scratch / 'log', FBPROF_CACHE=str(measured_costs.cache))
    session = table(env.logs(scratch / 'log')[0], 'sessions')[0]
    for kind in 'line', 'fetch', 'row':
        ratio = int(session[f'{kind}_cost_ps']) / int(session['request_cost_ps'])
        assert ratio == pytest.approx(costs[kind][1] / costs['request'][1], rel=0.001)


@pytest.mark.parametrize('version', ['4.0.7', '3.0.14'])
def test_costs_of_an_engine_without_a_profiler(version, scratch, variables, calibrated):
    refused(calibrate(variables, '--costs', calibrated(version).engine), 1, 'has no profiler, so its events cost nothing')
    assert list((scratch / 'tmp').iterdir()) == []


def test_layout_of_another_file_is_not_used(scratch, cache, variables, calibrated):
    """Neither by its name, nor if it is put where another engine's would be; nor damaged."""
    engine = calibrated('5.0.4').engine
    shutil.copytree(calibrated('5.0.4').cache, cache)
    assert calibrate(variables, '--show', engine).returncode == 0
    other = Path(shutil.copy(engine, scratch / 'libEngine13.so'))
    with open(other, 'ab') as file:
        file.write(b'\0')
    refused(calibrate(variables, '--show', other), 1, 'no layout of this engine: run fbprof calibrate')
    own, foreign = (cache / f'{sha256(file)}.layout' for file in (engine, other))
    foreign.write_bytes(own.read_bytes())
    refused(calibrate(variables, '--show', other), 1, 'is of another engine')
    foreign.write_text(own.read_text().replace(sha256(engine), sha256(other)))
    refused(calibrate(variables, '--show', other), 1, 'is damaged')


def installation(scratch: Path, source: str) -> Path:
    """An engine of our own, built from C, in an installation with the real client library."""
    root = scratch / 'installation'
    (root / 'plugins').mkdir(parents=True)
    for entry in env.FIREBIRD.iterdir():
        if entry.name != 'plugins':
            (root / entry.name).symlink_to(entry)
    (root / 'engine.c').write_text(source)
    engine = root / 'plugins/libEngine13.so'
    env.run(['cc', '-shared', '-fPIC', '-o', engine, root / 'engine.c'])
    return engine


@pytest.mark.parametrize('source, sentence', [
    ('int nothing;', 'Error loading plugin Engine13'),
    ('#include <stdlib.h>\n__attribute__((constructor)) static void crash(void) { abort(); }',
     'Firebird crashed while it was calibrated, by signal 6'),
    ('#include <unistd.h>\n__attribute__((constructor)) static void leave(void) { _exit(3); }',
     'ended by itself, with status 3'),
])
def test_an_engine_that_is_none(source, sentence, scratch, cache, variables):
    refused(calibrate(variables, installation(scratch, source)), 1, sentence)
    assert not any(cache.iterdir())
    assert list((scratch / 'tmp').iterdir()) == []


@pytest.mark.parametrize('how', ['timeout', 'terminated'])
def test_gives_up(how, scratch, cache, variables):
    """After its time, or when it is told to end: nothing is left, no process either."""
    engine = installation(scratch, '#include <unistd.h>\n'
                                   '__attribute__((constructor)) static void wait(void) { sleep(1000); }')
    command = [env.FBPROF, 'calibrate', *(['--timeout', '1'] if how == 'timeout' else []), engine]
    process = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)
    child, = env.wait_until(lambda: env.children(process.pid), 'the engine is loaded in a process of its own')
    if how == 'terminated':
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
    sentence = process.communicate(timeout=env.PATIENCE)[1]
    assert process.returncode == 1
    assert ('took too long' if how == 'timeout' else 'interrupted') in sentence
    assert not env.alive(child)
    assert not any(cache.iterdir())
    assert list((scratch / 'tmp').iterdir()) == []


@pytest.mark.parametrize('arguments', [
    [],
    ['--json', 'libEngine13.so'],
    ['--timeout', '0', 'libEngine13.so'],
    ['libEngine13.so', 'libEngine12.so'],
    ['--all', 'libEngine13.so'],
])
def test_misuse(arguments, variables):
    done = calibrate(variables, *arguments)
    refused(done, 2, ': see fbprof calibrate --help')
    assert len(done.stderr.splitlines()) == 1


def test_bad_files(scratch, variables):
    refused(calibrate(variables, scratch / 'none.so'), 1, 'none.so: cannot be read')
    (scratch / 'engine').write_bytes(b'?')
    refused(calibrate(variables, scratch / 'engine'), 1, "name a file libEngine\\*.so")
    (scratch / 'libEngine13.so').write_bytes(b'?')
    refused(calibrate(variables, scratch / 'libEngine13.so'), 1, 'calibrate: ')


def test_cache_that_cannot_be_written(scratch, variables):
    """Is said before anything else is done."""
    (scratch / 'file').write_bytes(b'')
    (scratch / 'libEngine13.so').write_bytes(b'?')
    variables['FBPROF_CACHE'] = os.fspath(scratch / 'file/cache')
    done = calibrate(variables, scratch / 'libEngine13.so')
    refused(done, 1, 'cannot be written: Not a directory: set FBPROF_CACHE')
    assert len(done.stderr.splitlines()) == 1


def test_help(variables):
    done = calibrate(variables, '--help')
    assert (done.returncode, done.stderr) == (0, '')
    assert 'ENGINE' in done.stdout and '--scratch' not in done.stdout
