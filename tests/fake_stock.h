/*
 * What fake_stock.c shows of itself: a module that registers as the stock profiler does, for
 * test_clock_mode.c.  Its `fake_stock` is one of these.
 */
#ifndef FBPROF_TESTS_FAKE_STOCK_H
#define FBPROF_TESTS_FAKE_STOCK_H

#include "../shim/firebird.h"

struct fake_stock {
	unsigned made, released, inits, flushes;	 /* plugin objects */
	unsigned started, cancelled, finished, disposed; /* sessions */
	unsigned events;				 /* of all kinds, definitions too */
	unsigned cleaned, threads_detached;
	char options[64]; /* of the last session */
	void *config;	  /* of the last plugin object */
	struct fb_master *master;
	/* To be said by the next init() or start_session(); NULL: nothing is wrong. */
	const char *error;
	const struct fb_profiler_session_vtable *session_vtable;
};

#endif
