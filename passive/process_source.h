/*
 * A process that runs Firebird's engine, as the recorder's source: positions by a layout, CPU times by
 * the kernel's accounting.  One thread at a time.
 */
#ifndef FBPROF_PROCESS_SOURCE_H
#define FBPROF_PROCESS_SOURCE_H

#include "process.h"
#include "process_plan.h"
#include "recorder.h"

struct process_source;

/* Takes `process`, also upon failure; `layout` must outlive it.  NULL: out of memory. */
struct process_source *process_source_new(struct process *process, const struct layout *layout);

/* Not while a recorder has it. */
void process_source_free(struct process_source *source);

/* From now on it also tells record sources; takes `plan`. */
void process_source_set_plan(struct process_source *source, const struct process_plan *plan);

struct recorder_source *process_source_of(struct process_source *source);

#endif
