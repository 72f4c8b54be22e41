/*
 * See outer.h.  The chains of the outer contexts are read twice, and then whether the thread is
 * still in the same context.
 */
#include "outer.h"
#include "memory.h"

#include <string.h>

#define CONTEXTS_MAX 64 /* Firebird limits the depth of statements in statements, too */

struct reader {
	pid_t process;
	const struct layout *layout;
	uint64_t attachment;
	struct passive_request *requests; /* innermost first */
	uint32_t count, room;
	bool again; /* only compare */
};

static uint64_t at(const struct layout *layout, enum layout_fact fact, unsigned step,
		   uint64_t object)
{
	return object + (uint64_t)(int64_t)layout->path[fact].offset[step];
}

/* In the context itself. */
static bool is_in_context(const struct layout *layout, enum layout_fact fact)
{
	const struct layout_path *path = &layout->path[fact];

	return path->type == LAYOUT_POINTER && path->steps == 2 &&
	       path->offset[0] == layout->path[LAYOUT_REQUEST].offset[0];
}

/* Facts that are elsewhere than in their object can't be read here. */
bool outer_is_known(const struct layout *layout)
{
	static const enum layout_fact facts[] = { LAYOUT_OUTER,	    LAYOUT_CALLER,
						  LAYOUT_STATEMENT, LAYOUT_REQUEST_ID,
						  LAYOUT_LINE,	    LAYOUT_COLUMN };

	for (unsigned i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		if (layout->path[facts[i]].type == LAYOUT_ABSENT ||
		    layout->path[facts[i]].steps != 1)
			return false;
	}
	return is_in_context(layout, LAYOUT_REQUEST) && is_in_context(layout, LAYOUT_ATTACHMENT);
}

uint64_t outer_place(const struct layout *layout, uint64_t request_place)
{
	return at(layout, LAYOUT_OUTER, 0,
		  request_place - (uint64_t)(int64_t)layout->path[LAYOUT_REQUEST].offset[1]);
}

static bool read_statement_id(const struct reader *reader, struct passive_request *request)
{
	const struct layout_path *path = &reader->layout->path[LAYOUT_STATEMENT_ID];

	if (path->type == LAYOUT_ABSENT || path->steps != 1)
		return true;
	return memory_load(reader->process,
			   at(reader->layout, LAYOUT_STATEMENT_ID, 0, request->statement),
			   &request->statement_id, sizeof(request->statement_id));
}

static bool load_request(const struct reader *reader, uint64_t address,
			 struct passive_request *request, uint64_t *caller)
{
	const struct layout *layout = reader->layout;
	const struct memory_piece pieces[] = {
		{ at(layout, LAYOUT_CALLER, 0, address), caller, sizeof(*caller) },
		{ at(layout, LAYOUT_STATEMENT, 0, address), &request->statement,
		  sizeof(request->statement) },
		{ at(layout, LAYOUT_REQUEST_ID, 0, address), &request->request_id,
		  sizeof(request->request_id) },
		{ at(layout, LAYOUT_LINE, 0, address), &request->line, sizeof(request->line) },
		{ at(layout, LAYOUT_COLUMN, 0, address), &request->column,
		  sizeof(request->column) },
	};

	memset(request, 0, sizeof(*request));
	request->request = address;
	return memory_read(reader->process, pieces, sizeof(pieces) / sizeof(pieces[0])) &&
	       read_statement_id(reader, request);
}

static bool read_request(struct reader *reader, uint64_t address, uint64_t *caller)
{
	struct passive_request request;

	if (reader->count == reader->room || !load_request(reader, address, &request, caller) ||
	    (reader->again &&
	     memcmp(&request, &reader->requests[reader->count], sizeof(request)) != 0))
		return false;
	reader->requests[reader->count++] = request;
	return true;
}

/* One context's chain, and which is below it; that of another attachment has none for us. */
static bool read_context(struct reader *reader, uint64_t context, uint64_t *below)
{
	const struct layout *layout = reader->layout;
	uint64_t request, attachment;
	const struct memory_piece pieces[] = {
		{ at(layout, LAYOUT_REQUEST, 1, context), &request, sizeof(request) },
		{ at(layout, LAYOUT_ATTACHMENT, 1, context), &attachment, sizeof(attachment) },
		{ at(layout, LAYOUT_OUTER, 0, context), below, sizeof(*below) },
	};

	if (!memory_read(reader->process, pieces, sizeof(pieces) / sizeof(pieces[0])))
		return false;
	if (attachment != reader->attachment)
		*below = 0;
	else
		while (request != 0) {
			if (!read_request(reader, request, &request))
				return false;
		}
	return true;
}

static bool read_contexts(struct reader *reader, uint64_t context)
{
	reader->count = 0;
	for (unsigned i = 0; context != 0; i++) {
		if (i == CONTEXTS_MAX || !read_context(reader, context, &context))
			return false;
	}
	return true;
}

static void reverse(struct passive_request *requests, uint32_t count)
{
	for (uint32_t i = 0; i < count / 2; i++) {
		struct passive_request request = requests[i];

		requests[i] = requests[count - 1 - i];
		requests[count - 1 - i] = request;
	}
}

/* They are in the same array, behind it, since the stack of a sampler has no room for another one. */
bool outer_read(pid_t process, const struct layout *layout, uint64_t tls, uint64_t context,
		uint64_t below, struct passive_position *position)
{
	struct reader reader = { .process = process,
				 .layout = layout,
				 .attachment = position->attachment,
				 .requests = position->requests + position->count,
				 .room = PASSIVE_DEPTH - position->count };
	uint32_t inner = position->count, outer;
	uint64_t now;

	if (!read_contexts(&reader, below))
		return false;
	outer = reader.count;
	reader.again = true;
	if (!read_contexts(&reader, below) || reader.count != outer ||
	    !memory_load(process, at(layout, LAYOUT_REQUEST, 0, tls), &now, sizeof(now)) ||
	    now != context)
		return false;
	position->count = inner + outer;
	reverse(position->requests, inner + outer);
	reverse(position->requests + outer, inner);
	return true;
}
