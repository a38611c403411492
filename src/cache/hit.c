/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hit, from beginning to end: no lock, no write that another thread reads
 * but the slot.
 *
 * The order matters (rule 2). Pin: (1) store the region into the slot, (2) load
 * the index entry again. Whoever deregisters: (1) clears the entry, (2)
 * membarrier, (3) loads the slots. So either we see the entry gone, or they see
 * our slot. Unpin: (1) clear the slot, (2) load the state. Whoever lets a
 * region die: (1) stores the state, (2) membarrier, (3) loads the slots. So
 * either we see that it is dying and help it on, or they see the slot empty.
 *
 * Fields of the region are read after the entry was seen again: between the
 * two loads it might have been deregistered and used for another range.
 */
#include "cache/cache_impl.h"

/* The first slot the thread would use, unless it is taken. */
static inline pn_slot *next_slot(struct pn_pins *pins)
{
	pn_slot *slot = &pins->slots[pins->cursor];

	if (pn_likely(!atomic_load_explicit(slot, memory_order_relaxed)))
		return slot;
	return pn_pins_free_slot(pins);
}

/* Whether [addr, addr + len) lies in the region, which covers addr. A length
 * of 0 becomes huge and does not. */
static inline bool reaches(const struct pn_region *region, uintptr_t addr,
			   size_t len)
{
	return len - 1 < (uintptr_t)region->mr.addr + region->mr.len - addr;
}

static inline void log_access(struct pn_cache *cache, struct pn_pins *pins,
			      uint32_t id)
{
	uint64_t at = atomic_load_explicit(&pins->log_at, memory_order_relaxed);

	atomic_store_explicit(&pins->log[at & (PN_PINS_LOG - 1)], id,
			      memory_order_relaxed);
	atomic_store_explicit(&pins->log_at, at + 1, memory_order_release);
	if (pn_unlikely(!((at + 1) & (PN_PINS_LOG - 1))))
		pn_pins_log_full(cache);
}

static inline void fill_pin(struct pinion_pin *pin, void *addr, size_t len,
			    struct pn_region *region, pn_slot *slot)
{
	*pin = (struct pinion_pin){ .addr = addr,
				    .len = len,
				    .local_key = region->mr.lkey,
				    .remote_key = region->mr.rkey,
				    .nparts = 1,
				    .internal = { (void *)slot, region } };
}

int pn_cache_pin(struct pn_cache *cache, void *addr, size_t len, unsigned flags,
		 struct pinion_pin *pin)
{
	struct pn_pins *pins = pn_thread_self()->local[cache->key];
	pn_index_entry *entry =
		pn_index_entry_of(&cache->index, (uintptr_t)addr);
	struct pn_region *region;
	pn_slot *slot;
	uint32_t id;

	if (pn_unlikely(!pins || !entry ||
			atomic_load_explicit(&cache->attention,
					     memory_order_acquire)))
		return pn_miss_pin(cache, addr, len, flags, pin);
	id = atomic_load_explicit(entry, memory_order_acquire);
	slot = next_slot(pins);
	if (pn_unlikely(!id || !slot))
		return pn_miss_pin(cache, addr, len, flags, pin);
	region = &cache->regions[id];
	pn_asymmetric_store(slot, region);
	if (pn_unlikely(pn_asymmetric_load(entry) != id ||
			atomic_load_explicit(&region->state,
					     memory_order_acquire) !=
				PN_REGION_VALID ||
			!reaches(region, (uintptr_t)addr, len) ||
			!pn_access_fits(region->mr.access, flags))) {
		atomic_store_explicit(slot, NULL, memory_order_release);
		return pn_miss_pin(cache, addr, len, flags, pin);
	}
	log_access(cache, pins, id);
	fill_pin(pin, addr, len, region, slot);
	return 0;
}

void pn_cache_unpin(struct pn_cache *cache, struct pinion_pin *pin)
{
	pn_slot *slot = pin->internal[0];
	struct pn_region *region = pin->internal[1];

	if (pn_unlikely(pin->nparts != 1)) {
		pn_miss_unpin(cache, pin);
		return;
	}
	pin->nparts = 0;
	pn_debug_assert(atomic_load(slot) == region);
	pn_asymmetric_store(slot, NULL);
	if (pn_unlikely(pn_asymmetric_load(&region->state) == PN_REGION_DYING))
		pn_worker_ring(cache);
}
