#include "stack.h"
#include "memory.h"
#include "position.h"

#include <elf.h>
#include <errno.h>
#include <libunwind.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

const uint32_t stack_callee_saved[] = { 3, 6, 12, 13, 14, 15 };

/* libunwind exports it for those who bring a table of their own, but declares it nowhere. */
#define search_unwind_table UNW_OBJ(dwarf_search_unwind_table)
extern int search_unwind_table(unw_addr_space_t space, unw_word_t ip, unw_dyn_info_t *table,
			       unw_proc_info_t *info, int need_unwind_info, void *argument);

/* ---- Copies ---- */

#define PAGE 4096u

/* What lies above the stack isn't known: the pages are asked for one by one, up to the first that is none. */
static bool copy_stack(pid_t process, struct stack_sample *sample)
{
	struct iovec to = { sample->bytes, STACK_COPY_SIZE };
	struct iovec from[STACK_COPY_SIZE / PAGE + 1];
	uint64_t address = sample->registers[STACK_RSP];
	size_t left = STACK_COPY_SIZE;
	unsigned count = 0;
	ssize_t copied;

	while (left) {
		size_t size = PAGE - address % PAGE;

		if (size > left)
			size = left;
		from[count++] = (struct iovec){ (void *)address, size };
		address += size;
		left -= size;
	}
	copied = process_vm_readv(process, &to, 1, from, count, 0);
	sample->size = copied > 0 ? (size_t)copied : 0;
	return copied > 0;
}

bool stack_word(const struct stack_sample *sample, uint64_t address, uint64_t *word)
{
	uint64_t place = address - sample->registers[STACK_RSP];

	if (sample->size < sizeof(*word) || place > sample->size - sizeof(*word))
		return false;
	memcpy(word, sample->bytes + place, sizeof(*word));
	return true;
}

static void copy_user_registers(struct stack_sample *sample, const struct user_regs_struct *user)
{
	const uint64_t registers[STACK_REGISTERS] = {
		user->rax, user->rdx, user->rcx, user->rbx, user->rsi, user->rdi,
		user->rbp, user->rsp, user->r8,	 user->r9,  user->r10, user->r11,
		user->r12, user->r13, user->r14, user->r15, user->rip,
	};

	memcpy(sample->registers, registers, sizeof(registers));
}

/*
 * To sleep and be woken takes longer than most stops; but to look all the time would take the CPU from
 * a thread that needs it to come to its stop.
 */
#define LOOKS 100

static pid_t wait_for_change(pid_t thread, int *status)
{
	for (unsigned i = 0; i < LOOKS; i++) {
		pid_t changed = waitpid(thread, status, __WALL | WNOHANG);

		if (changed)
			return changed;
	}
	return waitpid(thread, status, __WALL);
}

/*
 * Waits until the seized thread stands still.  `signal`: what it was stopped by; to be delivered.
 * False: it has ended instead.
 */
static bool wait_for_stop(pid_t thread, int *signal)
{
	int status;

	while (wait_for_change(thread, &status) < 0) {
		if (errno != EINTR)
			return false;
	}
	if (!WIFSTOPPED(status)) {
		errno = ESRCH;
		return false;
	}
	/* Our interruption, and a stop of the whole process, show as events; they aren't delivered. */
	*signal = status >> 16 ? 0 : WSTOPSIG(status);
	return true;
}

bool stack_stop(pid_t process, pid_t thread, struct stack_sample *sample,
		void (*meanwhile)(void *context), void *context)
{
	struct user_regs_struct user;
	struct iovec vector = { &user, sizeof(user) };
	int signal = 0, error;
	uint64_t stopped;
	bool good;

	if (ptrace(PTRACE_SEIZE, thread, NULL, NULL))
		return false;
	if (ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) || !wait_for_stop(thread, &signal))
		return false; /* it is ending: there is nothing to detach from */
	stopped = passive_clock();
	good = ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRSTATUS, &vector) == 0;
	if (good) {
		copy_user_registers(sample, &user);
		good = copy_stack(process, sample);
	}
	if (good && meanwhile)
		meanwhile(context);
	error = errno;
	ptrace(PTRACE_DETACH, thread, NULL, (void *)(intptr_t)signal);
	sample->held = passive_clock() - stopped;
	errno = error;
	return good;
}

bool stack_of_context(const void *context, struct stack_sample *sample)
{
	const greg_t *user = ((const ucontext_t *)context)->uc_mcontext.gregs;
	const uint64_t registers[STACK_REGISTERS] = {
		user[REG_RAX], user[REG_RDX], user[REG_RCX], user[REG_RBX], user[REG_RSI],
		user[REG_RDI], user[REG_RBP], user[REG_RSP], user[REG_R8],  user[REG_R9],
		user[REG_R10], user[REG_R11], user[REG_R12], user[REG_R13], user[REG_R14],
		user[REG_R15], user[REG_RIP],
	};

	memcpy(sample->registers, registers, sizeof(registers));
	return copy_stack(getpid(), sample);
}

__attribute__((noinline)) bool stack_own(struct stack_sample *sample)
{
	ucontext_t context;

	getcontext(&context);
	return stack_of_context(&context, sample);
}

/* ---- Modules ---- */

/* A file that is mapped with code in it: its parts lie at fixed distances, between `start` and `end`. */
struct module {
	uint64_t start, end;
	bool examined;
	/* The segment with the unwind tables, copied; size 0: there are none. */
	uint64_t tables;
	size_t tables_size;
	unsigned char *copy;
	uint64_t header; /* .eh_frame_hdr */
};

/* Which function a return address is in: libunwind keeps that for itself alone. */
struct place {
	uint64_t ip, start, end;
};

/* So many return addresses come up in a workload; each costs some 500 bytes in libunwind's cache. */
#define CACHE_SIZE 4096u

struct stack_unwinder {
	pid_t process;
	unw_addr_space_t space;
	struct module *modules; /* ascending */
	uint32_t count, room;
	const struct stack_sample *sample; /* while unwinding */
	bool renewed;			   /* the list of modules, in this unwinding */
	struct place places[CACHE_SIZE];   /* by a hash of ip */
};

/* No module has larger ones (libEngine13: 3 MB); a damaged header must not have us take all memory. */
#define TABLES_MAX (64u << 20)

static void copy_tables(pid_t process, struct module *module, uint64_t bias,
			const Elf64_Phdr *segment)
{
	if (!segment->p_filesz || segment->p_filesz > TABLES_MAX)
		return;
	module->copy = malloc(segment->p_filesz);
	if (!module->copy)
		return;
	module->tables = bias + segment->p_vaddr;
	if (memory_load(process, module->tables, module->copy, segment->p_filesz))
		module->tables_size = segment->p_filesz;
}

static void examine_module(pid_t process, struct module *module)
{
	Elf64_Phdr segments[32], *table = NULL;
	Elf64_Ehdr header;
	uint64_t bias = module->start;

	module->examined = true;
	if (!memory_load(process, module->start, &header, sizeof(header)) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    header.e_phentsize != sizeof(segments[0]) || header.e_phnum > 32 ||
	    !memory_load(process, module->start + header.e_phoff, segments,
			 header.e_phnum * sizeof(segments[0])))
		return;
	for (int i = header.e_phnum - 1; i >= 0; i--) {
		if (segments[i].p_type == PT_GNU_EH_FRAME)
			table = &segments[i];
		else if (segments[i].p_type == PT_LOAD && segments[i].p_offset == 0)
			bias = module->start - segments[i].p_vaddr;
	}
	if (!table)
		return;
	module->header = bias + table->p_vaddr;
	for (int i = 0; i < header.e_phnum; i++) {
		if (segments[i].p_type == PT_LOAD && table->p_vaddr >= segments[i].p_vaddr &&
		    table->p_vaddr - segments[i].p_vaddr < segments[i].p_filesz) {
			copy_tables(process, module, bias, &segments[i]);
			break;
		}
	}
}

static void clear_modules(struct stack_unwinder *unwinder)
{
	for (uint32_t i = 0; i < unwinder->count; i++)
		free(unwinder->modules[i].copy);
	unwinder->count = 0;
}

static bool add_module(struct stack_unwinder *unwinder, uint64_t start, uint64_t end)
{
	if (unwinder->count == unwinder->room) {
		uint32_t room = unwinder->room ? 2 * unwinder->room : 64;
		struct module *modules = reallocarray(unwinder->modules, room, sizeof(*modules));

		if (!modules)
			return false;
		unwinder->modules = modules;
		unwinder->room = room;
	}
	unwinder->modules[unwinder->count++] = (struct module){ .start = start, .end = end };
	return true;
}

/* One begins where a file is mapped from its start, and goes on as long as the same file does. */
static bool read_modules(struct stack_unwinder *unwinder)
{
	char path[64], line[4608], last[64] = "";
	FILE *maps;
	bool good = true;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)unwinder->process);
	maps = fopen(path, "re");
	if (!maps)
		return false;
	clear_modules(unwinder);
	while (good && fgets(line, sizeof(line), maps)) {
		unsigned long start, end, offset;
		char file[64]; /* device and inode */
		int place = 0;

		if (sscanf(line, "%lx-%lx %*s %lx %40[0-9a-f:]%n", &start, &end, &offset, file,
			   &place) < 4)
			continue;
		snprintf(file + strlen(file), sizeof(file) - strlen(file), " %lu",
			 strtoul(line + place, NULL, 10));
		if (unwinder->count && strcmp(file, last) == 0 && offset)
			unwinder->modules[unwinder->count - 1].end = end;
		else if (offset == 0 && (strcmp(file, "00:00 0") || strstr(line, "[vdso]")))
			good = add_module(unwinder, start, end);
		else
			file[0] = 0;
		strcpy(last, file);
	}
	fclose(maps);
	return good;
}

static struct module *find_module(struct stack_unwinder *unwinder, uint64_t address)
{
	uint32_t low = 0, high = unwinder->count;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (address >= unwinder->modules[middle].end)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == unwinder->count || address < unwinder->modules[low].start)
		return NULL;
	return &unwinder->modules[low];
}

bool stack_module(struct stack_unwinder *unwinder, uint64_t address, uint64_t *start, uint64_t *end)
{
	const struct module *module = find_module(unwinder, address);

	if (!module)
		return false;
	*start = module->start;
	*end = module->end;
	return true;
}

/* ---- What libunwind asks for ---- */

static int find_proc_info(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t *info,
			  int need_unwind_info, void *argument)
{
	struct stack_unwinder *unwinder = argument;
	struct module *module = find_module(unwinder, ip);
	unw_dyn_info_t table = { .format = UNW_INFO_FORMAT_REMOTE_TABLE };
	const unsigned char *header;
	uint32_t entries;

	if (!module && !unwinder->renewed) {
		/* A module was loaded since: look once more, but not again and again for a wild address. */
		unwinder->renewed = true;
		unw_flush_cache(space, 0, 0);
		memset(unwinder->places, 0, sizeof(unwinder->places));
		if (read_modules(unwinder))
			module = find_module(unwinder, ip);
	}
	if (!module)
		return -UNW_ENOINFO;
	if (!module->examined)
		examine_module(unwinder->process, module);
	if (!module->tables_size)
		return -UNW_ENOINFO;
	/* Version 1, and the encodings that every linker writes: 4 bytes, relative to the header. */
	header = module->copy + (module->header - module->tables);
	if (module->tables_size - (module->header - module->tables) < 12 || header[0] != 1 ||
	    header[2] != 0x03 || header[3] != 0x3b)
		return -UNW_ENOINFO;
	memcpy(&entries, header + 8, sizeof(entries));
	table.start_ip = module->start;
	table.end_ip = module->end;
	table.u.rti.segbase = module->header;
	table.u.rti.table_data = module->header + 12;
	table.u.rti.table_len = entries * 8ull / sizeof(unw_word_t);
	return search_unwind_table(space, ip, &table, info, need_unwind_info, argument);
}

static void put_unwind_info(unw_addr_space_t space, unw_proc_info_t *info, void *argument)
{
	(void)space;
	(void)info;
	(void)argument;
}

static int no_dynamic_info(unw_addr_space_t space, unw_word_t *address, void *argument)
{
	(void)space;
	(void)address;
	(void)argument;
	return -UNW_ENOINFO;
}

/* The stack only as it was copied: what the thread does since must not be mixed in. */
static int access_mem(unw_addr_space_t space, unw_word_t address, unw_word_t *value, int write,
		      void *argument)
{
	struct stack_unwinder *unwinder = argument;
	const struct stack_sample *sample = unwinder->sample;
	const struct module *module;
	uint64_t place;

	(void)space;
	if (write)
		return -UNW_EREADONLYREG;
	if (stack_word(sample, address, value))
		return 0;
	module = find_module(unwinder, address);
	if (!module)
		return -UNW_EINVAL;
	place = address - module->tables;
	if (module->tables_size >= sizeof(*value) &&
	    place <= module->tables_size - sizeof(*value)) {
		memcpy(value, module->copy + place, sizeof(*value));
		return 0;
	}
	return memory_load(unwinder->process, address, value, sizeof(*value)) ? 0 : -UNW_EINVAL;
}

static int access_reg(unw_addr_space_t space, unw_regnum_t number, unw_word_t *value, int write,
		      void *argument)
{
	const struct stack_unwinder *unwinder = argument;

	(void)space;
	if (write || number < 0 || number >= STACK_REGISTERS)
		return -UNW_EBADREG;
	*value = unwinder->sample->registers[number];
	return 0;
}

static int access_fpreg(unw_addr_space_t space, unw_regnum_t number, unw_fpreg_t *value, int write,
			void *argument)
{
	(void)space;
	(void)number;
	(void)value;
	(void)write;
	(void)argument;
	return -UNW_EBADREG;
}

static int no_resume(unw_addr_space_t space, unw_cursor_t *cursor, void *argument)
{
	(void)space;
	(void)cursor;
	(void)argument;
	return -UNW_EINVAL;
}

static int no_name(unw_addr_space_t space, unw_word_t address, char *name, size_t size,
		   unw_word_t *offset, void *argument)
{
	(void)space;
	(void)address;
	(void)name;
	(void)size;
	(void)offset;
	(void)argument;
	return -UNW_ENOINFO;
}

/* ---- Unwinding ---- */

struct stack_unwinder *stack_unwinder_new(pid_t process, char error[STACK_ERROR_SIZE])
{
	static unw_accessors_t accessors = {
		.find_proc_info = find_proc_info,
		.put_unwind_info = put_unwind_info,
		.get_dyn_info_list_addr = no_dynamic_info,
		.access_mem = access_mem,
		.access_reg = access_reg,
		.access_fpreg = access_fpreg,
		.resume = no_resume,
		.get_proc_name = no_name,
	};
	struct stack_unwinder *unwinder = calloc(1, sizeof(*unwinder));

	if (!unwinder)
		goto no_memory;
	unwinder->process = process;
	unwinder->space = unw_create_addr_space(&accessors, 0);
	if (!unwinder->space)
		goto no_memory;
	unw_set_caching_policy(unwinder->space, UNW_CACHE_GLOBAL);
	unw_set_cache_size(unwinder->space, CACHE_SIZE, 0);
	if (!read_modules(unwinder)) {
		snprintf(error, STACK_ERROR_SIZE, "its list of mapped files can't be read: %s",
			 strerror(errno));
		stack_unwinder_free(unwinder);
		return NULL;
	}
	return unwinder;
no_memory:
	snprintf(error, STACK_ERROR_SIZE, "out of memory");
	free(unwinder);
	return NULL;
}

void stack_unwinder_free(struct stack_unwinder *unwinder)
{
	if (!unwinder)
		return;
	if (unwinder->space)
		unw_destroy_addr_space(unwinder->space);
	clear_modules(unwinder);
	free(unwinder->modules);
	free(unwinder);
}

static void find_function(struct stack_unwinder *unwinder, unw_cursor_t *cursor,
			  struct stack_frame *frame)
{
	struct place *place =
		&unwinder->places[frame->ip * 0x9e3779b97f4a7c15u >> 32 & (CACHE_SIZE - 1)];
	unw_proc_info_t info;

	if (place->ip != frame->ip) {
		*place = (struct place){ .ip = frame->ip };
		if (unw_get_proc_info(cursor, &info) == 0) {
			place->start = info.start_ip;
			place->end = info.end_ip;
		}
	}
	frame->start = place->start;
	frame->end = place->end;
}

static void describe_frame(struct stack_unwinder *unwinder, unw_cursor_t *cursor,
			   struct stack_frame *frame)
{
	unw_word_t word;

	memset(frame, 0, sizeof(*frame));
	if (unw_get_reg(cursor, UNW_REG_IP, &word) == 0)
		frame->ip = word;
	find_function(unwinder, cursor, frame);
	for (unsigned i = 0; i < STACK_CALLEE_SAVED; i++) {
		if (unw_get_reg(cursor, (int)stack_callee_saved[i], &word) == 0) {
			frame->saved[i] = word;
			frame->known |= 1u << i;
		}
	}
}

uint32_t stack_unwind(struct stack_unwinder *unwinder, const struct stack_sample *sample,
		      struct stack_frame *frames, uint32_t room, bool *whole)
{
	unw_cursor_t cursor;
	unw_word_t word;
	uint32_t count = 0;
	int more = 1;

	unwinder->sample = sample;
	unwinder->renewed = false;
	if (unw_init_remote(&cursor, unwinder->space, unwinder))
		more = -1;
	while (more > 0 && count < room) {
		describe_frame(unwinder, &cursor, &frames[count++]);
		more = unw_step(&cursor);
		/* What is the caller's stack pointer is this frame's canonical address. */
		if (more > 0 && unw_get_reg(&cursor, UNW_X86_64_RSP, &word) == 0)
			frames[count - 1].cfa = word;
	}
	unwinder->sample = NULL;
	*whole = more == 0;
	return count;
}
