#!/usr/bin/env python3
"""passive_truth.py [--rounds N] [--seconds S] [--rows POINTS] [--record OPTIONS] [WORK...]: passive mode against measured.

Each work of the corpus (tests/engine/corpus.py) is executed over and over for some seconds: in a measured session, recorded
from outside, and in-process, in turns. Printed are, in percentage points, the greatest differences of the medians: of a
statement's share of self time, of a line's with its record sources, of a record source's or of a line's without them. --rows
also shows all that differ by so many points.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / 'tests/engine'))

import firebird_env as env  # noqa: E402
import passive  # noqa: E402
from corpus import CORPUS  # noqa: E402

MEASURED, OUTSIDE, INSIDE = 'measured', 'from outside', 'in-process'

COLUMNS = [(OUTSIDE, passive.STATEMENT), (OUTSIDE, passive.LINE), (OUTSIDE, passive.ROW),
           (INSIDE, passive.STATEMENT), (INSIDE, passive.LINE)]


def run(way: str, work: str, scratch: Path, arguments) -> passive.Shares:
    log_dir = scratch / 'log'
    shutil.rmtree(log_dir, ignore_errors=True)
    common = scratch / 'corpus.fdb', scratch / 'root', log_dir, work, arguments.seconds
    if way == MEASURED:
        return passive.shares_of_events(passive.run_in_session(*common, 'MEASURED'))
    if way == OUTSIDE:
        return passive.shares_of_chains(passive.run_recorded(*common, scratch, *arguments.record.split()))
    return passive.shares_of_chains(passive.run_in_passive_mode(*common, scratch, arguments.options), with_sources=False)


def show_rows(rounds, way, kind, least) -> None:
    medians = [passive.median_shares(rounds[each], kind) for each in (MEASURED, way)]
    for key, points in passive.differences(rounds[MEASURED], rounds[way], kind).most_common():
        if abs(points) >= least:
            print(f'    {points:+6.1f}  measured {medians[0][key]:5.1f}, {way} {medians[1][key]:5.1f}  {kind} {key}')


def compare(work: str, scratch: Path, arguments) -> None:
    rounds = {way: [] for way in (MEASURED, OUTSIDE, INSIDE)}
    for _ in range(arguments.rounds):
        for way, found in rounds.items():
            found.append(run(way, work, scratch, arguments))
    greatest = [max(map(abs, passive.differences(rounds[MEASURED], rounds[way], kind).values())) for way, kind in COLUMNS]
    print(f'| {work} |', ' | '.join(f'{points:.1f}' for points in greatest), '|', flush=True)
    if arguments.rows is not None:
        for way, kind in COLUMNS:
            show_rows(rounds, way, kind, arguments.rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seconds', type=float, default=3)
    parser.add_argument('--rows', type=float, metavar='POINTS')
    parser.add_argument('--record', default='--interval 250 --plan-rate 1000 --share 100', help="options of 'fbprof record'")
    parser.add_argument('--options', default='SAMPLING_INTERVAL=250', help='FBPROF_OPTIONS beside MODE=PASSIVE')
    parser.add_argument('work', nargs='*', metavar='WORK')
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='fbprof-passive-truth-') as name:
        scratch = Path(name)
        root = env.make_root(scratch / 'root')
        env.run([env.FBPROF, 'calibrate', '--quiet', env.engine_of(env.FIREBIRD)], env.environment(FBPROF_CACHE=name))
        env.run_program('make_base.py', scratch / 'corpus.fdb', root=root)
        env.run_program('plans.py', scratch / 'corpus.fdb', root=root)
        print('| work |', ' | '.join(f'{way}: {kind}' for way, kind in COLUMNS), '|')
        print('| --- |', ' | '.join('---' for _ in COLUMNS), '|')
        for work in arguments.work or CORPUS:
            compare(work, scratch, arguments)


if __name__ == '__main__':
    main()
