/*
 * The workloads: see calibration_sql.h.  Lines, columns and the lengths of names and texts are
 * various on purpose.
 */
#include "calibration_sql.h"

#include <stddef.h>

#define GATE_TABLE    "create table gates (id integer not null primary key, hits integer)"
#define GATE_SEQUENCE "create sequence gate"
#define NOTE_GATE     "hits = rdb$set_context('USER_SESSION', 'GATE', :g)"
#define PASS_GATE     "g = gen_id(gate, 1); update gates set " NOTE_GATE " where id = :g;"
#define PASS_GATE_BELOW \
	"g = gen_id(gate, 1);\n\n  update gates\n    set " NOTE_GATE " where id = :g;"

/* Some 1200 characters. */
#define LONG_REMARK \
	"/* " REMARK_PART REMARK_PART REMARK_PART REMARK_PART REMARK_PART REMARK_PART " */"
#define REMARK_PART                                                                                \
	"A text that is far longer than what a string object can hold in itself, so that it lies " \
	"in memory of its own, which is where texts of real programs are; and so on and so on. "

/* ---- To learn from ---- */

static const char *const learning_definitions[] = {
	GATE_TABLE,
	GATE_SEQUENCE,
	"create table items (id integer not null primary key, amount integer, note varchar(100))",
	"create exception expected_failure 'This is meant to fail'",

	"create function fibonacci (n integer) returns integer as\n"
	"begin\n"
	"  if (n < 2) then\n"
	"    return n;\n"
	"  return fibonacci(n - 1) +\n"
	"         fibonacci(n - 2);\n"
	"end",

	"create function gated (n integer) returns integer as\n"
	"  declare g integer;\n"
	"begin\n"
	"  n = n + 1;\n"
	"        " PASS_GATE "\n"
	"  return n * 2;\n"
	"end",

	"create procedure numbers (first_one integer, last_one integer)\n"
	"returns (n integer)\n"
	"as\n"
	"begin\n"
	"  n = first_one;\n"
	"  while (n <= last_one) do\n"
	"  begin\n"
	"    suspend;\n"
	"      n = n + 1;\n"
	"  end\n"
	"end",

	"create procedure descend (depth integer) as\n"
	"  declare g integer;\n"
	"begin\n"
	"  if (depth > 0) then\n"
	"     execute procedure descend(depth - 1);\n"
	"  else\n"
	"  begin\n"
	"   " PASS_GATE_BELOW "\n"
	"  end\n"
	"  depth = depth - 1;\n"
	"end",

	"create trigger items_before for items active before insert position 1 as\n"
	"  declare g integer;\n"
	"begin\n"
	"  new.note = 'item ' || new.id;\n"
	"  " PASS_GATE "\n"
	"end",

	"create trigger items_after_anything_at_all for items\n"
	"active after insert or update or delete position 3 as\n"
	"  declare x integer;\n"
	"begin\n"
	"\n"
	"  if (deleting) then x = 0;\n"
	"  else x = fibonacci(3);\n"
	"end",

	"create package calc as\n"
	"begin\n"
	"  function doubled (n integer) returns integer;\n"
	"  procedure fill (first_one integer, n integer);\n"
	"end",

	"create package body calc as\n"
	"begin\n"
	"  function hidden (n integer) returns integer as\n"
	"    declare g integer;\n"
	"  begin\n"
	"    " PASS_GATE "\n"
	"    return gated(n);\n"
	"  end\n"
	"\n"
	"  function doubled (n integer) returns integer as\n"
	"  begin\n"
	"    return hidden(n) + hidden(n + 1);\n"
	"  end\n"
	"\n"
	"  procedure fill (first_one integer, n integer) as\n"
	"    declare g integer;\n"
	"  begin\n"
	"    while (n > 0) do\n"
	"    begin\n"
	"      insert into items (id, amount) values (:first_one, :n);\n"
	"      first_one = first_one + 1;\n"
	"        n = n - 1;\n"
	"    end\n"
	"            " PASS_GATE "\n"
	"  end\n"
	"end",

	"create procedure fails_and_recovers (n integer) as\n"
	"  declare x integer;\n"
	"begin\n"
	"  while (n > 0) do\n"
	"  begin\n"
	"    n = n - 1;\n"
	"    begin\n"
	"      x = calc.doubled(n);\n"
	"      if (mod(n, 2) = 0) then\n"
	"        exception expected_failure;\n"
	"      x = 1 / (n - n);\n"
	"    when any do\n"
	"      begin\n"
	"        x = fibonacci(2);\n"
	"      end\n"
	"    end\n"
	"  end\n"
	"end",
	NULL
};

static const char *const learning_statements[] = {
	"execute procedure calc.fill(100, 6)",

	"execute block as declare g integer; begin " PASS_GATE " end",

	"execute block as\n"
	"  declare g integer;\n"
	"  declare i integer = 0;\n"
	"  declare total integer = 0;\n"
	"begin\n"
	"  " LONG_REMARK "\n"
	"  while (i < 5) do\n"
	"  begin\n"
	"    i = i + 1;\n"
	"       " PASS_GATE_BELOW "\n"
	"    execute procedure descend(i);\n"
	"      total = total + calc.doubled(i);\n"
	"  end\n"
	"end",

	"execute block as\n"
	"  declare x integer;\n"
	"  declare function local_one (n integer) returns integer as\n"
	"  begin\n"
	"    return fibonacci(n + 1);\n"
	"  end\n"
	"begin\n"
	"  for select n from numbers(1, 8) where mod(n, 2) = 1 into :x do\n"
	"    x = local_one(x);\n"
	"  execute statement 'execute procedure fails_and_recovers(4)';\n"
	"  execute statement ('select count(*) from items where id > ?') (x) into x;\n"
	"end",

	/*
	 * Between the caller and the called there is another request, which waits to be fetched
	 * from.
	 */
	"execute block as declare x integer; declare g integer;\n"
	"begin\n"
	"  for select n from numbers(1, 3) into :x do\n"
	"  begin\n"
	"    x = gated(x);\n"
	"    execute procedure descend(2);\n"
	"  end\n"
	"end",

	"execute procedure fails_and_recovers(6)", "execute procedure descend(40)",
	"select cast(sum(fibonacci(n)) as varchar(20)) from numbers(1, 7)",
	"select cast(sum(gated(id) + id) as varchar(20)) " LONG_REMARK
	" from items where amount > 2",
	"update items set amount = amount + 1", "delete from items", NULL
};

const struct calibration_workload calibration_learning = { learning_definitions,
							   learning_statements };

/* ---- To verify with ---- */

static const char *const verifying_definitions[] = {
	GATE_TABLE, GATE_SEQUENCE,
	"create table orders (number integer not null primary key, total integer)",
	"create table order_lines (order_number integer not null, line_number integer not null,\n"
	"price integer, primary key (order_number, line_number))",
	"create exception no_stock 'There is none'",

	"create function ackermann (m integer, n integer)\n"
	"returns integer\n"
	"as\n"
	"begin\n"
	"\n"
	"  if (m = 0) then return n + 1;\n"
	"  if (n = 0) then\n"
	"                return ackermann(m - 1, 1);\n"
	"  return ackermann(m - 1, ackermann(m, n - 1));\n"
	"end",

	"create function price_of (order_number integer) returns integer as\n"
	"  declare result integer;\n"
	"  declare g integer;\n"
	"begin\n"
	"  select sum(price) from order_lines where order_number = :order_number\n"
	"    into :result;\n"
	" " PASS_GATE "\n"
	"  return coalesce(result, 0);\n"
	"end",

	/* No gate: MON$CALL_STACK does not know which of two such is executing. */
	"create procedure p (a integer) returns (b integer) as begin\n"
	"b = a;\n"
	"while (b > 0) do begin b = b - 1; suspend; end \n"
	"end",

	"create trigger t1 for order_lines active after insert position 10 as\n"
	"  declare g integer;\n"
	"begin\n"
	"  if (new.price < 0) then exception no_stock 'none left';\n"
	"  update orders set total = total + new.price where number = new.order_number;\n"
	"                    " PASS_GATE_BELOW "\n"
	"end",

	"create trigger totals_are_not_negative_ever for orders\n"
	"active before update as\n"
	"begin\n"
	"     if (new.total < 0) then\n"
	"  new.total = 0;\n"
	"  new.total = new.total + ackermann(1, 1) * 0;\n"
	"end",

	"create package warehouse_of_a_larger_firm as\n"
	"begin\n"
	"  procedure book (order_number integer, positions integer) returns (total integer);\n"
	"end",

	"create package body warehouse_of_a_larger_firm as\n"
	"begin\n"
	"  procedure position_ (order_number integer, number integer) as\n"
	"  begin\n"
	"    insert into order_lines values (:order_number, :number, :number * 10);\n"
	"    when any do\n"
	"    begin\n"
	"      number = -1;\n"
	"    end\n"
	"  end\n"
	"\n"
	"  procedure book (order_number integer, positions integer) returns (total integer) as\n"
	"    declare i integer = 0;\n"
	"  begin\n"
	"    insert into orders values (:order_number, 0);\n"
	"\n"
	"\n"
	"    while (i < positions) do\n"
	"    begin\n"
	"      i = i + 1;\n"
	"                                   execute procedure position_(order_number, i);\n"
	"    end\n"
	"    total = price_of(order_number);\n"
	"  end\n"
	"end",
	NULL
};

static const char *const verifying_statements[] = {
	"execute block as declare o integer = 0; declare t integer;\n"
	"begin\n"
	"  while (o < 8) do\n"
	"  begin\n"
	"    o = o + 1;\n"
	"    execute procedure warehouse_of_a_larger_firm.book(o, 4) returning_values t;\n"
	"  end\n"
	"end",

	"execute block as declare x integer; declare y integer; declare g integer; begin\n"
	"  x = ackermann(2, 3);\n"
	"  for select first 3 b from p(4) into :x do\n"
	"  begin\n"
	"     for select b from p(:x) order by b into :y do y = ackermann(1, :y);\n"
	"         " PASS_GATE "\n"
	"  end\n"
	"  execute statement 'execute block as declare z integer; begin z = ackermann(2, 2); end';\n"
	"  execute statement 'select max(price_of(number)) from orders' into x;\n"
	"  in autonomous transaction do x = price_of(-1);\n"
	"end",

	"select cast(max(price_of(number)) as varchar(30)) from orders where total >= 0",
	"select cast(list(a.b) as varchar(2000)) from p(5) a join p(6) c on a.b = c.b",
	"execute block as begin insert into order_lines values (1, 1, -1); when any do exit; end",
	"execute block as declare x integer; begin " LONG_REMARK
	" x = ackermann(2, 6); while (x > 0) do x = x - 1; end",
	"delete from order_lines where price > 0",
	"delete from orders",
	NULL
};

const struct calibration_workload calibration_verifying = { verifying_definitions,
							    verifying_statements };
