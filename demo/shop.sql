/*
 * The demo's shop: two branches, 1500 products in a tree of categories, 500 customers, orders. All data is computed, so
 * that every run counts the same.
 *
 * Three slow spots are seeded. The report must show them as the first three lines, in this order; demo.sh checks it, and
 * finds their line numbers by the comments "SLOW SPOT".
 *
 *   1  SALES.SLOW_MOVERS: ORDER_LINES has no index on PRODUCT_ID, so all of it is read for each product of a category.
 *      About 40 % of all time. With rows for record sources, "Table "ORDER_LINES" as "L" Full Scan" comes first.
 *      Cure: create index order_lines_product on order_lines (product_id).
 *   2  INVOICES.CHECKSUM: takes a long UTF-8 text apart by SUBSTRING, which counts characters from the text's start
 *      each time: the time grows with the square of the length. About 20 % in this one line.
 *      Cure: crypt_hash, or a single-byte character set.
 *   3  CATEGORY_PATH: climbs to the root of the tree by calling itself, for each product anew, though there are but 364
 *      categories. About 10 % in this one line, and as much again in the calls.
 *      Cure: keep the path in CATEGORIES.
 *
 * The rest is honest work that must come out as small: triggers, nested procedures, look-ups by primary key.
 */

create table categories (
  id integer not null primary key,
  parent_id integer references categories,
  name varchar(40) not null
);

create table products (
  id integer not null primary key,
  category_id integer not null references categories,
  name varchar(60) not null,
  price numeric(10, 2) not null
);

create table customers (
  id integer not null primary key,
  name varchar(60) not null,
  discount numeric(4, 2) default 0 not null,
  order_count integer default 0 not null
);

create table orders (
  id integer not null primary key,
  branch integer not null,
  customer_id integer not null references customers,
  total numeric(12, 2) default 0 not null,
  invoice_sum integer
);

create table order_lines (
  order_id integer not null references orders,
  line_number integer not null,
  product_id integer not null, -- neither foreign key nor index: the first slow spot
  quantity integer not null,
  price numeric(10, 2) not null,
  primary key (order_id, line_number)
);

create table stock (
  branch integer not null,
  product_id integer not null references products,
  quantity integer not null,
  primary key (branch, product_id)
);

create table stock_moves (
  branch integer not null,
  product_id integer not null,
  quantity integer not null,
  order_id integer
);

create sequence order_ids;
create exception out_of_stock 'Product @1 is out of stock';

commit;

set term ^ ;

create function category_path (id integer) returns varchar(400) as
  declare parent_id integer;
  declare name varchar(40);
begin
  select c.parent_id, c.name from categories c where c.id = :id into parent_id, name; -- SLOW SPOT 3
  if (parent_id is null) then
    return name;
  return category_path(parent_id) || ' / ' || name;
end^

create procedure catalogue (first_product integer, last_product integer)
  returns (product_id integer, name varchar(60), path varchar(400), price numeric(10, 2)) as
  declare category_id integer;
begin
  for select p.id, p.name, p.category_id, p.price
      from products p
      where p.id between :first_product and :last_product
      order by p.name
      into product_id, name, category_id, price
  do
  begin
    path = category_path(category_id);
    suspend;
  end
end^

create procedure take_from_stock (branch integer, product_id integer, quantity integer) as
  declare available integer;
begin
  select s.quantity from stock s
    where s.branch = :branch and s.product_id = :product_id
    into available;
  if (available < quantity) then
    exception out_of_stock using (product_id);
  update stock s set s.quantity = s.quantity - :quantity
    where s.branch = :branch and s.product_id = :product_id;
end^

create trigger orders_before_insert for orders before insert as
begin
  if (new.id is null) then
    new.id = next value for order_ids;
end^

create trigger orders_after_insert for orders after insert as
begin
  update customers c set c.order_count = c.order_count + 1 where c.id = new.customer_id;
end^

create trigger order_lines_after_insert for order_lines after insert as
  declare branch integer;
begin
  select o.branch from orders o where o.id = new.order_id into branch;
  if (branch > 0) then
  begin
    execute procedure take_from_stock(branch, new.product_id, new.quantity);
    insert into stock_moves (branch, product_id, quantity, order_id)
      values (:branch, new.product_id, -new.quantity, new.order_id);
  end
end^

create package invoices as
begin
  function invoice_text (order_id integer) returns varchar(8000);
  function checksum (text varchar(8000)) returns integer;
end^

create package body invoices as
begin
  function invoice_text (order_id integer) returns varchar(8000) as
    declare text varchar(8000);
    declare name varchar(60);
    declare quantity integer;
    declare price numeric(10, 2);
  begin
    text = 'Rechnung № ' || order_id;
    for select p.name, l.quantity, l.price
        from order_lines l join products p on p.id = l.product_id
        where l.order_id = :order_id
        order by l.line_number
        into name, quantity, price
    do
      text = text || ascii_char(10) || quantity || ' × ' || rpad(name, 110, '.') || ' ' || price || ' €';
    return text;
  end

  function checksum (text varchar(8000)) returns integer as
    declare i integer = 1;
    declare size integer;
    declare result integer = 0;
  begin
    size = char_length(text);
    while (i <= size) do
    begin
      result = mod(result * 31 + unicode_val(substring(text from i for 1)), 1000003); -- SLOW SPOT 2
      i = i + 1;
    end
    return result;
  end
end^

create package shop as
begin
  procedure place_order (branch integer, customer_id integer, first_product integer, line_count integer)
    returns (order_id integer, total numeric(12, 2));
end^

create package body shop as
begin
  procedure place_order (branch integer, customer_id integer, first_product integer, line_count integer)
    returns (order_id integer, total numeric(12, 2)) as
    declare discount numeric(4, 2);
    declare n integer = 1;

    declare function price_of (product_id integer, discount numeric(4, 2)) returns numeric(10, 2) as
      declare price numeric(10, 2);
    begin
      select p.price from products p where p.id = :product_id into price;
      return price * (1 - discount);
    end

    declare procedure add_line (order_id integer, line_number integer, product_id integer, discount numeric(4, 2))
      returns (amount numeric(12, 2)) as
      declare price numeric(10, 2);
      declare quantity integer;
    begin
      price = price_of(product_id, discount);
      quantity = 1 + mod(product_id, 3);
      insert into order_lines (order_id, line_number, product_id, quantity, price)
        values (:order_id, :line_number, :product_id, :quantity, :price);
      amount = price * quantity;
    end

    declare amount numeric(12, 2);
  begin
    total = 0;
    select c.discount from customers c where c.id = :customer_id into discount;
    insert into orders (branch, customer_id) values (:branch, :customer_id) returning id into order_id;
    while (n <= line_count) do
    begin
      execute procedure add_line(order_id, n, 1 + mod(first_product + n * 7, 1500), discount)
        returning_values amount;
      total = total + amount;
      n = n + 1;
    end
    update orders o set o.total = :total, o.invoice_sum = invoices.checksum(invoices.invoice_text(:order_id))
      where o.id = :order_id;
  end
end^

create package sales as
begin
  procedure slow_movers (category_id integer, below integer)
    returns (product_id integer, name varchar(60), sold bigint);
  procedure best_customers (how_many integer)
    returns (name varchar(60), amount numeric(12, 2));
end^

create package body sales as
begin
  procedure slow_movers (category_id integer, below integer)
    returns (product_id integer, name varchar(60), sold bigint) as
  begin
    for select p.id, p.name, coalesce(sum(l.quantity), 0) -- SLOW SPOT 1
        from products p
          left join order_lines l on l.product_id = p.id
        where p.category_id = :category_id
        group by p.id, p.name
        into product_id, name, sold
    do
      if (sold < below) then
        suspend;
  end

  procedure best_customers (how_many integer)
    returns (name varchar(60), amount numeric(12, 2)) as
  begin
    for select c.name, sum(o.total)
        from orders o join customers c on c.id = o.customer_id
        group by c.name
        order by 2 desc, 1
        rows :how_many
        into name, amount
    do
      suspend;
  end
end^

/* A tree of categories 6 levels deep: each has 3 below it. */
execute block as
  declare id integer = 1;
begin
  insert into categories values (1, null, 'Everything');
  while (id < 364) do
  begin
    id = id + 1;
    insert into categories values (:id, (:id + 1) / 3, 'Category ' || :id);
  end
end^

/* Products hang on the leaves of the tree, 122 to 364: some 6 on each. */
execute block as
  declare id integer = 1;
begin
  while (id <= 1500) do
  begin
    insert into products values (:id, 122 + mod(:id * 7, 243), 'Grüner Tee № ' || :id || ', 100 g', 1 + mod(:id, 97) * 0.25);
    insert into stock values (1, :id, 1000000);
    insert into stock values (2, :id, 1000000);
    id = id + 1;
  end
  id = 1;
  while (id <= 500) do
  begin
    insert into customers (id, name, discount) values (:id, 'Customer ' || :id, mod(:id, 4) * 0.05);
    id = id + 1;
  end
end^

commit^

/* Last year's orders, taken over from the old system: branch 0, no stock. */
execute block as
  declare id integer = 0;
  declare n integer;
begin
  while (id < 3000) do
  begin
    id = next value for order_ids;
    insert into orders (id, branch, customer_id, total) values (:id, 0, 1 + mod(:id * 3, 500), 27.50);
    n = 1;
    while (n <= 5) do
    begin
      insert into order_lines values (:id, :n, 1 + mod(:id * 5 + :n * 11, 1500), 1 + mod(:n, 3), 2.50);
      n = n + 1;
    end
  end
end^

commit^

/* Else the optimizer would know the indexes of empty tables only. */
execute block as
  declare index_name type of column rdb$indices.rdb$index_name;
begin
  for select trim(i.rdb$index_name) from rdb$indices i where i.rdb$system_flag = 0 into index_name do
    execute statement 'set statistics index "' || index_name || '"';
end^

commit^
