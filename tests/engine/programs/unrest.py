"""unrest.py DSN COUNT SECONDS: that many attachments, each with a tag of its own (telltale.py), which keep attaching,
detaching, changing their routines, failing, and killing one another's statements. One more attachment kills one of
them every half second: where they killed one another's attachments, too, 5.0.4 aborted at a mutex, and hung in a run
with nobody looking. Prints how often what was done.
"""

import json
import os
import random
import sys
import threading
import time
from collections import Counter

import client
import telltale
from firebird.driver import DatabaseError

ROUNDS, WORK = 20, 10


def setting(fails: bool) -> str:
    """Whether the next block fails at its end."""
    value = '1' if fails else 'null'
    return f"execute block as declare n integer; begin n = rdb$set_context('USER_SESSION', 'FAIL', {value}); end"


def roll_back(connection) -> None:
    if connection.main_transaction.is_active():  # or it was cancelled before it had begun
        connection.rollback()


class Unrest(threading.Thread):
    def __init__(self, dsn: str, tag: int, deadline: float):
        super().__init__()
        self.dsn, self.deadline = dsn, deadline
        self.random = random.Random(tag)
        self.identity = telltale.Identity(tag, ROUNDS, WORK)
        self.done = Counter()

    def run(self) -> None:
        while time.monotonic() < self.deadline:
            try:
                connection = client.connect(self.dsn, 'UTF8')
            except DatabaseError:
                self.done['refused'] += 1
                continue
            self.done['attached'] += 1
            try:
                for _ in range(self.random.randint(1, 20)):
                    self.act(connection)
            except DatabaseError:
                self.done['lost'] += 1
            try:
                connection.close()
            except DatabaseError:
                pass

    def act(self, connection) -> None:
        what = self.random.choices(['work', 'fail', 'ddl', 'kill'], [20, 4, 2, 1])[0]
        try:
            if what == 'ddl':
                connection.execute_immediate(self.random.choice(self.identity.ddl[1:]))
            elif what == 'kill':
                connection.execute_immediate('delete from mon$statements where mon$state = 1 and '
                                             'mon$attachment_id <> current_connection order by rand() rows 3')
            else:
                connection.execute_immediate(setting(what == 'fail'))
                connection.execute_immediate(self.identity.block)
            connection.commit()
            self.done[what] += 1
        except DatabaseError:
            self.done['failed' if what == 'fail' else f'{what} failed'] += 1
            roll_back(connection)


class Killer(threading.Thread):
    def __init__(self, dsn: str, deadline: float):
        super().__init__()
        self.dsn, self.deadline = dsn, deadline
        self.done = Counter()

    def run(self) -> None:
        with client.connect(self.dsn, 'UTF8') as connection:
            while time.monotonic() < self.deadline:
                time.sleep(0.5)
                try:
                    self.kill(connection)
                except DatabaseError:
                    self.done['attachment kill failed'] += 1
                    roll_back(connection)

    def kill(self, connection) -> None:
        cursor = connection.cursor()
        cursor.execute('delete from mon$attachments where mon$attachment_id <> current_connection and '
                       'mon$remote_pid = ? order by rand() rows 1', (os.getpid(),))
        killed = cursor.affected_rows
        cursor.close()
        connection.commit()
        self.done['attachment kill'] += killed


def main(dsn, count, seconds):
    client.load_client()
    deadline = time.monotonic() + float(seconds)
    workers = [Killer(dsn, deadline), *(Unrest(dsn, tag, deadline) for tag in range(1, int(count) + 1))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(json.dumps(sum((worker.done for worker in workers), Counter())))


main(*sys.argv[1:])
