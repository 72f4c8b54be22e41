/*
 * See owed_time.h.
 */
#include "owed_time.h"

static uint64_t remove_head(struct owed_time *owed, uint32_t i)
{
	uint64_t time = owed->heads[i].time;

	owed->heads[i] = owed->heads[--owed->count];
	return time;
}

static void give_up_late(struct owed_time *owed, uint64_t now)
{
	for (uint32_t i = owed->count; i-- > 0;) {
		if (now - owed->heads[i].since > OWED_FOR)
			owed->anybodys += remove_head(owed, i);
	}
}

/* Its place; `count`: it is owed nothing. */
static uint32_t find_head(const struct owed_time *owed, const struct passive_head *head)
{
	uint32_t i = 0;

	while (i < owed->count && !passive_head_is(&owed->heads[i].head, head))
		i++;
	return i;
}

void owed_time_add(struct owed_time *owed, const struct passive_head *head, uint64_t time,
		   uint64_t now)
{
	uint32_t i = find_head(owed, head);

	if (i == owed->count && owed->count == OWED_HEADS)
		give_up_late(owed, now);
	if (head->statement == 0 || (i == owed->count && owed->count == OWED_HEADS))
		owed->anybodys += time;
	else if (i < owed->count)
		owed->heads[i].time += time;
	else
		owed->heads[owed->count++] = (struct owed_head){ *head, time, now };
}

uint64_t owed_time_take(struct owed_time *owed, const struct passive_head *head, uint64_t now)
{
	uint32_t i = find_head(owed, head);
	uint64_t time = i < owed->count ? remove_head(owed, i) : 0;

	give_up_late(owed, now);
	time += owed->anybodys;
	owed->anybodys = 0;
	return time;
}
