/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pages that several regions share. Where a pin has one segment, regions with
 * remote access have exactly the bytes asked for, and small buffers lie side by
 * side.
 *
 * The index has one number for a page. So a region that covers a page in part
 * is also listed here under that page: at most its first and its last page. The
 * entry of the page names one of those listed, the one last used by a pin that
 * took the lock. A hit finds that one; everybody else finds all of them.
 * Regions do not overlap, so a page that one region covers wholly has no other.
 *
 * The list is a hash table over pages with chains. Each region has its two
 * links from the beginning, in an array beside that of the regions: adding
 * cannot fail.
 */
#include "cache/cache_impl.h"
#include "cache/region_impl.h"

static uint32_t *head_of(struct pn_cache *cache, uintptr_t page)
{
	uint64_t number = (uint64_t)page >> PN_PAGE_SHIFT;

	return &cache->edge_heads[number * UINT64_C(0x9e3779b97f4a7c15) >>
				  (64 - PN_EDGE_HEADS_SHIFT)];
}

unsigned pn_shared_pages(const struct pn_region *region, uintptr_t pages[2])
{
	struct pn_range range = pn_region_range(region);
	struct pn_range all = pn_region_pages(region);
	uintptr_t last = all.addr + all.len - PN_PAGE_BYTES;
	unsigned n = 0;

	if (range.addr != all.addr)
		pages[n++] = all.addr;
	if (range.addr + range.len != all.addr + all.len &&
	    (!n || last != all.addr))
		pages[n++] = last;
	return n;
}

void pn_shared_add_locked(struct pn_cache *cache, struct pn_region *region)
{
	uintptr_t pages[2];
	unsigned n = pn_shared_pages(region, pages);

	for (unsigned i = 0; i < n; i++) {
		uint32_t number = 2 * pn_region_id(cache, region) + i;
		uint32_t *head = head_of(cache, pages[i]);

		cache->edges[number] = (struct pn_edge){ pages[i], *head };
		*head = number;
	}
}

void pn_shared_remove_locked(struct pn_cache *cache, struct pn_region *region)
{
	uintptr_t pages[2];
	unsigned n = pn_shared_pages(region, pages);

	for (unsigned i = 0; i < n; i++) {
		uint32_t number = 2 * pn_region_id(cache, region) + i;
		uint32_t *at = head_of(cache, pages[i]);

		while (*at != number) {
			pn_assert(*at);
			at = &cache->edges[*at].next;
		}
		*at = cache->edges[number].next;
	}
}

struct pn_region *pn_shared_next_locked(struct pn_cache *cache, uintptr_t page,
					uint32_t *edge)
{
	uint32_t at = *edge ? cache->edges[*edge].next : *head_of(cache, page);

	while (at && cache->edges[at].page != page)
		at = cache->edges[at].next;
	*edge = at;
	return at ? &cache->regions[at / 2] : NULL;
}
