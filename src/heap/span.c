/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Spans: runs of pages divided into blocks of one class, or one large block.
 *
 * The free blocks of a span are bits outside its memory. Spans with free blocks
 * are in a list for each class. The first is used up before the next one is
 * touched, and a span that gets blocks back goes to the end, so that spans at
 * the end have a chance to become free as a whole.
 */
#include <errno.h>

#include "heap/heap_impl.h"

#define MIN_PAGES 4  /* of a span with blocks of up to a page */
#define MAX_PAGES 32 /* of any span with blocks */

/* A slab of any kind. */
#define ANY_KIND PN_SLAB_KINDS

/* The shortest run of which at most 1/32 is a tail too short for a block. */
static size_t span_pages(size_t block)
{
	size_t least = (block + PN_PAGE_BYTES - 1) >> PN_PAGE_SHIFT;
	size_t npages = block <= PN_PAGE_BYTES ? MIN_PAGES : least;

	while (npages < MAX_PAGES) {
		size_t bytes = npages << PN_PAGE_SHIFT;

		if (bytes % block <= bytes / 32)
			break;
		npages++;
	}
	return npages;
}

struct pn_span *pn_span_at(struct pinion_heap *heap, size_t page)
{
	return &heap->spans[atomic_load_explicit(&heap->spans_at[page],
						 memory_order_relaxed)];
}

static struct pn_span *span_alloc(struct pinion_heap *heap)
	PN_REQUIRES(&heap->lock)
{
	uint32_t id = heap->unused_span;

	if (id)
		heap->unused_span = heap->spans[id].next_unused;
	else
		id = ++heap->nspans; /* 0 means none in the map */
	return &heap->spans[id];
}

/* Sets the maps for all pages of a span; id 0 and class 0: no span. */
static void map_span(struct pinion_heap *heap, const struct pn_span *span,
		     uint32_t id, unsigned class)
{
	for (size_t i = span->first; i < span->first + span->npages; i++) {
		atomic_store_explicit(&heap->spans_at[i], id,
				      memory_order_relaxed);
		atomic_store_explicit(&heap->classes[i], (uint8_t) class,
				      memory_order_relaxed);
	}
}

static void free_all_blocks(struct pn_span *span)
{
	for (uint32_t i = 0; i < PN_SPAN_WORDS; i++) {
		uint32_t left = span->nblocks - i * 64;

		if (i * 64 >= span->nblocks)
			span->free[i] = 0;
		else
			span->free[i] = left < 64 ? (UINT64_C(1) << left) - 1
						  : ~UINT64_C(0);
#ifdef PINION_CHECK
		atomic_store(&span->live[i], 0);
#endif
	}
	span->nfree = span->nblocks;
}

/* A new span in a run of the existing slabs; NULL: none has one. */
static struct pn_span *span_begin(struct pinion_heap *heap,
				  const struct pn_run_request *request,
				  unsigned class, size_t nblocks)
	PN_REQUIRES(&heap->lock)
{
	struct pn_span *span;
	size_t first;

	if (request->kind == ANY_KIND
		    ? !pn_run_alloc_any_locked(heap, *request, &first)
		    : !pn_run_alloc_locked(heap, request, &first))
		return NULL;
	span = span_alloc(heap);
	pn_list_init(&span->link);
	span->first = (uint32_t)first;
	span->npages = (uint32_t)request->npages;
	span->class = (uint8_t) class;
	span->nblocks = (uint32_t)nblocks;
	free_all_blocks(span);
	heap->run_bytes += request->npages << PN_PAGE_SHIFT;
	map_span(heap, span, (uint32_t)(span - heap->spans), class);
	return span;
}

static void span_end(struct pinion_heap *heap, struct pn_span *span)
	PN_REQUIRES(&heap->lock)
{
	pn_list_remove(&span->link);
	map_span(heap, span, 0, 0);
	heap->run_bytes -= (size_t)span->npages << PN_PAGE_SHIFT;
	pn_run_free_locked(heap, span->first, span->npages);
	span->next_unused = heap->unused_span;
	heap->unused_span = (uint32_t)(span - heap->spans);
}

/* --- blocks --------------------------------------------------------------- */

/* Takes up to n free blocks of a span; returns how many. */
static unsigned take_from_span(struct pinion_heap *heap, struct pn_span *span,
			       void **blocks, unsigned n)
	PN_REQUIRES(&heap->lock)
{
	size_t bytes = pn_heap_class_bytes(span->class);
	char *start = pn_heap_address(heap, span->first);
	unsigned got = 0;

	for (unsigned i = 0; got < n && i < PN_SPAN_WORDS; i++) {
		while (got < n && span->free[i]) {
			unsigned bit = (unsigned)__builtin_ctzll(span->free[i]);

			span->free[i] &= span->free[i] - 1;
			blocks[got++] = start + (i * 64 + bit) * bytes;
		}
	}
	span->nfree -= got;
	if (!span->nfree)
		pn_list_remove(&span->link);
	return got;
}

static struct pn_run_request class_want(unsigned class, unsigned kind)
{
	return (struct pn_run_request){ .npages = span_pages(
						pn_heap_class_bytes(class)),
					.align_pages = 1,
					.kind = kind };
}

/* Takes up to n free blocks of the existing slabs; 0: there are none. */
static unsigned alloc_blocks(struct pinion_heap *heap, unsigned class,
			     unsigned kind, void **blocks, unsigned n)
{
	struct pn_run_request request = class_want(class, kind);
	size_t bytes = request.npages << PN_PAGE_SHIFT;
	unsigned got = 0;

	pn_lock(&heap->lock);
	while (got < n) {
		struct pn_list *list = &heap->spans_of[class];
		struct pn_span *span;

		if (pn_list_empty(list)) {
			if (got)
				break;
			span = span_begin(heap, &request, class,
					  bytes / pn_heap_class_bytes(class));
			if (!span)
				break;
			pn_list_append(list, &span->link);
		}
		span = pn_container_of(list->next, struct pn_span, link);
		got += take_from_span(heap, span, blocks + got, n - got);
	}
	pn_unlock(&heap->lock);
	return got;
}

int pn_span_alloc_blocks(struct pinion_heap *heap, unsigned class,
			 void **blocks, unsigned n)
{
	struct pn_run_request request = class_want(class, 0);

	for (;;) {
		unsigned got =
			alloc_blocks(heap, class, request.kind, blocks, n);
		int ret;

		if (got)
			return (int)got;
		ret = pn_slab_acquire(heap, &request);
		if (!ret)
			continue;
		/* In a slab with large blocks rather than not at all. */
		got = alloc_blocks(heap, class, ANY_KIND, blocks, n);
		return got ? (int)got : ret;
	}
}

bool pn_span_block(struct pinion_heap *heap, const struct pn_span *span,
		   const void *addr, uint32_t *index)
{
	size_t offset = (size_t)((const char *)addr -
				 (char *)pn_heap_address(heap, span->first));
	size_t bytes = span->class == PN_HEAP_LARGE
			       ? (size_t)span->npages << PN_PAGE_SHIFT
			       : pn_heap_class_bytes(span->class);

	*index = (uint32_t)(offset / bytes);
	return *index < span->nblocks && !(offset % bytes);
}

static void free_block(struct pinion_heap *heap, void *block)
	PN_REQUIRES(&heap->lock)
{
	struct pn_span *span = pn_span_at(heap, pn_heap_page(heap, block));
	uint32_t index;

	pn_debug_assert(pn_span_block(heap, span, block, &index));
	pn_span_block(heap, span, block, &index);
	span->free[index / 64] |= UINT64_C(1) << (index % 64);
	if (!span->nfree++)
		pn_list_append(&heap->spans_of[span->class], &span->link);
	if (span->nfree == span->nblocks)
		span_end(heap, span);
}

void pn_span_free_blocks(struct pinion_heap *heap, void *const *blocks,
			 unsigned n)
{
	pn_lock(&heap->lock);
	for (unsigned i = 0; i < n; i++)
		free_block(heap, blocks[i]);
	pn_unlock(&heap->lock);
	pn_slab_schedule_return(heap);
}

/* --- large blocks --------------------------------------------------------- */

static bool alloc_large_run(struct pinion_heap *heap,
			    const struct pn_run_request *request, void **out)
{
	struct pn_span *span;

	pn_lock(&heap->lock);
	span = span_begin(heap, request, PN_HEAP_LARGE, 1);
	if (span) {
		span->free[0] = 0;
		span->nfree = 0;
		*out = pn_heap_address(heap, span->first);
	}
	pn_unlock(&heap->lock);
	return span;
}

int pn_span_alloc_large(struct pinion_heap *heap, size_t npages,
			size_t align_pages, void **out)
{
	struct pn_run_request request = { .npages = npages,
					  .align_pages = align_pages,
					  .kind = pn_run_kind(npages) };

	while (!alloc_large_run(heap, &request, out)) {
		int ret = pn_slab_acquire(heap, &request);

		if (!ret)
			continue;
		request.kind = ANY_KIND;
		return alloc_large_run(heap, &request, out) ? 0 : ret;
	}
	return 0;
}

void pn_span_free_large(struct pinion_heap *heap, void *block)
{
	pn_lock(&heap->lock);
	span_end(heap, pn_span_at(heap, pn_heap_page(heap, block)));
	pn_unlock(&heap->lock);
	pn_slab_schedule_return(heap);
}
