/*
 * See known_statements.h.
 */
#include "known_statements.h"

#include <stdlib.h>
#include <string.h>

#define KNOWN_MAX 4096 /* addresses */

struct known_statement {
	struct logged_statement *statement; /* NULL: not known */
	uint64_t request_id;		    /* that was seen running it last */
	void *witness;			    /* of its texts */
	bool is_routine;		    /* a procedure, function or trigger */
	/* Reads at which the texts were the same: the first one, of this look unless it is a routine, and the last. */
	uint64_t since, agreed;
};

static void free_statement(void *context, void *value)
{
	struct known_statement *statement = value;

	(void)context;
	free(statement->witness);
	free(statement);
}

bool known_statements_init(struct known_statements *known, struct recorder_source *source,
			   struct passive_session *session, struct text_room *room)
{
	*known = (struct known_statements){ .source = source, .session = session, .room = room };
	return id_table_init(&known->by_address);
}

void known_statements_free(struct known_statements *known)
{
	id_table_free(&known->by_address, free_statement, NULL);
}

/* NULL: out of memory. */
static struct known_statement *find(struct known_statements *known, uint64_t address)
{
	struct known_statement *statement = id_table_get(&known->by_address, (int64_t)address);

	if (statement)
		return statement;
	statement = calloc(1, sizeof(*statement));
	if (statement && id_table_put(&known->by_address, (int64_t)address, statement))
		return statement;
	free(statement);
	known->stopped = true;
	return NULL;
}

/* ---- Texts ---- */

static bool read_name(struct known_statements *known, enum layout_fact fact, uint64_t address)
{
	char *name = known->room->routine;

	known->source->text(known->source, fact, address, name, sizeof(known->room->routine));
	return *name != 0;
}

/* What is at an address: an SQL text, or a routine, or one of the engine's own statements. */
static struct passive_statement read_texts(struct known_statements *known, uint64_t address)
{
	struct text_room *room = known->room;
	struct recorder_source *source = known->source;
	struct passive_statement what = { "BLOCK", room->routine, room->package, room->sql_text };
	enum layout_fact package = LAYOUT_FACTS;

	*room->routine = *room->package = 0;
	source->text(source, LAYOUT_SQL_TEXT, address, room->sql_text, sizeof(room->sql_text));
	if (read_name(known, LAYOUT_PROCEDURE, address)) {
		what.type = "PROCEDURE";
		package = LAYOUT_PROCEDURE_PACKAGE;
	} else if (read_name(known, LAYOUT_FUNCTION, address)) {
		what.type = "FUNCTION";
		package = LAYOUT_FUNCTION_PACKAGE;
	} else if (read_name(known, LAYOUT_TRIGGER, address)) {
		what.type = "TRIGGER";
	}
	if (package != LAYOUT_FACTS)
		source->text(source, package, address, room->package, sizeof(room->package));
	return what;
}

static bool is_same(struct known_statements *known, uint64_t address,
		    struct known_statement *statement)
{
	return statement->statement &&
	       known->source->is_same(known->source, address, &statement->witness);
}

/*
 * The texts are what they were, as of now.  Of a routine that also tells what was there since an earlier
 * look: it stays where it is until somebody alters it, and does not come back to the same place in
 * between.  SQL statements do.
 */
static void note_agreement(struct known_statements *known, struct known_statement *statement,
			   bool first)
{
	statement->agreed = ++known->last_read;
	if (first || (statement->since < known->look && !statement->is_routine))
		statement->since = statement->agreed;
}

/*
 * Reads what is at the address now.  It is believed, and written to the log, if it did not change
 * meanwhile.
 */
static void learn(struct known_statements *known, uint64_t address,
		  struct known_statement *statement)
{
	struct recorder_source *source = known->source;
	struct passive_statement what;

	free(statement->witness);
	statement->witness = NULL;
	statement->statement = NULL;
	statement->since = statement->agreed = 0;
	source->is_same(source, address, &statement->witness);
	what = read_texts(known, address);
	if (!statement->witness || !source->is_same(source, address, &statement->witness))
		return;
	statement->is_routine = *what.routine != 0;
	statement->statement = passive_session_statement(known->session, &what,
							 passive_statement_fingerprint(&what));
	if (!statement->statement)
		known->stopped = true;
	note_agreement(known, statement, true);
}

/* ---- A look ---- */

/* Addresses where statements were once; those that are still in use are soon known again. */
static void forget_all(struct known_statements *known)
{
	struct id_table empty;

	if (!id_table_init(&empty))
		return;
	id_table_free(&known->by_address, free_statement, NULL);
	known->by_address = empty;
}

void known_statements_begin(struct known_statements *known)
{
	known->look = ++known->last_read;
	if (known->by_address.count >= KNOWN_MAX)
		forget_all(known);
}

void known_statements_position_read(struct known_statements *known)
{
	known->position = ++known->last_read;
}

static bool is_prompt(const struct known_statements *known, const struct passive_position *position)
{
	return known->source->clock() - position->when < PASSIVE_PROMPT;
}

/* Whether the statement was at its address when the position was read. */
static bool is_certain(struct known_statements *known, const struct passive_position *position,
		       uint64_t address, struct known_statement *statement)
{
	if (statement->agreed < known->position) {
		if (is_same(known, address, statement))
			note_agreement(known, statement, false);
		else
			learn(known, address, statement);
	}
	if (!statement->statement)
		return false;
	return is_prompt(known, position) ||
	       (statement->since < known->position &&
		(statement->is_routine || statement->since > known->look));
}

static bool is_known_by_request(const struct known_statement *statement,
				const struct passive_request *request)
{
	return statement->statement && statement->request_id == request->request_id;
}

bool known_statements_find(struct known_statements *known, const struct passive_position *position,
			   struct logged_statement **statements)
{
	bool certain = true;

	for (uint32_t i = 0; i < position->count; i++) {
		const struct passive_request *request = &position->requests[i];
		struct known_statement *statement = find(known, request->statement);

		if (!statement)
			return false;
		if (!is_known_by_request(statement, request))
			certain &= is_certain(known, position, request->statement, statement);
		statements[i] = statement->statement;
	}
	for (uint32_t i = 0; certain && i < position->count; i++)
		find(known, position->requests[i].statement)->request_id =
			position->requests[i].request_id;
	return certain && !known->stopped;
}
