/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slabs and the runs of pages in them.
 *
 * A run is allocated from a slab of its kind with little to spare, and there
 * from the shortest stretch of free pages that is long enough: long stretches
 * stay for long runs. Slabs are in bins by the logarithm of their longest
 * stretch; the search begins with the lowest bin that may do, and looks at few
 * slabs. An empty slab is used only when no other has a stretch: it may be
 * about to return to the system.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"
#include "heap/heap_impl.h"

/* When to try again to return a slab that could not be deregistered. */
#define RETRY_NS (100 * PN_NS_PER_MS)

/* --- stretches of free pages ---------------------------------------------- */

/* The first bit from `at` on whose value is `set`; n: none. */
static uint32_t next_bit(const uint64_t *words, uint32_t n, uint32_t at,
			 bool set)
{
	const uint64_t flip = set ? 0 : ~UINT64_C(0);

	while (at < n) {
		uint64_t word = (words[at / 64] ^ flip) >> (at % 64);

		if (word) {
			at += (uint32_t)__builtin_ctzll(word);
			return at < n ? at : n;
		}
		at = (at | 63) + 1;
	}
	return n;
}

struct stretch {
	uint32_t start, end;
};

/* The next stretch from s->end on; false: there is none. */
static bool next_stretch(const struct pn_slab *slab, struct stretch *s)
{
	s->start = next_bit(slab->used, slab->npages, s->end, false);
	s->end = next_bit(slab->used, slab->npages, s->start, true);
	return s->start < slab->npages;
}

static void update_largest(struct pn_slab *slab)
{
	struct stretch s = { 0, 0 };

	slab->largest = 0;
	while (next_stretch(slab, &s))
		if (s.end - s.start > slab->largest)
			slab->largest = s.end - s.start;
}

static void mark(struct pn_slab *slab, uint32_t start, uint32_t npages,
		 bool used)
{
	pn_bits_set(slab->used, start, npages, used);
	if (used)
		slab->nused += npages;
	else
		slab->nused -= npages;
	update_largest(slab);
}

/* The shortest stretch that is long enough for the run; false: none. */
static bool best_fit(const struct pn_slab *slab,
		     const struct pn_run_request *request, uint32_t *start)
{
	struct stretch s = { 0, 0 };
	uint32_t best = UINT32_MAX;

	while (next_stretch(slab, &s)) {
		size_t mask = request->align_pages - 1;
		uint32_t at =
			(uint32_t)((slab->first + s.start + mask) & ~mask) -
			slab->first;

		if (at + request->npages > s.end || s.end - s.start >= best)
			continue;
		best = s.end - s.start;
		*start = at;
	}
	return best < UINT32_MAX;
}

unsigned pn_run_kind(size_t npages)
{
	size_t bytes = npages << PN_PAGE_SHIFT;
	unsigned kind = 1;

	while (kind < PN_SLAB_KINDS - 1 && bytes > PN_HEAP_SMALL_BYTES << kind)
		kind++;
	return kind;
}

/* --- finding a slab ------------------------------------------------------- */

static unsigned bin_of(uint32_t npages)
{
	return 31 - (unsigned)__builtin_clz(npages);
}

/* Moves the slab to the list for its longest stretch. */
static void relink(struct pinion_heap *heap, struct pn_slab *slab)
	PN_REQUIRES(&heap->lock)
{
	pn_list_remove(&slab->link);
	if (!slab->nused) {
		slab->empty_ns = 0;
		pn_list_append(&heap->empty, &slab->link);
		atomic_store(&heap->slab_emptied, true);
	} else if (slab->largest) {
		pn_list_insert(&heap->bins[slab->kind][bin_of(slab->largest)],
			       &slab->link);
	}
}

static bool take_from(struct pinion_heap *heap, struct pn_slab *slab,
		      const struct pn_run_request *request, size_t *first)
	PN_REQUIRES(&heap->lock)
{
	uint32_t start;

	if (slab->largest < request->npages || !best_fit(slab, request, &start))
		return false;
	if (!slab->nused)
		slab->kind = request->kind;
	mark(slab, start, (uint32_t)request->npages, true);
	relink(heap, slab);
	*first = slab->first + start;
	return true;
}

/* The shortest empty slab that is long enough. */
static struct pn_slab *find_empty(struct pinion_heap *heap,
				  const struct pn_run_request *request)
	PN_REQUIRES(&heap->lock)
{
	struct pn_slab *best = NULL;
	struct pn_list *pos;

	pn_list_for_each (pos, &heap->empty) {
		struct pn_slab *slab =
			pn_container_of(pos, struct pn_slab, link);

		if (slab->npages >= request->npages &&
		    !(slab->first & (request->align_pages - 1)) &&
		    (!best || slab->npages < best->npages))
			best = slab;
	}
	return best;
}

/* Allocates the run from a slab of one bin. In the first bin the longest
 * stretch may be too short; in all others only the alignment can rule a slab
 * out, so looking at a few is enough. */
static bool take_from_bin(struct pinion_heap *heap, struct pn_list *list,
			  const struct pn_run_request *request, size_t *first)
	PN_REQUIRES(&heap->lock)
{
	unsigned left = 64;
	struct pn_list *pos;

	pn_list_for_each (pos, list) {
		struct pn_slab *slab =
			pn_container_of(pos, struct pn_slab, link);

		if (take_from(heap, slab, request, first))
			return true;
		if (!--left)
			break;
	}
	return false;
}

bool pn_run_alloc_locked(struct pinion_heap *heap,
			 const struct pn_run_request *request, size_t *first)
{
	struct pn_slab *empty;

	if (request->npages > heap->npages)
		return false;
	for (unsigned room = bin_of((uint32_t)request->npages);
	     room < PN_HEAP_NBINS; room++)
		if (take_from_bin(heap, &heap->bins[request->kind][room],
				  request, first))
			return true;
	empty = find_empty(heap, request);
	return empty && take_from(heap, empty, request, first);
}

bool pn_run_alloc_any_locked(struct pinion_heap *heap,
			     struct pn_run_request request, size_t *first)
{
	for (request.kind = 0; request.kind < PN_SLAB_KINDS; request.kind++)
		if (pn_run_alloc_locked(heap, &request, first))
			return true;
	return false;
}

void pn_run_free_locked(struct pinion_heap *heap, size_t first, size_t npages)
{
	struct pn_slab *slab = atomic_load_explicit(
		&heap->slabs_at[first / PN_HEAP_UNIT_PAGES],
		memory_order_relaxed);

	mark(slab, (uint32_t)first - slab->first, (uint32_t)npages, false);
	relink(heap, slab);
}

/* --- acquiring slabs ------------------------------------------------------ */

static size_t nunits(const struct pn_slab *slab)
{
	return (slab->npages + PN_HEAP_UNIT_PAGES - 1) / PN_HEAP_UNIT_PAGES;
}

static void set_units(struct pinion_heap *heap, const struct pn_slab *at,
		      struct pn_slab *value)
{
	size_t unit = at->first / PN_HEAP_UNIT_PAGES;

	for (size_t i = 0; i < nunits(at); i++)
		atomic_store_explicit(&heap->slabs_at[unit + i], value,
				      memory_order_release);
}

/* How many units from `unit` on are free, at most n. */
static size_t count_free_units(struct pinion_heap *heap, size_t unit, size_t n)
{
	size_t i = 0;

	while (i < n && !atomic_load_explicit(&heap->slabs_at[unit + i],
					      memory_order_relaxed))
		i++;
	return i;
}

/* Reserves units of the arena for the slab: the lowest that are free, so that
 * the arena stays dense. */
static int reserve_units(struct pinion_heap *heap, struct pn_slab *slab,
			 size_t align) PN_REQUIRES(&heap->lock)
{
	size_t end = heap->npages / PN_HEAP_UNIT_PAGES, n = nunits(slab);
	size_t at = (heap->low_unit + align - 1) & ~(align - 1);

	while (n <= end && at <= end - n) {
		size_t run = count_free_units(heap, at, n);

		if (run == n) {
			slab->first = (uint32_t)(at * PN_HEAP_UNIT_PAGES);
			set_units(heap, slab, slab);
			if (at == heap->low_unit)
				heap->low_unit = at + n;
			return 0;
		}
		at = (at + run + align) & ~(align - 1);
	}
	return -ENOMEM;
}

static void unreserve_units(struct pinion_heap *heap, struct pn_slab *slab)
{
	size_t unit = slab->first / PN_HEAP_UNIT_PAGES;

	pn_lock(&heap->lock);
	set_units(heap, slab, NULL);
	if (unit < heap->low_unit)
		heap->low_unit = unit;
	pn_unlock(&heap->lock);
}

static size_t slab_bytes(const struct pn_slab *slab)
{
	return (size_t)slab->npages << PN_PAGE_SHIFT;
}

static void *slab_address(struct pinion_heap *heap, const struct pn_slab *slab)
{
	return pn_heap_address(heap, slab->first);
}

/* Gives the slab pages and registers them. */
static int populate(struct pinion_heap *heap, struct pn_slab *slab)
{
	void *addr = slab_address(heap, slab);
	int ret = pn_pages_commit(addr, slab_bytes(slab), &heap->attr.pages);

	if (ret)
		return ret;
	if (heap->attr.no_fork)
		madvise(addr, slab_bytes(slab), MADV_DONTFORK);
	ret = pn_cache_resident_add(heap->attr.cache,
				    (struct pn_range){ (uintptr_t)addr,
						       slab_bytes(slab) },
				    heap->attr.access, &slab->mr);
	if (ret)
		pn_pages_decommit(addr, slab_bytes(slab));
	return ret;
}

/* When the budget is full, returns the heap's own empty slabs and tries again.
 */
static int populate_or_shrink(struct pinion_heap *heap, struct pn_slab *slab)
{
	uint64_t before = atomic_load(&heap->nreturned);
	int ret = populate(heap, slab);

	if (ret != -ENOBUFS)
		return ret;
	pn_slab_shrink(heap);
	return atomic_load(&heap->nreturned) > before ? populate(heap, slab)
						      : ret;
}

static size_t slab_pages(const struct pinion_heap *heap, size_t npages)
{
	size_t least = heap->attr.slab_bytes >> PN_PAGE_SHIFT;
	size_t huge = PN_PAGES_HUGE_BYTES >> PN_PAGE_SHIFT;

	if (npages < least)
		npages = least;
	if (heap->attr.pages.huge == PN_PAGES_HUGETLB)
		npages = (npages + huge - 1) / huge * huge;
	return npages;
}

static struct pn_slab *slab_alloc(size_t npages)
{
	struct pn_slab *slab =
		calloc(1, sizeof(*slab) + PN_BITS_WORDS(npages) *
						  sizeof(slab->used[0]));

	if (!slab)
		return NULL;
	pn_list_init(&slab->link);
	slab->npages = slab->largest = (uint32_t)npages;
	return slab;
}

static void add_slab(struct pinion_heap *heap, struct pn_slab *slab)
{
	pn_lock(&heap->lock);
	heap->nslabs++;
	heap->slab_bytes += slab_bytes(slab);
	relink(heap, slab);
	pn_unlock(&heap->lock);
}

int pn_slab_acquire(struct pinion_heap *heap,
		    const struct pn_run_request *request)
{
	size_t npages = slab_pages(heap, request->npages);
	size_t align = request->align_pages / PN_HEAP_UNIT_PAGES;
	struct pn_slab *slab;
	int ret;

	if (request->npages > heap->npages || npages > heap->npages)
		return -ENOMEM;
	/* Aligned for huge pages. */
	if (npages << PN_PAGE_SHIFT >= PN_PAGES_HUGE_BYTES)
		align = PN_PAGES_HUGE_BYTES >> PN_HEAP_UNIT_SHIFT;
	slab = slab_alloc(npages);
	if (!slab)
		return -ENOMEM;
	pn_lock(&heap->lock);
	ret = reserve_units(heap, slab, align ? align : 1);
	pn_unlock(&heap->lock);
	if (ret)
		goto free_slab;
	ret = populate_or_shrink(heap, slab);
	if (ret)
		goto unreserve_units;
	add_slab(heap, slab);
	atomic_fetch_add(&heap->nregistrations, 1);
	return 0;

unreserve_units:
	unreserve_units(heap, slab);
free_slab:
	free(slab);
	return ret;
}

/* --- returning slabs ------------------------------------------------------ */

/* False: the slab could not be deregistered and stays the heap's. */
static bool return_slab(struct pinion_heap *heap, struct pn_slab *slab)
{
	if (!pn_cache_resident_remove(heap->attr.cache, slab->mr))
		return false;
	pn_pages_decommit(slab_address(heap, slab), slab_bytes(slab));
	unreserve_units(heap, slab);
	free(slab);
	atomic_fetch_add(&heap->nreturned, 1);
	return true;
}

/* Takes the slab that has been empty longest out of the list, if it has been
 * for age_ns; else sets *next to when it will have been. Also stamps slabs that
 * became empty since the last call. */
static struct pn_slab *take_expired(struct pinion_heap *heap, uint64_t now_ns,
				    uint64_t age_ns, uint64_t *next)
{
	struct pn_slab *found = NULL;
	struct pn_list *pos;

	*next = PN_FOREVER;
	pn_lock(&heap->lock);
	pn_list_for_each (pos, &heap->empty) {
		struct pn_slab *slab =
			pn_container_of(pos, struct pn_slab, link);

		if (!slab->empty_ns)
			slab->empty_ns = now_ns;
	}
	if (!pn_list_empty(&heap->empty)) {
		found = pn_container_of(heap->empty.next, struct pn_slab, link);
		if (now_ns - found->empty_ns < age_ns) {
			*next = age_ns < PN_FOREVER - found->empty_ns
					? found->empty_ns + age_ns
					: PN_FOREVER;
			found = NULL;
		}
	}
	if (found) {
		pn_list_remove(&found->link);
		heap->nslabs--;
		heap->slab_bytes -= slab_bytes(found);
	}
	pn_unlock(&heap->lock);
	return found;
}

uint64_t pn_slab_return_empty(struct pinion_heap *heap, uint64_t age_ns)
{
	struct pn_slab *slab;
	uint64_t next;

	while ((slab = take_expired(heap, pn_device_now(heap->attr.device),
				    age_ns, &next)))
		if (!return_slab(heap, slab)) {
			add_slab(heap, slab);
			return pn_device_now(heap->attr.device) + RETRY_NS;
		}
	return next;
}

size_t pn_slab_shrink(struct pinion_heap *heap)
{
	uint64_t before = atomic_load(&heap->nreturned);

	pn_slab_return_empty(heap, 0);
	return atomic_load(&heap->nreturned) - before;
}

void pn_slab_schedule_return(struct pinion_heap *heap)
{
	uint64_t next;

	if (!atomic_load_explicit(&heap->slab_emptied, memory_order_relaxed) ||
	    !atomic_exchange(&heap->slab_emptied, false))
		return;
	next = pn_slab_return_empty(heap, heap->attr.return_ns);
	if (next != PN_FOREVER)
		pn_cache_task_schedule(heap->attr.cache, &heap->task, next);
}

uint64_t pn_heap_step(struct pinion_heap *heap)
{
	return pn_slab_return_empty(heap, heap->attr.return_ns);
}

/* Returns all slabs, whatever is allocated in them: the heap is being closed.
 */
void pn_slabs_close(struct pinion_heap *heap) PN_NO_THREAD_SAFETY
{
	for (size_t i = 0; i < heap->npages / PN_HEAP_UNIT_PAGES;) {
		struct pn_slab *slab =
			atomic_load_explicit(&heap->slabs_at[i],
					     memory_order_relaxed);

		i += slab ? nunits(slab) : 1;
		if (slab && !return_slab(heap, slab)) {
			pn_cache_resident_abandon(heap->attr.cache, slab->mr);
			heap->leaked_slabs = true;
			free(slab);
		}
	}
}
