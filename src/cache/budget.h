/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * budget -- how much memory may be pinned, in bytes and regions.
 *
 * A budget is charged for everything that a context has pinned (rule 5 of
 * CONTRIBUTING.md): cached regions in use or not, regions being deregistered,
 * heap slabs, bounce buffers. Whoever wants to register charges the budget
 * first, and uncharges it when the device has deregistered, not before. On
 * kernels that unpin late, the late bytes of the device count, too. Several
 * rails share one budget: each has a cache, and a cache that finds no room has
 * the others evict what they do not use. Bytes are those of 4 KiB pages. Where
 * the kernel charges more (`soft` charges a huge page whole), the devices keep
 * the charge of the kernel below the limit, too (device/account.h): registering
 * fails with -ENOMEM then, and the caller reclaims as for every limit of a
 * device.
 *
 * The process's budget bounds the bytes of all contexts together, since the
 * limits behind it are those of the process or the user. A budget made by
 * pn_budget_open() counts there, too, and its devices have the account of the
 * process; one made by pn_budget_init() is independent, as are those of devices
 * in virtual time, which pin nothing. The process's budget is
 *   given     the least process_max_bytes of the open contexts; else
 *   derived   (derive.h) from the limits of all their devices. If a context was
 *             given a larger max_bytes, the budget is raised to that, but not
 *             above the hard limit of the devices: an explicit number may
 *             exceed the three quarters of derive.h, but not what the kernel
 *             allows. A log line says that the budget was raised.
 * The max_bytes of a context, where given, is its cap; else it is the process's
 * budget and follows it. What the kernel charges for all contexts together
 * stays below the process's budget, and below the sum of the caps where each
 * context has one; the kernel does not say which context a charge is for. The
 * limits are read when a context opens or is resized, and where processes of
 * the user share the limit, again about once a second while something is
 * registered, and when the kernel refuses to pin. A forked child begins without
 * contexts.
 *
 * Threads: any; charging is a compare-and-swap, so that a limit is never
 * exceeded. The devices of a budget are added before the first one pins. Caches
 * come and go at any time; a thread that walks the list of caches holds a
 * reference to one of them (pn_sharers), not a lock.
 * At rest: used <= max, except after a resize below what is in use; the bytes
 * of the process are the sum of those of its members.
 */
#ifndef PN_CACHE_BUDGET_H
#define PN_CACHE_BUDGET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"
#include "base/lock.h"
#include "cache/derive.h"
#include "device/account.h"
#include "device/device.h"

/* The caches that share a budget and reclaim in each other (reclaim.c). The
 * lock is a leaf. */
struct pn_sharers {
	struct pn_mutex lock;
	struct pn_list caches; /* lock */
	pthread_cond_t left;   /* a leaving cache has no reference now */
};

struct pn_budget {
	struct pn_device *devices[PN_RAILS_MAX];
	unsigned ndevices;
	struct pn_sharers *sharers; /* its own, or the process's */
	struct pn_sharers own_sharers;
	_Atomic size_t max_bytes, max_regions;
	_Atomic size_t bytes, regions; /* charged */
	_Atomic size_t peak_bytes;
	_Atomic size_t deferred_bytes; /* at the last pn_budget_refresh() */
	/* Which limit max_bytes came from, for people, and among how many
	 * processes it was divided. NULL: max_bytes was given. */
	const char *derived_from;
	unsigned nprocesses;
	/* When to read again what other processes hold, if max_bytes is derived
	 * from a limit that they share. PN_FOREVER: never. */
	_Atomic uint64_t refresh_ns;
	/* What the kernel charges; may be more than bytes. */
	struct pn_account *account; /* its own, or the process's */
	struct pn_account own_account;
	bool in_process; /* charges count in the process's budget, too */
	_Atomic size_t process_limit; /* the process's max_bytes; 0: none */
	size_t process_max_bytes;     /* as given for the process; 0: not */
	bool capped;		      /* under the process's lock; max_bytes was
				       * given */
	struct pn_list member;	      /* of the process's */
};

/* A limit of 0 means: find out. Bytes are derived (derive.h) from the first
 * device; nprocesses 0: from the environment of the MPI launcher, else 1.
 * Regions: the limit of the device. */
void pn_budget_init(struct pn_budget *budget, struct pn_device *device,
		    size_t max_bytes, size_t max_regions, unsigned nprocesses);

struct pn_budget_attr {
	struct pn_device *const *devices;
	unsigned ndevices;
	size_t max_bytes, max_regions; /* the caps; 0: none */
	unsigned nprocesses;	       /* 0: find out */
	size_t process_max_bytes;      /* 0: derived */
};

/* A context's budget. It counts in the process's, unless the devices are in
 * virtual time. */
void pn_budget_open(struct pn_budget *budget,
		    const struct pn_budget_attr *attr);

/* Called before its devices are closed, which may still uncharge the account.
 * What is still charged is uncharged. */
void pn_budget_close(struct pn_budget *budget);

/* Another device whose registrations count; called before it has any. */
void pn_budget_add(struct pn_budget *budget, struct pn_device *device);

/* The kernel has refused to pin: other processes may hold more than was known.
 */
void pn_budget_pin_failed(struct pn_budget *budget);

/* Asks the devices what the kernel still charges although it was deregistered,
 * and from time to time the system what other processes hold.
 * pn_budget_charge() does not ask, since its callers hold locks. */
void pn_budget_refresh(struct pn_budget *budget);

/* Whether pn_budget_refresh() can change anything, now or later. */
bool pn_budget_needs_refresh(const struct pn_budget *budget);

/* Charges; false: there is not enough room, and nothing is charged. */
bool pn_budget_charge(struct pn_budget *budget, size_t bytes, size_t regions);
void pn_budget_uncharge(struct pn_budget *budget, size_t bytes, size_t regions);

/* How much has to be uncharged for so much more to fit. */
struct pn_shortage {
	size_t bytes, regions; /* of the budget itself */
	size_t process_bytes;  /* of the process's */
};

struct pn_shortage pn_budget_shortage(const struct pn_budget *budget,
				      size_t bytes, size_t regions);

/* Whether so much would fit if nothing else were charged. */
bool pn_budget_could_fit(const struct pn_budget *budget, size_t bytes,
			 size_t regions);

/* The bytes that are not available to a cache that is charged own_bytes:
 * charged by others, uncharged late, or beyond the process's budget. */
size_t pn_budget_others(const struct pn_budget *budget, size_t own_bytes);

/* 0 leaves a limit as it is. A number of bytes is a cap from then on. */
void pn_budget_resize(struct pn_budget *budget, size_t max_bytes,
		      size_t max_regions);

/* The process's budget now, for people and tests. */
struct pn_budget_process {
	size_t max_bytes, bytes, peak_bytes, deferred_bytes;
	size_t charged_bytes; /* by the kernel, at most */
	unsigned nmembers;
	const char *derived_from; /* NULL: it was given */
	unsigned nreads;	  /* how often the system's limits were read */
};

void pn_budget_process(struct pn_budget_process *out);

#endif
