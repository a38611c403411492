/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * account -- keeps the kernel's charges for pinned pages below a limit.
 *
 * A budget (cache/budget.h) counts the pages that are asked for. The kernel may
 * charge more: io_uring charges a huge page whole. A device with such charges
 * has an account, which the budget gives it. The device charges the account
 * before it pins: either with an upper bound of the kernel's charge, or with
 * the charge as far as it can be known.
 *
 * The devices of all contexts of a process share one account, since VmPin, with
 * which it is compared, is one figure per process.
 *
 * Life of a charge: pn_account_charge(); the device pins; pn_account_settle();
 * the device unpins; pn_account_uncharge(). Where the kernel uncharges late,
 * the device calls pn_account_defer_uncharge() before the last step: the bytes
 * then count until a given time.
 * The sum of the bounds may be far above what the kernel charges (many pages of
 * one huge page, or no huge page at all). pn_account_sync() replaces the sum by
 * VmPin where VmPin is less. Charges made before are then part of that figure,
 * which a later sync replaces: uncharging them changes nothing.
 *
 * At rest: bytes >= the kernel's charges for this account's registrations;
 * bytes <= max_bytes except after max_bytes was lowered below what is in use.
 * Threads: any. lock is a leaf. near_limit is held while pages are pinned by
 * registrations that cannot tell in advance whether they stay below the limit;
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
	size_t pending; /* lock; part of bytes that is not settled */
	size_t skipped; /* lock; uncharged during a sync */
	uint32_t epoch; /* lock; number of syncs that changed bytes */
	bool syncing;	/* lock */
	/* lock; uncharged here, still charged by the kernel. When the array is
	 * full, the last entry takes what is added. */
	struct {
		size_t bytes;
		uint64_t until_ns;
	} deferred[PN_ACCOUNT_MAX_DEFERRED];
	unsigned ndeferred; /* lock */
	struct pn_mutex near_limit;
	bool others_pin; /* near_limit; VmPin was above bytes */
};

/* What was charged for one registration; the device stores it. */
struct pn_charge {
	struct pn_account *account; /* NULL: none */
	size_t bytes;
	uint32_t epoch;
};

void pn_account_init(struct pn_account *account, size_t max_bytes);
void pn_account_fini(struct pn_account *account);

/* Charges charge->bytes to charge->account and sets the epoch. False: together
 * with deferred uncharges that would exceed the limit. The account may be NULL
 * here and below: no limit. */
bool pn_account_charge(struct pn_charge *charge);

/* As pn_account_charge(), after pn_account_sync(). VmPin is returned in *vmpin;
 * `live` bytes of it are known not to be deferred uncharges. -EAGAIN: only
 * deferred uncharges are in the way; -ENOMEM: the limit is reached. */
int pn_account_charge_synced(struct pn_account *account,
			     struct pn_charge *charge, size_t live,
			     size_t *vmpin) PN_REQUIRES(&account->near_limit);

/* The pages are pinned, or pinning has failed. */
void pn_account_settle(const struct pn_charge *charge);

/* Returns the bytes that are charged now. */
size_t pn_account_bytes(struct pn_account *account);

/* Adds to the charge of a registration. False: that would exceed the limit, and
 * nothing is charged. */
bool pn_account_charge_more(struct pn_charge *charge, size_t bytes);

/* The kernel may charge `bytes` until until_ns, although they are about to be
 * uncharged. */
void pn_account_defer_uncharge(struct pn_account *account, size_t bytes,
			       uint64_t until_ns);

/* The pages are no longer pinned. */
void pn_account_uncharge(const struct pn_charge *charge);

/* Reads VmPin into *vmpin and uses it as the sum. False: VmPin is not less, and
 * the sum is unchanged. */
bool pn_account_sync(struct pn_account *account, size_t *vmpin)
	PN_REQUIRES(&account->near_limit);

#endif
