/*
 * A module in the stock profiler's place: see fake_stock.h.  One thread at a time.
 */
#include "fake_stock.h"

#include <stdio.h>
#include <string.h>

__attribute__((visibility("default"))) struct fake_stock fake_stock;

static void say(struct fb_status *status)
{
	const intptr_t vector[] = { FB_ARG_GDS, FB_RANDOM, FB_ARG_STRING,
				    (intptr_t)fake_stock.error, FB_ARG_END };

	status->vtable->set_errors(status, vector);
}

/* ---- Sessions ---- */

static void dispose(struct fb_profiler_session *session)
{
	(void)session;
	fake_stock.disposed++;
}

static int64_t get_id(struct fb_profiler_session *session)
{
	(void)session;
	return 4711;
}

static unsigned get_flags(struct fb_profiler_session *session)
{
	(void)session;
	return FB_PROFILER_AFTER_EVENTS;
}

static void cancel(struct fb_profiler_session *session, struct fb_status *status)
{
	(void)session, (void)status;
	fake_stock.cancelled++;
}

static void finish(struct fb_profiler_session *session, struct fb_status *status,
		   struct fb_timestamp_tz timestamp)
{
	(void)session, (void)status, (void)timestamp;
	fake_stock.finished++;
}

/* One function for all events, whatever their arguments, which are the caller's business. */
static void count_event(void)
{
	fake_stock.events++;
}

#define EVENT(method) \
	.method = (__typeof__(((struct fb_profiler_session_vtable *)0)->method))count_event

static const struct fb_profiler_session_vtable session_vtable = {
	.version = 3,
	.dispose = dispose,
	.get_id = get_id,
	.get_flags = get_flags,
	.cancel = cancel,
	.finish = finish,
	EVENT(define_statement),
	EVENT(define_cursor),
	EVENT(define_record_source),
	EVENT(on_request_start),
	EVENT(on_request_finish),
	EVENT(before_psql_line_column),
	EVENT(after_psql_line_column),
	EVENT(before_record_source_open),
	EVENT(after_record_source_open),
	EVENT(before_record_source_get_record),
	EVENT(after_record_source_get_record),
};

static struct fb_profiler_session session;

/* ---- Plugin objects ---- */

static int release(struct fb_profiler_plugin *plugin)
{
	(void)plugin;
	fake_stock.released++;
	return 0;
}

static void init(struct fb_profiler_plugin *plugin, struct fb_status *status,
		 struct fb_attachment *attachment, uint64_t ticks_frequency)
{
	(void)plugin, (void)attachment, (void)ticks_frequency;
	fake_stock.inits++;
	if (fake_stock.error)
		say(status);
}

static struct fb_profiler_session *start_session(struct fb_profiler_plugin *plugin,
						 struct fb_status *status, const char *description,
						 const char *options,
						 struct fb_timestamp_tz timestamp)
{
	(void)plugin, (void)description, (void)timestamp;
	if (fake_stock.error) {
		say(status);
		return NULL;
	}
	fake_stock.started++;
	snprintf(fake_stock.options, sizeof(fake_stock.options), "%s", options);
	fake_stock.session_vtable = &session_vtable;
	session.vtable = &session_vtable;
	return &session;
}

static void flush(struct fb_profiler_plugin *plugin, struct fb_status *status)
{
	(void)plugin, (void)status;
	fake_stock.flushes++;
}

static struct fb_profiler_plugin *create_plugin(struct fb_plugin_factory *factory,
						struct fb_status *status, void *config)
{
	static const struct fb_profiler_plugin_vtable vtable = {
		.version = FB_PROFILER_PLUGIN_VERSION,
		.release = release,
		.init = init,
		.start_session = start_session,
		.flush = flush,
	};
	static struct fb_profiler_plugin plugin = { .vtable = &vtable };

	(void)factory, (void)status;
	fake_stock.made++;
	fake_stock.config = config;
	return &plugin;
}

/* ---- The module ---- */

static void do_clean(struct fb_plugin_module *module)
{
	(void)module;
	fake_stock.cleaned++;
}

static void thread_detach(struct fb_plugin_module *module)
{
	(void)module;
	fake_stock.threads_detached++;
}

__attribute__((visibility("default"))) void firebird_plugin(struct fb_master *master)
{
	static const struct fb_plugin_factory_vtable factory_vtable = {
		.version = FB_PLUGIN_FACTORY_VERSION,
		.create_plugin = create_plugin,
	};
	static struct fb_plugin_factory factory = { .vtable = &factory_vtable };
	static const struct fb_plugin_module_vtable module_vtable = {
		.version = FB_PLUGIN_MODULE_VERSION,
		.do_clean = do_clean,
		.thread_detach = thread_detach,
	};
	static struct fb_plugin_module module = { .vtable = &module_vtable };
	struct fb_plugin_manager *manager = master->vtable->get_plugin_manager(master);

	fake_stock.master = master;
	manager->vtable->register_plugin_factory(manager, FB_PLUGIN_TYPE_PROFILER,
						 "Default_Profiler", &factory);
	manager->vtable->register_module(manager, &module);
}
