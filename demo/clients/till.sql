/*
 * A till: till_1.sql and till_2.sql run this one, each for its branch. It commits every 50 orders.
 */
select rdb$profiler.start_session('till ' || rdb$get_context('USER_SESSION', 'BRANCH')) from rdb$database;

set term ^ ;

execute block as
  declare branch integer;
  declare i integer = 0;
  declare order_id integer;
  declare total numeric(12, 2);
begin
  branch = rdb$get_context('USER_SESSION', 'BRANCH');
  while (i < 500) do
    in autonomous transaction do
      while (i < 500) do
      begin
        execute procedure shop.place_order(branch, 1 + mod(i * 2 + branch, 500), i * 13, 12)
          returning_values order_id, total;
        i = i + 1;
        if (mod(i, 50) = 0) then
          break;
      end
end^

set term ; ^

execute procedure rdb$profiler.finish_session(true);
