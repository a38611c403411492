/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/policy/recency.h"

#include <errno.h>
#include <stdlib.h>

void pn_recency_init(struct pn_recency *stack)
{
	*stack = (struct pn_recency){ .npages = 0 };
	pn_list_init(&stack->sorted);
	pn_list_init(&stack->unsorted);
}

/* --- sorting: chains that end with NULL, linked by next alone ------------- */

static bool older(struct pn_list *a, struct pn_list *b)
{
	return pn_recency_node(a)->used < pn_recency_node(b)->used;
}

static struct pn_list *merge(struct pn_list *a, struct pn_list *b)
{
	struct pn_list *chain, **end = &chain;

	while (a && b) {
		struct pn_list **least = older(b, a) ? &b : &a;

		*end = *least;
		end = &(*least)->next;
		*least = *end;
	}
	*end = a ? a : b;
	return chain;
}

/* Merge sort from the bottom up, like a binary counter: bins[i] is empty or
 * holds a sorted chain of 2^i nodes. */
static struct pn_list *sort(struct pn_list *chain)
{
	struct pn_list *bins[64] = { NULL }, *rest;
	unsigned i, nbins = 0;

	for (; chain; chain = rest) {
		rest = chain->next;
		chain->next = NULL;
		for (i = 0; i < nbins && bins[i]; i++) {
			chain = merge(bins[i], chain);
			bins[i] = NULL;
		}
		bins[i] = chain;
		nbins = i == nbins ? nbins + 1 : nbins;
	}
	for (i = 0; i < nbins; i++)
		chain = merge(bins[i], chain);
	return chain;
}

/* Sorts the unsorted and puts it on top of what is sorted. */
static void sort_unsorted(struct pn_recency *stack)
{
	struct pn_list *chain = stack->unsorted.next, *rest;

	stack->unsorted.prev->next = NULL;
	pn_list_init(&stack->unsorted);
	for (chain = sort(chain); chain; chain = rest) {
		rest = chain->next;
		pn_list_append(&stack->sorted, chain);
	}
	stack->sorted_at = pn_recency_node(stack->sorted.prev)->used;
}

/* --- taking --------------------------------------------------------------- */

static bool used_since(const struct pn_recency *stack, struct pn_list *link)
{
	return pn_recency_node(link)->used > stack->sorted_at;
}

/* The oldest node above `below`, which is a node of `sorted` or its head; NULL:
 * none. */
static struct pn_list *next_oldest(struct pn_recency *stack,
				   struct pn_list *below)
{
	struct pn_list *link;

	while ((link = below->next) != &stack->sorted) {
		if (!used_since(stack, link))
			return link;
		pn_list_remove(link);
		pn_list_append(&stack->unsorted, link);
	}
	if (pn_list_empty(&stack->unsorted))
		return NULL;
	sort_unsorted(stack);
	return below->next;
}

struct pn_policy_node *pn_recency_oldest(struct pn_recency *stack)
{
	struct pn_list *link = next_oldest(stack, &stack->sorted);

	return link ? pn_recency_node(link) : NULL;
}

void pn_recency_evict(struct pn_recency *stack, struct pn_take *take,
		      bool (*more)(const struct pn_take *take))
{
	struct pn_list *below = &stack->sorted, *link;

	while (more(take) && (link = next_oldest(stack, below))) {
		struct pn_policy_node *node = pn_recency_node(link);

		if (pn_eviction_busy(take, node)) {
			below = link;
			continue;
		}
		pn_recency_remove(stack, node);
		pn_take(take, node);
	}
}

struct sums {
	size_t npages, nnodes;
};

static void count_list(struct pn_list *list, struct sums *sums)
{
	struct pn_list *pos;

	pn_list_for_each (pos, list) {
		pn_assert(pos->next->prev == pos);
		sums->npages += pn_recency_node(pos)->npages;
		sums->nnodes++;
	}
}

void pn_recency_check(struct pn_recency *stack)
{
	struct sums sums = { 0, 0 };
	struct pn_list *pos;
	uint64_t last = 0;

	count_list(&stack->sorted, &sums);
	count_list(&stack->unsorted, &sums);
	pn_assert(sums.npages == stack->npages);
	pn_assert(sums.nnodes == stack->nnodes);
	pn_list_for_each (pos, &stack->sorted) {
		if (used_since(stack, pos))
			continue;
		pn_assert(pn_recency_node(pos)->used > last);
		last = pn_recency_node(pos)->used;
	}
	pn_list_for_each (pos, &stack->unsorted)
		pn_assert(used_since(stack, pos));
}

/* --- as a policy ---------------------------------------------------------- */

struct stack_policy {
	struct pn_policy base;
	struct pn_recency stack;
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
	pn_recency_init(&self->stack);
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
	pn_recency_add(&of(policy)->stack, node);
}

void pn_stack_policy_access(struct pn_policy *policy,
			    struct pn_policy_node *node)
{
	pn_policy_ignore_access(policy, node);
}

void pn_stack_policy_remove(struct pn_policy *policy,
			    struct pn_policy_node *node)
{
	pn_recency_remove(&of(policy)->stack, node);
}

unsigned pn_stack_policy_evict(struct pn_policy *policy,
			       const struct pn_policy_want *want,
			       struct pn_list *victims)
{
	struct pn_take take = {
		.want = want,
		.victims = victims,
		.batch_pages = SIZE_MAX,
		.batch_regions = of(policy)->batch,
	};

	if (pn_eviction_must(&take))
		pn_recency_evict(&of(policy)->stack, &take, pn_eviction_more);
	return take.nregions;
}

void pn_recency_each(struct pn_recency *stack, pn_policy_node_fn *fn, void *arg)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &stack->sorted)
		fn(arg, pn_recency_node(pos));
	pn_list_for_each (pos, &stack->unsorted)
		fn(arg, pn_recency_node(pos));
}

void pn_stack_policy_each(struct pn_policy *policy, pn_policy_node_fn *fn,
			  void *arg)
{
	pn_recency_each(&of(policy)->stack, fn, arg);
}

void pn_stack_policy_check(struct pn_policy *policy)
{
	pn_recency_check(&of(policy)->stack);
}
