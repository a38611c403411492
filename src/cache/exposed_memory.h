/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * exposed -- memory that peers may put to and get from, by keys of its own.
 *
 * A cached region is no good for this: its key is shared with whoever else
 * pinned it, covers whole pages, and refusing it would fail messages that are
 * under way with it. So an exposure is a registration apart, of exactly the
 * bytes exposed, in the same budget; cached regions are given up to make room.
 *
 * Life
 *   PENDING  being registered by its owner; a release meanwhile makes it
 *            REFUSED, and the owner finds that out
 *   LIVE     registered, keys good. In cache->exposed.list, and its pages
 * counted in cache->exposed.pages, which release notices look into. GONE     a
 * notice said that some of its memory is released CLOSING  somebody is
 * deregistering it, outside the lock REFUSED  deregistered; the storage waits
 * for its owner to unexpose
 *
 * A notice may not call the device (rule 4), so between a release and the
 * owner's next call (pn_cache_revoke_released()), or the worker's next step,
 * which comes by itself, a peer's bytes still go to the old pages: they are
 * lost, as the program asked for, but reach nobody else, since the pages stay
 * pinned until the keys are refused.
 *
 * Threads: any; storage is the caller's. cache->lock protects state and lists.
 */
#ifndef PN_CACHE_EXPOSED_MEMORY_H
#define PN_CACHE_EXPOSED_MEMORY_H

#include <stdatomic.h>

#include "base/list.h"
#include "cache/cache.h"

/* Registrations that one exposure may need, when the device limits them. */
#define PN_EXPOSED_MAX_MRS 8

enum pn_exposed_memory_state {
	PN_EXPOSED_PENDING,
	PN_EXPOSED_LIVE,
	PN_EXPOSED_RELEASED,
	PN_EXPOSED_CLOSING,
	PN_EXPOSED_REVOKED,
};

struct pn_exposed_memory {
	struct pn_list link; /* in cache->exposed.list */
	_Atomic uint32_t state;
	uintptr_t addr;
	size_t len;
	bool watched; /* by the monitor */
	unsigned nmrs;
	struct pn_mr parts[PN_EXPOSED_MAX_MRS]; /* in order of addresses */
	/* Their keys, for the owner to read at any time: in `parts` the device
	 * wipes them out when the worker deregisters what was released. */
	uint64_t rkeys[PN_EXPOSED_MAX_MRS];
};

static inline struct pn_range pn_exposed_memory_pages(
	const struct pn_exposed_memory *e)
{
	return pn_range_pages(e->addr, e->len, PN_PAGE_BYTES);
}

/* Registers [addr, addr + len) for peers. May sleep. -EINVAL: a range that
 * wraps around or takes too many registrations, or unknown access; -EFAULT: not
 * mapped, or in a way the device cannot pin, or released meanwhile; -ENOBUFS:
 * no room even after giving up all that is not in use; -ENOMEM. */
int pn_cache_expose(struct pn_cache *cache, void *addr, size_t len,
		    unsigned access, struct pn_exposed_memory *out);

/* From the return on the keys are refused. May sleep. */
void pn_cache_unexpose(struct pn_cache *cache,
		       struct pn_exposed_memory *exposed);

/* Refuses the keys of exposed memory that was released. Costs one load when
 * there is none. */
void pn_cache_revoke_released(struct pn_cache *cache);

#endif
