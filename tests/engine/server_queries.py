"""What the attachments of test_server.py run: read-only, so that any number can at once, and each the same."""

SETUP = """
create procedure mix (n integer) returns (x integer) as
begin
  x = 0;
  while (n > 0) do
  begin
    if (mod(n, 2) = 0) then
      x = x + n;
    n = n - 1;
  end
end
^
create procedure some_numbers (high integer) returns (n integer) as
begin
  n = 0;
  while (n < high) do
  begin
    suspend;
    n = n + 1;
  end
end
^
"""

QUERIES = [
    'select count(*), cast(sum(salary) as numeric(18, 2)) from emp e join dept d on d.id = e.dept_id',
    'select grade, count(*) from emp group by grade order by grade',
    'select n.n, s.n from num n cross join some_numbers(3) s where n.n < 6',
    'execute procedure mix(200)',
    'select count(*) from heap h join heap g on g.b = h.b',
    'execute block returns (n integer) as\ndeclare x integer;\nbegin\n  n = 0;\n  while (n < 300) do\n  begin\n'
    '    n = n + 1;\n    x = n * 2;\n  end\n  suspend;\nend',
    'execute block returns (n integer) as\nbegin\n  n = 1;\n  begin\n    exception oops;\n  when any do\n    n = 2;\n'
    '  end\n  suspend;\nend',
    'select first 7 id, name from emp order by name desc',
]
