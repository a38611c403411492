/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asynchronous pins: started now, finished later.
 *
 * pn_cache_pin_start() plans at once. The rest (registering, or planning again
 * when there is room) is done by the worker or by the first thread that waits
 * for the pin: whoever takes the plan out of the queue carries it out. Segments
 * that were cached at the start are available to the user at once, whatever
 * becomes of the rest.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/cache_impl.h"
#include "cache/plan_impl.h"
#include "cache/thread_slots_impl.h"
#include "cache/trace_impl.h"
#include "cache/worker_impl.h"

/* --- start ---------------------------------------------------------------- */

/* Holds the cached segments for the user, whatever becomes of the plan. One for
 * which no slot is free becomes available with the others. */
static int hold_available(struct pn_plan *plan)
{
	plan->available = calloc(plan->nsegments, sizeof(*plan->available));
	if (plan->nsegments && !plan->available)
		return -ENOMEM;
	for (unsigned i = 0; i < plan->nsegments; i++) {
		struct pn_segment *segment = &plan->segments[i];

		if (atomic_load(&segment->region->state) == PN_REGION_PENDING)
			continue;
		plan->available[i] = *segment;
		if (pn_plan_hold(plan, segment->region, &plan->available[i]))
			plan->available[i].region = NULL;
	}
	plan->navailable = plan->nsegments;
	return 0;
}

static void undo_plan(struct pn_plan *plan)
{
	unsigned nfresh = plan->nfresh;

	pn_lock(&plan->cache->lock);
	pn_plan_undo_locked(plan);
	pn_unlock(&plan->cache->lock);
	pn_plan_wake(plan, nfresh);
}

/* Queues a plan for the worker; the pin refers to it meanwhile. */
static int enqueue(struct pn_plan *plan, struct pinion_pin *pin)
{
	struct pn_cache *cache = plan->cache;

	*pin = (struct pinion_pin){ .addr = plan->buffer.iov_base,
				    .len = plan->buffer.iov_len,
				    .nsegments = plan->nsegments,
				    .reserved = PN_PIN_STARTED,
				    .internal = { plan } };
	plan->decision = PN_DECIDED_LATER;
	if (cache->sink)
		pn_plan_trace(plan, pin, PN_EVENT_STARTED, -EINPROGRESS);
	pn_lock(&cache->lock);
	pn_list_append(&cache->queue, &plan->link);
	pn_unlock(&cache->lock);
	pn_worker_notify(cache);
	return -EINPROGRESS;
}

static bool can_be_retried(int ret)
{
	return ret == -EAGAIN || ret == -EXFULL || ret == -ENOBUFS ||
	       ret == -EACCES;
}

int pn_cache_pin_start(struct pn_cache *cache, void *addr, size_t len,
		       unsigned flags, struct pinion_pin *pin)
{
	struct iovec buffer = { addr, len };
	struct pn_plan *plan;
	int ret;

	if (!pn_miss_arguments_ok(&buffer, 1, flags))
		return -EINVAL;
	if (pn_resident_pin(cache, addr, len, flags, pin))
		return 0;
	plan = malloc(sizeof(*plan));
	if (!plan)
		return -ENOMEM;
	pn_plan_init(plan, cache, flags,
		     &(struct pn_plan_buffers){ &plan->buffer, 1,
						&plan->first_segment });
	plan->buffer = buffer;
	/* Cached segments stay usable: no merging. A single segment is there as
	 * a whole or not at all. */
	if (!pn_cache_one_segment(cache))
		plan->no_merge = true;
	plan->thread = pn_slots_self(cache);
	ret = plan->thread ? pn_plan_try(plan) : -ENOMEM;
	if (ret == -EAGAIN)
		pn_asymmetric_store(plan->wait.slot, NULL);
	if (can_be_retried(ret) || (!ret && plan->nfresh)) {
		ret = hold_available(plan);
		if (!ret)
			return enqueue(plan, pin);
		undo_plan(plan);
	} else if (!ret) {
		ret = pn_plan_finish(plan, pin);
	}
	if (cache->sink)
		pn_plan_trace(plan, pin, PN_EVENT_STARTED, ret);
	pn_plan_fini(plan);
	free(plan);
	return ret;
}

/* --- end ------------------------------------------------------------------ */

bool pn_plan_take_locked(struct pn_cache *cache, struct pn_plan *plan)
	PN_REQUIRES(&cache->lock)
{
	pn_assert(plan->cache == cache);
	if (pn_list_empty(&plan->link))
		return false;
	pn_list_remove(&plan->link);
	atomic_store(&plan->status, PN_PLAN_RUNNING);
	return true;
}

static void put_available(struct pn_plan *plan)
{
	for (unsigned i = 0; i < plan->navailable; i++)
		if (plan->available[i].region)
			pn_segments_put(plan->cache, &plan->available[i], 1);
	free(plan->available);
}

static void trace_ready(const struct pn_plan *plan,
			const struct pinion_pin *pin, int ret)
{
	const struct pn_outcome outcome = { .flags = plan->flags,
					    .decision = plan->decision,
					    .reason = plan->reason,
					    .ret = ret };

	pn_cache_trace_ready(plan->cache, pin, &outcome);
}

/* The plan is done: its result becomes that of the pin. */
static int collect_pin(struct pinion_pin *pin)
{
	struct pn_plan *plan = pin->internal[0];
	int ret = plan->result;

	pin->nsegments = pin->reserved = 0;
	if (!ret)
		ret = pn_plan_finish(plan, pin);
	if (plan->cache->sink)
		trace_ready(plan, pin, ret);
	put_available(plan);
	pn_plan_fini(plan);
	free(plan);
	return ret;
}

int pn_cache_pin_test(struct pn_cache *cache, struct pinion_pin *pin)
{
	struct pn_plan *plan = pin->internal[0];

	(void)cache;
	if (pin->reserved != PN_PIN_STARTED)
		return pin->nsegments ? 0 : -EINVAL;
	if (atomic_load(&plan->status) != PN_PLAN_DONE)
		return -EINPROGRESS;
	return collect_pin(pin);
}

/* Carries the plan out if nobody has begun to. */
static void run_if_queued(struct pn_cache *cache, struct pn_plan *plan)
{
	PN_NO_CANCEL();
	bool mine;

	pn_lock(&cache->lock);
	mine = pn_plan_take_locked(cache, plan);
	pn_unlock(&cache->lock);
	if (mine)
		pn_plan_run(plan);
}

/* A thread that is canceled while it sleeps leaves the plan to the next thread
 * that waits; the one that carries it out does not need the sleeper. */
int pn_cache_pin_wait(struct pn_cache *cache, struct pinion_pin *pin)
{
	struct pn_plan *plan = pin->internal[0];
	uint32_t status;

	if (pin->reserved != PN_PIN_STARTED)
		return pin->nsegments ? 0 : -EINVAL;
	run_if_queued(cache, plan);
	while ((status = atomic_load(&plan->status)) != PN_PLAN_DONE)
		pn_device_block_cancelable(cache->device, &plan->status, status,
					   PN_FOREVER);
	PN_NO_CANCEL();
	return collect_pin(pin);
}
