"""run_workload.py DATABASE WORKLOAD DETAILED STOCK: run one workload of the corpus in this process.

DATABASE is a copy of the base. DETAILED is 0 or 1. With STOCK = 1 the PLG$PROF_* tables are read afterwards.
Prints JSON: profile ids, attachment, user, the queries' results and the tables.
"""

from client import Client, connect, execute_script, program, snapshot_tables
from workloads import WORKLOADS


def main(database, name, detailed, stock):
    workload = WORKLOADS[name]

    if workload.setup:
        connection = connect(database)
        execute_script(connection, workload.setup)
        connection.close()

    client = Client(database, workload.charset, detailed == '1')
    if workload.own_sessions:
        workload.body(client)
    else:
        client.start_session(name)
        workload.body(client)
        client.finish_session()
    client.commit()
    client.close()

    result = {'profile_ids': client.profile_ids, 'attachment_id': client.attachment_id, 'results': client.results}
    if stock == '1':
        result |= snapshot_tables(database)
    return result


program(main)
