/*
 * See targets.h.
 */
#include "targets.h"
#include "image.h"
#include "process_source.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* An engine's layout; its file is read once, not for each process that has loaded it. */
struct known_layout {
	dev_t device;
	ino_t inode;
	off_t size;
	struct timespec changed;
	struct layout layout;
	struct known_layout *next;
};

/* An engine that is there but can't be read may just be coming or going: it is tried so often. */
#define FAILURES_MAX 20

struct target {
	pid_t pid;
	struct process_source *source; /* NULL: it has no engine yet */
	bool hopeless;		       /* no Firebird, or it can't be recorded */
	unsigned failures;	       /* since there has been an engine in it */
	bool was_recorded; /* so if it has no engine, or no memory, it may be about to end */
	struct target *next;
};

struct targets {
	struct recorder *recorder;
	struct targets_options options;
	struct known_layout *layouts;
	struct target *targets; /* newest first: the one that was asked for is the last */
	bool warned_of_plan;
};

/* ---- Layouts ---- */

static bool is_file(const struct known_layout *known, const struct stat *status)
{
	return known->device == status->st_dev && known->inode == status->st_ino &&
	       known->size == status->st_size && known->changed.tv_sec == status->st_ctim.tv_sec &&
	       known->changed.tv_nsec == status->st_ctim.tv_nsec;
}

static bool load_layout(const struct targets *targets, const char *engine, struct layout *layout,
			char error[TARGETS_ERROR_SIZE])
{
	char identity[LAYOUT_IDENTITY_SIZE];

	return layout_identify(engine, identity, error) &&
	       layout_load(layout, targets->options.layouts, identity, error);
}

/* NULL: it is not known. */
static const struct layout *find_layout(struct targets *targets, const char *engine,
					char error[TARGETS_ERROR_SIZE])
{
	struct known_layout *known;
	struct stat status;

	if (stat(engine, &status)) {
		snprintf(error, TARGETS_ERROR_SIZE, "its engine, %.800s, cannot be read: %s",
			 engine, strerror(errno));
		return NULL;
	}
	for (known = targets->layouts; known; known = known->next) {
		if (is_file(known, &status))
			return &known->layout;
	}
	known = calloc(1, sizeof(*known));
	if (!known) {
		snprintf(error, TARGETS_ERROR_SIZE, "out of memory");
		return NULL;
	}
	if (!load_layout(targets, engine, &known->layout, error)) {
		free(known);
		return NULL;
	}
	known->device = status.st_dev;
	known->inode = status.st_ino;
	known->size = status.st_size;
	known->changed = status.st_ctim;
	known->next = targets->layouts;
	targets->layouts = known;
	return &known->layout;
}

/* ---- One process ---- */

static bool has_loaded(pid_t pid, const char *name)
{
	struct image linker, image;
	char path[4096];

	return image_linker(pid, &linker) &&
	       image_find(pid, &linker, name, &image, path, sizeof(path));
}

/* Firebird's client library, which loads engines, is there. */
static bool is_firebird(pid_t pid)
{
	return has_loaded(pid, "libfbclient");
}

/* Whether an engine may yet come, or the one that is there be read. */
static bool may_come(struct target *target)
{
	if (!is_firebird(target->pid))
		return false;
	target->failures = has_loaded(target->pid, "libEngine") ? target->failures + 1 : 0;
	return target->failures < FAILURES_MAX;
}

/* Not if only its exit code is left. */
static bool is_alive(pid_t pid)
{
	char path[64], text[512] = "", *state;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	text[fread(text, 1, sizeof(text) - 1, file)] = 0;
	fclose(file);
	/* Behind its name, which may hold anything. */
	state = strrchr(text, ')');
	return state && state[1] && state[2] != 'Z' && state[2] != 'X';
}

/* Said once, for the processes of a Classic server are all alike. */
static bool open_plan(struct targets *targets, const struct process *process,
		      const struct layout *layout, struct process_plan *plan)
{
	char error[STACK_ERROR_SIZE], sentence[TARGETS_ERROR_SIZE];

	if (!targets->options.open_plan)
		return false;
	if (targets->options.open_plan(process, layout, plan, error))
		return true;
	snprintf(sentence, sizeof(sentence), "its record sources are not recorded: %s", error);
	if (targets->options.warn && !targets->warned_of_plan)
		targets->options.warn(process->pid, sentence);
	targets->warned_of_plan = true;
	return false;
}

/*
 * Has the process recorded if there is an engine in it.  False: that can't be, as `error` says, now or
 * later.
 */
static bool try_process(struct targets *targets, struct target *target,
			char error[TARGETS_ERROR_SIZE])
{
	struct process *process = process_open(target->pid, error);
	const struct layout *layout;
	struct process_plan plan;
	bool has_plan;

	if (!process)
		return may_come(target);
	target->failures = 0;
	layout = find_layout(targets, process->engine_path, error);
	if (!layout) {
		process_close(process);
		return false;
	}
	has_plan = open_plan(targets, process, layout, &plan);
	target->source = process_source_new(process, layout);
	if (target->source && has_plan)
		process_source_set_plan(target->source, &plan);
	else if (has_plan)
		plan.free(plan.context);
	if (target->source && recorder_add(targets->recorder, process_source_of(target->source)))
		return true;
	if (target->source)
		process_source_free(target->source);
	target->source = NULL;
	snprintf(error, TARGETS_ERROR_SIZE, "out of memory");
	return false;
}

static void let_go(struct targets *targets, struct target *target)
{
	if (!target->source)
		return;
	recorder_remove(targets->recorder, process_source_of(target->source));
	process_source_free(target->source);
	target->source = NULL;
	target->was_recorded = true;
}

static struct target *add_target(struct targets *targets, pid_t pid)
{
	struct target *target = calloc(1, sizeof(*target));

	if (!target)
		return NULL;
	target->pid = pid;
	target->next = targets->targets;
	targets->targets = target;
	return target;
}

static bool is_known(const struct targets *targets, pid_t pid)
{
	for (const struct target *target = targets->targets; target; target = target->next) {
		if (target->pid == pid)
			return true;
	}
	return false;
}

/* ---- Children ---- */

static void add_children_of_thread(struct targets *targets, pid_t pid, const char *thread)
{
	char path[320];
	FILE *file;
	int child;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/children", (int)pid, thread);
	file = fopen(path, "re");
	if (!file)
		return;
	while (fscanf(file, "%d", &child) == 1) {
		if (!is_known(targets, child))
			add_target(targets, child);
	}
	fclose(file);
}

static void add_children(struct targets *targets, pid_t pid)
{
	const struct dirent *entry;
	char path[64];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	if (!tasks)
		return;
	while ((entry = readdir(tasks))) {
		if (entry->d_name[0] != '.')
			add_children_of_thread(targets, pid, entry->d_name);
	}
	closedir(tasks);
}

/* ---- All of them ---- */

static void drop_ended(struct targets *targets)
{
	struct target **link = &targets->targets;

	while (*link) {
		struct target *target = *link;

		/* The engine was unloaded, or the process has ended. */
		if (target->source && process_source_of(target->source)->ended)
			let_go(targets, target);
		if (target->source || is_alive(target->pid)) {
			link = &target->next;
		} else {
			*link = target->next;
			free(target);
		}
	}
}

bool targets_update(struct targets *targets, char error[TARGETS_ERROR_SIZE])
{
	*error = 0;
	drop_ended(targets);
	for (struct target *target = targets->targets; target; target = target->next) {
		/* New ones come before it: their own children are for the next time. */
		if (targets->options.children && !target->hopeless)
			add_children(targets, target->pid);
	}
	for (struct target *target = targets->targets; target; target = target->next) {
		if (target->source || target->hopeless || try_process(targets, target, error) ||
		    target->was_recorded || !is_alive(target->pid))
			continue;
		target->hopeless = true;
		if (target->pid == targets->options.pid)
			return false;
		if (targets->options.warn && is_firebird(target->pid))
			targets->options.warn(target->pid, error);
	}
	*error = 0;
	return targets->targets != NULL;
}

unsigned targets_recorded(const struct targets *targets)
{
	unsigned count = 0;

	for (const struct target *target = targets->targets; target; target = target->next)
		count += target->source != NULL;
	return count;
}

struct targets *targets_new(struct recorder *recorder, const struct targets_options *options,
			    char error[TARGETS_ERROR_SIZE])
{
	struct targets *targets = calloc(1, sizeof(*targets));

	if (!targets || !(targets->recorder = recorder, targets->options = *options,
			  add_target(targets, options->pid))) {
		free(targets);
		snprintf(error, TARGETS_ERROR_SIZE, "out of memory");
		return NULL;
	}
	if (targets_update(targets, error))
		return targets;
	if (!*error)
		snprintf(error, TARGETS_ERROR_SIZE, "no such process: give the PID of a server");
	targets_free(targets);
	return NULL;
}

void targets_free(struct targets *targets)
{
	while (targets->targets) {
		struct target *target = targets->targets;

		targets->targets = target->next;
		let_go(targets, target);
		free(target);
	}
	while (targets->layouts) {
		struct known_layout *known = targets->layouts;

		targets->layouts = known->next;
		free(known);
	}
	free(targets);
}
