/*
 * The stock profiler, Default_Profiler, as MODE=CLOCK uses it: the module whose place we have taken in
 * the engine is loaded after all, at the first session that needs it, and its plugin objects are ours
 * to call.
 *
 * A module registers its factory with the engine's plugin manager, which takes that only while it is
 * loading a module itself.  So the stock module gets an IMaster and an IPluginManager of our own: they
 * keep what it registers, and hand on everything else.  What it registers to be told before it is
 * unloaded, we are told in its stead, as a module of the engine's.
 */
#ifndef FBPROF_STOCK_H
#define FBPROF_STOCK_H

#include "firebird.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * The engine asks for the stock module by this file name (maybe without "lib" and ".so"), and gets
 * ours.  Any thread.
 */
void stock_asked_for(const char *file);

/* From our firebird_plugin(): the engine loads us. */
void stock_engine_loads(struct fb_master *master);

/*
 * A plugin object of the stock module, which is loaded if need be, with one reference; `config` as in
 * create_plugin().  NULL, and either the engine's errors in `status` or one sentence in `error`, if
 * there is none.
 */
struct fb_profiler_plugin *stock_plugin_new(struct fb_status *status, void *config, char *error,
					    size_t error_size);
void stock_plugin_free(struct fb_profiler_plugin *plugin);

#endif
