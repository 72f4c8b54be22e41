/*
 * Tests of what people and other programs get to read: CSV quoting, the tables' columns, times with
 * their units, moments, and strings made harmless for a terminal.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../tools/csv.h"
#include "../tools/model.h"
#include "../tools/prof_tables.h"
#include "../tools/table.h"
#include "../tools/text.h"
#include "log_builder.h"
#include "run_suite.h"

static struct sink sink;
static int fd;
static char output[65536];

static void setup(void)
{
	fd = memfd_create("csv", MFD_CLOEXEC);
	sink_open(&sink, fd);
}

static void teardown(void)
{
	close(fd);
}

/* What was written to the sink. */
static const char *written(void)
{
	ssize_t size;

	ck_assert_int_eq(sink_close(&sink), 0);
	size = pread(fd, output, sizeof(output) - 1, 0);
	ck_assert_int_ge(size, 0);
	output[size] = 0;
	return output;
}

/* ---- Quoting ---- */

static const struct {
	const char *text, *field;
} quoting[] = {
	{ NULL, "" },
	{ "", "\"\"" },
	{ "plain", "plain" },
	{ " spaces stay ", " spaces stay " },
	{ "a,b", "\"a,b\"" },
	{ "\"", "\"\"\"\"" },
	{ "say \"hi\", twice", "\"say \"\"hi\"\", twice\"" },
	{ "\"\"", "\"\"\"\"\"\"" },
	{ "two\nlines", "\"two\nlines\"" },
	{ "two\r\nlines", "\"two\r\nlines\"" },
	{ "\r", "\"\r\"" },
	{ "tab\tstays", "tab\tstays" },
	{ "zażółć 🐦", "zażółć 🐦" },
	{ "NULL", "NULL" },
	{ "'", "'" },
	{ ";", ";" },
};

START_TEST(quoted_text)
{
	static const char *const columns[] = { "a", "b", NULL };
	char *expected = g_strdup_printf("a,b\r\n%s,%s\r\n", quoting[_i].field, quoting[_i].field);
	struct csv csv;

	csv_begin(&csv, &sink, columns);
	csv_text(&csv, quoting[_i].text);
	csv_text(&csv, quoting[_i].text);
	csv_end_row(&csv);
	ck_assert_str_eq(written(), expected);
	g_free(expected);
}
END_TEST

START_TEST(other_fields)
{
	static const char *const columns[] = { "a", "b", "c", "d", "e", "f", "g", NULL };
	struct csv csv;

	csv_begin(&csv, &sink, columns);
	csv_signed(&csv, INT64_MIN);
	csv_unsigned(&csv, UINT64_MAX);
	csv_null(&csv);
	csv_id(&csv, 0);
	csv_id(&csv, -1);
	csv_moment(&csv, 0);
	csv_moment(&csv, 1796031881123456789);
	csv_end_row(&csv);
	ck_assert_str_eq(written(), "a,b,c,d,e,f,g\r\n"
				    "-9223372036854775808,18446744073709551615,,,-1,,"
				    "2026-11-30T09:44:41.1234Z\r\n");
}
END_TEST

/* The first error stays, and nothing is written after it. */
START_TEST(full_disk)
{
	struct sink full;
	int device = open("/dev/full", O_WRONLY);

	ck_assert_int_ge(device, 0);
	sink_open(&full, device);
	for (int i = 0; i < 100000; i++)
		sink_put(&full, "something ");
	ck_assert_int_eq(sink_close(&full), ENOSPC);
	close(device);
	written();
}
END_TEST

/* ---- Tables ---- */

static struct model *load(struct log_builder *builder)
{
	char error[LOG_ERROR_SIZE];
	struct model *model = model_new();
	struct log_reader *reader =
		log_reader_open_fd(log_builder_file(builder, builder->size), error);

	ck_assert_ptr_nonnull(reader);
	ck_assert(model_add_reader(model, reader, "/logs/x.fbprof", true));
	log_reader_close(reader);
	log_builder_clear(builder);
	return model;
}

static void build_definitions(struct log_builder *builder, enum log_mode mode)
{
	bool sampled = mode == LOG_MODE_SAMPLED || mode == LOG_MODE_PASSIVE;

	log_builder_session(builder, 1);
	log_builder_session_of_mode(builder, 3, 0, mode, "a, b");
	log_builder_text(builder, 1, 0, "-> Table \"T\" Full Scan");
	log_builder_text(builder, 2, 0, "execute block\nas begin end");
	log_builder_statement(builder, 1, 100, "BLOCK", NULL, NULL, 2);
	log_builder_line(builder, 1, 7, 3, 8);
	log_builder_line(builder, 1, 6, 1, sampled ? 9 : 16);
	log_builder_line(builder, 1, 9, 1, sampled ? 12 : 40); /* never executed */
	log_builder_cursor(builder, 1, 1, NULL, 0, 0);
	log_builder_record_source(builder, 1, 1, 1, 0, sampled ? 10 : 24, 1);
	log_builder_session_end(builder, LOG_END_FINISHED, 1796031882000000000);
}

/* Times are in the call tree; if passive, there is nothing else. */
static void build_sampled(struct log_builder *builder, enum log_mode mode)
{
	const struct log_builder_execution all = {
		.statement = 1,
		.start = 1796031881123456789,
		.cells = { { 0, 5 }, { 1, 7 }, { 8, 50 }, { 9, 9 }, { 11, 500 } },
	};
	const struct log_builder_node nodes[] = {
		{ 0, 1, LOG_NODE_REQUEST, 0, 0, 100, 1, 10, 50 },
		{ 1, 1, LOG_NODE_LINE, 8, 0, 200, 2, 20, 120 },
		{ 2, 1, LOG_NODE_RECORD_SOURCE, 11, 0, 800, 8, 80, 300 },
	};

	log_builder_totals(builder, 1, 11, 1100);
	if (mode == LOG_MODE_SAMPLED)
		log_builder_counters(builder, 1, &all);
	log_builder_nodes(builder, 1, 1, nodes, 3);
	build_definitions(builder, mode);
}

/* Times are with the counters.  The record source's CPU time is more than its time. */
static void build_grouped(struct log_builder *builder, enum log_mode mode)
{
	static const uint64_t coarse[][LOG_GROUP_CELLS] = { { 50, 1000, 200, 500, 120, 100, 20 },
							    { 9 },
							    { 0 },
							    { 500, 800, 800, 900, 900, 80, 80 } };
	static const uint64_t measured[][LOG_GROUP_CELLS] = {
		{ 50, 1000, 200, 0, 0, 4, 300 }, { 9 }, { 0 }, { 500, 800, 800, 0, 0, 1, 7 }
	};
	struct log_builder_execution all = {
		.statement = 1,
		.start = 1796031881123456789,
		.cells = { { LOG_CELL_FINISHED, 5 }, { LOG_CELL_ELAPSED, 1100 } },
	};

	for (uint32_t i = 0; i < 4; i++)
		log_builder_group(&all, 8 + 8 * i,
				  mode == LOG_MODE_COARSE ? coarse[i] : measured[i]);
	log_builder_totals(builder, 1, 11, 1100);
	log_builder_counters(builder, 1, &all);
	build_definitions(builder, mode);
}

static struct model *load_example(enum log_mode mode)
{
	struct log_builder builder;

	log_builder_init(&builder);
	if (mode == LOG_MODE_SAMPLED || mode == LOG_MODE_PASSIVE)
		build_sampled(&builder, mode);
	else
		build_grouped(&builder, mode);
	return load(&builder);
}

static const struct {
	const char *table, *content;
	/* The same in other modes, without the line of titles; NULL: it is the same. */
	const char *coarse, *measured, *passive;
} tables[] = {
	{ "sessions",
	  "profile_id,attachment_id,user_name,description,start_timestamp,finish_timestamp,"
	  "database,mode,sampling_interval,samples,torn_samples,engine,host,log,end_reason,"
	  "cost,line_cost_ps,open_cost_ps,fetch_cost_ps,request_cost_ps,row_cost_ps,stretched\r\n"
	  "3,12,SYSDBA,\"a, b\",2026-11-30T09:44:41.1234Z,2026-11-30T09:44:42.0000Z,"
	  "employee.fdb,sampled,100000,11,3,5.0.4,nowhere,x.fbprof,finished,"
	  "1000,2500,0,3000,100,0,1\r\n",
	  "3,12,SYSDBA,\"a, b\",2026-11-30T09:44:41.1234Z,2026-11-30T09:44:42.0000Z,"
	  "employee.fdb,coarse,100000,,,5.0.4,nowhere,x.fbprof,finished,"
	  "1000,2500,0,3000,100,0,1\r\n",
	  "3,12,SYSDBA,\"a, b\",2026-11-30T09:44:41.1234Z,2026-11-30T09:44:42.0000Z,"
	  "employee.fdb,measured,0,,,5.0.4,nowhere,x.fbprof,finished,,,,,,,\r\n",
	  "3,12,SYSDBA,\"a, b\",2026-11-30T09:44:41.1234Z,2026-11-30T09:44:42.0000Z,"
	  "employee.fdb,passive,100000,11,3,5.0.4,nowhere,x.fbprof,finished,,,,,,,1\r\n" },
	{ "statements",
	  "profile_id,statement_id,parent_statement_id,statement_type,package_name,routine_name,"
	  "sql_text,schema_name\r\n"
	  "3,100,,BLOCK,,,\"execute block\nas begin end\",\r\n",
	  NULL, NULL, NULL },
	{ "cursors",
	  "profile_id,statement_id,cursor_id,name,line_num,column_num\r\n"
	  "3,100,1,,,\r\n",
	  NULL, NULL, NULL },
	{ "record_sources",
	  "profile_id,statement_id,cursor_id,record_source_id,parent_record_source_id,level,"
	  "access_path\r\n"
	  "3,100,1,1,,0,\"-> Table \"\"T\"\" Full Scan\"\r\n",
	  NULL, NULL, NULL },
	{ "requests",
	  "profile_id,statement_id,request_id,caller_statement_id,caller_request_id,"
	  "start_timestamp,finish_timestamp,total_elapsed_time,self_time,samples,finish_count,"
	  "raw_total_time,raw_self_time,cpu_time,self_cpu_time,wait_time,self_wait_time\r\n"
	  "3,100,0,,,2026-11-30T09:44:41.1234Z,,1107,100,1,5,1217,110,470,50,740,60\r\n",
	  "3,100,0,,,2026-11-30T09:44:41.1234Z,,1100,100,,5,1200,,500,,600,\r\n",
	  "3,100,0,,,2026-11-30T09:44:41.1234Z,,1100,100,,5,,,,,,\r\n",
	  "3,100,0,,,,,1100,100,1,,1210,110,470,50,740,60\r\n" },
	{ "psql_stats",
	  "profile_id,statement_id,request_id,line_num,column_num,counter,min_elapsed_time,"
	  "max_elapsed_time,total_elapsed_time,self_time,samples,raw_total_time,raw_self_time,"
	  "cpu_time,self_cpu_time,wait_time,self_wait_time\r\n"
	  "3,100,0,6,1,9,,,0,0,0,0,0,0,0,0,0\r\n"
	  "3,100,0,7,3,50,,,1000,200,2,1100,220,420,120,680,100\r\n",
	  "3,100,0,6,1,9,,,0,0,,0,0,0,0,0,0\r\n"
	  "3,100,0,7,3,50,,,1000,200,,1100,220,500,120,600,100\r\n",
	  "3,100,0,6,1,9,0,0,0,0,,,,,,,\r\n"
	  "3,100,0,7,3,50,4,300,1000,200,,,,,,,\r\n",
	  "3,100,0,6,1,,,,0,0,0,0,0,0,0,0,0\r\n"
	  "3,100,0,7,3,,,,1000,200,2,1100,220,420,120,680,100\r\n"
	  "3,100,0,9,1,,,,0,0,0,0,0,0,0,0,0\r\n" },
	{ "record_source_stats",
	  "profile_id,statement_id,request_id,cursor_id,record_source_id,open_counter,"
	  "open_min_elapsed_time,open_max_elapsed_time,open_total_elapsed_time,fetch_counter,"
	  "fetch_min_elapsed_time,fetch_max_elapsed_time,fetch_total_elapsed_time,"
	  "open_self_time,fetch_self_time,open_samples,fetch_samples,open_raw_total_time,"
	  "fetch_raw_total_time,open_cpu_time,fetch_cpu_time,open_wait_time,fetch_wait_time,"
	  "self_wait_time\r\n"
	  "3,100,0,1,1,0,,,0,500,,,800,0,800,0,8,0,880,0,300,0,580,580\r\n",
	  "3,100,0,1,1,0,,,0,500,,,800,0,800,,,0,880,0,900,0,0,0\r\n",
	  "3,100,0,1,1,0,,,0,500,1,7,800,0,800,,,,,,,,,\r\n",
	  "3,100,0,1,1,,,,0,,,,800,0,800,0,8,0,880,0,300,0,580,580\r\n" },
};

/* A table of a log of any mode. */
static void check_table(unsigned table, enum log_mode mode, const char *content)
{
	struct model *model = load_example(mode);
	const struct prof_table *found = prof_table_find(tables[table].table);
	const char *titles_end = strstr(tables[table].content, "\r\n") + 2;
	char *expected;

	if (!content)
		content = titles_end;
	expected = g_strdup_printf("%.*s%s", (int)(titles_end - tables[table].content),
				   tables[table].content, content);
	ck_assert_ptr_nonnull(found);
	prof_table_write(found, model, &sink);
	ck_assert_str_eq(written(), expected);
	g_free(expected);
	model_free(model);
}

START_TEST(sampled_tables)
{
	check_table((unsigned)_i, LOG_MODE_SAMPLED, NULL);
}
END_TEST

START_TEST(coarse_tables)
{
	check_table((unsigned)_i, LOG_MODE_COARSE, tables[_i].coarse);
}
END_TEST

START_TEST(measured_tables)
{
	check_table((unsigned)_i, LOG_MODE_MEASURED, tables[_i].measured);
}
END_TEST

START_TEST(passive_tables)
{
	check_table((unsigned)_i, LOG_MODE_PASSIVE, tables[_i].passive);
}
END_TEST

/* A recorder that takes no CPU time does not say that all was waited for. */
START_TEST(no_cpu_time)
{
	const struct log_builder_execution all = { .statement = 1,
						   .cells = { { 0, 1 }, { 8, 2 } } };
	const struct log_builder_node nodes[] = {
		{ 0, 1, LOG_NODE_REQUEST, 0, 0, 100, 1, 10, 0 },
		{ 1, 1, LOG_NODE_LINE, 8, 0, 200, 2, 20, 0 },
	};
	struct log_builder builder;
	struct model *model;

	log_builder_init(&builder);
	log_builder_counters(&builder, 1, &all);
	log_builder_nodes(&builder, 1, 1, nodes, 2);
	build_definitions(&builder, LOG_MODE_SAMPLED);
	model = load(&builder);
	prof_table_write(prof_table_find("psql_stats"), model, &sink);
	ck_assert_ptr_nonnull(strstr(written(), "\r\n3,100,0,7,3,2,,,200,200,2,220,220,,,,\r\n"));
	model_free(model);
}
END_TEST

START_TEST(unknown_table)
{
	ck_assert_ptr_null(prof_table_find("plg$prof_sessions"));
	written();
}
END_TEST

/* ---- Text ---- */

START_TEST(times)
{
	static const struct {
		uint64_t nanoseconds;
		const char *text;
	} cases[] = {
		{ 0, "0 ns" },
		{ 999, "999 ns" },
		{ 1000, "1.0 µs" },
		{ 1234567, "1.235 ms" },
		{ 61500000000, "61.500 s" },
		{ UINT64_MAX, "18446744073.710 s" },
	};
	char *text;

	for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
		text = text_lone_time(cases[i].nanoseconds);
		ck_assert_str_eq(text, cases[i].text);
		g_free(text);
	}
	text = text_time(5, text_unit_for(2000000));
	ck_assert_str_eq(text, "0.000 ms");
	g_free(text);
	written();
}
END_TEST

START_TEST(moments)
{
	static const struct {
		int64_t nanoseconds;
		const char *text;
	} cases[] = {
		{ 0, "1970-01-01T00:00:00.0000Z" },
		{ -1, "1969-12-31T23:59:59.9999Z" },
		{ 951782400000000000, "2000-02-29T00:00:00.0000Z" },
		{ INT64_MAX, "2262-04-11T23:47:16.8547Z" },
		{ INT64_MIN, "1677-09-21T00:12:43.1452Z" },
	};

	for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
		char *text = text_moment(cases[i].nanoseconds);

		ck_assert_str_eq(text, cases[i].text);
		g_free(text);
	}
	written();
}
END_TEST

START_TEST(harmless_lines)
{
	static const struct {
		const char *text, *line;
	} cases[] = {
		{ "  a \t\r\n b  ", "a b" },
		{ "\033[31mred\007", "\\u001b[31mred\\u0007" },
		{ "\xc2\x9b"
		  "csi",
		  "\\u009bcsi" },
		{ "abc\xe2\x80\xae"
		  "def",
		  "abc\\u202edef" },
		{ "żółć", "żółć" },
		{ "", "" },
	};

	for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
		char *line = text_line(cases[i].text);

		ck_assert_str_eq(line, cases[i].line);
		g_free(line);
	}
	written();
}
END_TEST

START_TEST(truncated_text)
{
	static const struct {
		const char *text;
		unsigned width;
		const char *cut;
	} cases[] = {
		{ "abcdef", 6, "abcdef" }, { "abcdef", 5, "abcd…" }, { "żółwie", 3, "żó…" },
		{ "日本語", 6, "日本語" }, { "日本語", 5, "日本…" }, { "日本語", 4, "日…" },
		{ "abc", 1, "…" },	   { "abc", 0, "" },
	};

	for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
		GString *text = g_string_new(cases[i].text);

		text_truncate(text, cases[i].width);
		ck_assert_str_eq(text->str, cases[i].cut);
		g_string_free(text, TRUE);
	}
	written();
}
END_TEST

START_TEST(aligned_table)
{
	static const struct table_column columns[] = { { "n", TRUE },
						       { "name", FALSE },
						       { "where", FALSE } };
	struct table *table = table_new(columns, 3);

	table_add(table, g_strdup("1"), NULL);
	table_add(table, g_strdup("żółw"), "31");
	table_add(table, g_strdup("somewhere far away"), NULL);
	table_add(table, g_strdup("1000"), NULL);
	table_add(table, g_strdup("b"), NULL);
	table_add(table, g_strdup("here"), NULL);
	table_print(table, &sink, 24);
	table_free(table);
	ck_assert_str_eq(written(), "   n  name  where\n"
				    "   1  \033[31mżółw\033[0m  somewhere f…\n"
				    "1000  b     here\n");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("csv");
	TCase *csv = tcase_create("csv"), *text = tcase_create("text");

	tcase_add_checked_fixture(csv, setup, teardown);
	tcase_add_loop_test(csv, quoted_text, 0, G_N_ELEMENTS(quoting));
	tcase_add_test(csv, other_fields);
	tcase_add_test(csv, full_disk);
	tcase_add_loop_test(csv, sampled_tables, 0, G_N_ELEMENTS(tables));
	tcase_add_loop_test(csv, coarse_tables, 0, G_N_ELEMENTS(tables));
	tcase_add_loop_test(csv, measured_tables, 0, G_N_ELEMENTS(tables));
	tcase_add_loop_test(csv, passive_tables, 0, G_N_ELEMENTS(tables));
	tcase_add_test(csv, no_cpu_time);
	tcase_add_test(csv, unknown_table);
	suite_add_tcase(suite, csv);

	tcase_add_checked_fixture(text, setup, teardown);
	tcase_add_test(text, times);
	tcase_add_test(text, moments);
	tcase_add_test(text, harmless_lines);
	tcase_add_test(text, truncated_text);
	tcase_add_test(text, aligned_table);
	suite_add_tcase(suite, text);

	return run_suite(suite);
}
