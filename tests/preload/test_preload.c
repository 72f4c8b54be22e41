/*
 * Preloading the library changes nothing that another program or library can see, but for the
 * profiler's module.  Runs probe with and without it, alone and beside other preloaded libraries, and
 * compares what it prints.  Not for sanitizer builds, whose library can't be preloaded.
 */
#define _GNU_SOURCE
#include "../run_suite.h"

#include <check.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char modules[PATH_MAX]; /* the directory that probe's modules are in */
static char library[PATH_MAX];

static const char *module(const char *name)
{
	static char path[2][PATH_MAX + 64];
	static unsigned next;

	next = !next;
	snprintf(path[next], sizeof(path[next]), "%s/%s", modules, name);
	return path[next];
}

/* What probe prints, with these libraries preloaded in this order (NULL: no more). */
static void run(char *text, size_t size, const char *what, const char *first, const char *second)
{
	char probe[PATH_MAX + 16], preload[3 * PATH_MAX];
	int ends[2], status;
	size_t used = 0;
	ssize_t got;
	pid_t child;

	snprintf(probe, sizeof(probe), "%s/../probe", modules);
	snprintf(preload, sizeof(preload), "%s%s%s", first ? first : "", second ? ":" : "",
		 second ? second : "");
	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	if (!child) {
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		if (*preload)
			setenv("LD_PRELOAD", preload, 1);
		else
			unsetenv("LD_PRELOAD");
		execl(probe, probe, what, modules, (char *)NULL);
		_exit(126);
	}
	close(ends[1]);
	while (used < size - 1 && (got = read(ends[0], text + used, size - 1 - used)) > 0)
		used += (size_t)got;
	text[used] = 0;
	close(ends[0]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "probe %s with %s: status %x\n%s",
		      what, preload, status, text);
	ck_assert_msg(used > 0, "probe %s said nothing", what);
}

static const char *const probes[] = { "sibling", "missing", "self",  "namespace",
				      "clocks",	 "signals", "others" };
#define PROBES ((int)(sizeof(probes) / sizeof(*probes)))

/* The same with ours, alone and in both orders with each of the others. */
START_TEST(nothing_changes)
{
	static const char *const others[] = { NULL, "interposer.so", "early.so" };
	char without[4096], with[4096];

	for (unsigned i = 0; i < 3; i++) {
		const char *other = others[i] ? module(others[i]) : NULL;

		run(without, sizeof(without), probes[_i], other, NULL);
		run(with, sizeof(with), probes[_i], library, other);
		ck_assert_str_eq(with, without);
		if (!other)
			continue;
		run(with, sizeof(with), probes[_i], other, library);
		ck_assert_str_eq(with, without);
	}
}
END_TEST

/* That the comparison compares something. */
START_TEST(probes_work)
{
	char text[4096];

	run(text, sizeof(text), "sibling", NULL, NULL);
	ck_assert_msg(strstr(text, "its sibling: sibling.so") != NULL, "%s", text);
	ck_assert_msg(strstr(text, "from the program: sibling.so: cannot open") != NULL, "%s",
		      text);
	run(text, sizeof(text), "namespace", library, NULL);
	ck_assert_msg(strstr(text, "same namespace: 1, a new one: 1") != NULL, "%s", text);
	ck_assert_msg(strstr(text, "not in ours: 1") != NULL, "%s", text);
	run(text, sizeof(text), "others", library, module("interposer.so"));
	ck_assert_msg(strstr(text, "dlopen 1\nclock_gettime 2\n") != NULL, "%s", text);
	run(text, sizeof(text), "others", library, module("early.so"));
	ck_assert_msg(
		strstr(text,
		       "raw 0 1, monotonic 0 1, self 1, libc 1, missing 0: no-such-library.so: cannot") !=
			NULL,
		"%s", text);
}
END_TEST

START_TEST(profiler_is_ours)
{
	static const char theirs[] = "libDefault_Profiler.so: libDefault_Profiler.so\n";
	static const char ours[] = "libDefault_Profiler.so: libfbprof.so\n"
				   "Default_Profiler.so: libfbprof.so\n"
				   "libDefault_Profiler: libfbprof.so\n"
				   "libDefault_Profiler.so.1: none\n"
				   "libDefault_Profiler2.so: none\n"
				   "xlibDefault_Profiler.so: none\n"
				   "global: 0\n";
	char text[4096];

	run(text, sizeof(text), "profiler", NULL, NULL);
	ck_assert_msg(!strncmp(text, theirs, strlen(theirs)), "%s", text);
	run(text, sizeof(text), "profiler", library, NULL);
	ck_assert_str_eq(text, ours);
	run(text, sizeof(text), "profiler", module("interposer.so"), library);
	ck_assert_str_eq(text, ours);
	run(text, sizeof(text), "profiler", library, module("interposer.so"));
	ck_assert_str_eq(text, ours);
}
END_TEST

int main(int argc, char **argv)
{
	const char *wanted = getenv("FBPROF_LIBRARY");
	char self[PATH_MAX];
	Suite *suite;
	TCase *tcase;

	(void)argc, (void)argv;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return 77;
#endif
	if (!wanted || !realpath(wanted, library) || !realpath("/proc/self/exe", self)) {
		fputs("test_preload: FBPROF_LIBRARY must name libfbprof.so\n", stderr);
		return EXIT_FAILURE;
	}
	snprintf(modules, sizeof(modules), "%.4000s/.libs", dirname(self));

	suite = suite_create("preload");
	tcase = tcase_create("preload");
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, probes_work);
	tcase_add_loop_test(tcase, nothing_changes, 0, PROBES);
	tcase_add_test(tcase, profiler_is_ours);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
