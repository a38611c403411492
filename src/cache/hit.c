/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hit: no lock, and no write that another thread reads except the slot (rule
 * 2 of CONTRIBUTING.md).
 *
 * The order of loads and stores matters. A pin (1) stores the region into the
 * slot, then (2) loads the index entry again. A thread that deregisters (1)
 * clears the entry, (2) calls membarrier, (3) loads the slots. So either the
 * pin sees the entry gone, or the other thread sees the slot. An unpin (1)
 * clears the slot, then (2) loads the state. A thread that lets a region die
 * (1) stores the state, (2) calls membarrier, (3) loads the slots. So either
 * the unpin sees that the region is dying and notifies the worker, or the other
 * thread sees the slot empty.
 *
 * The region's fields are read after the second load of the entry: between the
 * two loads the region might have been deregistered and reused for another
 * range.
 */
#include <errno.h>

#include "cache/cache_impl.h"
#include "cache/plan_impl.h"
#include "cache/reclaim_impl.h"
#include "cache/region_impl.h"
#include "cache/thread_slots_impl.h"
#include "cache/trace_impl.h"
#include "cache/worker_impl.h"

/* Whether [addr, addr + len) lies in the region. The region covers bytes of the
 * page of addr, but it may begin behind addr or end before it. */
static inline bool reaches(const struct pn_region *region, uintptr_t addr,
			   size_t len)
{
	size_t rest;

	/* An offset beyond the end, or below 0, borrows; a length of 0 becomes
	 * the greatest. */
	return !__builtin_sub_overflow(region->mr.len,
				       addr - (uintptr_t)region->mr.addr,
				       &rest) &&
	       len - 1 < rest;
}

static inline void fill_pin(struct pinion_pin *pin, void *addr, size_t len,
			    struct pn_region *region, pn_slot *slot)
{
	pin->addr = addr;
	pin->len = len;
	pin->local_key = region->mr.lkey;
	pin->remote_key = region->mr.rkey;
	pin->handle = region->mr.handle;
	pin->nsegments = 1;
	pin->reserved = 0;
	pin->internal[0] = (void *)slot;
	pin->internal[1] = region;
}

static PN_NOINLINE int log_full(struct pn_cache *cache)
{
	pn_slots_log_full(cache);
	return 0;
}

static inline int log_access(struct pn_thread_slots *thread,
			     struct pn_region *region)
{
	uint64_t at =
		atomic_load_explicit(&thread->log_at, memory_order_relaxed);

	atomic_store_explicit(&thread->log[at & (PN_SLOTS_LOG - 1)], region,
			      memory_order_relaxed);
	atomic_store_explicit(&thread->log_at, at + 1, memory_order_release);
	if (pn_unlikely(!((at + 1) & (PN_SLOTS_LOG - 1))))
		return log_full(thread->cache);
	return 0;
}

/* A pin in progress; in registers, since all its functions are inlined. */
struct attempt {
	void *addr;
	size_t len;
	unsigned flags;
	/* Set by begin(): */
	struct pn_thread_slots *thread;
	pn_index_entry *entry;
};

/* False: no hit is possible, as in the first pin of a thread. */
static inline bool begin(struct pn_cache *cache, struct attempt *attempt)
{
	struct pn_thread *self = pn_thread_current;

	if (pn_unlikely(!self))
		return false;
	attempt->thread = self->local[cache->key];
	attempt->entry =
		pn_index_entry_of(&cache->index, (uintptr_t)attempt->addr);
	return pn_likely(attempt->thread && attempt->entry) &&
	       pn_likely(!atomic_load_explicit(&cache->slow_reasons,
					       memory_order_acquire));
}

/* The rest of a hit, with a free slot. An empty entry names region 0, which is
 * never VALID. */
static inline PN_ALWAYS_INLINE int pin_in_slot(struct pn_cache *cache,
					       const struct attempt *attempt,
					       pn_slot *slot,
					       struct pinion_pin *pin)
{
	struct pn_region *region =
		&cache->regions[atomic_load_explicit(attempt->entry,
						     memory_order_acquire)];

	/* The id is read from the region and the cache from the slots: that
	 * keeps two values fewer alive, so that no register is saved on the
	 * stack. */
	pn_asymmetric_store(slot, region);
	if (pn_unlikely(
		    pn_asymmetric_load(attempt->entry) != region->id ||
		    atomic_load_explicit(&region->state,
					 memory_order_acquire) !=
			    PN_REGION_VALID ||
		    !reaches(region, (uintptr_t)attempt->addr, attempt->len) ||
		    !pn_access_matches(region, attempt->flags))) {
		atomic_store_explicit(slot, NULL, memory_order_release);
		return pn_miss_pin(attempt->thread->cache, attempt->addr,
				   attempt->len, attempt->flags, pin);
	}
	fill_pin(pin, attempt->addr, attempt->len, region, slot);
	return log_access(attempt->thread, region);
}

/* A thread that holds several pins: its next slot is in use, but another is
 * usually free. Not inlined, so that the plain hit saves no registers for this
 * call. */
static PN_NOINLINE int pin_searching(struct pn_cache *cache, void *addr,
				     size_t len, unsigned flags,
				     struct pinion_pin *pin)
{
	struct attempt attempt = { .addr = addr, .len = len, .flags = flags };
	pn_slot *slot = NULL;

	if (begin(cache, &attempt))
		slot = pn_slots_free_slot(attempt.thread);
	if (pn_unlikely(!slot))
		return pn_miss_pin(cache, addr, len, flags, pin);
	return pin_in_slot(cache, &attempt, slot, pin);
}

static inline PN_ALWAYS_INLINE int pin_buffer(struct pn_cache *cache,
					      void *addr, size_t len,
					      unsigned flags,
					      struct pinion_pin *pin)
{
	struct attempt attempt = { .addr = addr, .len = len, .flags = flags };
	pn_slot *slot;

	if (pn_unlikely(!begin(cache, &attempt)))
		return pn_miss_pin(cache, addr, len, flags, pin);
	slot = attempt.thread->next;
	if (pn_unlikely(atomic_load_explicit(slot, memory_order_relaxed)))
		return pin_searching(cache, addr, len, flags, pin);
	return pin_in_slot(cache, &attempt, slot, pin);
}

/* `now`: as of pn_cache_unpin_now(). */
static inline PN_ALWAYS_INLINE void unpin(struct pn_cache *cache,
					  struct pinion_pin *pin, bool now)
{
	pn_slot *slot = pin->internal[0];
	struct pn_region *region = pin->internal[1];

	if (pn_unlikely(pin->nsegments != 1 || pin->reserved)) {
		pn_segments_unpin(cache, pin, now);
		return;
	}
	pin->nsegments = 0;
	pn_debug_assert(atomic_load(slot) == region);
	pn_asymmetric_store(slot, NULL);
	if (pn_unlikely(pn_asymmetric_load(&region->state) == PN_REGION_DYING))
		pn_worker_notify(cache);
}

/* --- with a sink or a listener -------------------------------------------- */

static inline bool is_observed(const struct pn_cache *cache)
{
	return atomic_load_explicit(&cache->observed, memory_order_relaxed);
}

/* What is not a plain hit is traced in miss.c, where it is decided. */
static PN_NOINLINE int pin_recorded(struct pn_cache *cache, void *addr,
				    size_t len, unsigned flags,
				    struct pinion_pin *pin)
{
	const struct pn_outcome hit = { .flags = flags,
					.decision = PN_DECIDED_HIT,
					.reason = PN_BECAUSE_CACHED };
	const struct iovec buffer = { addr, len };
	struct pn_thread_slots *thread;
	uint64_t hits;
	int ret;

	if (pn_cache_foreign(cache))
		return -EPERM;
	if (!cache->sink)
		return pin_buffer(cache, addr, len, flags, pin);
	thread = pn_slots_self(cache);
	hits = thread ? atomic_load(&thread->log_at) : 0;
	ret = pin_buffer(cache, addr, len, flags, pin);
	if (thread && atomic_load(&thread->log_at) != hits)
		pn_cache_trace_pins(cache, &buffer, 1, pin, &hit);
	return ret;
}

static PN_NOINLINE int pin_observed(struct pn_cache *cache, void *addr,
				    size_t len, unsigned flags,
				    struct pinion_pin *pin)
{
	struct pn_pin_listener *listener = atomic_load(&cache->listener);
	void *note;
	int ret;

	if (!listener || pn_cache_foreign(cache))
		return pin_recorded(cache, addr, len, flags, pin);
	note = listener->begin(listener, addr, len);
	ret = pin_recorded(cache, addr, len, flags, pin);
	listener->pinned(listener, note, ret ? NULL : pin);
	return ret;
}

/* Always with the lock: a plan can stop before it registers. */
int pn_cache_pin_hit(struct pn_cache *cache, void *addr, size_t len,
		     unsigned flags, struct pinion_pin *pin)
{
	struct pn_pin_listener *listener =
		pn_cache_foreign(cache) ? NULL : atomic_load(&cache->listener);
	void *note = NULL;
	int ret;

	if (pn_unlikely(listener != NULL))
		note = listener->begin(listener, addr, len);
	ret = pn_miss_pin_hit(cache, addr, len, flags, pin);
	if (pn_unlikely(listener != NULL))
		listener->pinned(listener, note, ret ? NULL : pin);
	return ret;
}

/* Nobody may meet the registration after the unpin. Of several pins the last
 * one ends it: -EBUSY until then. */
static void unpin_and_end(struct pn_cache *cache, struct pinion_pin *pin)
{
	struct pn_range range = { (uintptr_t)pin->addr, pin->len };
	struct pn_dropped dropped;
	bool dying;

	if (pin->nsegments == 1)
		range = pn_region_range(pin->internal[1]);
	unpin(cache, pin, false);
	pn_cache_drop(cache, range.addr, range.len, &dropped);
	/* It may have been invalidated or replaced while it was pinned. */
	pn_lock(&cache->lock);
	dying = cache->dying.n || cache->dying.nbatches;
	pn_unlock(&cache->lock);
	if (dying)
		pn_reclaim_reap_all(cache);
}

static PN_NOINLINE void unpin_observed(struct pn_cache *cache,
				       struct pinion_pin *pin, bool now)
{
	struct pn_pin_listener *listener = atomic_load(&cache->listener);
	void *note = NULL;

	if (listener && !pn_cache_foreign(cache))
		note = listener->unpinning(listener, pin);
	if (cache->sink)
		pn_cache_trace_unpin(cache, pin);
	if (pn_cache_ends_with_pins(cache) && !pn_cache_foreign(cache))
		unpin_and_end(cache, pin);
	else
		unpin(cache, pin, now);
	if (note)
		listener->unpinned(listener, note);
}

void pn_cache_set_listener(struct pn_cache *cache,
			   struct pn_pin_listener *listener)
{
	atomic_store(&cache->listener, listener);
	atomic_store(&cache->observed,
		     cache->sink || listener || pn_cache_ends_with_pins(cache));
}

/* --- the calls ------------------------------------------------------------ */

int pn_cache_pin(struct pn_cache *cache, void *addr, size_t len, unsigned flags,
		 struct pinion_pin *pin)
{
	if (pn_unlikely(is_observed(cache)))
		return pin_observed(cache, addr, len, flags, pin);
	return pin_buffer(cache, addr, len, flags, pin);
}

int pn_cache_pin_no_listener(struct pn_cache *cache, void *addr, size_t len,
			     unsigned flags, struct pinion_pin *pin)
{
	if (pn_unlikely(is_observed(cache)))
		return pin_recorded(cache, addr, len, flags, pin);
	return pin_buffer(cache, addr, len, flags, pin);
}

void pn_cache_unpin(struct pn_cache *cache, struct pinion_pin *pin)
{
	if (pn_unlikely(is_observed(cache)))
		unpin_observed(cache, pin, false);
	else
		unpin(cache, pin, false);
}

void pn_cache_unpin_now(struct pn_cache *cache, struct pinion_pin *pin)
{
	if (pn_unlikely(is_observed(cache)))
		unpin_observed(cache, pin, true);
	else
		unpin(cache, pin, true);
}
