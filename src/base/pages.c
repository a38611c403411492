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

/* The pages for len bytes: memory shorter than a huge page gets normal ones,
 * unless reserved pages were asked for. */
static enum pn_pages_huge huge_for(size_t len,
				   const struct pn_pages_policy *policy)
{
	return policy->huge == PN_PAGES_TRANSPARENT && len < PN_PAGES_HUGE_BYTES
		       ? PN_PAGES_NORMAL
		       : policy->huge;
}

static size_t page_bytes(enum pn_pages_huge huge)
{
	return huge == PN_PAGES_NORMAL ? PN_PAGE_BYTES : PN_PAGES_HUGE_BYTES;
}

/* len rounded up to whole pages, or 0 when that overflows. */
static size_t mapped_bytes(size_t len, const struct pn_pages_policy *policy)
{
	size_t page = page_bytes(huge_for(len, policy));

	if (len > SIZE_MAX / 2)
		return 0;
	return (len + page - 1) & ~(page - 1);
}

/* Transparent huge pages need an aligned range: map more, trim both ends. */
static void *map_aligned(size_t bytes, size_t align, int prot, int flags)
{
	uintptr_t start, aligned;
	char *p = mmap(NULL, bytes + align, prot,
		       MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	if (p == MAP_FAILED)
		return MAP_FAILED;
	start = (uintptr_t)p;
	aligned = (start + align - 1) & ~(align - 1);
	if (aligned > start)
		munmap(p, aligned - start);
	munmap((void *)(aligned + bytes), start + align - aligned);
	return (void *)aligned;
}

static void *map_raw(size_t bytes, enum pn_pages_huge huge)
{
	if (huge == PN_PAGES_HUGETLB)
		return mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	return map_aligned(bytes, page_bytes(huge), PROT_READ | PROT_WRITE, 0);
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

/* Applies the policy to mapped pages. The first step is advice: a kernel
 * without transparent huge pages refuses it, and then there is nothing to
 * refuse or to ask for. */
static int apply(void *p, size_t bytes, const struct pn_pages_policy *policy)
{
	enum pn_pages_huge huge = huge_for(bytes, policy);
	int ret = 0;

	if (huge != PN_PAGES_HUGETLB)
		madvise(p, bytes,
			huge == PN_PAGES_TRANSPARENT ? MADV_HUGEPAGE
						     : MADV_NOHUGEPAGE);
	if (policy->numa_node >= 0)
		ret = bind_node(p, bytes, policy->numa_node);
	if (!ret && policy->populate)
		for (size_t i = 0; i < bytes; i += PN_PAGE_BYTES)
			((volatile char *)p)[i] = 0;
	return ret;
}

int pn_pages_map(size_t len, const struct pn_pages_policy *policy, void **out)
{
	size_t bytes;
	void *p;
	int ret;

	if (!policy)
		policy = &default_policy;
	bytes = mapped_bytes(len, policy);
	if (!bytes)
		return -EINVAL;
	p = map_raw(bytes, huge_for(len, policy));
	if (p == MAP_FAILED)
		return -errno;
	ret = apply(p, bytes, policy);
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

int pn_pages_reserve(size_t len, size_t align, void **out)
{
	size_t bytes = mapped_bytes(len, &default_policy);
	void *p;

	if (!bytes)
		return -EINVAL;
	p = map_aligned(bytes, align, PROT_NONE, MAP_NORESERVE);
	if (p == MAP_FAILED)
		return -errno;
	*out = p;
	return 0;
}

void pn_pages_unreserve(void *addr, size_t len)
{
	munmap(addr, mapped_bytes(len, &default_policy));
}

int pn_pages_commit(void *addr, size_t len,
		    const struct pn_pages_policy *policy)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, ret;

	if (policy->huge == PN_PAGES_HUGETLB)
		flags |= MAP_HUGETLB;
	if (mmap(addr, len, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
		return -errno;
	ret = apply(addr, len, policy);
	if (ret)
		pn_pages_decommit(addr, len);
	return ret;
}

/* Mapping over the range returns the pages without leaving a hole that another
 * mapping could take. Where that would be one mapping too many for the system,
 * the pages are returned all the same. */
void pn_pages_decommit(void *addr, size_t len)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;

	if (mmap(addr, len, PROT_NONE, flags | MAP_NORESERVE, -1, 0) ==
	    MAP_FAILED)
		madvise(addr, len, MADV_DONTNEED);
}

/* The kernel reads the signal set before it looks at the first argument, which
 * makes it do nothing. */
static bool is_readable(uintptr_t addr)
{
	return syscall(SYS_rt_sigprocmask, -1, addr & ~(uintptr_t)7, NULL, 8) >=
		       0 ||
	       errno != EFAULT;
}

/* EINVAL: the mapping does not allow it, or it is memory of a device, or the
 * kernel is older than 5.14. */
int pn_pages_check(const void *addr, size_t len, bool write)
{
	struct pn_range pages =
		pn_range_pages((uintptr_t)addr, len, PN_PAGE_BYTES);
	void *first = (void *)pages.addr;

	if (!madvise(first, pages.len,
		     write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
		return 0;
	if (errno != EINVAL)
		return errno == ENOMEM || errno == EFAULT ? -EFAULT : 0;
	if (write && !madvise(first, pages.len, MADV_POPULATE_READ))
		return -EFAULT;
	for (size_t at = 0; at < pages.len; at += PN_PAGE_BYTES)
		if (!is_readable(pages.addr + at))
			return -EFAULT;
	return 0;
}

void pn_pages_fault_in(uintptr_t addr, size_t len)
{
	enum { LOOK = 8, WORTH = 64 << 10 };
	struct pn_range pages = pn_range_pages(addr, len, PN_PAGE_BYTES);
	uintptr_t middle = pages.addr + (pages.len / 2 & ~(PN_PAGE_BYTES - 1));
	unsigned char there[LOOK];

	if (pages.len < WORTH ||
	    mincore((void *)middle, sizeof(there) * PN_PAGE_BYTES, there))
		return;
	for (unsigned i = 0; i < sizeof(there); i++) {
		if (there[i] & 1)
			continue;
		madvise((void *)pages.addr, pages.len, MADV_POPULATE_WRITE);
		return;
	}
}
