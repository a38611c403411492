/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls of pinion/heap.h. */
#include <pinion/heap.h>

#include <errno.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sized.h"
#include "context.h"
#include "heap/heap.h"

#define ALL_FLAGS 31u

static bool attr_ok(const struct pinion_heap_attr *attr)
{
	uint64_t pages = attr->flags & (PINION_HEAP_NORMAL_PAGES |
					PINION_HEAP_HUGE_PREFERRED |
					PINION_HEAP_HUGE_RESERVED);

	return !(attr->flags & ~(uint64_t)ALL_FLAGS) &&
	       !(attr->access & ~(unsigned)PINION_ACCESS_ALL) &&
	       !(pages & (pages - 1)) && attr->numa_node < 1024 &&
	       (!attr->slab_bytes || attr->slab_bytes >= PN_HEAP_SLAB_BYTES) &&
	       attr->slab_bytes <= SIZE_MAX / 4 &&
	       attr->max_bytes <= SIZE_MAX / 4;
}

static void choose_pages(const struct pinion_heap_attr *attr,
			 struct pn_pages_policy *pages)
{
	if (attr->flags & PINION_HEAP_NORMAL_PAGES)
		pages->huge = PN_PAGES_NORMAL;
	if (attr->flags & PINION_HEAP_HUGE_PREFERRED)
		pages->huge = PN_PAGES_TRANSPARENT;
	if (attr->flags & PINION_HEAP_HUGE_RESERVED)
		pages->huge = PN_PAGES_HUGETLB;
	if (attr->flags & PINION_HEAP_ON_NODE)
		pages->numa_node = (int)attr->numa_node;
}

/* If the attributes prefer huge pages, slabs are at least that large. */
static size_t choose_slab(const struct pinion_context *context,
			  const struct pinion_heap_attr *attr)
{
	if (attr->slab_bytes)
		return attr->slab_bytes;
	if (attr->flags & PINION_HEAP_HUGE_PREFERRED &&
	    context->config.heap_slab < PN_PAGES_HUGE_BYTES)
		return PN_PAGES_HUGE_BYTES;
	return context->config.heap_slab;
}

static uint64_t choose_return_ns(const struct pinion_context *context,
				 const struct pinion_heap_attr *attr)
{
	if (!attr->return_us)
		return context->config.heap_return;
	return attr->return_us < UINT64_MAX / PN_NS_PER_US
		       ? attr->return_us * PN_NS_PER_US
		       : UINT64_MAX;
}

int pinion_heap_open(struct pinion_context *context,
		     const struct pinion_heap_attr *given,
		     struct pinion_heap **out)
{
	PN_NO_CANCEL();
	struct pinion_heap_attr attr = { .size = sizeof(attr) };
	struct pn_heap_attr inner;
	struct pn_heap_owner *owner;
	int ret = given ? pn_sized_copy(&attr, sizeof(attr), given) : 0;

	if (ret)
		return ret;
	if (!context || !out || !attr_ok(&attr))
		return -EINVAL;
	if (pn_context_foreign(context))
		return -EPERM;
	inner = (struct pn_heap_attr){
		.device = context->device,
		.cache = context->cache,
		.slab_bytes = choose_slab(context, &attr),
		.max_bytes = attr.max_bytes,
		.access = attr.access,
		.return_ns = choose_return_ns(context, &attr),
		.pages = pn_context_pages(context),
		.no_fork = attr.flags & PINION_HEAP_NOT_IN_CHILDREN,
	};
	choose_pages(&attr, &inner.pages);
	ret = pn_heap_open(&inner, out);
	if (ret)
		return ret;
	owner = pn_heap_owner(*out);
	owner->context = context;
	pn_lock(&context->lock);
	pn_list_append(&context->heaps, &owner->link);
	pn_unlock(&context->lock);
	return 0;
}

void pinion_heap_close(struct pinion_heap *heap)
{
	PN_NO_CANCEL();
	struct pn_heap_owner *owner;

	if (!heap || pn_heap_is_foreign(heap))
		return;
	owner = pn_heap_owner(heap);
	pn_lock(&owner->context->lock);
	pn_list_remove(&owner->link);
	pn_unlock(&owner->context->lock);
	pn_heap_close(heap);
}

void pn_context_close_heaps(struct pinion_context *context) PN_NO_THREAD_SAFETY
{
	struct pn_list *link;

	while ((link = pn_list_pop(&context->heaps)))
		pn_heap_close(pn_container_of(link, struct pn_heap_owner, link)
				      ->heap);
}

static void *no_heap(void)
{
	errno = EINVAL;
	return NULL;
}

void *pinion_heap_malloc(struct pinion_heap *heap, size_t size)
{
	return pn_likely(heap) ? pn_heap_alloc(heap, size) : no_heap();
}

void *pinion_heap_calloc(struct pinion_heap *heap, size_t n, size_t size)
{
	size_t bytes;
	void *block;

	if (__builtin_mul_overflow(n, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	block = pinion_heap_malloc(heap, bytes);
	if (block)
		memset(block, 0, bytes);
	return block;
}

void *pinion_heap_realloc(struct pinion_heap *heap, void *block, size_t size)
{
	if (!heap || !block)
		return pinion_heap_malloc(heap, size);
	return pn_heap_realloc(heap, block, size);
}

void *pinion_heap_aligned(struct pinion_heap *heap, size_t alignment,
			  size_t size)
{
	return heap ? pn_heap_alloc_aligned(heap, alignment, size) : no_heap();
}

void pinion_heap_free(struct pinion_heap *heap, void *block)
{
	if (pn_likely(heap))
		pn_heap_free(heap, block);
}

size_t pinion_heap_usable_size(struct pinion_heap *heap, const void *block)
{
	return heap ? pn_heap_usable(heap, block) : 0;
}

int pinion_heap_contains(struct pinion_heap *heap, const void *addr)
{
	return heap && pn_heap_contains(heap, addr);
}

int pinion_heap_find(struct pinion_heap *heap, const void *addr,
		     struct pinion_heap_region *region)
{
	struct pinion_heap_region full;
	const struct pn_mr *mr;

	if (!heap || !region || !region->size)
		return -EINVAL;
	mr = pn_heap_is_foreign(heap) ? NULL : pn_heap_mr(heap, addr);
	if (!mr)
		return -ENOENT;
	full = (struct pinion_heap_region){ .addr = mr->addr,
					    .len = mr->len,
					    .local_key = mr->lkey,
					    .remote_key = mr->rkey,
					    .access = mr->access,
					    .handle = mr->handle };
	pn_sized_answer(region, &full, sizeof(full));
	return 0;
}

static int unusable(const struct pinion_heap *heap)
{
	if (!heap)
		return -EINVAL;
	return pn_heap_is_foreign(heap) ? -EPERM : 0;
}

int pinion_heap_trim(struct pinion_heap *heap)
{
	PN_NO_CANCEL();
	int ret = unusable(heap);

	if (!ret)
		pn_heap_trim(heap);
	return ret;
}

int pinion_heap_query(struct pinion_heap *heap, struct pinion_heap_stats *stats)
{
	struct pinion_heap_stats full;
	int ret = unusable(heap);

	if (ret)
		return ret;
	if (!stats || !stats->size)
		return -EINVAL;
	pn_heap_query(heap, &full);
	pn_sized_answer(stats, &full, sizeof(full));
	return 0;
}
