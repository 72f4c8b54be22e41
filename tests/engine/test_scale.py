"""A hundred attachments profiled at once on one server: none is starved, the sampler keeps within its share of a CPU
and says that it had to, and an idle session takes little memory.

What is charged to an attachment is compared with what its own loop took, so that it doesn't matter how the machine
shares out its CPUs.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

import firebird_env as env
import prof_tables
from test_truth import first_good_try

CROWD = 100

# So many take some hundredths of a second alone and unprofiled, and some seconds in the crowd.
ROUNDS = 500000

# SAMPLER_SHARE_DEFAULT of sampler/sampler.h.
SHARE = 0.05

MEMORY_PER_SESSION = 256 * 1024


class Crowd:
    """programs/crowd.py as a context manager; called with a command it returns the answer."""

    def __init__(self, dsn: str, count: int, options: str, root: Path):
        self.process = subprocess.Popen(env.python_program('crowd.py', dsn, count, options),
                                        env=env.environment(root), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.attachment_ids = self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f'crowd.py ended with {self.process.wait()}')
        return json.loads(line)

    def __call__(self, *command):
        self.process.stdin.write(' '.join(map(str, command)) + '\n')
        self.process.stdin.flush()
        return self._answer()

    def __enter__(self) -> 'Crowd':
        return self

    def __exit__(self, *exc) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(env.PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()


def tables_of(server, name: str) -> prof_tables.Tables:
    return prof_tables.tables_of_directory(env.dump(env.logs(server.log_dir), server.directory / name))


def sampler_thread(pid: int) -> int:
    found = [thread for thread, name in env.threads(pid).items() if name == 'fbprof-sampler']
    assert len(found) == 1, env.threads(pid)
    return found[0]


def cpu_time(pid: int, thread: int) -> float:
    """In s, as the kernel accounts for it."""
    fields = Path(f'/proc/{pid}/task/{thread}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def loops_of(tables: prof_tables.Tables) -> dict[int, float]:
    """profile_id → what the loop's lines were charged, in s."""
    loops = {(row['profile_id'], row['statement_id']) for row in tables['statements']
             if (row['sql_text'] or '').startswith('execute block (n integer = ?)')}
    charged = dict.fromkeys((profile_id for profile_id, _ in loops), 0.0)
    for row in tables['psql_stats']:
        if (row['profile_id'], row['statement_id']) in loops and row['line_num'] in (5, 6):
            charged[row['profile_id']] += int(row['raw_total_time']) / 1e9
    return charged


@pytest.mark.parametrize('mode', ['SAMPLED', 'COARSE'])
def test_each_of_a_hundred_gets_its_share(server, root, mode):
    """Time charged to each is what its loop took, within 20%. (Looks come less often the more attachments are busy,
    so that an attachment that is done early has more samples a second than the others.)"""

    def attempt_once(attempt):
        with Crowd(server.dsn(server.database), CROWD, f'MODE={mode}', root) as crowd:
            crowd('start')
            thread = sampler_thread(server.pid)
            before, begin = cpu_time(server.pid, thread), time.monotonic()
            took = dict(crowd('loop', ROUNDS))
            share = (cpu_time(server.pid, thread) - before) / (time.monotonic() - begin)
            crowd('finish')
        assert len(took) == CROWD
        tables = tables_of(server, f'csv-{attempt}')
        charged, sessions = loops_of(tables), {row['profile_id']: row for row in tables['sessions']}
        ratios = sorted(charged[number] / took[number] for number in took)
        stretched = [int(sessions[number]['stretched']) for number in took]
        seen = (f'charged to taken: {ratios[0]:.3f} to {ratios[-1]:.3f}, in the middle {ratios[CROWD // 2]:.3f};'
                f' taken {min(took.values()):.2f} to {max(took.values()):.2f} s; the sampler took {share:.4f} of a CPU;'
                f' {min(stretched)} to {max(stretched)} looks were stretched')
        good = ratios[0] >= 0.8 and ratios[-1] <= 1.2 and share < 2 * SHARE and max(stretched) > 0
        if mode == 'SAMPLED':
            samples = [int(sessions[number]['samples']) for number in took]
            seen += f'; {min(samples)} to {max(samples)} samples'
            good = good and min(samples) >= 100
        return good, seen

    first_good_try(attempt_once, 'a hundred at once')
    info = env.run([env.FBPROF_DUMP, '--info', *env.logs(server.log_dir)]).stdout
    assert 'late to spare the CPU' in info, info


def resident(pid: int) -> int:
    """In bytes; with what is mapped from files, as the log is."""
    for line in Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith('VmRSS:'):
            return int(line.split()[1]) * 1024
    raise AssertionError('no VmRSS')


@pytest.mark.parametrize('options', ['MODE=SAMPLED', 'MODE=COARSE', 'MODE=MEASURED', 'DETAILED_REQUESTS'])
def test_memory_of_an_idle_session(server, root, options):
    """A hundred sessions at once, against the same attachments after each of them had one by itself."""
    with Crowd(server.dsn(server.database), CROWD, options, root) as crowd:
        crowd('visit')
        before = resident(server.pid)
        crowd('start')
        each = (resident(server.pid) - before) / CROWD
        crowd('finish')
    assert each <= MEMORY_PER_SESSION, f'{each / 1024:.0f} KiB for each session'
    assert len(tables_of(server, 'csv')['sessions']) == 2 * CROWD
