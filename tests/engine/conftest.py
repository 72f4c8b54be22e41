"""Fixtures shared by the tests against a real engine. `./run check` sets where things are (firebird_env.py)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import firebird_env as env
from server_queries import SETUP

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


class MeasuredCosts:
    """What `fbprof calibrate --costs` did, once: a machine may be too busy for it."""

    def __init__(self, scratch: Path):
        self.engine = env.FIREBIRD / 'plugins/libEngine13.so'
        self.cache = scratch
        self.cache.mkdir()
        self.environment = env.environment(FBPROF_CACHE=str(self.cache))
        self.done = env.run([env.FBPROF, 'calibrate', '--costs', self.engine], self.environment, check=False, timeout=400)


@pytest.fixture(scope='session')
def measured_costs(session_scratch) -> MeasuredCosts:
    return MeasuredCosts(session_scratch / 'costs')


@pytest.fixture(scope='module')
def costs(measured_costs):
    """Sessions of this module know what events cost on this machine."""
    env.CACHE = measured_costs.cache
    yield
    env.CACHE = None


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


@pytest.fixture
def server(scratch, base_database, profiler):
    """A server under the preload; at its end its log must be as usual."""
    with env.Server(scratch, preload=profiler) as server:
        server.database = Path(shutil.copy(base_database, scratch / 'test.fdb'))
        yield server
        server.check_log()


@pytest.fixture(scope='session')
def queries_database(session_scratch, base_database) -> Path:
    """The base database with what the queries of server_queries.py need."""
    database = Path(shutil.copy(base_database, session_scratch / 'queries.fdb'))
    root = env.make_root(session_scratch / 'queries-root')
    env.isql(root, f"connect '{database}';\nset term ^;\n{SETUP}\ncommit^\n")
    return database


@pytest.fixture(params=['Super', 'Classic'])
def server_of_each_mode(request, scratch, queries_database, profiler):
    """As server(), with the queries' database."""
    with env.Server(scratch, request.param, preload=profiler) as server:
        server.database = Path(shutil.copy(queries_database, scratch / 'test.fdb'))
        yield server
        server.check_log()


@pytest.fixture
def attach(server, root):
    """attach() → another attachment to the server's database; closed at the end, if the test hasn't."""
    attachments = []

    def attach():
        attachments.append(env.Attachment(server.dsn(server.database), root))
        return attachments[-1]

    yield attach
    for attachment in attachments:
        attachment.close()
