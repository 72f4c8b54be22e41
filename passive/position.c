/*
 * See position.h.
 *
 * A call that reads several pieces reads them one after another, and the thread runs on meanwhile.  So
 * the chain of requests is read twice, and its head once between the two.  Each start of a request gives
 * it a new id.  Hence if ids, callers and the callers' lines are the same before and after, the chain
 * was whole when its head was read.  The addresses for this are those of the last look.  If they are
 * no longer right, we go from pointer to pointer, but only to learn the new ones: what is told was
 * always read in one call, or in few if there are many levels.
 */
#include "position.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define TRIES	  4
#define NEAR	  12 /* innermost levels that are read in the same call as the head */
#define SPAN_SIZE 1536
#define SPARE	  2 /* levels that were left lately and may soon be entered again */

#define WAY_REQUEST    0
#define WAY_ATTACHMENT 1
#define WAYS	       2

static const enum layout_fact way_facts[WAYS] = { LAYOUT_REQUEST, LAYOUT_ATTACHMENT };

static const enum layout_fact request_facts[] = { LAYOUT_CALLER, LAYOUT_STATEMENT,
						  LAYOUT_REQUEST_ID, LAYOUT_LINE, LAYOUT_COLUMN };
#define REQUEST_FACTS (sizeof(request_facts) / sizeof(request_facts[0]))

struct level {
	uint64_t request, statement;
};

/* Addresses that were right at the last look. */
struct passive_ahead {
	bool idle;			  /* the thread was, then */
	uint64_t way[WAYS][LAYOUT_STEPS]; /* of what leads from the TLS block; 0: unknown */
	uint64_t attachment;
	uint32_t count;
	struct level levels[PASSIVE_DEPTH]; /* outermost first */
};

/* What a request tells of itself. */
struct sight {
	uint64_t caller, statement, id;
	uint32_t line, column;
};

struct look {
	pid_t process;
	const struct layout *layout;
	const struct process_thread *thread;
	struct passive_ahead *ahead;

	/* The part of a request that holds the facts. */
	int32_t low;
	uint32_t size;

	/* The call that is being put together. */
	struct memory_piece pieces[MEMORY_PIECES];
	unsigned count;

	/* What is read. */
	int32_t alive;
	uint64_t way[WAYS][LAYOUT_STEPS];
	uint64_t attachment_id, statement_ids[PASSIVE_DEPTH];
	unsigned char spans[2][NEAR][SPAN_SIZE];
	struct sight before[PASSIVE_DEPTH], after[PASSIVE_DEPTH];
};

enum outcome {
	LOOK_IDLE,
	LOOK_BUSY,
	LOOK_CHANGED, /* while we looked */
	LOOK_ASTRAY   /* the addresses are not right any more */
};

struct passive_ahead *passive_ahead_new(void)
{
	return calloc(1, sizeof(struct passive_ahead));
}

/* Paths and values */

static size_t value_size(const struct layout_path *path)
{
	return path->type == LAYOUT_U32 ? sizeof(uint32_t) : sizeof(uint64_t);
}

static uint64_t value_at(const struct layout_path *path, const void *bytes)
{
	uint64_t wide;
	uint32_t narrow;

	if (path->type == LAYOUT_U32) {
		memcpy(&narrow, bytes, sizeof(narrow));
		return narrow;
	}
	memcpy(&wide, bytes, sizeof(wide));
	return wide;
}

/* The address at the end of a path; 0: a pointer on the way was null.  False: one can't be read. */
static bool follow(pid_t process, const struct layout_path *path, uint64_t object, uint64_t *end)
{
	uint64_t pointer = object;

	for (uint32_t i = 0; i < path->steps; i++) {
		*end = pointer + (uint64_t)(int64_t)path->offset[i];
		if (i + 1 == path->steps)
			return true;
		if (!memory_load(process, *end, &pointer, sizeof(pointer)))
			return false;
		if (pointer == 0)
			break;
	}
	*end = 0;
	return true;
}

/* A value that was not read ahead.  Absent or behind a null pointer: 0. */
static bool value_of(pid_t process, const struct layout_path *path, uint64_t object,
		     uint64_t *value)
{
	unsigned char bytes[sizeof(uint64_t)];
	uint64_t end = 0;

	*value = 0;
	if (path->type == LAYOUT_ABSENT || object == 0)
		return true;
	if (!follow(process, path, object, &end))
		return false;
	if (end == 0)
		return true;
	if (!memory_load(process, end, bytes, value_size(path)))
		return false;
	*value = value_at(path, bytes);
	return true;
}

/* Read ahead with its object, at its offset. */
static bool is_direct(const struct layout_path *path)
{
	return path->type != LAYOUT_ABSENT && path->steps == 1;
}

static void measure_span(struct look *look)
{
	int32_t low = INT32_MAX, high = INT32_MIN;

	for (unsigned i = 0; i < REQUEST_FACTS; i++) {
		const struct layout_path *path = &look->layout->path[request_facts[i]];

		if (!is_direct(path))
			continue;
		if (path->offset[0] < low)
			low = path->offset[0];
		if (path->offset[0] + 8 > high)
			high = path->offset[0] + 8;
	}
	look->low = low;
	look->size = low > high ? 0 : (uint32_t)(high - low);
	if (look->size > SPAN_SIZE)
		look->size = SPAN_SIZE;
}

static bool request_value(const struct look *look, enum layout_fact fact, uint64_t request,
			  const unsigned char *span, uint64_t *value)
{
	const struct layout_path *path = &look->layout->path[fact];
	int64_t offset = (int64_t)path->offset[0] - look->low;

	if (!is_direct(path) || offset < 0 || offset + 8 > look->size)
		return value_of(look->process, path, request, value);
	*value = value_at(path, span + offset);
	return true;
}

static bool see(const struct look *look, uint64_t request, const unsigned char *span,
		struct sight *sight)
{
	uint64_t line, column;

	if (!request_value(look, LAYOUT_CALLER, request, span, &sight->caller) ||
	    !request_value(look, LAYOUT_STATEMENT, request, span, &sight->statement) ||
	    !request_value(look, LAYOUT_REQUEST_ID, request, span, &sight->id) ||
	    !request_value(look, LAYOUT_LINE, request, span, &line) ||
	    !request_value(look, LAYOUT_COLUMN, request, span, &column))
		return false;
	sight->line = (uint32_t)line;
	sight->column = (uint32_t)column;
	return true;
}

/* Putting a call together */

static void add(struct look *look, uint64_t from, void *to, size_t size)
{
	look->pieces[look->count++] = (struct memory_piece){ from, to, size };
}

static bool read_pieces(struct look *look)
{
	unsigned count = look->count;

	look->count = 0;
	return count == 0 || memory_read(look->process, look->pieces, count);
}

static void add_span(struct look *look, uint32_t level, unsigned char *span)
{
	add(look, look->ahead->levels[level].request + (uint64_t)(int64_t)look->low, span,
	    look->size);
}

/* Pointers from the TLS block on, as far as they are known.  The ways have their first steps in common. */
static void add_ways(struct look *look)
{
	struct passive_ahead *ahead = look->ahead;

	memset(look->way, 0, sizeof(look->way));
	for (unsigned i = 0; i < WAYS; i++) {
		const struct layout_path *path = &look->layout->path[way_facts[i]];

		ahead->way[i][0] = look->thread->tls + (uint64_t)(int64_t)path->offset[0];
		for (uint32_t step = 0; step < path->steps; step++) {
			if (ahead->way[i][step] != 0 &&
			    (i == 0 || ahead->way[i][step] != ahead->way[0][step]))
				add(look, ahead->way[i][step], &look->way[i][step],
				    sizeof(uint64_t));
		}
	}
}

static void share_ways(struct look *look)
{
	const struct layout_path *path = &look->layout->path[LAYOUT_REQUEST];

	for (uint32_t step = 0; step < path->steps; step++) {
		if (look->ahead->way[1][step] == look->ahead->way[0][step])
			look->way[1][step] = look->way[0][step];
	}
}

/* Where a way led to.  False: not where it did last time. */
static bool end_of_way(const struct look *look, unsigned way, uint64_t *end)
{
	const struct layout_path *path = &look->layout->path[way_facts[way]];

	for (uint32_t step = 0; step < path->steps; step++) {
		*end = look->way[way][step];
		if (*end == 0 || step + 1 == path->steps)
			return true;
		if (look->ahead->way[way][step + 1] !=
		    *end + (uint64_t)(int64_t)path->offset[step + 1])
			return false;
	}
	return false;
}

static void add_id(struct look *look, enum layout_fact fact, uint64_t object, uint64_t *id)
{
	const struct layout_path *path = &look->layout->path[fact];

	*id = 0;
	if (object != 0 && is_direct(path))
		add(look, object + (uint64_t)(int64_t)path->offset[0], id, value_size(path));
}

/* An id that is too far away to be read with the rest. */
static bool complete_id(const struct look *look, enum layout_fact fact, uint64_t object,
			uint64_t *id)
{
	const struct layout_path *path = &look->layout->path[fact];

	return is_direct(path) || value_of(look->process, path, object, id);
}

/* Levels that are too many for one call. */
static bool read_far(struct look *look, uint32_t end, struct sight *sights, bool with_ids)
{
	for (uint32_t from = 0; from < end; from += NEAR) {
		uint32_t count = end - from < NEAR ? end - from : NEAR;

		for (uint32_t i = 0; i < count; i++) {
			uint64_t statement = look->ahead->levels[from + i].statement;

			add_span(look, from + i, look->spans[0][i]);
			if (with_ids)
				add_id(look, LAYOUT_STATEMENT_ID, statement,
				       &look->statement_ids[from + i]);
		}
		if (!read_pieces(look))
			return false;
		for (uint32_t i = 0; i < count; i++) {
			if (!see(look, look->ahead->levels[from + i].request, look->spans[0][i],
				 &sights[from + i]))
				return false;
		}
	}
	return true;
}

/* The call that has the head, and on both sides of it the levels from `near` on. */
static bool read_near(struct look *look, uint32_t near)
{
	const struct passive_ahead *ahead = look->ahead;

	for (uint32_t i = near; i < ahead->count; i++)
		add_span(look, i, look->spans[0][i - near]);
	add_ways(look);
	for (uint32_t i = ahead->count; i-- > near;)
		add_span(look, i, look->spans[1][i - near]);
	for (uint32_t i = near; i < ahead->count; i++)
		add_id(look, LAYOUT_STATEMENT_ID, ahead->levels[i].statement,
		       &look->statement_ids[i]);
	add_id(look, LAYOUT_ATTACHMENT_ID, ahead->attachment, &look->attachment_id);
	add(look, look->thread->alive, &look->alive, sizeof(look->alive));
	if (!read_pieces(look))
		return false;
	share_ways(look);
	for (uint32_t i = near; i < ahead->count; i++) {
		uint64_t request = ahead->levels[i].request;

		if (!see(look, request, look->spans[0][i - near], &look->before[i]) ||
		    !see(look, request, look->spans[1][i - near], &look->after[i]))
			return false;
	}
	return true;
}

/* Judging what was read */

static bool find_level(const struct passive_ahead *ahead, uint64_t request, uint32_t *level)
{
	for (uint32_t i = ahead->count; i-- > 0;) {
		if (ahead->levels[i].request == request) {
			*level = i;
			return true;
		}
	}
	return false;
}

/* The chain from the head outwards, which is at `top`. */
static enum outcome judge_chain(struct look *look, uint32_t top)
{
	struct passive_ahead *ahead = look->ahead;

	for (uint32_t i = top + 1; i-- > 0;) {
		const struct sight *before = &look->before[i], *after = &look->after[i];
		uint64_t caller = i > 0 ? ahead->levels[i - 1].request : 0;

		if (before->id != after->id || before->statement != after->statement ||
		    before->caller != after->caller)
			return LOOK_CHANGED;
		if (i < top && (before->line != after->line || before->column != after->column))
			return LOOK_CHANGED;
		if (after->caller != caller) {
			ahead->count = 0;
			return LOOK_ASTRAY;
		}
		if (after->statement != ahead->levels[i].statement) {
			ahead->levels[i].statement = after->statement;
			return LOOK_CHANGED;
		}
		if (after->id == 0 || after->statement == 0)
			return LOOK_CHANGED;
	}
	return LOOK_BUSY;
}

static bool tell(struct look *look, uint32_t top, struct passive_position *position)
{
	const struct passive_ahead *ahead = look->ahead;

	position->attachment = ahead->attachment;
	position->attachment_id = look->attachment_id;
	position->count = top + 1;
	if (!complete_id(look, LAYOUT_ATTACHMENT_ID, ahead->attachment, &position->attachment_id))
		return false;
	for (uint32_t i = 0; i <= top; i++) {
		const struct sight *sight = &look->after[i];

		position->requests[i] = (struct passive_request){
			.request = ahead->levels[i].request,
			.statement = sight->statement,
			.request_id = sight->id,
			.statement_id = look->statement_ids[i],
			.line = sight->line,
			.column = sight->column,
		};
		if (!complete_id(look, LAYOUT_STATEMENT_ID, sight->statement,
				 &position->requests[i].statement_id))
			return false;
	}
	return true;
}

/* Of a thread that was idle, only whether it still is. */
static bool is_still_idle(struct look *look)
{
	const struct layout_path *path = &look->layout->path[LAYOUT_REQUEST];
	uint64_t first = 0;

	add(look, look->thread->tls + (uint64_t)(int64_t)path->offset[0], &first, sizeof(first));
	add(look, look->thread->alive, &look->alive, sizeof(look->alive));
	return !read_pieces(look) || first == 0 || look->alive != look->thread->alive_when;
}

static enum outcome look_once(struct look *look, struct passive_position *position)
{
	struct passive_ahead *ahead = look->ahead;
	uint32_t near = ahead->count > NEAR ? ahead->count - NEAR : 0, top;
	uint64_t head, attachment;
	enum outcome outcome;

	if (!read_far(look, near, look->before, true) || !read_near(look, near)) {
		memset(ahead, 0, offsetof(struct passive_ahead, levels));
		return LOOK_ASTRAY;
	}
	if (look->alive != look->thread->alive_when)
		return LOOK_IDLE;
	if (!end_of_way(look, WAY_REQUEST, &head))
		return LOOK_ASTRAY;
	if (head == 0)
		return LOOK_IDLE;
	if (!end_of_way(look, WAY_ATTACHMENT, &attachment) || attachment != ahead->attachment ||
	    !find_level(ahead, head, &top) || !read_far(look, near, look->after, false))
		return LOOK_ASTRAY;
	outcome = judge_chain(look, top);
	if (outcome != LOOK_BUSY)
		return outcome;
	if (!tell(look, top, position))
		return LOOK_CHANGED;
	if (ahead->count > top + 1 + SPARE)
		ahead->count = top + 1 + SPARE;
	return LOOK_BUSY;
}

/* Learning new addresses */

static bool explore_way(struct look *look, unsigned way, uint64_t *end)
{
	const struct layout_path *path = &look->layout->path[way_facts[way]];
	uint64_t pointer = look->thread->tls;

	memset(look->ahead->way[way], 0, sizeof(look->ahead->way[way]));
	for (uint32_t step = 0; step < path->steps && pointer != 0; step++) {
		look->ahead->way[way][step] = pointer + (uint64_t)(int64_t)path->offset[step];
		if (!memory_load(look->process, look->ahead->way[way][step], &pointer,
				 sizeof(pointer)))
			return false;
	}
	*end = pointer;
	return true;
}

/* From the head outwards to a level that is known, or to the end.  False: it can't be followed. */
static bool explore_chain(struct look *look, uint64_t head)
{
	struct passive_ahead *ahead = look->ahead;
	struct level fresh[PASSIVE_DEPTH];
	uint32_t count = 0, base = 0, known;
	uint64_t request = head;

	while (request != 0) {
		struct sight sight;

		if (find_level(ahead, request, &known)) {
			base = known + 1;
			break;
		}
		if (count == PASSIVE_DEPTH ||
		    !memory_load(look->process, request + (uint64_t)(int64_t)look->low,
				 look->spans[0][0], look->size) ||
		    !see(look, request, look->spans[0][0], &sight))
			return false;
		fresh[count++] = (struct level){ request, sight.statement };
		request = sight.caller;
	}
	if (base + count > PASSIVE_DEPTH)
		return false;
	if (count == 0)
		return true;
	for (uint32_t i = 0; i < count; i++)
		ahead->levels[base + count - 1 - i] = fresh[i];
	ahead->count = base + count;
	return true;
}

static void explore(struct look *look)
{
	struct passive_ahead *ahead = look->ahead;
	uint64_t head;

	if (!explore_way(look, WAY_REQUEST, &head) ||
	    !explore_way(look, WAY_ATTACHMENT, &ahead->attachment) || !explore_chain(look, head))
		ahead->count = 0;
}

enum passive_state passive_read(pid_t process, const struct layout *layout,
				const struct process_thread *thread,
				struct passive_position *position)
{
	struct look look;

	position->count = 0;
	if (thread->tls == 0 || thread->ahead == NULL)
		return PASSIVE_IDLE;
	look.process = process;
	look.layout = layout;
	look.thread = thread;
	look.ahead = thread->ahead;
	look.count = 0;
	measure_span(&look);
	if (thread->ahead->idle && is_still_idle(&look))
		return PASSIVE_IDLE;
	for (unsigned i = 0; i < TRIES; i++) {
		enum outcome outcome = look_once(&look, position);

		thread->ahead->idle = outcome == LOOK_IDLE;
		if (outcome == LOOK_IDLE || outcome == LOOK_BUSY)
			return outcome == LOOK_IDLE ? PASSIVE_IDLE : PASSIVE_BUSY;
		if (outcome == LOOK_ASTRAY)
			explore(&look);
	}
	return PASSIVE_TORN;
}

void passive_text(pid_t process, const struct layout *layout, enum layout_fact fact,
		  uint64_t object, char *text, size_t size)
{
	const struct layout_path *path = &layout->path[fact];
	uint64_t end = 0, pointer = 0;
	uint32_t length = 0;

	text[0] = '\0';
	if (path->type == LAYOUT_ABSENT || object == 0 || !follow(process, path, object, &end) ||
	    end == 0)
		return;
	if (path->type == LAYOUT_TEXT_INLINE) {
		memory_text(process, end, text, size);
		return;
	}
	if (!memory_load(process, end, &pointer, sizeof(pointer)) || pointer == 0)
		return;
	if (path->type == LAYOUT_TEXT_ZERO) {
		memory_text(process, pointer, text, size);
		return;
	}
	if (!memory_load(process, end + (uint64_t)(int64_t)path->length, &length, sizeof(length)))
		return;
	if (length > size - 1)
		length = (uint32_t)(size - 1);
	if (!memory_load(process, pointer, text, length))
		length = 0;
	text[length] = '\0';
}
