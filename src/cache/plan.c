/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Planning a miss: a walk of the buffers through the index, under the lock.
 *
 * A cached region is held in a slot and becomes a segment. A region that
 * another thread is registering makes the plan wait for that region only. Each
 * gap becomes a PENDING region of the plan, in the index at once, so that other
 * pins wait for it and release notices find it. A plan that is blocked leaves
 * nothing behind.
 *
 * A gap merges with neighbours in the same mapping that are not larger than
 * what the gap has grown to. As in a binary counter, a page is registered again
 * at most log2(n) times while a buffer that is pinned fragment by fragment
 * grows together, and not n times.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache_impl.h"
#include "cache/invalidate_impl.h"
#include "cache/plan_impl.h"
#include "cache/region_impl.h"
#include "cache/thread_slots_impl.h"
#include "cache/trace_impl.h"

/* --- storage -------------------------------------------------------------- */

/* Doubles an array; `few` is inside the plan and not to be freed. */
static int grow(void *array, unsigned *max, size_t size, const void *few)
{
	void *old = *(void **)array;
	void *p = realloc(old == few ? NULL : old, 2 * *max * size);

	if (!p)
		return -ENOMEM;
	if (old == few)
		memcpy(p, few, *max * size);
	*(void **)array = p;
	*max *= 2;
	return 0;
}

void pn_plan_init(struct pn_plan *plan, struct pn_cache *cache, unsigned flags,
		  const struct pn_plan_buffers *buffers)
{
	*plan = (struct pn_plan){ .cache = cache,
				  .flags = flags,
				  .no_merge = !atomic_load(&cache->merging),
				  .buffers = buffers->iov,
				  .nbuffers = buffers->n,
				  .first = buffers->first };
	plan->segments = plan->inline_segments;
	plan->fresh = plan->inline_fresh;
	plan->max_segments = plan->max_fresh = PN_PLAN_INLINE;
	pn_list_init(&plan->link);
}

/* The regions of the plan are watched, or there are none: the watches of the
 * regions that they merged end. */
static void end_inherited(struct pn_plan *plan)
{
	while (plan->ninherited) {
		struct pn_range r = plan->inherited[--plan->ninherited];

		pn_monitor_unwatch(r.addr, r.len);
	}
}

void pn_plan_fini(struct pn_plan *plan)
{
	end_inherited(plan);
	if (plan->segments != plan->inline_segments)
		free(plan->segments);
	if (plan->fresh != plan->inline_fresh)
		free(plan->fresh);
}

/* --- segments and regions ------------------------------------------------- */

static size_t bytes_of(struct pn_range range)
{
	return pn_range_pages(range.addr, range.len, PN_PAGE_BYTES).len;
}

int pn_plan_hold(struct pn_plan *plan, struct pn_region *region,
		 struct pn_segment *segment)
{
	pn_slot *slot = pn_slots_free_slot(plan->thread);

	if (!slot)
		return -EXFULL;
	pn_asymmetric_store(slot, region);
	segment->region = region;
	segment->slot = slot;
	return 0;
}

int pn_plan_add_segment(struct pn_plan *plan, struct pn_region *region,
			uintptr_t addr, size_t len)
{
	struct pn_segment *segment;
	int ret;

	if (plan->nsegments == plan->max_segments) {
		ret = grow(&plan->segments, &plan->max_segments,
			   sizeof(*plan->segments), plan->inline_segments);
		if (ret)
			return ret;
	}
	segment = &plan->segments[plan->nsegments];
	ret = pn_plan_hold(plan, region, segment);
	if (ret)
		return ret;
	segment->addr = addr;
	segment->len = len;
	plan->nsegments++;
	return 0;
}

void pn_plan_undo_locked(struct pn_plan *plan) PN_REQUIRES(&plan->cache->lock)
{
	for (unsigned i = 0; i < plan->nsegments; i++)
		atomic_store_explicit(plan->segments[i].slot, NULL,
				      memory_order_release);
	for (unsigned i = 0; i < plan->nfresh; i++) {
		struct pn_region *region = pn_plan_region(plan, i);

		/* The device could not undo all of a failed batch. */
		if (pn_device_still_registered(plan->cache->device,
					       &region->mr))
			region->flags |= PN_REGION_REGISTERED;
		pn_region_die_locked(plan->cache, region, PN_BECAUSE_FAILED);
	}
	plan->nsegments = plan->nfresh = 0;
	plan->merged = false;
}

int pn_plan_add_region(struct pn_plan *plan, struct pn_range range,
		       struct pn_range buffer, unsigned access)
{
	size_t bytes = bytes_of(range);
	uintptr_t start = range.addr > buffer.addr ? range.addr : buffer.addr;
	uintptr_t end = range.addr + range.len;
	struct pn_region *region;
	int ret = plan->only_hit ? -ENOENT : 0;

	if (ret)
		return ret;
	if (plan->nfresh == plan->max_fresh)
		ret = grow(&plan->fresh, &plan->max_fresh, sizeof(*plan->fresh),
			   plan->inline_fresh);
	if (ret)
		return ret;
	if (!pn_budget_charge(plan->cache->budget, bytes, 1))
		return -ENOBUFS;
	region = pn_region_alloc_locked(plan->cache);
	ret = region ? pn_region_insert_pending_locked(plan->cache, region,
						       range, access, plan)
		     : -ENOMEM;
	if (ret) {
		if (region)
			pn_region_free_locked(plan->cache, region);
		pn_budget_uncharge(plan->cache->budget, bytes, 1);
		return ret;
	}
	plan->fresh[plan->nfresh++] = &region->mr;
	plan->cache->own_bytes += bytes;
	plan->cache->own_regions++;
	if (end > buffer.addr + buffer.len)
		end = buffer.addr + buffer.len;
	return pn_plan_add_segment(plan, region, start, end - start);
}

/* --- gaps ----------------------------------------------------------------- */

/* The region at addr if the gap, with this access, may merge with it. Remote
 * access does not spread to memory that nobody asked it for. */
static struct pn_region *mergeable(struct pn_plan *plan, uintptr_t addr,
				   struct pn_range gap, unsigned access)
	PN_REQUIRES(&plan->cache->lock)
{
	struct pn_cache *cache = plan->cache;
	uint32_t id = pn_index_get(&cache->index, addr);
	struct pn_region *region = &cache->regions[id];

	if (!id || atomic_load(&region->state) != PN_REGION_VALID ||
	    region->resident || region->mr.len > gap.len ||
	    region->flags & PN_REGION_PARTIAL || region->held == cache->scan ||
	    !pn_access_matches(region, plan->flags) ||
	    (region->mr.access ^ access) & PN_ACCESS_REMOTE ||
	    region->mr.len + gap.len > cache->attr.max_region_bytes)
		return NULL;
	return region;
}

/* The pages of the neighbour become pages of the new region. They must be
 * watched all the time, so the watch of the neighbour ends after that of the
 * new region has begun. */
bool pn_plan_inherit(struct pn_plan *plan, struct pn_region *neighbour)
{
	if (plan->ninherited == PN_PLAN_INHERITED)
		return false;
	if (neighbour->watch != PN_WATCH_ON)
		return true;
	neighbour->watch = PN_WATCH_NONE;
	plan->inherited[plan->ninherited++] = pn_region_range(neighbour);
	return true;
}

bool pn_plan_one_mapping(struct pn_plan *plan, struct pn_range range)
{
	struct pn_cache *cache = plan->cache;
	const struct pn_cache_attr *attr = &cache->attr;
	bool one = attr->is_one_mapping
			   ? attr->is_one_mapping(attr->mapping_arg, range)
			   : pn_mapping_is_one(range);

	if (cache->sink)
		pn_cache_trace(cache,
			       (struct pn_trace_event){
				       .kind = PN_EVENT_MAPPING,
				       .addr = range.addr,
				       .len = range.len,
				       .decision = one ? PN_DECIDED_YES
						       : PN_DECIDED_NO });
	return one;
}

struct pn_range pn_plan_merge(struct pn_plan *plan, struct pn_range gap,
			      unsigned *access)
{
	if (plan->no_merge || pn_plan_is_private(plan))
		return gap;
	pn_slots_scan_locked(plan->cache);
	for (;;) {
		struct pn_region *r =
			mergeable(plan, gap.addr - 1, gap, *access);
		struct pn_range wider;

		if (!r)
			r = mergeable(plan, gap.addr + gap.len, gap, *access);
		if (!r)
			return gap;
		wider = pn_range_hull(gap, pn_region_range(r));
		if (!pn_plan_one_mapping(plan, wider) ||
		    !pn_plan_inherit(plan, r))
			return gap;
		*access |= r->mr.access;
		pn_region_die_locked(plan->cache, r, PN_BECAUSE_JOINED);
		plan->cache->stats->merges++;
		plan->merged = true;
		gap = wider;
	}
}

void pn_plan_need(struct pn_plan *plan, size_t rest, size_t nregions)
{
	plan->need_merged = plan->merged;
	plan->need_bytes = rest;
	plan->need_regions = plan->nfresh + nregions;
	for (unsigned i = 0; i < plan->nfresh; i++)
		plan->need_bytes += pn_region_bytes(pn_plan_region(plan, i));
}

static uintptr_t end_of(const struct pn_region *region)
{
	return (uintptr_t)region->mr.addr + region->mr.len;
}

static size_t nregions_of(const struct pn_cache *cache, struct pn_range gap)
{
	size_t max = cache->attr.max_region_bytes;

	return (gap.len + max - 1) / max;
}

/* A gap found no room. The gaps behind it, in [at, end), need room as well: the
 * next plan would fail there otherwise. */
static void need_gaps(struct pn_plan *plan, uintptr_t at, uintptr_t end)
	PN_REQUIRES(&plan->cache->lock)
{
	struct pn_cache *cache = plan->cache;

	while (at < end) {
		uint32_t id = pn_index_get(&cache->index, at);
		struct pn_range gap =
			pn_range_pages(at, end - at, PN_PAGE_BYTES);

		if (id) {
			at = end_of(&cache->regions[id]);
			continue;
		}
		gap.len = pn_index_next(&cache->index, gap) - gap.addr;
		plan->need_bytes += gap.len;
		plan->need_regions += nregions_of(cache, gap);
		at = gap.addr + gap.len;
	}
}

/* Covers a gap with regions no longer than the limit; *next is where they
 * end, which may be beyond the gap. */
static int fill_gap(struct pn_plan *plan, struct pn_range gap,
		    struct pn_range buffer, unsigned access, uintptr_t *next)
	PN_REQUIRES(&plan->cache->lock)
{
	struct pn_cache *cache = plan->cache;
	size_t max = cache->attr.max_region_bytes;

	gap = pn_plan_merge(plan, gap, &access);
	*next = gap.addr + gap.len;
	while (gap.len) {
		struct pn_range piece = gap;
		int ret;

		if (piece.len > max)
			piece.len = max;
		ret = pn_plan_add_region(plan, piece, buffer, access);
		if (ret == -ENOBUFS)
			pn_plan_need(plan, gap.len, nregions_of(cache, gap));
		if (ret)
			return ret;
		gap.addr += piece.len;
		gap.len -= piece.len;
	}
	return 0;
}

/* --- buffers -------------------------------------------------------------- */

/* What the region at addr means for the plan. 0: it is a segment, and *next is
 * set; -EAGAIN: wait for it; -ENOENT: it allowed too little and is dying;
 * -EACCES: it allows too little, and only its owner may remove it; -EBUSY: a
 * release is in flight, perhaps of other memory. */
static int check_region(struct pn_plan *plan, struct pn_region *region,
			uintptr_t addr, uintptr_t end, uintptr_t *next)
	PN_REQUIRES(&plan->cache->lock)
{
	uint32_t state = atomic_load(&region->state);
	int ret;

	if (state == PN_REGION_PENDING && region->owner != plan) {
		ret = pn_plan_hold(plan, region, &plan->wait);
		return ret ? ret : -EAGAIN;
	}
	/* Only the kernel may know of its release yet. A region of this plan is
	 * not watched before it is registered. */
	if (state == PN_REGION_VALID && plan->cache->probing &&
	    !region->resident && !pn_monitor_probe(addr)) {
		if (pn_plan_waits_for_releases(plan))
			return -EBUSY;
		pn_region_die_locked(plan->cache, region, PN_BECAUSE_RELEASED);
		return -ENOENT;
	}
	if (!pn_access_matches(region, plan->flags)) {
		plan->cache->stats->misses_access++;
		if (region->resident)
			return -EACCES;
		plan->lacked_access = true;
		pn_region_die_locked(plan->cache, region, PN_BECAUSE_ACCESS);
		return -ENOENT;
	}
	*next = (uintptr_t)region->mr.addr + region->mr.len;
	if (*next > end)
		*next = end;
	return pn_plan_add_segment(plan, region, addr, *next - addr);
}

/* What a new region should allow. A device that cannot pin read-only memory
 * pins for writing anyway: with write access, a buffer that is sent now and
 * received into later needs no second registration. */
unsigned pn_plan_access(const struct pn_plan *plan)
{
	return pn_cache_access(plan->cache, plan->flags);
}

/* Walks one buffer through the index. Errors as pn_plan_try(). */
static int plan_buffer(struct pn_plan *plan, struct pn_range buffer)
	PN_REQUIRES(&plan->cache->lock)
{
	struct pn_index *index = &plan->cache->index;
	unsigned wanted = pn_plan_access(plan), access = wanted;
	uintptr_t at = buffer.addr, end = buffer.addr + buffer.len;
	uintptr_t until =
		0; /* where remote access that was not asked for ends */
	bool bypass = plan->flags & PINION_PIN_BYPASS;
	int ret = 0;

	while (at < end && !ret) {
		uint32_t id = bypass ? 0 : pn_index_get(index, at);
		struct pn_region *region = &plan->cache->regions[id];
		struct pn_range gap =
			pn_range_pages(at, end - at, PN_PAGE_BYTES);

		if (id) {
			ret = check_region(plan, region, at, end, &at);
			if (ret != -ENOENT)
				continue;
			/* It is DYING; its fields are unchanged. */
			access |= region->mr.access & ~PINION_ACCESS_RELAXED;
			if (access & ~wanted & PN_ACCESS_REMOTE)
				until = end_of(region);
			ret = 0;
			continue;
		}
		if (!bypass)
			gap.len = pn_index_next(index, gap) - gap.addr;
		if (until > at && until < gap.addr + gap.len)
			gap.len = until - gap.addr;
		ret = fill_gap(plan, gap, buffer, access, &at);
		if (ret == -ENOBUFS && !bypass)
			need_gaps(plan, at, end);
		if (at >= until && access & ~wanted & PN_ACCESS_REMOTE)
			access = wanted;
	}
	return ret;
}

/* The cached segments of the plan count as used. If that is all of the plan, it
 * is a hit of each buffer. */
static void count_segments(struct pn_plan *plan) PN_REQUIRES(&plan->cache->lock)
{
	struct pn_cache *cache = plan->cache;

	for (unsigned i = 0; i < plan->nsegments; i++) {
		struct pn_region *region = plan->segments[i].region;

		if (atomic_load(&region->state) == PN_REGION_VALID &&
		    !region->resident)
			pn_policy_use(cache->policy, &region->node);
	}
	cache->stats->waits += plan->waited;
	if (plan->nfresh)
		return;
	cache->stats->hits += plan->nbuffers;
	plan->decision = PN_DECIDED_HIT;
	plan->reason = PN_BECAUSE_LOOKED;
	if (plan->nsegments > plan->nbuffers)
		plan->reason = PN_BECAUSE_PARTS;
	if (plan->waited)
		plan->reason = PN_BECAUSE_WAITED;
}

int pn_plan_try(struct pn_plan *plan)
{
	int ret = 0;

	plan->one_use = !pn_cache_watches(plan->cache);
	/* Another cache may have found out that releases are reported late. */
	if (plan->cache->subscribed && !plan->cache->probing &&
	    pn_monitor_needs_probe())
		pn_cache_update_monitor(plan->cache);
	pn_invalidate_wait_notices(plan->cache);
	pn_cache_refresh(plan->cache);
	pn_lock(&plan->cache->lock);
	pn_invalidate_drain_locked(plan->cache);
	pn_slots_drain_locked(plan->cache);
	if (plan->cache->sink)
		pn_cache_trace_others_locked(plan->cache);
	for (unsigned i = 0; i < plan->nbuffers && !ret; i++) {
		const struct iovec *b = &plan->buffers[i];
		struct pn_range r = { (uintptr_t)b->iov_base, b->iov_len };

		plan->first[i] = plan->nsegments;
		if (plan->only_hit &&
		    !pn_hints_covers_locked(plan->cache, r, plan->flags))
			ret = -ENOENT;
		else
			ret = pn_cache_one_segment(plan->cache)
				      ? pn_plan_single_segment(plan, r)
				      : plan_buffer(plan, r);
	}
	if (ret)
		pn_plan_undo_locked(plan);
	else
		count_segments(plan);
	pn_unlock(&plan->cache->lock);
	plan->planned = !ret;
	return ret;
}
