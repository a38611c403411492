/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap -- an allocator whose memory is registered already (Levy, Widener,
 * Ulmer, Kordenbrock: The Case for Explicit Reuse Semantics for RDMA
 * Communication, 2020).
 *
 * Nouns
 *   arena         address space that a heap reserves when it is opened. All its
 *                 memory lies there, so that an array says what is at an
 *                 address: one load.
 *   slab          a registered part of the arena, at least 1 MiB: one
 *                 registration, one pair of keys, a resident region of the
 *                 cache (cache.h), so that a pin of heap memory is a plain hit.
 *   run           pages of a slab that belong together: those of a span.
 *   span          a run divided into blocks of one size class, or one large
 *                 block.
 *   class         a size of blocks; eight steps for each doubling, up to
 *                 64 KiB.
 *   thread cache  free blocks that a thread keeps for a heap: a stack for each
 *                 class (tcmalloc's word; not the registration cache).
 *
 * Life
 *   A block: span -> thread cache -> program -> thread cache of the thread that
 *   frees it -> span.
 *   A span: allocated when a class has no free block left, freed when all its
 *   blocks are free again.
 *   A slab: acquired (pages, budget, registration) when no slab has a run that
 *   is long enough; empty when its last run is freed; returned to the system
 *   when it has been empty for a while, when the program or the budget asks, or
 *   when the heap is closed: deregistered first, then unmapped.
 *
 * Files: heap.c has what the program calls, with the whole fast path;
 * thread_cache.c has the threads' stacks; span.c has blocks and spans; slab.c
 * has runs, slabs, and how slabs come from the system and return to it; check.c
 * asserts what holds at rest.
 *
 * What holds at rest
 *   Nothing that describes the heap lies in registered pages: a stray write of
 *   a peer destroys data, never the heap. Every page of a run has its span's
 *   number and class in the maps, every other page has none. Runs of a slab do
 *   not overlap. A block is in exactly one of: the program, a thread cache, its
 *   span's set of free blocks. The bytes of all slabs are charged to the
 *   budget.
 *
 * Threads: any thread allocates, any thread frees. The fast path touches the
 * thread's own thread cache and reads the class map. heap->lock protects spans,
 * runs and slabs. It is never held while pages are mapped or registered, and no
 * other lock is taken under it.
 * Virtual time: only registering costs anything.
 * fork: the child has copies of the bytes (unless no_fork), but the heap is its
 * parent's: allocating is refused, freeing does nothing.
 */
#ifndef PN_HEAP_HEAP_H
#define PN_HEAP_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pinion/heap.h>

#include "base/list.h"
#include "base/pages.h"
#include "cache/cache.h"
#include "device/device.h"

/* Zero in a field means the default. */
struct pn_heap_attr {
	struct pn_device *device;
	struct pn_cache *cache;
	size_t slab_bytes;	      /* rounded up to MiB */
	size_t max_bytes;	      /* of the arena */
	unsigned access;	      /* of its registrations */
	uint64_t return_ns;	      /* how long an empty slab stays */
	struct pn_pages_policy pages; /* huge pages: for slabs from 2 MiB on */
	bool no_fork;		      /* children do not get the memory */
};

#define PN_HEAP_SLAB_BYTES ((size_t)1 << 20)
#define PN_HEAP_MAX_ALIGN  ((size_t)2 << 20)

/* -ENOMEM; -EMFILE: too many heaps and caches in this process. */
int pn_heap_open(const struct pn_heap_attr *attr, struct pinion_heap **out);

/* Returns every slab, whatever is still allocated. NULL is fine. */
void pn_heap_close(struct pinion_heap *heap);

/* What the public calls keep with a heap; the heap itself does not use it. */
struct pn_heap_owner {
	struct pinion_heap *heap;
	struct pinion_context *context;
	struct pn_list link; /* context->heaps */
};
struct pn_heap_owner *pn_heap_owner(struct pinion_heap *heap);

/* Whether the heap belongs to the parent of this process, after fork(). */
bool pn_heap_is_foreign(const struct pinion_heap *heap);

/* Whether an address is in a block of the heap. */
bool pn_heap_contains(const struct pinion_heap *heap, const void *addr);

/* As pinion_heap_malloc() and so on; NULL with errno. */
void *pn_heap_alloc(struct pinion_heap *heap, size_t size);
void *pn_heap_alloc_aligned(struct pinion_heap *heap, size_t align,
			    size_t size);
void *pn_heap_realloc(struct pinion_heap *heap, void *block, size_t size);
void pn_heap_free(struct pinion_heap *heap, void *block);
size_t pn_heap_usable(struct pinion_heap *heap, const void *block);

/* The registration of a block, by any address in it; NULL: there is no block.
 */
const struct pn_mr *pn_heap_mr(struct pinion_heap *heap, const void *addr);

/* As pinion_heap_trim(). */
void pn_heap_trim(struct pinion_heap *heap);

/* Returns slabs to the system that have been empty long enough. The result is
 * when to call again, or PN_FOREVER. */
uint64_t pn_heap_step(struct pinion_heap *heap);

void pn_heap_query(struct pinion_heap *heap, struct pinion_heap_stats *out);

/* Asserts what holds at rest. Slow; for tests. */
void pn_heap_check(struct pinion_heap *heap);

#endif
