/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prefetch and drop: the helper registers a range before its use and
 * deregisters it after. Both do what a pin and an eviction do, for a given
 * range and without a user: the same rules hold.
 */
#include <errno.h>

#include "cache/cache_impl.h"
#include "cache/invalidate_impl.h"
#include "cache/reclaim_impl.h"
#include "cache/region_impl.h"
#include "cache/thread_slots_impl.h"

/* The next cached region with bytes in range that lies wholly in the pages of
 * range; NULL: none. *range becomes the rest behind that region. */
static struct pn_region *next_inside(struct pn_cache *cache,
				     struct pn_range *range)
	PN_REQUIRES(&cache->lock)
{
	struct pn_range pages =
		pn_range_pages(range->addr, range->len, PN_PAGE_BYTES);
	struct pn_region *region;

	while ((region = pn_region_next_locked(cache, range))) {
		if (pn_range_covers(pages, pn_region_range(region)) &&
		    !region->resident &&
		    atomic_load(&region->state) == PN_REGION_VALID)
			return region;
	}
	return NULL;
}

static bool any_held(struct pn_cache *cache, struct pn_range range)
	PN_REQUIRES(&cache->lock)
{
	struct pn_region *region;

	/* Without a barrier this misses pins that begin at this moment: they
	 * keep their region, which dies when they end. */
	pn_slots_scan_locked(cache);
	while ((region = next_inside(cache, &range)))
		if (region->held == cache->scan)
			return true;
	return false;
}

/* The access of the largest region in range, and the range from the first to
 * the last region with the same access. False: there is none. */
static bool find_droppable(struct pn_cache *cache, struct pn_range range,
			   struct pn_dropped *found) PN_REQUIRES(&cache->lock)
{
	struct pn_range rest = range;
	struct pn_region *region;
	size_t largest = 0;

	while ((region = next_inside(cache, &rest)))
		if (region->mr.len > largest) {
			largest = region->mr.len;
			found->access = region->mr.access;
		}
	if (!largest)
		return false;
	found->range.len = 0;
	while ((region = next_inside(cache, &range))) {
		uintptr_t first = (uintptr_t)region->mr.addr;

		if (region->mr.access != found->access)
			continue;
		if (!found->range.len)
			found->range.addr = first;
		found->range.len = first + region->mr.len - found->range.addr;
	}
	return true;
}

static _Atomic uintptr_t *dropped_row(struct pn_cache *cache, uintptr_t page)
{
	uint64_t hash = page * UINT64_C(0x9e3779b97f4a7c15);

	return &cache->dropped[hash >> 32 & (PN_DROPPED_ROWS - 1)];
}

bool pn_cache_was_dropped(struct pn_cache *cache, const void *addr)
{
	uintptr_t page = (uintptr_t)addr >> PN_PAGE_SHIFT;
	_Atomic uintptr_t *row = dropped_row(cache, page);

	if (atomic_load_explicit(row, memory_order_relaxed) != page)
		return false;
	atomic_store_explicit(row, 0, memory_order_relaxed);
	return true;
}

int pn_cache_drop(struct pn_cache *cache, uintptr_t addr, size_t len,
		  struct pn_dropped *dropped)
{
	struct pn_range range = { addr, len };
	uintptr_t page = addr >> PN_PAGE_SHIFT;
	struct pn_region *region;
	int n = 0;

	pn_cache_refresh(cache);
	pn_lock(&cache->lock);
	pn_invalidate_drain_locked(cache);
	pn_slots_drain_locked(cache);
	if (any_held(cache, range)) {
		pn_unlock(&cache->lock);
		return -EBUSY;
	}
	if (find_droppable(cache, range, dropped))
		for (; (region = next_inside(cache, &range)); n++)
			pn_region_die_locked(cache, region, PN_BECAUSE_HELPER);
	pn_unlock(&cache->lock);
	if (n) {
		atomic_store_explicit(dropped_row(cache, page), page,
				      memory_order_relaxed);
		pn_reclaim_reap(cache);
	}
	PN_CACHE_CHECK(cache);
	return n;
}

bool pn_cache_notices_early(const struct pn_cache *cache)
{
	return atomic_load_explicit(&cache->probing, memory_order_relaxed);
}

bool pn_cache_keeps(const struct pn_cache *cache)
{
	return !pn_cache_ends_with_pins(cache) && pn_cache_watches(cache);
}

int pn_cache_prefetch(struct pn_cache *cache, uintptr_t addr, size_t len,
		      unsigned access)
{
	struct pinion_pin pin;
	int ret = pn_cache_pin_no_listener(cache, (void *)addr, len, access,
					   &pin);

	if (!ret)
		pn_cache_unpin(cache, &pin);
	return ret;
}
