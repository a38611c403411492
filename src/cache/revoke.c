/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Revoking keys (U6): a region whose remote key was handed out leaves the
 * index, so that the next pin registers anew and gets another key. The old key
 * dies at once: with the deregistration when nobody uses the region, else by
 * the device's rekey(), while the user's transfers go on with the local key.
 */
#include <errno.h>

#include "cache/cache_impl.h"

/* The first cached region with a remote key in range; NULL: none. */
static struct pn_region *next_exposed(struct pn_cache *cache,
				      struct pn_range *range)
	PN_REQUIRES(&cache->lock)
{
	uintptr_t end = range->addr + range->len;

	while (range->len) {
		uintptr_t at = pn_index_next(&cache->index, *range);
		struct pn_region *region;
		uintptr_t next;

		if (at >= end)
			return NULL;
		region = &cache->regions[pn_index_get(&cache->index, at)];
		next = (uintptr_t)region->mr.addr + region->mr.len;
		*range = (struct pn_range){ next, next < end ? end - next : 0 };
		/* A PENDING one's key has reached nobody yet. */
		if (region->mr.rkey &&
		    atomic_load(&region->state) == PN_REGION_VALID)
			return region;
	}
	return NULL;
}

/* Unlinks the next region and holds it in slot; false: there is none. */
static bool unlink_next(struct pn_cache *cache, struct pn_range *range,
			pn_slot *slot, struct pn_region **out, bool *in_use)
{
	struct pn_region *region;

	pn_lock(&cache->lock);
	pn_release_drain_locked(cache);
	region = next_exposed(cache, range);
	if (region) {
		pn_pins_scan_locked(cache);
		*in_use = region->held == cache->scan;
		pn_asymmetric_store(slot, region);
		pn_region_die_locked(cache, region);
	}
	pn_unlock(&cache->lock);
	*out = region;
	return region;
}

int pn_cache_revoke(struct pn_cache *cache, uintptr_t addr, size_t len)
{
	struct pn_range range = { addr, len };
	struct pn_pins *pins = pn_pins_self(cache);
	struct pn_region *region;
	pn_slot *slot;
	bool in_use;
	int ret = 0;

	if (!pn_range_valid(addr, len))
		return -EINVAL;
	slot = pins ? pn_pins_slot(pins) : NULL;
	if (!slot)
		return -ENOMEM;
	while (unlink_next(cache, &range, slot, &region, &in_use)) {
		struct pn_mr copy = region->mr;

		/* The region's own rkey is only ever read by its users. */
		if (in_use && pn_device_rekey(cache->device, &copy))
			ret = -EBUSY;
		pn_asymmetric_store(slot, NULL);
	}
	pn_room_reap(cache);
	pn_worker_tell(cache);
	PN_CACHE_CHECK(cache);
	return ret;
}
