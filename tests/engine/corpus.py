"""The corpus of passive mode's tests: ten statements of the kinds that databases are busy with.

Each takes some 50 ms, with several lines, statements or record sources of a share worth telling, and is executed over and
over (programs/plans.py), undone after each time. What is told differently by measured mode, on purpose or by its errors
(docs/passive.md), is kept small.
"""

from __future__ import annotations

SETUP = """
create table category (id integer not null primary key, parent_id integer references category, name varchar(40))
^
create table item (id integer not null primary key, category_id integer not null references category,
  price numeric(10, 2) not null, name varchar(60) not null)
^
create table sale (id integer not null primary key, item_id integer not null references item, day_number integer not null,
  quantity integer not null, note varchar(60))
^
create index sale_day on sale (day_number)
^
create table audit (item_id integer, what varchar(30), difference integer)
^
create table stock (item_id integer not null primary key, quantity integer not null, changes integer default 0 not null)
^
create exception out_of_stock 'Out of stock'
^
execute block as declare i integer = 0; begin
  while (i < 121) do begin
    insert into category values (:i, iif(:i = 0, null, (:i - 1) / 3), 'Category ' || mod(:i * 37, 121));
    i = i + 1;
  end
  i = 0;
  while (i < 1000) do begin
    insert into item values (:i, mod(:i * 7, 121), 1 + mod(:i * 31, 97) * 0.25, 'Item ' || mod(:i * 389, 1000));
    insert into stock (item_id, quantity) values (:i, 50);
    i = i + 1;
  end
  i = 0;
  while (i < 8000) do begin
    insert into sale values (:i, mod(:i * 13, 1000), mod(:i, 365), 1 + mod(:i * 17, 9), 'Sale of day ' || mod(:i, 365));
    i = i + 1;
  end
end
^
create procedure rate (day_number integer) returns (factor double precision) as
  declare k integer = 0;
begin
  factor = 0;
  while (k < 4) do
  begin
    factor = factor + sin(day_number + k) * exp(-k / 4e0) + power(1.01e0, k) * cos(day_number - k)
      + ln(2e0 + k) * sqrt(day_number + k) + atan(k) * power(1.02e0, day_number);
    k = k + 1;
  end
end
^
create procedure balance (item_id integer) returns (amount double precision) as
  declare day_number integer;
  declare quantity integer;
  declare factor double precision;
begin
  amount = 0;
  for select s.day_number, s.quantity from sale s where s.item_id = :item_id into day_number, quantity do
  begin
    execute procedure rate(day_number) returning_values factor;
    amount = amount + quantity * factor;
  end
end
^
create procedure statement_of_account (low integer, high integer) returns (amount double precision, text varchar(500)) as
  declare one double precision;
begin
  amount = 0;
  text = '';
  while (low < high) do
  begin
    execute procedure balance(low) returning_values one;
    amount = amount + one;
    text = right(text || lpad(cast(one as varchar(30)), 40, '.') || upper(text), 400);
    low = low + 1;
  end
end
^
create function tax (price numeric(10, 2), country integer) returns numeric(12, 4) as
  declare steps integer = 0;
  declare result numeric(12, 4) = 0;
begin
  while (steps < 4) do
  begin
    result = result + round(price * (19 + country) / 100, 2) - trunc(price / 7, 1);
    steps = steps + 1;
  end
  return result;
end
^
create function short_name (name varchar(60)) returns varchar(60) as
  declare result varchar(60);
begin
  result = replace(replace(upper(name), 'ITEM', 'I'), ' ', '');
  result = lpad(trim(leading '0' from overlay(result placing '00' from 1)), 30, '*') || reverse(result);
  return result;
end
^
create function sold (item_id integer) returns integer as
begin
  return (select sum(s.quantity) from sale s where s.item_id = :item_id);
end
^
create procedure tree (parent_id integer, depth integer) returns (id integer, path varchar(200)) as
  declare name varchar(40);
begin
  for select c.id, c.name from category c where c.parent_id is not distinct from :parent_id order by c.name
    into id, name
  do
  begin
    path = left(lpad('', 2 * depth) || replace(upper(rpad(name, 4000, name)), 'CATEGORY', '/'), 200);
    suspend;
    for select t.id, t.path from tree(:id, :depth + 1) t into id, path do
      suspend;
  end
end
^
create trigger stock_changes for stock before update as
begin
  new.changes = old.changes + char_length(replace(lpad('', 300, 'ab' || new.quantity), 'b', 'xyz'));
end
^
create trigger stock_audit for stock after update as
begin
  insert into audit values (new.item_id, 'stock', new.quantity - old.quantity);
  if (mod(new.item_id, 2) = 0) then
    update item i set i.price = i.price + 0.01 where i.id = new.item_id;
end
^
create trigger audit_number for audit before insert as
  declare n integer = 0;
begin
  while (n < 10) do
    n = n + 1;
  new.what = upper(new.what) || n || rpad('', 10, 'z');
end
^
create package texts as
begin
  function invoice (low integer, high integer) returns blob sub_type text;
  function checksum (text varchar(2000)) returns integer;
  procedure take (item_id integer, quantity integer);
end
^
create package body texts as
begin
  procedure take (item_id integer, quantity integer) as
    declare available integer;
  begin
    select s.quantity from stock s where s.item_id = :item_id into available;
    if (available < quantity) then
      exception out_of_stock;
  end

  function checksum (text varchar(2000)) returns integer as
    declare i integer = 1;
    declare result integer = 0;
  begin
    while (i <= char_length(text)) do
    begin
      result = mod(result * 31 + unicode_val(substring(text from i for 1)), 1000003);
      i = i + 1;
    end
    return result;
  end

  function invoice (low integer, high integer) returns blob sub_type text as
    declare result blob sub_type text = '';
    declare line varchar(2000);
  begin
    while (low < high) do
    begin
      line = rpad('Nr ' || low || ' ', 200, '.') || lpad(' ' || (low * 17), 100, '_');
      result = blob_append(result, line, checksum(line));
      begin
        execute procedure take(low, 48 + mod(low, 4));
        when exception out_of_stock do
          result = blob_append(result, ' not in stock');
      end
      low = low + 1;
    end
    return result;
  end
end
^
"""

CORPUS = {
    'arithmetic': """execute block returns (s double precision) as
  declare i integer = 0;
  declare d decfloat(34) = 1;
  declare n numeric(18, 4) = 0;
  declare t varchar(100) = '';
begin
  s = 0;
  while (i < 12000) do
  begin
    s = s + sqrt(i) * sin(i) + ln(i + 1);
    d = d * 1.00001 + i / cast(7 as decfloat(34));
    n = n + cast(mod(i * 7919, 1000) as numeric(18, 4)) / 7;
    if (mod(i, 3) = 0) then
      t = left(upper(t) || lpad(i, 10, '0'), 60);
    i = i + 1;
  end
  suspend;
end""",
    'cursor_with_subquery': """execute block returns (n integer) as
  declare x integer;
  declare m integer;
begin
  n = 0;
  for select i.id from item i where i.category_id < 100 order by i.name into x do
  begin
    n = n + (select count(*) from sale s where s.item_id = :x and s.quantity > 2);
    select count(*) from category c where c.id > mod(:x, 100) and c.name like '%1%' into m;
    if (m > 10) then
      n = n + char_length(replace(rpad('', 400, 'ab' || m), 'a', 'xyz'));
  end
  suspend;
end""",
    'nested_procedures': 'execute procedure statement_of_account(100, 200)',
    'functions_in_select': """execute block returns (n integer) as
  declare x integer;
  declare name varchar(60);
begin
  n = 0;
  for select i.id, i.name from item i where mod(i.id, 2) = 0 and tax(i.price, 1) > i.id / 1000 into x, name do
  begin
    n = n + sold(x);
    n = n + char_length(replace(rpad(short_name(name), 1000, name), 'I', 'XYZ'));
  end
  suspend;
end""",
    'recursion': """execute block returns (n integer) as
  declare k integer;
  declare path varchar(200);
  declare turn integer = 0;
begin
  n = 0;
  while (turn < 3) do
  begin
    for select t.path from tree(null, 0) t into path do
      n = n + char_length(replace(path, '/', '//'));
    for with recursive above as (
        select c.id, c.parent_id, 0 depth from category c where c.id >= 40
        union all select c.id, c.parent_id, a.depth + 1 from above a join category c on c.id = a.parent_id)
      select a.depth from above a order by a.depth into k
    do
      n = n + k;
    turn = turn + 1;
  end
  suspend;
end""",
    'join_and_sort': 'select first 20 i.name, s.note from sale s join item i on i.id = s.item_id'
                     ' left join category c on c.id = i.category_id and c.id < 60'
                     " where s.note not like '%77' order by i.name, s.note desc",
    'aggregates': 'select i.category_id, count(*), sum(s.quantity * i.price), count(distinct s.day_number) from sale s'
                  ' join item i on i.id + 0 = s.item_id group by i.category_id having count(*) > 3'
                  ' union all select d.quantity, count(*), avg(d.day_number), max(d.note) from (select distinct'
                  ' quantity, day_number, char_length(note) note from sale) d group by d.quantity',
    'triggers': """execute block returns (n integer) as
  declare x integer = 0;
begin
  n = 0;
  while (x < 500) do
  begin
    update stock s set s.quantity = s.quantity - 1 where s.item_id = :x;
    insert into sale values (10000 + :x, :x, mod(:x, 365), 1, 'new');
    x = x + 1;
  end
  delete from sale s where s.id >= 10000 and s.note = 'new';
  n = row_count;
  suspend;
end""",
    'execute_statement': """execute block returns (n integer) as
  declare i integer = 0;
  declare k integer;
begin
  n = 0;
  while (i < 12) do
  begin
    execute statement 'select count(*) from sale s where s.quantity > 3 and s.note like ''%'
      || mod(i, 4) || '%''' into k;
    n = n + k;
    execute statement ('select max(s.quantity) from sale s join item i on i.id = s.item_id where s.day_number between ? and ?')
      (i, i + 20) into k;
    execute statement ('execute block (x integer = ?) returns (y integer) as declare j integer = 0; begin y = 0;
      while (j < 1500) do begin
        y = y + mod(j, x + 7);
        j = j + 1; end
      suspend; end') (i) into k;
    n = n + k;
    i = i + 1;
  end
  suspend;
end""",
    'package_of_texts': 'select char_length(texts.invoice(0, 200)) from rdb$database',
}
