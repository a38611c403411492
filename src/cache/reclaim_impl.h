/* SPDX-License-Identifier: BSD-2-Clause */
/* Evicting regions and deregistering dying ones (reclaim.c); registering with
 * reclaim (register.c). */
#ifndef PN_CACHE_RECLAIM_IMPL_H
#define PN_CACHE_RECLAIM_IMPL_H

#include "cache/cache_impl.h"

struct pn_segment;

/* What somebody needs room for. */
struct pn_reclaim_request {
	size_t bytes, nregions;
	bool by_device;		  /* the device refused, not the budget */
	struct pn_budget *budget; /* without room; set by pn_reclaim_step() */
};

/* One step towards room: deregisters the dying, or evicts, or waits for another
 * thread that does. 0: try again; -ENOBUFS: nothing can be done. */
int pn_reclaim_step(struct pn_cache *cache,
		    const struct pn_reclaim_request *asked)
	PN_EXCLUDES(&cache->lock);

/* register.c: registers all ranges in one batch; reclaims and tries again while
 * the device has no room. -ENOBUFS: it has none even so. */
int pn_register_retry(struct pn_cache *cache, struct pn_mr *const *mrs,
		      unsigned n) PN_EXCLUDES(&cache->lock);

/* A registration outside the index that the device failed to end becomes a
 * region, which the cache owns from here on; false: no memory. */
bool pn_reclaim_adopt(struct pn_cache *cache, const struct pn_mr *mr)
	PN_EXCLUDES(&cache->lock);

/* Takes steps until so much fits the budget. 0: try again, since it fits or
 * another thread has taken what was freed; -ENOBUFS: nothing can be done. */
int pn_reclaim(struct pn_cache *cache, size_t bytes, size_t nregions)
	PN_EXCLUDES(&cache->lock);

/* Makes the policy's victims DYING until so much would be free; how many. */
unsigned pn_reclaim_evict_locked(struct pn_cache *cache, size_t bytes,
				 size_t nregions,
				 enum pn_trace_event_reason why)
	PN_REQUIRES(&cache->lock);

/* Deregisters the dying that no slot holds, a batch at most; how many. */
unsigned pn_reclaim_reap(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);

/* Deregisters all of them, and waits for batches of other threads. */
void pn_reclaim_reap_all(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);

/* Ends what a pin with PRIVATE regions (PN_PIN_PRIVATE) holds. `now`: those
 * with remote access are deregistered when this returns; the others soon, by
 * the worker. May sleep then. */
void pn_reclaim_put_private(struct pn_cache *cache,
			    const struct pn_segment *segments, unsigned n,
			    bool now) PN_EXCLUDES(&cache->lock);

/* The cache is being closed: what is pinned privately is dying like the rest.
 */
void pn_reclaim_queue_lent(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);

/* Waits until no batch is being deregistered, and releases the lock meanwhile.
 * A batch has taken the whole list of dying regions, including those held in
 * slots. */
void pn_reclaim_wait_batches_locked(struct pn_cache *cache)
	PN_REQUIRES(&cache->lock);

/* A batch is deregistered, or a region rekeyed: some thread may wait for that.
 */
void pn_reclaim_wake_waiters(struct pn_cache *cache);

/* Whether the dying fill a batch, by number or bytes. */
bool pn_reclaim_batch_full_locked(struct pn_cache *cache)
	PN_REQUIRES(&cache->lock);

/* Whether the dying are enough, or old enough, for a batch; *when_ns: when they
 * will be. */
bool pn_reclaim_batch_due_locked(struct pn_cache *cache, uint64_t *when_ns)
	PN_REQUIRES(&cache->lock);

/* Deregisters a resident on a device that can fail to. False: it failed, and
 * the resident is as before. */
bool pn_reclaim_remove_resident(struct pn_cache *cache,
				struct pn_region *region)
	PN_EXCLUDES(&cache->lock);

/* The owner of a resident goes away without it: deregistering the resident is
 * tried again with the other failed regions. */
void pn_reclaim_abandon_resident(struct pn_cache *cache,
				 struct pn_region *region)
	PN_EXCLUDES(&cache->lock);

/* When to retry failed deregistrations; PN_FOREVER: there are none. */
uint64_t pn_reclaim_retry_ns(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);

/* The cache is being closed: logs what could not be deregistered. */
void pn_reclaim_log_failed(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);

/* Between join and leave other caches of the process may reclaim in this one.
 * Leaving waits for those that do. */
void pn_reclaim_join(struct pn_cache *cache);
void pn_reclaim_leave(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);

#endif
