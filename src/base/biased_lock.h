/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * biased_lock -- a lock between owners, who take it all the time, and one
 * visitor, a thread that wants it rarely and only while the owners do not.
 *
 * With one owner at a time (the owners serialise themselves), the owner's side
 * is a store, a load and a store: the visitor pays for the order of both sides
 * with a membarrier (asymmetric.h). With several owners, or without
 * membarrier(2), a mutex is taken besides.
 *
 * The visitor does not wait: pn_biased_visit() watches for about a microsecond
 * whether an owner takes the lock, and enters only if none did. If an owner has
 * taken it since the last visit, the visitor gives up its core first: it may be
 * the core that the owner polls on, and needs to go on. An owner that
 * finds the visitor inside waits until it has left; the visitor looks from time
 * to time whether an owner waits (pn_biased_is_wanted()).
 *
 * A membarrier interrupts the core of an owner that computes, and takes 20 us
 * in a virtual machine. So a visitor that leaves keeps the lock reserved, and
 * enters again without one. The next owner ends the reservation, by one atomic
 * operation. An owner that may be away for long reserves the lock for the
 * visitor (pn_biased_offer()): while it is reserved, no owner came back.
 *
 * At rest: `turns` is even and `visitor` is PN_BIASED_FREE or
 * PN_BIASED_RESERVED. While it is reserved, no owner is inside.
 * Threads: owners call lock and unlock; one thread at a time visits and leaves.
 */
#ifndef PN_BASE_BIASED_LOCK_H
#define PN_BASE_BIASED_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/asymmetric.h"
#include "base/compiler.h"
#include "base/lock.h"

enum pn_biased_visitor {
	PN_BIASED_FREE,
	PN_BIASED_RESERVED, /* for the visitor, until an owner is inside */
	PN_BIASED_VISITED,
	PN_BIASED_WANTED, /* an owner spins until the visitor leaves */
	PN_BIASED_BLOCKED /* an owner sleeps until then */
};

struct pn_biased_lock {
	/* Counts each lock and each unlock of the owner: odd, the owner is
	 * inside. With several owners it counts two for each lock. */
	_Atomic uint32_t turns;
	_Atomic uint32_t visitor; /* enum pn_biased_visitor */
	/* The visitor's: `turns` at the end of the last visit; and whether
	 * another thread needed its core then. */
	uint32_t seen;
	bool crowded;
	bool several_owners;
	struct pn_mutex mutex; /* with several_owners */
};

/* Owners take turns by themselves if one_owner is set. */
void pn_biased_init(struct pn_biased_lock *lock, bool one_owner);
void pn_biased_fini(struct pn_biased_lock *lock);

/* The slow paths: the visitor is inside; there are several owners. */
void pn_biased_lock_wait(struct pn_biased_lock *lock);
void pn_biased_lock_mutex(struct pn_biased_lock *lock);
void pn_biased_unlock_mutex(struct pn_biased_lock *lock);

static inline void pn_biased_lock(struct pn_biased_lock *lock)
{
	uint32_t n = atomic_load_explicit(&lock->turns, memory_order_relaxed);

	if (pn_unlikely(lock->several_owners)) {
		pn_biased_lock_mutex(lock);
		return;
	}
	pn_asymmetric_store(&lock->turns, n + 1);
	if (pn_unlikely(pn_asymmetric_load(&lock->visitor)))
		pn_biased_lock_wait(lock);
}

static inline void pn_biased_unlock(struct pn_biased_lock *lock)
{
	uint32_t n = atomic_load_explicit(&lock->turns, memory_order_relaxed);

	if (pn_unlikely(lock->several_owners)) {
		pn_biased_unlock_mutex(lock);
		return;
	}
	/* Pairs with the visitor's acquiring load. */
	atomic_store_explicit(&lock->turns, n + 1, memory_order_release);
}

/* The owner, which is outside, lets the visitor enter without delay. */
static inline void pn_biased_offer(struct pn_biased_lock *lock)
{
	uint32_t seen = PN_BIASED_FREE;

	if (!lock->several_owners)
		atomic_compare_exchange_strong(&lock->visitor, &seen,
					       PN_BIASED_RESERVED);
}

/* True: the visitor is inside, pn_biased_leave() follows. False: an owner took
 * the lock meanwhile, or has it. Takes microseconds. */
bool pn_biased_visit(struct pn_biased_lock *lock);
/* The same, if the lock is reserved. Takes nanoseconds. */
bool pn_biased_visit_reserved(struct pn_biased_lock *lock);
void pn_biased_leave(struct pn_biased_lock *lock);

/* Whether an owner waits for the visitor. With several owners: not known,
 * false. */
static inline bool pn_biased_is_wanted(struct pn_biased_lock *lock)
{
	return atomic_load_explicit(&lock->visitor, memory_order_relaxed) >=
	       PN_BIASED_WANTED;
}

#endif
