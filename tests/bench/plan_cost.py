#!/usr/bin/env python3
"""plan_cost.py [ROUNDS]: what sampling the position in plans costs the thread that is sampled.

A thread that executes one statement again and again (tests/engine/programs/plans.py, PLAN "cursor" and "join"; embedded)
is sampled at 0, 100 and 250 Hz in turn, a second each. Printed are the medians of executions per second, as a ratio to
those at 0 Hz just before and after, and the sampler's own figures.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / 'tests/engine'))

import firebird_env as env  # noqa: E402

SAMPLER = Path(os.environ.get('FBPROF_OBJ') or REPO / 'build/obj') / 'tests/passive/plan_sampler'
ENGINE = env.FIREBIRD / 'plugins/libEngine13.so'
RATES = (100, 250)
SECONDS = 1


def count_executions(process) -> int:
    """How many there were so far: the program says it when asked."""
    process.stdin.write('\n')
    process.stdin.flush()
    return int(process.stdout.readline())


def sample(process, thread, cache, hz) -> tuple[float, str]:
    """CPU time that the thread took for an execution, and what the sampler says."""
    before = count_executions(process), cpu_time(thread)
    last = env.run([SAMPLER, cache, ENGINE, process.pid, thread, hz, SECONDS]).stdout.splitlines()[-1]
    after = count_executions(process), cpu_time(thread)
    return (after[1] - before[1]) / (after[0] - before[0]), last


def cpu_time(thread) -> int:
    return int(Path(f'/proc/{thread}/schedstat').read_text().split()[0])


def measure(plan, rounds, root, database, cache) -> None:
    with subprocess.Popen(env.python_program('plans.py', database, plan, 'asked', 'off'), env=env.environment(root),
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        thread = int(process.stdout.readline())
        ratios, said = {hz: [] for hz in RATES}, {}
        sample(process, thread, cache, 0)
        for _ in range(rounds):
            for hz in RATES:
                before, _ = sample(process, thread, cache, 0)
                sampled, said[hz] = sample(process, thread, cache, hz)
                after, _ = sample(process, thread, cache, 0)
                ratios[hz].append(2 * sampled / (before + after))
        process.communicate()
    for hz in RATES:
        figures = dict(re.findall(r'(\w+) ([\d.]+)', said[hz]))
        print(f'{plan:12} {hz:4} Hz  ratio {statistics.median(ratios[hz]):.4f}'
              f' ({min(ratios[hz]):.4f} to {max(ratios[hz]):.4f})  stopped {figures["stop_us"]} us a sample,'
              f' sampler {float(figures["cpu_ms"]) / SECONDS / 10:.2f} % of a CPU', flush=True)


def main(rounds='5') -> None:
    with tempfile.TemporaryDirectory(prefix='fbprof-plan-cost-') as name:
        scratch = Path(name)
        root = env.make_root(scratch / 'root')
        env.run([env.FBPROF, 'calibrate', '--quiet', ENGINE], env.environment(FBPROF_CACHE=str(scratch)))
        env.run_program('make_base.py', scratch / 'base.fdb', root=root)
        env.run_program('plans.py', scratch / 'base.fdb', root=root)
        for plan in ('cursor', 'join'):
            database = shutil.copy(scratch / 'base.fdb', scratch / f'{plan}.fdb')
            measure(plan, int(rounds), root, database, scratch)


if __name__ == '__main__':
    main(*sys.argv[1:])
