/*
 * Text for people: see text.h.
 */
#include "text.h"

#include <time.h>

struct text_unit text_unit_for(uint64_t largest)
{
	static const struct text_unit units[] = {
		{ "s", 1e9, 3 },
		{ "ms", 1e6, 3 },
		{ "µs", 1e3, 1 },
		{ "ns", 1, 0 },
	};
	unsigned i = 0;

	while (i + 1 < G_N_ELEMENTS(units) && (double)largest < units[i].nanoseconds)
		i++;
	return units[i];
}

char *text_time(uint64_t nanoseconds, struct text_unit unit)
{
	char digits[64];
	char format[8];

	/* The decimal point whatever LC_NUMERIC says. */
	g_snprintf(format, sizeof(format), "%%.%df", unit.decimals);
	g_ascii_formatd(digits, sizeof(digits), format, (double)nanoseconds / unit.nanoseconds);
	return g_strdup_printf("%s %s", digits, unit.name);
}

char *text_lone_time(uint64_t nanoseconds)
{
	return text_time(nanoseconds, text_unit_for(nanoseconds));
}

char *text_size(uint64_t bytes)
{
	static const char *const names[] = { "bytes", "kB", "MB", "GB", "TB", "PB", "EB" };
	double value = (double)bytes;
	char digits[32];
	unsigned i = 0;

	for (; value >= 999.95 && i + 1 < G_N_ELEMENTS(names); i++)
		value /= 1000;
	g_ascii_formatd(digits, sizeof(digits), i ? "%.1f" : "%.0f", value);
	return g_strdup_printf("%s %s", digits, names[i]);
}

char *text_moment(int64_t nanoseconds)
{
	const int64_t per_second = 1000000000;
	time_t second = nanoseconds / per_second;
	int64_t fraction = nanoseconds % per_second;
	struct tm utc;

	if (fraction < 0) {
		fraction += per_second;
		second--;
	}
	gmtime_r(&second, &utc); /* the years 1677 to 2262: it can't fail */
	return g_strdup_printf("%04d-%02d-%02dT%02d:%02d:%02d.%04dZ", utc.tm_year + 1900,
			       utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
			       (int)(fraction / 100000));
}

static gboolean is_harmless(gunichar c)
{
	/* Format characters can turn the direction of writing and so disguise a text. */
	return g_unichar_isprint(c) && g_unichar_type(c) != G_UNICODE_FORMAT;
}

char *text_line(const char *text)
{
	GString *line = g_string_new(NULL);
	gboolean space = FALSE;

	for (; *text; text = g_utf8_next_char(text)) {
		gunichar c = g_utf8_get_char(text);

		if (g_unichar_isspace(c)) {
			space = line->len > 0;
			continue;
		}
		if (space)
			g_string_append_c(line, ' ');
		space = FALSE;
		if (is_harmless(c))
			g_string_append_unichar(line, c);
		else
			g_string_append_printf(line, "\\u%04x", c);
	}
	return g_string_free(line, FALSE);
}

static unsigned char_width(gunichar c)
{
	if (g_unichar_iszerowidth(c))
		return 0;
	return g_unichar_iswide(c) ? 2 : 1;
}

unsigned text_width(const char *text)
{
	unsigned width = 0;

	for (; *text; text = g_utf8_next_char(text))
		width += char_width(g_utf8_get_char(text));
	return width;
}

void text_truncate(GString *text, unsigned width)
{
	const char *at = text->str;
	unsigned used = 0;

	if (text_width(text->str) <= width)
		return;
	/* One column is the ellipsis's. */
	for (; used + char_width(g_utf8_get_char(at)) < width; at = g_utf8_next_char(at))
		used += char_width(g_utf8_get_char(at));
	g_string_truncate(text, (gsize)(at - text->str));
	if (width)
		g_string_append(text, "…");
}
