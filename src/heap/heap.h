/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap -- an allocator whose memory is registered already (paper Heap).
 *
 * Nouns
 *   arena   address space that a heap reserves when it is opened. All its
 *           memory lies there, so that what an address is in is a question to
 *           an array: one load, whatever is in it.
 *   slab    a registered part of the arena, at least 1 MiB: one registration,
 *           one pair of keys, a resident region of the cache (cache.h), so
 *           that a pin of heap memory is a plain hit.
 *   run     pages of a slab that belong together: a span or one large block.
 *   span    a run cut into blocks of one size class, or one large block.
 *   class   a size of blocks; eight steps for each doubling, up to 64 KiB.
 *   local   what a thread keeps for a heap: for each class a stack of blocks
 *           that are free and at hand.
 *
 * Life
 *   A block: span -> local -> program -> local of whoever frees it -> span.
 *   A span: a run is taken when a class has no free block left, and given back
 *   when its last block comes home.
 *   A slab: acquired (pages, room in the budget, registration) when no slab has
 *   a run that is long enough; empty when its last run is given back; returned
 *   to the system when it has been empty for a while, when the program asks, or
 *   when the heap is closed: deregistered first, then unmapped.
 *
 * A walk through the files: heap.c is what the program calls, with the fast
 * path in full; thread_cache.c the threads' stacks; span.c blocks and spans;
 * slab.c runs, slabs and their way from and to the system; check.c what holds
 * at rest.
 *
 * What holds at rest
 *   Nothing that describes the heap lies in registered pages: a stray write of
 *   a peer destroys data, never the heap. Every page of a run has its span's
 *   number and class in the maps, every other page has none. Runs of a slab do
 *   not overlap. A block is in exactly one of: the program, a local, its span's
 *   set of free blocks. The bytes of all slabs are in the budget.
 *
 * Threads: any thread allocates, any thread frees. The fast path touches the
 * thread's own local and reads the class map. heap->lock protects spans, runs
 * and slabs; it is never held while pages are mapped or registered, and nothing
 * is taken under it.
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
	uint64_t return_ns;	      /* how long a slab stays when empty */
	struct pn_pages_policy pages; /* for slabs of 2 MiB and more, huge */
	bool no_fork; /* children do not get the memory at all */
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

/* As pinion_heap_malloc() and its kin; NULL with errno. */
void *pn_heap_alloc(struct pinion_heap *heap, size_t size);
void *pn_heap_alloc_aligned(struct pinion_heap *heap, size_t align,
			    size_t size);
void *pn_heap_realloc(struct pinion_heap *heap, void *block, size_t size);
void pn_heap_free(struct pinion_heap *heap, void *block);
size_t pn_heap_usable(struct pinion_heap *heap, const void *block);

/* The registration around an address in a block; NULL: it is in none. */
const struct pn_mr *pn_heap_mr(struct pinion_heap *heap, const void *addr);

/* As pinion_heap_trim(). */
void pn_heap_trim(struct pinion_heap *heap);

/* Returns slabs that have been empty long enough; when to call again, or
 * PN_FOREVER. */
uint64_t pn_heap_step(struct pinion_heap *heap);

void pn_heap_query(struct pinion_heap *heap, struct pinion_heap_stats *out);

/* Checks what holds at rest; asserts. For tests, slow. */
void pn_heap_check(struct pinion_heap *heap);

#endif
