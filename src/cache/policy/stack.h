/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stack -- nodes in the order of their last use, and the policies that look at
 * nothing else.
 *
 * At rest: `oldest_first` holds every node once, the one used longest ago in
 * front, and npages and nnodes are what is in it.
 * Each call is O(1), except that taking victims passes the busy nodes that lie
 * below them.
 */
#ifndef PN_CACHE_POLICY_STACK_H
#define PN_CACHE_POLICY_STACK_H

#include "cache/policy/take.h"

struct pn_stack {
	struct pn_list oldest_first;
	size_t npages, nnodes;
};

void pn_stack_init(struct pn_stack *stack);

static inline struct pn_policy_node *pn_stack_node(struct pn_list *link)
{
	return pn_container_of(link, struct pn_policy_node, link);
}

/* Puts a node that stands in no list on top. */
static inline void pn_stack_push(struct pn_stack *stack,
				 struct pn_policy_node *node)
{
	pn_list_append(&stack->oldest_first, &node->link);
	stack->npages += node->npages;
	stack->nnodes++;
}

static inline void pn_stack_remove(struct pn_stack *stack,
				   struct pn_policy_node *node)
{
	pn_list_remove(&node->link);
	stack->npages -= node->npages;
	stack->nnodes--;
}

/* Moves a node of this stack to the top. */
static inline void pn_stack_raise(struct pn_stack *stack,
				  struct pn_policy_node *node)
{
	struct pn_list *list = &stack->oldest_first, *link = &node->link;

	if (list->prev == link)
		return;
	/* Every hit comes here: not remove and append, which would write the
	 * links twice. */
	link->prev->next = link->next;
	link->next->prev = link->prev;
	link->next = list;
	link->prev = list->prev;
	list->prev->next = link;
	list->prev = link;
}

/* Takes victims from the bottom up while `more` says so. */
void pn_stack_take(struct pn_stack *stack, struct pn_take *take,
		   bool (*more)(const struct pn_take *take));

/* Asserts what holds at rest. */
void pn_stack_check(struct pn_stack *stack);

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
void pn_stack_policy_check(struct pn_policy *policy);

/* The rows of its table of operations besides name, help, batched and open. */
#define PN_STACK_POLICY_OPS                                                 \
	.close = pn_stack_policy_close, .resize = pn_stack_policy_resize,   \
	.insert = pn_stack_policy_insert, .access = pn_stack_policy_access, \
	.remove = pn_stack_policy_remove, .evict = pn_stack_policy_evict,   \
	.check = pn_stack_policy_check

#endif
