/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cost -- keeps the regions whose loss would cost most per page they occupy.
 *
 * GreedyDual-Size (Cao, Irani 1997) with use counts in the manner of
 * GreedyDual-Size-Frequency (Cherkasova 1998), fed with this device's costs:
 * losing a region of p pages costs deregistering it and registering it again,
 *   loss = fixed + p * page, so each of its pages earns fixed / p + page
 * per use. A node's priority is the cache's level plus the credit the node has
 * earned; the smallest goes first, and the level rises to the priority of what
 * went. So credit is worth less as the cache turns over: that ages both
 * recency and frequency, without touching any node.
 *
 * A use adds the region's earning to what is left of its credit, up to
 * CREDIT_USES times the earning. Where use counts only ever grow, a region
 * that was hot once stays for as many turns as it had uses; here the count
 * drains at the speed at which others come and go.
 *
 * With a budget of regions alone a region occupies one place whatever its
 * size, and the earning is its whole loss.
 *
 * A use is O(1): it writes the node, whose entry in the heap lags (rank.h).
 * Caveat: the first evict() after every region was used puts every entry right
 * (0.2 us each); O(log n) is per use on average.
 * A node that the heap has no memory for waits in a list and goes first.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "cache/policy/rank.h"
#include "cache/policy/stack.h"

/* See doc/design/policies.md for what other values did. */
#define CREDIT_USES 4

/* How many hits and misses per cached region the measured hit ratio looks back
 * on: long enough to be steady, short enough to follow a program's phases. */
#define LOOK_BACK 16

enum { RANKED, UNRANKED };

struct cost {
	struct pn_policy base;
	struct pn_rank rank;
	struct pn_stack unranked;
	size_t npages;	    /* of all nodes */
	double level;	    /* priority of what went last */
	double fixed, page; /* of losing a region, microseconds */
	double saving;	    /* of one deregistration more in a batch */
	uint64_t nuses;	    /* numbers inserts and uses, for equal priorities */
	uint64_t nhits, nmisses; /* lately */
	bool regions_only;
	unsigned batch;
};

static struct cost *of(struct pn_policy *policy)
{
	return pn_container_of(policy, struct cost, base);
}

static void cost_resize(struct pn_policy *policy, size_t capacity_pages)
{
	of(policy)->regions_only = capacity_pages == SIZE_MAX;
}

static int cost_open(const struct pn_policy_attr *attr, struct pn_policy **out)
{
	struct cost *cost = calloc(1, sizeof(*cost));
	unsigned batch = attr->batch ? attr->batch : 1;

	if (!cost)
		return -ENOMEM;
	cost->base.ops = &pn_policy_cost;
	/* A batch pays the fixed part of deregistering once. */
	cost->fixed = attr->register_fixed + attr->deregister_fixed / batch;
	cost->page = attr->register_page + attr->deregister_page;
	cost->saving = attr->deregister_fixed;
	cost->batch = batch;
	cost_resize(&cost->base, attr->capacity_pages);
	pn_rank_init(&cost->rank);
	pn_stack_init(&cost->unranked);
	*out = &cost->base;
	return 0;
}

static void cost_close(struct pn_policy *policy)
{
	struct cost *cost = of(policy);

	pn_rank_fini(&cost->rank);
	free(cost);
}

/* What each place that the node occupies earns per use. */
static double earning(const struct cost *cost, uint32_t npages)
{
	if (cost->regions_only)
		return cost->fixed + cost->page * npages;
	return cost->fixed / npages + cost->page;
}

static void cost_insert(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct cost *cost = of(policy);

	pn_assert(node->npages);
	node->factor = cost->level + earning(cost, node->npages);
	node->stamp = cost->nuses++;
	node->section = RANKED;
	node->heap_at = PN_RANK_NONE;
	cost->npages += node->npages;
	cost->nmisses++;
	if (pn_rank_place(&cost->rank, node)) {
		node->section = UNRANKED;
		pn_stack_push(&cost->unranked, node);
	}
}

/* Priorities never fall here: the heap relies on it. */
static void cost_access(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct cost *cost = of(policy);
	double gain = earning(cost, node->npages);
	double most = cost->level + CREDIT_USES * gain;
	double base = node->factor > cost->level ? node->factor : cost->level;

	if (base + gain < most)
		node->factor = base + gain;
	else if (node->factor < most)
		node->factor = most;
	node->stamp = cost->nuses++;
	cost->nhits++;
}

static void cost_remove(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct cost *cost = of(policy);

	cost->npages -= node->npages;
	if (node->section == RANKED)
		pn_rank_remove(&cost->rank, node);
	else
		pn_stack_remove(&cost->unranked, node);
}

static void take_ranked(struct cost *cost, struct pn_take *take)
{
	struct pn_policy_node *node;

	while (pn_take_more(take) && (node = pn_rank_min(&cost->rank))) {
		if (pn_take_busy(take, node)) {
			pn_rank_hold(&cost->rank);
			continue;
		}
		pn_rank_pop(&cost->rank);
		/* A node that was busy for long may lie below the level. */
		if (node->factor > cost->level)
			cost->level = node->factor;
		pn_take(take, node);
	}
	pn_rank_unhold(&cost->rank);
}

/* Forgets half of the past from time to time. */
static void fade(struct cost *cost, size_t nnodes)
{
	if (cost->nhits + cost->nmisses < LOOK_BACK * (uint64_t)nnodes)
		return;
	cost->nhits /= 2;
	cost->nmisses /= 2;
}

/* How many victims pay best. Of n regions, k at a time: each miss pays 1/k of
 * what a batch saves; on average k/2 regions are missing, and with them, at
 * worst in proportion, k/2n of the hits, each a loss. The sum
 *   misses * saving / k + hits * k / 2n * loss
 * is least at the root below. */
static unsigned best_batch(const struct cost *cost, size_t nnodes)
{
	double loss = cost->fixed + cost->page * (double)cost->npages / nnodes;
	double missing = (double)cost->nhits * loss;
	double paying = (double)cost->nmisses * cost->saving;
	double best;

	if (missing <= 0)
		return cost->batch;
	best = sqrt(2.0 * (double)nnodes * paying / missing);
	return best < cost->batch ? (unsigned)best : cost->batch;
}

static unsigned cost_evict(struct pn_policy *policy,
			   const struct pn_policy_want *want,
			   struct pn_list *victims)
{
	struct cost *cost = of(policy);
	size_t nnodes = cost->rank.n + cost->unranked.nnodes;
	struct pn_take take = {
		.want = want,
		.victims = victims,
		.like_pages = SIZE_MAX,
	};

	if (!nnodes || !pn_take_must(&take))
		return 0;
	take.like_regions = best_batch(cost, nnodes);
	pn_stack_take(&cost->unranked, &take, pn_take_more);
	take_ranked(cost, &take);
	cost->npages -= take.npages;
	fade(cost, nnodes);
	return take.nregions;
}

static void cost_check(struct pn_policy *policy)
{
	struct cost *cost = of(policy);

	pn_stack_check(&cost->unranked);
	pn_rank_check(&cost->rank);
	for (uint32_t i = 0; i < cost->rank.n; i++) {
		const struct pn_rank_entry *entry = &cost->rank.at[i];

		pn_assert(entry->node->section == RANKED);
		pn_assert(entry->factor <= entry->node->factor);
		pn_assert(entry->stamp <= entry->node->stamp);
	}
}

const struct pn_policy_ops pn_policy_cost = {
	.name = "cost",
	.help = "what costs least to lose per page goes first, in batches",
	.batched = true,
	.open = cost_open,
	.close = cost_close,
	.resize = cost_resize,
	.insert = cost_insert,
	.access = cost_access,
	.remove = cost_remove,
	.evict = cost_evict,
	.check = cost_check,
};
