/*
 * The profiler as an oracle: a plugin whose sessions note requests, statements and lines, and make
 * a moment of each event before something is executed.  In the executing thread; one attachment at
 * a time.
 */
#include "oracle.h"

#include "oracle_plugin.h"

#include <string.h>

struct statement {
	enum learn_kind kind;
	char *sql_text, *name, *package;
};

struct request {
	guint64 id, caller_id;
	guint64 statement_id;
	guint64 outer_id; /* of one without a caller: what executes it; 0: the client */
};

static struct {
	GHashTable *statements, *requests; /* by id */
	GArray *frames;
	guint64 executing;	    /* the request that does, as far as the events tell; 0: none */
	struct learn_moment moment; /* but for frames and count */
	oracle_callback *callback;
	void *context;
} oracle;

static void free_statement(void *data)
{
	struct statement *statement = data;

	g_free(statement->sql_text);
	g_free(statement->name);
	g_free(statement->package);
	g_free(statement);
}

void oracle_profiler_watch(const struct learn_moment *attachment, oracle_callback *callback,
			   void *context)
{
	oracle.moment = *attachment;
	oracle.callback = callback;
	oracle.context = context;
}

void oracle_profiler_statement(void)
{
	oracle.executing = 0;
}

/* ---- Moments ---- */

/* Its line is not known; false: the profiler has not told of it at all. */
static bool add_frame(const struct request *request)
{
	gint64 id = (gint64)request->statement_id;
	const struct statement *statement = g_hash_table_lookup(oracle.statements, &id);
	struct learn_frame frame = { .request_id = request->id,
				     .statement_id = request->statement_id };

	if (!statement)
		return false;
	frame.kind = statement->kind;
	frame.sql_text = statement->sql_text;
	frame.name = statement->name;
	frame.package = statement->package;
	g_array_append_val(oracle.frames, frame);
	return true;
}

static struct request *find_request(guint64 id)
{
	gint64 key = (gint64)id;

	return g_hash_table_lookup(oracle.requests, &key);
}

/*
 * A line of 0 is not known.  Those of callers aren't: the engine may have gone on since their last
 * event, as there are statements that it tells no profiler of, INSERT being one, and a cursor's
 * loop that fetches again.
 */
static void tell_moment(guint64 request_id, unsigned line, unsigned column)
{
	struct learn_moment moment = oracle.moment;
	struct learn_frame *frames;

	oracle.executing = request_id;
	g_array_set_size(oracle.frames, 0);
	for (guint64 id = request_id; id;) {
		const struct request *request = find_request(id);

		if (!request || !add_frame(request))
			return;
		id = request->caller_id;
		moment.outer_id = request->outer_id;
	}
	moment.outer_known = true;
	moment.count = oracle.frames->len;
	if (!moment.count || !oracle.callback)
		return;
	frames = (struct learn_frame *)(void *)oracle.frames->data;
	frames->line = line;
	frames->column = column;
	moment.frames = frames;
	oracle.callback(oracle.context, &moment);
}

/* ---- The session ---- */

static void begin(void)
{
	oracle.statements =
		g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, free_statement);
	oracle.requests = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
	oracle.frames = g_array_new(FALSE, FALSE, sizeof(struct learn_frame));
}

static void dispose(struct fb_profiler_session *self)
{
	g_hash_table_destroy(oracle.statements);
	g_hash_table_destroy(oracle.requests);
	g_array_free(oracle.frames, TRUE);
	oracle_session_dispose(self);
}

static unsigned get_flags(struct fb_profiler_session *self)
{
	(void)self;
	return FB_PROFILER_BEFORE_EVENTS;
}

static void define_statement(struct fb_profiler_session *self, struct fb_status *status,
			     int64_t statement_id, int64_t parent_statement_id, const char *type,
			     const char *package_name, const char *routine_name,
			     const char *sql_text)
{
	static const char *const types[] = { [LEARN_BLOCK] = "BLOCK",
					     [LEARN_PROCEDURE] = "PROCEDURE",
					     [LEARN_FUNCTION] = "FUNCTION",
					     [LEARN_TRIGGER] = "TRIGGER" };
	struct statement *statement = g_new0(struct statement, 1);

	(void)self;
	(void)status;
	(void)parent_statement_id;
	for (unsigned i = 0; i < G_N_ELEMENTS(types); i++) {
		if (strcmp(type, types[i]) == 0)
			statement->kind = (enum learn_kind)i;
	}
	statement->sql_text = g_strdup(sql_text ? sql_text : "");
	statement->name = g_strdup(routine_name ? routine_name : "");
	statement->package = g_strdup(package_name ? package_name : "");
	g_hash_table_replace(oracle.statements, g_memdup2(&statement_id, sizeof(statement_id)),
			     statement);
}

/* Firebird 6 tells of the schema, too, which no layout has. */
static void define_statement2(struct fb_profiler_session *self, struct fb_status *status,
			      int64_t statement_id, int64_t parent_statement_id, const char *type,
			      const char *schema_name, const char *package_name,
			      const char *routine_name, const char *sql_text)
{
	(void)schema_name;
	define_statement(self, status, statement_id, parent_statement_id, type, package_name,
			 routine_name, sql_text);
}

static void define_record_source(struct fb_profiler_session *self, int64_t statement_id,
				 unsigned cursor_id, unsigned record_source_id, unsigned level,
				 const char *access_path, unsigned parent_record_source_id)
{
	(void)self;
	(void)statement_id;
	(void)cursor_id;
	(void)record_source_id;
	(void)level;
	(void)access_path;
	(void)parent_record_source_id;
}

static void on_request_start(struct fb_profiler_session *self, struct fb_status *status,
			     int64_t statement_id, int64_t request_id, int64_t caller_statement_id,
			     int64_t caller_request_id, struct fb_timestamp_tz timestamp)
{
	struct request *request = g_new0(struct request, 1);

	(void)self;
	(void)status;
	(void)caller_statement_id;
	(void)timestamp;
	*request = (struct request){ .id = (guint64)request_id,
				     .caller_id = (guint64)caller_request_id,
				     .statement_id = (guint64)statement_id };
	if (!caller_request_id)
		request->outer_id = oracle.executing;
	g_hash_table_replace(oracle.requests, g_memdup2(&request_id, sizeof(request_id)), request);
}

static void on_request_finish(struct fb_profiler_session *self, struct fb_status *status,
			      int64_t statement_id, int64_t request_id,
			      struct fb_timestamp_tz timestamp, struct fb_profiler_stats *stats)
{
	const struct request *request = find_request((guint64)request_id);

	(void)self;
	(void)status;
	(void)statement_id;
	(void)timestamp;
	(void)stats;
	if (request && oracle.executing == request->id)
		oracle.executing = request->caller_id ? request->caller_id : request->outer_id;
	g_hash_table_remove(oracle.requests, &request_id);
}

static void before_line(struct fb_profiler_session *self, int64_t statement_id, int64_t request_id,
			unsigned line, unsigned column)
{
	(void)self;
	(void)statement_id;
	tell_moment((guint64)request_id, line, column);
}

static void before_record_source(struct fb_profiler_session *self, int64_t statement_id,
				 int64_t request_id, unsigned cursor_id, unsigned record_source_id)
{
	(void)self;
	(void)statement_id;
	(void)cursor_id;
	(void)record_source_id;
	tell_moment((guint64)request_id, 0, 0);
}

void oracle_profiler_register(struct fb_master *master)
{
	static const struct fb_profiler_session_vtable session = {
		ORACLE_SESSION_COMMON,
		.dispose = dispose,
		.get_flags = get_flags,
		.define_statement = define_statement,
		.define_record_source = define_record_source,
		.on_request_start = on_request_start,
		.on_request_finish = on_request_finish,
		.before_psql_line_column = before_line,
		.before_record_source_open = before_record_source,
		.before_record_source_get_record = before_record_source,
		.define_statement2 = define_statement2,
	};
	static struct oracle_plugin plugin = { .name = ORACLE_PROFILER,
					       .session = &session,
					       .begin = begin };

	oracle_plugin_register(&plugin, master);
}
