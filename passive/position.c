/*
 * See position.h.
 *
 * A call that reads several pieces reads them one after another, and the thread runs on meanwhile.  The
 * head of the chain is read once, and what is told is what was so at that instant.  This rests on two
 * properties of the engine: each start of a request gives it a new id, and while a request is active
 * all that called it stand still.  So if a request that is the head has the same id before and after,
 * its callers as read in between are right (it had begun before); or if it has the same id and still a
 * caller after they were read once more (it had not ended).
 *
 * Firebird 3 and 4 give a request its id once, when it is made.  There it was active at two sights if it
 * had the same caller at both, and to have ended and begun again in between it would need more time than
 * the sights are apart, unless we were interrupted: a look that takes longer than usual counts for nothing.
 *
 * The addresses for this are those of the last look: of the chain, and of some requests that were the
 * head lately, as short ones come and go faster than anyone could follow them.  If they are no longer
 * right, we go from pointer to pointer, but only to learn the new ones.
 */
#include "position.h"
#include "memory.h"
#include "outer.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRIES	    6
#define NEAR	    14 /* levels that are read in the same call as the head */
#define SPARE	    8  /* of these, such as are not in the chain, but lately were */
#define HASTY_SPARE 2
#define LIKELY	    2 /* levels of the chain that are likely to be the head, which are read thrice */
#define SPAN_SIZE   1024

/* Where ids don't tell starts, a look may take so much more time than half of all do. */
#define SLOW(usual) (3 * (usual) / 2)

/* What a piece of a look takes is guessed to be in ns, and the guess gets better by this part of it. */
#define PIECE_TIME 256
#define PIECE_STEP 32

#define WAY_REQUEST    0
#define WAY_ATTACHMENT 1
#define WAYS	       2

static const enum layout_fact way_facts[WAYS] = { LAYOUT_REQUEST, LAYOUT_ATTACHMENT };

static const enum layout_fact request_facts[] = { LAYOUT_CALLER, LAYOUT_STATEMENT,
						  LAYOUT_REQUEST_ID, LAYOUT_LINE, LAYOUT_COLUMN };
#define REQUEST_FACTS (sizeof(request_facts) / sizeof(request_facts[0]))

/* Whether a request may be outermost. */
enum kind {
	KIND_UNKNOWN,
	KIND_ANY,
	KIND_ROUTINE, /* procedure or function: never */
	KIND_TRIGGER  /* only one of the database, as ON CONNECT */
};

struct level {
	uint64_t request, statement;
	enum kind kind;
};

/*
 * The outermost request of the chain, which goes on and on without a caller.  A thread that loses its
 * CPU where a request that is called has none stays there as long as others use it, some 10 ms.
 */
struct lone {
	uint64_t request, id;
	uint64_t since; /* in ns */
	uint32_t line;
	uint32_t moves; /* so often the line changed, or it was seen to call another one */
};

/* So often, or for a trigger so long, and it is believed. */
#define LONE_MOVES 3
#define LONE_TIME  50000000

/* Addresses that were right at the last look. */
struct passive_ahead {
	bool idle;			  /* the thread was, then */
	uint64_t way[WAYS][LAYOUT_STEPS]; /* of what leads from the TLS block; 0: unknown */
	uint64_t attachment;
	struct lone lone;
	uint32_t chain, count;
	struct level
		levels[PASSIVE_DEPTH + SPARE]; /* the chain, outermost first, then spare ones */
	uint32_t piece_time;		       /* that half of the looks exceed */
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

	bool starts; /* each start of a request has an id of its own */
	bool slow;   /* it took so long that we must have been interrupted */

	/* The part of a request that holds the facts. */
	int32_t low;
	uint32_t size;

	/* The call that is being put together. */
	struct memory_piece pieces[MEMORY_PIECES];
	unsigned count;

	/* What is read. */
	int32_t alive;
	uint64_t way[WAYS][LAYOUT_STEPS];
	uint64_t below; /* the context below the thread's */
	uint64_t attachment_id, statement_ids[PASSIVE_DEPTH + SPARE];
	unsigned char spans[3][NEAR][SPAN_SIZE];
	struct sight before[PASSIVE_DEPTH + SPARE]; /* the head was read */
	struct sight after[NEAR], last[NEAR];	    /* from level `likely` on */
	uint64_t end_lines[LIKELY];		    /* of the chain, from there on */
	uint32_t near, likely, levels; /* from `near` to `levels` are read with the head */

	/* What was found: the head, and levels from it outwards. */
	uint64_t head;
	uint32_t path[PASSIVE_DEPTH], depth;
	const struct sight *sights[PASSIVE_DEPTH];
};

enum outcome {
	LOOK_IDLE,
	LOOK_BUSY,
	LOOK_CHANGED, /* while we looked */
	LOOK_LOST,    /* the addresses are not right any more … */
	LOOK_NEW_HEAD /* … but that of the head is */
};

struct passive_ahead *passive_ahead_new(void)
{
	struct passive_ahead *ahead = calloc(1, sizeof(*ahead));

	if (ahead != NULL)
		ahead->piece_time = PIECE_TIME;
	return ahead;
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

_Static_assert(NEAR + WAYS * LAYOUT_STEPS + 2 * (LIKELY + SPARE) + NEAR + 3 <= MEMORY_PIECES,
	       "all in one call");

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
	look->below = 0;
	if (ahead->way[WAY_REQUEST][1] != 0 && outer_is_known(look->layout))
		add(look, outer_place(look->layout, ahead->way[WAY_REQUEST][1]), &look->below,
		    sizeof(look->below));
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

static void add_value(struct look *look, enum layout_fact fact, uint64_t object, uint64_t *value)
{
	const struct layout_path *path = &look->layout->path[fact];

	*value = 0;
	if (object != 0 && is_direct(path))
		add(look, object + (uint64_t)(int64_t)path->offset[0], value, value_size(path));
}

/* A value that is too far away to be read with the rest. */
static bool complete_value(const struct look *look, enum layout_fact fact, uint64_t object,
			   uint64_t *value)
{
	const struct layout_path *path = &look->layout->path[fact];

	return is_direct(path) || value_of(look->process, path, object, value);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static bool read_in_time(struct look *look)
{
	uint32_t *piece_time = &look->ahead->piece_time, step = *piece_time / PIECE_STEP + 1;
	uint64_t began = now_ns(), usual = (uint64_t)look->count * *piece_time, took;
	bool whole = read_pieces(look);

	took = now_ns() - began;
	look->slow = took > SLOW(usual);
	if (took > usual)
		*piece_time += step;
	else
		*piece_time -= step;
	return whole;
}

/*
 * The call that has the head.  A request is read before its callers, first and second time; so these are
 * between two sights of it.
 */
static bool read_near(struct look *look)
{
	const struct passive_ahead *ahead = look->ahead;
	uint32_t near = look->near, likely = look->likely;

	for (uint32_t i = look->levels; i-- > near;)
		add_span(look, i, look->spans[0][i - near]);
	add_ways(look);
	for (uint32_t i = look->levels; i-- > likely;)
		add_span(look, i, look->spans[1][i - near]);
	for (uint32_t i = likely; i < look->levels; i++)
		add_span(look, i, look->spans[2][i - near]);
	for (uint32_t i = near; i < look->levels; i++)
		add_value(look, LAYOUT_STATEMENT_ID, ahead->levels[i].statement,
			  &look->statement_ids[i]);
	add_value(look, LAYOUT_ATTACHMENT_ID, ahead->attachment, &look->attachment_id);
	add(look, look->thread->alive, &look->alive, sizeof(look->alive));
	for (uint32_t i = likely; !look->starts && i < ahead->chain; i++)
		add_value(look, LAYOUT_LINE, ahead->levels[i].request,
			  &look->end_lines[i - likely]);
	if (!(look->starts ? read_pieces(look) : read_in_time(look)))
		return false;
	share_ways(look);
	return true;
}

/* What has a caller is not outermost. */
static void note_caller(struct passive_ahead *ahead, uint32_t level, const struct sight *sight)
{
	if (sight->caller != 0 && ahead->levels[level].request == ahead->lone.request)
		ahead->lone.request = 0;
}

static bool see_near(struct look *look)
{
	struct passive_ahead *ahead = look->ahead;
	uint32_t near = look->near, likely = look->likely;

	for (uint32_t i = near; i < look->levels; i++) {
		uint64_t request = ahead->levels[i].request;

		if (!see(look, request, look->spans[0][i - near], &look->before[i]))
			return false;
		note_caller(ahead, i, &look->before[i]);
		if (i >= likely &&
		    (!see(look, request, look->spans[1][i - near], &look->after[i - likely]) ||
		     !see(look, request, look->spans[2][i - near], &look->last[i - likely])))
			return false;
	}
	return true;
}

/* Outer levels that are too many for one call; after the others. */
static bool read_far(struct look *look)
{
	for (uint32_t end = look->near; end > 0;) {
		uint32_t count = end < NEAR ? end : NEAR, from = end - count;

		for (uint32_t i = 0; i < count; i++) {
			uint64_t statement = look->ahead->levels[from + i].statement;

			add_span(look, from + i, look->spans[0][i]);
			add_value(look, LAYOUT_STATEMENT_ID, statement,
				  &look->statement_ids[from + i]);
		}
		if (!read_pieces(look))
			return false;
		for (uint32_t i = 0; i < count; i++) {
			if (!see(look, look->ahead->levels[from + i].request, look->spans[0][i],
				 &look->before[from + i]))
				return false;
			note_caller(look->ahead, from + i, &look->before[from + i]);
		}
		end = from;
	}
	return true;
}

/* Judging what was read */

/* `guess`: where it probably is. */
static bool find_level(const struct look *look, uint64_t request, uint32_t guess, uint32_t *level)
{
	const struct level *levels = look->ahead->levels;

	if (guess < look->levels && levels[guess].request == request) {
		*level = guess;
		return true;
	}
	for (uint32_t i = look->levels; i-- > 0;) {
		if (levels[i].request == request) {
			*level = i;
			return true;
		}
	}
	return false;
}

/* The same start of a request. */
static bool is_same(const struct look *look, const struct sight *a, const struct sight *b)
{
	return a->id == b->id && a->statement == b->statement &&
	       (look->starts || (a->caller == b->caller && !look->slow));
}

/* The next level outwards. */
static enum outcome add_level(struct look *look, uint32_t level, const struct sight *sight)
{
	if (sight->id == 0 || sight->statement == 0)
		return LOOK_CHANGED;
	if (sight->statement != look->ahead->levels[level].statement) {
		look->ahead->levels[level].statement = sight->statement;
		look->ahead->levels[level].kind = KIND_UNKNOWN;
		return LOOK_CHANGED;
	}
	look->path[look->depth] = level;
	look->sights[look->depth++] = sight;
	return LOOK_BUSY;
}

/* Is there a name, or an object that has one, at the beginning of the path? */
static bool has_name(const struct look *look, enum layout_fact fact, uint64_t statement)
{
	const struct layout_path *path = &look->layout->path[fact];
	size_t size = path->type == LAYOUT_TEXT_INLINE && path->steps == 1 ? 1 : sizeof(uint64_t);
	uint64_t name = 0;

	return path->type != LAYOUT_ABSENT &&
	       memory_load(look->process, statement + (uint64_t)(int64_t)path->offset[0], &name,
			   size) &&
	       name != 0;
}

static enum kind kind_of(const struct look *look, uint64_t statement)
{
	if (has_name(look, LAYOUT_PROCEDURE, statement) ||
	    has_name(look, LAYOUT_FUNCTION, statement))
		return KIND_ROUTINE;
	return has_name(look, LAYOUT_TRIGGER, statement) ? KIND_TRIGGER : KIND_ANY;
}

/*
 * A request that is called has no caller between the two times that it runs, for its input and for its
 * output, nor for some instructions before it is the head no more, nor while it waits between two rows:
 * what it calls then may have given a row, too, and gone on by the time that it was looked at again.  Only
 * if it goes on and on without one it is outermost.
 */
static bool is_doubtful(const struct look *look, struct level *level, const struct sight *sight,
			bool calls)
{
	struct lone *lone = &look->ahead->lone;

	if (level->kind == KIND_UNKNOWN)
		level->kind = kind_of(look, level->statement);
	if (level->kind == KIND_ANY)
		return false;
	if (lone->request != level->request || lone->id != sight->id)
		*lone = (struct lone){ level->request, sight->id, now_ns(), sight->line, 0 };
	lone->moves += calls || lone->line != sight->line;
	lone->line = sight->line;
	return lone->moves < LONE_MOVES &&
	       (level->kind == KIND_ROUTINE || now_ns() - lone->since < LONE_TIME);
}

/* From a caller of the head outwards.  Each was read after the one that it called. */
static enum outcome trace_callers(struct look *look, uint64_t caller, const struct sight *first)
{
	uint32_t inner = look->path[0], level;
	enum outcome outcome = LOOK_BUSY;

	while (caller != 0 && outcome == LOOK_BUSY) {
		if (!find_level(look, caller, inner - 1, &level) || level >= inner)
			return LOOK_NEW_HEAD;
		if (first == NULL)
			first = &look->before[level];
		outcome = add_level(look, level, first);
		caller = first->caller;
		first = NULL;
		inner = level;
	}
	if (outcome == LOOK_BUSY && inner != look->path[0] &&
	    is_doubtful(look, &look->ahead->levels[inner], look->sights[look->depth - 1], true))
		return LOOK_CHANGED;
	return outcome;
}

/* Where ids don't tell, the caller's line does: it was the same after the head was read the last time. */
static enum outcome check_caller_at_end(struct look *look, uint32_t caller)
{
	uint32_t i = caller - look->likely;

	if (look->starts)
		return LOOK_BUSY;
	if (caller >= look->ahead->chain)
		return LOOK_NEW_HEAD;
	return complete_value(look, LAYOUT_LINE, look->ahead->levels[caller].request,
			      &look->end_lines[i]) &&
			       look->end_lines[i] == look->after[i].line ?
		       LOOK_BUSY :
		       LOOK_CHANGED;
}

/* Likewise, before it was read the first time and after the second. */
static enum outcome check_caller(const struct look *look, uint64_t caller)
{
	const struct sight *before, *after;
	uint32_t level;

	if (look->starts || caller == 0)
		return LOOK_BUSY;
	if (!find_level(look, caller, look->path[0] - 1, &level) || level < look->likely)
		return LOOK_NEW_HEAD;
	before = &look->before[level];
	after = &look->after[level - look->likely];
	return before->line == after->line && before->column == after->column ? LOOK_BUSY :
										LOOK_CHANGED;
}

static enum outcome trace(struct look *look)
{
	const struct sight *before, *after, *last;
	uint32_t level, caller;
	enum outcome outcome;

	look->depth = 0;
	if (!find_level(look, look->head, look->ahead->chain - 1, &level) || level < look->likely)
		return LOOK_NEW_HEAD;
	before = &look->before[level];
	after = &look->after[level - look->likely];
	last = &look->last[level - look->likely];
	/* Started anew while it was read, a request may have its old id and a new line: until an id proves it. */
	outcome = add_level(look, level, is_same(look, after, last) ? after : before);
	if (outcome != LOOK_BUSY)
		return outcome;
	/* Where it waits between two rows, or has ended, it has no caller. */
	if (is_same(look, before, after) &&
	    (before->caller == after->caller || after->caller == 0)) {
		if (before->caller == 0 &&
		    is_doubtful(look, &look->ahead->levels[level], after, false))
			return LOOK_CHANGED;
		outcome = check_caller(look, before->caller);
		return outcome == LOOK_BUSY ? trace_callers(look, before->caller, NULL) : outcome;
	}
	if (!is_same(look, after, last) || after->caller == 0 || after->caller != last->caller ||
	    !find_level(look, after->caller, level - 1, &caller) || caller < look->likely ||
	    !is_same(look, &look->before[caller], &look->after[caller - look->likely]))
		return LOOK_CHANGED;
	outcome = check_caller_at_end(look, caller);
	return outcome == LOOK_BUSY ?
		       trace_callers(look, after->caller, &look->after[caller - look->likely]) :
		       outcome;
}

/* Is the head the same as before what was read after it? */
static bool is_still_head(struct look *look)
{
	const struct sight *sight = look->sights[0];
	uint64_t request = look->ahead->levels[look->path[0]].request;
	struct sight now;

	add_span(look, look->path[0], look->spans[0][0]);
	return read_pieces(look) && see(look, request, look->spans[0][0], &now) &&
	       is_same(look, sight, &now) && now.caller != 0;
}

static bool tell(struct look *look, struct passive_position *position)
{
	const struct passive_ahead *ahead = look->ahead;

	position->attachment = ahead->attachment;
	position->attachment_id = look->attachment_id;
	position->count = look->depth;
	if (!complete_value(look, LAYOUT_ATTACHMENT_ID, ahead->attachment,
			    &position->attachment_id))
		return false;
	for (uint32_t i = 0; i < look->depth; i++) {
		uint32_t level = look->path[look->depth - 1 - i];
		const struct sight *sight = look->sights[look->depth - 1 - i];

		position->requests[i] = (struct passive_request){
			.request = ahead->levels[level].request,
			.statement = sight->statement,
			.request_id = sight->id,
			.statement_id = look->statement_ids[level],
			.line = sight->line,
			.column = sight->column,
		};
		if (!complete_value(look, LAYOUT_STATEMENT_ID, sight->statement,
				    &position->requests[i].statement_id))
			return false;
	}
	return true;
}

static bool is_in_path(const uint32_t *path, uint32_t depth, uint32_t level)
{
	/* It goes outwards: down. */
	for (uint32_t i = 0; i < depth && path[i] >= level; i++) {
		if (path[i] == level)
			return true;
	}
	return false;
}

/* Those of the old chain that are in it no more, and then what was spare before. */
static uint32_t find_spares(const struct passive_ahead *ahead, const uint32_t *path, uint32_t depth,
			    struct level spares[SPARE])
{
	uint32_t count = 0, low = ahead->chain > SPARE ? ahead->chain - SPARE : 0;

	for (uint32_t i = ahead->chain; i-- > low;) {
		if (ahead->levels[i].request != 0 && !is_in_path(path, depth, i))
			spares[count++] = ahead->levels[i];
	}
	for (uint32_t i = ahead->chain; i < ahead->count && count < SPARE; i++) {
		if (ahead->levels[i].request != 0 && !is_in_path(path, depth, i))
			spares[count++] = ahead->levels[i];
	}
	return count;
}

/*
 * Makes a chain of the levels in `path`, which go outwards, and of others called by these: `fresh`, from
 * the head outwards.  False: too long.
 */
static bool arrange(struct passive_ahead *ahead, const uint32_t *path, uint32_t depth,
		    const struct level *fresh, uint32_t fresh_count)
{
	struct level spares[SPARE];
	uint32_t chain = depth + fresh_count, count;

	if (chain > PASSIVE_DEPTH)
		return false;
	if (chain == ahead->chain && fresh_count == 0 && path[0] == chain - 1)
		return true;
	count = find_spares(ahead, path, depth, spares);
	for (uint32_t i = 0; i < depth; i++)
		ahead->levels[i] = ahead->levels[path[depth - 1 - i]];
	for (uint32_t i = 0; i < fresh_count; i++)
		ahead->levels[depth + i] = fresh[fresh_count - 1 - i];
	memcpy(&ahead->levels[chain], spares, count * sizeof(spares[0]));
	ahead->chain = chain;
	ahead->count = chain + count;
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

static enum outcome look_once(struct look *look, bool in_haste, struct passive_position *position)
{
	struct passive_ahead *ahead = look->ahead;
	uint64_t attachment, outermost;
	enum outcome outcome;

	/* What is new may soon be over: then there is no time for all the spare levels. */
	look->levels = in_haste && ahead->chain + HASTY_SPARE < ahead->count ?
			       ahead->chain + HASTY_SPARE :
			       ahead->count;
	look->near = look->levels > NEAR ? look->levels - NEAR : 0;
	look->likely = ahead->chain > LIKELY ? ahead->chain - LIKELY : 0;
	if (!read_near(look) || !see_near(look)) {
		memset(ahead, 0, offsetof(struct passive_ahead, levels));
		return LOOK_LOST;
	}
	if (look->alive != look->thread->alive_when)
		return LOOK_IDLE;
	if (!end_of_way(look, WAY_REQUEST, &look->head))
		return LOOK_LOST;
	if (look->head == 0)
		return LOOK_IDLE;
	if (!end_of_way(look, WAY_ATTACHMENT, &attachment) || attachment != ahead->attachment ||
	    !read_far(look))
		return LOOK_LOST;
	outcome = trace(look);
	if (outcome != LOOK_BUSY)
		return outcome;
	if (look->path[look->depth - 1] < look->near && !is_still_head(look))
		return LOOK_CHANGED;
	if (!tell(look, position))
		return LOOK_CHANGED;
	if (look->below != 0 && !outer_read(look->process, look->layout, look->thread->tls,
					    look->way[WAY_REQUEST][0], look->below, position))
		return LOOK_CHANGED;
	outermost = ahead->levels[look->path[look->depth - 1]].request;
	if (ahead->lone.request != outermost)
		ahead->lone.request = 0;
	arrange(ahead, look->path, look->depth, NULL, 0);
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

/* From the head outwards to a level of the chain, or to the end.  False: it can't be followed. */
static bool explore_chain(struct look *look, uint64_t head)
{
	struct passive_ahead *ahead = look->ahead;
	struct level fresh[PASSIVE_DEPTH];
	uint32_t count = 0, known = 0;
	uint64_t request = head;

	look->depth = 0;
	while (request != 0) {
		struct sight sight;

		if (count > 0 && find_level(look, request, ahead->chain - 1, &known) &&
		    known < ahead->chain) {
			for (uint32_t i = known + 1; i-- > 0;)
				look->path[look->depth++] = i;
			break;
		}
		if (count == PASSIVE_DEPTH ||
		    !memory_load(look->process, request + (uint64_t)(int64_t)look->low,
				 look->spans[0][0], look->size) ||
		    !see(look, request, look->spans[0][0], &sight))
			return false;
		fresh[count++] = (struct level){ .request = request, .statement = sight.statement };
		request = sight.caller;
	}
	/* Those that are new need not stay where they were. */
	for (uint32_t i = 0; i < ahead->count; i++) {
		for (uint32_t j = 0; j < count; j++) {
			if (ahead->levels[i].request == fresh[j].request)
				ahead->levels[i].request = 0;
		}
	}
	return arrange(ahead, look->path, look->depth, fresh, count);
}

/* False: the thread's block leads nowhere, as it does when the engine is unloaded. */
static bool explore(struct look *look, enum outcome outcome)
{
	struct passive_ahead *ahead = look->ahead;

	if (outcome == LOOK_LOST && (!explore_way(look, WAY_REQUEST, &look->head) ||
				     !explore_way(look, WAY_ATTACHMENT, &ahead->attachment)))
		return false;
	if (!explore_chain(look, look->head))
		ahead->chain = ahead->count = 0;
	return true;
}

enum passive_state passive_read(pid_t process, const struct layout *layout,
				const struct process_thread *thread,
				struct passive_position *position)
{
	enum outcome outcome = LOOK_CHANGED;
	struct look look;

	position->count = 0;
	if (thread->tls == 0 || thread->ahead == NULL)
		return PASSIVE_IDLE;
	look.process = process;
	look.layout = layout;
	look.thread = thread;
	look.ahead = thread->ahead;
	look.count = 0;
	look.starts = layout->path[LAYOUT_STATEMENT_ID].type != LAYOUT_ABSENT;
	look.slow = false;
	measure_span(&look);
	if (thread->ahead->idle && is_still_idle(&look))
		return PASSIVE_IDLE;
	for (unsigned i = 0; i < TRIES; i++) {
		outcome = look_once(&look, outcome == LOOK_NEW_HEAD, position);
		if (outcome == LOOK_BUSY)
			break;
		if (outcome == LOOK_IDLE || (outcome != LOOK_CHANGED && !explore(&look, outcome))) {
			thread->ahead->idle = true;
			thread->ahead->lone.request = 0;
			return PASSIVE_IDLE;
		}
		position->count = 0;
	}
	thread->ahead->idle = false;
	return position->count != 0 ? PASSIVE_BUSY : PASSIVE_TORN;
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
