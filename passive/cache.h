/*
 * What is learnt of an engine, in files of a cache: DIRECTORY/IDENTITY.KIND, a text of lines that ends
 * with one of its checksum.  Any thread; no state.
 */
#ifndef FBPROF_PASSIVE_CACHE_H
#define FBPROF_PASSIVE_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#define CACHE_FILE_ROOM	 16384 /* of a text with its checksum and NUL */
#define CACHE_ERROR_SIZE 1024

/* What is being written. */
struct cache_text {
	char text[CACHE_FILE_ROOM];
	size_t size;
};

/* What there is no room for is left out, and makes the file one that can't be loaded. */
__attribute__((format(printf, 2, 3))) void cache_add(struct cache_text *text, const char *format,
						     ...);

/*
 * `directory` NULL: FBPROF_CACHE, else fbprof/ in the user's cache directory.  `kind`: "layout" and the
 * like.  Loaded is the text without its checksum.  False, with a sentence that says what to do: it is
 * missing, damaged or unreadable; or it can't be written.
 */
bool cache_load(const char *directory, const char *identity, const char *kind,
		char text[CACHE_FILE_ROOM], char error[CACHE_ERROR_SIZE]);
bool cache_save(const char *directory, const char *identity, const char *kind,
		struct cache_text *text, char error[CACHE_ERROR_SIZE]);

/* Whether there is one at all, be it as it may. */
bool cache_has(const char *directory, const char *identity, const char *kind);

/* Whether something can be saved there, before there is anything to save; makes the directory. */
bool cache_may_save(const char *directory, char error[CACHE_ERROR_SIZE]);

/* The sentence for a file of which the content is not what it should be; always false. */
bool cache_refuse_content(const char *directory, const char *identity, const char *kind,
			  const char *what, char error[CACHE_ERROR_SIZE]);

#endif
