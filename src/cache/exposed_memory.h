/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * exposed_memory -- memory that peers may put to and get from, with keys of its
 * own.
 *
 * A cached region does not serve for this: its key is shared by all who pinned
 * it and covers whole pages, and revoking the key would fail messages that use
 * it. So exposed memory has registrations of its own, of exactly its bytes, in
 * the same budget; cached regions are evicted to make room.
 *
 * Life
 *   PENDING   being registered by its owner. A release meanwhile makes it
 *             REVOKED, and the owner finds that out.
 *   LIVE      registered, keys valid. In cache->exposed.list, and its pages
 *             are counted in cache->exposed.pages, which release notices read.
 *   RELEASED  a notice said that some of its memory is released
 *   CLOSING   some thread is deregistering it, outside the lock
 *   REVOKED   deregistered; the storage waits for its owner to unexpose
 *
 * A notice may not call the device (rule 4 of CONTRIBUTING.md). So between a
 * release and the owner's next call (pn_cache_revoke_released()), or the
 * worker's next step, which comes by itself, bytes of a peer still go to the
 * old pages. These bytes are lost, as the program asked for, but reach nobody
 * else, since the pages stay pinned until the keys are revoked.
 *
 * Threads: any; the storage is the caller's. cache->lock protects state and
 * list.
 */
#ifndef PN_CACHE_EXPOSED_MEMORY_H
#define PN_CACHE_EXPOSED_MEMORY_H

#include <stdatomic.h>

#include "base/list.h"
#include "cache/cache.h"

/* Registrations of one exposure, where the device limits their length. */
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
	/* The keys, for the owner to read at any time: the device clears them
	 * in `parts` when the worker deregisters released memory. */
	uint64_t rkeys[PN_EXPOSED_MAX_MRS];
};

static inline struct pn_range pn_exposed_memory_pages(
	const struct pn_exposed_memory *e)
{
	return pn_range_pages(e->addr, e->len, PN_PAGE_BYTES);
}

/* Registers [addr, addr + len) for peers. May sleep. -EINVAL: a range that
 * wraps around or needs too many registrations, or unknown access; -EFAULT: not
 * mapped, or in a way the device cannot pin, or released meanwhile; -ENOBUFS:
 * no room even after evicting all that is not in use; -ENOMEM. */
int pn_cache_expose(struct pn_cache *cache, void *addr, size_t len,
		    unsigned access, struct pn_exposed_memory *out);

/* On return the keys are invalid. May sleep. */
void pn_cache_unexpose(struct pn_cache *cache,
		       struct pn_exposed_memory *exposed);

/* Revokes the keys of exposed memory that was released. Costs one load when
 * there is none. */
void pn_cache_revoke_released(struct pn_cache *cache);

#endif
