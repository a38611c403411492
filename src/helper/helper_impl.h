/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the helper share; helper.h explains the helper. */
#ifndef PN_HELPER_IMPL_H
#define PN_HELPER_IMPL_H

#include <pthread.h>

#include "base/lock.h"
#include "base/thread.h"
#include "helper/helper.h"
#include "helper/registry.h"
#include "helper/ring.h"

/* A thread of the program that makes transfers. Allocated at its first
 * transfer. After the thread has ended, the helper handles what is left in
 * `done` and frees the caller. */
struct pn_caller {
	/* Written by the thread, read by the helper. */
	struct pn_ring done;   /* transfers that have ended */
	struct pn_ring posted; /* transfers that have begun */
	_Atomic bool ended;    /* the thread has */

	struct pn_window window; /* the thread's alone */

	struct pn_helper *helper;	   /* constant */
	struct pn_list link;		   /* in helper->callers */
	struct pn_call_sequence *sequence; /* the helper's alone */
};

/* A counter that one thread writes and any thread reads. */
typedef _Atomic uint64_t pn_helper_counter;

/* A share of events, of about the last hundred. */
struct pn_share_of {
	unsigned hits, all;
};

/* What the helper has cost the program, and may cost it (losses.c). */
struct pn_losses {
	unsigned max_percent;	     /* 0: no limit; constant */
	uint64_t start_ns;	     /* of the first call */
	uint64_t lost_ns;	     /* by calls that came too early */
	uint64_t at_risk_ns;	     /* by buffers that are dropped now */
	struct pn_share_of late;     /* of calls with a deadline */
	struct pn_share_of returned; /* of buffers dropped without one */
};

/* "The helper's thread" is whoever calls pn_helper_step(): one at a time. */
struct pn_helper {
	/* Constant after pn_helper_open(); the critical path reads it. */
	struct pn_helper_attr attr;
	struct pn_device *device; /* attr.rails[0].device: the clock */
	int key;		  /* of base/thread.h */
	bool virtual_time;

	/* Set by pn_helper_join_registry() before the helper's thread starts;
	 * constant afterwards. What the registry holds is the helper's
	 * thread's. */
	struct pn_helper_registry *registry; /* NULL: no other helpers */
	enum pn_share_policy policy;

	/* Any thread adds itself to `callers`, the helper's thread walks and
	 * removes, both under `lock`. A leaf lock: nothing is locked, and
	 * neither cache nor device are called, while it is held. It does not
	 * protect what is in a caller. */
	struct pn_mutex lock;
	struct pn_list callers;

	/* Read and written by the helper's thread alone; no lock. */
	struct pn_callsites *sites;
	struct pn_job_queue jobs;   /* buffers to register */
	struct pn_job_queue leases; /* buffers to deregister unless used */
	struct pn_call posted[PN_RING_SLOTS]; /* of buffers not registered */
	unsigned nposted;
	size_t largest;	  /* bytes of the largest buffer deregistered */
	uint64_t wake_ns; /* how late it wakes up and gets a core */
	struct pn_losses losses;
	uint64_t active_ns;    /* when a step last did something */
	uint64_t rebalance_ns; /* when to read the registry again */

	/* Written by the helper's thread, or by pn_helper_share_core() and
	 * pn_helper_set_idle() in any thread; read by any. Atomic, no lock. */
	_Atomic uint64_t turn_ns; /* longest wait for a shared core */
	_Atomic bool idle;	  /* it learns and does not act */
	_Atomic unsigned members; /* helpers in the registry, last time */

	/* Waking the helper's thread; atomic, no lock. Any thread increments
	 * `doorbell` and sets `stop`; the helper's thread sets `sleeping`
	 * (loop.c says in which order both sides read and write). */
	_Atomic uint32_t doorbell; /* a futex word */
	_Atomic bool sleeping;	   /* a new record has to ring the doorbell */
	_Atomic bool stop;

	/* Written by pn_helper_start(), read by pn_helper_close(): the thread
	 * that owns the helper. */
	bool running;
	pthread_t thread;

	/* Written by the helper's thread, read by any (pn_helper_query(), the
	 * statistics segment). */
	struct {
		pn_helper_counter calls, lost, first, registered, deregistered,
			expired, kept, in_use, in_time, late, irregular,
			refused, copied, aside, buffers, sites;
		pn_helper_counter wake_ns;
	} stats;
};

static inline void pn_count(pn_helper_counter *counter, uint64_t n)
{
	atomic_store_explicit(counter,
			      atomic_load_explicit(counter,
						   memory_order_relaxed) +
				      n,
			      memory_order_relaxed);
}

/* caller.c */
void pn_caller_ended(void *value);
/* The next transfer that has ended, of any thread, and its caller; false:
 * none. */
bool pn_callers_take_done(struct pn_helper *helper, struct pn_call *call,
			  struct pn_caller **from);
/* The next transfer that was posted, of any thread. */
bool pn_callers_take_posted(struct pn_helper *helper, struct pn_call *call);
/* Whether either of them would find one. */
bool pn_callers_any(struct pn_helper *helper);
void pn_callers_free(struct pn_helper *helper);

/* costs.c */
/* What registering a buffer takes, on all the rails where it was registered
 * when it was last dropped. */
uint64_t pn_helper_register_ns(const struct pn_helper *helper,
			       const struct pn_call_buffer *buffer);
/* The same for any bytes, on the first rail. */
uint64_t pn_helper_register_bytes_ns(const struct pn_helper *helper,
				     size_t bytes);
/* From deciding to deregister a buffer until it is registered again. The helper
 * sleeps in between. */
uint64_t pn_helper_round_trip_ns(const struct pn_helper *helper,
				 const struct pn_call_buffer *buffer);
/* Handling one record and then registering the buffer. */
uint64_t pn_helper_job_ns(const struct pn_helper *helper,
			  const struct pn_call_buffer *buffer);
uint64_t pn_helper_deregister_ns(const struct pn_helper *helper,
				 const struct pn_call_buffer *buffer);

/* helper.c */
/* The helper was late by so much: it woke up, or got a core, later. */
void pn_helper_learn_delay(struct pn_helper *helper, uint64_t late_ns);

/* losses.c */
/* Whether a buffer, whose registration takes register_ns, may be dropped. */
bool pn_losses_allow(const struct pn_losses *losses, bool has_deadline,
		     uint64_t register_ns, uint64_t now_ns);
/* It is dropped. */
void pn_losses_dropped(struct pn_losses *losses, struct pn_call_buffer *buffer,
		       uint64_t register_ns);
/* A call used the buffer; it was dropped before and came late by delay_ns, or
 * was registered again, or was never dropped. */
void pn_losses_used(struct pn_losses *losses, struct pn_call_buffer *buffer,
		    uint64_t delay_ns);
/* It will not be known when a call uses it. */
void pn_losses_forgotten(struct pn_losses *losses,
			 struct pn_call_buffer *buffer);

/* rebalance.c */
/* Every 250 ms, when there is a registry: publishes what this helper knows,
 * reads the other members and decides whether this helper acts. */
void pn_helper_rebalance(struct pn_helper *helper, uint64_t now);

/* loop.c */
/* Wakes the helper's thread; any thread. */
void pn_helper_notify(struct pn_helper *helper);

#endif
