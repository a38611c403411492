/* SPDX-License-Identifier: BSD-2-Clause */
/* Slots and access logs: what each thread keeps for a cache. */
#include <stdlib.h>

#include "cache/cache_impl.h"
#include "cache/thread_slots_impl.h"

#define FIRST_SLOTS 64

static struct pn_slot_chunk *chunk_alloc(uint32_t nslots)
{
	struct pn_slot_chunk *chunk =
		aligned_alloc(PN_CACHELINE,
			      (sizeof(*chunk) + nslots * sizeof(pn_slot) +
			       PN_CACHELINE - 1) &
				      ~(size_t)(PN_CACHELINE - 1));

	if (!chunk)
		return NULL;
	chunk->nslots = nslots;
	chunk->older = NULL;
	for (uint32_t i = 0; i < nslots; i++)
		atomic_init(&chunk->slots[i], NULL);
	return chunk;
}

static void use_chunk(struct pn_thread_slots *thread,
		      struct pn_slot_chunk *chunk)
{
	chunk->older = thread->newest;
	thread->newest = chunk;
	thread->slots = chunk->slots;
	thread->mask = chunk->nslots - 1;
	thread->next = chunk->slots;
}

static struct pn_thread_slots *adopt_orphan(struct pn_cache *cache)
{
	struct pn_thread_slots *found = NULL;
	struct pn_list *pos;

	pn_lock(&cache->lock);
	pn_list_for_each (pos, &cache->threads) {
		struct pn_thread_slots *thread =
			pn_container_of(pos, struct pn_thread_slots, link);

		if (!thread->orphan)
			continue;
		thread->orphan = false;
		found = thread;
		break;
	}
	pn_unlock(&cache->lock);
	return found;
}

static struct pn_thread_slots *pins_alloc(struct pn_cache *cache)
{
	struct pn_thread_slots *thread =
		pn_stats_alloc(&pn_stats_kind_pins, cache->stats,
			       cache->attr.stats_owner);
	struct pn_slot_chunk *chunk = chunk_alloc(FIRST_SLOTS);

	if (!thread || !chunk) {
		pn_stats_free(thread);
		free(chunk);
		return NULL;
	}
	thread->cache = cache;
	use_chunk(thread, chunk);
	pn_lock(&cache->lock);
	pn_list_append(&cache->threads, &thread->link);
	pn_unlock(&cache->lock);
	return thread;
}

struct pn_thread_slots *pn_slots_self(struct pn_cache *cache)
{
	struct pn_thread *self = pn_thread_self();
	struct pn_thread_slots *thread = self ? self->local[cache->key] : NULL;

	if (pn_unlikely(!self))
		return NULL;
	if (pn_likely(thread))
		return thread;
	thread = adopt_orphan(cache);
	if (!thread)
		thread = pins_alloc(cache);
	if (thread)
		atomic_fetch_add(&cache->nthreads, 1);
	self->local[cache->key] = thread;
	return thread;
}

void pn_slots_ended(void *value)
{
	struct pn_thread_slots *thread = value;

	/* In a forked child: the lock may be held for ever. */
	if (pn_cache_foreign(thread->cache))
		return;
	pn_lock(&thread->cache->lock);
	thread->orphan = true;
	atomic_fetch_sub(&thread->cache->nthreads, 1);
	pn_unlock(&thread->cache->lock);
}

pn_slot *pn_slots_free_slot(struct pn_thread_slots *thread)
{
	/* Next fit: most pins end in the order in which they began. */
	for (uint32_t n = 0; n <= thread->mask; n++) {
		ptrdiff_t at =
			(thread->next - thread->slots + 1) & thread->mask;

		thread->next = &thread->slots[at];
		if (!atomic_load_explicit(thread->next, memory_order_acquire))
			return thread->next;
	}
	for (struct pn_slot_chunk *c = thread->newest->older; c; c = c->older)
		for (uint32_t i = 0; i < c->nslots; i++)
			if (!atomic_load_explicit(&c->slots[i],
						  memory_order_acquire))
				return &c->slots[i];
	return NULL;
}

bool pn_slots_grow(struct pn_thread_slots *thread)
{
	struct pn_slot_chunk *chunk = chunk_alloc(2 * (thread->mask + 1));

	if (!chunk)
		return false;
	pn_lock(&thread->cache->lock);
	use_chunk(thread, chunk);
	pn_unlock(&thread->cache->lock);
	return true;
}

pn_slot *pn_slots_get(struct pn_thread_slots *thread)
{
	pn_slot *slot = pn_slots_free_slot(thread);

	if (slot)
		return slot;
	return pn_slots_grow(thread) ? &thread->slots[0] : NULL;
}

static void scan_thread(struct pn_thread_slots *thread, uint64_t number)
{
	for (struct pn_slot_chunk *c = thread->newest; c; c = c->older) {
		for (uint32_t i = 0; i < c->nslots; i++) {
			struct pn_region *region =
				pn_asymmetric_load(&c->slots[i]);

			if (region)
				region->held = number;
		}
	}
}

void pn_slots_scan_locked(struct pn_cache *cache)
{
	struct pn_list *pos;

	cache->scan++;
	pn_list_for_each (pos, &cache->threads)
		scan_thread(pn_container_of(pos, struct pn_thread_slots, link),
			    cache->scan);
}

/* The policy has requested this access. The region may be invalid by now. */
static PN_NOINLINE void report_access(struct pn_policy *policy,
				      struct pn_region *region)
{
	if (atomic_load_explicit(&region->state, memory_order_relaxed) ==
		    PN_REGION_VALID &&
	    !region->resident)
		policy->ops->access(policy, &region->node);
}

typedef struct pn_region *_Atomic pn_log_entry;

/* A million nodes fit no CPU cache: prefetch some steps ahead, so that the
 * cache misses overlap. */
#define AHEAD 16

/* Reports `n` accesses to the policy, as pn_policy_use() does. Stamping a
 * region that is no longer valid does no harm: inserting it again overwrites
 * the stamp. Every hit of a single thread comes through here, so instructions
 * count. */
static inline PN_ALWAYS_INLINE void report_run(struct pn_policy *policy,
					       const pn_log_entry *entry,
					       size_t n, bool ahead)
{
	const pn_log_entry *end = entry + n;
	uint64_t clock = policy->clock;
	uint32_t epoch = policy->epoch;

	for (; entry != end; entry++) {
		struct pn_region *region =
			atomic_load_explicit(entry, memory_order_relaxed);

		if (ahead && entry + AHEAD < end)
			__builtin_prefetch(
				&atomic_load_explicit(entry + AHEAD,
						      memory_order_relaxed)
					 ->node,
				1);
		region->node.used = ++clock;
		if (pn_likely(region->node.ignore_epoch == epoch))
			continue;
		policy->clock = clock;
		report_access(policy, region);
		epoch = policy->epoch;
	}
	policy->clock = clock;
}

/* Reports the accesses from thread->drained to end. */
static inline PN_ALWAYS_INLINE void report_accesses(
	struct pn_cache *cache, struct pn_thread_slots *thread, uint64_t end,
	bool ahead) PN_REQUIRES(&cache->lock)
{
	while (thread->drained != end) {
		size_t at = thread->drained & (PN_SLOTS_LOG - 1);
		size_t n = PN_SLOTS_LOG - at;

		if (n > end - thread->drained)
			n = end - thread->drained;
		report_run(cache->policy, &thread->log[at], n, ahead);
		thread->drained += n;
	}
}

/* So many regions fit the cache of a CPU. */
#define NEAR_REGIONS 2048

static void drain_thread(struct pn_cache *cache, struct pn_thread_slots *thread)
	PN_REQUIRES(&cache->lock)
{
	uint64_t end =
		atomic_load_explicit(&thread->log_at, memory_order_acquire);

	/* The owner has overwritten the oldest entries. */
	if (end - thread->drained > PN_SLOTS_LOG)
		thread->drained = end - PN_SLOTS_LOG;
	if (cache->nregions > NEAR_REGIONS)
		report_accesses(cache, thread, end, true);
	else
		report_accesses(cache, thread, end, false);
}

void pn_slots_drain_locked(struct pn_cache *cache)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &cache->threads)
		drain_thread(cache, pn_container_of(pos, struct pn_thread_slots,
						    link));
}

/* A single thread drains its log, so that nothing is lost and its run can be
 * replayed exactly. With several threads the log is overwritten until a miss
 * drains it: hits of one thread must not make the other cores fetch the lists
 * of the policy. */
void pn_slots_log_full(struct pn_cache *cache)
{
	if (atomic_load_explicit(&cache->nthreads, memory_order_relaxed) > 1 ||
	    !pn_try_lock(&cache->lock))
		return;
	pn_slots_drain_locked(cache);
	pn_unlock(&cache->lock);
}

uint64_t pn_slots_hits_locked(struct pn_cache *cache)
{
	struct pn_list *pos;
	uint64_t sum = 0;

	pn_list_for_each (pos, &cache->threads)
		sum += atomic_load_explicit(
			&pn_container_of(pos, struct pn_thread_slots, link)
				 ->log_at,
			memory_order_relaxed);
	return sum;
}

static unsigned clear_slots(struct pn_slot_chunk *chunk)
{
	unsigned n = 0;

	for (; chunk; chunk = chunk->older)
		for (uint32_t i = 0; i < chunk->nslots; i++)
			n += !!atomic_exchange(&chunk->slots[i], NULL);
	return n;
}

unsigned pn_slots_clear_all(struct pn_cache *cache)
{
	struct pn_list *pos;
	unsigned n = 0;

	pn_lock(&cache->lock);
	pn_list_for_each (pos, &cache->threads)
		n += clear_slots(
			pn_container_of(pos, struct pn_thread_slots, link)
				->newest);
	pn_unlock(&cache->lock);
	return n;
}

void pn_slots_free_all(struct pn_cache *cache) PN_NO_THREAD_SAFETY
{
	struct pn_list *pos;

	while ((pos = pn_list_pop(&cache->threads))) {
		struct pn_thread_slots *thread =
			pn_container_of(pos, struct pn_thread_slots, link);

		while (thread->newest) {
			struct pn_slot_chunk *older = thread->newest->older;

			free(thread->newest);
			thread->newest = older;
		}
		pn_stats_free(thread);
	}
}
