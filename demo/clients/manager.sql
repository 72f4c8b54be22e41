/* The manager: looks for products that nobody buys, category by category, and for the best customers. */
select rdb$profiler.start_session('manager') from rdb$database;

set term ^ ;

execute block returns (name varchar(60), sold bigint) as
  declare category_id integer;
begin
  for select c.id from categories c where c.id between 122 and 286 order by c.id into category_id do
    for select m.name, m.sold from sales.slow_movers(:category_id, 3) m into name, sold do
      suspend;
end^

set term ; ^

select * from sales.best_customers(5);

execute procedure rdb$profiler.finish_session(true);
