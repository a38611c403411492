/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/biased_lock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

/* A program that polls takes the lock several times in so many pauses of the
 * CPU, about a microsecond. */
#define WATCH_PAUSES 64

/* An owner that waits for the visitor sleeps after so many. */
#define SPIN_PAUSES 2000

/* A sched_yield() that takes longer has let another thread run. */
#define SWITCH_NS PN_NS_PER_US

void pn_biased_init(struct pn_biased_lock *lock, bool one_owner)
{
	*lock = (struct pn_biased_lock){ .several_owners = true };
	if (one_owner && pn_asymmetric_init())
		lock->several_owners = false;
	pn_mutex_init(&lock->mutex);
}

void pn_biased_fini(struct pn_biased_lock *lock)
{
	pn_mutex_fini(&lock->mutex);
}

/* --- owners --------------------------------------------------------------- */

void pn_biased_lock_mutex(struct pn_biased_lock *lock) PN_NO_THREAD_SAFETY
{
	pn_lock(&lock->mutex);
	atomic_store_explicit(&lock->turns,
			      atomic_load_explicit(&lock->turns,
						   memory_order_relaxed) +
				      2,
			      memory_order_relaxed);
}

void pn_biased_unlock_mutex(struct pn_biased_lock *lock) PN_NO_THREAD_SAFETY
{
	pn_unlock(&lock->mutex);
}

/* Sleeps until the visitor has left, after a while of spinning. */
static void wait_for_visitor(struct pn_biased_lock *lock)
{
	uint32_t seen = PN_BIASED_RESERVED;

	if (atomic_compare_exchange_strong(&lock->visitor, &seen,
					   PN_BIASED_FREE))
		return;
	seen = PN_BIASED_VISITED;
	atomic_compare_exchange_strong(&lock->visitor, &seen, PN_BIASED_WANTED);
	for (unsigned i = 0; i < SPIN_PAUSES; i++) {
		if (!atomic_load(&lock->visitor))
			return;
		pn_relax();
	}
	seen = PN_BIASED_WANTED;
	atomic_compare_exchange_strong(&lock->visitor, &seen,
				       PN_BIASED_BLOCKED);
	syscall(SYS_futex, &lock->visitor, FUTEX_WAIT_PRIVATE,
		PN_BIASED_BLOCKED, NULL, NULL, 0);
}

/* The owner steps back, so that the visitor does not see it inside, and tries
 * again. */
PN_NOINLINE void pn_biased_lock_wait(struct pn_biased_lock *lock)
{
	uint32_t n = atomic_load_explicit(&lock->turns, memory_order_relaxed);

	do {
		atomic_store(&lock->turns, n + 1);
		while (atomic_load(&lock->visitor))
			wait_for_visitor(lock);
		n += 2;
		pn_asymmetric_store(&lock->turns, n);
	} while (pn_asymmetric_load(&lock->visitor));
}

/* --- the visitor ---------------------------------------------------------- */

static uint32_t turns_of(const struct pn_biased_lock *lock)
{
	return atomic_load_explicit(&lock->turns, memory_order_relaxed);
}

static bool owners_are_idle(struct pn_biased_lock *lock)
{
	uint32_t n = turns_of(lock);

	if (n & 1)
		return false;
	if (n != lock->seen) {
		uint64_t begin_ns = pn_clock_ns();

		sched_yield();
		lock->crowded = pn_clock_ns() > begin_ns + SWITCH_NS;
	}
	for (unsigned i = 0; i < WATCH_PAUSES; i++) {
		if (turns_of(lock) != n)
			return false;
		pn_relax();
	}
	return true;
}

static void free_lock(struct pn_biased_lock *lock)
{
	if (atomic_exchange(&lock->visitor, PN_BIASED_FREE) ==
	    PN_BIASED_BLOCKED)
		syscall(SYS_futex, &lock->visitor, FUTEX_WAKE_PRIVATE, INT_MAX,
			NULL, NULL, 0);
}

/* While the lock is reserved, `visitor` is never 0: an owner that looks after
 * this finds the visitor inside, without a barrier. */
bool pn_biased_visit_reserved(struct pn_biased_lock *lock) PN_NO_THREAD_SAFETY
{
	uint32_t seen = PN_BIASED_RESERVED;

	if (lock->several_owners)
		return pn_try_lock(&lock->mutex);
	return atomic_compare_exchange_strong(&lock->visitor, &seen,
					      PN_BIASED_VISITED);
}

bool pn_biased_visit(struct pn_biased_lock *lock) PN_NO_THREAD_SAFETY
{
	bool idle;

	if (!lock->several_owners && pn_biased_visit_reserved(lock))
		return true;
	idle = owners_are_idle(lock);
	lock->seen = turns_of(lock);
	if (!idle)
		return false;
	if (lock->several_owners)
		return pn_try_lock(&lock->mutex);
	atomic_store(&lock->visitor, PN_BIASED_VISITED);
	pn_asymmetric_heavy();
	if (!(pn_asymmetric_load(&lock->turns) & 1))
		return true;
	free_lock(lock);
	return false;
}

void pn_biased_leave(struct pn_biased_lock *lock) PN_NO_THREAD_SAFETY
{
	uint32_t seen = PN_BIASED_VISITED;

	if (lock->several_owners)
		pn_unlock(&lock->mutex);
	else if (!atomic_compare_exchange_strong(&lock->visitor, &seen,
						 PN_BIASED_RESERVED))
		free_lock(lock); /* an owner waits */
}
