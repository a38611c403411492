/* SPDX-License-Identifier: BSD-2-Clause */
/* The cache's trace events (trace_events.c). The functions need cache->sink,
 * except pn_cache_trace_open(). */
#ifndef PN_CACHE_TRACE_IMPL_H
#define PN_CACHE_TRACE_IMPL_H

#include "cache/cache_impl.h"

/* How pinning ended; ret as the call returns it. */
struct pn_outcome {
	unsigned flags;
	uint8_t decision, reason;
	int ret;
};

void pn_cache_trace_open(struct pn_cache *cache);
void pn_cache_trace_close(struct pn_cache *cache);

/* n buffers were pinned in one call. */
void pn_cache_trace_pins(struct pn_cache *cache, const struct iovec *buffers,
			 unsigned n, const struct pinion_pin *pins,
			 const struct pn_outcome *outcome);

/* An asynchronous pin has ended. */
void pn_cache_trace_ready(struct pn_cache *cache, const struct pinion_pin *pin,
			  const struct pn_outcome *outcome);
void pn_cache_trace_unpin(struct pn_cache *cache, const struct pinion_pin *pin);
void pn_cache_trace_registered(struct pn_cache *cache,
			       const struct pn_region *region,
			       enum pn_trace_event_decision decision,
			       enum pn_trace_event_reason why);

/* Any other event. Its time is that of the last pn_cache_refresh(), so that it
 * can be recorded under the lock. */
void pn_cache_trace(struct pn_cache *cache, struct pn_trace_event event);

/* From a release notice: allocates nothing. */
void pn_cache_trace_release(struct pn_cache *cache, struct pn_range range);

/* What others are charged in the budget, if that has changed. */
void pn_cache_trace_others_locked(struct pn_cache *cache)
	PN_REQUIRES(&cache->lock);

#endif
