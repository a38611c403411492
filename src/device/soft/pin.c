/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/pin.h"

#include <errno.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/huge.h"
#include "base/pages.h"
#include "device/soft/fallback.h"

#define BATCH	      64
#define DYING_NS      (3 * PN_NS_PER_S)
#define VMPIN_POLL_US 2000

/* --- pinning ------------------------------------------------------------- */

/* Consecutive slots that are passed to the kernel in one call. */
struct run {
	struct pn_soft_table *table;
	unsigned first, n;
	struct iovec iov[BATCH];
};

/* The run is empty afterwards, also when the kernel refuses: what follows is
 * another run. */
static int flush(struct run *run)
{
	unsigned done = 0, n = run->n;

	run->n = 0;
	while (done < n) {
		/* After a short count the next call returns the error. */
		int ret = pn_soft_ring_update(&run->table->ring,
					      run->first + done,
					      run->iov + done, n - done);

		if (ret <= 0)
			return ret ? ret : -EIO;
		done += (unsigned)ret;
	}
	return 0;
}

/* The slot is in the run in any case; an error is that of the slots before. */
static int add_slot(struct run *run, struct pn_soft_table *table, unsigned slot,
		    struct iovec iov)
{
	int ret = 0;

	if (run->n && (run->n == BATCH || run->table != table ||
		       slot != run->first + run->n))
		ret = flush(run);
	if (!run->n) {
		run->table = table;
		run->first = slot;
	}
	pn_assert(run->n < BATCH);
	run->iov[run->n++] = iov;
	return ret;
}

/* The range that slot i of mr pins. */
static struct iovec iovec_of_slot(const struct pn_mr *mr, unsigned i)
{
	uint64_t base = (uintptr_t)mr->addr;
	uint64_t start = base & ~(uint64_t)(PN_PAGE_BYTES - 1);
	uint64_t from = start + ((uint64_t)i << PN_SOFT_SLOT_SHIFT);
	uint64_t end = from + (UINT64_C(1) << PN_SOFT_SLOT_SHIFT);

	if (from < base)
		from = base;
	if (end > base + mr->len)
		end = base + mr->len;
	return (struct iovec){ (void *)(uintptr_t)from, end - from };
}

/* Fills the slots of all mrs, or empties them. Emptying continues after an
 * error. */
static int update_all(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		      unsigned n, bool fill)
{
	struct run run = { .n = 0 };
	int ret = 0, last;

	for (unsigned i = 0; i < n && !(ret && fill); i++) {
		struct pn_soft_table *table =
			pn_soft_slots_table(slots, mrs[i]->device_slot);
		unsigned slot = pn_soft_location_slot(mrs[i]->device_slot);

		for (unsigned k = 0;
		     k < pn_soft_slots_needed(mrs[i]) && !(ret && fill); k++) {
			last = add_slot(&run, table, slot + k,
					fill ? iovec_of_slot(mrs[i], k)
					     : (struct iovec){ NULL, 0 });
			ret = ret ? ret : last;
		}
	}
	if (ret && fill)
		return ret;
	last = flush(&run);
	return ret ? ret : last;
}

static struct pn_soft_locked **locked_at(struct pn_soft_slots *slots,
					 const struct pn_mr *mr)
{
	struct pn_soft_table *table =
		pn_soft_slots_table(slots, mr->device_slot);

	return &table->locked[pn_soft_location_slot(mr->device_slot)];
}

static void unlock_all(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		       unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct pn_soft_locked **locked = locked_at(slots, mrs[i]);

		pn_soft_locked_put(*locked);
		*locked = NULL;
	}
}

static int lock_all(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		    unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		int ret = pn_soft_locked_get(mrs[i]->addr, mrs[i]->len,
					     locked_at(slots, mrs[i]));

		if (ret) {
			unlock_all(slots, mrs, i);
			return ret;
		}
	}
	return 0;
}

static int unpin_all(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		     unsigned n)
{
	if (slots->uses_uring)
		return update_all(slots, mrs, n, false);
	unlock_all(slots, mrs, n);
	return 0;
}

static int pin_all(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		   unsigned n)
{
	int ret;

	if (!slots->uses_uring)
		return lock_all(slots, mrs, n);
	ret = update_all(slots, mrs, n, true);
	if (ret)
		update_all(slots, mrs, n, false);
	/* For example a range that is outside the address space. */
	return ret == -EOVERFLOW || ret == -EOPNOTSUPP ? -EFAULT : ret;
}

/* The kernel would fault pages in, too, but with the ring locked, and peers
 * that access other memory of the ring would wait meanwhile. */
static void fault_in_exposed(const struct pn_soft_slots *slots,
			     struct pn_mr *const *mrs, unsigned n)
{
	for (unsigned i = 0; slots->uses_uring && i < n; i++)
		if (pn_soft_location_family(mrs[i]->device_slot) ==
		    PN_SOFT_EXPOSED)
			pn_pages_fault_in((uintptr_t)mrs[i]->addr, mrs[i]->len);
}

/* --- deferred uncharges --------------------------------------------------- */

static void add_deferred(struct pn_soft_slots *slots, size_t bytes,
			 uint64_t until)
{
	struct pn_soft_deferred *last;

	pn_lock(&slots->lock);
	if (slots->ndying < PN_SOFT_DYING)
		slots->dying[slots->ndying++] = (struct pn_soft_deferred){ 0 };
	last = &slots->dying[slots->ndying - 1];
	last->bytes += bytes;
	last->until_ns = until;
	pn_unlock(&slots->lock);
}

/* Returns the sum of dying bytes. */
static size_t sum_deferred(struct pn_soft_slots *slots)
{
	unsigned left = 0;
	size_t sum = 0;
	uint64_t now;

	if (!slots->deferred_uncharge)
		return 0;
	now = pn_clock_ns();
	pn_lock(&slots->lock);
	for (unsigned i = 0; i < slots->ndying; i++) {
		if (slots->dying[i].until_ns <= now)
			continue;
		sum += slots->dying[i].bytes;
		slots->dying[left++] = slots->dying[i];
	}
	slots->ndying = left;
	pn_unlock(&slots->lock);
	return sum;
}

/* Others may pin, too, so VmPin is only an upper bound for ours. */
static size_t still_charged(struct pn_soft_slots *slots, size_t dying,
			    size_t vmpin)
{
	size_t live = atomic_load(&slots->live_bytes);
	size_t rest = vmpin > live ? vmpin - live : 0;

	return dying < rest ? dying : rest;
}

/* --- charging ------------------------------------------------------------ */

static struct pn_charge *charge_of(struct pn_soft_slots *slots,
				   const struct pn_mr *mr)
{
	struct pn_soft_table *table =
		pn_soft_slots_table(slots, mr->device_slot);

	return &table->charges[pn_soft_location_slot(mr->device_slot)];
}

/* Sets the charge of each registration and returns the sum. mlock() charges the
 * pages only. */
static size_t set_charges(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
			  unsigned n, size_t (*charged_for)(struct pn_range))
{
	size_t sum = 0;

	for (unsigned i = 0; i < n; i++) {
		struct pn_charge *charge = charge_of(slots, mrs[i]);

		charge->bytes = slots->uses_uring
					? charged_for(pn_soft_pages_of(mrs[i]))
					: pn_soft_bytes_of(mrs[i]);
		sum += charge->bytes;
	}
	return sum;
}

/* The deferred uncharge is added before the account uncharges: registrations
 * read both sums under the account's lock. */
static void uncharge(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		     unsigned n)
{
	size_t bytes = 0, charged = 0;

	for (unsigned i = 0; i < n; i++) {
		bytes += pn_soft_bytes_of(mrs[i]);
		charged += charge_of(slots, mrs[i])->bytes;
	}
	if (slots->deferred_uncharge) {
		uint64_t until = pn_clock_ns() + DYING_NS;

		add_deferred(slots, bytes, until);
		pn_account_defer_uncharge(charge_of(slots, mrs[0])->account,
					  charged, until);
	}
	for (unsigned i = 0; i < n; i++) {
		pn_account_uncharge(charge_of(slots, mrs[i]));
		charge_of(slots, mrs[i])->account = NULL;
	}
}

static int pin_charged(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		       unsigned n, const struct pn_charge *sum)
{
	int ret;

	for (unsigned i = 0; i < n; i++) {
		struct pn_charge *charge = charge_of(slots, mrs[i]);
		size_t bytes = charge->bytes;

		*charge = *sum;
		charge->bytes = bytes;
	}
	ret = pin_all(slots, mrs, n);
	pn_account_settle(sum);
	if (ret)
		uncharge(slots, mrs, n);
	return ret;
}

/* Charges what pinning costs according to the page tables. Where only deferred
 * uncharges are in the way, waits for the kernel. */
static bool charge_known(struct pn_soft_slots *slots,
			 struct pn_account *account, struct pn_charge *sum,
			 size_t *vmpin) PN_REQUIRES(&account->near_limit)
{
	for (;;) {
		int ret = pn_account_charge_synced(
			account, sum, atomic_load(&slots->live_bytes), vmpin);

		if (ret != -EAGAIN)
			return !ret;
		usleep(VMPIN_POLL_US);
	}
}

/* Returns what the kernel charged beyond what was known before. Pages that
 * others pin at the same time count as ours until VmPin is read again. */
static size_t hidden_charge(const struct pn_charge *sum, size_t before)
{
	size_t known = before + sum->bytes, after = pn_huge_vmpin();

	return before != SIZE_MAX && after != SIZE_MAX && after > known
		       ? after - known
		       : 0;
}

/* A slot that cannot be emptied now holds its pages until it is used again. */
static void undo(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		 unsigned n)
{
	unpin_all(slots, mrs, n);
	uncharge(slots, mrs, n);
}

/* While VmPin is not above the account's sum, reading it once is enough.
 * -EAGAIN: it is above: there are hidden charges, or others pin, too. */
static int pin_alone(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		     unsigned n, struct pn_account *account,
		     struct pn_charge *sum) PN_REQUIRES(&account->near_limit)
{
	size_t vmpin;
	int ret;

	if (!pn_account_charge(sum))
		return -EAGAIN;
	ret = pin_charged(slots, mrs, n, sum);
	if (ret || !slots->uses_uring)
		return ret;
	/* Also replaces bounds of other registrations, which would hide an
	 * unknown charge of this one until they are uncharged. */
	pn_account_sync(account, &vmpin);
	if (vmpin == SIZE_MAX || vmpin <= pn_account_bytes(account))
		return 0;
	undo(slots, mrs, n);
	account->others_pin = true;
	return -EAGAIN;
}

/* Reads VmPin before and after. */
static int pin_among_others(struct pn_soft_slots *slots,
			    struct pn_mr *const *mrs, unsigned n,
			    struct pn_account *account, struct pn_charge *sum)
	PN_REQUIRES(&account->near_limit)
{
	size_t before, hidden = 0;
	int ret;

	if (!charge_known(slots, account, sum, &before))
		return -ENOMEM;
	account->others_pin = before > pn_account_bytes(account);
	ret = pin_charged(slots, mrs, n, sum);
	if (!ret && slots->uses_uring)
		hidden = hidden_charge(sum, before);
	if (!hidden || pn_account_charge_more(charge_of(slots, mrs[0]), hidden))
		return ret;
	undo(slots, mrs, n);
	return -ENOMEM;
}

/* The bound exceeds the limit. The page tables may show too little: a huge page
 * can be mapped by small entries. So VmPin is read afterwards. */
static int pin_near_limit(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
			  unsigned n, struct pn_account *account)
{
	struct pn_charge sum = { .account = account };
	int ret = -EAGAIN;

	pn_lock(&account->near_limit);
	sum.bytes = set_charges(slots, mrs, n, pn_huge_bytes);
	if (!account->others_pin && !slots->deferred_uncharge)
		ret = pin_alone(slots, mrs, n, account, &sum);
	if (ret == -EAGAIN)
		ret = pin_among_others(slots, mrs, n, account, &sum);
	pn_unlock(&account->near_limit);
	return ret;
}

static int charge_and_pin(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
			  unsigned n)
{
	struct pn_charge sum = { .account = slots->device->account };

	sum.bytes = set_charges(slots, mrs, n, pn_huge_bound);
	if (pn_account_charge(&sum))
		return pin_charged(slots, mrs, n, &sum);
	return pin_near_limit(slots, mrs, n, sum.account);
}

/* --- for slots.c ---------------------------------------------------------- */

int pn_soft_pin(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		unsigned n)
{
	fault_in_exposed(slots, mrs, n);
	return pn_soft_is_pinned(mrs[0]) ? charge_and_pin(slots, mrs, n) : 0;
}

int pn_soft_unpin(struct pn_soft_slots *slots, struct pn_mr *const *mrs,
		  unsigned n)
{
	int ret;

	if (!pn_soft_is_pinned(mrs[0]))
		return 0;
	ret = unpin_all(slots, mrs, n);
	if (!ret)
		uncharge(slots, mrs, n);
	return ret;
}

void pn_soft_unpin_table(struct pn_soft_slots *slots,
			 struct pn_soft_table *table)
{
	struct run run = { .n = 0 };

	for (unsigned i = 0; i < slots->nslots && slots->uses_uring; i++)
		if (pn_bits_get(table->used, i))
			add_slot(&run, table, i, (struct iovec){ NULL, 0 });
	flush(&run);
	for (unsigned i = 0; i < slots->nslots; i++) {
		if (table->locked[i])
			pn_soft_locked_put(table->locked[i]);
		if (slots->deferred_uncharge && table->charges[i].account)
			pn_account_defer_uncharge(table->charges[i].account,
						  table->charges[i].bytes,
						  pn_clock_ns() + DYING_NS);
		pn_account_uncharge(&table->charges[i]);
	}
}

size_t pn_soft_deferred_bytes(struct pn_soft_slots *slots)
{
	size_t dying = sum_deferred(slots);

	return dying ? still_charged(slots, dying, pn_huge_vmpin()) : 0;
}
