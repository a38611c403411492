/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the heap share; heap.h explains the heap. */
#ifndef PN_HEAP_IMPL_H
#define PN_HEAP_IMPL_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/process.h"
#include "base/range.h"
#include "base/thread.h"
#include "heap/heap.h"

/* --- classes --------------------------------------------------------------
 *
 * Multiples of 16 up to 128, then eight steps for each doubling: 144, 160, ...
 * 65536. A block is at most an eighth longer than asked for (above 128 bytes);
 * four steps would halve the number of classes and cost another 6 % of memory.
 * Class 0 means "no block here", the last means a large block. Their stacks
 * have a capacity of 0, so that the fast path needs no case for them.
 */
#define PN_HEAP_SMALL_BYTES ((size_t)65536)
#define PN_HEAP_NCLASSES    80
#define PN_HEAP_LARGE	    (PN_HEAP_NCLASSES + 1)

/* The class of a size from 1 to PN_HEAP_SMALL_BYTES. */
static inline unsigned pn_heap_class(size_t size)
{
	size_t x = size - 1;
	unsigned bit;

	if (x < 128)
		return 1 + (unsigned)(x >> 4);
	bit = 63 - (unsigned)__builtin_clzl(x);
	return 9 + (bit - 7) * 8 + (x >> (bit - 3) & 7);
}

static inline size_t pn_heap_class_bytes(unsigned class)
{
	unsigned step = class - 9;

	if (class <= 8)
		return 16 * (size_t) class;
	return (size_t)(step % 8 + 9) << (step / 8 + 4);
}

/* --- spans ---------------------------------------------------------------- */

#define PN_SPAN_MAX_BLOCKS 1024
#define PN_SPAN_WORDS	   (PN_SPAN_MAX_BLOCKS / 64)

/* Spans are in an array of reserved memory; a number names one, 0 none. */
struct pn_span {
	struct pn_list link; /* in heap->spans_of while blocks are free */
	uint32_t first, npages;
	uint32_t nblocks, nfree;
	uint32_t next_unused;
	uint8_t class;
	uint64_t free[PN_SPAN_WORDS]; /* a bit for each free block */
#ifdef PINION_CHECK
	_Atomic uint64_t live[PN_SPAN_WORDS]; /* a bit for each allocated one */
#endif
};

/* --- slabs ---------------------------------------------------------------- */

/* The fewer blocks a slab has, the sooner it is empty. So each kind of slab has
 * blocks of similar size, as long as there is a choice: kind 0 has the spans of
 * small blocks, each further kind one doubling of the size, the last kind all
 * larger sizes. */
#define PN_SLAB_KINDS 5

#define PN_HEAP_UNIT_SHIFT 20 /* of the arena: slabs begin at multiples */
#define PN_HEAP_UNIT_PAGES (1u << (PN_HEAP_UNIT_SHIFT - PN_PAGE_SHIFT))
#define PN_HEAP_NBINS	   32

struct pn_slab {
	struct pn_list link; /* in heap->bins, heap->empty or none */
	const struct pn_mr *mr;
	uint32_t first, npages; /* of the arena */
	uint32_t nused;		/* pages in runs */
	uint32_t largest;	/* longest stretch of free pages */
	unsigned kind;
	uint64_t empty_ns; /* empty since; 0: not, or not known yet */
	uint64_t used[];   /* a bit for each page in a run */
};

/* --- thread caches -------------------------------------------------------- */

struct pn_block_stack {
	uint32_t n, max;
	void **blocks;
};

struct pn_thread_cache {
	struct pn_block_stack stacks[PN_HEAP_LARGE + 1];
	struct pinion_heap *heap;
	struct pn_list link; /* in heap->thread_caches */
	void *storage[];     /* the blocks of all stacks */
};

/* --- the heap ------------------------------------------------------------- */

struct pinion_heap {
	/* Read by the fast path; constant after pn_heap_open(), but for the
	 * contents of `classes`, which heap->lock protects. */
	uintptr_t base;
	size_t npages;		  /* of the arena */
	int key;		  /* of base/thread.h */
	_Atomic uint8_t *classes; /* by page: the class of its blocks */

	_Atomic uint32_t *spans_at;	   /* by page: which span */
	struct pn_slab *_Atomic *slabs_at; /* by unit: which slab */
	struct pn_span *spans;
	struct pn_heap_attr attr;
	struct pn_heap_owner owner; /* used by the public calls */
	struct pn_background_task task;
	uint32_t process;	   /* that opened it (base/process.h) */
	_Atomic bool slab_emptied; /* since the last scheduled return */
	bool leaked_slabs;	   /* closed, with slabs still registered */
	_Atomic uint64_t nregistrations, nreturned;

	/* Protects what follows; no other lock is taken under it. */
	struct pn_mutex lock PN_ALIGNED(PN_CACHELINE);
	struct pn_list spans_of[PN_HEAP_NCLASSES + 1]; /* with free blocks */
	struct pn_list bins[PN_SLAB_KINDS][PN_HEAP_NBINS]; /* by log2 of
							    * `largest` */
	struct pn_list empty; /* slabs, the longest empty first */
	struct pn_list thread_caches;
	uint32_t unused_span, nspans;
	size_t nslabs, slab_bytes, run_bytes;
	size_t low_unit; /* all units of the arena below are used */
};

/* Whether this process is a forked child and the heap its parent's. The fast
 * paths need not ask: a child has no thread cache (base/thread.h). */
static inline bool pn_heap_foreign(const struct pinion_heap *heap)
{
	return !pn_process_is_current(heap->process);
}

static inline size_t pn_heap_page(const struct pinion_heap *heap,
				  const void *addr)
{
	return ((uintptr_t)addr - heap->base) >> PN_PAGE_SHIFT;
}

static inline void *pn_heap_address(const struct pinion_heap *heap, size_t page)
{
	return (void *)(heap->base + (page << PN_PAGE_SHIFT));
}

/* The class of the block at addr; 0: there is none. */
static inline unsigned pn_heap_class_at(const struct pinion_heap *heap,
					const void *addr)
{
	size_t page = pn_heap_page(heap, addr);

	return page < heap->npages ? atomic_load_explicit(&heap->classes[page],
							  memory_order_relaxed)
				   : 0;
}

/* thread_cache.c */
/* The calling thread's, allocated at its first call; NULL: no memory. */
struct pn_thread_cache *pn_thread_cache_self(struct pinion_heap *heap);
void pn_thread_cache_ended(void *value);
/* Fills the stack of a class, which is empty, and takes a block from it. */
int pn_thread_cache_refill(struct pn_thread_cache *tcache, unsigned class,
			   void **out);
/* Adds a block to a stack that may be full. */
void pn_thread_cache_spill(struct pn_thread_cache *tcache, unsigned class,
			   void *block);
/* Returns all blocks to their spans. */
void pn_thread_cache_flush(struct pn_thread_cache *tcache);
void pn_thread_caches_free(struct pinion_heap *heap);

/* span.c */
/* Allocates up to n blocks of a class. Returns how many, at least one, or a
 * negative errno. May sleep. */
int pn_span_alloc_blocks(struct pinion_heap *heap, unsigned class,
			 void **blocks, unsigned n);
void pn_span_free_blocks(struct pinion_heap *heap, void *const *blocks,
			 unsigned n);
/* Allocates one large block, aligned to so many pages. May sleep. */
int pn_span_alloc_large(struct pinion_heap *heap, size_t npages,
			size_t align_pages, void **out);
void pn_span_free_large(struct pinion_heap *heap, void *block);
/* The span that a page of a run belongs to. */
struct pn_span *pn_span_at(struct pinion_heap *heap, size_t page);
/* Whether a block of the span begins at addr; *index: which. */
bool pn_span_block(struct pinion_heap *heap, const struct pn_span *span,
		   const void *addr, uint32_t *index);

/* slab.c */
struct pn_run_request {
	size_t npages, align_pages;
	unsigned kind;
};
/* The kind of slab for a large block. */
unsigned pn_run_kind(size_t npages);
/* Allocates a run from the existing slabs; false: none has one. */
bool pn_run_alloc_locked(struct pinion_heap *heap,
			 const struct pn_run_request *request, size_t *first)
	PN_REQUIRES(&heap->lock);
/* The same from slabs of any kind. */
bool pn_run_alloc_any_locked(struct pinion_heap *heap,
			     struct pn_run_request request, size_t *first)
	PN_REQUIRES(&heap->lock);
void pn_run_free_locked(struct pinion_heap *heap, size_t first, size_t npages)
	PN_REQUIRES(&heap->lock);
/* Acquires a new slab that has the run; 0: try to allocate the run again. May
 * sleep. */
int pn_slab_acquire(struct pinion_heap *heap,
		    const struct pn_run_request *request)
	PN_EXCLUDES(&heap->lock);
/* Returns slabs to the system that have been empty for age_ns. The result is
 * when the next one will have been, or PN_FOREVER. May sleep. */
uint64_t pn_slab_return_empty(struct pinion_heap *heap, uint64_t age_ns)
	PN_EXCLUDES(&heap->lock);
/* Returns all empty slabs to the system; the result is how many. May sleep. */
size_t pn_slab_shrink(struct pinion_heap *heap) PN_EXCLUDES(&heap->lock);
/* After runs were freed: schedules the return of slabs that became empty. */
void pn_slab_schedule_return(struct pinion_heap *heap) PN_EXCLUDES(&heap->lock);
void pn_slabs_close(struct pinion_heap *heap);

/* check.c: finds double and foreign frees, in builds with PINION_CHECK. */
#ifdef PINION_CHECK
void pn_heap_check_alloc(struct pinion_heap *heap, void *block);
void pn_heap_check_free(struct pinion_heap *heap, void *block);
#else
static inline void pn_heap_check_alloc(struct pinion_heap *heap, void *block)
{
	(void)heap, (void)block;
}

static inline void pn_heap_check_free(struct pinion_heap *heap, void *block)
{
	(void)heap, (void)block;
}
#endif

#endif
