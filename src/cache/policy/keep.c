/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keep -- holds on to what is there: for loops and scans that are larger than
 * the cache.
 *
 * Where a program walks through more than fits, over and over, whoever gives
 * up the oldest gives up what comes next, and nothing ever hits. The remedy is
 * bimodal insertion (Qureshi and others 2007): what is cached stays, and new
 * regions are on *trial*; they go first, together, unless they are used again
 * meanwhile. One time in sixteen the trial is passed without a use, so that a
 * program that has moved on is followed, slowly; and so it is while more is on
 * trial than is not.
 *
 * Main part: the greedy policy (greedy.c), with regions that were there before
 * the cache was full for the first time, or have passed.
 * Alone this is a poor policy; `cost` takes it where it pays.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/policy/eviction.h"

#define PASS_EVERY 16

enum { ON_TRIAL = 3 }; /* a section that the main part does not use */

struct keep {
	struct pn_policy base;
	struct pn_policy *main;
	struct pn_list trial; /* oldest first */
	size_t ntrial;
	size_t main_pages, trial_pages;
	unsigned turn, batch;
	bool full; /* has been, once */
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
	pn_list_init(&keep->trial);
	*out = &keep->base;
	return 0;
}

static void keep_close(struct pn_policy *policy)
{
	pn_policy_close(of(policy)->main);
	free(of(policy));
}

/* The main part's clock and epoch are ours. */
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
	node->section = ON_TRIAL;
	pn_policy_request_access(policy, node);
	pn_list_append(&keep->trial, &node->link);
	keep->ntrial++;
	keep->trial_pages += node->npages;
}

static void end_trial(struct keep *keep, struct pn_policy_node *node)
{
	pn_list_remove(&node->link);
	keep->ntrial--;
	keep->trial_pages -= node->npages;
}

static void keep_access(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct keep *keep = of(policy);
	struct pn_policy *main = main_of(keep);

	if (node->section == ON_TRIAL) {
		end_trial(keep, node);
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

	if (node->section == ON_TRIAL)
		end_trial(keep, node);
	else
		main_remove(keep, node);
}

static void take_trial(struct keep *keep, struct pn_take *take)
{
	struct pn_list *pos, *tmp;

	pn_list_for_each_safe (pos, tmp, &keep->trial) {
		struct pn_policy_node *node =
			pn_container_of(pos, struct pn_policy_node, link);

		if (!pn_eviction_more(take))
			return;
		if (pn_eviction_busy(take, node))
			continue;
		end_trial(keep, node);
		pn_take(take, node);
	}
}

/* The oldest on trial passes. */
static void pass_one(struct keep *keep)
{
	struct pn_policy_node *node;

	if (pn_list_empty(&keep->trial))
		return;
	node = pn_container_of(keep->trial.next, struct pn_policy_node, link);
	end_trial(keep, node);
	main_insert(keep, node);
}

static void take_main(struct keep *keep, struct pn_take *take)
{
	struct pn_policy *main = main_of(keep);
	struct pn_policy_want rest = *take->want;
	struct pn_list *last = take->victims->prev;

	rest.npages -= take->npages < rest.npages ? take->npages : rest.npages;
	rest.nregions -=
		take->nregions < rest.nregions ? take->nregions : rest.nregions;
	take->nregions += main->ops->evict(main, &rest, take->victims);
	keep->base.epoch = main->epoch;
	while ((last = last->next) != take->victims) {
		size_t npages =
			pn_container_of(last, struct pn_policy_node, link)
				->npages;

		keep->main_pages -= npages;
		take->npages += npages;
	}
}

static unsigned keep_evict(struct pn_policy *policy,
			   const struct pn_policy_want *want,
			   struct pn_list *victims)
{
	struct keep *keep = of(policy);
	struct pn_take take = {
		.want = want,
		.victims = victims,
		.batch_pages = SIZE_MAX,
		.batch_regions = keep->batch,
	};

	if (!pn_eviction_must(&take))
		return 0;
	keep->full = true;
	/* Regions of several sizes: a large one took more than the trials
	 * had, and what came in its place is as good as what went. */
	while (keep->main_pages < keep->trial_pages)
		pass_one(keep);
	if (!(++keep->turn % PASS_EVERY))
		pass_one(keep);
	else
		take_trial(keep, &take);
	if (pn_eviction_must(&take))
		take_main(keep, &take);
	/* A pass made the main part pay; it may not have had enough. */
	if (pn_eviction_must(&take))
		take_trial(keep, &take);
	return take.nregions;
}

static void keep_each(struct pn_policy *policy, pn_policy_node_fn *fn,
		      void *arg)
{
	struct keep *keep = of(policy);
	struct pn_list *pos;

	keep->main->ops->each(keep->main, fn, arg);
	pn_list_for_each (pos, &keep->trial)
		fn(arg, pn_container_of(pos, struct pn_policy_node, link));
}

static void keep_check(struct pn_policy *policy)
{
	struct keep *keep = of(policy);
	struct pn_list *pos;
	size_t n = 0;

	pn_list_for_each (pos, &keep->trial)
		n++;
	pn_assert(n == keep->ntrial);
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
