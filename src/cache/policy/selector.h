/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ghost -- caches without memory in them, to learn which policy would have done
 * best.
 *
 * A selector holds a ghost cache for each candidate policy: the candidate
 * itself, with nodes of its own that stand for regions, known by name. Every
 * ghost is told the same uses; what each would have paid for registering and
 * deregistering is its cost_us, of which the past fades.
 *
 * To stay small the selector looks at a sample: regions whose name, a hash, is
 * below a threshold, in ghosts that are as much smaller than the cache (the
 * idea is SHARDS, Waldspurger and others 2015). The sample begins with
 * everything, and is halved whenever more regions are known than
 * PN_POLICY_SELECTOR_MAX_SAMPLES.
 *
 * At rest: every known region is in at least one ghost; a ghost holds no more
 * pages than its share of the cache, except a single region.
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

/* How many pages the cache has room for. */
void pn_policy_selector_resize(struct pn_policy_selector *selector,
			       size_t capacity_pages);

/* Whether it wants to hear of this region. */
bool pn_policy_selector_samples(const struct pn_policy_selector *selector,
				const struct pn_policy_node *node);

/* A region of the sample was used. */
void pn_policy_selector_use(struct pn_policy_selector *selector,
			    const struct pn_policy_node *node);

/* Forgets what was paid so far: the ghosts were being filled. */
void pn_policy_selector_reset_costs(struct pn_policy_selector *selector);

/* What the cache itself does, under the active. */
void pn_policy_selector_registered(struct pn_policy_selector *selector,
				   uint32_t npages);
void pn_policy_selector_evicted(struct pn_policy_selector *selector,
				unsigned nregions, size_t npages);

/* Who pays least: the active, unless another pays clearly less. */
unsigned pn_policy_selector_best(struct pn_policy_selector *selector);

/* From now on this one is the active; the first is candidate 0. */
void pn_policy_selector_set_active(struct pn_policy_selector *selector,
				   unsigned candidate);

/* From now on it compares what the active pays with what its ghost does: the
 * cache holds by now what the active wants. */
void pn_policy_selector_restart_period(struct pn_policy_selector *selector);

void pn_policy_selector_check(struct pn_policy_selector *selector);

#endif
