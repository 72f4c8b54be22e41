"""Fixtures shared by the tests against a real engine. `./run check` sets where things are (firebird_env.py)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import firebird_env as env

pytest.register_assert_rewrite('prof_tables')


def pytest_configure(config):
    if not (env.FIREBIRD / 'libfbclient.so.2').exists():
        raise pytest.UsageError(f'no Firebird runtime in {env.FIREBIRD}: run ./run setup, or set FBPROF_FIREBIRD')


@pytest.fixture(scope='session')
def session_scratch(request) -> Path:
    """Scratch of this run of the suite; kept until the next run if something failed."""
    for old in env.SCRATCH.glob('engine-*'):
        if not env.alive(int(old.name.removeprefix('engine-'))):
            shutil.rmtree(old, ignore_errors=True)
    directory = env.SCRATCH / f'engine-{os.getpid()}'
    directory.mkdir(parents=True)
    yield directory
    if request.session.testsfailed == 0:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if outcome.get_result().failed:
        item.stash[FAILED] = True


FAILED = pytest.StashKey[bool]()


@pytest.fixture
def scratch(request, session_scratch) -> Path:
    """A directory of the test's own; kept if the test failed."""
    name = ''.join(letter if letter.isalnum() or letter in '-_' else '_' for letter in request.node.name)
    directory = session_scratch / f'{request.node.path.stem}-{name}'
    directory.mkdir()
    yield directory
    if not request.node.stash.get(FAILED, False):
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope='session')
def profiler() -> Path:
    """libfbprof.so, to preload."""
    for file in (env.LIBFBPROF, env.FBPROF, env.FBPROF_DUMP):
        if not file.exists():
            pytest.fail(f'{file} is missing: run ./run build, or set FBPROF_DIST', pytrace=False)
    return env.LIBFBPROF


@pytest.fixture(scope='session')
def layouts(session_scratch) -> Path:
    """A cache (FBPROF_CACHE) with the layout of the engine that is tested."""
    directory = session_scratch / 'layouts'
    directory.mkdir()
    env.run([env.FBPROF, 'calibrate', '--quiet', env.FIREBIRD / 'plugins/libEngine13.so'],
            env.environment(FBPROF_CACHE=str(directory)))
    return directory


class Calibrated:
    """What `fbprof calibrate` did with the engine of a runtime."""

    def __init__(self, runtime: Path, directory: Path):
        self.runtime, self.engine = runtime, env.engine_of(runtime)
        self.cache, self.tmp = directory / 'cache', directory / 'tmp'
        self.tmp.mkdir(parents=True)
        self.environment = env.environment(FBPROF_CACHE=str(self.cache), TMPDIR=str(self.tmp))
        before = self._state()
        self.done = env.run([env.FBPROF, 'calibrate', self.engine], self.environment, check=False)
        self.runtime_changed = self._state() != before

    def _state(self) -> dict[Path, tuple]:
        return {path: (path.lstat().st_mtime_ns, path.lstat().st_size) for path in self.runtime.rglob('*')}


@pytest.fixture(scope='session')
def calibrated(session_scratch):
    """By Firebird's version: the runtime of it beside the one that is tested, calibrated once."""
    known = {}

    def calibrate(version: str) -> Calibrated:
        runtime = env.FIREBIRD.parent / version
        if not runtime.is_dir():
            pytest.skip(f'{runtime} is not there: ./run setup')
        if version not in known:
            known[version] = Calibrated(runtime, session_scratch / f'calibrated-{version}')
        return known[version]

    return calibrate


@pytest.fixture(scope='session')
def base_database(session_scratch) -> Path:
    """The database that every workload starts from a copy of."""
    root = env.make_root(session_scratch / 'base-root')
    database = session_scratch / 'base.fdb'
    env.run_program('make_base.py', database, root=root)
    return database


@pytest.fixture
def database(scratch, base_database) -> Path:
    """A fresh copy of the base database."""
    return Path(shutil.copy(base_database, scratch / 'test.fdb'))


@pytest.fixture
def root(scratch) -> Path:
    """A Firebird root for clients in processes of their own, embedded or not."""
    return env.make_root(scratch / 'root')
