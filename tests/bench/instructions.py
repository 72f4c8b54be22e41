"""Counts the instructions that an event takes in fbprof, by replaying recorded events under callgrind.

The test host (build/obj/fbprof-host) plays a stream of events to the plugin, as the engine would. Of each method that
the engine calls, callgrind tells the calls and the instructions, all that is called from there included, but for what
coarse mode does when the clock has moved on: that comes with each move of the clock and not with each event, and under
callgrind, which makes all of it some 50 times slower, it comes far too often.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import figures
import protocol

HOST = protocol.REPO / "build/obj/fbprof-host"
WHEN_THE_CLOCK_MOVES = "keep_coarse_time"
STREAMS = {"loop": "PSQL loop", "select": "SELECT", "calls": "procedure calls", "cursor": "PSQL cursor"}
METHODS = {
    "SAMPLED": {"line": ("before_psql_line_column", "after_psql_line_column"),
                "fetch": ("before_record_source_get_record", "after_record_source_get_record"),
                "request": ("on_request_start", "on_request_finish")},
    "COARSE": {"line": ("coarse_line",), "fetch": ("coarse_fetch",), "request": ("on_request_start",
                                                                                 "on_request_finish")},
    "MEASURED": {"line": ("measured_line",), "fetch": ("measured_fetch",), "request": ("measured_start",
                                                                                       "measured_finish")},
}


def profile(host: Path, stream: str, mode: str) -> dict[str, tuple[int, int]]:
    """Of each function: its calls, and the instructions of all of them."""
    with tempfile.TemporaryDirectory() as directory:
        logs, out = Path(directory) / "log", Path(directory) / "out"
        logs.mkdir(mode=0o700)
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", host, "--stream", stream, "--size",
                   "20000", "--library", protocol.LIBRARY, "--options", f"MODE={mode}"]
        environment = dict(os.environ, FBPROF_DIR=str(logs), LD_PRELOAD=str(protocol.LIBRARY))
        result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                encoding="utf-8", check=False)
        if result.returncode:
            raise protocol.Failed(f"{host.name} failed under valgrind: {result.stdout.strip()}")
        return calls(out.read_text(encoding="utf-8", errors="replace"))


def calls(out: str) -> dict[str, tuple[int, int]]:
    """From callgrind's file: each line "calls=N …" is followed by one with the instructions of these calls."""
    names: dict[str, str] = {}
    found: dict[str, tuple[int, int]] = {}

    def add(function: str, count: int, instructions: int) -> None:
        before = found.get(function, (0, 0))
        found[function] = before[0] + count, before[1] + instructions

    caller = called = ""
    lines = iter(out.splitlines())
    for line in lines:
        if name := re.match(r"(c?)fn=\((\d+)\)(?: (.*))?", line):
            names.setdefault(name[2], name[3] or "")
            if name[1]:
                called = names[name[2]]
            else:
                caller = names[name[2]]
        elif count := re.match(r"calls=(\d+)", line):
            instructions = int(next(lines).split()[1])
            add(called, int(count[1]), instructions)
            if called == WHEN_THE_CLOCK_MOVES:
                add(caller, 0, -instructions)
    return found


def per_event(found: dict[str, tuple[int, int]], methods: tuple[str, ...]) -> str:
    """Of an event: of its methods together. None of a stream's events are of this kind: a dash."""
    if not all(method in found for method in methods):
        return "–"
    return f"{sum(found[method][1] / found[method][0] for method in methods):.0f}"


def table(host: Path) -> figures.Table:
    events = [(stream, event) for stream in STREAMS for event in ("line", "fetch", "request")]
    rows = [["event", *(mode.lower() for mode in METHODS)]]
    profiles = {(stream, mode): profile(host, stream, mode) for stream in STREAMS for mode in METHODS}
    for stream, event in events:
        cells = [per_event(profiles[stream, mode], METHODS[mode][event]) for mode in METHODS]
        if any(cell != "–" for cell in cells):
            rows.append([f"{STREAMS[stream]}: {event}", *cells])
    return figures.Table("Instructions of an event in fbprof, before and after it", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", type=Path, default=HOST, metavar="FILE",
                        help="the test host (%(default)s)")
    arguments = parser.parse_args()
    if not shutil.which("valgrind"):
        sys.exit("instructions: valgrind is missing: install Debian's package valgrind")
    if not arguments.host.exists():
        sys.exit(f"instructions: {arguments.host} is missing: ./run build makes it, or name another by --host")
    print(table(arguments.host).text(), end="")


if __name__ == "__main__":
    try:
        main()
    except protocol.Failed as error:
        sys.exit(f"instructions: {error}")
