"""The profiler's tables in one form, from PLG$PROF_* or from fbprof-dump's CSV, and their comparison.

Ids differ from process to process, since the stock plugin runs statements of its own. Each id is
therefore replaced by a name made of what it stands for (type, name and text of a statement) and of its
rank, in the order of ids, among those that look alike. The engine hands out ids in the order of events,
which is the same in both processes, so equal profiles have equal names.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
from collections import Counter, defaultdict
from pathlib import Path

# The snapshot tables of Firebird 5.0, their columns in order.
COLUMNS = {
    'sessions': 'profile_id attachment_id user_name description start_timestamp finish_timestamp',
    'statements': 'profile_id statement_id parent_statement_id statement_type package_name routine_name sql_text',
    'cursors': 'profile_id statement_id cursor_id name line_num column_num',
    'record_sources': 'profile_id statement_id cursor_id record_source_id parent_record_source_id level access_path',
    'requests': 'profile_id statement_id request_id caller_statement_id caller_request_id start_timestamp'
                ' finish_timestamp total_elapsed_time',
    'psql_stats': 'profile_id statement_id request_id line_num column_num counter min_elapsed_time'
                  ' max_elapsed_time total_elapsed_time',
    'record_source_stats': 'profile_id statement_id request_id cursor_id record_source_id open_counter'
                           ' open_min_elapsed_time open_max_elapsed_time open_total_elapsed_time fetch_counter'
                           ' fetch_min_elapsed_time fetch_max_elapsed_time fetch_total_elapsed_time',
}
COLUMNS = {table: columns.split() for table, columns in COLUMNS.items()}
TABLES = list(COLUMNS)

TEXT_COLUMNS = {'user_name', 'description', 'start_timestamp', 'finish_timestamp', 'statement_type',
                'package_name', 'routine_name', 'sql_text', 'name', 'access_path'}

# Left out of a comparison: times. That a moment is known at all is compared.
TIMES = {column for columns in COLUMNS.values() for column in columns if column.endswith('_time')}
MOMENTS = {'start_timestamp', 'finish_timestamp'}

Tables = dict[str, list[dict]]

csv.field_size_limit(1 << 30)


# CSV ---------------------------------------------------------------------------------------------

class CsvError(ValueError):
    pass


def parse_csv(text: str) -> list[list[str | None]]:
    """Strict RFC 4180, except that lines may end in LF; NULL is an empty unquoted field."""
    rows, row = [], []
    at, size = 0, len(text)
    while at < size:
        if text[at] == '"':
            value = ''
            at += 1
            while True:
                end = text.find('"', at)
                if end < 0:
                    raise CsvError('a quoted field is never closed')
                value += text[at:end]
                at = end + 1
                if at < size and text[at] == '"':
                    value += '"'
                    at += 1
                else:
                    break
            if at < size and text[at] not in ',\r\n':
                raise CsvError(f'{text[at]!r} follows a closing quote')
        else:
            end = at
            while end < size and text[end] not in ',\r\n':
                if text[end] == '"':
                    raise CsvError('a quote inside an unquoted field')
                end += 1
            value = text[at:end] or None
            at = end
        row.append(value)
        if at >= size:
            raise CsvError('the last line has no end')
        if text[at] == ',':
            at += 1
            if at >= size:
                raise CsvError('the last line has no end')
            continue
        if text.startswith('\r\n', at):
            at += 2
        elif text[at] == '\n':
            at += 1
        else:
            raise CsvError('a bare carriage return outside quotes')
        rows.append(row)
        row = []
    return rows


def table_of_csv(table: str, text: str) -> list[dict]:
    """Rows of one CSV table; numbers as int, times of added columns as they stand."""
    header, *lines = parse_csv(text)
    expected = COLUMNS[table]
    assert header[:len(expected)] == expected, f'{table}.csv has the columns {header}'
    assert len(set(header)) == len(header), f'{table}.csv names a column twice: {header}'
    rows = []
    for line in lines:
        assert len(line) == len(header), f'{table}.csv: a line of {len(line)} fields: {line}'
        row = dict(zip(header, line))
        for column in expected:
            if column not in TEXT_COLUMNS and row[column] is not None:
                row[column] = int(row[column])
        rows.append(row)
    return rows


def tables_of_directory(directory: Path) -> Tables:
    tables = {}
    for table in TABLES:
        with open(directory / f'{table}.csv', encoding='utf-8', newline='') as file:
            text = file.read()
        tables[table] = table_of_csv(table, text)
        # Any RFC 4180 reader must see the same rows, NULL aside.
        plain = list(csv.reader(io.StringIO(text, newline='')))
        assert len(plain) == len(tables[table]) + 1, f'{table}.csv reads differently with csv.reader'
    return tables


# Canonical form ----------------------------------------------------------------------------------

def _statement_label(row: dict) -> str:
    name = '.'.join(part for part in (row['package_name'], row['routine_name']) if part)
    text = row['sql_text'] or ''
    if len(text) > 60:
        text = text[:45] + '…' + hashlib.sha1(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]
    return ' '.join(part for part in (row['statement_type'], name, text) if part)


def _ranked(labels: dict) -> dict:
    """key → 'label' or 'label #n', n being the rank of the key among those with the label."""
    alike = defaultdict(list)
    for key in sorted(labels):
        alike[labels[key]].append(key)
    return {key: label if len(keys) == 1 else f'{label} #{number}'
            for label, keys in alike.items() for number, key in enumerate(keys, 1)}


def canonical(tables: Tables, *, profile_ids: list[int] = ()) -> dict[str, Counter]:
    """Multisets of comparable rows. profile_ids: what START_SESSION returned, in order."""
    profiles = {number: f'P{rank}' for rank, number in enumerate(profile_ids, 1)}

    def profile(number):
        return profiles.get(number, f'unknown profile {number}')

    statements = _ranked({(row['profile_id'], row['statement_id']): _statement_label(row)
                          for row in tables['statements']})

    def statement(profile_id, number):
        return None if number is None else statements.get((profile_id, number), f'undefined statement {number}')

    of_statement = defaultdict(list)
    for row in tables['requests']:
        of_statement[row['profile_id'], row['statement_id']].append(row['request_id'])
    requests = {(*key, number): f'request {rank}'
                for key, numbers in of_statement.items() for rank, number in enumerate(sorted(numbers), 1)}

    def request(profile_id, statement_id, number):
        if number is None or number == 0:
            return number
        return requests.get((profile_id, statement_id, number), f'undefined request {number}')

    result = {}
    for table in TABLES:
        rows = Counter()
        for row in tables[table]:
            at = row['profile_id']
            known = []
            for column in COLUMNS[table]:
                value = row[column]
                if column in TIMES:
                    continue
                if column in MOMENTS:
                    value = None if value is None else 'known'
                elif column == 'profile_id':
                    value = profile(value)
                elif column in ('statement_id', 'parent_statement_id', 'caller_statement_id'):
                    value = statement(at, value)
                elif column == 'request_id':
                    value = request(at, row['statement_id'], value)
                elif column == 'caller_request_id':
                    value = request(at, row['caller_statement_id'], value)
                elif column in TEXT_COLUMNS and table != 'statements' and value is not None:
                    value = value.rstrip(' ')
                known.append((column, value))
            rows[tuple(known)] += 1
        result[table] = rows
    return result


# The profiler's own commands -----------------------------------------------------------------------


# Comparison --------------------------------------------------------------------------------------

@dataclasses.dataclass
class Difference:
    table: str
    only_left: list[tuple]
    only_right: list[tuple]


def compare(left: dict[str, Counter], right: dict[str, Counter]) -> list[Difference]:
    differences = []
    for table in TABLES:
        only_left = sorted((left[table] - right[table]).elements(), key=repr)
        only_right = sorted((right[table] - left[table]).elements(), key=repr)
        if only_left or only_right:
            differences.append(Difference(table, only_left, only_right))
    return differences


def _shown(row: tuple) -> str:
    return ' | '.join(f'{column}={value!r}' for column, value in row)


def explain(differences: list[Difference], left: str, right: str, limit: int = 12) -> str:
    """The differing rows, at most `limit` a side and table."""
    lines = []
    for difference in differences:
        lines.append(f'{difference.table}: {len(difference.only_left)} rows only in {left}, '
                     f'{len(difference.only_right)} only in {right}')
        for sign, rows in (('-', difference.only_left), ('+', difference.only_right)):
            lines += [f'  {sign} {_shown(row)}' for row in rows[:limit]]
            if len(rows) > limit:
                lines.append(f'  {sign} … {len(rows) - limit} more')
    return '\n'.join([f'- {left}, + {right}', *lines])
