/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * selector -- estimates which policy would have cost least.
 *
 * Nouns
 *   candidate  a policy that is compared
 *   ghost      a cache without memory that a candidate manages: the candidate
 *              itself, with nodes that stand for regions, known by name
 *   cost       what registering and deregistering would have cost a ghost; old
 *              costs decay
 *   sample     the regions that the ghosts are told of
 *   active     the candidate that manages the real cache
 *
 * Every ghost gets the same uses. To stay small, the selector samples: regions
 * whose name, a hash, is below a threshold, in ghosts that are smaller than the
 * cache by the same factor (the idea is SHARDS, Waldspurger and others 2015).
 * The sample begins with all regions and is halved whenever it has more than
 * PN_POLICY_SELECTOR_MAX_SAMPLES.
 *
 * At rest: every sampled region is in at least one ghost; a ghost holds no more
 * pages than its share of the cache, except a single region.
 * Threads: the owner's lock.
 */
#ifndef PN_CACHE_POLICY_SELECTOR_H
#define PN_CACHE_POLICY_SELECTOR_H

#include "cache/policy/policy.h"

#define PN_POLICY_SELECTOR_POLICIES    5
#define PN_POLICY_SELECTOR_MAX_SAMPLES 1024

struct pn_policy_selector;

/* candidates: PN_POLICY_SELECTOR_POLICIES of them. -ENOMEM. */
int pn_policy_selector_open(const struct pn_policy_attr *attr,
			    const struct pn_policy_ops *const *candidates,
			    struct pn_policy_selector **out);
/* NULL is fine. */
void pn_policy_selector_close(struct pn_policy_selector *selector);

/* The cache has room for so many pages. */
void pn_policy_selector_resize(struct pn_policy_selector *selector,
			       size_t capacity_pages);

/* Whether the region is in the sample. */
bool pn_policy_selector_samples(const struct pn_policy_selector *selector,
				const struct pn_policy_node *node);

/* A sampled region was used. */
void pn_policy_selector_use(struct pn_policy_selector *selector,
			    const struct pn_policy_node *node);

/* Sets all costs to 0: until now the ghosts were being filled. */
void pn_policy_selector_reset_costs(struct pn_policy_selector *selector);

/* What the real cache does under the active policy. */
void pn_policy_selector_registered(struct pn_policy_selector *selector,
				   uint32_t npages);
void pn_policy_selector_evicted(struct pn_policy_selector *selector,
				unsigned nregions, size_t npages);

/* The candidate with the least cost: the active one, unless another is clearly
 * cheaper. */
unsigned pn_policy_selector_best(struct pn_policy_selector *selector);

/* The candidate becomes active; the first is candidate 0. */
void pn_policy_selector_set_active(struct pn_policy_selector *selector,
				   unsigned candidate);

/* Starts to compare the cost of the real cache with that of the ghost of the
 * active policy: the cache holds what that policy chose by now. */
void pn_policy_selector_restart_period(struct pn_policy_selector *selector);

void pn_policy_selector_check(struct pn_policy_selector *selector);

#endif
