/*
 * A Firebird client library, loaded at run time, by the calls that are the same in all of Firebird
 * 3 to 6. An attachment is of one thread at a time; different ones may be used by different
 * threads.
 */
#ifndef FBPROF_CLIENT_H
#define FBPROF_CLIENT_H

#include <glib.h>
#include <stdbool.h>

struct fb_master; /* shim/firebird.h */
struct client;

struct client_attachment {
	const struct client *client;
	guint32 database, transaction; /* handles; 0: none */
};

/* NULL, with a sentence in `error` (to be freed), if it can't be loaded.  Is never unloaded. */
struct client *client_load(const char *library, char **error);
struct fb_master *client_master(const struct client *client);

/*
 * All return false with what Firebird said in `error` (to be freed).  A statement starts a
 * transaction if there is none: read committed, and it waits for locks.  From the first attach on,
 * writes of the database are not forced to the disk.
 */
bool client_create_database(const struct client *client, struct client_attachment *attachment,
			    const char *path, const char *user, char **error);
bool client_attach(const struct client *client, struct client_attachment *attachment,
		   const char *database, const char *user, char **error);
bool client_execute(struct client_attachment *attachment, const char *sql, char **error);

/* The same of any statement: of a query the first row is read, as by client_query(), and dropped. */
bool client_run(struct client_attachment *attachment, const char *sql, char **error);

bool client_commit(struct client_attachment *attachment, char **error);

/* Executes statements up to NULL, each in a transaction of its own. */
bool client_execute_all(struct client_attachment *attachment, const char *const *statements,
			char **error);

/*
 * The first row's only column, a VARCHAR; NULL if it failed, "" if there is no row or it is null.
 */
char *client_query(struct client_attachment *attachment, const char *sql, char **error);

/* The plan of a query, in detail, a step a line; NULL if it failed. */
char *client_explain(struct client_attachment *attachment, const char *sql, char **error);

/* Prepares a statement without rows once, and executes it as long as again() says so. */
bool client_repeat(struct client_attachment *attachment, const char *sql,
		   bool (*again)(void *context), void *context, char **error);

/* Rolls back and detaches; not an error if there is nothing. */
void client_rollback(struct client_attachment *attachment);
void client_detach(struct client_attachment *attachment);

#endif
