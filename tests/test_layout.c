/*
 * Identity and cache of layouts: what is saved is loaded, and nothing else is.
 */
#include "../passive/layout.h"
#include "../passive/sha256.h"
#include "run_suite.h"
#include "scratch.h"

#include <check.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char error[LAYOUT_ERROR_SIZE];

/* With a path for each fact, and a plan. */
static struct layout make_layout(void)
{
	struct layout layout = { .verified = 12345, .engine = "LI-V5.0.4.1 Firebird 5.0" };

	memset(layout.identity, 'a', LAYOUT_IDENTITY_SIZE - 1);
	for (unsigned i = 0; i < LAYOUT_FACTS; i++) {
		struct layout_path *path = &layout.path[i];

		path->type = i < LAYOUT_OBJECTS || i == LAYOUT_OUTER ? LAYOUT_POINTER :
								       LAYOUT_U32 + i % 5;
		path->steps = 1 + i % LAYOUT_STEPS;
		path->length = path->type == LAYOUT_TEXT ? 8 : 0;
		for (unsigned step = 0; step < path->steps; step++)
			path->offset[step] = (int32_t)(8 * i + step) - 16;
	}
	layout.plan_functions = 2;
	layout.plan[0] = (struct layout_plan_function){ 16, 32, LAYOUT_PLAN_OPEN, 13, 0, -1 };
	layout.plan[1] = (struct layout_plan_function){ 1ull << 40, 1ull << 41, LAYOUT_PLAN_FETCH,
							3,	    -24,	5 };
	return layout;
}

static char *saved_path(void)
{
	return g_strdup_printf("%s/%s.layout", scratch, make_layout().identity);
}

static void save_one(void)
{
	struct layout layout = make_layout();

	ck_assert_msg(layout_save(&layout, scratch, error), "%s", error);
}

static bool load_one(void)
{
	struct layout layout;

	memset(error, 0, sizeof(error));
	return layout_load(&layout, scratch, make_layout().identity, error);
}

START_TEST(sums)
{
	for (unsigned size = 0; size < 300; size++) {
		unsigned char data[300];
		char hex[SHA256_HEX_SIZE], *wanted;
		struct sha256 sha;

		for (unsigned i = 0; i < size; i++)
			data[i] = (unsigned char)(i * 7 + size);
		sha256_init(&sha);
		sha256_add(&sha, data, size / 3);
		sha256_add(&sha, data + size / 3, size - size / 3);
		sha256_hex(&sha, hex);
		wanted = g_compute_checksum_for_data(G_CHECKSUM_SHA256, data, size);
		ck_assert_str_eq(hex, wanted);
		g_free(wanted);
	}
}
END_TEST

START_TEST(identity)
{
	char identity[LAYOUT_IDENTITY_SIZE], *wanted, *data;
	const char *path = scratch_path("engine");
	gsize size = 200000;

	data = g_malloc0(size);
	ck_assert(g_file_set_contents(path, data, (gssize)size, NULL));
	ck_assert_msg(layout_identify(path, identity, error), "%s", error);
	wanted = g_compute_checksum_for_data(G_CHECKSUM_SHA256, (guchar *)data, size);
	ck_assert_str_eq(identity, wanted);
	ck_assert(!layout_identify(scratch_path("none"), identity, error));
	ck_assert_ptr_nonnull(strstr(error, "none: cannot be read"));
	ck_assert(!layout_identify(scratch, identity, error));
	g_free(wanted);
	g_free(data);
}
END_TEST

START_TEST(saved_is_loaded)
{
	struct layout layout = make_layout(), loaded;

	save_one();
	ck_assert_msg(layout_load(&loaded, scratch, layout.identity, error), "%s", error);
	ck_assert_mem_eq(&layout, &loaded, sizeof(layout));
	/* Once more in place of it, and from the environment. */
	layout.verified++;
	ck_assert_msg(layout_save(&layout, scratch, error), "%s", error);
	setenv("FBPROF_CACHE", scratch, 1);
	ck_assert_msg(layout_load(&loaded, NULL, layout.identity, error), "%s", error);
	ck_assert_uint_eq(loaded.verified, layout.verified);
	unsetenv("FBPROF_CACHE");
}
END_TEST

START_TEST(directories)
{
	struct layout layout = make_layout(), loaded;
	char *below = g_build_filename(scratch, "a/b", NULL);

	setenv("XDG_CACHE_HOME", below, 1);
	ck_assert_msg(layout_save(&layout, NULL, error), "%s", error);
	ck_assert_msg(layout_load(&loaded, NULL, layout.identity, error), "%s", error);
	g_free(below);
	below = g_build_filename(scratch, "a/b/fbprof", NULL);
	ck_assert_msg(layout_load(&loaded, below, layout.identity, error), "%s", error);
	g_free(below);
	unsetenv("XDG_CACHE_HOME");
	unsetenv("HOME");
	ck_assert(!layout_load(&loaded, NULL, layout.identity, error));
	ck_assert_ptr_nonnull(strstr(error, "set FBPROF_CACHE"));
	ck_assert(cache_may_save(scratch, error));
	ck_assert(!cache_may_save("/dev/null/here", error));
	ck_assert_ptr_nonnull(strstr(error, "cannot be written"));
	ck_assert(!layout_save(&layout, "/dev/null/here", error));
	ck_assert_ptr_nonnull(strstr(error, "cannot be written"));
}
END_TEST

START_TEST(missing)
{
	ck_assert(!load_one());
	ck_assert_ptr_nonnull(strstr(error, "run fbprof calibrate"));
	ck_assert_ptr_null(strchr(error, '\n'));
}
END_TEST

START_TEST(foreign)
{
	struct layout layout = make_layout();
	char *own = saved_path(), *other;

	save_one();
	layout.identity[0] = 'b';
	other = g_strdup_printf("%s/%s.layout", scratch, layout.identity);
	ck_assert_int_eq(rename(own, other), 0);
	ck_assert(!layout_load(&layout, scratch, make_layout().identity, error));
	layout.identity[0] = 'b';
	memset(layout.identity + 1, 'a', LAYOUT_IDENTITY_SIZE - 2);
	ck_assert(!layout_load(&layout, scratch,
			       "baaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
			       error));
	ck_assert_ptr_nonnull(strstr(error, "another engine"));
	g_free(own);
	g_free(other);
}
END_TEST

/* Without waiting for the disk: it is written thousands of times. */
static void write_over(const char *path, const char *text, gsize size)
{
	ck_assert(g_file_set_contents_full(path, text, (gssize)size, G_FILE_SET_CONTENTS_NONE, 0600,
					   NULL));
}

START_TEST(damaged)
{
	char *path = saved_path(), *text;
	gsize size;

	save_one();
	ck_assert(g_file_get_contents(path, &text, &size, NULL));
	for (gsize i = 0; i < size; i++) {
		text[i] ^= 1;
		write_over(path, text, size);
		ck_assert_msg(!load_one(), "byte %zu may be wrong", i);
		ck_assert_ptr_nonnull(strstr(error, "damaged"));
		text[i] ^= 1;
	}
	for (gsize i = 0; i < size; i += 13) {
		write_over(path, text, i);
		ck_assert(!load_one());
	}
	write_over(path, text, size);
	ck_assert(load_one());
	g_free(text);
	g_free(path);
}
END_TEST

/* Right sums, but of what can't be used. */
static void refuse_text(const char *body)
{
	char *sum = g_compute_checksum_for_string(G_CHECKSUM_SHA256, body, -1);
	char *text = g_strdup_printf("%ssha256 %s\n", body, sum), *path = saved_path();

	ck_assert(g_file_set_contents(path, text, -1, NULL));
	ck_assert_msg(!load_one(), "%s", body);
	g_free(path);
	g_free(text);
	g_free(sum);
}

START_TEST(incomplete)
{
	struct layout layout = make_layout();
	char *path = saved_path(), *text;

	refuse_text("fbprof-layout 1\n");
	refuse_text("fbprof-layout 2\n");
	layout.verified = 0;
	ck_assert(layout_save(&layout, scratch, error));
	ck_assert(!load_one());
	layout = make_layout();
	layout.path[LAYOUT_LINE].type = LAYOUT_ABSENT;
	ck_assert(layout_save(&layout, scratch, error));
	ck_assert(!load_one());
	layout = make_layout();
	save_one();
	ck_assert(g_file_get_contents(path, &text, NULL, NULL));
	strstr(text, "sha256")[0] = 0;
	for (unsigned i = 0; i < 3; i++) {
		static const char *const lines[] = { "path line u32 0 1 2 3 4 5 6 7\n",
						     "path line pointer 0 1\n",
						     "plan fetch 5 4 1\n" };
		char *body = g_strconcat(text, lines[i], NULL);

		refuse_text(body);
		g_free(body);
	}
	g_free(text);
	g_free(path);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { sums,	identity, saved_is_loaded, directories, missing,
				       foreign, damaged,  incomplete,	   NULL };

	return run_tests("layout", scratch_make, scratch_remove, tests);
}
