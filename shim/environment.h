/*
 * What the server's environment says about recording, besides FBPROF_OPTIONS (options.h).  Any thread;
 * no state.
 */
#ifndef FBPROF_ENVIRONMENT_H
#define FBPROF_ENVIRONMENT_H

#include "../output/log_writer.h"

/*
 * FBPROF_DIR and FBPROF_MAX_BYTES, and this process's name.  False, with a sentence in `error`, if one
 * is wrong.
 */
bool environment_log_options(struct log_options *options, char *error, size_t error_size);

/* FBPROF_SAMPLER_SHARE: what the sampler may use of a CPU, in percent.  False as above. */
bool environment_sampler_share(unsigned *share, char *error, size_t error_size);

#endif
