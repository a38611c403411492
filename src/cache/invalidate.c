/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From the monitor's notice to the end of a region (rule 4 of CONTRIBUTING.md).
 *
 * A notice runs inside free() and may do next to nothing. It records the
 * release as in flight (from BEFORE to AFTER), looks into the index whether the
 * range has a region, appends the range to a ring and increments slow_reasons.
 * The next pin of any thread drains the ring under the lock before it trusts
 * the index. Why no stale region is used:
 *
 * - A region that is cached when its memory is released: BEFORE increments
 *   slow_reasons before the pages go. Whoever learns of the new owner of the
 *   address does so after the system call, and so sees the increment.
 * - A region that is being registered meanwhile: it is in the index as PENDING
 *   before the device looks at the pages. So the notice finds it and marks it
 *   STALE, and it is not published. Between BEFORE and AFTER no region that
 *   overlaps is published either: the device may have pinned the old pages
 *   after BEFORE was drained.
 * - A region that is out of the index and still registered, where the device
 *   finds registrations by address: a later region could share its pages. The
 *   device itself says whether it holds pages of the range, and the drained
 *   notice marks them as released there. The cache's own counts would not do:
 *   such a region may be dying, in a batch, private, or registered by a thread
 *   that has not published it yet.
 * - The ring is full: everything is invalidated.
 * - The table of releases in flight is full: no new region is published until
 *   the cache is closed. That takes more than 256 threads inside munmap() at
 *   the same time.
 */
#include <sched.h>

#include "base/clock.h"
#include "cache/cache_impl.h"
#include "cache/invalidate_impl.h"
#include "cache/region_impl.h"
#include "cache/trace_impl.h"
#include "cache/worker_impl.h"

/* Unique among living threads; allocates nothing. */
static uintptr_t thread_mark(void)
{
	return (uintptr_t)__builtin_thread_pointer();
}

static unsigned first_probe(uintptr_t thread)
{
	return (unsigned)(thread >> 6) % PN_MAX_INFLIGHT_RELEASES;
}

static void begin_inflight(struct pn_cache *cache, uintptr_t addr, size_t len)
{
	uintptr_t thread = thread_mark();
	unsigned start = first_probe(thread);

	atomic_fetch_add(&cache->notices.ninflight, 1);
	for (unsigned i = 0; i < PN_MAX_INFLIGHT_RELEASES; i++) {
		struct pn_inflight_release *f =
			&cache->notices.inflight[(start + i) %
						 PN_MAX_INFLIGHT_RELEASES];
		uintptr_t nobody = 0;

		if (!atomic_compare_exchange_strong(&f->thread, &nobody,
						    thread))
			continue;
		atomic_store(&f->len, len);
		atomic_store(&f->addr, addr);
		return;
	}
	atomic_store(&cache->notices.never_publish, true);
	atomic_fetch_sub(&cache->notices.ninflight, 1);
}

/* A release that found the table full has no entry: fine. When nothing is in
 * flight there is no entry either, and searching the table would take longer
 * than the system call. */
static void end_inflight(struct pn_cache *cache, uintptr_t addr, size_t len)
{
	uintptr_t thread = thread_mark();
	unsigned start = first_probe(thread);

	/* A thread sees its own begin_inflight(). */
	if (!atomic_load(&cache->notices.ninflight))
		return;
	for (unsigned i = 0; i < PN_MAX_INFLIGHT_RELEASES; i++) {
		struct pn_inflight_release *f =
			&cache->notices.inflight[(start + i) %
						 PN_MAX_INFLIGHT_RELEASES];

		if (atomic_load(&f->thread) != thread ||
		    atomic_load(&f->addr) != addr ||
		    atomic_load(&f->len) != len)
			continue;
		atomic_store(&f->thread, 0);
		atomic_fetch_sub(&cache->notices.ninflight, 1);
		return;
	}
}

bool pn_invalidate_in_flight(struct pn_cache *cache, struct pn_range range)
{
	if (atomic_load(&cache->notices.never_publish))
		return true;
	/* A release is counted before it is entered: one that is entered when
	 * we come here is counted, too. */
	if (!atomic_load(&cache->notices.ninflight))
		return false;
	for (unsigned i = 0; i < PN_MAX_INFLIGHT_RELEASES; i++) {
		struct pn_inflight_release *f = &cache->notices.inflight[i];
		struct pn_range r = { atomic_load(&f->addr),
				      atomic_load(&f->len) };

		/* An entry that is being written may still show an older range.
		 * A region that is dropped for that is registered again. */
		if (atomic_load(&f->thread) && pn_range_overlaps(r, range))
			return true;
	}
	return false;
}

/* False: the ring is full, which is counted. */
static bool append(struct pn_cache *cache, uintptr_t addr, size_t len)
{
	uint64_t at = atomic_load(&cache->notices.head);
	struct pn_notice *entry;

	do {
		if (at - atomic_load(&cache->notices.tail) >= PN_NOTICE_RING) {
			atomic_fetch_add(&cache->notices.lost, 1);
			return false;
		}
	} while (!atomic_compare_exchange_weak(&cache->notices.head, &at,
					       at + 1));
	entry = &cache->notices.ring[at % PN_NOTICE_RING];
	entry->addr = addr;
	entry->len = len;
	/* Pairs with the acquire in next_notice(). */
	atomic_store_explicit(&entry->filled, at + 1, memory_order_release);
	return true;
}

/* There may be a region of ours. slow_reasons is incremented first, and
 * decremented only when the notice has been acted upon: no thread trusts the
 * index while a notice waits. */
static bool post_notice(struct pn_cache *cache, uintptr_t addr, size_t len)
{
	/* Pairs with the acquire in pn_cache_pin(). */
	atomic_fetch_add(&cache->slow_reasons, 1);
	return append(cache, addr, len);
}

void pn_invalidate_notice(void *arg, uintptr_t addr, size_t len,
			  enum pn_release_phase phase)
{
	struct pn_range range = { addr, len };
	struct pn_cache *cache = arg;

	if (!pn_range_valid(addr, len))
		return;
	/* Even when nothing is cached there: a miss of another thread that
	 * merges neighbours has them out of the index for a moment. */
	if (phase == PN_RELEASE_BEFORE)
		begin_inflight(cache, addr, len);
	/* Even when nothing is cached there: with another budget it might be,
	 * and a replay wants to know. */
	if (phase == PN_RELEASE_BEFORE && cache->sink)
		pn_cache_trace_release(cache, range);
	if (pn_index_any(&cache->exposed.pages, range)) {
		if (!post_notice(cache, addr, len))
			atomic_store(&cache->exposed.lost, true);
		/* After the notice was posted: who sees the count finds the
		 * notice, or that it was acted upon. */
		atomic_fetch_add(&cache->exposed.releases, 1);
		pn_worker_wake_idle(cache);
	} else if (pn_index_any(&cache->index, range) ||
		   pn_device_holds(cache->device, addr, len)) {
		post_notice(cache, addr, len);
		pn_worker_wake_idle(cache);
	}
	if (phase == PN_RELEASE_AFTER)
		end_inflight(cache, addr, len);
}

/* The memory of a region is being released: no new hits. */
static void invalidate_region(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock)
{
	/* Only its owner maps and unmaps it. */
	if (region->resident)
		return;
	cache->stats->invalidations++;
	if (atomic_load(&region->state) == PN_REGION_VALID) {
		pn_region_die_locked(cache, region, PN_BECAUSE_RELEASED);
		return;
	}
	/* PENDING: the thread that registers it sees the flag. */
#ifndef PN_CACHE_BREAK_GENERATION /* a test proves that this is needed */
	region->flags |= PN_REGION_STALE;
	pn_region_unindex_locked(cache, region);
#endif
}

void pn_invalidate_range_locked(struct pn_cache *cache, struct pn_range range)
{
	struct pn_region *region;

	/* The kernel releases whole pages, whatever it was asked for. */
	range = pn_range_pages(range.addr, range.len, PN_PAGE_BYTES);
	pn_device_released(cache->device, range.addr, range.len);
	while ((region = pn_region_next_locked(cache, &range)))
		invalidate_region(cache, region);
}

static void invalidate_all(struct pn_cache *cache) PN_REQUIRES(&cache->lock)
{
	cache->stats->overflows++;
	pn_device_released(cache->device, 0, SIZE_MAX & ~(PN_PAGE_BYTES - 1));
	for (uint32_t id = 1; id <= cache->nregions; id++) {
		struct pn_region *region = &cache->regions[id];
		uint32_t state = atomic_load(&region->state);

		if (state == PN_REGION_VALID ||
		    (state == PN_REGION_PENDING &&
		     !(region->flags & (PN_REGION_PRIVATE | PN_REGION_STALE))))
			invalidate_region(cache, region);
	}
}

/* The oldest notice in the ring; false: it is empty. An entry that is taken but
 * not filled yet is being written by a thread that waits for nobody. */
static bool next_notice(struct pn_cache *cache, struct pn_range *out)
	PN_REQUIRES(&cache->lock)
{
	uint64_t at = atomic_load(&cache->notices.tail);
	struct pn_notice *entry = &cache->notices.ring[at % PN_NOTICE_RING];

	if (at == atomic_load(&cache->notices.head))
		return false;
	while (atomic_load_explicit(&entry->filled, memory_order_acquire) !=
	       at + 1)
		pn_relax();
	*out = (struct pn_range){ entry->addr, entry->len };
	atomic_store(&cache->notices.tail, at + 1);
	return true;
}

bool pn_invalidate_pending(struct pn_cache *cache)
{
	return atomic_load(&cache->notices.head) !=
		       atomic_load(&cache->notices.tail) ||
	       atomic_load(&cache->notices.lost);
}

void pn_invalidate_wait_notices(struct pn_cache *cache)
{
	while (cache->probing && !pn_monitor_settled())
		sched_yield();
}

void pn_invalidate_drain_locked(struct pn_cache *cache)
{
	struct pn_range range;
	unsigned lost;

	while (next_notice(cache, &range)) {
		pn_invalidate_range_locked(cache, range);
		pn_exposed_memory_released_locked(cache, range);
		atomic_fetch_sub(&cache->slow_reasons, 1);
	}
	/* Nobody knows which exposure it was, so all are ended; but not for a
	 * flood of notices that concern none. */
	if (pn_unlikely(atomic_load(&cache->exposed.lost)) &&
	    atomic_exchange(&cache->exposed.lost, false))
		pn_exposed_memory_released_locked(cache,
						  (struct pn_range){
							  0, UINTPTR_MAX });
	lost = atomic_exchange(&cache->notices.lost, 0);
	if (!lost)
		return;
	invalidate_all(cache);
	atomic_fetch_sub(&cache->slow_reasons, lost);
}

void pn_cache_invalidate(struct pn_cache *cache, uintptr_t addr, size_t len)
{
	pn_invalidate_notice(cache, addr, len, PN_RELEASE_BEFORE);
	pn_invalidate_notice(cache, addr, len, PN_RELEASE_AFTER);
}
