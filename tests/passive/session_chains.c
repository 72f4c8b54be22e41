/*
 * session_chains LOG: each chain of record sources in a sampled session's call tree, outermost first, with how many
 * samples fell into it and no inner one; as plan_sampler prints them.  " | " is between two requests.
 */
#include "../../tools/model.h"

#include <stdio.h>
#include <string.h>

static void put_step(const struct model_record_source *source)
{
	const char *path = source->access_path + strspn(source->access_path, " ->");

	printf("%.*s", (int)strcspn(path, "\n"), path);
}

/* Returns whether it printed something. */
static bool put_chain(const struct model_session *session, uint32_t node)
{
	static bool other_request;
	enum model_cell_kind kind;
	bool begun;

	if (node == MODEL_NO_NODE) {
		other_request = false;
		return false;
	}
	begun = put_chain(session, session->nodes[node].parent);
	kind = session->nodes[node].cell->kind;
	if (kind == MODEL_CELL_REQUEST)
		other_request = true;
	if (kind != MODEL_CELL_OPEN && kind != MODEL_CELL_FETCH)
		return begun;
	if (begun)
		fputs(other_request ? " | " : " > ", stdout);
	other_request = false;
	put_step(session->nodes[node].cell->record_source);
	return true;
}

int main(int argc, char **argv)
{
	char error[LOG_ERROR_SIZE];
	struct model *model = model_new();

	if (argc != 2 || !model_add_log(model, argv[1], false, error)) {
		fprintf(stderr, "session_chains: %s\n", argc == 2 ? error : "give a log");
		return 1;
	}
	for (unsigned i = 0; i < model->sessions->len; i++) {
		const struct model_session *session = g_ptr_array_index(model->sessions, i);

		for (uint32_t node = 0; node < session->node_count; node++) {
			if (!session->nodes[node].samples)
				continue;
			printf("%lu\t", (unsigned long)session->nodes[node].samples);
			put_chain(session, node);
			putchar('\n');
		}
	}
	model_free(model);
	return 0;
}
