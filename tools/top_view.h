/*
 * What `fbprof top` shows of a log: attachments, statements and lines by the time they took since the
 * view before, as lines of text.  One thread.
 */
#ifndef FBPROF_TOP_VIEW_H
#define FBPROF_TOP_VIEW_H

#include "model.h"

enum top_style {
	TOP_PLAIN,
	TOP_TITLE, /* of the screen, or of a part of it */
	TOP_COLD,  /* rows, by their share of the time */
	TOP_WARM,
	TOP_HOT
};

struct top_line {
	char *text; /* harmless UTF-8, at most as wide as the screen */
	enum top_style style;
};

/* What was there when it was looked at last: time by what has it. */
struct top_view {
	GHashTable *attachments, *statements, *lines; /* char * → uint64_t * */
	uint64_t sampled_time, at;
};

void top_view_init(struct top_view *view);
void top_view_clear(struct top_view *view);

/*
 * The lines of a screen with `width` columns (0: unlimited) and `height` rows, as an array of struct
 * top_line that frees them.  `now`: in ns of a clock that only goes forward.  `head`: the first line.
 */
GPtrArray *top_view_show(struct top_view *view, const struct model *model, uint64_t now,
			 const char *head, unsigned width, unsigned height);

#endif
