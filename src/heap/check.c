/* SPDX-License-Identifier: BSD-2-Clause */
/* Asserts what heap.h says holds at rest; and, with PINION_CHECK, that what is
 * freed was allocated. */
#include <stdlib.h>

#include "base/bits.h"
#include "base/log.h"
#include "heap/heap_impl.h"

static uint32_t count_bits(const uint64_t *words, size_t nwords)
{
	uint32_t n = 0;

	for (size_t i = 0; i < nwords; i++)
		n += (uint32_t)__builtin_popcountll(words[i]);
	return n;
}

/* Checks the span that begins at a page; returns its number of pages. */
static uint32_t check_span(struct pinion_heap *heap, size_t page)
	PN_REQUIRES(&heap->lock)
{
	const struct pn_span *span = pn_span_at(heap, page);

	pn_assert(span != heap->spans && span->first == page);
	for (size_t i = page; i < page + span->npages; i++) {
		pn_assert(pn_span_at(heap, i) == span);
		pn_assert(atomic_load(&heap->classes[i]) == span->class);
	}
	pn_assert(span->nfree < span->nblocks);
	pn_assert(span->nfree == count_bits(span->free, PN_SPAN_WORDS));
	pn_assert(!span->nfree == pn_list_empty(&span->link));
	return span->npages;
}

/* Checks the runs of a slab; returns their number of pages. */
static uint32_t check_slab(struct pinion_heap *heap, const struct pn_slab *slab)
	PN_REQUIRES(&heap->lock)
{
	uint32_t nused = 0, stretch = 0, largest = 0;

	for (uint32_t i = 0; i < slab->npages;) {
		uint32_t n = 1;

		if (pn_bits_get(slab->used, i)) {
			n = check_span(heap, slab->first + i);
			nused += n;
			stretch = 0;
		} else {
			pn_assert(
				!atomic_load(&heap->classes[slab->first + i]));
			largest = ++stretch > largest ? stretch : largest;
		}
		i += n;
	}
	pn_assert(nused == slab->nused && largest == slab->largest);
	pn_assert(nused == count_bits(slab->used, (slab->npages + 63) / 64));
	return nused;
}

void pn_heap_check(struct pinion_heap *heap)
{
	size_t nslabs = 0, bytes = 0, run_bytes = 0;
	const struct pn_slab *slab, *before = NULL;

	pn_lock(&heap->lock);
	for (size_t i = 0; i < heap->npages / PN_HEAP_UNIT_PAGES; i++) {
		slab = atomic_load(&heap->slabs_at[i]);
		/* A slab that is being acquired or returned is in no list, and
		 * its registration is another thread's. */
		if (slab && slab != before &&
		    (slab->nused || !pn_list_empty(&slab->link))) {
			nslabs++;
			bytes += slab->mr->len;
			run_bytes += (size_t)check_slab(heap, slab)
				     << PN_PAGE_SHIFT;
		}
		before = slab;
	}
	pn_assert(run_bytes == heap->run_bytes);
	pn_assert(nslabs == heap->nslabs && bytes == heap->slab_bytes);
	pn_unlock(&heap->lock);
}

#ifdef PINION_CHECK

static _Noreturn void invalid_free(const void *block, const char *why)
{
	pn_error("pinion_heap_free(%p): %s", block, why);
	abort();
}

/* The word and the bit that say whether a block is allocated. */
static _Atomic uint64_t *bit_of(struct pinion_heap *heap, void *block,
				uint64_t *bit)
{
	struct pn_span *span;
	uint32_t index;

	if (!pn_heap_class_at(heap, block))
		invalid_free(block,
			     "not a block of this heap, or freed already");
	span = pn_span_at(heap, pn_heap_page(heap, block));
	if (!pn_span_block(heap, span, block, &index))
		invalid_free(block, "not where a block begins");
	*bit = UINT64_C(1) << (index % 64);
	return &span->live[index / 64];
}

void pn_heap_check_alloc(struct pinion_heap *heap, void *block)
{
	uint64_t bit;
	_Atomic uint64_t *word = bit_of(heap, block, &bit);

	pn_assert(!(atomic_fetch_or(word, bit) & bit));
}

void pn_heap_check_free(struct pinion_heap *heap, void *block)
{
	_Atomic uint64_t *word;
	uint64_t bit;

	if (!block || pn_heap_foreign(heap))
		return;
	word = bit_of(heap, block, &bit);
	if (!(atomic_fetch_and(word, ~bit) & bit))
		invalid_free(block, "freed already");
}

#endif
