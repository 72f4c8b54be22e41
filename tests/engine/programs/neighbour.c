/* Found by the program harmless through its RUNPATH, and finds libfarther.so through its own. */
#include <dlfcn.h>
#include <stddef.h>

const char *neighbour(void);

const char *neighbour(void)
{
	void *library = dlopen("libfarther.so", RTLD_NOW);

	return library ? *(const char *const *)dlsym(library, "farther") : dlerror();
}
