/*
 * The search for paths, in structures of our own: it must find where each fact is, and must not
 * find what isn't there.
 */
#include "../passive/learn.h"
#include "run_suite.h"

#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH	4
#define MOMENTS 50

struct text {
	uint64_t pool;
	char inlined[32];
	char *characters;
	uint32_t length;
};

struct word {
	uint64_t next;
	uint8_t length;
	char characters[60];
};

struct routine {
	uint64_t id;
	struct word *name, *package;
};

struct statement {
	uint64_t zero, id;
	struct text *sql_text;
	struct routine *procedure, *function;
	struct word *trigger;
};

/* `decoy` is at first the same as what is beside it. */
struct request {
	uint64_t zero, id, decoy_id;
	struct request *decoy_caller, *caller;
	struct statement *statement;
	uint32_t decoy_line, line, column;
};

struct attachment {
	uint64_t zero[5];
	uint64_t id;
	struct text user, *database;
};

struct context {
	uint64_t zero[3];
	struct request *request;
	struct attachment *attachment;
	struct context *below;
};

/* Objects are so far apart that no window of the search reaches from one into another. */
#define GAP(name) char name[16384]

static struct {
	struct text text;
	GAP(gap1);
	struct word word;
	GAP(gap2);
	struct word package;
	GAP(gap3);
	struct routine routine;
	GAP(gap4);
	struct {
		struct statement statement;
		GAP(gap5);
		struct request request;
		GAP(gap6);
	} levels[DEPTH];
	struct text database;
	GAP(gap7);
	struct attachment attachment;
	GAP(gap8);
	struct context context;
	GAP(gap9);
	struct context below;
	GAP(gap10);
	struct request outer;
	GAP(gap11);
	void *tls[4];
} engine;

static struct learn_frame frames[DEPTH];
static struct learn_moment moment;
static char texts[8][64];
static char error[LAYOUT_ERROR_SIZE];

/* The characters are elsewhere, as those of a long text. */
static void set_text(struct text *text, char *characters)
{
	text->characters = characters;
	text->length = (uint32_t)strlen(characters);
}

static void set_word(struct word *word, char *name, const char *prefix, unsigned number)
{
	snprintf(name, sizeof(texts[0]), "%s_%u", prefix, number);
	strcpy(word->characters, name);
}

/* The innermost is a block, procedure, function or trigger in turn; its callers are blocks. */
static void set_statement(unsigned number)
{
	struct statement *statement = &engine.levels[0].statement;
	struct learn_frame *frame = &frames[0];

	*statement = (struct statement){ .id = statement->id };
	frame->kind = (enum learn_kind)(number % 4);
	frame->name = frame->kind == LEARN_BLOCK ? "" : texts[1];
	frame->sql_text = frame->kind == LEARN_BLOCK ? texts[0] : "";
	frame->package =
		frame->kind == LEARN_PROCEDURE || frame->kind == LEARN_FUNCTION ? texts[2] : "";
	snprintf(texts[0], sizeof(texts[0]), "select %u from rdb$database", number);
	set_text(&engine.text, texts[0]);
	set_word(&engine.word, texts[1], "NAME", number);
	set_word(&engine.package, texts[2], "PACKAGE", number * 7);
	engine.routine.name = &engine.word;
	engine.routine.package = &engine.package;
	if (frame->kind == LEARN_BLOCK)
		statement->sql_text = &engine.text;
	else if (frame->kind == LEARN_TRIGGER)
		statement->trigger = &engine.word;
	else if (frame->kind == LEARN_FUNCTION)
		statement->function = &engine.routine;
	else
		statement->procedure = &engine.routine;
}

static void set_request(unsigned depth, unsigned count, unsigned number)
{
	struct request *request = &engine.levels[depth].request;
	struct learn_frame *frame = &frames[depth];

	request->id = frame->request_id = 1000 * number + depth;
	request->decoy_id = number < 3 ? request->id : 0;
	request->line = frame->line = 3 + number % 17 + depth;
	request->decoy_line = number < 5 ? request->line : 4;
	request->column = frame->column = 40 + number % 13;
	request->caller = depth + 1 < count ? &engine.levels[depth + 1].request : NULL;
	request->decoy_caller = depth + 1 < DEPTH ? &engine.levels[depth + 1].request : NULL;
	request->statement = &engine.levels[depth].statement;
	request->statement->id = frame->statement_id = 7000 + 10 * number + depth;
}

/* Every third moment is of a statement within a statement. */
static void set_outer(unsigned number)
{
	engine.outer.id = 300 + number;
	engine.below.request = &engine.outer;
	engine.context.below = number % 3 ? NULL : &engine.below;
	moment.outer_known = true;
	moment.outer_id = number % 3 ? 0 : engine.outer.id;
}

/* The state of the engine, and what an oracle knows of it. */
static void make_moment(unsigned number)
{
	unsigned count = 1 + number % DEPTH;

	for (unsigned depth = 0; depth < count; depth++) {
		set_request(depth, count, number);
		frames[depth].kind = LEARN_BLOCK;
		frames[depth].sql_text = NULL;
		frames[depth].name = frames[depth].package = "";
	}
	set_statement(number / 2);
	snprintf(texts[3], sizeof(texts[3]), "USER_%u", number);
	snprintf(texts[4], sizeof(texts[4]), "/somewhere/database_%u.fdb", number);
	set_text(&engine.attachment.user, strcpy(engine.attachment.user.inlined, texts[3]));
	engine.attachment.user.characters = engine.attachment.user.inlined;
	set_text(&engine.database, texts[4]);
	engine.attachment.database = &engine.database;
	engine.attachment.id = 500 + number;
	engine.context.request = &engine.levels[0].request;
	engine.context.attachment = &engine.attachment;
	engine.tls[2] = &engine.context;
	moment = (struct learn_moment){ .tls = (uint64_t)(uintptr_t)engine.tls,
					.attachment_id = engine.attachment.id,
					.user = texts[3],
					.database = texts[4],
					.count = count,
					.frames = frames };
	set_outer(number);
}

static struct learner *learn(unsigned stages)
{
	struct learner *learner = learner_new(sizeof(engine.tls));

	for (unsigned stage = 0; stage < stages; stage++) {
		for (unsigned number = 1; number <= MOMENTS; number++) {
			make_moment(number);
			learner_feed(learner, &moment);
		}
		ck_assert_msg(learner_settle(learner, error), "%s", error);
	}
	return learner;
}

static void check_path(const struct layout *layout, enum layout_fact fact, enum layout_type type,
		       unsigned steps, size_t first, size_t last)
{
	const struct layout_path *path = &layout->path[fact];

	ck_assert_msg(path->type == type && path->steps == steps &&
			      path->offset[0] == (int32_t)first &&
			      path->offset[steps - 1] == (int32_t)last,
		      "%s: %s, %u steps, from %d to %d", layout_fact_name(fact),
		      layout_type_name(path->type), path->steps, path->offset[0],
		      path->offset[path->steps - 1]);
}

#define AT(type, member) offsetof(struct type, member)
#define WORD_CHARACTERS	 AT(word, characters)

START_TEST(finds_all)
{
	struct learner *learner = learn(LEARN_STAGES);
	const struct layout *layout = learner_layout(learner);

	check_path(layout, LAYOUT_REQUEST, LAYOUT_POINTER, 2, 16, AT(context, request));
	check_path(layout, LAYOUT_ATTACHMENT, LAYOUT_POINTER, 2, 16, AT(context, attachment));
	check_path(layout, LAYOUT_OUTER, LAYOUT_POINTER, 1, AT(context, below), AT(context, below));
	check_path(layout, LAYOUT_REQUEST_ID, LAYOUT_U64, 1, AT(request, id), AT(request, id));
	check_path(layout, LAYOUT_LINE, LAYOUT_U32, 1, AT(request, line), AT(request, line));
	check_path(layout, LAYOUT_COLUMN, LAYOUT_U32, 1, AT(request, column), AT(request, column));
	check_path(layout, LAYOUT_CALLER, LAYOUT_POINTER, 1, AT(request, caller),
		   AT(request, caller));
	check_path(layout, LAYOUT_STATEMENT, LAYOUT_POINTER, 1, AT(request, statement),
		   AT(request, statement));
	check_path(layout, LAYOUT_STATEMENT_ID, LAYOUT_U64, 1, AT(statement, id),
		   AT(statement, id));
	check_path(layout, LAYOUT_SQL_TEXT, LAYOUT_TEXT, 2, AT(statement, sql_text),
		   AT(text, characters));
	ck_assert_int_eq(layout->path[LAYOUT_SQL_TEXT].length, 8);
	check_path(layout, LAYOUT_PROCEDURE, LAYOUT_TEXT_INLINE, 3, AT(statement, procedure),
		   WORD_CHARACTERS);
	check_path(layout, LAYOUT_FUNCTION, LAYOUT_TEXT_INLINE, 3, AT(statement, function),
		   WORD_CHARACTERS);
	check_path(layout, LAYOUT_TRIGGER, LAYOUT_TEXT_INLINE, 2, AT(statement, trigger),
		   WORD_CHARACTERS);
	ck_assert_int_eq(layout->path[LAYOUT_PROCEDURE_PACKAGE].offset[1], AT(routine, package));
	ck_assert_int_eq(layout->path[LAYOUT_FUNCTION_PACKAGE].offset[1], AT(routine, package));
	check_path(layout, LAYOUT_ATTACHMENT_ID, LAYOUT_U64, 1, AT(attachment, id),
		   AT(attachment, id));
	check_path(layout, LAYOUT_DATABASE, LAYOUT_TEXT, 2, AT(attachment, database),
		   AT(text, characters));
	learner_free(learner);
}
END_TEST

/* The chain, numbers and names of a later moment; then one thing after the other is wrong. */
START_TEST(verifies)
{
	struct learner *learner = learn(LEARN_STAGES);
	const struct layout *layout = learner_layout(learner);

	for (unsigned number = 900; number < 900 + MOMENTS; number++) {
		make_moment(number);
		ck_assert_msg(learn_verify(layout, &moment, error), "%s", error);
	}
	for (unsigned wrong = 0; wrong < 8; wrong++) {
		make_moment(903); /* of all depths */
		switch (wrong) {
		case 0:
			engine.levels[2].request.id++;
			break;
		case 1:
			engine.levels[0].request.line++;
			break;
		case 2:
			engine.levels[1].request.caller = &engine.levels[3].request;
			break;
		case 3:
			engine.levels[3].request.caller = &engine.levels[0].request;
			break;
		case 4:
			engine.word.characters[0]++;
			break;
		case 5:
			texts[4][3]++;
			engine.attachment.database->length--;
			break;
		case 6:
			engine.context.request = NULL;
			break;
		case 7:
			engine.context.below = NULL;
			break;
		}
		ck_assert_msg(!learn_verify(layout, &moment, error), "%u is not seen", wrong);
	}
	learner_free(learner);
}
END_TEST

START_TEST(idle)
{
	struct learner *learner = learn(LEARN_STAGES);
	const struct layout *layout = learner_layout(learner);

	ck_assert(!learn_idle(layout, moment.tls));
	engine.context.request = NULL;
	ck_assert(!learn_idle(layout, moment.tls));
	engine.context.attachment = NULL;
	ck_assert(learn_idle(layout, moment.tls));
	engine.tls[2] = NULL;
	ck_assert(learn_idle(layout, moment.tls));
	engine.tls[2] = (void *)16; /* can't be read: not known to be idle */
	ck_assert(!learn_idle(layout, moment.tls));
	learner_free(learner);
}
END_TEST

/* What is at no place cannot be learnt, and the sentence says what it is. */
START_TEST(refuses)
{
	static const char *const sentences[LEARN_STAGES] = { "request_id", "caller", "procedure" };

	for (unsigned stage = 0; stage < LEARN_STAGES; stage++) {
		struct learner *learner = learn(stage);

		for (unsigned number = 1; number <= MOMENTS; number++) {
			make_moment(number);
			if (number == MOMENTS / 2 && stage == 0)
				engine.levels[0].request.id++;
			else if (number == MOMENTS - 1 && stage == 1)
				engine.levels[0].request.caller = &engine.levels[0].request;
			else if (number % 8 == 2 && stage == 2)
				engine.word.characters[0] = (char)('A' + number % 26);
			learner_feed(learner, &moment);
		}
		ck_assert(!learner_settle(learner, error));
		ck_assert_msg(strstr(error, sentences[stage]) != NULL, "%u: %s", stage, error);
		learner_free(learner);
	}
}
END_TEST

/* Nothing is known: no path, and no crash. */
START_TEST(without_moments)
{
	struct learner *learner = learner_new(sizeof(engine.tls));

	ck_assert_uint_eq(learner_paths(learner), 0);
	ck_assert(!learner_settle(learner, error));
	learner_free(learner);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { finds_all, verifies, idle, refuses, without_moments, NULL };

	return run_tests("learn", NULL, NULL, tests);
}
