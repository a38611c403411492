/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions: their states and the index (region.c), pages that several regions
 * share (shared_pages.c), and the table of the largest ones (stats_export.c).
 */
#ifndef PN_CACHE_REGION_IMPL_H
#define PN_CACHE_REGION_IMPL_H

#include "cache/cache_impl.h"

/* --- region.c: states ----------------------------------------------------- */

/* NULL: there are PN_CACHE_MAX_REGIONS. */
struct pn_region *pn_region_alloc_locked(struct pn_cache *cache)
	PN_REQUIRES(&cache->lock);
void pn_region_free_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);

/* Sets all fields but the state. */
void pn_region_init(struct pn_region *region, struct pn_range range,
		    unsigned access);

/* FREE -> PENDING, in the index. A range that no index can hold becomes
 * PRIVATE. -ENOMEM. */
int pn_region_insert_pending_locked(struct pn_cache *cache,
				    struct pn_region *region,
				    struct pn_range range, unsigned access,
				    struct pn_plan *owner)
	PN_REQUIRES(&cache->lock);

/* PENDING -> VALID. */
void pn_region_publish_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);

/* PENDING or VALID -> DYING: leaves the index and the policy. Does nothing to a
 * resident, which only its owner removes. */
void pn_region_die_locked(struct pn_cache *cache, struct pn_region *region,
			  enum pn_trace_event_reason why)
	PN_REQUIRES(&cache->lock);

/* PENDING, or new (private_pin.c) -> DYING of a PRIVATE region that is
 * registered: it belongs to its pin (cache->lent) until
 * pn_reclaim_put_private(). */
void pn_region_lend_locked(struct pn_cache *cache, struct pn_region *region,
			   enum pn_trace_event_reason why)
	PN_REQUIRES(&cache->lock);

/* Appends a DYING region, which is in no list, to cache->dying. */
void pn_region_queue_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);

/* The same as pn_region_die_locked() for a resident, when its owner removes it.
 */
void pn_region_leave_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);

/* --- region.c: the index -------------------------------------------------- */

/* The first region in the index with bytes in *range; *range becomes the rest
 * behind that region. NULL: there is none. To find all regions of some pages,
 * pass the whole pages. */
struct pn_region *pn_region_next_locked(struct pn_cache *cache,
					struct pn_range *range)
	PN_REQUIRES(&cache->lock);

/* Enters the region; pn_index_reserve() was called for its pages. */
void pn_region_index_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);

/* Removes it. The entry of a shared page names another of the page's regions
 * then. */
void pn_region_unindex_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);

/* Makes hits at addr, which the region covers, find this region, though others
 * share the page. */
void pn_region_prefer_locked(struct pn_cache *cache, struct pn_region *region,
			     uintptr_t addr) PN_REQUIRES(&cache->lock);

/* --- shared_pages.c ------------------------------------------------------- */

/* The pages that the region covers in part: writes their addresses and returns
 * how many there are. */
unsigned pn_shared_pages(const struct pn_region *region, uintptr_t pages[2]);
void pn_shared_add_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);
void pn_shared_remove_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);
/* Iterates over the regions listed for a page; *edge begins as 0. NULL: no
 * more. */
struct pn_region *pn_shared_next_locked(struct pn_cache *cache, uintptr_t page,
					uint32_t *edge)
	PN_REQUIRES(&cache->lock);

/* --- stats_export.c ------------------------------------------------------- */

/* The region becomes VALID, and is no longer VALID. */
void pn_largest_add_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);
void pn_largest_remove_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);

#endif
