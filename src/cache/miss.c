/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A miss: plan (plan.c), make room, register, publish.
 *
 * Planning is repeated while another thread registers what the pin needs, and
 * while there is no room. Then, without the lock, the new regions are watched
 * and registered in one batch. Then, with the lock, those whose memory was
 * released meanwhile are dropped and the others are published.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "cache/cache_impl.h"
#include "cache/invalidate_impl.h"
#include "cache/plan_impl.h"
#include "cache/private_pin_impl.h"
#include "cache/reclaim_impl.h"
#include "cache/region_impl.h"
#include "cache/thread_slots_impl.h"
#include "cache/trace_impl.h"
#include "cache/worker_impl.h"

/* --- what blocks a plan --------------------------------------------------- */

/* The plan whose region blocks ours, if it is still queued: we carry it out,
 * since without a worker nobody else may come. */
static struct pn_plan *take_over(struct pn_plan *plan)
{
	struct pn_cache *cache = plan->cache;
	struct pn_region *region = plan->wait.region;
	struct pn_plan *owner = NULL;

	pn_lock(&cache->lock);
	if (atomic_load(&region->state) == PN_REGION_PENDING &&
	    pn_plan_take_locked(cache, region->owner))
		owner = region->owner;
	pn_unlock(&cache->lock);
	return owner;
}

/* Another thread registers what we need: wait for that region only. */
static void await_region(struct pn_plan *plan)
{
	struct pn_segment *wait = &plan->wait;
	struct pn_plan *owner = take_over(plan);

	if (owner)
		pn_plan_run(owner);
	while (atomic_load(&wait->region->state) == PN_REGION_PENDING)
		pn_device_futex_wait(plan->cache->device, &wait->region->state,
				     PN_REGION_PENDING);
	pn_asymmetric_store(wait->slot, NULL);
	wait->region = NULL;
}

/* Even when some are free now: the plan needed more than these. */
static int more_slots(struct pn_plan *plan)
{
	return pn_slots_grow(plan->thread) ? 0 : -ENOMEM;
}

static void count_refused(struct pn_cache *cache)
{
	pn_lock(&cache->lock);
	cache->stats->refused++;
	pn_unlock(&cache->lock);
}

/* A merged region and the neighbours in it are in the budget at the same time.
 * So a plan that merged may need less without merging: the next plan says how
 * much. A plan that merged nothing needs the same again. */
static int make_room(struct pn_plan *plan)
{
	int ret;

	plan->no_merge = true;
	if (plan->need_merged)
		return 0;
	ret = pn_reclaim(plan->cache, plan->need_bytes, plan->need_regions);
	if (ret)
		count_refused(plan->cache);
	return ret;
}

/* Removes what blocked the plan; 0: plan again. */
static int unblock(struct pn_plan *plan, int why)
{
	switch (why) {
	case -EAGAIN:
		await_region(plan);
		return 0;
	case -EXFULL:
		return more_slots(plan);
	case -EACCES:
		plan->flags |= PINION_PIN_BYPASS;
		return 0;
	case -EBUSY:
		plan->nbusy++;
		sched_yield();
		return 0;
	case -ENOBUFS:
		return make_room(plan);
	default:
		return why;
	}
}

/* Plans until nothing blocks the plan. */
static int make_plan(struct pn_plan *plan)
{
	plan->thread = pn_slots_self(plan->cache);
	if (!plan->thread)
		return -ENOMEM;
	for (;;) {
		int ret = pn_plan_try(plan);

		if (!ret)
			return 0;
		plan->waited |= ret == -EAGAIN;
		ret = unblock(plan, ret);
		if (ret)
			return ret;
	}
}

/* --- registering and publishing ------------------------------------------- */

static void count_miss(struct pn_plan *plan) PN_REQUIRES(&plan->cache->lock)
{
	struct pinion_cache_stats *stats = plan->cache->stats;

	stats->misses++;
	plan->decision = PN_DECIDED_MISS;
	if (pn_plan_is_private(plan)) {
		stats->misses_bypass++;
		plan->reason = PN_BECAUSE_BYPASS;
	} else if (plan->nsegments > plan->nfresh) {
		stats->misses_partial++;
		plan->reason = PN_BECAUSE_PARTIAL;
	} else {
		stats->misses_new++;
		plan->reason = PN_BECAUSE_NEW;
	}
	if (plan->lacked_access)
		plan->reason = PN_BECAUSE_ACCESS;
}

/* Whether releases of the new regions matter. Those of private ones do where
 * registrations are found by address: a later region would share the pages. */
static bool must_watch(const struct pn_plan *plan)
{
	return plan->cache->subscribed &&
	       (!(plan->flags & PINION_PIN_BYPASS) ||
		plan->cache->device->caps & PN_CAP_BY_ADDRESS);
}

/* Has the monitor watch the new regions; one that it cannot watch is not kept.
 */
static void watch_fresh(struct pn_plan *plan)
{
	for (unsigned i = 0; must_watch(plan) && i < plan->nfresh; i++) {
		struct pn_region *region = pn_plan_region(plan, i);
		struct pn_range range = pn_region_range(region);

		region->watch =
			plan->one_use || pn_monitor_watch(range.addr, range.len)
				? PN_WATCH_REFUSED
				: PN_WATCH_ON;
	}
}

/* One region is registered: publishes it, or leaves it to this plan alone. */
static void publish_or_drop(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock)
{
	enum pn_trace_event_reason why = PN_BECAUSE_BYPASS;
	bool stale = region->flags & PN_REGION_STALE ||
		     pn_invalidate_in_flight(cache, pn_region_pages(region));
	bool kept = !stale && !(region->flags & PN_REGION_PRIVATE) &&
		    region->watch != PN_WATCH_REFUSED;

	region->flags |= PN_REGION_REGISTERED;
	cache->stats->registrations++;
	cache->stats->registered_bytes += region->mr.len;
	cache->stats->unkept += region->watch == PN_WATCH_REFUSED;
	if (cache->sink)
		pn_cache_trace_registered(cache, region,
					  kept ? PN_DECIDED_KEPT
					       : PN_DECIDED_DROPPED,
					  PN_BECAUSE_NOTHING);
	/* The notice was drained before the device knew of the pages. */
	if (pn_unlikely(stale))
		pn_device_released(cache->device, (uintptr_t)region->mr.addr,
				   region->mr.len);
	if (stale)
		why = PN_BECAUSE_RELEASED;
	if (kept)
		pn_region_publish_locked(cache, region);
	else if (region->flags & PN_REGION_PRIVATE)
		pn_region_lend_locked(cache, region, why);
	else
		pn_region_die_locked(cache, region, why);
}

void pn_plan_wake(struct pn_plan *plan, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		pn_device_futex_wake(plan->cache->device,
				     &pn_plan_region(plan, i)->state);
}

/* Registers and publishes the fresh regions, or undoes the plan. */
static int register_fresh(struct pn_plan *plan)
{
	unsigned nfresh = plan->nfresh;
	int ret;

	if (plan->cache->subscribed && !pn_monitor_check())
		pn_cache_update_monitor(plan->cache);
	watch_fresh(plan);
	ret = pn_register_retry(plan->cache, plan->fresh, plan->nfresh);
	pn_lock(&plan->cache->lock);
	pn_invalidate_drain_locked(plan->cache);
	if (ret) {
		plan->cache->stats->refused += ret == -ENOBUFS;
		pn_plan_undo_locked(plan);
	} else {
		count_miss(plan);
		for (unsigned i = 0; i < nfresh; i++) {
			struct pn_region *region = pn_plan_region(plan, i);

			publish_or_drop(plan->cache, region);
			plan->has_private |= region->flags & PN_REGION_PRIVATE;
		}
	}
	pn_unlock(&plan->cache->lock);
	/* Nobody finds a private region, so nobody waits for it. */
	if (!pn_plan_is_private(plan))
		pn_plan_wake(plan, nfresh);
	pn_worker_ensure(plan->cache);
	pn_worker_notify_if_wanted(plan->cache);
	return ret;
}

/* --- the whole miss --------------------------------------------------------
 */

/* Does all that is left of a plan. A merged range that could not be registered
 * is tried again without merging: the neighbours may be mapped differently. */
static int complete(struct pn_plan *plan)
{
	int ret = plan->planned ? 0 : make_plan(plan);
	bool merged = plan->merged;

	if (!ret && plan->nfresh)
		ret = register_fresh(plan);
	if (ret != -EFAULT || !merged)
		return ret;
	plan->no_merge = true;
	ret = make_plan(plan);
	return ret || !plan->nfresh ? ret : register_fresh(plan);
}

void pn_plan_run(struct pn_plan *plan)
{
	struct pn_device *device = plan->cache->device;

	plan->result = complete(plan);
	/* The thread that waits may free the plan from here on; waking needs
	 * its address only. */
	atomic_store(&plan->status, PN_PLAN_DONE);
	pn_device_futex_wake(device, &plan->status);
}

bool pn_miss_arguments_ok(const struct iovec *buffers, unsigned n,
			  unsigned flags)
{
	if (flags & ~(unsigned)(PINION_ACCESS_ALL | PINION_PIN_BYPASS))
		return false;
	for (unsigned i = 0; i < n; i++)
		if (!pn_range_valid((uintptr_t)buffers[i].iov_base,
				    buffers[i].iov_len))
			return false;
	return true;
}

static int pin_buffers(struct pn_cache *cache,
		       const struct pn_plan_buffers *buffers, unsigned flags,
		       bool only_hit, struct pinion_pin *pins)
{
	struct pn_plan plan;
	int ret;

	if (pn_cache_foreign(cache))
		return -EPERM;
	if (!pn_miss_arguments_ok(buffers->iov, buffers->n, flags))
		return -EINVAL;
	pn_plan_init(&plan, cache, flags, buffers);
	plan.only_hit = only_hit;
	plan.no_merge |= only_hit;
	ret = complete(&plan);
	if (!ret)
		ret = pn_plan_finish(&plan, pins);
	if (cache->sink && !(only_hit && ret))
		pn_plan_trace(&plan, pins, 0, ret);
	pn_plan_fini(&plan);
	pn_worker_notify_if_wanted(cache);
	PN_CACHE_CHECK(cache);
	return ret;
}

int pn_miss_pin(struct pn_cache *cache, void *addr, size_t len, unsigned flags,
		struct pinion_pin *pin)
{
	struct iovec buffer = { addr, len };
	unsigned first;
	int ret;

	if (pn_resident_pin(cache, addr, len, flags, pin))
		return 0;
	PN_NO_CANCEL();
	if (pn_private_pin(cache, &buffer, flags, pin, &ret))
		return ret;
	return pin_buffers(cache,
			   &(struct pn_plan_buffers){ &buffer, 1, &first },
			   flags, false, pin);
}

int pn_miss_pin_hit(struct pn_cache *cache, void *addr, size_t len,
		    unsigned flags, struct pinion_pin *pin)
{
	struct iovec buffer = { addr, len };
	unsigned first;

	if (pn_resident_pin(cache, addr, len, flags, pin))
		return 0;
	PN_NO_CANCEL();
	return pin_buffers(cache,
			   &(struct pn_plan_buffers){ &buffer, 1, &first },
			   flags, true, pin);
}

int pn_cache_pin_list(struct pn_cache *cache, const struct iovec *buffers,
		      unsigned n, unsigned flags, struct pinion_pin *pins)
{
	unsigned *first = malloc((n + 1) * sizeof(*first));
	int ret;

	if (!first)
		return -ENOMEM;
	ret = pin_buffers(cache, &(struct pn_plan_buffers){ buffers, n, first },
			  flags, false, pins);
	free(first);
	return ret;
}
