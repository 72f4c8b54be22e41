/*
 * A profiler plugin that is in this program, for the oracles: what each of them needs, and none has a use for
 * otherwise.  Sessions are the oracle's; of those there is one at a time.  In the engine's threads.
 */
#ifndef FBPROF_ORACLE_PLUGIN_H
#define FBPROF_ORACLE_PLUGIN_H

#include "../shim/firebird.h"

struct oracle_plugin {
	struct fb_plugin_factory factory; /* filled in by oracle_plugin_register() */
	const char *name;
	const struct fb_profiler_session_vtable *session;
	void (*begin)(void); /* a session does; may be NULL */
};

/* Right after the client library was loaded, before it loads a module of its own.  Once; it must stay. */
void oracle_plugin_register(struct oracle_plugin *plugin, struct fb_master *master);

/* What a session's vtable begins with. */
/* clang-format off */
#define ORACLE_SESSION_COMMON             \
	.version = FB_PROFILER_SESSION_VERSION, \
	.get_id = oracle_session_id,            \
	.cancel = oracle_session_cancel,        \
	.finish = oracle_session_finish,        \
	.define_cursor = oracle_session_cursor
/* clang-format on */

int64_t oracle_session_id(struct fb_profiler_session *self);
void oracle_session_cancel(struct fb_profiler_session *self, struct fb_status *status);
void oracle_session_finish(struct fb_profiler_session *self, struct fb_status *status,
			   struct fb_timestamp_tz timestamp);
void oracle_session_cursor(struct fb_profiler_session *self, int64_t statement_id,
			   unsigned cursor_id, const char *name, unsigned line, unsigned column);

/* Frees it: `dispose`, or the last thing in one. */
void oracle_session_dispose(struct fb_profiler_session *self);

#endif
