/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions in the index and their states. Only this file changes them. */
#include <errno.h>

#include "cache/cache_impl.h"
#include "cache/plan_impl.h"
#include "cache/reclaim_impl.h"
#include "cache/region_impl.h"
#include "cache/trace_impl.h"

static uintptr_t end_of(const struct pn_region *region)
{
	return (uintptr_t)region->mr.addr + region->mr.len;
}

/* Of the regions of a page, the first one with bytes in range; NULL: none. */
static struct pn_region *first_of_page(struct pn_cache *cache, uintptr_t page,
				       struct pn_range range)
	PN_REQUIRES(&cache->lock)
{
	struct pn_region *other,
		*found = &cache->regions[pn_index_get(&cache->index, page)];
	uint32_t edge = 0;

	if (pn_likely(!(found->flags & PN_REGION_PARTIAL)))
		return found;
	if (!pn_range_overlaps(pn_region_range(found), range))
		found = NULL;
	while ((other = pn_shared_next_locked(cache, page, &edge)))
		if (pn_range_overlaps(pn_region_range(other), range) &&
		    (!found || other->mr.addr < found->mr.addr))
			found = other;
	return found;
}

struct pn_region *pn_region_next_locked(struct pn_cache *cache,
					struct pn_range *range)
{
	uintptr_t end = range->addr + range->len, at, next;
	struct pn_region *region = NULL;

	while (range->len && !region) {
		at = pn_index_next(&cache->index, *range);
		if (at >= end)
			return NULL;
		region = first_of_page(cache, at, *range);
		next = region ? end_of(region) : at + PN_PAGE_BYTES;
		*range = (struct pn_range){ next, next < end ? end - next : 0 };
	}
	return region;
}

/* --- the index ------------------------------------------------------------ */

void pn_region_index_locked(struct pn_cache *cache, struct pn_region *region)
{
	if (region->flags & PN_REGION_PARTIAL)
		pn_shared_add_locked(cache, region);
	pn_index_set(&cache->index, pn_region_pages(region),
		     pn_region_id(cache, region));
}

static void set_page(struct pn_cache *cache, uintptr_t page,
		     const struct pn_region *region)
{
	pn_index_set(&cache->index, (struct pn_range){ page, PN_PAGE_BYTES },
		     region ? pn_region_id(cache, region) : 0);
}

void pn_region_unindex_locked(struct pn_cache *cache, struct pn_region *region)
{
	struct pn_range whole = pn_region_pages(region);
	uintptr_t end = whole.addr + whole.len, shared[2];
	unsigned n = 0;

	if (region->flags & PN_REGION_PARTIAL) {
		n = pn_shared_pages(region, shared);
		pn_shared_remove_locked(cache, region);
	}
	for (unsigned i = 0; i < n; i++) {
		uint32_t edge = 0, id = pn_index_get(&cache->index, shared[i]);

		if (id == pn_region_id(cache, region))
			set_page(cache, shared[i],
				 pn_shared_next_locked(cache, shared[i],
						       &edge));
	}
	if (n && shared[0] == whole.addr)
		whole.addr += PN_PAGE_BYTES;
	if (n && whole.addr < end && shared[n - 1] == end - PN_PAGE_BYTES)
		end -= PN_PAGE_BYTES;
	whole.len = end - whole.addr;
	pn_index_set(&cache->index, whole, 0);
}

void pn_region_prefer_locked(struct pn_cache *cache, struct pn_region *region,
			     uintptr_t addr)
{
	if (pn_index_get(&cache->index, addr) != pn_region_id(cache, region))
		set_page(cache, addr & ~(PN_PAGE_BYTES - 1), region);
}

/* --- states --------------------------------------------------------------- */

struct pn_region *pn_region_alloc_locked(struct pn_cache *cache)
{
	uint32_t id = cache->free_region;

	if (id) {
		cache->free_region = cache->regions[id].next_free;
	} else {
		if (cache->nregions + 1 >= PN_CACHE_MAX_REGIONS)
			return NULL;
		id = ++cache->nregions; /* 0 means nothing in the index */
		/* Written once: a hit that was overtaken may read it at any
		 * time. */
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

/* Multiplicative hash; only the ghost caches of the policy selector use it. */
static uint32_t name_of(struct pn_range range)
{
	uint64_t page = (uint64_t)range.addr >> PN_PAGE_SHIFT;
	uint64_t npages = pn_range_npages(range.addr, range.len);
	uint64_t offset = range.addr & (PN_PAGE_BYTES - 1);

	page = (page ^ npages << 40 ^ offset << 52) *
	       UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)((page ^ page >> 29) * UINT64_C(0xbf58476d1ce4e5b9) >>
			  32);
}

void pn_region_init(struct pn_region *region, struct pn_range range,
		    unsigned access)
{
	size_t npages = pn_range_npages(range.addr, range.len);
	const size_t most = ((size_t)1 << 30) - 1; /* bits of the node */

	region->mr = (struct pn_mr){ .addr = (void *)range.addr,
				     .len = range.len,
				     .access = access };
	region->flags = (range.addr | range.len) & (PN_PAGE_BYTES - 1)
				? PN_REGION_PARTIAL
				: 0;
	region->resident = false;
	region->watch = PN_WATCH_NONE;
	region->access_mask = pn_access_mask(access);
	region->node = (struct pn_policy_node){
		.npages = (uint32_t)(npages < most ? npages : most),
		.name = name_of(range),
	};
	pn_list_init(&region->node.link);
}

int pn_region_insert_pending_locked(struct pn_cache *cache,
				    struct pn_region *region,
				    struct pn_range range, unsigned access,
				    struct pn_plan *owner)
{
	pn_region_init(region, range, access);
	region->owner = owner;
	if (!pn_plan_is_private(owner) && !owner->overlaps_own) {
		int ret = pn_index_reserve(&cache->index,
					   pn_region_pages(region));

		if (ret && ret != -ERANGE)
			return ret;
		if (ret)
			region->flags |= PN_REGION_PRIVATE;
	} else {
		region->flags |= PN_REGION_PRIVATE;
	}
	atomic_store_explicit(&region->state, PN_REGION_PENDING,
			      memory_order_release);
	if (!(region->flags & PN_REGION_PRIVATE))
		pn_region_index_locked(cache, region);
	return 0;
}

void pn_region_publish_locked(struct pn_cache *cache, struct pn_region *region)
{
	pn_assert(atomic_load(&region->state) == PN_REGION_PENDING);
	/* The device may have allowed more than it was asked for. */
	region->access_mask = pn_access_mask(region->mr.access);
	pn_policy_insert(cache->policy, &region->node);
	cache->stats->regions++;
	cache->stats->bytes += pn_region_bytes(region);
	pn_largest_add_locked(cache, region);
	/* Pairs with the acquire in pn_cache_pin(): the keys are complete. */
	atomic_store_explicit(&region->state, PN_REGION_VALID,
			      memory_order_release);
}

/* Removes the region from the index; it is in no list then. */
static void begin_to_die(struct pn_cache *cache, struct pn_region *region,
			 enum pn_trace_event_reason why)
	PN_REQUIRES(&cache->lock)
{
	region->flags |= (uint32_t)why << PN_REGION_WHY;
	if (cache->sink && atomic_load(&region->state) == PN_REGION_VALID)
		pn_cache_trace(cache,
			       (struct pn_trace_event){
				       .kind = PN_EVENT_EVICT,
				       .addr = (uintptr_t)region->mr.addr,
				       .len = region->mr.len,
				       .reason = (uint8_t)why });
	if (!(region->flags & (PN_REGION_PRIVATE | PN_REGION_STALE)))
		pn_region_unindex_locked(cache, region);
	atomic_store_explicit(&region->state, PN_REGION_DYING,
			      memory_order_release);
}

void pn_region_queue_locked(struct pn_cache *cache, struct pn_region *region)
{
	cache->stats->dying_bytes += pn_region_bytes(region);
	region->dying_since_ns = atomic_load(&cache->now_ns);
	pn_list_append(&cache->dying.list, &region->node.link);
	cache->dying.nurgent += pn_region_is_urgent(region);
	/* The worker does not wait for regions that the last reap found held.
	 */
	if (cache->dying.n++ <= atomic_load(&cache->dying.nheld) ||
	    pn_reclaim_batch_full_locked(cache))
		atomic_store(&cache->worker.wanted, true);
}

void pn_region_die_locked(struct pn_cache *cache, struct pn_region *region,
			  enum pn_trace_event_reason why)
{
	if (region->resident)
		return;
	if (atomic_load(&region->state) == PN_REGION_VALID) {
		if (!(region->flags & PN_REGION_EVICTED))
			cache->policy->ops->remove(cache->policy,
						   &region->node);
		cache->stats->regions--;
		cache->stats->bytes -= pn_region_bytes(region);
		pn_largest_remove_locked(cache, region);
	}
	begin_to_die(cache, region, why);
	pn_region_queue_locked(cache, region);
}

void pn_region_lend_locked(struct pn_cache *cache, struct pn_region *region,
			   enum pn_trace_event_reason why)
{
	pn_assert(region->flags & PN_REGION_PRIVATE);
	begin_to_die(cache, region, why);
	pn_list_append(&cache->lent, &region->node.link);
}

void pn_region_leave_locked(struct pn_cache *cache, struct pn_region *region)
{
	pn_assert(region->resident &&
		  atomic_load(&region->state) == PN_REGION_VALID);
	begin_to_die(cache, region, PN_BECAUSE_OWNED);
	pn_region_queue_locked(cache, region);
}

struct pn_range pn_cache_node_range(const struct pn_policy_node *node)
{
	return pn_region_range(pn_container_of(node, struct pn_region, node));
}
