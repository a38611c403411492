/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/policy/stack.h"

#include <errno.h>
#include <stdlib.h>

void pn_stack_init(struct pn_stack *stack)
{
	*stack = (struct pn_stack){ .npages = 0 };
	pn_list_init(&stack->oldest_first);
}

void pn_stack_take(struct pn_stack *stack, struct pn_take *take,
		   bool (*more)(const struct pn_take *take))
{
	struct pn_list *pos, *tmp;

	pn_list_for_each_safe (pos, tmp, &stack->oldest_first) {
		struct pn_policy_node *node = pn_stack_node(pos);

		if (!more(take))
			return;
		if (pn_take_busy(take, node))
			continue;
		pn_stack_remove(stack, node);
		pn_take(take, node);
	}
}

void pn_stack_check(struct pn_stack *stack)
{
	size_t npages = 0, nnodes = 0;
	struct pn_list *pos;

	pn_list_for_each (pos, &stack->oldest_first) {
		pn_assert(pos->next->prev == pos);
		npages += pn_stack_node(pos)->npages;
		nnodes++;
	}
	pn_assert(npages == stack->npages);
	pn_assert(nnodes == stack->nnodes);
}

/* --- as a policy ---------------------------------------------------------- */

struct stack_policy {
	struct pn_policy base;
	struct pn_stack stack;
	unsigned batch;
};

static struct stack_policy *of(struct pn_policy *policy)
{
	return pn_container_of(policy, struct stack_policy, base);
}

int pn_stack_policy_open(const struct pn_policy_ops *ops, unsigned batch,
			 struct pn_policy **out)
{
	struct stack_policy *self = calloc(1, sizeof(*self));

	if (!self)
		return -ENOMEM;
	self->base.ops = ops;
	self->batch = batch;
	pn_stack_init(&self->stack);
	*out = &self->base;
	return 0;
}

void pn_stack_policy_close(struct pn_policy *policy)
{
	free(of(policy));
}

/* Recency does not depend on how much room there is. */
void pn_stack_policy_resize(struct pn_policy *policy, size_t capacity_pages)
{
	(void)policy;
	(void)capacity_pages;
}

void pn_stack_policy_insert(struct pn_policy *policy,
			    struct pn_policy_node *node)
{
	pn_stack_push(&of(policy)->stack, node);
}

void pn_stack_policy_access(struct pn_policy *policy,
			    struct pn_policy_node *node)
{
	pn_stack_raise(&of(policy)->stack, node);
}

void pn_stack_policy_remove(struct pn_policy *policy,
			    struct pn_policy_node *node)
{
	pn_stack_remove(&of(policy)->stack, node);
}

unsigned pn_stack_policy_evict(struct pn_policy *policy,
			       const struct pn_policy_want *want,
			       struct pn_list *victims)
{
	struct pn_take take = {
		.want = want,
		.victims = victims,
		.like_pages = SIZE_MAX,
		.like_regions = of(policy)->batch,
	};

	if (pn_take_must(&take))
		pn_stack_take(&of(policy)->stack, &take, pn_take_more);
	return take.nregions;
}

void pn_stack_policy_check(struct pn_policy *policy)
{
	pn_stack_check(&of(policy)->stack);
}
