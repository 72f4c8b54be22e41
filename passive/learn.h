/*
 * Learns a layout (layout.h) from moments at which something else, the oracle, knows the position:
 * it looks for every path that leads to what is known, and drops those that fail at a later moment.
 *
 * Learning goes by stages, as the paths of a stage begin at the objects that an earlier one found.
 * The moments of a stage must be of a workload that is varied enough; the workload is run again for
 * the next one.  One thread at a time, in the process that runs the engine: memory is read by
 * process_vm_readv on ourselves, so that a wrong path is a failed read and never a fault.
 */
#ifndef FBPROF_LEARN_H
#define FBPROF_LEARN_H

#include "layout.h"

#define LEARN_STAGES 3

enum learn_kind {
	LEARN_BLOCK, /* has SQL text; the others a name */
	LEARN_PROCEDURE,
	LEARN_FUNCTION,
	LEARN_TRIGGER
};

/*
 * What is known of a request and its statement.  NULL and 0: not known, but for `name` and
 * `package` "".
 */
struct learn_frame {
	uint64_t request_id, statement_id;
	uint32_t line, column;
	enum learn_kind kind;
	const char *sql_text, *name, *package;
};

struct learn_moment {
	uint64_t tls; /* address of the thread's TLS block of the engine */
	uint64_t attachment_id;
	const char *user, *database;
	unsigned count;			  /* of requests; at least 1 */
	const struct learn_frame *frames; /* innermost first, without gaps */

	/* The request that executes the outermost one, by EXECUTE STATEMENT; 0: none does. */
	bool outer_known;
	uint64_t outer_id;
};

struct learner;

/* `tls_size`: bytes of the engine's TLS block. */
struct learner *learner_new(uint64_t tls_size);
void learner_free(struct learner *learner);

/* Looks for paths, and at later moments drops those that are wrong. */
void learner_feed(struct learner *learner, const struct learn_moment *moment);

/*
 * Ends a stage: settles on one path for each of its facts.  False, with a sentence in `error`, if a
 * fact that can't be missing has none.  After LEARN_STAGES times learner_layout() has all paths.
 */
bool learner_settle(struct learner *learner, char error[LAYOUT_ERROR_SIZE]);
const struct layout *learner_layout(const struct learner *learner);

/* How many paths are looked at in this stage. */
unsigned learner_paths(const struct learner *learner);

/*
 * Reads all of the moment by the layout.  False, with what differs in `error`, unless all is as the
 * oracle says.
 */
bool learn_verify(const struct layout *layout, const struct learn_moment *moment,
		  char error[LAYOUT_ERROR_SIZE]);

/* Whether the thread with this TLS block is seen to be in no request and in no attachment. */
bool learn_idle(const struct layout *layout, uint64_t tls);

#endif
