/*
 * A profiler plugin in this program whose sessions tell learn_plan.h what is at work, while the thread that
 * executes is in the midst of it.
 */
#include "oracle_plan.h"

#include "oracle_plugin.h"

#include <stddef.h>

static struct learn_plan *learn;

void oracle_plan_watch(struct learn_plan *learner)
{
	learn = learner;
}

static void event(enum layout_plan_event kind, bool before, int64_t statement, int64_t request,
		  unsigned cursor, unsigned source)
{
	const struct learn_plan_event event = { .kind = kind,
						.before = before,
						.statement = statement,
						.request = request,
						.cursor = cursor,
						.source = source };

	if (learn)
		learn_plan_event(learn, &event);
}

/* ---- The session ---- */

static unsigned get_flags(struct fb_profiler_session *session)
{
	(void)session;
	return FB_PROFILER_BEFORE_EVENTS | FB_PROFILER_AFTER_EVENTS;
}

static void define_statement(struct fb_profiler_session *session, struct fb_status *status,
			     int64_t statement_id, int64_t parent_statement_id, const char *type,
			     const char *package_name, const char *routine_name,
			     const char *sql_text)
{
	(void)session;
	(void)status;
	(void)statement_id;
	(void)parent_statement_id;
	(void)type;
	(void)package_name;
	(void)routine_name;
	(void)sql_text;
}

static void define_record_source(struct fb_profiler_session *session, int64_t statement_id,
				 unsigned cursor_id, unsigned record_source_id, unsigned level,
				 const char *access_path, unsigned parent_record_source_id)
{
	(void)session;
	(void)level;
	if (learn)
		learn_plan_define(learn, statement_id, cursor_id, record_source_id,
				  parent_record_source_id, access_path);
}

static void on_request_start(struct fb_profiler_session *session, struct fb_status *status,
			     int64_t statement_id, int64_t request_id, int64_t caller_statement_id,
			     int64_t caller_request_id, struct fb_timestamp_tz timestamp)
{
	(void)session;
	(void)status;
	(void)statement_id;
	(void)request_id;
	(void)caller_statement_id;
	(void)caller_request_id;
	(void)timestamp;
}

static void on_request_finish(struct fb_profiler_session *session, struct fb_status *status,
			      int64_t statement_id, int64_t request_id,
			      struct fb_timestamp_tz timestamp, struct fb_profiler_stats *stats)
{
	(void)session;
	(void)status;
	(void)statement_id;
	(void)request_id;
	(void)timestamp;
	(void)stats;
}

static void before_line(struct fb_profiler_session *session, int64_t statement_id,
			int64_t request_id, unsigned line, unsigned column)
{
	(void)session;
	(void)line;
	(void)column;
	event(LAYOUT_PLAN_REQUEST, true, statement_id, request_id, 0, 0);
}

static void after_line(struct fb_profiler_session *session, int64_t statement_id,
		       int64_t request_id, unsigned line, unsigned column,
		       struct fb_profiler_stats *stats)
{
	(void)session;
	(void)line;
	(void)column;
	(void)stats;
	event(LAYOUT_PLAN_REQUEST, false, statement_id, request_id, 0, 0);
}

/* The events of a record source, before and after it. */
#define SOURCE_EVENTS(name, kind)                                                             \
	static void before_##name(struct fb_profiler_session *session, int64_t statement_id,  \
				  int64_t request_id, unsigned cursor_id, unsigned source_id) \
	{                                                                                     \
		(void)session;                                                                \
		event(kind, true, statement_id, request_id, cursor_id, source_id);            \
	}                                                                                     \
                                                                                              \
	static void after_##name(struct fb_profiler_session *session, int64_t statement_id,   \
				 int64_t request_id, unsigned cursor_id, unsigned source_id,  \
				 struct fb_profiler_stats *stats)                             \
	{                                                                                     \
		(void)session;                                                                \
		(void)stats;                                                                  \
		event(kind, false, statement_id, request_id, cursor_id, source_id);           \
	}

SOURCE_EVENTS(open, LAYOUT_PLAN_OPEN)
SOURCE_EVENTS(fetch, LAYOUT_PLAN_FETCH)

void oracle_plan_register(struct fb_master *master)
{
	static const struct fb_profiler_session_vtable session = {
		ORACLE_SESSION_COMMON,
		.dispose = oracle_session_dispose,
		.get_flags = get_flags,
		.define_statement = define_statement,
		.define_record_source = define_record_source,
		.on_request_start = on_request_start,
		.on_request_finish = on_request_finish,
		.before_psql_line_column = before_line,
		.after_psql_line_column = after_line,
		.before_record_source_open = before_open,
		.after_record_source_open = after_open,
		.before_record_source_get_record = before_fetch,
		.after_record_source_get_record = after_fetch,
	};
	static struct oracle_plugin plugin = { .name = ORACLE_PLAN, .session = &session };

	oracle_plugin_register(&plugin, master);
}
