/*
 * The client library: see client.h.  The declarations are those of ibase.h, of what we use.
 */
#include "client.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#define DIALECT 3

#define DPB_VERSION	1
#define DPB_FORCE_WRITE 24
#define DPB_USER_NAME	28
#define DPB_USER	6 /* where the name begins */

#define TPB_VERSION	   3
#define TPB_WAIT	   6
#define TPB_WRITE	   9
#define TPB_READ_COMMITTED 15
#define TPB_REC_VERSION	   17

#define DSQL_DROP    2
#define NO_MORE_ROWS 100

#define STATUS_SIZE  20
#define MESSAGE_SIZE 512
#define ROW_SIZE     32767 /* of a VARCHAR */
#define SHOWN_SQL    100   /* characters in messages */

typedef intptr_t status_vector[STATUS_SIZE];

/* XSQLVAR, and XSQLDA with one of it. */
struct sql_name {
	int16_t size;
	char text[32];
};

struct sql_variable {
	int16_t type, scale, subtype, size;
	char *data;
	int16_t *null;
	struct sql_name names[4];
};

struct sql_data {
	int16_t version;
	char id[8];
	int32_t size;
	int16_t allocated, used;
	struct sql_variable variable;
};

struct client {
	struct fb_master *(*get_master)(void);
	int32_t (*interpret)(char *text, unsigned size, const intptr_t **vector);
	intptr_t (*attach)(intptr_t *status, int16_t size, const char *name, guint32 *database,
			   int16_t dpb_size, const char *dpb);
	intptr_t (*detach)(intptr_t *status, guint32 *database);
	intptr_t (*start)(intptr_t *status, guint32 *transaction, int16_t count, guint32 *database,
			  unsigned tpb_size, const char *tpb);
	intptr_t (*commit)(intptr_t *status, guint32 *transaction);
	intptr_t (*rollback)(intptr_t *status, guint32 *transaction);
	intptr_t (*execute_immediate)(intptr_t *status, guint32 *database, guint32 *transaction,
				      uint16_t size, const char *sql, uint16_t dialect,
				      const struct sql_data *data);
	intptr_t (*allocate)(intptr_t *status, guint32 *database, guint32 *statement);
	intptr_t (*prepare)(intptr_t *status, guint32 *transaction, guint32 *statement,
			    uint16_t size, const char *sql, uint16_t dialect,
			    struct sql_data *data);
	intptr_t (*execute)(intptr_t *status, guint32 *transaction, guint32 *statement,
			    uint16_t version, const struct sql_data *data);
	intptr_t (*fetch)(intptr_t *status, guint32 *statement, uint16_t version,
			  const struct sql_data *data);
	intptr_t (*sql_info)(intptr_t *status, guint32 *statement, int16_t items_size,
			     const char *items, int16_t size, char *answer);
	intptr_t (*free_statement)(intptr_t *status, guint32 *statement, uint16_t option);
};

static const struct {
	const char *name;
	size_t place;
} symbols[] = {
	{ "fb_get_master_interface", G_STRUCT_OFFSET(struct client, get_master) },
	{ "fb_interpret", G_STRUCT_OFFSET(struct client, interpret) },
	{ "isc_attach_database", G_STRUCT_OFFSET(struct client, attach) },
	{ "isc_detach_database", G_STRUCT_OFFSET(struct client, detach) },
	{ "isc_start_transaction", G_STRUCT_OFFSET(struct client, start) },
	{ "isc_commit_transaction", G_STRUCT_OFFSET(struct client, commit) },
	{ "isc_rollback_transaction", G_STRUCT_OFFSET(struct client, rollback) },
	{ "isc_dsql_execute_immediate", G_STRUCT_OFFSET(struct client, execute_immediate) },
	{ "isc_dsql_allocate_statement", G_STRUCT_OFFSET(struct client, allocate) },
	{ "isc_dsql_prepare", G_STRUCT_OFFSET(struct client, prepare) },
	{ "isc_dsql_execute", G_STRUCT_OFFSET(struct client, execute) },
	{ "isc_dsql_fetch", G_STRUCT_OFFSET(struct client, fetch) },
	{ "isc_dsql_sql_info", G_STRUCT_OFFSET(struct client, sql_info) },
	{ "isc_dsql_free_statement", G_STRUCT_OFFSET(struct client, free_statement) },
};

/* NULL, for the caller to return. */
static struct client *refuse_library(char **error)
{
	*error = g_strdup_printf("no client library: %s: name libfbclient.so.2 with --client",
				 dlerror());
	return NULL;
}

struct client *client_load(const char *library, char **error)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	struct client *client;

	if (!handle)
		return refuse_library(error);
	client = g_new0(struct client, 1);
	for (unsigned i = 0; i < G_N_ELEMENTS(symbols); i++) {
		void *address = dlsym(handle, symbols[i].name);

		if (!address) {
			g_free(client);
			return refuse_library(error);
		}
		memcpy((char *)client + symbols[i].place, &address, sizeof(address));
	}
	return client;
}

struct fb_master *client_master(const struct client *client)
{
	return client->get_master();
}

/* ---- Errors ---- */

/* False, with the messages of the vector, and what they are about, in one line. */
static bool failed(const struct client *client, const intptr_t *vector, const char *what,
		   char **error)
{
	GString *text = g_string_new(NULL);
	char message[MESSAGE_SIZE];

	while (client->interpret(message, sizeof(message), &vector))
		g_string_append_printf(text, "%s%s", text->len ? "; " : "", message);
	g_string_append_printf(text, ": %.*s", SHOWN_SQL, what);
	*error = g_string_free(text, FALSE);
	g_strdelimit(*error, "\n", ' ');
	return false;
}

/* ---- Attachments ---- */

bool client_attach(const struct client *client, struct client_attachment *attachment,
		   const char *database, const char *user, char **error)
{
	char dpb[256] = { DPB_VERSION, DPB_FORCE_WRITE, 1, 0, DPB_USER_NAME, (char)strlen(user) };
	status_vector status;

	*attachment = (struct client_attachment){ .client = client };
	g_strlcpy(dpb + DPB_USER, user, sizeof(dpb) - DPB_USER);
	return !client->attach(status, 0, database, &attachment->database,
			       (int16_t)(DPB_USER + strlen(user)), dpb) ||
	       failed(client, status, database, error);
}

bool client_create_database(const struct client *client, struct client_attachment *attachment,
			    const char *path, const char *user, char **error)
{
	char *sql = g_strdup_printf("create database '%s' user '%s'", path, user);
	status_vector status;
	bool done;

	*attachment = (struct client_attachment){ .client = client };
	done = !client->execute_immediate(status, &attachment->database, &attachment->transaction,
					  0, sql, DIALECT, NULL) ||
	       failed(client, status, sql, error);
	g_free(sql);
	return done;
}

static bool start(struct client_attachment *attachment, char **error)
{
	static const char tpb[] = { TPB_VERSION, TPB_WRITE, TPB_WAIT, TPB_READ_COMMITTED,
				    TPB_REC_VERSION };
	const struct client *client = attachment->client;
	status_vector status;

	return attachment->transaction ||
	       !client->start(status, &attachment->transaction, 1, &attachment->database,
			      sizeof(tpb), tpb) ||
	       failed(client, status, "start of a transaction", error);
}

bool client_execute(struct client_attachment *attachment, const char *sql, char **error)
{
	const struct client *client = attachment->client;
	status_vector status;

	return start(attachment, error) &&
	       (!client->execute_immediate(status, &attachment->database, &attachment->transaction,
					   0, sql, DIALECT, NULL) ||
		failed(client, status, sql, error));
}

bool client_run(struct client_attachment *attachment, const char *sql, char **error)
{
	char *row;

	if (!g_str_has_prefix(sql, "select"))
		return client_execute(attachment, sql, error);
	row = client_query(attachment, sql, error);
	g_free(row);
	return row != NULL;
}

bool client_commit(struct client_attachment *attachment, char **error)
{
	const struct client *client = attachment->client;
	status_vector status;

	return !attachment->transaction || !client->commit(status, &attachment->transaction) ||
	       failed(client, status, "commit", error);
}

bool client_execute_all(struct client_attachment *attachment, const char *const *statements,
			char **error)
{
	for (; *statements; statements++) {
		if (!client_execute(attachment, *statements, error) ||
		    !client_commit(attachment, error))
			return false;
	}
	return true;
}

void client_rollback(struct client_attachment *attachment)
{
	status_vector status;

	if (attachment->transaction)
		attachment->client->rollback(status, &attachment->transaction);
}

void client_detach(struct client_attachment *attachment)
{
	status_vector status;

	client_rollback(attachment);
	if (attachment->database)
		attachment->client->detach(status, &attachment->database);
}

/* ---- Queries ---- */

struct row {
	uint16_t size;
	char text[ROW_SIZE];
};

static char *fetch_row(struct client_attachment *attachment, guint32 *statement, const char *sql,
		       struct row *row, char **error)
{
	const struct client *client = attachment->client;
	struct sql_data data = { .version = 1, .allocated = 1 };
	status_vector status;
	int16_t null = 0;
	intptr_t end;

	if (client->prepare(status, &attachment->transaction, statement, 0, sql, DIALECT, &data) ||
	    client->execute(status, &attachment->transaction, statement, 1, NULL)) {
		failed(client, status, sql, error);
		return NULL;
	}
	data.variable.data = (char *)row;
	data.variable.null = &null;
	end = client->fetch(status, statement, 1, &data);
	if (end && end != NO_MORE_ROWS) {
		failed(client, status, sql, error);
		return NULL;
	}
	return g_strndup(row->text, end || null ? 0 : row->size);
}

char *client_query(struct client_attachment *attachment, const char *sql, char **error)
{
	const struct client *client = attachment->client;
	status_vector status;
	guint32 statement = 0;
	struct row *row;
	char *text;

	if (!start(attachment, error))
		return NULL;
	if (client->allocate(status, &attachment->database, &statement)) {
		failed(client, status, sql, error);
		return NULL;
	}
	row = g_new0(struct row, 1);
	text = fetch_row(attachment, &statement, sql, row, error);
	g_free(row);
	client->free_statement(status, &statement, DSQL_DROP);
	return text;
}

/* ---- Plans ---- */

#define INFO_EXPLAIN_PLAN 26
#define INFO_SIZE	  16384

/* The answer is its item, 2 bytes of length, little-endian, and the text. */
static char *read_plan(const unsigned char *answer)
{
	size_t size = answer[1] | (size_t)answer[2] << 8;

	if (answer[0] != INFO_EXPLAIN_PLAN || size > INFO_SIZE - 3)
		return g_strdup("");
	return g_strndup((const char *)answer + 3, size);
}

char *client_explain(struct client_attachment *attachment, const char *sql, char **error)
{
	static const char item = INFO_EXPLAIN_PLAN;
	const struct client *client = attachment->client;
	struct sql_data data = { .version = 1, .allocated = 1 };
	status_vector status;
	guint32 statement = 0;
	unsigned char *answer;
	char *plan = NULL;

	if (!start(attachment, error))
		return NULL;
	if (client->allocate(status, &attachment->database, &statement)) {
		failed(client, status, sql, error);
		return NULL;
	}
	answer = g_malloc0(INFO_SIZE);
	if (client->prepare(status, &attachment->transaction, &statement, 0, sql, DIALECT, &data) ||
	    client->sql_info(status, &statement, 1, &item, INFO_SIZE, (char *)answer))
		failed(client, status, sql, error);
	else
		plan = read_plan(answer);
	g_free(answer);
	client->free_statement(status, &statement, DSQL_DROP);
	return plan;
}

/* ---- Again and again ---- */

bool client_repeat(struct client_attachment *attachment, const char *sql,
		   bool (*again)(void *context), void *context, char **error)
{
	struct sql_data data = { .version = 1, .allocated = 1 };
	const struct client *client = attachment->client;
	status_vector status;
	guint32 statement = 0;
	bool done;

	if (!start(attachment, error))
		return false;
	if (client->allocate(status, &attachment->database, &statement))
		return failed(client, status, sql, error);
	done = !client->prepare(status, &attachment->transaction, &statement, 0, sql, DIALECT,
				&data);
	while (done && again(context))
		done = !client->execute(status, &attachment->transaction, &statement, 1, NULL);
	if (!done)
		failed(client, status, sql, error);
	client->free_statement(status, &statement, DSQL_DROP);
	return done;
}
