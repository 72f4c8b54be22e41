#!/usr/bin/env python3
"""plan_cost.py [ROUNDS]: what sampling the position in plans costs the thread that is sampled.

A thread that executes one statement again and again (tests/engine/programs/plans.py, PLAN "cursor" and "join"; embedded)
is sampled at 0, 100 and 250 Hz in turn, a second each, by stops (ptrace) and by events (perf). Printed are the medians of
the time that an execution takes, as a ratio to that at 0 Hz just before and after, and the sampler's own figures.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
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


def sample(process, thread, cache, hz, way) -> tuple[float, str]:
    """Seconds for an execution, and what the sampler says."""
    before = count_executions(process), time.monotonic()
    last = env.run([SAMPLER, cache, ENGINE, process.pid, thread, hz, SECONDS, way]).stdout.splitlines()[-1]
    after = count_executions(process), time.monotonic()
    return (after[1] - before[1]) / (after[0] - before[0]), last


def measure(plan, rounds, root, database, cache) -> None:
    ways = [(hz, way) for hz in RATES for way in ('stop', 'events')]
    ratios, said = {way: [] for way in ways}, {}
    with subprocess.Popen(env.python_program('plans.py', database, plan, 'asked', 'off'), env=env.environment(root),
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        thread = int(process.stdout.readline())
        off, _ = sample(process, thread, cache, 0, 'stop')
        for _ in range(rounds):
            for way in ways:
                before = off
                sampled, said[way] = sample(process, thread, cache, *way)
                off, _ = sample(process, thread, cache, 0, 'stop')
                ratios[way].append(2 * sampled / (before + off))
        process.communicate()
    for way in ways:
        figures = dict(re.findall(r'(\w+) ([\d.]+)', said[way]))
        print(f'{plan:8} {way[1]:6} {way[0]:4} Hz  ratio {statistics.median(ratios[way]):.4f}'
              f' ({min(ratios[way]):.4f} to {max(ratios[way]):.4f})  {figures["samples"]} samples,'
              f' {figures["stop_us"]} + {figures["read_us"]} us each,'
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
