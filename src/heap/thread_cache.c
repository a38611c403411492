/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thread caches: stacks of free blocks, one for each class.
 *
 * A stack is an array outside the heap's memory, not a list through the blocks:
 * a peer that writes into a free block does no harm. A stack that is full or
 * empty exchanges half of its blocks with the spans, so that a thread that
 * alternates around either end takes the lock once for many blocks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "heap/heap_impl.h"

#define STACK_BYTES	 ((size_t)32 << 10)
#define STACK_MIN_BLOCKS 2
#define STACK_MAX_BLOCKS 64

static uint32_t stack_max(unsigned class)
{
	size_t n = STACK_BYTES / pn_heap_class_bytes(class);

	if (n < STACK_MIN_BLOCKS)
		return STACK_MIN_BLOCKS;
	return n < STACK_MAX_BLOCKS ? (uint32_t)n : STACK_MAX_BLOCKS;
}

static struct pn_thread_cache *thread_cache_alloc(struct pinion_heap *heap)
{
	struct pn_thread_cache *tcache;
	size_t nblocks = 0, at = 0;

	for (unsigned class = 1; class <= PN_HEAP_NCLASSES; class ++)
		nblocks += stack_max(class);
	tcache = calloc(1, sizeof(*tcache) + nblocks * sizeof(void *));
	if (!tcache)
		return NULL;
	tcache->heap = heap;
	for (unsigned class = 1; class <= PN_HEAP_NCLASSES; class ++) {
		tcache->stacks[class].max = stack_max(class);
		tcache->stacks[class].blocks = &tcache->storage[at];
		at += stack_max(class);
	}
	return tcache;
}

struct pn_thread_cache *pn_thread_cache_self(struct pinion_heap *heap)
{
	struct pn_thread *self = pn_thread_self();
	struct pn_thread_cache *tcache = self ? self->local[heap->key] : NULL;

	if (pn_unlikely(!self))
		return NULL;
	if (pn_likely(tcache))
		return tcache;
	tcache = thread_cache_alloc(heap);
	if (!tcache)
		return NULL;
	pn_lock(&heap->lock);
	pn_list_append(&heap->thread_caches, &tcache->link);
	pn_unlock(&heap->lock);
	self->local[heap->key] = tcache;
	return tcache;
}

int pn_thread_cache_refill(struct pn_thread_cache *tcache, unsigned class,
			   void **out)
{
	struct pn_block_stack *stack = &tcache->stacks[class];
	int n = pn_span_alloc_blocks(tcache->heap, class, stack->blocks,
				     stack->max / 2);

	if (n == -ENOBUFS || n == -ENOMEM) {
		/* Free blocks of other classes may complete a span, whose run
		 * can be used then. */
		pn_thread_cache_flush(tcache);
		n = pn_span_alloc_blocks(tcache->heap, class, stack->blocks, 1);
	}
	if (n < 0)
		return n;
	stack->n = (uint32_t)n - 1;
	*out = stack->blocks[n - 1];
	return 0;
}

/* Returns the oldest n blocks of a stack to their spans. */
static void flush_oldest(struct pn_thread_cache *tcache,
			 struct pn_block_stack *stack, uint32_t n)
{
	if (!n)
		return;
	pn_span_free_blocks(tcache->heap, stack->blocks, n);
	stack->n -= n;
	memmove(stack->blocks, stack->blocks + n, stack->n * sizeof(void *));
}

void pn_thread_cache_spill(struct pn_thread_cache *tcache, unsigned class,
			   void *block)
{
	struct pn_block_stack *stack = &tcache->stacks[class];

	if (stack->n == stack->max)
		flush_oldest(tcache, stack, stack->max / 2);
	stack->blocks[stack->n++] = block;
}

void pn_thread_cache_flush(struct pn_thread_cache *tcache)
{
	for (unsigned class = 1; class <= PN_HEAP_NCLASSES; class ++)
		flush_oldest(tcache, &tcache->stacks[class],
			     tcache->stacks[class].n);
}

void pn_thread_cache_ended(void *value)
{
	struct pn_thread_cache *tcache = value;
	struct pinion_heap *heap = tcache->heap;

	if (pn_heap_foreign(heap))
		return;
	pn_thread_cache_flush(tcache);
	pn_lock(&heap->lock);
	pn_list_remove(&tcache->link);
	pn_unlock(&heap->lock);
	free(tcache);
}

void pn_thread_caches_free(struct pinion_heap *heap) PN_NO_THREAD_SAFETY
{
	struct pn_list *link;

	while ((link = pn_list_pop(&heap->thread_caches)))
		free(pn_container_of(link, struct pn_thread_cache, link));
}
