/*
 * See engine_module.h.
 */
#include "engine_module.h"

#include <link.h>
#include <string.h>

struct search {
	const char *file;
	struct engine_module *module;
};

static int look_at(struct dl_phdr_info *info, size_t size, void *data)
{
	const struct search *search = data;
	struct engine_module *module = search->module;

	(void)size;
	if (strcmp(info->dlpi_name, search->file) != 0)
		return 0;
	module->tls = (uint64_t)(uintptr_t)info->dlpi_tls_data;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type == PT_TLS)
			module->tls_size = segment->p_memsz;
		else if (segment->p_type == PT_LOAD && segment->p_flags & PF_X)
			module->code = (const void *)(info->dlpi_addr + segment->p_vaddr);
	}
	return 1;
}

bool engine_module_find(const char *file, struct engine_module *module)
{
	struct search search = { file, module };

	*module = (struct engine_module){ 0 };
	return dl_iterate_phdr(look_at, &search) == 1;
}
