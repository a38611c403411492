/* SPDX-License-Identifier: BSD-2-Clause */
/* Slots and access logs: what each thread keeps for a cache (pins.c). */
#ifndef PN_CACHE_PINS_IMPL_H
#define PN_CACHE_PINS_IMPL_H

#include "cache/cache_impl.h"

/* The calling thread's; NULL: no memory. */
struct pn_pins *pn_pins_self(struct pn_cache *cache);

/* The thread ends (base/thread.h). */
void pn_pins_ended(void *value);

/* A free slot of the calling thread; NULL: no memory. */
pn_slot *pn_pins_slot(struct pn_pins *pins) PN_EXCLUDES(&pins->cache->lock);

/* The same, also under cache->lock: adds no slots. NULL: none is free. */
pn_slot *pn_pins_free_slot(struct pn_pins *pins);

/* Adds more slots than there were; false: no memory. */
bool pn_pins_grow(struct pn_pins *pins) PN_EXCLUDES(&pins->cache->lock);

/* Sets region->held of every region in a slot to a new cache->scan. */
void pn_pins_scan_locked(struct pn_cache *cache) PN_REQUIRES(&cache->lock);

/* Reports the logged accesses to the policy. */
void pn_pins_drain_locked(struct pn_cache *cache) PN_REQUIRES(&cache->lock);

/* The calling thread's log is full. */
void pn_pins_log_full(struct pn_cache *cache);

uint64_t pn_pins_hits_locked(struct pn_cache *cache) PN_REQUIRES(&cache->lock);

/* The cache is being closed: clears all slots. How many were in use. */
unsigned pn_pins_clear_all(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);
void pn_pins_free_all(struct pn_cache *cache);

#endif
