/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pins that bypass the cache on a registrar (PN_CAP_ONE_SEGMENT): each has one
 * region, which no other pin ever finds, so there is nothing to plan. The room
 * is charged, the memory is registered, and only then, with the lock once, the
 * region comes into being, lent to its pin.
 *
 * This is what programs pay whose memory may not be kept. Whatever is not the
 * common case is left to a plan (miss.c): a trace or a listener, notices to act
 * upon, limits that may have to be read again, no room.
 */
#include <errno.h>

#include "cache/cache_impl.h"
#include "cache/plan_impl.h"
#include "cache/private_pin_impl.h"
#include "cache/reclaim_impl.h"
#include "cache/region_impl.h"
#include "cache/thread_slots_impl.h"
#include "cache/worker_impl.h"

/* A monitor that every hit has to ask (always_slow) is no such reason: nothing
 * is hit. */
static bool has_notices(const struct pn_cache *cache)
{
	return atomic_load(&cache->slow_reasons) >
	       (uint32_t)atomic_load(&cache->always_slow);
}

static bool is_common(const struct pn_cache *cache, const struct iovec *buffer,
		      unsigned flags)
{
	unsigned caps = cache->device->caps;

	return flags & PINION_PIN_BYPASS && caps & PN_CAP_ONE_SEGMENT &&
	       !(caps & PN_CAP_BY_ADDRESS) && !cache->observed &&
	       !has_notices(cache) && !pn_cache_foreign(cache) &&
	       pn_miss_arguments_ok(buffer, 1, flags) &&
	       buffer->iov_len <= cache->device->limits.max_mr_bytes &&
	       !pn_budget_needs_refresh(cache->budget);
}

static size_t bytes_of(const struct pn_mr *mr)
{
	return pn_range_pages((uintptr_t)mr->addr, mr->len, PN_PAGE_BYTES).len;
}

/* A registrar keeps no pointer to the struct. */
static struct pn_region *lend_locked(struct pn_cache *cache,
				     const struct pn_mr *mr)
	PN_REQUIRES(&cache->lock)
{
	struct pn_region *region = pn_region_alloc_locked(cache);

	if (!region)
		return NULL;
	pn_region_init(region,
		       (struct pn_range){ (uintptr_t)mr->addr, mr->len },
		       mr->access);
	region->mr = *mr;
	region->flags |= PN_REGION_PRIVATE | PN_REGION_REGISTERED;
	cache->own_bytes += bytes_of(mr);
	cache->own_regions++;
	cache->stats->misses++;
	cache->stats->misses_bypass++;
	cache->stats->registrations++;
	cache->stats->registered_bytes += mr->len;
	pn_region_lend_locked(cache, region, PN_BECAUSE_BYPASS);
	return region;
}

/* The pin of what is registered; -ENOMEM. */
static int lend(struct pn_cache *cache, const struct pn_mr *mr,
		struct pinion_pin *pin)
{
	struct pn_thread_slots *thread = pn_slots_self(cache);
	pn_slot *slot = thread ? pn_slots_get(thread) : NULL;
	struct pn_region *region;

	if (!slot)
		return -ENOMEM;
	pn_lock(&cache->lock);
	region = lend_locked(cache, mr);
	if (region)
		pn_asymmetric_store(slot, region);
	pn_unlock(&cache->lock);
	if (!region)
		return -ENOMEM;
	*pin = (struct pinion_pin){ .addr = mr->addr,
				    .len = mr->len,
				    .local_key = mr->lkey,
				    .remote_key = mr->rkey,
				    .handle = mr->handle,
				    .nsegments = 1,
				    .reserved = PN_PIN_PRIVATE,
				    .internal = { (void *)slot, region } };
	return 0;
}

static void count_refused(struct pn_cache *cache)
{
	pn_lock(&cache->lock);
	cache->stats->refused++;
	pn_unlock(&cache->lock);
}

/* The room is charged; an error uncharges it, unless the device keeps the
 * registration: then it is tried again. */
static int register_and_lend(struct pn_cache *cache, struct pn_mr *mr,
			     struct pinion_pin *pin)
{
	int ret = pn_register_retry(cache, &mr, 1);

	if (ret == -ENOBUFS)
		count_refused(cache);
	if (ret) {
		pn_budget_uncharge(cache->budget, bytes_of(mr), 1);
		return ret;
	}
	ret = lend(cache, mr, pin);
	if (ret)
		pn_cache_deregister(cache, mr);
	return ret;
}

bool pn_private_pin(struct pn_cache *cache, const struct iovec *buffer,
		    unsigned flags, struct pinion_pin *pin, int *ret)
{
	struct pn_mr mr = { .addr = buffer->iov_base,
			    .len = buffer->iov_len,
			    .access = pn_cache_access(cache, flags) };

	if (!is_common(cache, buffer, flags) ||
	    !pn_budget_charge(cache->budget, bytes_of(&mr), 1))
		return false;
	*ret = register_and_lend(cache, &mr, pin);
	pn_worker_ensure(cache);
	pn_worker_notify_if_wanted(cache);
	PN_CACHE_CHECK(cache);
	return true;
}
