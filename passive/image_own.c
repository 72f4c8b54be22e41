#include "image_own.h"
#include "memory.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct search {
	uint64_t inside;
	struct own_image *image;
};

static int find_image(struct dl_phdr_info *info, size_t size, void *context)
{
	struct search *search = context;
	uint64_t start = UINT64_MAX, end = 0;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type != PT_LOAD)
			continue;
		if (info->dlpi_addr + segment->p_vaddr < start)
			start = info->dlpi_addr + segment->p_vaddr;
		if (info->dlpi_addr + segment->p_vaddr + segment->p_memsz > end)
			end = info->dlpi_addr + segment->p_vaddr + segment->p_memsz;
	}
	if (search->inside < start || search->inside >= end)
		return 0;
	*search->image = (struct own_image){ .base = info->dlpi_addr, .end = end };
	return 1;
}

bool own_image_find(const void *inside, struct own_image *image)
{
	struct search search = { (uint64_t)inside, image };

	return dl_iterate_phdr(find_image, &search) == 1;
}

bool own_image_has(const struct own_image *image, uint64_t address)
{
	return address >= image->base && address < image->end;
}

bool own_image_read(uint64_t address, void *to, size_t size)
{
	return memory_load(getpid(), address, to, size);
}

/* ---- Methods ---- */

struct scan {
	struct own_image *image;
	uint64_t code, code_end;
	size_t room;
	bool failed;
};

static void add_methods(struct scan *scan, const uint64_t *words, size_t count)
{
	struct own_image *image = scan->image;

	for (size_t i = 0; i < count; i++) {
		if (words[i] < scan->code || words[i] >= scan->code_end)
			continue;
		if (image->method_count == scan->room) {
			size_t room = scan->room ? 2 * scan->room : 4096;
			uint64_t *methods = reallocarray(image->methods, room, sizeof(*methods));

			if (!methods) {
				scan->failed = true;
				return;
			}
			image->methods = methods;
			scan->room = room;
		}
		image->methods[image->method_count++] = words[i];
	}
}

/* Its data are readable as long as it is loaded. */
static int scan_module(struct dl_phdr_info *info, size_t size, void *context)
{
	struct scan *scan = context;

	(void)size;
	if (info->dlpi_addr != scan->image->base)
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type == PT_LOAD && segment->p_flags & PF_X) {
			scan->code = info->dlpi_addr + segment->p_vaddr;
			scan->code_end = scan->code + segment->p_memsz;
		}
	}
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type == PT_LOAD && segment->p_flags & PF_W)
			add_methods(scan,
				    (const uint64_t *)((info->dlpi_addr + segment->p_vaddr + 7) &
						       ~7ull),
				    segment->p_filesz / 8 - 1);
	}
	return 1;
}

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

bool own_image_find_methods(struct own_image *image)
{
	struct scan scan = { .image = image };

	dl_iterate_phdr(scan_module, &scan);
	if (image->method_count)
		qsort(image->methods, image->method_count, sizeof(*image->methods), compare);
	return !scan.failed;
}

bool own_image_is_method(const struct own_image *image, uint64_t function)
{
	return image->method_count && bsearch(&function, image->methods, image->method_count,
					      sizeof(*image->methods), compare);
}

void own_image_clear(struct own_image *image)
{
	free(image->methods);
	image->methods = NULL;
	image->method_count = 0;
}
