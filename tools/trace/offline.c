/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/trace/offline.h"

#include <errno.h>
#include <stdlib.h>

#include "base/index.h"
#include "cache/cache.h"
#include "cache/policy/eviction.h"
#include "cache/policy/rank.h"

#define NCLASSES 30

struct offline {
	struct pn_policy base;
	struct pn_policy_attr attr;
	const struct pn_next_use *next;
	/* entries of next->each that are still in the future */
	size_t neach;
	size_t now; /* number of the current request */
	/* page -> number of its next request plus one */
	struct pn_index next_request;
	struct pn_rank classes[NCLASSES]; /* by log2 of pages */
	/* nodes that no heap had memory for: evicted first */
	struct pn_list unranked;
};

static const struct pn_policy_ops offline_ops;

static struct offline *offline_of(struct pn_policy *policy)
{
	return pn_container_of(policy, struct offline, base);
}

int pn_offline_open(const struct pn_policy_attr *attr,
		    const struct pn_next_use *next, struct pn_policy **out)
{
	struct offline *self = calloc(1, sizeof(*self));

	if (!self)
		return -ENOMEM;
	if (pn_index_init(&self->next_request)) {
		free(self);
		return -ENOMEM;
	}
	self->base.ops = &offline_ops;
	self->attr = *attr;
	self->next = next;
	self->neach = next->neach;
	for (unsigned i = 0; i < NCLASSES; i++)
		pn_rank_init(&self->classes[i]);
	pn_list_init(&self->unranked);
	*out = &self->base;
	return 0;
}

static void offline_close(struct pn_policy *policy)
{
	for (unsigned i = 0; i < NCLASSES; i++)
		pn_rank_fini(&offline_of(policy)->classes[i]);
	pn_index_fini(&offline_of(policy)->next_request);
	free(offline_of(policy));
}

int pn_offline_request(struct pn_policy *policy, size_t number,
		       struct pn_range pages)
{
	struct offline *self = offline_of(policy);
	uint32_t next = self->next->of_step[number];
	int ret = pn_index_reserve(&self->next_request, pages);

	if (ret)
		return ret;
	self->now = number;
	if (next != PN_NEXT_MIXED) {
		pn_index_set(&self->next_request, pages, next + 1);
		return 0;
	}
	for (; pages.len; pages.len -= PN_PAGE_BYTES) {
		struct pn_range page = { pages.addr, PN_PAGE_BYTES };

		next = self->next->each[--self->neach];
		pn_index_set(&self->next_request, page, next + 1);
		pages.addr += PN_PAGE_BYTES;
	}
	return 0;
}

static void offline_resize(struct pn_policy *policy, size_t capacity_pages)
{
	(void)policy;
	(void)capacity_pages;
}

static struct pn_rank *class_of(struct offline *self,
				const struct pn_policy_node *node)
{
	return &self->classes[31 - __builtin_clz(node->npages)];
}

/* The next use of the node's region, as computed at its last use. */
static double next_of(const struct pn_policy_node *node)
{
	return -node->factor;
}

/* Computes the next use now: the first use of any page of the region. */
static uint32_t find_next(struct offline *self, struct pn_policy_node *node)
{
	struct pn_range range = pn_cache_node_range(node);
	uint32_t least = PN_NEXT_NEVER;

	for (size_t off = 0; off < range.len; off += PN_PAGE_BYTES) {
		uint32_t at =
			pn_index_get(&self->next_request, range.addr + off);

		if (at && at - 1 < least)
			least = at - 1;
	}
	return least;
}

static void remove_node(struct offline *self, struct pn_policy_node *node)
{
	if (pn_rank_has(node))
		pn_rank_remove(class_of(self, node), node);
	else
		pn_list_remove(&node->link);
}

/* The heap has the smallest factor in front, so factors are negative: the
 * farthest next use is the smallest factor. */
static void insert_node(struct offline *self, struct pn_policy_node *node)
{
	node->factor = -(double)find_next(self, node);
	node->heap_at = PN_RANK_NONE;
	if (pn_rank_place(class_of(self, node), node))
		pn_list_append(&self->unranked, &node->link);
}

static void offline_insert(struct pn_policy *policy,
			   struct pn_policy_node *node)
{
	struct offline *self = offline_of(policy);

	pn_policy_request_access(policy, node);
	insert_node(self, node);
}

static void offline_access(struct pn_policy *policy,
			   struct pn_policy_node *node)
{
	struct offline *self = offline_of(policy);

	remove_node(self, node);
	insert_node(self, node);
}

static void offline_remove(struct pn_policy *policy,
			   struct pn_policy_node *node)
{
	remove_node(offline_of(policy), node);
}

/* What each page of the region saves per request until its next use. */
static double worth(const struct offline *self,
		    const struct pn_policy_node *node)
{
	const struct pn_policy_attr *a = &self->attr;
	double loss = a->register_fixed + a->deregister_fixed +
		      (a->register_page + a->deregister_page) * node->npages;
	double wait = next_of(node) - (double)self->now;

	if (next_of(node) >= PN_NEXT_NEVER)
		return 0;
	if (a->capacity_pages != SIZE_MAX)
		loss /= node->npages;
	return loss / (wait < 1 ? 1 : wait);
}

/* Returns the class whose first node is evicted next; NULL: all are empty. */
static struct pn_rank *least_class(struct offline *self)
{
	struct pn_rank *least = NULL;
	double least_worth = 0;

	for (unsigned i = NCLASSES; i--;) {
		struct pn_policy_node *node = pn_rank_front(&self->classes[i]);
		double w = node ? worth(self, node) : 0;

		if (!node || (least && w >= least_worth))
			continue;
		least = &self->classes[i];
		least_worth = w;
	}
	return least;
}

/* Whether to evict the node: it is needed, or its region is never used again
 * and fills the batch. */
static bool should_evict(const struct offline *self, const struct pn_take *take,
			 const struct pn_policy_node *node)
{
	return pn_eviction_must(take) || (next_of(node) >= PN_NEXT_NEVER &&
					  take->nregions < self->attr.batch);
}

static void evict_ranked(struct offline *self, struct pn_take *take)
{
	struct pn_rank *class;

	while ((class = least_class(self))) {
		struct pn_policy_node *node = pn_rank_front(class);

		pn_assert(node); /* least_class() returns no empty one */
		if (!should_evict(self, take, node))
			break;
		if (pn_eviction_busy(take, node)) {
			pn_rank_hold(class);
			continue;
		}
		pn_rank_pop(class);
		pn_take(take, node);
	}
	for (unsigned i = 0; i < NCLASSES; i++)
		pn_rank_unhold(&self->classes[i]);
}

static unsigned offline_evict(struct pn_policy *policy,
			      const struct pn_policy_want *want,
			      struct pn_list *victims)
{
	struct offline *self = offline_of(policy);
	struct pn_take take = { .want = want, .victims = victims };
	struct pn_list *pos, *tmp;

	pn_list_for_each_safe (pos, tmp, &self->unranked) {
		struct pn_policy_node *node =
			pn_container_of(pos, struct pn_policy_node, link);

		if (!pn_eviction_must(&take))
			break;
		if (pn_eviction_busy(&take, node))
			continue;
		pn_list_remove(pos);
		pn_take(&take, node);
	}
	if (pn_eviction_must(&take))
		evict_ranked(self, &take);
	return take.nregions;
}

static void offline_check(struct pn_policy *policy)
{
	for (unsigned i = 0; i < NCLASSES; i++)
		pn_rank_check(&offline_of(policy)->classes[i]);
}

static const struct pn_policy_ops offline_ops = {
	.name = "offline",
	.help = "knows the future: a heuristic bound, not a policy",
	.batched = true,
	.close = offline_close,
	.resize = offline_resize,
	.insert = offline_insert,
	.access = offline_access,
	.remove = offline_remove,
	.evict = offline_evict,
	.check = offline_check,
};
