/*
 * Statements within statements: EXECUTE STATEMENT runs its statement in a context of its own on top
 * of the thread's, and the outermost request there has no caller.  Who executes it is the request
 * of the context below, which stands still meanwhile.
 */
#ifndef FBPROF_PASSIVE_OUTER_H
#define FBPROF_PASSIVE_OUTER_H

#include "position.h"

/* Whether the layout tells it. */
bool outer_is_known(const struct layout *layout);

/*
 * Where the thread's context has a pointer to the one below it; `request_place` is where it has the
 * one to its request.
 */
uint64_t outer_place(const struct layout *layout, uint64_t request_place);

/*
 * Puts the requests of the contexts from `below` on before those of `position`, as far as they are
 * of the same attachment.  `context` is the thread's own.  False: something changed meanwhile.
 */
bool outer_read(pid_t process, const struct layout *layout, uint64_t tls, uint64_t context,
		uint64_t below, struct passive_position *position);

#endif
