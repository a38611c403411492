/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * account -- keeps what the kernel charges for pinned pages below a limit.
 *
 * A budget (cache/budget.h) counts the pages that are asked for. The kernel may
 * charge more: io_uring charges a huge page whole. A device that knows of such
 * charges has an account, which the budget gives it, and charges it before it
 * pins anything: with what the kernel charges at most, or with what it charges
 * as far as can be known.
 *
 * The devices of all contexts of a process share one account: VmPin, which is
 * compared with it, is one figure for the process.
 *
 * Life of a charge: pn_account_charge(); the device pins; pn_account_settle();
 * the device unpins; pn_account_uncharge(). Where the kernel uncharges late,
 * pn_account_defer_uncharge() comes before the last: then the bytes count until
 * a time. The sum of the bounds may be far above what the kernel charges (many
 * pages of one huge page, or no huge page at all). pn_account_sync() replaces
 * the sum by VmPin where VmPin is less. Charges made before are part of that
 * figure, which a later figure replaces: uncharging them changes nothing.
 *
 * At rest: bytes >= what the kernel charges for this account's registrations;
 * bytes <= max_bytes except after a resize below what is in use.
 * Threads: any. lock is a leaf. near_limit is held while pages are pinned, by
 * registrations that cannot tell beforehand whether they stay below the limit;
 * lock is taken after it.
 */
#ifndef PN_DEVICE_ACCOUNT_H
#define PN_DEVICE_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"

#define PN_ACCOUNT_MAX_DEFERRED 64

struct pn_account {
	_Atomic size_t max_bytes;
	struct pn_mutex lock;
	size_t bytes;	/* lock */
	size_t pending; /* lock; of bytes, not settled */
	size_t skipped; /* lock; uncharged during a sync */
	uint32_t epoch; /* lock; counts syncs that had an effect */
	bool syncing;	/* lock */
	/* lock; uncharged here, not yet by the kernel. The last are merged when
	 * there are too many. */
	struct {
		size_t bytes;
		uint64_t until_ns;
	} late[PN_ACCOUNT_MAX_DEFERRED];
	unsigned ndeferred; /* lock */
	struct pn_mutex near_limit;
	bool others_pin; /* near_limit; VmPin was above bytes */
};

/* What was charged for one registration; the device keeps it. */
struct pn_charge {
	struct pn_account *account; /* NULL: none */
	size_t bytes;
	uint32_t epoch;
};

void pn_account_init(struct pn_account *account, size_t max_bytes);
void pn_account_fini(struct pn_account *account);

/* Charges charge->bytes to charge->account and fills in the epoch; false: with
 * what the kernel is late with, that would exceed the limit. The account may be
 * NULL, here and below: no limit. */
bool pn_account_charge(struct pn_charge *charge);

/* The same with the sum replaced by VmPin, which is read into *vmpin, where
 * VmPin is less. `live` of VmPin is known not to be late. -EAGAIN: nothing but
 * late charges are in the way; -ENOMEM: the limit is. */
int pn_account_charge_synced(struct pn_account *account,
			     struct pn_charge *charge, size_t live,
			     size_t *vmpin) PN_REQUIRES(&account->near_limit);

/* The pages are pinned, or will not be. */
void pn_account_settle(const struct pn_charge *charge);

/* What is charged now. */
size_t pn_account_bytes(struct pn_account *account);

/* Charges more for a registration than was charged at first; false: that would
 * exceed the limit, and nothing is charged. */
bool pn_account_charge_more(struct pn_charge *charge, size_t bytes);

/* The kernel may charge so many bytes until then, although they are about to
 * be uncharged. */
void pn_account_defer_uncharge(struct pn_account *account, size_t bytes,
			       uint64_t until_ns);

/* The pages are no longer pinned. */
void pn_account_uncharge(const struct pn_charge *charge);

/* Reads VmPin into *vmpin and takes it for the sum; false: it is not less, and
 * the sum stays. */
bool pn_account_sync(struct pn_account *account, size_t *vmpin)
	PN_REQUIRES(&account->near_limit);

#endif
