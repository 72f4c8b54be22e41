/*
 * Scratch roots: see scratch_root.h.
 */
#include "scratch_root.h"

#include <errno.h>
#include <ftw.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLIENT "libfbclient.so.2"

#define OPEN_DIRECTORIES 16

/* What is in a root and must not be shared; databases neither. */
static const char *const own_entries[] = { "plugins",	    "lock",	    "tmp",
					   "firebird.conf", "firebird.log", "databases.conf",
					   "plugins.conf",  "fbtrace.conf", "replication.conf" };

static bool fail(char **error, const char *what, const char *remedy)
{
	*error = g_strdup_printf("%s: %s: %s", what, g_strerror(errno), remedy);
	return false;
}

static bool is_own(const char *name)
{
	for (unsigned i = 0; i < G_N_ELEMENTS(own_entries); i++) {
		if (strcmp(name, own_entries[i]) == 0)
			return true;
	}
	return g_str_has_suffix(name, ".fdb") || *name == '.';
}

/* Links to all in `from` that is not the root's own. */
static bool link_entries(const char *from, const char *to, char **error)
{
	GDir *directory = g_dir_open(from, 0, NULL);
	const char *name;
	bool done = directory != NULL;

	if (!directory)
		return fail(error, from, "name an engine in its installation");
	while (done && (name = g_dir_read_name(directory))) {
		char *target = g_build_filename(from, name, NULL);
		char *link = g_build_filename(to, name, NULL);

		if (!is_own(name) && symlink(target, link) != 0)
			done = fail(error, link, "check where TMPDIR is");
		g_free(target);
		g_free(link);
	}
	g_dir_close(directory);
	return done;
}

/* ---- The client library ---- */

/* Beside the engine's directory, or where a distribution has libraries. */
static char *find_client(const char *installation)
{
	static const char *const places[] = { ".", "lib", "..", "../..", "../../.." };
	char *client = NULL;

	for (unsigned i = 0; i < G_N_ELEMENTS(places) && !client; i++) {
		client = g_build_filename(installation, places[i], CLIENT, NULL);
		if (g_access(client, R_OK) != 0)
			g_clear_pointer(&client, g_free);
	}
	return client ? client : g_strdup(CLIENT);
}

/* ---- Configuration ---- */

static bool write_file(const char *directory, const char *name, const char *text, char **error)
{
	char *path = g_build_filename(directory, name, NULL);
	GError *problem = NULL;
	bool done = g_file_set_contents(path, text, -1, &problem);

	if (!done) {
		*error = g_strdup_printf("%s: check where TMPDIR is", problem->message);
		g_error_free(problem);
	}
	g_free(path);
	return done;
}

/*
 * The provider is named as its file, without lib and .so.  The file is named as it is, since
 * Firebird 4 loads no plugin by a link.
 */
static bool configure(const struct scratch_root *root, const char *provider, char **error)
{
	char *conf = g_strdup_printf("Providers = %s\n"
				     "ServerMode = Super\n"
				     "DatabaseAccess = Full\n"
				     "TempDirectories = %s/tmp\n"
				     "SecurityDatabase = %s/security.fdb\n",
				     provider, root->directory, root->directory);
	char *databases = g_strdup_printf("first_learning = %s/first_learning.fdb\n"
					  "second_learning = %s/second_learning.fdb\n"
					  "verifying = %s/verifying.fdb\n",
					  root->directory, root->directory, root->directory);
	char *plugins =
		g_strdup_printf("Plugin = %s {\n\tModule = %s\n}\n", provider, root->engine);
	bool done = write_file(root->directory, "firebird.conf", conf, error) &&
		    write_file(root->directory, "databases.conf", databases, error) &&
		    write_file(root->directory, "plugins.conf", plugins, error);

	g_free(plugins);
	g_free(conf);
	g_free(databases);
	return done;
}

/* Nothing that leads Firebird, the dynamic linker or fbprof elsewhere. */
static void make_environment(struct scratch_root *root, const char *installation)
{
	static const char *const prefixes[] = { "FIREBIRD", "ISC_", "LD_", "FBPROF_" };
	char **old = g_get_environ();
	char *libraries = g_strdup_printf("%s:%s/lib", installation, installation);
	char *lock = g_build_filename(root->directory, "lock", NULL);
	char *tmp = g_build_filename(root->directory, "tmp", NULL);

	root->environment = g_strdupv(old);
	for (char **variable = old; *variable; variable++) {
		char *name = g_strndup(*variable, strcspn(*variable, "="));

		for (unsigned i = 0; i < G_N_ELEMENTS(prefixes); i++) {
			if (g_str_has_prefix(name, prefixes[i]))
				root->environment = g_environ_unsetenv(root->environment, name);
		}
		g_free(name);
	}
	root->environment = g_environ_setenv(root->environment, "FIREBIRD", root->directory, TRUE);
	root->environment = g_environ_setenv(root->environment, "FIREBIRD_LOCK", lock, TRUE);
	root->environment = g_environ_setenv(root->environment, "FIREBIRD_TMP", tmp, TRUE);
	root->environment = g_environ_setenv(root->environment, "LD_LIBRARY_PATH", libraries, TRUE);
	g_strfreev(old);
	g_free(libraries);
	g_free(lock);
	g_free(tmp);
}

/* ---- The root ---- */

static bool make_directories(struct scratch_root *root, char **error)
{
	static const char *const names[] = { "lock", "tmp" };
	GError *problem = NULL;
	char *made = g_dir_make_tmp("fbprof-calibrate-XXXXXX", &problem), *real;

	if (!made) {
		*error = g_strdup_printf("%s: check where TMPDIR is", problem->message);
		g_error_free(problem);
		return false;
	}
	/* As the engine will call it. */
	real = realpath(made, NULL);
	root->directory = g_strdup(real ? real : made);
	free(real);
	g_free(made);
	for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
		char *path = g_build_filename(root->directory, names[i], NULL);
		bool done = g_mkdir(path, 0700) == 0 || fail(error, path, "check where TMPDIR is");

		g_free(path);
		if (!done)
			return false;
	}
	return true;
}

/* `engine` is absolute, and no link. */
static bool fill(struct scratch_root *root, const char *engine, const char *client, char **error)
{
	char *plugins = g_path_get_dirname(engine), *installation = g_path_get_dirname(plugins);
	char *name = g_path_get_basename(engine);
	char *provider = NULL;
	bool done = g_str_has_prefix(name, "lib") && g_str_has_suffix(name, ".so");

	if (!done)
		*error = g_strdup("is no engine by its name: name a file libEngine*.so");
	else
		provider = g_strndup(name + 3, strlen(name) - 6);
	root->engine = g_strdup(engine);
	root->client = client ? g_strdup(client) : find_client(installation);
	done = done && link_entries(installation, root->directory, error) &&
	       configure(root, provider, error);
	make_environment(root, installation);
	g_free(plugins);
	g_free(installation);
	g_free(name);
	g_free(provider);
	return done;
}

bool scratch_root_make(struct scratch_root *root, const char *engine, const char *client,
		       char **error)
{
	char *real = realpath(engine, NULL);
	bool done = real || fail(error, engine, "name the engine's file, libEngine*.so");

	*root = (struct scratch_root){ 0 };
	done = done && make_directories(root, error) && fill(root, real, client, error);
	free(real);
	return done;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
	(void)status;
	(void)type;
	(void)place;
	return remove(path);
}

void scratch_root_free(struct scratch_root *root)
{
	if (root->directory)
		nftw(root->directory, remove_entry, OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS);
	g_free(root->directory);
	g_free(root->engine);
	g_free(root->client);
	g_strfreev(root->environment);
}
