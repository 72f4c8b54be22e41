#include "learn_plan.h"

#include "bindings.h"
#include "image_own.h"
#include "learn_source.h"
#include "stack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRAMES_MAX 4096
/* A register is one-to-one with less than this by chance. */
#define OBJECTS_LEAST 3
/* A function that executes an activity, and what is still believed of its registers. */
struct function {
	enum layout_plan_event kind;
	uint64_t start, end;
	struct bindings saved[STACK_CALLEE_SAVED];
	uint64_t activities;
	int chosen;   /* index of the register; -1: none */
	bool unsound; /* it is on the stack when its record source isn't at work, too */
};

/* Begun and not ended. */
struct activity {
	enum layout_plan_event kind;
	struct key key;
	int64_t request;
	struct stack_frame *frames; /* of the engine, innermost first; while learning */
	uint32_t count;
	struct function *function;
	uint64_t object; /* while verifying; 0: its function is unsound */
};

struct learn_plan {
	struct stack_unwinder *unwinder;
	struct stack_sample sample;
	struct stack_frame frames[FRAMES_MAX];
	uint32_t count;
	struct own_image image; /* the engine's */

	struct function functions[LAYOUT_PLAN_FUNCTIONS];
	uint32_t function_count;
	struct activity *open;
	uint32_t open_count, open_room;
	const char *failure; /* memory is out, or the like */

	/* Verification. */
	bool settled;
	struct bindings objects, requests;
	struct learn_source *facts;
	uint64_t agreed, disagreed;
	char first_disagreement[160];
};

/* ---- The engine's image ---- */

/* Record sources have virtual functions: such an object begins with an address in the engine. */
static bool has_virtual_functions(const struct learn_plan *learn, uint64_t object)
{
	uint64_t table;

	return own_image_read(object, &table, sizeof(table)) && own_image_has(&learn->image, table);
}

/* ---- Begin and end ---- */

struct learn_plan *learn_plan_new(const void *engine, char error[LAYOUT_ERROR_SIZE])
{
	struct learn_plan *learn = calloc(1, sizeof(*learn));

	if (!learn) {
		snprintf(error, LAYOUT_ERROR_SIZE, "out of memory");
		return NULL;
	}
	if (!own_image_find(engine, &learn->image)) {
		snprintf(error, LAYOUT_ERROR_SIZE, "the engine isn't loaded in this process");
		free(learn);
		return NULL;
	}
	learn->facts = learn_source_new(learn->image.base);
	if (!learn->facts)
		snprintf(error, LAYOUT_ERROR_SIZE, "out of memory");
	else
		learn->unwinder = stack_unwinder_new(getpid(), error);
	if (!learn->unwinder) {
		learn_plan_free(learn);
		return NULL;
	}
	return learn;
}

static void free_function(struct function *function)
{
	for (unsigned i = 0; i < STACK_CALLEE_SAVED; i++)
		bindings_free(&function->saved[i]);
}

void learn_plan_free(struct learn_plan *learn)
{
	if (!learn)
		return;
	stack_unwinder_free(learn->unwinder);
	for (uint32_t i = 0; i < learn->function_count; i++)
		free_function(&learn->functions[i]);
	for (uint32_t i = 0; i < learn->open_count; i++)
		free(learn->open[i].frames);
	free(learn->open);
	bindings_free(&learn->objects);
	bindings_free(&learn->requests);
	learn_source_free(learn->facts);
	free(learn);
}

/* ---- Activities ---- */

static struct key key_of(const struct learn_plan_event *event)
{
	if (event->kind == LAYOUT_PLAN_REQUEST)
		return (struct key){ .first = event->request };
	return (struct key){ event->statement, event->cursor, event->source };
}

/* Of our own stack, the engine's frames. */
static void look(struct learn_plan *learn)
{
	uint32_t count, kept = 0;
	bool whole;

	learn->count = 0;
	if (!stack_own(&learn->sample))
		return;
	count = stack_unwind(learn->unwinder, &learn->sample, learn->frames, FRAMES_MAX, &whole);
	for (uint32_t i = 0; i < count; i++) {
		if (own_image_has(&learn->image, learn->frames[i].ip) && learn->frames[i].start)
			learn->frames[kept++] = learn->frames[i];
	}
	learn->count = kept;
}

static struct activity *begin(struct learn_plan *learn, const struct learn_plan_event *event)
{
	struct activity *activity;

	if (learn->open_count == learn->open_room) {
		uint32_t room = learn->open_room ? 2 * learn->open_room : 64;
		struct activity *open = reallocarray(learn->open, room, sizeof(*open));

		if (!open) {
			learn->failure = "out of memory";
			return NULL;
		}
		learn->open = open;
		learn->open_room = room;
	}
	activity = &learn->open[learn->open_count++];
	*activity = (struct activity){ .kind = event->kind,
				       .key = key_of(event),
				       .request = event->request };
	return activity;
}

/* The innermost such activity; those that an exception ended silently are dropped. */
static struct activity *find_open(struct learn_plan *learn, const struct learn_plan_event *event)
{
	struct key key = key_of(event);
	uint32_t i = learn->open_count;

	while (i > 0 && (learn->open[i - 1].kind != event->kind ||
			 !key_equal(&learn->open[i - 1].key, &key)))
		i--;
	if (!i)
		return NULL;
	while (learn->open_count > i)
		free(learn->open[--learn->open_count].frames);
	return &learn->open[i - 1];
}

static void end(struct learn_plan *learn)
{
	free(learn->open[--learn->open_count].frames);
}

/* ---- Learning ---- */

static struct function *function_of(struct learn_plan *learn, enum layout_plan_event kind,
				    const struct stack_frame *frame)
{
	struct function *function = learn->functions;
	uint32_t i;

	for (i = 0; i < learn->function_count; i++, function++) {
		if (function->kind == kind && function->start == frame->start)
			return function;
	}
	if (i == LAYOUT_PLAN_FUNCTIONS) {
		learn->failure = "too many functions execute plans";
		return NULL;
	}
	learn->function_count++;
	function->kind = kind;
	function->start = frame->start;
	function->end = frame->end;
	return function;
}

static void learn_frame(struct learn_plan *learn, const struct activity *activity,
			const struct stack_frame *frame, uint64_t request_address)
{
	struct function *function = function_of(learn, activity->kind, frame);

	if (!function)
		return;
	function->activities++;
	for (unsigned i = 0; i < STACK_CALLEE_SAVED; i++) {
		uint64_t value = frame->saved[i];
		bool good = frame->known & 1u << i;

		if (function->saved[i].broken)
			continue;
		if (activity->kind == LAYOUT_PLAN_REQUEST)
			good = good && (!request_address || value == request_address);
		else
			good = good && has_virtual_functions(learn, value);
		if (!good)
			bindings_free(&function->saved[i]);
		else
			bindings_add(&function->saved[i], &activity->key, value);
	}
}

static void keep_frames(struct learn_plan *learn, struct activity *activity)
{
	activity->frames = calloc(learn->count, sizeof(*activity->frames));
	if (!activity->frames)
		return; /* learns nothing from it */
	memcpy(activity->frames, learn->frames, learn->count * sizeof(*activity->frames));
	activity->count = learn->count;
}

/* The innermost frame that was there before and is still. */
static const struct stack_frame *find_executing(const struct learn_plan *learn,
						const struct activity *activity)
{
	uint32_t i = activity->count, j = learn->count;
	const struct stack_frame *found = NULL;

	while (i && j && activity->frames[i - 1].start == learn->frames[j - 1].start &&
	       activity->frames[i - 1].cfa == learn->frames[j - 1].cfa) {
		found = &activity->frames[--i];
		j--;
	}
	return found;
}

static void learn_event(struct learn_plan *learn, const struct learn_plan_event *event)
{
	struct activity *activity = event->before ? begin(learn, event) : find_open(learn, event);
	const struct stack_frame *frame;

	if (!activity)
		return;
	look(learn);
	if (event->before) {
		keep_frames(learn, activity);
		return;
	}
	frame = find_executing(learn, activity);
	if (frame)
		learn_frame(learn, activity, frame, event->request_address);
	end(learn);
}

static uint32_t objects_of(const struct function *function, unsigned index)
{
	const struct bindings *bindings = &function->saved[index];

	return bindings->broken ? 0 : bindings->count;
}

/* The register with its objects; of several, the one with most. */
static void choose_register(struct function *function)
{
	uint32_t most = OBJECTS_LEAST - 1;

	function->chosen = -1;
	for (unsigned i = 0; i < STACK_CALLEE_SAVED; i++) {
		uint32_t objects = objects_of(function, i);

		if (objects > most) {
			most = objects;
			function->chosen = (int)i;
		}
	}
}

bool learn_plan_settle(struct learn_plan *learn, char error[LAYOUT_ERROR_SIZE])
{
	bool found[LAYOUT_PLAN_EVENTS] = { false };
	uint32_t kept = 0;

	for (uint32_t i = 0; i < learn->open_count; i++)
		free(learn->open[i].frames);
	learn->open_count = 0;
	for (uint32_t i = 0; i < learn->function_count; i++) {
		struct function *function = &learn->functions[i];

		choose_register(function);
		free_function(function);
		if (function->chosen < 0)
			continue;
		found[function->kind] = true;
		learn->functions[kept++] = *function;
	}
	learn->function_count = kept;
	learn->settled = true;
	if (!learn->failure && (!found[LAYOUT_PLAN_OPEN] || !found[LAYOUT_PLAN_FETCH]))
		learn->failure = "no function was found that has record sources in a register";
	if (learn->failure)
		snprintf(error, LAYOUT_ERROR_SIZE, "%s", learn->failure);
	return !learn->failure;
}

/* ---- Verifying ---- */

static struct function *settled_function(struct learn_plan *learn, const struct stack_frame *frame)
{
	for (uint32_t i = 0; i < learn->function_count; i++) {
		if (learn->functions[i].start == frame->start)
			return &learn->functions[i];
	}
	return NULL;
}

/* The frame at `place`, or the first outside of it, with a request or record source; NULL: none. */
static struct function *next_function(struct learn_plan *learn, uint32_t *place, bool request)
{
	for (; *place < learn->count; ++*place) {
		struct function *function = settled_function(learn, &learn->frames[*place]);

		if (function && (function->kind == LAYOUT_PLAN_REQUEST) == request)
			return function;
	}
	return NULL;
}

static uint64_t object_at(const struct learn_plan *learn, const struct function *function,
			  uint32_t place)
{
	return learn->frames[place].saved[function->chosen];
}

static void disagree(struct learn_plan *learn, const struct learn_plan_event *event,
		     const char *what)
{
	if (!learn->disagreed++)
		snprintf(learn->first_disagreement, sizeof(learn->first_disagreement),
			 "%s at statement %" PRId64 ", cursor %u, record source %u", what,
			 event->statement, event->cursor, event->source);
}

static bool is_at_work(const struct learn_plan *learn, uint64_t object)
{
	for (uint32_t i = 0; i < learn->open_count; i++) {
		if (learn->open[i].object == object)
			return true;
	}
	return false;
}

/*
 * As next_function() for record sources, with the object, 0 if there is none; without those that are
 * unsound, and the ones that prove to be so: some do a part of their work before the activity begins.
 */
static uint64_t next_object(struct learn_plan *learn, uint32_t *place)
{
	struct function *function;

	while ((function = next_function(learn, place, false))) {
		uint64_t object = object_at(learn, function, *place);

		if (!function->unsound && is_at_work(learn, object))
			return object;
		function->unsound = true;
		for (uint32_t i = 0; i < learn->open_count; i++) {
			if (learn->open[i].function == function)
				learn->open[i].object = 0;
		}
		++*place;
	}
	return 0;
}

/* The request of the next frame outside must be the activity's. */
static bool verify_request(struct learn_plan *learn, const struct activity *activity,
			   uint32_t place)
{
	const struct function *function = next_function(learn, &place, true);
	struct key key = { .first = activity->request };

	return !function || bindings_add(&learn->requests, &key, object_at(learn, function, place));
}

/* Each record source on the native stack is of an open activity, in order. */
static void verify_stack(struct learn_plan *learn, const struct learn_plan_event *event)
{
	uint32_t place = 0;

	for (uint32_t i = learn->open_count; i-- > 0;) {
		const struct activity *activity = &learn->open[i];
		uint64_t object = next_object(learn, &place);

		/* Its function may just have proved to be unsound. */
		if (!activity->object)
			continue;
		if (object != activity->object)
			return disagree(learn, event, "another record source is on the stack");
		if (!verify_request(learn, activity, place))
			return disagree(learn, event, "another request is on the stack");
		place++;
	}
	if (next_object(learn, &place))
		disagree(learn, event, "a record source is on the stack that isn't at work");
	else
		learn->agreed++;
}

/* ---- Verifying, and the result ---- */

static void verify_event(struct learn_plan *learn, const struct learn_plan_event *event)
{
	struct activity *activity;
	uint32_t place = 0;

	if (event->kind == LAYOUT_PLAN_REQUEST)
		return;
	if (!event->before) {
		/* By now the function may have put its result into the register. */
		if (find_open(learn, event))
			end(learn);
		return;
	}
	activity = begin(learn, event);
	if (!activity)
		return;
	look(learn);
	activity->function = next_function(learn, &place, false);
	if (activity->function && !activity->function->unsound)
		activity->object = object_at(learn, activity->function, place);
	if (activity->object && (!has_virtual_functions(learn, activity->object) ||
				 !bindings_add(&learn->objects, &activity->key, activity->object)))
		disagree(learn, event, "another record source is innermost");
	else if (activity->object)
		learn_source_look(learn->facts, &activity->key, activity->object);
	verify_stack(learn, event);
}

void learn_plan_define(struct learn_plan *learn, int64_t statement, uint32_t cursor,
		       uint32_t source, uint32_t parent, const char *access_path)
{
	const struct key key = { statement, cursor, source };

	learn_source_define(learn->facts, &key, access_path, parent == 0);
}

void learn_plan_event(struct learn_plan *learn, const struct learn_plan_event *event)
{
	int error = errno;

	if (learn->settled)
		verify_event(learn, event);
	else
		learn_event(learn, event);
	errno = error;
}

/* Scrolling a cursor may be left out; what matters may not. */
static bool is_mostly_sound(const struct learn_plan *learn)
{
	uint64_t sound = 0, all = 0;

	for (uint32_t i = 0; i < learn->function_count; i++) {
		all += learn->functions[i].activities;
		if (!learn->functions[i].unsound)
			sound += learn->functions[i].activities;
	}
	return sound >= all - all / 100;
}

static void put_functions(const struct learn_plan *learn, struct layout *layout)
{
	layout->plan_functions = 0;
	for (uint32_t i = 0; i < learn->function_count; i++) {
		const struct function *function = &learn->functions[i];

		if (function->unsound)
			continue;
		layout->plan[layout->plan_functions++] = (struct layout_plan_function){
			.start = function->start - learn->image.base,
			.end = function->end - learn->image.base,
			.event = function->kind,
			.reg = stack_callee_saved[function->chosen],
			.slot = -1,
		};
	}
}

bool learn_plan_result(const struct learn_plan *learn, struct layout *layout, uint64_t *verified,
		       char error[LAYOUT_ERROR_SIZE])
{
	*verified = learn->agreed;
	if (learn->failure) {
		snprintf(error, LAYOUT_ERROR_SIZE, "%s", learn->failure);
		return false;
	}
	if (learn->disagreed || !learn->agreed) {
		snprintf(error, LAYOUT_ERROR_SIZE, "%" PRIu64 " of %" PRIu64 " events disagree: %s",
			 learn->disagreed, learn->agreed + learn->disagreed,
			 learn->first_disagreement);
		return false;
	}
	if (!is_mostly_sound(learn)) {
		snprintf(error, LAYOUT_ERROR_SIZE,
			 "record sources are on the stack that aren't at work");
		return false;
	}
	put_functions(learn, layout);
	learn_source_result(learn->facts, layout);
	return true;
}
