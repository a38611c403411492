/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * take -- one evict() under way: what was asked for, what was taken so far.
 *
 * An owner wants pages and regions; a batching policy likes to go on after
 * that, up to so many pages or regions, whichever comes first.
 */
#ifndef PN_CACHE_POLICY_EVICTION_H
#define PN_CACHE_POLICY_EVICTION_H

#include "cache/policy/policy.h"

struct pn_take {
	const struct pn_policy_want *want;
	struct pn_list *victims;
	size_t batch_pages;	/* go on up to so many pages ... */
	unsigned batch_regions; /* ... or so many regions; 0: stop at once */
	size_t npages;		/* taken */
	unsigned nregions;	/* taken */
};

/* What is wanted has not been taken yet. */
static inline bool pn_eviction_must(const struct pn_take *take)
{
	return take->npages < take->want->npages ||
	       take->nregions < take->want->nregions;
}

/* The next victim is wanted, or welcome in the batch. */
static inline bool pn_eviction_more(const struct pn_take *take)
{
	return pn_eviction_must(take) || (take->npages < take->batch_pages &&
					  take->nregions < take->batch_regions);
}

static inline bool pn_eviction_busy(const struct pn_take *take,
				    const struct pn_policy_node *node)
{
	return take->want->busy && take->want->busy(take->want->busy_arg, node);
}

/* Makes node, whose link is free, the next victim. */
static inline void pn_take(struct pn_take *take, struct pn_policy_node *node)
{
	pn_list_append(take->victims, &node->link);
	take->npages += node->npages;
	take->nregions++;
}

#endif
