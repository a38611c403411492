/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * range -- arithmetic on address ranges that cannot overflow.
 *
 * A range is [addr, addr + len), len > 0, not wrapping around. Addresses that
 * come from callers or peers go through pn_range_valid() first; the other
 * functions rely on it.
 */
#ifndef PN_BASE_RANGE_H
#define PN_BASE_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The unit of the cost profiles and of registration bookkeeping. */
#define PN_PAGE_SHIFT 12
#define PN_PAGE_BYTES ((size_t)1 << PN_PAGE_SHIFT)

struct pn_range {
	uintptr_t addr;
	size_t len;
};

/* Leaves room for rounding up to a page. */
static inline bool pn_range_valid(uintptr_t addr, size_t len)
{
	return addr && len && addr <= UINTPTR_MAX - PN_PAGE_BYTES &&
	       len <= UINTPTR_MAX - PN_PAGE_BYTES - addr;
}

static inline bool pn_range_overlaps(struct pn_range a, struct pn_range b)
{
	return a.addr < b.addr + b.len && b.addr < a.addr + a.len;
}

/* Whether `inner` lies wholly in `outer`. */
static inline bool pn_range_covers(struct pn_range outer, struct pn_range inner)
{
	return inner.addr >= outer.addr &&
	       inner.addr - outer.addr <= outer.len &&
	       inner.len <= outer.len - (inner.addr - outer.addr);
}

/* The smallest range that has both. */
static inline struct pn_range pn_range_hull(struct pn_range a,
					    struct pn_range b)
{
	uintptr_t start = a.addr < b.addr ? a.addr : b.addr;
	uintptr_t a_end = a.addr + a.len, b_end = b.addr + b.len;

	return (struct pn_range){ start,
				  (a_end > b_end ? a_end : b_end) - start };
}

/* The whole pages that [addr, addr + len) touches; `page` a power of two. */
static inline struct pn_range pn_range_pages(uintptr_t addr, size_t len,
					     size_t page)
{
	uintptr_t start = addr & ~(page - 1);
	uintptr_t end = (addr + len + page - 1) & ~(page - 1);

	return (struct pn_range){ start, end - start };
}

/* How many 4 KiB pages [addr, addr + len) touches. */
static inline size_t pn_range_npages(uintptr_t addr, size_t len)
{
	return pn_range_pages(addr, len, PN_PAGE_BYTES).len >> PN_PAGE_SHIFT;
}

#endif
