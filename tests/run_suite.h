/*
 * The end of a Check program's main(): runs its suite, as loud as CK_VERBOSITY says, and returns the
 * program's exit status.
 */
#ifndef FBPROF_TESTS_RUN_SUITE_H
#define FBPROF_TESTS_RUN_SUITE_H

#include <check.h>
#include <stdlib.h>

/*
 * Exit status of a program that was skipped, as automake has it: for those that look at other processes'
 * threads and memory, of which ThreadSanitizer adds its own, and nothing of which it could check.
 */
#define RUN_SUITE_SKIPPED 77

static inline int run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/*
 * A whole program of tests that all have the same fixture: `tests` ends with NULL.  Each test runs in a
 * process of its own, and set_up() and tear_down(), which may be NULL, with it.
 */
static inline int run_tests(const char *name, SFun set_up, SFun tear_down,
			    const TTest *const *tests)
{
	Suite *suite = suite_create(name);
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	for (; *tests; tests++)
		tcase_add_test(tcase, *tests);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}

#endif
