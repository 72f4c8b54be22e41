"""Recordings by passive mode, and where the time went by a log, in a form in which all modes can be compared.

What is left of a mode's view: measured mode knows no time of a call, which is its caller's, nor what a statement takes outside
of lines and record sources. Steps of plans are without what is in parentheses, for passive mode doesn't read that.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
import time
from collections import Counter
from pathlib import Path

import firebird_env as env

PROGRAMS = Path(os.environ.get('FBPROF_OBJ') or env.REPOSITORY / 'build/obj') / 'tests/passive'

# Characters of a text that name its statement.
NAME_SIZE = 60


# Recording ---------------------------------------------------------------------------------------

def record(pid: int, directory: Path, layouts: Path, *arguments) -> subprocess.Popen:
    """fbprof record in the background; finished() has its log."""
    return subprocess.Popen([env.FBPROF, 'record', '--pid', str(pid), '-o', directory, *map(str, arguments)],
                            env=env.environment(FBPROF_CACHE=str(layouts)), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen) -> Path:
    out, error = process.communicate(timeout=env.PATIENCE)
    assert (process.returncode, error) == (0, ''), (process.returncode, out, error)
    assert re.match(r'\d+ samples of \d+ attachments in [\d.]+ m?s, with [\d.]+ % of a CPU', out)
    return Path(out.splitlines()[-1].split(': ')[-1])


def run_in_session(database, root, log_dir: Path, plan: str, seconds: float, mode: str) -> Path:
    """The log of a session in which programs/plans.py executes a plan, or one of the corpus."""
    env.run(env.python_program('plans.py', database, plan, seconds, f'MODE={mode}'),
            env.environment(root, preload=env.LIBFBPROF, log_dir=log_dir))
    log, = env.logs(log_dir)
    return log


def await_session(log_dir: Path) -> None:
    def has_session():
        """A log that has just been created may have no header yet."""
        command = [env.FBPROF_DUMP, '--table', 'sessions', *env.logs(log_dir)]
        return env.logs(log_dir) and env.run(command, check=False).stdout.count('\n') > 1

    env.wait_until(has_session, 'a session')


def run_recorded(database, root, log_dir: Path, plan: str, seconds: float, layouts: Path, *arguments) -> Path:
    """The same without a session, recorded from outside for some seconds from the first sample on."""
    with subprocess.Popen(env.python_program('plans.py', database, plan, 'asked', 'off'), env=env.environment(root),
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline(), 'plans.py ended at its start'
        recorder = record(process.pid, log_dir, layouts, *arguments)
        await_session(log_dir)
        time.sleep(seconds)
        process.stdin.close()
        return finished(recorder)


def run_in_passive_mode(database, root, log_dir: Path, plan: str, seconds: float, layouts: Path, options: str) -> Path:
    """The same, recorded by a thread of its own process."""
    env.run(env.python_program('plans.py', database, plan, seconds, 'off'),
            env.environment(root, preload=env.LIBFBPROF, log_dir=log_dir, FBPROF_CACHE=str(layouts),
                            FBPROF_OPTIONS=f'MODE=PASSIVE,{options}'))
    log, = env.logs(log_dir)
    return log


# Logs --------------------------------------------------------------------------------------------

def table(log: Path, name: str) -> list[dict]:
    text = env.run([env.FBPROF_DUMP, '--table', name, log]).stdout
    return list(csv.DictReader(text.splitlines(keepends=True)))


def step_name(path: str) -> str:
    """Of an access path or a step: its first line, without what is in parentheses, and without a procedure's name."""
    step = re.sub(r' \([^()]*\)', '', path.strip().removeprefix('-> ').partition('\n')[0])
    step = re.sub(r'Procedure "[^"]*"( as "[^"]*")?', 'Procedure ""', step)
    # A class of the engine may be several steps: it is told as the most common one.
    return step.replace('Unique Sort', 'Sort').replace('Refetch', 'Sort')


def names_of_statements(log: Path) -> dict:
    """(profile_id, statement_id) → the routine, or the beginning of the text."""
    return {(row['profile_id'], row['statement_id']):
            '.'.join(filter(None, (row['package_name'], row['routine_name'])))
            or re.sub(r'[\0-\x1f]', ' ', row['sql_text'])[:NAME_SIZE]
            for row in table(log, 'statements')}


Frame = tuple[str, str]
INTERNAL = 'request', ''


def chains(log: Path) -> list[tuple[int, int, list[Frame]]]:
    """What was sampled, by where it was: samples, ns, and frames ('request' | 'line' | 'source', what), outermost first.

    The engine's own requests, as for the text of an exception, have no name and raise no events: they are their caller's.
    """
    found = []
    for line in env.run([PROGRAMS / 'session_chains', log]).stdout.split('\n')[:-1]:
        samples, time, *words = line.split('\t')
        frames = [(kind, step_name(what) if kind == 'source' else what) for kind, what in zip(words[::2], words[1::2])]
        if INTERNAL in frames:
            frames = frames[:frames.index(INTERNAL)]
        if frames:
            found.append((int(samples), int(time), frames))
    return found


# Shares ------------------------------------------------------------------------------------------

# By what time is summed: statements; lines with their record sources; lines and record sources each for itself.
KINDS = STATEMENT, LINE, ROW = 'statement', 'line', 'row'

Shares = dict[str, Counter]


def _shares(times: list[tuple[int, str, str, str]]) -> Shares:
    """Of (ns, statement, line or '' , step or ''): the percentages."""
    sums = {kind: Counter() for kind in KINDS}
    for time, statement, line, step in times:
        sums[STATEMENT][statement] += time
        sums[LINE][statement, line] += time
        sums[ROW][statement, step or line] += time
    whole = sums[STATEMENT].total()
    return {kind: Counter({key: 100 * time / whole for key, time in sums[kind].items()}) for kind in KINDS}


def shares_of_events(log: Path) -> Shares:
    """Of a measured session."""
    names = names_of_statements(log)
    times = [(int(row['self_time']), names[row['profile_id'], row['statement_id']], row['line_num'], '')
             for row in table(log, 'psql_stats')]

    def key_of(row, column='record_source_id'):
        return row['profile_id'], row['statement_id'], row['cursor_id'], row[column]

    sources = {key_of(row): row for row in table(log, 'record_sources')}

    def line_of(row):
        """The root of a plan says where it is; the engine's cursors may be that of a statement around."""
        while row['parent_record_source_id']:
            row = sources[key_of(row, 'parent_record_source_id')]
        place = re.search(r'\(line (\d+), column \d+\)', row['access_path'])
        return place[1] if place else ''

    for row in table(log, 'record_source_stats'):
        source = sources[key_of(row)]
        times.append((int(row['open_self_time']) + int(row['fetch_self_time']),
                      names[row['profile_id'], row['statement_id']], line_of(source), step_name(source['access_path'])))
    return _shares(times)


def is_routine(frame: Frame) -> bool:
    return frame[0] == 'request' and ' ' not in frame[1]


def shares_of_chains(log: Path, with_sources: bool = True) -> Shares:
    """Of a sampled or passive session. If it has record sources, what is in none of a statement without lines is left out."""
    times = []
    for _, time, frames in chains(log):
        while len(frames) > 1 and is_routine(frames[-1]):
            frames.pop()  # the call is its caller's
        if with_sources and frames[-1][0] == 'request':
            continue
        request = max(place for place, (kind, _) in enumerate(frames) if kind == 'request')
        line = next((what for kind, what in frames[request:] if kind == 'line'), '')
        times.append((time, frames[request][1], line, frames[-1][1] if frames[-1][0] == 'source' else ''))
    return _shares(times)


def median_shares(rounds: list[Shares], kind: str) -> Counter:
    keys = {key for shares in rounds for key in shares[kind]}
    medians = Counter()
    for key in keys:
        ordered = sorted(shares[kind][key] for shares in rounds)
        medians[key] = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return medians


def differences(truth: list[Shares], found: list[Shares], kind: str) -> Counter:
    """How many points the medians of some rounds are apart, by what is apart."""
    medians = median_shares(truth, kind), median_shares(found, kind)
    return Counter({key: medians[1][key] - medians[0][key] for key in medians[0] | medians[1]})


def gaps(truth: list[Shares], found: list[Shares], kind: str) -> Counter:
    """How many points lie between all rounds of the one and all of the other: what differs by no more than its noise has none."""
    found_gaps = Counter()
    for key in {key for shares in truth + found for key in shares[kind]}:
        one, other = ([shares[kind][key] for shares in rounds] for rounds in (truth, found))
        found_gaps[key] = max(0, min(one) - max(other), min(other) - max(one))
    return found_gaps
