"""telling_lines.py DATABASE SECONDS SEED: statements whose line of work tells who they are, in and out of many attachments.

A block's text says in which line it works, and so does a procedure's name. They are prepared, executed and freed
again, so that others take their places in memory; procedures are altered, statements fail, attachments come and go.
Each seed has procedures of its own: Firebird 5.0.4 itself crashes now and then if one is altered while another
attachment loads it.
"""

import random
import sys
import time

from client import DatabaseError, connect

BLOCK = 'execute block as declare i integer = 0; begin{}while (i < 4000) do i = i + 1; end /* line {} */'
PROCEDURE = 'create or alter procedure p{2}_{1} as declare i integer = 0; begin{0}while (i < 4000) do i = i + 1; end'
FAILING = 'execute block as declare i integer = 0; begin{}i = 1 / i; end /* line {} */'


def work(connection, choice: random.Random, seed: str) -> None:
    line = choice.randint(2, 60)
    space = '\n' * (line - 1)
    cursor = connection.cursor()
    kind = choice.random()
    try:
        if kind < 0.7:
            cursor.execute(BLOCK.format(space, line))
        elif kind < 0.8:
            cursor.execute(FAILING.format(space, line))
        elif kind < 0.9:
            cursor.execute(PROCEDURE.format(space, line, seed))
            connection.commit()
        else:
            cursor.execute(f'execute procedure p{seed}_{line}')
    except DatabaseError:
        connection.rollback()
    cursor.close()


def main(database: str, seconds: str, seed: str) -> None:
    choice = random.Random(int(seed))
    end = time.monotonic() + float(seconds)
    done = 0
    while time.monotonic() < end:
        connection = connect(database)
        for _ in range(choice.randint(1, 60)):
            work(connection, choice, seed)
            done += 1
        connection.close()
    print(done)


if __name__ == '__main__':
    main(*sys.argv[1:])
