/*
 * Where an engine keeps its position in its own memory: learnt by `fbprof calibrate` in a process of
 * its own (learn.h), verified there, and kept in a cache under the engine file's identity.  Nothing
 * in here is known beforehand, and no layout is used for another engine file than its own.
 *
 * A fact is found by a path that begins at an object: the engine's TLS block of a thread, or an object
 * that an earlier path led to.  All addresses are those of the process that runs the engine.
 */
#ifndef FBPROF_LAYOUT_H
#define FBPROF_LAYOUT_H

#include "cache.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What can be known.  The objects first: their paths end at a pointer. */
enum layout_fact {
	/* From the thread's TLS block: */
	LAYOUT_REQUEST,	   /* the request that is executing; 0: none, the thread is idle */
	LAYOUT_ATTACHMENT, /* the attachment that the thread works for; 0: none */
	/* From a request: */
	LAYOUT_CALLER,	  /* the request that called it; 0: none */
	LAYOUT_STATEMENT, /* its statement */
	LAYOUT_OBJECTS,	  /* so many are pointers to objects; from here on, values */

	/* From a request: */
	LAYOUT_REQUEST_ID =
		LAYOUT_OBJECTS, /* unique in the process; from 5.0 on, another at each start */
	LAYOUT_LINE,		/* 0: none */
	LAYOUT_COLUMN,
	/* From a statement: */
	LAYOUT_STATEMENT_ID, /* 0: it has not been started yet.  Not in 3.0 and 4.0 */
	LAYOUT_SQL_TEXT,
	/* … of which one at most has a name, which tells what kind the statement is of: */
	LAYOUT_PROCEDURE,
	LAYOUT_FUNCTION,
	LAYOUT_TRIGGER,
	LAYOUT_PROCEDURE_PACKAGE, /* empty: none */
	LAYOUT_FUNCTION_PACKAGE,
	/* From an attachment: */
	LAYOUT_ATTACHMENT_ID,
	LAYOUT_USER,
	LAYOUT_DATABASE, /* path of the file */
	/* From a record source, as plan.h finds it on the native stack: */
	LAYOUT_SOURCE_CURSOR, /* its cursor's id in the statement */
	LAYOUT_SOURCE_ID,     /* its own in the statement; not the number that a session tells */
	LAYOUT_SOURCE_TABLE,  /* name of the table that it reads, if its step is of a table … */
	LAYOUT_SOURCE_ALIAS,  /* … and its alias; empty: none */
	/*
	 * From what the first step of REQUEST's path points to, the thread's context: the one below it, a
	 * pointer; 0: none.  A statement of EXECUTE STATEMENT has a context of its own, and no caller: who
	 * executes it is the request of the context below.
	 */
	LAYOUT_OUTER,
	LAYOUT_FACTS
};

/* How a value lies there, at the end of its path. */
enum layout_type {
	LAYOUT_ABSENT = 0, /* this engine does not tell; never for OBJECTS, REQUEST_ID and LINE */
	LAYOUT_POINTER,	   /* u64 */
	LAYOUT_U32,
	LAYOUT_U64,
	LAYOUT_TEXT, /* characters at the pointer there, so many as the u32 at `length` tells */
	LAYOUT_TEXT_ZERO,   /* characters at the pointer there, up to NUL */
	LAYOUT_TEXT_INLINE, /* characters there, up to NUL */
	LAYOUT_TYPES
};

#define LAYOUT_STEPS 6

/*
 * Add offset[0] to the object's address; for each further offset, load a pointer, and add it.  A null
 * pointer on the way means that there is none: an idle thread, a statement that is no procedure.
 */
struct layout_path {
	enum layout_type type;
	uint32_t steps; /* offsets in use; at least 1 unless absent */
	int32_t offset[LAYOUT_STEPS];
	int32_t length; /* LAYOUT_TEXT: where its length is, from where its pointer is */
};

/*
 * Frames that tell the position in a plan: of the functions that open and fetch from a record source,
 * and of the one that executes a request.  One register that the function saves or keeps holds the
 * object's address there.  `start` and `end` are offsets from the engine's load address, of the
 * function's unwind entry.
 */
enum layout_plan_event {
	LAYOUT_PLAN_OPEN,
	LAYOUT_PLAN_FETCH,
	LAYOUT_PLAN_REQUEST, /* the object is the request: what is inside belongs to it */
	LAYOUT_PLAN_EVENTS
};

struct layout_plan_function {
	uint64_t start, end;
	enum layout_plan_event event;
	uint32_t reg;	/* its number in DWARF */
	int32_t offset; /* not 0: the object's address is in memory, so far from the register */
	int32_t slot; /* not -1: the function's place among the virtual functions of the object's class */
};

#define LAYOUT_PLAN_FUNCTIONS 64

/*
 * What step of a plan a record source is: such ones begin with the address of their class's virtual
 * functions.  `type` is its offset from the load address, `step` the step as the engine explains it,
 * without what is in quotes or parentheses: Table "" Full Scan.
 */
struct layout_plan_type {
	uint64_t type;
	bool has_table, has_alias; /* the facts of these names hold for it */
	bool root;		   /* of a cursor or sub-query */
	char step[64];
};

#define LAYOUT_PLAN_TYPES 64

#define LAYOUT_IDENTITY_SIZE 65 /* SHA-256 of the engine file, in hex, and NUL */

struct layout {
	char identity[LAYOUT_IDENTITY_SIZE];
	char engine[64]; /* its version as the engine tells it, for people */
	struct layout_path path[LAYOUT_FACTS];
	uint32_t plan_functions; /* 0: the position in the plan can't be had */
	struct layout_plan_function plan[LAYOUT_PLAN_FUNCTIONS];
	uint32_t plan_types;
	struct layout_plan_type type[LAYOUT_PLAN_TYPES];
	uint64_t verified; /* so many events agreed when it was verified */
};

/* Names as in the cache: "request", "sql_text"; "u32". */
const char *layout_fact_name(enum layout_fact fact);
const char *layout_type_name(enum layout_type type);
const char *layout_event_name(enum layout_plan_event event);

/*
 * A step as in struct layout_plan_type, out of an explained plan: its first line, without arrow, names in
 * quotes, and what is in parentheses.
 */
void layout_copy_step(char *step, size_t room, const char *access_path);

#define LAYOUT_ERROR_SIZE CACHE_ERROR_SIZE

/*
 * The identity of an engine file.  Returns false, with a sentence in `error`, if it can't be read.
 * Reads the file whole: some 50 ms.  Any thread, as all of these functions; they keep no state.
 */
bool layout_identify(const char *engine, char identity[LAYOUT_IDENTITY_SIZE],
		     char error[LAYOUT_ERROR_SIZE]);

/*
 * IDENTITY.layout in the cache (cache.h).  A missing, damaged or foreign one is refused with a sentence
 * that says what to do.
 */
bool layout_load(struct layout *layout, const char *directory, const char *identity,
		 char error[LAYOUT_ERROR_SIZE]);
bool layout_save(const struct layout *layout, const char *directory, char error[LAYOUT_ERROR_SIZE]);

#endif
