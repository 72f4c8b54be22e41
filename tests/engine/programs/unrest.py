"""unrest.py DSN COUNT SECONDS: that many attachments, each with a tag of its own (telltale.py), which keep attaching,
detaching, changing their routines, failing, and killing one another's statements. Prints how often what was done.

Not attachments: 5.0.4 does not survive that, with nobody looking, even if one is killed every half second only.
"""

import json
import random
import sys
import threading
import time
from collections import Counter

import client
import telltale
from firebird.driver import DatabaseError, load_api

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


def main(dsn, count, seconds):
    client.load_client()
    load_api()  # by one thread
    deadline = time.monotonic() + float(seconds)
    workers = [Unrest(dsn, tag, deadline) for tag in range(1, int(count) + 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(json.dumps(sum((worker.done for worker in workers), Counter())))


main(*sys.argv[1:])
