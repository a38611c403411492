/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions in the index, and their states; nothing else changes them. */
#include <errno.h>

#include "cache/cache_impl.h"

struct pn_region *pn_region_next_locked(struct pn_cache *cache,
					struct pn_range *range)
{
	uintptr_t end = range->addr + range->len, at, next;
	struct pn_region *region;

	at = range->len ? pn_index_next(&cache->index, *range) : end;
	if (at >= end)
		return NULL;
	region = &cache->regions[pn_index_get(&cache->index, at)];
	next = (uintptr_t)region->mr.addr + region->mr.len;
	*range = (struct pn_range){ next, next < end ? end - next : 0 };
	return region;
}

struct pn_region *pn_region_alloc_locked(struct pn_cache *cache)
{
	uint32_t id = cache->free_region;

	if (id) {
		cache->free_region = cache->regions[id].next_free;
	} else {
		if (cache->nregions + 1 >= PN_CACHE_MAX_REGIONS)
			return NULL;
		id = ++cache->nregions; /* 0 means nothing in the index */
		/* Once and for all: hits that were overtaken read it. */
		cache->regions[id].id = id;
	}
	return &cache->regions[id];
}

void pn_region_free_locked(struct pn_cache *cache, struct pn_region *region)
{
	atomic_store_explicit(&region->state, PN_REGION_FREE,
			      memory_order_release);
	region->next_free = cache->free_region;
	cache->free_region = pn_region_id(cache, region);
}

/* Multiplicative hash; only the policy's ghosts rely on it. */
static uint32_t name_of(struct pn_range range)
{
	uint64_t page = (uint64_t)range.addr >> PN_PAGE_SHIFT;
	uint64_t npages = range.len >> PN_PAGE_SHIFT;

	page = (page ^ npages << 40) * UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)((page ^ page >> 29) * UINT64_C(0xbf58476d1ce4e5b9) >>
			  32);
}

void pn_region_init(struct pn_region *region, struct pn_range range,
		    unsigned access)
{
	region->mr = (struct pn_mr){ .addr = (void *)range.addr,
				     .len = range.len,
				     .access = access };
	region->flags = 0;
	region->resident = false;
	region->watch = PN_WATCH_NONE;
	region->not_allowed = pn_access_not_allowed(access);
	region->node = (struct pn_policy_node){
		.npages = (uint32_t)(range.len >> PN_PAGE_SHIFT),
		.name = name_of(range),
	};
	pn_list_init(&region->node.link);
}

int pn_region_begin_locked(struct pn_cache *cache, struct pn_region *region,
			   struct pn_range range, unsigned access,
			   struct pn_plan *owner)
{
	pn_region_init(region, range, access);
	region->owner = owner;
	if (!pn_plan_is_private(owner)) {
		int ret = pn_index_reserve(&cache->index, range);

		if (ret && ret != -ERANGE)
			return ret;
		if (ret)
			region->flags = PN_REGION_PRIVATE;
	} else {
		region->flags = PN_REGION_PRIVATE;
	}
	atomic_store_explicit(&region->state, PN_REGION_PENDING,
			      memory_order_release);
	if (!(region->flags & PN_REGION_PRIVATE))
		pn_index_set(&cache->index, range, pn_region_id(cache, region));
	return 0;
}

void pn_region_publish_locked(struct pn_cache *cache, struct pn_region *region)
{
	pn_assert(atomic_load(&region->state) == PN_REGION_PENDING);
	/* The device may have granted more than it was asked for. */
	region->not_allowed = pn_access_not_allowed(region->mr.access);
	pn_policy_insert(cache->policy, &region->node);
	cache->stats->regions++;
	cache->stats->bytes += region->mr.len;
	pn_largest_add_locked(cache, region);
	/* Pairs with the acquire in pn_cache_pin(): keys are there. */
	atomic_store_explicit(&region->state, PN_REGION_VALID,
			      memory_order_release);
}

/* Out of the index and among the dying. */
static void begin_to_die(struct pn_cache *cache, struct pn_region *region,
			 enum pn_event_reason why) PN_REQUIRES(&cache->lock)
{
	region->flags |= (uint32_t)why << PN_REGION_WHY;
	if (cache->sink && atomic_load(&region->state) == PN_REGION_VALID)
		pn_tell(cache,
			(struct pn_event){ .kind = PN_EVENT_EVICT,
					   .addr = (uintptr_t)region->mr.addr,
					   .len = region->mr.len,
					   .reason = (uint8_t)why });
	if (!(region->flags & (PN_REGION_PRIVATE | PN_REGION_STALE)))
		pn_index_set(&cache->index, pn_region_range(region), 0);
	region->since_ns = atomic_load(&cache->now_ns);
	pn_list_append(&cache->dying, &region->node.link);
	cache->stats->dying_bytes += region->mr.len;
	cache->nprivate += pn_region_hurries(region);
	/* The worker is not waiting for those that it found held. */
	if (cache->ndying++ <= atomic_load(&cache->nstuck) ||
	    cache->ndying >= cache->attr.batch ||
	    cache->stats->dying_bytes >= cache->attr.batch_bytes)
		atomic_store(&cache->worker.wanted, true);
	atomic_store_explicit(&region->state, PN_REGION_DYING,
			      memory_order_release);
}

void pn_region_die_locked(struct pn_cache *cache, struct pn_region *region,
			  enum pn_event_reason why)
{
	if (region->resident)
		return;
	if (atomic_load(&region->state) == PN_REGION_VALID) {
		if (!(region->flags & PN_REGION_EVICTED))
			cache->policy->ops->remove(cache->policy,
						   &region->node);
		cache->stats->regions--;
		cache->stats->bytes -= region->mr.len;
		pn_largest_remove_locked(cache, region);
	}
	begin_to_die(cache, region, why);
}

void pn_region_leave_locked(struct pn_cache *cache, struct pn_region *region)
{
	pn_assert(region->resident &&
		  atomic_load(&region->state) == PN_REGION_VALID);
	begin_to_die(cache, region, PN_BECAUSE_OWNED);
}
