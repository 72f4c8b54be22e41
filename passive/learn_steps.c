#include "learn_steps.h"

#include "image_own.h"
#include "learn_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRAMES_MAX     4096
#define STATEMENTS_MAX 64 /* bits of u64 */
#define STEPS_MAX      32 /* of a statement */
#define TYPES_MAX      256
#define FUNCTIONS_MAX  512
#define SLOTS	       4u /* of virtual functions: opening and fetching are among the first ones */
#define STEP_SIZE      sizeof(((struct layout_plan_type *)0)->step)
#define SAMPLES_LEAST  3 /* of a class, in a statement, to believe that it is there */

/* A step of a statement's plan. */
struct step {
	char name[STEP_SIZE];
	char line[256]; /* with its names */
	int parent;	/* -1: the root of a cursor or sub-query */
	int tree;
};

struct statement {
	struct step steps[STEPS_MAX];
	uint32_t count;
	uint32_t samples;
};

/* A class, as its virtual functions. */
struct type {
	uint64_t address;
	uint32_t seen[STATEMENTS_MAX]; /* samples */
	uint32_t slots[SLOTS];	       /* likewise, all together */
	uint32_t verified;	       /* seen with other statements, and in its place there */
	char step[STEP_SIZE];	       /* empty: none */
};

/*
 * Where a function may have its object: in a register that it gives back, or in its frame below the
 * address in rbp.
 */
#define PLACES	    (STACK_CALLEE_SAVED + 64u)
#define RBP	    1u /* index of it */
#define HOLDS_LEAST 80 /* percent of its frames: else it isn't there at most calls */

struct function {
	uint64_t start, end;
	uint32_t slot;
	uint32_t held[PLACES]; /* so often an object whose class has this function */
	uint32_t frames;
	int place;    /* the best of them; -1: none is good enough */
	bool of_step; /* it was seen with a step's */
};

/* A function that has the requests in a register: those of the sample, in order. */
struct request_function {
	uint64_t start, end;
	uint64_t held[STACK_CALLEE_SAVED]; /* in so many samples */
};

struct learn_steps {
	struct stack_unwinder *unwinder;
	struct stack_frame frames[FRAMES_MAX];
	uint32_t count;
	struct own_image image;

	struct statement statements[STATEMENTS_MAX];
	uint32_t statement_count;
	struct type types[TYPES_MAX];
	uint32_t type_count;
	uint32_t inside[TYPES_MAX]
		       [TYPES_MAX]; /* so often the first was seen inside of the second */
	uint32_t stack[FRAMES_MAX]; /* indexes of types in a sample, innermost first */
	uint32_t depth;
	struct function functions[FUNCTIONS_MAX];
	uint32_t function_count;
	struct request_function requests[FUNCTIONS_MAX];
	uint32_t request_count;
	uint64_t request_samples;

	bool settled;
	struct learn_source *facts;
	int64_t serial; /* of the statement that is verified */
	uint32_t open_slot, fetch_slot;
	uint64_t agreed, disagreed;
	char first_disagreement[256];
};

struct learn_steps *learn_steps_new(const void *engine, char error[LAYOUT_ERROR_SIZE])
{
	struct learn_steps *learn = calloc(1, sizeof(*learn));

	if (!learn || !own_image_find(engine, &learn->image)) {
		snprintf(error, LAYOUT_ERROR_SIZE, "%s",
			 learn ? "the engine isn't loaded in this process" : "out of memory");
		free(learn);
		return NULL;
	}
	learn->unwinder = stack_unwinder_new(getpid(), error);
	learn->facts = learn_source_new(learn->image.base);
	if (learn->unwinder && learn->facts && own_image_find_methods(&learn->image))
		return learn;
	if (learn->unwinder)
		snprintf(error, LAYOUT_ERROR_SIZE, "out of memory");
	learn_steps_free(learn);
	return NULL;
}

void learn_steps_free(struct learn_steps *learn)
{
	if (!learn)
		return;
	stack_unwinder_free(learn->unwinder);
	own_image_clear(&learn->image);
	learn_source_free(learn->facts);
	free(learn);
}

/* ---- Explained plans ---- */

/* Lines of tables go on with their bitmaps and indices, which are no record sources. */
static bool is_table(const struct step *step)
{
	return strncmp(step->name, "Table ", 6) == 0;
}

static void add_line(struct statement *statement, const char *line, size_t size, int *levels)
{
	char text[512];
	const char *arrow;
	struct step *step;
	int level;

	snprintf(text, sizeof(text), "%.*s", (int)size, line);
	arrow = strstr(text, "-> ");
	level = arrow ? (int)(arrow - text) / 4 : 0;
	if (!*text || statement->count == STEPS_MAX || level >= STEPS_MAX)
		return;
	for (int i = level + 1; i < STEPS_MAX; i++)
		levels[i] = -1;
	levels[level] = -1;
	if (level && (levels[level - 1] < 0 || is_table(&statement->steps[levels[level - 1]])))
		return;
	step = &statement->steps[statement->count];
	layout_copy_step(step->name, sizeof(step->name), text);
	snprintf(step->line, sizeof(step->line), "%.250s", arrow ? arrow : text);
	step->parent = level ? levels[level - 1] : -1;
	step->tree = level ? statement->steps[step->parent].tree : (int)statement->count;
	levels[level] = (int)statement->count++;
}

/* The only one of its name, so that it is known which one an object is; -1: it isn't. */
static int find_only(const struct statement *statement, const char *name)
{
	int found = -1;

	for (uint32_t i = 0; i < statement->count; i++) {
		if (strcmp(statement->steps[i].name, name))
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

static void define_steps(struct learn_steps *learn, const struct statement *statement)
{
	learn->serial++;
	for (uint32_t i = 0; i < statement->count; i++) {
		const struct step *step = &statement->steps[i];
		const struct key key = { learn->serial, 0, i };

		if (find_only(statement, step->name) == (int)i)
			learn_source_define(learn->facts, &key, step->line, step->parent < 0);
	}
}

void learn_steps_begin(struct learn_steps *learn, const char *explained)
{
	struct statement *statement;
	int levels[STEPS_MAX];

	if (learn->settled)
		learn->statement_count = 0; /* one at a time: the one to be verified */
	if (learn->statement_count == STATEMENTS_MAX)
		return;
	statement = &learn->statements[learn->statement_count++];
	memset(statement, 0, sizeof(*statement));
	for (int i = 0; i < STEPS_MAX; i++)
		levels[i] = -1;
	while (*explained) {
		size_t size = strcspn(explained, "\n");

		add_line(statement, explained, size, levels);
		explained += size + (explained[size] == '\n');
	}
	if (learn->settled)
		define_steps(learn, statement);
}

/* ---- Frames ---- */

static void look(struct learn_steps *learn, const struct stack_sample *sample)
{
	bool whole;

	learn->count = stack_unwind(learn->unwinder, sample, learn->frames, FRAMES_MAX, &whole);
}

/* The object's virtual functions, if the frame's function is one of them. */
static bool is_method(const struct learn_steps *learn, const struct stack_frame *frame,
		      uint64_t object, uint64_t *type, uint32_t *slot)
{
	uint64_t table[SLOTS];

	if (!own_image_read(object, type, sizeof(*type)) || !own_image_has(&learn->image, *type) ||
	    !own_image_read(*type, table, sizeof(table)))
		return false;
	for (*slot = 0; *slot < SLOTS; ++*slot) {
		if (table[*slot] == frame->start)
			return true;
	}
	return false;
}

static struct type *type_at(struct learn_steps *learn, uint64_t address)
{
	uint32_t i = 0;

	while (i < learn->type_count && learn->types[i].address != address)
		i++;
	if (i == TYPES_MAX)
		return NULL;
	if (i == learn->type_count)
		learn->types[learn->type_count++].address = address;
	return &learn->types[i];
}

static struct function *function_at(struct learn_steps *learn, const struct stack_frame *frame)
{
	uint32_t i = 0;

	while (i < learn->function_count && learn->functions[i].start != frame->start)
		i++;
	if (i == FUNCTIONS_MAX)
		return NULL;
	if (i == learn->function_count)
		learn->functions[learn->function_count++] =
			(struct function){ .start = frame->start, .end = frame->end };
	return &learn->functions[i];
}

/* ---- Learning ---- */

/* What is at a place of a frame. */
static bool object_at(const struct stack_sample *sample, const struct stack_frame *frame,
		      unsigned place, uint64_t *object)
{
	if (place < STACK_CALLEE_SAVED) {
		*object = frame->saved[place];
		return frame->known & 1u << place;
	}
	return frame->known & 1u << RBP &&
	       stack_word(sample, frame->saved[RBP] - 8 * (place - STACK_CALLEE_SAVED + 1), object);
}

static void learn_frame(struct learn_steps *learn, const struct stack_sample *sample,
			const struct stack_frame *frame)
{
	struct function *function;
	uint64_t object, type, seen = 0;
	uint32_t slot;

	if (!own_image_is_method(&learn->image, frame->start))
		return;
	function = function_at(learn, frame);
	if (!function)
		return;
	function->frames++;
	for (unsigned i = 0; i < PLACES; i++) {
		if (!object_at(sample, frame, i, &object) ||
		    !is_method(learn, frame, object, &type, &slot))
			continue;
		function->held[i]++;
		function->slot = slot;
		/* A stale one may lie in the frame, too: registers come first. */
		if (!seen)
			seen = type;
	}
	if (seen) {
		struct type *class = type_at(learn, seen);

		if (class) {
			class->seen[learn->statement_count - 1]++;
			class->slots[function->slot]++;
			learn->stack[learn->depth++] = (uint32_t)(class - learn->types);
		}
	}
}

static void choose_place(struct function *function)
{
	function->place = -1;
	for (unsigned i = 0; i < PLACES; i++) {
		if (function->held[i] * 100ull < (uint64_t)function->frames * HOLDS_LEAST)
			continue;
		if (function->place < 0 || function->held[i] > function->held[function->place])
			function->place = (int)i;
	}
}

static struct request_function *request_function_at(struct learn_steps *learn,
						    const struct stack_frame *frame)
{
	uint32_t i = 0;

	while (i < learn->request_count && learn->requests[i].start != frame->start)
		i++;
	if (i == FUNCTIONS_MAX)
		return NULL;
	if (i == learn->request_count)
		learn->requests[learn->request_count++] =
			(struct request_function){ .start = frame->start, .end = frame->end };
	return &learn->requests[i];
}

/* Registers that have, in the frames of this function, just these requests in order. */
static uint32_t has_requests(const struct learn_steps *learn, uint64_t start,
			     const uint64_t *requests, uint32_t count)
{
	uint32_t good = (1u << STACK_CALLEE_SAVED) - 1, at = 0;

	for (uint32_t i = 1; i < learn->count; i++) {
		const struct stack_frame *frame = &learn->frames[i];

		if (frame->start != start)
			continue;
		for (unsigned j = 0; j < STACK_CALLEE_SAVED; j++) {
			if (at >= count || frame->saved[j] != requests[at])
				good &= ~(1u << j);
		}
		at++;
	}
	return at == count ? good : 0;
}

static void learn_requests(struct learn_steps *learn, const uint64_t *requests, uint32_t count)
{
	learn->request_samples++;
	for (uint32_t i = 1; i < learn->count; i++) {
		const struct stack_frame *frame = &learn->frames[i];
		struct request_function *function;
		bool again = false;
		uint32_t good;

		for (uint32_t j = 1; j < i && !again; j++)
			again = learn->frames[j].start == frame->start;
		if (again || !own_image_has(&learn->image, frame->ip) || !frame->start)
			continue;
		good = has_requests(learn, frame->start, requests, count);
		function = good ? request_function_at(learn, frame) : NULL;
		for (unsigned j = 0; function && j < STACK_CALLEE_SAVED; j++)
			function->held[j] += good >> j & 1;
	}
}

/* The one that is, with its requests, on nearly every stack; `index` of its register. */
static const struct request_function *find_request_function(const struct learn_steps *learn,
							    unsigned *index)
{
	const struct request_function *best = NULL;
	uint64_t most = learn->request_samples - learn->request_samples / 20;

	for (uint32_t i = 0; i < learn->request_count; i++) {
		for (unsigned j = 0; j < STACK_CALLEE_SAVED; j++) {
			if (learn->requests[i].held[j] <= most)
				continue;
			best = &learn->requests[i];
			most = best->held[j];
			*index = j;
		}
	}
	return best;
}

/* ---- Which class is which step ---- */

static uint64_t statements_with_step(const struct learn_steps *learn, const char *name)
{
	uint64_t bits = 0;

	for (uint32_t i = 0; i < learn->statement_count; i++) {
		for (uint32_t j = 0; j < learn->statements[i].count; j++) {
			if (learn->statements[i].steps[j].parent >= 0 &&
			    strcmp(learn->statements[i].steps[j].name, name) == 0)
				bits |= 1ull << i;
		}
	}
	return bits;
}

static uint64_t statements_with_type(const struct learn_steps *learn, const struct type *type)
{
	uint64_t bits = 0;

	for (uint32_t i = 0; i < learn->statement_count; i++) {
		if (type->seen[i] >= SAMPLES_LEAST)
			bits |= 1ull << i;
	}
	return bits;
}

/*
 * The step that all statements have where the class is seen, and fewest others.  None if two are as good, or
 * the class is missing in most statements of the step.
 */
static void name_type(struct learn_steps *learn, struct type *type)
{
	uint64_t seen = statements_with_type(learn, type);
	int least = STATEMENTS_MAX, ties = 0;

	for (uint32_t i = 0; seen && i < learn->statement_count; i++) {
		for (uint32_t j = 0; j < learn->statements[i].count; j++) {
			const struct step *step = &learn->statements[i].steps[j];
			uint64_t with = statements_with_step(learn, step->name);
			int others = __builtin_popcountll(with & ~seen);

			if (step->parent < 0 || seen & ~with || others > least)
				continue;
			if (others == least && strcmp(step->name, type->step) == 0)
				continue;
			ties = others == least ? ties + 1 : 0;
			least = others;
			strcpy(type->step, step->name);
		}
	}
	if (ties || least > __builtin_popcountll(seen))
		type->step[0] = 0;
}

/* A step that just these statements have: the first or last such one in the plan. */
static const struct step *find_step(const struct learn_steps *learn, uint64_t seen, bool last)
{
	const struct statement *statement = &learn->statements[__builtin_ctzll(seen)];
	const struct step *found = NULL;

	for (uint32_t i = 0; i < statement->count; i++) {
		const struct step *step = &statement->steps[i];

		if (step->parent >= 0 && statements_with_step(learn, step->name) == seen &&
		    (last || !found))
			found = step;
	}
	return found;
}

/* Tables are opened once and fetched from many times; the other place is that of opening. */
static void find_slots(struct learn_steps *learn)
{
	uint64_t table[SLOTS] = { 0 }, all[SLOTS] = { 0 };

	for (uint32_t i = 0; i < learn->type_count; i++) {
		const struct type *type = &learn->types[i];

		for (unsigned j = 0; j < SLOTS && type->step[0]; j++) {
			all[j] += type->slots[j];
			if (strncmp(type->step, "Table ", 6) == 0)
				table[j] += type->slots[j];
		}
	}
	for (unsigned j = 1; j < SLOTS; j++) {
		if (table[j] > table[learn->fetch_slot])
			learn->fetch_slot = j;
	}
	learn->open_slot = learn->fetch_slot ? 0 : 1;
	for (unsigned j = 0; j < SLOTS; j++) {
		if (j != learn->fetch_slot && all[j] > all[learn->open_slot])
			learn->open_slot = j;
	}
}

/* Other classes have other things at these places. */
static bool is_record_source(const struct learn_steps *learn, const struct type *type)
{
	uint32_t all = 0;

	for (unsigned j = 0; j < SLOTS; j++)
		all += type->slots[j];
	return 2 * (type->slots[learn->fetch_slot] + type->slots[learn->open_slot]) >= all;
}

static void drop_types(struct learn_steps *learn)
{
	for (uint32_t i = 0; i < learn->type_count; i++) {
		if (!is_record_source(learn, &learn->types[i]))
			learn->types[i].step[0] = 0;
	}
}

/* Two steps that only occur together, as a hash join and its buffer: one is always inside the other. */
static void name_pair(struct learn_steps *learn, uint64_t seen, uint32_t outer, uint32_t inner)
{
	const struct step *first = find_step(learn, seen, false);
	const struct step *last = find_step(learn, seen, true);

	if (!first || first == last || learn->inside[inner][outer] < SAMPLES_LEAST ||
	    learn->inside[outer][inner])
		return;
	strcpy(learn->types[outer].step, first->name);
	strcpy(learn->types[inner].step, last->name);
}

static void name_pairs(struct learn_steps *learn)
{
	for (uint32_t i = 0; i < learn->type_count; i++) {
		uint64_t seen = statements_with_type(learn, &learn->types[i]);
		uint32_t others = 0, other = 0;

		if (!seen || learn->types[i].step[0] || !is_record_source(learn, &learn->types[i]))
			continue;
		for (uint32_t j = 0; j < learn->type_count; j++) {
			if (j == i || learn->types[j].step[0] ||
			    !is_record_source(learn, &learn->types[j]) ||
			    statements_with_type(learn, &learn->types[j]) != seen)
				continue;
			others++;
			other = j;
		}
		if (others != 1)
			continue;
		name_pair(learn, seen, i, other);
		name_pair(learn, seen, other, i);
	}
}

void learn_steps_settle(struct learn_steps *learn)
{
	for (uint32_t i = 0; i < learn->type_count; i++)
		name_type(learn, &learn->types[i]);
	find_slots(learn);
	drop_types(learn);
	name_pairs(learn);
	for (uint32_t i = 0; i < learn->function_count; i++)
		choose_place(&learn->functions[i]);
	learn->settled = true;
}

/* ---- Verifying ---- */

static struct type *type_of(struct learn_steps *learn, uint64_t address)
{
	for (uint32_t i = 0; i < learn->type_count; i++) {
		if (learn->types[i].address == address && learn->types[i].step[0])
			return &learn->types[i];
	}
	return NULL;
}

static bool is_kept(const struct learn_steps *learn, const struct function *function)
{
	return function->place >= 0 &&
	       (function->slot == learn->open_slot || function->slot == learn->fetch_slot);
}

/* The class of the record source in this frame, by what was learnt, and where it is; NULL: none. */
static struct type *step_of(struct learn_steps *learn, const struct stack_sample *sample,
			    const struct stack_frame *frame, uint64_t *place)
{
	for (uint32_t i = 0; i < learn->function_count; i++) {
		struct function *function = &learn->functions[i];
		uint64_t object, address;
		struct type *type;
		uint32_t slot;

		if (function->start != frame->start || !is_kept(learn, function))
			continue;
		if (!object_at(sample, frame, (unsigned)function->place, &object) ||
		    !is_method(learn, frame, object, &address, &slot))
			return NULL;
		type = type_of(learn, address);
		function->of_step |= type != NULL;
		*place = object;
		return type;
	}
	return NULL;
}

static bool is_below(const struct statement *statement, uint32_t inner, uint32_t outer)
{
	if (statement->steps[inner].tree != statement->steps[outer].tree)
		return statement->steps[inner].tree != 0; /* a sub-query may be anywhere */
	for (int i = statement->steps[inner].parent; i >= 0; i = statement->steps[i].parent) {
		if (i == (int)outer)
			return true;
	}
	return false;
}

/* Are there steps of these names, each below the one before?  `below` < 0: the first may be any. */
static bool is_path(const struct statement *statement, const char *const *names, uint32_t count,
		    int below)
{
	if (!count)
		return true;
	for (uint32_t i = 0; i < statement->count; i++) {
		if (strcmp(statement->steps[i].name, names[0]) == 0 &&
		    (below < 0 || is_below(statement, i, (uint32_t)below)) &&
		    is_path(statement, names + 1, count - 1, (int)i))
			return true;
	}
	return false;
}

static void look_at_object(struct learn_steps *learn, const struct type *type, uint64_t object)
{
	int step = find_only(&learn->statements[0], type->step);
	const struct key key = { learn->serial, 0, (uint32_t)step };

	if (step >= 0)
		learn_source_look(learn->facts, &key, object);
}

static void verify(struct learn_steps *learn, const struct stack_sample *sample)
{
	const char *names[STEPS_MAX];
	struct type *types[STEPS_MAX];
	uint64_t objects[STEPS_MAX + 1];
	uint32_t count = 0;

	for (uint32_t i = learn->count; i-- > 1;) {
		struct type *type = step_of(learn, sample, &learn->frames[i], &objects[count]);

		/* Some steps are done by two objects, one inside the other. */
		if (!type || count == STEPS_MAX ||
		    (count && strcmp(names[count - 1], type->step) == 0))
			continue;
		types[count] = type;
		names[count++] = type->step;
	}
	if (!count)
		return;
	if (is_path(&learn->statements[0], names, count, -1)) {
		learn->agreed++;
		for (uint32_t i = 0; i < count; i++) {
			types[i]->verified++;
			look_at_object(learn, types[i], objects[i]);
		}
		return;
	}
	if (learn->disagreed++)
		return;
	for (uint32_t i = 0, size = 0; i < count && size < sizeof(learn->first_disagreement); i++)
		size += (uint32_t)snprintf(learn->first_disagreement + size,
					   sizeof(learn->first_disagreement) - size, "%s%s",
					   i ? " > " : "", names[i]);
}

void learn_steps_sample(struct learn_steps *learn, const struct stack_sample *sample,
			const uint64_t *requests, uint32_t count)
{
	if (!learn->statement_count || !count)
		return;
	look(learn, sample);
	if (count)
		learn_requests(learn, requests, count);
	if (learn->settled) {
		verify(learn, sample);
		return;
	}
	learn->statements[learn->statement_count - 1].samples++;
	learn->depth = 0;
	for (uint32_t i = 1; i < learn->count; i++) {
		if (own_image_has(&learn->image, learn->frames[i].ip) && learn->frames[i].start)
			learn_frame(learn, sample, &learn->frames[i]);
	}
	for (uint32_t i = 0; i < learn->depth; i++) {
		for (uint32_t j = i + 1; j < learn->depth; j++)
			learn->inside[learn->stack[i]][learn->stack[j]]++;
	}
}

/* ---- The result ---- */

/* What the objects themselves tell. */
static void put_facts(const struct learn_steps *learn, struct layout *layout)
{
	struct layout *facts = calloc(1, sizeof(*facts));

	if (!facts)
		return;
	learn_source_result(learn->facts, facts);
	for (int i = LAYOUT_SOURCE_ID; i <= LAYOUT_SOURCE_ALIAS; i++)
		layout->path[i] = facts->path[i];
	for (uint32_t i = 0; i < layout->plan_types; i++) {
		for (uint32_t j = 0; j < facts->plan_types; j++) {
			if (facts->type[j].type != layout->type[i].type)
				continue;
			layout->type[i].has_table = facts->type[j].has_table;
			layout->type[i].has_alias = facts->type[j].has_alias;
		}
	}
	free(facts);
}

static void put_types(const struct learn_steps *learn, struct layout *layout)
{
	layout->plan_types = 0;
	for (uint32_t i = 0; i < learn->type_count && layout->plan_types < LAYOUT_PLAN_TYPES; i++) {
		struct layout_plan_type *type = &layout->type[layout->plan_types];

		if (!learn->types[i].step[0] || learn->types[i].verified < SAMPLES_LEAST)
			continue;
		*type = (struct layout_plan_type){ .type = learn->types[i].address -
							   learn->image.base };
		strcpy(type->step, learn->types[i].step);
		layout->plan_types++;
	}
}

static void put_function(const struct learn_steps *learn, struct layout *layout,
			 const struct function *function)
{
	bool in_frame = function->place >= (int)STACK_CALLEE_SAVED;

	if (layout->plan_functions == LAYOUT_PLAN_FUNCTIONS)
		return;
	layout->plan[layout->plan_functions++] = (struct layout_plan_function){
		.start = function->start - learn->image.base,
		.end = function->end - learn->image.base,
		.event = function->slot == learn->fetch_slot ? LAYOUT_PLAN_FETCH : LAYOUT_PLAN_OPEN,
		.reg = stack_callee_saved[in_frame ? (int)RBP : function->place],
		.offset = in_frame ? -8 * (function->place - (int)STACK_CALLEE_SAVED + 1) : 0,
		.slot = (int32_t)function->slot,
	};
}

bool learn_steps_result(const struct learn_steps *learn, struct layout *layout, uint64_t *verified,
			char error[LAYOUT_ERROR_SIZE])
{
	unsigned index = 0;
	const struct request_function *request = find_request_function(learn, &index);

	*verified = learn->agreed;
	if (!request) {
		snprintf(error, LAYOUT_ERROR_SIZE,
			 "no function was found that has its request in a register");
		return false;
	}
	if (learn->disagreed || !learn->agreed) {
		snprintf(error, LAYOUT_ERROR_SIZE,
			 "%" PRIu64 " of %" PRIu64 " stacks disagree with plans: %s",
			 learn->disagreed, learn->agreed + learn->disagreed,
			 learn->first_disagreement);
		return false;
	}
	layout->plan_functions = 1;
	layout->plan[0] = (struct layout_plan_function){
		.start = request->start - learn->image.base,
		.end = request->end - learn->image.base,
		.event = LAYOUT_PLAN_REQUEST,
		.reg = stack_callee_saved[index],
		.slot = -1,
	};
	for (uint32_t i = 0; i < learn->function_count; i++) {
		if (learn->functions[i].of_step && is_kept(learn, &learn->functions[i]))
			put_function(learn, layout, &learn->functions[i]);
	}
	put_types(learn, layout);
	put_facts(learn, layout);
	return true;
}
