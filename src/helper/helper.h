/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * helper -- registered memory follows the program's rhythm.
 *
 * A program that repeats itself uses the same buffers again and again, with
 * long computations between. A cache leaves them registered all the time. The
 * helper deregisters a buffer when its transfer is over and registers it again
 * just before the next one, off the program's critical path: as fast as
 * leaving memory pinned, with less of it pinned (paper Helper, rows H1-H10).
 *
 * Nouns
 *   call, buffer, site, signature, context window, period, gap, deadline
 *             see site.h: what the program did, and when it will do so again
 *   record    a call, when it is posted and when it is over, on its way to
 *             the helper, in rings of the thread that made it (ring.h; the
 *             paper's deregistration queue)
 *   job    a buffer to be registered by its deadline (job_queue.h; the paper's
 *             registration queue)
 *   lease     a buffer that is registered and expected to be used: deregistered
 *             when nobody came until its expiry
 *
 * Life of a buffer, after each transfer:
 *   first time, or no prediction  -> deregistered; nothing is planned
 *   deadline far enough           -> deregistered, an job is queued
 *                                 -> registered by the job, leased
 *                                 -> used (a hit), or expired: deregistered
 *   deadline near                 -> stays registered, leased
 *   site irregular                -> left to the cache
 * and when a transfer is posted whose buffer is not registered: it is, at once,
 * while the program has not got that far or registers others.
 * Places are registered in and dropped from the cache: a transfer that comes
 * before its job is a miss of the cache like any other, a region that is in
 * use is never touched, budget and release notices are the cache's. So what
 * the helper gets wrong costs time, never correctness.
 *
 * Conditions (H6), every term from the device's measured line costs, taking
 * the largest possible value:
 *   deregister if  now + deregister + insert + register + update <= deadline
 *   put off registering while  now + hash + cache + deregister + insert +
 *		       register + update < deadline, where deregister is that
 *		       of the largest buffer known: the one record that may come
 *		       first
 * With n helpers on one core each side also waits for its turn: n * (slice +
 * switch) is added (H8). Which helpers of a machine act, and how many on one
 * core, they agree among themselves: share.h, registry.h, cores.h.
 *
 * The step: pn_helper_step() does one thing (register what is due, else take a
 * record, first of what is over, else end a lease) and says when to call again.
 *pn_helper_run() drives it: in a thread of its own on real devices, in a task
 *in virtual time. It sleeps when there is nothing to do.
 *
 * Threads: pn_helper_post() and _done() any, writing only what belongs to the
 * calling thread; step and run one thread; query any. helper->lock protects
 * the list of rings alone and is never held while calling cache or device.
 * Caveat: registering unasked needs a monitor that tells of a release while its
 * pages are there and again when they are gone. userfaultfd tells of madvise()
 * once, before (pn_cache_notices_early()): there the helper holds back, learns,
 * and leaves buffers to the cache.
 * Errors: none reach the program. What cannot be registered is counted.
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

/* Zero in a field means the default. */
struct pn_helper_attr {
	struct pn_device *device;
	struct pn_cache *cache;
	size_t threshold; /* smaller transfers are not looked at; 16 KiB */
	enum pn_predictor predictor;
	unsigned window; /* as it is: 0 means none */
	double patience; /* see site.h */
	bool frames;	 /* tell call sites apart by the stack */
	bool no_madvise; /* buffers are never released by madvise(): act though
			  * news of it come early */
	const void *stats_owner; /* as in struct pn_cache_attr */
};

/* The device's costs must be measured, or are learned while it is used.
 * -EINVAL: a window that is too long; -EMFILE: no key for thread contexts;
 * -ENOMEM. */
int pn_helper_open(const struct pn_helper_attr *attr, struct pn_helper **out);

/* Stops the thread, if there is one. What is registered stays in the cache.
 * No thread may be in post or done. NULL is fine. */
void pn_helper_close(struct pn_helper *helper);

/* --- the critical path ---------------------------------------------------- */

/* A transfer of a buffer begins: notes time and call site in *call, which the
 * caller keeps until the transfer is over. helper may be NULL. */
void pn_helper_record_post(struct pn_helper *helper, struct pn_call *call,
			   unsigned kind, const void *addr, size_t len);

/* It is over, and its memory not in use any more: hands the record over. Does
 * nothing for what was below the threshold. Never waits. */
void pn_helper_record_done(struct pn_helper *helper,
			   const struct pn_call *call);

static inline void pn_helper_post(struct pn_helper *helper,
				  struct pn_call *call, unsigned kind,
				  const void *addr, size_t len)
{
	call->range.len = 0;
	if (helper)
		pn_helper_record_post(helper, call, kind, addr, len);
}

/* Its memory is wanted only now: a receive whose message came later than it.
 * What it holds until then it would hold in vain. */
static inline void pn_helper_need(struct pn_call *call, uint64_t now_ns)
{
	call->time_ns = now_ns;
}

static inline void pn_helper_done(struct pn_helper *helper,
				  const struct pn_call *call)
{
	if (helper && call->range.len)
		pn_helper_record_done(helper, call);
}

/* --- driving -------------------------------------------------------------- */

/* Does one thing and says when to call again; PN_FOREVER: when the doorbell
 * rings. */
uint64_t pn_helper_step(struct pn_helper *helper);

/* Steps and sleeps until pn_helper_stop(). */
void pn_helper_run(struct pn_helper *helper);

/* Makes pn_helper_run() return; any thread or task. */
void pn_helper_stop(struct pn_helper *helper);

/* Runs it in a thread of its own. -EAGAIN: there is none to be had. */
int pn_helper_start(struct pn_helper *helper);

/* So many helpers take turns on this one's core, each for slice_ns; 0 or 1:
 * it has the core for itself. */
void pn_helper_share_core(struct pn_helper *helper, unsigned nhelpers,
			  uint64_t slice_ns);

/* Lets it agree with the other helpers of the machine about cores, every 250 ms
 * in which the program communicates, under a policy that needs that. Call it
 * before the thread starts. The registry is the helper's from now on. */
void pn_helper_join_registry(struct pn_helper *helper,
			     struct pn_helper_registry *registry,
			     enum pn_share_policy policy);

/* Whether it acts: when not, records are learned from and buffers are left to
 * the cache. */
void pn_helper_set_idle(struct pn_helper *helper, bool idle);

/* --- what happened -------------------------------------------------------- */

/* Sets all but `size`. */
void pn_helper_query(struct pn_helper *helper, struct pinion_helper_stats *out);

#endif
