/*
 * See oracle_plugin.h.
 */
#include "oracle_plugin.h"

#include <glib.h>

/* ---- The session ---- */

void oracle_session_dispose(struct fb_profiler_session *self)
{
	g_free(self);
}

int64_t oracle_session_id(struct fb_profiler_session *self)
{
	(void)self;
	return 1;
}

void oracle_session_cancel(struct fb_profiler_session *self, struct fb_status *status)
{
	(void)self;
	(void)status;
}

void oracle_session_finish(struct fb_profiler_session *self, struct fb_status *status,
			   struct fb_timestamp_tz timestamp)
{
	(void)self;
	(void)status;
	(void)timestamp;
}

void oracle_session_cursor(struct fb_profiler_session *self, int64_t statement_id,
			   unsigned cursor_id, const char *name, unsigned line, unsigned column)
{
	(void)self;
	(void)statement_id;
	(void)cursor_id;
	(void)name;
	(void)line;
	(void)column;
}

/* ---- The plugin ---- */

struct plugin {
	struct fb_profiler_plugin interface;
	const struct oracle_plugin *oracle;
	gint references;
	void *owner;
};

static void add_ref(struct fb_profiler_plugin *self)
{
	g_atomic_int_inc(&((struct plugin *)self)->references);
}

static int release(struct fb_profiler_plugin *self)
{
	if (!g_atomic_int_dec_and_test(&((struct plugin *)self)->references))
		return 1;
	g_free(self);
	return 0;
}

static void set_owner(struct fb_profiler_plugin *self, void *owner)
{
	((struct plugin *)self)->owner = owner;
}

static void *get_owner(struct fb_profiler_plugin *self)
{
	return ((struct plugin *)self)->owner;
}

static void init(struct fb_profiler_plugin *self, struct fb_status *status,
		 struct fb_attachment *attachment, uint64_t ticks_frequency)
{
	(void)self;
	(void)status;
	(void)attachment;
	(void)ticks_frequency;
}

static struct fb_profiler_session *start_session(struct fb_profiler_plugin *self,
						 struct fb_status *status, const char *description,
						 const char *options,
						 struct fb_timestamp_tz timestamp)
{
	const struct oracle_plugin *oracle = ((struct plugin *)self)->oracle;
	struct fb_profiler_session *session = g_new0(struct fb_profiler_session, 1);

	(void)status;
	(void)description;
	(void)options;
	(void)timestamp;
	session->vtable = oracle->session;
	if (oracle->begin)
		oracle->begin();
	return session;
}

static void flush(struct fb_profiler_plugin *self, struct fb_status *status)
{
	(void)self;
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
	struct plugin *plugin = g_new0(struct plugin, 1);

	(void)status;
	(void)config;
	plugin->interface.vtable = &vtable;
	plugin->oracle = (const struct oracle_plugin *)factory;
	plugin->references = 1;
	return &plugin->interface;
}

void oracle_plugin_register(struct oracle_plugin *plugin, struct fb_master *master)
{
	static const struct fb_plugin_factory_vtable vtable = {
		.version = FB_PLUGIN_FACTORY_VERSION,
		.create_plugin = create_plugin,
	};
	struct fb_plugin_manager *manager = master->vtable->get_plugin_manager(master);

	plugin->factory.vtable = &vtable;
	manager->vtable->register_plugin_factory(manager, FB_PLUGIN_TYPE_PROFILER, plugin->name,
						 &plugin->factory);
}
