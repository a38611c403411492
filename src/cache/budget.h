/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * budget -- how much memory a context may keep pinned, in bytes and regions.
 *
 * One budget stands for everything that is pinned (rule 5): cached regions in
 * use or not, regions being deregistered, heap slabs, bounce buffers. Whoever
 * wants to register takes room first and gives it back when the device has
 * deregistered, not before. On kernels that unpin late, the device's dying
 * bytes count too. Several rails share one budget: each has a cache, and one
 * that finds no room has the others give up what they do not use.
 * Bytes are those of 4 KiB pages. Where the kernel charges more (a huge page is
 * charged whole by `soft`), the devices see to it that the charge stays below
 * the limit, too (device/account.h): registering fails with -ENOMEM then, and
 * who registers makes room as for every limit of a device.
 *
 * Threads: any; taking is a compare-and-swap, so it never goes over. Devices
 * and caches are added before the first one pins, and leave after the last.
 * At rest: used <= max, except after a resize below what is in use.
 */
#ifndef PN_CACHE_BUDGET_H
#define PN_CACHE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"
#include "device/account.h"
#include "device/device.h"

struct pn_budget {
	struct pn_device *devices[PN_RAILS_MAX];
	unsigned ndevices;
	struct pn_list caches; /* that take from it (room.c) */
	_Atomic size_t max_bytes, max_regions;
	_Atomic size_t bytes, regions; /* taken */
	_Atomic size_t peak_bytes;
	_Atomic size_t late_bytes; /* at the last pn_budget_look() */
	/* Where the first max_bytes came from, for people: which limit, and
	 * among how many processes it was divided. NULL: it was given. */
	const char *derived_from;
	unsigned nprocesses;
	/* Derived from a limit that other processes of the user share: when
	 * to look next what they hold. PN_FOREVER: never. */
	_Atomic uint64_t look_ns;
	/* What the kernel charges, which may be more than bytes. */
	struct pn_account account;
};

/* 0 as a limit means: find out. Bytes: three quarters of what the device may
 * pin (RLIMIT_MEMLOCK where it binds) or half of the cgroup's or the machine's
 * memory, divided by the number of processes on this node (nprocesses; 0: from
 * the MPI launcher's environment, else 1). Where processes of the user share
 * the limit, at most three quarters of what the others leave of it, looked at
 * again about once a second while something is registered, and when the kernel
 * refuses. Regions: the device's limit. */
void pn_budget_init(struct pn_budget *budget, struct pn_device *device,
		    size_t max_bytes, size_t max_regions, unsigned nprocesses);

/* The least limit on memory of this process's control groups (versions 1 and
 * 2) and of those above them, from /proc/self/cgroup and where groups are
 * mounted; SIZE_MAX: there is none. */
size_t pn_budget_cgroup_bytes(const char *groups, const char *mount);

/* What the processes of this user but this one have pinned, from their status
 * files below `proc`; those that cannot be read do not count. */
size_t pn_budget_others_bytes(const char *proc);

/* The kernel has refused to pin: others may hold more than was known. */
void pn_budget_refused(struct pn_budget *budget);

/* Another device whose registrations count; before it has any. */
void pn_budget_add(struct pn_budget *budget, struct pn_device *device);

/* Asks the devices what the kernel still charges although it was deregistered,
 * and now and then the system what other processes hold; for pn_budget_take(),
 * which does not ask, since its callers hold locks. */
void pn_budget_look(struct pn_budget *budget);

/* Takes room; false when there is not enough, and nothing is taken. */
bool pn_budget_take(struct pn_budget *budget, size_t bytes, size_t regions);
void pn_budget_give(struct pn_budget *budget, size_t bytes, size_t regions);

/* 0 leaves a limit as it is. */
void pn_budget_resize(struct pn_budget *budget, size_t max_bytes,
		      size_t max_regions);

#endif
