/* The web shop: shows all products with their paths in the tree of categories, again and again. */
select rdb$profiler.start_session('web shop') from rdb$database;

set term ^ ;

execute block as
  declare i integer = 0;
  declare seen integer = 0;
begin
  while (i < 26) do
  begin
    for select c.path from catalogue(1, 1500) c as cursor page do
      seen = seen + 1;
    i = i + 1;
  end
end^

set term ; ^

select count(*), max(char_length(path)) from catalogue(1, 1500);

execute procedure rdb$profiler.finish_session(true);
