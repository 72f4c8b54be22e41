#include "bindings.h"

#include <stdlib.h>

bool key_equal(const struct key *a, const struct key *b)
{
	return a->first == b->first && a->cursor == b->cursor && a->source == b->source;
}

static bool add_binding(struct bindings *bindings, const struct key *key, uint64_t value)
{
	if (bindings->count == bindings->room) {
		uint32_t room = bindings->room ? 2 * bindings->room : 64;
		struct binding *all = reallocarray(bindings->all, room, sizeof(*all));

		if (!all)
			return false;
		bindings->all = all;
		bindings->room = room;
	}
	bindings->all[bindings->count++] = (struct binding){ *key, value };
	return true;
}

void bindings_free(struct bindings *bindings)
{
	free(bindings->all);
	*bindings = (struct bindings){ .broken = true };
}

bool bindings_add(struct bindings *bindings, const struct key *key, uint64_t value)
{
	struct binding *heir = NULL;

	if (bindings->broken)
		return false;
	for (uint32_t i = bindings->count; i-- > 0;) {
		struct binding *binding = &bindings->all[i];
		bool same = key_equal(&binding->key, key);

		if (same && binding->value == value)
			return true;
		if (same || (binding->value == value && key->first <= binding->key.first)) {
			bindings_free(bindings);
			return false;
		}
		if (binding->value == value)
			heir = binding;
	}
	if (heir)
		heir->key = *key;
	else if (!add_binding(bindings, key, value))
		bindings_free(bindings);
	return !bindings->broken;
}
