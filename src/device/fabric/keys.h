/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keys -- the registrations of a fabric device.
 *
 * A slot holds one registration: its range, its access and its memory region of
 * the provider (struct fid_mr). The keys that callers see are ours: the number
 * of the slot and a generation, for an rkey also a tag of the device. The
 * target looks an rkey up before it accesses memory, and post() an lkey. The
 * provider's key is told to a peer only for one long operation.
 *
 * A range may be in use when it is deregistered: the device copies, or the
 * provider reads or writes the memory for a long operation. These count as
 * users of the slot (pn_fabric_slot_use()); deregistration waits until there
 * are none.
 *
 * At rest: a slot with lkey 0 is free and in the free list; every other slot
 * has a fid_mr.
 * Threads: any. Slots are read without a lock. Whoever looks an rkey up counts
 * as a user before he reads the key; deregistration clears the keys before it
 * reads the number of users. Whoever uses the fid_mr counts before he reads
 * `mr`; rekey replaces it before it reads the number. post() looks up lkeys of
 * its caller, who keeps the memory registered, without counting.
 */
#ifndef PN_DEVICE_FABRIC_KEYS_H
#define PN_DEVICE_FABRIC_KEYS_H

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "device/device.h"

#define PN_FABRIC_BLOCK_SLOTS 1024
#define PN_FABRIC_MAX_BLOCKS  1024

struct pn_fabric_slot {
	_Atomic uint64_t lkey, rkey; /* lkey 0: free; rkey 0: none */
	uintptr_t addr;
	size_t len;
	unsigned access;
	struct fid_mr *_Atomic mr;
	_Atomic unsigned users; /* operations that may access the range */
	unsigned next_free;
};

struct pn_fabric_keys {
	/* Constant. */
	struct fid_domain *domain;
	struct fid_ep *endpoint; /* to bind to; NULL: no FI_MR_ENDPOINT */
	bool virt_addr;	   /* remote addresses are virtual, else offsets */
	bool prov_key;	   /* the provider chooses keys */
	bool pins;	   /* the provider pins pages */
	uint32_t tag;	   /* in our rkeys */
	uint64_t key_mask; /* of keys that we choose */

	struct pn_mutex lock; /* protects blocks and the free list */
	struct pn_fabric_slot *_Atomic blocks[PN_FABRIC_MAX_BLOCKS];
	unsigned nslots, free; /* free: slot + 1 */

	_Atomic uint64_t generation;
	_Atomic size_t live_bytes, nmrs;
};

void pn_fabric_keys_init(struct pn_fabric_keys *keys);
/* Closes the regions that are left; nobody uses them. */
void pn_fabric_keys_fini(struct pn_fabric_keys *keys);

int pn_fabric_keys_register(struct pn_fabric_keys *keys, struct pn_mr *mr);
/* First of two steps: from the return on the keys are refused. */
struct pn_fabric_slot *pn_fabric_keys_revoke(struct pn_fabric_keys *keys,
					     const struct pn_mr *mr);
/* Second step, without users. */
void pn_fabric_keys_close(struct pn_fabric_keys *keys, const struct pn_mr *mr);
/* First of two steps: gives mr a new rkey, and a new region of the provider if
 * that can be opened. Returns the slot; users with the old key may be left.
 * *old is to be closed then: the old region or NULL. */
struct pn_fabric_slot *pn_fabric_keys_rekey(struct pn_fabric_keys *keys,
					    struct pn_mr *mr,
					    struct fid_mr **old);
/* Second step, without users. */
void pn_fabric_region_close(struct fid_mr *region);

/* The slot of a segment whose key covers it and allows `access`; or NULL. */
struct pn_fabric_slot *pn_fabric_keys_local(const struct pn_fabric_keys *keys,
					    const struct pn_sge *sge,
					    unsigned access);
/* The slot of a range that peers may access so; or NULL. The caller is a user
 * of it until pn_fabric_slot_unuse(). */
struct pn_fabric_slot *pn_fabric_keys_remote(const struct pn_fabric_keys *keys,
					     uint64_t addr, uint64_t len,
					     uint64_t rkey, unsigned access);

/* Registers memory of the device itself. */
int pn_fabric_region_open(struct pn_fabric_keys *keys, void *addr, size_t len,
			  struct fid_mr **out);

/* An address in a slot as peers give it to fi_read(). */
static inline uint64_t pn_fabric_slot_addr(const struct pn_fabric_keys *keys,
					   const struct pn_fabric_slot *slot,
					   uintptr_t addr)
{
	return keys->virt_addr ? addr : addr - slot->addr;
}

static inline void pn_fabric_slot_use(struct pn_fabric_slot *slot)
{
	atomic_fetch_add(&slot->users, 1);
}

static inline void pn_fabric_slot_unuse(struct pn_fabric_slot *slot)
{
	atomic_fetch_sub_explicit(&slot->users, 1, memory_order_release);
}

#endif
