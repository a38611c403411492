/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/account.h"

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

static bool fits(const struct pn_account *account, size_t bytes, size_t late)
{
	size_t max =
		atomic_load_explicit(&account->max_bytes, memory_order_relaxed);
	size_t used = account->bytes + late;

	return used <= max && bytes <= max - used;
}

bool pn_account_charge(struct pn_account *account, size_t bytes, size_t late,
		       uint32_t *epoch)
{
	bool ok;

	*epoch = 0;
	if (!account)
		return true;
	pn_lock(&account->lock);
	ok = fits(account, bytes, late);
	if (ok) {
		account->bytes += bytes;
		account->pending += bytes;
		*epoch = account->epoch;
	}
	pn_unlock(&account->lock);
	return ok;
}

size_t pn_account_bytes(struct pn_account *account)
{
	size_t bytes;

	pn_lock(&account->lock);
	bytes = account->bytes;
	pn_unlock(&account->lock);
	return bytes;
}

bool pn_account_raise(struct pn_charge *charge, size_t bytes)
{
	struct pn_account *account = charge->account;
	bool ok;

	pn_lock(&account->lock);
	ok = fits(account, bytes, 0);
	if (ok) {
		account->bytes += bytes;
		charge->bytes += bytes;
	}
	pn_unlock(&account->lock);
	return ok;
}

void pn_account_settle(struct pn_account *account, size_t bytes)
{
	if (!account)
		return;
	pn_lock(&account->lock);
	account->pending -= bytes;
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

/* What is pending is read before VmPin: it is in VmPin afterwards, or still to
 * come. What is charged meanwhile stays on top of VmPin. */
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
