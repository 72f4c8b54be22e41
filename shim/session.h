/*
 * A profiling session of an attachment: what START_SESSION starts.  The engine calls it through its
 * vtable from whichever thread executes the attachment, one at a time.
 */
#ifndef FBPROF_SESSION_H
#define FBPROF_SESSION_H

#include "firebird.h"
#include "options.h"

/* What is known of an attachment, from IAttachment::getInfo; empty or 0 if it didn't tell. */
struct attachment_info {
	int64_t id;
	char user[256];
	char database[1024];
	char engine[256];
};

/*
 * Starts a session and its part of the log.  NULL, and one sentence in `error`, if that can't be:
 * what went wrong and what to do.  The engine disposes of it through the vtable.
 */
struct fb_profiler_session *session_start(const struct attachment_info *attachment,
					  const struct options *options, const char *options_text,
					  const char *description, struct fb_timestamp_tz timestamp,
					  uint64_t ticks_frequency, char *error, size_t error_size);

/* Sees to it that a child of fork has none of the parent's sessions, sampler and log. */
void session_watch_forks(void);

/*
 * What the engine remembers of an attachment from one session to the next: when it will measure its
 * clock again (clock.h).  take_…: 0 if nothing is known; and takes it out.
 */
uint64_t attachment_key(const struct attachment_info *attachment);
int64_t take_next_pair(uint64_t attachment);
void keep_next_pair(uint64_t attachment, int64_t time);

#endif
