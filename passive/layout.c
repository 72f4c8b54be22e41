/*
 * The identity of engines, and the cache of layouts: see layout.h.  The cache file is of lines of
 * words, and ends with a line that has the SHA-256 of all before it.
 */
#include "layout.h"
#include "cache.h"
#include "sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC	  "fbprof-layout 1"
#define KIND	  "layout" /* of one with all that there is room for the text takes 10 KB */
#define READ_SIZE 16384

static const char *const fact_names[LAYOUT_FACTS] = {
	[LAYOUT_REQUEST] = "request",
	[LAYOUT_ATTACHMENT] = "attachment",
	[LAYOUT_CALLER] = "caller",
	[LAYOUT_STATEMENT] = "statement",
	[LAYOUT_REQUEST_ID] = "request_id",
	[LAYOUT_LINE] = "line",
	[LAYOUT_COLUMN] = "column",
	[LAYOUT_STATEMENT_ID] = "statement_id",
	[LAYOUT_SQL_TEXT] = "sql_text",
	[LAYOUT_PROCEDURE] = "procedure",
	[LAYOUT_FUNCTION] = "function",
	[LAYOUT_TRIGGER] = "trigger",
	[LAYOUT_PROCEDURE_PACKAGE] = "procedure_package",
	[LAYOUT_FUNCTION_PACKAGE] = "function_package",
	[LAYOUT_ATTACHMENT_ID] = "attachment_id",
	[LAYOUT_USER] = "user",
	[LAYOUT_DATABASE] = "database",
	[LAYOUT_SOURCE_CURSOR] = "source_cursor",
	[LAYOUT_SOURCE_ID] = "source_id",
	[LAYOUT_SOURCE_TABLE] = "source_table",
	[LAYOUT_SOURCE_ALIAS] = "source_alias",
	[LAYOUT_OUTER] = "outer",
};

static const char *const type_names[LAYOUT_TYPES] = {
	[LAYOUT_ABSENT] = "absent",
	[LAYOUT_POINTER] = "pointer",
	[LAYOUT_U32] = "u32",
	[LAYOUT_U64] = "u64",
	[LAYOUT_TEXT] = "text",
	[LAYOUT_TEXT_ZERO] = "text_zero",
	[LAYOUT_TEXT_INLINE] = "text_inline",
};

static const char *const event_names[LAYOUT_PLAN_EVENTS] = {
	[LAYOUT_PLAN_OPEN] = "open",
	[LAYOUT_PLAN_FETCH] = "fetch",
	[LAYOUT_PLAN_REQUEST] = "request",
};

const char *layout_fact_name(enum layout_fact fact)
{
	return fact_names[fact];
}

const char *layout_event_name(enum layout_plan_event event)
{
	return event_names[event];
}

const char *layout_type_name(enum layout_type type)
{
	return type_names[type];
}

/* ---- Identity ---- */

static bool digest_file(int fd, char identity[LAYOUT_IDENTITY_SIZE])
{
	unsigned char bytes[READ_SIZE];
	struct sha256 sha;
	ssize_t got;

	sha256_init(&sha);
	while ((got = read(fd, bytes, sizeof(bytes))) != 0) {
		if (got > 0)
			sha256_add(&sha, bytes, (size_t)got);
		else if (errno != EINTR)
			return false;
	}
	sha256_hex(&sha, identity);
	return true;
}

/* A device may have no end, and a pipe none either as long as nobody writes. */
static bool is_regular(int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

bool layout_identify(const char *engine, char identity[LAYOUT_IDENTITY_SIZE],
		     char error[LAYOUT_ERROR_SIZE])
{
	int fd = open(engine, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	bool is_file = fd < 0 || is_regular(fd);
	bool done = fd >= 0 && is_file && digest_file(fd, identity);

	if (!is_file)
		snprintf(error, LAYOUT_ERROR_SIZE,
			 "%.900s: is no file: name the engine's file, libEngine*.so", engine);
	else if (!done)
		snprintf(error, LAYOUT_ERROR_SIZE,
			 "%.900s: cannot be read: %s: name the engine's file, libEngine*.so",
			 engine, strerror(errno));
	if (fd >= 0)
		close(fd);
	return done;
}

void layout_copy_step(char *step, size_t room, const char *access_path)
{
	const char *from = access_path + strspn(access_path, " ->");
	bool quoted = false;
	size_t size = 0;
	int depth = 0;

	for (; *from && *from != '\n' && size + 1 < room; from++) {
		if (*from == '"')
			quoted = !quoted;
		else if (quoted)
			continue;
		if (!quoted && strncmp(from, "\" as \"", 6) == 0) {
			from += 5;
			quoted = true;
			continue;
		}
		if (!quoted && *from == '(')
			depth++;
		if (!depth)
			step[size++] = *from;
		if (!quoted && *from == ')')
			depth--;
	}
	while (size && step[size - 1] == ' ')
		size--;
	step[size] = 0;
}

/* ---- The file's text ---- */

static void write_text(const struct layout *layout, struct cache_text *text)
{
	cache_add(text, MAGIC "\nidentity %s\nengine %s\nverified %" PRIu64 "\n", layout->identity,
		  layout->engine, layout->verified);
	for (unsigned i = 0; i < LAYOUT_FACTS; i++) {
		const struct layout_path *path = &layout->path[i];

		if (path->type == LAYOUT_ABSENT)
			continue;
		cache_add(text, "path %s %s %d", fact_names[i], type_names[path->type],
			  path->length);
		for (unsigned step = 0; step < path->steps; step++)
			cache_add(text, " %d", path->offset[step]);
		cache_add(text, "\n");
	}
	for (unsigned i = 0; i < layout->plan_functions; i++)
		cache_add(text, "plan %s %" PRIu64 " %" PRIu64 " %u %d %d\n",
			  event_names[layout->plan[i].event], layout->plan[i].start,
			  layout->plan[i].end, layout->plan[i].reg, layout->plan[i].offset,
			  layout->plan[i].slot);
	for (unsigned i = 0; i < layout->plan_types; i++)
		cache_add(text, "step %" PRIu64 " %d %d %d %s\n", layout->type[i].type,
			  layout->type[i].has_table, layout->type[i].has_alias,
			  layout->type[i].root, layout->type[i].step);
}

static bool find_name(const char *const *names, unsigned count, const char *name, unsigned *found)
{
	for (unsigned i = 0; i < count; i++) {
		if (strcmp(names[i], name) == 0) {
			*found = i;
			return true;
		}
	}
	return false;
}

/* A whole word that is a number. */
static bool read_number(const char *word, int64_t *number)
{
	char *end;

	if (!word)
		return false;
	errno = 0;
	*number = strtoll(word, &end, 10);
	return end != word && !*end && errno == 0;
}

static bool read_offset(const char *word, int32_t *offset)
{
	int64_t number;

	if (!read_number(word, &number) || number < INT32_MIN || number > INT32_MAX)
		return false;
	*offset = (int32_t)number;
	return true;
}

static bool read_path(struct layout *layout, char **words)
{
	const char *name = strsep(words, " "), *type = strsep(words, " "), *word;
	unsigned fact, type_found;
	struct layout_path *path;

	if (!name || !type || !find_name(fact_names, LAYOUT_FACTS, name, &fact) ||
	    !find_name(type_names, LAYOUT_TYPES, type, &type_found))
		return false;
	path = &layout->path[fact];
	path->type = (enum layout_type)type_found;
	if (!read_offset(strsep(words, " "), &path->length))
		return false;
	for (path->steps = 0; (word = strsep(words, " ")); path->steps++) {
		if (path->steps == LAYOUT_STEPS || !read_offset(word, &path->offset[path->steps]))
			return false;
	}
	return path->steps > 0 &&
	       (fact < LAYOUT_OBJECTS || fact == LAYOUT_OUTER) == (path->type == LAYOUT_POINTER);
}

static bool read_plan(struct layout *layout, char **words)
{
	struct layout_plan_function *plan = &layout->plan[layout->plan_functions];
	const char *name = strsep(words, " ");
	int64_t start, end, reg;
	unsigned event;

	if (layout->plan_functions == LAYOUT_PLAN_FUNCTIONS || !name ||
	    !find_name(event_names, LAYOUT_PLAN_EVENTS, name, &event) ||
	    !read_number(strsep(words, " "), &start) || !read_number(strsep(words, " "), &end) ||
	    !read_number(strsep(words, " "), &reg) ||
	    !read_offset(strsep(words, " "), &plan->offset) ||
	    !read_offset(strsep(words, " "), &plan->slot) || start < 0 || end <= start || reg < 0 ||
	    reg > UINT8_MAX)
		return false;
	plan->start = (uint64_t)start;
	plan->end = (uint64_t)end;
	plan->event = (enum layout_plan_event)event;
	plan->reg = (uint32_t)reg;
	layout->plan_functions++;
	return true;
}

static bool read_step(struct layout *layout, char **words)
{
	struct layout_plan_type *type = &layout->type[layout->plan_types];
	int64_t offset, has_table, has_alias, root;

	if (!read_number(strsep(words, " "), &offset) || offset < 0 ||
	    !read_number(strsep(words, " "), &has_table) ||
	    !read_number(strsep(words, " "), &has_alias) ||
	    !read_number(strsep(words, " "), &root) || !*words ||
	    layout->plan_types == LAYOUT_PLAN_TYPES || strlen(*words) >= sizeof(type->step))
		return false;
	type->type = (uint64_t)offset;
	type->has_table = has_table != 0;
	type->has_alias = has_alias != 0;
	type->root = root != 0;
	strcpy(type->step, *words);
	layout->plan_types++;
	return true;
}

static bool read_line(struct layout *layout, char *line)
{
	const char *key = strsep(&line, " ");
	int64_t number;

	if (!line)
		return false;
	if (strcmp(key, "identity") == 0)
		return snprintf(layout->identity, sizeof(layout->identity), "%s", line) ==
		       LAYOUT_IDENTITY_SIZE - 1;
	if (strcmp(key, "engine") == 0)
		return snprintf(layout->engine, sizeof(layout->engine), "%s", line) <
		       (int)sizeof(layout->engine);
	if (strcmp(key, "verified") == 0) {
		if (!read_number(line, &number) || number < 0)
			return false;
		layout->verified = (uint64_t)number;
		return true;
	}
	if (strcmp(key, "path") == 0)
		return read_path(layout, &line);
	if (strcmp(key, "step") == 0)
		return read_step(layout, &line);
	return strcmp(key, "plan") == 0 && read_plan(layout, &line);
}

/* Objects, line and request id can't be missing; nor is a layout of use that nothing verified. */
static bool is_complete(const struct layout *layout)
{
	for (unsigned i = 0; i < LAYOUT_OBJECTS; i++) {
		if (layout->path[i].type != LAYOUT_POINTER)
			return false;
	}
	return layout->path[LAYOUT_REQUEST_ID].type != LAYOUT_ABSENT &&
	       layout->path[LAYOUT_LINE].type != LAYOUT_ABSENT && layout->verified > 0;
}

static bool read_text(struct layout *layout, char *text)
{
	char *line;

	*layout = (struct layout){ 0 };
	if (!(line = strsep(&text, "\n")) || strcmp(line, MAGIC) != 0)
		return false;
	while ((line = strsep(&text, "\n")) && *line) {
		if (!read_line(layout, line))
			return false;
	}
	return is_complete(layout);
}

/* ---- Load and save ---- */

bool layout_load(struct layout *layout, const char *directory, const char *identity,
		 char error[LAYOUT_ERROR_SIZE])
{
	char text[CACHE_FILE_ROOM];

	if (!cache_load(directory, identity, KIND, text, error))
		return false;
	if (!read_text(layout, text))
		return cache_refuse_content(directory, identity, KIND,
					    "is damaged or can't be read", error);
	if (strcmp(layout->identity, identity) != 0)
		return cache_refuse_content(directory, identity, KIND, "is of another engine",
					    error);
	return true;
}

bool layout_save(const struct layout *layout, const char *directory, char error[LAYOUT_ERROR_SIZE])
{
	struct cache_text text = { .size = 0 };

	write_text(layout, &text);
	return cache_save(directory, layout->identity, KIND, &text, error);
}
