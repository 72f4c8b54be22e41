/*
 * Requests of a session: executions of statements, from their start to their end.  When requests are
 * told apart, each has counters of its own, which its end turns into one record.
 */
#include "../output/log_put.h"
#include "session_private.h"

#include <stdlib.h>

/* `head` tells the log who it is. */
static struct request *request_new(struct session *session, int64_t id, struct statement *statement,
				   struct log_block *head)
{
	struct request *request = session->free_requests;

	if (request)
		session->free_requests = request->next_free;
	else if (!(request = malloc(sizeof(*request))))
		return NULL;
	*request = (struct request){ .id = id,
				     .statement = statement,
				     .caller_id = (int64_t)head->caller_request_id };
	counters_init(&request->own_counters);
	head->session = session->stream.session;
	head->statement = statement->index;
	if (session->options.detailed) {
		request->counters = &request->own_counters;
		request->serial = head->serial = ++session->last_serial;
		head->request_id = (uint64_t)id;
	} else {
		request->counters = &statement->counters;
		head->caller_statement_id = head->caller_request_id = 0;
	}
	if (!counters_grow(request->counters, session->stream.log, head, 0) ||
	    !id_table_put(&session->requests, id, request)) {
		counters_release(&request->own_counters, session->stream.log);
		free(request);
		return NULL;
	}
	return request;
}

uint64_t *request_find_cells(struct session *session, struct request *request,
			     struct cell_cache *cache, uint32_t cell)
{
	int error = errno;

	clock_own_work_is_unusual(session->stack);
	if (cell / LOG_BLOCK_CELLS >= request->counters->count &&
	    !counters_grow(request->counters, session->stream.log, request->counters->blocks[0],
			   cell)) {
		session_step_aside(session);
		errno = error;
		return NULL;
	}
	errno = error;
	if (request->serial) {
		frame_stack_add_cost(session->stack, session->stack->cell_cost);
		clock_exclude_more(session->stack, session->stack->cell_cost);
	}
	cache->serial = request->serial;
	cache->cells = cell_at(request->counters, cell);
	return cache->cells;
}

void request_free(struct request *request)
{
	counters_release(&request->own_counters, NULL);
	free(request);
}

struct request *request_start(struct session *session, int64_t statement_id, int64_t id,
			      int64_t caller_statement_id, int64_t caller_id, int64_t start_time)
{
	struct log_block head; /* only what request_new() and counters_grow() look at */
	struct statement *statement;
	struct request *request = id_table_get(&session->requests, id);

	if (request)
		return request;
	head.caller_statement_id = (uint64_t)caller_statement_id;
	head.caller_request_id = (uint64_t)caller_id;
	head.start_time = start_time;
	head.serial = head.request_id = 0;
	statement = statement_find(session, statement_id);
	return statement ? request_new(session, id, statement, &head) : NULL;
}

/*
 * A request that has finished, in one record with its counts, instead of its blocks.  If they are too
 * many for a record, they stay in the blocks.
 */
static bool put_request(struct session *session, const struct request *request, int64_t finish_time,
			int64_t elapsed, bool *stays)
{
	const struct counters *counters = request->counters;
	const struct log_block *head = counters->blocks[0];
	uint32_t last = 0, cells = request->statement->cells;
	size_t size = 16 * VARINT_MAX_SIZE;
	uint8_t *place;

	if (cells > counters->count * LOG_BLOCK_CELLS)
		cells = counters->count * LOG_BLOCK_CELLS;
	for (uint32_t cell = 0; cell < cells; cell++)
		size += *cell_at(counters, cell) ? 2 * VARINT_MAX_SIZE : 0;
	*stays = size > LOG_RECORD_MAX - 16;
	if (*stays) {
		size = 16 * VARINT_MAX_SIZE;
		cells = 0;
	}
	place = log_record_begin(&session->stream, LOG_REC_REQUEST, size);
	if (!place)
		return false;
	place = varint_put(place, request->serial);
	place = varint_put(place, request->statement->index);
	place = varint_put(place, head->request_id);
	place = varint_put(place, head->caller_statement_id);
	place = varint_put(place, head->caller_request_id);
	place = log_put_i64(place, head->start_time);
	place = varint_put(place, finish_time > head->start_time ?
					  (uint64_t)(finish_time - head->start_time) :
					  0);
	place = varint_put(place, LOG_REQUEST_FINISHED | (*stays ? LOG_REQUEST_IN_BLOCKS : 0));
	place = varint_put(place, (uint64_t)elapsed);
	for (uint32_t cell = 0; cell < cells; cell++) {
		uint64_t value = *cell_at(counters, cell);

		if (value) {
			place = varint_put(place, cell - last);
			place = varint_put(place, value);
			last = cell;
		}
	}
	log_record_end(&session->stream, place);
	return true;
}

void request_finish(struct session *session, struct request *request, int64_t time, int64_t elapsed)
{
	bool stays = false;

	position_leave(session, request);
	id_table_remove(&session->requests, request->id);
	if (session->options.mode != LOG_MODE_SAMPLED)
		add_to_cell(cell_at(request->counters, LOG_CELL_ELAPSED), (uint64_t)elapsed);
	else if (!request->was_on_stack)
		add_to_cell(cell_at(request->counters, LOG_CELL_UNSAMPLED), (uint64_t)elapsed);
	add_to_cell(cell_at(request->counters, LOG_CELL_FINISHED), 1);
	if (request->serial) {
		if (put_request(session, request, time, elapsed, &stays))
			counters_release(&request->own_counters,
					 stays ? NULL : session->stream.log);
		else
			session_step_aside(session);
	}
	request->next_free = session->free_requests;
	session->free_requests = request;
}
