/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/pages.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/range.h"

static const struct pn_pages_policy default_policy = { .numa_node = -1 };

static size_t page_bytes(const struct pn_pages_policy *policy)
{
	return policy->huge == PN_PAGES_NORMAL ? PN_PAGE_BYTES
					       : PN_PAGES_HUGE_BYTES;
}

/* len rounded up to whole pages, or 0 when that overflows. */
static size_t mapped_bytes(size_t len, const struct pn_pages_policy *policy)
{
	size_t page = page_bytes(policy);

	if (len > SIZE_MAX / 2)
		return 0;
	return (len + page - 1) & ~(page - 1);
}

/* Transparent huge pages need an aligned range: map more, trim both ends. */
static void *map_aligned(size_t bytes, size_t align)
{
	uintptr_t start, aligned;
	char *p = mmap(NULL, bytes + align, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return MAP_FAILED;
	start = (uintptr_t)p;
	aligned = (start + align - 1) & ~(align - 1);
	if (aligned > start)
		munmap(p, aligned - start);
	munmap((void *)(aligned + bytes), start + align - aligned);
	return (void *)aligned;
}

static void *map_raw(size_t bytes, const struct pn_pages_policy *policy)
{
	void *p;

	if (policy->huge == PN_PAGES_HUGETLB)
		return mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	p = map_aligned(bytes, page_bytes(policy));
	if (p == MAP_FAILED)
		return p;
	/* Advice only: a kernel without transparent huge pages refuses it,
	 * and then there is nothing to refuse or to ask for. */
	madvise(p, bytes,
		policy->huge == PN_PAGES_TRANSPARENT ? MADV_HUGEPAGE
						     : MADV_NOHUGEPAGE);
	return p;
}

static int bind_node(void *p, size_t bytes, int node)
{
	unsigned long mask[16] = { 0 };
	const int bits = 8 * sizeof(mask[0]);

	if (node >= (int)(8 * sizeof(mask)))
		return -EINVAL;
	mask[node / bits] = 1UL << (node % bits);
	if (syscall(SYS_mbind, p, bytes, MPOL_PREFERRED, mask, 8 * sizeof(mask),
		    0))
		return errno == ENOSYS ? -EOPNOTSUPP : -errno;
	return 0;
}

int pn_pages_map(size_t len, const struct pn_pages_policy *policy, void **out)
{
	size_t bytes;
	void *p;
	int ret = 0;

	if (!policy)
		policy = &default_policy;
	bytes = mapped_bytes(len, policy);
	if (!bytes)
		return -EINVAL;
	p = map_raw(bytes, policy);
	if (p == MAP_FAILED)
		return -errno;
	if (policy->numa_node >= 0)
		ret = bind_node(p, bytes, policy->numa_node);
	if (!ret && policy->populate)
		for (size_t i = 0; i < bytes; i += PN_PAGE_BYTES)
			((volatile char *)p)[i] = 0;
	if (ret) {
		munmap(p, bytes);
		return ret;
	}
	*out = p;
	return 0;
}

void pn_pages_unmap(void *addr, size_t len,
		    const struct pn_pages_policy *policy)
{
	if (addr)
		munmap(addr,
		       mapped_bytes(len, policy ? policy : &default_policy));
}
