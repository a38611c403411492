/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hit against eviction: src/cache/hit.c.
 *
 * Stores go through a store buffer of their thread (FIFO, as on x86) and reach
 * memory at any later time; membarrier(2) empties the buffers of all threads.
 * What a compiler may reorder without its barrier is written in that order.
 *
 * Safe: a pin that succeeded has a registration until it is unpinned. Live: a
 * region that dies is deregistered, and who unpins it last tells the worker.
 * A hit that fails clears its slot without telling: the worker looks again
 * after a while.
 *
 * MIRRORS src/cache/hit.c
 *   pn_asymmetric_store(slot, region);
 *   pn_asymmetric_load(attempt->entry) != region->id ||
 *   atomic_load_explicit(&region->state,
 *   PN_REGION_VALID ||
 *   atomic_store_explicit(slot, NULL, memory_order_release);
 *   pn_asymmetric_store(slot, NULL);
 *   if (pn_unlikely(pn_asymmetric_load(&region->state) == PN_REGION_DYING))
 *   pn_worker_notify(cache);
 * MIRRORS src/cache/reclaim.c
 *   pn_slots_scan_locked(cache);
 *   if (region->held == cache->scan) {
 *   pn_list_append(&cache->dying.list, link);
 *   if (!cache->attr.alone)
 *   pn_asymmetric_heavy();
 *   collect(cache, candidates, n, &batch);
 *   deregister(cache, &batch);
 * MIRRORS src/cache/thread_slots.c
 *   pn_asymmetric_load(&c->slots[i]);
 * MIRRORS src/base/asymmetric.h
 *   atomic_signal_fence(memory_order_seq_cst);
 * MIRRORS src/base/asymmetric.c
 *   MEMBARRIER_CMD_PRIVATE_EXPEDITED
 *
 * BARRIER HEAVY        membarrier of the thread that deregisters
 * BARRIER PIN_FENCE    the slot is stored before the entry is loaded again
 * BARRIER RELOAD       the entry is loaded again at all
 * BARRIER UNPIN_FENCE  the slot is cleared before the state is loaded
 * BARRIER SCAN         a region in a slot is not deregistered
 */
#define PINS 2 /* of the pinning thread */

bool entry = true;	/* the index names the region */
bool dying = false;	/* its state */
bool registered = true;
bool slot = false;
bool notified = false, missed = false;
chan slot_stores = [4] of { bool };
chan evictor_stores = [2] of { bool }; /* false: the entry; true: the state */

inline to_memory(which)
{
	if
	:: which -> dying = true
	:: else -> entry = false
	fi
}

/* Stores leave the buffers when they like. */
active proctype pinner_buffer()
{
	bool value;
end:
	do
	:: atomic { slot_stores?value -> slot = value }
	od
}

active proctype evictor_buffer()
{
	bool which;
end:
	do
	:: atomic { evictor_stores?which -> to_memory(which) }
	od
}

active proctype pinner()
{
	byte n = 0;
	bool seen, is_dying;

	do
	:: n == PINS -> break
	:: else ->
		n++;
		seen = entry; /* the first load */
		if
		:: !seen -> missed = true; goto next
		:: else
		fi;
#ifdef NO_PIN_FENCE
		seen = entry;
		is_dying = dying;
		slot_stores!true;
#else
		slot_stores!true;
#ifndef NO_RELOAD
		seen = entry;
#endif
		is_dying = dying;
#endif
#ifdef NO_RELOAD
		is_dying = false;
#endif
		if
		:: !seen || is_dying ->
			slot_stores!false;
			missed = true;
			goto next
		:: else
		fi;
		assert(registered);
		assert(registered); /* the transfer takes time */
#ifdef NO_UNPIN_FENCE
		is_dying = dying;
		slot_stores!false;
#else
		slot_stores!false;
		is_dying = dying;
#endif
		if
		:: is_dying -> notified = true
		:: else
		fi;
next:
		skip
	od
}

active proctype evictor()
{
	bool which, held;

	evictor_stores!false;
	evictor_stores!true;
again:
#ifndef NO_HEAVY
	atomic {
		do
		:: slot_stores?which -> slot = which
		:: evictor_stores?which -> to_memory(which)
		:: empty(slot_stores) && empty(evictor_stores) -> break
		od
	}
#endif
	held = slot;
#ifdef NO_SCAN
	held = false;
#endif
	if
	:: !held -> registered = false
	:: else ->
		/* Until an unpin tells, or the next look at regions that a
		 * failed hit may have left. */
		if
		:: atomic { notified -> notified = false }
		:: atomic { missed -> missed = false }
		fi;
		goto again
	fi
}
