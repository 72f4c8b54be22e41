/*
 * The plugin: what the engine finds in place of Default_Profiler, or by the name fbprof.  It makes
 * one plugin object for each attachment that profiles, and that one the sessions.
 */
#include "clock.h"
#include "clock_session.h"
#include "firebird.h"
#include "notice.h"
#include "options.h"
#include "session.h"
#include "stock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plugin {
	struct fb_profiler_plugin interface;
	_Atomic int references;
	void *owner; /* the engine's, kept for it */

	/* Of the engine, valid as long as we are; the second is part of our owner. */
	struct fb_attachment *engine_attachment;
	void *config;
	struct fb_profiler_plugin *stock; /* the stock profiler's; NULL until MODE=CLOCK needs it */

	struct attachment_info attachment;
	uint64_t ticks_frequency;
};

static struct plugin *plugin_of(struct fb_profiler_plugin *interface)
{
	return (struct plugin *)interface;
}

/* ---- What the attachment says of itself ---- */

/* A little-endian integer of up to 8 bytes. */
static int64_t read_integer(const unsigned char *bytes, unsigned size)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < size && i < 8; i++)
		value |= (uint64_t)bytes[i] << 8 * i;
	return (int64_t)value;
}

static void copy_text(char *to, size_t room, const unsigned char *from, unsigned size)
{
	if (size >= room)
		size = (unsigned)room - 1;
	memcpy(to, from, size);
	to[size] = 0;
}

/* The first of some length-prefixed strings behind a count. */
static void copy_first_string(char *to, size_t room, const unsigned char *value, unsigned size)
{
	if (size >= 2 && value[0] && value[1] <= size - 2)
		copy_text(to, room, value + 2, value[1]);
}

static void read_item(struct attachment_info *info, unsigned item, const unsigned char *value,
		      unsigned size)
{
	switch (item) {
	case FB_INFO_ATTACHMENT_ID:
		info->id = read_integer(value, size);
		break;
	case FB_INFO_USERNAME:
		copy_text(info->user, sizeof(info->user), value, size);
		break;
	case FB_INFO_DB_ID:
		copy_first_string(info->database, sizeof(info->database), value, size);
		break;
	case FB_INFO_FIREBIRD_VERSION:
		copy_first_string(info->engine, sizeof(info->engine), value, size);
		break;
	}
}

static void ask_attachment(struct attachment_info *info, struct fb_status *status,
			   struct fb_attachment *attachment)
{
	static const unsigned char items[] = { FB_INFO_ATTACHMENT_ID, FB_INFO_USERNAME,
					       FB_INFO_DB_ID, FB_INFO_FIREBIRD_VERSION,
					       FB_INFO_END };
	unsigned char answer[4096] = { FB_INFO_END };
	unsigned place = 0;

	attachment->vtable->get_info(attachment, status, sizeof(items), items, sizeof(answer),
				     answer);
	/* What it doesn't tell stays empty: that is no reason to fail. */
	if (status->vtable->get_state(status) & FB_STATUS_ERRORS)
		status->vtable->init(status);
	while (place + 3 <= sizeof(answer) && answer[place] != FB_INFO_END) {
		unsigned size = (unsigned)read_integer(answer + place + 1, 2);

		if (size > sizeof(answer) - place - 3)
			break;
		read_item(info, answer[place], answer + place + 3, size);
		place += 3 + size;
	}
}

/* ---- The plugin's methods ---- */

static void add_ref(struct fb_profiler_plugin *interface)
{
	atomic_fetch_add_explicit(&plugin_of(interface)->references, 1, memory_order_relaxed);
}

static int release(struct fb_profiler_plugin *interface)
{
	struct plugin *plugin = plugin_of(interface);

	/* Release and acquire: whoever frees it sees what the others did with it before. */
	if (atomic_fetch_sub_explicit(&plugin->references, 1, memory_order_acq_rel) > 1)
		return 1;
	if (plugin->stock)
		stock_plugin_free(plugin->stock);
	free(plugin);
	return 0;
}

static void set_owner(struct fb_profiler_plugin *interface, void *owner)
{
	plugin_of(interface)->owner = owner;
}

static void *get_owner(struct fb_profiler_plugin *interface)
{
	return plugin_of(interface)->owner;
}

static void init(struct fb_profiler_plugin *interface, struct fb_status *status,
		 struct fb_attachment *attachment, uint64_t ticks_frequency)
{
	struct plugin *plugin = plugin_of(interface);

	plugin->ticks_frequency = ticks_frequency ? ticks_frequency : 1000000000;
	plugin->engine_attachment = attachment;
	ask_attachment(&plugin->attachment, status, attachment);
}

/* The engine copies what the vector points to before it returns to us. */
static void set_error(struct fb_status *status, const char *sentence)
{
	const intptr_t vector[] = { FB_ARG_GDS, FB_RANDOM, FB_ARG_STRING, (intptr_t)sentence,
				    FB_ARG_END };

	status->vtable->set_errors(status, vector);
}

/* ---- MODE=CLOCK ---- */

static bool failed(struct fb_status *status)
{
	return (status->vtable->get_state(status) & FB_STATUS_ERRORS) != 0;
}

/* Makes the stock profiler's plugin object, once, as the engine would: it creates its tables. */
static bool have_stock(struct plugin *plugin, struct fb_status *status, char *error, size_t room)
{
	struct fb_profiler_plugin *stock;

	if (plugin->stock)
		return true;
	stock = stock_plugin_new(status, plugin->config, error, room);
	if (!stock)
		return false;
	stock->vtable->init(stock, status, plugin->engine_attachment, plugin->ticks_frequency);
	if (failed(status)) {
		stock_plugin_free(stock);
		return false;
	}
	plugin->stock = stock;
	return true;
}

/* As session_start(); or the errors of the stock profiler are in `status`, and `error` is empty. */
static struct fb_profiler_session *start_stock(struct plugin *plugin, const struct options *options,
					       struct fb_status *status, const char *description,
					       struct fb_timestamp_tz timestamp, char *error,
					       size_t room)
{
	if (!clock_is_ours) {
		snprintf(error, room, "MODE=CLOCK needs LD_PRELOAD, to have the engine's clock");
		return NULL;
	}
	if (options->sql_text != SQL_TEXT_FULL) {
		snprintf(
			error, room,
			"MODE=CLOCK goes with SQL_TEXT=FULL only: the stock profiler keeps all texts");
		return NULL;
	}
	if (!have_stock(plugin, status, error, room))
		return NULL;
	return clock_session_start(plugin->stock, &plugin->attachment, options, status, description,
				   timestamp, error, room);
}

static struct fb_profiler_session *start_session(struct fb_profiler_plugin *interface,
						 struct fb_status *status, const char *description,
						 const char *options_text,
						 struct fb_timestamp_tz timestamp)
{
	struct plugin *plugin = plugin_of(interface);
	struct fb_profiler_session *session;
	struct options options;
	char error[1024] = "fbprof: ";
	size_t prefix = strlen(error);

	options_init(&options);
	if (!options_parse(&options, "FBPROF_OPTIONS", getenv("FBPROF_OPTIONS"), error)) {
		set_error(status, error);
		return NULL;
	}
	options.passive = false; /* of the process: whoever starts a session gets one beside it */
	if (!options_parse(&options, "PLUGIN_OPTIONS", options_text, error)) {
		set_error(status, error);
		return NULL;
	}
	if (options.passive) {
		snprintf(error + prefix, sizeof(error) - prefix,
			 "option MODE=PASSIVE in PLUGIN_OPTIONS: it is for FBPROF_OPTIONS in the "
			 "server's environment, as it needs no session");
		set_error(status, error);
		return NULL;
	}
	if (options.stock)
		session = start_stock(plugin, &options, status, description, timestamp,
				      error + prefix, sizeof(error) - prefix);
	else
		session = session_start(&plugin->attachment, &options, options_text, description,
					timestamp, plugin->ticks_frequency, error + prefix,
					sizeof(error) - prefix);
	if (!session && error[prefix])
		set_error(status, error);
	return session;
}

/* Our log is always up to date; the stock profiler fills its tables now. */
static void flush(struct fb_profiler_plugin *interface, struct fb_status *status)
{
	struct fb_profiler_plugin *stock = plugin_of(interface)->stock;

	if (stock)
		stock->vtable->flush(stock, status);
}

static const struct fb_profiler_plugin_vtable plugin_vtable = {
	.version = FB_PROFILER_PLUGIN_VERSION,
	.add_ref = add_ref,
	.release = release,
	.set_owner = set_owner,
	.get_owner = get_owner,
	.init = init,
	.start_session = start_session,
	.flush = flush,
};

/* ---- The factory and the module ---- */

static struct fb_profiler_plugin *create_plugin(struct fb_plugin_factory *factory,
						struct fb_status *status, void *config)
{
	struct plugin *plugin = calloc(1, sizeof(*plugin));

	(void)factory;
	if (!plugin) {
		set_error(status, "fbprof: out of memory");
		return NULL;
	}
	plugin->interface.vtable = &plugin_vtable;
	plugin->config = config;
	atomic_init(&plugin->references, 1);
	return &plugin->interface;
}

__attribute__((visibility("default"))) void firebird_plugin(struct fb_master *master)
{
	static const struct fb_plugin_factory_vtable vtable = {
		.version = FB_PLUGIN_FACTORY_VERSION,
		.create_plugin = create_plugin,
	};
	static struct fb_plugin_factory factory = { .vtable = &vtable };
	struct fb_plugin_manager *manager = master->vtable->get_plugin_manager(master);
	struct fb_config_manager *config = master->vtable->get_config_manager(master);

	if (config)
		notice_set_directory(config->vtable->get_directory(config, FB_DIR_LOG));
	stock_engine_loads(master);
	manager->vtable->register_plugin_factory(manager, FB_PLUGIN_TYPE_PROFILER,
						 "Default_Profiler", &factory);
	manager->vtable->register_plugin_factory(manager, FB_PLUGIN_TYPE_PROFILER, "fbprof",
						 &factory);
}
