/*
 * What logs hold, for people: see log_info.h.
 */
#include "log_info.h"

#include <inttypes.h>

#include "command.h"
#include "text.h"

const char *log_info_state(const struct model_log *log)
{
	switch (log->state) {
	case LOG_RECORDING:
		if (log->liveness == LOG_RECORDED)
			return "recording";
		return log->liveness == LOG_NOT_RECORDED ?
			       "never closed: its process was killed, or this is a copy" :
			       "recording, or its process was killed";
	case LOG_CLOSED:
		return "closed";
	case LOG_DISK_FULL:
		return "stopped because the disk was full: what came later is missing";
	case LOG_QUOTA_REACHED:
		return "stopped at FBPROF_MAX_BYTES: what came later is missing";
	}
	return "unknown";
}

/* What is not said is not printed; strings from the log are made harmless. */
static void print_field(struct sink *sink, const char *name, const char *value)
{
	char *line;

	if (!value || !*value)
		return;
	line = text_line(value);
	sink_print(sink, "%-14s %s\n", name, line);
	g_free(line);
}

static void print_taken(struct sink *sink, const char *name, char *value)
{
	print_field(sink, name, value);
	g_free(value);
}

static char *duration_of(const struct model_session *session)
{
	if (!session->end_time || session->end_time < session->start_time)
		return NULL;
	return text_lone_time((uint64_t)session->end_time - (uint64_t)session->start_time);
}

char *log_info_session(const struct model_session *session)
{
	GString *text = g_string_new(NULL);
	char *duration = duration_of(session);

	g_string_printf(text, "%" PRId64, session->profile_id);
	if (session->description)
		g_string_append_printf(text, " (%s)", session->description);
	g_string_append_printf(text, ", %s, attachment %" PRId64 ", %s", session->user,
			       session->attachment_id, model_session_end_name(session->end));
	if (duration)
		g_string_append_printf(text, " after %s", duration);
	g_free(duration);
	return g_string_free(text, FALSE);
}

char *log_info_mode(const struct model_session *session)
{
	bool passive = session->mode == LOG_MODE_PASSIVE;
	char *interval = text_lone_time(session->sampling_interval);
	char *mode = g_strdup_printf("%s%s%s%s%s", model_session_mode(session),
				     session->sampling_interval ? " every " : "",
				     session->sampling_interval ? interval : "",
				     session->detailed ? ", detailed requests" : "",
				     session->preloaded ? "" :
				     passive		? ", from another process" :
							  ", with the engine's own clock");

	g_free(interval);
	return mode;
}

/* In ns, with one decimal, as it comes in ps. */
static void append_event_cost(GString *text, uint64_t least, uint64_t most, const char *event)
{
	char digits[2][32];

	g_ascii_formatd(digits[0], sizeof(digits[0]), "%.1f", (double)least / 1000);
	g_ascii_formatd(digits[1], sizeof(digits[1]), "%.1f", (double)most / 1000);
	g_string_append_printf(text, "%s%s%s%s ns %s", text->len ? ", " : "", digits[0],
			       least == most ? "" : " to ", least == most ? "" : digits[1], event);
}

static char *event_costs(struct model_session *const *sessions, unsigned count)
{
	static const char *const events[LOG_EVENTS] = {
		[LOG_EVENT_LINE] = "a line",
		[LOG_EVENT_OPEN] = "an open",
		[LOG_EVENT_FETCH] = "a fetch",
		[LOG_EVENT_REQUEST] = "a request",
		[LOG_EVENT_ROW] = "a fetch from the top of a plan",
	};
	GString *text = g_string_new(NULL);

	for (unsigned event = 0; event < LOG_EVENTS; event++) {
		uint64_t least = UINT64_MAX, most = 0;

		for (unsigned i = 0; i < count; i++) {
			uint64_t cost = sessions[i]->totals.event_cost[event];

			least = cost ? MIN(least, cost) : least;
			most = MAX(most, cost);
		}
		if (most)
			append_event_cost(text, least, most, events[event]);
	}
	return g_string_free(text, FALSE);
}

char *log_info_cost(struct model_session *const *sessions, unsigned count)
{
	char *time, *events, *text;
	uint64_t cost = 0;

	for (unsigned i = 0; i < count; i++)
		cost += sessions[i]->totals.cost;
	if (!cost)
		return NULL;
	time = text_lone_time(cost);
	events = event_costs(sessions, count);
	text = g_strdup_printf(*events ? "%s (%s)" : "%s", time, events);
	g_free(events);
	g_free(time);
	return text;
}

static void print_log(const struct model_log *log, struct sink *sink)
{
	const struct log_usage *usage = &log->usage;
	char **losses = command_losses(log);
	char *size = text_size(usage->file_size), *records = text_size(usage->record_bytes);

	print_field(sink, "log", log->path);
	print_field(sink, "state", log_info_state(log));
	print_taken(sink, "process",
		    g_strdup_printf("%s, pid %" PRIu32 " on %s", log->program ? log->program : "?",
				    log->pid, log->host ? log->host : "?"));
	print_field(sink, "recorder", log->fbprof);
	print_field(sink, "clock", log->clock);
	print_taken(sink, "started", text_moment(log->start_time));
	print_taken(sink, "size",
		    g_strdup_printf(
			    "%s, %" PRIu64 " chunks: %" PRIu64 " with %s of records, %" PRIu64
			    " with %" PRIu64 " blocks in use and %" PRIu64 " free",
			    size, usage->chunks, usage->record_chunks, records, usage->block_chunks,
			    usage->blocks - usage->free_blocks, usage->free_blocks));
	for (guint i = 0; i < log->notices->len; i++)
		print_field(sink, "notice", log->notices->pdata[i]);
	for (char **loss = losses; *loss; loss++)
		print_field(sink, "missing", *loss);
	if (!*losses)
		print_field(sink, "missing", "nothing");
	g_strfreev(losses);
	g_free(records);
	g_free(size);
}

static void print_sampling(const struct model_session *session, struct sink *sink)
{
	const struct log_session_totals *totals = &session->totals;
	char *sampled = text_lone_time(session->sampled_time);
	char *torn = text_lone_time(totals->torn_time);

	print_taken(sink, "  samples",
		    g_strdup_printf("%" PRIu64 " of %s, %" PRIu64 " torn of %s", totals->samples,
				    sampled, totals->torn_samples, torn));
	g_free(torn);
	g_free(sampled);
}

/* How often the sampler looked: the time that it was busy by the times that it woke up meanwhile. */
static void print_interval(const struct model_session *session, struct sink *sink)
{
	const struct log_session_totals *totals = &session->totals;
	char *asked, *reached, *busy;

	if (!session->sampling_interval || !totals->wakeups || !totals->sampled_time)
		return;
	asked = text_lone_time(session->sampling_interval);
	reached = text_lone_time(totals->sampled_time / totals->wakeups);
	busy = text_lone_time(totals->sampled_time);
	print_taken(sink, "  interval",
		    g_strdup_printf("%s asked for, %s reached: %s in %" PRIu64 " wake-ups, %" PRIu64
				    " of them late to spare the CPU",
				    asked, reached, busy, totals->wakeups, totals->stretched));
	g_free(busy);
	g_free(reached);
	g_free(asked);
}

static void print_session(struct model_session *session, struct sink *sink)
{
	sink_put(sink, "\n");
	print_taken(sink, "session", log_info_session(session));
	print_field(sink, "  database", session->database);
	print_field(sink, "  engine", session->engine);
	print_taken(sink, "  started", text_moment(session->start_time));
	if (session->end_time)
		print_taken(sink, "  ended", text_moment(session->end_time));
	print_taken(sink, "  mode", log_info_mode(session));
	print_field(sink, "  options", session->options);
	if (model_is_sampled(session))
		print_sampling(session, sink);
	print_interval(session, sink);
	print_taken(sink, "  cost", log_info_cost(&session, 1));
	print_taken(sink, "  holds",
		    g_strdup_printf("%u statements, %u cursors, %u record sources, %" PRIu32
				    " requests, %" PRIu32 " call tree nodes",
				    session->statements->len, session->cursors->len,
				    session->record_sources->len, session->request_count,
				    session->node_count));
}

void log_info_print(const struct model *model, struct sink *sink)
{
	for (guint i = 0; i < model->logs->len; i++) {
		const struct model_log *log = model->logs->pdata[i];

		if (i)
			sink_put(sink, "\n\n");
		print_log(log, sink);
		for (guint j = 0; j < model->sessions->len; j++) {
			struct model_session *session = model->sessions->pdata[j];

			if (session->log == log)
				print_session(session, sink);
		}
	}
	if (model->cancelled_count)
		sink_print(sink, "\n%u cancelled sessions left out: add --all to see them\n",
			   model->cancelled_count);
}
