/*
 * Fuzz target: any log through the reader, the model, and all that the tools print of it.
 *
 * Checksums would keep a fuzzer from getting anywhere, so that its input is a list of steps that build
 * a log with right ones, and then may damage it.  Build by hand, with the files of the tools but their
 * mains: clang -fsanitize=fuzzer,address,undefined; run with -max_len=8192.
 */
#include <string.h>
#include <unistd.h>

#include "../tools/log_info.h"
#include "../tools/model.h"
#include "../tools/prof_tables.h"
#include "../tools/report_rows.h"
#include "log_builder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *at, *end;
};

static uint64_t take(struct input *input, unsigned bytes)
{
	uint64_t value = 0;

	for (; bytes && input->at < input->end; bytes--)
		value = value << 8 | *input->at++;
	return value;
}

static size_t take_bytes(struct input *input, void *to, size_t size)
{
	size_t left = (size_t)(input->end - input->at);

	size = size < left ? size : left;
	memcpy(to, input->at, size);
	input->at += size;
	return size;
}

/* Something for the input to speak of. */
static void build_definitions(struct log_builder *builder, uint32_t session, uint64_t mode)
{
	uint32_t group = mode == LOG_MODE_SAMPLED ? 1 : LOG_GROUP_CELLS;

	log_builder_session(builder, session);
	log_builder_session_of_mode(builder, session, LOG_SESSION_DETAILED, mode, "fuzzed");
	log_builder_statement(builder, 1, 100, "PROCEDURE", "PKG", "PROC", 0);
	log_builder_line(builder, 1, 7, 3, 8);
	log_builder_text(builder, 1, 0, "-> Table \"T\" Full Scan");
	log_builder_cursor(builder, 1, 1, "C", 6, 2);
	log_builder_record_source(builder, 1, 1, 1, 0, 8 + group, 1);
	log_builder_record_source(builder, 1, 1, 2, 1, 8 + 3 * group, 1);
	log_builder_statement(builder, 2, 101, "BLOCK", NULL, NULL, 1);
	log_builder_record_source(builder, 2, 1, 1, 0, 8, 1);
	log_builder_record_source(builder, 2, 2, 1, 0, 8 + 2 * group, 1);
}

static void build_block(struct log_builder *builder, struct input *input)
{
	struct log_block block = { .item_size = sizeof(struct log_node) };

	block.kind = (uint32_t)take(input, 1);
	block.session = (uint32_t)take(input, 1);
	block.statement = (uint32_t)take(input, 1);
	block.first = (uint32_t)take(input, 1);
	block.count = (uint32_t)take(input, 1);
	block.serial = take(input, 1);
	block.request_id = take(input, 1);
	take_bytes(input, block.payload, take(input, 2) % (sizeof(block.payload) + 1));
	log_builder_block(builder, &block);
}

static void build_raw_block(struct log_builder *builder, struct input *input)
{
	struct log_block block = { 0 };

	take_bytes(input, &block, sizeof(block));
	log_builder_block(builder, &block);
}

static void build_node(struct log_builder *builder, struct input *input)
{
	struct log_builder_node node = { 0 };
	uint32_t session = (uint32_t)take(input, 1);
	uint32_t id = (uint32_t)take(input, 1);

	node.parent = (uint32_t)take(input, 1);
	node.statement = (uint32_t)take(input, 1);
	node.kind = (enum log_node_kind)(take(input, 1) & 3);
	node.cell = (uint32_t)take(input, 1);
	node.serial = (uint32_t)take(input, 1);
	node.self_time = take(input, 8);
	node.samples = take(input, 1);
	node.cost = take(input, 2);
	node.cpu_time = take(input, 8);
	log_builder_nodes(builder, session, id, &node, 1);
}

/* Counters with times, as a block or a record. */
static void build_groups(struct log_builder *builder, struct input *input)
{
	struct log_builder_execution execution = { 0 };
	uint32_t session = (uint32_t)take(input, 1);
	uint64_t kind = take(input, 1);

	execution.serial = take(input, 1);
	execution.statement = (uint32_t)take(input, 1);
	execution.request_id = take(input, 1);
	execution.flags = kind >> 1;
	for (unsigned i = 0; i < 3; i++) {
		uint64_t values[LOG_GROUP_CELLS];

		for (unsigned j = 0; j < LOG_GROUP_CELLS; j++)
			values[j] = take(input, 2) << take(input, 1) % 64;
		log_builder_group(&execution, (uint32_t)take(input, 1) % 8 * LOG_GROUP_CELLS,
				  values);
	}
	if (kind & 1)
		log_builder_request(builder, &execution);
	else
		log_builder_counters(builder, session, &execution);
}

static void build_record(struct log_builder *builder, struct input *input)
{
	static struct log_payload payload;
	uint32_t type = (uint32_t)take(input, 1);
	size_t size = take(input, 2) % (LOG_RECORD_MAX - 16);

	payload.size = take_bytes(input, payload.bytes, size);
	log_builder_record(builder, type, &payload);
}

static void damage(struct log_builder *builder, struct input *input)
{
	size_t offset = take(input, 3) % builder->size;

	builder->bytes[offset] ^= (uint8_t)take(input, 1);
}

static void build(struct log_builder *builder, struct input *input)
{
	while (input->at < input->end && builder->size < 1 << 21) {
		switch (take(input, 1) % 9) {
		case 0:
			build_definitions(builder, 1 + (uint32_t)take(input, 1) % 3,
					  take(input, 1) % 5);
			break;
		case 1:
			build_block(builder, input);
			break;
		case 2:
			build_raw_block(builder, input);
			break;
		case 3:
			build_node(builder, input);
			break;
		case 4:
			log_builder_session(builder, (uint32_t)take(input, 1));
			break;
		case 5:
			log_builder_chunk(builder, (uint32_t)take(input, 1) % 4);
			break;
		case 6:
			build_groups(builder, input);
			break;
		case 7:
			damage(builder, input);
			break;
		default:
			build_record(builder, input);
		}
	}
}

static void print_all(const struct model *model)
{
	struct sink sink;

	sink_open(&sink, -1); /* nobody looks at it */
	for (unsigned i = 0; i < PROF_TABLE_COUNT; i++)
		prof_table_write(&prof_tables[i], model, &sink);
	log_info_print(model, &sink);
	for (int by = REPORT_BY_STATEMENT; by <= REPORT_BY_ALL; by++) {
		struct report_rows rows;

		report_rows_init(&rows, (enum report_by)by);
		for (guint i = 0; i < model->sessions->len; i++)
			report_rows_add(&rows, model->sessions->pdata[i]);
		report_rows_clear(&rows);
	}
	sink_close(&sink);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = { data, data + size };
	struct log_builder builder;
	char error[LOG_ERROR_SIZE];
	struct log_reader *reader;
	struct model *model;

	log_builder_init(&builder);
	log_builder_set_state(&builder, (enum log_state)take(&input, 1));
	build(&builder, &input);
	reader = log_reader_open_fd(log_builder_file(&builder, builder.size), error);
	log_builder_clear(&builder);
	if (!reader)
		return 0;
	model = model_new();
	if (model_add_reader(model, reader, "fuzzed.fbprof", true)) {
		model_order_sessions(model, NULL);
		print_all(model);
	}
	model_free(model);
	log_reader_close(reader);
	return 0;
}
