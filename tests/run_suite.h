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

#endif
