/*
 * The search: see learn.h.
 */
#include "learn.h"

#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/*
 * How far into an object to look, in bytes.  Far more than any engine needed so far, and little
 * enough for a search of seconds.
 */
#define CONTEXT_WINDOW	  512 /* what the TLS block points to: the thread's context */
#define REQUEST_WINDOW	  2048
#define STATEMENT_WINDOW  2048
#define ROUTINE_WINDOW	  512
#define ATTACHMENT_WINDOW 8192
#define DATABASE_WINDOW	  4096
#define STRING_WINDOW	  96 /* a string object, behind a reference count */
#define WORD_WINDOW	  16 /* before the characters of a dictionary's word */
#define WINDOW_MAX	  8192

#define TEXT_MAX 8192 /* bytes of a text that is compared */

/* A text's length is looked for this near to its pointer. */
#define LENGTH_NEAR 16

/* Addresses of user space. */
#define ADDRESS_MIN 0x10000u
#define ADDRESS_MAX 0x800000000000u

struct shape {
	unsigned steps;
	uint32_t window[LAYOUT_STEPS]; /* bytes to look at in each object on the way */
};

/* What a path should lead to at this moment. */
struct wanted {
	enum layout_type type; /* U32, U64 or TEXT (however it lies) */
	uint64_t number;       /* 0: none */
	const char *text;      /* "": none */
};

#define ANY_OFFSET INT32_MIN

/* All paths from one kind of object to one fact that are not refuted. */
struct finder {
	enum layout_fact fact;
	const struct shape *shapes;
	unsigned count;		     /* of shapes */
	int32_t fixed[LAYOUT_STEPS]; /* the only offset of a step, unless ANY_OFFSET */
	bool started;
	GArray *paths; /* struct layout_path */
};

#define FINDERS_MAX 8 /* in a stage */

struct learner {
	uint64_t tls_size;
	unsigned stage;
	struct finder finders[FINDERS_MAX];
	unsigned count;
	struct layout layout;
};

/* ---- Memory ---- */

/* Reads as much as is mapped there, at most `size`; returns how much. */
static size_t read_memory(uint64_t from, void *to, size_t size)
{
	struct iovec here = { to, size }, there = { (void *)from, size }; /* NOLINT */
	ssize_t got;

	if (from < ADDRESS_MIN || from > ADDRESS_MAX)
		return 0;
	got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
	return got > 0 ? (size_t)got : 0;
}

static bool read_whole(uint64_t from, void *to, size_t size)
{
	return read_memory(from, to, size) == size;
}

/* ---- Following a path ---- */

enum reached {
	REACHED,
	REACHED_NONE, /* a null pointer on the way */
	REACHED_FAULT
};

/* The address at the end of the path. */
static enum reached follow(const struct layout_path *path, uint64_t object, uint64_t *address)
{
	uint64_t place = object + (uint64_t)(int64_t)path->offset[0];

	for (unsigned step = 1; step < path->steps; step++) {
		if (!read_whole(place, &place, sizeof(place)))
			return REACHED_FAULT;
		if (!place)
			return REACHED_NONE;
		place += (uint64_t)(int64_t)path->offset[step];
	}
	*address = place;
	return REACHED;
}

/* 0 if there is none. */
static bool read_number(const struct layout_path *path, uint64_t object, uint64_t *number)
{
	uint64_t address;

	*number = 0;
	switch (follow(path, object, &address)) {
	case REACHED:
		return read_whole(address, number,
				  path->type == LAYOUT_U32 ? sizeof(uint32_t) : sizeof(uint64_t));
	case REACHED_NONE:
		return true;
	case REACHED_FAULT:
		break;
	}
	return false;
}

/* Whether this text lies there, as this type says. */
static bool text_is_at(const struct layout_path *path, uint64_t address, const char *text)
{
	char found[TEXT_MAX + 1];
	size_t size = strlen(text);
	uint64_t from = address;
	uint32_t length;

	if (size > TEXT_MAX)
		return false;
	if (path->type != LAYOUT_TEXT_INLINE) {
		if (!read_whole(address, &from, sizeof(from)))
			return false;
		if (!from)
			return size == 0;
	}
	if (path->type == LAYOUT_TEXT) {
		if (!read_whole(address + (uint64_t)(int64_t)path->length, &length,
				sizeof(length)) ||
		    length != size)
			return false;
		return read_whole(from, found, size) && memcmp(found, text, size) == 0;
	}
	return read_whole(from, found, size + 1) && memcmp(found, text, size + 1) == 0;
}

static bool agrees(const struct layout_path *path, uint64_t object, const struct wanted *wanted)
{
	uint64_t address, number;

	if (wanted->type != LAYOUT_TEXT)
		return read_number(path, object, &number) && number == wanted->number;
	switch (follow(path, object, &address)) {
	case REACHED:
		return text_is_at(path, address, wanted->text);
	case REACHED_NONE:
		return !*wanted->text;
	case REACHED_FAULT:
		break;
	}
	return false;
}

/* ---- Finding paths ---- */

static void add_path(struct finder *finder, struct layout_path *path, enum layout_type type,
		     int32_t length)
{
	path->type = type;
	path->length = length;
	g_array_append_vals(finder->paths, path, 1);
}

/* The characters may be at any offset. */
static void find_inline_text(struct finder *finder, struct layout_path *path,
			     const unsigned char *bytes, size_t size, size_t window,
			     const char *text)
{
	size_t length = strlen(text) + 1;

	for (size_t offset = 0; offset < window && offset + length <= size; offset++) {
		if (memcmp(bytes + offset, text, length) == 0) {
			path->offset[path->steps - 1] = (int32_t)offset;
			add_path(finder, path, LAYOUT_TEXT_INLINE, 0);
		}
	}
}

/* A pointer to the characters lies at `address`; its length may be near. */
static void find_pointed_text(struct finder *finder, struct layout_path *path, uint64_t address,
			      const char *text)
{
	path->type = LAYOUT_TEXT_ZERO;
	if (!text_is_at(path, address, text))
		return;
	add_path(finder, path, LAYOUT_TEXT_ZERO, 0);
	path->type = LAYOUT_TEXT;
	for (path->length = -LENGTH_NEAR; path->length <= LENGTH_NEAR; path->length += 4) {
		if (text_is_at(path, address, text))
			add_path(finder, path, LAYOUT_TEXT, path->length);
	}
}

static void find_text(struct finder *finder, struct layout_path *path, uint64_t object,
		      size_t window, const char *text)
{
	unsigned char bytes[WINDOW_MAX + TEXT_MAX + 1];
	size_t size = read_memory(object, bytes, window + strlen(text) + 1);

	find_inline_text(finder, path, bytes, size, window, text);
	for (size_t offset = 0; offset < window && offset + 8 <= size; offset += 8) {
		uint64_t pointer;
		char first;

		memcpy(&pointer, bytes + offset, sizeof(pointer));
		if (!read_whole(pointer, &first, 1) || first != *text)
			continue;
		path->offset[path->steps - 1] = (int32_t)offset;
		find_pointed_text(finder, path, object + offset, text);
	}
}

static bool may_be_at(const struct finder *finder, unsigned step, size_t offset)
{
	return finder->fixed[step] == ANY_OFFSET || finder->fixed[step] == (int32_t)offset;
}

static void find_number(struct finder *finder, struct layout_path *path, uint64_t object,
			size_t window, const struct wanted *wanted)
{
	unsigned char bytes[WINDOW_MAX];
	size_t step = wanted->type == LAYOUT_U32 ? sizeof(uint32_t) : sizeof(uint64_t);
	size_t size = read_memory(object, bytes, window);

	for (size_t offset = 0; offset + step <= size; offset += step) {
		if (memcmp(bytes + offset, &wanted->number, step) != 0 ||
		    !may_be_at(finder, path->steps - 1, offset))
			continue;
		path->offset[path->steps - 1] = (int32_t)offset;
		add_path(finder, path, wanted->type, 0);
	}
}

/* `step`: the object is what the first so many steps of the path led to. */
static void find_from(struct finder *finder, const struct shape *shape, struct layout_path *path,
		      unsigned step, uint64_t object, const struct wanted *wanted)
{
	unsigned char bytes[WINDOW_MAX];
	size_t size;

	path->steps = step + 1;
	if (path->steps == shape->steps) {
		if (wanted->type == LAYOUT_TEXT)
			find_text(finder, path, object, shape->window[step], wanted->text);
		else
			find_number(finder, path, object, shape->window[step], wanted);
		return;
	}
	size = read_memory(object, bytes, shape->window[step]);
	for (size_t offset = 0; offset + 8 <= size; offset += 8) {
		uint64_t pointer;

		memcpy(&pointer, bytes + offset, sizeof(pointer));
		if (pointer < ADDRESS_MIN || pointer > ADDRESS_MAX || pointer % 8 ||
		    !may_be_at(finder, step, offset))
			continue;
		path->offset[step] = (int32_t)offset;
		find_from(finder, shape, path, step + 1, pointer, wanted);
		path->steps = step + 1;
	}
}

static bool is_none(const struct wanted *wanted)
{
	return wanted->type == LAYOUT_TEXT ? !*wanted->text : !wanted->number;
}

/* That there is none can only rule out. */
static void feed_finder(struct finder *finder, uint64_t object, const struct wanted *wanted)
{
	guint kept = 0;

	if (!finder->started) {
		if (is_none(wanted))
			return;
		for (unsigned i = 0; i < finder->count; i++) {
			struct layout_path path = { 0 };

			find_from(finder, &finder->shapes[i], &path, 0, object, wanted);
		}
		finder->started = true;
		return;
	}
	for (guint i = 0; i < finder->paths->len; i++) {
		struct layout_path *path = &g_array_index(finder->paths, struct layout_path, i);

		if (agrees(path, object, wanted))
			g_array_index(finder->paths, struct layout_path, kept++) = *path;
	}
	g_array_set_size(finder->paths, kept);
}

/* ---- Which of the paths that are left ---- */

/* Texts with a length first: what points to a short string may be one that holds it. */
static int compare_paths(const struct layout_path *a, const struct layout_path *b)
{
	if (a->steps != b->steps)
		return a->steps < b->steps ? -1 : 1;
	if (a->type != b->type)
		return a->type < b->type ? -1 : 1;
	for (unsigned i = 0; i < a->steps; i++) {
		if (a->offset[i] != b->offset[i])
			return a->offset[i] < b->offset[i] ? -1 : 1;
	}
	/* Behind the pointer rather than before it. */
	return a->length > b->length ? -1 : a->length < b->length;
}

/* The best one that begins with `prefix`, unless that is NULL. */
static const struct layout_path *best_path(const struct finder *finder,
					   const struct layout_path *prefix)
{
	const struct layout_path *best = NULL;

	for (guint i = 0; finder && i < finder->paths->len; i++) {
		const struct layout_path *path =
			&g_array_index(finder->paths, struct layout_path, i);

		if (prefix && (path->steps <= prefix->steps ||
			       memcmp(path->offset, prefix->offset,
				      prefix->steps * sizeof(path->offset[0])) != 0))
			continue;
		if (!best || compare_paths(path, best) < 0)
			best = path;
	}
	return best;
}

static struct finder *find_finder(struct learner *learner, enum layout_fact fact)
{
	for (unsigned i = 0; i < learner->count; i++) {
		if (learner->finders[i].fact == fact)
			return &learner->finders[i];
	}
	return NULL;
}

/* The path of the object whose member `path` leads to, and the member's, from there. */
static void split_path(const struct layout_path *path, struct layout_path *object,
		       struct layout_path *member, unsigned member_steps)
{
	*object =
		(struct layout_path){ .type = LAYOUT_POINTER, .steps = path->steps - member_steps };
	memcpy(object->offset, path->offset, object->steps * sizeof(path->offset[0]));
	*member = (struct layout_path){ .type = path->type,
					.steps = member_steps,
					.length = path->length };
	memcpy(member->offset, path->offset + object->steps,
	       member_steps * sizeof(path->offset[0]));
}

static bool fail(char error[LAYOUT_ERROR_SIZE], enum layout_fact fact)
{
	snprintf(error, LAYOUT_ERROR_SIZE,
		 "no path to the %s was found in its memory: fbprof can't read this engine's "
		 "position",
		 layout_fact_name(fact));
	return false;
}

/* ---- Stages ---- */

static void add_finder(struct learner *learner, enum layout_fact fact, const struct shape *shapes,
		       unsigned count)
{
	struct finder *finder = &learner->finders[learner->count++];

	*finder = (struct finder){ .fact = fact,
				   .shapes = shapes,
				   .count = count,
				   .paths = g_array_new(FALSE, FALSE, sizeof(struct layout_path)) };
	for (unsigned step = 0; step < LAYOUT_STEPS; step++)
		finder->fixed[step] = ANY_OFFSET;
}

/* From the TLS block: its size is filled in. */
static struct shape tls_to_request[] = { { 2, { 0, REQUEST_WINDOW } },
					 { 3, { 0, CONTEXT_WINDOW, REQUEST_WINDOW } } };
static struct shape tls_to_attachment[] = { { 2, { 0, ATTACHMENT_WINDOW } },
					    { 3, { 0, CONTEXT_WINDOW, ATTACHMENT_WINDOW } } };

static void begin_first_stage(struct learner *learner)
{
	for (unsigned i = 0; i < 2; i++) {
		tls_to_request[i].window[0] = (uint32_t)MIN(learner->tls_size, WINDOW_MAX);
		tls_to_attachment[i].window[0] = (uint32_t)MIN(learner->tls_size, WINDOW_MAX);
	}
	add_finder(learner, LAYOUT_REQUEST_ID, tls_to_request, 2);
	add_finder(learner, LAYOUT_LINE, tls_to_request, 2);
	add_finder(learner, LAYOUT_ATTACHMENT_ID, tls_to_attachment, 2);
}

static void begin_second_stage(struct learner *learner)
{
	static const struct shape column[] = { { 1, { REQUEST_WINDOW } } };
	static const struct shape caller[] = { { 2, { REQUEST_WINDOW, REQUEST_WINDOW } } };
	static const struct shape outer[] = {
		{ 3, { CONTEXT_WINDOW, CONTEXT_WINDOW, REQUEST_WINDOW } }
	};
	static const struct shape statement_id[] = { { 2, { REQUEST_WINDOW, STATEMENT_WINDOW } } };
	static const struct shape sql_text[] = {
		{ 3, { REQUEST_WINDOW, STATEMENT_WINDOW, STRING_WINDOW } }
	};
	static const struct shape user[] = {
		{ 2, { ATTACHMENT_WINDOW, ROUTINE_WINDOW } },
		{ 3, { ATTACHMENT_WINDOW, ROUTINE_WINDOW, WORD_WINDOW } }
	};
	static const struct shape database[] = { { 2, { ATTACHMENT_WINDOW, DATABASE_WINDOW } } };
	const struct layout_path *path = learner->layout.path;

	add_finder(learner, LAYOUT_COLUMN, column, 1);
	add_finder(learner, LAYOUT_CALLER, caller, 1);
	find_finder(learner, LAYOUT_CALLER)->fixed[1] = path[LAYOUT_REQUEST_ID].offset[0];
	if (path[LAYOUT_REQUEST].steps == 2) {
		add_finder(learner, LAYOUT_OUTER, outer, 1);
		find_finder(learner, LAYOUT_OUTER)->fixed[1] = path[LAYOUT_REQUEST].offset[1];
		find_finder(learner, LAYOUT_OUTER)->fixed[2] = path[LAYOUT_REQUEST_ID].offset[0];
	}
	add_finder(learner, LAYOUT_STATEMENT_ID, statement_id, 1);
	add_finder(learner, LAYOUT_SQL_TEXT, sql_text, 1);
	add_finder(learner, LAYOUT_USER, user, 2);
	add_finder(learner, LAYOUT_DATABASE, database, 1);
}

static void begin_third_stage(struct learner *learner)
{
	static const struct shape routine[] = {
		{ 2, { STATEMENT_WINDOW, ROUTINE_WINDOW } },
		{ 3, { STATEMENT_WINDOW, ROUTINE_WINDOW, WORD_WINDOW } }
	};
	static const struct shape trigger[] = { { 1, { STATEMENT_WINDOW } },
						{ 2, { STATEMENT_WINDOW, WORD_WINDOW } } };

	add_finder(learner, LAYOUT_PROCEDURE, routine, 2);
	add_finder(learner, LAYOUT_FUNCTION, routine, 2);
	add_finder(learner, LAYOUT_TRIGGER, trigger, 2);
	add_finder(learner, LAYOUT_PROCEDURE_PACKAGE, routine, 2);
	add_finder(learner, LAYOUT_FUNCTION_PACKAGE, routine, 2);
}

static void end_stage(struct learner *learner)
{
	for (unsigned i = 0; i < learner->count; i++)
		g_array_free(learner->finders[i].paths, TRUE);
	learner->count = 0;
}

struct learner *learner_new(uint64_t tls_size)
{
	struct learner *learner = g_new0(struct learner, 1);

	learner->tls_size = tls_size;
	begin_first_stage(learner);
	return learner;
}

void learner_free(struct learner *learner)
{
	end_stage(learner);
	g_free(learner);
}

const struct layout *learner_layout(const struct learner *learner)
{
	return &learner->layout;
}

unsigned learner_paths(const struct learner *learner)
{
	unsigned paths = 0;

	for (unsigned i = 0; i < learner->count; i++)
		paths += learner->finders[i].paths->len;
	return paths;
}

/* ---- What a fact is at a moment ---- */

static const char *name_of_kind(const struct learn_frame *frame, enum learn_kind kind,
				const char *name)
{
	return frame->kind == kind ? name : "";
}

/* Of a frame. */
static struct wanted want(const struct learn_frame *frame, enum layout_fact fact)
{
	switch (fact) {
	case LAYOUT_REQUEST_ID:
		return (struct wanted){ .type = LAYOUT_U64, .number = frame->request_id };
	case LAYOUT_STATEMENT_ID:
		return (struct wanted){ .type = LAYOUT_U64, .number = frame->statement_id };
	case LAYOUT_LINE:
		return (struct wanted){ .type = LAYOUT_U32, .number = frame->line };
	case LAYOUT_COLUMN:
		return (struct wanted){ .type = LAYOUT_U32, .number = frame->column };
	case LAYOUT_SQL_TEXT:
		return (struct wanted){ .type = LAYOUT_TEXT, .text = frame->sql_text };
	case LAYOUT_PROCEDURE:
		return (struct wanted){ .type = LAYOUT_TEXT,
					.text = name_of_kind(frame, LEARN_PROCEDURE, frame->name) };
	case LAYOUT_FUNCTION:
		return (struct wanted){ .type = LAYOUT_TEXT,
					.text = name_of_kind(frame, LEARN_FUNCTION, frame->name) };
	case LAYOUT_TRIGGER:
		return (struct wanted){ .type = LAYOUT_TEXT,
					.text = name_of_kind(frame, LEARN_TRIGGER, frame->name) };
	case LAYOUT_PROCEDURE_PACKAGE:
		return (struct wanted){ .type = LAYOUT_TEXT,
					.text = name_of_kind(frame, LEARN_PROCEDURE,
							     frame->package) };
	case LAYOUT_FUNCTION_PACKAGE:
		return (struct wanted){ .type = LAYOUT_TEXT,
					.text = name_of_kind(frame, LEARN_FUNCTION,
							     frame->package) };
	default:
		return (struct wanted){ 0 };
	}
}

/* Whether the oracle knows it. */
static bool is_known(const struct wanted *wanted, enum layout_fact fact)
{
	if (wanted->type == LAYOUT_TEXT)
		return wanted->text != NULL;
	return wanted->number != 0 || fact == LAYOUT_CALLER || fact == LAYOUT_OUTER;
}

static void feed_fact(struct learner *learner, enum layout_fact fact, uint64_t object,
		      const struct wanted *wanted)
{
	struct finder *finder = find_finder(learner, fact);

	if (finder && object && is_known(wanted, fact))
		feed_finder(finder, object, wanted);
}

/* ---- Feeding ---- */

/* 0 if it can't be read. */
static uint64_t read_object(const struct layout *layout, enum layout_fact fact, uint64_t from)
{
	uint64_t object;

	if (layout->path[fact].type == LAYOUT_ABSENT || !from ||
	    !read_number(&layout->path[fact], from, &object))
		return 0;
	return object;
}

static void feed_request(struct learner *learner, const struct learn_frame *frame,
			 uint64_t caller_id, uint64_t request)
{
	static const enum layout_fact facts[] = { LAYOUT_COLUMN, LAYOUT_STATEMENT_ID,
						  LAYOUT_SQL_TEXT };
	struct wanted wanted = { .type = LAYOUT_U64, .number = caller_id };

	feed_fact(learner, LAYOUT_CALLER, request, &wanted);
	for (unsigned i = 0; i < G_N_ELEMENTS(facts); i++) {
		wanted = want(frame, facts[i]);
		feed_fact(learner, facts[i], request, &wanted);
	}
}

/* The thread's context; 0 if it can't be read, or the layout knows none. */
static uint64_t read_context(const struct layout *layout, uint64_t tls)
{
	const struct layout_path path = { .type = LAYOUT_POINTER,
					  .steps = 1,
					  .offset = { layout->path[LAYOUT_REQUEST].offset[0] } };
	uint64_t context;

	if (layout->path[LAYOUT_REQUEST].steps != 2 || !read_number(&path, tls, &context))
		return 0;
	return context;
}

static void feed_outer(struct learner *learner, const struct learn_moment *moment)
{
	const struct wanted outer = { .type = LAYOUT_U64, .number = moment->outer_id };

	if (moment->outer_known)
		feed_fact(learner, LAYOUT_OUTER, read_context(&learner->layout, moment->tls),
			  &outer);
}

static void feed_names(struct learner *learner, const struct learn_moment *moment, uint64_t request)
{
	const struct layout *layout = &learner->layout;

	for (unsigned i = 0; i < moment->count && request; i++) {
		uint64_t statement = read_object(layout, LAYOUT_STATEMENT, request);

		for (enum layout_fact fact = LAYOUT_PROCEDURE; fact <= LAYOUT_FUNCTION_PACKAGE;
		     fact++) {
			struct wanted wanted = want(&moment->frames[i], fact);

			feed_fact(learner, fact, statement, &wanted);
		}
		request = read_object(layout, LAYOUT_CALLER, request);
	}
}

static void feed_attachment(struct learner *learner, const struct learn_moment *moment,
			    uint64_t attachment)
{
	struct wanted user = { .type = LAYOUT_TEXT, .text = moment->user },
		      database = { .type = LAYOUT_TEXT, .text = moment->database };

	feed_fact(learner, LAYOUT_USER, attachment, &user);
	feed_fact(learner, LAYOUT_DATABASE, attachment, &database);
}

void learner_feed(struct learner *learner, const struct learn_moment *moment)
{
	const struct layout *layout = &learner->layout;
	const struct learn_frame *frame = moment->frames;
	struct wanted id = want(frame, LAYOUT_REQUEST_ID), line = want(frame, LAYOUT_LINE),
		      attachment_id = { .type = LAYOUT_U64, .number = moment->attachment_id };
	uint64_t request;

	if (learner->stage == 0) {
		feed_fact(learner, LAYOUT_REQUEST_ID, moment->tls, &id);
		feed_fact(learner, LAYOUT_LINE, moment->tls, &line);
		feed_fact(learner, LAYOUT_ATTACHMENT_ID, moment->tls, &attachment_id);
		return;
	}
	request = read_object(layout, LAYOUT_REQUEST, moment->tls);
	if (learner->stage == 1) {
		feed_request(learner, frame, moment->count > 1 ? frame[1].request_id : 0, request);
		feed_outer(learner, moment);
		feed_attachment(learner, moment,
				read_object(layout, LAYOUT_ATTACHMENT, moment->tls));
	} else {
		feed_names(learner, moment, request);
	}
}

/* ---- Settling ---- */

/* The request is what has both the id and the line. */
static bool settle_request(struct learner *learner, char error[LAYOUT_ERROR_SIZE])
{
	const struct finder *ids = find_finder(learner, LAYOUT_REQUEST_ID);
	const struct finder *lines = find_finder(learner, LAYOUT_LINE);
	struct layout *layout = &learner->layout;
	const struct layout_path *best_id = NULL, *best_line = NULL;

	for (guint i = 0; i < ids->paths->len; i++) {
		const struct layout_path *id = &g_array_index(ids->paths, struct layout_path, i);
		struct layout_path object, member;
		const struct layout_path *line;

		split_path(id, &object, &member, 1);
		line = best_path(lines, &object);
		if (line && line->steps == id->steps &&
		    (!best_id || compare_paths(id, best_id) < 0)) {
			best_id = id;
			best_line = line;
		}
	}
	if (!best_id)
		return fail(error, ids->paths->len ? LAYOUT_LINE : LAYOUT_REQUEST_ID);
	split_path(best_id, &layout->path[LAYOUT_REQUEST], &layout->path[LAYOUT_REQUEST_ID], 1);
	split_path(best_line, &layout->path[LAYOUT_REQUEST], &layout->path[LAYOUT_LINE], 1);
	return true;
}

static bool settle_first_stage(struct learner *learner, char error[LAYOUT_ERROR_SIZE])
{
	const struct layout_path *attachment =
		best_path(find_finder(learner, LAYOUT_ATTACHMENT_ID), NULL);
	struct layout *layout = &learner->layout;

	if (!attachment)
		return fail(error, LAYOUT_ATTACHMENT_ID);
	split_path(attachment, &layout->path[LAYOUT_ATTACHMENT],
		   &layout->path[LAYOUT_ATTACHMENT_ID], 1);
	return settle_request(learner, error);
}

/* It is what has the statement's id; where that is not known, the one that has the text. */
static bool settle_statement(struct learner *learner, char error[LAYOUT_ERROR_SIZE])
{
	struct layout_path *path = learner->layout.path;
	const struct layout_path *id = best_path(find_finder(learner, LAYOUT_STATEMENT_ID), NULL);
	const struct finder *texts = find_finder(learner, LAYOUT_SQL_TEXT);
	const struct layout_path *text;

	if (id)
		split_path(id, &path[LAYOUT_STATEMENT], &path[LAYOUT_STATEMENT_ID], 1);
	text = best_path(texts, id ? &path[LAYOUT_STATEMENT] : NULL);
	if (text)
		split_path(text, &path[LAYOUT_STATEMENT], &path[LAYOUT_SQL_TEXT], text->steps - 1);
	return id || text || fail(error, LAYOUT_STATEMENT);
}

static bool settle_second_stage(struct learner *learner, char error[LAYOUT_ERROR_SIZE])
{
	static const enum layout_fact facts[] = { LAYOUT_COLUMN, LAYOUT_USER, LAYOUT_DATABASE };
	const struct layout_path *caller = best_path(find_finder(learner, LAYOUT_CALLER), NULL);
	const struct layout_path *outer = best_path(find_finder(learner, LAYOUT_OUTER), NULL);
	struct layout_path *path = learner->layout.path, member;

	if (!caller)
		return fail(error, LAYOUT_CALLER);
	split_path(caller, &path[LAYOUT_CALLER], &member, 1);
	for (unsigned i = 0; i < G_N_ELEMENTS(facts); i++) {
		const struct layout_path *best = best_path(find_finder(learner, facts[i]), NULL);

		if (!best)
			return fail(error, facts[i]);
		path[facts[i]] = *best;
	}
	if (outer)
		split_path(outer, &path[LAYOUT_OUTER], &member, outer->steps - 1);
	return settle_statement(learner, error);
}

static bool settle_third_stage(struct learner *learner, char error[LAYOUT_ERROR_SIZE])
{
	for (enum layout_fact fact = LAYOUT_PROCEDURE; fact <= LAYOUT_FUNCTION_PACKAGE; fact++) {
		const struct layout_path *best = best_path(find_finder(learner, fact), NULL);

		if (!best)
			return fail(error, fact);
		learner->layout.path[fact] = *best;
	}
	return true;
}

bool learner_settle(struct learner *learner, char error[LAYOUT_ERROR_SIZE])
{
	bool settled = learner->stage == 0 ? settle_first_stage(learner, error) :
		       learner->stage == 1 ? settle_second_stage(learner, error) :
					     settle_third_stage(learner, error);

	end_stage(learner);
	learner->stage++;
	if (settled && learner->stage == 1)
		begin_second_stage(learner);
	else if (settled && learner->stage == 2)
		begin_third_stage(learner);
	return settled;
}

/* ---- Verifying ---- */

static bool differ(char error[LAYOUT_ERROR_SIZE], enum layout_fact fact, unsigned depth,
		   const struct wanted *wanted)
{
	if (wanted->type == LAYOUT_TEXT)
		snprintf(error, LAYOUT_ERROR_SIZE, "%s at depth %u is not \"%.200s\"",
			 layout_fact_name(fact), depth, wanted->text);
	else
		snprintf(error, LAYOUT_ERROR_SIZE, "%s at depth %u is not %" G_GUINT64_FORMAT,
			 layout_fact_name(fact), depth, wanted->number);
	return false;
}

static bool verify_fact(const struct layout *layout, enum layout_fact fact, uint64_t object,
			const struct wanted *wanted, unsigned depth, char error[LAYOUT_ERROR_SIZE])
{
	const struct layout_path *path = &layout->path[fact];

	if (path->type == LAYOUT_ABSENT || !is_known(wanted, fact))
		return true;
	return (object && agrees(path, object, wanted)) || differ(error, fact, depth, wanted);
}

static bool verify_frame(const struct layout *layout, uint64_t request,
			 const struct learn_frame *frame, unsigned depth,
			 char error[LAYOUT_ERROR_SIZE])
{
	uint64_t statement = read_object(layout, LAYOUT_STATEMENT, request);

	for (enum layout_fact fact = LAYOUT_REQUEST_ID; fact <= LAYOUT_FUNCTION_PACKAGE; fact++) {
		struct wanted wanted = want(frame, fact);
		uint64_t object = fact < LAYOUT_STATEMENT_ID ? request : statement;

		if (!verify_fact(layout, fact, object, &wanted, depth, error))
			return false;
	}
	return true;
}

static bool verify_attachment(const struct layout *layout, const struct learn_moment *moment,
			      char error[LAYOUT_ERROR_SIZE])
{
	const struct wanted id = { .type = LAYOUT_U64, .number = moment->attachment_id },
			    user = { .type = LAYOUT_TEXT, .text = moment->user },
			    database = { .type = LAYOUT_TEXT, .text = moment->database };
	uint64_t attachment = read_object(layout, LAYOUT_ATTACHMENT, moment->tls);

	return verify_fact(layout, LAYOUT_ATTACHMENT_ID, attachment, &id, 0, error) &&
	       verify_fact(layout, LAYOUT_USER, attachment, &user, 0, error) &&
	       verify_fact(layout, LAYOUT_DATABASE, attachment, &database, 0, error);
}

static bool verify_outer(const struct layout *layout, const struct learn_moment *moment,
			 char error[LAYOUT_ERROR_SIZE])
{
	const struct wanted id = { .type = LAYOUT_U64, .number = moment->outer_id };
	const struct layout_path *request = &layout->path[LAYOUT_REQUEST];
	struct layout_path path = { .type = LAYOUT_U64, .steps = 3 };
	uint64_t context = read_context(layout, moment->tls);

	if (layout->path[LAYOUT_OUTER].type == LAYOUT_ABSENT || !moment->outer_known)
		return true;
	path.offset[0] = layout->path[LAYOUT_OUTER].offset[0];
	path.offset[1] = request->offset[1];
	path.offset[2] = layout->path[LAYOUT_REQUEST_ID].offset[0];
	return (context && agrees(&path, context, &id)) || differ(error, LAYOUT_OUTER, 0, &id);
}

bool learn_verify(const struct layout *layout, const struct learn_moment *moment,
		  char error[LAYOUT_ERROR_SIZE])
{
	uint64_t request = read_object(layout, LAYOUT_REQUEST, moment->tls);
	const struct wanted none = { .type = LAYOUT_U64 };

	for (unsigned i = 0; i < moment->count; i++) {
		if (!verify_frame(layout, request, &moment->frames[i], i, error))
			return false;
		request = read_object(layout, LAYOUT_CALLER, request);
	}
	if (request)
		return differ(error, LAYOUT_CALLER, moment->count - 1, &none);
	return verify_outer(layout, moment, error) && verify_attachment(layout, moment, error);
}

bool learn_idle(const struct layout *layout, uint64_t tls)
{
	uint64_t request, attachment;

	return read_number(&layout->path[LAYOUT_REQUEST], tls, &request) && !request &&
	       read_number(&layout->path[LAYOUT_ATTACHMENT], tls, &attachment) && !attachment;
}
