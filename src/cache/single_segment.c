/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Planning where a pin has one segment (PN_CAP_ONE_SEGMENT): the users of the
 * keys know nothing of segments.
 *
 * If one region covers the buffer, the pin takes it. Else one new region is
 * made, and the regions with bytes in it leave the index and die with their
 * last pin. A region there that another thread is registering is waited for
 * first.
 *
 * A new region with remote access has exactly the bytes of the buffer: more
 * would give peers rights that nobody asked for. So has one on a device that
 * finds registrations by address: it would concern the program's copies of the
 * memory beside. Otherwise it has
 * whole pages and merges the regions that it replaces, so that windows that
 * slide over a buffer end up in one region instead of replacing each other for
 * ever. A page at the buffer's edge that has bytes of other regions is not
 * taken from them: on that side the new region ends with the buffer
 * (shared_pages.c).
 */
#include <errno.h>

#include "cache/cache_impl.h"
#include "cache/plan_impl.h"
#include "cache/region_impl.h"
#include "cache/thread_slots_impl.h"

/* Only the kernel may know of its release yet: then the region dies now. A plan
 * that only hits leaves that to the notice. */
static bool was_released(struct pn_plan *plan, struct pn_region *region,
			 struct pn_range buffer) PN_REQUIRES(&plan->cache->lock)
{
	uintptr_t at = (uintptr_t)region->mr.addr;

	if (!plan->cache->probing || region->resident ||
	    atomic_load(&region->state) != PN_REGION_VALID ||
	    pn_monitor_probe(at > buffer.addr ? at : buffer.addr))
		return false;
	if (!pn_plan_waits_for_releases(plan))
		pn_region_die_locked(plan->cache, region, PN_BECAUSE_RELEASED);
	return true;
}

/* What a region with bytes of the buffer means for the plan. 0: it is the
 * segment; -ENOENT: the new region replaces it; -EAGAIN: wait for it; -EACCES:
 * the plan may not replace it; -EBUSY: only_hit, and a release is in flight. */
static int check_region(struct pn_plan *plan, struct pn_region *region,
			struct pn_range buffer) PN_REQUIRES(&plan->cache->lock)
{
	bool pending = atomic_load(&region->state) == PN_REGION_PENDING;
	int ret;

	if (pending && region->owner != plan) {
		ret = pn_plan_hold(plan, region, &plan->wait);
		return ret ? ret : -EAGAIN;
	}
	if (was_released(plan, region, buffer))
		return pn_plan_waits_for_releases(plan) ? -EBUSY : -ENOENT;
	if (pn_range_covers(pn_region_range(region), buffer) &&
	    pn_access_matches(region, plan->flags)) {
		pn_region_prefer_locked(plan->cache, region, buffer.addr);
		return pn_plan_add_segment(plan, region, buffer.addr,
					   buffer.len);
	}
	if (region->resident)
		return -EACCES;
	/* A region cannot be replaced before it is registered. */
	plan->overlaps_own |= pending;
	return -ENOENT;
}

/* A resident also serves pins that bypass the cache: its memory is registered.
 */
static int find_resident(struct pn_plan *plan, struct pn_range buffer)
	PN_REQUIRES(&plan->cache->lock)
{
	struct pn_range rest = buffer;
	struct pn_region *region = pn_region_next_locked(plan->cache, &rest);
	unsigned access = plan->flags & PINION_ACCESS_ALL;

	if (!region || !region->resident ||
	    !pn_access_matches(region, access) ||
	    !pn_range_covers(pn_region_range(region), buffer))
		return -ENOENT;
	return pn_plan_add_segment(plan, region, buffer.addr, buffer.len);
}

static int find(struct pn_plan *plan, struct pn_range buffer)
	PN_REQUIRES(&plan->cache->lock)
{
	struct pn_range rest = buffer;
	struct pn_region *region;
	int ret = -ENOENT;

	if (plan->flags & PINION_PIN_BYPASS)
		return find_resident(plan, buffer);
	while (ret == -ENOENT &&
	       (region = pn_region_next_locked(plan->cache, &rest)))
		ret = check_region(plan, region, buffer);
	return ret;
}

/* --- the new region ------------------------------------------------------- */

/* What the new region allows: also the rights of peers of a region that had all
 * of these bytes. Local write access does no harm and saves the next
 * replacement. */
static unsigned choose_access(struct pn_plan *plan, struct pn_range buffer)
	PN_REQUIRES(&plan->cache->lock)
{
	unsigned wanted = pn_plan_access(plan), access = wanted;
	struct pn_region *region;
	struct pn_range rest = buffer;

	while ((region = pn_region_next_locked(plan->cache, &rest))) {
		unsigned had = region->mr.access;

		if (pn_range_covers(pn_region_range(region), buffer)) {
			plan->cache->stats->misses_access++;
			plan->lacked_access = true;
			access |= had & ~(unsigned)PINION_ACCESS_RELAXED;
		} else if (!plan->no_merge) {
			access |= had & PINION_ACCESS_LOCAL_WRITE;
		}
	}
	plan->merged |= access != wanted;
	return access;
}

/* Whether regions without bytes of the buffer have bytes in range. */
static bool others_in(struct pn_plan *plan, struct pn_range range,
		      struct pn_range buffer) PN_REQUIRES(&plan->cache->lock)
{
	struct pn_region *region;

	while ((region = pn_region_next_locked(plan->cache, &range)))
		if (!pn_range_overlaps(pn_region_range(region), buffer))
			return true;
	return false;
}

/* The pages of the buffer, without those at its ends that it shares. */
static struct pn_range whole_pages(struct pn_plan *plan, struct pn_range buffer)
	PN_REQUIRES(&plan->cache->lock)
{
	struct pn_range pages =
		pn_range_pages(buffer.addr, buffer.len, PN_PAGE_BYTES);
	uintptr_t end = buffer.addr + buffer.len;
	uintptr_t pages_end = pages.addr + pages.len;
	struct pn_range before = { pages.addr, buffer.addr - pages.addr };
	struct pn_range behind = { end, pages_end - end };

	if (others_in(plan, before, buffer))
		pages.addr = buffer.addr;
	if (others_in(plan, behind, buffer))
		pages_end = end;
	pages.len = pages_end - pages.addr;
	return pages.len > plan->cache->device->limits.max_mr_bytes ? buffer
								    : pages;
}

/* Whether the new region may merge one that it replaces. */
static bool may_merge(struct pn_plan *plan, struct pn_region *region,
		      struct pn_range wider) PN_REQUIRES(&plan->cache->lock)
{
	struct pn_cache *cache = plan->cache;

	return !(region->mr.access & PN_ACCESS_REMOTE) &&
	       region->held != cache->scan &&
	       pn_access_matches(region, plan->flags) &&
	       wider.len <= cache->attr.max_region_bytes &&
	       pn_plan_one_mapping(plan, wider) &&
	       pn_plan_inherit(plan, region);
}

/* The range, cut to the buffer on the sides where a region reaches beyond the
 * range. The buffer of that region will be pinned again: if both were rounded
 * to the page that they share, each would replace the other for ever. */
static struct pn_range cut_to(struct pn_range buffer, struct pn_range range,
			      struct pn_range region)
{
	uintptr_t start = range.addr, end = range.addr + range.len;

	if (region.addr < start)
		start = buffer.addr;
	if (region.addr + region.len > end)
		end = buffer.addr + buffer.len;
	return (struct pn_range){ start, end - start };
}

/* The range with the regions that it may merge, or cut to the buffer where it
 * may not. Only the first and the last of them reach beyond the range. */
static struct pn_range merge_replaced(struct pn_plan *plan,
				      struct pn_range buffer,
				      struct pn_range range)
	PN_REQUIRES(&plan->cache->lock)
{
	struct pn_range rest = buffer;
	struct pn_region *region;

	if (!plan->no_merge)
		pn_slots_scan_locked(plan->cache);
	while ((region = pn_region_next_locked(plan->cache, &rest))) {
		struct pn_range theirs = pn_region_range(region);
		struct pn_range wider = pn_range_hull(range, theirs);

		if (wider.len == range.len)
			continue;
		if (plan->no_merge || !may_merge(plan, region, wider)) {
			range = cut_to(buffer, range, theirs);
			continue;
		}
		range = wider;
		plan->cache->stats->merges++;
		plan->merged = true;
	}
	return range;
}

static void replace(struct pn_plan *plan, struct pn_range range)
	PN_REQUIRES(&plan->cache->lock)
{
	enum pn_trace_event_reason why =
		plan->lacked_access ? PN_BECAUSE_ACCESS : PN_BECAUSE_JOINED;
	struct pn_region *region;

	while ((region = pn_region_next_locked(plan->cache, &range)))
		pn_region_die_locked(plan->cache, region, why);
}

/* Replaces the regions that overlap the new one. *range is the buffer and
 * becomes the range of the new region. */
static void replace_overlapping(struct pn_plan *plan, struct pn_range *range,
				unsigned *access)
	PN_REQUIRES(&plan->cache->lock)
{
	struct pn_range buffer = *range;
	bool exact;

	*access = choose_access(plan, buffer);
	exact = *access & PN_ACCESS_REMOTE ||
		pn_cache_ends_with_pins(plan->cache);
	if (!exact)
		*range =
			merge_replaced(plan, buffer, whole_pages(plan, buffer));
	replace(plan, *range);
	if (!exact)
		*range = pn_plan_merge(plan, *range, access);
}

int pn_plan_single_segment(struct pn_plan *plan, struct pn_range buffer)
{
	unsigned access = pn_plan_access(plan);
	struct pn_range range = buffer;
	int ret;

	if (buffer.len > plan->cache->device->limits.max_mr_bytes)
		return -EINVAL;
	plan->overlaps_own = false;
	ret = find(plan, buffer);
	if (ret != -ENOENT || plan->only_hit)
		return ret;
	/* A private region is not in the index and replaces nothing. */
	if (!pn_plan_is_private(plan) && !plan->overlaps_own)
		replace_overlapping(plan, &range, &access);
	ret = pn_plan_add_region(plan, range, buffer, access);
	if (ret == -ENOBUFS)
		pn_plan_need(plan,
			     pn_range_pages(range.addr, range.len,
					    PN_PAGE_BYTES)
				     .len,
			     1);
	return ret;
}
