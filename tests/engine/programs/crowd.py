"""crowd.py DATABASE COUNT OPTIONS: that many attachments in one process, which do alike what they are told.

One command a line, answered by one line of JSON; it ends when its input does. OPTIONS "-" stands for NULL.
visit       each in turn: a session with a small statement, which it finishes
start       each in turn: starts a session, runs a small statement, and stays in it
loop N      all at once: a loop of N rounds; for each its session's id, and how long it took in s
finish      each in turn: finishes its session
"""

import json
import sys
import threading

from client import Client

SMALL = 'select count(*) from dept where id < 5'

# It looks at the clock itself: on a busy machine the way to the client and back can be long. Lines 5 and 6 loop.
LOOP = """execute block (n integer = ?) returns (took bigint) as
  declare began timestamp;
begin
  began = cast('now' as timestamp);
  while (n > 0) do
    n = n - 1;
  took = datediff(millisecond from began to cast('now' as timestamp));
  suspend;
end"""


def start(client: Client, number: int, options: str) -> int:
    client.start_session(f'attachment {number}', None if options == '-' else options)
    client.run(SMALL)
    client.commit()
    return client.profile_ids[-1]


def finish(client: Client) -> None:
    client.finish_session()
    client.commit()


def loop(clients: list, rounds: int) -> list:
    """A thread for each; the calls into the client library leave Python's lock alone."""
    barrier = threading.Barrier(len(clients))
    took = [None] * len(clients)

    def run(number):
        prepared = clients[number].prepare(LOOP)
        barrier.wait()
        took[number] = prepared.run(rounds)[0][0] / 1000

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.commit()
    return [(client.profile_ids[-1], seconds) for client, seconds in zip(clients, took)]


def main(database, count, options) -> None:
    clients = [Client(database) for _ in range(int(count))]
    for client in clients:
        client.run(SMALL)
        client.commit()
    print(json.dumps([client.attachment_id for client in clients]), flush=True)
    for line in sys.stdin:
        command, *rest = line.split()
        if command == 'visit':
            for number, client in enumerate(clients):
                start(client, number, options)
                finish(client)
            answer = None
        elif command == 'start':
            answer = [start(client, number, options) for number, client in enumerate(clients)]
        elif command == 'loop':
            answer = loop(clients, int(rest[0]))
        elif command == 'finish':
            answer = [finish(client) for client in clients]
        else:
            raise ValueError(line)
        print(json.dumps(answer), flush=True)
    for client in clients:
        client.close()


main(*sys.argv[1:])
