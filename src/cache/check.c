/* SPDX-License-Identifier: BSD-2-Clause */
/* The checker: what cache.h says holds at rest. */
#include "cache/cache_impl.h"

struct sums {
	size_t valid_bytes, dying_bytes, bytes;
	size_t nvalid, ndying, n;
};

static void check_entries(struct pn_cache *cache, struct pn_region *region)
{
	struct pn_range range = pn_region_range(region);
	uint32_t id = pn_region_id(cache, region);

	for (size_t off = 0; off < range.len; off += PN_PAGE_BYTES)
		pn_assert(pn_index_get(&cache->index, range.addr + off) == id);
}

static void check_region(struct pn_cache *cache, struct pn_region *region,
			 struct sums *sums)
{
	uint32_t state = atomic_load(&region->state);
	unsigned hidden = PN_REGION_PRIVATE | PN_REGION_STALE;

	if (state == PN_REGION_FREE)
		return;
	pn_assert(!((uintptr_t)region->mr.addr % PN_PAGE_BYTES));
	pn_assert(region->mr.len && !(region->mr.len % PN_PAGE_BYTES));
	pn_assert(region->mr.len <= cache->attr.max_region_bytes ||
		  region->resident);
	sums->n++;
	sums->bytes += region->mr.len;
	if (state == PN_REGION_VALID) {
		pn_assert(region->mr.lkey && !(region->flags & hidden));
		if (!region->resident) {
			sums->nvalid++;
			sums->valid_bytes += region->mr.len;
		}
	}
	if (state == PN_REGION_DYING) {
		sums->ndying++;
		sums->dying_bytes += region->mr.len;
	} else if (!(region->flags & hidden)) {
		check_entries(cache, region);
	}
}

/* Nobody is called to attention for nothing: hits would stay slow, and no test
 * of what they return would see it. The order of loads is that of the stores in
 * release.c, backwards: whoever has called and not yet appended is counted
 * among those under way. */
static void check_attention(struct pn_cache *cache) PN_REQUIRES(&cache->lock)
{
	uint32_t called = atomic_load(&cache->attention);

	if (pn_release_waiting(cache) || atomic_load(&cache->nflying) ||
	    atomic_load(&cache->never_publish))
		return;
	pn_assert(called <=
		  (uint32_t)atomic_load(&cache->always_slow) + cache->foreign);
}

void pn_cache_check(struct pn_cache *cache)
{
	struct sums sums = { 0 };
	struct pn_list *pos;
	unsigned waiting = 0;

	pn_lock(&cache->lock);
	for (uint32_t id = 1; id <= cache->nregions; id++)
		check_region(cache, &cache->regions[id], &sums);
	pn_assert(sums.nvalid == cache->stats->regions);
	pn_assert(sums.valid_bytes == cache->stats->bytes);
	pn_assert(sums.dying_bytes == cache->stats->dying_bytes);
	/* Others may share the budget. */
	pn_assert(sums.bytes <= atomic_load(&cache->budget->bytes));
	pn_assert(sums.n <= atomic_load(&cache->budget->regions));
	pn_list_for_each (pos, &cache->dying)
		waiting++;
	pn_assert(waiting == cache->ndying && waiting <= sums.ndying);
	cache->policy->ops->check(cache->policy);
	check_attention(cache);
	pn_unlock(&cache->lock);
}
