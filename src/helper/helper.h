/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * helper -- keeps a buffer registered only around its transfers.
 *
 * A program that repeats itself uses the same buffers again and again, with
 * long computations between. A cache leaves the buffers registered all the
 * time. The helper deregisters a buffer when its transfer has ended and
 * registers it again just before the next one, off the program's critical path:
 * as fast as leaving memory pinned, with less of it pinned. (Li, Cameron,
 * Nikolopoulos, de Supinski, Schulz: Scalable Memory Registration for High
 * Performance Networks Using Helper Threads, 2011; its claims are the rows H1
 * to H10 of `pinion reproduce`.)
 *
 * Nouns
 *   call, buffer, site, signature, context window, period, gap, deadline
 *             see site.h: what the program did, and when it will do so again
 *   record    a call on its way to the helper, written when the transfer is
 *             posted and again when it has ended, in rings of the thread that
 *             made it (ring.h; the paper's deregistration queue)
 *   job       a buffer that has to be registered by its deadline (job_queue.h;
 *             the paper's registration queue)
 *   lease     a buffer that is registered and expected to be used. It is
 *             deregistered if no transfer used it until its expiry.
 *   idle      a helper that no core is assigned to: it learns and does not act
 *
 * Life of a buffer, after each of its transfers:
 *   first transfer, or no prediction -> deregistered; no job
 *   enough time until the deadline   -> deregistered, a job is queued
 *                                    -> the job registers it; leased
 *                                    -> used (a hit), or expired: deregistered
 *   too little time                  -> stays registered; leased
 *   it was copied eight times in a
 *   row, or always                   -> deregistered; no job
 *   it may cost too much (losses.c)  -> left to the cache
 *   the site is irregular            -> left to the cache
 * When a transfer is posted and its buffer is not registered, the helper
 * registers it at once: the program may not need it yet, or may be registering
 * other buffers.
 * With several rails, a buffer is what its transfers have registered of it on
 * any of them: it is dropped from all caches, and registered again where it
 * was. The helper registers and deregisters through the cache. A transfer that
 * comes before its job is a cache miss like any other; a region in use is never
 * touched; budget and release notifications are the cache's. So a wrong
 * prediction costs time, never correctness.
 *
 * Conditions. Every term is the largest possible value, from the device's
 * measured line costs:
 *   deregister if
 *       now + deregister + insert + register + update <= deadline
 *   put off registering while
 *       now + hash + cache + deregister + insert + register + update < deadline
 *       Here `deregister` is the cost of the largest buffer known: one record
 *       may have to be handled before the registration.
 * A sleep ends later than asked for: how late is measured (wake_ns, a recent
 * maximum) and added to both. With n helpers on one core a helper also waits
 * for its turn: n * (slice + switch) is added to both. The helpers of a machine
 * agree which of them act and how many share a core: share.h, registry.h,
 * cores.h.
 *
 * pn_helper_step() does one thing (register the buffer of a job that is due,
 * else handle a record, ended transfers first, else end a lease) and says when
 * to call it again. pn_helper_run() calls it: in a thread of its own on real
 * devices, in a task in virtual time. It sleeps when there is nothing to do.
 *
 * Threads: pn_helper_post() and pn_helper_done() in any thread; they write only
 * what belongs to the calling thread. Step and run in one thread; query in any.
 * helper->lock protects the list of rings alone and is never held while the
 * cache or the device are called.
 * Caveat: registering before a transfer asks for it needs a monitor that
 * reports a release while the pages are there and again when they are gone.
 * userfaultfd reports a madvise() once, before its pages go
 * (pn_cache_notices_early()). There the helper learns only, and leaves buffers
 * to the cache.
 * Errors: none reach the program; failed registrations are counted.
 */
#ifndef PN_HELPER_HELPER_H
#define PN_HELPER_HELPER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pinion/helper.h>

#include "cache/cache.h"
#include "device/device.h"
#include "helper/registry.h"
#include "helper/site.h"

struct pn_helper;

/* A cache that the helper serves, and the device that it registers with. */
struct pn_helper_rail {
	struct pn_device *device;
	struct pn_cache *cache;
};

/* Zero in a field means the default. */
struct pn_helper_attr {
	/* Of one process. The clock is the first device's. */
	struct pn_helper_rail rails[PN_RAILS_MAX];
	unsigned nrails;  /* 1 */
	size_t threshold; /* smaller transfers are ignored; 16 KiB */
	enum pn_predictor predictor;
	unsigned window;    /* calls of context; 0 means none, not a default */
	double patience;    /* see site.h */
	size_t max_buffers; /* that it knows at a time; see site.h */
	unsigned loss_percent; /* of the time: what being late may cost the
				program; 0: no limit, as in the paper */
	bool frames;	       /* tell call sites apart by the stack */
	bool no_madvise; /* buffers are never released by madvise(): act even
			  * if its notification comes early */
	const void *stats_owner; /* as in struct pn_cache_attr */
};

/* The device's costs have been measured, or are learned while it is used.
 * -EINVAL: a window that is too long; -EMFILE: no key for thread contexts;
 * -ENOMEM. */
int pn_helper_open(const struct pn_helper_attr *attr, struct pn_helper **out);

/* Stops the thread, if there is one. Registered buffers stay in the cache.
 * No thread may be in pn_helper_post() or pn_helper_done(). NULL is fine. */
void pn_helper_close(struct pn_helper *helper);

/* --- the critical path ---------------------------------------------------- */

/* A transfer of a buffer begins: records time and call site in *call, which
 * the caller keeps until the transfer has ended, and in the thread's ring.
 * call->copied says what is known by now, and may change until the end. */
void pn_helper_record_post(struct pn_helper *helper, struct pn_call *call,
			   unsigned kind, const void *addr, size_t len);

/* The transfer has ended and does not use its memory any more. Never waits. */
void pn_helper_record_done(struct pn_helper *helper,
			   const struct pn_call *call);

/* pn_helper_record_post() where there is a helper. Transfers below the
 * threshold are not recorded: call->range.len stays 0. */
static inline void pn_helper_post(struct pn_helper *helper,
				  struct pn_call *call, unsigned kind,
				  const void *addr, size_t len)
{
	call->range.len = 0;
	if (helper)
		pn_helper_record_post(helper, call, kind, addr, len);
}

/* The transfer needs its memory only now: a receive whose message came after
 * it was posted. Memory registered earlier would be held for nothing. */
static inline void pn_helper_need(struct pn_call *call, uint64_t now_ns)
{
	call->time_ns = now_ns;
}

/* pn_helper_record_done() for a transfer that was recorded. */
static inline void pn_helper_done(struct pn_helper *helper,
				  const struct pn_call *call)
{
	if (helper && call->range.len)
		pn_helper_record_done(helper, call);
}

/* --- driving -------------------------------------------------------------- */

/* Does one thing and returns when to call again; PN_FOREVER: when the doorbell
 * was rung. */
uint64_t pn_helper_step(struct pn_helper *helper);

/* Steps and sleeps until pn_helper_stop(). */
void pn_helper_run(struct pn_helper *helper);

/* Makes pn_helper_run() return. Any thread or task. */
void pn_helper_stop(struct pn_helper *helper);

/* Calls pn_helper_run() in a thread of its own. -EAGAIN: no thread could be
 * started. */
int pn_helper_start(struct pn_helper *helper);

/* nhelpers take turns on this helper's core, each for slice_ns; 0 or 1: it has
 * the core for itself. */
void pn_helper_share_core(struct pn_helper *helper, unsigned nhelpers,
			  uint64_t slice_ns);

/* Makes this helper share cores with the others of the registry, under a policy
 * that needs that: every 250 ms in which the program communicates it reads the
 * registry and decides whether it acts. Call it before the thread starts. The
 * registry is the helper's from now on; pn_helper_close() leaves it. */
void pn_helper_join_registry(struct pn_helper *helper,
			     struct pn_helper_registry *registry,
			     enum pn_share_policy policy);

/* An idle helper learns from records and leaves buffers to the cache. */
void pn_helper_set_idle(struct pn_helper *helper, bool idle);

/* --- what happened -------------------------------------------------------- */

/* Sets all but `size`. */
void pn_helper_query(struct pn_helper *helper, struct pinion_helper_stats *out);

#endif
