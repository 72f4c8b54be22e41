/* The till of branch 2. */
select rdb$set_context('USER_SESSION', 'BRANCH', '2') from rdb$database;
input till.sql;
