/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/verbs_access.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include "base/cgroup.h"
#include "base/compiler.h"
#include "base/range.h"

int pn_verbs_remote_access(unsigned access, bool is_iwarp)
{
	int flags = 0;

	if (access & PINION_ACCESS_REMOTE_READ)
		flags |= IBV_ACCESS_REMOTE_READ;
	if (access & PINION_ACCESS_REMOTE_WRITE)
		flags |= IBV_ACCESS_REMOTE_WRITE;
	if (access & PINION_ACCESS_REMOTE_ATOMIC && !is_iwarp)
		flags |= IBV_ACCESS_REMOTE_ATOMIC;
	return flags;
}

int pn_verbs_access(unsigned access, bool is_iwarp)
{
	int flags = pn_verbs_remote_access(access, is_iwarp);

	if (access & PINION_ACCESS_LOCAL_WRITE)
		flags |= IBV_ACCESS_LOCAL_WRITE;
	if (access & PINION_ACCESS_RELAXED)
		flags |= IBV_ACCESS_RELAXED_ORDERING;
	if (is_iwarp && access & PINION_ACCESS_LOCAL_WRITE)
		flags |= IBV_ACCESS_REMOTE_WRITE;
	return flags;
}

/* Whether a range is mapped completely. */
static bool is_mapped(const void *addr, size_t len)
{
	struct pn_range left =
		pn_range_pages((uintptr_t)addr, len, PN_PAGE_BYTES);
	unsigned char present[256];

	while (left.len) {
		size_t most = sizeof(present) * PN_PAGE_BYTES;
		size_t now = left.len < most ? left.len : most;

		if (mincore((void *)left.addr, now, present))
			return false;
		left.addr += now;
		left.len -= now;
	}
	return true;
}

/* With fork support in libibverbs, its madvise() fails first, with ENOMEM,
 * for unmapped memory. So look at the mapping. */
int pn_verbs_reg_error(int error, const void *addr, size_t len)
{
	if (!is_mapped(addr, len))
		return -EFAULT;
	switch (error) {
	case EFAULT:
	case EINVAL: /* the mapping cannot be pinned */
	case EPERM:
	case EOPNOTSUPP:
		return -EFAULT;
	default:
		return -ENOMEM;
	}
}

size_t pn_verbs_max_mrs(const struct ibv_device_attr *attr, const char *adapter)
{
	size_t objects = pn_cgroup_rdma_objects(adapter, PN_CGROUP_GROUPS,
						PN_CGROUP_MOUNT);
	size_t mrs = attr->max_mr > 1 ? (size_t)attr->max_mr - 1 : SIZE_MAX;

	if (objects == SIZE_MAX)
		return mrs;
	return pn_min_size(mrs, objects - objects / 4);
}
