/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stack -- nodes in the order of their last use, and the policies that look at
 * nothing else.
 *
 * Order is lazy: a use stamps the node and moves nothing. Two lists hold the
 * nodes: `sorted`, in the order of use as it was when it was sorted last, and
 * `unsorted`, in no order: what was inserted or found used since. A node of
 * `sorted` whose stamp is newer than the sorting goes to the unsorted when it
 * is met; the others were used before anything in the unsorted, so the first of
 * them is the oldest of all. When none are left the unsorted is sorted and
 * takes their place. That is exact, needs no memory, and costs O(log n) per
 * node and turn of the stack. Caveat: the call that sorts takes long when the
 * unsorted is high (0.2 s for a million nodes).
 *
 * At rest: the nodes of `sorted` that were not used since `sorted_at` stand in
 * the order of their stamps, which are not above it; those in the unsorted are.
 * npages and nnodes are what is in both.
 */
#ifndef PN_CACHE_POLICY_RECENCY_H
#define PN_CACHE_POLICY_RECENCY_H

#include "cache/policy/eviction.h"

struct pn_recency {
	struct pn_list sorted, unsorted;
	uint64_t sorted_at;
	size_t npages, nnodes;
};

void pn_recency_init(struct pn_recency *stack);

static inline struct pn_policy_node *pn_recency_node(struct pn_list *link)
{
	return pn_container_of(link, struct pn_policy_node, link);
}

/* Adds a node that stands in no list. Its stamp says where it belongs. */
static inline void pn_recency_add(struct pn_recency *stack,
				  struct pn_policy_node *node)
{
	pn_list_append(&stack->unsorted, &node->link);
	stack->npages += node->npages;
	stack->nnodes++;
}

static inline void pn_recency_remove(struct pn_recency *stack,
				     struct pn_policy_node *node)
{
	pn_list_remove(&node->link);
	stack->npages -= node->npages;
	stack->nnodes--;
}

/* The node used longest ago; NULL: none. */
struct pn_policy_node *pn_recency_oldest(struct pn_recency *stack);

/* Takes victims from the bottom up while `more` says so. */
void pn_recency_evict(struct pn_recency *stack, struct pn_take *take,
		      bool (*more)(const struct pn_take *take));

void pn_recency_each(struct pn_recency *stack, pn_policy_node_fn *fn,
		     void *arg);

/* Asserts what holds at rest. */
void pn_recency_check(struct pn_recency *stack);

/* --- a policy that is nothing but a stack: LRU, FMRD ---------------------- */

/* Each evict() takes at least `batch` regions if there are; 0: just what is
 * wanted. -ENOMEM. */
int pn_stack_policy_open(const struct pn_policy_ops *ops, unsigned batch,
			 struct pn_policy **out);
void pn_stack_policy_close(struct pn_policy *policy);
void pn_stack_policy_resize(struct pn_policy *policy, size_t capacity_pages);
void pn_stack_policy_insert(struct pn_policy *policy,
			    struct pn_policy_node *node);
void pn_stack_policy_access(struct pn_policy *policy,
			    struct pn_policy_node *node);
void pn_stack_policy_remove(struct pn_policy *policy,
			    struct pn_policy_node *node);
unsigned pn_stack_policy_evict(struct pn_policy *policy,
			       const struct pn_policy_want *want,
			       struct pn_list *victims);
void pn_stack_policy_each(struct pn_policy *policy, pn_policy_node_fn *fn,
			  void *arg);
void pn_stack_policy_check(struct pn_policy *policy);

/* The rows of its table of operations besides name, help, batched and open. */
#define PN_STACK_POLICY_OPS                                                 \
	.close = pn_stack_policy_close, .resize = pn_stack_policy_resize,   \
	.insert = pn_stack_policy_insert, .access = pn_stack_policy_access, \
	.remove = pn_stack_policy_remove, .evict = pn_stack_policy_evict,   \
	.each = pn_stack_policy_each, .check = pn_stack_policy_check

#endif
