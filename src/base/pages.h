/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pages -- memory that pinion maps for itself, under a page and NUMA policy.
 *
 * Bounce buffers, heap slabs and benchmark buffers come from here, so that the
 * options for huge pages and NUMA hold everywhere. pn_pages_map()
 * makes a mapping, pn_pages_unmap() ends it with the length that was given. A
 * user that wants its mappings side by side reserves address space first and
 * commits pages to parts of it (the heap, whose look-up by address is an
 * array). Threads: any; there is no state.
 */
#ifndef PN_BASE_PAGES_H
#define PN_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pn_pages_huge {
	PN_PAGES_NORMAL, /* 4 KiB pages, transparent huge pages refused */
	/* Asks the kernel for 2 MiB pages. Shorter memory has normal pages: the
	 * kernel charges all of a huge page however little of it is registered.
	 */
	PN_PAGES_TRANSPARENT,
	PN_PAGES_HUGETLB, /* from the reserved pool, or fail */
};

#define PN_PAGES_HUGE_BYTES ((size_t)2 << 20)

struct pn_pages_policy {
	enum pn_pages_huge huge;
	int numa_node; /* preferred node; negative: the kernel chooses */
	bool populate; /* fault every page in now */
};

/* Maps len bytes (rounded up to the policy's page size), zeroed, aligned to
 * that page size. policy may be NULL: normal pages, any node, not populated.
 * -EINVAL: len is 0 or overflows; -ENOMEM: no memory, or no huge pages
 * reserved (vm.nr_hugepages). A NUMA node that does not exist is -EINVAL. */
int pn_pages_map(size_t len, const struct pn_pages_policy *policy, void **out);

/* Unmaps what pn_pages_map() returned; len and policy as given there. NULL is
 * fine. */
void pn_pages_unmap(void *addr, size_t len,
		    const struct pn_pages_policy *policy);

/* Reserves address space without pages, aligned to `align` (a power of two, at
 * least a page). -ENOMEM; -EINVAL as above. */
int pn_pages_reserve(size_t len, size_t align, void **out);
void pn_pages_unreserve(void *addr, size_t len);

/* Maps zeroed pages into a part of reserved address space: whole pages of the
 * policy's size. Errors as for pn_pages_map(); then the part is as before. */
int pn_pages_commit(void *addr, size_t len,
		    const struct pn_pages_policy *policy);

/* Removes the pages; the part is reserved again. */
void pn_pages_decommit(void *addr, size_t len);

/* Whether the program could read, or write, all of a range of its own memory:
 * 0, or -EFAULT where it would get a signal. Faults the pages in, and takes as
 * long as that. Other threads may unmap the range meanwhile. */
int pn_pages_check(const void *addr, size_t len, bool write);

/* Faults in pages that were never touched, before a device pins them: the
 * device would do that under a lock. A few pages in the middle decide whether
 * there are any, since faulting in pages that are present costs twice as much
 * as pinning them. Failing is harmless: pinning returns the error. */
void pn_pages_fault_in(uintptr_t addr, size_t len);

#endif
