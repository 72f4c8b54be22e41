"""The benchmark: what profiling costs, as ratios to the same statement unprofiled.

Each run is a fresh isql process on a fresh copy of a database; the modes alternate, so that whatever else the
machine does hits all of them. Absolute times mean nothing on a shared machine: look at the ratios.
docs/benchmark.md says what the tests and modes are. A mode that the library doesn't have is left out, unless
--modes names it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import chart
import figures
import instructions
from protocol import MODES, TESTS, Bench, Failed, Run

BEGIN, END = "<!-- figures: ./run bench --page writes what is between these lines -->", "<!-- end of figures -->"


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<70}\r", end="", file=sys.stderr, flush=True)


def available(bench: Bench, modes: list[str], named: bool) -> list[str]:
    """The modes whose sessions can be started. That all those that were named can be is the caller's wish."""
    found = []
    for mode in modes:
        sentence = bench.refusal(MODES[mode]) if MODES[mode].profiles or MODES[mode].passive else ""
        if not sentence:
            found.append(mode)
        elif named:
            raise Failed(f"mode {mode}: {sentence}")
        else:
            print(f"{mode} is not available: {sentence}", file=sys.stderr)
    return found


def run_all(arguments: argparse.Namespace):
    with tempfile.TemporaryDirectory(prefix="fbprof-bench-") as directory:
        progress("preparing")
        bench = Bench(Path(directory), arguments.parts)
        modes = available(bench, arguments.modes or list(MODES), bool(arguments.modes))
        if "off" not in modes:
            modes.insert(0, "off")
        for test in arguments.tests:
            bench.prepare(test)
        for number in range(1, arguments.runs + 1):
            for test in arguments.tests:
                for mode in modes:
                    if MODES[mode].profiles and not TESTS[test].sessions:
                        continue
                    progress(f"run {number} of {arguments.runs}: {TESTS[test].title}, {mode}")
                    yield bench.measure(test, mode, number)
        progress("")


def measure(arguments: argparse.Namespace) -> list[Run]:
    """All runs; each of them is in the CSV file as soon as it is done."""
    runs = []
    with contextlib.ExitStack() as stack:
        file = None
        if arguments.csv:
            file = stack.enter_context(open(arguments.csv, "w", encoding="utf-8", newline=""))
            figures.csv_header(file)
        for run in run_all(arguments):
            runs.append(run)
            if file:
                figures.csv_row(file, run)
                file.flush()
    return runs


def conditions(found: figures.Figures) -> str:
    """Where, when and how undisturbed: what the figures are worth."""
    cpus = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name\s*:\s*(.*)", cpus, re.MULTILINE)
    cpu = model.group(1) if model else platform.machine()
    waited = found.waited()
    return (f"Medians of {found.count} runs, {time.strftime('%Y-%m-%d')}, "
            f"Linux {platform.release().partition('-')[0]}, {os.cpu_count()} × {cpu}."
            + (f" Statements waited for a CPU {waited.median:.0%} ({waited.low:.0%}–{waited.high:.0%}) of the time."
               if waited else ""))


def replace_figures(page: str, text: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"it lacks the lines '{BEGIN}' and '{END}'")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def words(allowed):
    def parse(text):
        chosen = text.split(",")
        for word in chosen:
            if word not in allowed:
                raise argparse.ArgumentTypeError(f"'{word}' is none of {', '.join(allowed)}")
        return chosen
    return parse


def page(text: str) -> Path:
    """A file that the figures can be written to: better to know before than after the runs."""
    path = Path(text)
    try:
        replace_figures(path.read_text(encoding="utf-8"), "")
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from error
    return path


def new_file(text: str) -> Path:
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path.parent} is no directory")
    return path


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, metavar="N",
                        help="runs of each test in each mode (default %(default)s)")
    parser.add_argument("--parts", type=int, default=1, metavar="N",
                        help="time each statement as N that do a part of the work each, so that some are undisturbed"
                             " on a machine that others use, too (default %(default)s; 8 is right for that)")
    parser.add_argument("--tests", type=words(TESTS), default=list(TESTS), metavar="LIST",
                        help="comma-separated: " + ", ".join(f"{name} ({test.title})" for name, test in TESTS.items()))
    parser.add_argument("--modes", type=words(MODES), metavar="LIST",
                        help=f"comma-separated: {', '.join(MODES)} (default: all that are available)")
    parser.add_argument("--csv", type=new_file, metavar="FILE", help="write a row for each run, as they come")
    parser.add_argument("--read", metavar="FILE", help="show the runs of such a file instead of measuring")
    parser.add_argument("--svg", type=new_file, metavar="FILE", help="draw a chart")
    parser.add_argument("--page", type=page, metavar="FILE",
                        help="write tables into this Markdown page, and a chart next to it (docs/benchmark.md);"
                             " with valgrind, the instructions of an event, too")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs is at least 1")
    if arguments.parts < 1:
        parser.error("--parts is at least 1")
    if arguments.csv and arguments.read:
        parser.error("--csv and --read exclude each other")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    if arguments.read:
        with open(arguments.read, encoding="utf-8", newline="") as file:
            runs = figures.read_csv(file)
    else:
        runs = measure(arguments)
    found = figures.Figures(runs)
    tables = figures.tables(found) + figures.tables(figures.Calm(runs))
    print("\n".join(table.text() for table in tables))
    print(conditions(found))
    if arguments.svg:
        arguments.svg.write_text(chart.draw(found), encoding="utf-8")
    if arguments.page:
        if shutil.which("valgrind"):
            tables.append(instructions.table(instructions.HOST))
        picture = arguments.page.with_suffix(".svg")
        picture.write_text(chart.draw(found), encoding="utf-8")
        text = "\n".join([f"{conditions(found)}\n",
                          f"![Time of each mode over the time of off]({picture.name})\n",
                          *(table.markdown() for table in tables)])
        arguments.page.write_text(replace_figures(arguments.page.read_text(encoding="utf-8"), text), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except (Failed, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
