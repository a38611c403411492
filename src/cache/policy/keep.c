/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keep -- keeps what is cached: for loops and scans larger than the cache.
 *
 * Where a program walks through more than fits, over and over, a policy that
 * evicts the oldest evicts what comes next, and nothing ever hits. The remedy
 * is bimodal insertion (Qureshi and others 2007): what is cached stays, and new
 * regions are on *probation*: they go first, together, unless they are used
 * again meanwhile. One time in sixteen a region passes without a use, so that
 * the cache follows, slowly, a program that has moved on. Regions also pass
 * while more pages are on probation than not.
 *
 * The main part is the greedy policy (greedy.c), with the regions that were
 * there before the cache was full for the first time and those that have
 * passed. Used by itself this is a poor policy; `cost` takes it where it pays.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/policy/eviction.h"

#define PASS_EVERY 16

enum { ON_PROBATION = 3 }; /* a section that the main part does not use */

struct keep {
	struct pn_policy base;
	struct pn_policy *main;
	struct pn_list probation; /* oldest first */
	size_t nprobation;
	size_t main_pages, probation_pages;
	unsigned turn, batch;
	bool full; /* the cache has been full once */
};

static struct keep *of(struct pn_policy *policy)
{
	return pn_container_of(policy, struct keep, base);
}

static int keep_open(const struct pn_policy_attr *attr, struct pn_policy **out)
{
	struct keep *keep = calloc(1, sizeof(*keep));
	int ret;

	if (!keep)
		return -ENOMEM;
	ret = pn_policy_greedy.open(attr, &keep->main);
	if (ret) {
		free(keep);
		return ret;
	}
	keep->base.ops = &pn_policy_keep;
	keep->batch = attr->batch;
	pn_list_init(&keep->probation);
	*out = &keep->base;
	return 0;
}

static void keep_close(struct pn_policy *policy)
{
	pn_policy_close(of(policy)->main);
	free(of(policy));
}

/* The main part has our clock and epoch. */
static struct pn_policy *main_of(struct keep *keep)
{
	keep->main->clock = keep->base.clock;
	keep->main->epoch = keep->base.epoch;
	return keep->main;
}

static void main_insert(struct keep *keep, struct pn_policy_node *node)
{
	struct pn_policy *main = main_of(keep);

	main->ops->insert(main, node);
	keep->main_pages += node->npages;
}

static void keep_resize(struct pn_policy *policy, size_t capacity_pages)
{
	struct pn_policy *main = main_of(of(policy));

	main->ops->resize(main, capacity_pages);
	policy->epoch = main->epoch;
}

static void keep_insert(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct keep *keep = of(policy);

	if (!keep->full) {
		main_insert(keep, node);
		return;
	}
	node->section = ON_PROBATION;
	pn_policy_request_access(policy, node);
	pn_list_append(&keep->probation, &node->link);
	keep->nprobation++;
	keep->probation_pages += node->npages;
}

static void end_probation(struct keep *keep, struct pn_policy_node *node)
{
	pn_list_remove(&node->link);
	keep->nprobation--;
	keep->probation_pages -= node->npages;
}

static void keep_access(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct keep *keep = of(policy);
	struct pn_policy *main = main_of(keep);

	if (node->section == ON_PROBATION) {
		end_probation(keep, node);
		main_insert(keep, node);
	}
	main->ops->access(main, node);
}

static void main_remove(struct keep *keep, struct pn_policy_node *node)
{
	keep->main->ops->remove(keep->main, node);
	keep->main_pages -= node->npages;
}

static void keep_remove(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct keep *keep = of(policy);

	if (node->section == ON_PROBATION)
		end_probation(keep, node);
	else
		main_remove(keep, node);
}

static void evict_probation(struct keep *keep, struct pn_eviction *eviction)
{
	struct pn_list *pos, *tmp;

	pn_list_for_each_safe (pos, tmp, &keep->probation) {
		struct pn_policy_node *node =
			pn_container_of(pos, struct pn_policy_node, link);

		if (!pn_eviction_more(eviction))
			return;
		if (pn_eviction_busy(eviction, node))
			continue;
		end_probation(keep, node);
		pn_eviction_add(eviction, node);
	}
}

/* The oldest on probation passes. */
static void pass_one(struct keep *keep)
{
	struct pn_policy_node *node;

	if (pn_list_empty(&keep->probation))
		return;
	node = pn_container_of(keep->probation.next, struct pn_policy_node,
			       link);
	end_probation(keep, node);
	main_insert(keep, node);
}

static void evict_main(struct keep *keep, struct pn_eviction *eviction)
{
	struct pn_policy *main = main_of(keep);
	struct pn_policy_want rest = *eviction->want;
	struct pn_list *last = eviction->victims->prev;

	rest.npages -=
		eviction->npages < rest.npages ? eviction->npages : rest.npages;
	rest.nregions -= eviction->nregions < rest.nregions ? eviction->nregions
							    : rest.nregions;
	eviction->nregions += main->ops->evict(main, &rest, eviction->victims);
	keep->base.epoch = main->epoch;
	while ((last = last->next) != eviction->victims) {
		size_t npages =
			pn_container_of(last, struct pn_policy_node, link)
				->npages;

		keep->main_pages -= npages;
		eviction->npages += npages;
	}
}

static unsigned keep_evict(struct pn_policy *policy,
			   const struct pn_policy_want *want,
			   struct pn_list *victims)
{
	struct keep *keep = of(policy);
	struct pn_eviction eviction = {
		.want = want,
		.victims = victims,
		.batch_pages = SIZE_MAX,
		.batch_regions = keep->batch,
	};

	if (!pn_eviction_must(&eviction))
		return 0;
	keep->full = true;
	/* Regions of several sizes: a large one took more pages than were on
	 * probation, and what came in its place is as good as what went. */
	while (keep->main_pages < keep->probation_pages)
		pass_one(keep);
	if (!(++keep->turn % PASS_EVERY))
		pass_one(keep);
	else
		evict_probation(keep, &eviction);
	if (pn_eviction_must(&eviction))
		evict_main(keep, &eviction);
	/* A region passed and the main part was asked instead; it may not have
	 * had enough. */
	if (pn_eviction_must(&eviction))
		evict_probation(keep, &eviction);
	return eviction.nregions;
}

static void keep_each(struct pn_policy *policy, pn_policy_node_fn *fn,
		      void *arg)
{
	struct keep *keep = of(policy);
	struct pn_list *pos;

	keep->main->ops->each(keep->main, fn, arg);
	pn_list_for_each (pos, &keep->probation)
		fn(arg, pn_container_of(pos, struct pn_policy_node, link));
}

static void keep_check(struct pn_policy *policy)
{
	struct keep *keep = of(policy);
	struct pn_list *pos;
	size_t n = 0;

	pn_list_for_each (pos, &keep->probation)
		n++;
	pn_assert(n == keep->nprobation);
	keep->main->ops->check(keep->main);
}

const struct pn_policy_ops pn_policy_keep = {
	.name = "keep",
	.help = "what is there stays, new regions go first: for loops and "
		"scans",
	.batched = true,
	.open = keep_open,
	.close = keep_close,
	.resize = keep_resize,
	.insert = keep_insert,
	.access = keep_access,
	.remove = keep_remove,
	.evict = keep_evict,
	.each = keep_each,
	.check = keep_check,
};
