/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lru, fmrd -- the region used longest ago goes first.
 *
 * lru is the pin-down cache: no more regions go than are needed, each
 * deregistered by itself. The other policies are measured against it. Source:
 * Tezuka, O'Carroll, Hori, Ishikawa, "Pin-down cache: a virtual memory
 * management technique for zero-copy communication", 1998.
 *
 * fmrd is lru with batched deregistration: several regions go at a time, so
 * that the fixed cost of a deregistration is paid once for all of them. The
 * price: a victim beyond what was wanted leaves early, and may be used in the
 * meantime. Source: FMRD (Wu and others 2003), as described in Ou and others
 * 2009: a pin-down cache with the batched deregistration of Zhou and others
 * (2002). Its other half, fast registration, is a matter of the device.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/policy/recency.h"

struct recency_policy {
	struct pn_policy base;
	struct pn_recency recency;
	unsigned batch;
};

static struct recency_policy *policy_of(struct pn_policy *policy)
{
	return pn_container_of(policy, struct recency_policy, base);
}

static int recency_open(const struct pn_policy_ops *ops, unsigned batch,
			struct pn_policy **out)
{
	struct recency_policy *self = calloc(1, sizeof(*self));

	if (!self)
		return -ENOMEM;
	self->base.ops = ops;
	self->batch = batch;
	pn_recency_init(&self->recency);
	*out = &self->base;
	return 0;
}

static void recency_close(struct pn_policy *policy)
{
	free(policy_of(policy));
}

/* Recency does not depend on how much room there is. */
static void recency_resize(struct pn_policy *policy, size_t capacity_pages)
{
	(void)policy;
	(void)capacity_pages;
}

static void recency_insert(struct pn_policy *policy,
			   struct pn_policy_node *node)
{
	pn_recency_add(&policy_of(policy)->recency, node);
}

static void recency_access(struct pn_policy *policy,
			   struct pn_policy_node *node)
{
	pn_policy_ignore_access(policy, node);
}

static void recency_remove(struct pn_policy *policy,
			   struct pn_policy_node *node)
{
	pn_recency_remove(&policy_of(policy)->recency, node);
}

static unsigned recency_evict(struct pn_policy *policy,
			      const struct pn_policy_want *want,
			      struct pn_list *victims)
{
	struct pn_eviction eviction = {
		.want = want,
		.victims = victims,
		.batch_pages = SIZE_MAX,
		.batch_regions = policy_of(policy)->batch,
	};

	if (pn_eviction_must(&eviction))
		pn_recency_evict(&policy_of(policy)->recency, &eviction,
				 pn_eviction_more);
	return eviction.nregions;
}

static void recency_each(struct pn_policy *policy, pn_policy_node_fn *fn,
			 void *arg)
{
	pn_recency_each(&policy_of(policy)->recency, fn, arg);
}

static void recency_check(struct pn_policy *policy)
{
	pn_recency_check(&policy_of(policy)->recency);
}

/* --- lru ------------------------------------------------------------------ */

static int lru_open(const struct pn_policy_attr *attr, struct pn_policy **out)
{
	(void)attr;
	return recency_open(&pn_policy_lru, 0, out);
}

const struct pn_policy_ops pn_policy_lru = {
	.name = "lru",
	.help = "pin-down cache: least recently used first, one by one",
	.batched = false,
	.open = lru_open,
	.close = recency_close,
	.resize = recency_resize,
	.insert = recency_insert,
	.access = recency_access,
	.remove = recency_remove,
	.evict = recency_evict,
	.each = recency_each,
	.check = recency_check,
};

/* --- fmrd ----------------------------------------------------------------- */

static int fmrd_open(const struct pn_policy_attr *attr, struct pn_policy **out)
{
	return recency_open(&pn_policy_fmrd, attr->batch, out);
}

const struct pn_policy_ops pn_policy_fmrd = {
	.name = "fmrd",
	.help = "least recently used first, deregistered in batches",
	.batched = true,
	.open = fmrd_open,
	.close = recency_close,
	.resize = recency_resize,
	.insert = recency_insert,
	.access = recency_access,
	.remove = recency_remove,
	.evict = recency_evict,
	.each = recency_each,
	.check = recency_check,
};
