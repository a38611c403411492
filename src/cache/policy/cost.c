/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cost -- the policy that costs least here: it watches what each of several
 * would have paid, and does as the best of them does.
 *
 * No fixed order is right for all programs: recency for one, size for another,
 * large batches where nothing returns, holding on where a loop is larger than
 * the cache. So a jury of ghost caches (ghost.h) follows a sample of the
 * regions, one ghost for each candidate, and adds up what registering and
 * deregistering cost it, by this device's figures. The real nodes are in the
 * hands of one candidate, the *champion*; when another one is clearly cheaper,
 * it takes over. The first champion is greedy.c, best on average.
 *
 * Until the cache is full for the first time all candidates hold the same, so
 * there is no jury yet, nor any memory for it; then it is shown what is cached.
 * From then on it hears of every registration, and of the first use of each
 * region of the sample since the last registration: while nothing is
 * registered, there is nothing to judge and hits stay cheap.
 *
 * Changing the champion is O(n log n), so it is done at most once while n
 * regions are evicted.
 * Without memory for a jury the champion stays.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/policy/ghost.h"
#include "cache/policy/take.h"

static const struct pn_policy_ops *const candidates[PN_JURY_GHOSTS] = {
	&pn_policy_greedy, &pn_policy_fmrd, &pn_policy_mre,
	&pn_policy_lru,	   &pn_policy_keep,
};

/* Evictions between two changes of champion, at least. */
#define FEW_EVICTIONS 16
#define TURN_SHARE    8
#define WARM_TURNS    2

struct cost {
	struct pn_policy base;
	struct pn_policy_attr attr;
	struct pn_policy *champion;
	struct pn_jury *jury; /* NULL: not yet, or no memory */
	unsigned reigning;    /* number of the champion */
	size_t nnodes;
	uint64_t nevicted; /* since the champion reigns, or is warm */
	bool warm;	   /* the cache holds what the champion chose */
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
	ret = candidates[0]->open(attr, &cost->champion);
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
	pn_policy_close(of(policy)->champion);
	pn_jury_close(of(policy)->jury);
	free(of(policy));
}

/* The champion's clock and epoch are ours, before and after each call. */
static struct pn_policy *champion_of(struct cost *cost)
{
	cost->champion->clock = cost->base.clock;
	cost->champion->epoch = cost->base.epoch;
	return cost->champion;
}

static void cost_resize(struct pn_policy *policy, size_t capacity_pages)
{
	struct cost *cost = of(policy);
	struct pn_policy *champion = champion_of(cost);

	cost->attr.capacity_pages = capacity_pages;
	champion->ops->resize(champion, capacity_pages);
	policy->epoch = champion->epoch;
	if (cost->jury)
		pn_jury_resize(cost->jury, capacity_pages);
}

static void tell_jury(struct cost *cost, struct pn_policy_node *node)
{
	if (cost->jury && pn_jury_samples(cost->jury, node))
		pn_jury_use(cost->jury, node);
}

static void cost_insert(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct cost *cost = of(policy);
	struct pn_policy *champion;

	/* A registration: uses are worth hearing of again. */
	if (cost->jury)
		policy->epoch++;
	champion = champion_of(cost);
	champion->ops->insert(champion, node);
	cost->nnodes++;
	if (cost->jury)
		pn_jury_registered(cost->jury, node->npages);
	tell_jury(cost, node);
}

static void cost_access(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct cost *cost = of(policy);
	struct pn_policy *champion = champion_of(cost);

	champion->ops->access(champion, node);
	tell_jury(cost, node);
}

static void cost_remove(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct cost *cost = of(policy);
	struct pn_policy *champion = champion_of(cost);

	champion->ops->remove(champion, node);
	cost->nnodes--;
}

static void show(void *arg, struct pn_policy_node *node)
{
	tell_jury(arg, node);
}

static void call_jury(struct cost *cost)
{
	if (pn_jury_open(&cost->attr, candidates, &cost->jury))
		return;
	cost->champion->ops->each(cost->champion, show, cost);
	pn_jury_begin(cost->jury);
	cost->warm = true;
}

/* Hands all nodes over; their stamps say how old they are. */
static void crown(struct cost *cost, unsigned next)
{
	struct pn_policy_want all = { .nregions = UINT32_MAX };
	struct pn_policy *old = champion_of(cost), *new;
	struct pn_list nodes, *link;

	if (candidates[next]->open(&cost->attr, &new))
		return;
	pn_list_init(&nodes);
	old->ops->evict(old, &all, &nodes);
	cost->base.epoch = old->epoch;
	pn_policy_close(old);
	cost->champion = new;
	cost->reigning = next;
	cost->nevicted = 0;
	cost->warm = false;
	pn_jury_crown(cost->jury, next);
	new = champion_of(cost);
	while ((link = pn_list_pop(&nodes)))
		new->ops->insert(new,
				 pn_container_of(link, struct pn_policy_node,
						 link));
}

/* A champion that took over has what another left. It is judged when the cache
 * has been replaced WARM_TURNS times. */
static bool still_new(struct cost *cost)
{
	if (cost->warm)
		return false;
	if (cost->nevicted >= WARM_TURNS * (uint64_t)cost->nnodes) {
		cost->warm = true;
		cost->nevicted = 0;
		pn_jury_watch(cost->jury);
	}
	return true;
}

static void hear_jury(struct cost *cost)
{
	unsigned verdict;

	if (!cost->jury) {
		call_jury(cost);
		return;
	}
	if (still_new(cost) || cost->nevicted < FEW_EVICTIONS ||
	    cost->nevicted < cost->nnodes / TURN_SHARE)
		return;
	verdict = pn_jury_verdict(cost->jury);
	if (verdict != cost->reigning)
		crown(cost, verdict);
}

static unsigned cost_evict(struct pn_policy *policy,
			   const struct pn_policy_want *want,
			   struct pn_list *victims)
{
	struct cost *cost = of(policy);
	struct pn_policy *champion;
	struct pn_list *last = victims->prev;
	size_t npages = 0;
	unsigned n;

	if (!want->npages && !want->nregions)
		return 0;
	hear_jury(cost);
	champion = champion_of(cost);
	n = champion->ops->evict(champion, want, victims);
	policy->epoch = champion->epoch;
	while ((last = last->next) != victims)
		npages += pn_container_of(last, struct pn_policy_node, link)
				  ->npages;
	if (cost->jury && n)
		pn_jury_evicted(cost->jury, n, npages);
	cost->nnodes -= n;
	cost->nevicted += n;
	return n;
}

static void cost_each(struct pn_policy *policy, pn_policy_node_fn *fn,
		      void *arg)
{
	struct pn_policy *champion = champion_of(of(policy));

	champion->ops->each(champion, fn, arg);
}

static void cost_check(struct pn_policy *policy)
{
	struct cost *cost = of(policy);

	cost->champion->ops->check(cost->champion);
	if (cost->jury)
		pn_jury_check(cost->jury);
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
