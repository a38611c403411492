/* SPDX-License-Identifier: BSD-2-Clause */
/* The checker: what cache.h says holds at rest. */
#include "cache/cache_impl.h"
#include "cache/exposed_memory.h"
#include "cache/invalidate_impl.h"
#include "cache/region_impl.h"

struct sums {
	size_t valid_bytes, dying_bytes, bytes;
	size_t nvalid, ndying, nurgent, nlisted, n;
};

/* A page that a region covers in part: the region is listed there, those listed
 * do not overlap, and the entry names one of them. */
static void check_shared(struct pn_cache *cache, struct pn_region *region,
			 uintptr_t page) PN_REQUIRES(&cache->lock)
{
	uint32_t entry = pn_index_get(&cache->index, page), edge = 0;
	struct pn_region *other;
	bool listed = false, named = false;

	while ((other = pn_shared_next_locked(cache, page, &edge))) {
		uint32_t state = atomic_load(&other->state);

		pn_assert(state == PN_REGION_VALID ||
			  state == PN_REGION_PENDING);
		pn_assert(other->flags & PN_REGION_PARTIAL);
		named |= pn_region_id(cache, other) == entry;
		listed |= other == region;
		pn_assert(other == region ||
			  !pn_range_overlaps(pn_region_range(other),
					     pn_region_range(region)));
	}
	pn_assert(named && listed);
}

static bool is_shared(const struct pn_region *region, uintptr_t page)
{
	uintptr_t pages[2];
	unsigned n = pn_shared_pages(region, pages);

	return (n && pages[0] == page) || (n > 1 && pages[1] == page);
}

static void check_entries(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock)
{
	struct pn_range pages = pn_region_pages(region);
	uint32_t id = pn_region_id(cache, region);

	pn_assert(!(region->flags & PN_REGION_PARTIAL) ==
		  !((pages.len ^ region->mr.len) ||
		    pages.addr != (uintptr_t)region->mr.addr));
	for (size_t off = 0; off < pages.len; off += PN_PAGE_BYTES)
		if (is_shared(region, pages.addr + off))
			check_shared(cache, region, pages.addr + off);
		else
			pn_assert(pn_index_get(&cache->index,
					       pages.addr + off) == id);
	pn_assert(pn_index_get(&cache->index, pages.addr - 1) != id);
	pn_assert(pn_index_get(&cache->index, pages.addr + pages.len) != id);
}

static void check_region(struct pn_cache *cache, struct pn_region *region,
			 struct sums *sums) PN_REQUIRES(&cache->lock)
{
	uint32_t state = atomic_load(&region->state);
	unsigned hidden = PN_REGION_PRIVATE | PN_REGION_STALE;

	if (state == PN_REGION_FREE)
		return;
	pn_assert(region->mr.len);
	if (!pn_cache_one_segment(cache)) {
		pn_assert(!(region->flags & PN_REGION_PARTIAL));
		pn_assert(region->mr.len <= cache->attr.max_region_bytes ||
			  region->resident);
	}
	sums->n++;
	sums->bytes += pn_region_bytes(region);
	if (state == PN_REGION_VALID) {
		pn_assert(region->flags & PN_REGION_REGISTERED &&
			  !(region->flags & hidden));
		pn_assert(region->node.used <= cache->policy->clock);
		if (!region->resident) {
			sums->nvalid++;
			sums->valid_bytes += pn_region_bytes(region);
		}
	}
	sums->nlisted += !!(region->flags & PN_REGION_LISTED);
	if (state == PN_REGION_DYING) {
		sums->ndying++;
		sums->dying_bytes += pn_region_bytes(region);
		if (!(region->flags & PN_REGION_DEREG_FAILED))
			sums->nurgent += pn_region_is_urgent(region);
	} else if (!(region->flags & hidden)) {
		check_entries(cache, region);
	}
}

/* slow_reasons is not too large: hits would stay slow, and no test of what they
 * return would see it. The loads are in the reverse order of the stores in
 * invalidate.c: a notice that has incremented slow_reasons and is not in the
 * ring yet is counted as in flight. */
static void check_slow_reasons(struct pn_cache *cache) PN_REQUIRES(&cache->lock)
{
	uint32_t reasons = atomic_load(&cache->slow_reasons);

	if (pn_invalidate_pending(cache) ||
	    atomic_load(&cache->notices.ninflight) ||
	    atomic_load(&cache->notices.never_publish))
		return;
	pn_assert(reasons <= (uint32_t)atomic_load(&cache->always_slow));
}

static void check_free(struct pn_cache *cache, size_t n)
	PN_REQUIRES(&cache->lock)
{
	for (uint32_t id = cache->free_region; id;
	     id = cache->regions[id].next_free, n--)
		pn_assert(n && atomic_load(&cache->regions[id].state) ==
				       PN_REGION_FREE);
	pn_assert(!n);
}

/* While a batch is being deregistered, its regions are in no list. */
static void check_dying(struct pn_cache *cache, const struct sums *sums)
	PN_REQUIRES(&cache->lock)
{
	struct pn_list *pos;
	unsigned waiting = 0, refused = 0, lent = 0;
	size_t failed_bytes = 0, lent_bytes = 0;

	pn_list_for_each (pos, &cache->dying.list)
		waiting++;
	pn_assert(waiting == cache->dying.n);
	pn_list_for_each (pos, &cache->failed.list) {
		pn_assert(pn_region_of_node(pos)->flags &
			  PN_REGION_DEREG_FAILED);
		failed_bytes += pn_region_bytes(pn_region_of_node(pos));
		refused++;
	}
	pn_assert(refused == cache->failed.n);
	pn_list_for_each (pos, &cache->lent) {
		lent_bytes += pn_region_bytes(pn_region_of_node(pos));
		lent++;
	}
	pn_assert(failed_bytes == cache->failed.bytes);
	waiting += refused + lent;
	pn_assert(cache->dying.nbatches ? waiting <= sums->ndying
					: waiting == sums->ndying);
	/* What is lent to a pin is not urgent yet and waits for nothing. */
	pn_assert(sums->nurgent == cache->dying.nurgent + lent);
	pn_assert(sums->dying_bytes == cache->stats->dying_bytes + lent_bytes);
}

/* The largest regions, as exported, are VALID. */
static void check_largest(struct pn_cache *cache, size_t nlisted)
	PN_REQUIRES(&cache->lock)
{
	size_t smallest = SIZE_MAX, n = 0;

	for (unsigned i = 0; cache->largest && i < PN_LARGEST; i++) {
		const struct pn_largest_row *row = &cache->largest[i];
		const struct pn_region *region = &cache->regions[row->id];

		if (row->bytes < smallest)
			smallest = row->bytes;
		if (!row->bytes)
			continue;
		n++;
		pn_assert(atomic_load(&region->state) == PN_REGION_VALID &&
			  region->flags & PN_REGION_LISTED);
		pn_assert(row->addr == (uintptr_t)region->mr.addr &&
			  row->bytes == region->mr.len);
	}
	pn_assert(n == nlisted);
	pn_assert(!cache->largest || smallest == cache->smallest_bytes);
}

static unsigned exposures_of(struct pn_cache *cache, uintptr_t addr)
	PN_REQUIRES(&cache->lock)
{
	struct pn_range page = { addr, PN_PAGE_BYTES };
	struct pn_list *pos;
	unsigned n = 0;

	pn_list_for_each (pos, &cache->exposed.list) {
		const struct pn_exposed_memory *e =
			pn_container_of(pos, struct pn_exposed_memory, link);

		n += pn_range_overlaps(pn_exposed_memory_pages(e), page);
	}
	return n;
}

/* Each exposed page, and the page on either side, is counted as often as it is
 * exposed. */
static void check_exposed(struct pn_cache *cache) PN_REQUIRES(&cache->lock)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &cache->exposed.list) {
		const struct pn_exposed_memory *e =
			pn_container_of(pos, struct pn_exposed_memory, link);
		struct pn_range pages = pn_exposed_memory_pages(e);

		for (uintptr_t at = pages.addr - PN_PAGE_BYTES;
		     at <= pages.addr + pages.len; at += PN_PAGE_BYTES)
			pn_assert(pn_index_get(&cache->exposed.pages, at) ==
				  exposures_of(cache, at));
	}
}

void pn_cache_check(struct pn_cache *cache)
{
	struct sums sums = { 0 };

	pn_lock(&cache->lock);
	for (uint32_t id = 1; id <= cache->nregions; id++)
		check_region(cache, &cache->regions[id], &sums);
	check_free(cache, cache->nregions - sums.n);
	check_dying(cache, &sums);
	check_largest(cache, sums.nlisted);
	check_exposed(cache);
	pn_assert(pn_stats_counters_valid(&pn_stats_kind_cache, cache->stats));
	pn_assert(sums.nvalid == cache->stats->regions);
	pn_assert(sums.valid_bytes == cache->stats->bytes);
	pn_assert(sums.bytes == cache->own_bytes);
	pn_assert(sums.n == cache->own_regions);
	/* Others may share the budget. */
	pn_assert(sums.bytes <= atomic_load(&cache->budget->bytes));
	pn_assert(sums.n <= atomic_load(&cache->budget->regions));
	cache->policy->ops->check(cache->policy);
	check_slow_reasons(cache);
	pn_unlock(&cache->lock);
}
