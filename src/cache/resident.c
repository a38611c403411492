/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Residents: regions that another module owns, the slabs of the heap.
 *
 * They are in the index like all others, so a pin of heap memory is a plain hit
 * and costs other pins nothing. Only the owner maps and unmaps the pages, so
 * releases do not concern residents, and neither do the other reasons why the
 * cache distrusts its index. Hence a pin that could not hit for such a reason,
 * or that bypasses the cache, still finds them (pn_resident_pin()). The policy
 * does not know them, and neighbours do not merge with them.
 *
 * A resident goes as every region does, in the order that hit.c explains: out
 * of the index, barrier, scan of the slots, deregister. A thread that has it
 * pinned keeps it registered until the unpin.
 */
#include <errno.h>

#include "cache/cache_impl.h"
#include "cache/invalidate_impl.h"
#include "cache/plan_impl.h"
#include "cache/reclaim_impl.h"
#include "cache/region_impl.h"
#include "cache/thread_slots_impl.h"
#include "cache/trace_impl.h"
#include "cache/worker_impl.h"

static struct pn_region *region_of(const struct pn_mr *mr)
{
	return pn_container_of(mr, struct pn_region, mr);
}

/* Registered pages enter the index. Regions that the cache may still have there
 * were of other pages. */
static int enter(struct pn_cache *cache, const struct pn_mr *mr,
		 struct pn_region **out)
{
	struct pn_range range = { (uintptr_t)mr->addr, mr->len };
	struct pn_region *region = NULL;
	int ret;

	pn_lock(&cache->lock);
	pn_invalidate_drain_locked(cache);
	pn_invalidate_range_locked(cache, range);
	ret = pn_index_reserve(&cache->index, range);
	if (!ret) {
		region = pn_region_alloc_locked(cache);
		ret = region ? 0 : -ENOMEM;
	}
	if (!ret) {
		pn_region_init(region, range, mr->access);
		region->mr = *mr;
		region->flags |= PN_REGION_REGISTERED;
		region->resident = true;
		/* Pairs with the acquire in pn_cache_pin(), as the entry does.
		 */
		atomic_store_explicit(&region->state, PN_REGION_VALID,
				      memory_order_release);
		pn_region_index_locked(cache, region);
		/* What is uncharged when the region is deregistered. */
		cache->own_bytes += range.len;
		cache->own_regions++;
		if (cache->sink)
			pn_cache_trace_registered(cache, region,
						  PN_DECIDED_KEPT,
						  PN_BECAUSE_OWNED);
	}
	pn_unlock(&cache->lock);
	*out = region;
	return ret;
}

int pn_cache_resident_add(struct pn_cache *cache, struct pn_range range,
			  unsigned access, const struct pn_mr **out)
{
	struct pn_mr mr = { .addr = (void *)range.addr,
			    .len = range.len,
			    .access = access };
	struct pn_mr *one = &mr;
	struct pn_region *region;
	int ret = pn_cache_charge(cache, range.len, 1);

	if (cache->device->caps & PN_CAP_BY_ADDRESS)
		mr.access |= PN_ACCESS_OWN;

	if (ret)
		return ret;
	ret = pn_register_retry(cache, &one, 1);
	if (ret)
		goto give_room;
	ret = enter(cache, &mr, &region);
	if (ret)
		goto deregister;
	*out = &region->mr;
	PN_CACHE_CHECK(cache);
	return 0;

deregister:
	pn_cache_deregister(cache, one);
	return ret;
give_room:
	pn_budget_uncharge(cache->budget, range.len, 1);
	return ret;
}

void pn_cache_resident_abandon(struct pn_cache *cache, const struct pn_mr *mr)
{
	pn_reclaim_abandon_resident(cache, region_of(mr));
	pn_worker_notify_if_wanted(cache);
}

bool pn_cache_resident_remove(struct pn_cache *cache, const struct pn_mr *mr)
{
	if (cache->device->ops->still_registered)
		return pn_reclaim_remove_resident(cache, region_of(mr));
	pn_lock(&cache->lock);
	pn_region_leave_locked(cache, region_of(mr));
	pn_unlock(&cache->lock);
	while (pn_reclaim_reap(cache))
		;
	pn_worker_notify_if_wanted(cache);
	PN_CACHE_CHECK(cache);
	return true;
}

/* Neither a hit nor a miss: not counted. */
static void trace_pin(struct pn_cache *cache, const struct pinion_pin *pin,
		      unsigned flags)
{
	const struct iovec buffer = { pin->addr, pin->len };
	const struct pn_outcome owned = { .flags = flags,
					  .reason = PN_BECAUSE_OWNED };

	pn_cache_trace_pins(cache, &buffer, 1, pin, &owned);
}

/* The order is that of a hit (hit.c). A region that is not a resident may not
 * be used without the other checks of a hit or a miss. */
bool pn_resident_pin(struct pn_cache *cache, void *addr, size_t len,
		     unsigned flags, struct pinion_pin *pin)
{
	unsigned access = flags & ~(unsigned)PINION_PIN_BYPASS;
	uint32_t id = pn_index_get(&cache->index, (uintptr_t)addr);
	struct pn_region *region = &cache->regions[id];
	struct pn_thread_slots *thread;
	pn_slot *slot;

	/* A slot that names another region even for a moment would keep it from
	 * being deregistered. */
	if (pn_likely(!id) ||
	    !atomic_load_explicit(&region->resident, memory_order_relaxed) ||
	    pn_cache_foreign(cache))
		return false;
	thread = pn_slots_self(cache);
	slot = thread ? pn_slots_get(thread) : NULL;
	if (!slot)
		return false;
	pn_asymmetric_store(slot, region);
	if (pn_index_get(&cache->index, (uintptr_t)addr) == id &&
	    atomic_load_explicit(&region->state, memory_order_acquire) ==
		    PN_REGION_VALID &&
	    region->resident &&
	    len - 1 < (uintptr_t)region->mr.addr + region->mr.len -
			      (uintptr_t)addr &&
	    pn_access_matches(region, access)) {
		*pin = (struct pinion_pin){ .addr = addr,
					    .len = len,
					    .local_key = region->mr.lkey,
					    .remote_key = region->mr.rkey,
					    .nsegments = 1,
					    .handle = region->mr.handle,
					    .internal = { (void *)slot,
							  region } };
		if (cache->sink)
			trace_pin(cache, pin, flags);
		return true;
	}
	pn_asymmetric_store(slot, NULL);
	return false;
}
