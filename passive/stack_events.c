#include "stack_events.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096u

/*
 * So much of a stack is copied with a sample: what Firebird uses in some twenty calls of procedures within each other.
 * The kernel copies it while the thread is interrupted, some us, and allows 64 KB.
 */
#define COPIED 61440u

/* Room for one sample, which may have 64 KB; there is only one at a time.  One page more for the ring's state. */
#define RING_PAGES 16u

/*
 * Of the thread's CPU time, from when it is asked for to the sample, in ns.  The kernel tries again as often as long as the
 * thread is in the kernel: with 10 us, the least that it allows, a busy guest's thread seems to do nothing else.
 */
#define DELAY 500000u

/* The kernel's bits of the registers, in its order, and their numbers in DWARF. */
static const struct {
	uint32_t bit, number;
} registers[] = {
	{ 0, 0 },				       /* rax */
	{ 1, 3 },				       /* rbx */
	{ 2, 2 },				       /* rcx */
	{ 3, 1 },				       /* rdx */
	{ 4, 4 },				       /* rsi */
	{ 5, 5 },				       /* rdi */
	{ 6, 6 },				       /* rbp */
	{ 7, STACK_RSP }, { 8, STACK_RIP }, { 16, 8 }, /* r8 and so on */
	{ 17, 9 },	  { 18, 10 },	    { 19, 11 }, { 20, 12 },
	{ 21, 13 },	  { 22, 14 },	    { 23, 15 },
};

#define REGISTERS (sizeof(registers) / sizeof(registers[0]))

struct stack_events {
	int fd;
	struct perf_event_mmap_page *ring;
	bool awaited; /* a sample was asked for, and not taken yet */
};

/* A sample in the ring, in the kernel's order. */
struct sample_head {
	struct perf_event_header header;
	uint64_t abi; /* 0: a kernel thread, without registers */
	uint64_t registers[REGISTERS];
	uint64_t stack_size; /* room for the copy that follows; then u64: used */
};

static uint64_t register_bits(void)
{
	uint64_t bits = 0;

	for (unsigned i = 0; i < REGISTERS; i++)
		bits |= 1ull << registers[i].bit;
	return bits;
}

/*
 * In the kernel a thread isn't sampled, but when it comes back: most system calls don't keep the registers that tell
 * the objects.
 */
static int open_event(pid_t thread)
{
	struct perf_event_attr attribute = {
		.size = sizeof(attribute),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_TASK_CLOCK,
		.sample_period = DELAY,
		.sample_type = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
		.sample_regs_user = register_bits(),
		.sample_stack_user = COPIED,
		.disabled = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attribute, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static void explain(bool opened, char error[STACK_ERROR_SIZE])
{
	if (opened && errno == EPERM)
		snprintf(
			error, STACK_ERROR_SIZE,
			"too little memory may be locked for perf events: raise the limit of locked memory "
			"(ulimit -l), or kernel.perf_event_mlock_kb");
	else if (errno == EACCES || errno == EPERM)
		snprintf(
			error, STACK_ERROR_SIZE,
			"perf_event_open() is not permitted: set kernel.perf_event_paranoid to 2, and in a "
			"container allow the call; or use fbprof record, which needs none of that");
	else
		snprintf(error, STACK_ERROR_SIZE,
			 "perf events can't be had: %s: use fbprof record, which needs none",
			 strerror(errno));
}

struct stack_events *stack_events_open(pid_t thread, char error[STACK_ERROR_SIZE])
{
	struct stack_events *events = calloc(1, sizeof(*events));
	void *ring = MAP_FAILED;

	if (!events) {
		snprintf(error, STACK_ERROR_SIZE, "out of memory");
		return NULL;
	}
	events->fd = open_event(thread);
	if (events->fd >= 0)
		ring = mmap(NULL, (1 + RING_PAGES) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
			    events->fd, 0);
	if (ring != MAP_FAILED) {
		events->ring = ring;
		return events;
	}
	explain(events->fd >= 0, error);
	stack_events_close(events);
	return NULL;
}

void stack_events_close(struct stack_events *events)
{
	if (!events)
		return;
	if (events->ring)
		munmap(events->ring, (1 + RING_PAGES) * PAGE);
	if (events->fd >= 0)
		close(events->fd);
	free(events);
}

/* ---- The ring ---- */

static bool is_there(const struct stack_events *events)
{
	return __atomic_load_n(&events->ring->data_head, __ATOMIC_ACQUIRE) !=
	       events->ring->data_tail;
}

/* What is in it has been read. */
static void empty(struct stack_events *events)
{
	uint64_t head = __atomic_load_n(&events->ring->data_head, __ATOMIC_ACQUIRE);

	__atomic_store_n(&events->ring->data_tail, head, __ATOMIC_RELEASE);
}

static void copy_out(const struct stack_events *events, uint64_t place, void *to, size_t size)
{
	const unsigned char *data = (const unsigned char *)events->ring + PAGE;
	size_t offset = place % (RING_PAGES * PAGE), first = RING_PAGES * PAGE - offset;

	if (first > size)
		first = size;
	memcpy(to, data + offset, first);
	memcpy((unsigned char *)to + first, data, size - first);
}

/* False: it is none, or has no registers, as the thread was in exec or exit. */
static bool read_sample(const struct stack_events *events, struct stack_sample *sample)
{
	uint64_t place = events->ring->data_tail, used;
	struct sample_head head;

	copy_out(events, place, &head, sizeof(head));
	if (head.header.type != PERF_RECORD_SAMPLE || head.abi != PERF_SAMPLE_REGS_ABI_64 ||
	    head.stack_size > COPIED ||
	    head.header.size < sizeof(head) + head.stack_size + sizeof(used))
		return false;
	copy_out(events, place + sizeof(head) + head.stack_size, &used, sizeof(used));
	if (used > head.stack_size)
		return false;
	for (unsigned i = 0; i < REGISTERS; i++)
		sample->registers[registers[i].number] = head.registers[i];
	sample->size = used;
	copy_out(events, place + sizeof(head), sample->bytes, used);
	return true;
}

/* ---- Samples ---- */

/* The kernel switches the event off after one sample by itself. */
bool stack_events_ask(struct stack_events *events)
{
	events->awaited = !ioctl(events->fd, PERF_EVENT_IOC_REFRESH, 1);
	return events->awaited;
}

bool stack_events_await(const struct stack_events *events)
{
	return events->awaited;
}

bool stack_events_take(struct stack_events *events, struct stack_sample *sample)
{
	bool taken;

	if (!is_there(events))
		return false;
	events->awaited = false;
	taken = read_sample(events, sample);
	empty(events);
	return taken;
}
