"""The benchmark: what it computes and draws, and that its floor gets the events that it is the floor of."""

from __future__ import annotations

import io
import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

import firebird_env as env

sys.path.insert(0, str(env.REPOSITORY / 'tests/bench'))

import bench  # noqa: E402
import chart  # noqa: E402
import figures  # noqa: E402
import protocol  # noqa: E402


def runs_of(test: str, mode: str, *seconds: float, **more) -> list[protocol.Run]:
    return [protocol.Run(test, mode, number, time, **more) for number, time in enumerate(seconds, 1)]


RUNS = [*runs_of('1', 'off', 1.0, 1.1, 0.9), *runs_of('1', 'stock', 3.0, 2.9, 3.5, waited=0.25),
        *runs_of('1', 'sampled', 1.5, 1.4, 2.0, sampler_seconds=0.15, interval_us=104.6),
        *runs_of('1', 'floor-before-after', 1.25, 1.25, 1.25, sampler_seconds=0.1),
        *runs_of('5', 'off', 2.0), *runs_of('5', 'preloaded', 2.02)]


@pytest.fixture
def example() -> figures.Figures:
    return figures.Figures(RUNS)


def test_ratios_are_of_medians(example):
    ratio = example.ratio('1', 'sampled')
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((1.45, 1.5, 1.75))
    assert example.over('1', 'sampled', 'stock') == pytest.approx(0.5)
    assert example.over('1', 'sampled', 'floor-before-after') == pytest.approx(1.2)
    assert example.cut('1', 'sampled') == pytest.approx(0.75)
    assert example.sampler_share('1', 'sampled') == pytest.approx(0.1)
    assert example.waited().median == 0.25


def test_what_was_not_run_has_no_figure(example):
    assert example.ratio('1', 'detailed') is None
    assert example.over('5', 'preloaded', 'stock') is None
    assert example.cut('1', 'detailed') is None
    assert figures.Figures(runs_of('1', 'sampled', 1.0)).ratio('1', 'sampled') is None
    assert not figures.tables(figures.Figures([]))


def test_nothing_is_cut_of_no_overhead():
    fast = figures.Figures([*runs_of('1', 'off', 1.0), *runs_of('1', 'stock', 0.9), *runs_of('1', 'sampled', 1.0)])
    assert fast.cut('1', 'sampled') is None


def test_tables(example):
    rows = [table.rows for table in figures.tables(example)]
    assert rows[0] == [['mode', 'PSQL loop', 'join, no session'],
                       ['off', '1.00 (0.95–1.05) s', '2.00 s'],
                       ['preloaded', '–', '1.01'],
                       ['stock', '3.00 (2.95–3.25)', '–'],
                       ['sampled', '1.50 (1.45–1.75)', '–'],
                       ['floor-before-after', '1.25', '–']]
    assert rows[1:] == [[['mode', 'PSQL loop'], ['sampled', '1.20']],
                        [['mode', 'PSQL loop'], ['sampled', '0.50']],
                        [['mode', 'PSQL loop'], ['sampled', '75%']],
                        [['mode', 'PSQL loop'], ['sampled', '10%, 105 µs'], ['floor-before-after', '8%']]]


def parts_of(mode: str, *parts: float, reported: tuple[float, ...] = ()) -> protocol.Run:
    return protocol.Run('1', mode, 1, sum(parts), parts=parts, reported=sum(reported) or None, reported_parts=reported)


def test_undisturbed_is_the_fastest_tenth_of_all_parts():
    off = parts_of('off', *[0.1, 0.101, 0.099, *[0.2] * 27])
    sampled = parts_of('sampled', 0.3, 0.15, 0.4, reported=(0.2, 0.11, 0.3))
    calm, all_of = figures.Calm([off, sampled]), figures.Figures([off, sampled])
    assert calm.seconds('1', 'off').median == pytest.approx(3.0)
    assert calm.ratio('1', 'sampled').median == pytest.approx(0.15)
    assert calm.truth('1', 'sampled').median == pytest.approx(0.11)
    assert all_of.seconds('1', 'off').median == pytest.approx(5.7)
    assert all_of.truth('1', 'sampled').median == pytest.approx(0.61 / 5.7)
    assert calm.truth('1', 'off') is None and calm.seconds('1', 'stock') is None


def test_tables_of_the_undisturbed():
    found = figures.Calm([*runs_of('1', 'off', 1.0, 0.8, 1.2), *runs_of('1', 'sampled', 1.6, 1.2, 3.0)])
    table = figures.tables(found)[0]
    assert table.title.endswith(', undisturbed')
    assert table.rows[1:] == [['off', '0.80 s'], ['sampled', '1.50']]


@pytest.mark.parametrize('name', protocol.TESTS)
def test_parts_do_the_work_together(name):
    test = protocol.TESTS[name]
    whole, = test.timed(1)
    assert whole.replace(' /* part 1 */', '', 1) == test.statement
    parts = test.timed(5)
    assert len(set(parts)) == 5 and all(f'/* part {number} */' in part for number, part in enumerate(parts, 1))
    assert str(test.count // 5) in parts[0] and '{' not in parts[0]


def test_a_table_as_text_and_markdown():
    table = figures.Table('Title', [['mode', 'a|b'], ['off', '1.00']])
    assert table.text() == 'Title\nmode   a|b\noff   1.00\n'
    assert table.markdown() == '**Title**\n\n| mode | a\\|b |\n| --- | ---: |\n| off | 1.00 |\n'


def test_runs_survive_csv():
    runs = [*RUNS, parts_of('stock', 0.5, 0.25, reported=(0.1, 0.2))]
    file = io.StringIO(newline='')
    figures.csv_header(file)
    for run in runs:
        figures.csv_row(file, run)
    file.seek(0)
    assert figures.read_csv(file) == runs


@pytest.mark.parametrize('runs', [RUNS, RUNS[:3], []], ids=['all', 'off alone', 'none'])
def test_the_chart_is_well_formed(runs, monkeypatch):
    monkeypatch.setitem(protocol.TESTS, '1', protocol.Test('a <b> & "c"', ''))
    picture = ElementTree.fromstring(chart.draw(figures.Figures(runs)))
    svg = '{http://www.w3.org/2000/svg}'
    words = [text.text for text in picture.iter(f'{svg}text')]
    assert ('a <b> & "c"' in words) == bool(runs)
    assert ('sampled' in words) == (len(runs) > 3)
    width, height = float(picture.get('width')), float(picture.get('height'))
    for place in picture.iter(f'{svg}circle'):
        assert 0 < float(place.get('cx')) < width and 0 < float(place.get('cy')) < height


def test_figures_replace_those_of_before():
    page = f'head\n{bench.BEGIN}\nold\n{bench.END}\ntail\n'
    assert bench.replace_figures(page, 'new') == f'head\n{bench.BEGIN}\nnew\n{bench.END}\ntail\n'
    bench.replace_figures((env.REPOSITORY / 'docs/benchmark.md').read_text(encoding='utf-8'), '')
    with pytest.raises(ValueError):
        bench.replace_figures('head\n', 'new')


def test_every_mode_is_compared_with_modes_that_exist():
    described = (env.REPOSITORY / 'docs/benchmark.md').read_text(encoding='utf-8')
    for name, mode in protocol.MODES.items():
        assert mode.stock in protocol.MODES and mode.floor in ('', *protocol.MODES)
        assert f'`{name}`' in described


def test_what_isql_and_the_tools_print():
    assert protocol.failure('Statement failed, SQLSTATE = HY000\nfbprof: no\n-At function\n') == 'fbprof: no'
    assert protocol.failure(' isql: not found\n') == 'isql: not found'
    threads = ('/proc/1/task/1/comm:isql-fb\n/proc/1/task/12/comm:fbprof-sampler\n'
               '/proc/1/task/1/schedstat:9000000000 3000000000 1\n/proc/1/task/12/schedstat:1500000000 2 3\n')
    assert protocol.sampler_seconds(threads) == 1.5
    assert protocol.waited(threads) == 0.25
    later = threads.replace('1500000000', '1900000000').replace('9000000000 3000000000', '9300000000 3100000000')
    assert protocol.sampler_seconds(threads + later) == 0.4
    assert protocol.waited(threads + later) == 0.25
    assert protocol.sampler_seconds('') is None and protocol.waited('') is None
    info = '  interval     100.0 µs asked for, 0.3 ms reached: 1.0 s in 3333 wake-ups, 3000 of them late to spare the CPU\n'
    assert protocol.mean_interval_us(info) == pytest.approx(300)
    assert protocol.mean_interval_us('  mode         measured\n') is None
    assert protocol.elapsed_seconds('Elapsed time = 0.061 sec\nElapsed time= 1.5 sec\n') == [0.061, 1.5]
    assert protocol.stock_seconds('reported   1500000000\nreported 2\n') == [1.5, 2e-9]


def test_what_a_log_says_of_parts():
    statements = [{'statement_id': number, 'sql_text': text, 'routine_name': routine} for number, text, routine in (
        ('1', 'select /* part 2 */ 1', ''), ('2', 'select /* part 1 */ 1', ''), ('3', 'select 1', ''), ('4', '', 'P'))]
    requests = [{'statement_id': number, 'total_elapsed_time': time} for number, time in (
        ('1', '1000000000'), ('1', '500000000'), ('2', '250000000'), ('3', '9'), ('4', '9'))]
    assert protocol.reported_seconds(statements, requests) == [0.25, 1.5]
    assert not protocol.reported_seconds([], [])


# With a real engine -------------------------------------------------------------------------------

CALLS = 1000


@pytest.mark.parametrize('events', ['floor-before-after', 'floor-after'])
def test_the_floor_gets_its_events(events, scratch, root, database):
    """All of them, and the ends of all requests, which the engine drops if its clock doesn't move."""
    script = f'''connect '{database}';
        set term ^;
        create procedure p_nop as begin end^
        commit^
        select rdb$profiler.start_session('floor') from rdb$database^
        execute block as declare i integer = 0; begin while (i < {CALLS}) do begin
        execute procedure p_nop; i = i + 1; end end^
        execute procedure rdb$profiler.finish_session(false)^
    '''
    environment = env.environment(root, preload=protocol.build_floor(scratch), FLOOR_COUNT='1',
                                  **protocol.MODES[events].environment)
    said = env.run([root / 'bin/isql-fb', '-q', '-bail'], environment, input=script).stderr
    found = re.search(r'^floor: before (\d+), after (\d+), finished (\d+), ticks (\d+)$', said, re.MULTILINE)
    before, after, finished, ticks = map(int, found.groups())
    assert 3 * CALLS <= after < 3 * CALLS + 10
    assert before == (after if events == 'floor-before-after' else 0)
    assert CALLS < finished < CALLS + 10
    assert ticks > 0


@pytest.fixture
def small(monkeypatch, scratch, profiler) -> protocol.Bench:
    """A bench with a test that takes next to no time."""
    monkeypatch.setitem(protocol.TESTS, '1', protocol.Test(
        'short', 'execute block as declare i integer = 0; begin while (i < 1000000) do i = i + 1; end', count=1000000))
    ours = protocol.Bench(scratch)
    ours.calibrated.add('costs')  # takes longer than all else, and is for true times
    ours.prepare('1')
    return ours


def test_a_run_tells_all_that_is_asked(small):
    off, sampled, floor = (small.measure('1', mode, 1) for mode in ('off', 'sampled', 'floor-after'))
    assert 0 <= off.waited < 1
    assert off.seconds > 0 and off.sampler_seconds is None and off.interval_us is None
    assert sampled.seconds > 0 and sampled.sampler_seconds > 0 and sampled.interval_us > 50
    assert floor.seconds > 0 and floor.sampler_seconds > 0 and floor.interval_us is None


@pytest.mark.parametrize('mode', ['stock', 'sampled', 'passive-outside'])
def test_a_run_in_parts(small, mode):
    assert bench.available(small, [mode], named=True) == [mode]
    small.parts = 2
    run = small.measure('1', mode, 1)
    assert len(run.parts) == len(run.reported_parts) == 2
    assert run.seconds == pytest.approx(sum(run.parts)) and run.reported == pytest.approx(sum(run.reported_parts))
    assert all(piece.reported > 0 for piece in run.pieces())


@pytest.mark.parametrize('mode', ['passive', 'passive-plans', 'passive-outside'])
def test_a_passive_run(small, mode):
    assert bench.available(small, [mode], named=True) == [mode]
    run = small.measure('1', mode, 1)
    assert run.seconds > 0 and 0 <= run.waited < 1 and run.sampler_seconds > 0 and run.interval_us > 900


def test_a_mode_that_the_library_lacks(small, monkeypatch, capsys):
    monkeypatch.setitem(protocol.MODES, 'odd', protocol.Mode('fbprof', 'MODE=ODD'))
    assert bench.available(small, ['off', 'sampled', 'odd'], named=False) == ['off', 'sampled']
    assert 'odd is not available: fbprof: option MODE=ODD' in capsys.readouterr().err
    with pytest.raises(protocol.Failed, match='mode odd: fbprof: option MODE=ODD'):
        bench.available(small, ['odd'], named=True)
