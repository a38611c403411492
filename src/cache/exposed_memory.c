/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/exposed_memory.h"

#include <errno.h>

#include "cache/cache_impl.h"
#include "cache/invalidate_impl.h"
#include "cache/reclaim_impl.h"
#include "cache/worker_impl.h"

/* Exposures may overlap: an entry counts those that cover its page. */
static void count_pages(struct pn_cache *cache,
			const struct pn_exposed_memory *e, uint32_t by)
	PN_REQUIRES(&cache->lock)
{
	struct pn_range pages = pn_exposed_memory_pages(e);

	for (size_t at = 0; at < pages.len; at += PN_PAGE_BYTES)
		atomic_fetch_add(pn_index_entry_of(&cache->exposed.pages,
						   pages.addr + at),
				 by);
}

/* Enters the list before the device looks at the pages, so that a release
 * meanwhile is noticed. Notices of earlier releases, of what was there before,
 * are drained first. */
static int enter(struct pn_cache *cache, struct pn_exposed_memory *e)
{
	int ret;

	pn_invalidate_wait_notices(cache);
	pn_lock(&cache->lock);
	pn_invalidate_drain_locked(cache);
	ret = pn_index_reserve(&cache->exposed.pages,
			       pn_exposed_memory_pages(e));
	if (!ret) {
		count_pages(cache, e, 1);
		pn_list_append(&cache->exposed.list, &e->link);
	}
	pn_unlock(&cache->lock);
	return ret == -ERANGE ? -EINVAL : ret;
}

static void leave(struct pn_cache *cache, struct pn_exposed_memory *e)
{
	pn_lock(&cache->lock);
	count_pages(cache, e, (uint32_t)-1);
	pn_list_remove(&e->link);
	pn_unlock(&cache->lock);
}

/* The longest registration; whole pages, since each but the last ends on one.
 */
static size_t max_mr_len(const struct pn_cache *cache)
{
	return cache->device->limits.max_mr_bytes & ~(PN_PAGE_BYTES - 1);
}

static void cut(const struct pn_cache *cache, unsigned access,
		struct pn_exposed_memory *e)
{
	size_t most = max_mr_len(cache);

	for (size_t at = 0; at < e->len; e->nmrs++) {
		uintptr_t start = e->addr + at;
		size_t len = e->len - at;

		if (len > most)
			len = most - (start & (PN_PAGE_BYTES - 1));
		e->parts[e->nmrs] = (struct pn_mr){ .addr = (void *)start,
						    .len = len,
						    .access = access };
		at += len;
	}
}

static bool too_long(const struct pn_cache *cache, size_t len)
{
	return len / (PN_EXPOSED_MAX_MRS - 1) >= max_mr_len(cache);
}

static void deregister(struct pn_cache *cache, struct pn_exposed_memory *e)
{
	struct pn_mr *mrs[PN_EXPOSED_MAX_MRS];

	for (unsigned i = 0; i < e->nmrs; i++)
		mrs[i] = &e->parts[i];
	pn_device_deregister(cache->device, mrs, e->nmrs);
	pn_budget_uncharge(cache->budget, pn_exposed_memory_pages(e).len,
			   e->nmrs);
}

static int register_mrs(struct pn_cache *cache, struct pn_exposed_memory *e)
{
	size_t bytes = pn_exposed_memory_pages(e).len;
	struct pn_mr *mrs[PN_EXPOSED_MAX_MRS];
	int ret;

	for (unsigned i = 0; i < e->nmrs; i++)
		mrs[i] = &e->parts[i];
	ret = pn_cache_charge(cache, bytes, e->nmrs);
	if (ret)
		return ret;
	ret = pn_register_retry(cache, mrs, e->nmrs);
	if (ret)
		pn_budget_uncharge(cache->budget, bytes, e->nmrs);
	/* Nobody deregisters before it is LIVE. */
	for (unsigned i = 0; !ret && i < e->nmrs; i++)
		e->rkeys[i] = e->parts[i].rkey;
	return ret;
}

/* Makes it LIVE if its memory was not released meanwhile. */
static bool make_live(struct pn_cache *cache, struct pn_exposed_memory *e)
{
	bool there;

	pn_lock(&cache->lock);
	pn_invalidate_drain_locked(cache);
	there = atomic_load(&e->state) == PN_EXPOSED_PENDING &&
		!pn_invalidate_in_flight(cache, pn_exposed_memory_pages(e));
	atomic_store(&e->state, there ? PN_EXPOSED_LIVE : PN_EXPOSED_REVOKED);
	pn_unlock(&cache->lock);
	return there;
}

static void unwatch(struct pn_exposed_memory *e)
{
	struct pn_range pages = pn_exposed_memory_pages(e);

	if (e->watched)
		pn_monitor_unwatch(pages.addr, pages.len);
}

int pn_cache_expose(struct pn_cache *cache, void *addr, size_t len,
		    unsigned access, struct pn_exposed_memory *out)
{
	struct pn_range pages;
	int ret;

	*out = (struct pn_exposed_memory){ .addr = (uintptr_t)addr,
					   .len = len };
	atomic_init(&out->state, PN_EXPOSED_PENDING);
	if (!pn_range_valid(out->addr, len) || too_long(cache, len) ||
	    access & ~(unsigned)PINION_ACCESS_ALL)
		return -EINVAL;
	cut(cache, access, out);
	pages = pn_exposed_memory_pages(out);
	ret = enter(cache, out);
	if (ret)
		return ret;
	/* Memory that cannot be watched is exposed all the same: the program
	 * has to unexpose what it releases. */
	if (cache->subscribed)
		out->watched = !pn_monitor_watch(pages.addr, pages.len);
	ret = register_mrs(cache, out);
	pn_worker_ensure(cache);
	pn_worker_notify_if_wanted(cache);
	if (!ret && make_live(cache, out))
		return 0;
	if (!ret)
		deregister(cache, out);
	unwatch(out);
	leave(cache, out);
	return ret ? ret : -EFAULT;
}

/* Makes it CLOSING; false: it is not registered any more. Waits for another
 * thread that deregisters it. */
static bool begin_closing(struct pn_cache *cache, struct pn_exposed_memory *e)
{
	for (;;) {
		uint32_t state;

		pn_lock(&cache->lock);
		state = atomic_load(&e->state);
		if (state <= PN_EXPOSED_RELEASED)
			atomic_store(&e->state, PN_EXPOSED_CLOSING);
		pn_unlock(&cache->lock);
		if (state != PN_EXPOSED_CLOSING)
			return state <= PN_EXPOSED_RELEASED;
		pn_device_futex_wait(cache->device, &e->state,
				     PN_EXPOSED_CLOSING);
	}
}

void pn_cache_unexpose(struct pn_cache *cache,
		       struct pn_exposed_memory *exposed)
{
	if (begin_closing(cache, exposed))
		deregister(cache, exposed);
	unwatch(exposed);
	leave(cache, exposed);
}

/* Its owner deregisters one that is PENDING. */
static void release(struct pn_exposed_memory *e)
{
	uint32_t state = atomic_load(&e->state);

	if (state == PN_EXPOSED_LIVE)
		atomic_store(&e->state, PN_EXPOSED_RELEASED);
	else if (state == PN_EXPOSED_PENDING)
		atomic_store(&e->state, PN_EXPOSED_REVOKED);
}

void pn_exposed_memory_released_locked(struct pn_cache *cache,
				       struct pn_range range)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &cache->exposed.list) {
		struct pn_exposed_memory *e =
			pn_container_of(pos, struct pn_exposed_memory, link);

		if (pn_range_overlaps(pn_exposed_memory_pages(e), range))
			release(e);
	}
}

/* The next RELEASED one, made CLOSING; NULL: none. */
static struct pn_exposed_memory *next_released(struct pn_cache *cache)
{
	struct pn_exposed_memory *found = NULL;
	struct pn_list *pos;

	pn_lock(&cache->lock);
	pn_invalidate_drain_locked(cache);
	pn_list_for_each (pos, &cache->exposed.list) {
		struct pn_exposed_memory *e =
			pn_container_of(pos, struct pn_exposed_memory, link);

		if (atomic_load(&e->state) != PN_EXPOSED_RELEASED)
			continue;
		atomic_store(&e->state, PN_EXPOSED_CLOSING);
		found = e;
		break;
	}
	pn_unlock(&cache->lock);
	return found;
}

static void revoke_released(struct pn_cache *cache)
{
	struct pn_exposed_memory *e;

	while ((e = next_released(cache))) {
		deregister(cache, e);
		/* Its owner may free it from here on; waking needs the address
		 * only. */
		atomic_store(&e->state, PN_EXPOSED_REVOKED);
		pn_device_futex_wake(cache->device, &e->state);
	}
}

/* One thread at a time. Notices are subtracted when their keys are revoked, so
 * that the call of another thread does not return before. */
static PN_NOINLINE void revoke_noticed(struct pn_cache *cache)
{
	unsigned seen;

	while (atomic_load(&cache->exposed.releases)) {
		uint32_t idle = 0;

		if (!atomic_compare_exchange_strong(&cache->exposed.revoking,
						    &idle, 1)) {
			pn_device_futex_wait(cache->device,
					     &cache->exposed.revoking, 1);
			continue;
		}
		seen = atomic_load(&cache->exposed.releases);
		revoke_released(cache);
		atomic_fetch_sub(&cache->exposed.releases, seen);
		atomic_store(&cache->exposed.revoking, 0);
		pn_device_futex_wake(cache->device, &cache->exposed.revoking);
		pn_worker_notify_if_wanted(cache);
	}
}

void pn_cache_revoke_released(struct pn_cache *cache)
{
	if (pn_unlikely(cache->probing))
		pn_invalidate_wait_notices(cache);
	if (pn_unlikely(atomic_load(&cache->exposed.releases)))
		revoke_noticed(cache);
}
