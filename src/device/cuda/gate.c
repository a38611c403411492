/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/cuda/gate.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/compiler.h"
#include "base/index.h"
#include "base/lock.h"
#include "base/process.h"

/* More passages than slots at one moment count as passages of everything. */
#define NSLOTS 64

/* The ends are inclusive, so that "all addresses" needs no special case. Both
 * ranges are written before `busy` becomes BUSY: a holder that sees CLAIMED
 * waits for them. */
enum { FREE, CLAIMED, BUSY };

struct slot {
	_Atomic int busy;
	_Atomic uintptr_t first[2], last[2];
} PN_ALIGNED(PN_CACHELINE);

static struct slot slots[NSLOTS];
static _Atomic unsigned unslotted, closed;

static struct pn_mutex lock = { PTHREAD_MUTEX_INITIALIZER };
/* How often each page is held: registrations of exact bytes may share a page.
 * The index is written under `lock` and read without it. It exists from the
 * first hold on: before, `held` is 0. */
static struct pn_index index_of_pages;
static _Atomic size_t held; /* pages */

/* --- fork() ----------------------------------------------------------------
 */

/* Threads that the child does not have may have held the lock and slots. The
 * index may be half written, too: its memory is left alone. */
static void in_child(void)
{
	pn_mutex_init(&lock);
	index_of_pages = (struct pn_index){ 0 };
	atomic_store(&held, 0);
	atomic_store(&unslotted, 0);
	for (int i = 0; i < NSLOTS; i++)
		atomic_store(&slots[i].busy, FREE);
}

static void set_up(void)
{
	pn_process_atfork(NULL, NULL, in_child);
}

static void lock_gate(void) PN_ACQUIRE(&lock)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pn_assert(!pthread_once(&once, set_up));
	pn_lock(&lock);
}

/* --- holding -------------------------------------------------------------- */

static bool overlaps(struct slot *slot, uintptr_t first, uintptr_t last)
{
	for (int i = 0; i < 2; i++)
		if (atomic_load(&slot->first[i]) <= last &&
		    first <= atomic_load(&slot->last[i]))
			return true;
	return false;
}

/* Whether a passage that may have looked before the pages were marked touches
 * them. A passage that claims a slot later sees the marks. */
static bool in_use(struct pn_range range)
{
	if (atomic_load(&closed) || atomic_load(&unslotted))
		return true;
	for (int i = 0; i < NSLOTS; i++) {
		int busy;

		/* The owner is between two stores. */
		while ((busy = atomic_load(&slots[i].busy)) == CLAIMED)
			sched_yield();
		if (busy == BUSY &&
		    overlaps(&slots[i], range.addr, range.addr + range.len - 1))
			return true;
	}
	return false;
}

static int mark_locked(struct pn_range range) PN_REQUIRES(&lock)
{
	int ret = index_of_pages.top ? 0 : pn_index_init(&index_of_pages);

	if (!ret)
		ret = pn_index_reserve(&index_of_pages, range);
	if (ret)
		return ret;
	/* Makes the marks visible: who finds 0 pages looks no further. */
	atomic_fetch_add(&held, pn_index_count_up(&index_of_pages, range));
	atomic_thread_fence(memory_order_seq_cst);
	return 0;
}

static void unmark_locked(struct pn_range range) PN_REQUIRES(&lock)
{
	atomic_fetch_sub(&held, pn_index_count_down(&index_of_pages, range));
}

int pn_cuda_gate_hold(const void *addr, size_t len)
{
	struct pn_range range =
		pn_range_pages((uintptr_t)addr, len, PN_PAGE_BYTES);
	int ret;

	lock_gate();
	ret = mark_locked(range);
	if (!ret && in_use(range)) {
		unmark_locked(range);
		ret = -EBUSY;
	}
	pn_unlock(&lock);
	return ret;
}

void pn_cuda_gate_drop(const void *addr, size_t len)
{
	lock_gate();
	unmark_locked(pn_range_pages((uintptr_t)addr, len, PN_PAGE_BYTES));
	pn_unlock(&lock);
}

/* --- passing -------------------------------------------------------------- */

static uintptr_t last_of(struct pn_range range)
{
	uintptr_t last = range.addr + range.len - 1;

	return last < range.addr ? UINTPTR_MAX : last;
}

bool pn_cuda_gate_holds(struct pn_range range)
{
	uintptr_t end = (uintptr_t)1 << PN_INDEX_ADDRESS_BITS;
	uintptr_t last;

	if (!range.len || !atomic_load(&held) || range.addr >= end)
		return false;
	last = last_of(range);
	if (last >= end)
		last = end - 1;
	range.len = last - range.addr + 1;
	return pn_index_any(&index_of_pages, range);
}

/* A free slot, first the one that this thread had last; NSLOTS: none. */
static int claim_slot(void)
{
	static _Thread_local unsigned hint;
	static _Atomic unsigned next;

	if (!hint)
		hint = 1 + atomic_fetch_add(&next, 1);
	for (unsigned i = 0; i < NSLOTS; i++) {
		int expected = FREE;

		if (atomic_compare_exchange_strong(
			    &slots[(hint + i) % NSLOTS].busy, &expected,
			    CLAIMED)) {
			hint += i;
			return (hint) % NSLOTS;
		}
	}
	return NSLOTS;
}

static void set_end(struct slot *slot, int i, struct pn_range range)
{
	/* An empty range ends before it starts. */
	atomic_store_explicit(&slot->first[i], range.len ? range.addr : 1,
			      memory_order_relaxed);
	atomic_store_explicit(&slot->last[i], range.len ? last_of(range) : 0,
			      memory_order_relaxed);
}

void pn_cuda_gate_begin(struct pn_range a, struct pn_range b,
			struct pn_gate_passage *passage)
{
	int i = claim_slot();

	passage->slot = i;
	if (i == NSLOTS) {
		atomic_fetch_add(&unslotted, 1);
	} else {
		set_end(&slots[i], 0, a);
		set_end(&slots[i], 1, b);
		atomic_store(&slots[i].busy, BUSY);
	}
}

enum pn_gate_result pn_cuda_gate_enter(struct pn_range a, struct pn_range b,
				       struct pn_gate_passage *passage)
{
	pn_cuda_gate_begin(a, b, passage);
	/* The store there comes before the loads below, in both threads' view:
	 * see the header. */
	if (!pn_cuda_gate_holds(a) && !pn_cuda_gate_holds(b))
		return PN_GATE_CLEAR;
	pn_cuda_gate_leave(passage);
	return PN_GATE_HELD;
}

void pn_cuda_gate_leave(struct pn_gate_passage *passage)
{
	if (passage->slot == NSLOTS)
		atomic_fetch_sub(&unslotted, 1);
	else
		atomic_store_explicit(&slots[passage->slot].busy, FREE,
				      memory_order_release);
}

void pn_cuda_gate_close(void)
{
	atomic_fetch_add(&closed, 1);
	/* Nothing can be held here, and the lock may be held for ever. */
	if (pn_process_is_unusable())
		return;
	/* A hold that had looked before has marked its pages when this returns:
	 * the caller finds them. */
	lock_gate();
	pn_unlock(&lock);
}

void pn_cuda_gate_open(void)
{
	atomic_fetch_sub(&closed, 1);
}

size_t pn_cuda_gate_held_pages(void)
{
	return atomic_load(&held);
}
