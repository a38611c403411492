/* SPDX-License-Identifier: BSD-2-Clause */
/* Slots and access logs: what each thread keeps for a cache. */
#include <stdlib.h>

#include "cache/cache_impl.h"

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
	pins->cursor = 0;
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
	struct pn_pins *pins = calloc(1, sizeof(*pins));
	struct pn_slot_chunk *chunk = chunk_alloc(FIRST_SLOTS);

	if (!pins || !chunk) {
		free(pins);
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
	struct pn_pins *pins = self->local[cache->key];

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

	pn_lock(&pins->cache->lock);
	pins->orphan = true;
	atomic_fetch_sub(&pins->cache->nthreads, 1);
	pn_unlock(&pins->cache->lock);
}

pn_slot *pn_pins_free_slot(struct pn_pins *pins)
{
	/* Next fit: pins mostly end in the order they began. */
	for (uint32_t n = 0; n <= pins->mask; n++) {
		pins->cursor = (pins->cursor + 1) & pins->mask;
		if (!atomic_load_explicit(&pins->slots[pins->cursor],
					  memory_order_acquire))
			return &pins->slots[pins->cursor];
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

static inline struct pn_region *logged(struct pn_cache *cache,
				       struct pn_pins *pins, uint64_t at)
{
	return &cache->regions[atomic_load_explicit(
		&pins->log[at & (PN_PINS_LOG - 1)], memory_order_relaxed)];
}

/* Lists of a million regions do not fit any CPU's cache: fetch the nodes some
 * steps ahead, then their neighbours, so that the misses overlap. Beyond the
 * end stand old entries, which do no harm. */
static inline void prefetch_ahead(struct pn_cache *cache, struct pn_pins *pins,
				  uint64_t at)
{
	struct pn_list *link = &logged(cache, pins, at + 8)->node.link;

	__builtin_prefetch(&logged(cache, pins, at + 16)->node, 1);
	__builtin_prefetch(link->next, 1);
	__builtin_prefetch(link->prev, 1);
}

/* Tells the policy of the accesses from pins->drained to end. */
static inline PN_ALWAYS_INLINE void tell_policy(struct pn_cache *cache,
						struct pn_pins *pins,
						uint64_t end, bool ahead)
	PN_REQUIRES(&cache->lock)
{
	struct pn_policy *policy = cache->policy;
	const struct pn_policy_ops *ops = policy->ops;

	for (uint64_t at = pins->drained; at != end; at++) {
		struct pn_region *region = logged(cache, pins, at);

		if (ahead)
			prefetch_ahead(cache, pins, at);
		if (pn_likely(atomic_load_explicit(&region->state,
						   memory_order_relaxed) ==
			      PN_REGION_VALID))
			ops->access(policy, &region->node);
	}
	pins->drained = end;
}

/* So many regions lie in a CPU's own cache. */
#define NEAR_REGIONS 2048

static void drain_thread(struct pn_cache *cache, struct pn_pins *pins)
	PN_REQUIRES(&cache->lock)
{
	uint64_t end =
		atomic_load_explicit(&pins->log_at, memory_order_acquire);

	/* The owner ran around: the oldest are lost. */
	if (end - pins->drained > PN_PINS_LOG)
		pins->drained = end - PN_PINS_LOG;
	if (cache->nregions > NEAR_REGIONS)
		tell_policy(cache, pins, end, true);
	else
		tell_policy(cache, pins, end, false);
}

void pn_pins_drain_locked(struct pn_cache *cache)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &cache->threads)
		drain_thread(cache, pn_container_of(pos, struct pn_pins, link));
}

/* A thread alone drains, so that nothing is lost and its run can be replayed
 * exactly. With several, the log is overwritten until a miss drains it: hits
 * of one thread must not make the others' cores fetch the policy's lists. */
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
		free(pins);
	}
}
