/*
 * See position.h.
 *
 * First the head is read, by the addresses that led to it last time; then in a second call the head and
 * its callers as they were last time, outwards, and the inner two once more.  What is told is what was so
 * when the head was read, or right afterwards: a look that doesn't agree could be made again, but would
 * find the thread rather where it stays than where it doesn't, so only what can't be told is read again.
 *
 * A call that reads several pieces reads them one after another, and the thread runs on meanwhile.  This
 * rests on two properties of the engine: each start of a request gives it a new id, and while a request is
 * active all that called it stand still.  So if a request has the same id before and after, and a caller,
 * its callers as read in between are right.  If the head has not, it was a short run: that it was the head
 * is certain, and what it executes is the same each time.  Its caller is the one of an earlier run, if that
 * has the same id before and after and was in the line that it called the head from then.
 *
 * Firebird 3 and 4 give a request its id once, when it is made.  There it was active at two sights if it
 * had the same caller at both, and this one was in the same line; to have ended and begun again in between
 * it would need more time than the sights are apart, unless we were interrupted: a look that takes longer
 * than usual counts for nothing.
 */
#include "position.h"
#include "known_chain.h"
#include "memory.h"
#include "outer.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRIES	  6
#define NEAR	  14 /* levels that are read in the same call as the head */
#define AGAIN	  2  /* innermost ones that are read twice */
#define LIKELY	  4  /* requests that may be the head, which are read together with it */
#define SPAN_SIZE 1024

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
	uint32_t piece_time; /* that half of the looks exceed */
	struct known_chain chain;
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
	uint64_t began;
	unsigned timed; /* pieces since then */

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
	uint64_t head, attachment, attachment_id;
	unsigned char spans[NEAR + AGAIN][SPAN_SIZE];

	/* Requests that are read together with the head. */
	uint64_t likely[LIKELY];
	uint32_t likely_count;
	unsigned char likely_spans[LIKELY][SPAN_SIZE];
	struct sight likely_sights[LIKELY];

	/* From the head outwards: places in the known chain, and what is seen there. */
	uint32_t path[PASSIVE_DEPTH], depth;
	struct sight first[PASSIVE_DEPTH], again[AGAIN];
	uint64_t ids_after[AGAIN]; /* read after those sights */
	uint64_t statement_ids[PASSIVE_DEPTH];
	const struct sight *sights[PASSIVE_DEPTH]; /* which of these counts */

	struct passive_head first_head; /* that was seen, at whichever try */
};

enum outcome {
	LOOK_IDLE,
	LOOK_BUSY,
	LOOK_CHANGED,  /* while we looked */
	LOOK_LOST,     /* the ways are not right any more */
	LOOK_NEW_CHAIN /* the head has other callers than we know */
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

_Static_assert(2 * NEAR + 2 * AGAIN + 2 <= MEMORY_PIECES &&
		       WAYS * LAYOUT_STEPS + LIKELY + 2 <= MEMORY_PIECES,
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

static void add_request(struct look *look, uint64_t request, unsigned char *span)
{
	add(look, request + (uint64_t)(int64_t)look->low, span, look->size);
}

/* What is known of a request of the path. */
static struct known_request *known(const struct look *look, uint32_t i)
{
	return &look->ahead->chain.requests[look->path[i]];
}

/* Pointers from the TLS block on, as far as they are known, but for the last one, which is to the head. */
static void add_ways(struct look *look)
{
	struct passive_ahead *ahead = look->ahead;

	memset(look->way, 0, sizeof(look->way));
	for (unsigned i = 0; i < WAYS; i++) {
		const struct layout_path *path = &look->layout->path[way_facts[i]];

		ahead->way[i][0] = look->thread->tls + (uint64_t)(int64_t)path->offset[0];
		for (uint32_t step = 0; step < path->steps; step++) {
			if (ahead->way[i][step] != 0 &&
			    (i == WAY_REQUEST ?
				     step + 1 < path->steps :
				     ahead->way[i][step] != ahead->way[WAY_REQUEST][step]))
				add(look, ahead->way[i][step], &look->way[i][step],
				    sizeof(uint64_t));
		}
	}
}

/* The head, and before and after it requests that it may point to: the nearest are the likeliest. */
static void add_head(struct look *look)
{
	uint32_t last = look->layout->path[LAYOUT_REQUEST].steps - 1;
	uint64_t place = look->ahead->way[WAY_REQUEST][last];

	look->likely_count =
		look->starts ? known_chain_likely(&look->ahead->chain, look->likely, LIKELY) : 0;
	for (uint32_t i = look->likely_count; i-- > 0;) {
		if (i % 2 == 1)
			add_request(look, look->likely[i], look->likely_spans[i]);
	}
	if (place != 0)
		add(look, place, &look->way[WAY_REQUEST][last], sizeof(uint64_t));
	for (uint32_t i = 0; i < look->likely_count; i += 2)
		add_request(look, look->likely[i], look->likely_spans[i]);
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

uint64_t passive_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* From the head on. */
static void note_time(struct look *look, uint64_t took)
{
	uint32_t *piece_time = &look->ahead->piece_time, step = *piece_time / PIECE_STEP + 1;
	uint64_t usual = (uint64_t)look->timed * *piece_time;

	look->slow = took > SLOW(usual);
	if (took > usual)
		*piece_time += step;
	else
		*piece_time -= step;
}

/* Whether the thread's context is on top of another one. */
static bool is_within(const struct look *look)
{
	uint64_t context = look->way[WAY_REQUEST][0];

	return context != 0 && look->below != 0 &&
	       look->ahead->way[WAY_REQUEST][1] ==
		       context + (uint64_t)(int64_t)look->layout->path[LAYOUT_REQUEST].offset[1];
}

/* The head, and whose thread it is. */
static enum outcome read_head(struct look *look)
{
	struct passive_ahead *ahead = look->ahead;

	add(look, look->thread->alive, &look->alive, sizeof(look->alive));
	look->below = 0;
	if (ahead->way[WAY_REQUEST][1] != 0 && outer_is_known(look->layout))
		add(look, outer_place(look->layout, ahead->way[WAY_REQUEST][1]), &look->below,
		    sizeof(look->below));
	add_ways(look);
	add_head(look);
	look->timed = look->count;
	look->began = passive_clock();
	if (!read_pieces(look)) {
		known_chain_forget(&ahead->chain);
		return LOOK_LOST;
	}
	share_ways(look);
	if (look->alive != look->thread->alive_when)
		return LOOK_IDLE;
	if (!end_of_way(look, WAY_REQUEST, &look->head))
		return LOOK_LOST;
	/* Where it isn't aligned the context is of another kind. */
	if ((look->head == 0 && !is_within(look)) || look->head % sizeof(void *) != 0)
		return LOOK_IDLE;
	for (uint32_t i = 0; i < look->likely_count; i++) {
		if (!see(look, look->likely[i], look->likely_spans[i], &look->likely_sights[i]))
			return LOOK_LOST;
	}
	return end_of_way(look, WAY_ATTACHMENT, &ahead->attachment) ? LOOK_BUSY : LOOK_LOST;
}

/* What is seen of a request of the path.  What has a caller is not outermost. */
static bool see_known(const struct look *look, uint32_t i, const unsigned char *span,
		      struct sight *sight)
{
	struct lone *lone = &look->ahead->lone;

	if (!see(look, known(look, i)->request, span, sight))
		return false;
	if (sight->caller != 0 && known(look, i)->request == lone->request)
		lone->request = 0;
	return true;
}

/*
 * A piece is not read at once, either: if a sight has the id of a run that ends meanwhile, its caller may be
 * the next run's.  An id that is read later tells.
 */
static void add_id_after(struct look *look, uint32_t i)
{
	add_value(look, LAYOUT_REQUEST_ID, known(look, i)->request, &look->ids_after[i]);
}

static void take_id_after(const struct look *look, uint32_t i, struct sight *sight)
{
	if (is_direct(&look->layout->path[LAYOUT_REQUEST_ID]))
		sight->id = look->ids_after[i];
}

static void add_statement_id(struct look *look, uint32_t i)
{
	add_value(look, LAYOUT_STATEMENT_ID, known(look, i)->statement, &look->statement_ids[i]);
}

/*
 * The attachment is read between two sights, as a thread may go on for another one.  What doesn't change is
 * the last, so that the sights are near to one another.
 */
static bool read_near(struct look *look)
{
	uint32_t last = look->layout->path[LAYOUT_ATTACHMENT].steps - 1;
	uint32_t near = look->depth < NEAR ? look->depth : NEAR;
	uint32_t again = look->depth < AGAIN ? look->depth : AGAIN;

	for (uint32_t i = 0; i < near; i++)
		add_request(look, known(look, i)->request, look->spans[i]);
	add(look, look->ahead->way[WAY_ATTACHMENT][last], &look->attachment,
	    sizeof(look->attachment));
	add_value(look, LAYOUT_ATTACHMENT_ID, look->ahead->attachment, &look->attachment_id);
	for (uint32_t i = again; i-- > 0;)
		add_request(look, known(look, i)->request, look->spans[NEAR + i]);
	for (uint32_t i = again; i-- > 0;)
		add_id_after(look, i);
	for (uint32_t i = 0; i < near; i++)
		add_statement_id(look, i);
	look->timed += look->count;
	if (!read_pieces(look))
		return false;
	note_time(look, passive_clock() - look->began);
	for (uint32_t i = 0; i < near; i++) {
		if (!see_known(look, i, look->spans[i], &look->first[i]))
			return false;
	}
	for (uint32_t i = 0; i < again; i++) {
		if (!see_known(look, i, look->spans[NEAR + i], &look->again[i]))
			return false;
		take_id_after(look, i, &look->again[i]);
	}
	return true;
}

/* Outer requests that are too many for one call; after the others. */
static bool read_far(struct look *look)
{
	for (uint32_t from = NEAR; from < look->depth; from += NEAR) {
		uint32_t count = look->depth - from < NEAR ? look->depth - from : NEAR;

		for (uint32_t i = 0; i < count; i++) {
			add_request(look, known(look, from + i)->request, look->spans[i]);
			add_statement_id(look, from + i);
		}
		if (!read_pieces(look))
			return false;
		for (uint32_t i = 0; i < count; i++) {
			if (!see_known(look, from + i, look->spans[i], &look->first[from + i]))
				return false;
		}
	}
	return true;
}

/* Judging what was read */

/* The same start of a request. */
static bool is_same(const struct look *look, const struct sight *a, const struct sight *b)
{
	return a->id == b->id && a->statement == b->statement &&
	       (look->starts || (a->caller == b->caller && !look->slow));
}

/* One more request outwards. */
static enum outcome add_sight(struct look *look, const struct sight *sight)
{
	struct known_request *request = known(look, look->depth);

	if (sight->id == 0 || sight->statement == 0)
		return LOOK_CHANGED;
	if (sight->statement != request->statement) {
		request->statement = sight->statement;
		request->kind = KNOWN_UNCLEAR;
		request->is_caller_sure = false;
		return LOOK_CHANGED;
	}
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

static enum known_kind kind_of(const struct look *look, uint64_t statement)
{
	if (has_name(look, LAYOUT_PROCEDURE, statement) ||
	    has_name(look, LAYOUT_FUNCTION, statement))
		return KNOWN_ROUTINE;
	return has_name(look, LAYOUT_TRIGGER, statement) ? KNOWN_TRIGGER : KNOWN_ANY;
}

/*
 * A request that is called has no caller between the two times that it runs, for its input and for its
 * output, nor for some instructions before it is the head no more, nor while it waits between two rows:
 * what it calls then may have given a row, too, and gone on by the time that it was looked at again.  Only
 * if it goes on and on without one it is outermost.
 */
static bool is_doubtful(const struct look *look, struct known_request *request,
			const struct sight *sight, bool calls)
{
	struct lone *lone = &look->ahead->lone;

	if (request->kind == KNOWN_UNCLEAR)
		request->kind = kind_of(look, request->statement);
	if (request->kind == KNOWN_ANY)
		return false;
	if (lone->request != request->request || lone->id != sight->id)
		*lone = (struct lone){ request->request, sight->id, passive_clock(), sight->line,
				       0 };
	lone->moves += calls || lone->line != sight->line;
	lone->line = sight->line;
	return lone->moves < LONE_MOVES &&
	       (request->kind == KNOWN_ROUTINE || passive_clock() - lone->since < LONE_TIME);
}

/* Is the next request of the path, of which there are `depth`, this one? */
static bool is_next(const struct look *look, uint32_t depth, uint64_t request)
{
	return look->depth < depth && known(look, look->depth)->request == request;
}

/* From the caller of the head outwards.  Each was read after the one that it called. */
static enum outcome trace_callers(struct look *look, uint32_t depth, uint64_t request,
				  const struct sight *sight)
{
	enum outcome outcome = LOOK_BUSY;

	while (request != 0 && outcome == LOOK_BUSY) {
		if (!is_next(look, depth, request))
			return LOOK_NEW_CHAIN;
		outcome = add_sight(look, sight);
		request = sight->caller;
		sight = &look->first[look->depth];
	}
	if (outcome == LOOK_BUSY && look->depth > 1 &&
	    is_doubtful(look, known(look, look->depth - 1), look->sights[look->depth - 1], true))
		return LOOK_CHANGED;
	return outcome;
}

/* What was seen of a request together with the head; NULL: nothing. */
static const struct sight *sight_at_head(const struct look *look, uint32_t i)
{
	for (uint32_t j = 0; j < look->likely_count; j++) {
		if (look->likely[j] == known(look, i)->request)
			return &look->likely_sights[j];
	}
	return NULL;
}

static bool is_same_run(const struct look *look, const struct sight *a, const struct sight *b)
{
	return is_same(look, a, b) && a->caller == b->caller;
}

/* Where the head was called from in the run that is known; NULL: its caller was not seen there. */
static const struct sight *sight_of_call(const struct look *look)
{
	const struct known_request *head = known(look, 0);
	const struct sight *sights[] = { sight_at_head(look, 1), &look->first[1], &look->again[1] };

	for (unsigned i = 0; i < sizeof(sights) / sizeof(sights[0]); i++) {
		if (sights[i] != NULL && sights[i]->line == head->caller_line &&
		    sights[i]->column == head->caller_column &&
		    is_same_run(look, sights[i], &look->first[1]))
			return sights[i];
	}
	return NULL;
}

/* The caller of a short run is known from an earlier one. */
static enum outcome trace_short_run(struct look *look, uint32_t depth)
{
	const struct known_request *head = known(look, 0);
	uint64_t now = look->first[0].caller, later = look->again[0].caller;
	const struct sight *call;

	if (!look->starts || look->slow || look->again[0].statement != head->statement)
		return LOOK_CHANGED;
	if (now != 0 && !is_next(look, depth, now))
		return LOOK_NEW_CHAIN;
	if (!head->is_caller_sure || !is_next(look, depth, head->caller) ||
	    (later != 0 && later != head->caller) ||
	    !is_same_run(look, &look->first[1], &look->again[1]))
		return LOOK_CHANGED;
	call = sight_of_call(look);
	return call ? trace_callers(look, depth, head->caller, call) : LOOK_CHANGED;
}

/* Where ids don't tell that the head was active all the time, its caller's line does. */
static bool does_caller_stay(const struct look *look)
{
	const struct sight *now = &look->first[1], *later = &look->again[1];

	return look->starts || (now->line == later->line && now->column == later->column);
}

/* Of the head's sights the one that was nearest to when it was the head. */
static const struct sight *sight_of_head(const struct look *look)
{
	const struct sight *now = &look->first[0], *at_head = sight_at_head(look, 0);

	if (at_head != NULL && is_same(look, at_head, now) &&
	    (at_head->caller == now->caller || now->caller == 0))
		return at_head;
	return now;
}

static void note_head(struct look *look, const struct sight *sight)
{
	if (look->first_head.statement == 0)
		look->first_head =
			(struct passive_head){ sight->statement, sight->line, sight->column };
}

static enum outcome trace(struct look *look)
{
	const struct sight *now = &look->first[0], *later = &look->again[0];
	const struct sight *head = sight_of_head(look);
	uint32_t depth = look->depth;
	enum outcome outcome;

	if (look->attachment != look->ahead->attachment)
		return LOOK_CHANGED;
	note_head(look, head);
	look->depth = 0;
	outcome = add_sight(look, head);
	if (outcome != LOOK_BUSY)
		return outcome;
	if (!is_same_run(look, now, later))
		return trace_short_run(look, depth);
	/*
	 * Where it waits between two rows, or has ended, it has no caller.  Nor has the outermost one; whether
	 * that has ended isn't told, and if there was time for it, the attachment may be another one's.
	 */
	if (now->caller == 0 && look->slow)
		return LOOK_CHANGED;
	if (now->caller == 0)
		return is_doubtful(look, known(look, 0), now, false) ?
			       trace_short_run(look, depth) :
			       LOOK_BUSY;
	if (!is_next(look, depth, now->caller))
		return LOOK_NEW_CHAIN;
	return does_caller_stay(look) ? trace_callers(look, depth, now->caller, &look->first[1]) :
					LOOK_CHANGED;
}

/* Is the head the same as before what was read after it? */
static bool is_still_head(struct look *look)
{
	uint64_t request = known(look, 0)->request;
	struct sight now;

	add_request(look, request, look->spans[0]);
	add_id_after(look, 0);
	if (!read_pieces(look) || !see(look, request, look->spans[0], &now))
		return false;
	take_id_after(look, 0, &now);
	return is_same(look, look->sights[0], &now) && now.caller != 0;
}

static bool tell(struct look *look, struct passive_position *position)
{
	const struct passive_ahead *ahead = look->ahead;

	position->when = look->began;
	position->attachment = ahead->attachment;
	position->attachment_id = look->attachment_id;
	position->count = look->depth;
	if (!complete_value(look, LAYOUT_ATTACHMENT_ID, ahead->attachment,
			    &position->attachment_id))
		return false;
	for (uint32_t i = 0; i < look->depth; i++) {
		uint32_t outwards = look->depth - 1 - i;
		const struct sight *sight = look->sights[outwards];

		position->requests[i] = (struct passive_request){
			.request = known(look, outwards)->request,
			.statement = sight->statement,
			.request_id = sight->id,
			.statement_id = look->statement_ids[outwards],
			.line = sight->line,
			.column = sight->column,
		};
		if (!complete_value(look, LAYOUT_STATEMENT_ID, sight->statement,
				    &position->requests[i].statement_id))
			return false;
	}
	return true;
}

/* What is certain of this look helps to tell the next ones. */
static void remember_callers(const struct look *look)
{
	for (uint32_t i = 0; i < look->depth; i++) {
		struct known_request *request = known(look, i);

		request->caller = 0;
		request->is_caller_sure = i + 1 < look->depth;
		if (!request->is_caller_sure)
			continue;
		request->caller = known(look, i + 1)->request;
		request->caller_line = look->sights[i + 1]->line;
		request->caller_column = look->sights[i + 1]->column;
	}
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

/* The chain of this head. */
static enum outcome read_chain(struct look *look)
{
	enum outcome outcome;

	look->depth = known_chain_path(&look->ahead->chain, look->head, look->path);
	if (look->depth == 0)
		return LOOK_NEW_CHAIN;
	if (!read_near(look) || !read_far(look)) {
		known_chain_forget(&look->ahead->chain);
		return LOOK_CHANGED;
	}
	outcome = trace(look);
	if (outcome == LOOK_BUSY && look->depth > NEAR && !is_still_head(look))
		return LOOK_CHANGED;
	return outcome;
}

/* Learning new addresses */

/*
 * As far as it was read just now, and then from pointer to pointer; its end is for read_head() to read.
 * False: it can't be followed.
 */
static bool explore_way(struct look *look, unsigned way)
{
	const struct layout_path *path = &look->layout->path[way_facts[way]];
	uint64_t places[LAYOUT_STEPS] = { 0 }, pointer = look->thread->tls;
	uint64_t *known = look->ahead->way[way];

	for (uint32_t step = 0; step < path->steps && pointer != 0; step++) {
		places[step] = pointer + (uint64_t)(int64_t)path->offset[step];
		if (step + 1 == path->steps)
			break;
		pointer = look->way[way][step];
		if ((known[step] != places[step] || pointer == 0) &&
		    !memory_load(look->process, places[step], &pointer, sizeof(pointer)))
			return false;
	}
	memcpy(known, places, sizeof(places));
	return true;
}

/* From the head outwards to a request of the chain, or to the end.  False: it can't be followed. */
static bool explore_chain(struct look *look)
{
	struct known_chain *chain = &look->ahead->chain;
	struct known_request fresh[PASSIVE_DEPTH];
	uint32_t count = 0, place = 0;
	uint64_t request = look->head;

	look->depth = 0;
	while (request != 0) {
		struct sight sight;

		if (count > 0 && known_chain_find(chain, request, chain->depth - 1, &place) &&
		    place < chain->depth) {
			for (uint32_t i = place + 1; i-- > 0;)
				look->path[look->depth++] = i;
			break;
		}
		add_request(look, request, look->spans[0]);
		if (!read_pieces(look) || count == PASSIVE_DEPTH ||
		    !see(look, request, look->spans[0], &sight))
			return false;
		fresh[count++] = (struct known_request){ .request = request,
							 .statement = sight.statement,
							 .caller = sight.caller };
		request = sight.caller;
	}
	return known_chain_arrange(chain, look->path, look->depth, fresh, count);
}

/* False: the thread's block leads nowhere, as it does when the engine is unloaded. */
static bool explore_ways(struct look *look)
{
	return explore_way(look, WAY_ATTACHMENT) && explore_way(look, WAY_REQUEST);
}

/*
 * What is below the thread's context.  Meanwhile that may have ended, and another one be at its place: there
 * was no time for it, or the head is still the same.
 */
static bool add_outer(struct look *look, struct passive_position *position)
{
	uint64_t head = look->head, id = position->count == 0 ? 0 : look->sights[0]->id;
	struct sight now = { .id = id };

	if (!outer_read(look->process, look->layout, look->thread->tls, look->way[WAY_REQUEST][0],
			look->below, position))
		return false;
	if (passive_clock() - look->began < PASSIVE_PROMPT)
		return true;
	if (read_head(look) != LOOK_BUSY || look->head != head)
		return false;
	if (head == 0)
		return true;
	add_request(look, head, look->spans[0]);
	return read_pieces(look) && see(look, head, look->spans[0], &now) && now.id == id;
}

/* EXECUTE STATEMENT prepares a statement in a context that has no request: what executes is below. */
static enum outcome read_outer(struct look *look, struct passive_position *position)
{
	look->depth = 0;
	add_value(look, LAYOUT_ATTACHMENT_ID, look->ahead->attachment, &look->attachment_id);
	if (!read_pieces(look) || !tell(look, position) || !add_outer(look, position))
		return LOOK_CHANGED;
	return position->count == 0 ? LOOK_IDLE : LOOK_BUSY;
}

static enum outcome look_once(struct look *look, struct passive_position *position)
{
	struct passive_ahead *ahead = look->ahead;
	enum outcome outcome = read_head(look);

	if (outcome != LOOK_BUSY)
		return outcome;
	if (look->head == 0)
		return read_outer(look, position);
	outcome = read_chain(look);
	if (outcome == LOOK_NEW_CHAIN) {
		if (explore_chain(look))
			outcome = read_chain(look);
		else
			known_chain_forget(&ahead->chain);
	}
	if (outcome != LOOK_BUSY)
		return LOOK_CHANGED;
	if (!tell(look, position))
		return LOOK_CHANGED;
	if (ahead->lone.request != known(look, look->depth - 1)->request)
		ahead->lone.request = 0;
	remember_callers(look);
	known_chain_arrange(&ahead->chain, look->path, look->depth, NULL, 0);
	return look->below == 0 || add_outer(look, position) ? LOOK_BUSY : LOOK_CHANGED;
}

enum passive_state passive_read(pid_t process, const struct layout *layout,
				const struct process_thread *thread,
				struct passive_position *position)
{
	enum outcome outcome = LOOK_CHANGED;
	struct look look;

	position->count = 0;
	position->first = (struct passive_head){ 0 };
	if (thread->tls == 0 || thread->ahead == NULL)
		return PASSIVE_IDLE;
	look.process = process;
	look.layout = layout;
	look.thread = thread;
	look.ahead = thread->ahead;
	look.count = 0;
	look.starts = layout->path[LAYOUT_STATEMENT_ID].type != LAYOUT_ABSENT;
	look.slow = false;
	look.first_head = position->first;
	measure_span(&look);
	if (thread->ahead->idle && is_still_idle(&look))
		return PASSIVE_IDLE;
	thread->ahead->idle = false;
	for (unsigned i = 0; i < TRIES; i++) {
		outcome = look_once(&look, position);
		if (outcome == LOOK_BUSY || outcome == LOOK_IDLE ||
		    (outcome == LOOK_LOST && !explore_ways(&look)))
			break;
	}
	position->first = look.first_head;
	if (outcome == LOOK_BUSY)
		return PASSIVE_BUSY;
	position->count = 0;
	if (outcome == LOOK_CHANGED)
		return PASSIVE_TORN;
	thread->ahead->idle = true;
	thread->ahead->lone.request = 0;
	return PASSIVE_IDLE;
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
