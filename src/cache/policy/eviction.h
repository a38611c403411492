/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * eviction -- one evict() under way: what was asked for, what was taken so far.
 *
 * The owner wants pages and regions. A batching policy may go on after that, up
 * to so many pages or so many regions, whichever comes first.
 */
#ifndef PN_CACHE_POLICY_EVICTION_H
#define PN_CACHE_POLICY_EVICTION_H

#include "cache/policy/policy.h"

struct pn_eviction {
	const struct pn_policy_want *want;
	struct pn_list *victims;
	size_t batch_pages;	/* go on up to so many pages ... */
	unsigned batch_regions; /* ... or so many regions; 0: stop at once */
	size_t npages;		/* taken */
	unsigned nregions;	/* taken */
};

/* Less was taken than is wanted. */
static inline bool pn_eviction_must(const struct pn_eviction *eviction)
{
	return eviction->npages < eviction->want->npages ||
	       eviction->nregions < eviction->want->nregions;
}

/* The next victim is wanted, or fits the batch. */
static inline bool pn_eviction_more(const struct pn_eviction *eviction)
{
	return pn_eviction_must(eviction) ||
	       (eviction->npages < eviction->batch_pages &&
		eviction->nregions < eviction->batch_regions);
}

static inline bool pn_eviction_busy(const struct pn_eviction *eviction,
				    const struct pn_policy_node *node)
{
	return eviction->want->busy &&
	       eviction->want->busy(eviction->want->busy_arg, node);
}

/* Makes node, whose link is free, the next victim. */
static inline void pn_eviction_add(struct pn_eviction *eviction,
				   struct pn_policy_node *node)
{
	pn_list_append(eviction->victims, &node->link);
	eviction->npages += node->npages;
	eviction->nregions++;
}

#endif
