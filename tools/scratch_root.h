/*
 * A Firebird root for an embedded engine of its own: links to the engine's runtime, with
 * configuration, locks, log and temporary files apart, so that nothing of the installation is
 * touched.
 */
#ifndef FBPROF_SCRATCH_ROOT_H
#define FBPROF_SCRATCH_ROOT_H

#include <stdbool.h>

struct scratch_root {
	char *directory; /* FIREBIRD; databases go there, too */
	char *engine;	 /* the engine's file, as Firebird loads it */
	char *client;	 /* the client library that goes with it */
	char **environment;
};

/*
 * `client`: the client library, NULL to look for it near the engine.  False, with a sentence in
 * `error` (to be freed).  Free it in any case: that removes the directory.
 */
bool scratch_root_make(struct scratch_root *root, const char *engine, const char *client,
		       char **error);
void scratch_root_free(struct scratch_root *root);

#endif
