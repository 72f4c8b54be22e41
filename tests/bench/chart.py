"""The chart: a column for each test, a row for each mode, a dot with whiskers for its time over that of off."""

from __future__ import annotations

import math
from html import escape

from figures import Figures, Spread
from protocol import MODES, TESTS

LABELS, COLUMN, GAP = 150, 168, 18  # widths
ROW, TOP, BOTTOM = 24, 46, 78       # heights
LEGEND = 460                        # the least width

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 }
.small, .axis { font-size: 11px; fill: #57606a }
.end { text-anchor: end }
.middle { text-anchor: middle }
.grid { stroke: #d0d7de }
.one { stroke: #57606a; stroke-width: 1.5 }
.floor-mark { stroke: #57606a; stroke-width: 2 }
.band { fill: #f6f8fa }
.off { fill: #57606a; stroke: #57606a }
.stock { fill: #bc4c00; stroke: #bc4c00 }
.fbprof { fill: #0969da; stroke: #0969da }
.floor { fill: #8c959f; stroke: #8c959f }
.background { fill: #ffffff }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.small, .axis { fill: #9198a1 }
.grid { stroke: #30363d }
.one, .floor-mark { stroke: #9198a1 }
.band { fill: #151b23 }
.off { fill: #9198a1; stroke: #9198a1 }
.stock { fill: #db6d28; stroke: #db6d28 }
.fbprof { fill: #4493f8; stroke: #4493f8 }
.floor { fill: #656c76; stroke: #656c76 }
.background { fill: #0d1117 }
}"""


def family(mode: str) -> str:
    """What a mode belongs to, which its colour shows."""
    if MODES[mode].floor or MODES[mode].passive:
        return "fbprof"
    return mode.partition("-")[0] if MODES[mode].profiles else "off"


def text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def dot(x: float, y: float, kind: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="{kind}"/>'


def draw(figures: Figures) -> str:
    ratios = {(test, mode): figures.ratio(test, mode) for test in figures.tests for mode in figures.modes}
    shown: list[Spread] = [ratio for ratio in ratios.values() if ratio]
    low = min([1.0, *(ratio.low for ratio in shown)])
    high = max([2.0, *(ratio.high for ratio in shown)])
    first = math.floor(low * 2 - 0.1) / 2
    last = math.ceil(high * 2) / 2
    step = 0.5 if last - first <= 3 else 1.0
    width = max(LEGEND, LABELS + (COLUMN + GAP) * len(figures.tests) + GAP)
    bottom = TOP + ROW * len(figures.modes)

    def place(column: int, ratio: float) -> float:
        # Room is left on the right for the number of the greatest.
        return LABELS + (COLUMN + GAP) * column + GAP + (ratio - first) / (last - first) * (COLUMN - 24)

    parts = [f'<rect width="{width}" height="{bottom + BOTTOM}" class="background"/>']
    for row in range(0, len(figures.modes), 2):
        parts.append(f'<rect x="8" y="{TOP + ROW * row}" width="{width - 16}" height="{ROW}" class="band"/>')
    for row, mode in enumerate(figures.modes):
        parts.append(text(LABELS, TOP + ROW * (row + 0.5) + 4, mode, "end"))
    for column, test in enumerate(figures.tests):
        parts.append(text(place(column, first), TOP - 22, TESTS[test].title, "title"))
        tick = math.ceil(first / step) * step
        while tick <= last:
            x = place(column, tick)
            parts.append(line(x, TOP - 6, x, bottom, "one" if tick == 1 else "grid"))
            parts.append(text(x, bottom + 16, f"{tick:g}", "axis middle"))
            tick += step
        for row, mode in enumerate(figures.modes):
            if not (ratio := ratios[test, mode]):
                continue
            y, kind, end = TOP + ROW * (row + 0.5), family(mode), ratio.high
            if floor := ratios.get((test, MODES[mode].floor)):
                x, end = place(column, floor.median), max(end, floor.median)
                parts.append(line(x, y - 9, x, y + 9, "floor-mark"))
            parts.append(line(place(column, ratio.low), y, place(column, ratio.high), y, kind))
            parts.append(dot(place(column, ratio.median), y, kind))
            parts.append(text(place(column, end) + 7, y + 4, f"{ratio.median:.2f}", "small"))
    parts += legend(bottom + 44)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + BOTTOM}" width="{width}" '
            f'height="{bottom + BOTTOM}" role="img">\n<title>Time of each mode over the time of off</title>\n'
            f"<style>{STYLE}\n</style>\n" + "\n".join(parts) + "\n</svg>\n")


def legend(y: float) -> list[str]:
    parts, x = [], 24.0
    for kind, words in (("fbprof", "fbprof"), ("stock", "stock profiler"), ("floor", "floor"), ("off", "no session")):
        parts += [dot(x, y - 4, kind), text(x + 9, y, words, "small")]
        x += 36 + 6.2 * len(words)
    parts += [line(x, y - 13, x, y + 5, "floor-mark"), text(x + 9, y, "its floor", "small")]
    parts.append(text(20, y + 20, "dot: median; line: the middle half of the runs; all of them over the median of off",
                      "small"))
    return parts
