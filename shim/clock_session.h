/*
 * A session of MODE=CLOCK: the stock profiler's own, under our clock.
 *
 * The engine gets the stock session object itself, so that its events go straight to the stock plugin
 * and cost nothing of ours.  Only its vtable is replaced by a copy in which dispose() is ours, to learn
 * when the session ends; the stock one is put back then.
 *
 * There is one more thing to learn, now and then: that the engine's pair of reads (clock.h), which must
 * see no time pass, has come.  So there is a second copy in which events tell the clock that they have
 * come, and are handed on.  The sampler's thread puts it in when a pair is due within a second, or when
 * nobody has read the clock since its last look, and so nobody will mind.
 *
 * There is no log: the stock profiler writes its tables.
 */
#ifndef FBPROF_CLOCK_SESSION_H
#define FBPROF_CLOCK_SESSION_H

#include "session.h"

/*
 * Starts a session of `stock`, a plugin object of the stock profiler for this attachment.  NULL, and
 * either the engine's errors in `status` or one sentence in `error`, if that can't be.  Calls as in
 * session.h.
 */
struct fb_profiler_session *clock_session_start(struct fb_profiler_plugin *stock,
						const struct attachment_info *attachment,
						const struct options *options,
						struct fb_status *status, const char *description,
						struct fb_timestamp_tz timestamp, char *error,
						size_t error_size);

#endif
