/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * budget -- how much memory may be kept pinned, in bytes and regions.
 *
 * One budget stands for everything that a context has pinned (rule 5): cached
 * regions in use or not, regions being deregistered, heap slabs, bounce
 * buffers. Whoever wants to register takes room first and gives it back when
 * the device has deregistered, not before. On kernels that unpin late, the
 * device's dying bytes count too. Several rails share one budget: each has a
 * cache, and one that finds no room has the others give up what they do not
 * use.
 * Bytes are those of 4 KiB pages. Where the kernel charges more (a huge page is
 * charged whole by `soft`), the devices see to it that the charge stays below
 * the limit, too (device/account.h): registering fails with -ENOMEM then, and
 * who registers makes room as for every limit of a device.
 *
 * The process's budget bounds the bytes of all contexts together, since the
 * limits behind it are the process's or the user's. A budget made by
 * pn_budget_open() counts there, too, and its devices have the process's
 * account; one made by pn_budget_init() stands alone, as do those of devices in
 * virtual time, which pin nothing. What the process's budget is:
 *   given     the least process_max_bytes of the open contexts; else
 *   derived   (derive.h) from the limits of all their devices; and if a context
 *             was given a larger max_bytes, that, but not more than the hard
 *             limit of the devices: asking by number goes beyond the three
 *             quarters, not beyond what the kernel allows. A line says so.
 * A context's max_bytes, where given, is its cap; else it is the process's
 * budget, and follows it. What the kernel charges for all contexts together
 * stays below the process's budget, and below the sum of the caps where each
 * context has one; which context a charge is for, the kernel does not tell.
 * Found out when a context opens, closes or is resized, and where processes of
 * the user share the limit, again about once a second while something is
 * registered, and when the kernel refuses. A forked child begins with none.
 *
 * Threads: any; taking is a compare-and-swap, so it never goes over. A budget's
 * devices are added before the first one pins. Caches come and go at any time;
 * whoever walks them holds a reference to one (pn_sharers), not a lock.
 * At rest: used <= max, except after a resize below what is in use; the
 * process's bytes are the sum of its members'.
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

/* Caches that make room for each other (reclaim.c). The lock is a leaf. */
struct pn_sharers {
	struct pn_mutex lock;
	struct pn_list caches; /* lock */
	pthread_cond_t left;   /* nobody has the reference any more */
};

struct pn_budget {
	struct pn_device *devices[PN_RAILS_MAX];
	unsigned ndevices;
	struct pn_sharers *sharers; /* its own, or the process's */
	struct pn_sharers own_sharers;
	_Atomic size_t max_bytes, max_regions;
	_Atomic size_t bytes, regions; /* taken */
	_Atomic size_t peak_bytes;
	_Atomic size_t late_bytes; /* at the last pn_budget_refresh() */
	/* Where max_bytes came from, for people: which limit, and among how
	 * many processes it was divided. NULL: it was given. */
	const char *derived_from;
	unsigned nprocesses;
	/* Derived from a limit that other processes of the user share: when
	 * to look next what they hold. PN_FOREVER: never. */
	_Atomic uint64_t refresh_ns;
	/* What the kernel charges, which may be more than bytes. */
	struct pn_account *account; /* its own, or the process's */
	struct pn_account own_account;
	bool in_process;	      /* counts in the process's */
	_Atomic size_t process_limit; /* the process's max_bytes; 0: none */
	size_t process_max_bytes;     /* as given for the process; 0: not */
	bool capped;		      /* under the process's lock; max_bytes was
				       * given */
	struct pn_list member;	      /* of the process's */
};

/* 0 as a limit means: find out. Bytes: derived (derive.h), from the first
 * device; nprocesses 0: from the MPI launcher's environment, else 1. Regions:
 * the device's limit. */
void pn_budget_init(struct pn_budget *budget, struct pn_device *device,
		    size_t max_bytes, size_t max_regions, unsigned nprocesses);

struct pn_budget_attr {
	struct pn_device *const *devices;
	unsigned ndevices;
	size_t max_bytes, max_regions; /* the caps; 0: none */
	unsigned nprocesses;	       /* 0: find out */
	size_t process_max_bytes;      /* 0: derived */
};

/* A context's budget, in the process's unless the devices are in virtual time.
 */
void pn_budget_open(struct pn_budget *budget,
		    const struct pn_budget_attr *attr);

/* Before its devices are closed, which may still uncharge the account; what is
 * still taken goes back. */
void pn_budget_close(struct pn_budget *budget);

/* Another device whose registrations count; before it has any. */
void pn_budget_add(struct pn_budget *budget, struct pn_device *device);

/* The kernel has refused to pin: others may hold more than was known. */
void pn_budget_pin_failed(struct pn_budget *budget);

/* Asks the devices what the kernel still charges although it was deregistered,
 * and now and then the system what other processes hold; for
 * pn_budget_charge(), which does not ask, since its callers hold locks. */
void pn_budget_refresh(struct pn_budget *budget);

/* Takes room; false when there is not enough, and nothing is taken. */
bool pn_budget_charge(struct pn_budget *budget, size_t bytes, size_t regions);
void pn_budget_uncharge(struct pn_budget *budget, size_t bytes, size_t regions);

/* How much of what is taken has to go for more to fit. */
struct pn_shortage {
	size_t bytes, regions; /* of the budget itself */
	size_t process_bytes;  /* of the process's */
};

struct pn_shortage pn_budget_shortage(const struct pn_budget *budget,
				      size_t bytes, size_t regions);

/* Whether so much fits when nothing else is taken. */
bool pn_budget_could_fit(const struct pn_budget *budget, size_t bytes,
			 size_t regions);

/* What a cache that has so many bytes cannot have besides: taken by others, or
 * late, or beyond the process's budget. */
size_t pn_budget_others(const struct pn_budget *budget, size_t own_bytes);

/* 0 leaves a limit as it is. Bytes that are given are a cap from then on. */
void pn_budget_resize(struct pn_budget *budget, size_t max_bytes,
		      size_t max_regions);

/* The process's budget now, for people and tests. */
struct pn_budget_process {
	size_t max_bytes, bytes, peak_bytes, late_bytes;
	size_t charged_bytes; /* by the kernel, at most */
	unsigned nmembers;
	const char *derived_from; /* NULL: it was given */
	unsigned nreads;	  /* how often the system's limits were read */
};

void pn_budget_process(struct pn_budget_process *out);

#endif
