/*
 * A directory of a test's own, which FBPROF_DIR points to and which is removed at its end, and what
 * tests want to know of the logs in it and of this process.  Used by one thread at a time.
 */
#ifndef FBPROF_TESTS_SCRATCH_H
#define FBPROF_TESTS_SCRATCH_H

#include <limits.h>
#include <stddef.h>

extern char scratch[PATH_MAX - 256]; /* the directory */

/* For Check's fixtures: makes a new directory and names it in FBPROF_DIR; removes it. */
void scratch_make(void);
void scratch_remove(void);

/* The path of a file there; overwritten by the next call but three. */
const char *scratch_path(const char *name);

/* How many logs there are, and the path of the newest one (by name), or "". */
unsigned scratch_logs(char path[PATH_MAX]);

/*
 * What this process has: threads, open files, mappings whose name contains `text`.  A thread that was
 * joined may be seen for another moment, thus check_threads() waits for it; a sanitizer may have one of
 * its own, thus threads_at_first() has it started first.
 */
unsigned own_threads(void);
unsigned threads_at_first(void);
void check_threads(unsigned wanted);
unsigned own_files(void);
unsigned own_mappings(const char *text);

#endif
