/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cgroup -- limits of the control groups of this process, versions 1 and 2.
 *
 * A limit is a file of a group. The limit of a job is mostly that of a group
 * above the step or service that the process is in: the smallest one counts,
 * from the group of the process up to the root.
 *
 * Threads: any.
 */
#ifndef PN_BASE_CGROUP_H
#define PN_BASE_CGROUP_H

#include <stddef.h>
#include <stdio.h>

#define PN_CGROUP_GROUPS "/proc/self/cgroup"
#define PN_CGROUP_MOUNT	 "/sys/fs/cgroup"

/* Which limit. */
struct pn_cgroup_limit {
	const char *controller; /* "memory" */
	const char *file;	/* "memory.max" */
	const char *file_v1;	/* "memory.limit_in_bytes" */
	/* Reads the limit from a file; SIZE_MAX: there is none. */
	size_t (*read)(FILE *file, const void *arg);
	const void *arg;
};

/* The least limit, from a file such as PN_CGROUP_GROUPS and the mount of the
 * groups; SIZE_MAX: there is none. */
size_t pn_cgroup_least(const struct pn_cgroup_limit *limit, const char *groups,
		       const char *mount);

/* The least limit of an RDMA adapter's objects: queue pairs, completion queues,
 * registrations and others together (rdma.max). */
size_t pn_cgroup_rdma_objects(const char *adapter, const char *groups,
			      const char *mount);

#endif
