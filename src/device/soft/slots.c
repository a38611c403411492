/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/slots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/huge.h"
#include "base/pages.h"
#include "device/soft/pin.h"

static enum pn_soft_family family_of(const struct pn_mr *mr)
{
	return mr->access & PN_ACCESS_REMOTE ? PN_SOFT_EXPOSED
					     : PN_SOFT_PRIVATE;
}

struct pn_soft_table *pn_soft_slots_table(struct pn_soft_slots *slots,
					  uint64_t location)
{
	return atomic_load_explicit(
		&slots->tables[pn_soft_location_family(location)]
			      [pn_soft_location_ring(location)],
		memory_order_acquire);
}

/* --- tables -------------------------------------------------------------- */

static void free_table(struct pn_soft_table *table)
{
	pn_soft_ring_fini(&table->ring);
	free(table->own_page);
	free(table->local);
	free(table->locked);
	free(table->charges);
	free(table);
}

static struct pn_soft_ring_page *page_for(struct pn_soft_slots *slots,
					  struct pn_soft_table *table,
					  enum pn_soft_family family,
					  unsigned index)
{
	if (family == PN_SOFT_EXPOSED)
		return &slots->shared->rings[index];
	table->own_page = aligned_alloc(PN_CACHELINE, sizeof(*table->own_page));
	if (table->own_page)
		memset(table->own_page, 0, sizeof(*table->own_page));
	return table->own_page;
}

static int make_table(struct pn_soft_slots *slots, enum pn_soft_family family,
		      unsigned index, struct pn_soft_table **out)
{
	struct pn_soft_table *table = calloc(1, sizeof(*table));
	struct pn_soft_ring_page *page = NULL;
	int ret = -ENOMEM;

	if (!table)
		return -ENOMEM;
	table->local = calloc(slots->nslots, sizeof(*table->local));
	table->locked = calloc(slots->nslots, sizeof(*table->locked));
	table->charges = calloc(slots->nslots, sizeof(*table->charges));
	if (table->local && table->locked && table->charges)
		page = page_for(slots, table, family, index);
	if (page)
		ret = pn_soft_ring_init(&table->ring, page,
					family == PN_SOFT_EXPOSED
						? slots->shared->slots[index]
						: NULL,
					slots->nslots, slots->uses_uring);
	if (ret) {
		table->ring.uses_uring = false;
		free_table(table);
		return ret;
	}
	table->nfree = slots->nslots;
	*out = table;
	return 0;
}

static int add_table(struct pn_soft_slots *slots, enum pn_soft_family family)
	PN_REQUIRES(&slots->lock)
{
	unsigned index = slots->ntables[family];
	struct pn_soft_table *table;
	int ret;

	if (index >= slots->max_rings)
		return -ENOMEM;
	ret = make_table(slots, family, index, &table);
	if (ret)
		return ret;
	atomic_fetch_add(&slots->device_bytes,
			 pn_soft_ring_bytes(&table->ring));
	atomic_store_explicit(&slots->tables[family][index], table,
			      memory_order_release);
	slots->ntables[family]++;
	if (family == PN_SOFT_EXPOSED)
		atomic_store(&slots->shared->nrings, index + 1);
	return 0;
}

/* --- allocating slots ---------------------------------------------------- */

static void set_used(struct pn_soft_table *table, unsigned slot, unsigned n,
		     bool used)
{
	pn_bits_set(table->used, slot, n, used);
	table->nfree += used ? -n : n;
}

/* Returns the first of n consecutive free slots from `from` on, or -1. */
static int find_run(const struct pn_soft_table *table, unsigned nslots,
		    unsigned from, unsigned n)
{
	unsigned run = 0;

	for (unsigned i = from; i < nslots; i++) {
		run = pn_bits_get(table->used, i) ? 0 : run + 1;
		if (run == n)
			return (int)(i + 1 - n);
	}
	return -1;
}

/* Continues where the last search ended, so that the ranges of a batch get
 * neighbouring slots. */
static int take_slots(struct pn_soft_table *table, unsigned nslots, unsigned n)
{
	int slot = -1;

	if (table->nfree < n)
		return -1;
	slot = find_run(table, nslots, table->hint, n);
	if (slot < 0 && table->hint)
		slot = find_run(table, nslots, 0, n);
	if (slot < 0)
		return -1;
	set_used(table, (unsigned)slot, n, true);
	table->hint = ((unsigned)slot + n) % nslots;
	return slot;
}

static int allocate_one(struct pn_soft_slots *slots, struct pn_mr *mr)
	PN_REQUIRES(&slots->lock)
{
	enum pn_soft_family family = family_of(mr);
	unsigned n = pn_soft_slots_needed(mr);

	if (n > slots->nslots)
		return -ENOMEM;
	for (unsigned i = 0;; i++) {
		struct pn_soft_table *table;
		int slot, ret;

		if (i == slots->ntables[family]) {
			ret = add_table(slots, family);
			if (ret)
				return ret;
		}
		table = slots->tables[family][i];
		slot = take_slots(table, slots->nslots, n);
		if (slot >= 0) {
			mr->device_slot =
				pn_soft_location(family, i, (unsigned)slot);
			return 0;
		}
	}
}

static void free_slots(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		       unsigned n) PN_REQUIRES(&slots->lock)
{
	for (unsigned i = 0; i < n; i++) {
		struct pn_soft_table *table =
			pn_soft_slots_table(slots, mrs[i]->device_slot);

		set_used(table, pn_soft_location_slot(mrs[i]->device_slot),
			 pn_soft_slots_needed(mrs[i]), false);
		mrs[i]->device_slot = 0;
	}
}

static int allocate_slots(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
			  unsigned n)
{
	int ret = 0;

	pn_lock(&slots->lock);
	for (unsigned i = 0; i < n && !ret; i++) {
		ret = allocate_one(slots, mrs[i]);
		if (ret)
			free_slots(slots, mrs, i);
	}
	pn_unlock(&slots->lock);
	return ret;
}

/* --- publishing ---------------------------------------------------------- */

static uint64_t next_generation(struct pn_soft_slots *slots)
{
	return atomic_fetch_add(&slots->generation, 1) + 1;
}

static void publish(struct pn_soft_slots *slots, struct pn_mr *mr)
{
	struct pn_soft_table *table =
		pn_soft_slots_table(slots, mr->device_slot);
	unsigned slot = pn_soft_location_slot(mr->device_slot);
	uint64_t generation = next_generation(slots);
	uint64_t base = (uintptr_t)mr->addr;

	pn_soft_slot_set(&table->local[slot], generation, base, mr->len,
			 mr->access);
	mr->lkey = pn_soft_key(generation, mr->device_slot);
	if (!table->ring.slots)
		return;
	generation = next_generation(slots);
	pn_soft_slot_set(&table->ring.slots[slot], generation, base, mr->len,
			 mr->access);
	mr->rkey = pn_soft_key(generation, mr->device_slot);
}

/* --- registering --------------------------------------------------------- */

/* Clears the keys. After that, under the ring's lock, nothing that was checked
 * before is in flight. Neighbours in the batch share one locking. */
static void unpublish(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		      unsigned n)
{
	struct pn_soft_table *locked = NULL;

	for (unsigned i = 0; i < n; i++) {
		struct pn_soft_table *table =
			pn_soft_slots_table(slots, mrs[i]->device_slot);
		unsigned slot = pn_soft_location_slot(mrs[i]->device_slot);

		if (table != locked) {
			if (locked)
				pn_soft_ring_unlock(&locked->ring);
			pn_soft_ring_lock(&table->ring);
			locked = table;
		}
		pn_soft_slot_clear(&table->local[slot]);
		if (table->ring.slots)
			pn_soft_slot_clear(&table->ring.slots[slot]);
	}
	if (locked)
		pn_soft_ring_unlock(&locked->ring);
}

/* Unpins and frees the slots: all or none. */
static int unpin(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		 unsigned n)
{
	int ret = pn_soft_unpin(slots, mrs, n);
	size_t bytes = 0;

	if (ret)
		return ret;
	for (unsigned i = 0; i < n; i++)
		bytes += pn_soft_bytes_of(mrs[i]);
	atomic_fetch_sub(&slots->live_bytes, bytes);
	atomic_fetch_sub(&slots->mrs, n);
	pn_lock(&slots->lock);
	free_slots(slots, mrs, n);
	pn_unlock(&slots->lock);
	return 0;
}

static void add_stuck(struct pn_soft_slots *slots, const struct pn_mr *mr)
{
	pn_lock(&slots->lock);
	if (slots->nstuck < PN_SOFT_STUCK)
		slots->stuck[slots->nstuck++] = *mr;
	pn_unlock(&slots->lock);
}

static bool take_stuck(struct pn_soft_slots *slots, struct pn_mr *mr)
{
	bool any;

	pn_lock(&slots->lock);
	any = slots->nstuck;
	if (any)
		*mr = slots->stuck[--slots->nstuck];
	pn_unlock(&slots->lock);
	return any;
}

static void unpin_or_keep(struct pn_soft_slots *slots, struct pn_mr *mr)
{
	if (unpin(slots, &mr, 1))
		add_stuck(slots, mr);
}

/* Tries again, until the kernel refuses once more. */
static void retry_stuck(struct pn_soft_slots *slots)
{
	struct pn_mr mr, *mrs[] = { &mr };

	while (atomic_load_explicit(&slots->nstuck, memory_order_relaxed) &&
	       take_stuck(slots, &mr))
		if (unpin(slots, mrs, 1)) {
			add_stuck(slots, &mr);
			return;
		}
}

int pn_soft_slots_register(struct pn_soft_slots *slots,
			   struct pn_mr *const *mrs, unsigned n)
{
	size_t bytes = 0;
	int ret;

	retry_stuck(slots);
	ret = allocate_slots(slots, mrs, n);
	if (ret)
		return ret;
	ret = pn_soft_pin(slots, mrs, n);
	if (ret) {
		pn_lock(&slots->lock);
		free_slots(slots, mrs, n);
		pn_unlock(&slots->lock);
		return ret;
	}
	for (unsigned i = 0; i < n; i++) {
		publish(slots, mrs[i]);
		bytes += pn_soft_bytes_of(mrs[i]);
	}
	atomic_fetch_add(&slots->live_bytes, bytes);
	atomic_fetch_add(&slots->mrs, n);
	return 0;
}

void pn_soft_slots_deregister(struct pn_soft_slots *slots,
			      struct pn_mr *const *mrs, unsigned n)
{
	unpublish(slots, mrs, n);
	retry_stuck(slots);
	if (unpin(slots, mrs, n))
		for (unsigned i = 0; i < n; i++)
			unpin_or_keep(slots, mrs[i]);
	for (unsigned i = 0; i < n; i++)
		mrs[i]->lkey = mrs[i]->rkey = 0;
}

int pn_soft_slots_rekey(struct pn_soft_slots *slots, struct pn_mr *mr)
{
	struct pn_soft_table *table =
		pn_soft_slots_table(slots, mr->device_slot);
	unsigned slot = pn_soft_location_slot(mr->device_slot);
	uint64_t generation = next_generation(slots);

	if (!table->ring.slots)
		return -EINVAL;
	pn_soft_ring_lock(&table->ring);
	atomic_store(&table->ring.slots[slot].generation, generation);
	pn_soft_ring_unlock(&table->ring);
	mr->rkey = pn_soft_key(generation, mr->device_slot);
	return 0;
}

bool pn_soft_slots_covers(struct pn_soft_slots *slots, uint64_t lkey,
			  const void *addr, size_t len, unsigned access)
{
	struct pn_soft_table *table = pn_soft_slots_table(slots, lkey);
	unsigned slot = pn_soft_location_slot(lkey);
	struct pn_soft_access use = { lkey, (uintptr_t)addr, len, access };
	uint64_t base;

	return table && slot < slots->nslots &&
	       pn_soft_slot_grants(&table->local[slot], &use, &base);
}

/* --- statistics ---------------------------------------------------------- */

void pn_soft_slots_pinned(struct pn_soft_slots *slots, struct pn_pinned *out)
{
	out->deferred_bytes = pn_soft_deferred_bytes(slots);
	out->live_bytes = atomic_load(&slots->live_bytes);
	out->mrs = atomic_load(&slots->mrs);
	out->device_bytes = atomic_load(&slots->device_bytes);
}

/* Registers and deregisters a page, to see whether VmPin falls at once. If not,
 * that page is the first dying entry. */
static void detect_deferred_uncharge(struct pn_soft_slots *slots)
{
	struct pn_mr mr = { .len = PN_PAGE_BYTES };
	struct pn_mr *mrs[] = { &mr };

	if (pn_pages_map(mr.len, NULL, &mr.addr))
		return;
	if (!pn_soft_slots_register(slots, mrs, 1)) {
		size_t pinned = pn_huge_vmpin();

		slots->deferred_uncharge = true;
		pn_soft_slots_deregister(slots, mrs, 1);
		slots->deferred_uncharge =
			pinned != SIZE_MAX && pn_huge_vmpin() >= pinned;
		if (!slots->deferred_uncharge)
			slots->ndying = 0;
	}
	pn_pages_unmap(mr.addr, PN_PAGE_BYTES, NULL);
}

unsigned pn_soft_slots_rings(struct pn_soft_slots *slots)
{
	unsigned n;

	pn_lock(&slots->lock);
	n = slots->ntables[PN_SOFT_PRIVATE] + slots->ntables[PN_SOFT_EXPOSED];
	pn_unlock(&slots->lock);
	return n;
}

/* --- init and fini ------------------------------------------------------- */

int pn_soft_slots_init(struct pn_soft_slots *slots,
		       struct pn_soft_shared *shared,
		       const struct pn_soft_slots_attr *attr)
{
	uint64_t seed = 0;
	int ret = 0;

	memset(slots, 0, sizeof(*slots));
	slots->shared = shared;
	slots->device = attr->device;
	slots->nslots = attr->nslots;
	slots->max_rings = attr->max_rings;
	slots->uses_uring = attr->uses_uring;
	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = pn_clock_ns();
	/* Leaves half of the 47 bits to count up. */
	slots->generation = seed >> 18;
	pn_mutex_init(&slots->lock);
	pn_lock(&slots->lock);
	for (unsigned f = 0; f < PN_SOFT_FAMILIES && !ret; f++)
		ret = add_table(slots, (enum pn_soft_family)f);
	pn_unlock(&slots->lock);
	if (ret)
		pn_soft_slots_fini(slots);
	else if (attr->uses_uring)
		detect_deferred_uncharge(slots);
	return ret;
}

/* Peers may keep the ring's file a little longer: the pages must be unpinned
 * now. */
static void empty_table(struct pn_soft_slots *slots,
			struct pn_soft_table *table)
{
	pn_soft_ring_lock(&table->ring);
	for (unsigned i = 0; i < slots->nslots; i++)
		if (table->ring.slots)
			pn_soft_slot_clear(&table->ring.slots[i]);
	pn_soft_ring_unlock(&table->ring);
	pn_soft_unpin_table(slots, table);
}

void pn_soft_slots_fini(struct pn_soft_slots *slots)
{
	for (unsigned f = 0; f < PN_SOFT_FAMILIES; f++)
		for (unsigned i = 0; i < PN_SOFT_RINGS; i++) {
			struct pn_soft_table *table = slots->tables[f][i];

			if (!table)
				continue;
			empty_table(slots, table);
			free_table(table);
			slots->tables[f][i] = NULL;
		}
	pn_mutex_fini(&slots->lock);
}
