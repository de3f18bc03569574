attach database '/tmp/x.db' as y
--
attach ':memory:' as y
--
detach database main
--
pragma table_info(a)
--
pragma database_list
--
pragma temp_store_directory = '/tmp'
--
pragma hard_heap_limit = 0
--
pragma writable_schema = on
--
pragma trusted_schema = on
--
pragma journal_mode = wal
--
select * from pragma_table_info('a')
--
select count(*) as x from pragma_database_list
--
select 1 as x from pragma_function_list
--
select 1 as x from pragma_hard_heap_limit(1)
--
vacuum
--
vacuum into '/tmp/stolen.db'
--
analyze
--
reindex
--
begin
--
commit
--
rollback
--
savepoint s
--
release s
--
insert into a(v) values (1)
--
insert into a select * from a
--
update a set v = 0
--
delete from a
--
replace into a(v) values (1)
--
insert into a(v) values (1) returning v as x
--
delete from a returning v as x
--
drop table a
--
drop table a_samples
--
alter table a rename to b
--
alter table a add column z
--
create table z(x)
--
create temp table z as select * from a
--
create table z as select * from a
--
create index i on a(v)
--
create view z as select * from a
--
create temp view z as select 1
--
create trigger z after insert on a begin select 1; end
--
create virtual table z using fts5(x)
--
create virtual table z using fts3(x, tokenize=simple)
--
create virtual table z using dbstat
--
create virtual table temp.z using rtree(a, b, c)
--
select load_extension('/tmp/evil.so') as x
--
select load_extension('/tmp/evil.so', 'init') as x
--
select writefile('/tmp/x', 'y') as x
--
select readfile('/etc/passwd') as x
--
select edit('x') as x
--
select fts3_tokenizer('simple') as x
--
select fts3_tokenizer('simple', x'4141414141414141') as x
--
select * from fts3tokenize('simple', 'x')
--
select count(*) as x from fts3tokenize('simple', 'x')
--
select matchinfo(a) as x from a
--
select snippet(a) as x from a
--
select optimize(a) as x from a
--
select fts5(null) as x
--
select fts5_source_id() as x
--
select bm25(a) as x from a
--
select rtreecheck('main', 'a') as x
--
select rtreenode(2, x'00') as x
--
select length(randomblob(1000000000)) as x
--
select length(zeroblob(1000000000)) as x
--
select randomblob(10) as x
--
select zeroblob(1000000) as x
--
select random() as x
--
select sqlite_version() as x
--
select sqlite_source_id() as x
--
select sqlite_compileoption_get(1) as x
--
select sqlite_compileoption_used('x') as x
--
select sqlite_log(1, 'x') as x
--
select sqlite_offset(v) as x from a
--
select last_insert_rowid() as x
--
select changes() as x
--
select total_changes() as x
--
select name as x from sqlite_master
--
select count(*) as x from sqlite_master
--
select name as x from sqlite_schema
--
select sql as x from sqlite_temp_master
--
select 1 as x from main.sqlite_schema
--
select 1 as x from sqlite_stat1
--
select pageno as x from dbstat
--
select count(*) as x from dbstat
--
select 1 as x from sqlite_dbpage
--
select 1 as x from bytecode('select 1')
--
select value as x from json_each('[1,2,3]')
--
select count(*) as x from json_tree('[1,2,3]')
--
select count(*) as x from generate_series(1, 1000000000)
--
with recursive c(n) as (select 1 union all select n + 1 from c) select count(*) as x from c
--
with recursive c(n) as (values(1) union all select n + 1 from c limit 5) select n as x from c
--
with c(n) as (select 1 union all select n + 1 from c) select max(n) as x from c
--
with recursive c(s) as (select 'x' union all select s || s from c) select length(s) as x from c
--
with recursive p(a, b) as (select 1, 1 union select b, a + b from p) select a as x from p
--
select count(*) as x from a, a b, a c, a d
--
select count(*) as x from a_samples, a_samples b, a_samples c
--
select length(group_concat(a.t)) as x from a, a b, a c
--
select length(string_agg(a.t, ',')) as x from a, a b, a c
--
select group_concat(a.t || b.t || c.t) as x from a, a b, a c
--
select max(a.t || b.t || c.v || d.v) as x from a, a b, a c, a d
--
select distinct a.v * b.v * c.v * d.v as x from a, a b, a c, a d
--
select a.t || b.t || c.t || d.t as x from a, a b, a c, a d order by 1
--
select printf('%1000000000d', 1) as x
--
select printf('%.*c', 1000000000, 'x') as x
--
select format('%2000000s', 'x') as x
--
select hex(replace(printf('%0600000d', 0), '0', 'xx')) as x
--
select replace(printf('%0900000d', 0), '0', 'xyz') as x
--
select replace(replace(replace(printf('%0100000d', 0), '0', '000'), '0', '000'), '0', '000') as x
--
select trim(printf('%0900000d', 0), printf('%0900d', 1)) as x
--
select 'a' like printf('%0100d', 0) as x
--
select 'a' glob printf('%0100d', 0) as x
--
select json_group_array(a.t) as x from a, a b, a c
--
select json_set('{}', '$.a', 1) as x
--
select json_patch('{}', '{}') as x
--
select 1 as x; drop table a
--
select 1 as x; select 2 as x
--
explain select 1 as x
--
explain query plan select 1 as x
--
select ? as x
--
select :name as x
--
select x from nowhere
--
select v as x from other.a
--
select v as x from temp.a
--
select unknown_column as x from a
--
select "no such text" as x from a
--
selec v as x from a
--
select (((v as x from a
--

--
;
--
-- only a comment
--
/* only a comment */
--
select 1e999 as x, 1e999 as y where
--
select count(*) as x from a indexed by i
--
select v as x from a where v match 'x'
--
select v as x from a where t regexp '(a+)+$'
--
select raise(abort, 'x') as x
--
select soundex(t) as x from a
--
select unistr('\0041') as x
--
select unhex('41') as x
--
select 'text' as x
--
select x'00' as x
--
select abs(-9223372036854775808) as x
--
select sum(9223372036854775807) as x from a
