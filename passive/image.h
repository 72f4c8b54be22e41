/*
 * ELF images as they lie in a process's memory: what the dynamic linker has loaded, and where symbols
 * of .dynsym are.  No file is read, so that an upgrade underneath or another mount namespace is no
 * matter.  Any thread; no state.
 */
#ifndef FBPROF_IMAGE_H
#define FBPROF_IMAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct image {
	uint64_t base;	  /* load address */
	uint64_t dynamic; /* address of its dynamic section */
	uint64_t map;	  /* address of the linker's struct link_map; 0: unknown */
};

/* The dynamic linker, found by the auxiliary vector.  False: none, or it can't be read. */
bool image_linker(pid_t process, struct image *linker);

/* The address of a defined symbol; 0: there is none. */
uint64_t image_symbol(pid_t process, const struct image *image, const char *name);

/*
 * The first loaded image whose file name, without its folder, begins with `prefix`.  `path` becomes its
 * name as the linker knows it; `size` includes NUL.
 */
bool image_find(pid_t process, const struct image *linker, const char *prefix, struct image *image,
		char *path, size_t size);

#endif
