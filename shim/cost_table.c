/*
 * See cost_table.h.
 */
#include "config.h"

#include "cost_table.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIND  "costs"
#define MAGIC "fbprof-costs 1"

/* What a cost can be, in ns, is bounded by this number of units. */
#define COST_MOST (1000 * 1024)

#define CPU_SIZE 256

/*
 * As `fbprof calibrate --costs` found them on one machine.  READ is how much less a read of the clock takes
 * than one of many in a row: it decides what is a record source's and what its parent's, which no sum shows,
 * and is such that self times agree with what passive mode sees.
 */
const struct cost_table cost_table_default = { {
	/* clang-format off */
	/*                      line   open  fetch  request    row  function  detailed  cell  read */
	[LOG_MODE_SAMPLED]  = { 2500,  1400,  3100, 27900, 10900,    23500,    14000, 2800,    0 },
	[LOG_MODE_COARSE]   = { 1970,   700,  1930, 27300,  9000,    25400,    15200, 4200,    0 },
	[LOG_MODE_MEASURED] = { -480,  -450,   400, 16100,  3880,    22000,    -1160, 3090, -567 },
	/* clang-format on */
} };

static const char *const mode_names[COST_MODES] = { [LOG_MODE_SAMPLED] = "sampled",
						    [LOG_MODE_COARSE] = "coarse",
						    [LOG_MODE_MEASURED] = "measured" };

static const char *const kind_names[COSTS] = { "line",	   "open",     "fetch", "request", "row",
					       "function", "detailed", "cell",	"read" };

const char *cost_kind_name(unsigned kind)
{
	return kind_names[kind];
}

/* What tells kinds of CPUs apart, of the first one, in the kernel's words.  Empty: it doesn't say. */
static void read_cpu(char cpu[CPU_SIZE])
{
	static const char *const keys[] = { "vendor_id",  "cpu family", "model",
					    "model name", "stepping",	"CPU implementer",
					    "CPU part",	  "CPU variant" };
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[4096];
	size_t size = 0;

	cpu[0] = 0;
	while (file && fgets(line, sizeof(line), file) && line[0] != '\n') {
		size_t key = strcspn(line, "\t:"), value = strcspn(line, ":");

		if (!line[value])
			continue;
		line[strcspn(line, "\n")] = 0;
		for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
			if (strlen(keys[i]) != key || strncmp(line, keys[i], key) != 0)
				continue;
			size += (size_t)snprintf(cpu + size, CPU_SIZE - size, "%s%s",
						 size ? "," : "", line + value + 1);
			if (size >= CPU_SIZE)
				size = CPU_SIZE - 1;
		}
	}
	if (file)
		fclose(file);
}

/* The lines before the costs, which must be the same when they are used. */
static void add_head(struct cache_text *text, const char *identity)
{
	char cpu[CPU_SIZE];

	read_cpu(cpu);
	cache_add(text, MAGIC "\nfbprof " PACKAGE_VERSION "\nengine %s\ncpu %s\n", identity, cpu);
}

static bool read_costs(int32_t costs[COSTS], const char *text)
{
	for (unsigned i = 0; i < COSTS; i++) {
		char *end;
		long cost = strtol(text, &end, 10);

		if (end == text || cost < -COST_MOST || cost > COST_MOST)
			return false;
		costs[i] = (int32_t)cost;
		text = end;
	}
	return *text == '\n';
}

static bool read_table(struct cost_table *table, const char *text)
{
	for (unsigned mode = 0; mode < COST_MODES; mode++) {
		size_t size = mode_names[mode] ? strlen(mode_names[mode]) : 0;

		if (!size)
			continue;
		if (strncmp(text, mode_names[mode], size) != 0 ||
		    !read_costs(table->cost[mode], text + size))
			return false;
		text = strchr(text, '\n') + 1;
	}
	return !*text;
}

bool cost_table_is_known(const char *directory, const char *identity)
{
	return cache_has(directory, identity, KIND);
}

bool cost_table_load(struct cost_table *table, const char *directory, const char *identity,
		     char error[CACHE_ERROR_SIZE])
{
	struct cache_text head = { .size = 0 };
	char text[CACHE_FILE_ROOM];

	*table = cost_table_default;
	if (!cache_load(directory, identity, KIND, text, error))
		return false;
	add_head(&head, identity);
	if (strncmp(text, head.text, head.size) != 0)
		return cache_refuse_content(directory, identity, KIND,
					    "is of another kind of CPU, another engine or fbprof",
					    error);
	if (read_table(table, text + head.size))
		return true;
	*table = cost_table_default;
	return cache_refuse_content(directory, identity, KIND, "is damaged", error);
}

bool cost_table_save(const struct cost_table *table, const char *directory, const char *identity,
		     char error[CACHE_ERROR_SIZE])
{
	struct cache_text text = { .size = 0 };

	add_head(&text, identity);
	for (unsigned mode = 0; mode < COST_MODES; mode++) {
		if (!mode_names[mode])
			continue;
		cache_add(&text, "%s", mode_names[mode]);
		for (unsigned i = 0; i < COSTS; i++)
			cache_add(&text, " %d", table->cost[mode][i]);
		cache_add(&text, "\n");
	}
	return cache_save(directory, identity, KIND, &text, error);
}
