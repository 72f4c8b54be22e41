/*
 * CSV: see csv.h.
 */
#include "csv.h"

#include <string.h>

#include "text.h"

static void separate(struct csv *csv)
{
	if (csv->column++)
		sink_put(csv->sink, ",");
}

void csv_begin(struct csv *csv, struct sink *sink, const char *const *columns)
{
	*csv = (struct csv){ .sink = sink, .columns = g_strv_length((char **)columns) };
	for (; *columns; columns++)
		csv_text(csv, *columns);
	csv_end_row(csv);
}

void csv_null(struct csv *csv)
{
	separate(csv);
}

void csv_text(struct csv *csv, const char *text)
{
	separate(csv);
	if (!text)
		return;
	if (*text && !strpbrk(text, "\",\r\n")) {
		sink_put(csv->sink, text);
		return;
	}
	sink_put(csv->sink, "\"");
	for (const char *quote; (quote = strchr(text, '"')); text = quote + 1) {
		sink_write(csv->sink, text, (gsize)(quote + 1 - text));
		sink_put(csv->sink, "\"");
	}
	sink_put(csv->sink, text);
	sink_put(csv->sink, "\"");
}

/* By hand: printf() would take half the time of a dump. */
static void put_number(struct csv *csv, uint64_t magnitude, gboolean negative)
{
	char digits[24];
	char *at = digits + sizeof(digits);

	do
		*--at = (char)('0' + magnitude % 10);
	while (magnitude /= 10);
	if (negative)
		*--at = '-';
	separate(csv);
	sink_write(csv->sink, at, (gsize)(digits + sizeof(digits) - at));
}

void csv_signed(struct csv *csv, int64_t value)
{
	put_number(csv, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value < 0);
}

void csv_unsigned(struct csv *csv, uint64_t value)
{
	put_number(csv, value, FALSE);
}

void csv_id(struct csv *csv, int64_t value)
{
	if (value)
		csv_signed(csv, value);
	else
		csv_null(csv);
}

void csv_moment(struct csv *csv, int64_t nanoseconds)
{
	char *moment;

	if (!nanoseconds) {
		csv_null(csv);
		return;
	}
	moment = text_moment(nanoseconds);
	csv_text(csv, moment);
	g_free(moment);
}

void csv_end_row(struct csv *csv)
{
	g_assert(csv->column == csv->columns);
	csv->column = 0;
	sink_put(csv->sink, "\r\n");
}
