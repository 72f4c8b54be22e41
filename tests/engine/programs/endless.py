"""endless.py DATABASE WORK OPTIONS: profiled work without end, for a process that gets killed at one of its ends.

First prints the pid of the process that executes, the session's id, and the attachment's. Then by WORK:
rows        fetches a block's rows and prints how many it has got
statements  executes a prepared statement and prints how often
joins       likewise, a statement that takes some 10 ms and whose result it checks
busy        one statement that runs for ever
cancelled   likewise; once it has failed it runs another, finishes the session and ends
OPTIONS "-" stands for NULL, "off" for no session. When a statement fails it prints the error and ends.
"""

import os
import sys

from client import Client, DatabaseError

# Lines 6 and 7 are left before the row reaches the client.
LOOP = """execute block returns (n integer, m integer) as
begin
  n = 0;
  while (true) do
  begin
    n = n + 1;
    m = n * 2;
    suspend;
  end
end"""

STATEMENT = 'select count(*) from dept where id < 5'
JOIN = 'select count(*) from num a cross join num b where a.n < 100'
FOR_EVER = 'execute block as declare i bigint = 0; begin while (true) do i = i + 1; end'
AFTERWARDS = 'select 5 from dept'


def say(text) -> None:
    sys.stdout.write(f'{text}\n')
    sys.stdout.flush()


def work(client: Client, kind: str) -> None:
    count = 0
    if kind in ('busy', 'cancelled'):
        client.run(STATEMENT)
        try:
            client.run(FOR_EVER)
        except DatabaseError as error:
            if kind == 'cancelled':
                client.run(AFTERWARDS)
                client.finish_session()
                client.close()
            say(f'error: {error}')
            os._exit(0)
    cursor = client.connection.cursor()
    if kind == 'rows':
        cursor.execute(LOOP)
    statement = cursor.prepare(JOIN if kind == 'joins' else STATEMENT)
    while True:
        if kind != 'rows':
            cursor.execute(statement)
        row = cursor.fetchone()
        assert kind != 'joins' or row == (50000,), row
        count += 1
        say(count)


def main(database, kind, options) -> None:
    client = Client(database)
    pid = client.scalar('select mon$server_pid from mon$attachments where mon$attachment_id = current_connection')
    client.commit()
    profile_id = 0 if options == 'off' else client.start_session('endless', None if options == '-' else options)
    say(f'{pid} {profile_id} {client.attachment_id}')
    try:
        work(client, kind)
    except DatabaseError as error:
        say(f'error: {error}')
        os._exit(0)  # the driver has nobody left to say goodbye to


if __name__ == '__main__':
    main(*sys.argv[1:])
