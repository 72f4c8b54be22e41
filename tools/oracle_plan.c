/*
 * A profiler plugin in this program whose sessions tell learn_plan.h what is at work, while the thread that
 * executes is in the midst of it.
 */
#include "oracle_plan.h"

#include "../shim/firebird.h"

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

static void dispose(struct fb_profiler_session *session)
{
	(void)session;
}

static int64_t get_id(struct fb_profiler_session *session)
{
	(void)session;
	return 1;
}

static unsigned get_flags(struct fb_profiler_session *session)
{
	(void)session;
	return FB_PROFILER_BEFORE_EVENTS | FB_PROFILER_AFTER_EVENTS;
}

static void cancel(struct fb_profiler_session *session, struct fb_status *status)
{
	(void)session;
	(void)status;
}

static void finish(struct fb_profiler_session *session, struct fb_status *status,
		   struct fb_timestamp_tz timestamp)
{
	(void)session;
	(void)status;
	(void)timestamp;
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

static void define_cursor(struct fb_profiler_session *session, int64_t statement_id,
			  unsigned cursor_id, const char *name, unsigned line, unsigned column)
{
	(void)session;
	(void)statement_id;
	(void)cursor_id;
	(void)name;
	(void)line;
	(void)column;
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

static void before_open(struct fb_profiler_session *session, int64_t statement_id,
			int64_t request_id, unsigned cursor_id, unsigned record_source_id)
{
	(void)session;
	event(LAYOUT_PLAN_OPEN, true, statement_id, request_id, cursor_id, record_source_id);
}

static void after_open(struct fb_profiler_session *session, int64_t statement_id,
		       int64_t request_id, unsigned cursor_id, unsigned record_source_id,
		       struct fb_profiler_stats *stats)
{
	(void)session;
	(void)stats;
	event(LAYOUT_PLAN_OPEN, false, statement_id, request_id, cursor_id, record_source_id);
}

static void before_fetch(struct fb_profiler_session *session, int64_t statement_id,
			 int64_t request_id, unsigned cursor_id, unsigned record_source_id)
{
	(void)session;
	event(LAYOUT_PLAN_FETCH, true, statement_id, request_id, cursor_id, record_source_id);
}

static void after_fetch(struct fb_profiler_session *session, int64_t statement_id,
			int64_t request_id, unsigned cursor_id, unsigned record_source_id,
			struct fb_profiler_stats *stats)
{
	(void)session;
	(void)stats;
	event(LAYOUT_PLAN_FETCH, false, statement_id, request_id, cursor_id, record_source_id);
}

/* ---- The plugin ---- */

static void *owner;

static void add_ref(struct fb_profiler_plugin *plugin)
{
	(void)plugin;
}

static int release(struct fb_profiler_plugin *plugin)
{
	(void)plugin;
	return 1;
}

static void set_owner(struct fb_profiler_plugin *plugin, void *of)
{
	(void)plugin;
	owner = of;
}

static void *get_owner(struct fb_profiler_plugin *plugin)
{
	(void)plugin;
	return owner;
}

static void init(struct fb_profiler_plugin *plugin, struct fb_status *status,
		 struct fb_attachment *attachment, uint64_t ticks_frequency)
{
	(void)plugin;
	(void)status;
	(void)attachment;
	(void)ticks_frequency;
}

static struct fb_profiler_session *start_session(struct fb_profiler_plugin *plugin,
						 struct fb_status *status, const char *description,
						 const char *options,
						 struct fb_timestamp_tz timestamp)
{
	static const struct fb_profiler_session_vtable vtable = {
		.version = FB_PROFILER_SESSION_VERSION,
		.dispose = dispose,
		.get_id = get_id,
		.get_flags = get_flags,
		.cancel = cancel,
		.finish = finish,
		.define_statement = define_statement,
		.define_cursor = define_cursor,
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
	static struct fb_profiler_session session = { .vtable = &vtable };

	(void)plugin;
	(void)status;
	(void)description;
	(void)options;
	(void)timestamp;
	return &session;
}

static void flush(struct fb_profiler_plugin *plugin, struct fb_status *status)
{
	(void)plugin;
	(void)status;
}

static struct fb_profiler_plugin *create_plugin(struct fb_plugin_factory *factory,
						struct fb_status *status, void *config)
{
	static const struct fb_profiler_plugin_vtable vtable = {
		.version = FB_PROFILER_PLUGIN_VERSION,
		.add_ref = add_ref,
		.release = release,
		.set_owner = set_owner,
		.get_owner = get_owner,
		.init = init,
		.start_session = start_session,
		.flush = flush,
	};
	static struct fb_profiler_plugin plugin = { .vtable = &vtable };

	(void)factory;
	(void)status;
	(void)config;
	return &plugin;
}

void oracle_plan_register(struct fb_master *master)
{
	static const struct fb_plugin_factory_vtable vtable = {
		.version = FB_PLUGIN_FACTORY_VERSION,
		.create_plugin = create_plugin,
	};
	static struct fb_plugin_factory factory = { .vtable = &vtable };
	struct fb_plugin_manager *manager = master->vtable->get_plugin_manager(master);

	manager->vtable->register_plugin_factory(manager, FB_PLUGIN_TYPE_PROFILER, ORACLE_PLAN,
						 &factory);
}
