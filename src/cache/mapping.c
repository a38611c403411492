/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a range lies in one mapping. Regions of two mappings must not be
 * merged, since one can be unmapped without the other. Linux 6.11 answers with
 * an ioctl in a microsecond. Older kernels answer only through all of
 * /proc/self/maps, which can take longer than the registration that merging
 * would save: there the answer is no.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "cache/cache_impl.h"
#include "monitor/syscalls.h"

/* linux/fs.h, since 6.11 */
struct procmap_query {
	uint64_t size;
	uint64_t query_flags; /* 0: the mapping that covers query_addr */
	uint64_t query_addr;
	uint64_t vma_start;
	uint64_t vma_end;
	uint64_t vma_flags;
	uint64_t vma_page_size;
	uint64_t vma_offset;
	uint64_t inode;
	uint32_t dev_major;
	uint32_t dev_minor;
	uint32_t vma_name_size;
	uint32_t build_id_size;
	uint64_t vma_name_addr;
	uint64_t build_id_addr;
};

#define QUERY _IOWR('f', 17, struct procmap_query)

/* Opened for each question: in a forked child, a descriptor that was kept would
 * show the mappings of the parent. Not by open() and close(), which are
 * cancellation points: this runs under the cache's lock. */
bool pn_mapping_is_one(struct pn_range range)
{
	struct procmap_query query = { .size = sizeof(query),
				       .query_addr = range.addr };
	long fd = PN_SYSCALL(SYS_openat, AT_FDCWD, (long)"/proc/self/maps",
			     O_RDONLY | O_CLOEXEC);
	bool one;

	if (fd < 0)
		return false;
	one = !PN_SYSCALL(SYS_ioctl, fd, (long)QUERY, (long)&query) &&
	      query.vma_end >= range.addr + range.len;
	PN_SYSCALL(SYS_close, fd);
	return one;
}
