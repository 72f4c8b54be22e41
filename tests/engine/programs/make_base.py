"""make_base.py DATABASE: create the database that every workload starts from a copy of."""

from client import connect, create, execute_script, program
from workloads import BASE


def main(database):
    create(database)
    connection = connect(database)
    execute_script(connection, BASE)
    connection.close()


program(main)
