/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/account.h"

#include <errno.h>

#include "base/clock.h"
#include "base/huge.h"

void pn_account_init(struct pn_account *account, size_t max_bytes)
{
	*account = (struct pn_account){ .bytes = 0 };
	atomic_init(&account->max_bytes, max_bytes);
	pn_mutex_init(&account->lock);
	pn_mutex_init(&account->near_limit);
}

void pn_account_fini(struct pn_account *account)
{
	pn_mutex_fini(&account->lock);
	pn_mutex_fini(&account->near_limit);
}

static bool within_limit(const struct pn_account *account, size_t bytes,
			 size_t deferred)
{
	size_t max =
		atomic_load_explicit(&account->max_bytes, memory_order_relaxed);
	size_t used = account->bytes + deferred;

	return used <= max && bytes <= max - used;
}

static size_t deferred_bytes(struct pn_account *account)
	PN_REQUIRES(&account->lock)
{
	uint64_t now = account->ndeferred ? pn_clock_ns() : 0;
	unsigned left = 0;
	size_t sum = 0;

	for (unsigned i = 0; i < account->ndeferred; i++) {
		if (account->deferred[i].until_ns <= now)
			continue;
		sum += account->deferred[i].bytes;
		account->deferred[left++] = account->deferred[i];
	}
	account->ndeferred = left;
	return sum;
}

/* 0, -EAGAIN or -ENOMEM as in the header. At most max_deferred bytes of
 * deferred uncharges count; synced: the sum includes them. */
static int charge_now(struct pn_charge *charge, bool synced,
		      size_t max_deferred)
{
	struct pn_account *account = charge->account;
	size_t deferred;
	int ret = 0;

	pn_lock(&account->lock);
	deferred = deferred_bytes(account);
	if (deferred > max_deferred)
		deferred = max_deferred;
	if (within_limit(account, charge->bytes, synced ? 0 : deferred)) {
		account->bytes += charge->bytes;
		account->pending += charge->bytes;
		charge->epoch = account->epoch;
	} else {
		ret = deferred && charge->bytes <=
					      atomic_load(&account->max_bytes)
			      ? -EAGAIN
			      : -ENOMEM;
	}
	pn_unlock(&account->lock);
	return ret;
}

bool pn_account_charge(struct pn_charge *charge)
{
	return !charge->account || !charge_now(charge, false, SIZE_MAX);
}

size_t pn_account_bytes(struct pn_account *account)
{
	size_t bytes;

	pn_lock(&account->lock);
	bytes = account->bytes;
	pn_unlock(&account->lock);
	return bytes;
}

bool pn_account_charge_more(struct pn_charge *charge, size_t bytes)
{
	struct pn_account *account = charge->account;
	bool ok;

	pn_lock(&account->lock);
	ok = within_limit(account, bytes, 0);
	if (ok) {
		account->bytes += bytes;
		charge->bytes += bytes;
	}
	pn_unlock(&account->lock);
	return ok;
}

void pn_account_settle(const struct pn_charge *charge)
{
	struct pn_account *account = charge->account;

	if (!account)
		return;
	pn_lock(&account->lock);
	account->pending -= charge->bytes;
	pn_unlock(&account->lock);
}

void pn_account_defer_uncharge(struct pn_account *account, size_t bytes,
			       uint64_t until_ns)
{
	unsigned last;

	if (!account)
		return;
	pn_lock(&account->lock);
	if (account->ndeferred < PN_ACCOUNT_MAX_DEFERRED)
		account->deferred[account->ndeferred++].bytes = 0;
	last = account->ndeferred - 1;
	account->deferred[last].bytes += bytes;
	account->deferred[last].until_ns = until_ns;
	pn_unlock(&account->lock);
}

void pn_account_uncharge(const struct pn_charge *charge)
{
	struct pn_account *account = charge->account;

	if (!account)
		return;
	pn_lock(&account->lock);
	if (account->syncing && charge->epoch == account->epoch)
		account->skipped += charge->bytes;
	else if (charge->epoch == account->epoch)
		account->bytes -= charge->bytes;
	pn_unlock(&account->lock);
}

/* `pending` is read before VmPin: pending pages are in VmPin afterwards, or
 * still to be pinned. Charges made meanwhile stay on top of VmPin. */
bool pn_account_sync(struct pn_account *account, size_t *vmpin)
{
	size_t before, pending;
	bool less;

	pn_lock(&account->lock);
	before = account->bytes;
	pending = account->pending;
	account->skipped = 0;
	account->syncing = true;
	pn_unlock(&account->lock);
	*vmpin = pn_huge_vmpin();
	pn_lock(&account->lock);
	account->syncing = false;
	less = *vmpin < before && pending < before - *vmpin;
	if (less) {
		account->bytes -= before - *vmpin - pending;
		account->epoch++;
	} else {
		account->bytes -= account->skipped;
	}
	pn_unlock(&account->lock);
	return less;
}

int pn_account_charge_synced(struct pn_account *account,
			     struct pn_charge *charge, size_t live,
			     size_t *vmpin)
{
	bool synced = pn_account_sync(account, vmpin);

	return charge_now(charge, synced, *vmpin > live ? *vmpin - live : 0);
}
