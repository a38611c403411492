/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include "base/clock.h"
#include "base/log.h"
#include "heap/heap_impl.h"

/* --- allocating ----------------------------------------------------------- */

static void *refused(int negative_errno)
{
	errno = -negative_errno;
	return NULL;
}

static void *alloc_large(struct pinion_heap *heap, size_t size, size_t align)
{
	size_t npages = (size >> PN_PAGE_SHIFT) + !!(size % PN_PAGE_BYTES);
	size_t most = heap->attr.device->limits.max_mr_bytes >> PN_PAGE_SHIFT;
	void *block = NULL;
	int ret;

	if (npages > heap->npages || npages > most)
		return refused(-ENOMEM);
	ret = pn_span_take_large(heap, npages, align >> PN_PAGE_SHIFT, &block);
	if (ret)
		return refused(ret);
	pn_heap_note_alloc(heap, block);
	return block;
}

static void *alloc_class(struct pinion_heap *heap, unsigned class)
{
	struct pn_local *local = pn_local_self(heap);
	struct pn_stack *stack;
	void *block = NULL;
	int ret = 0;

	if (!local)
		return refused(-ENOMEM);
	stack = &local->stacks[class];
	if (stack->n)
		block = stack->blocks[--stack->n];
	else
		ret = pn_local_refill(local, class, &block);
	if (ret)
		return refused(ret);
	pn_heap_note_alloc(heap, block);
	return block;
}

/* Apart, so that the fast path saves no registers. */
static PN_NOINLINE void *alloc_slowly(struct pinion_heap *heap, size_t size)
{
	if (pn_heap_foreign(heap))
		return refused(-EPERM);
	if (!size)
		return refused(-EINVAL);
	if (size > PN_HEAP_SMALL_BYTES)
		return alloc_large(heap, size, PN_PAGE_BYTES);
	return alloc_class(heap, pn_heap_class(size));
}

void *pn_heap_alloc(struct pinion_heap *heap, size_t size)
{
	struct pn_thread *self = pn_thread_current;
	struct pn_local *local;
	struct pn_stack *stack;
	uint32_t n;

	/* A size of 0 becomes huge. */
	if (pn_unlikely(size - 1 >= PN_HEAP_SMALL_BYTES || !self))
		return alloc_slowly(heap, size);
	local = self->local[heap->key];
	if (pn_unlikely(!local))
		return alloc_slowly(heap, size);
	stack = &local->stacks[pn_heap_class(size)];
	n = stack->n;
	if (pn_unlikely(!n))
		return alloc_slowly(heap, size);
	stack->n = --n;
	pn_heap_note_alloc(heap, stack->blocks[n]);
	return stack->blocks[n];
}

/* The smallest class that is long enough and whose blocks are aligned so. */
static unsigned aligned_class(size_t align, size_t size)
{
	unsigned class = pn_heap_class(size);

	while (pn_heap_class_bytes(class) % align)
		class ++;
	return class;
}

void *pn_heap_alloc_aligned(struct pinion_heap *heap, size_t align, size_t size)
{
	if (pn_heap_foreign(heap))
		return refused(-EPERM);
	if (!size || !align || align & (align - 1) || align > PN_HEAP_MAX_ALIGN)
		return refused(-EINVAL);
	if (align > PN_PAGE_BYTES || size > PN_HEAP_SMALL_BYTES)
		return alloc_large(heap, size,
				   align > PN_PAGE_BYTES ? align
							 : PN_PAGE_BYTES);
	return alloc_class(heap, aligned_class(align, size));
}

/* --- freeing -------------------------------------------------------------- */

static PN_NOINLINE void free_slowly(struct pinion_heap *heap, void *block)
{
	unsigned class = pn_heap_class_at(heap, block);
	struct pn_local *local;

	if (!block || pn_heap_foreign(heap))
		return;
	if (!class) {
		pn_error("pinion_heap_free(%p): not a block of this heap; "
			 "nothing is freed",
			 block);
		return;
	}
	if (class == PN_HEAP_LARGE) {
		pn_span_give_large(heap, block);
		return;
	}
	local = pn_local_self(heap);
	if (local)
		pn_local_spill(local, class, block);
	else
		pn_span_give(heap, &block, 1);
}

void pn_heap_free(struct pinion_heap *heap, void *block)
{
	struct pn_thread *self = pn_thread_current;
	size_t page = pn_heap_page(heap, block);
	struct pn_local *local;
	struct pn_stack *stack;
	uint32_t n;

	pn_heap_note_free(heap, block);
	if (pn_unlikely(page >= heap->npages || !self)) {
		free_slowly(heap, block);
		return;
	}
	local = self->local[heap->key];
	if (pn_unlikely(!local)) {
		free_slowly(heap, block);
		return;
	}
	stack = &local->stacks[atomic_load_explicit(&heap->classes[page],
						    memory_order_relaxed)];
	n = stack->n;
	if (pn_unlikely(n == stack->max)) {
		free_slowly(heap, block);
		return;
	}
	stack->blocks[n] = block;
	stack->n = n + 1;
}

/* --- blocks that exist ---------------------------------------------------- */

size_t pn_heap_usable(struct pinion_heap *heap, const void *block)
{
	unsigned class = pn_heap_class_at(heap, block);

	if (!class)
		return 0;
	if (class != PN_HEAP_LARGE)
		return pn_heap_class_bytes(class);
	return (size_t)pn_span_at(heap, pn_heap_page(heap, block))->npages
	       << PN_PAGE_SHIFT;
}

/* A block stays where it is when it is long enough and not more than half of
 * it would be wasted. */
void *pn_heap_realloc(struct pinion_heap *heap, void *block, size_t size)
{
	size_t had = pn_heap_usable(heap, block);
	void *other;

	if (pn_heap_foreign(heap))
		return refused(-EPERM);
	if (!size || !had)
		return refused(-EINVAL);
	if (size <= had && size > had / 2)
		return block;
	other = pn_heap_alloc(heap, size);
	if (!other)
		return NULL;
	pn_copy(heap->attr.device, other, block, had < size ? had : size);
	pn_heap_free(heap, block);
	return other;
}

const struct pn_mr *pn_heap_mr(struct pinion_heap *heap, const void *addr)
{
	const struct pn_slab *slab;

	if (!pn_heap_class_at(heap, addr))
		return NULL;
	/* Pairs with the release in slab.c. */
	slab = atomic_load_explicit(
		&heap->slabs_at[pn_heap_page(heap, addr) / PN_HEAP_UNIT_PAGES],
		memory_order_acquire);
	return slab->mr;
}

/* --- life ----------------------------------------------------------------- */

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* Twice the memory that there is: a budget is at most half of it, and holes
 * come between slabs. At least some, for machines of the future and past. */
static size_t default_arena(void)
{
	struct sysinfo info;
	size_t bytes = 0;

	if (!sysinfo(&info))
		bytes = 2 * (size_t)info.totalram * info.mem_unit;
	return bytes > (size_t)4 << 30 ? bytes : (size_t)4 << 30;
}

/* All that peers can do, because that is what the memory is for; not relaxed
 * order, which must be asked for. */
static unsigned default_access(const struct pn_device *device)
{
	unsigned access = PINION_ACCESS_LOCAL_WRITE |
			  PINION_ACCESS_REMOTE_READ |
			  PINION_ACCESS_REMOTE_WRITE;

	if (device->caps & PN_CAP_ATOMICS)
		access |= PINION_ACCESS_REMOTE_ATOMIC;
	return access;
}

static void apply_defaults(struct pn_heap_attr *attr)
{
	const size_t unit = (size_t)1 << PN_HEAP_UNIT_SHIFT;

	if (!attr->slab_bytes)
		attr->slab_bytes = PN_HEAP_SLAB_BYTES;
	attr->slab_bytes = round_up(attr->slab_bytes, unit);
	if (attr->pages.huge == PN_PAGES_HUGETLB)
		attr->slab_bytes =
			round_up(attr->slab_bytes, PN_PAGES_HUGE_BYTES);
	if (!attr->max_bytes)
		attr->max_bytes = default_arena();
	attr->max_bytes = round_up(attr->max_bytes, attr->slab_bytes);
	if (!attr->access)
		attr->access = default_access(attr->device);
	if (!attr->return_ns)
		attr->return_ns = PN_NS_PER_S;
}

/* An array that costs only what is touched. */
static void *reserve_array(size_t n, size_t size)
{
	void *p = mmap(NULL, n * size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void release_array(void *array, size_t n, size_t size)
{
	if (array)
		munmap(array, n * size);
}

static size_t heap_nunits(const struct pinion_heap *heap)
{
	return heap->npages / PN_HEAP_UNIT_PAGES;
}

static void close_memory(struct pinion_heap *heap)
{
	release_array((void *)heap->classes, heap->npages, 1);
	release_array((void *)heap->spans_at, heap->npages,
		      sizeof(*heap->spans_at));
	release_array((void *)heap->slabs_at, heap_nunits(heap),
		      sizeof(*heap->slabs_at));
	release_array(heap->spans, heap->npages + 1, sizeof(*heap->spans));
	/* Another mapping must not come where a slab is registered still. */
	if (heap->base && !heap->left_behind)
		pn_pages_unreserve((void *)heap->base, heap->attr.max_bytes);
}

static int open_memory(struct pinion_heap *heap)
{
	void *base = NULL;

	heap->npages = heap->attr.max_bytes >> PN_PAGE_SHIFT;
	heap->classes = reserve_array(heap->npages, 1);
	heap->spans_at = reserve_array(heap->npages, sizeof(*heap->spans_at));
	heap->slabs_at =
		reserve_array(heap_nunits(heap), sizeof(*heap->slabs_at));
	heap->spans = reserve_array(heap->npages + 1, sizeof(*heap->spans));
	if (!heap->classes || !heap->spans_at || !heap->slabs_at ||
	    !heap->spans ||
	    pn_pages_reserve(heap->attr.max_bytes, PN_HEAP_MAX_ALIGN, &base)) {
		pn_error("no address space for a heap of %zu MiB (ulimit -v, "
			 "or give max_bytes)",
			 heap->attr.max_bytes >> 20);
		close_memory(heap);
		return -ENOMEM;
	}
	heap->base = (uintptr_t)base;
	return 0;
}

static void init_lists(struct pinion_heap *heap) PN_NO_THREAD_SAFETY
{
	pn_mutex_init(&heap->lock);
	for (unsigned i = 0; i <= PN_HEAP_NCLASSES; i++)
		pn_list_init(&heap->spans_of[i]);
	for (unsigned kind = 0; kind < PN_SLAB_KINDS; kind++)
		for (unsigned i = 0; i < PN_HEAP_NROOMS; i++)
			pn_list_init(&heap->rooms[kind][i]);
	pn_list_init(&heap->empty);
	pn_list_init(&heap->locals);
	pn_list_init(&heap->context_link);
}

static uint64_t chore_step(void *arg)
{
	return pn_heap_step(arg);
}

static size_t chore_give(void *arg)
{
	return pn_slab_give_up(arg);
}

int pn_heap_open(const struct pn_heap_attr *attr, struct pinion_heap **out)
{
	struct pinion_heap *heap =
		aligned_alloc(PN_CACHELINE,
			      round_up(sizeof(*heap), PN_CACHELINE));
	int ret;

	if (!heap)
		return -ENOMEM;
	memset((void *)heap, 0, sizeof(*heap));
	heap->attr = *attr;
	heap->process = pn_process_number();
	apply_defaults(&heap->attr);
	ret = open_memory(heap);
	if (ret)
		goto free_heap;
	ret = heap->key = pn_thread_key_alloc(pn_local_ended);
	if (ret < 0)
		goto close_memory;
	init_lists(heap);
	heap->chore.step = chore_step;
	heap->chore.give = chore_give;
	heap->chore.arg = heap;
	pn_cache_chore_add(heap->attr.cache, &heap->chore);
	*out = heap;
	return 0;

close_memory:
	close_memory(heap);
free_heap:
	free(heap);
	return ret;
}

void pn_heap_close(struct pinion_heap *heap)
{
	if (!heap)
		return;
	pn_cache_chore_remove(heap->attr.cache, &heap->chore);
	pn_thread_key_free(heap->key);
	pn_locals_free(heap);
	pn_slabs_close(heap);
	close_memory(heap);
	pn_mutex_fini(&heap->lock);
	free(heap);
}

void pn_heap_trim(struct pinion_heap *heap)
{
	const struct pn_thread *self = pn_thread_current;
	struct pn_local *local = self ? self->local[heap->key] : NULL;

	if (local)
		pn_local_flush(local);
	pn_slab_return(heap, 0);
}

void pn_heap_query(struct pinion_heap *heap, struct pinion_heap_stats *out)
{
	pn_lock(&heap->lock);
	*out = (struct pinion_heap_stats){ .slabs = heap->nslabs,
					   .slab_bytes = heap->slab_bytes,
					   .run_bytes = heap->run_bytes };
	pn_unlock(&heap->lock);
	out->registrations = atomic_load(&heap->nregistrations);
	out->returned = atomic_load(&heap->nreturned);
}
