/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ghost -- caches without memory in them, to learn which policy would have done
 * best.
 *
 * A jury holds a ghost cache for each candidate policy: the candidate itself,
 * with nodes of its own that stand for regions, known by name. Every ghost is
 * told the same uses; what each would have paid for registering and
 * deregistering is its bill, of which the past fades.
 *
 * To stay small the jury looks at a sample: regions whose name, a hash, is
 * below a threshold, in ghosts that are as much smaller than the cache (the
 * idea is SHARDS, Waldspurger and others 2015). The sample begins with
 * everything, and is halved whenever more regions are known than
 * PN_JURY_REGIONS.
 *
 * At rest: every known region is in at least one ghost; a ghost holds no more
 * pages than its share of the cache, except a single region.
 */
#ifndef PN_CACHE_POLICY_GHOST_H
#define PN_CACHE_POLICY_GHOST_H

#include "cache/policy/policy.h"

#define PN_JURY_GHOSTS	5
#define PN_JURY_REGIONS 1024

struct pn_jury;

/* candidates: PN_JURY_GHOSTS of them. -ENOMEM. */
int pn_jury_open(const struct pn_policy_attr *attr,
		 const struct pn_policy_ops *const *candidates,
		 struct pn_jury **out);
/* NULL is fine. */
void pn_jury_close(struct pn_jury *jury);

/* How many pages the cache has room for. */
void pn_jury_resize(struct pn_jury *jury, size_t capacity_pages);

/* Whether it wants to hear of this region. */
bool pn_jury_samples(const struct pn_jury *jury,
		     const struct pn_policy_node *node);

/* A region of the sample was used. */
void pn_jury_use(struct pn_jury *jury, const struct pn_policy_node *node);

/* Forgets what was paid so far: the ghosts were being filled. */
void pn_jury_begin(struct pn_jury *jury);

/* What the cache itself does, under the champion. */
void pn_jury_registered(struct pn_jury *jury, uint32_t npages);
void pn_jury_evicted(struct pn_jury *jury, unsigned nregions, size_t npages);

/* Who pays least: the champion, unless another pays clearly less. */
unsigned pn_jury_verdict(struct pn_jury *jury);

/* From now on this one is the champion; the first is candidate 0. */
void pn_jury_crown(struct pn_jury *jury, unsigned candidate);

/* From now on it compares what the champion pays with what its ghost does: the
 * cache holds by now what the champion wants. */
void pn_jury_watch(struct pn_jury *jury);

void pn_jury_check(struct pn_jury *jury);

#endif
