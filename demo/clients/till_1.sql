/* The till of branch 1. */
select rdb$set_context('USER_SESSION', 'BRANCH', '1') from rdb$database;
input till.sql;
