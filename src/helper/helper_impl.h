/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the helper share; see helper.h for the story. */
#ifndef PN_HELPER_IMPL_H
#define PN_HELPER_IMPL_H

#include <pthread.h>

#include "base/lock.h"
#include "base/thread.h"
#include "helper/helper.h"
#include "helper/registry.h"
#include "helper/ring.h"

/* A thread that makes transfers. Born at its first record; when the thread has
 * ended the helper takes what is left in the ring and frees it. */
struct pn_caller {
	struct pn_ring ring;	 /* transfers that are over */
	struct pn_ring begun;	 /* transfers that were posted */
	struct pn_window window; /* the thread's own */
	struct pn_helper *helper;
	struct pn_list link; /* in helper->callers */
	_Atomic bool ended;
	struct pn_call_sequence *sequence; /* the helper's */
};

/* Of a counter that one thread writes and others read. */
typedef _Atomic uint64_t pn_helper_counter;

struct pn_helper {
	struct pn_helper_attr attr;
	struct pn_device *device;
	struct pn_cache *cache;
	int key; /* of base/thread.h */
	bool virtual_time;

	/* Leaf lock: protects the list, not what is in it. */
	struct pn_mutex lock;
	struct pn_list callers;

	/* The helper's own. */
	struct pn_callsites *sites;
	struct pn_job_queue jobs;   /* buffers to register */
	struct pn_job_queue leases; /* buffers to deregister, unless used */
	struct pn_call posted[PN_RING_SLOTS]; /* that lack their memory */
	unsigned nposted;
	size_t largest;	    /* bytes of the largest buffer that was dropped */
	uint64_t active_ns; /* when it last had something to do */

	_Atomic uint64_t turn_ns; /* until its turn on a shared core */
	_Atomic bool idle;
	struct pn_helper_registry *registry; /* NULL: it knows no others */
	enum pn_share_policy policy;
	uint64_t rebalance_ns;	  /* when to agree with them again */
	_Atomic unsigned members; /* of the registry, when it last did */

	_Atomic uint32_t doorbell;
	_Atomic bool sleeping; /* ring the doorbell for a record */
	_Atomic bool stop;
	bool running;
	pthread_t thread;

	struct {
		pn_helper_counter calls, lost, first, registered, deregistered,
			expired, kept, in_use, in_time, late, irregular,
			refused, buffers, sites;
	} stats;
};

static inline void pn_count(pn_helper_counter *stats, uint64_t n)
{
	atomic_store_explicit(
		stats, atomic_load_explicit(stats, memory_order_relaxed) + n,
		memory_order_relaxed);
}

/* caller.c */
void pn_caller_ended(void *value);
/* The next record of any thread, and whose it is; false: none. */
bool pn_callers_take_done(struct pn_helper *helper, struct pn_call *call,
			  struct pn_caller **from);
/* The next that was posted. */
bool pn_callers_take_posted(struct pn_helper *helper, struct pn_call *call);
bool pn_callers_any(struct pn_helper *helper);
void pn_callers_free(struct pn_helper *helper);

/* rebalance.c */
/* Asks the registry, if there is one and it is time, what this helper may do.
 */
void pn_helper_rebalance(struct pn_helper *helper, uint64_t now);

/* drive.c */
void pn_helper_notify(struct pn_helper *helper);

#endif
