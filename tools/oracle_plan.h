/*
 * The profiler as an oracle for record sources: a plugin in this program, whose sessions tell a
 * learner what is at work.  One session at a time.
 */
#ifndef FBPROF_ORACLE_PLAN_H
#define FBPROF_ORACLE_PLAN_H

#include "../passive/learn_plan.h"

#define ORACLE_PLAN "FBPROF_PLANS" /* name of its plugin */

struct fb_master; /* shim/firebird.h */

/* Right after the client library was loaded, before it loads a module of its own.  Once. */
void oracle_plan_register(struct fb_master *master);

/* Who is told; NULL: nobody. */
void oracle_plan_watch(struct learn_plan *learner);

#endif
