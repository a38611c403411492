/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hints: what a pin would find at this moment, for callers that choose between
 * registering and copying. The answer may be outdated when it arrives.
 *
 * A hint reads regions as a hit does (hit.c): the region goes into a slot of
 * this thread and its index entry is read again before its fields are read, so
 * that no other thread deregisters the region or reuses its storage meanwhile.
 * Then the slot is cleared as in an unpin. No access is logged: the policy does
 * not learn of hints. For that moment the region counts as in use, as it does
 * during a pin that fails: an eviction passes over it.
 *
 * A hint takes the lock where a hit is not possible either (releases are
 * pending, or no slot is free), and where the entry of a shared page names
 * another region than the one asked for (shared_pages.c).
 */
#include "cache/cache_impl.h"
#include "cache/invalidate_impl.h"
#include "cache/region_impl.h"
#include "cache/thread_slots_impl.h"
#include "cache/worker_impl.h"

/* --- with the lock -------------------------------------------------------- */

/* How far from addr on a region reaches that allows `flags`; 0: none does. */
static size_t reach_locked(struct pn_cache *cache, uintptr_t addr,
			   unsigned flags) PN_REQUIRES(&cache->lock)
{
	struct pn_range at = { addr, 1 };
	const struct pn_region *region = pn_region_next_locked(cache, &at);

	if (!region)
		return 0;
	if (atomic_load(&region->state) != PN_REGION_VALID ||
	    !pn_access_matches(region, flags))
		return 0;
	return (uintptr_t)region->mr.addr + region->mr.len - addr;
}

bool pn_hints_covers_locked(struct pn_cache *cache, struct pn_range range,
			    unsigned flags)
{
	uintptr_t at = range.addr, end = range.addr + range.len;
	size_t reach = 1;

	for (; at < end && reach; at += reach) {
		reach = reach_locked(cache, at, flags);
		if (pn_cache_one_segment(cache) && reach < range.len)
			reach = 0;
	}
	return reach;
}

static bool covers_with_lock(struct pn_cache *cache, uintptr_t at, size_t len,
			     unsigned flags)
{
	bool covers;

	pn_lock(&cache->lock);
	pn_invalidate_drain_locked(cache);
	covers = pn_hints_covers_locked(cache, (struct pn_range){ at, len },
					flags);
	pn_unlock(&cache->lock);
	pn_worker_notify_if_wanted(cache);
	return covers;
}

/* --- without -------------------------------------------------------------- */

static pn_slot *free_slot(struct pn_cache *cache)
{
	struct pn_thread_slots *thread = pn_slots_self(cache);

	if (!thread)
		return NULL;
	/* Pairs with the store of the thread that cleared the slot. */
	if (!atomic_load_explicit(thread->next, memory_order_acquire))
		return thread->next;
	return pn_slots_free_slot(thread);
}

/* How far from addr on the region in *entry reaches, if it is registered, has
 * addr and allows `flags`; else 0. The slot holds the region. */
static size_t reach_held(const struct pn_region *region, pn_index_entry *entry,
			 uintptr_t addr, unsigned flags)
{
	size_t reach;

	/* In this order: the fields may be another region's until the entry
	 * was seen again, and are not complete before the state is VALID. */
	if (pn_asymmetric_load(entry) != region->id ||
	    atomic_load_explicit(&region->state, memory_order_acquire) !=
		    PN_REGION_VALID ||
	    !pn_access_matches(region, flags))
		return 0;
	/* An offset beyond the end, or below 0, borrows. */
	return __builtin_sub_overflow(region->mr.len,
				      addr - (uintptr_t)region->mr.addr, &reach)
		       ? 0
		       : reach;
}

static size_t reach_of(struct pn_cache *cache, pn_slot *slot, uintptr_t addr,
		       unsigned flags)
{
	pn_index_entry *entry = pn_index_entry_of(&cache->index, addr);
	struct pn_region *region;
	uint32_t id;
	size_t reach;

	id = entry ? atomic_load_explicit(entry, memory_order_acquire) : 0;
	if (!id)
		return 0;
	region = &cache->regions[id];
	pn_asymmetric_store(slot, region);
	reach = reach_held(region, entry, addr, flags);
	/* As in an unpin: whoever let the region die meanwhile found our slot,
	 * or we see the state here. */
	pn_asymmetric_store(slot, NULL);
	if (pn_unlikely(pn_asymmetric_load(&region->state) == PN_REGION_DYING))
		pn_worker_notify(cache);
	return reach;
}

bool pn_cache_covers(struct pn_cache *cache, const void *addr, size_t len,
		     unsigned flags)
{
	uintptr_t at = (uintptr_t)addr, end = at + len;
	bool one_segment = pn_cache_one_segment(cache);
	pn_slot *slot = NULL;
	size_t reach = 1;

	if (!len || pn_cache_foreign(cache))
		return false;
	if (!atomic_load_explicit(&cache->slow_reasons, memory_order_acquire))
		slot = free_slot(cache);
	if (!slot)
		return covers_with_lock(cache, at, len, flags);
	if (one_segment)
		return reach_of(cache, slot, at, flags) >= len ||
		       covers_with_lock(cache, at, len, flags);
	for (; at < end && reach; at += reach)
		reach = reach_of(cache, slot, at, flags);
	return reach;
}

/* The state of the region that has the page of addr, or PN_REGION_FREE. */
static uint32_t state_at(struct pn_cache *cache, const void *addr)
{
	uint32_t id = pn_index_get(&cache->index, (uintptr_t)addr);

	return id ? atomic_load_explicit(&cache->regions[id].state,
					 memory_order_relaxed)
		  : PN_REGION_FREE;
}

bool pn_cache_holds(struct pn_cache *cache, const void *addr)
{
	/* Memory that was released is no longer held, though its region may
	 * still be in the index. */
	if (pn_unlikely(atomic_load_explicit(&cache->slow_reasons,
					     memory_order_acquire)))
		return pn_cache_covers(cache, addr, 1, 0);
	return state_at(cache, addr) == PN_REGION_VALID;
}

bool pn_cache_will_hold(struct pn_cache *cache, const void *addr)
{
	return pn_cache_holds(cache, addr) ||
	       state_at(cache, addr) == PN_REGION_PENDING;
}
