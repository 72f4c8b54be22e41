/*
 * Opens its sibling by the bare name, from this module: the dynamic linker must see that it is this
 * one that asks.  Built twice, with an RPATH and with a RUNPATH.
 */
#include <dlfcn.h>

void *open_sibling(int mode);

__attribute__((visibility("default"))) void *open_sibling(int mode)
{
	void *handle = dlopen("sibling.so", mode);

	/* No tail call here: the return address is to be in this module. */
	__asm__ volatile("" : : "r"(handle) : "memory");
	return handle;
}
