/*
 * The part of Firebird's binary interface that fbprof uses, from 5.0 on.
 *
 * Firebird's interfaces are language-neutral: an object is { unused, vtable }, a vtable { unused,
 * version, methods… }, with the methods of the base interface first.  Later versions append methods
 * and raise `version`.  The authority is src/include/firebird/FirebirdInterface.idl in Firebird's
 * repository; of interfaces that we only call, the methods before the ones we need are declared as
 * `unused`.
 */
#ifndef FBPROF_FIREBIRD_H
#define FBPROF_FIREBIRD_H

#include <stdint.h>

struct fb_timestamp_tz {
	int32_t date;  /* days since 1858-11-17, UTC */
	uint32_t time; /* 1/10000 s since midnight, UTC */
	uint16_t zone;
};

/* Status vectors: code, argument, … ended by 0. */
#define FB_ARG_END    0
#define FB_ARG_GDS    1
#define FB_ARG_STRING 2
#define FB_RANDOM     335544382 /* isc_random: "@1" */

struct fb_status {
	void *unused;
	const struct fb_status_vtable *vtable;
};

#define FB_STATUS_ERRORS 2u /* bit of get_state() */

struct fb_status_vtable {
	void *unused;
	uintptr_t version;
	void (*dispose)(struct fb_status *self);
	void (*init)(struct fb_status *self);
	unsigned (*get_state)(const struct fb_status *self);
	void (*set_errors2)(struct fb_status *self, unsigned length, const intptr_t *value);
	void (*set_warnings2)(struct fb_status *self, unsigned length, const intptr_t *value);
	void (*set_errors)(struct fb_status *self, const intptr_t *value);
};

struct fb_attachment {
	void *unused;
	const struct fb_attachment_vtable *vtable;
};

struct fb_attachment_vtable {
	void *unused;
	uintptr_t version;
	void (*add_ref)(struct fb_attachment *self);
	int (*release)(struct fb_attachment *self);
	void (*get_info)(struct fb_attachment *self, struct fb_status *status,
			 unsigned items_length, const unsigned char *items, unsigned buffer_length,
			 unsigned char *buffer);
};

/* Items of get_info(): each answers with item, 2 bytes of length (little-endian), and a value. */
enum fb_info_item {
	FB_INFO_END = 1,
	FB_INFO_DB_ID = 4,		/* a count, then length-prefixed strings: path, host */
	FB_INFO_ATTACHMENT_ID = 22,	/* a little-endian integer */
	FB_INFO_FIREBIRD_VERSION = 103, /* a count, then length-prefixed strings */
	FB_INFO_USERNAME = 147		/* a string */
};

struct fb_master {
	void *unused;
	const struct fb_master_vtable *vtable;
};

struct fb_plugin_manager;
struct fb_config_manager;

/* The methods that we only hand on (stock.c) have pointers to interfaces that we don't declare. */
#define FB_MASTER_VERSION 2u

struct fb_master_vtable {
	void *unused;
	uintptr_t version;
	struct fb_status *(*get_status)(struct fb_master *self);
	void *(*get_dispatcher)(struct fb_master *self);
	struct fb_plugin_manager *(*get_plugin_manager)(struct fb_master *self);
	void *(*get_timer_control)(struct fb_master *self);
	void *(*get_dtc)(struct fb_master *self);
	void *(*register_attachment)(struct fb_master *self, void *provider, void *attachment);
	void *(*register_transaction)(struct fb_master *self, void *attachment, void *transaction);
	void *(*get_metadata_builder)(struct fb_master *self, struct fb_status *status,
				      unsigned field_count);
	int (*server_mode)(struct fb_master *self, int mode);
	void *(*get_util_interface)(struct fb_master *self);
	struct fb_config_manager *(*get_config_manager)(struct fb_master *self);
	unsigned char (*get_process_exiting)(struct fb_master *self);
};

struct fb_config_manager {
	void *unused;
	const struct fb_config_manager_vtable *vtable;
};

#define FB_DIR_LOG     14u
#define FB_DIR_PLUGINS 16u

struct fb_config_manager_vtable {
	void *unused;
	uintptr_t version;
	const char *(*get_directory)(struct fb_config_manager *self, unsigned code);
};

struct fb_plugin_factory;
struct fb_plugin_module;

struct fb_plugin_manager {
	void *unused;
	const struct fb_plugin_manager_vtable *vtable;
};

#define FB_PLUGIN_TYPE_PROFILER	  12u
#define FB_PLUGIN_MANAGER_VERSION 2u

/* A module can register itself only while the engine calls its firebird_plugin(). */
struct fb_plugin_manager_vtable {
	void *unused;
	uintptr_t version;
	void (*register_plugin_factory)(struct fb_plugin_manager *self, unsigned type,
					const char *name, struct fb_plugin_factory *factory);
	void (*register_module)(struct fb_plugin_manager *self, struct fb_plugin_module *module);
	void (*unregister_module)(struct fb_plugin_manager *self, struct fb_plugin_module *module);
	void *(*get_plugins)(struct fb_plugin_manager *self, struct fb_status *status,
			     unsigned type, const char *names, void *config);
	void *(*get_config)(struct fb_plugin_manager *self, struct fb_status *status,
			    const char *file);
	void (*release_plugin)(struct fb_plugin_manager *self, void *plugin);
};

/* ---- What we implement ---- */

struct fb_profiler_plugin;
struct fb_profiler_session;

#define FB_PLUGIN_FACTORY_VERSION 2u

struct fb_plugin_factory {
	void *unused;
	const struct fb_plugin_factory_vtable *vtable;
};

struct fb_plugin_factory_vtable {
	void *unused;
	uintptr_t version;
	struct fb_profiler_plugin *(*create_plugin)(struct fb_plugin_factory *self,
						    struct fb_status *status, void *config);
};

/* What the engine calls before it unloads a module, and when a thread ends that may have been in it. */
#define FB_PLUGIN_MODULE_VERSION 3u

struct fb_plugin_module {
	void *unused;
	const struct fb_plugin_module_vtable *vtable;
};

struct fb_plugin_module_vtable {
	void *unused;
	uintptr_t version;
	void (*do_clean)(struct fb_plugin_module *self);
	void (*thread_detach)(struct fb_plugin_module *self); /* from version 3 on */
};

#define FB_PROFILER_PLUGIN_VERSION 4u

struct fb_profiler_plugin {
	void *unused;
	const struct fb_profiler_plugin_vtable *vtable;
};

struct fb_profiler_plugin_vtable {
	void *unused;
	uintptr_t version;
	void (*add_ref)(struct fb_profiler_plugin *self);
	int (*release)(struct fb_profiler_plugin *self);
	void (*set_owner)(struct fb_profiler_plugin *self, void *owner);
	void *(*get_owner)(struct fb_profiler_plugin *self);
	void (*init)(struct fb_profiler_plugin *self, struct fb_status *status,
		     struct fb_attachment *attachment, uint64_t ticks_frequency);
	struct fb_profiler_session *(*start_session)(struct fb_profiler_plugin *self,
						     struct fb_status *status,
						     const char *description, const char *options,
						     struct fb_timestamp_tz timestamp);
	void (*flush)(struct fb_profiler_plugin *self, struct fb_status *status);
};

struct fb_profiler_stats {
	void *unused;
	const struct fb_profiler_stats_vtable *vtable;
};

struct fb_profiler_stats_vtable {
	void *unused;
	uintptr_t version;
	uint64_t (*get_elapsed_ticks)(struct fb_profiler_stats *self);
};

/* 3: Firebird 5.0; 4: 6.0, with define_statement2. */
#define FB_PROFILER_SESSION_VERSION 4u

#define FB_PROFILER_BEFORE_EVENTS 1u
#define FB_PROFILER_AFTER_EVENTS  2u

struct fb_profiler_session {
	void *unused;
	const struct fb_profiler_session_vtable *vtable;
};

struct fb_profiler_session_vtable {
	void *unused;
	uintptr_t version;
	void (*dispose)(struct fb_profiler_session *self);
	int64_t (*get_id)(struct fb_profiler_session *self);
	unsigned (*get_flags)(struct fb_profiler_session *self);
	void (*cancel)(struct fb_profiler_session *self, struct fb_status *status);
	void (*finish)(struct fb_profiler_session *self, struct fb_status *status,
		       struct fb_timestamp_tz timestamp);
	void (*define_statement)(struct fb_profiler_session *self, struct fb_status *status,
				 int64_t statement_id, int64_t parent_statement_id,
				 const char *type, const char *package_name,
				 const char *routine_name, const char *sql_text);
	void (*define_cursor)(struct fb_profiler_session *self, int64_t statement_id,
			      unsigned cursor_id, const char *name, unsigned line, unsigned column);
	void (*define_record_source)(struct fb_profiler_session *self, int64_t statement_id,
				     unsigned cursor_id, unsigned record_source_id, unsigned level,
				     const char *access_path, unsigned parent_record_source_id);
	void (*on_request_start)(struct fb_profiler_session *self, struct fb_status *status,
				 int64_t statement_id, int64_t request_id,
				 int64_t caller_statement_id, int64_t caller_request_id,
				 struct fb_timestamp_tz timestamp);
	void (*on_request_finish)(struct fb_profiler_session *self, struct fb_status *status,
				  int64_t statement_id, int64_t request_id,
				  struct fb_timestamp_tz timestamp,
				  struct fb_profiler_stats *stats);
	void (*before_psql_line_column)(struct fb_profiler_session *self, int64_t statement_id,
					int64_t request_id, unsigned line, unsigned column);
	void (*after_psql_line_column)(struct fb_profiler_session *self, int64_t statement_id,
				       int64_t request_id, unsigned line, unsigned column,
				       struct fb_profiler_stats *stats);
	void (*before_record_source_open)(struct fb_profiler_session *self, int64_t statement_id,
					  int64_t request_id, unsigned cursor_id,
					  unsigned record_source_id);
	void (*after_record_source_open)(struct fb_profiler_session *self, int64_t statement_id,
					 int64_t request_id, unsigned cursor_id,
					 unsigned record_source_id,
					 struct fb_profiler_stats *stats);
	void (*before_record_source_get_record)(struct fb_profiler_session *self,
						int64_t statement_id, int64_t request_id,
						unsigned cursor_id, unsigned record_source_id);
	void (*after_record_source_get_record)(struct fb_profiler_session *self,
					       int64_t statement_id, int64_t request_id,
					       unsigned cursor_id, unsigned record_source_id,
					       struct fb_profiler_stats *stats);
	void (*define_statement2)(struct fb_profiler_session *self, struct fb_status *status,
				  int64_t statement_id, int64_t parent_statement_id,
				  const char *type, const char *schema_name,
				  const char *package_name, const char *routine_name,
				  const char *sql_text);
};

/* Exported: what the engine looks up in the plugin's module. */
void firebird_plugin(struct fb_master *master);

#endif
