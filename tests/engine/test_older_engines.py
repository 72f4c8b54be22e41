"""Passive mode on all engines, those that have no profiler among them, recorded from outside."""

from __future__ import annotations

import csv
import re
import subprocess
from collections import Counter

import pytest

import firebird_env as env

# Some seconds of work, two thirds of it in line 6 of HOT.
SCHEMA = '''
create database '{database}';
set term ^ ;
create function hot (n integer) returns bigint as
  declare i integer = 0;
  declare total bigint = 0;
begin
  while (i < n) do begin
    total = total + mod(i * i, 7) + mod(i, 3) + mod(total, 11) + char_length(cast(i as varchar(20)) || 'x');
    i = i + 1;
  end
  return total;
end^
create table t (id integer)^
create trigger t_counts for t before insert as begin
  new.id = new.id + mod(hot(20), 2);
end^
create package works as begin procedure work (times integer); end^
create package body works as begin
  procedure work (times integer) as
    declare x bigint;
  begin
    while (times > 0) do begin
      x = hot(200);
      insert into t values (:times);
      times = times - 1;
    end
  end
end^
commit^
'''

WORK = '''
connect '{dsn}' user {user} password '{password}';
set term ^ ;
execute block as
begin
  execute statement 'execute procedure works.work(40000)';
end^
'''


def rows(log, name: str) -> list[dict]:
    return list(csv.DictReader(env.run([env.FBPROF_DUMP, '--table', name, log]).stdout.splitlines(keepends=True)))


@pytest.fixture(params=['5.0.4-Super', '4.0.7-Super', '4.0.7-Classic', '3.0.14-Super', '3.0.14-Classic'])
def server(request, scratch, calibrated):
    """Of that version, at work for 3 s; what has been recorded of it."""
    version, mode = request.param.split('-')
    calibration = calibrated(version)
    database, log_dir = scratch / 'test.fdb', scratch / 'log'
    with env.Server(scratch / 'server', mode, runtime=calibration.runtime) as server:
        env.isql(server.root, SCHEMA.format(database=database))
        script = scratch / 'work.sql'
        script.write_text(WORK.format(dsn=server.dsn(database), user=env.USER, password=env.PASSWORD))
        with subprocess.Popen([server.root / 'bin/isql-fb', '-q', '-bail', '-i', script],
                              env=env.environment(server.root)) as client:
            done = env.run([env.FBPROF, 'record', '--pid', server.pid, '--duration', '3', '-o', log_dir],
                           env.environment(FBPROF_CACHE=str(calibration.cache)))
            assert client.poll() in (None, 0)
            client.kill()
        server.check_log()
        assert done.stderr == ''
    return database, env.logs(log_dir)[0]


def test_recorded_from_outside(server):
    """Lines, callers, names of all kinds of routines, attachment, user and database."""
    database, log = server
    session, = [row for row in rows(log, 'sessions') if row['database'] == str(database)]
    assert session['user_name'].upper() == env.USER.upper()
    blocks = {row['statement_id'] for row in rows(log, 'statements') if row['sql_text'].startswith('execute block')}
    names = {row['statement_id']: (row['statement_type'], row['package_name'], row['routine_name'])
             for row in rows(log, 'statements') if row['profile_id'] == session['profile_id']}
    assert {('FUNCTION', '', 'HOT'), ('PROCEDURE', 'WORKS', 'WORK'), ('TRIGGER', '', 'T_COUNTS')} <= set(names.values())

    lines = Counter()
    total = Counter()
    for row in rows(log, 'psql_stats'):
        if row['profile_id'] == session['profile_id']:
            lines[names[row['statement_id']][2], int(row['line_num'])] += int(row['samples'])
            total[names[row['statement_id']][2], int(row['line_num'])] += int(row['total_elapsed_time'])
    assert lines.total() > 500
    assert lines.most_common(1)[0][0] == ('HOT', 6)
    assert {line for name, line in lines if name == 'HOT'} <= {2, 3, 4, 5, 6, 7, 9}
    assert {line for name, line in lines if name == 'WORK'} <= {3, 5, 6, 7, 8}
    # The caller has the time of what it calls, and what executes a statement that of the statement.
    assert total['WORK', 6] >= 0.5 * total['HOT', 6]
    block, = [int(row['total_elapsed_time']) for row in rows(log, 'psql_stats') if row['statement_id'] in blocks]
    assert block >= total['WORK', 6] + total['WORK', 7]
    assert re.search(r'HOT$', env.run([env.FBPROF, 'report', log]).stdout, re.MULTILINE)
