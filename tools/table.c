/*
 * A table of text for people: see table.h.
 */
#include "table.h"

#include "text.h"

#define GAP 2

struct cell {
	char *text;
	const char *color;
};

struct table {
	const struct table_column *columns;
	unsigned column_count;
	GArray *cells; /* row by row */
};

static void clear_cell(void *data)
{
	g_free(((struct cell *)data)->text);
}

struct table *table_new(const struct table_column *columns, unsigned count)
{
	struct table *table = g_new0(struct table, 1);

	table->columns = columns;
	table->column_count = count;
	table->cells = g_array_new(FALSE, FALSE, sizeof(struct cell));
	g_array_set_clear_func(table->cells, clear_cell);
	return table;
}

void table_free(struct table *table)
{
	g_array_unref(table->cells);
	g_free(table);
}

void table_add(struct table *table, char *text, const char *color)
{
	const struct cell cell = { text, color };

	g_array_append_val(table->cells, cell);
}

static void print_spaces(struct sink *sink, unsigned count)
{
	sink_print(sink, "%*s", (int)count, "");
}

static void print_colored(struct sink *sink, const char *text, const char *color)
{
	if (color)
		sink_print(sink, "\033[%sm%s\033[0m", color, text);
	else
		sink_put(sink, text);
}

/* `width` is the column's; the last column is not filled up but cut down to it, unless it is 0. */
static void print_cell(struct sink *sink, const struct table_column *column, gboolean last,
		       const struct cell *cell, unsigned width)
{
	unsigned used = text_width(cell->text);
	GString *shown;

	if (column->right)
		print_spaces(sink, width > used ? width - used : 0);
	if (last && width && used > width) {
		shown = g_string_new(cell->text);
		text_truncate(shown, width);
		print_colored(sink, shown->str, cell->color);
		g_string_free(shown, TRUE);
	} else {
		print_colored(sink, cell->text, cell->color);
	}
	if (!column->right && !last)
		print_spaces(sink, width > used ? width - used : 0);
	if (last)
		sink_put(sink, "\n");
	else
		print_spaces(sink, GAP);
}

static unsigned *measure(const struct table *table, unsigned width)
{
	unsigned last = table->column_count - 1, others = 0;
	unsigned *widths = g_new(unsigned, table->column_count);

	for (unsigned i = 0; i < last; i++)
		widths[i] = text_width(table->columns[i].title);
	for (guint i = 0; i < table->cells->len; i++) {
		const struct cell *cell = &g_array_index(table->cells, struct cell, i);
		unsigned column = i % table->column_count;

		if (column != last)
			widths[column] = MAX(widths[column], text_width(cell->text));
	}
	for (unsigned i = 0; i < last; i++)
		others += widths[i] + GAP;
	/* On a terminal too narrow for the rest, lines may as well wrap. */
	widths[last] = width > others + 10 ? width - others : width ? 10 : 0;
	return widths;
}

void table_print(const struct table *table, struct sink *sink, unsigned width)
{
	unsigned *widths = measure(table, width);

	for (unsigned i = 0; i < table->column_count; i++) {
		const struct cell title = { (char *)table->columns[i].title, NULL };

		print_cell(sink, &table->columns[i], i == table->column_count - 1, &title,
			   widths[i]);
	}
	for (guint i = 0; i < table->cells->len; i++) {
		unsigned column = i % table->column_count;

		print_cell(sink, &table->columns[column], column == table->column_count - 1,
			   &g_array_index(table->cells, struct cell, i), widths[column]);
	}
	g_free(widths);
}
