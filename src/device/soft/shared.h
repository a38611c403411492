/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shared -- the memory that a soft device shares with its peers: two memfds
 * that they map.
 *
 * The presence says whether the device lives, whether it sleeps, and where it
 * polled last. The other
 * file describes its registrations; devices opened to share a domain
 * (pn_device_open_shared()) share this file. It holds, for each exposed ring, a
 * robust lock and the parameters needed to map the ring's queues, and for each
 * slot of these rings the registration that fills it. Whoever submits on an
 * exposed ring, owner or peer, holds the ring's lock, has checked the slot
 * under it, and reaps the completion before it unlocks. So at rest (lock free)
 * the queues are empty, and a slot with a generation is pinned and may be
 * accessed as it says.
 *
 * Keys: 47 bits of generation, then family, ring and slot. Generations start at
 * a random number and only grow, so that a key of an ended registration or of
 * another device is refused.
 *
 * Life: the file is anonymous and sealed against shrinking; it is freed with
 * the last process that maps it. Every process of the same user is trusted:
 * one that writes nonsense here can hang or crash the others (SECURITY.md).
 * Threads: any, in any process; the fields name their locks.
 */
#ifndef PN_DEVICE_SOFT_SHARED_H
#define PN_DEVICE_SOFT_SHARED_H

#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"

#define PN_SOFT_MAGIC	UINT32_C(0x70736f66)
#define PN_SOFT_VERSION 7

#define PN_SOFT_RING_BITS  6
#define PN_SOFT_SLOT_BITS  10
#define PN_SOFT_RINGS	   (1u << PN_SOFT_RING_BITS)
#define PN_SOFT_SLOTS	   (1u << PN_SOFT_SLOT_BITS)
#define PN_SOFT_SLOT_SHIFT 30 /* the kernel's limit: 1 GiB per slot */

enum pn_soft_family { PN_SOFT_PRIVATE, PN_SOFT_EXPOSED, PN_SOFT_FAMILIES };

/* A registration. One of more than 1 GiB fills several consecutive slots, and
 * the first describes it. */
struct pn_soft_slot {
	_Atomic uint64_t generation; /* 0: empty */
	_Atomic uint64_t base, len;
	_Atomic uint32_t access;
	uint32_t reserved;
};

struct pn_soft_ring_page {
	pthread_mutex_t lock; /* robust, process-shared: queues and slots */
	uint64_t ticket;      /* number of the submission; under lock */
	_Atomic int fd;	      /* the ring's descriptor in its owner */
	struct io_uring_params params;
} PN_ALIGNED(PN_CACHELINE);

struct pn_soft_presence {
	/* Held by the owner's service thread while it lives: when that thread
	 * dies with the lock, the kernel marks the lock's word. */
	pthread_mutex_t alive;
	/* Set by the owner before it sleeps; whoever clears it notifies
	 * (wait.c). */
	_Atomic uint32_t sleeping PN_ALIGNED(PN_CACHELINE);
	/* The core on which the owner polled last, plus one (yield.h). */
	_Atomic uint32_t core;
};

struct pn_soft_shared {
	uint32_t uses_uring; /* 0: mlock and process_vm copies */
	/* Makes atomics atomic across rings; taken before a ring's lock. */
	pthread_mutex_t atomic_lock;
	_Atomic uint32_t nrings;
	struct pn_soft_ring_page rings[PN_SOFT_RINGS];
	struct pn_soft_slot slots[PN_SOFT_RINGS][PN_SOFT_SLOTS];
};

#define PN_SOFT_LOCATION_BITS (1 + PN_SOFT_RING_BITS + PN_SOFT_SLOT_BITS)

/* The location of a registration, packed as in the low bits of a key. */
static inline unsigned pn_soft_location(enum pn_soft_family family,
					unsigned ring, unsigned slot)
{
	return (unsigned)family << (PN_SOFT_RING_BITS + PN_SOFT_SLOT_BITS) |
	       ring << PN_SOFT_SLOT_BITS | slot;
}

static inline enum pn_soft_family pn_soft_location_family(uint64_t location)
{
	return (location >> (PN_SOFT_RING_BITS + PN_SOFT_SLOT_BITS) & 1)
		       ? PN_SOFT_EXPOSED
		       : PN_SOFT_PRIVATE;
}

static inline unsigned pn_soft_location_ring(uint64_t location)
{
	return (unsigned)(location >> PN_SOFT_SLOT_BITS) & (PN_SOFT_RINGS - 1);
}

static inline unsigned pn_soft_location_slot(uint64_t location)
{
	return (unsigned)location & (PN_SOFT_SLOTS - 1);
}

static inline uint64_t pn_soft_key(uint64_t generation, unsigned location)
{
	return generation << PN_SOFT_LOCATION_BITS | location;
}

static inline uint64_t pn_soft_key_generation(uint64_t key)
{
	return key >> PN_SOFT_LOCATION_BITS;
}

/* Which of its slots a registration that starts at base uses for addr. */
static inline unsigned pn_soft_slot_of(uint64_t base, uint64_t addr)
{
	uint64_t start = base & ~UINT64_C(4095);

	return (unsigned)((addr - start) >> PN_SOFT_SLOT_SHIFT);
}

/* The address where that slot ends. */
static inline uint64_t pn_soft_slot_end(uint64_t base, uint64_t addr)
{
	uint64_t start = base & ~UINT64_C(4095);

	return start + ((uint64_t)(pn_soft_slot_of(base, addr) + 1)
			<< PN_SOFT_SLOT_SHIFT);
}

/* Makes an anonymous, sealed file of len bytes and maps it. */
int pn_soft_memfd(const char *name, size_t len, int *fd, void **map);

/* Maps a peer's file after checking its size and seals. -EPROTO: it could
 * shrink, or is too short. */
int pn_soft_map(int fd, size_t len, void **map);

void pn_soft_robust_init(pthread_mutex_t *lock);

/* Takes a robust lock. True: its last holder died; the caller repairs what the
 * lock protects and calls pn_soft_robust_repaired(). */
bool pn_soft_robust_lock(pthread_mutex_t *lock);
void pn_soft_robust_repaired(pthread_mutex_t *lock);
void pn_soft_robust_unlock(pthread_mutex_t *lock);

/* Whether a thread has died with the lock. Does not take it. */
bool pn_soft_robust_is_orphan(pthread_mutex_t *lock);

/* Publishes a registration in its slot, or removes it. Readers either hold the
 * ring's lock or read the generation before and after. */
void pn_soft_slot_set(struct pn_soft_slot *slot, uint64_t generation,
		      uint64_t base, uint64_t len, unsigned access);
void pn_soft_slot_clear(struct pn_soft_slot *slot);

/* A use of a registration: a key, a range, and what is done to it. */
struct pn_soft_access {
	uint64_t key, addr, len;
	unsigned access; /* PINION_ACCESS_* */
};

/* Whether the slot, as it is now, is that of use->key and grants that use;
 * returns its start in *base. */
bool pn_soft_slot_grants(struct pn_soft_slot *slot,
			 const struct pn_soft_access *use, uint64_t *base);

#endif
