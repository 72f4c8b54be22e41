"""run_queries.py DSN ROUNDS DESCRIPTION OPTIONS: one of many attachments at once.

Connects, starts a session if DESCRIPTION is not empty, says "ready", waits for a line on its input, and runs the
queries of server_queries.py ROUNDS times. Prints [what they returned, the session's id or null].
"""

import sys

from client import Client, program
from server_queries import QUERIES


def main(dsn, rounds, description, options):
    client = Client(dsn)
    profile_id = client.start_session(description, None if options == '-' else options) if description else None
    print('ready', flush=True)
    sys.stdin.readline()
    for _ in range(int(rounds)):
        for query in QUERIES:
            client.run(query)
        client.commit()
    results = list(client.results)
    if description:
        client.finish_session()
    client.close()
    return results, profile_id


program(main)
