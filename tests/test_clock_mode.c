/*
 * MODE=CLOCK without an engine: the stock module's proxies and sessions with a module in its place
 * (fake_stock.c), and the clock when nobody tells which threads execute a profiled attachment.
 */
#define _GNU_SOURCE
#include "../shim/clock.h"
#include "../shim/stock.h"
#include "fake_stock.h"
#include "host.h"
#include "run_suite.h"
#include "scratch.h"

#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The clock; the test is the sampler ---- */

#define START	  (1000 * (int64_t)CLOCK_NS_PER_SECOND)
#define PAIR	  30001000000
#define LONG_TIME 20000000 /* more than any two reads of a pair are apart */

static int64_t real_time;
static struct frame_stack *stack;

static int fake_clock(clockid_t id, struct timespec *time)
{
	ck_assert_int_eq(id, CLOCK_MONOTONIC_RAW);
	time->tv_sec = real_time / CLOCK_NS_PER_SECOND;
	time->tv_nsec = real_time % CLOCK_NS_PER_SECOND;
	return 0;
}

static int64_t read_clock(void)
{
	struct timespec time;

	ck_assert_int_eq(clock_answer(CLOCK_MONOTONIC_RAW, &time), 0);
	return time.tv_sec * CLOCK_NS_PER_SECOND + time.tv_nsec;
}

/* The sampler looks, `later` ns after it did last. */
static int64_t move_on(int64_t later)
{
	real_time += later;
	atomic_store(&sampler_clock, real_time);
	return real_time;
}

static void set_up_clock(void)
{
	real_time = START;
	clock_real = fake_clock;
	atomic_store(&sampler_targets, 1);
	atomic_store(&clock_sessions_for_all, 1);
	stack = frame_stack_new();
	clock_watch(stack, START + 10 * (int64_t)CLOCK_NS_PER_SECOND);
	move_on(0);
}

START_TEST(everybody_reads_the_word)
{
	ck_assert_int_eq(read_clock(), START);
	real_time += 40000;
	ck_assert_int_eq(read_clock(), START + 1);
	ck_assert_int_eq(read_clock(), START + 2);
	ck_assert_int_eq(atomic_load(&clock_last_read), START);
	move_on(60000);
	ck_assert_int_eq(read_clock(), START + 100000);
	ck_assert_int_eq(atomic_load(&clock_last_read), START + 100000);
	ck_assert_int_eq(read_clock(), START + 100001);
}
END_TEST

START_TEST(the_sampler_itself_does_not)
{
	real_time += 40000;
	sampler_at_work = true;
	ck_assert_int_eq(read_clock(), START + 40000);
	ck_assert_int_eq(read_clock(), START + 40000);
	sampler_at_work = false;
	ck_assert_int_eq(read_clock(), START);
}
END_TEST

START_TEST(a_read_wakes_the_sampler)
{
	read_clock();
	atomic_store(&sampler_clock, 0);
	atomic_store(&sampler_asleep, 1);
	real_time += 500;
	ck_assert_int_eq(read_clock(), START + 500);
	ck_assert_int_eq(atomic_load(&sampler_asleep), 0);
	ck_assert_int_eq(atomic_load(&clock_last_read), START + 500);
	/* Strictly increasing, though the real clock stands, and then the word is behind it. */
	ck_assert_int_eq(read_clock(), START + 501);
	real_time += 500;
	ck_assert_int_eq(read_clock(), START + 1000);
	atomic_store(&sampler_clock, START + 900);
	ck_assert_int_eq(read_clock(), START + 1001);
}
END_TEST

START_TEST(after_the_last_such_session_clocks_are_real)
{
	read_clock();
	atomic_store(&clock_sessions_for_all, 0);
	move_on(1000);
	real_time += 100;
	ck_assert_int_eq(read_clock(), START + 1100);
	real_time += 100;
	ck_assert_int_eq(read_clock(), START + 1200);
}
END_TEST

START_TEST(beside_measured_sessions_clocks_are_real)
{
	atomic_store(&clock_sessions_measured, 1);
	real_time += 100;
	ck_assert_int_eq(read_clock(), START + 100);
	real_time += 100;
	ck_assert_int_eq(read_clock(), START + 200);
	ck_assert_int_eq(atomic_load(&clock_last_read), START + 200);
	atomic_store(&clock_sessions_measured, 0);
	ck_assert_int_eq(read_clock(), START + 201);
}
END_TEST

/* The engine's pair: no time passes, even if the clock moves on between. */
START_TEST(a_pair_is_told_the_same_time)
{
	int64_t due = clock_next_pair(stack), first;

	read_clock();
	move_on(due - START + 20000);
	first = read_clock();
	ck_assert_int_eq(first, due + 20000);
	move_on(60);
	ck_assert_int_eq(read_clock(), first);
	ck_assert_int_eq(read_clock(), first + 60);
	ck_assert_int_eq(read_clock(), first + 61);
	clock_event(stack);
	ck_assert_int_eq(clock_next_pair(stack), first + PAIR);
	move_on(100000);
	ck_assert_int_ge(read_clock(), first + 100000);
	real_time += 60;
	ck_assert_int_ge(read_clock(), first + 100001);
}
END_TEST

/* As an attachment's first session starts, its pair has always been due. */
START_TEST(a_pair_at_the_start)
{
	int64_t first;

	read_clock();
	read_clock();
	clock_expect_pair(stack, 0);
	first = read_clock();
	ck_assert_int_eq(first, START + 2);
	real_time += 60;
	ck_assert_int_eq(read_clock(), first);
	clock_event(stack);
	ck_assert_int_eq(clock_next_pair(stack), first + PAIR);
}
END_TEST

START_TEST(reads_far_apart_are_no_pair)
{
	int64_t told;

	clock_expect_pair(stack, 0);
	told = read_clock();
	real_time += LONG_TIME;
	ck_assert_int_eq(read_clock(), told + 1);
}
END_TEST

/* Of another attachment: one read at most is repeated until an event comes or time passes. */
START_TEST(one_read_is_repeated)
{
	int64_t told;

	clock_expect_pair(stack, 0);
	told = read_clock();
	ck_assert_int_eq(read_clock(), told);
	for (unsigned i = 1; i < 100; i++) {
		move_on(100);
		ck_assert_int_eq(read_clock(), told + 100 * i);
		ck_assert_int_eq(read_clock(), told + 100 * i + 1);
	}
}
END_TEST

/* The thread was in another attachment when the clock moved on: the pair was not seen. */
START_TEST(a_pair_that_was_missed)
{
	read_clock();
	clock_watch(stack, START + 2);
	read_clock();
	read_clock();
	read_clock();
	clock_event(stack);
	ck_assert_int_eq(clock_next_pair(stack), START + PAIR);
}
END_TEST

/* An event that comes before the pair is due changes nothing. */
START_TEST(an_event_in_time)
{
	int64_t due = clock_next_pair(stack);

	read_clock();
	clock_event(stack);
	ck_assert_int_eq(clock_next_pair(stack), due);
}
END_TEST

/* ---- The proxies ---- */

struct real_master {
	struct fb_master master;
	struct fb_plugin_manager manager;
	struct fb_plugin_module *module, *unregistered;
	void *seen[3];
	unsigned number;
	const char *names;
};

static struct real_master real;

static struct real_master *of_master(struct fb_master *master)
{
	ck_assert_ptr_eq(master, &real.master);
	return &real;
}

static struct real_master *of_manager(struct fb_plugin_manager *manager)
{
	ck_assert_ptr_eq(manager, &real.manager);
	return &real;
}

static struct fb_status *get_status(struct fb_master *self)
{
	of_master(self);
	return (struct fb_status *)1;
}

static void *get_dispatcher(struct fb_master *self)
{
	of_master(self);
	return (void *)2;
}

static struct fb_plugin_manager *get_plugin_manager(struct fb_master *self)
{
	return &of_master(self)->manager;
}

static void *get_timer_control(struct fb_master *self)
{
	of_master(self);
	return (void *)3;
}

static void *get_dtc(struct fb_master *self)
{
	of_master(self);
	return (void *)4;
}

static void *register_two(struct fb_master *self, void *one, void *two)
{
	of_master(self)->seen[0] = one;
	real.seen[1] = two;
	return (void *)5;
}

static void *get_metadata_builder(struct fb_master *self, struct fb_status *status, unsigned count)
{
	of_master(self)->seen[0] = status;
	real.number = count;
	return (void *)6;
}

static int server_mode(struct fb_master *self, int mode)
{
	of_master(self);
	return mode + 1;
}

static void *get_util_interface(struct fb_master *self)
{
	of_master(self);
	return (void *)7;
}

static struct fb_config_manager *get_config_manager(struct fb_master *self)
{
	of_master(self);
	return NULL;
}

static unsigned char get_process_exiting(struct fb_master *self)
{
	of_master(self);
	return 1;
}

static void register_module(struct fb_plugin_manager *self, struct fb_plugin_module *module)
{
	of_manager(self)->module = module;
}

static void unregister_module(struct fb_plugin_manager *self, struct fb_plugin_module *module)
{
	of_manager(self)->unregistered = module;
}

static void *get_plugins(struct fb_plugin_manager *self, struct fb_status *status, unsigned type,
			 const char *names, void *config)
{
	of_manager(self)->seen[0] = status;
	real.number = type;
	real.names = names;
	real.seen[1] = config;
	return (void *)8;
}

static void *get_config(struct fb_plugin_manager *self, struct fb_status *status, const char *file)
{
	of_manager(self)->seen[0] = status;
	real.names = file;
	return (void *)9;
}

static void release_plugin(struct fb_plugin_manager *self, void *plugin)
{
	of_manager(self)->seen[0] = plugin;
}

static const struct fb_master_vtable real_vtable = {
	.version = FB_MASTER_VERSION,
	.get_status = get_status,
	.get_dispatcher = get_dispatcher,
	.get_plugin_manager = get_plugin_manager,
	.get_timer_control = get_timer_control,
	.get_dtc = get_dtc,
	.register_attachment = register_two,
	.register_transaction = register_two,
	.get_metadata_builder = get_metadata_builder,
	.server_mode = server_mode,
	.get_util_interface = get_util_interface,
	.get_config_manager = get_config_manager,
	.get_process_exiting = get_process_exiting,
};

static const struct fb_plugin_manager_vtable real_manager_vtable = {
	.version = FB_PLUGIN_MANAGER_VERSION,
	.register_module = register_module,
	.unregister_module = unregister_module,
	.get_plugins = get_plugins,
	.get_config = get_config,
	.release_plugin = release_plugin,
};

static const char *fake_path(void)
{
	const char *path = getenv("FBPROF_FAKE_STOCK");

	ck_assert_msg(path && *path, "FBPROF_FAKE_STOCK is not set: run by `make check`");
	return path;
}

/* As it is loaded; counts begin anew each time. */
static struct fake_stock *fake(void)
{
	void *handle = dlopen(fake_path(), RTLD_LAZY | RTLD_NOLOAD);
	struct fake_stock *found = handle ? dlsym(handle, "fake_stock") : NULL;

	if (handle)
		dlclose(handle);
	return found;
}

static char error[1024];

static void set_up_stock(void)
{
	real = (struct real_master){ .master = { .vtable = &real_vtable },
				     .manager = { .vtable = &real_manager_vtable } };
	*error = 0;
	stock_asked_for(fake_path());
	stock_engine_loads(&real.master);
}

START_TEST(the_module_gets_what_the_engine_has)
{
	struct fb_profiler_plugin *plugin =
		stock_plugin_new(NULL, (void *)77, error, sizeof(error));
	struct fb_master *master = fake()->master;
	const struct fb_master_vtable *vtable = master->vtable;
	struct fb_plugin_manager *manager = vtable->get_plugin_manager(master);
	void *a = &real, *b = &error;

	ck_assert_ptr_nonnull(plugin);
	ck_assert_ptr_eq(fake()->config, (void *)77);
	ck_assert_ptr_ne(master, &real.master);
	ck_assert_ptr_eq(vtable->get_status(master), (void *)1);
	ck_assert_ptr_eq(vtable->get_dispatcher(master), (void *)2);
	ck_assert_ptr_eq(vtable->get_timer_control(master), (void *)3);
	ck_assert_ptr_eq(vtable->get_dtc(master), (void *)4);
	ck_assert_ptr_eq(vtable->register_attachment(master, a, b), (void *)5);
	ck_assert(real.seen[0] == a && real.seen[1] == b);
	ck_assert_ptr_eq(vtable->register_transaction(master, b, a), (void *)5);
	ck_assert(real.seen[0] == b && real.seen[1] == a);
	ck_assert_ptr_eq(vtable->get_metadata_builder(master, a, 12), (void *)6);
	ck_assert(real.seen[0] == a && real.number == 12);
	ck_assert_int_eq(vtable->server_mode(master, 41), 42);
	ck_assert_ptr_eq(vtable->get_util_interface(master), (void *)7);
	ck_assert_ptr_null(vtable->get_config_manager(master));
	ck_assert_uint_eq(vtable->get_process_exiting(master), 1);

	ck_assert_ptr_ne(manager, &real.manager);
	ck_assert_ptr_eq(manager->vtable->get_plugins(manager, a, 3, "names", b), (void *)8);
	ck_assert(real.seen[0] == a && real.seen[1] == b && real.number == 3);
	ck_assert_str_eq(real.names, "names");
	ck_assert_ptr_eq(manager->vtable->get_config(manager, b, "file"), (void *)9);
	ck_assert(real.seen[0] == b && !strcmp(real.names, "file"));
	manager->vtable->release_plugin(manager, a);
	ck_assert_ptr_eq(real.seen[0], a);
	stock_plugin_free(plugin);
}
END_TEST

START_TEST(the_module_goes_with_us)
{
	struct fb_plugin_module *ours = real.module;
	struct fb_profiler_plugin *plugin;

	ck_assert_ptr_nonnull(ours);
	ours->vtable->thread_detach(ours);
	ours->vtable->do_clean(ours); /* nothing is loaded yet */
	ck_assert_ptr_null(fake());

	for (unsigned round = 0; round < 3; round++) {
		plugin = stock_plugin_new(NULL, NULL, error, sizeof(error));
		ck_assert_ptr_nonnull(plugin);
		ours->vtable->thread_detach(ours);
		ck_assert_uint_eq(fake()->threads_detached, 1);
		ours->vtable->do_clean(ours); /* in use by another name of ours */
		ck_assert_uint_eq(fake()->cleaned, 0);
		stock_plugin_free(plugin);
		ck_assert_uint_eq(fake()->released, 1);
		ours->vtable->do_clean(ours);
#ifndef __SANITIZE_ADDRESS__
		ck_assert_ptr_null(fake());
#endif
	}
}
END_TEST

/* The process exits without the engine: it hears of it as of a module that it loaded. */
START_TEST(the_module_is_destroyed)
{
	struct fb_profiler_plugin *plugin = stock_plugin_new(NULL, NULL, error, sizeof(error));
	struct fb_master *master = fake()->master;
	struct fb_plugin_manager *manager = master->vtable->get_plugin_manager(master);
	struct fb_plugin_module other;

	ck_assert_ptr_nonnull(plugin);
	manager->vtable->register_module(manager, &other);
	manager->vtable->unregister_module(manager, &other);
	ck_assert_ptr_eq(real.unregistered, real.module);
	real.unregistered = NULL;
	manager->vtable->unregister_module(manager, &other);
	ck_assert_ptr_null(real.unregistered);
}
END_TEST

START_TEST(a_module_that_is_not_there)
{
	stock_asked_for("/nowhere/Default_Profiler");
	ck_assert_ptr_null(stock_plugin_new(NULL, NULL, error, sizeof(error)));
	ck_assert_msg(strstr(error, "/nowhere/libDefault_Profiler.so") != NULL, "%s", error);
}
END_TEST

/* ---- Sessions ---- */

static struct host host;
static struct host_attachment attachment;

static void set_up_host(void)
{
	scratch_make();
	ck_assert_msg(host_open(&host, NULL, scratch, error, sizeof(error)), "%s", error);
	host_attach(&host, &attachment, 7);
	stock_asked_for(fake_path());
	clock_is_ours = true;
	host.clock = clock_real;
}

static void start(const char *options)
{
	ck_assert_msg(host_start(&attachment, "a test", options), "%s", attachment.error);
}

static void refuse(const char *options, const char *sentence)
{
	ck_assert(!host_start(&attachment, "a test", options));
	ck_assert_msg(strstr(attachment.error, sentence) != NULL, "%s", attachment.error);
}

static const struct fb_profiler_session_vtable *session_vtable(void)
{
	return __atomic_load_n(&attachment.session->vtable, __ATOMIC_RELAXED);
}

START_TEST(the_session_is_the_stock_one)
{
	struct host_stream *stream = host_stream_make("select", 100);
	struct fb_profiler_session *session;

	start("MODE=CLOCK, SAMPLING_INTERVAL=200");
	session = attachment.session;
	ck_assert_int_eq(session_vtable()->get_id(session), 4711);
	ck_assert_uint_eq(attachment.flags, FB_PROFILER_AFTER_EVENTS);
	ck_assert_str_eq(fake()->options, "");
	ck_assert_ptr_ne(session_vtable(), fake()->session_vtable);
	ck_assert_uint_eq(atomic_load(&clock_sessions_for_all), 1);
	for (unsigned round = 0; round < 20; round++)
		host_play(&attachment, stream, 0, SIZE_MAX, round + 1);
	host_finish(&attachment);
	ck_assert_uint_eq(atomic_load(&clock_sessions_for_all), 0);
	ck_assert_uint_eq(atomic_load(&sampler_targets), 0);
	ck_assert_ptr_eq(session->vtable, fake()->session_vtable);
	ck_assert_uint_eq(fake()->finished, 1);
	ck_assert_uint_eq(fake()->disposed, 1);
	ck_assert_uint_eq(fake()->flushes, 1);
	ck_assert_uint_gt(fake()->events, 10 * 1000);

	start("DETAILED_REQUESTS,mode=clock");
	ck_assert_str_eq(fake()->options, "DETAILED_REQUESTS");
	host_cancel(&attachment);
	ck_assert_uint_eq(fake()->cancelled, 1);
	ck_assert_uint_eq(fake()->disposed, 2);
	ck_assert_uint_eq(fake()->made, 1);
	ck_assert_uint_eq(fake()->inits, 1);
	host_detach(&attachment);
	ck_assert_uint_eq(fake()->released, 1);
	host_stream_free(stream);
}
END_TEST

static bool sampler_sleeps(void)
{
	return atomic_load(&sampler_asleep) != 0;
}

static bool events_are_watched(void)
{
	return session_vtable()->on_request_start != fake()->session_vtable->on_request_start;
}

/*
 * The sampler sleeps while nobody reads the clock, and is woken by a read.  Events go straight to the
 * stock plugin as long as threads read, and the pair is not due.
 */
START_TEST(the_sampler_follows_the_reads)
{
	struct fb_timestamp_tz timestamp = { 0 };
	struct timespec time;

	start("MODE=CLOCK");
	for (unsigned round = 0; round < 3; round++) {
		while (!sampler_sleeps())
			usleep(100);
		ck_assert(events_are_watched());
		clock_answer(CLOCK_MONOTONIC_RAW, &time);
		session_vtable()->on_request_start(attachment.session, &attachment.status, 1, 1, 0,
						   0, timestamp);
		while (events_are_watched())
			clock_answer(CLOCK_MONOTONIC_RAW, &time);
		ck_assert_int_ne(atomic_load(&sampler_clock), 0);
	}
	host_detach(&attachment);
}
END_TEST

/* Sessions of both kinds by one plugin object. */
START_TEST(sessions_in_turn)
{
	start("MODE=CLOCK");
	start(NULL);
	ck_assert_uint_eq(fake()->finished, 1);
	ck_assert_uint_eq(fake()->disposed, 1);
	host_finish(&attachment);
	ck_assert_uint_eq(fake()->flushes, 2);
	start("MODE=CLOCK");
	host_detach(&attachment);
	ck_assert_uint_eq(fake()->disposed, 2);
	ck_assert_uint_eq(fake()->made, 1);
}
END_TEST

START_TEST(its_errors_are_told)
{
	start("MODE=CLOCK");
	fake()->error = "no more sequence";
	refuse("MODE=CLOCK", "no more sequence");
	host_detach(&attachment);
	refuse("MODE=CLOCK", "no more sequence"); /* init() */
	ck_assert_uint_eq(fake()->released, 2);
	fake()->error = NULL;
	start("MODE=CLOCK");
	host_detach(&attachment);
}
END_TEST

START_TEST(what_it_needs)
{
	refuse("MODE=CLOCK, SQL_TEXT=OFF", "SQL_TEXT=FULL");
	refuse("MODE=CLOCK, NONSENSE", "unknown option NONSENSE");
	clock_is_ours = false;
	refuse("MODE=CLOCK", "fbprof: MODE=CLOCK needs LD_PRELOAD");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("MODE=CLOCK");
	TCase *clock = tcase_create("clock"), *stock = tcase_create("stock"),
	      *sessions = tcase_create("sessions");

	tcase_add_checked_fixture(clock, set_up_clock, NULL);
	tcase_add_test(clock, everybody_reads_the_word);
	tcase_add_test(clock, the_sampler_itself_does_not);
	tcase_add_test(clock, a_read_wakes_the_sampler);
	tcase_add_test(clock, after_the_last_such_session_clocks_are_real);
	tcase_add_test(clock, beside_measured_sessions_clocks_are_real);
	tcase_add_test(clock, a_pair_is_told_the_same_time);
	tcase_add_test(clock, a_pair_at_the_start);
	tcase_add_test(clock, reads_far_apart_are_no_pair);
	tcase_add_test(clock, one_read_is_repeated);
	tcase_add_test(clock, a_pair_that_was_missed);
	tcase_add_test(clock, an_event_in_time);
	tcase_add_checked_fixture(stock, set_up_stock, NULL);
	tcase_add_test(stock, the_module_gets_what_the_engine_has);
	tcase_add_test(stock, the_module_goes_with_us);
	tcase_add_test(stock, the_module_is_destroyed);
	tcase_add_test(stock, a_module_that_is_not_there);
	tcase_add_checked_fixture(sessions, set_up_host, scratch_remove);
	tcase_add_test(sessions, the_session_is_the_stock_one);
	tcase_add_test(sessions, the_sampler_follows_the_reads);
	tcase_add_test(sessions, sessions_in_turn);
	tcase_add_test(sessions, its_errors_are_told);
	tcase_add_test(sessions, what_it_needs);
	suite_add_tcase(suite, clock);
	suite_add_tcase(suite, stock);
	suite_add_tcase(suite, sessions);
	return run_suite(suite);
}
