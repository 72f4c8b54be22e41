"""The benchmark: what profiling costs, as ratios to the same statement unprofiled.

Each run is a fresh isql process on a fresh copy of a database; the modes alternate, so that whatever else the
machine does hits all of them. A session is started before the timed statement and finished after it; neither is
timed. The time is isql's own ("set stats on"). Absolute times mean nothing on a shared machine: look at the ratios.
"""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[2]
FIREBIRD = pathlib.Path(os.environ.get("FBPROF_FIREBIRD", REPO / "build/firebird/5.0.4"))
LIBRARY = pathlib.Path(os.environ.get("FBPROF_DIST", REPO / "build/dist")) / "lib/libfbprof.so"

# name -> (title, setup, timed statement)
TESTS = {
    "1": ("PSQL loop", "", "execute block as declare i integer = 0; begin while (i < 10000000) do i = i + 1; end"),
    "2": ("SELECT", "", "select count(*) from (select 1 x from rdb$types a cross join rdb$types b"
          " cross join rdb$types c rows 3000000)"),
    "3": ("procedure calls", "create procedure p_nop as begin end^",
          "execute block as declare i integer = 0; begin while (i < 1000000) do begin"
          " execute procedure p_nop; i = i + 1; end end"),
    "4": ("PSQL cursor", "", "execute block as declare i integer = 0; declare x integer; begin for select 1"
          " from rdb$types a cross join rdb$types b cross join rdb$types c rows 3000000 into x do i = i + 1; end"),
    "5": ("join, no session", "create table t1 (id integer not null primary key, v integer)^"
          "create table t2 (id integer not null primary key, v integer)^commit^"
          "execute block as declare i integer = 0; begin while (i < 1000000) do begin i = i + 1;"
          " insert into t1 values (:i, :i); insert into t2 values (:i, :i); end end^commit^",
          "select mod(t1.v, 100), count(*) from t1 join t2 on t2.id = t1.id group by 1"),
}

# name -> (preloaded, options of the session or None for no session)
MODES = {
    "off": (False, None),
    "preloaded": (True, None),
    "stock": (False, ""),
    "stock-detailed": (False, "DETAILED_REQUESTS"),
    "sampled": (True, ""),
    "sampled-1000": (True, "SAMPLING_INTERVAL=1000"),
    "sampled-50": (True, "SAMPLING_INTERVAL=50"),
    "detailed": (True, "DETAILED_REQUESTS"),
}


def isql(work, script, preloaded=False):
    """Runs a script and returns what isql says; a failing statement ends the benchmark."""
    environment = dict(os.environ, FIREBIRD=str(FIREBIRD), LD_LIBRARY_PATH=str(FIREBIRD), FBPROF_DIR=str(work / "log"))
    environment.pop("FBPROF_OPTIONS", None)
    if preloaded:
        environment["LD_PRELOAD"] = str(LIBRARY)
    result = subprocess.run([FIREBIRD / "bin/isql-fb", "-q", "-b", "-i", "/dev/stdin"], input=script, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd=work, check=False)
    if result.returncode:
        sys.exit(f"bench: isql failed: {result.stdout.strip()}")
    return result.stdout


def template(work, name):
    path = work / f"template{name}.fdb"
    isql(work, f"create database '{path}';\nset term ^;\n{TESTS[name][1]}")
    return path


def measure(work, name, mode):
    """Seconds that the timed statement of a test took."""
    preloaded, options = MODES[mode]
    database = work / "run.fdb"
    shutil.copyfile(work / f"template{name}.fdb", database)
    script = f"connect '{database}';\nset term ^;\n"
    if options is not None:
        script += f"select rdb$profiler.start_session('bench', null, null, null, '{options}') from rdb$database^\n"
    script += f"set stats on^\n{TESTS[name][2]}^\nset stats off^\n"
    if options is not None:
        script += "execute procedure rdb$profiler.finish_session(false)^\n"
    output = isql(work, script, preloaded)
    database.unlink()
    shutil.rmtree(work / "log", ignore_errors=True)
    return float(re.search(r"Elapsed time\s*=\s*([0-9.]+)", output).group(1))


def progress(text):
    if sys.stderr.isatty():
        print(f"\r{text:<70}\r", end="", file=sys.stderr, flush=True)


def show(times, tests, modes):
    print(f"{'test':<18}{'off':>9}" + "".join(f"{mode:>21}" for mode in modes if mode != "off"))
    for name in tests:
        off = statistics.median(times[name]["off"])
        row = f"{TESTS[name][0]:<18}{off:>7.3f} s"
        for mode in modes:
            if mode == "off":
                continue
            if not times[name][mode]:
                row += f"{'-':>21}"
                continue
            ratios = sorted(time / off for time in times[name][mode])
            row += f"{f'{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})':>21}"
        print(row)
    print("\nMedian of the time with each mode / median of off (least-greatest), from one alternating run.")


def words(allowed):
    def parse(text):
        chosen = text.split(",")
        for word in chosen:
            if word not in allowed:
                raise argparse.ArgumentTypeError(f"'{word}' is none of {', '.join(allowed)}")
        return chosen
    return parse


def main():
    parser = argparse.ArgumentParser(prog="run bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="runs of each test in each mode (default %(default)s)")
    parser.add_argument("--tests", type=words(TESTS), default=list(TESTS), help="comma-separated: 1,2,3,4,5")
    parser.add_argument("--modes", type=words(MODES), default=list(MODES), help=f"comma-separated: {','.join(MODES)}")
    arguments = parser.parse_args()
    modes = arguments.modes if "off" in arguments.modes else ["off", *arguments.modes]
    times = {name: {mode: [] for mode in modes} for name in arguments.tests}

    with tempfile.TemporaryDirectory(prefix="fbprof-bench-") as directory:
        work = pathlib.Path(directory)
        for name in arguments.tests:
            template(work, name)
        for run in range(arguments.runs):
            for name in arguments.tests:
                for mode in modes:
                    # Test 5 shows what the preload costs where nobody profiles.
                    if name == "5" and MODES[mode][1] is not None:
                        continue
                    progress(f"run {run + 1} of {arguments.runs}: {TESTS[name][0]}, {mode}")
                    times[name][mode].append(measure(work, name, mode))
        progress("")
    show(times, arguments.tests, modes)


if __name__ == "__main__":
    main()
