/*
 * What logs hold, for people: `fbprof dump --info`.  One thread.
 */
#ifndef FBPROF_LOG_INFO_H
#define FBPROF_LOG_INFO_H

#include "model.h"
#include "sink.h"

/* How the log's recording stands: "recording", "closed" and so on. */
const char *log_info_state(const struct model_log *log);

/* "1 (description), SYSDBA, attachment 12, finished after 1.2 s"; the caller's to free. */
char *log_info_session(const struct model_session *session);

/* "sampled every 100 µs, detailed requests"; the caller's to free. */
char *log_info_mode(const struct model_session *session);

/*
 * What profiling took in some sessions: "1.2 s (23.0 ns a line, 29.0 to 31.0 ns a fetch)"; the caller's
 * to free.  NULL: nothing that is known.
 */
char *log_info_cost(struct model_session *const *sessions, unsigned count);

void log_info_print(const struct model *model, struct sink *sink);

#endif
