/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cost -- follows, of several policies, the one that would have cost least.
 *
 * No fixed order is right for all programs: recency for one, size for another,
 * large batches where no region returns, keeping what is cached where a loop is
 * larger than the cache. So a selector (selector.h) simulates each candidate in
 * a ghost cache over a sample of the regions, and adds up what registering and
 * deregistering would have cost there on this device. One candidate, the
 * *active* policy, has the real nodes. When another one is clearly cheaper, it
 * becomes active. The first active policy is greedy.c, the best on average.
 *
 * Until the cache is full for the first time all candidates hold the same
 * regions: there is no selector yet and no memory for it. Then the selector is
 * shown what is cached. From then on it learns of every registration, and of
 * the first use of each sampled region since the last registration: while
 * nothing is registered, there is nothing to compare and hits stay cheap.
 *
 * Switching costs O(n log n), so it happens at most once while n regions are
 * evicted. Without memory for a selector the active policy stays.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/policy/eviction.h"
#include "cache/policy/selector.h"

static const struct pn_policy_ops
	*const candidates[PN_POLICY_SELECTOR_POLICIES] = {
		&pn_policy_greedy, &pn_policy_fmrd, &pn_policy_mre,
		&pn_policy_lru,	   &pn_policy_keep,
	};

/* The least number of evictions between two switches: FEW_EVICTIONS, and
 * 1/TURN_SHARE of the cached regions. A new policy is judged after the cache
 * was replaced WARM_TURNS times. */
#define FEW_EVICTIONS 16
#define TURN_SHARE    8
#define WARM_TURNS    2

struct cost {
	struct pn_policy base;
	struct pn_policy_attr attr;
	struct pn_policy *active;
	struct pn_policy_selector *selector; /* NULL: not yet, or no memory */
	unsigned active_index;		     /* of candidates[] */
	size_t nnodes;
	uint64_t nevicted; /* since the policy is active, or warm */
	bool warm;	   /* the cache holds what the active policy chose */
};

static struct cost *of(struct pn_policy *policy)
{
	return pn_container_of(policy, struct cost, base);
}

static int cost_open(const struct pn_policy_attr *attr, struct pn_policy **out)
{
	struct cost *cost = calloc(1, sizeof(*cost));
	int ret;

	if (!cost)
		return -ENOMEM;
	ret = candidates[0]->open(attr, &cost->active);
	if (ret) {
		free(cost);
		return ret;
	}
	cost->base.ops = &pn_policy_cost;
	cost->attr = *attr;
	*out = &cost->base;
	return 0;
}

static void cost_close(struct pn_policy *policy)
{
	pn_policy_close(of(policy)->active);
	pn_policy_selector_close(of(policy)->selector);
	free(of(policy));
}

/* The active policy has our clock and epoch, before and after each call. */
static struct pn_policy *active_of(struct cost *cost)
{
	cost->active->clock = cost->base.clock;
	cost->active->epoch = cost->base.epoch;
	return cost->active;
}

static void cost_resize(struct pn_policy *policy, size_t capacity_pages)
{
	struct cost *cost = of(policy);
	struct pn_policy *active = active_of(cost);

	cost->attr.capacity_pages = capacity_pages;
	active->ops->resize(active, capacity_pages);
	policy->epoch = active->epoch;
	if (cost->selector)
		pn_policy_selector_resize(cost->selector, capacity_pages);
}

static void report_use(struct cost *cost, struct pn_policy_node *node)
{
	if (cost->selector && pn_policy_selector_samples(cost->selector, node))
		pn_policy_selector_use(cost->selector, node);
}

static void cost_insert(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct cost *cost = of(policy);
	struct pn_policy *active;

	/* A registration: uses are reported again. */
	if (cost->selector)
		policy->epoch++;
	active = active_of(cost);
	active->ops->insert(active, node);
	cost->nnodes++;
	if (cost->selector)
		pn_policy_selector_registered(cost->selector, node->npages);
	report_use(cost, node);
}

static void cost_access(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct cost *cost = of(policy);
	struct pn_policy *active = active_of(cost);

	active->ops->access(active, node);
	report_use(cost, node);
}

static void cost_remove(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct cost *cost = of(policy);
	struct pn_policy *active = active_of(cost);

	active->ops->remove(active, node);
	cost->nnodes--;
}

static void show(void *arg, struct pn_policy_node *node)
{
	report_use(arg, node);
}

static void open_selector(struct cost *cost)
{
	if (pn_policy_selector_open(&cost->attr, candidates, &cost->selector))
		return;
	cost->active->ops->each(cost->active, show, cost);
	pn_policy_selector_reset_costs(cost->selector);
	cost->warm = true;
}

/* Moves all nodes to another policy; their stamps say how old they are. */
static void switch_to(struct cost *cost, unsigned next)
{
	struct pn_policy_want all = { .nregions = UINT32_MAX };
	struct pn_policy *old = active_of(cost), *new;
	struct pn_list nodes, *link;

	if (candidates[next]->open(&cost->attr, &new))
		return;
	pn_list_init(&nodes);
	old->ops->evict(old, &all, &nodes);
	cost->base.epoch = old->epoch;
	pn_policy_close(old);
	cost->active = new;
	cost->active_index = next;
	cost->nevicted = 0;
	cost->warm = false;
	pn_policy_selector_set_active(cost->selector, next);
	new = active_of(cost);
	while ((link = pn_list_pop(&nodes)))
		new->ops->insert(new,
				 pn_container_of(link, struct pn_policy_node,
						 link));
}

/* A policy that has just become active has what another one left. It is judged
 * when the cache has been replaced WARM_TURNS times. */
static bool is_warming_up(struct cost *cost)
{
	if (cost->warm)
		return false;
	if (cost->nevicted >= WARM_TURNS * (uint64_t)cost->nnodes) {
		cost->warm = true;
		cost->nevicted = 0;
		pn_policy_selector_restart_period(cost->selector);
	}
	return true;
}

static void consult_selector(struct cost *cost)
{
	unsigned best;

	if (!cost->selector) {
		open_selector(cost);
		return;
	}
	if (is_warming_up(cost) || cost->nevicted < FEW_EVICTIONS ||
	    cost->nevicted < cost->nnodes / TURN_SHARE)
		return;
	best = pn_policy_selector_best(cost->selector);
	if (best != cost->active_index)
		switch_to(cost, best);
}

static unsigned cost_evict(struct pn_policy *policy,
			   const struct pn_policy_want *want,
			   struct pn_list *victims)
{
	struct cost *cost = of(policy);
	struct pn_policy *active;
	struct pn_list *last = victims->prev;
	size_t npages = 0;
	unsigned n;

	if (!want->npages && !want->nregions)
		return 0;
	consult_selector(cost);
	active = active_of(cost);
	n = active->ops->evict(active, want, victims);
	policy->epoch = active->epoch;
	while ((last = last->next) != victims)
		npages += pn_container_of(last, struct pn_policy_node, link)
				  ->npages;
	if (cost->selector && n)
		pn_policy_selector_evicted(cost->selector, n, npages);
	cost->nnodes -= n;
	cost->nevicted += n;
	return n;
}

static void cost_each(struct pn_policy *policy, pn_policy_node_fn *fn,
		      void *arg)
{
	struct pn_policy *active = active_of(of(policy));

	active->ops->each(active, fn, arg);
}

static void cost_check(struct pn_policy *policy)
{
	struct cost *cost = of(policy);

	cost->active->ops->check(cost->active);
	if (cost->selector)
		pn_policy_selector_check(cost->selector);
}

const struct pn_policy_ops pn_policy_cost = {
	.name = "cost",
	.help = "adapts: does as the policy that would have cost least",
	.batched = true,
	.open = cost_open,
	.close = cost_close,
	.resize = cost_resize,
	.insert = cost_insert,
	.access = cost_access,
	.remove = cost_remove,
	.evict = cost_evict,
	.each = cost_each,
	.check = cost_check,
};
