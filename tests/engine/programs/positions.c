/*
 * positions PID SECONDS INTERVAL_US: looks at all threads of a process that runs Firebird, and of its
 * children, and prints what was seen, by the layouts in FBPROF_CACHE.  For each distinct position a
 * line of words separated by tabs: how often, attachment, and for each request, outermost first, its
 * statement (a number), line and column.  Then a line "statement NUMBER KIND NAME TEXT" for each, with
 * control characters of the text as blanks; last "torn N busy N idle N untold N seconds S cpu S".  Untold:
 * the statement had gone before its text was read.  Ends early if its input does.
 */
#include "passive/layout.h"
#include "passive/position.h"
#include "passive/process.h"

#include <dirent.h>
#include <errno.h>
#include <glib.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define UPDATE_LOOKS 50
#define CHILD_LOOKS  500
#define TEXT_SIZE    32768

struct target {
	struct process *process;
	struct layout layout;
};

/* Where a request's statement was, when it was given its number. */
struct seat {
	uint64_t pid, statement, statement_id, request_id;
	unsigned number;
};

static struct {
	unsigned long torn, busy, idle, untold;
} totals;

static GPtrArray *targets;  /* struct target */
static GHashTable *seats;   /* struct seat, by itself */
static GHashTable *numbers; /* description of a statement → its number */
static GHashTable *seen;    /* position as printed → how often */
static struct passive_position position, again;

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static guint seat_hash(gconstpointer item)
{
	const struct seat *seat = item;

	return (guint)(seat->statement >> 4) ^ (guint)seat->request_id ^ (guint)seat->pid;
}

static gboolean seat_equal(gconstpointer a, gconstpointer b)
{
	return memcmp(a, b, offsetof(struct seat, number)) == 0;
}

static char *describe(const struct target *target, uint64_t statement)
{
	static const struct {
		enum layout_fact name, package;
		const char *kind;
	} kinds[] = { { LAYOUT_PROCEDURE, LAYOUT_PROCEDURE_PACKAGE, "procedure" },
		      { LAYOUT_FUNCTION, LAYOUT_FUNCTION_PACKAGE, "function" },
		      { LAYOUT_TRIGGER, LAYOUT_FACTS, "trigger" } };
	static char text[TEXT_SIZE];
	char name[256];

	passive_text(target->process->pid, &target->layout, LAYOUT_SQL_TEXT, statement, text,
		     sizeof(text));
	for (unsigned i = 0; text[i] != '\0'; i++)
		text[i] = (unsigned char)text[i] < ' ' ? ' ' : text[i];
	for (unsigned i = 0; i < G_N_ELEMENTS(kinds); i++) {
		passive_text(target->process->pid, &target->layout, kinds[i].name, statement, name,
			     sizeof(name));
		if (name[0] != '\0')
			return g_strdup_printf("%s\t%s\t%s", kinds[i].kind, name, text);
	}
	return g_strdup_printf("statement\t\t%s", text);
}

/* Is the thread still there, so that what was read of the statement is its own? */
static bool is_still_there(const struct target *target, const struct process_thread *thread,
			   uint32_t level)
{
	return passive_read(target->process->pid, &target->layout, thread, &again) ==
		       PASSIVE_BUSY &&
	       again.count > level &&
	       again.requests[level].request_id == position.requests[level].request_id &&
	       again.requests[level].statement == position.requests[level].statement;
}

/* 0: it can't be told. */
static unsigned number_of(const struct target *target, const struct process_thread *thread,
			  uint32_t level)
{
	const struct passive_request *request = &position.requests[level];
	/* Only those that have an id are known again at another start. */
	struct seat key = { .pid = (uint64_t)target->process->pid,
			    .statement = request->statement,
			    .statement_id = request->statement_id,
			    .request_id = request->statement_id != 0 ? 0 : request->request_id };
	struct seat *seat = g_hash_table_lookup(seats, &key);
	char *description;

	if (seat != NULL)
		return seat->number;
	description = describe(target, request->statement);
	if (!is_still_there(target, thread, level)) {
		g_free(description);
		return 0;
	}
	key.number = GPOINTER_TO_UINT(g_hash_table_lookup(numbers, description));
	if (key.number == 0) {
		key.number = g_hash_table_size(numbers) + 1;
		g_hash_table_insert(numbers, description, GUINT_TO_POINTER(key.number));
	} else {
		g_free(description);
	}
	seat = g_memdup2(&key, sizeof(key));
	g_hash_table_add(seats, seat);
	return key.number;
}

static void count_position(const struct target *target, const struct process_thread *thread)
{
	static GString *line;
	gpointer count;

	if (line == NULL)
		line = g_string_new(NULL);
	g_string_printf(line, "%d:%lu", target->process->pid,
			(unsigned long)position.attachment_id);
	for (uint32_t i = 0; i < position.count; i++) {
		const struct passive_request *request = &position.requests[i];
		unsigned number = number_of(target, thread, i);

		if (number == 0) {
			totals.untold++;
			return;
		}
		g_string_append_printf(line, "\t%u:%u:%u", number, request->line, request->column);
	}
	count = g_hash_table_lookup(seen, line->str);
	g_hash_table_insert(seen, g_strdup(line->str),
			    GUINT_TO_POINTER(GPOINTER_TO_UINT(count) + 1));
}

static void look_at(const struct target *target)
{
	for (uint32_t i = 0; i < target->process->count; i++) {
		const struct process_thread *thread = &target->process->threads[i];

		if (thread->tls == 0)
			continue;
		switch (passive_read(target->process->pid, &target->layout, thread, &position)) {
		case PASSIVE_IDLE:
			totals.idle++;
			break;
		case PASSIVE_TORN:
			totals.torn++;
			break;
		case PASSIVE_BUSY:
			totals.busy++;
			count_position(target, thread);
		}
	}
}

static void free_target(gpointer item)
{
	struct target *target = item;

	process_close(target->process);
	g_free(target);
}

static bool is_target(int pid)
{
	for (guint i = 0; i < targets->len; i++) {
		if (((struct target *)targets->pdata[i])->process->pid == pid)
			return true;
	}
	return false;
}

/* False: it has no engine, or none that is known. */
static bool add_target(int pid, char *error, size_t size)
{
	static struct layout last;
	char why[LAYOUT_ERROR_SIZE], identity[LAYOUT_IDENTITY_SIZE];
	struct process *process;
	struct target *target;

	process = process_open(pid, why);
	if (process == NULL) {
		g_strlcpy(error, why, size);
		return false;
	}
	if (last.identity[0] == '\0' && (!layout_identify(process->engine_path, identity, why) ||
					 !layout_load(&last, NULL, identity, why))) {
		g_strlcpy(error, why, size);
		process_close(process);
		return false;
	}
	target = g_new0(struct target, 1);
	target->process = process;
	target->layout = last;
	g_ptr_array_add(targets, target);
	return true;
}

/* Classic mode has one for each connection. */
static void add_children(int pid)
{
	char *path = g_strdup_printf("/proc/%d/task/%d/children", pid, pid), *text = NULL;
	char why[LAYOUT_ERROR_SIZE];

	if (g_file_get_contents(path, &text, NULL, NULL)) {
		char **children = g_strsplit(text, " ", -1);

		for (char **child = children; *child != NULL; child++) {
			int number = atoi(*child);

			if (number > 0 && !is_target(number))
				add_target(number, why, sizeof(why));
		}
		g_strfreev(children);
	}
	g_free(text);
	g_free(path);
}

static void update(void)
{
	for (guint i = targets->len; i-- > 0;) {
		struct target *target = targets->pdata[i];

		if (!process_update(target->process))
			g_ptr_array_remove_index_fast(targets, i);
	}
}

static bool input_has_ended(void)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
	char byte;

	return poll(&input, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) == 0;
}

static void look(int pid, double duration, unsigned interval_us)
{
	double end = seconds() + duration;
	char why[LAYOUT_ERROR_SIZE];

	for (unsigned long i = 0; seconds() < end; i++) {
		const struct timespec interval = { .tv_nsec = (long)interval_us *
							      (500 + g_random_int_range(0, 1000)) };

		nanosleep(&interval, NULL);
		if (i % UPDATE_LOOKS == 0)
			update();
		if (i % CHILD_LOOKS == 0) {
			add_children(pid);
			if (!is_target(pid))
				add_target(pid, why, sizeof(why));
			if (input_has_ended())
				return;
		}
		for (guint j = 0; j < targets->len; j++)
			look_at(targets->pdata[j]);
	}
}

static void print(double duration)
{
	GHashTableIter iterator;
	gpointer key, value;

	g_hash_table_iter_init(&iterator, seen);
	while (g_hash_table_iter_next(&iterator, &key, &value))
		printf("%u\t%s\n", GPOINTER_TO_UINT(value), (char *)key);
	g_hash_table_iter_init(&iterator, numbers);
	while (g_hash_table_iter_next(&iterator, &key, &value))
		printf("statement\t%u\t%s\n", GPOINTER_TO_UINT(value), (char *)key);
	printf("torn %lu busy %lu idle %lu untold %lu seconds %.3f cpu %.3f\n", totals.torn,
	       totals.busy, totals.idle, totals.untold, duration, (double)clock() / CLOCKS_PER_SEC);
}

int main(int argc, char **argv)
{
	char why[LAYOUT_ERROR_SIZE] = "";
	double began = seconds();

	if (argc != 4)
		return 2;
	targets = g_ptr_array_new_with_free_func(free_target);
	seats = g_hash_table_new_full(seat_hash, seat_equal, g_free, NULL);
	numbers = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	add_children(atoi(argv[1]));
	if (!add_target(atoi(argv[1]), why, sizeof(why)) && targets->len == 0) {
		fprintf(stderr, "positions: %s\n", why);
		return 1;
	}
	puts("looking");
	fflush(stdout);
	look(atoi(argv[1]), atof(argv[2]), (unsigned)atoi(argv[3]));
	print(seconds() - began);
	g_ptr_array_unref(targets);
	g_hash_table_unref(seats);
	g_hash_table_unref(numbers);
	g_hash_table_unref(seen);
	return fflush(stdout) == 0 ? 0 : 1;
}
