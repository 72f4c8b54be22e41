"""attachment.py DATABASE: a client.Client that does what it is told, one JSON line a call, and answers with one.

The call is [method, arguments]; the answer {"value": ...} or {"error": text}. It ends when its input does.
"""

import json
import sys

from client import Client, DatabaseError, snapshot_tables


def main(database):
    client = Client(database)
    print(json.dumps({'value': client.attachment_id}), flush=True)
    for line in sys.stdin:
        method, arguments = json.loads(line)
        try:
            if method == 'snapshot_tables':
                answer = {'value': snapshot_tables(database)}
            else:
                answer = {'value': getattr(client, method)(*arguments)}
        except DatabaseError as error:
            answer = {'error': str(error)}
        print(json.dumps(answer), flush=True)
    client.close()


main(sys.argv[1])
