/*
 * See process_source.h.
 */
#include "process_source.h"
#include "../sampler/abandoned.h"
#include "memory.h"
#include "witness.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Another process's thread has no clock that we may read, but a file that tells what it has used. */
struct cpu_file {
	pid_t thread;
	int fd; /* of /proc/PID/task/ID/schedstat; -1: there is none */
};

struct process_source {
	struct recorder_source source;
	struct process *process;
	const struct layout *layout;
	bool own; /* it is this process */
	struct process_plan plan;
	bool has_copy;		       /* of a stack, of the last stop */
	struct passive_position after; /* read_sampled_plan() */
	struct cpu_file *files;
	uint32_t file_count, file_room;

	/* Of each thread, the way from its TLS block to its request, read for all of them at once. */
	struct head *heads;
	uint32_t head_room;
	bool has_heads; /* they are of this look */
};

/*
 * Most threads of a server are idle: their way ends at its first pointer, or a thread of the engine's
 * own at its second, if the first one leads to where it did when the thread was idle before.
 */
struct head {
	uint64_t first, second;
	uint64_t expected; /* of `first`; 0: unknown, and then `second` is not read */
};

static struct process_source *self(struct recorder_source *source)
{
	return (struct process_source *)source;
}

struct recorder_source *process_source_of(struct process_source *source)
{
	return &source->source;
}

/* ---- CPU time ---- */

static bool has_thread(const struct process *process, pid_t thread)
{
	for (uint32_t i = 0; i < process->count; i++) {
		if (process->threads[i].id == thread)
			return true;
	}
	return false;
}

static void close_file(const struct cpu_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
}

static void close_files_of_ended(struct process_source *source)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < source->file_count; i++) {
		if (has_thread(source->process, source->files[i].thread))
			source->files[kept++] = source->files[i];
		else
			close_file(&source->files[i]);
	}
	source->file_count = kept;
}

static int open_file(const struct process_source *source, pid_t thread)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)source->process->pid,
		 (int)thread);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* -1: it can't be opened. */
static int find_file(struct process_source *source, pid_t thread)
{
	for (uint32_t i = 0; i < source->file_count; i++) {
		if (source->files[i].thread == thread)
			return source->files[i].fd;
	}
	if (source->file_count == source->file_room) {
		uint32_t room = source->file_room ? 2 * source->file_room : 8;
		struct cpu_file *files = realloc(source->files, room * sizeof(*files));

		if (!files)
			return -1;
		source->files = files;
		source->file_room = room;
	}
	source->files[source->file_count] =
		(struct cpu_file){ .thread = thread, .fd = open_file(source, thread) };
	return source->files[source->file_count++].fd;
}

/* Of schedstat the first number is the time on a CPU in ns, as of the kernel's last tick. */
static uint64_t cpu_time(struct recorder_source *interface, pid_t thread)
{
	struct process_source *source = self(interface);
	char text[64];
	ssize_t size;
	int fd;

	if (source->own)
		return thread_cpu_time(thread);
	fd = find_file(source, thread);
	size = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
	if (size <= 0)
		return 0;
	text[size] = 0;
	return strtoull(text, NULL, 10);
}

/* ---- The heads of the ways ---- */

/* Adds what is to be read of a thread's way; returns the number of pieces. */
static unsigned add_head(const struct process_source *source, uint32_t thread,
			 struct memory_piece *pieces)
{
	const struct layout_path *path = &source->layout->path[LAYOUT_REQUEST];
	uint64_t tls = source->process->threads[thread].tls;
	struct head *head = &source->heads[thread];

	head->first = 0;
	head->second = 1; /* not read */
	if (!tls)
		return 0;
	pieces[0] = (struct memory_piece){ tls + (uint64_t)(int64_t)path->offset[0], &head->first,
					   sizeof(head->first) };
	if (!head->expected || path->steps < 2)
		return 1;
	pieces[1] = (struct memory_piece){ head->expected + (uint64_t)(int64_t)path->offset[1],
					   &head->second, sizeof(head->second) };
	return 2;
}

/* False: one can't be read, as a thread has ended, for instance. */
static bool read_heads(struct process_source *source)
{
	const struct process *process = source->process;
	struct memory_piece pieces[MEMORY_PIECES];
	unsigned count = 0;

	for (uint32_t i = 0; i < process->count; i++) {
		count += add_head(source, i, &pieces[count]);
		if (count && (count + 2 > MEMORY_PIECES || i + 1 == process->count)) {
			if (!memory_read(process->pid, pieces, count))
				return false;
			count = 0;
		}
	}
	return true;
}

/* Threads may have other places in the list now. */
static void forget_heads(struct process_source *source)
{
	if (source->head_room < source->process->count) {
		free(source->heads);
		source->head_room = source->process->count;
		source->heads = malloc(source->head_room * sizeof(*source->heads));
		if (!source->heads)
			source->head_room = 0;
	}
	for (uint32_t i = 0; i < source->head_room; i++)
		source->heads[i].expected = 0;
}

/*
 * So few are each looked at by itself: what is known to be at work may be idle by the time that its
 * position is read, and short requests would be missed.
 */
#define FEW_THREADS 8

static void begin_look(struct recorder_source *interface)
{
	struct process_source *source = self(interface);

	/* Else each is looked at by itself. */
	source->has_heads =
		source->process->count > FEW_THREADS && source->heads && read_heads(source);
	if (!source->has_heads)
		forget_heads(source);
}

static bool is_idle(const struct head *head)
{
	return !head->first || (head->first == head->expected && !head->second);
}

/* ---- The rest is passed on ---- */

static bool update(struct recorder_source *interface)
{
	struct process_source *source = self(interface);

	if (!process_update(source->process))
		return false;
	close_files_of_ended(source);
	if (source->plan.update)
		source->plan.update(source->plan.context, source->process);
	forget_heads(source);
	interface->threads = source->process->threads;
	interface->count = source->process->count;
	return true;
}

static enum passive_state read_position(struct recorder_source *interface,
					const struct process_thread *thread,
					struct passive_position *position)
{
	struct process_source *source = self(interface);
	struct head *head = source->has_heads ? &source->heads[thread - interface->threads] : NULL;
	enum passive_state state;

	if (head && is_idle(head)) {
		position->count = 0;
		position->first = (struct passive_head){ 0 };
		return PASSIVE_IDLE;
	}
	state = passive_read(source->process->pid, source->layout, thread, position);
	if (head)
		head->expected = state == PASSIVE_IDLE ? head->first : 0;
	return state;
}

/* What is read while the thread stands still. */
struct moment {
	struct recorder_source *source;
	const struct process_thread *thread;
	struct passive_position *position;
	enum passive_state state;
};

static void read_moment(void *context)
{
	struct moment *moment = context;
	struct process_source *source = self(moment->source);

	moment->state = passive_read(source->process->pid, source->layout, moment->thread,
				     moment->position);
}

static void clear(struct plan_chain *chain)
{
	chain->count = 0;
	chain->whole = false;
}

static enum passive_state read_stopped(struct recorder_source *interface,
				       const struct process_thread *thread,
				       struct passive_position *position, uint64_t *held)
{
	struct moment moment = { interface, thread, position, PASSIVE_TORN };
	struct process_source *source = self(interface);

	*held = 0;
	source->has_copy =
		source->plan.stop(source->plan.context, thread->id, held, read_moment, &moment);
	if (!source->has_copy)
		read_moment(&moment);
	return moment.state;
}

static void read_stopped_plan(struct recorder_source *interface,
			      const struct process_thread *thread,
			      const struct passive_position *position, struct plan_chain *chain)
{
	struct process_source *source = self(interface);

	(void)thread;
	(void)position;
	clear(chain);
	if (source->has_copy)
		source->plan.read_stopped(source->plan.context, chain);
}

/* Where the innermost request is. */
static struct plan_place place_of(const struct passive_position *position)
{
	const struct passive_request *innermost = &position->requests[position->count - 1];

	return (struct plan_place){ innermost->request, innermost->line, innermost->column };
}

static bool has_request(const struct passive_position *position, uint64_t request)
{
	for (uint32_t i = 0; i < position->count; i++) {
		if (position->requests[i].request == request)
			return true;
	}
	return false;
}

/*
 * Where the thread isn't stopped, the chain is of some time between then and now.  It counts if the request that is innermost
 * now was so in the sample, too, and has not been seen at another line in between.  It may have been started anew: where
 * calls are short no two looks would see the same one.
 */
static bool is_of(const struct plan_chain *chain, struct plan_place then,
		  const struct passive_position *position)
{
	struct plan_place now = place_of(position);

	if (!chain->whole || chain->request != now.request)
		return false;
	for (uint32_t i = 0; i < chain->count; i++) {
		if (!has_request(position, chain->sources[i].request))
			return false;
	}
	return then.request != now.request || (then.line == now.line && then.column == now.column);
}

static void read_sampled_plan(struct recorder_source *interface,
			      const struct process_thread *thread,
			      const struct passive_position *position, struct plan_chain *chain)
{
	struct process_source *source = self(interface);
	struct moment moment = { interface, thread, &source->after, PASSIVE_TORN };
	struct plan_place now = place_of(position), then = now;

	if (!source->plan.sample(source->plan.context, thread->id, &then, chain, read_moment,
				 &moment) ||
	    moment.state != PASSIVE_BUSY || !is_of(chain, then, position) ||
	    !is_of(chain, now, &source->after))
		clear(chain);
}

static void read_step(struct recorder_source *interface, const struct plan_source *what, char *text,
		      size_t size)
{
	struct process_source *source = self(interface);

	source->plan.describe(source->plan.context, what, text, size);
}

void process_source_set_plan(struct process_source *source, const struct process_plan *plan)
{
	source->plan = *plan;
	source->source.read_stopped = plan->stop ? read_stopped : NULL;
	source->source.read_plan = plan->stop ? read_stopped_plan : read_sampled_plan;
	source->source.step = read_step;
}

static void read_text(struct recorder_source *interface, enum layout_fact fact, uint64_t object,
		      char *text, size_t size)
{
	struct process_source *source = self(interface);

	passive_text(source->process->pid, source->layout, fact, object, text, size);
}

static bool is_same(struct recorder_source *interface, uint64_t statement, void **witness)
{
	struct process_source *source = self(interface);

	if (*witness)
		return witness_agrees(source->process->pid, *witness);
	*witness = witness_new(source->process->pid, source->layout, statement);
	return false;
}

struct process_source *process_source_new(struct process *process, const struct layout *layout)
{
	struct process_source *source = calloc(1, sizeof(*source));

	if (!source) {
		process_close(process);
		return NULL;
	}
	source->source = (struct recorder_source){ .update = update,
						   .read = read_position,
						   .text = read_text,
						   .begin_look = begin_look,
						   .is_same = is_same,
						   .clock = passive_clock,
						   .cpu_time = cpu_time,
						   .engine = layout->engine };
	source->process = process;
	source->layout = layout;
	source->own = process->pid == getpid();
	return source;
}

void process_source_free(struct process_source *source)
{
	for (uint32_t i = 0; i < source->file_count; i++)
		close_file(&source->files[i]);
	free(source->files);
	free(source->heads);
	if (source->plan.context)
		source->plan.free(source->plan.context);
	process_close(source->process);
	free(source);
}
