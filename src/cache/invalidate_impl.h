/* SPDX-License-Identifier: BSD-2-Clause */
/* From the monitor's release notices to the end of regions (invalidate.c). */
#ifndef PN_CACHE_INVALIDATE_IMPL_H
#define PN_CACHE_INVALIDATE_IMPL_H

#include "cache/cache_impl.h"

/* The monitor's callback; arg is the cache. Takes no lock, allocates nothing
 * and calls no device. */
void pn_invalidate_notice(void *arg, uintptr_t addr, size_t len,
			  enum pn_release_phase phase);

/* Whether notices are waiting to be drained. */
bool pn_invalidate_pending(struct pn_cache *cache);

/* Waits for notices that the monitor's thread is delivering at this moment:
 * with userfaultfd, munmap() returns before its notice is delivered. */
void pn_invalidate_wait_notices(struct pn_cache *cache);

/* Acts on all notices. */
void pn_invalidate_drain_locked(struct pn_cache *cache)
	PN_REQUIRES(&cache->lock);

/* Invalidates the regions in range, except residents. */
void pn_invalidate_range_locked(struct pn_cache *cache, struct pn_range range)
	PN_REQUIRES(&cache->lock);

/* Whether a release that overlaps range is in flight. */
bool pn_invalidate_in_flight(struct pn_cache *cache, struct pn_range range);

/* exposed_memory.c: memory in range is released. */
void pn_exposed_memory_released_locked(struct pn_cache *cache,
				       struct pn_range range)
	PN_REQUIRES(&cache->lock);

#endif
