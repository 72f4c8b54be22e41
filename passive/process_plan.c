#include "process_plan.h"

static bool sample(void *context, pid_t thread, struct plan_place *place, struct plan_chain *chain,
		   void (*meanwhile)(void *context), void *meanwhile_context)
{
	(void)place;
	return plan_sample(context, thread, chain, meanwhile, meanwhile_context);
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
	*plan = (struct process_plan){ .sample = sample, .describe = describe, .free = free_plan };
	plan->context = plan_new(process->pid, layout, process->engine_base, error);
	return plan->context != NULL;
}
