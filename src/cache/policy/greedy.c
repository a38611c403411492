/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * greedy -- keeps the regions whose loss would cost most per page.
 *
 * GreedyDual-Size (Cao, Irani 1997) with use counts in the manner of
 * GreedyDual-Size-Frequency (Cherkasova 1998), with the costs of this device:
 * losing a region of p pages costs deregistering it and registering it again,
 *   loss = fixed + p * page, so each of its pages earns fixed / p + page
 * per use. The priority of a node is the level of the cache plus the credit
 * that the node has earned. The node with the smallest priority goes first, and
 * the level rises to that priority. So credit is worth less as the cache turns
 * over: that ages both recency and frequency, without touching any node.
 *
 * A use adds the earning of the region to what is left of its credit, up to
 * CREDIT_USES times the earning. Where use counts only grow, a region that was
 * hot once stays for as many turns as it had uses; here the credit drains at
 * the speed at which other regions come and go. A use that finds the credit
 * full changes nothing until the level rises, so the policy requests no
 * access() calls until then: the steps of the level are the epochs.
 *
 * With a budget of regions only, a region occupies one place whatever its size,
 * and the earning is its whole loss.
 *
 * A use is O(1): it writes the node, whose entry in the heap lags (rank.h). New
 * nodes wait in a list until evict() ranks them, so a cache that never fills
 * needs no heap. Nodes for which there is no memory stay in the list and go
 * first.
 * Caveat: the first evict() after every region was used corrects every entry
 * (0.2 us each); O(log n) is per use on average.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "cache/policy/eviction.h"
#include "cache/policy/rank.h"

/* See doc/design/policies.md for what other values did. */
#define CREDIT_USES 4

/* The hit ratio is measured over so many hits and misses per cached region:
 * long enough to be steady, short enough to follow the phases of a program. */
#define LOOK_BACK 16

enum { RANKED, UNRANKED };

struct greedy {
	struct pn_policy base;
	struct pn_rank rank;
	struct pn_list unranked;
	size_t npages, nnodes; /* in all */
	double level;	       /* priority of what went last */
	double fixed, page;    /* of losing a region, microseconds */
	double saving;	       /* by one more deregistration in a batch */
	uint64_t nhits,
		nmisses;   /* recent; hits without those since `counted` */
	uint64_t ninserts; /* ever */
	uint64_t counted;  /* of clock - ninserts */
	bool regions_only;
	unsigned batch;
};

static struct greedy *of(struct pn_policy *policy)
{
	return pn_container_of(policy, struct greedy, base);
}

static void greedy_resize(struct pn_policy *policy, size_t capacity_pages)
{
	of(policy)->regions_only = capacity_pages == SIZE_MAX;
	policy->epoch++; /* earnings change */
}

static int greedy_open(const struct pn_policy_attr *attr,
		       struct pn_policy **out)
{
	struct greedy *greedy = calloc(1, sizeof(*greedy));
	unsigned batch = attr->batch ? attr->batch : 1;

	if (!greedy)
		return -ENOMEM;
	greedy->base.ops = &pn_policy_greedy;
	/* A batch pays the fixed part of deregistering once. */
	greedy->fixed = attr->register_fixed + attr->deregister_fixed / batch;
	greedy->page = attr->register_page + attr->deregister_page;
	greedy->saving = attr->deregister_fixed;
	greedy->batch = batch;
	greedy_resize(&greedy->base, attr->capacity_pages);
	pn_rank_init(&greedy->rank);
	pn_list_init(&greedy->unranked);
	*out = &greedy->base;
	return 0;
}

static void greedy_close(struct pn_policy *policy)
{
	struct greedy *greedy = of(policy);

	pn_rank_fini(&greedy->rank);
	free(greedy);
}

/* What each place of the node earns per use. */
static double earning(const struct greedy *greedy, uint32_t npages)
{
	if (greedy->regions_only)
		return greedy->fixed + greedy->page * npages;
	return greedy->fixed / npages + greedy->page;
}

static void greedy_insert(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct greedy *greedy = of(policy);

	pn_assert(node->npages);
	node->factor = greedy->level + earning(greedy, node->npages);
	pn_policy_request_access(policy, node);
	node->section = UNRANKED;
	node->heap_at = PN_RANK_NONE;
	pn_list_append(&greedy->unranked, &node->link);
	greedy->nnodes++;
	greedy->npages += node->npages;
	greedy->nmisses++;
	greedy->ninserts++;
}

/* Priorities never fall here: the heap relies on it. */
static void greedy_access(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct greedy *greedy = of(policy);
	double gain = earning(greedy, node->npages);
	double most = greedy->level + CREDIT_USES * gain;
	double base =
		node->factor > greedy->level ? node->factor : greedy->level;

	if (base + gain < most) {
		node->factor = base + gain;
		return;
	}
	if (node->factor < most)
		node->factor = most;
	pn_policy_ignore_access(policy, node);
}

static void greedy_remove(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct greedy *greedy = of(policy);

	greedy->nnodes--;
	greedy->npages -= node->npages;
	if (node->section == RANKED)
		pn_rank_remove(&greedy->rank, node);
	else
		pn_list_remove(&node->link);
}

/* Ranks what was inserted since the last time; stops when there is no memory.
 */
static void rank_new(struct greedy *greedy)
{
	struct pn_list *link;

	while ((link = pn_list_pop(&greedy->unranked))) {
		struct pn_policy_node *node =
			pn_container_of(link, struct pn_policy_node, link);

		if (pn_rank_place(&greedy->rank, node)) {
			pn_list_insert(&greedy->unranked, link);
			return;
		}
		node->section = RANKED;
	}
}

static void take_unranked(struct greedy *greedy, struct pn_eviction *eviction)
{
	struct pn_list *pos, *tmp;

	pn_list_for_each_safe (pos, tmp, &greedy->unranked) {
		struct pn_policy_node *node =
			pn_container_of(pos, struct pn_policy_node, link);

		if (!pn_eviction_more(eviction))
			return;
		if (pn_eviction_busy(eviction, node))
			continue;
		pn_list_remove(pos);
		pn_eviction_add(eviction, node);
	}
}

static void take_ranked(struct greedy *greedy, struct pn_eviction *eviction)
{
	struct pn_policy_node *node;

	while (pn_eviction_more(eviction) &&
	       (node = pn_rank_min(&greedy->rank))) {
		if (pn_eviction_busy(eviction, node)) {
			pn_rank_hold(&greedy->rank);
			continue;
		}
		pn_rank_pop(&greedy->rank);
		/* A node that was busy for long may be below the level. */
		if (node->factor > greedy->level)
			greedy->level = node->factor;
		pn_eviction_add(eviction, node);
	}
	pn_rank_unhold(&greedy->rank);
}

/* The clock counts uses and inserts. */
static void count_hits(struct greedy *greedy)
{
	uint64_t nuses = greedy->base.clock - greedy->ninserts;

	greedy->nhits += nuses - greedy->counted;
	greedy->counted = nuses;
}

/* Halves the counts from time to time. */
static void decay(struct greedy *greedy, size_t nnodes)
{
	if (greedy->nhits + greedy->nmisses < LOOK_BACK * (uint64_t)nnodes)
		return;
	greedy->nhits /= 2;
	greedy->nmisses /= 2;
}

/* The best number of victims. When k of n regions go at a time, each miss pays
 * 1/k of what a batch saves. On average k/2 regions are missing, and with them,
 * at worst in proportion, k/2n of the hits, each a loss. The sum misses *
 * saving / k + hits * k / 2n * loss is least at the root below. */
static unsigned best_batch(const struct greedy *greedy, size_t nnodes)
{
	double loss =
		greedy->fixed + greedy->page * (double)greedy->npages / nnodes;
	double missing = (double)greedy->nhits * loss;
	double paying = (double)greedy->nmisses * greedy->saving;
	double best;

	if (missing <= 0)
		return greedy->batch;
	best = sqrt(2.0 * (double)nnodes * paying / missing);
	return best < greedy->batch ? (unsigned)best : greedy->batch;
}

static unsigned greedy_evict(struct pn_policy *policy,
			     const struct pn_policy_want *want,
			     struct pn_list *victims)
{
	struct greedy *greedy = of(policy);
	size_t nnodes = greedy->nnodes;
	struct pn_eviction eviction = {
		.want = want,
		.victims = victims,
		.batch_pages = SIZE_MAX,
	};

	if (!nnodes || !pn_eviction_must(&eviction))
		return 0;
	count_hits(greedy);
	rank_new(greedy);
	eviction.batch_regions = best_batch(greedy, nnodes);
	take_unranked(greedy, &eviction);
	take_ranked(greedy, &eviction);
	greedy->npages -= eviction.npages;
	greedy->nnodes -= eviction.nregions;
	decay(greedy, nnodes);
	policy->epoch++;
	return eviction.nregions;
}

static void greedy_each(struct pn_policy *policy, pn_policy_node_fn *fn,
			void *arg)
{
	struct greedy *greedy = of(policy);
	struct pn_list *pos;

	for (uint32_t i = 0; i < greedy->rank.n; i++)
		fn(arg, greedy->rank.at[i].node);
	pn_list_for_each (pos, &greedy->unranked)
		fn(arg, pn_container_of(pos, struct pn_policy_node, link));
}

static void greedy_check(struct pn_policy *policy)
{
	struct greedy *greedy = of(policy);
	struct pn_list *pos;
	size_t nnodes = greedy->rank.n;

	pn_list_for_each (pos, &greedy->unranked)
		nnodes++;
	pn_assert(nnodes == greedy->nnodes);
	pn_rank_check(&greedy->rank);
	for (uint32_t i = 0; i < greedy->rank.n; i++) {
		const struct pn_rank_entry *entry = &greedy->rank.at[i];

		pn_assert(entry->node->section == RANKED);
		pn_assert(entry->factor <= entry->node->factor);
		pn_assert(entry->used <= entry->node->used);
	}
}

const struct pn_policy_ops pn_policy_greedy = {
	.name = "greedy",
	.help = "what costs least to lose per page goes first, in batches",
	.batched = true,
	.open = greedy_open,
	.close = greedy_close,
	.resize = greedy_resize,
	.insert = greedy_insert,
	.access = greedy_access,
	.remove = greedy_remove,
	.evict = greedy_evict,
	.each = greedy_each,
	.check = greedy_check,
};
