/*
 * See scratch.h.
 */
#define _GNU_SOURCE
#include "scratch.h"

#include <check.h>
#include <dirent.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

char scratch[PATH_MAX - 256];

void scratch_make(void)
{
	const char *temporary = getenv("TMPDIR");

	snprintf(scratch, sizeof(scratch), "%.3000s/fbprof-test-XXXXXX",
		 temporary && *temporary ? temporary : "/tmp");
	ck_assert_msg(mkdtemp(scratch) != NULL, "no directory %s", scratch);
	setenv("FBPROF_DIR", scratch, 1);
	setenv("FBPROF_OPTIONS", "MODE=SAMPLED", 1); /* most tests look at what it shows */
	unsetenv("FBPROF_MAX_BYTES");
	unsetenv("FBPROF_SAMPLER_SHARE");
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
	(void)status, (void)type, (void)place;
	return remove(path);
}

void scratch_remove(void)
{
	if (*scratch)
		nftw(scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	*scratch = 0;
}

const char *scratch_path(const char *name)
{
	static char paths[4][PATH_MAX];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, PATH_MAX, "%s/%s", scratch, name);
	return path;
}

unsigned scratch_logs(char path[PATH_MAX])
{
	DIR *directory = opendir(scratch);
	char newest[NAME_MAX + 1] = "";
	const struct dirent *entry;
	unsigned count = 0;

	while (directory && (entry = readdir(directory))) {
		const char *dot = strrchr(entry->d_name, '.');

		if (!dot || strcmp(dot, ".fbprof"))
			continue;
		count++;
		if (strcmp(entry->d_name, newest) > 0)
			snprintf(newest, sizeof(newest), "%s", entry->d_name);
	}
	if (directory)
		closedir(directory);
	if (path) {
		*path = 0;
		if (count)
			snprintf(path, PATH_MAX, "%s/%s", scratch, newest);
	}
	return count;
}

static unsigned count_entries(const char *path)
{
	DIR *directory = opendir(path);
	unsigned count = 0;

	ck_assert_ptr_nonnull(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count - 2; /* . and .. */
}

unsigned own_threads(void)
{
	return count_entries("/proc/self/task");
}

static void *return_at_once(void *data)
{
	return data;
}

unsigned threads_at_first(void)
{
	unsigned before = own_threads(), after;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, return_at_once, NULL), 0);
	pthread_join(thread, NULL);
	for (unsigned tries = 0; (after = own_threads()) != before && tries < 20; tries++)
		usleep(1000);
	return after;
}

void check_threads(unsigned wanted)
{
	time_t deadline = time(NULL) + 60;
	unsigned found;

	while ((found = own_threads()) != wanted && time(NULL) <= deadline)
		usleep(100);
	ck_assert_msg(found == wanted, "%u threads instead of %u", found, wanted);
}

unsigned own_files(void)
{
	return count_entries("/proc/self/fd") - 1; /* the directory's own */
}

unsigned own_mappings(const char *text)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char *line = NULL;
	size_t room = 0;
	unsigned count = 0;

	ck_assert_ptr_nonnull(maps);
	while (getline(&line, &room, maps) >= 0)
		count += strstr(line, text) != NULL;
	free(line);
	fclose(maps);
	return count;
}
