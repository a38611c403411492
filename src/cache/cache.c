/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache/cache_impl.h"
#include "cache/invalidate_impl.h"
#include "cache/reclaim_impl.h"
#include "cache/thread_slots_impl.h"
#include "cache/trace_impl.h"
#include "cache/worker_impl.h"

#define REGIONS_BYTES	 (PN_CACHE_MAX_REGIONS * sizeof(struct pn_region))
#define EDGES_BYTES	 (2 * PN_CACHE_MAX_REGIONS * sizeof(struct pn_edge))
#define EDGE_HEADS_BYTES (sizeof(uint32_t) << PN_EDGE_HEADS_SHIFT)

static void apply_defaults(struct pn_cache_attr *attr)
{
	size_t most = attr->device->limits.max_mr_bytes & ~(PN_PAGE_BYTES - 1);

	if (!attr->policy)
		attr->policy = "lru";
	/* Regions of a few hundred MiB avoid the slow path that some adapters
	 * have for huge ones, and cost nothing else. */
	if (!attr->max_region_bytes)
		attr->max_region_bytes = (size_t)256 << 20;
	attr->max_region_bytes &= ~(PN_PAGE_BYTES - 1);
	if (attr->max_region_bytes > most)
		attr->max_region_bytes = most;
	if (attr->max_region_bytes < PN_PAGE_BYTES)
		attr->max_region_bytes = PN_PAGE_BYTES;
	if (!attr->batch)
		attr->batch = 32;
	if (!attr->batch_bytes)
		attr->batch_bytes = (size_t)64 << 20;
	if (!attr->batch_age_ns)
		attr->batch_age_ns = 10 * PN_NS_PER_MS;
	if (attr->device->caps & PN_CAP_VIRTUAL_TIME)
		attr->no_worker = true;
}

static int open_policy(struct pn_cache *cache)
{
	const struct pn_costs *costs = &cache->device->costs;
	size_t bytes = atomic_load(&cache->budget->max_bytes);
	struct pn_policy_attr attr = {
		.capacity_pages = bytes >> PN_PAGE_SHIFT,
		.batch = cache->attr.batch,
		.register_fixed = costs->register_ns / 1e3,
		.register_page = costs->register_page_ns / 1e3,
		.deregister_fixed = costs->deregister_ns / 1e3,
		.deregister_page = costs->deregister_page_ns / 1e3,
	};
	int ret;

	if (cache->attr.own_policy) {
		cache->policy = cache->attr.own_policy;
		return 0;
	}
	ret = pn_policy_open(cache->attr.policy, &attr, &cache->policy);
	return ret == -ENOENT ? -EINVAL : ret;
}

/* Address space that costs memory only where it is touched. */
static void *reserve(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int open_regions(struct pn_cache *cache)
{
	char *edges;

	cache->regions = reserve(REGIONS_BYTES);
	if (!cache->regions)
		return -ENOMEM;
	if (!pn_cache_one_segment(cache))
		return 0;
	edges = reserve(EDGES_BYTES + EDGE_HEADS_BYTES);
	if (!edges) {
		munmap(cache->regions, REGIONS_BYTES);
		return -ENOMEM;
	}
	cache->edges = (struct pn_edge *)edges;
	cache->edge_heads = (uint32_t *)(edges + EDGES_BYTES);
	return 0;
}

static int open_memory(struct pn_cache *cache)
{
	int ret = pn_index_init(&cache->index);

	if (ret)
		return ret;
	ret = pn_index_init(&cache->exposed.pages);
	if (ret)
		goto fini_index;
	ret = open_regions(cache);
	if (!ret)
		return 0;
	pn_index_fini(&cache->exposed.pages);
fini_index:
	pn_index_fini(&cache->index);
	return ret;
}

static int open_counters(struct pn_cache *cache)
{
	const void *by = cache->attr.stats_owner;

	cache->stats = pn_stats_alloc(&pn_stats_kind_cache, by, by);
	if (cache->stats && by)
		cache->largest = pn_stats_alloc(&pn_stats_kind_largest,
						cache->stats, true);
	return cache->stats ? 0 : -ENOMEM;
}

static void close_counters(struct pn_cache *cache)
{
	pn_stats_free(cache->largest);
	pn_stats_free(cache->stats);
}

static void close_memory(struct pn_cache *cache)
{
	if (cache->edges)
		munmap(cache->edges, EDGES_BYTES + EDGE_HEADS_BYTES);
	munmap(cache->regions, REGIONS_BYTES);
	pn_index_fini(&cache->exposed.pages);
	pn_index_fini(&cache->index);
}

static void init_lists(struct pn_cache *cache) PN_NO_THREAD_SAFETY
{
	pn_mutex_init(&cache->lock);
	pn_list_init(&cache->threads);
	pn_list_init(&cache->dying.list);
	pn_list_init(&cache->lent);
	pn_list_init(&cache->failed.list);
	pn_list_init(&cache->queue);
	pn_list_init(&cache->exposed.list);
	pn_list_init(&cache->tasks.list);
	cache->always_slow = !pn_asymmetric_init();
	atomic_store(&cache->slow_reasons, cache->always_slow);
	atomic_store(&cache->merging, !cache->attr.no_merge);
}

void pn_cache_refresh(struct pn_cache *cache)
{
	pn_budget_refresh(cache->budget);
	atomic_store(&cache->now_ns, pn_device_now(cache->device));
}

/* A monitor that reports late makes every pin probe, and so take the lock. */
void pn_cache_update_monitor(struct pn_cache *cache)
{
	cache->probing = pn_monitor_needs_probe();
	if (!cache->probing)
		return;
	if (!atomic_exchange(&cache->always_slow, true))
		atomic_fetch_add(&cache->slow_reasons, 1);
}

static int subscribe(struct pn_cache *cache)
{
	int ret;

	cache->subscriber =
		(struct pn_subscriber){ .released = pn_invalidate_notice,
					.arg = cache };
	if (cache->attr.no_monitor)
		return 0;
	ret = pn_monitor_subscribe(&cache->subscriber);
	cache->subscribed = !ret;
	if (!ret)
		pn_cache_update_monitor(cache);
	return ret;
}

int pn_cache_open(const struct pn_cache_attr *attr, struct pn_cache **out)
{
	struct pn_cache *cache =
		aligned_alloc(PN_CACHELINE, sizeof(struct pn_cache));
	int ret;

	if (!cache)
		return -ENOMEM;
	memset((void *)cache, 0, sizeof(*cache));
	cache->attr = *attr;
	cache->process = pn_process_number();
	cache->device = attr->device;
	cache->budget = attr->budget;
	apply_defaults(&cache->attr);
	ret = open_counters(cache);
	if (ret)
		goto free_cache;
	ret = open_policy(cache);
	if (ret)
		goto close_counters;
	ret = open_memory(cache);
	if (ret)
		goto close_policy;
	ret = cache->key = pn_thread_key_alloc(pn_slots_ended);
	if (ret < 0)
		goto close_memory;
	init_lists(cache);
	ret = subscribe(cache);
	if (ret)
		goto free_key;
	pn_reclaim_join(cache);
	pn_cache_trace_open(cache);
	cache->observed = cache->sink || pn_cache_ends_with_pins(cache);
	attr->device->divides = attr->keep_by_address;
	*out = cache;
	return 0;

free_key:
	pn_mutex_fini(&cache->lock);
	pn_thread_key_free(cache->key);
close_memory:
	close_memory(cache);
close_policy:
	pn_policy_close(cache->policy);
close_counters:
	close_counters(cache);
free_cache:
	free(cache);
	return ret;
}

/* Removes every region from the index; those in use die when unpinned. */
static void unindex_all(struct pn_cache *cache)
{
	pn_lock(&cache->lock);
	pn_invalidate_drain_locked(cache);
	pn_reclaim_evict_locked(cache, SIZE_MAX / 2, UINT32_MAX,
				PN_BECAUSE_FLUSHED);
	pn_unlock(&cache->lock);
}

static void evict_all(struct pn_cache *cache)
{
	if (cache->sink)
		pn_cache_trace(cache, (struct pn_trace_event){
					      .kind = PN_EVENT_FLUSH });
	unindex_all(cache);
	pn_reclaim_reap_all(cache);
	PN_CACHE_CHECK(cache);
}

void pn_cache_flush(struct pn_cache *cache)
{
	evict_all(cache);
	if (pn_reclaim_retry_ns(cache) != PN_FOREVER)
		pn_worker_notify(cache);
}

/* What was not unpinned must not stay registered either: the caller may close
 * the domain that it is registered in. */
static void end_pins(struct pn_cache *cache)
{
	unsigned n = pn_slots_clear_all(cache);

	if (n)
		pn_warn("%u pinned regions at pinion_close(): they are "
			"deregistered; call pinion_unpin() for each pin first",
			n);
	pn_reclaim_queue_lent(cache);
}

void pn_cache_close(struct pn_cache *cache)
{
	if (!cache)
		return;
	pn_reclaim_leave(cache);
	pn_worker_stop(cache);
	PN_CACHE_CHECK_CLOSE(cache);
	if (cache->subscribed)
		pn_monitor_unsubscribe(&cache->subscriber);
	if (cache->sink)
		pn_cache_trace_close(cache);
	end_pins(cache);
	evict_all(cache);
	pn_reclaim_log_failed(cache);
	pn_thread_key_free(cache->key);
	pn_slots_free_all(cache);
	pn_policy_close(cache->policy);
	close_memory(cache);
	close_counters(cache);
	pn_mutex_fini(&cache->lock);
	free(cache);
}

void pn_cache_trim(struct pn_cache *cache)
{
	size_t max = atomic_load(&cache->budget->max_bytes);
	struct pn_reclaim_request nothing = { .nregions = 0 };

	if (cache->sink)
		pn_cache_trace(cache,
			       (struct pn_trace_event){
				       .kind = PN_EVENT_RESIZE,
				       .addr = atomic_load(
					       &cache->budget->max_regions),
				       .len = max });
	pn_lock(&cache->lock);
	cache->policy->ops->resize(cache->policy, max >> PN_PAGE_SHIFT);
	pn_unlock(&cache->lock);
	/* Read again each time: when another thread raises the limit meanwhile,
	 * there is room, and waiting for less would never end. */
	while (atomic_load(&cache->budget->bytes) >
		       atomic_load(&cache->budget->max_bytes) ||
	       atomic_load(&cache->budget->regions) >
		       atomic_load(&cache->budget->max_regions))
		if (pn_reclaim_step(cache, &nothing))
			break;
	PN_CACHE_CHECK(cache);
}

void pn_cache_sync_policy(struct pn_cache *cache)
{
	pn_lock(&cache->lock);
	pn_slots_drain_locked(cache);
	pn_unlock(&cache->lock);
}

void pn_cache_set_merging(struct pn_cache *cache, bool joins)
{
	atomic_store(&cache->merging, joins && !cache->attr.no_merge);
	if (cache->sink)
		pn_cache_trace(cache,
			       (struct pn_trace_event){
				       .kind = PN_EVENT_JOINS,
				       .len = atomic_load(&cache->merging) });
}

void pn_cache_count_endpoint(struct pn_cache *cache, bool more)
{
	pn_lock(&cache->lock);
	if (more ? !cache->nendpoints++ : !--cache->nendpoints) {
		pn_cache_set_stepped(cache, more);
		pn_cache_set_merging(cache, !more);
	}
	pn_unlock(&cache->lock);
}

void pn_cache_query(struct pn_cache *cache, struct pinion_cache_stats *out)
{
	pn_lock(&cache->lock);
	*out = *cache->stats;
	out->hits += pn_slots_hits_locked(cache);
	pn_unlock(&cache->lock);
	out->max_bytes = atomic_load(&cache->budget->max_bytes);
	out->max_regions = atomic_load(&cache->budget->max_regions);
	out->peak_bytes = atomic_load(&cache->budget->peak_bytes);
}
