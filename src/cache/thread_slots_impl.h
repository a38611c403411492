/* SPDX-License-Identifier: BSD-2-Clause */
/* Slots and access logs: what each thread keeps for a cache (thread_slots.c).
 */
#ifndef PN_CACHE_THREAD_SLOTS_IMPL_H
#define PN_CACHE_THREAD_SLOTS_IMPL_H

#include "cache/cache_impl.h"

/* The calling thread's; NULL: no memory. */
struct pn_thread_slots *pn_slots_self(struct pn_cache *cache);

/* The thread ends (base/thread.h). */
void pn_slots_ended(void *value);

/* A free slot of the calling thread; NULL: no memory. */
pn_slot *pn_slots_get(struct pn_thread_slots *thread)
	PN_EXCLUDES(&thread->cache->lock);

/* The same, also under cache->lock: adds no slots. NULL: none is free. */
pn_slot *pn_slots_free_slot(struct pn_thread_slots *thread);

/* Adds more slots than there were; false: no memory. */
bool pn_slots_grow(struct pn_thread_slots *thread)
	PN_EXCLUDES(&thread->cache->lock);

/* Sets region->held of every region in a slot to a new cache->scan. */
void pn_slots_scan_locked(struct pn_cache *cache) PN_REQUIRES(&cache->lock);

/* Reports the logged accesses to the policy. */
void pn_slots_drain_locked(struct pn_cache *cache) PN_REQUIRES(&cache->lock);

/* The calling thread's log is full. */
void pn_slots_log_full(struct pn_cache *cache);

uint64_t pn_slots_hits_locked(struct pn_cache *cache) PN_REQUIRES(&cache->lock);

/* The cache is being closed: clears all slots. How many were in use. */
unsigned pn_slots_clear_all(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);
void pn_slots_free_all(struct pn_cache *cache);

#endif
