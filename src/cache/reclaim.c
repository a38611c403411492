/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reclaim: evicting, and deregistering what is dying.
 *
 * The budget is uncharged only when the device has deregistered. A region dies
 * in two steps. First it leaves the index: no new pins. Then, when a scan of
 * all slots after a membarrier shows that nobody holds it, it is deregistered
 * together with others, since a batch pays its fixed cost once. The bytes
 * of a batch under way are neither cached nor free: a thread that needs room
 * waits for the batch instead of failing.
 *
 * What the device fails to deregister stays in the budget, in cache->failed,
 * and goes with a later batch: after batch_age at the earliest, then less and
 * less often, and a last time when the cache is closed. Nobody waits for these.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/cache_impl.h"
#include "cache/invalidate_impl.h"
#include "cache/plan_impl.h"
#include "cache/reclaim_impl.h"
#include "cache/region_impl.h"
#include "cache/thread_slots_impl.h"
#include "cache/trace_impl.h"
#include "cache/worker_impl.h"

#define REAP_MAX 256

#define MAX_RETRY_NS PN_NS_PER_S

static bool is_held(void *arg, const struct pn_policy_node *node)
{
	struct pn_cache *cache = arg;
	const struct pn_region *region =
		pn_container_of(node, struct pn_region, node);

	return region->held == cache->scan;
}

unsigned pn_reclaim_evict_locked(struct pn_cache *cache, size_t bytes,
				 size_t nregions,
				 enum pn_trace_event_reason why)
{
	struct pn_policy_want want = {
		.npages = (bytes + PN_PAGE_BYTES - 1) >> PN_PAGE_SHIFT,
		.nregions = (unsigned)nregions,
		.busy = is_held,
		.busy_arg = cache,
	};
	struct pn_list victims, *link;
	unsigned n;

	pn_list_init(&victims);
	pn_slots_drain_locked(cache);
	/* Without a barrier this misses pins that begin at this moment. Such a
	 * region leaves the index all the same and dies when unpinned. */
	pn_slots_scan_locked(cache);
	n = cache->policy->ops->evict(cache->policy, &want, &victims);
	while ((link = pn_list_pop(&victims))) {
		struct pn_region *region = pn_region_of_node(link);

		region->flags |= PN_REGION_EVICTED;
		pn_region_die_locked(cache, region, why);
	}
	cache->stats->evictions += n;
	return n;
}

/* What one reap deregisters. */
struct batch {
	struct pn_list regions;
	unsigned nmrs;
	size_t bytes, n; /* of the budget */
	size_t nurgent;	 /* of n */
	unsigned nfailed;
	struct pn_mr *mrs[REAP_MAX]; /* nmrs of them are set */
};

/* Without the array: most batches are short. */
static void batch_init(struct batch *batch)
{
	memset(batch, 0, offsetof(struct batch, mrs));
	pn_list_init(&batch->regions);
}

/* Takes dying regions that no slot holds. The caller has made the barrier.
 * Those that do not fit the batch go back unchanged, in front: they are older
 * than what began to die meanwhile. */
static void collect(struct pn_cache *cache, struct pn_list *candidates,
		    unsigned ncandidates, struct batch *batch)
	PN_REQUIRES(&cache->lock)
{
	struct pn_list *link;

	unsigned nheld_dying = 0;

	pn_slots_scan_locked(cache);
	while (batch->n < REAP_MAX && (link = pn_list_pop(candidates))) {
		struct pn_region *region = pn_region_of_node(link);

		if (region->held == cache->scan) {
			pn_list_append(&cache->dying.list, link);
			nheld_dying++;
			continue;
		}
		pn_list_append(&batch->regions, link);
		batch->n++;
		batch->bytes += pn_region_bytes(region);
		batch->nurgent += pn_region_is_urgent(region);
		if (region->flags & PN_REGION_REGISTERED)
			batch->mrs[batch->nmrs++] = &region->mr;
	}
	pn_list_splice(&cache->dying.list, candidates);
	cache->dying.n += ncandidates - (unsigned)batch->n;
	atomic_store(&cache->dying.nheld, nheld_dying);
}

/* Whether one call deregisters the whole batch: the policy says so for its
 * victims; urgent ones always go together. */
static bool in_one_call(const struct pn_cache *cache, const struct batch *batch)
{
	return cache->policy->ops->batched || batch->nurgent == batch->n;
}

/* Of a region in a batch: whether the device failed to deregister it. */
static bool is_still_registered(const struct pn_cache *cache,
				const struct pn_region *region)
{
	return region->flags & PN_REGION_REGISTERED &&
	       pn_device_still_registered(cache->device, &region->mr);
}

static void deregister(struct pn_cache *cache, struct batch *batch)
{
	unsigned at_once = in_one_call(cache, batch) ? batch->nmrs : 1;
	struct pn_list *pos;

	for (unsigned i = 0; i < batch->nmrs; i += at_once)
		pn_device_deregister(cache->device, &batch->mrs[i], at_once);
	pn_list_for_each (pos, &batch->regions) {
		struct pn_region *region = pn_region_of_node(pos);

		if (is_still_registered(cache, region))
			batch->nfailed++;
		/* A trace also records later releases of this memory. */
		else if (region->watch == PN_WATCH_ON && !cache->sink)
			pn_monitor_unwatch((uintptr_t)region->mr.addr,
					   region->mr.len);
	}
}

static void trace_deregistered(struct pn_cache *cache,
			       const struct batch *batch)
{
	unsigned at_once = in_one_call(cache, batch) ? batch->nmrs : 1;

	for (unsigned i = 0; i < batch->nmrs; i++) {
		const struct pn_region *region =
			pn_container_of(batch->mrs[i], struct pn_region, mr);

		if (is_still_registered(cache, region))
			continue;
		pn_cache_trace(cache,
			       (struct pn_trace_event){
				       .kind = PN_EVENT_DEREGISTER,
				       .addr = (uintptr_t)region->mr.addr,
				       .len = region->mr.len,
				       .more = (uint16_t)(at_once - 1 -
							  i % at_once),
				       .reason = (uint8_t)(region->flags >>
							   PN_REGION_WHY) });
	}
}

/* The region stays DYING and in the budget. */
static void queue_failed(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock)
{
	region->flags |= PN_REGION_DEREG_FAILED;
	pn_list_append(&cache->failed.list, &region->node.link);
	cache->failed.n++;
	cache->failed.bytes += pn_region_bytes(region);
}

/* Retries come later each time. */
static void postpone_retry(struct pn_cache *cache, uint64_t now_ns)
	PN_REQUIRES(&cache->lock)
{
	cache->failed.interval_ns *= 2;
	if (cache->failed.interval_ns < cache->attr.batch_age_ns)
		cache->failed.interval_ns = cache->attr.batch_age_ns;
	if (cache->failed.interval_ns > MAX_RETRY_NS)
		cache->failed.interval_ns = MAX_RETRY_NS;
	cache->failed.retry_ns = now_ns + cache->failed.interval_ns;
	/* A worker that sleeps has to wake earlier. */
	atomic_store(&cache->worker.wanted, true);
}

static void finish_batch(struct pn_cache *cache, struct batch *batch,
			 uint64_t now_ns) PN_REQUIRES(&cache->lock)
{
	struct pn_list *link;

	if (cache->sink)
		trace_deregistered(cache, batch);

	cache->stats->deregistrations += batch->nmrs - batch->nfailed;
	cache->stats->deregister_batches +=
		in_one_call(cache, batch) ? !!batch->nmrs : batch->nmrs;
	cache->dying.nurgent -= (unsigned)batch->nurgent;
	while ((link = pn_list_pop(&batch->regions))) {
		struct pn_region *region = pn_region_of_node(link);

		if (is_still_registered(cache, region)) {
			queue_failed(cache, region);
			batch->bytes -= pn_region_bytes(region);
			batch->n--;
		} else {
			pn_region_free_locked(cache, region);
		}
	}
	if (batch->nfailed)
		postpone_retry(cache, now_ns);
	else if (!cache->failed.n)
		cache->failed.interval_ns = 0;
	cache->stats->dying_bytes -= batch->bytes;
	cache->dying.nbatches--;
	cache->own_bytes -= batch->bytes;
	cache->own_regions -= batch->n;
	pn_budget_uncharge(cache->budget, batch->bytes, batch->n);
}

/* Moves the failed regions to the dying list again. */
static void requeue_failed(struct pn_cache *cache) PN_REQUIRES(&cache->lock)
{
	struct pn_list *link;

	while ((link = pn_list_pop(&cache->failed.list))) {
		struct pn_region *region = pn_region_of_node(link);

		region->flags &= (uint16_t)~PN_REGION_DEREG_FAILED;
		cache->dying.nurgent += pn_region_is_urgent(region);
		pn_list_insert(&cache->dying.list, link);
		cache->dying.n++;
	}
	cache->failed.n = 0;
	cache->failed.bytes = 0;
}

static bool retry_due(const struct pn_cache *cache)
{
	return cache->failed.n &&
	       atomic_load(&cache->now_ns) >= cache->failed.retry_ns;
}

/* Detaches the whole list of the dying, so that a barrier outside the lock
 * covers exactly these. Returns how many there are. */
static unsigned detach_dying(struct pn_cache *cache, struct pn_list *out)
	PN_REQUIRES(&cache->lock)
{
	unsigned n;

	if (pn_unlikely(retry_due(cache)))
		requeue_failed(cache);
	n = cache->dying.n;
	pn_list_init(out);
	pn_list_splice(out, &cache->dying.list);
	/* In this order: pn_cache_settle() reads both without the lock. */
	if (n)
		cache->dying.nbatches++;
	cache->dying.n = 0;
	return n;
}

void pn_reclaim_wake_waiters(struct pn_cache *cache)
{
	atomic_fetch_add(&cache->dying.reaped, 1);
	if (atomic_load(&cache->dying.nwaiters))
		pn_device_futex_wake(cache->device, &cache->dying.reaped);
}

/* Waits until `reaped` is no longer `seen`. The order of the two variables is
 * that of sequential consistency: a waker that does not see us in nwaiters has
 * changed `reaped` before we sleep. */
static void wait_reaped(struct pn_cache *cache, uint32_t seen)
{
	atomic_fetch_add(&cache->dying.nwaiters, 1);
	pn_device_futex_wait(cache->device, &cache->dying.reaped, seen);
	atomic_fetch_sub(&cache->dying.nwaiters, 1);
}

/* Deregisters those of the detached list that no slot holds, a batch at most;
 * how many. */
static unsigned reap(struct pn_cache *cache, struct pn_list *candidates,
		     unsigned n)
{
	struct batch batch;
	uint64_t now_ns = 0;

	batch_init(&batch);
	if (!cache->attr.alone)
		pn_asymmetric_heavy();
	pn_lock(&cache->lock);
	collect(cache, candidates, n, &batch);
	pn_unlock(&cache->lock);
	deregister(cache, &batch);
	if (batch.nfailed)
		now_ns = pn_device_now(cache->device);
	pn_lock(&cache->lock);
	finish_batch(cache, &batch, now_ns);
	pn_unlock(&cache->lock);
	pn_reclaim_wake_waiters(cache);
	return (unsigned)batch.n;
}

unsigned pn_reclaim_reap(struct pn_cache *cache)
{
	struct pn_list candidates;
	unsigned n;

	pn_lock(&cache->lock);
	n = detach_dying(cache, &candidates);
	pn_unlock(&cache->lock);
	return n ? reap(cache, &candidates, n) : 0;
}

/* Waits until the number is 0. Whoever decreases it wakes reap waiters. */
static void wait_for_zero_locked(struct pn_cache *cache, _Atomic unsigned *n)
	PN_REQUIRES(&cache->lock)
{
	while (atomic_load(n)) {
		uint32_t seen = atomic_load(&cache->dying.reaped);

		pn_unlock(&cache->lock);
		wait_reaped(cache, seen);
		pn_lock(&cache->lock);
	}
}

void pn_reclaim_wait_batches_locked(struct pn_cache *cache)
{
	wait_for_zero_locked(cache, &cache->dying.nbatches);
}

void pn_reclaim_reap_all(struct pn_cache *cache)
{
	struct pn_list candidates;
	unsigned n;

	do {
		pn_lock(&cache->lock);
		pn_reclaim_wait_batches_locked(cache);
		requeue_failed(cache);
		n = detach_dying(cache, &candidates);
		pn_unlock(&cache->lock);
	} while (n && reap(cache, &candidates, n));
}

/* What a copy in flight holds stays; its end deregisters it. */
void pn_cache_settle(struct pn_cache *cache)
{
	bool dying;

	pn_invalidate_wait_notices(cache);
	/* A region counts as being deregistered before it no longer counts as
	 * dying. */
	if (pn_likely(!atomic_load(&cache->slow_reasons) &&
		      !atomic_load(&cache->dying.n) &&
		      !atomic_load(&cache->dying.nbatches)))
		return;
	pn_lock(&cache->lock);
	pn_invalidate_drain_locked(cache);
	dying = cache->dying.n || cache->dying.nbatches;
	pn_unlock(&cache->lock);
	if (pn_unlikely(dying))
		pn_reclaim_reap_all(cache);
}

/* --- private regions --------------------------------------------------------
 */

/* Takes a private region from its pin: into the batch if that ends it now, else
 * to the dying. */
static void take_private(struct pn_cache *cache, struct pn_region *region,
			 bool now, struct batch *batch)
	PN_REQUIRES(&cache->lock)
{
	pn_list_remove(&region->node.link);
	if (!now || !(region->mr.access & PN_ACCESS_REMOTE)) {
		pn_region_queue_locked(cache, region);
		return;
	}
	pn_list_append(&batch->regions, &region->node.link);
	batch->mrs[batch->nmrs++] = &region->mr;
	batch->bytes += pn_region_bytes(region);
	batch->n++;
	batch->nurgent++;
	cache->dying.nurgent++;
	cache->stats->dying_bytes += pn_region_bytes(region);
}

/* Clears the slots; whether the worker has something to do. No scan of all
 * slots: nobody else finds a private region. A hit that was overtaken may have
 * it in a slot for a moment, but reads nothing of it that changes; whoever
 * rekeys it is waited for. */
static bool collect_private(struct pn_cache *cache,
			    const struct pn_segment *segments, unsigned n,
			    struct batch *batch, bool now)
{
	bool dying = false;

	pn_lock(&cache->lock);
	if (now)
		wait_for_zero_locked(cache, &cache->nrekeys);
	for (unsigned i = 0; i < n; i++) {
		struct pn_region *region = segments[i].region;
		size_t nbatch = batch->n;

		if (region->flags & PN_REGION_PRIVATE)
			take_private(cache, region, now, batch);
		pn_asymmetric_store(segments[i].slot, NULL);
		dying |= batch->n == nbatch &&
			 pn_asymmetric_load(&region->state) == PN_REGION_DYING;
	}
	if (batch->n)
		cache->dying.nbatches++;
	pn_unlock(&cache->lock);
	return dying;
}

/* A batch at most. */
static void put_private(struct pn_cache *cache,
			const struct pn_segment *segments, unsigned n, bool now)
{
	struct batch batch;
	bool dying;

	batch_init(&batch);
	dying = collect_private(cache, segments, n, &batch, now);
	if (batch.n) {
		uint64_t now_ns;

		deregister(cache, &batch);
		now_ns = batch.nfailed ? pn_device_now(cache->device) : 0;
		pn_lock(&cache->lock);
		finish_batch(cache, &batch, now_ns);
		pn_unlock(&cache->lock);
		pn_reclaim_wake_waiters(cache);
	}
	if (dying)
		pn_worker_notify(cache);
}

void pn_reclaim_put_private(struct pn_cache *cache,
			    const struct pn_segment *segments, unsigned n,
			    bool now)
{
	PN_NO_CANCEL();

	for (unsigned i = 0; i < n; i += REAP_MAX)
		put_private(cache, segments + i,
			    n - i < REAP_MAX ? n - i : REAP_MAX, now);
}

void pn_reclaim_queue_lent(struct pn_cache *cache)
{
	struct pn_list *link;

	pn_lock(&cache->lock);
	while ((link = pn_list_pop(&cache->lent)))
		pn_region_queue_locked(cache, pn_region_of_node(link));
	pn_unlock(&cache->lock);
}

/* --- residents where deregistering can fail --------------------------------
 */

/* Removes the resident from the index; it is a batch by itself. */
static void detach_resident(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock)
{
	pn_region_leave_locked(cache, region);
	pn_list_remove(&region->node.link);
	cache->dying.n--;
	cache->dying.nbatches++;
}

/* Back to the dying, or, if deregistering failed, into the index. Whoever
 * registered there meanwhile used memory that was not theirs. */
static void reattach_resident(struct pn_cache *cache, struct pn_region *region,
			      bool dying) PN_REQUIRES(&cache->lock)
{
	cache->dying.nbatches--;
	if (dying) {
		pn_list_append(&cache->dying.list, &region->node.link);
		cache->dying.n++;
		return;
	}
	pn_invalidate_range_locked(cache, pn_region_range(region));
	cache->dying.nurgent--;
	cache->stats->dying_bytes -= pn_region_bytes(region);
	region->flags &= (1u << PN_REGION_WHY) - 1;
	atomic_store_explicit(&region->state, PN_REGION_VALID,
			      memory_order_release);
	pn_region_index_locked(cache, region);
	if (cache->sink)
		pn_cache_trace_registered(cache, region, PN_DECIDED_KEPT,
					  PN_BECAUSE_OWNED);
}

bool pn_reclaim_remove_resident(struct pn_cache *cache,
				struct pn_region *region)
{
	struct batch batch = { .bytes = pn_region_bytes(region),
			       .n = 1,
			       .nurgent = 1,
			       .mrs = { &region->mr },
			       .nmrs = 1 };
	bool held;

	pn_list_init(&batch.regions);
	pn_lock(&cache->lock);
	detach_resident(cache, region);
	pn_unlock(&cache->lock);
	if (!cache->attr.alone)
		pn_asymmetric_heavy();
	pn_lock(&cache->lock);
	pn_slots_scan_locked(cache);
	held = region->held == cache->scan;
	if (held)
		reattach_resident(cache, region, true);
	pn_unlock(&cache->lock);
	if (!held) {
		pn_list_append(&batch.regions, &region->node.link);
		deregister(cache, &batch);
		pn_lock(&cache->lock);
		if (batch.nfailed)
			reattach_resident(cache, region, false);
		else
			finish_batch(cache, &batch, 0);
		pn_unlock(&cache->lock);
	}
	pn_reclaim_wake_waiters(cache);
	return !batch.nfailed;
}

void pn_reclaim_abandon_resident(struct pn_cache *cache,
				 struct pn_region *region)
{
	uint64_t now_ns = pn_device_now(cache->device);

	pn_lock(&cache->lock);
	detach_resident(cache, region);
	cache->dying.nbatches--;
	cache->dying.nurgent--;
	queue_failed(cache, region);
	postpone_retry(cache, now_ns);
	pn_unlock(&cache->lock);
	pn_reclaim_wake_waiters(cache);
}

/* --- room for a request -----------------------------------------------------
 */

/* How much this cache has to evict. Of the cache of another context, only what
 * the process lacks. When the device has no room although the budget has
 * (by_device), at least one region. None when the kernel merely uncharges late.
 */
static struct pn_shortage shortage_of(const struct pn_cache *cache,
				      const struct pn_reclaim_request *want)
{
	struct pn_shortage s =
		pn_budget_shortage(want->budget, want->bytes, want->nregions);

	if (cache->budget != want->budget)
		s.bytes = s.regions = 0;
	if (s.bytes < s.process_bytes)
		s.bytes = s.process_bytes;
	if (want->by_device && !s.regions)
		s.regions = 1;
	if (want->by_device && s.bytes < want->bytes)
		s.bytes = want->bytes;
	return s;
}

/* Evicts what is missing; how many. *busy: a batch is being deregistered now.
 */
static unsigned evict_missing(struct pn_cache *cache,
			      const struct pn_reclaim_request *want, bool *busy)
{
	struct pn_shortage s = shortage_of(cache, want);
	enum pn_trace_event_reason why =
		s.bytes ? PN_BECAUSE_BYTES : PN_BECAUSE_REGIONS;
	unsigned evicted = 0;

	if (want->by_device)
		why = PN_BECAUSE_DEVICE;
	pn_lock(&cache->lock);
	if (s.bytes || s.regions)
		evicted =
			pn_reclaim_evict_locked(cache, s.bytes, s.regions, why);
	*busy = cache->dying.nbatches;
	pn_unlock(&cache->lock);
	return evicted;
}

static bool has_room(const struct pn_reclaim_request *want)
{
	struct pn_shortage s =
		pn_budget_shortage(want->budget, want->bytes, want->nregions);

	return !s.bytes && !s.regions && !s.process_bytes;
}

static bool could_ever_fit(const struct pn_reclaim_request *want)
{
	return pn_budget_could_fit(want->budget, want->bytes, want->nregions);
}

/* Deregisters the dying, one batch after another, until the request fits the
 * budget. One batch is enough when the device lacked room: nobody knows how
 * much it lacks. False: the dying are used up and the request does not fit. */
static bool reap_enough(struct pn_cache *cache,
			const struct pn_reclaim_request *want)
{
	unsigned n;

	do {
		n = pn_reclaim_reap(cache);
	} while (n && !want->by_device && !has_room(want));
	return want->by_device ? n : has_room(want);
}

/* The dying go first, all of them: they are in the budget still, so whoever
 * evicts before they are gone evicts too much. */
static int reclaim_own(struct pn_cache *cache,
		       const struct pn_reclaim_request *want)
{
	uint32_t seen = atomic_load(&cache->dying.reaped);
	bool busy;

	if (!could_ever_fit(want))
		return -ENOBUFS;
	if (reap_enough(cache, want))
		return 0;
	if (evict_missing(cache, want, &busy)) {
		reap_enough(cache, want);
		return 0;
	}
	if (busy)
		wait_reaped(cache, seen);
	/* The batch of another thread may have ended since the first look. */
	else if (want->by_device || !has_room(want))
		return -ENOBUFS;
	return 0;
}

/* Cached regions first, then what background tasks keep (empty slabs of heaps),
 * which costs more to get back. */
static int reclaim_in(struct pn_cache *cache,
		      const struct pn_reclaim_request *want)
{
	int ret = reclaim_own(cache, want);

	if (ret == -ENOBUFS && could_ever_fit(want) && pn_tasks_shrink(cache)) {
		pn_reclaim_reap(cache);
		ret = 0;
	}
	return ret;
}

void pn_reclaim_join(struct pn_cache *cache)
{
	struct pn_sharers *sharers = cache->budget->sharers;

	pn_lock(&sharers->lock);
	pn_list_append(&sharers->caches, &cache->sharer);
	pn_unlock(&sharers->lock);
}

void pn_reclaim_leave(struct pn_cache *cache)
{
	struct pn_sharers *sharers = cache->budget->sharers;

	pn_lock(&sharers->lock);
	cache->leaving = true;
	while (cache->nreclaimers)
		pthread_cond_wait(&sharers->left, &sharers->lock.pthread);
	pn_list_remove(&cache->sharer);
	pn_unlock(&sharers->lock);
}

static void put_sharer_locked(struct pn_sharers *sharers,
			      struct pn_cache *cache)
	PN_REQUIRES(&sharers->lock)
{
	if (!--cache->nreclaimers && cache->leaving)
		pthread_cond_broadcast(&sharers->left);
}

/* The cache behind `last` (NULL: the first) with a reference, which keeps it
 * open and in its place; puts the reference to `last`. NULL: there is none. */
static struct pn_cache *next_sharer(struct pn_sharers *sharers,
				    struct pn_cache *last)
{
	struct pn_cache *next = NULL;
	struct pn_list *pos;

	pn_lock(&sharers->lock);
	pos = last ? last->sharer.next : sharers->caches.next;
	for (; !next && pos != &sharers->caches; pos = pos->next) {
		next = pn_container_of(pos, struct pn_cache, sharer);
		if (next->leaving)
			next = NULL;
	}
	if (next)
		next->nreclaimers++;
	if (last)
		put_sharer_locked(sharers, last);
	pn_unlock(&sharers->lock);
	return next;
}

static void put_sharer(struct pn_sharers *sharers, struct pn_cache *cache)
{
	pn_lock(&sharers->lock);
	put_sharer_locked(sharers, cache);
	pn_unlock(&sharers->lock);
}

/* The cache of another context can help where the process lacks room or the
 * kernel refuses, and this context is not at a cap of its own. */
static bool can_help(const struct pn_cache *cache,
		     const struct pn_reclaim_request *want)
{
	struct pn_shortage s;

	if (cache->budget == want->budget || want->by_device)
		return true;
	s = pn_budget_shortage(want->budget, want->bytes, want->nregions);
	return s.process_bytes && !s.bytes && !s.regions;
}

/* Its own regions first, then those of the other caches that share the budget:
 * of other rails and of other contexts, one at a time, so that no two locks are
 * held. */
int pn_reclaim_step(struct pn_cache *cache,
		    const struct pn_reclaim_request *asked)
{
	struct pn_sharers *sharers = cache->budget->sharers;
	struct pn_reclaim_request want = *asked;
	struct pn_cache *other = NULL;
	int ret;

	want.budget = cache->budget;
	ret = reclaim_in(cache, &want);
	while (ret == -ENOBUFS && (other = next_sharer(sharers, other)))
		if (other != cache && can_help(other, &want))
			ret = reclaim_in(other, &want);
	if (other)
		put_sharer(sharers, other);
	return ret;
}

int pn_reclaim(struct pn_cache *cache, size_t bytes, size_t nregions)
{
	const struct pn_reclaim_request want = { .bytes = bytes,
						 .nregions = nregions,
						 .budget = cache->budget };
	int ret = pn_reclaim_step(cache, &want);

	if (ret)
		return ret;
	while (!has_room(&want) && !pn_reclaim_step(cache, &want))
		;
	return 0;
}

bool pn_reclaim_batch_full_locked(struct pn_cache *cache)
{
	return cache->dying.n >= cache->attr.batch ||
	       cache->stats->dying_bytes - cache->failed.bytes >=
		       cache->attr.batch_bytes;
}

/* *when_ns: when to retry the failed ones; returns whether now. */
static bool failed_due(const struct pn_cache *cache, uint64_t *when_ns)
{
	*when_ns = cache->failed.n ? cache->failed.retry_ns : PN_FOREVER;
	return retry_due(cache);
}

bool pn_reclaim_batch_due_locked(struct pn_cache *cache, uint64_t *when_ns)
{
	bool due = failed_due(cache, when_ns);
	const struct pn_region *oldest;
	uint64_t old_ns;

	if (due || pn_list_empty(&cache->dying.list))
		return due;
	oldest = pn_region_of_node(cache->dying.list.next);
	old_ns = oldest->dying_since_ns + cache->attr.batch_age_ns;
	if (old_ns < *when_ns)
		*when_ns = old_ns;
	/* Urgent ones are not kept waiting. */
	return cache->dying.nurgent || pn_reclaim_batch_full_locked(cache) ||
	       atomic_load(&cache->now_ns) >= old_ns;
}

bool pn_reclaim_adopt(struct pn_cache *cache, const struct pn_mr *mr)
{
	uint64_t now_ns = pn_device_now(cache->device);
	struct pn_region *region;

	pn_lock(&cache->lock);
	region = pn_region_alloc_locked(cache);
	if (region) {
		pn_region_init(region,
			       (struct pn_range){ (uintptr_t)mr->addr,
						  mr->len },
			       mr->access);
		region->mr = *mr;
		region->flags |= PN_REGION_PRIVATE | PN_REGION_REGISTERED;
		atomic_store(&region->state, PN_REGION_DYING);
		cache->own_bytes += pn_region_bytes(region);
		cache->own_regions++;
		cache->stats->dying_bytes += pn_region_bytes(region);
		queue_failed(cache, region);
		postpone_retry(cache, now_ns);
	}
	pn_unlock(&cache->lock);
	if (region)
		pn_worker_notify(cache);
	return region;
}

uint64_t pn_reclaim_retry_ns(struct pn_cache *cache)
{
	uint64_t when;

	pn_lock(&cache->lock);
	failed_due(cache, &when);
	pn_unlock(&cache->lock);
	return when;
}

void pn_reclaim_log_failed(struct pn_cache *cache)
{
	unsigned n;
	size_t bytes;

	pn_lock(&cache->lock);
	n = cache->failed.n;
	bytes = cache->failed.bytes;
	pn_unlock(&cache->lock);
	if (n)
		pn_error("%s: %u registrations of %zu bytes could not be "
			 "deregistered and are left behind",
			 cache->device->ops->kind, n, bytes);
}
