/*
 * See cache.h.
 */
#include "cache.h"
#include "sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

/* Always false, for the caller to return. */
__attribute__((format(printf, 2, 3))) static bool refuse(char error[CACHE_ERROR_SIZE],
							 const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, CACHE_ERROR_SIZE, format, arguments);
	va_end(arguments);
	return false;
}

/* ---- Where the cache is ---- */

static bool find_directory(const char *directory, char path[PATH_MAX], char error[CACHE_ERROR_SIZE])
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int size;

	if (!directory)
		directory = getenv("FBPROF_CACHE");
	if (directory && *directory)
		size = snprintf(path, PATH_MAX, "%s", directory);
	else if (cache && *cache == '/')
		size = snprintf(path, PATH_MAX, "%s/fbprof", cache);
	else if (home && *home == '/')
		size = snprintf(path, PATH_MAX, "%s/.cache/fbprof", home);
	else
		return refuse(error, "no cache directory is known: set FBPROF_CACHE to one");
	if (size >= PATH_MAX)
		return refuse(error, "the cache directory's name is too long: set FBPROF_CACHE");
	return true;
}

static bool find_file(const char *directory, const char *identity, const char *kind,
		      char path[PATH_MAX], char error[CACHE_ERROR_SIZE])
{
	char parent[PATH_MAX];

	if (!find_directory(directory, parent, error))
		return false;
	if (snprintf(path, PATH_MAX, "%s/%s.%s", parent, identity, kind) >= PATH_MAX)
		return refuse(error, "the cache directory's name is too long: set FBPROF_CACHE");
	return true;
}

/* Makes the directory and its parents. */
static bool make_directory(const char *directory)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s", directory);
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (mkdir(path, 0700) != 0 && errno != EEXIST)
			return false;
		*slash = '/';
	}
	return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* ---- The file's text ---- */

void cache_add(struct cache_text *text, const char *format, ...)
{
	size_t room = sizeof(text->text) - text->size;
	va_list arguments;
	int added;

	va_start(arguments, format);
	added = vsnprintf(text->text + text->size, room, format, arguments);
	va_end(arguments);
	if (added > 0)
		text->size += MIN((size_t)added, room - 1);
}

static void add_sum(struct cache_text *text)
{
	char sum[SHA256_HEX_SIZE];
	struct sha256 sha;

	sha256_init(&sha);
	sha256_add(&sha, text->text, text->size);
	sha256_hex(&sha, sum);
	cache_add(text, "sha256 %s\n", sum);
}

/* Ends the text before its last line, if that has the right sum. */
static bool check_sum(char *text)
{
	char sum[SHA256_HEX_SIZE], *line = strstr(text, "\nsha256 ");
	struct sha256 sha;

	if (!line)
		return false;
	line++;
	sha256_init(&sha);
	sha256_add(&sha, text, (size_t)(line - text));
	sha256_hex(&sha, sum);
	if (strncmp(line + strlen("sha256 "), sum, strlen(sum)) != 0 ||
	    strcmp(line + strlen("sha256 ") + strlen(sum), "\n") != 0)
		return false;
	*line = 0;
	return true;
}

/* ---- Load and save ---- */

/* Reads a regular file of less than `room` bytes, and ends it with NUL. */
static bool read_file(const char *path, char *text, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t size = 0;
	ssize_t got = -1;

	if (fd < 0)
		return false;
	while (size < room) {
		got = read(fd, text + size, room - size);
		if (got > 0)
			size += (size_t)got;
		else if (got == 0 || errno != EINTR)
			break;
	}
	close(fd);
	text[size < room ? size : 0] = 0;
	return got == 0 && strlen(text) == size;
}

bool cache_refuse_content(const char *directory, const char *identity, const char *kind,
			  const char *what, char error[CACHE_ERROR_SIZE])
{
	char path[PATH_MAX];

	return find_file(directory, identity, kind, path, error) &&
	       refuse(error, "%.800s: %s: remove it and run fbprof calibrate on the engine's file",
		      path, what);
}

bool cache_has(const char *directory, const char *identity, const char *kind)
{
	char path[PATH_MAX], error[CACHE_ERROR_SIZE];

	return find_file(directory, identity, kind, path, error) && access(path, F_OK) == 0;
}

bool cache_load(const char *directory, const char *identity, const char *kind,
		char text[CACHE_FILE_ROOM], char error[CACHE_ERROR_SIZE])
{
	char path[PATH_MAX];

	if (!find_file(directory, identity, kind, path, error))
		return false;
	if (access(path, F_OK) != 0) {
		if (errno == ENOENT || errno == ENOTDIR)
			return refuse(error,
				      "%.800s: no %s of this engine: run fbprof calibrate on its "
				      "file",
				      path, kind);
		return refuse(error,
			      "%.800s: cannot be read: %s: let this user read it, or set "
			      "FBPROF_CACHE",
			      path, strerror(errno));
	}
	return (read_file(path, text, CACHE_FILE_ROOM) && check_sum(text)) ||
	       cache_refuse_content(directory, identity, kind, "is damaged or can't be read",
				    error);
}

static bool write_file(int fd, const char *text, size_t size)
{
	while (size) {
		ssize_t put = write(fd, text, size);

		if (put < 0 && errno != EINTR)
			return false;
		if (put > 0) {
			text += put;
			size -= (size_t)put;
		}
	}
	return fchmod(fd, 0644) == 0 && fsync(fd) == 0;
}

/* Whoever reads it sees the old file or the new one, never a part. */
static bool replace_file(const char *path, const char *text, size_t size)
{
	char temporary[PATH_MAX + 8];
	bool written;
	int fd;

	snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return false;
	written = write_file(fd, text, size);
	if (close(fd) == 0 && written && rename(temporary, path) == 0)
		return true;
	unlink(temporary);
	return false;
}

static bool refuse_to_write(const char *path, char error[CACHE_ERROR_SIZE])
{
	return refuse(error,
		      "%.800s: cannot be written: %s: set FBPROF_CACHE to a directory that you may "
		      "write to",
		      path, strerror(errno));
}

bool cache_may_save(const char *directory, char error[CACHE_ERROR_SIZE])
{
	char path[PATH_MAX];

	if (!find_directory(directory, path, error))
		return false;
	return (make_directory(path) && access(path, W_OK | X_OK) == 0) ||
	       refuse_to_write(path, error);
}

bool cache_save(const char *directory, const char *identity, const char *kind,
		struct cache_text *text, char error[CACHE_ERROR_SIZE])
{
	char parent[PATH_MAX], path[PATH_MAX];

	if (!find_directory(directory, parent, error) ||
	    !find_file(directory, identity, kind, path, error))
		return false;
	add_sum(text);
	if (!make_directory(parent) || !replace_file(path, text->text, text->size))
		return refuse_to_write(path, error);
	return true;
}
