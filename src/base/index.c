/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/index.h"

#include <errno.h>
#include <sys/mman.h>

#define GRANULE_BYTES ((uintptr_t)1 << PN_INDEX_GRANULE_SHIFT)
#define LEAF_BYTES    (PN_INDEX_LEAF_ENTRIES * sizeof(pn_index_entry))
#define TOP_BYTES     (PN_INDEX_NGRANULES * sizeof(pn_index_entry *))

/* Address space that costs memory only where it is touched. */
static void *reserve(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* Huge pages would back the untouched rest of a sparse leaf. */
	madvise(p, bytes, MADV_NOHUGEPAGE);
	return p;
}

int pn_index_init(struct pn_index *index)
{
	*index = (struct pn_index){ .top = reserve(TOP_BYTES) };
	return index->top ? 0 : -ENOMEM;
}

void pn_index_fini(struct pn_index *index)
{
	for (size_t i = 0; index->nleaves && i < PN_INDEX_NGRANULES; i++) {
		pn_index_entry *leaf = atomic_load(&index->top[i]);

		if (!leaf)
			continue;
		munmap((void *)leaf, LEAF_BYTES);
		index->nleaves--;
	}
	munmap((void *)index->top, TOP_BYTES);
}

int pn_index_reserve(struct pn_index *index, struct pn_range range)
{
	size_t first = range.addr >> PN_INDEX_GRANULE_SHIFT;
	size_t last = (range.addr + range.len - 1) >> PN_INDEX_GRANULE_SHIFT;

	if (last >= PN_INDEX_NGRANULES)
		return -ERANGE;
	for (size_t i = first; i <= last; i++) {
		pn_index_entry *leaf;

		if (atomic_load_explicit(&index->top[i], memory_order_relaxed))
			continue;
		leaf = reserve(LEAF_BYTES);
		if (!leaf)
			return -ENOMEM;
		atomic_store_explicit(&index->top[i], leaf,
				      memory_order_release);
		index->nleaves++;
	}
	return 0;
}

/* The part of range that lies in one granule, from its start. */
static size_t in_granule(struct pn_range range)
{
	size_t left = GRANULE_BYTES - (range.addr & (GRANULE_BYTES - 1));

	return range.len < left ? range.len : left;
}

void pn_index_set(struct pn_index *index, struct pn_range range, uint32_t id)
{
	while (range.len) {
		size_t part = in_granule(range);
		pn_index_entry *entry = pn_index_entry_of(index, range.addr);

		for (size_t i = 0; i < part >> PN_PAGE_SHIFT; i++)
			atomic_store_explicit(&entry[i], id,
					      memory_order_release);
		range.addr += part;
		range.len -= part;
	}
}

/* Writers hold the owner's lock: nobody else changes an entry meanwhile. */
static size_t add_to_entries(struct pn_index *index, struct pn_range range,
			     uint32_t by)
{
	size_t changed = 0;

	while (range.len) {
		size_t part = in_granule(range);
		pn_index_entry *entry = pn_index_entry_of(index, range.addr);

		for (size_t i = 0; i < part >> PN_PAGE_SHIFT; i++) {
			uint32_t old =
				atomic_load_explicit(&entry[i],
						     memory_order_relaxed);

			pn_assert(old || by == 1);
			changed += !old || !(old + by);
			atomic_store_explicit(&entry[i], old + by,
					      memory_order_release);
		}
		range.addr += part;
		range.len -= part;
	}
	return changed;
}

size_t pn_index_count_up(struct pn_index *index, struct pn_range range)
{
	return add_to_entries(index, range, 1);
}

size_t pn_index_count_down(struct pn_index *index, struct pn_range range)
{
	return add_to_entries(index, range, UINT32_MAX);
}

uintptr_t pn_index_next(const struct pn_index *index, struct pn_range range)
{
	struct pn_range pages =
		pn_range_pages(range.addr, range.len, PN_PAGE_BYTES);

	/* No entries are beyond: an invalidation of all addresses must not look
	 * there. */
	while (pages.len && !(pages.addr >> PN_INDEX_ADDRESS_BITS)) {
		size_t part = in_granule(pages);
		pn_index_entry *entry = pn_index_entry_of(index, pages.addr);

		for (size_t i = 0; entry && i < part >> PN_PAGE_SHIFT; i++)
			if (atomic_load_explicit(&entry[i],
						 memory_order_acquire))
				return pages.addr + (i << PN_PAGE_SHIFT);
		pages.addr += part;
		pages.len -= part;
	}
	return range.addr + range.len;
}
