"""Figures from runs: medians, ratios, and the tables that show them, as text or as Markdown."""

from __future__ import annotations

import csv
import dataclasses
import statistics
from typing import Iterable, TextIO

from protocol import MODES, TESTS, Piece, Run


@dataclasses.dataclass(frozen=True)
class Spread:
    """A median and the middle half around it."""

    low: float
    median: float
    high: float

    @classmethod
    def single(cls, value: float) -> Spread:
        return cls(value, value, value)

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        if len(values) == 1:
            return cls.single(values[0])
        return cls(*statistics.quantiles(values, n=4, method="inclusive"))

    def __truediv__(self, divisor: float) -> Spread:
        return Spread(self.low / divisor, self.median / divisor, self.high / divisor)

    def __str__(self) -> str:
        return f"{self.median:.2f}" + (f" ({self.low:.2f}–{self.high:.2f})" if self.low < self.high else "")


class Figures:
    """What runs come to. Where a mode was not run in a test, the answer is None."""

    def __init__(self, runs: Iterable[Run]):
        self.groups: dict[tuple[str, str], list[Run]] = {}
        for run in runs:
            self.groups.setdefault((run.test, run.mode), []).append(run)
        self.tests = [test for test in TESTS if any(test == key[0] for key in self.groups)]
        self.modes = [mode for mode in MODES if any(mode == key[1] for key in self.groups)]
        self.count = max(map(len, self.groups.values()), default=0)

    def seconds(self, test: str, mode: str) -> Spread | None:
        runs = self.groups.get((test, mode))
        return Spread.of([run.seconds for run in runs]) if runs else None

    def ratio(self, test: str, mode: str) -> Spread | None:
        """Times with the mode over the time without."""
        time, off = self.seconds(test, mode), self.seconds(test, "off")
        return time / off.median if time and off else None

    def over(self, test: str, mode: str, base: str) -> float | None:
        """One mode's time over another's."""
        time, base_time = self.seconds(test, mode), self.seconds(test, base)
        return time.median / base_time.median if time and base_time else None

    def cut(self, test: str, mode: str) -> float | None:
        """How much of what the stock profiler adds to the time is saved; below 0: more is added."""
        ratio, stock = self.ratio(test, mode), self.ratio(test, MODES[mode].stock)
        if not ratio or not stock or stock.median <= 1:
            return None
        return 1 - (ratio.median - 1) / (stock.median - 1)

    def sampler_share(self, test: str, mode: str) -> float | None:
        """CPU time of the sampler's thread over the time of the statement."""
        shares = [run.sampler_seconds / run.seconds for run in self.groups.get((test, mode), [])
                  if run.sampler_seconds is not None and run.seconds]
        return statistics.median(shares) if shares else None

    def interval_us(self, test: str, mode: str) -> float | None:
        intervals = [run.interval_us for run in self.groups.get((test, mode), []) if run.interval_us is not None]
        return statistics.median(intervals) if intervals else None

    def truth(self, test: str, mode: str) -> Spread | None:
        """What the profiler says the statement took over what it takes without one."""
        runs, off = self.groups.get((test, mode), []), self.seconds(test, "off")
        told = [run.reported for run in runs if run.reported is not None]
        return Spread.of(told) / off.median if told and off and off.median else None

    def waited(self) -> Spread | None:
        """How much of their time the statements waited for a CPU: what else the machine did."""
        shares = [run.waited for runs in self.groups.values() for run in runs if run.waited is not None]
        return Spread.of(shares) if shares else None


class Calm(Figures):
    """The times of the parts that were disturbed least: what others do on a machine can only add to a time."""

    def fastest(self, test: str, mode: str) -> list[Piece]:
        """A tenth of them: so many that one that is odd doesn't matter."""
        pieces = [piece for run in self.groups.get((test, mode), []) for piece in run.pieces()]
        pieces.sort(key=lambda piece: piece.seconds)
        return pieces[:max(len(pieces) // 10, 1)]

    def seconds(self, test: str, mode: str) -> Spread | None:
        pieces = self.fastest(test, mode)
        return Spread.single(statistics.median(piece.seconds for piece in pieces)) if pieces else None

    def truth(self, test: str, mode: str) -> Spread | None:
        off = self.seconds(test, "off")
        told = [piece.reported for piece in self.fastest(test, mode) if piece.reported is not None]
        return Spread.single(statistics.median(told) / off.median) if told and off and off.median else None


# Tables -------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Table:
    title: str
    rows: list[list[str]]  # the first one is the header

    def text(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows)]
        lines = ["  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
                 for row in self.rows]
        return "\n".join([self.title, *(line.rstrip() for line in lines)]) + "\n"

    def markdown(self) -> str:
        header, *rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in self.rows]
        rule = "| --- |" + " ---: |" * (len(self.rows[0]) - 1)
        return "\n".join([f"**{self.title}**", "", header, rule, *rows]) + "\n"


def formatted(value, form: str) -> str:
    return "–" if value is None else form.format(value)


def tables(figures: Figures) -> list[Table]:
    calm = isinstance(figures, Calm)
    of = ", undisturbed" if calm else ""
    profiled = [test for test in figures.tests if TESTS[test].sessions]
    ours = [mode for mode in figures.modes if MODES[mode].floor]

    def table(title: str, tests: list[str], modes: list[str], cell) -> Table:
        rows = [[mode, *(cell(test, mode) for test in tests)] for mode in modes]
        return Table(title, [["mode", *(TESTS[test].title for test in tests)],
                             *(row for row in rows if any(word != "–" for word in row[1:]))])

    def ratio(test: str, mode: str) -> str:
        if mode == "off":
            return formatted(figures.seconds(test, mode), "{} s")
        return formatted(figures.ratio(test, mode), "{}")

    def sampler(test: str, mode: str) -> str:
        share = formatted(figures.sampler_share(test, mode), "{:.0%}")
        interval = figures.interval_us(test, mode)
        return share if interval is None else f"{share}, {interval:.0f} µs"

    found = [
        table("Time of the statement over the time of off" + (of or ": median (middle half)"), figures.tests, figures.modes, ratio),
        table("Over the floor of the mode" + of, profiled, ours,
              lambda test, mode: formatted(figures.over(test, mode, MODES[mode].floor), "{:.2f}")),
        table("Over the stock profiler" + of, profiled, ours,
              lambda test, mode: formatted(figures.over(test, mode, MODES[mode].stock), "{:.2f}")),
        table("Event overhead cut against the stock profiler" + of, profiled, ours,
              lambda test, mode: formatted(figures.cut(test, mode), "{:.0%}")),
        table("Time that the profiler reports for the statement over the time of off: 1 is the truth" + of, profiled,
              figures.modes, lambda test, mode: formatted(figures.truth(test, mode), "{}")),
    ]
    if not calm:
        found.append(table("The sampler's share of a CPU, and the mean interval that it reached", profiled,
                           figures.modes, sampler))
    return [table for table in found if len(table.rows) > 1 and len(table.rows[0]) > 1]


# CSV: a row each run ------------------------------------------------------------------------------

COLUMNS = [field.name for field in dataclasses.fields(Run)]


def csv_header(file: TextIO) -> None:
    csv.writer(file).writerow(COLUMNS)


def csv_row(file: TextIO, run: Run) -> None:
    def cell(value) -> str:
        if isinstance(value, tuple):
            return " ".join(map(str, value))
        return "" if value is None else str(value)

    csv.writer(file).writerow(map(cell, dataclasses.astuple(run)))


def read_csv(file: TextIO) -> list[Run]:
    def number(text: str) -> float | None:
        return float(text) if text else None

    def numbers(text: str) -> tuple[float, ...]:
        return tuple(map(float, text.split()))

    return [Run(row["test"], row["mode"], int(row["run"]), float(row["seconds"]), number(row["waited"]),
                number(row["sampler_seconds"]), number(row["interval_us"]),
                number(row.get("reported", "")), numbers(row.get("parts", "")), numbers(row.get("reported_parts", "")))
            for row in csv.DictReader(file)]
