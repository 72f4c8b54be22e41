#include "image.h"
#include "memory.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define MAX_IMAGES  4096 /* in a damaged list we would go round for ever */
#define MAX_HEADERS 64
#define MAX_CHAIN   4096
#define PATIENCE    5 /* readings of a list that changes meanwhile */

/* From another process's auxiliary vector.  Our own file may be closed to us: a server drops its rights. */
static uint64_t auxiliary(pid_t process, uint64_t type)
{
	ElfW(auxv_t) entries[64];
	char name[64];
	ssize_t got;
	int file;

	if (process == getpid())
		return getauxval(type);
	snprintf(name, sizeof(name), "/proc/%d/auxv", (int)process);
	file = open(name, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return 0;
	got = read(file, entries, sizeof(entries));
	close(file);
	for (ssize_t i = 0; i < got / (ssize_t)sizeof(entries[0]); i++) {
		if (entries[i].a_type == type)
			return entries[i].a_un.a_val;
	}
	return 0;
}

static bool find_dynamic(pid_t process, struct image *image)
{
	ElfW(Ehdr) header;
	ElfW(Phdr) headers[MAX_HEADERS];

	if (!memory_load(process, image->base, &header, sizeof(header)) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phnum > MAX_HEADERS ||
	    !memory_load(process, image->base + header.e_phoff, headers,
			 header.e_phnum * sizeof(headers[0])))
		return false;
	for (unsigned i = 0; i < header.e_phnum; i++) {
		if (headers[i].p_type == PT_DYNAMIC) {
			image->dynamic = image->base + headers[i].p_vaddr;
			return true;
		}
	}
	return false;
}

bool image_linker(pid_t process, struct image *linker)
{
	int saved = errno;
	uint64_t base = auxiliary(process, AT_BASE);

	/* Where the linker was run as a program, the program's headers are its own. */
	if (base == 0)
		base = auxiliary(process, AT_PHDR) & ~UINT64_C(0xfff);
	errno = saved;
	*linker = (struct image){ .base = base };
	return base != 0 && find_dynamic(process, linker);
}

struct symbols {
	uint64_t table, names, hash;
};

static bool find_symbols(pid_t process, const struct image *image, struct symbols *symbols)
{
	ElfW(Dyn) entry;

	*symbols = (struct symbols){ 0 };
	for (unsigned i = 0; i < MAX_CHAIN; i++) {
		uint64_t address;

		if (!memory_load(process, image->dynamic + i * sizeof(entry), &entry,
				 sizeof(entry)))
			return false;
		/* The linker relocates these in place, where it can write. */
		address = entry.d_un.d_ptr < image->base ? entry.d_un.d_ptr + image->base :
							   entry.d_un.d_ptr;
		if (entry.d_tag == DT_SYMTAB)
			symbols->table = address;
		else if (entry.d_tag == DT_STRTAB)
			symbols->names = address;
		else if (entry.d_tag == DT_GNU_HASH)
			symbols->hash = address;
		else if (entry.d_tag == DT_NULL)
			break;
	}
	return symbols->table != 0 && symbols->names != 0 && symbols->hash != 0;
}

static uint32_t gnu_hash(const char *name)
{
	uint32_t hash = 5381;

	for (; *name != '\0'; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

static uint64_t symbol_value(pid_t process, const struct symbols *symbols, uint32_t index,
			     const char *name)
{
	ElfW(Sym) symbol;
	char found[128];

	if (!memory_load(process, symbols->table + index * sizeof(symbol), &symbol,
			 sizeof(symbol)) ||
	    symbol.st_shndx == SHN_UNDEF ||
	    !memory_text(process, symbols->names + symbol.st_name, found, sizeof(found)) ||
	    strcmp(found, name) != 0)
		return 0;
	return symbol.st_value;
}

uint64_t image_symbol(pid_t process, const struct image *image, const char *name)
{
	struct {
		uint32_t buckets, first, bloom_words, bloom_shift;
	} table;
	struct symbols symbols;
	uint32_t hash = gnu_hash(name), index, entry;
	uint64_t buckets, chain;

	if (!find_symbols(process, image, &symbols) ||
	    !memory_load(process, symbols.hash, &table, sizeof(table)) || table.buckets == 0)
		return 0;
	buckets = symbols.hash + sizeof(table) + UINT64_C(8) * table.bloom_words;
	chain = buckets + UINT64_C(4) * table.buckets;
	if (!memory_load(process, buckets + UINT64_C(4) * (hash % table.buckets), &index,
			 sizeof(index)) ||
	    index < table.first)
		return 0;
	for (unsigned i = 0; i < MAX_CHAIN; i++, index++) {
		if (!memory_load(process, chain + UINT64_C(4) * (index - table.first), &entry,
				 sizeof(entry)))
			return 0;
		if ((entry | 1) == (hash | 1)) {
			uint64_t value = symbol_value(process, &symbols, index, name);

			if (value != 0)
				return image->base + value;
		}
		if (entry & 1)
			return 0;
	}
	return 0;
}

static bool has_prefix(const char *path, const char *prefix)
{
	const char *slash = strrchr(path, '/');

	return strncmp(slash != NULL ? slash + 1 : path, prefix, strlen(prefix)) == 0;
}

/* The public head of the linker's structure, in <link.h>. */
static bool search_list(pid_t process, uint64_t first, const char *prefix, struct image *image,
			char *path, size_t size, bool *changed)
{
	uint64_t previous = 0;
	struct link_map map;

	*changed = false;
	for (unsigned i = 0; first != 0 && i < MAX_IMAGES; i++) {
		if (!memory_load(process, first, &map, sizeof(map)) ||
		    (uintptr_t)map.l_prev != previous) {
			*changed = true;
			return false;
		}
		if (memory_text(process, (uintptr_t)map.l_name, path, size) &&
		    has_prefix(path, prefix)) {
			*image = (struct image){ map.l_addr, (uintptr_t)map.l_ld, first };
			return true;
		}
		previous = first;
		first = (uintptr_t)map.l_next;
	}
	return false;
}

bool image_find(pid_t process, const struct image *linker, const char *prefix, struct image *image,
		char *path, size_t size)
{
	uint64_t address = image_symbol(process, linker, "_r_debug");
	struct r_debug debug;
	bool changed = address != 0;

	for (unsigned i = 0; changed && i < PATIENCE; i++) {
		if (!memory_load(process, address, &debug, sizeof(debug)))
			return false;
		if (search_list(process, (uintptr_t)debug.r_map, prefix, image, path, size,
				&changed))
			return true;
	}
	return false;
}
