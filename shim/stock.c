/*
 * The stock profiler's module: see stock.h.
 *
 * `mutex` guards loading and unloading; the module's own code is not called inside it, but for
 * firebird_plugin() and doClean().
 */
#define _GNU_SOURCE
#include "stock.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STOCK_FILE "libDefault_Profiler.so"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* From the engine; each written once or again with an equal value. */
static struct fb_master *_Atomic real_master;
static struct asked_for {
	struct asked_for *before; /* somebody may still be reading it */
	char file[];
} * _Atomic asked_for;

/* Under `mutex`: the module, if it is loaded, and how many of its plugin objects there are. */
static void *handle;
static struct fb_plugin_factory *factory;
static unsigned plugins;

/* What is to be told of threads that end, and before the module is unloaded; NULL: nothing. */
static struct fb_plugin_module *_Atomic cleanup;

static struct fb_master *master(void)
{
	return atomic_load_explicit(&real_master, memory_order_acquire);
}

static struct fb_plugin_manager *manager(void)
{
	return master()->vtable->get_plugin_manager(master());
}

/* ---- The IMaster of the stock module, which it keeps as long as it is loaded ---- */

static struct fb_plugin_manager stock_manager;

static struct fb_status *get_status(struct fb_master *self)
{
	(void)self;
	return master()->vtable->get_status(master());
}

static void *get_dispatcher(struct fb_master *self)
{
	(void)self;
	return master()->vtable->get_dispatcher(master());
}

static struct fb_plugin_manager *get_plugin_manager(struct fb_master *self)
{
	(void)self;
	return &stock_manager;
}

static void *get_timer_control(struct fb_master *self)
{
	(void)self;
	return master()->vtable->get_timer_control(master());
}

static void *get_dtc(struct fb_master *self)
{
	(void)self;
	return master()->vtable->get_dtc(master());
}

static void *register_attachment(struct fb_master *self, void *provider, void *attachment)
{
	(void)self;
	return master()->vtable->register_attachment(master(), provider, attachment);
}

static void *register_transaction(struct fb_master *self, void *attachment, void *transaction)
{
	(void)self;
	return master()->vtable->register_transaction(master(), attachment, transaction);
}

static void *get_metadata_builder(struct fb_master *self, struct fb_status *status,
				  unsigned field_count)
{
	(void)self;
	return master()->vtable->get_metadata_builder(master(), status, field_count);
}

static int server_mode(struct fb_master *self, int mode)
{
	(void)self;
	return master()->vtable->server_mode(master(), mode);
}

static void *get_util_interface(struct fb_master *self)
{
	(void)self;
	return master()->vtable->get_util_interface(master());
}

static struct fb_config_manager *get_config_manager(struct fb_master *self)
{
	(void)self;
	return master()->vtable->get_config_manager(master());
}

static unsigned char get_process_exiting(struct fb_master *self)
{
	(void)self;
	return master()->vtable->get_process_exiting(master());
}

static const struct fb_master_vtable stock_master_vtable = {
	.version = FB_MASTER_VERSION,
	.get_status = get_status,
	.get_dispatcher = get_dispatcher,
	.get_plugin_manager = get_plugin_manager,
	.get_timer_control = get_timer_control,
	.get_dtc = get_dtc,
	.register_attachment = register_attachment,
	.register_transaction = register_transaction,
	.get_metadata_builder = get_metadata_builder,
	.server_mode = server_mode,
	.get_util_interface = get_util_interface,
	.get_config_manager = get_config_manager,
	.get_process_exiting = get_process_exiting,
};

static struct fb_master stock_master = { .vtable = &stock_master_vtable };

/* ---- Its IPluginManager ---- */

static struct fb_plugin_module our_module;

static void register_plugin_factory(struct fb_plugin_manager *self, unsigned type, const char *name,
				    struct fb_plugin_factory *registered)
{
	(void)self;
	if (type == FB_PLUGIN_TYPE_PROFILER && !strcmp(name, "Default_Profiler"))
		factory = registered;
}

static void register_module(struct fb_plugin_manager *self, struct fb_plugin_module *module)
{
	(void)self;
	atomic_store(&cleanup, module);
}

/*
 * The module's static objects are being destroyed, but not because the engine has unloaded it: the
 * process exits with the engine at work, which shuts it down then.
 */
static void unregister_module(struct fb_plugin_manager *self, struct fb_plugin_module *module)
{
	struct fb_plugin_module *registered = module;

	(void)self;
	if (atomic_compare_exchange_strong(&cleanup, &registered, NULL))
		manager()->vtable->unregister_module(manager(), &our_module);
}

static void *get_plugins(struct fb_plugin_manager *self, struct fb_status *status, unsigned type,
			 const char *names, void *config)
{
	(void)self;
	return manager()->vtable->get_plugins(manager(), status, type, names, config);
}

static void *get_config(struct fb_plugin_manager *self, struct fb_status *status, const char *file)
{
	(void)self;
	return manager()->vtable->get_config(manager(), status, file);
}

static void release_plugin(struct fb_plugin_manager *self, void *plugin)
{
	(void)self;
	manager()->vtable->release_plugin(manager(), plugin);
}

static const struct fb_plugin_manager_vtable stock_manager_vtable = {
	.version = FB_PLUGIN_MANAGER_VERSION,
	.register_plugin_factory = register_plugin_factory,
	.register_module = register_module,
	.unregister_module = unregister_module,
	.get_plugins = get_plugins,
	.get_config = get_config,
	.release_plugin = release_plugin,
};

static struct fb_plugin_manager stock_manager = { .vtable = &stock_manager_vtable };

/* ---- Loading ---- */

void stock_asked_for(const char *file)
{
	struct asked_for *before = atomic_load_explicit(&asked_for, memory_order_acquire), *asked;
	size_t size = strlen(file) + 1;

	if (before && !strcmp(before->file, file))
		return;
	asked = malloc(sizeof(*asked) + size);
	if (!asked)
		return;
	asked->before = before;
	memcpy(asked->file, file, size);
	if (!atomic_compare_exchange_strong(&asked_for, &before, asked))
		free(asked); /* another thread has asked meanwhile, as a rule for the same */
}

/* Of the file that the engine asked for, or of its own plugins if it never asked; "" if unknown. */
static void find_file(char path[PATH_MAX])
{
	const struct asked_for *found = atomic_load_explicit(&asked_for, memory_order_acquire);
	const char *asked = found ? found->file : NULL;
	struct fb_config_manager *config = master()->vtable->get_config_manager(master());
	const char *slash, *directory;

	*path = 0;
	if (asked && !access(asked, R_OK)) {
		snprintf(path, PATH_MAX, "%s", asked);
		return;
	}
	slash = asked ? strrchr(asked, '/') : NULL;
	directory = config ? config->vtable->get_directory(config, FB_DIR_PLUGINS) : NULL;
	if (slash)
		snprintf(path, PATH_MAX, "%.*s/" STOCK_FILE, (int)(slash - asked), asked);
	else if (directory && *directory)
		snprintf(path, PATH_MAX, "%s/" STOCK_FILE, directory);
}

/* The system's dlopen: ours would answer with this library. */
static void *open_really(const char *path)
{
	void *(*open)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");

	return open ? open(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
}

/* Under `mutex`. */
static bool load(char *error, size_t error_size)
{
	void (*entry)(struct fb_master *);
	char path[PATH_MAX];

	if (factory)
		return true;
	find_file(path);
	handle = *path ? open_really(path) : NULL;
	if (!handle) {
		snprintf(error, error_size,
			 "MODE=CLOCK needs the stock profiler, which can't be loaded: %.700s",
			 *path ? dlerror() : "nobody knows where " STOCK_FILE " is");
		return false;
	}
	entry = (void (*)(struct fb_master *))dlsym(handle, "firebird_plugin");
	if (entry && entry != firebird_plugin)
		entry(&stock_master);
	if (factory)
		return true;
	snprintf(error, error_size,
		 "MODE=CLOCK needs the stock profiler, and %.700s is another module", path);
	dlclose(handle);
	handle = NULL;
	return false;
}

/* ---- Our module, as the engine knows it ---- */

/*
 * The engine unloads us, which leaves our code where it is, but the stock module is to go as if the
 * engine had loaded it.  (Known by two names, we may be unloaded by one and in use by the other.)
 */
static void do_clean(struct fb_plugin_module *self)
{
	struct fb_plugin_module *module;
	void *unloaded = NULL;

	(void)self;
	pthread_mutex_lock(&mutex);
	if (handle && !plugins) {
		module = atomic_exchange(&cleanup, NULL);
		if (module)
			module->vtable->do_clean(module);
		unloaded = handle;
		handle = NULL;
		factory = NULL;
	}
	pthread_mutex_unlock(&mutex);
	if (unloaded)
		dlclose(unloaded);
}

static void thread_detach(struct fb_plugin_module *self)
{
	struct fb_plugin_module *module = atomic_load(&cleanup);

	(void)self;
	if (module && module->vtable->version >= FB_PLUGIN_MODULE_VERSION)
		module->vtable->thread_detach(module);
}

static const struct fb_plugin_module_vtable our_module_vtable = {
	.version = FB_PLUGIN_MODULE_VERSION,
	.do_clean = do_clean,
	.thread_detach = thread_detach,
};

static struct fb_plugin_module our_module = { .vtable = &our_module_vtable };

void stock_engine_loads(struct fb_master *loader)
{
	struct fb_plugin_manager *its_manager = loader->vtable->get_plugin_manager(loader);

	atomic_store_explicit(&real_master, loader, memory_order_release);
	its_manager->vtable->register_module(its_manager, &our_module);
}

/* ---- Plugin objects ---- */

/* A child of fork must find the mutex free. */
static void lock(void)
{
	pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

static void watch_forks(void)
{
	pthread_atfork(lock, unlock, unlock);
}

struct fb_profiler_plugin *stock_plugin_new(struct fb_status *status, void *config, char *error,
					    size_t error_size)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct fb_plugin_factory *found = NULL;
	struct fb_profiler_plugin *plugin;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&mutex);
	if (load(error, error_size)) {
		found = factory;
		plugins++;
	}
	pthread_mutex_unlock(&mutex);
	if (!found)
		return NULL;
	plugin = found->vtable->create_plugin(found, status, config);
	if (!plugin) {
		snprintf(error, error_size, "the stock profiler could not be made: no memory?");
		pthread_mutex_lock(&mutex);
		plugins--;
		pthread_mutex_unlock(&mutex);
	}
	return plugin;
}

void stock_plugin_free(struct fb_profiler_plugin *plugin)
{
	plugin->vtable->release(plugin);
	pthread_mutex_lock(&mutex);
	plugins--;
	pthread_mutex_unlock(&mutex);
}
