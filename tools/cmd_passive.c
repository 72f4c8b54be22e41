/*
 * `fbprof passive`: switches the recorder in a preloaded server on or off.
 */
#include "command.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../passive/control.h"
#include "recording.h"
#include "text.h"

#define LINK_NAME "/memfd:" CONTROL_NAME

/* How long the recorder may take to do as it is told: it identifies the engine's file first. */
#define PATIENCE 5000000000ull

/* What is wrong with the descriptor of a process: 0: it is none of a control. */
static int open_if_control(const char *path, int *fd)
{
	char target[PATH_MAX];
	ssize_t size = readlink(path, target, sizeof(target) - 1);

	if (size < 0)
		return 0; /* it was closed meanwhile */
	target[size] = 0;
	if (strncmp(target, LINK_NAME, strlen(LINK_NAME)) != 0)
		return 0;
	*fd = open(path, O_RDWR | O_CLOEXEC);
	return *fd < 0 && errno != ENOENT ? errno : 0;
}

/* An open file descriptor of the recorder's control; -1: it has none, or `error` is set. */
static int open_control(int pid, int *error)
{
	char path[320];
	const struct dirent *entry;
	int found = -1;
	DIR *files;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	files = opendir(path);
	*error = files ? 0 : errno;
	while (files && found < 0 && !*error && (entry = readdir(files))) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, entry->d_name);
		*error = open_if_control(path, &found);
	}
	if (files)
		closedir(files);
	return found;
}

static void explain(int pid, int error)
{
	char name[COMMAND_NAME_SIZE];

	command_process_name(pid, name);
	if (error == ENOENT)
		command_fail(name, "no such process: give the PID of a server");
	else if (error)
		command_fail(name, "cannot be reached: %s: run this as its user, or as root",
			     strerror(error));
	else
		command_fail(name,
			     "has no recorder to switch: it is not preloaded, FBPROF_OPTIONS in "
			     "its environment lack MODE=PASSIVE, or nobody has connected yet; "
			     "fbprof record --pid %d needs none of that",
			     pid);
}

/* Of the right size, which nobody can change any more: to touch it is no risk. */
static bool is_whole(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat status;

	return seals >= 0 && seals & F_SEAL_SHRINK && !fstat(fd, &status) &&
	       status.st_size == sizeof(struct control);
}

/* NULL, with a message, if there is none. */
static struct control *map_control(int pid)
{
	int error, fd = open_control(pid, &error);
	struct control *control = MAP_FAILED;
	char name[COMMAND_NAME_SIZE];

	if (fd < 0) {
		explain(pid, error);
		return NULL;
	}
	if (is_whole(fd))
		control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (control != MAP_FAILED && control->magic == CONTROL_MAGIC)
		return control;
	if (control != MAP_FAILED)
		munmap(control, sizeof(*control));
	command_fail(command_process_name(pid, name),
		     "its recorder is of another version than this fbprof: use the one that came "
		     "with its library");
	return NULL;
}

static bool has_answered(const struct control *control, bool on)
{
	enum control_state state = control_value(&control->state);

	return on ? state != CONTROL_IDLE : state == CONTROL_IDLE;
}

/* Waits until the recorder has done as it was told. */
static bool await(const struct control *control, bool on)
{
	uint64_t deadline = recording_now() + PATIENCE;
	uint32_t seen;

	while (seen = atomic_load(&control->state), !has_answered(control, on)) {
		if (recording_now() >= deadline)
			return false;
		control_wait(&control->state, seen, deadline);
	}
	return true;
}

static enum command_status print_state(const struct control *control, int pid)
{
	enum control_state state = control_value(&control->state);
	char sentence[CONTROL_SENTENCE], remark[CONTROL_REMARK], name[COMMAND_NAME_SIZE], *line;
	struct sink sink;

	memcpy(sentence, control->sentence, sizeof(sentence));
	sentence[sizeof(sentence) - 1] = 0;
	memcpy(remark, control->remark, sizeof(remark));
	remark[sizeof(remark) - 1] = 0;
	if (state == CONTROL_FAILED)
		return command_fail(command_process_name(pid, name), "%s", sentence);
	line = text_line(sentence);
	sink_open(&sink, STDOUT_FILENO);
	if (state == CONTROL_IDLE)
		sink_put(&sink, "off\n");
	else if (state == CONTROL_WAITING)
		sink_put(&sink, "on, but no engine is loaded\n");
	else {
		line = text_line(sentence);
		sink_print(&sink, "on, to %s\n", line);
		g_free(line);
	}
	if (state == CONTROL_RECORDING && *remark) {
		line = text_line(remark);
		sink_print(&sink, "without record sources: %s\n", line);
		g_free(line);
	}
	return command_close_stdout(&sink);
}

/* False: it doesn't do as it is told. */
static bool switch_to(struct control *control, bool on)
{
	if (on && control_value(&control->state) == CONTROL_FAILED)
		control_set(&control->state, CONTROL_IDLE); /* it is to try again */
	control_set(&control->wanted, on ? CONTROL_ON : CONTROL_OFF);
	return await(control, on);
}

static enum command_status control_process(int pid, const char *what)
{
	struct control *control = map_control(pid);
	char name[COMMAND_NAME_SIZE];
	enum command_status status;

	if (!control)
		return COMMAND_FAILED;
	if (strcmp(what, "status") == 0 || switch_to(control, strcmp(what, "on") == 0))
		status = print_state(control, pid);
	else
		status = command_fail(command_process_name(pid, name),
				      "its recorder doesn't answer: is the process stopped?");
	munmap(control, sizeof(*control));
	return status;
}

static enum command_status run(int argc, char **argv)
{
	int pid = 0;
	const GOptionEntry entries[] = {
		{ "pid", 'p', 0, G_OPTION_ARG_INT, &pid, "The server", "PID" },
		{ 0 },
	};
	enum command_status status;
	char **words;

	if (!command_parse(&command_passive, entries, argc, argv, &words, &status))
		return status;
	if (words[1] || (strcmp(words[0], "on") != 0 && strcmp(words[0], "off") != 0 &&
			 strcmp(words[0], "status") != 0))
		status = command_misuse("%s: must be one of on, off, status",
					words[1] ? words[1] : words[0]);
	else if (pid <= 0)
		status = command_misuse("--pid: must be given, the number of a process");
	else
		status = control_process(pid, words[0]);
	g_strfreev(words);
	return status;
}

const struct command command_passive = {
	.name = "passive",
	.arguments = "on|off|status",
	.missing = "nothing to do: say on, off or status",
	.summary = "Switch recording in a preloaded server on or off",
	.help = "For a server with libfbprof.so preloaded and MODE=PASSIVE in FBPROF_OPTIONS: it records\n"
		"from its start until it is switched off.  Any other server is recorded by fbprof record.\n"
		"In Classic each connection has a process of its own.",
	.run = run,
};
