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

ENGINE = env.FIREBIRD / 'plugins/libEngine13.so'
PROGRAMS = Path(os.environ.get('FBPROF_OBJ') or env.REPOSITORY / 'build/obj') / 'tests/passive'


@pytest.fixture(scope='module')
def plans(session_scratch, base_database) -> Path:
    database = Path(shutil.copy(base_database, session_scratch / 'plans.fdb'))
    env.run_program('plans.py', database, root=env.make_root(session_scratch / 'plans-root'))
    return database


def read_chains(lines: list[str]) -> dict[str, int]:
    """Of either program: without what is in parentheses, and without a procedure's name."""
    chains = collections.Counter()
    for line in lines:
        count, _, chain = line.partition('\t')
        chain = re.sub(r' \([^()]*\)', '', chain)
        chain = re.sub(r'Procedure "[^"]*"', 'Procedure ""', chain)
        # A class of the engine may be several steps: it is told as the most common one.
        chains[chain.replace('Unique Sort', 'Sort')] += int(count)
    del chains['']
    return chains


def session_chains(scratch, database, root, profiler, plan, seconds) -> dict[str, int]:
    """By a session."""
    log_dir = scratch / 'log'
    env.run(env.python_program('plans.py', database, plan, seconds, 'MODE=SAMPLED'),
            env.environment(root, preload=profiler, log_dir=log_dir))
    log, = env.logs(log_dir)
    return read_chains(env.run([PROGRAMS / 'session_chains', log]).stdout.splitlines())


def passive_chains(database, root, cache, plan, seconds, way, hz='250', engine=ENGINE) -> tuple[dict[str, int], str]:
    """From outside, without a session; and the sampler's last line."""
    with subprocess.Popen(env.python_program('plans.py', database, plan, seconds + 1, 'off'),
                          env=env.environment(root), stdout=subprocess.PIPE, text=True) as process:
        thread = process.stdout.readline().strip()
        done = env.run([PROGRAMS / 'plan_sampler', cache, engine, process.pid, thread, hz, seconds, way], check=False)
        assert process.wait(env.PATIENCE) == 0
    if done.returncode == 77:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    return read_chains(lines[:-1]), lines[-1]


@pytest.mark.parametrize('plan, way', [('join', 'stop'), ('subqueries', 'stop'), ('window', 'stop'), ('recursive', 'stop'),
                                       ('calls', 'stop'), ('calls', 'events'), ('cursor', 'events')])
def test_chains_are_those_of_a_session(scratch, plans, root, profiler, layouts, plan, way):
    session = session_chains(scratch, plans, root, profiler, plan, 1)
    passive, last = passive_chains(plans, root, layouts, plan, 1.5, way)
    assert sum(passive.values()) > 40, last
    shown = '\n'.join(f'{passive[chain]:6} {session[chain]:6} {chain}' for chain in sorted({*passive, *session}))
    assert set(passive) <= set(session), shown
    # And the other way round: what a session sees often is not missed.
    often = {chain for chain, count in session.items() if count > 0.1 * sum(session.values())}
    assert often <= set(passive), shown


@pytest.mark.parametrize('version', ['4.0.7', '3.0.14'])
def test_engines_without_a_profiler(scratch, calibrated, version):
    """The steps that are seen are those of the plan; some that only pass on a call leave no frame, and are missing."""
    calibration = calibrated(version)
    assert re.search(r'record sources: \d+ functions, \d+ steps', calibration.done.stderr), calibration.done.stderr
    root = env.make_root(scratch / 'root', calibration.runtime)
    database = scratch / 'test.fdb'
    env.run_program('plans.py', database, 'create', root=root)
    passive, last = passive_chains(database, root, calibration.cache, 'join', 1.5, 'stop', engine=calibration.engine)
    shown = '\n'.join(f'{count:6} {chain}' for chain, count in passive.most_common())
    assert sum(passive.values()) > 100, last
    table = 'Table "A" as "Z" Access By ID'
    assert sum(count for chain, count in passive.items() if chain.endswith(table)) > 0.1 * sum(passive.values()), shown
    # Outermost first, each below those before it in the plan.
    plan = ['Sort', 'Aggregate', 'Sort', 'Filter', 'Nested Loop Join', 'Filter', 'Hash Join', 'Record Buffer', 'Filter',
            'Table "A" Full Scan', 'Table "D" Full Scan', table]
    for chain in passive:
        steps = iter(plan)
        assert all(step in steps for step in chain.split(' > ')), (chain, shown)
