"""Where things are, and how to run them: scratch Firebird roots, embedded programs, servers, fbprof's tools.

Nothing here imports the driver, so that importing this module loads no Firebird into the test process.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
PROGRAMS = HERE / 'programs'

FIREBIRD = Path(os.environ.get('FBPROF_FIREBIRD') or REPOSITORY / 'build/firebird/5.0.4').resolve()
DIST = Path(os.environ.get('FBPROF_DIST') or REPOSITORY / 'build/dist').resolve()
SCRATCH = Path(os.environ.get('FBPROF_TEST_TMP') or REPOSITORY / 'build/test-tmp').resolve()

LIBFBPROF = DIST / 'lib/libfbprof.so'
FBPROF = DIST / 'bin/fbprof'
FBPROF_DUMP = DIST / 'bin/fbprof-dump'

USER = 'sysdba'
PASSWORD = 'only-for-tests'

# What fbprof knows of engines and the machine (FBPROF_CACHE), unless a test says; set by conftest's `costs`.
CACHE: Path | None = None

# A machine may be busy, or of a kind on which costs are not known well. How many times what times are to be true by
# (3 points, say) tests allow: once with FBPROF_STRICT_TRUTH=1, on a machine that does nothing else.
SLACK = 1 if os.environ.get('FBPROF_STRICT_TRUTH') else 4

# A stuck test must end some day; none is meant to come near this on any machine.
PATIENCE = 120.0


# In a root: Debian's Firebird takes the paths that are built into it, unless it believes that it is being built.
BOOT_BUILD = '.boot-build'

# Firebird roots ----------------------------------------------------------------------------------

def engine_of(runtime: Path) -> Path:
    return next(runtime.glob('plugins/libEngine*.so'))


def provider_of(runtime: Path) -> str:
    return engine_of(runtime).stem.removeprefix('lib')


def make_root(directory: Path, runtime: Path = FIREBIRD, **conf: str) -> Path:
    """A Firebird root with its own configuration, log and lock directory; the binaries stay links."""
    directory.mkdir(parents=True)
    for entry in runtime.iterdir():
        if entry.name == 'plugins' and runtime != FIREBIRD:
            shutil.copytree(entry, directory / entry.name)  # Firebird 4 loads none by a link
        elif entry.name not in ('firebird.conf', 'firebird.log', 'databases.conf', 'plugins.conf'):
            (directory / entry.name).symlink_to(entry)
    (directory / 'plugins.conf').write_bytes((runtime / 'plugins.conf').read_bytes())
    (directory / 'databases.conf').write_text('')
    if runtime.name.startswith('debian'):
        (directory / BOOT_BUILD).touch()
    (directory / 'lock').mkdir()
    (directory / 'tmp').mkdir()
    conf.setdefault('Providers', f'Remote,{provider_of(runtime)}')
    conf.setdefault('AuthClient', 'Srp')
    conf.setdefault('DatabaseAccess', 'Full')
    conf.setdefault('TempDirectories', str(directory / 'tmp'))
    text = ''.join(f'{key} = {value}\n' for key, value in conf.items())
    (directory / 'firebird.conf').write_text(text)
    return directory


def firebird_log(root: Path) -> str:
    log = root / 'firebird.log'
    return log.read_text(errors='replace') if log.exists() else ''


def environment(root: Path | None = None, *, preload: Path | None = None, log_dir: Path | None = None,
                **extra: str) -> dict[str, str]:
    """The environment of a child process: this one's, without what could lead it astray."""
    env = {key: value for key, value in os.environ.items()
           if not key.startswith(('FBPROF_', 'FIREBIRD', 'FB_', 'ISC_', 'LD_'))}
    env['PYTHONPATH'] = str(HERE)
    env['PYTHONDONTWRITEBYTECODE'] = '1'
    if root is not None:
        env['FIREBIRD'] = str(root)
        env['LD_LIBRARY_PATH'] = str(root)
        env['FIREBIRD_LOCK'] = str(root / 'lock')
        env['FIREBIRD_TMP'] = str(root / 'tmp')
        if (root / BOOT_BUILD).exists():
            env['FIREBIRD_BOOT_BUILD'] = '1'
    if CACHE is not None:
        env['FBPROF_CACHE'] = str(CACHE)
    if preload is not None:
        env['LD_PRELOAD'] = str(preload)
    if log_dir is not None:
        env['FBPROF_DIR'] = str(log_dir)
    env.update(extra)
    return env


# Programs ----------------------------------------------------------------------------------------

def run(command, env=None, *, check=True, timeout=PATIENCE, **kwargs) -> subprocess.CompletedProcess:
    """subprocess.run with captured text; a failure carries the output in its message."""
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True,
                          errors='replace', timeout=timeout, **kwargs)
    if check and done.returncode != 0:
        raise AssertionError(f'{command[0]} ended with {done.returncode}: {" ".join(map(str, command))}\n'
                             f'--- stdout\n{done.stdout[-4000:]}\n--- stderr\n{done.stderr[-4000:]}')
    return done


def python_program(name: str, *args) -> list[str]:
    return [sys.executable, '-X', 'utf8', str(PROGRAMS / name), *map(str, args)]


def run_program(name: str, *args, root: Path, preload: Path | None = None, log_dir: Path | None = None,
                timeout=PATIENCE, **extra: str):
    """Run one of programs/ as an embedded client, return the JSON value it printed last."""
    done = run(python_program(name, *args), environment(root, preload=preload, log_dir=log_dir, **extra),
               timeout=timeout)
    return json.loads(done.stdout.splitlines()[-1])


class DatabaseError(Exception):
    """What the database answered to an Attachment's call."""


class Attachment:
    """A client.Client in a process of its own (programs/attachment.py), so that no crash of it, or of the
    driver's, can end the tests. Methods are the Client's; a context manager that closes at its end."""

    def __init__(self, database, root: Path, **environment_args):
        self.process = subprocess.Popen(python_program('attachment.py', database), stdin=subprocess.PIPE,
                                        env=environment(root, **environment_args), stdout=subprocess.PIPE, text=True)
        self.attachment_id = self._answer('connect')

    def _answer(self, method: str):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f'attachment.py ended with {self.process.wait()} in {method}')
        answer = json.loads(line)
        if 'error' in answer:
            raise DatabaseError(answer['error'])
        return answer['value']

    def __getattr__(self, method: str):
        def call(*arguments):
            self.process.stdin.write(json.dumps([method, arguments]) + '\n')
            self.process.stdin.flush()
            return self._answer(method)
        return call

    def close(self) -> None:
        if not self.process.stdin.closed:
            self.process.stdin.close()
            self.process.wait(PATIENCE)
            self.process.stdout.close()
            assert self.process.returncode == 0, f'attachment.py ended with {self.process.returncode}'

    def __enter__(self) -> 'Attachment':
        return self

    def __exit__(self, *exc) -> None:
        self.close()


class Endless:
    """programs/endless.py at work: embedded, or through a server. As a context manager; killed at the end."""

    def __init__(self, database, work: str, options: str | None = None, **environment_args):
        self.process = subprocess.Popen(python_program('endless.py', database, work, options or '-'),
                                        env=environment(**environment_args), stdout=subprocess.PIPE, text=True)
        first = self.process.stdout.readline()
        if not first:
            raise AssertionError(f'endless.py ended with {self.process.wait()}')
        self.executor, self.profile_id, self.attachment_id = map(int, first.split())

    def __enter__(self) -> 'Endless':
        return self

    def __exit__(self, *exc) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def seen(self, least: int) -> int:
        """What the client has seen done, once that is at least `least`."""
        for line in self.process.stdout:
            if int(line) >= least:
                return int(line)
        raise AssertionError(f'endless.py ended with {self.process.wait()}')

    def remainder(self) -> tuple[int, str]:
        """After a kill of either end: the last number printed in full, and the error, if it could print one."""
        count, error = 0, ''
        text = self.process.stdout.read()
        for line in text.split('\n')[:-1]:
            if line.isdigit():
                count = int(line)
            elif line:
                error += line
        return count, error


def isql(root: Path, script: str, *args, **kwargs) -> str:
    done = run([root / 'bin/isql-fb', '-q', '-bail', '-ch', 'utf8', *args], environment(root, **kwargs),
               input=script)
    return done.stdout


# fbprof's tools ----------------------------------------------------------------------------------

def logs(log_dir: Path) -> list[Path]:
    return sorted(log_dir.glob('*.fbprof')) if log_dir.is_dir() else []


def dump(log_files: list[Path], directory: Path) -> Path:
    """fbprof-dump of logs into a directory of CSV files."""
    assert log_files, 'no log was written'
    run([FBPROF_DUMP, *log_files, '-o', directory])
    return directory


# Waiting -----------------------------------------------------------------------------------------

def wait_until(condition, what: str, patience: float = PATIENCE, interval: float = 0.02):
    """The first true value of condition(); the deadline only ends what would hang."""
    deadline = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f'waited {patience:g} s in vain: {what}')
        time.sleep(interval)


# Processes ---------------------------------------------------------------------------------------

def threads(pid: int) -> dict[int, str]:
    """Thread id to name."""
    found = {}
    for task in Path(f'/proc/{pid}/task').iterdir():
        try:
            found[int(task.name)] = (task / 'comm').read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def descriptors(pid: int) -> dict[int, str]:
    found = {}
    for entry in Path(f'/proc/{pid}/fd').iterdir():
        try:
            found[int(entry.name)] = os.readlink(entry)
        except FileNotFoundError:
            pass
    return found


def mappings(pid: int) -> list[str]:
    return Path(f'/proc/{pid}/maps').read_text().splitlines()


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f'/proc/{pid}/task').iterdir():
        try:
            found += map(int, (task / 'children').read_text().split())
        except FileNotFoundError:
            pass
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except (FileNotFoundError, ProcessLookupError):
        return False


# Servers -----------------------------------------------------------------------------------------

_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """In a child: SIGKILL when the tests end, however they do."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


@dataclasses.dataclass
class Server:
    """A real server on the loopback interface, as a context manager."""

    directory: Path
    mode: str = 'Super'
    preload: Path | None = None
    extra: dict[str, str] = dataclasses.field(default_factory=dict)
    runtime: Path = FIREBIRD

    def __enter__(self) -> 'Server':
        self.log_dir = self.directory / 'fbprof'
        self.port = free_port()
        security = self.directory / 'server-root/security5.fdb'
        self.root = make_root(self.directory / 'server-root', self.runtime, ServerMode=self.mode,
                              Providers=f'Remote,{provider_of(self.runtime)},Loopback',
                              RemoteServicePort=str(self.port), RemoteBindAddress='127.0.0.1',
                              AuthServer='Srp', UserManager='Srp',
                              SecurityDatabase=str(security), IpcName=f'fbprof_{self.port}')
        isql(self.root, f"create database '{security}'; commit;\n"
                        f"create user {USER} password '{PASSWORD}' using plugin Srp; commit;\n")
        self.output = open(self.directory / 'server.out', 'wb')
        self.process = subprocess.Popen(
            [str(self.root / 'bin/firebird'), '-p', str(self.port), '-e', str(self.root)],
            env=environment(self.root, preload=self.preload, log_dir=self.log_dir, **self.extra),
            stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT, cwd=self.directory,
            preexec_fn=_die_with_parent)
        try:
            wait_until(self._listening, f'the server listens on port {self.port}')
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc) -> None:
        self.stop()

    def _listening(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f'the server ended with {self.process.returncode} at its start:\n'
                                 f'{firebird_log(self.root)}\n{self.printed()}')
        try:
            socket.create_connection(('127.0.0.1', self.port), timeout=5).close()
            return True
        except OSError:
            return False

    def printed(self) -> str:
        return (self.directory / 'server.out').read_text(errors='replace')

    @property
    def pid(self) -> int:
        return self.process.pid

    def pids(self) -> list[int]:
        """The server and, in Classic mode, the processes of its connections."""
        return [self.pid, *children(self.pid)] if self.process.poll() is None else []

    def dsn(self, database: Path) -> str:
        return f'inet://127.0.0.1:{self.port}/{database}'

    def check_log(self) -> None:
        """Nothing in firebird.log or on the server's output speaks of a crash or of an error of the profiler."""
        text = firebird_log(self.root) + self.printed()
        for sign in ('terminated abnormally', 'consistency check', 'Fatal', 'Profiler', 'in profiler', 'Sanitizer'):
            assert sign not in text, f'{sign}:\n{text}'

    def stop(self) -> None:
        """End the server and what it forked, each by its own pid."""
        started = self.pids()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in started[1:]:
            try:
                wait_until(lambda: not alive(pid), f'child {pid} ends', patience=10)
            except AssertionError:
                os.kill(pid, signal.SIGKILL)
        self.output.close()
