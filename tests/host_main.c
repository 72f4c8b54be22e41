/*
 * fbprof-host: plays a stream of events (host.h) to the plugin, linked in or in a module, and says
 * how much it played.  For instruction counts, sanitizers, fuzzing and trying things out:
 *	fbprof-host --stream calls --options DETAILED_REQUESTS --repeat 10
 *	LD_PRELOAD=libfbprof.so fbprof-host --library plugins/libDefault_Profiler.so --stream FILE
 * The log goes where FBPROF_DIR says.  Exit codes: 0, 1 (failed), 2 (usage).
 */
#define _GNU_SOURCE
#include "host.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 64u

struct settings {
	const char *library, *options, *stream, *log_directory;
	unsigned repeat, size, threads, sessions;
	bool list, write, version6;
};

struct player {
	pthread_t thread;
	struct host_attachment attachment;
	const struct settings *settings;
	const struct host_stream *stream;
};

static const char usage[] =
	"usage: fbprof-host [--stream NAME|FILE|-] [--size N] [--repeat N] [--sessions N] [--threads N]\n"
	"                   [--options TEXT] [--interface 5.0|6.0] [--library PATH] [--log-directory DIR]\n"
	"       fbprof-host --list\n"
	"       fbprof-host --write [--stream NAME|FILE|-] [--size N]\n"
	"--list shows the streams there are; --write writes one as text (the format is in tests/host.h).\n";

static bool set_number(unsigned *number, const char *text)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || *end || end == text || *text == '-' || value < 1 || value > 1000000000)
		return false;
	*number = (unsigned)value;
	return true;
}

static bool parse(struct settings *settings, int argc, char **argv)
{
	static const struct option known[] = {
		{ "library", required_argument, NULL, 'l' },
		{ "options", required_argument, NULL, 'o' },
		{ "stream", required_argument, NULL, 's' },
		{ "log-directory", required_argument, NULL, 'd' },
		{ "repeat", required_argument, NULL, 'r' },
		{ "size", required_argument, NULL, 'n' },
		{ "threads", required_argument, NULL, 't' },
		{ "sessions", required_argument, NULL, 'S' },
		{ "interface", required_argument, NULL, 'i' },
		{ "list", no_argument, NULL, 'L' },
		{ "write", no_argument, NULL, 'w' },
		{ NULL, 0, NULL, 0 },
	};
	bool right = true;
	int option;

	while (right && (option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (option) {
		case 'l':
			settings->library = optarg;
			break;
		case 'o':
			settings->options = optarg;
			break;
		case 's':
			settings->stream = optarg;
			break;
		case 'd':
			settings->log_directory = optarg;
			break;
		case 'r':
			right = set_number(&settings->repeat, optarg);
			break;
		case 'n':
			right = set_number(&settings->size, optarg);
			break;
		case 't':
			right = set_number(&settings->threads, optarg) &&
				settings->threads <= MAX_THREADS;
			break;
		case 'S':
			right = set_number(&settings->sessions, optarg);
			break;
		case 'i':
			settings->version6 = !strcmp(optarg, "6.0");
			right = settings->version6 || !strcmp(optarg, "5.0");
			break;
		case 'L':
			settings->list = true;
			break;
		case 'w':
			settings->write = true;
			break;
		default:
			right = false;
		}
	}
	return right && optind == argc;
}

static void list(void)
{
	for (size_t i = 0; i < host_stream_kind_count; i++)
		printf("%-18s %s (size %u)\n", host_stream_kinds[i].name, host_stream_kinds[i].what,
		       host_stream_kinds[i].size);
}

static struct host_stream *load(const struct settings *settings)
{
	struct host_stream *stream = host_stream_make(settings->stream, settings->size);
	FILE *file;
	char error[256];
	bool right;

	if (stream)
		return stream;
	file = strcmp(settings->stream, "-") ? fopen(settings->stream, "re") : stdin;
	if (!file) {
		fprintf(stderr, "fbprof-host: %s: %s; --list shows the streams that need no file\n",
			settings->stream, strerror(errno));
		return NULL;
	}
	stream = host_stream_new();
	right = host_stream_read(stream, file, error, sizeof(error));
	if (file != stdin)
		fclose(file);
	if (right)
		return stream;
	fprintf(stderr, "fbprof-host: %s: %s\n", settings->stream, error);
	host_stream_free(stream);
	return NULL;
}

/* Returns NULL, or what the plugin said. */
static void *play(void *data)
{
	struct player *player = data;
	struct host_attachment *attachment = &player->attachment;

	for (unsigned session = 0; session < player->settings->sessions; session++) {
		if (!host_start(attachment, "fbprof-host", player->settings->options))
			return attachment->error;
		for (unsigned round = 0; round < player->settings->repeat; round++)
			host_play(attachment, player->stream, 0, SIZE_MAX, round);
		host_finish(attachment);
	}
	host_detach(attachment);
	return NULL;
}

static int run(const struct settings *settings, const struct host_stream *stream)
{
	static struct player players[MAX_THREADS];
	struct host host;
	char error[1024];
	int result = 0;

	if (!host_open(&host, settings->library, settings->log_directory, error, sizeof(error))) {
		fprintf(stderr, "fbprof-host: %s\n", error);
		return 1;
	}
	host.has_define_statement2 = settings->version6;
	for (unsigned i = 0; i < settings->threads; i++) {
		players[i].settings = settings;
		players[i].stream = stream;
		host_attach(&host, &players[i].attachment, i + 1);
		/* One alone needs no thread: easier for callgrind and debuggers. */
		if (i && pthread_create(&players[i].thread, NULL, play, &players[i])) {
			fputs("fbprof-host: no more threads: lower --threads\n", stderr);
			return 1;
		}
	}
	for (unsigned i = 0; i < settings->threads; i++) {
		void *sentence;

		if (i)
			pthread_join(players[i].thread, &sentence);
		else
			sentence = play(&players[i]);
		if (sentence) {
			fprintf(stderr, "fbprof-host: %s\n", (const char *)sentence);
			result = 1;
		}
	}
	if (!result)
		printf("%" PRIu64 " events\n", (uint64_t)stream->count * settings->repeat *
						       settings->sessions * settings->threads);
	return result;
}

int main(int argc, char **argv)
{
	struct settings settings = { .stream = "loop", .repeat = 1, .threads = 1, .sessions = 1 };
	struct host_stream *stream;
	int result = 0;

	if (!parse(&settings, argc, argv)) {
		fputs(usage, stderr);
		return 2;
	}
	if (settings.list) {
		list();
		return 0;
	}
	stream = load(&settings);
	if (!stream)
		return 1;
	if (settings.write)
		host_stream_write(stream, stdout);
	else
		result = run(&settings, stream);
	host_stream_free(stream);
	return result;
}
