/*
 * The monitoring tables as an oracle: what they say of an attachment that is held.  They know the
 * line of each routine that is active, but not that of the statement that began it all.
 */
#include "oracle.h"

#include <string.h>

/* Unit and record separators: not in our texts. */
#define COLUMN "\x1f"
#define ROW    "\x1e"

/* As in MON$OBJECT_TYPE. */
#define OBJECT_TRIGGER	 "2"
#define OBJECT_PROCEDURE "5"

/*
 * First the statement: its id, that of the statement that executes it (by EXECUTE STATEMENT; its
 * own if none does), and its text (empty where it is in another table, from 5.0 on); then what it
 * called: id, caller's id (empty: the statement), type, name, package, line, column.
 *
 * Nothing if the attachment is not at that gate: at times the tables tell what was so at an earlier
 * look.
 */
#define LOOK                                                                                   \
	"execute block returns (answer varchar(30000)) as\n"                                   \
	"  declare id bigint; declare outer_id bigint; declare sql varchar(8000);\n"           \
	"  declare a varchar(200); declare b varchar(300);\n"                                  \
	"begin\n"                                                                              \
	"  select max(mon$statement_id), min(mon$statement_id)\n"                              \
	"    from mon$statements s join mon$context_variables c\n"                             \
	"    on c.mon$attachment_id = s.mon$attachment_id\n"                                   \
	"    where s.mon$attachment_id = %" G_GUINT64_FORMAT " and s.mon$state = 1\n"          \
	"    and c.mon$variable_name = 'GATE' and c.mon$variable_value = '%" G_GUINT64_FORMAT  \
	"'\n"                                                                                  \
	"    into id, outer_id;\n"                                                             \
	"  select cast(mon$sql_text as varchar(8000)) from mon$statements\n"                   \
	"    where mon$statement_id = :id into sql;\n"                                         \
	"  answer = id || '" COLUMN "' || outer_id || '" COLUMN "' || coalesce(sql, '') ||\n"  \
	"    '" ROW "';\n"                                                                     \
	"  for select mon$call_id || '" COLUMN "' || coalesce(mon$caller_id, '') ||\n"         \
	"    '" COLUMN "' || mon$object_type,\n"                                               \
	"    '" COLUMN "' || trim(mon$object_name) || '" COLUMN "' ||\n"                       \
	"    trim(coalesce(mon$package_name, '')) || '" COLUMN "' ||\n"                        \
	"    coalesce(mon$source_line, 0) || '" COLUMN "' || coalesce(mon$source_column, 0)\n" \
	"    from mon$call_stack where mon$statement_id = :id into a, b do\n"                  \
	"    answer = answer || a || b || '" ROW "';\n"                                        \
	"  suspend;\n"                                                                         \
	"end"

#define STATEMENT_COLUMNS 3
#define CALL_COLUMNS	  7

/* What calls: the statement, or a call; its text is in `row`. */
struct call {
	struct learn_frame frame;
	guint64 caller_id;
};

static enum learn_kind kind_of(const char *type)
{
	if (strcmp(type, OBJECT_PROCEDURE) == 0)
		return LEARN_PROCEDURE;
	return strcmp(type, OBJECT_TRIGGER) == 0 ? LEARN_TRIGGER : LEARN_FUNCTION;
}

/* The columns stay the caller's. */
static bool read_call(char **columns, guint64 statement_id, struct call *call)
{
	if (g_strv_length(columns) != CALL_COLUMNS)
		return false;
	*call = (struct call){
		.frame = { .request_id = g_ascii_strtoull(columns[0], NULL, 10),
			   .line = (guint32)g_ascii_strtoull(columns[5], NULL, 10),
			   .column = (guint32)g_ascii_strtoull(columns[6], NULL, 10),
			   .kind = kind_of(columns[2]),
			   .sql_text = "",
			   .name = columns[3],
			   .package = columns[4] },
		.caller_id = *columns[1] ? g_ascii_strtoull(columns[1], NULL, 10) : statement_id,
	};
	return true;
}

/* Which call is called by that request; `count` if none is. */
static guint find_called(const struct call *calls, guint count, guint64 id)
{
	guint i = 0;

	while (i < count && calls[i].caller_id != id)
		i++;
	return i;
}

/* Innermost first; the rows are in no order. */
static void tell_moment(const struct learn_moment *attachment, const struct learn_frame *statement,
			const struct call *calls, guint count, oracle_callback *callback,
			void *context)
{
	struct learn_moment moment = *attachment;
	struct learn_frame *frames = g_new0(struct learn_frame, count + 1);
	guint64 id = statement->request_id;
	guint place = count;

	frames[place] = *statement;
	while (place > 0) {
		guint called = find_called(calls, count, id);

		if (called == count)
			break;
		frames[--place] = calls[called].frame;
		id = calls[called].frame.request_id;
	}
	/* Else it is no single chain: a statement within the statement. */
	if (place == 0) {
		moment.count = count + 1;
		moment.frames = frames;
		callback(context, &moment);
	}
	g_free(frames);
}

/* False if it is not as asked for.  The columns stay the caller's. */
static bool read_statement(char **columns, struct learn_frame *frame, guint64 *outer_id)
{
	if (g_strv_length(columns) != STATEMENT_COLUMNS)
		return false;
	*frame = (struct learn_frame){ .request_id = g_ascii_strtoull(columns[0], NULL, 10),
				       .kind = LEARN_BLOCK,
				       .sql_text = *columns[2] ? columns[2] : NULL,
				       .name = "",
				       .package = "" };
	*outer_id = g_ascii_strtoull(columns[1], NULL, 10);
	if (*outer_id == frame->request_id)
		*outer_id = 0;
	return true;
}

/*
 * In our workloads no routine executes statements, so that of the outer one is the request that
 * does.
 */
static void read_answer(const char *answer, const struct learn_moment *attachment,
			oracle_callback *callback, void *context)
{
	char **rows = g_strsplit(answer, ROW, -1);
	char **first = g_strsplit(rows[0], COLUMN, STATEMENT_COLUMNS);
	guint count = g_strv_length(rows) - 2; /* the last row is empty */
	struct call *calls = g_new0(struct call, count + 1);
	char ***columns = g_new0(char **, count + 1);
	struct learn_moment moment = *attachment;
	struct learn_frame statement;
	bool good = read_statement(first, &statement, &moment.outer_id);

	moment.outer_known = true;
	for (guint i = 0; i < count; i++) {
		columns[i] = g_strsplit(rows[i + 1], COLUMN, -1);
		good = good && read_call(columns[i], statement.request_id, &calls[i]);
	}
	if (good)
		tell_moment(&moment, &statement, calls, count, callback, context);
	for (guint i = 0; i < count; i++)
		g_strfreev(columns[i]);
	g_free(columns);
	g_free(calls);
	g_strfreev(first);
	g_strfreev(rows);
}

bool oracle_monitor_look(struct client_attachment *monitor, const struct learn_moment *attachment,
			 guint64 gate, bool *seen, oracle_callback *callback, void *context,
			 char **error)
{
	char *sql = g_strdup_printf(LOOK, attachment->attachment_id, gate), *answer;

	/* What the tables say is the same for all of a transaction. */
	client_rollback(monitor);
	answer = client_query(monitor, sql, error);
	g_free(sql);
	*seen = answer && *answer;
	if (*seen)
		read_answer(answer, attachment, callback, context);
	g_free(answer);
	return answer != NULL;
}
