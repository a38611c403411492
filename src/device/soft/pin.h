/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pin -- pins the pages of registrations by filling their slots, and charges
 * the account for them. A part of slots.h: only slots.c uses it.
 *
 * A charge is made before the pages are pinned. It is first an upper bound that
 * costs nothing to compute. Where that bound exceeds the limit, the page tables
 * and VmPin say how much the kernel charges (pin_near_limit()).
 * Threads: any. slots->lock protects the dying entries and is not held while
 * pages are pinned; account->near_limit may be.
 */
#ifndef PN_DEVICE_SOFT_PIN_H
#define PN_DEVICE_SOFT_PIN_H

#include "base/range.h"
#include "device/soft/slots.h"

/* The number of slots that a registration fills. */
static inline unsigned pn_soft_slots_needed(const struct pn_mr *mr)
{
	uint64_t base = (uintptr_t)mr->addr;

	return pn_soft_slot_of(base, base + mr->len - 1) + 1;
}

static inline struct pn_range pn_soft_pages_of(const struct pn_mr *mr)
{
	return pn_range_pages((uintptr_t)mr->addr, mr->len, PN_PAGE_BYTES);
}

static inline bool pn_soft_is_pinned(const struct pn_mr *mr)
{
	return !(mr->access & PN_ACCESS_UNPINNED);
}

static inline size_t pn_soft_bytes_of(const struct pn_mr *mr)
{
	return pn_soft_is_pinned(mr) ? pn_soft_pages_of(mr).len : 0;
}

/* Pins and charges n registrations, whose slots are allocated: all or none.
 * -ENOMEM: a limit; -EFAULT: not mapped, or not in a way that can be pinned. */
int pn_soft_pin(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		unsigned n);
/* -ENOMEM: the kernel has no memory to do it; some may be unpinned, all are
 * still charged. Calling it again is fine. */
int pn_soft_unpin(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		  unsigned n);

/* Unpins and uncharges all that a table holds. */
void pn_soft_unpin_table(struct pn_soft_slots *slots,
			 struct pn_soft_table *table);

/* The bytes of unpinned pages that the kernel may still charge. */
size_t pn_soft_deferred_bytes(struct pn_soft_slots *slots);

#endif
