"""Counters, ids, names and texts are those of the stock plugin, row by row, for the whole corpus, in every mode.

Each workload runs in a process of its own under the stock Default_Profiler (with the clock of young_clock.c,
which makes its rows reproducible), and in another one, on a copy of the same database, under fbprof. Both run
ahead of the tests that compare them, in parallel.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import re
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

import firebird_env as env
import prof_tables
from workloads import WORKLOADS

STOCK, STOCK_AGAIN = 'stock', 'stock again'
SAMPLED, COARSE, MEASURED = MODES = 'SAMPLED', 'COARSE', 'MEASURED'

# In these modes the whole corpus is compared, in the others what is in PART_OF_CORPUS.
WHOLE_CORPUS_IN = os.environ.get('FBPROF_WHOLE_CORPUS_IN', 'SAMPLED COARSE').split()

PART_OF_CORPUS = [
    'long_block_of_many_lines', 'wide_columns_of_one_line', 'nested_procedures', 'selectable_procedure_to_its_end',
    'selectable_procedure_still_open_at_the_end', 'recursive_procedures', 'recursive_function',
    'sub_functions_and_sub_procedures', 'many_requests', 'row_triggers', 'execute_statement_nested',
    'execute_statement_of_a_block_with_its_own_error', 'autonomous_transactions', 'for_select', 'explicit_cursors',
    'explicit_cursor_left_open', 'scrollable_cursor_of_the_client', 'block_fetched_in_part', 'interleaved_cursors',
    'exception_caught_in_the_caller', 'exception_raised_again', 'exception_not_caught_in_nested_routines',
    'exception_between_fetches', 'error_in_an_expression_of_a_plan', 'merge_join', 'subqueries', 'union_of_many',
    'recursive_cte', 'inserts', 'prepared_statements_executed_many_times', 'several_sessions_in_turn',
    'cursor_open_across_the_session_bounds', 'pause_and_resume_inside_a_block',
    'session_started_and_finished_inside_a_block', 'flushes_inside_a_session', 'session_started_while_one_runs']

CONTROLS = ['nested_procedures', 'recursive_procedures', 'row_triggers', 'exception_caught_in_the_caller',
            'interleaved_cursors', 'subqueries', 'several_sessions_in_turn', 'flushes_inside_a_session']

workload_in_mode = pytest.mark.parametrize(
    'mode, workload', [(mode, name) for name in WORKLOADS for mode in MODES
                       if mode in WHOLE_CORPUS_IN or name in PART_OF_CORPUS])
detailed = pytest.mark.parametrize('detailed', [False, True], ids=['aggregated', 'detailed'])


@dataclasses.dataclass
class Outcome:
    directory: Path
    results: list
    profile_ids: list[int]
    attachment_id: int
    tables: prof_tables.Tables
    layout: dict | None
    firebird_log: str

    def canonical(self):
        return prof_tables.canonical(self.tables, profile_ids=self.profile_ids)


class Runs:
    """Runs of workloads, each done once, ahead of time and in parallel."""

    def __init__(self, directory: Path, base_database: Path, young_clock: Path):
        self.directory = directory
        self.base_database = base_database
        self.young_clock = young_clock
        self.pool = ThreadPoolExecutor(max(2, os.cpu_count() or 2))
        self.futures: dict[tuple, Future] = {}

    def submit(self, side: str, name: str, is_detailed: bool) -> Future:
        """`side` is STOCK or STOCK_AGAIN, or the mode of fbprof."""
        key = side, name, is_detailed
        if key not in self.futures:
            self.futures[key] = self.pool.submit(self._run, *key)
        return self.futures[key]

    def get(self, side: str, name: str, is_detailed: bool) -> Outcome:
        return self.submit(side, name, is_detailed).result()

    def _run(self, side: str, name: str, is_detailed: bool) -> Outcome:
        directory = self.directory / f'{name}-{"detailed" if is_detailed else "aggregated"}-{side.replace(" ", "-")}'
        directory.mkdir(parents=True)
        root = env.make_root(directory / 'root')
        database = shutil.copy(self.base_database, directory / 'test.fdb')
        log_dir = directory / 'logs'
        profiled = side in MODES
        # The mode comes from the environment, for PLUGIN_OPTIONS are the workload's.
        value = env.run_program('run_workload.py', database, name, int(is_detailed), int(not profiled), root=root,
                                preload=env.LIBFBPROF if profiled else self.young_clock, log_dir=log_dir,
                                FBPROF_OPTIONS=f'MODE={side}' if profiled else '')
        os.remove(database)
        if profiled:
            tables = prof_tables.tables_of_directory(env.dump(env.logs(log_dir), directory / 'csv'))
        else:
            tables = value['tables']
        return Outcome(directory, value['results'], value['profile_ids'], value['attachment_id'], tables,
                       value.get('layout'), env.firebird_log(root))


@pytest.fixture(scope='module')
def young_clock(session_scratch) -> Path:
    library = session_scratch / 'libyoung_clock.so'
    compiler = os.environ.get('CC', 'cc').split()
    env.run([*compiler, '-O2', '-Wall', '-Wextra', '-shared', '-fPIC', '-o', library, env.HERE / 'young_clock.c'])
    return library


@pytest.fixture(scope='module')
def runs(request, session_scratch, base_database, young_clock):
    """What the selected tests will ask for is started here, in their order."""
    runs = Runs(session_scratch / 'exact', base_database, young_clock)
    for item in request.session.items:
        params = item.callspec.params if hasattr(item, 'callspec') else {}
        if item.module is request.module and 'workload' in params:
            control = item.originalname == test_stock_equals_stock.__name__
            runs.submit(STOCK, params['workload'], params['detailed'])
            if control or env.LIBFBPROF.exists():
                runs.submit(STOCK_AGAIN if control else params['mode'], params['workload'], params['detailed'])
    yield runs
    runs.pool.shutdown(cancel_futures=True)


def compare(left: Outcome, right: Outcome, left_name: str, right_name: str) -> str:
    differences = prof_tables.compare(left.canonical(), right.canonical())
    return prof_tables.explain(differences, left_name, right_name) if differences else ''


def check_stock(outcome: Outcome) -> None:
    """What the stock plugin could not write would make the comparison meaningless."""
    assert 'Profiler' not in outcome.firebird_log, f'stock failed:\n{outcome.firebird_log}'
    assert outcome.layout == prof_tables.COLUMNS
    assert outcome.tables['sessions'], 'stock recorded no session'


def moment(text: str) -> datetime:
    """ISO 8601 with a zone."""
    value = datetime.fromisoformat(text)
    assert value.tzinfo is not None, f'{text} has no zone'
    return value


def number(row: dict, column: str) -> int | None:
    return None if row[column] is None else int(row[column])


def check_row(table: str, row: dict, mode: str, counter: str, prefix: str = '') -> None:
    """Times of one kind of event: those that the mode knows, and no other."""
    what = f'{mode}, {table}, {prefix}: {row}'
    total = number(row, f'{prefix}total_elapsed_time')
    least, most = number(row, f'{prefix}min_elapsed_time'), number(row, f'{prefix}max_elapsed_time')
    raw, cpu, wait = (number(row, f'{prefix}{column}') for column in ('raw_total_time', 'cpu_time', 'wait_time'))
    assert total >= number(row, f'{prefix}self_time') >= 0, what
    if mode == MEASURED:
        assert (least is None) == (most is None) == (not row[counter]), what
        if row[counter]:
            assert 0 <= least <= total / row[counter] <= most <= total, what
        assert raw is None and number(row, f'{prefix}samples') is None, what
    else:
        assert least is None and most is None, f'extremes are not known: {what}'
        assert raw >= total, what
        assert (number(row, f'{prefix}samples') is None) == (mode == COARSE), what
    assert (cpu is None) == (wait is None), what
    if cpu is not None:
        assert cpu >= 0 and wait == min(total, max(0, (total if raw is None else raw) - cpu)), what


def check_times(tables: prof_tables.Tables, mode: str) -> None:
    for row in tables['psql_stats']:
        check_row('psql_stats', row, mode, 'counter')
    for row in tables['record_source_stats']:
        for prefix in 'open_', 'fetch_':
            check_row('record_source_stats', row, mode, f'{prefix}counter', prefix)
    for row in tables['requests']:
        assert row['total_elapsed_time'] >= number(row, 'self_time') >= 0, f'{mode}, requests: {row}'
        assert (row['samples'] is None) == (mode != SAMPLED), f'{mode}, requests: {row}'
    for row in tables['sessions']:
        assert row['mode'] == mode.lower(), row
        assert (int(row['sampling_interval']) == 0) == (mode == MEASURED), row
    for table in ('sessions', 'requests'):
        for row in tables[table]:
            start = moment(row['start_timestamp'])
            assert row['finish_timestamp'] is None or moment(row['finish_timestamp']) >= start, f'{table}: {row}'


@detailed
@workload_in_mode
def test_same_as_stock(runs, profiler, mode, workload, detailed):
    stock, ours = runs.get(STOCK, workload, detailed), runs.get(mode, workload, detailed)
    check_stock(stock)
    assert ours.results == stock.results, 'a query gave another result'
    assert 'rofiler' not in ours.firebird_log, ours.firebird_log
    message = compare(stock, ours, STOCK, mode)
    if message:
        pytest.fail(f'{workload}: {message}\nkept in {ours.directory}', pytrace=False)
    check_times(ours.tables, mode)


@detailed
@pytest.mark.parametrize('workload', CONTROLS)
def test_stock_equals_stock(runs, workload, detailed):
    """The control: two processes of the stock plugin compare equal."""
    first, second = runs.get(STOCK, workload, detailed), runs.get(STOCK_AGAIN, workload, detailed)
    check_stock(first)
    check_stock(second)
    assert first.results == second.results
    message = compare(first, second, STOCK, STOCK_AGAIN)
    if message:
        pytest.fail(message, pytrace=False)


TAMPERINGS = {
    'a PSQL counter': lambda tables: tables['psql_stats'][3].update(counter=tables['psql_stats'][3]['counter'] + 1),
    'a fetch counter': lambda tables: tables['record_source_stats'][-1].update(fetch_counter=0),
    'an open counter': lambda tables: tables['record_source_stats'][0].update(open_counter=77),
    'a line': lambda tables: tables['psql_stats'][0].update(line_num=99),
    'a lost row': lambda tables: tables['psql_stats'].pop(),
    'a row twice': lambda tables: tables['psql_stats'].append(tables['psql_stats'][0]),
    'a routine': lambda tables: next(row for row in tables['statements'] if row['routine_name'])
                                .update(routine_name='X'),
    'a text': lambda tables: next(row for row in tables['statements'] if row['sql_text']).update(sql_text='select'),
    'an access path': lambda tables: tables['record_sources'][0].update(access_path='-> Table'),
    'a parent': lambda tables: tables['record_sources'][-1].update(parent_record_source_id=None),
    'a caller': lambda tables: next(row for row in tables['requests'] if row['caller_request_id'])
                               .update(caller_request_id=None),
    'a lost request': lambda tables: tables['requests'].pop(),
    'a session unfinished': lambda tables: tables['sessions'][0].update(finish_timestamp=None),
    'a description': lambda tables: tables['sessions'][0].update(description=None),
}


@pytest.mark.parametrize('tampering', TAMPERINGS)
def test_the_comparison_sees(runs, tampering):
    stock = runs.get(STOCK, 'recursive_procedures', True)
    tampered = dataclasses.replace(stock, tables=copy.deepcopy(stock.tables))
    assert compare(stock, tampered, STOCK, 'tampered') == ''
    TAMPERINGS[tampering](tampered.tables)
    message = compare(stock, tampered, STOCK, 'tampered')
    assert message.count('\n  - ') + message.count('\n  + ') >= 1, 'no differing row is shown'


@pytest.mark.parametrize('name', ['nested_procedures', 'utf8_quotes_and_newlines'])
def test_dump_of_one_table_is_the_same_csv(runs, profiler, name):
    """`fbprof-dump --table NAME LOG` prints what `-o` writes into NAME.csv."""
    ours = runs.get(SAMPLED, name, True)
    log, = env.logs(ours.directory / 'logs')
    for table in prof_tables.TABLES:
        printed = env.run([env.FBPROF_DUMP, '--table', table, log]).stdout
        rows = prof_tables.table_of_csv(table, printed)
        assert rows == ours.tables[table]


# The reader of CSV itself ------------------------------------------------------------------------

def test_csv_reader_tells_null_from_empty():
    assert prof_tables.parse_csv('a,b,c\r\n,"",x\r\n') == [['a', 'b', 'c'], [None, '', 'x']]


def test_csv_reader_reads_quotes_and_newlines():
    assert prof_tables.parse_csv('"a ""b""\n,c",d\n"\r\n",\n') == [['a "b"\n,c', 'd'], ['\r\n', None]]


@pytest.mark.parametrize('text', ['a"b\n', '"a\n', '"a"b\n', 'a,b', 'a\rb\n'])
def test_csv_reader_refuses(text):
    with pytest.raises(prof_tables.CsvError):
        prof_tables.parse_csv(text)
