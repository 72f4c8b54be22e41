/*
 * The chain of requests in which a thread was found last, and requests that were in it lately: where to
 * read the next time.
 */
#ifndef FBPROF_PASSIVE_KNOWN_CHAIN_H
#define FBPROF_PASSIVE_KNOWN_CHAIN_H

#include "position.h"

#define KNOWN_SPARE 32

/* Whether a request may be outermost. */
enum known_kind {
	KNOWN_UNCLEAR,
	KNOWN_ANY,
	KNOWN_ROUTINE, /* procedure or function: never */
	KNOWN_TRIGGER  /* only one of the database, as ON CONNECT */
};

struct known_request {
	uint64_t request, statement;
	uint64_t caller; /* when it was seen last; 0: none */
	/* It was certain, and called the request from there. */
	bool is_caller_sure;
	uint32_t caller_line, caller_column;
	enum known_kind kind;
};

/* All zero: empty. */
struct known_chain {
	uint32_t depth, count;
	struct known_request
		requests[PASSIVE_DEPTH + KNOWN_SPARE]; /* outermost first, then spare ones */
};

/* Its place; `guess`: where it probably is. */
bool known_chain_find(const struct known_chain *chain, uint64_t request, uint32_t guess,
		      uint32_t *place);

/*
 * The places from a head outwards as they were the last time that it was the head, or in the chain.  Their
 * number; 0: such a chain isn't known.
 */
uint32_t known_chain_path(const struct known_chain *chain, uint64_t head,
			  uint32_t path[PASSIVE_DEPTH]);

/* Requests that will probably be the head, the most likely one first.  Their number, at most `room`. */
uint32_t known_chain_likely(const struct known_chain *chain, uint64_t *requests, uint32_t room);

/*
 * Makes a chain of the requests at `path`, places that known_chain_path() gave or the first ones of those,
 * and of `fresh` ones that these called, from the head outwards.  False: too long.
 */
bool known_chain_arrange(struct known_chain *chain, const uint32_t *path, uint32_t depth,
			 const struct known_request *fresh, uint32_t fresh_count);

/* One of them may have been freed. */
void known_chain_forget(struct known_chain *chain);

#endif
