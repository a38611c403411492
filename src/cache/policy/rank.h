/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rank -- a heap of nodes ordered by (factor, used), with four children per
 * entry, in one array.
 *
 * An entry has a copy of its node's factor and stamp from when it was placed,
 * so that comparing touches no node. The copy may lag: a policy that raises the
 * factor of a node on every use just writes the node, and the entry is
 * corrected when it comes to the front (pn_rank_min()). That makes a use O(1)
 * and is exact, since an entry that lags can only be too far in front.
 *
 * At rest: heap_at of each ranked node is the place of its entry, that of
 * others is PN_RANK_NONE; no entry is smaller than its parent. Nodes only grow
 * while they are ranked. The entry in front can be held back (its region is
 * busy) to reach those behind it. Held entries wait behind the heap, in the
 * same array, so holding needs no memory and keeps their order. Place, remove,
 * pop and hold are O(log n). The array grows by half and never shrinks.
 */
#ifndef PN_CACHE_POLICY_RANK_H
#define PN_CACHE_POLICY_RANK_H

#include "cache/policy/policy.h"

#define PN_RANK_NONE UINT32_MAX

struct pn_rank_entry {
	double factor;
	uint64_t used;
	struct pn_policy_node *node;
};

struct pn_rank {
	struct pn_rank_entry *at; /* n in the heap, then nheld */
	uint32_t n, nheld, room;
};

void pn_rank_init(struct pn_rank *rank);
void pn_rank_fini(struct pn_rank *rank);

static inline bool pn_rank_has(const struct pn_policy_node *node)
{
	return node->heap_at != PN_RANK_NONE;
}

/* Puts the node where its factor and stamp belong, whether or not it is ranked.
 * Nothing may be held. -ENOMEM: it is not ranked. */
int pn_rank_place(struct pn_rank *rank, struct pn_policy_node *node);

/* Removes a ranked node. Nothing may be held. */
void pn_rank_remove(struct pn_rank *rank, struct pn_policy_node *node);

/* The node whose entry is in front, lagging or not; NULL: none. */
static inline struct pn_policy_node *pn_rank_front(const struct pn_rank *rank)
{
	return rank->n ? rank->at[0].node : NULL;
}

/* The smallest node that is not held, brought to the front; NULL: none. */
struct pn_policy_node *pn_rank_min(struct pn_rank *rank);

/* Takes out the entry in front. */
void pn_rank_pop(struct pn_rank *rank);

/* Holds back the entry in front until pn_rank_unhold(). */
void pn_rank_hold(struct pn_rank *rank);

/* Returns all held entries to the heap. */
void pn_rank_unhold(struct pn_rank *rank);

/* Asserts what holds at rest. */
void pn_rank_check(const struct pn_rank *rank);

#endif
