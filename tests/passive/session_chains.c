/*
 * session_chains LOG: what was sampled in the call trees of a log's sessions, a line for each node: samples, self time in ns,
 * and the frames that lead to it, outermost first.  A frame is its kind and what it is: "request" a routine or the
 * beginning of a text, "line" its number, "source" a step of a plan.  All are separated by tabs.
 */
#include "../../tools/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TEXT_SHOWN 60

/* Without what would end a field. */
static void put_text(const char *text, size_t size)
{
	for (; *text && size; text++, size--)
		putchar((unsigned char)*text < ' ' ? ' ' : *text);
}

static void put_name(const struct model_statement *statement)
{
	if (statement->package)
		printf("%s.", statement->package);
	if (statement->routine)
		put_text(statement->routine, SIZE_MAX);
	else if (statement->sql_text)
		put_text(statement->sql_text, TEXT_SHOWN);
}

static void put_frame(const struct model_cell *cell)
{
	const char *path;

	switch (cell->kind) {
	case MODEL_CELL_LINE:
		printf("\tline\t%" PRIu32, cell->line);
		break;
	case MODEL_CELL_OPEN:
	case MODEL_CELL_FETCH:
		path = cell->record_source->access_path;
		path += strspn(path, " ->");
		fputs("\tsource\t", stdout);
		put_text(path, strcspn(path, "\n"));
		break;
	default:
		fputs("\trequest\t", stdout);
		put_name(cell->statement);
	}
}

static void put_chain(const struct model_session *session, uint32_t node)
{
	if (node == MODEL_NO_NODE)
		return;
	put_chain(session, session->nodes[node].parent);
	put_frame(session->nodes[node].cell);
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
			printf("%" PRIu64 "\t%" PRIu64, session->nodes[node].samples,
			       session->nodes[node].self_time);
			put_chain(session, node);
			putchar('\n');
		}
	}
	model_free(model);
	return 0;
}
