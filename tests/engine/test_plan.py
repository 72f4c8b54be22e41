"""Record sources on native stacks: the chains that are read from outside, or in-process, are those of the plan."""

from __future__ import annotations

import collections
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import firebird_env as env
import passive

ENGINE = env.FIREBIRD / 'plugins/libEngine13.so'
TRIES = 10

# On the stack, but not in the plan: a window opens the rows that it reads by itself, before the windows that lie between.
OPENED_BY_WINDOW = 'Select Expression > Union > Window > Record Buffer > Table "A" Full Scan'


@pytest.fixture(scope='module')
def plans(session_scratch, base_database) -> Path:
    database = Path(shutil.copy(base_database, session_scratch / 'plans.fdb'))
    env.run_program('plans.py', database, root=env.make_root(session_scratch / 'plans-root'))
    return database


def normal_chains(counted) -> dict[str, int]:
    """Of (count, steps), outermost first: those of one request after the other are separated by " | "."""
    chains = collections.Counter()
    for count, steps in counted:
        chains[' | '.join(' > '.join(passive.step_name(step) for step in of_request) for of_request in steps)] += count
    del chains['']
    return chains


def logged_chains(log: Path) -> dict[str, int]:
    counted = []
    for count, _, frames in passive.chains(log):
        steps = []
        for kind, what in frames:
            if kind == 'request':
                steps.append([])
            elif kind == 'source':
                steps[-1].append(what)
        counted.append((count, [of_request for of_request in steps if of_request]))
    return normal_chains(counted)


def session_chains(scratch, database, root, plan, seconds) -> dict[str, int]:
    """By a session."""
    return logged_chains(passive.run_in_session(database, root, scratch / 'log', plan, seconds, 'SAMPLED'))


def passive_chains(database, root, cache, plan, seconds, way, hz='250', engine=ENGINE) -> tuple[dict[str, int], str]:
    """From outside, without a session; and the sampler's last line."""
    with subprocess.Popen(env.python_program('plans.py', database, plan, seconds + 1, 'off'),
                          env=env.environment(root), stdout=subprocess.PIPE, text=True) as process:
        thread = process.stdout.readline().strip()
        done = env.run([passive.PROGRAMS / 'plan_sampler', cache, engine, process.pid, thread, hz, seconds, way], check=False)
        assert process.wait(env.PATIENCE) == 0
    if done.returncode == 77:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    counted = [line.split('\t') for line in lines]
    return normal_chains((int(count), [of_request.split(' > ') for of_request in chain.split(' | ')])
                         for count, chain in counted), last


def own_chains(scratch, database, root, profiler, layouts, plan, seconds, options='MODE=PASSIVE,PLAN_RATE=250',
               before=()) -> tuple[dict[str, int], str, Path]:
    """By the process itself, in passive mode; its state meanwhile, and where its log is. `before` is put before the command."""
    log_dir = Path(tempfile.mkdtemp(dir=scratch))
    with subprocess.Popen([*before, *env.python_program('plans.py', database, plan, seconds, 'off')],
                          env=env.environment(root, preload=profiler, log_dir=log_dir, FBPROF_OPTIONS=options,
                                              FBPROF_CACHE=str(layouts)), stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        status = env.wait_until(lambda: status_if_on(process.pid), 'recording')
        process.communicate(timeout=env.PATIENCE)
    assert process.returncode == 0
    log, = env.logs(log_dir)
    return logged_chains(log), status, log_dir


def status_if_on(pid: int) -> str:
    status = env.run([env.FBPROF, 'passive', 'status', '--pid', pid]).stdout
    return status if status.startswith('on, to ') else ''


def often(session) -> set[str]:
    return {chain for chain, count in session.items() if count > 0.1 * sum(session.values())}


def check_chains(session, seen):
    shown = '\n'.join(f'{seen[chain]:6} {session[chain]:6} {chain}' for chain in sorted({*seen, *session}))
    # A session samples, too: it may have missed a chain of which it has seen more.
    assert all(any(known == chain or known.startswith(f'{chain} ') for known in {*session, OPENED_BY_WINDOW})
               for chain in seen), shown
    # And the other way round: what a session sees often is not missed.
    assert often(session) <= set(seen), shown


@pytest.mark.parametrize('plan, way', [('join', 'stop'), ('subqueries', 'stop'), ('window', 'stop'), ('recursive', 'stop'),
                                       ('calls', 'stop')])
def test_chains_are_those_of_a_session(scratch, plans, root, profiler, layouts, plan, way):
    session = session_chains(scratch, plans, root, plan, 1)
    seen, last = passive_chains(plans, root, layouts, plan, 1.5, way)
    assert sum(seen.values()) > 40, last
    check_chains(session, seen)


@pytest.mark.parametrize('plan', ['join', 'subqueries', 'window', 'recursive', 'calls', 'cursor'])
def test_chains_of_the_own_process(scratch, plans, root, profiler, layouts, plan):
    """MODE=PASSIVE under the preload: the same, out of its log."""
    session = session_chains(scratch, plans, root, plan, 1)
    seen = collections.Counter()
    for _ in range(TRIES):  # where there is more work than CPUs, samples are few
        chains, status, _ = own_chains(scratch, plans, root, profiler, layouts, plan, 3)
        if 'without record sources' in status:
            pytest.skip(status)
        seen.update(chains)
        if often(session) <= set(seen):
            break
    check_chains(session, seen)


def test_events_that_are_refused(scratch, plans, root, profiler, layouts):
    """The process is recorded all the same, without record sources, and its state says what to do."""
    seen, status, log_dir = own_chains(scratch, plans, root, profiler, layouts, 'join', 1,
                                          before=env.python_program('without_perf.py'))
    assert re.fullmatch(r'on, to .*\n'
                        r'without record sources: perf_event_open\(\) is not permitted: set kernel.perf_event_paranoid .*\n',
                        status)
    assert not seen
    log, = env.logs(log_dir)
    assert 'select first 5 skip 1' in env.run([env.FBPROF, 'report', log]).stdout


def test_events_that_are_not_wanted(scratch, plans, root, profiler, layouts):
    seen, status, _ = own_chains(scratch, plans, root, profiler, layouts, 'join', 1, 'MODE=PASSIVE')
    assert re.fullmatch(r'on, to .*\n', status)
    assert not seen


@pytest.mark.parametrize('version', ['4.0.7', '3.0.14'])
def test_engines_without_a_profiler(scratch, calibrated, version):
    """The steps that are seen are those of the plan; some that only pass on a call leave no frame, and are missing."""
    calibration = calibrated(version)
    assert re.search(r'record sources: \d+ functions, \d+ steps', calibration.done.stderr), calibration.done.stderr
    root = env.make_root(scratch / 'root', calibration.runtime)
    database = scratch / 'test.fdb'
    env.run_program('plans.py', database, 'create', root=root)
    seen, last = passive_chains(database, root, calibration.cache, 'join', 1.5, 'stop', engine=calibration.engine)
    shown = '\n'.join(f'{count:6} {chain}' for chain, count in seen.most_common())
    assert sum(seen.values()) > 100, last
    table = 'Table "A" as "Z" Access By ID'
    assert sum(count for chain, count in seen.items() if chain.endswith(table)) > 0.1 * sum(seen.values()), shown
    # Outermost first, each below those before it in the plan.
    plan = ['Sort', 'Aggregate', 'Sort', 'Filter', 'Nested Loop Join', 'Filter', 'Hash Join', 'Record Buffer', 'Filter',
            'Table "A" Full Scan', 'Table "D" Full Scan', table]
    for chain in seen:
        steps = iter(plan)
        assert all(step in steps for step in chain.split(' > ')), (chain, shown)
