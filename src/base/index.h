/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * index -- which object covers a page: a map from address to a small number.
 *
 * The idea is SPDK's memory map: a flat array for each piece of address space,
 * so that a look-up is two dependent loads whatever the map holds. The address
 * space is cut into granules of 1 GiB. `top` has one pointer for each granule,
 * to a leaf with one 32-bit entry per 4 KiB page. Both are reserved address
 * space that the kernel backs when touched: a page of a leaf has the entries of
 * 4 MiB of addresses, so a dense population costs 4 bytes per page, and one
 * object by itself in its granule costs 4 KiB.
 *
 * 0 stands for nothing. An object that covers n pages has n equal entries;
 * writing them costs about 0.1 ns each, far below registering a page.
 *
 * Threads: any number read at any time without a lock; writers hold the owner's
 * lock. A reader gets the value of some moment during the call. Leaves live
 * until pn_index_fini().
 */
#ifndef PN_BASE_INDEX_H
#define PN_BASE_INDEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/range.h"

#define PN_INDEX_GRANULE_SHIFT 30
#define PN_INDEX_ADDRESS_BITS  48
#define PN_INDEX_NGRANULES \
	((size_t)1 << (PN_INDEX_ADDRESS_BITS - PN_INDEX_GRANULE_SHIFT))
#define PN_INDEX_LEAF_ENTRIES \
	((size_t)1 << (PN_INDEX_GRANULE_SHIFT - PN_PAGE_SHIFT))

typedef _Atomic uint32_t pn_index_entry;

struct pn_index {
	pn_index_entry *_Atomic *top;
	size_t nleaves;
};

/* -ENOMEM. */
int pn_index_init(struct pn_index *index);
void pn_index_fini(struct pn_index *index);

/* The entry of the page of addr; NULL: its granule never had an object. */
static inline pn_index_entry *pn_index_entry_of(const struct pn_index *index,
						uintptr_t addr)
{
	size_t granule = addr >> PN_INDEX_GRANULE_SHIFT;
	pn_index_entry *leaf;

	if (pn_unlikely(granule >= PN_INDEX_NGRANULES))
		return NULL;
	/* Pairs with the release in pn_index_reserve(). */
	leaf = atomic_load_explicit(&index->top[granule], memory_order_acquire);
	if (pn_unlikely(!leaf))
		return NULL;
	return &leaf[addr >> PN_PAGE_SHIFT & (PN_INDEX_LEAF_ENTRIES - 1)];
}

/* What covers the page of addr; 0: nothing. Pairs with the release in
 * pn_index_set(): what was written to the object before is visible. */
static inline uint32_t pn_index_get(const struct pn_index *index,
				    uintptr_t addr)
{
	pn_index_entry *entry = pn_index_entry_of(index, addr);

	return entry ? atomic_load_explicit(entry, memory_order_acquire) : 0;
}

/* Makes the leaves for pn_index_set(). -ENOMEM; -ERANGE: addresses beyond 2^48,
 * which no index holds. */
int pn_index_reserve(struct pn_index *index, struct pn_range range);

/* Sets the entries of a range of whole pages, reserved before. */
void pn_index_set(struct pn_index *index, struct pn_range range, uint32_t id);

/* Where the entries are counts: adds 1 to each entry of such a range, or takes
 * 1 away. Returns how many of them were 0 or became 0. */
size_t pn_index_count_up(struct pn_index *index, struct pn_range range);
size_t pn_index_count_down(struct pn_index *index, struct pn_range range);

/* The first page in range with an entry, or range's end. */
uintptr_t pn_index_next(const struct pn_index *index, struct pn_range range);

/* Whether an entry in range is not 0. Safe in a release notification. */
static inline bool pn_index_any(const struct pn_index *index,
				struct pn_range range)
{
	return pn_index_next(index, range) < range.addr + range.len;
}

#endif
