"""Measures what an event costs, for the table in shim/event_cost.c, in 1/1024 of its unit.

Workloads with different numbers of lines, opens, fetches and requests run in one process, profiled and not profiled
in turn, some of them also with DETAILED_REQUESTS. The cost of a workload is the difference of the shortest times,
which are those that the rest of the machine disturbed least; likewise the unit. The least squares of all workloads
give the cost of each kind of event. For sampled and coarse mode the difference is that of elapsed times; in measured
mode that of what fbprof reports and of the unprofiled time: what it can't see, less what it sees too much of. At the
end, by how much each workload's cost is missed.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
import tempfile
from pathlib import Path

import protocol

WORKLOADS = {
    "lines": "execute block as declare i integer = 0; begin while (i < 2000000) do i = i + 1; end",
    "fetches": "select count(*) from (select 1 x from rdb$types a cross join rdb$types b cross join rdb$types c"
               " rows 1000000)",
    "cursor": "execute block as declare i integer = 0; declare x integer; begin for select 1 from rdb$types a"
              " cross join rdb$types b cross join rdb$types c rows 700000 into x do i = i + 1; end",
    "requests": "execute block as declare i integer = 0; begin while (i < 50000) do begin execute procedure p_nop;"
                " i = i + 1; end end",
    "opens": "execute block as declare i integer = 0; declare x integer; begin while (i < 100000) do begin"
             " select 1 from rdb$database into x; i = i + 1; end end",
    "calls": "execute block as declare i integer = 0; begin while (i < 20000) do begin execute procedure p_lines;"
             " i = i + 1; end end",
    "functions": "execute block as declare i integer = 0; declare x integer; begin while (i < 3000) do begin"
                 " x = f_depth(12); i = i + 1; end end",
}
SETUP = """
create procedure p_nop as begin end^
create procedure p_lines as
declare n integer;
begin
  n = 1;
  n = 2;
  n = 3;
  n = 4;
  n = 5;
  n = 6;
end^
create table t (id integer not null primary key, parent integer)^
commit^
execute block as declare i integer = 1000; begin while (i < 1100) do begin insert into t values (:i, :i - 1); i = i + 1;
end end^
create function f_depth (n integer) returns integer as
declare m integer;
begin
  if (n <= 0) then return 0;
  select parent from t where id = 1000 + :n into m;
  return f_depth(m - 1000) + 1;
end^
commit^
"""
UNIT_SESSIONS = 20  # of which the fastest counts
EVENTS = "line", "open", "fetch", "request", "row", "function", "detailed", "cell"
RUNS = [(workload, False) for workload in WORKLOADS] + [("requests", True), ("calls", True), ("functions", True)]


def script(statement: str, options: str, rounds: int) -> str:
    timed = f"set stats on^\n{statement}^\nset stats off^\n"
    lines = [timed]
    for _ in range(rounds):
        lines += [f"select rdb$profiler.start_session('costs', null, null, null, '{options}') from rdb$database^",
                  timed, "execute procedure rdb$profiler.finish_session(true)^", timed]
    # Only to know the unit, which a measured session doesn't tell.
    lines += ["select rdb$profiler.start_session('unit', null, null, null, 'MODE=COARSE') from rdb$database^",
              "execute procedure rdb$profiler.finish_session(true)^"] * UNIT_SESSIONS
    return "\n".join(lines)


def number(text: str) -> int:
    return int(text or 0)


def table(name: str, log: Path, session: str) -> list[dict[str, str]]:
    rows = csv.DictReader(io.StringIO(protocol.dump("--table", name, log)))  # millions, of all sessions
    return [row for row in rows if row["profile_id"] == session]


def counts(log: Path, session: str, detailed: bool) -> list[int]:
    """The numbers of EVENTS."""
    sources = table("record_source_stats", log, session)
    lines = table("psql_stats", log, session)
    requests = table("requests", log, session)
    parents = {(row["statement_id"], row["cursor_id"], row["record_source_id"]): row["parent_record_source_id"]
               for row in table("record_sources", log, session)}
    functions = {row["statement_id"] for row in table("statements", log, session)
                 if row["statement_type"] == "FUNCTION"}
    fetches = {True: 0, False: 0}
    for row in sources:
        has_parent = bool(parents[row["statement_id"], row["cursor_id"], row["record_source_id"]])
        fetches[has_parent] += number(row["fetch_counter"])
    finishes = sum(number(row["finish_count"]) for row in requests)
    # Opens and fetches of a record source are looked up apart.
    cells = len(lines) + sum((number(row["open_counter"]) > 0) + (number(row["fetch_counter"]) > 0) for row in sources)
    return [sum(number(row["counter"]) for row in lines), sum(number(row["open_counter"]) for row in sources),
            fetches[True], finishes, fetches[False],
            sum(number(row["finish_count"]) for row in requests if row["statement_id"] in functions),
            finishes * detailed, cells * detailed]


def longest_seconds(statements: list[dict[str, str]], requests: list[dict[str, str]]) -> float:
    """Of the statements that are no routine's, the one that took longest: that is it."""
    top = {row["statement_id"] for row in statements if not row["routine_name"]}
    return max(number(row["total_elapsed_time"]) for row in requests if row["statement_id"] in top) / 1e9


def measure(mode: str, workload: str, detailed: bool, rounds: int) -> tuple[list[int], float, float]:
    """The numbers of events, what they cost in all, in ns, and the unit, in ns."""
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        (work / "log").mkdir(mode=0o700)
        setup = f"create database '{work}/t.fdb';\nset term ^;\n{SETUP}"
        options = f"MODE={mode}{', DETAILED_REQUESTS' if detailed else ''}"
        output = protocol.run_isql(setup + script(WORKLOADS[workload], options, rounds), work, protocol.LIBRARY)
        elapsed = [float(text) * 1e9 for text in re.findall(r"Elapsed time = ([\d.]+) sec", output)]
        log, = (work / "log").iterdir()
        sessions = protocol.table("sessions", log)
        off, profiled = elapsed[0::2], elapsed[1::2]
        unit_scale = known_costs("COARSE")[0]
        unit = min(number(session["line_cost_ps"]) * 1.024 / unit_scale for session in sessions[rounds:])
        took = profiled
        if mode == "MEASURED":
            took = [1e9 * longest_seconds(*(table(name, log, session["profile_id"])
                                            for name in ("statements", "requests")))
                    for session in sessions[:rounds]]
        return counts(log, sessions[0]["profile_id"], detailed), min(took) - min(off), unit


def known_costs(mode: str) -> list[int]:
    """The mode's row of the table, from the source."""
    source = (protocol.REPO / "shim/event_cost.c").read_text(encoding="utf-8")
    row = re.search(rf"\[LOG_MODE_{mode}\] *= {{(.*?)}}", source)
    return [int(text) for text in row[1].split(",")]


def solve(rows: list[list[float]], values: list[float], signed: bool) -> list[float]:
    """Least squares; unless signed with no negative result: the most negative one is taken out until there is none."""
    used = list(range(len(rows[0])))
    while True:
        size = len(used)
        matrix = [[sum(row[a] * row[b] for row in rows) for b in used] + [sum(row[a] * value
                  for row, value in zip(rows, values))] for a in used]
        for i in range(size):
            pivot = max(range(i, size), key=lambda r: abs(matrix[r][i]))
            matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
            for j in range(size):
                if j != i and matrix[i][i]:
                    factor = matrix[j][i] / matrix[i][i]
                    matrix[j] = [x - factor * y for x, y in zip(matrix[j], matrix[i])]
        found = [matrix[i][size] / matrix[i][i] if matrix[i][i] else 0.0 for i in range(size)]
        if signed or all(x >= 0 for x in found):
            result = [0.0] * len(rows[0])
            for i, x in zip(used, found):
                result[i] = x
            return result
        used.remove(used[found.index(min(found))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--modes", default="SAMPLED,COARSE,MEASURED")
    arguments = parser.parse_args()
    for mode in arguments.modes.split(","):
        found = {workload + " detailed" * detailed: measure(mode, workload, detailed, arguments.rounds)
                 for workload, detailed in RUNS}
        unit = min(unit for _, _, unit in found.values())
        rows, values = [], []
        for workload, (events, difference, _) in found.items():
            if mode == "MEASURED":  # what was left out already
                difference += sum(cost / 1024 * unit * count for cost, count in zip(known_costs(mode), events))
            print(f"{mode} {workload}: {difference / 1e6:.1f} ms for {events}, unit {unit:.2f} ns", file=sys.stderr)
            # Each workload counts the same: its cost in units, relative to all of it.
            weight = 1 / max(abs(difference / unit), 1)
            rows.append([count * weight for count in events])
            values.append(difference / unit * weight)
        costs = solve(rows, values, mode == "MEASURED")
        print(mode, " ".join(f"{event} {round(1024 * cost)}" for event, cost in zip(EVENTS, costs)))
        for workload, row, value in zip(found, rows, values):
            print(f"    {workload}: {sum(x * cost for x, cost in zip(row, costs)) - value:+.1%}")


if __name__ == "__main__":
    main()
