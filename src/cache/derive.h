/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * derive -- how much memory a process may pin where no option says so.
 *
 * Three quarters of what the devices may pin (RLIMIT_MEMLOCK where it binds) or
 * half of the memory of the control group or machine, whichever is less,
 * divided by the number of processes of the job on this node. Where processes
 * of the user share the limit, at most three quarters of what the others leave
 * of it. Threads: any; there is no state.
 */
#ifndef PN_CACHE_DERIVE_H
#define PN_CACHE_DERIVE_H

#include <stdbool.h>
#include <stddef.h>

#include "device/device.h"

struct pn_derive {
	size_t hard;  /* what the devices may pin; SIZE_MAX: no limit */
	bool by_user; /* the limit is for all processes of the user */
	unsigned nprocesses;
};

/* Another device: its limit counts, too. */
void pn_derive_add(struct pn_derive *from,
		   const struct pn_device_limits *limits);

/* *why: the limit that decided, for people. Reads /proc. */
size_t pn_derive_bytes(const struct pn_derive *from, const char **why);

/* Processes of this job on this node, as the MPI launcher says; else 1. */
unsigned pn_derive_processes(void);

/* The least memory limit of the control groups of this process (versions 1 and
 * 2) and of those above them, from /proc/self/cgroup and the mount of the
 * groups; SIZE_MAX: there is none. */
size_t pn_derive_cgroup_bytes(const char *groups, const char *mount);

/* What the other processes of this user have pinned, from their status files
 * below `proc`; those that cannot be read do not count. */
size_t pn_derive_others_bytes(const char *proc);

#endif
