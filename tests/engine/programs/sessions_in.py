"""sessions_in.py DATABASE WORK OPTIONS...: for each of OPTIONS, one session around one piece of work.

Prints for each: START_SESSION's id or error, and what the work returned. WORK is "small" or "large"
(many lines, statements and requests, for a log that must grow). OPTIONS "-" stands for NULL.
"""

from client import Client, DatabaseError, program

SMALL = ['select count(*) from emp e join dept d on d.id = e.dept_id',
         'execute block returns (n integer) as begin n = 0; while (n < 1000) do n = n + 1; suspend; end']

SETUP = 'create procedure nothing as begin end'
CALLS = ('execute block returns (i integer) as begin i = 0; while (i < 20000) do begin execute procedure nothing;'
         ' i = i + 1; end suspend; end')


def long_block(number: int) -> str:
    lines = '\n'.join(f'n = n + {number};' for _ in range(1000))
    return f'execute block returns (n integer) as begin n = 0;\n{lines}\nsuspend; end'


def main(database, work, *all_options):
    client = Client(database)
    queries = SMALL
    if work == 'large':
        client.run(SETUP)
        client.commit()
        queries = [*SMALL, CALLS, *(long_block(number) for number in range(40))]
    answers = []
    for options in all_options:
        answer = {}
        try:
            answer['session'] = client.start_session('in', None if options == '-' else options)
        except DatabaseError as error:
            answer['error'] = str(error)
        del client.results[:]
        for query in queries:
            client.run(query)
        answer['results'] = list(client.results)
        client.finish_session()
        client.commit()
        answers.append(answer)
    client.close()
    return answers


program(main)
