/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A release on its way to the subscribers, without a lock, since it may run
 * inside anything. Slots hold the subscribers. Whoever tells passes a gate:
 * it counts itself in on one of two sides for as long as it uses what it read
 * from the slots, from before the system call until after it. A subscriber
 * that leaves empties its slot and then waits until both sides have been seen
 * empty: newcomers are sent to the other side meanwhile, so a steady stream of
 * releases does not hold it up (the idea of sleepable RCU). One that arrives
 * waits likewise, so that no release that it should hear of is half done.
 */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/auxv.h>

#include "base/compiler.h"
#include "base/lock.h"
#include "base/process.h"
#include "monitor/monitor_impl.h"

struct pn_monitor_faults pn_monitor_faults;

static _Atomic(const struct pn_subscriber *) slots[PN_RELEASE_SLOTS];

static _Atomic unsigned side_now;
static _Atomic unsigned inside[2];
/* Protects the writing of slots and side_now; taken after the monitor's. */
static struct pn_mutex gate_lock = { PTHREAD_MUTEX_INITIALIZER };

size_t pn_monitor_page_bytes(void)
{
	static _Atomic size_t known;
	size_t page = atomic_load_explicit(&known, memory_order_relaxed);

	if (pn_unlikely(!page)) {
		page = getauxval(AT_PAGESZ);
		atomic_store_explicit(&known, page, memory_order_relaxed);
	}
	return page;
}

/* --- the gate ------------------------------------------------------------ */

static void gate_enter(struct pn_release *release)
{
	release->side = atomic_load(&side_now) & 1;
	atomic_fetch_add(&inside[release->side], 1);
}

static void gate_leave(struct pn_release *release)
{
	atomic_fetch_sub(&inside[release->side], 1);
}

/* Returns when everybody who might have read the slots before this call has
 * left. Twice, since one may have read side_now and not yet counted itself. */
static void gate_wait(void) PN_REQUIRES(&gate_lock)
{
	for (int turn = 0; turn < 2; turn++) {
		unsigned old = atomic_fetch_xor(&side_now, 1) & 1;

		while (atomic_load(&inside[old]))
			sched_yield();
	}
}

/* --- subscribers --------------------------------------------------------- */

static int find_slot(const struct pn_subscriber *subscriber, int first)
{
	for (int i = first; i < PN_RELEASE_SLOTS; i++)
		if (atomic_load(&slots[i]) == subscriber)
			return i;
	return -1;
}

int pn_release_subscribe(struct pn_subscriber *subscriber, bool selftest)
{
	int slot;

	pn_lock(&gate_lock);
	slot = find_slot(NULL, selftest ? 0 : PN_RELEASE_OWN_SLOTS);
	if (slot >= 0) {
		atomic_store(&slots[slot], subscriber);
		gate_wait();
	}
	pn_unlock(&gate_lock);
	return slot < 0 ? -ENOSPC : 0;
}

void pn_release_unsubscribe(struct pn_subscriber *subscriber)
{
	int slot;

	pn_lock(&gate_lock);
	slot = find_slot(subscriber, 0);
	if (slot >= 0) {
		atomic_store(&slots[slot], NULL);
		gate_wait();
	}
	pn_unlock(&gate_lock);
}

bool pn_release_has_subscribers(void)
{
	for (int i = 0; i < PN_RELEASE_SLOTS; i++)
		if (atomic_load(&slots[i]))
			return true;
	return false;
}

void pn_release_reset(void)
{
	pn_mutex_init(&gate_lock);
	for (int i = 0; i < PN_RELEASE_SLOTS; i++)
		atomic_store(&slots[i], NULL);
	atomic_store(&inside[0], 0);
	atomic_store(&inside[1], 0);
}

/* --- telling ------------------------------------------------------------- */

void pn_release_add(struct pn_release *release, uintptr_t addr, size_t len)
{
	size_t page = pn_monitor_page_bytes();
	struct pn_range range, *last;
	uintptr_t end;

	if (!len || addr > UINTPTR_MAX - page ||
	    len > UINTPTR_MAX - page - addr)
		return;
	range = pn_range_pages(addr, len, page);
	if (release->nranges < PN_RELEASE_RANGES) {
		release->ranges[release->nranges++] = range;
		return;
	}
	last = &release->ranges[PN_RELEASE_RANGES - 1];
	end = last->addr + last->len;
	if (range.addr + range.len > end)
		end = range.addr + range.len;
	if (range.addr < last->addr)
		last->addr = range.addr;
	last->len = end - last->addr;
}

static void tell(const struct pn_release *release, enum pn_release_phase phase)
{
	for (unsigned s = 0; s < release->nsubscribers; s++) {
		const struct pn_subscriber *to = release->subscribers[s];

		for (unsigned i = 0; i < release->nranges; i++)
			to->released(to->arg, release->ranges[i].addr,
				     release->ranges[i].len, phase);
	}
}

/* In a child that no handler has run in the subscribers are the parent's. */
static void open_release(struct pn_release *release)
{
	gate_enter(release);
	release->open = true;
	release->nsubscribers = 0;
	if (pn_process_lost())
		return;
	for (int i = 0; i < PN_RELEASE_SLOTS; i++) {
		const struct pn_subscriber *to = atomic_load(&slots[i]);

		if (to)
			release->subscribers[release->nsubscribers++] = to;
	}
	tell(release, PN_RELEASE_BEFORE);
}

static bool anything_watched(const struct pn_release *release)
{
	for (unsigned i = 0; i < release->nranges; i++)
		if (pn_filter_may_overlap(release->ranges[i]))
			return !pn_monitor_faults.blind;
	return false;
}

void pn_release_begin(struct pn_release *release)
{
	if (pn_unlikely(anything_watched(release)))
		open_release(release);
}

void pn_release_end(struct pn_release *release)
{
	if (!release->open && pn_likely(!anything_watched(release)))
		return;
	if (!release->open)
		open_release(release); /* watched only since it began */
	tell(release, PN_RELEASE_AFTER);
	gate_leave(release);
	release->open = false;
}

void pn_release_tell(struct pn_range range)
{
	struct pn_release release;

	pn_release_init(&release);
	pn_release_add(&release, range.addr, range.len);
	open_release(&release);
	pn_release_end(&release);
}

void pn_release_tell_watched(struct pn_range range)
{
	if (pn_filter_may_overlap(range) && !pn_monitor_faults.deaf)
		pn_release_tell(range);
}

void pn_release_tell_everything(void)
{
	size_t page = pn_monitor_page_bytes();

	pn_release_tell((struct pn_range){ page, UINTPTR_MAX - 4 * page });
}
