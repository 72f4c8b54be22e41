#include "process_plan.h"

static bool stop(void *context, pid_t thread, uint64_t *held, void (*meanwhile)(void *context),
		 void *meanwhile_context)
{
	return plan_stop(context, thread, held, meanwhile, meanwhile_context);
}

static void read_stopped(void *context, struct plan_chain *chain)
{
	plan_read_stopped(context, chain);
}

static void describe(const void *context, const struct plan_source *source, char *text, size_t size)
{
	plan_describe(context, source, text, size);
}

static void free_plan(void *context)
{
	plan_free(context);
}

bool process_plan_open(const struct process *process, const struct layout *layout,
		       struct process_plan *plan, char error[STACK_ERROR_SIZE])
{
	*plan = (struct process_plan){
		.stop = stop, .read_stopped = read_stopped, .describe = describe, .free = free_plan
	};
	plan->context = plan_new(process->pid, layout, process->engine_base, error);
	return plan->context != NULL;
}
