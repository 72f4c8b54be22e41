/*
 * The image of a module in the own process, and memory in it that need not be there: for learning, which follows
 * what may be no pointer.  Any thread.
 */
#ifndef FBPROF_IMAGE_OWN_H
#define FBPROF_IMAGE_OWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct own_image {
	uint64_t base; /* load address */
	uint64_t end;
	uint64_t *methods; /* ascending; NULL: not looked for */
	size_t method_count;
};

/* The module that the address is in. */
bool own_image_find(const void *inside, struct own_image *image);

bool own_image_has(const struct own_image *image, uint64_t address);

/*
 * Looks for functions that its data has the addresses of, as virtual functions are.  False: out of memory.
 * own_image_clear() frees them.
 */
bool own_image_find_methods(struct own_image *image);
bool own_image_is_method(const struct own_image *image, uint64_t function);
void own_image_clear(struct own_image *image);

/* False: it can't be read. */
bool own_image_read(uint64_t address, void *to, size_t size);

#endif
