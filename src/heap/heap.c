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

static void *fail(int negative_errno)
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
		return fail(-ENOMEM);
	ret = pn_span_alloc_large(heap, npages, align >> PN_PAGE_SHIFT, &block);
	if (ret)
		return fail(ret);
	pn_heap_check_alloc(heap, block);
	return block;
}

static void *alloc_class(struct pinion_heap *heap, unsigned class)
{
	struct pn_thread_cache *tcache = pn_thread_cache_self(heap);
	struct pn_block_stack *stack;
	void *block = NULL;
	int ret = 0;

	if (!tcache)
		return fail(-ENOMEM);
	stack = &tcache->stacks[class];
	if (stack->n)
		block = stack->blocks[--stack->n];
	else
		ret = pn_thread_cache_refill(tcache, class, &block);
	if (ret)
		return fail(ret);
	pn_heap_check_alloc(heap, block);
	return block;
}

/* A function of its own, so that the fast path saves no registers. */
static PN_NOINLINE void *alloc_slow(struct pinion_heap *heap, size_t size)
{
	if (pn_heap_foreign(heap))
		return fail(-EPERM);
	if (!size)
		return fail(-EINVAL);
	if (size > PN_HEAP_SMALL_BYTES)
		return alloc_large(heap, size, PN_PAGE_BYTES);
	return alloc_class(heap, pn_heap_class(size));
}

void *pn_heap_alloc(struct pinion_heap *heap, size_t size)
{
	struct pn_thread *self = pn_thread_current;
	struct pn_thread_cache *tcache;
	struct pn_block_stack *stack;
	uint32_t n;

	/* A size of 0 wraps around and is too large. */
	if (pn_unlikely(size - 1 >= PN_HEAP_SMALL_BYTES || !self))
		return alloc_slow(heap, size);
	tcache = self->local[heap->key];
	if (pn_unlikely(!tcache))
		return alloc_slow(heap, size);
	stack = &tcache->stacks[pn_heap_class(size)];
	n = stack->n;
	if (pn_unlikely(!n))
		return alloc_slow(heap, size);
	stack->n = --n;
	pn_heap_check_alloc(heap, stack->blocks[n]);
	return stack->blocks[n];
}

/* The smallest class that is long enough and whose blocks are so aligned. */
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
		return fail(-EPERM);
	if (!size || !align || align & (align - 1) || align > PN_HEAP_MAX_ALIGN)
		return fail(-EINVAL);
	if (align > PN_PAGE_BYTES || size > PN_HEAP_SMALL_BYTES)
		return alloc_large(heap, size,
				   align > PN_PAGE_BYTES ? align
							 : PN_PAGE_BYTES);
	return alloc_class(heap, aligned_class(align, size));
}

/* --- freeing -------------------------------------------------------------- */

static PN_NOINLINE void free_slow(struct pinion_heap *heap, void *block)
{
	unsigned class = pn_heap_class_at(heap, block);
	struct pn_thread_cache *tcache;

	if (!block || pn_heap_foreign(heap))
		return;
	if (!class) {
		pn_error("pinion_heap_free(%p): not a block of this heap; "
			 "nothing is freed",
			 block);
		return;
	}
	if (class == PN_HEAP_LARGE) {
		pn_span_free_large(heap, block);
		return;
	}
	tcache = pn_thread_cache_self(heap);
	if (tcache)
		pn_thread_cache_spill(tcache, class, block);
	else
		pn_span_free_blocks(heap, &block, 1);
}

void pn_heap_free(struct pinion_heap *heap, void *block)
{
	struct pn_thread *self = pn_thread_current;
	size_t page = pn_heap_page(heap, block);
	struct pn_thread_cache *tcache;
	struct pn_block_stack *stack;
	uint32_t n;

	pn_heap_check_free(heap, block);
	if (pn_unlikely(page >= heap->npages || !self)) {
		free_slow(heap, block);
		return;
	}
	tcache = self->local[heap->key];
	if (pn_unlikely(!tcache)) {
		free_slow(heap, block);
		return;
	}
	stack = &tcache->stacks[atomic_load_explicit(&heap->classes[page],
						     memory_order_relaxed)];
	n = stack->n;
	if (pn_unlikely(n == stack->max)) {
		free_slow(heap, block);
		return;
	}
	stack->blocks[n] = block;
	stack->n = n + 1;
}

/* --- allocated blocks ----------------------------------------------------- */

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

/* A block stays in place when it is long enough and at least half of it is
 * used. */
void *pn_heap_realloc(struct pinion_heap *heap, void *block, size_t size)
{
	size_t had = pn_heap_usable(heap, block);
	void *other;

	if (pn_heap_foreign(heap))
		return fail(-EPERM);
	if (!size || !had)
		return fail(-EINVAL);
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
	/* Pairs with the release store in set_units(). */
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

/* Twice the memory of the machine: a budget is at most half of it, and there
 * are holes between slabs. At least 4 GiB. */
static size_t default_arena(void)
{
	struct sysinfo info;
	size_t bytes = 0;

	if (!sysinfo(&info))
		bytes = 2 * (size_t)info.totalram * info.mem_unit;
	return bytes > (size_t)4 << 30 ? bytes : (size_t)4 << 30;
}

/* All operations of peers, since the memory is for that; not relaxed ordering,
 * which must be asked for. */
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

/* An array of which only the pages that are touched cost memory. */
static void *reserve_array(size_t n, size_t size)
{
	void *p = mmap(NULL, n * size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void unmap_array(void *array, size_t n, size_t size)
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
	unmap_array((void *)heap->classes, heap->npages, 1);
	unmap_array((void *)heap->spans_at, heap->npages,
		    sizeof(*heap->spans_at));
	unmap_array((void *)heap->slabs_at, heap_nunits(heap),
		    sizeof(*heap->slabs_at));
	unmap_array(heap->spans, heap->npages + 1, sizeof(*heap->spans));
	/* No other mapping may come to the address of a slab that is still
	 * registered. */
	if (heap->base && !heap->leaked_slabs)
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
		for (unsigned i = 0; i < PN_HEAP_NBINS; i++)
			pn_list_init(&heap->bins[kind][i]);
	pn_list_init(&heap->empty);
	pn_list_init(&heap->thread_caches);
	pn_list_init(&heap->owner.link);
	heap->owner.heap = heap;
}

static uint64_t task_step(void *arg)
{
	return pn_heap_step(arg);
}

static size_t task_shrink(void *arg)
{
	return pn_slab_shrink(arg);
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
	ret = heap->key = pn_thread_key_alloc(pn_thread_cache_ended);
	if (ret < 0)
		goto close_memory;
	init_lists(heap);
	heap->task.step = task_step;
	heap->task.give = task_shrink;
	heap->task.arg = heap;
	pn_cache_task_add(heap->attr.cache, &heap->task);
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
	pn_cache_task_remove(heap->attr.cache, &heap->task);
	pn_thread_key_free(heap->key);
	pn_thread_caches_free(heap);
	pn_slabs_close(heap);
	close_memory(heap);
	pn_mutex_fini(&heap->lock);
	free(heap);
}

struct pn_heap_owner *pn_heap_owner(struct pinion_heap *heap)
{
	return &heap->owner;
}

bool pn_heap_is_foreign(const struct pinion_heap *heap)
{
	return pn_heap_foreign(heap);
}

bool pn_heap_contains(const struct pinion_heap *heap, const void *addr)
{
	return pn_heap_class_at(heap, addr);
}

void pn_heap_trim(struct pinion_heap *heap)
{
	const struct pn_thread *self = pn_thread_current;
	struct pn_thread_cache *tcache = self ? self->local[heap->key] : NULL;

	if (tcache)
		pn_thread_cache_flush(tcache);
	pn_slab_return_empty(heap, 0);
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
