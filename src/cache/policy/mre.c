/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mre -- Memory Resorting and Eviction: among the regions not used lately,
 * large old ones go first, in batches.
 *
 * Source: Ou and others 2009, section 5. Its stack has two sections. The
 * frequent-reference section on top has what was registered or used lately, in
 * the order of use. Below is the resorting section; its lowest part is the
 * eviction segment. Each time the cache is full
 *   r becomes the eviction factor of the region at the bottom,
 *   regions of the resorting section without a factor get r + 1/pages,
 *   the section is sorted by factor, the smallest at the bottom,
 *   the eviction segment goes, deregistered in one batch.
 * A use moves a region to the top and removes its factor. So small regions,
 * which cost more to register per page, stay longer; r grows, so that they do
 * not stay for ever.
 *
 * Implementation. Nothing needs the boundary between the sections until the
 * cache is full, so the boundary is drawn then, and a use only moves a node to
 * the top, O(1). The resorting section is a heap instead of a sorted list: the
 * same order (by factor, then by age), but no sort of half a million regions
 * while the owner holds its lock; O(log n) per region that sinks into it or is
 * taken from it. A node that is used again keeps its old entry in the heap
 * until that entry comes to the front or the node sinks again, when its factor
 * can only be larger. Caveat: O(log n) is per region on average. The first time
 * that the cache is full, half of it sinks in one call (0.1 s for a million
 * regions).
 *
 * What the paper leaves open is in the constants; see doc/design/policies.md.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/policy/rank.h"
#include "cache/policy/recency.h"

/* The frequent-reference section keeps at most half of the pages. A larger
 * section leaves the factors little to choose from; a smaller one judges
 * regions by size before they had a chance to be used again. */
#define FREQUENT_SHARE 2

/* The eviction segment is at most a sixteenth of the pages: what goes early is
 * missed in the meantime, and beyond a few regions a batch saves hardly more.
 * attr.batch bounds it in regions, so that one evict() stays short. */
#define EVICTION_SHARE 16

enum { FREQUENT, RESORTING };

struct mre {
	struct pn_policy base;
	struct pn_recency frequent;
	struct pn_rank resorting; /* and lagging entries of frequent nodes */
	size_t resorting_pages;
	double recency; /* the paper's r */
	unsigned batch;
};

static struct mre *of(struct pn_policy *policy)
{
	return pn_container_of(policy, struct mre, base);
}

static int mre_open(const struct pn_policy_attr *attr, struct pn_policy **out)
{
	struct mre *mre = calloc(1, sizeof(*mre));

	if (!mre)
		return -ENOMEM;
	mre->base.ops = &pn_policy_mre;
	mre->batch = attr->batch;
	pn_recency_init(&mre->frequent);
	pn_rank_init(&mre->resorting);
	*out = &mre->base;
	return 0;
}

static void mre_close(struct pn_policy *policy)
{
	struct mre *mre = of(policy);

	pn_rank_fini(&mre->resorting);
	free(mre);
}

/* The sections are shares of what is cached, which fills the capacity when it
 * matters. */
static void mre_resize(struct pn_policy *policy, size_t capacity_pages)
{
	(void)policy;
	(void)capacity_pages;
}

static void mre_insert(struct pn_policy *policy, struct pn_policy_node *node)
{
	pn_assert(node->npages);
	node->factor = 0;
	node->section = FREQUENT;
	node->heap_at = PN_RANK_NONE;
	pn_recency_add(&of(policy)->frequent, node);
}

/* In the frequent section the stamp is enough. */
static void mre_access(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct mre *mre = of(policy);

	pn_policy_ignore_access(policy, node);
	if (node->section == FREQUENT)
		return;
	mre->resorting_pages -= node->npages;
	node->section = FREQUENT;
	node->factor = 0;
	pn_recency_add(&mre->frequent, node);
}

static void mre_remove(struct pn_policy *policy, struct pn_policy_node *node)
{
	struct mre *mre = of(policy);

	if (pn_rank_has(node))
		pn_rank_remove(&mre->resorting, node);
	if (node->section == FREQUENT)
		pn_recency_remove(&mre->frequent, node);
	else
		mre->resorting_pages -= node->npages;
}

/* The region at the bottom of the stack; NULL: the resorting section is
 * empty or held. */
static struct pn_policy_node *bottom(struct mre *mre)
{
	struct pn_policy_node *node;

	while ((node = pn_rank_front(&mre->resorting))) {
		if (node->section == RESORTING)
			break;
		pn_rank_pop(&mre->resorting);
	}
	return node;
}

/* Moves the oldest frequent node to the resorting section. Nodes sink in the
 * order of their last use, so nodes of equal factor are in that order. -ENOMEM:
 * it stays. */
static int sink(struct mre *mre)
{
	struct pn_policy_node *node = pn_recency_oldest(&mre->frequent);
	int ret;

	node->factor = mre->recency + 1.0 / node->npages;
	ret = pn_rank_place(&mre->resorting, node);
	if (ret) {
		node->factor = 0;
		return ret;
	}
	pn_recency_remove(&mre->frequent, node);
	node->section = RESORTING;
	pn_policy_request_access(&mre->base, node);
	mre->resorting_pages += node->npages;
	return 0;
}

/* The cache is full: sets r and draws the boundary. */
static void resort(struct mre *mre, size_t npages)
{
	struct pn_policy_node *lowest = bottom(mre);

	if (lowest)
		mre->recency = lowest->factor;
	while (mre->frequent.npages > npages / FREQUENT_SHARE) {
		/* Without memory the node stays in the upper section, from
		 * which it is taken when the lower one is used up. */
		if (sink(mre))
			return;
	}
}

static void take_resorting(struct mre *mre, struct pn_eviction *eviction)
{
	struct pn_policy_node *node;

	while (pn_eviction_more(eviction) && (node = bottom(mre))) {
		if (pn_eviction_busy(eviction, node)) {
			pn_rank_hold(&mre->resorting);
			continue;
		}
		pn_rank_pop(&mre->resorting);
		mre->resorting_pages -= node->npages;
		pn_eviction_add(eviction, node);
	}
	pn_rank_unhold(&mre->resorting);
}

static unsigned mre_evict(struct pn_policy *policy,
			  const struct pn_policy_want *want,
			  struct pn_list *victims)
{
	struct mre *mre = of(policy);
	size_t npages = mre->frequent.npages + mre->resorting_pages;
	struct pn_eviction eviction = {
		.want = want,
		.victims = victims,
		.batch_pages = npages / EVICTION_SHARE,
		.batch_regions = mre->batch,
	};

	if (!pn_eviction_must(&eviction))
		return 0;
	resort(mre, npages);
	take_resorting(mre, &eviction);
	/* More is wanted than the resorting section has: the rest comes from
	 * the other section, oldest first. None of these has an entry in the
	 * heap, which was searched to its end. */
	pn_recency_evict(&mre->frequent, &eviction, pn_eviction_must);
	return eviction.nregions;
}

static void mre_each(struct pn_policy *policy, pn_policy_node_fn *fn, void *arg)
{
	struct mre *mre = of(policy);

	pn_recency_each(&mre->frequent, fn, arg);
	for (uint32_t i = 0; i < mre->resorting.n; i++)
		if (mre->resorting.at[i].node->section == RESORTING)
			fn(arg, mre->resorting.at[i].node);
}

static void check_frequent(struct pn_list *list)
{
	struct pn_list *pos;

	pn_list_for_each (pos, list) {
		pn_assert(pn_recency_node(pos)->section == FREQUENT);
		pn_assert(pn_recency_node(pos)->factor == 0);
	}
}

static void mre_check(struct pn_policy *policy)
{
	struct mre *mre = of(policy);
	size_t npages = 0;

	pn_recency_check(&mre->frequent);
	pn_rank_check(&mre->resorting);
	check_frequent(&mre->frequent.sorted);
	check_frequent(&mre->frequent.unsorted);
	for (uint32_t i = 0; i < mre->resorting.n; i++) {
		const struct pn_rank_entry *entry = &mre->resorting.at[i];

		if (entry->node->section == FREQUENT)
			continue;
		pn_assert(entry->factor == entry->node->factor);
		pn_assert(entry->used == entry->node->used);
		npages += entry->node->npages;
	}
	pn_assert(npages == mre->resorting_pages);
}

const struct pn_policy_ops pn_policy_mre = {
	.name = "mre",
	.help = "MRE of the region cache: large old regions first, in batches",
	.batched = true,
	.open = mre_open,
	.close = mre_close,
	.resize = mre_resize,
	.insert = mre_insert,
	.access = mre_access,
	.remove = mre_remove,
	.evict = mre_evict,
	.each = mre_each,
	.check = mre_check,
};
