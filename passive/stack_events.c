#include "stack_events.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * So much of a stack is copied with a sample: what Firebird uses in some ten calls of procedures within each other.
 * The kernel copies it while the thread is interrupted, some µs, and allows 64 KB.
 */
#define COPIED 32768u

/* Room for the samples between two looks, one page more for the ring's state. */
#define RING_PAGES 32u
#define PAGE	   4096u

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
	unsigned char *record; /* room for one, taken out of the ring */
};

/* What a sample is made of, behind its header, in the kernel's order. */
struct sample_head {
	uint64_t time;
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

static int open_event(pid_t thread, uint64_t period)
{
	struct perf_event_attr attribute = {
		.size = sizeof(attribute),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_TASK_CLOCK,
		.sample_period = period,
		.sample_type = PERF_SAMPLE_TIME | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
		.sample_regs_user = register_bits(),
		.sample_stack_user = COPIED,
		/* Of time in the kernel, the user's registers: what called it. */
		.exclude_kernel = 0,
		.exclude_hv = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
	};
	long fd = syscall(SYS_perf_event_open, &attribute, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd >= 0 || (errno != EACCES && errno != EPERM))
		return (int)fd;
	/* Who may not see the kernel may still see the time outside of it. */
	attribute.exclude_kernel = 1;
	return (int)syscall(SYS_perf_event_open, &attribute, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

struct stack_events *stack_events_open(pid_t thread, uint64_t period)
{
	struct stack_events *events = calloc(1, sizeof(*events));
	void *ring = MAP_FAILED;

	if (!events)
		return NULL;
	events->record = malloc(UINT16_MAX + 1u);
	events->fd = open_event(thread, period);
	if (events->fd >= 0)
		ring = mmap(NULL, (1 + RING_PAGES) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
			    events->fd, 0);
	if (ring != MAP_FAILED)
		events->ring = ring;
	if (events->ring && events->record)
		return events;
	{
		int error = errno;

		stack_events_close(events);
		errno = error;
	}
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
	free(events->record);
	free(events);
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

/* False: it has no registers, as the thread was in exec or exit. */
static bool read_sample(const unsigned char *record, size_t size, struct stack_sample *sample,
			uint64_t *time)
{
	struct sample_head head;
	uint64_t used;

	if (size < sizeof(head))
		return false;
	memcpy(&head, record, sizeof(head));
	if (head.abi != PERF_SAMPLE_REGS_ABI_64 || head.stack_size > COPIED ||
	    size < sizeof(head) + head.stack_size + sizeof(used))
		return false;
	memcpy(&used, record + sizeof(head) + head.stack_size, sizeof(used));
	if (used > head.stack_size)
		return false;
	*time = head.time;
	for (unsigned i = 0; i < REGISTERS; i++)
		sample->registers[registers[i].number] = head.registers[i];
	sample->size = used;
	memcpy(sample->bytes, record + sizeof(head), used);
	return true;
}

bool stack_events_take(struct stack_events *events, struct stack_sample *sample, uint64_t *time)
{
	uint64_t head = __atomic_load_n(&events->ring->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = events->ring->data_tail;
	bool taken = false;
	size_t size = 0;

	while (tail < head) {
		struct perf_event_header header;

		copy_out(events, tail, &header, sizeof(header));
		if (header.size < sizeof(header))
			break;
		if (header.type == PERF_RECORD_SAMPLE) {
			size = header.size - sizeof(header);
			copy_out(events, tail + sizeof(header), events->record, size);
			taken = true;
		}
		tail += header.size;
	}
	__atomic_store_n(&events->ring->data_tail, head, __ATOMIC_RELEASE);
	return taken && read_sample(events->record, size, sample, time);
}
