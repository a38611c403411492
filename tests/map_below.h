/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * map_below -- memory at an address that a test can release and map again.
 *
 * Between munmap() and the next mmap() of a test, another thread, or a
 * sanitizer in the same one, may map something. The kernel puts a mapping into
 * the highest gap that it fits into, so memory with a large gap above it is
 * left alone.
 */
#ifndef PN_TESTS_MAP_BELOW_H
#define PN_TESTS_MAP_BELOW_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define MAP_BELOW_GAP  ((size_t)256 << 20)
#define MAP_BELOW_PAGE ((size_t)4 << 10)
#define MAP_BELOW_HUGE ((size_t)2 << 20)

/* Returns an address below a gap; NULL: there is none.
 *
 * One page in 512 has an address at which a huge page could begin. Of mmap()
 * and mremap() there the monitor reports whole huge pages, more than the
 * target: the address returned is none of these. */
static inline void *map_below_place(void)
{
	char *gap = mmap(NULL, MAP_BELOW_GAP, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (gap == MAP_FAILED || munmap(gap, MAP_BELOW_GAP))
		return NULL;
	return (uintptr_t)gap & (MAP_BELOW_HUGE - 1) ? gap
						     : gap + MAP_BELOW_PAGE;
}

/* Maps len bytes, much less than the gap; MAP_FAILED if that is not possible.
 */
static inline void *map_below(size_t len)
{
	return mmap(map_below_place(), len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

#endif
