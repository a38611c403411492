/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the helper share; see helper.h for the story. */
#ifndef PN_HELPER_IMPL_H
#define PN_HELPER_IMPL_H

#include <pthread.h>

#include "base/lock.h"
#include "base/thread.h"
#include "helper/crew.h"
#include "helper/helper.h"
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
	struct pn_stream *stream; /* the helper's */
};

/* Of a counter that one thread writes and others read. */
typedef _Atomic uint64_t pn_tally;

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
	struct pn_errands errands; /* places to register */
	struct pn_errands leases;  /* places to deregister, unless used */
	struct pn_call posted[PN_RING_SLOTS]; /* that lack their memory */
	unsigned nposted;
	size_t largest;	    /* bytes of the largest place that was dropped */
	uint64_t active_ns; /* when it last had something to do */

	_Atomic uint64_t turn_ns; /* until its turn on a shared core */
	_Atomic bool resting;
	struct pn_crew *crew; /* NULL: it knows no others */
	enum pn_share_policy policy;
	uint64_t agree_ns;	  /* when to agree with them again */
	_Atomic unsigned members; /* of the crew, when it last did */

	_Atomic uint32_t bell;
	_Atomic bool sleeping; /* ring the bell for a record */
	_Atomic bool stop;
	bool running;
	pthread_t thread;

	struct {
		pn_tally calls, lost, first, registered, deregistered, expired,
			kept, in_use, in_time, late, irregular, refused,
			buffers, sites;
	} tally;
};

static inline void pn_count(pn_tally *tally, uint64_t n)
{
	atomic_store_explicit(
		tally, atomic_load_explicit(tally, memory_order_relaxed) + n,
		memory_order_relaxed);
}

/* caller.c */
void pn_caller_ended(void *caller);
/* The next record of any thread, and whose it is; false: none. */
bool pn_callers_take(struct pn_helper *helper, struct pn_call *call,
		     struct pn_caller **from);
/* The next that was posted. */
bool pn_callers_begun(struct pn_helper *helper, struct pn_call *call);
bool pn_callers_any(struct pn_helper *helper);
void pn_callers_free(struct pn_helper *helper);

/* agree.c */
/* Asks the crew, if there is one and it is time, what this helper may do. */
void pn_helper_agree(struct pn_helper *helper, uint64_t now);

/* drive.c */
void pn_helper_ring(struct pn_helper *helper);

#endif
