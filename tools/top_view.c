/*
 * See top_view.h.
 */
#include "top_view.h"

#include <inttypes.h>
#include <string.h>

#include "report_rows.h"
#include "text.h"

#define BAR_WIDTH 10

/* Heads, titles, blank lines. */
#define FIXED_ROWS 10

/* The least number of rows of each part. */
#define PART_MIN 2

/* Something that took time. */
struct entry {
	char *key;   /* tells it from others, from view to view */
	char *label; /* what it is, behind the times */
	uint64_t all, now;
};

static void free_entry(void *data)
{
	struct entry *entry = data;

	g_free(entry->key);
	g_free(entry->label);
	g_free(entry);
}

static void free_line(void *data)
{
	struct top_line *line = data;

	g_free(line->text);
	g_free(line);
}

static GHashTable *new_snapshot(void)
{
	return g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
}

void top_view_init(struct top_view *view)
{
	*view = (struct top_view){ new_snapshot(), new_snapshot(), new_snapshot(), 0, 0 };
}

void top_view_clear(struct top_view *view)
{
	g_hash_table_unref(view->attachments);
	g_hash_table_unref(view->statements);
	g_hash_table_unref(view->lines);
}

/* ---- Entries ---- */

static void add_entry(GPtrArray *entries, GHashTable *before, char *key, char *label, uint64_t time)
{
	const uint64_t *seen = g_hash_table_lookup(before, key);
	struct entry *entry = g_new(struct entry, 1);

	*entry = (struct entry){ key, label, time, seen && *seen <= time ? time - *seen : time };
	g_ptr_array_add(entries, entry);
}

static int compare_entries(const void *left, const void *right)
{
	const struct entry *a = *(const struct entry *const *)left;
	const struct entry *b = *(const struct entry *const *)right;
	int order = MODEL_ORDER(b->now, a->now);

	if (!order)
		order = MODEL_ORDER(b->all, a->all);
	return order ? order : strcmp(a->key, b->key);
}

static void remember(GHashTable *snapshot, const GPtrArray *entries)
{
	g_hash_table_remove_all(snapshot);
	for (guint i = 0; i < entries->len; i++) {
		const struct entry *entry = entries->pdata[i];
		uint64_t *time = g_new(uint64_t, 1);

		*time = entry->all;
		g_hash_table_insert(snapshot, g_strdup(entry->key), time);
	}
}

/* A session of another mode than sampled and passive has no sampled time: its rows' self time counts. */
static GPtrArray *list_attachments(const struct top_view *view, const struct model *model)
{
	GPtrArray *entries = g_ptr_array_new_with_free_func(free_entry);

	for (guint i = 0; i < model->sessions->len; i++) {
		const struct model_session *session = model->sessions->pdata[i];
		char *label = g_strdup_printf("%" PRId64 " %s %s%s", session->attachment_id,
					      session->user, session->database,
					      session->end == MODEL_RUNNING ? "" : " (ended)");

		add_entry(entries, view->attachments,
			  g_strdup_printf("%" PRId64, session->profile_id), text_line(label),
			  session->sampled_time);
		g_free(label);
	}
	g_ptr_array_sort(entries, compare_entries);
	return entries;
}

static GPtrArray *list_rows(GHashTable *before, const struct model *model, enum report_by by,
			    uint64_t *self_time)
{
	GPtrArray *entries = g_ptr_array_new_with_free_func(free_entry);
	struct report_rows rows;

	report_rows_init(&rows, by);
	for (guint i = 0; i < model->sessions->len; i++)
		report_rows_add(&rows, model->sessions->pdata[i]);
	for (guint i = 0; i < rows.rows->len; i++) {
		const struct report_row *row = rows.rows->pdata[i];
		char *label = row->line ? g_strdup_printf("%" PRIu32 ":%" PRIu32 " %s", row->line,
							  row->column, row->where) :
					  g_strdup(row->where);

		add_entry(entries, before, g_strdup(label), label, row->time.self_time);
	}
	*self_time = rows.self_time;
	report_rows_clear(&rows);
	g_ptr_array_sort(entries, compare_entries);
	return entries;
}

/* ---- Lines of the screen ---- */

struct screen {
	GPtrArray *lines;
	unsigned width;
};

static void put(const struct screen *screen, enum top_style style, const char *text)
{
	GString *line = g_string_new(text);
	struct top_line *added = g_new(struct top_line, 1);

	if (screen->width)
		text_truncate(line, screen->width);
	*added = (struct top_line){ g_string_free(line, FALSE), style };
	g_ptr_array_add(screen->lines, added);
}

static double share_of(uint64_t part, uint64_t whole)
{
	return whole ? MIN((double)part / (double)whole, 1) : 0;
}

static void append_share(GString *to, double share)
{
	char digits[32];

	g_ascii_formatd(digits, sizeof(digits), "%6.1f", 100 * share);
	g_string_append(to, digits);
}

static void put_entry(const struct screen *screen, const struct entry *entry, uint64_t now,
		      uint64_t all, struct text_unit unit)
{
	double share = now ? share_of(entry->now, now) : 0;
	unsigned filled = (unsigned)(share * BAR_WIDTH + 0.5);
	GString *text = g_string_new(NULL);
	char *time = text_time(entry->all, unit);

	for (unsigned i = 0; i < BAR_WIDTH; i++)
		g_string_append(text, i < filled ? "█" : " ");
	append_share(text, share);
	append_share(text, share_of(entry->all, all));
	g_string_append_printf(text, " %10s  %s", time, entry->label);
	put(screen, share >= 0.2 ? TOP_HOT : share >= 0.05 ? TOP_WARM : TOP_COLD, text->str);
	g_string_free(text, TRUE);
	g_free(time);
}

static void put_part(const struct screen *screen, const char *title, const GPtrArray *entries,
		     uint64_t now, uint64_t all, unsigned rows)
{
	char *head = g_strdup_printf("%*s %5s%% %5s%% %10s  %s", BAR_WIDTH - 1, "", "now", "all",
				     "time", title);
	struct text_unit unit = text_unit_for(all);

	put(screen, TOP_PLAIN, "");
	put(screen, TOP_TITLE, head);
	for (guint i = 0; i < MIN(entries->len, rows); i++) {
		const struct entry *entry = entries->pdata[i];

		if (entry->all)
			put_entry(screen, entry, now, all, unit);
	}
	g_free(head);
}

/* How many threads were at work since the view before, on average. */
static char *describe_load(const struct top_view *view, uint64_t sampled_time, uint64_t now)
{
	uint64_t time = sampled_time - MIN(view->sampled_time, sampled_time);
	char *sampled = text_lone_time(time), *all = text_lone_time(sampled_time), digits[32],
	     *text;

	g_ascii_formatd(digits, sizeof(digits), "%.2f",
			now > view->at ? (double)time / (double)(now - view->at) : 0);
	if (view->at)
		text = g_strdup_printf("now: %s sampled, %s threads at work; in all: %s", sampled,
				       digits, all);
	else
		text = g_strdup_printf("in all: %s sampled", all);
	g_free(all);
	g_free(sampled);
	return text;
}

GPtrArray *top_view_show(struct top_view *view, const struct model *model, uint64_t now,
			 const char *head, unsigned width, unsigned height)
{
	const struct screen screen = { g_ptr_array_new_with_free_func(free_line), width };
	uint64_t all, recent;
	GPtrArray *attachments = list_attachments(view, model);
	GPtrArray *statements = list_rows(view->statements, model, REPORT_BY_STATEMENT, &all);
	GPtrArray *lines = list_rows(view->lines, model, REPORT_BY_ALL, &all);
	unsigned free_rows = height > FIXED_ROWS ? height - FIXED_ROWS : 0;
	unsigned part = MAX(free_rows / 4, PART_MIN);
	char *load = describe_load(view, all, now);

	recent = all - MIN(view->sampled_time, all);
	put(&screen, TOP_TITLE, head);
	put(&screen, TOP_PLAIN, load);
	put_part(&screen, "attachment", attachments, recent, all, part);
	put_part(&screen, "statement", statements, recent, all, part);
	put_part(&screen, "line", lines, recent, all,
		 MAX(free_rows - MIN(free_rows, 2 * part), PART_MIN));
	remember(view->attachments, attachments);
	remember(view->statements, statements);
	remember(view->lines, lines);
	view->sampled_time = all;
	view->at = now;
	g_ptr_array_unref(attachments);
	g_ptr_array_unref(statements);
	g_ptr_array_unref(lines);
	g_free(load);
	return screen.lines;
}
