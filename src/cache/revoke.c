/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Revoking keys: a region whose remote key was handed out leaves the
 * index, so that the next pin registers again and gets another key. The old key
 * becomes invalid at once: by deregistering when nobody uses the region, else
 * by the device's rekey(), while the user's transfers go on with the local key.
 * PRIVATE regions, and regions that were dying already, are in no index. They
 * are found in cache->lent, cache->dying and cache->failed, where they stay
 * while pinned.
 */
#include <errno.h>

#include "cache/cache_impl.h"
#include "cache/invalidate_impl.h"
#include "cache/reclaim_impl.h"
#include "cache/region_impl.h"
#include "cache/thread_slots_impl.h"
#include "cache/trace_impl.h"
#include "cache/worker_impl.h"

/* The first region with a remote key in range; NULL: none. *range becomes the
 * rest behind it. */
static struct pn_region *next_remote(struct pn_cache *cache,
				     struct pn_range *range)
	PN_REQUIRES(&cache->lock)
{
	struct pn_region *region;

	/* Nobody has the key of a PENDING region yet. */
	while ((region = pn_region_next_locked(cache, range)))
		if (region->mr.access & PN_ACCESS_REMOTE &&
		    atomic_load(&region->state) == PN_REGION_VALID)
			return region;
	return NULL;
}

/* Removes every region of range with a remote key from the index. -EBUSY: one
 * is a resident, which only its owner removes. */
static int unindex_remote(struct pn_cache *cache, struct pn_range range)
{
	struct pn_region *region;
	int ret = 0;

	pn_lock(&cache->lock);
	pn_invalidate_drain_locked(cache);
	while ((region = next_remote(cache, &range)))
		if (region->resident)
			ret = -EBUSY;
		else
			pn_region_die_locked(cache, region, PN_BECAUSE_REVOKED);
	pn_unlock(&cache->lock);
	return ret;
}

static struct pn_region *remote_among(struct pn_list *regions,
				      struct pn_range range)
{
	struct pn_list *pos;

	pn_list_for_each (pos, regions) {
		struct pn_region *region = pn_region_of_node(pos);

		if (region->mr.access & PN_ACCESS_REMOTE &&
		    region->flags & PN_REGION_REGISTERED &&
		    !(region->flags & PN_REGION_REVOKED) &&
		    pn_range_overlaps(pn_region_range(region), range))
			return region;
	}
	return NULL;
}

static struct pn_region *dying_remote(struct pn_cache *cache,
				      struct pn_range range)
	PN_REQUIRES(&cache->lock)
{
	struct pn_region *region = remote_among(&cache->dying.list, range);

	if (!region)
		region = remote_among(&cache->lent, range);
	return region ? region : remote_among(&cache->failed.list, range);
}

/* Holds the next dying region whose key still works: somebody uses it. NULL:
 * there is none. */
static struct pn_region *hold_next(struct pn_cache *cache,
				   struct pn_range range, pn_slot *slot)
{
	struct pn_region *region;

	pn_lock(&cache->lock);
	pn_reclaim_wait_batches_locked(cache);
	region = dying_remote(cache, range);
	if (region && cache->device->caps & PN_CAP_REKEY)
		region->flags |= PN_REGION_REVOKED;
	pn_asymmetric_store(slot, region);
	cache->nrekeys += region != NULL;
	pn_unlock(&cache->lock);
	return region;
}

static void let_go(struct pn_cache *cache, pn_slot *slot)
{
	pn_lock(&cache->lock);
	pn_asymmetric_store(slot, NULL);
	cache->nrekeys--;
	pn_unlock(&cache->lock);
	pn_reclaim_wake_waiters(cache);
}

static int revoke_held(struct pn_cache *cache, struct pn_range range,
		       pn_slot *slot)
{
	struct pn_region *region;
	int ret = 0;

	while (!ret && (region = hold_next(cache, range, slot))) {
		/* A copy: users of the region read its rkey without a lock. */
		struct pn_mr copy = region->mr;

		if (pn_device_rekey(cache->device, &copy))
			ret = -EBUSY;
		let_go(cache, slot);
	}
	return ret;
}

int pn_cache_revoke(struct pn_cache *cache, uintptr_t addr, size_t len)
{
	struct pn_range range = { addr, len };
	struct pn_thread_slots *thread = pn_slots_self(cache);
	pn_slot *slot;
	int ret;

	if (!pn_range_valid(addr, len))
		return -EINVAL;
	slot = thread ? pn_slots_get(thread) : NULL;
	if (!slot)
		return -ENOMEM;
	if (cache->sink)
		pn_cache_trace(cache,
			       (struct pn_trace_event){ .kind = PN_EVENT_REVOKE,
							.addr = addr,
							.len = len });
	ret = unindex_remote(cache, range);
	while (pn_reclaim_reap(cache))
		;
	if (!ret)
		ret = revoke_held(cache, range, slot);
	pn_worker_notify_if_wanted(cache);
	PN_CACHE_CHECK(cache);
	return ret;
}
