/* SPDX-License-Identifier: BSD-2-Clause */
/* Slots and access logs: what each thread keeps for a cache. */
#include <stdlib.h>

#include "cache/cache_impl.h"
#include "cache/pins_impl.h"

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

static void use_chunk(struct pn_pins *pins, struct pn_slot_chunk *chunk)
{
	chunk->older = pins->newest;
	pins->newest = chunk;
	pins->slots = chunk->slots;
	pins->mask = chunk->nslots - 1;
	pins->next = chunk->slots;
}

static struct pn_pins *adopt_orphan(struct pn_cache *cache)
{
	struct pn_pins *found = NULL;
	struct pn_list *pos;

	pn_lock(&cache->lock);
	pn_list_for_each (pos, &cache->threads) {
		struct pn_pins *pins =
			pn_container_of(pos, struct pn_pins, link);

		if (!pins->orphan)
			continue;
		pins->orphan = false;
		found = pins;
		break;
	}
	pn_unlock(&cache->lock);
	return found;
}

static struct pn_pins *pins_alloc(struct pn_cache *cache)
{
	struct pn_pins *pins = pn_stats_alloc(&pn_stats_kind_pins, cache->stats,
					      cache->attr.stats_owner);
	struct pn_slot_chunk *chunk = chunk_alloc(FIRST_SLOTS);

	if (!pins || !chunk) {
		pn_stats_free(pins);
		free(chunk);
		return NULL;
	}
	pins->cache = cache;
	use_chunk(pins, chunk);
	pn_lock(&cache->lock);
	pn_list_append(&cache->threads, &pins->link);
	pn_unlock(&cache->lock);
	return pins;
}

struct pn_pins *pn_pins_self(struct pn_cache *cache)
{
	struct pn_thread *self = pn_thread_self();
	struct pn_pins *pins = self ? self->local[cache->key] : NULL;

	if (pn_unlikely(!self))
		return NULL;
	if (pn_likely(pins))
		return pins;
	pins = adopt_orphan(cache);
	if (!pins)
		pins = pins_alloc(cache);
	if (pins)
		atomic_fetch_add(&cache->nthreads, 1);
	self->local[cache->key] = pins;
	return pins;
}

void pn_pins_ended(void *value)
{
	struct pn_pins *pins = value;

	/* In a forked child: the lock may be held for ever. */
	if (pn_cache_foreign(pins->cache))
		return;
	pn_lock(&pins->cache->lock);
	pins->orphan = true;
	atomic_fetch_sub(&pins->cache->nthreads, 1);
	pn_unlock(&pins->cache->lock);
}

pn_slot *pn_pins_free_slot(struct pn_pins *pins)
{
	/* Next fit: most pins end in the order in which they began. */
	for (uint32_t n = 0; n <= pins->mask; n++) {
		ptrdiff_t at = (pins->next - pins->slots + 1) & pins->mask;

		pins->next = &pins->slots[at];
		if (!atomic_load_explicit(pins->next, memory_order_acquire))
			return pins->next;
	}
	for (struct pn_slot_chunk *c = pins->newest->older; c; c = c->older)
		for (uint32_t i = 0; i < c->nslots; i++)
			if (!atomic_load_explicit(&c->slots[i],
						  memory_order_acquire))
				return &c->slots[i];
	return NULL;
}

bool pn_pins_grow(struct pn_pins *pins)
{
	struct pn_slot_chunk *chunk = chunk_alloc(2 * (pins->mask + 1));

	if (!chunk)
		return false;
	pn_lock(&pins->cache->lock);
	use_chunk(pins, chunk);
	pn_unlock(&pins->cache->lock);
	return true;
}

pn_slot *pn_pins_slot(struct pn_pins *pins)
{
	pn_slot *slot = pn_pins_free_slot(pins);

	if (slot)
		return slot;
	return pn_pins_grow(pins) ? &pins->slots[0] : NULL;
}

static void scan_thread(struct pn_pins *pins, uint64_t number)
{
	for (struct pn_slot_chunk *c = pins->newest; c; c = c->older) {
		for (uint32_t i = 0; i < c->nslots; i++) {
			struct pn_region *region =
				pn_asymmetric_load(&c->slots[i]);

			if (region)
				region->held = number;
		}
	}
}

void pn_pins_scan_locked(struct pn_cache *cache)
{
	struct pn_list *pos;

	cache->scan++;
	pn_list_for_each (pos, &cache->threads)
		scan_thread(pn_container_of(pos, struct pn_pins, link),
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

/* Reports the accesses from pins->drained to end. */
static inline PN_ALWAYS_INLINE void report_accesses(struct pn_cache *cache,
						    struct pn_pins *pins,
						    uint64_t end, bool ahead)
	PN_REQUIRES(&cache->lock)
{
	while (pins->drained != end) {
		size_t at = pins->drained & (PN_PINS_LOG - 1);
		size_t n = PN_PINS_LOG - at;

		if (n > end - pins->drained)
			n = end - pins->drained;
		report_run(cache->policy, &pins->log[at], n, ahead);
		pins->drained += n;
	}
}

/* So many regions fit the cache of a CPU. */
#define NEAR_REGIONS 2048

static void drain_thread(struct pn_cache *cache, struct pn_pins *pins)
	PN_REQUIRES(&cache->lock)
{
	uint64_t end =
		atomic_load_explicit(&pins->log_at, memory_order_acquire);

	/* The owner has overwritten the oldest entries. */
	if (end - pins->drained > PN_PINS_LOG)
		pins->drained = end - PN_PINS_LOG;
	if (cache->nregions > NEAR_REGIONS)
		report_accesses(cache, pins, end, true);
	else
		report_accesses(cache, pins, end, false);
}

void pn_pins_drain_locked(struct pn_cache *cache)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &cache->threads)
		drain_thread(cache, pn_container_of(pos, struct pn_pins, link));
}

/* A single thread drains its log, so that nothing is lost and its run can be
 * replayed exactly. With several threads the log is overwritten until a miss
 * drains it: hits of one thread must not make the other cores fetch the lists
 * of the policy. */
void pn_pins_log_full(struct pn_cache *cache)
{
	if (atomic_load_explicit(&cache->nthreads, memory_order_relaxed) > 1 ||
	    !pn_try_lock(&cache->lock))
		return;
	pn_pins_drain_locked(cache);
	pn_unlock(&cache->lock);
}

uint64_t pn_pins_hits_locked(struct pn_cache *cache)
{
	struct pn_list *pos;
	uint64_t sum = 0;

	pn_list_for_each (pos, &cache->threads)
		sum += atomic_load_explicit(
			&pn_container_of(pos, struct pn_pins, link)->log_at,
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

unsigned pn_pins_clear_all(struct pn_cache *cache)
{
	struct pn_list *pos;
	unsigned n = 0;

	pn_lock(&cache->lock);
	pn_list_for_each (pos, &cache->threads)
		n += clear_slots(
			pn_container_of(pos, struct pn_pins, link)->newest);
	pn_unlock(&cache->lock);
	return n;
}

void pn_pins_free_all(struct pn_cache *cache) PN_NO_THREAD_SAFETY
{
	struct pn_list *pos;

	while ((pos = pn_list_pop(&cache->threads))) {
		struct pn_pins *pins =
			pn_container_of(pos, struct pn_pins, link);

		while (pins->newest) {
			struct pn_slot_chunk *older = pins->newest->older;

			free(pins->newest);
			pins->newest = older;
		}
		pn_stats_free(pins);
	}
}
