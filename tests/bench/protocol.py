"""What is measured and how: the tests, the modes, one run.

A run is a fresh isql process on a fresh copy of a database. A session is started before the timed statement and
finished after it; neither is timed. The time is isql's own ("set stats on"). In passive modes there is no session, but
some time before the statement, in which the recorder finds out what the engine is.

A statement can be timed in parts: as several that do the same, each a part of the work. Where others use the machine
now and then, some of the parts are undisturbed when no whole statement is.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
FIREBIRD = Path(os.environ.get("FBPROF_FIREBIRD", REPO / "build/firebird/5.0.4"))
DIST = Path(os.environ.get("FBPROF_DIST", REPO / "build/dist"))


@dataclasses.dataclass(frozen=True)
class Test:
    title: str
    statement: str
    setup: str = ""
    sessions: bool = True  # False: shows what the preload costs where nobody profiles
    count: int = 0         # how often it does what it does: the number in it that a part has less of. 0: has no parts
    part: str = ""         # {count} times the same, if another number won't do

    def timed(self, parts: int) -> list[str]:
        """The statements. Each says which one it is: the engine and its profilers know a statement by its text."""
        part = self.part or self.statement.replace(str(self.count), "{count}")
        if parts == 1 or not self.count:
            texts = [self.statement]
        else:
            texts = [part.replace("{count}", str(max(self.count // parts, 1)))] * parts
        return [re.sub(r"^\w+", rf"\g<0> /* part {number} */", text) for number, text in enumerate(texts, 1)]


def demo_block(client: str) -> str:
    """The EXECUTE BLOCK of one of the demo's clients."""
    script = (REPO / f"demo/clients/{client}.sql").read_text(encoding="utf-8")
    return re.search(r"^execute block.*?^end(?=\^)", script, re.MULTILINE | re.DOTALL).group(0)


# The demo's shop, with the orders of both tills.
SHOP = ("set term ;^\n" + (REPO / "demo/shop.sql").read_text(encoding="utf-8")
        + "".join(f"select rdb$set_context('USER_SESSION', 'BRANCH', '{branch}') from rdb$database^\n"
                  f"{demo_block('till')}^\ncommit^\n" for branch in (1, 2)))

TESTS = {
    "1": Test("PSQL loop",
              "execute block as declare i integer = 0; begin while (i < 10000000) do i = i + 1; end",
              count=10000000),
    "2": Test("SELECT",
              "select count(*) from (select 1 x from rdb$types a cross join rdb$types b"
              " cross join rdb$types c rows 3000000)", count=3000000),
    "3": Test("procedure calls",
              "execute block as declare i integer = 0; begin while (i < 1000000) do begin"
              " execute procedure p_nop; i = i + 1; end end",
              setup="create procedure p_nop as begin end^", count=1000000),
    "4": Test("PSQL cursor",
              "execute block as declare i integer = 0; declare x integer; begin for select 1 from rdb$types a"
              " cross join rdb$types b cross join rdb$types c rows 3000000 into x do i = i + 1; end",
              count=3000000),
    "5": Test("join, no session",
              "select mod(t1.v, 100), count(*) from t1 join t2 on t2.id = t1.id group by 1",
              setup="create table t1 (id integer not null primary key, v integer)^"
              "create table t2 (id integer not null primary key, v integer)^commit^"
              "execute block as declare i integer = 0; begin while (i < 1000000) do begin i = i + 1;"
              " insert into t1 values (:i, :i); insert into t2 values (:i, :i); end end^commit^",
              sessions=False, count=1000000,
              part="select mod(t1.v, 100), count(*) from t1 join t2 on t2.id = t1.id where t1.id <= {count} group by 1"),
    "6": Test("demo: catalogue", demo_block("catalogue"), setup=SHOP, count=26),
    "7": Test("demo: slow movers", demo_block("manager"), setup=SHOP, count=165,
              part=demo_block("manager").replace("286", "121 + {count}")),
}


@dataclasses.dataclass(frozen=True)
class Mode:
    preload: str = ""           # fbprof, floor, or nothing
    options: str | None = None  # PLUGIN_OPTIONS of the session; None: no session
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    stock: str = "stock"        # what it is compared with,
    floor: str = ""             # and what it can't be below
    passive: bool = False       # positions are read out of memory …
    outside: bool = False       # … by another process

    @property
    def profiles(self) -> bool:
        return self.options is not None

    @property
    def fills_tables(self) -> bool:
        """The stock profiler's, in the database."""
        return self.profiles and (not self.preload or "MODE=CLOCK" in self.environment.values())


BOTH, AFTER, CLOCK = "floor-before-after", "floor-after", "floor-clock"

# docs/benchmark.md says what each of them is.
MODES = {
    "off": Mode(),
    "preloaded": Mode("fbprof"),
    "stock": Mode(options=""),
    "stock-detailed": Mode(options="DETAILED_REQUESTS"),
    "stock-clock": Mode("fbprof", "", {"FBPROF_OPTIONS": "MODE=CLOCK"}, floor=CLOCK),
    "sampled": Mode("fbprof", "MODE=SAMPLED", floor=BOTH),
    "sampled-1000": Mode("fbprof", "MODE=SAMPLED, SAMPLING_INTERVAL=1000", floor=BOTH),
    "sampled-50": Mode("fbprof", "MODE=SAMPLED, SAMPLING_INTERVAL=50", floor=BOTH),
    "detailed": Mode("fbprof", "MODE=SAMPLED, DETAILED_REQUESTS", stock="stock-detailed", floor=BOTH),
    "measured": Mode("fbprof", "SAMPLING_INTERVAL=0", floor=BOTH),
    "coarse": Mode("fbprof", "MODE=COARSE", floor=AFTER),
    "coarse-detailed": Mode("fbprof", "MODE=COARSE, DETAILED_REQUESTS", stock="stock-detailed", floor=AFTER),
    "passive": Mode("fbprof", environment={"FBPROF_OPTIONS": "MODE=PASSIVE"}, passive=True),
    "passive-plans": Mode("fbprof", environment={"FBPROF_OPTIONS": "MODE=PASSIVE, PLAN_RATE=100"}, passive=True),
    "passive-outside": Mode(passive=True, outside=True),
    CLOCK: Mode("floor", ""),
    BOTH: Mode("floor", "", {"FLOOR_EVENTS": "3"}),
    AFTER: Mode("floor", "", {"FLOOR_EVENTS": "2"}),
}


# While isql's threads are still there: the shell's parent is isql. It comes first, then a recorder outside, if any.
THREADS = ("shell grep . $(for pid in $PPID $(cat recorder.pid 2>/dev/null); do"
           " echo /proc/$pid/task/*/comm /proc/$pid/task/*/schedstat; done)^\n")


@dataclasses.dataclass
class Piece:
    """One part: what the statement took if all of it took as long."""

    seconds: float
    reported: float | None


@dataclasses.dataclass
class Run:
    test: str
    mode: str
    run: int                              # from 1
    seconds: float                        # of the timed statement
    waited: float | None = None           # how much of the time isql could run it had to wait for a CPU
    sampler_seconds: float | None = None  # CPU time of the thread that samples
    interval_us: float | None = None      # how far apart its samples were, on average
    reported: float | None = None         # seconds that the profiler says the statement took
    parts: tuple[float, ...] = ()         # seconds of each part, if there are several
    reported_parts: tuple[float, ...] = ()

    def pieces(self) -> list[Piece]:
        if not self.parts:
            return [Piece(self.seconds, self.reported)]
        reported = self.reported_parts or (None,) * len(self.parts)
        return [Piece(seconds * len(self.parts), told if told is None else told * len(self.parts))
                for seconds, told in zip(self.parts, reported, strict=True)]


# What the stock profiler says each part took, in ns. It has no time of a request, so that of its lines, or of the
# record source that is the root of its plan, whichever is more.
STOCK_TIME = """
select cast(max(times.ns) as bigint) "reported" from (
  select statement_id, sum(total_elapsed_time) from plg$prof_psql_stats group by profile_id, statement_id, request_id
  union all
  select s.statement_id, s.open_total_elapsed_time + s.fetch_total_elapsed_time
  from plg$prof_record_source_stats s
  join plg$prof_record_sources r using (profile_id, statement_id, cursor_id, record_source_id)
  where r.parent_record_source_id is null) times (statement_id, ns)
join plg$prof_statements s on s.statement_id = times.statement_id
where s.routine_name is null and s.sql_text like '%/* part %'
group by times.statement_id order by times.statement_id^
"""


class Failed(Exception):
    """isql's script ended early, with what the engine said."""


LIBRARY = DIST / "lib/libfbprof.so"


def environment(work: Path, preload: Path | None = None, variables: dict[str, str] | None = None) -> dict[str, str]:
    """Ours less what would change the figures, with logs and what is learnt in `work`."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(("FBPROF_", "FLOOR_"))}
    found |= {"FIREBIRD": str(FIREBIRD), "LD_LIBRARY_PATH": str(FIREBIRD), "FBPROF_DIR": str(work / "log"),
              "FBPROF_CACHE": str(work / "cache")}
    found |= variables or {}
    if preload:
        found["LD_PRELOAD"] = str(preload)
    return found


@contextlib.contextmanager
def recording(pid: int, work: Path):
    """fbprof record, until that process ends."""
    while "libfbclient" not in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8"):
        time.sleep(0.01)
    recorder = subprocess.Popen([DIST / "bin/fbprof", "record", "--pid", str(pid)], encoding="utf-8",
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(work))
    (work / "recorder.pid").write_text(str(recorder.pid), encoding="utf-8")
    try:
        yield
    finally:
        output, _ = recorder.communicate()
        (work / "recorder.pid").unlink()
    if recorder.returncode:
        raise Failed(output.strip())


def run_isql(script: str, work: Path, preload: Path | None = None, variables: dict[str, str] | None = None,
             recorded: bool = False) -> str:
    """Runs a script and returns all that it prints."""
    isql = subprocess.Popen([FIREBIRD / "bin/isql-fb", "-q", "-b", "-ch", "utf8", "-i", "/dev/stdin"],
                            encoding="utf-8", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env=environment(work, preload, variables), cwd=work)
    with recording(isql.pid, work) if recorded else contextlib.nullcontext():
        output, _ = isql.communicate(script)
    if isql.returncode:
        raise Failed(failure(output))
    return output


def dump(*arguments: str | Path) -> str:
    return subprocess.run([DIST / "bin/fbprof-dump", *arguments], capture_output=True, encoding="utf-8",
                          check=True).stdout


def table(name: str, *logs: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(dump("--table", name, *logs))))


def build_floor(directory: Path) -> Path:
    library = directory / "libfloor.so"
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=gnu17", "-O2", "-shared", "-fPIC",
                    "-fvisibility=hidden", "-pthread", "-o", library, HERE / "floor.c", "-ldl"], check=True)
    return library


class Bench:
    """Runs in a scratch directory."""

    def __init__(self, work: Path, parts: int = 1):
        self.work = work
        self.parts = parts
        self.calibrated: set[str] = set()
        self.libraries = {"fbprof": LIBRARY, "floor": build_floor(work)}
        self.isql(f"create database '{work / 'empty.fdb'}';")

    def isql(self, script: str, mode: Mode = MODES["off"]) -> str:
        """Runs a script under a mode's library, or recorded from outside, and returns all that it prints."""
        return run_isql(script, self.work, self.libraries.get(mode.preload), mode.environment, mode.outside)

    def script(self, database: Path, statements: list[str], mode: Mode) -> str:
        start, finish = "", ""
        if mode.profiles:
            start = ("select rdb$profiler.start_session('bench', null, null, null, '" + mode.options
                     + "') from rdb$database^\n")
            finish = "execute procedure rdb$profiler.finish_session(true)^\n"
        elif mode.passive:
            start = f"shell sleep 1^\n{THREADS}"
        if mode.fills_tables:
            finish += "commit^\nset list on^" + STOCK_TIME
        timed = "".join(f"{statement}^\n" for statement in statements)
        return f"connect '{database}';\nset term ^;\n{start}set stats on^\n{timed}set stats off^\n{THREADS}{finish}"

    def refusal(self, mode: Mode) -> str:
        """What the engine says if such a session can't be started."""
        try:
            if mode.passive:
                self.calibrate("layouts")
            elif mode.preload == "fbprof":
                self.calibrate("costs", "--costs")
            self.isql(self.script(self.work / "empty.fdb", ["select 1 from rdb$database"], mode), mode)
        except Failed as failed:
            return str(failed)
        finally:
            shutil.rmtree(self.work / "log", ignore_errors=True)
        return ""

    def calibrate(self, what: str, *options: str) -> None:
        """What passive modes and sessions have to know of the engine and the machine, learnt once."""
        if what in self.calibrated:
            return
        done = subprocess.run([DIST / "bin/fbprof", "calibrate", "--quiet", *options,
                               FIREBIRD / "plugins/libEngine13.so"], encoding="utf-8", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=environment(self.work), check=False)
        self.calibrated.add(what)
        if done.returncode and what == "layouts":
            raise Failed(done.stdout.strip())
        if done.returncode:
            print(f"with the costs of another machine: {done.stdout.strip()}", file=sys.stderr)

    def prepare(self, name: str) -> None:
        database = self.work / f"template{name}.fdb"
        self.isql(f"create database '{database}' default character set utf8;\nset term ^;\n{TESTS[name].setup}")

    def measure(self, name: str, mode_name: str, number: int) -> Run:
        mode = MODES[mode_name]
        database = self.work / "run.fdb"
        shutil.copyfile(self.work / f"template{name}.fdb", database)
        output = self.isql(self.script(database, TESTS[name].timed(self.parts), mode), mode)
        interval, seconds, reported = None, elapsed_seconds(output), stock_seconds(output)
        if logs := list(self.work.glob("log/*.fbprof")):
            interval = mean_interval_us(dump("--info", *logs))
            reported = reported_seconds(table("statements", *logs), table("requests", *logs))
        database.unlink()
        shutil.rmtree(self.work / "log", ignore_errors=True)
        several = len(seconds) > 1
        return Run(name, mode_name, number, sum(seconds), waited(output), sampler_seconds(output), interval,
                   sum(reported) if reported else None, tuple(seconds) if several else (),
                   tuple(reported) if several and len(reported) == len(seconds) else ())


# What the programs print --------------------------------------------------------------------------

def failure(output: str) -> str:
    """The engine's sentence: the line after the one with the SQLSTATE."""
    found = re.search(r"^Statement failed, SQLSTATE = .*\n(.*)", output, re.MULTILINE)
    return (found.group(1) if found else output).strip()


def elapsed_seconds(output: str) -> list[float]:
    return [float(seconds) for seconds in re.findall(r"^Elapsed time\s*=\s*([0-9.]+)", output, re.MULTILINE)]


def stock_seconds(output: str) -> list[float]:
    return [int(ns) / 1e9 for ns in re.findall(r"^reported +(\d+)", output, re.MULTILINE)]


def reported_seconds(statements: list[dict[str, str]], requests: list[dict[str, str]]) -> list[float]:
    """Of each part, of those that are known."""
    numbers = {row["statement_id"]: int(part[1]) for row in statements
               if (part := re.search(r"/\* part (\d+) \*/", row["sql_text"] or "")) and not row["routine_name"]}
    times: dict[int, int] = {}
    for row in requests:
        if number := numbers.get(row["statement_id"]):
            times[number] = times.get(number, 0) + int(row["total_elapsed_time"] or 0)
    return [times[number] / 1e9 for number in sorted(times)]


def times_of(output: str, thread: str) -> list[int]:
    """Its schedstat, ns on a CPU and ns in the queue for one: since its start, or between two times that it was shown."""
    shown = [list(map(int, numbers)) for numbers in
             re.findall(rf"^{thread}/schedstat:(\d+) (\d+)", output, re.MULTILINE)]
    return shown[0] if len(shown) == 1 else [last - first for first, last in zip(shown[0], shown[-1])]


def sampler_seconds(output: str) -> float | None:
    """CPU time of fbprof's threads, or the floor's."""
    threads = set(re.findall(r"^(/proc/\d+/task/\d+)/comm:(?:fbprof|floor-)", output, re.MULTILINE))
    return sum(times_of(output, thread)[0] for thread in threads) / 1e9 if threads else None


def waited(output: str) -> float | None:
    """Of the main thread, which executes the statements of an embedded engine."""
    found = re.search(r"^(/proc/(\d+)/task/\2)/schedstat:", output, re.MULTILINE)
    if not found:
        return None
    run, queued = times_of(output, found.group(1))
    return queued / (run + queued) if run + queued else None


def mean_interval_us(info: str) -> float | None:
    """What the sampler's looks were apart, as `fbprof-dump --info` tells it."""
    found = re.search(r"^ *interval .* asked for, ([\d.]+) (ns|µs|ms|s) reached", info, re.MULTILINE)
    return float(found.group(1)) * {"ns": 1e-3, "µs": 1, "ms": 1e3, "s": 1e6}[found.group(2)] if found else None
