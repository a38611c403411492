/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * slots -- registrations of a soft device: which slot of which ring holds which
 * registration, and the pages that this pins.
 *
 * There are two families of rings. Private rings hold memory without remote
 * access; peers never see them. Exposed rings hold memory with remote access;
 * peers share them. Each ring has a table of slots made in advance. Registering
 * fills free slots (neighbours in one call where possible), deregistering
 * empties them. When all slots are used another ring is made, up to a limit.
 *
 * A registration is in two tables: the owner's (for lkeys) and, if exposed, the
 * shared one (for rkeys). Each has a generation of its own, so that a new rkey
 * does not change the lkey.
 * Filling a slot needs no lock that peers take: nobody uses the slot until its
 * generation is published. Emptying a slot needs one: first the generation is
 * cleared under the ring's lock, so that nothing is in flight; then the slot is
 * emptied.
 *
 * Bytes are counted in the 4 KiB pages touched, as the kernel charges normal
 * pages. The kernel charges a huge page whole, once per ring, however little of
 * it is registered. The account (device/account.h), if there is one, keeps
 * those charges below its limit: first by an upper bound that costs nothing to
 * compute; where the bound exceeds the limit, by the page tables and VmPin
 * (pin.c). Where the kernel uncharges late (`deferred_uncharge`), the bytes are
 * counted as dying until VmPin has fallen or 3 s have passed.
 * Emptying a slot can fail: kernels allocate memory for it (6.1 does). The
 * registration is over for its user, whose keys are cleared first; its slots
 * stay used and charged (`stuck`), and the next registration or deregistration
 * tries to empty them again. Closing the ring empties all.
 * Threads: any. slots->lock protects the allocation of slots, the dying and
 * the stuck entries. It is never held while pages are pinned, and is taken
 * before a ring's lock.
 */
#ifndef PN_DEVICE_SOFT_SLOTS_H
#define PN_DEVICE_SOFT_SLOTS_H

#include "base/lock.h"
#include "device/account.h"
#include "device/device.h"
#include "device/soft/ring.h"
#include "device/soft/shared.h"

#define PN_SOFT_DYING 64
#define PN_SOFT_STUCK 64

/* A ring of the owner and what its slots hold. */
struct pn_soft_table {
	struct pn_soft_ring ring;
	struct pn_soft_slot *local;	    /* for lkeys */
	struct pn_soft_locked **locked;	    /* by slot; without io_uring */
	struct pn_charge *charges;	    /* by slot */
	struct pn_soft_ring_page *own_page; /* a private ring's */
	uint64_t used[PN_SOFT_SLOTS / 64];  /* slots->lock */
	unsigned nfree, hint;		    /* slots->lock */
};

struct pn_soft_deferred {
	size_t bytes; /* pages */
	uint64_t until_ns;
};

struct pn_soft_slots {
	struct pn_soft_shared *shared;
	unsigned nslots, max_rings;
	bool uses_uring;
	bool deferred_uncharge;		/* the kernel uncharges late */
	const struct pn_device *device; /* whose account is charged */
	struct pn_mutex lock;
	struct pn_soft_table *_Atomic tables[PN_SOFT_FAMILIES][PN_SOFT_RINGS];
	unsigned ntables[PN_SOFT_FAMILIES]; /* lock */
	_Atomic uint64_t generation;
	_Atomic size_t live_bytes, mrs, device_bytes;
	/* The last entry takes what is added when the array is full. */
	struct pn_soft_deferred dying[PN_SOFT_DYING]; /* lock */
	unsigned ndying;			      /* lock */
	/* What is stuck when the array is full stays until the ring closes. */
	struct pn_mr stuck[PN_SOFT_STUCK]; /* lock */
	_Atomic unsigned nstuck;	   /* lock to change */
};

struct pn_soft_slots_attr {
	const struct pn_device *device;
	unsigned nslots;    /* of each ring */
	unsigned max_rings; /* of each family */
	bool uses_uring;
};

/* Makes the first ring of each family. Errors are those of io_uring. */
int pn_soft_slots_init(struct pn_soft_slots *slots,
		       struct pn_soft_shared *shared,
		       const struct pn_soft_slots_attr *attr);

/* Empties the slots that are still filled, then closes the rings. */
void pn_soft_slots_fini(struct pn_soft_slots *slots);

/* See pn_device_register(), which has checked the ranges. */
int pn_soft_slots_register(struct pn_soft_slots *slots,
			   struct pn_mr *const *mrs, unsigned n);
void pn_soft_slots_deregister(struct pn_soft_slots *slots,
			      struct pn_mr *const *mrs, unsigned n);

/* -EINVAL: mr is not exposed. */
int pn_soft_slots_rekey(struct pn_soft_slots *slots, struct pn_mr *mr);

void pn_soft_slots_pinned(struct pn_soft_slots *slots, struct pn_pinned *out);

/* The table that a location or key names, or NULL. */
struct pn_soft_table *pn_soft_slots_table(struct pn_soft_slots *slots,
					  uint64_t location);

/* Whether lkey covers [addr, addr + len) with that access. */
bool pn_soft_slots_covers(struct pn_soft_slots *slots, uint64_t lkey,
			  const void *addr, size_t len, unsigned access);

/* The number of rings of both families. */
unsigned pn_soft_slots_rings(struct pn_soft_slots *slots);

#endif
