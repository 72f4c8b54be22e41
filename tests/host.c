/*
 * The test host: see host.h.  First streams and their text format, then the engine model, which has
 * the engine's order of events in one place, then the streams with a name, then the fake engine.
 *
 * Playing is lean, for instruction counts: an event is an array element with its fields decoded, and
 * the host does no more between two of them than the engine's own clock reads.
 */
#define _GNU_SOURCE
#include "host.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Memory: a test program that has none left may end ---- */

static void *no_memory_ends(void *memory)
{
	if (!memory) {
		fputs("fbprof-host: out of memory\n", stderr);
		exit(1);
	}
	return memory;
}

static void *grown(void *array, size_t *room, size_t count, size_t item_size)
{
	if (count < *room)
		return array;
	*room = *room ? *room * 2 : 64;
	return no_memory_ends(realloc(array, *room * item_size));
}

static char *copy_of(const char *text)
{
	return text ? no_memory_ends(strdup(text)) : NULL;
}

/* ---- Streams ---- */

struct host_stream *host_stream_new(void)
{
	return no_memory_ends(calloc(1, sizeof(struct host_stream)));
}

void host_stream_free(struct host_stream *stream)
{
	if (!stream)
		return;
	for (size_t i = 0; i < stream->detail_count; i++) {
		struct host_detail *detail = &stream->details[i];

		free(detail->type);
		free(detail->schema);
		free(detail->package);
		free(detail->name);
		free(detail->text);
	}
	free(stream->details);
	free(stream->events);
	free(stream->open);
	free(stream);
}

static bool is_before(unsigned op)
{
	return op == HOST_BEFORE_LINE || op == HOST_BEFORE_OPEN || op == HOST_BEFORE_FETCH;
}

static bool is_after(unsigned op)
{
	return op == HOST_AFTER_LINE || op == HOST_AFTER_OPEN || op == HOST_AFTER_FETCH;
}

static bool has_detail(unsigned op)
{
	return op <= HOST_REQUEST_FINISH;
}

/* Pairs before and after, so that playing needs no search: see host_event.slot. */
static uint16_t find_slot(struct host_stream *stream, const struct host_event *event)
{
	size_t i = stream->open_count;

	if (is_before(event->op)) {
		stream->open = grown(stream->open, &stream->open_room, i, sizeof(*stream->open));
		stream->open[stream->open_count++] =
			(struct host_open){ event->op, event->first, event->second,
					    event->request };
		return i < HOST_NO_SLOT ? (uint16_t)i : HOST_NO_SLOT;
	}
	while (i--) {
		const struct host_open *open = &stream->open[i];

		if (event->op == HOST_REQUEST_FINISH ?
			    open->request == event->request :
			    open->op + 1 == event->op && open->request == event->request &&
				    open->first == event->first && open->second == event->second) {
			stream->open_count = i;
			if (event->op != HOST_REQUEST_FINISH)
				return i < HOST_NO_SLOT ? (uint16_t)i : HOST_NO_SLOT;
		}
	}
	return HOST_NO_SLOT;
}

static void add_event(struct host_stream *stream, struct host_event event)
{
	event.slot = HOST_NO_SLOT;
	if (is_before(event.op) || is_after(event.op) || event.op == HOST_REQUEST_FINISH)
		event.slot = find_slot(stream, &event);
	/* The array of ticks in the attachment is as large as any sensible nesting. */
	if (event.slot >= sizeof(((struct host_attachment *)0)->ticks) / sizeof(uint64_t))
		event.slot = HOST_NO_SLOT;
	event.reads = (uint8_t)stream->pending_reads;
	stream->pending_reads = 0;
	if (event.request > stream->last_request)
		stream->last_request = event.request;
	stream->events =
		grown(stream->events, &stream->room, stream->count, sizeof(*stream->events));
	stream->events[stream->count++] = event;
}

static struct host_detail *add_detailed(struct host_stream *stream, unsigned op, int64_t statement,
					int64_t request)
{
	uint32_t index = (uint32_t)stream->detail_count++;

	stream->details =
		grown(stream->details, &stream->detail_room, index, sizeof(*stream->details));
	stream->details[index] = (struct host_detail){ 0 };
	add_event(stream, (struct host_event){ .op = (uint8_t)op,
					       .first = index,
					       .statement = statement,
					       .request = request });
	return &stream->details[index];
}

static void flush_reads(struct host_stream *stream)
{
	if (stream->pending_reads)
		add_event(stream, (struct host_event){ .op = HOST_CLOCK });
}

static void add_read(struct host_stream *stream)
{
	if (stream->pending_reads == UINT8_MAX)
		flush_reads(stream);
	stream->pending_reads++;
}

/* ---- Text ---- */

static const char *const op_names[HOST_OPS] = {
	[HOST_DEFINE_STATEMENT] = "S",	   [HOST_DEFINE_CURSOR] = "C",
	[HOST_DEFINE_RECORD_SOURCE] = "R", [HOST_REQUEST_START] = "start",
	[HOST_REQUEST_FINISH] = "finish",  [HOST_BEFORE_LINE] = "<L",
	[HOST_AFTER_LINE] = ">L",	   [HOST_BEFORE_OPEN] = "<O",
	[HOST_AFTER_OPEN] = ">O",	   [HOST_BEFORE_FETCH] = "<F",
	[HOST_AFTER_FETCH] = ">F",	   [HOST_CLOCK] = "T",
};

/* Undoes escapes in place; NULL for "-". */
static char *unescape(char *field)
{
	char *to = field;

	if (!field || !strcmp(field, "-"))
		return NULL;
	for (const char *from = field; *from; from++) {
		if (*from != '\\' || !from[1]) {
			*to++ = *from;
			continue;
		}
		switch (*++from) {
		case 's':
			*to++ = ' ';
			break;
		case 'n':
			*to++ = '\n';
			break;
		case 't':
			*to++ = '\t';
			break;
		case 'r':
			*to++ = '\r';
			break;
		case 'e':
			break;
		default:
			*to++ = *from;
		}
	}
	*to = 0;
	return field;
}

struct fields {
	char *rest;
	bool wrong;
};

static char *next_field(struct fields *fields)
{
	char *field = fields->rest;

	if (!field || !*field) {
		fields->wrong = true;
		return NULL;
	}
	fields->rest = strchr(field, ' ');
	if (fields->rest)
		*fields->rest++ = 0;
	return field;
}

static char *text_field(struct fields *fields)
{
	return copy_of(unescape(next_field(fields)));
}

static char *last_field(struct fields *fields)
{
	char *field = fields->rest;

	fields->rest = NULL;
	if (!field || !*field)
		fields->wrong = true;
	return copy_of(unescape(field));
}

static int64_t id_field(struct fields *fields)
{
	const char *field = next_field(fields);
	char *end;
	int64_t value;

	if (!field)
		return 0;
	errno = 0;
	value = strtoll(field, &end, 10);
	if (errno || *end || end == field)
		fields->wrong = true;
	return value;
}

static uint32_t number_field(struct fields *fields)
{
	int64_t value = id_field(fields);

	if (value < 0 || value > UINT32_MAX)
		fields->wrong = true;
	return (uint32_t)value;
}

static void read_statement(struct host_stream *stream, struct fields *fields)
{
	int64_t id = id_field(fields);
	struct host_detail *detail = add_detailed(stream, HOST_DEFINE_STATEMENT, id, 0);

	detail->other_statement = id_field(fields);
	detail->type = text_field(fields);
	detail->schema = text_field(fields);
	detail->package = text_field(fields);
	detail->name = text_field(fields);
	detail->text = last_field(fields);
}

static void read_cursor(struct host_stream *stream, struct fields *fields)
{
	int64_t id = id_field(fields);
	struct host_detail *detail = add_detailed(stream, HOST_DEFINE_CURSOR, id, 0);

	detail->cursor = number_field(fields);
	detail->line = number_field(fields);
	detail->column = number_field(fields);
	detail->name = last_field(fields);
}

static void read_record_source(struct host_stream *stream, struct fields *fields)
{
	int64_t id = id_field(fields);
	struct host_detail *detail = add_detailed(stream, HOST_DEFINE_RECORD_SOURCE, id, 0);

	detail->cursor = number_field(fields);
	detail->id = number_field(fields);
	detail->parent = number_field(fields);
	detail->level = number_field(fields);
	detail->text = last_field(fields);
}

static void read_start(struct host_stream *stream, struct fields *fields)
{
	int64_t id = id_field(fields);
	struct host_detail *detail = add_detailed(stream, HOST_REQUEST_START, id, id_field(fields));

	detail->other_statement = id_field(fields);
	detail->caller_request = id_field(fields);
}

static void read_finish(struct host_stream *stream, struct fields *fields)
{
	int64_t id = id_field(fields);
	struct host_detail *detail =
		add_detailed(stream, HOST_REQUEST_FINISH, id, id_field(fields));
	int64_t elapsed = id_field(fields);

	detail->elapsed = (uint64_t)elapsed;
}

static void read_event(struct host_stream *stream, unsigned op, struct fields *fields)
{
	struct host_event event = { .op = (uint8_t)op };

	event.statement = id_field(fields);
	event.request = id_field(fields);
	event.first = number_field(fields);
	event.second = number_field(fields);
	add_event(stream, event);
}

/* Returns whether the line is right. */
static bool read_line(struct host_stream *stream, char *line)
{
	struct fields fields = { .rest = line };
	const char *word;
	unsigned op = 0;

	if (!*line || *line == '#')
		return true;
	word = next_field(&fields);
	while (op < HOST_OPS && strcmp(word, op_names[op]))
		op++;
	switch (op) {
	case HOST_DEFINE_STATEMENT:
		read_statement(stream, &fields);
		break;
	case HOST_DEFINE_CURSOR:
		read_cursor(stream, &fields);
		break;
	case HOST_DEFINE_RECORD_SOURCE:
		read_record_source(stream, &fields);
		break;
	case HOST_REQUEST_START:
		read_start(stream, &fields);
		break;
	case HOST_REQUEST_FINISH:
		read_finish(stream, &fields);
		break;
	case HOST_CLOCK:
		add_read(stream);
		break;
	case HOST_OPS:
		return false;
	default:
		read_event(stream, op, &fields);
	}
	return !fields.wrong && !fields.rest;
}

bool host_stream_read(struct host_stream *stream, FILE *file, char *error, size_t error_size)
{
	char *line = NULL;
	size_t room = 0, number = 0;
	ssize_t size;
	bool right = true;

	while (right && (size = getline(&line, &room, file)) >= 0) {
		number++;
		if (size && line[size - 1] == '\n')
			line[size - 1] = 0;
		right = read_line(stream, line);
	}
	if (!right)
		snprintf(error, error_size,
			 "line %zu is not an event: see the text format in tests/host.h", number);
	free(line);
	flush_reads(stream);
	return right;
}

static void write_text(FILE *file, const char *text, char end)
{
	static const char special[] = " \n\t\r\\", letters[] = "sntr\\";

	if (!text)
		fputc('-', file);
	else if (!*text)
		fputs("\\e", file);
	else if (!strcmp(text, "-"))
		fputc('\\', file);
	for (; text && *text; text++) {
		const char *found = strchr(special, *text);

		if (found)
			fprintf(file, "\\%c", letters[found - special]);
		else
			fputc(*text, file);
	}
	fputc(end, file);
}

static void write_detailed(FILE *file, const struct host_event *event,
			   const struct host_detail *detail)
{
	switch (event->op) {
	case HOST_DEFINE_STATEMENT:
		fprintf(file, " %" PRId64 " ", detail->other_statement);
		write_text(file, detail->type, ' ');
		write_text(file, detail->schema, ' ');
		write_text(file, detail->package, ' ');
		write_text(file, detail->name, ' ');
		write_text(file, detail->text, '\n');
		break;
	case HOST_DEFINE_CURSOR:
		fprintf(file, " %u %u %u ", detail->cursor, detail->line, detail->column);
		write_text(file, detail->name, '\n');
		break;
	case HOST_DEFINE_RECORD_SOURCE:
		fprintf(file, " %u %u %u %u ", detail->cursor, detail->id, detail->parent,
			detail->level);
		write_text(file, detail->text, '\n');
		break;
	case HOST_REQUEST_START:
		fprintf(file, " %" PRId64 " %" PRId64 " %" PRId64 "\n", event->request,
			detail->other_statement, detail->caller_request);
		break;
	case HOST_REQUEST_FINISH:
		fprintf(file, " %" PRId64 " %" PRIu64 "\n", event->request, detail->elapsed);
		break;
	}
}

void host_stream_write(const struct host_stream *stream, FILE *file)
{
	for (size_t i = 0; i < stream->count; i++) {
		const struct host_event *event = &stream->events[i];

		for (unsigned reads = event->reads; reads; reads--)
			fputs("T\n", file);
		if (event->op == HOST_CLOCK)
			continue;
		fprintf(file, "%s %" PRId64, op_names[event->op], event->statement);
		if (has_detail(event->op))
			write_detailed(file, event, &stream->details[event->first]);
		else
			fprintf(file, " %" PRId64 " %u %u\n", event->request, event->first,
				event->second);
	}
}

/* ---- The engine model ---- */

struct model_source {
	struct model_source *next;
	uint32_t cursor, depth;
	char *name;
	bool defined;
};

struct model_statement {
	struct model_statement *next, *parent;
	int64_t id;
	char *type, *package, *routine, *sql;
	struct model_source *cursors;
	bool defined;
};

struct model_request {
	struct model_request *next;
	struct model_statement *statement;
	int64_t id;
	struct model_request *outer;  /* whose loop goes on when this one is left */
	struct model_request *caller; /* the same, if the engine knows it */
	uint32_t line, column;	      /* 0: in none */
	bool started;
};

void model_init(struct model *model, struct host_stream *stream)
{
	*model = (struct model){ .stream = stream, .last_statement = 100, .last_request = 1000 };
}

void model_clear(struct model *model)
{
	flush_reads(model->stream);
	while (model->requests) {
		struct model_request *request = model->requests;

		model->requests = request->next;
		free(request);
	}
	while (model->statements) {
		struct model_statement *statement = model->statements;

		model->statements = statement->next;
		while (statement->cursors) {
			struct model_source *cursor = statement->cursors;

			statement->cursors = cursor->next;
			free(cursor->name);
			free(cursor);
		}
		free(statement->type);
		free(statement->package);
		free(statement->routine);
		free(statement->sql);
		free(statement);
	}
}

struct model_statement *model_statement(struct model *model, struct model_statement *parent,
					const char *type, const char *package, const char *routine,
					const char *sql)
{
	struct model_statement *statement = no_memory_ends(calloc(1, sizeof(*statement)));

	statement->next = model->statements;
	model->statements = statement;
	statement->parent = parent;
	statement->id = ++model->last_statement;
	statement->type = copy_of(type);
	statement->package = copy_of(package);
	statement->routine = copy_of(routine);
	statement->sql = copy_of(sql);
	return statement;
}

int64_t model_statement_id(const struct model_statement *statement)
{
	return statement->id;
}

void model_cursor(struct model *model, struct model_statement *statement, uint32_t id,
		  const char *name, uint32_t depth)
{
	struct model_source *cursor = no_memory_ends(calloc(1, sizeof(*cursor)));

	(void)model;
	cursor->next = statement->cursors;
	statement->cursors = cursor;
	cursor->cursor = id;
	cursor->depth = depth;
	cursor->name = copy_of(name);
}

struct model_request *model_request(struct model *model, struct model_statement *statement)
{
	struct model_request *request = no_memory_ends(calloc(1, sizeof(*request)));

	request->next = model->requests;
	model->requests = request;
	request->statement = statement;
	request->id = ++model->last_request;
	return request;
}

int64_t model_request_id(const struct model_request *request)
{
	return request->id;
}

static void read_clock(struct model *model)
{
	if (!model->paused)
		add_read(model->stream);
}

/* ProfilerManager::getStatement: a statement is defined before the one that it is part of. */
static void need_statement(struct model *model, struct model_statement *statement)
{
	for (; statement && !statement->defined; statement = statement->parent) {
		struct host_detail *detail =
			add_detailed(model->stream, HOST_DEFINE_STATEMENT, statement->id, 0);

		detail->other_statement = statement->parent ? statement->parent->id : 0;
		detail->type = copy_of(statement->type);
		detail->package = copy_of(statement->package);
		detail->name = copy_of(statement->routine);
		detail->text = copy_of(statement->sql);
		statement->defined = true;
	}
}

/* ProfilerManager::getRequest: the innermost request is started first, then its callers. */
static void need_request(struct model *model, struct model_request *request)
{
	for (; request && !request->started; request = request->caller) {
		struct host_detail *detail;

		need_statement(model, request->statement);
		detail = add_detailed(model->stream, HOST_REQUEST_START, request->statement->id,
				      request->id);
		detail->other_statement = request->caller ? request->caller->statement->id : 0;
		detail->caller_request = request->caller ? request->caller->id : 0;
		request->started = true;
	}
}

static void send(struct model *model, unsigned op, struct model_request *request, uint32_t first,
		 uint32_t second)
{
	if (model->paused)
		return;
	if (!model->after_only || is_after(op))
		need_request(model, request);
	add_event(model->stream, (struct host_event){ .op = (uint8_t)op,
						      .first = first,
						      .second = second,
						      .statement = request->statement->id,
						      .request = request->id });
}

static void enter(struct model *model, struct model_request *request, struct model_request *caller)
{
	request->outer = model->current;
	request->caller = caller;
	request->line = request->column = 0;
	model->current = request;
	read_clock(model);
}

void model_enter(struct model *model, struct model_request *request)
{
	enter(model, request, model->current);
}

void model_enter_alone(struct model *model, struct model_request *request)
{
	enter(model, request, NULL);
}

/* The looper's profilerCallAfterPsqlLineColumn: one clock read serves both lines. */
static void after_line(struct model *model, struct model_request *request)
{
	read_clock(model);
	if (request->line)
		send(model, HOST_AFTER_LINE, request, request->line, request->column);
	request->line = 0;
}

void model_line(struct model *model, uint32_t line, uint32_t column)
{
	struct model_request *request = model->current;

	after_line(model, request);
	request->line = line;
	request->column = column;
	send(model, HOST_BEFORE_LINE, request, line, column);
}

/* Cursor::prepare: the cursor's whole plan is defined before its first event. */
static void need_cursor(struct model *model, struct model_request *request, uint32_t id)
{
	struct model_source *cursor = request->statement->cursors;
	struct host_detail *detail;

	while (cursor && cursor->cursor != id)
		cursor = cursor->next;
	if (!cursor || cursor->defined || model->paused)
		return;
	need_statement(model, request->statement);
	detail = add_detailed(model->stream, HOST_DEFINE_CURSOR, request->statement->id, 0);
	detail->cursor = id;
	detail->name = copy_of(cursor->name);
	detail->line = cursor->name ? 3 : 0;
	detail->column = cursor->name ? 5 : 0;
	for (uint32_t i = 1; i <= cursor->depth; i++) {
		char text[64];

		snprintf(text, sizeof(text), "%*s-> Source %u of cursor %u", (int)(i - 1) % 16, "",
			 i, id);
		detail = add_detailed(model->stream, HOST_DEFINE_RECORD_SOURCE,
				      request->statement->id, 0);
		detail->cursor = id;
		detail->id = i;
		detail->parent = i - 1;
		detail->level = i - 1;
		detail->text = copy_of(text);
	}
	cursor->defined = true;
}

static void record_source(struct model *model, unsigned op, uint32_t cursor, uint32_t id)
{
	need_cursor(model, model->current, cursor);
	read_clock(model);
	send(model, op, model->current, cursor, id);
}

void model_before_open(struct model *model, uint32_t cursor, uint32_t id)
{
	record_source(model, HOST_BEFORE_OPEN, cursor, id);
}

void model_after_open(struct model *model, uint32_t cursor, uint32_t id)
{
	record_source(model, HOST_AFTER_OPEN, cursor, id);
}

void model_before_fetch(struct model *model, uint32_t cursor, uint32_t id)
{
	record_source(model, HOST_BEFORE_FETCH, cursor, id);
}

void model_after_fetch(struct model *model, uint32_t cursor, uint32_t id)
{
	record_source(model, HOST_AFTER_FETCH, cursor, id);
}

static void whole_plan(struct model *model, unsigned before, uint32_t cursor, uint32_t depth)
{
	for (uint32_t i = 1; i <= depth; i++)
		record_source(model, before, cursor, i);
	for (uint32_t i = depth; i; i--)
		record_source(model, before + 1, cursor, i);
}

void model_open_plan(struct model *model, uint32_t cursor, uint32_t depth)
{
	whole_plan(model, HOST_BEFORE_OPEN, cursor, depth);
}

void model_fetch_plan(struct model *model, uint32_t cursor, uint32_t depth)
{
	whole_plan(model, HOST_BEFORE_FETCH, cursor, depth);
}

void model_leave(struct model *model)
{
	struct model_request *request = model->current;

	after_line(model, request);
	model->current = request->outer;
	request->outer = request->caller = NULL;
}

void model_finish(struct model *model, uint64_t elapsed)
{
	struct model_request *request = model->current;

	after_line(model, request);
	model_unwind(model, request, elapsed);
	model->current = request->outer;
	request->outer = request->caller = NULL;
}

void model_throw(struct model *model)
{
	struct model_request *request = model->current;

	model->current = request->outer;
	request->outer = request->caller = NULL;
	request->line = 0;
}

void model_unwind(struct model *model, struct model_request *request, uint64_t elapsed)
{
	if (model->paused)
		return;
	need_request(model, request);
	add_detailed(model->stream, HOST_REQUEST_FINISH, request->statement->id, request->id)
		->elapsed = elapsed;
	request->started = false;
}

void model_pause(struct model *model, bool paused)
{
	model->paused = paused;
}

/* ---- Streams with a name ---- */

static struct model_statement *block(struct model *model, const char *sql)
{
	return model_statement(model, NULL, "BLOCK", NULL, NULL, sql);
}

static struct model_statement *procedure(struct model *model, const char *package, const char *name)
{
	return model_statement(model, NULL, "PROCEDURE", package, name, "");
}

static void make_loop(struct model *model, unsigned size)
{
	model_enter(model,
		    model_request(model, block(model, "execute block as begin while … end")));
	for (unsigned round = 0; round < size; round++) {
		for (unsigned line = 2; line < 12; line++)
			model_line(model, line, 4 + line % 3);
	}
	model_finish(model, 1000000);
}

static void make_calls(struct model *model, unsigned size)
{
	enum {
		DEPTH = 8
	};
	struct model_statement *routines[DEPTH];

	for (unsigned i = 0; i < DEPTH; i++) {
		char name[16];

		snprintf(name, sizeof(name), "P%u", i);
		routines[i] = procedure(model, i % 2 ? "PKG" : NULL, name);
	}
	model_enter(
		model,
		model_request(model,
			      block(model, "execute block as begin execute procedure p0; end")));
	for (unsigned round = 0; round < size; round++) {
		model_line(model, 2, 5);
		for (unsigned i = 0; i < DEPTH; i++) {
			model_enter(model, model_request(model, routines[i]));
			model_line(model, 3, 5);
			model_line(model, 4, 9);
		}
		for (unsigned i = DEPTH; i--;) {
			model_line(model, 5, 5);
			model_finish(model, 1000 * (i + 1));
		}
		model_line(model, 3, 1);
	}
	model_finish(model, 1000000);
}

static void make_select(struct model *model, unsigned size)
{
	struct model_statement *statement = block(model, "select * from a join b on …");
	struct model_request *request = model_request(model, statement);

	model_cursor(model, statement, 0, NULL, 9);
	model_enter(model, request);
	model_open_plan(model, 0, 9);
	model_leave(model);
	/* As rows are asked for, the client gets control in between. */
	for (unsigned row = 0; row < size; row++) {
		model_enter(model, request);
		model_fetch_plan(model, 0, 9);
		model_leave(model);
	}
	model_unwind(model, request, 500000);
}

static void make_cursor(struct model *model, unsigned size)
{
	struct model_statement *statement =
		block(model, "execute block as begin for select … do … end");

	model_cursor(model, statement, 1, "C", 3);
	model_cursor(model, statement, 2, NULL, 2);
	model_enter(model, model_request(model, statement));
	model_line(model, 2, 3);
	model_open_plan(model, 1, 3);
	for (unsigned row = 0; row < size; row++) {
		model_fetch_plan(model, 1, 3);
		model_line(model, 4, 7);
		model_open_plan(model, 2, 2);
		model_fetch_plan(model, 2, 2);
		model_fetch_plan(model, 2, 2);
		model_line(model, 5, 7);
		model_line(model, 2, 3);
	}
	model_finish(model, 700000);
}

/* A selectable procedure: left and entered again in the middle of the caller's fetch. */
static void make_suspend(struct model *model, unsigned size)
{
	struct model_statement *statement = block(model, "select * from p");
	struct model_request *outer = model_request(model, statement);
	struct model_request *inner = model_request(model, procedure(model, NULL, "P"));

	model_cursor(model, statement, 0, NULL, 1);
	model_enter(model, outer);
	model_open_plan(model, 0, 1);
	model_leave(model);
	for (unsigned row = 0; row < size; row++) {
		model_enter(model, outer);
		model_before_fetch(model, 0, 1);
		model_enter(model, inner);
		model_line(model, 10, 1);
		model_line(model, 11, 1);
		model_leave(model);
		model_after_fetch(model, 0, 1);
		model_leave(model);
	}
	model_unwind(model, inner, 3000);
	model_unwind(model, outer, 9000);
}

/* Calls that end by an exception, three deep, caught by the outermost: some are never finished. */
static void make_exception(struct model *model, unsigned size)
{
	struct model_statement *a = procedure(model, NULL, "A"), *b = procedure(model, NULL, "B");

	model_cursor(model, b, 1, "C", 2);
	model_enter(model,
		    model_request(model,
				  block(model, "execute block as begin … when any do … end")));
	for (unsigned round = 0; round < size; round++) {
		struct model_request *first = model_request(model, a),
				     *second = model_request(model, b);

		model_line(model, 2, 3);
		model_enter(model, first);
		model_line(model, 20, 3);
		model_enter(model, second);
		model_line(model, 30, 3);
		model_before_fetch(model, 1, 1);
		model_before_fetch(model, 1, 2);
		model_after_fetch(model, 1, 2);
		model_after_fetch(model, 1, 1);
		model_throw(model);
		if (round % 2)
			model_unwind(model, second, 100);
		model_throw(model);
		if (round % 3)
			model_unwind(model, first, 200);
		model_line(model, 3, 5);
	}
	model_finish(model, 800000);
}

static void make_recursion(struct model *model, unsigned size)
{
	struct model_statement *statement = procedure(model, NULL, "FACTORIAL");

	for (unsigned round = 0; round < 3; round++) {
		for (unsigned depth = 0; depth < size; depth++) {
			model_enter(model, model_request(model, statement));
			model_line(model, 5, 9);
			model_line(model, 6, 9);
		}
		for (unsigned depth = 0; depth < size; depth++) {
			model_line(model, 7, 9);
			model_finish(model, 100 * depth + 1);
		}
	}
}

/* Deeper than the frame stack: each level has a line and is inside a record source. */
static void make_deep(struct model *model, unsigned size)
{
	struct model_statement *statement = procedure(model, NULL, "DEEP");

	model_cursor(model, statement, 1, "C", 1);
	for (unsigned depth = 0; depth < size; depth++) {
		model_enter(model, model_request(model, statement));
		model_line(model, 5, 9);
		model_before_fetch(model, 1, 1);
	}
	for (unsigned depth = 0; depth < size; depth++) {
		model_after_fetch(model, 1, 1);
		model_line(model, 7, 9);
		model_finish(model, 100 * depth + 1);
	}
}

/* Paused in the middle of calls and record sources, and resumed in the middle of others. */
static void make_pause(struct model *model, unsigned size)
{
	struct model_statement *outer = block(model, "execute block"),
			       *inner = procedure(model, NULL, "P");

	model_cursor(model, outer, 1, "C", 2);
	model_enter(model, model_request(model, outer));
	for (unsigned round = 0; round < size; round++) {
		model_line(model, 2, 3);
		model_before_fetch(model, 1, 1);
		model_enter(model, model_request(model, inner));
		model_line(model, 9, 3);
		model_pause(model, true);
		model_line(model, 10, 3);
		model_finish(model, 1);
		model_after_fetch(model, 1, 1);
		model_enter(model, model_request(model, inner));
		model_line(model, 9, 3);
		model_pause(model, false);
		model_line(model, 10, 3);
		model_finish(model, 2);
		model_line(model, 4, 3);
	}
	model_finish(model, 900000);
}

static void make_execute_statement(struct model *model, unsigned size)
{
	struct model_statement *outer =
		block(model, "execute block as begin execute statement … end");
	struct model_statement *inner = block(model, "insert into t values (?)");
	struct model_statement *trigger = model_statement(model, NULL, "TRIGGER", NULL, "T_BI", "");

	model_enter(model, model_request(model, outer));
	for (unsigned round = 0; round < size; round++) {
		model_line(model, 2, 3);
		model_enter_alone(model, model_request(model, inner));
		model_line(model, 1, 1);
		model_enter(model, model_request(model, trigger));
		model_line(model, 4, 3);
		model_finish(model, 10);
		model_finish(model, 20);
		model_line(model, 3, 3);
	}
	model_finish(model, 600000);
}

static void make_churn(struct model *model, unsigned size)
{
	struct model_statement *outer = block(model, "execute block as begin … f(x) … end");
	struct model_statement *function = model_statement(model, outer, "FUNCTION", NULL, "F", "");

	model_enter(model, model_request(model, outer));
	model_line(model, 2, 3);
	for (unsigned round = 0; round < size; round++) {
		model_enter(model, model_request(model, function));
		model_line(model, 8, 3);
		model_finish(model, 50);
	}
	model_finish(model, 400000);
}

/* Statements without lines or record sources, such as a plain INSERT. */
static void make_eventless(struct model *model, unsigned size)
{
	struct model_statement *statement = block(model, "insert into t values (1)");

	for (unsigned round = 0; round < size; round++) {
		model_enter(model, model_request(model, statement));
		model_finish(model, 1000 + round);
	}
}

static void make_lines(struct model *model, unsigned size)
{
	struct model_statement *statement = block(model, "execute block as begin /* long */ end");

	for (unsigned round = 0; round < 3; round++) {
		model_enter(model, model_request(model, statement));
		for (unsigned line = 1; line <= size; line++)
			model_line(model, line, line % 5);
		model_finish(model, 1000);
	}
}

static void make_statements(struct model *model, unsigned size)
{
	for (unsigned i = 0; i < size; i++) {
		char sql[64];

		snprintf(sql, sizeof(sql), "select %u from rdb$database", i);
		model_enter(model, model_request(model, block(model, sql)));
		model_line(model, 1, 1);
		model_finish(model, 100);
	}
}

static void make_long_sql(struct model *model, unsigned size)
{
	char *sql = no_memory_ends(malloc(size + 1));

	for (unsigned i = 0; i < size; i++)
		sql[i] = (char)('a' + i % 26);
	sql[size] = 0;
	model_enter(model, model_request(model, block(model, sql)));
	free(sql);
	model_line(model, 1, 1);
	model_finish(model, 100);
}

const struct host_stream_kind host_stream_kinds[] = {
	{ "loop", "ten lines, over and over", make_loop, 10000, NULL },
	{ "calls", "procedures that call one another, eight deep", make_calls, 1000, NULL },
	{ "select", "a plan of nine record sources, row by row to the client", make_select, 1000,
	  NULL },
	{ "cursor", "two cursors in PSQL", make_cursor, 1000, NULL },
	{ "suspend", "a selectable procedure", make_suspend, 1000, NULL },
	{ "exception", "calls that end by an exception, some unfinished", make_exception, 600,
	  NULL },
	{ "recursion", "a function that calls itself", make_recursion, 100, NULL },
	{ "deep", "recursion beyond the frame stack's room", make_deep, 2500, NULL },
	{ "pause", "paused and resumed in the middle of things", make_pause, 200, NULL },
	{ "execute-statement", "EXECUTE STATEMENT and a trigger", make_execute_statement, 500,
	  NULL },
	{ "churn", "very many short requests", make_churn, 100000, NULL },
	{ "eventless", "requests without any event in between", make_eventless, 500, NULL },
	{ "lines", "a statement of very many lines", make_lines, 3000, NULL },
	{ "statements", "very many statements", make_statements, 2000, NULL },
	{ "long-sql", "a statement of 200,000 characters", make_long_sql, 200000, NULL },
};
const size_t host_stream_kind_count = sizeof(host_stream_kinds) / sizeof(*host_stream_kinds);

static struct host_stream *make_stream(const char *name, unsigned size, bool after_only)
{
	for (size_t i = 0; i < host_stream_kind_count; i++) {
		struct model model;

		if (strcmp(name, host_stream_kinds[i].name))
			continue;
		model_init(&model, host_stream_new());
		model.after_only = after_only;
		host_stream_kinds[i].make(&model, size ? size : host_stream_kinds[i].size);
		model_clear(&model);
		return model.stream;
	}
	return NULL;
}

struct host_stream *host_stream_make(const char *name, unsigned size)
{
	return make_stream(name, size, false);
}

struct host_stream *host_stream_make_after(const char *name, unsigned size)
{
	return make_stream(name, size, true);
}

/* ---- The fake engine ---- */

static struct host *host_of_master(struct fb_master *master)
{
	return (struct host *)((char *)master - offsetof(struct host, master));
}

static struct fb_plugin_manager *get_plugin_manager(struct fb_master *master)
{
	return &host_of_master(master)->manager;
}

static struct fb_config_manager *get_config_manager(struct fb_master *master)
{
	return &host_of_master(master)->config;
}

static const char *get_directory(struct fb_config_manager *config, unsigned code)
{
	struct host *host = (struct host *)((char *)config - offsetof(struct host, config));

	return code == FB_DIR_LOG ? host->log_directory : NULL;
}

static void register_plugin_factory(struct fb_plugin_manager *manager, unsigned type,
				    const char *name, struct fb_plugin_factory *factory)
{
	struct host *host = (struct host *)((char *)manager - offsetof(struct host, manager));

	host->registered++;
	if (type == FB_PLUGIN_TYPE_PROFILER && !strcmp(name, "Default_Profiler"))
		host->factory = factory;
}

static void register_module(struct fb_plugin_manager *manager, struct fb_plugin_module *module)
{
	struct host *host = (struct host *)((char *)manager - offsetof(struct host, manager));

	host->module = module;
}

/* As the engine does with a status vector that a plugin has set: copies what is in it. */
static void set_errors(struct fb_status *status, const intptr_t *value)
{
	struct host_attachment *attachment =
		(struct host_attachment *)((char *)status -
					   offsetof(struct host_attachment, status));

	if (value[0] == FB_ARG_GDS && value[1] == FB_RANDOM && value[2] == FB_ARG_STRING)
		snprintf(attachment->error, sizeof(attachment->error), "%s",
			 (const char *)value[3]);
}

static void init_status(struct fb_status *status)
{
	*((struct host_attachment *)((char *)status - offsetof(struct host_attachment, status)))
		 ->error = 0;
}

static unsigned get_state(const struct fb_status *status)
{
	const struct host_attachment *attachment =
		(const struct host_attachment *)((const char *)status -
						 offsetof(struct host_attachment, status));

	return *attachment->error ? FB_STATUS_ERRORS : 0;
}

static unsigned char *put_item(unsigned char *place, unsigned item, const void *value,
			       unsigned size)
{
	*place++ = (unsigned char)item;
	*place++ = (unsigned char)size;
	*place++ = (unsigned char)(size >> 8);
	memcpy(place, value, size);
	return place + size;
}

static unsigned char *put_strings(unsigned char *place, unsigned item, const char *first,
				  const char *second)
{
	unsigned char value[512];
	unsigned size = 0;

	value[size++] = 2;
	for (const char *text = first; text; text = text == first ? second : NULL) {
		size_t length = strnlen(text, 200);

		value[size++] = (unsigned char)length;
		memcpy(value + size, text, length);
		size += (unsigned)length;
	}
	return put_item(place, item, value, size);
}

static void get_info(struct fb_attachment *interface, struct fb_status *status,
		     unsigned items_length, const unsigned char *items, unsigned buffer_length,
		     unsigned char *buffer)
{
	struct host_attachment *attachment = (struct host_attachment *)interface;
	unsigned char *place = buffer, id[8];

	(void)status;
	if (buffer_length < 2048) {
		*buffer = FB_INFO_END;
		return;
	}
	for (unsigned i = 0; i < items_length; i++) {
		switch (items[i]) {
		case FB_INFO_ATTACHMENT_ID:
			memcpy(id, &attachment->id, sizeof(id));
			place = put_item(place, items[i], id, sizeof(id));
			break;
		case FB_INFO_USERNAME:
			place = put_item(place, items[i], attachment->user,
					 (unsigned)strlen(attachment->user));
			break;
		case FB_INFO_DB_ID:
			place = put_strings(place, items[i], attachment->database, "somewhere");
			break;
		case FB_INFO_FIREBIRD_VERSION:
			place = put_strings(place, items[i], "LI-V0.0.0 test host", "P18");
			break;
		}
	}
	*place = FB_INFO_END;
}

static const struct fb_attachment_vtable attachment_vtable = { .get_info = get_info };
static const struct fb_status_vtable status_vtable = {
	.version = 3,
	.init = init_status,
	.get_state = get_state,
	.set_errors = set_errors,
};

typedef void plugin_entry(struct fb_master *master);

static plugin_entry *find_entry(const char *library, char *error, size_t error_size)
{
	void *handle;
	plugin_entry *entry;

	if (!library)
		return firebird_plugin;
	handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	entry = handle ? (plugin_entry *)dlsym(handle, "firebird_plugin") : NULL;
	if (!entry)
		snprintf(error, error_size, "%s", dlerror());
	return entry;
}

bool host_open(struct host *host, const char *library, const char *log_directory, char *error,
	       size_t error_size)
{
	static const struct fb_master_vtable master_vtable = {
		.get_plugin_manager = get_plugin_manager, .get_config_manager = get_config_manager
	};
	static const struct fb_plugin_manager_vtable manager_vtable = {
		.register_plugin_factory = register_plugin_factory,
		.register_module = register_module,
	};
	static const struct fb_config_manager_vtable config_vtable = { .get_directory =
									       get_directory };
	plugin_entry *entry = find_entry(library, error, error_size);

	if (!entry)
		return false;
	*host = (struct host){
		.master = { .vtable = &master_vtable },
		.manager = { .vtable = &manager_vtable },
		.config = { .vtable = &config_vtable },
		.log_directory = log_directory,
		.clock = clock_gettime,
	};
	entry(&host->master);
	if (!host->factory)
		snprintf(error, error_size,
			 "the plugin registered no factory of the name Default_Profiler");
	return host->factory != NULL;
}

void host_attach(struct host *host, struct host_attachment *attachment, int64_t id)
{
	memset(attachment, 0, sizeof(*attachment));
	attachment->interface.vtable = &attachment_vtable;
	attachment->status.vtable = &status_vtable;
	attachment->host = host;
	attachment->id = id;
	attachment->user = "SYSDBA";
	attachment->database = "test.fdb";
	attachment->errno_changed_by = -1;
}

/* It may change at any time, as the engine would not notice. */
static const struct fb_profiler_session_vtable *vtable_of(struct fb_profiler_session *session)
{
	return __atomic_load_n(&session->vtable, __ATOMIC_RELAXED);
}

static void release_plugin(struct host_attachment *attachment)
{
	if (attachment->plugin)
		attachment->plugin->vtable->release(attachment->plugin);
	attachment->plugin = NULL;
}

void host_detach(struct host_attachment *attachment)
{
	host_discard(attachment);
	release_plugin(attachment);
}

struct fb_timestamp_tz host_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (struct fb_timestamp_tz){
		.date = (int32_t)(now.tv_sec / 86400 + 40587),
		.time = (uint32_t)(now.tv_sec % 86400 * 10000 + now.tv_nsec / 100000),
	};
}

bool host_start(struct host_attachment *attachment, const char *description, const char *options)
{
	struct fb_plugin_factory *factory = attachment->host->factory;

	*attachment->error = 0;
	if (attachment->session)
		host_finish(attachment);
	if (!attachment->plugin) {
		attachment->plugin =
			factory->vtable->create_plugin(factory, &attachment->status, NULL);
		if (!attachment->plugin)
			return false;
		attachment->plugin->vtable->set_owner(attachment->plugin, attachment->host);
		attachment->plugin->vtable->init(attachment->plugin, &attachment->status,
						 &attachment->interface, 1000000000);
	}
	attachment->session = attachment->plugin->vtable->start_session(
		attachment->plugin, &attachment->status, description, options, host_now());
	if (!attachment->session)
		return false;
	attachment->flags = vtable_of(attachment->session)->get_flags(attachment->session);
	return true;
}

void host_discard(struct host_attachment *attachment)
{
	if (attachment->session)
		vtable_of(attachment->session)->dispose(attachment->session);
	attachment->session = NULL;
}

void host_finish(struct host_attachment *attachment)
{
	if (attachment->session)
		vtable_of(attachment->session)
			->finish(attachment->session, &attachment->status, host_now());
	host_discard(attachment);
	if (attachment->plugin)
		attachment->plugin->vtable->flush(attachment->plugin, &attachment->status);
}

void host_cancel(struct host_attachment *attachment)
{
	if (attachment->session)
		vtable_of(attachment->session)->cancel(attachment->session, &attachment->status);
	host_discard(attachment);
}

/* ---- Playing ---- */

struct stats {
	struct fb_profiler_stats interface;
	uint64_t elapsed;
};

static uint64_t get_elapsed_ticks(struct fb_profiler_stats *stats)
{
	return ((struct stats *)stats)->elapsed;
}

static const struct fb_profiler_stats_vtable stats_vtable = { .version = 2,
							      .get_elapsed_ticks =
								      get_elapsed_ticks };

static void define(struct host_attachment *attachment, const struct host_event *event,
		   const struct host_detail *detail)
{
	struct fb_profiler_session *session = attachment->session;
	const struct fb_profiler_session_vtable *vtable = vtable_of(session);

	switch (event->op) {
	case HOST_DEFINE_STATEMENT:
		if (attachment->host->has_define_statement2)
			vtable->define_statement2(session, &attachment->status, event->statement,
						  detail->other_statement, detail->type,
						  detail->schema, detail->package, detail->name,
						  detail->text);
		else
			vtable->define_statement(session, &attachment->status, event->statement,
						 detail->other_statement, detail->type,
						 detail->package, detail->name, detail->text);
		break;
	case HOST_DEFINE_CURSOR:
		vtable->define_cursor(session, event->statement, detail->cursor, detail->name,
				      detail->line, detail->column);
		break;
	case HOST_DEFINE_RECORD_SOURCE:
		vtable->define_record_source(session, event->statement, detail->cursor, detail->id,
					     detail->level, detail->text, detail->parent);
		break;
	}
}

static inline __attribute__((always_inline)) void play_event(struct host_attachment *attachment,
							     const struct host_stream *stream,
							     const struct host_event *event,
							     int64_t id_offset)
{
	struct fb_profiler_session *session = attachment->session;
	const struct host_detail *detail;
	struct stats stats = { .interface = { .vtable = &stats_vtable } };
	int64_t request = event->request + id_offset;

	for (unsigned reads = event->reads; reads; reads--) {
		struct timespec now;

		attachment->host->clock(CLOCK_MONOTONIC_RAW, &now);
		attachment->now = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	}
	switch (event->op) {
	case HOST_BEFORE_LINE:
	case HOST_BEFORE_OPEN:
	case HOST_BEFORE_FETCH:
		if (event->slot != HOST_NO_SLOT)
			attachment->ticks[event->slot] = attachment->now;
		break;
	case HOST_AFTER_LINE:
	case HOST_AFTER_OPEN:
	case HOST_AFTER_FETCH:
		if (event->slot != HOST_NO_SLOT)
			stats.elapsed = attachment->now - attachment->ticks[event->slot];
		break;
	}
	if ((is_before(event->op) && !(attachment->flags & FB_PROFILER_BEFORE_EVENTS)) ||
	    (is_after(event->op) && !(attachment->flags & FB_PROFILER_AFTER_EVENTS)))
		return;
	/* The vtable is looked up at each event, as in the engine: it may change. */
	switch (event->op) {
	case HOST_BEFORE_LINE:
		vtable_of(session)->before_psql_line_column(session, event->statement, request,
							    event->first, event->second);
		break;
	case HOST_AFTER_LINE:
		vtable_of(session)->after_psql_line_column(session, event->statement, request,
							   event->first, event->second,
							   &stats.interface);
		break;
	case HOST_BEFORE_OPEN:
		vtable_of(session)->before_record_source_open(session, event->statement, request,
							      event->first, event->second);
		break;
	case HOST_AFTER_OPEN:
		vtable_of(session)->after_record_source_open(session, event->statement, request,
							     event->first, event->second,
							     &stats.interface);
		break;
	case HOST_BEFORE_FETCH:
		vtable_of(session)->before_record_source_get_record(
			session, event->statement, request, event->first, event->second);
		break;
	case HOST_AFTER_FETCH:
		vtable_of(session)->after_record_source_get_record(session, event->statement,
								   request, event->first,
								   event->second, &stats.interface);
		break;
	case HOST_REQUEST_START:
		detail = &stream->details[event->first];
		vtable_of(session)->on_request_start(
			session, &attachment->status, event->statement, request,
			detail->other_statement,
			detail->caller_request ? detail->caller_request + id_offset : 0,
			host_now());
		break;
	case HOST_REQUEST_FINISH:
		stats.elapsed = stream->details[event->first].elapsed;
		vtable_of(session)->on_request_finish(session, &attachment->status,
						      event->statement, request, host_now(),
						      &stats.interface);
		break;
	case HOST_CLOCK:
		break;
	default:
		if (!id_offset)
			define(attachment, event, &stream->details[event->first]);
	}
}

void host_play(struct host_attachment *attachment, const struct host_stream *stream, size_t from,
	       size_t to, unsigned round)
{
	int64_t id_offset = stream->last_request * round;

	if (to > stream->count)
		to = stream->count;
	for (size_t i = from; i < to; i++)
		play_event(attachment, stream, &stream->events[i], id_offset);
}

void host_play_checking_errno(struct host_attachment *attachment, const struct host_stream *stream,
			      size_t from, size_t to, unsigned round)
{
	const int sentinel = 12345;
	int64_t id_offset = stream->last_request * round;

	if (to > stream->count)
		to = stream->count;
	for (size_t i = from; i < to; i++) {
		errno = sentinel;
		play_event(attachment, stream, &stream->events[i], id_offset);
		if (errno != sentinel && attachment->errno_changed_by < 0)
			attachment->errno_changed_by = (int64_t)i;
	}
	errno = 0;
}
