#include "process.h"
#include "image.h"
#include "memory.h"
#include "position.h"
#include "threads.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define LOOK_INTERVAL_NS 20000000 /* for an engine to be loaded */

struct process_private {
	struct threads threads;
	bool inner_ids; /* glibc's thread ids are of another PID namespace than ours */
	struct process_thread *former;	/* as of the update before, or room for the next */
	uint32_t former_count, room[2]; /* of process->threads and of `former` */
};

static void explain(char error[PROCESS_ERROR_SIZE], const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void explain(char error[PROCESS_ERROR_SIZE], const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, PROCESS_ERROR_SIZE, format, arguments);
	va_end(arguments);
}

/* Reads up to size - 1 bytes of /proc/PID/NAME, and NUL.  False: none. */
static bool read_proc(pid_t pid, const char *name, char *text, size_t size)
{
	char path[64];
	ssize_t got = -1;
	int file;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file >= 0) {
		got = read(file, text, size - 1);
		close(file);
	}
	text[got > 0 ? got : 0] = '\0';
	return got > 0;
}

/* The value of a line "NAME:\tVALUE" of a status file, up to its end; NULL: there is none. */
static const char *status_value(char *status, const char *name)
{
	char *line = strstr(status, name), *end;

	if (line == NULL)
		return NULL;
	line += strlen(name);
	end = strchr(line, '\n');
	if (end != NULL)
		*end = '\0';
	return line;
}

/* Of a status file, the id in the innermost PID namespace; `levels`: in how many it has one. */
static pid_t inner_id(char *status, unsigned *levels)
{
	const char *ids = status_value(status, "\nNSpid:");
	char *end;
	long id = 0;

	*levels = 0;
	while (ids != NULL) {
		long next = strtol(ids, &end, 10);

		if (end == ids)
			break;
		id = next;
		ids = end;
		(*levels)++;
	}
	return (pid_t)id;
}

/* Permission */

static int yama_scope(void)
{
	int scope = 0;
	FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");

	if (file != NULL) {
		if (fscanf(file, "%d", &scope) != 1)
			scope = 0;
		fclose(file);
	}
	return scope;
}

static uid_t owner_of(pid_t pid)
{
	char status[4096];
	const char *value;

	if (!read_proc(pid, "status", status, sizeof(status)))
		return geteuid();
	value = status_value(status, "\nUid:");
	return value != NULL ? (uid_t)strtoul(value, NULL, 10) : geteuid();
}

/* The process is there, but closed to us. */
static void explain_permission(pid_t pid, char error[PROCESS_ERROR_SIZE])
{
	uid_t owner = owner_of(pid);
	int scope = yama_scope();

	if (scope >= 3)
		explain(error,
			"nobody may read another process here, as kernel.yama.ptrace_scope is %d: "
			"set it to 1 in /etc/sysctl.d and restart the machine",
			scope);
	else if (geteuid() == 0)
		explain(error, "not permitted to read its memory, though as root: in a container, "
			       "run this outside of it, or give it the capability SYS_PTRACE "
			       "(docker run --cap-add SYS_PTRACE)");
	else if (owner != geteuid())
		explain(error, "it belongs to another user (uid %u): run this as root",
			(unsigned)owner);
	else if (scope > 0)
		explain(error,
			"kernel.yama.ptrace_scope is %d, so only root may read it: run this as "
			"root, or sysctl kernel.yama.ptrace_scope=0",
			scope);
	else
		explain(error, "not permitted to read its memory, as it has changed its user or "
			       "was started with other rights: run this as root");
}

/* What the process says about itself, without any right to read its memory. */
static bool check_alive(pid_t pid, char error[PROCESS_ERROR_SIZE])
{
	char status[4096];
	const char *state;

	if (pid <= 0 || (kill(pid, 0) != 0 && errno == ESRCH)) {
		explain(error, "no such process: give the PID that ps shows here, not the one "
			       "inside a container");
		return false;
	}
	if (!read_proc(pid, "status", status, sizeof(status))) {
		explain(error, "/proc shows nothing of it: mount /proc, without hidepid, or run "
			       "this as root");
		return false;
	}
	state = status_value(status, "\nState:");
	if (state != NULL && strchr(state, 'Z') != NULL) {
		explain(error, "it has ended: its parent has not yet asked for its exit code");
		return false;
	}
	return true;
}

/* Engine file */

struct mapping {
	uint64_t start, end;
	unsigned major, minor;
	uint64_t inode;
	bool deleted;
	char path[4096];
};

/* A line of /proc/PID/maps. */
static bool parse_mapping(char *line, struct mapping *mapping)
{
	static const char deleted[] = " (deleted)";
	unsigned long start, end, inode;
	int path = 0;
	size_t length;

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%lx-%lx %*4s %*x %x:%x %lu %n", &start, &end, &mapping->major,
		   &mapping->minor, &inode, &path) < 5 ||
	    path == 0 || line[path] != '/')
		return false;
	mapping->start = start;
	mapping->end = end;
	mapping->inode = inode;
	snprintf(mapping->path, sizeof(mapping->path), "%s", line + path);
	length = strlen(mapping->path);
	mapping->deleted = length > sizeof(deleted) &&
			   strcmp(mapping->path + length - (sizeof(deleted) - 1), deleted) == 0;
	if (mapping->deleted)
		mapping->path[length - (sizeof(deleted) - 1)] = '\0';
	return true;
}

/* The mapping of a file that has this address. */
static bool find_mapping(pid_t pid, uint64_t address, struct mapping *mapping)
{
	char path[64], *line = NULL;
	size_t size = 0;
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	while (!found && getline(&line, &size, file) > 0)
		found = parse_mapping(line, mapping) && address >= mapping->start &&
			address < mapping->end;
	free(line);
	fclose(file);
	return found;
}

/* Does the file begin as the image in memory does? Its headers tell one build from another. */
static bool begins_alike(pid_t pid, uint64_t base, int file)
{
	unsigned char there[4096], here[4096];
	ssize_t got = pread(file, here, sizeof(here), 0);

	return got == (ssize_t)sizeof(here) && memory_load(pid, base, there, sizeof(there)) &&
	       memcmp(here, there, sizeof(here)) == 0;
}

/* The device that maps tells is not the one that stat does on layered file systems. */
static bool is_mapped_file(const struct process *process, const struct mapping *mapping, int file)
{
	struct stat status;

	if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
		return false;
	if (status.st_ino == mapping->inode && major(status.st_dev) == mapping->major &&
	    minor(status.st_dev) == mapping->minor)
		return true;
	return !mapping->deleted && status.st_ino == mapping->inode &&
	       begins_alike(process->pid, process->engine_base, file);
}

static bool open_engine(struct process *process, const struct mapping *mapping,
			char error[PROCESS_ERROR_SIZE])
{
	int file;
	bool same;

	snprintf(process->engine, sizeof(process->engine), "%s", mapping->path);
	/* Needs no more than ptrace does, but is gone if the file was replaced. */
	snprintf(process->engine_path, sizeof(process->engine_path), "/proc/%d/root%s",
		 (int)process->pid, mapping->path);
	file = open(process->engine_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	same = file >= 0 && is_mapped_file(process, mapping, file);
	if (file >= 0)
		close(file);
	if (same)
		return true;
	snprintf(process->engine_path, sizeof(process->engine_path), "/proc/%d/map_files/%lx-%lx",
		 (int)process->pid, (unsigned long)mapping->start, (unsigned long)mapping->end);
	file = open(process->engine_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file >= 0) {
		close(file);
		return true;
	}
	explain(error,
		"the file of its engine, %.160s, was removed or replaced since it started: restart "
		"the server, or run this as root",
		mapping->path);
	return false;
}

/* Opening */

/* Firebird without an engine, or something else? */
static void explain_no_engine(pid_t pid, const struct image *linker, char error[PROCESS_ERROR_SIZE])
{
	struct image client;
	char path[4096], name[64];

	if (image_find(pid, linker, "libfbclient", &client, path, sizeof(path))) {
		explain(error, "Firebird, but its engine is not loaded, since nobody is connected "
			       "here: connect first, or wait for it. Classic mode has a process "
			       "for each connection: give the PID of one");
		return;
	}
	if (!read_proc(pid, "comm", name, sizeof(name)))
		name[0] = '\0';
	name[strcspn(name, "\n")] = '\0';
	explain(error,
		"not a Firebird process, but %s: give the PID of the server, or of a "
		"program that uses Firebird embedded",
		name[0] != '\0' ? name : "something else");
}

enum opening {
	OPENED,
	NOT_YET, /* the engine may still be loaded */
	FAILED
};

static bool is_readable(pid_t pid, struct image *linker, char error[PROCESS_ERROR_SIZE])
{
	char maps[64];

	if (image_linker(pid, linker))
		return true;
	errno = 0;
	if (kill(pid, 0) != 0 && errno == ESRCH)
		explain(error, "it has ended");
	else if (!read_proc(pid, "maps", maps, sizeof(maps)) && errno == 0)
		explain(error, "not a Firebird process: it has no memory of its own");
	else
		explain_permission(pid, error);
	return false;
}

static enum opening find_engine(struct process *process, char error[PROCESS_ERROR_SIZE])
{
	struct image linker, libc, engine;
	struct mapping mapping;
	char path[4096];

	if (!check_alive(process->pid, error) || !is_readable(process->pid, &linker, error))
		return FAILED;
	if (!image_find(process->pid, &linker, "libEngine", &engine, path, sizeof(path))) {
		explain_no_engine(process->pid, &linker, error);
		return NOT_YET;
	}
	process->engine_base = engine.base;
	if (!find_mapping(process->pid, engine.dynamic, &mapping)) {
		explain(error, "its engine was unloaded at this very moment: try again");
		return NOT_YET;
	}
	if (!open_engine(process, &mapping, error))
		return FAILED;
	if (!image_find(process->pid, &linker, "libc.so.", &libc, path, sizeof(path)) ||
	    !threads_open(&process->private->threads, process->pid, &linker, &libc, &engine)) {
		explain(error, "the C library there does not tell its threads: glibc 2.34 or later "
			       "is needed");
		return FAILED;
	}
	return OPENED;
}

static enum opening try_open(pid_t pid, struct process **result, char error[PROCESS_ERROR_SIZE])
{
	struct process *process = calloc(1, sizeof(*process));
	char status[4096];
	enum opening opening;
	unsigned levels = 1;

	*result = NULL;
	if (process != NULL)
		process->private = calloc(1, sizeof(*process->private));
	if (process == NULL || process->private == NULL) {
		process_close(process);
		explain(error, "no memory left");
		return FAILED;
	}
	process->pid = pid;
	opening = find_engine(process, error);
	if (opening == OPENED && read_proc(pid, "status", status, sizeof(status)))
		inner_id(status, &levels);
	process->private->inner_ids = levels > 1;
	if (opening == OPENED && !process_update(process)) {
		explain(error, "it has ended");
		opening = NOT_YET;
	}
	if (opening == OPENED)
		*result = process;
	else
		process_close(process);
	return opening;
}

struct process *process_open(pid_t pid, char error[PROCESS_ERROR_SIZE])
{
	return process_await(pid, 0, error);
}

struct process *process_await(pid_t pid, unsigned milliseconds, char error[PROCESS_ERROR_SIZE])
{
	const struct timespec interval = { .tv_nsec = LOOK_INTERVAL_NS };
	uint64_t deadline = passive_clock() + milliseconds * (uint64_t)1000000;
	struct process *process;
	int saved = errno;

	while (try_open(pid, &process, error) == NOT_YET && passive_clock() < deadline)
		nanosleep(&interval, NULL);
	errno = saved;
	return process;
}

static void forget_ended(struct process_private *private)
{
	for (uint32_t i = 0; i < private->former_count; i++)
		free(private->former[i].ahead);
	private->former_count = 0;
}

void process_close(struct process *process)
{
	if (process == NULL)
		return;
	if (process->private != NULL) {
		threads_close(&process->private->threads);
		forget_ended(process->private);
		free(process->private->former);
	}
	for (uint32_t i = 0; i < process->count; i++)
		free(process->threads[i].ahead);
	free(process->private);
	free(process->threads);
	free(process);
}

/* Threads */

/* The id that we know a thread by, from the one in its own PID namespace; 0: there is none. */
static pid_t outer_id(pid_t pid, pid_t inner)
{
	char name[288], status[4096];
	struct dirent *entry;
	unsigned levels;
	pid_t found = 0;
	DIR *tasks;

	snprintf(name, sizeof(name), "/proc/%d/task", (int)pid);
	tasks = opendir(name);
	if (tasks == NULL)
		return 0;
	while (found == 0 && (entry = readdir(tasks)) != NULL) {
		snprintf(name, sizeof(name), "task/%s/status", entry->d_name);
		if (entry->d_name[0] != '.' && read_proc(pid, name, status, sizeof(status)) &&
		    inner_id(status, &levels) == inner)
			found = (pid_t)strtol(entry->d_name, NULL, 10);
	}
	closedir(tasks);
	return found;
}

/* Few threads come and go: most are where they were.  NULL: the thread is new. */
static struct process_thread *find_former(const struct process *process, uint32_t index,
					  const struct process_thread *thread)
{
	struct process_thread *former = process->private->former;
	uint32_t count = process->private->former_count;

	for (uint32_t i = 0; i < count; i++, index++) {
		struct process_thread *candidate = &former[index % count];

		if (candidate->alive == thread->alive &&
		    candidate->alive_when == thread->alive_when)
			return candidate;
	}
	return NULL;
}

/* What is known of a thread stays with it.  False: it has ended, or can't be kept. */
static bool keep_thread(struct process *process, uint32_t index, struct process_thread *thread)
{
	struct process_thread *former = find_former(process, index, thread);

	if (former != NULL) {
		thread->id = former->id;
		thread->ahead = former->ahead;
		former->ahead = NULL;
	} else if (process->private->inner_ids) {
		thread->id = outer_id(process->pid, thread->alive_when);
	} else {
		thread->id = thread->alive_when;
	}
	if (thread->tls != 0 && thread->ahead == NULL)
		thread->ahead = passive_ahead_new();
	if (thread->ahead == NULL)
		thread->tls = 0;
	return thread->id > 0;
}

/* Makes the list the former one, and room for a new one.  False: no memory; nothing has changed. */
static bool turn_over(struct process *process, uint32_t room)
{
	struct process_private *private = process->private;
	struct process_thread *list = private->former;
	uint32_t list_room = private->room[1];

	if (room > list_room) {
		list = realloc(list, room * sizeof(*list));
		if (list == NULL)
			return false;
		list_room = room;
	}
	private->former = process->threads;
	private->former_count = process->count;
	private->room[1] = private->room[0];
	process->threads = list;
	process->count = 0;
	private->room[0] = list_room;
	return true;
}

bool process_update(struct process *process)
{
	struct threads *threads = &process->private->threads;
	enum threads_result result = threads_update(threads);

	if (result != THREADS_READ)
		return result != THREADS_GONE;
	if (!turn_over(process, threads->count))
		return true;
	for (uint32_t i = 0; i < threads->count; i++) {
		const struct threads_entry *entry = &threads->entries[i];
		struct process_thread thread = { .tls = entry->tls,
						 .alive = threads_id_address(threads, entry),
						 .alive_when = entry->id };

		if (entry->id > 0 && keep_thread(process, i, &thread))
			process->threads[process->count++] = thread;
		else
			free(thread.ahead);
	}
	forget_ended(process->private);
	return true;
}
