/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The filter answers "may a byte of this range be watched?" in a few
 * nanoseconds, without a lock, inside free(). It is a counting hash over
 * granules of 2 MiB: a watch counts in the bucket of each granule that it
 * touches, and a release reads the buckets of its granules. Buckets are shared,
 * so a yes may be wrong and a no never is. The span of all watches answers for
 * most releases before a bucket is read.
 *
 * Order: the counts are increased before pn_monitor_watch() returns; hooks read
 * them before and after the system call. If a watch is made while a release
 * runs, the second read sees it at the latest: registering memory and releasing
 * it both take the kernel's lock on the address space, which orders the two.
 */
#include <stdatomic.h>

#include "base/compiler.h"
#include "monitor/monitor_impl.h"

#define GRANULE_SHIFT 21
#define BUCKETS_LOG2  15

/* For more granules than this (128 MiB) the buckets are not read: the callback
 * costs little beside such a release. */
#define MAX_GRANULES 64

static _Atomic uint32_t buckets[1 << BUCKETS_LOG2];
static _Atomic size_t nwatches;
/* The span of all watches so far; it only grows. */
static _Atomic uintptr_t low = UINTPTR_MAX, high;

static _Atomic uint32_t *bucket_of(uintptr_t granule)
{
	uint64_t hash = granule * UINT64_C(0x9e3779b97f4a7c15);

	return &buckets[hash >> (64 - BUCKETS_LOG2)];
}

static uintptr_t last_granule(struct pn_range range)
{
	return (range.addr + range.len - 1) >> GRANULE_SHIFT;
}

static void widen(struct pn_range range)
{
	uintptr_t end = range.addr + range.len;
	uintptr_t old = atomic_load(&low);

	while (range.addr < old &&
	       !atomic_compare_exchange_weak(&low, &old, range.addr))
		;
	old = atomic_load(&high);
	while (end > old && !atomic_compare_exchange_weak(&high, &old, end))
		;
}

void pn_filter_add(struct pn_range range)
{
	atomic_fetch_add(&nwatches, 1);
	for (uintptr_t g = range.addr >> GRANULE_SHIFT;
	     g <= last_granule(range); g++)
		atomic_fetch_add(bucket_of(g), 1);
	widen(range);
}

void pn_filter_remove(struct pn_range range)
{
	for (uintptr_t g = range.addr >> GRANULE_SHIFT;
	     g <= last_granule(range); g++)
		pn_assert(atomic_fetch_sub(bucket_of(g), 1) > 0);
	pn_assert(atomic_fetch_sub(&nwatches, 1) > 0);
}

bool pn_filter_may_overlap(struct pn_range range)
{
	uintptr_t first = range.addr >> GRANULE_SHIFT;
	uintptr_t last = last_granule(range);

	if (range.addr >= atomic_load_explicit(&high, memory_order_acquire) ||
	    range.addr + range.len <=
		    atomic_load_explicit(&low, memory_order_acquire))
		return false;
	if (last - first >= MAX_GRANULES)
		return atomic_load(&nwatches) > 0;
	for (uintptr_t g = first; g <= last; g++)
		if (atomic_load_explicit(bucket_of(g), memory_order_acquire))
			return true;
	return false;
}
