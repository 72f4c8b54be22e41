/*
 * What the recorder has to say to the DBA: a line in firebird.log, or on standard error where that
 * can't be written.  Any thread; keeps errno; never standard output.
 */
#ifndef FBPROF_NOTICE_H
#define FBPROF_NOTICE_H

/* Where firebird.log is; NULL: unknown.  Called when the plugin is registered. */
void notice_set_directory(const char *directory);

/* After fork, in the child: its lock is its own. */
void notice_forget(void);

/* Says `sentence`, unless it was the last thing said. */
void notice(const char *sentence);

#endif
