/*
 * Growing and releasing counters: see counters.h.
 */
#include "counters.h"

#include <stdlib.h>

void counters_init(struct counters *counters)
{
	counters->blocks = counters->first;
	counters->count = 0;
}

void counters_release(struct counters *counters, struct log *log)
{
	for (uint32_t i = 0; log && i < counters->count; i++)
		log_block_free(log, counters->blocks[i]);
	if (counters->blocks != counters->first)
		free(counters->blocks);
	counters_init(counters);
}

bool counters_grow(struct counters *counters, struct log *log, const struct log_block *head,
		   uint32_t cell)
{
	while (counters->count <= cell / LOG_BLOCK_CELLS) {
		struct log_block **blocks, *block;

		if (counters->count) {
			size_t size = (counters->count + 1) * sizeof(struct log_block *);

			blocks = realloc(counters->blocks == counters->first ? NULL :
									       counters->blocks,
					 size);
			if (!blocks)
				return false;
			if (counters->blocks == counters->first)
				blocks[0] = counters->first[0];
			counters->blocks = blocks;
		}
		block = log_block_new(log);
		if (!block)
			return false;
		block->session = head->session;
		block->statement = head->statement;
		block->serial = head->serial;
		block->request_id = head->request_id;
		block->caller_statement_id = head->caller_statement_id;
		block->caller_request_id = head->caller_request_id;
		block->start_time = head->start_time;
		block->first = counters->count * LOG_BLOCK_CELLS;
		log_block_publish(block, LOG_BLOCK_COUNTERS);
		counters->blocks[counters->count++] = block;
	}
	return true;
}
