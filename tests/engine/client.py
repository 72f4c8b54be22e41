"""The embedded client's side: connections and what a workload may do with one.

Imported by the programs that run in processes of their own, where LD_PRELOAD may have put fbprof.
"""

from __future__ import annotations

import json
import os
import sys
import traceback

from firebird.driver import DatabaseError, connect as driver_connect, create_database, driver_config

from firebird_env import PASSWORD, USER
from prof_tables import COLUMNS, MOMENTS

# Each with a text of its own: whether the engine still has an equal one compiled depends on the plugin's DDL.
START_SESSION = 'select rdb$profiler.start_session(?, null, null, null, ?) from rdb$database /* {} */'


def load_client() -> None:
    """Take libfbclient from the root that FIREBIRD names."""
    if driver_config.fb_client_library.value is None:
        driver_config.stream_blob_threshold.value = 1 << 30  # texts always as str
        driver_config.fb_client_library.value = os.path.join(os.environ['FIREBIRD'], 'libfbclient.so.2')


def connect(database, charset: str = 'UTF8', user: str | None = USER, password: str | None = PASSWORD):
    load_client()
    return driver_connect(str(database), user=user, password=password, charset=charset)


def create(database) -> None:
    load_client()
    driver_config.db_defaults.db_charset.value = 'UTF8'
    create_database(str(database), user=USER, password=PASSWORD, charset='UTF8').close()


def execute_script(connection, script: str) -> None:
    """Statements that end in a line with a lone ^; each is committed."""
    for statement in script.split('^\n'):
        if statement.strip():
            try:
                cursor = connection.cursor()
                cursor.execute(statement.strip())
                cursor.close()
                connection.commit()
            except DatabaseError as error:
                raise RuntimeError(f'{error}\nin the setup statement:\n{statement}') from error


def snapshot_tables(database) -> dict:
    """The stock plugin's tables, as prof_tables has them, and the columns that they really have."""
    connection = connect(database)
    cursor = connection.cursor()
    tables = {}
    for table, columns in COLUMNS.items():
        # The driver can't fetch a timestamp with time zone through a network.
        selected = [f'cast({column} as varchar(80))' if column in MOMENTS else column for column in columns]
        cursor.execute(f'select {", ".join(selected)} from plg$prof_{table}')
        tables[table] = [dict(zip(columns, row)) for row in cursor]
        for row in tables[table]:
            # CHAR columns come padded.
            for column in ('user_name', 'package_name', 'routine_name', 'name'):
                if row.get(column) is not None:
                    row[column] = row[column].rstrip(' ')
    cursor.execute('select trim(lower(r.rdb$relation_name)), trim(lower(f.rdb$field_name))'
                   ' from rdb$relations r join rdb$relation_fields f on f.rdb$relation_name = r.rdb$relation_name'
                   " where r.rdb$relation_name starting 'PLG$PROF_' and r.rdb$view_blr is null"
                   ' order by r.rdb$relation_name, f.rdb$field_position')
    layout = {}
    for table, column in cursor:
        layout.setdefault(table.removeprefix('plg$prof_'), []).append(column)
    connection.close()
    return {'tables': tables, 'layout': layout}


def _plain(row):
    return None if row is None else [value if isinstance(value, (int, str, bool, type(None))) else repr(value)
                                     for value in row]


class Open:
    """A result set that is fetched bit by bit, and closed by close() or not at all."""

    def __init__(self, client: 'Client', cursor):
        self.client = client
        self.cursor = cursor

    def fetch(self, rows: int = 1) -> list:
        return self.client._record([_plain(row) for row in self.cursor.fetchmany(rows)])

    def rest(self) -> list:
        return self.client._record([_plain(row) for row in self.cursor.fetchall()])

    def move(self, how: str, *position: int):
        return self.client._record(_plain(getattr(self.cursor, f'fetch_{how}')(*position)))

    def close(self) -> None:
        self.cursor.close()
        self.client.opened.remove(self)


class Prepared:
    def __init__(self, client: 'Client', sql: str):
        self.client = client
        self.cursor = client.connection.cursor()
        self.statement = self.cursor.prepare(sql)

    def run(self, *parameters) -> list:
        return self.client._run(self.cursor, self.statement, parameters)

    def fails(self, *parameters) -> None:
        self.client._fails(lambda: self.client._run(self.cursor, self.statement, parameters))

    def open(self, *parameters) -> Open:
        self.cursor.execute(self.statement, parameters)
        opened = Open(self.client, self.cursor)
        self.client.opened.append(opened)
        return opened

    def free(self) -> None:
        self.cursor.close()
        self.statement.free()


class Client:
    """One attachment as a workload sees it. What comes back from the database is kept in `results`."""

    def __init__(self, database, charset: str = 'UTF8', detailed: bool = False):
        self.database = database
        self.detailed = detailed
        self.connection = connect(database, charset)
        self.results: list = []
        self.profile_ids: list[int] = []
        self.opened: list[Open] = []
        self.prepared: list[Prepared] = []
        self.attachment_id = self.scalar('select current_connection from rdb$database')

    def _record(self, value):
        self.results.append(value)
        return value

    def _run(self, cursor, operation, parameters) -> list:
        cursor.execute(operation, parameters)
        rows = [_plain(row) for row in cursor.fetchall()] if cursor.description else []
        return self._record(rows)

    def _fails(self, action) -> None:
        try:
            action()
        except DatabaseError as error:
            self._record(str(error))
        else:
            raise AssertionError('the statement was meant to fail')

    def run(self, sql: str, *parameters) -> list:
        """Execute, and fetch to the end."""
        cursor = self.connection.cursor()
        try:
            return self._run(cursor, sql, parameters)
        finally:
            cursor.close()

    def scalar(self, sql: str, *parameters):
        cursor = self.connection.cursor()
        try:
            cursor.execute(sql, parameters)
            return cursor.fetchone()[0]
        finally:
            cursor.close()

    def fails(self, sql: str, *parameters) -> None:
        self._fails(lambda: self.run(sql, *parameters))

    def open(self, sql: str, *parameters, scrollable: bool = False, name: str | None = None) -> Open:
        cursor = self.connection.cursor()
        if scrollable:
            cursor.open(sql, parameters)
        else:
            cursor.execute(sql, parameters)
        if name:
            cursor.set_cursor_name(name)
        opened = Open(self, cursor)
        self.opened.append(opened)
        return opened

    def leave_open(self, sql: str, rows: int) -> list:
        """Fetch some rows of a result set that stays open."""
        return self.open(sql).fetch(rows)

    def detach(self) -> None:
        """Detach with whatever is open."""
        self.connection.close()

    def prepare(self, sql: str) -> Prepared:
        prepared = Prepared(self, sql)
        self.prepared.append(prepared)
        return prepared

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    # Sessions

    def start_session(self, description: str | None = None, options: str | None = None) -> int:
        if options is None and self.detailed:
            options = 'DETAILED_REQUESTS'
        self.profile_ids.append(self.scalar(START_SESSION.format(len(self.profile_ids)), description, options))
        return self.profile_ids[-1]

    def profiler(self, command: str) -> None:
        """profiler('pause_session(true)')"""
        self.run(f'execute procedure rdb$profiler.{command}')

    def finish_session(self) -> None:
        self.profiler('finish_session(true)')

    def close(self) -> None:
        if self.connection.is_closed():
            return
        for opened in list(self.opened):
            opened.close()
        for prepared in self.prepared:
            prepared.free()
        self.connection.close()


def program(main) -> None:
    """Run a program's main, print what it returns as JSON; an error ends at once, without the driver's
    complaints about what was left open."""
    try:
        print(json.dumps(main(*sys.argv[1:])), flush=True)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
