/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a thread has at hand: stacks of free blocks, one for each class.
 *
 * Stacks are arrays beside the heap's memory, not lists through it: a peer
 * that writes into a free block harms nothing. Full and empty ones exchange
 * half of what they hold with the spans, so that a thread that alternates
 * around either end takes the lock once for many blocks.
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
	struct pn_thread_cache *local;
	size_t nblocks = 0, at = 0;

	for (unsigned class = 1; class <= PN_HEAP_NCLASSES; class ++)
		nblocks += stack_max(class);
	local = calloc(1, sizeof(*local) + nblocks * sizeof(void *));
	if (!local)
		return NULL;
	local->heap = heap;
	for (unsigned class = 1; class <= PN_HEAP_NCLASSES; class ++) {
		local->stacks[class].max = stack_max(class);
		local->stacks[class].blocks = &local->storage[at];
		at += stack_max(class);
	}
	return local;
}

struct pn_thread_cache *pn_thread_cache_self(struct pinion_heap *heap)
{
	struct pn_thread *self = pn_thread_self();
	struct pn_thread_cache *local = self ? self->local[heap->key] : NULL;

	if (pn_unlikely(!self))
		return NULL;
	if (pn_likely(local))
		return local;
	local = thread_cache_alloc(heap);
	if (!local)
		return NULL;
	pn_lock(&heap->lock);
	pn_list_append(&heap->thread_caches, &local->link);
	pn_unlock(&heap->lock);
	self->local[heap->key] = local;
	return local;
}

int pn_thread_cache_refill(struct pn_thread_cache *local, unsigned class,
			   void **out)
{
	struct pn_recency *stack = &local->stacks[class];
	int n = pn_span_alloc_blocks(local->heap, class, stack->blocks,
				     stack->max / 2);

	if (n == -ENOBUFS || n == -ENOMEM) {
		/* What is at hand in other classes may make a span whole. */
		pn_thread_cache_flush(local);
		n = pn_span_alloc_blocks(local->heap, class, stack->blocks, 1);
	}
	if (n < 0)
		return n;
	stack->n = (uint32_t)n - 1;
	*out = stack->blocks[n - 1];
	return 0;
}

/* Gives the oldest n of a stack back. */
static void flush_oldest(struct pn_thread_cache *local,
			 struct pn_recency *stack, uint32_t n)
{
	if (!n)
		return;
	pn_span_free_blocks(local->heap, stack->blocks, n);
	stack->n -= n;
	memmove(stack->blocks, stack->blocks + n, stack->n * sizeof(void *));
}

void pn_thread_cache_spill(struct pn_thread_cache *local, unsigned class,
			   void *block)
{
	struct pn_recency *stack = &local->stacks[class];

	if (stack->n == stack->max)
		flush_oldest(local, stack, stack->max / 2);
	stack->blocks[stack->n++] = block;
}

void pn_thread_cache_flush(struct pn_thread_cache *local)
{
	for (unsigned class = 1; class <= PN_HEAP_NCLASSES; class ++)
		flush_oldest(local, &local->stacks[class],
			     local->stacks[class].n);
}

void pn_thread_cache_ended(void *value)
{
	struct pn_thread_cache *local = value;
	struct pinion_heap *heap = local->heap;

	if (pn_heap_foreign(heap))
		return;
	pn_thread_cache_flush(local);
	pn_lock(&heap->lock);
	pn_list_remove(&local->link);
	pn_unlock(&heap->lock);
	free(local);
}

void pn_thread_caches_free(struct pinion_heap *heap) PN_NO_THREAD_SAFETY
{
	struct pn_list *link;

	while ((link = pn_list_pop(&heap->thread_caches)))
		free(pn_container_of(link, struct pn_thread_cache, link));
}
