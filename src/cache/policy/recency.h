/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recency -- nodes in the order of their last use.
 *
 * Order is lazy: a use stamps the node and moves nothing. Two lists hold the
 * nodes: `sorted`, in the order of use at the last sorting, and `unsorted`, in
 * no order: nodes that were inserted, or found used, since then. A node of
 * `sorted` whose stamp is newer than the sorting moves to `unsorted` when it is
 * met. The others were used before anything in `unsorted`, so the first of them
 * is the oldest of all. When none is left, `unsorted` is sorted and takes their
 * place. That is exact, needs no memory, and costs O(log n) per node each time
 * the list turns over.
 * Caveat: the call that sorts takes long when `unsorted` is long (0.2 s for a
 * million nodes).
 *
 * At rest: the nodes of `sorted` that were not used since `sorted_at` are in
 * the order of their stamps, and their stamps are at most sorted_at. The stamps
 * of the nodes in `unsorted` are above sorted_at. npages and nnodes count both
 * lists.
 */
#ifndef PN_CACHE_POLICY_RECENCY_H
#define PN_CACHE_POLICY_RECENCY_H

#include "cache/policy/eviction.h"

struct pn_recency {
	struct pn_list sorted, unsorted;
	uint64_t sorted_at;
	size_t npages, nnodes;
};

void pn_recency_init(struct pn_recency *recency);

static inline struct pn_policy_node *pn_recency_node(struct pn_list *link)
{
	return pn_container_of(link, struct pn_policy_node, link);
}

/* Adds a node that is in no list. Its stamp says where it belongs. */
static inline void pn_recency_add(struct pn_recency *recency,
				  struct pn_policy_node *node)
{
	pn_list_append(&recency->unsorted, &node->link);
	recency->npages += node->npages;
	recency->nnodes++;
}

static inline void pn_recency_remove(struct pn_recency *recency,
				     struct pn_policy_node *node)
{
	pn_list_remove(&node->link);
	recency->npages -= node->npages;
	recency->nnodes--;
}

/* The node used longest ago; NULL: none. */
struct pn_policy_node *pn_recency_oldest(struct pn_recency *recency);

/* Takes victims, oldest first, while `more` says so. */
void pn_recency_evict(struct pn_recency *recency, struct pn_eviction *eviction,
		      bool (*more)(const struct pn_eviction *eviction));

void pn_recency_each(struct pn_recency *recency, pn_policy_node_fn *fn,
		     void *arg);

/* Asserts what holds at rest. */
void pn_recency_check(struct pn_recency *recency);

#endif
