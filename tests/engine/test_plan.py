"""Record sources on native stacks: the chains that are read from outside are those of the plan."""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import firebird_env as env
import prof_tables

ENGINE = env.FIREBIRD / 'plugins/libEngine13.so'
SAMPLER = Path(os.environ.get('FBPROF_OBJ') or env.REPOSITORY / 'build/obj') / 'tests/passive/plan_sampler'
ROOTS = ('Select Expression', 'Sub-query')


@pytest.fixture(scope='module')
def cache(session_scratch) -> Path:
    """A directory with the engine's layout."""
    directory = session_scratch / 'cache'
    env.run([env.FBPROF, 'calibrate', '--quiet', ENGINE], env.environment(FBPROF_CACHE=str(directory)))
    return directory


@pytest.fixture(scope='module')
def plans(session_scratch, base_database) -> Path:
    database = Path(shutil.copy(base_database, session_scratch / 'plans.fdb'))
    env.run_program('plans.py', database, root=env.make_root(session_scratch / 'plans-root'))
    return database


def plain(step: str) -> str:
    """A step without what the sampler doesn't tell: parentheses, and further lines."""
    step = re.sub(r' \([^()]*\)', '', step.split('\n')[0].strip().removeprefix('-> '))
    return re.sub(r'^(Procedure) ".*" ', r'\1 "" ', step)


def sampled_chains(scratch, database, root, profiler, plan, seconds) -> dict[tuple[str, ...], int]:
    """Chain of steps to its own samples, outermost first, by a session."""
    log_dir = scratch / 'log'
    env.run(env.python_program('plans.py', database, plan, seconds, 'MODE=SAMPLED'),
            env.environment(root, preload=profiler, log_dir=log_dir))
    tables = prof_tables.tables_of_directory(env.dump(env.logs(log_dir), scratch / 'csv'))
    sources = {(row['statement_id'], row['cursor_id'], row['record_source_id']): row
               for row in tables['record_sources']}
    samples = collections.Counter()
    for row in tables['record_source_stats']:
        key = (row['statement_id'], row['cursor_id'], row['record_source_id'])
        own = int(row['open_samples'] or 0) + int(row['fetch_samples'] or 0)
        chain = []
        while key[2]:
            chain.append(plain(sources[key]['access_path']))
            key = (*key[:2], sources[key]['parent_record_source_id'] or 0)
        if own:
            samples[tuple(reversed(chain))] += own
    return samples


def passive_chains(database, root, cache, plan, seconds, hz='250') -> tuple[dict[tuple[str, ...], int], str]:
    """The same by the sampler, unprofiled; and its last line."""
    with subprocess.Popen(env.python_program('plans.py', database, plan, seconds + 1, 'off'),
                          env=env.environment(root), stdout=subprocess.PIPE, text=True) as process:
        thread = process.stdout.readline().strip()
        lines = env.run([SAMPLER, cache, ENGINE, process.pid, thread, hz, seconds]).stdout.splitlines()
        assert process.wait(env.PATIENCE) == 0
    samples = collections.Counter()
    for line in lines[:-1]:
        count, _, chain = line.partition('\t')
        samples[innermost(chain)] += int(count)
    return samples, lines[-1]


def innermost(chain: str) -> tuple[str, ...]:
    """The innermost cursor's part of a chain; () outside of all."""
    steps = []
    for step in re.split(r' [>|] ', chain) if chain else ():
        if step.startswith(ROOTS):
            steps = []
        steps.append(step)
    return tuple(steps)


def same(passive: tuple[str, ...], sampled: tuple[str, ...]) -> bool:
    """A class of the engine may have several steps: all of them are told."""
    return len(passive) == len(sampled) and all(b in a.split(' / ') or (a.endswith(' / Cursor ""') and b in a)
                                                for a, b in zip(passive, sampled))


@pytest.mark.parametrize('plan', ['join', 'subqueries', 'window', 'recursive', 'calls', 'cursor'])
def test_chains_are_those_of_a_session(scratch, plans, root, profiler, cache, plan):
    sampled = sampled_chains(scratch, plans, root, profiler, plan, 1)
    passive, last = passive_chains(plans, root, cache, plan, 2)
    del passive[()]
    everything = sum(passive.values())
    assert everything > 100, last
    unknown = {chain: count for chain, count in passive.items() if not any(same(chain, other) for other in sampled)}
    print(plan, last)
    for chain, count in passive.most_common():
        print(count, ' > '.join(chain))
    for chain, count in sampled.most_common():
        print('sampled', count, ' > '.join(chain))
    assert not unknown, unknown
