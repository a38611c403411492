/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A miss: plan, make room, register, publish.
 *
 * Planning walks the buffer through the index under the lock. What is cached
 * is held in a slot and becomes a part; what another thread is registering
 * makes us wait for that region alone; each gap becomes a PENDING region of
 * ours, put into the index at once so that others wait for it and release
 * notices see it. Then, without the lock: watch, register in one batch. Then,
 * with it again: look whether a release came in between, and publish.
 *
 * Gaps swallow their neighbours in the same mapping when these are not larger
 * than what the gap has grown to already: like a binary counter, so that a
 * page is registered again at most log2(n) times while a buffer touched piece
 * by piece grows together, and not n times.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache_impl.h"

/* --- storage of a plan --------------------------------------------------- */

/* Twice as much as before; `few` is the plan's own and not to be freed. */
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

static void plan_init(struct pn_plan *plan, struct pn_cache *cache,
		      unsigned flags, const struct iovec *buffers, unsigned n,
		      unsigned *first)
{
	*plan = (struct pn_plan){ .cache = cache,
				  .flags = flags,
				  .no_merge = !atomic_load(&cache->joins),
				  .buffers = buffers,
				  .nbuffers = n,
				  .first = first };
	plan->parts = plan->few_parts;
	plan->fresh = plan->few_fresh;
	plan->max_parts = plan->max_fresh = PN_PLAN_FEW;
	pn_list_init(&plan->link);
}

static void end_inherited(struct pn_plan *plan)
{
	while (plan->ninherited) {
		struct pn_range r = plan->inherited[--plan->ninherited];

		pn_monitor_unwatch(r.addr, r.len);
	}
}

static void plan_fini(struct pn_plan *plan)
{
	end_inherited(plan);
	if (plan->parts != plan->few_parts)
		free(plan->parts);
	if (plan->fresh != plan->few_fresh)
		free(plan->fresh);
}

static struct pn_region *fresh_region(const struct pn_plan *plan, unsigned i)
{
	return pn_container_of(plan->fresh[i], struct pn_region, mr);
}

/* --- planning, under the lock -------------------------------------------- */

/* Holds a region for this thread. -EXFULL: no slot is free; the caller grows
 * them without the lock and starts over. */
static int hold(struct pn_plan *plan, struct pn_region *region,
		struct pn_part *part)
{
	pn_slot *slot = pn_pins_free_slot(plan->pins);

	if (!slot)
		return -EXFULL;
	pn_asymmetric_store(slot, region);
	part->region = region;
	part->slot = slot;
	return 0;
}

static int add_part(struct pn_plan *plan, struct pn_region *region,
		    uintptr_t addr, size_t len)
{
	struct pn_part *part;
	int ret;

	if (plan->nparts == plan->max_parts) {
		ret = grow(&plan->parts, &plan->max_parts, sizeof(*plan->parts),
			   plan->few_parts);
		if (ret)
			return ret;
	}
	part = &plan->parts[plan->nparts];
	ret = hold(plan, region, part);
	if (ret)
		return ret;
	part->addr = addr;
	part->len = len;
	plan->nparts++;
	return 0;
}

/* Gives up every hold; regions that were begun die, unregistered. */
static void undo_locked(struct pn_plan *plan) PN_REQUIRES(&plan->cache->lock)
{
	for (unsigned i = 0; i < plan->nparts; i++)
		atomic_store_explicit(plan->parts[i].slot, NULL,
				      memory_order_release);
	for (unsigned i = 0; i < plan->nfresh; i++) {
		plan->fresh[i]->lkey = 0;
		pn_region_die_locked(plan->cache, fresh_region(plan, i),
				     PN_BECAUSE_FAILED);
	}
	plan->nparts = plan->nfresh = 0;
	plan->merged = false;
}

/* Begins one region and makes it a part for the buffer's share of it. */
static int begin_region(struct pn_plan *plan, struct pn_range range,
			struct pn_range buffer, unsigned access)
	PN_REQUIRES(&plan->cache->lock)
{
	uintptr_t start = range.addr > buffer.addr ? range.addr : buffer.addr;
	uintptr_t end = range.addr + range.len;
	struct pn_region *region;
	int ret = 0;

	if (plan->nfresh == plan->max_fresh)
		ret = grow(&plan->fresh, &plan->max_fresh, sizeof(*plan->fresh),
			   plan->few_fresh);
	if (ret)
		return ret;
	if (!pn_budget_take(plan->cache->budget, range.len, 1))
		return -ENOBUFS;
	region = pn_region_alloc_locked(plan->cache);
	ret = region ? pn_region_begin_locked(plan->cache, region, range,
					      access, plan)
		     : -ENOMEM;
	if (ret) {
		if (region)
			pn_region_free_locked(plan->cache, region);
		pn_budget_give(plan->cache->budget, range.len, 1);
		return ret;
	}
	plan->fresh[plan->nfresh++] = &region->mr;
	plan->cache->own_bytes += range.len;
	plan->cache->own_regions++;
	if (end > buffer.addr + buffer.len)
		end = buffer.addr + buffer.len;
	return add_part(plan, region, start, end - start);
}

/* The neighbour at addr if gap may swallow it. */
static struct pn_region *mergeable(struct pn_plan *plan, uintptr_t addr,
				   struct pn_range gap)
	PN_REQUIRES(&plan->cache->lock)
{
	struct pn_cache *cache = plan->cache;
	uint32_t id = pn_index_get(&cache->index, addr);
	struct pn_region *region = &cache->regions[id];

	if (!id || atomic_load(&region->state) != PN_REGION_VALID ||
	    region->resident || region->mr.len > gap.len ||
	    region->held == cache->scan ||
	    !pn_access_fits(region, plan->flags) ||
	    region->mr.len + gap.len > cache->attr.max_region_bytes)
		return NULL;
	return region;
}

static struct pn_range joined(struct pn_range a, struct pn_range b)
{
	uintptr_t start = a.addr < b.addr ? a.addr : b.addr;

	return (struct pn_range){ start, a.len + b.len };
}

/* A neighbour's pages become the new region's: between the two they must not
 * go unwatched, so its watch ends only when the new one stands. */
static void inherit_watch(struct pn_plan *plan, struct pn_region *neighbour)
{
	if (neighbour->watch != PN_WATCH_ON)
		return;
	neighbour->watch = PN_WATCH_NONE;
	plan->inherited[plan->ninherited++] = pn_region_range(neighbour);
}

/* Whether one mapping holds all of it; the sink is told. */
static bool is_one_mapping(struct pn_cache *cache, struct pn_range range)
{
	const struct pn_cache_attr *attr = &cache->attr;
	bool one = attr->is_one_mapping
			   ? attr->is_one_mapping(attr->mapping_arg, range)
			   : pn_mapping_is_one(range);

	if (cache->sink)
		pn_tell(cache,
			(struct pn_event){ .kind = PN_EVENT_MAPPING,
					   .addr = range.addr,
					   .len = range.len,
					   .decision = one ? PN_DECIDED_YES
							   : PN_DECIDED_NO });
	return one;
}

/* The gap grown over its neighbours, which die. */
static struct pn_range swallow(struct pn_plan *plan, struct pn_range gap,
			       unsigned *access) PN_REQUIRES(&plan->cache->lock)
{
	if (plan->no_merge || plan->flags & PINION_PIN_BYPASS)
		return gap;
	pn_pins_scan_locked(plan->cache);
	for (;;) {
		struct pn_region *r = mergeable(plan, gap.addr - 1, gap);
		struct pn_range wider;

		if (!r)
			r = mergeable(plan, gap.addr + gap.len, gap);
		if (!r || plan->ninherited == PN_PLAN_INHERITED)
			return gap;
		wider = joined(gap, pn_region_range(r));
		if (!is_one_mapping(plan->cache, wider))
			return gap;
		*access |= r->mr.access;
		inherit_watch(plan, r);
		pn_region_die_locked(plan->cache, r, PN_BECAUSE_JOINED);
		plan->cache->stats->merges++;
		plan->merged = true;
		gap = wider;
	}
}

/* There is no room for the rest of a gap. What the plan has begun so far will
 * be undone, so it is needed again. */
static void note_need(struct pn_plan *plan, size_t rest)
{
	plan->need_bytes = rest;
	plan->need_regions = plan->nfresh + 1;
	for (unsigned i = 0; i < plan->nfresh; i++)
		plan->need_bytes += plan->fresh[i]->len;
}

/* Covers a gap with regions no longer than the limit; *next is where they
 * end, which may be beyond the gap. */
static int fill_gap(struct pn_plan *plan, struct pn_range gap,
		    struct pn_range buffer, unsigned access, uintptr_t *next)
	PN_REQUIRES(&plan->cache->lock)
{
	struct pn_cache *cache = plan->cache;
	size_t max = cache->attr.max_region_bytes;

	gap = swallow(plan, gap, &access);
	*next = gap.addr + gap.len;
	while (gap.len) {
		struct pn_range piece = gap;
		int ret;

		if (piece.len > max)
			piece.len = max;
		ret = begin_region(plan, piece, buffer, access);
		if (ret == -ENOBUFS)
			note_need(plan, gap.len);
		if (ret)
			return ret;
		gap.addr += piece.len;
		gap.len -= piece.len;
	}
	return 0;
}

/* What the region at addr means for the plan: a part (0 and *next set), a wait
 * (-EAGAIN), or nothing any more (-ENOENT: it had too little access; -EACCES:
 * so has this one, and it is not ours to give up). */
static int meet_region(struct pn_plan *plan, struct pn_region *region,
		       uintptr_t addr, uintptr_t end, uintptr_t *next)
	PN_REQUIRES(&plan->cache->lock)
{
	uint32_t state = atomic_load(&region->state);
	int ret;

	if (state == PN_REGION_PENDING && region->owner != plan) {
		ret = hold(plan, region, &plan->wait);
		return ret ? ret : -EAGAIN;
	}
	/* Its release may be known to the kernel alone yet. What this plan has
	 * begun itself is not watched before it is registered. */
	if (state == PN_REGION_VALID && plan->cache->probing &&
	    !region->resident && !pn_monitor_probe(addr)) {
		pn_region_die_locked(plan->cache, region, PN_BECAUSE_RELEASED);
		return -ENOENT;
	}
	if (!pn_access_fits(region, plan->flags)) {
		plan->cache->stats->misses_access++;
		if (region->resident)
			return -EACCES;
		plan->lacked = true;
		pn_region_die_locked(plan->cache, region, PN_BECAUSE_ACCESS);
		return -ENOENT;
	}
	*next = (uintptr_t)region->mr.addr + region->mr.len;
	if (*next > end)
		*next = end;
	return add_part(plan, region, addr, *next - addr);
}

/* What a new region should allow. A device that cannot pin read-only memory
 * pins for writing anyway: then a buffer that is sent now and received into
 * later needs no second registration. */
static unsigned wanted_access(const struct pn_plan *plan)
{
	unsigned access = plan->flags & PINION_ACCESS_ALL;

	if (!(plan->cache->device->caps & PN_CAP_READ_ONLY))
		access |= PINION_ACCESS_LOCAL_WRITE;
	return access;
}

/* Walks one buffer through the index. 0: planned; -EAGAIN: wait for
 * plan->wait; -EXFULL: more slots; -ENOBUFS: room for plan->need_bytes;
 * -EACCES: register it apart from what is there. */
static int plan_buffer(struct pn_plan *plan, struct pn_range buffer)
	PN_REQUIRES(&plan->cache->lock)
{
	struct pn_index *index = &plan->cache->index;
	unsigned access = wanted_access(plan);
	uintptr_t at = buffer.addr, end = buffer.addr + buffer.len;
	bool bypass = plan->flags & PINION_PIN_BYPASS;
	int ret = 0;

	while (at < end && !ret) {
		uint32_t id = bypass ? 0 : pn_index_get(index, at);
		struct pn_region *region = &plan->cache->regions[id];
		struct pn_range gap =
			pn_range_pages(at, end - at, PN_PAGE_BYTES);

		if (id) {
			ret = meet_region(plan, region, at, end, &at);
			if (ret != -ENOENT)
				continue;
			/* It is dead; its fields are as they were. */
			access |= region->mr.access & ~PINION_ACCESS_RELAXED;
			ret = 0;
			continue;
		}
		if (!bypass)
			gap.len = pn_index_next(index, gap) - gap.addr;
		ret = fill_gap(plan, gap, buffer, access, &at);
	}
	return ret;
}

/* --- waiting and room, without the lock ---------------------------------- */

/* Takes a plan that was begun and that nobody carries out yet out of the queue;
 * the caller runs it. */
static bool take_queued_locked(struct pn_cache *cache, struct pn_plan *plan)
	PN_REQUIRES(&cache->lock)
{
	pn_assert(plan->cache == cache);
	if (pn_list_empty(&plan->link))
		return false;
	pn_list_remove(&plan->link);
	atomic_store(&plan->status, PN_PLAN_RUNNING);
	return true;
}

/* The plan whose region is in our way, if it only waits to be carried out: we
 * do it, since without a worker nobody else may come. */
static struct pn_plan *take_over(struct pn_plan *plan)
{
	struct pn_cache *cache = plan->cache;
	struct pn_region *region = plan->wait.region;
	struct pn_plan *owner = NULL;

	pn_lock(&cache->lock);
	if (atomic_load(&region->state) == PN_REGION_PENDING &&
	    take_queued_locked(cache, region->owner))
		owner = region->owner;
	pn_unlock(&cache->lock);
	return owner;
}

/* Another thread registers what we need: wait for that region alone. */
static void await_region(struct pn_plan *plan)
{
	struct pn_part *wait = &plan->wait;
	struct pn_plan *owner = take_over(plan);

	if (owner)
		pn_plan_run(owner);
	while (atomic_load(&wait->region->state) == PN_REGION_PENDING)
		pn_device_block(plan->cache->device, &wait->region->state,
				PN_REGION_PENDING);
	pn_asymmetric_store(wait->slot, NULL);
	wait->region = NULL;
}

/* Even when some are free now: the plan wanted more than these. */
static int more_slots(struct pn_plan *plan)
{
	return pn_pins_grow(plan->pins) ? 0 : -ENOMEM;
}

static void count_refused(struct pn_cache *cache)
{
	pn_lock(&cache->lock);
	cache->stats->refused++;
	pn_unlock(&cache->lock);
}

/* Acts on what planning said; 0: plan again. */
static int overcome(struct pn_plan *plan, int why)
{
	struct pn_room_want want = { .bytes = plan->need_bytes,
				     .nregions = plan->need_regions };

	switch (why) {
	case -EAGAIN:
		await_region(plan);
		return 0;
	case -EXFULL:
		return more_slots(plan);
	case -EACCES:
		plan->flags |= PINION_PIN_BYPASS;
		return 0;
	case -ENOBUFS:
		/* Joining neighbours needs room for both at a time: what is
		 * needed without that is for the next plan to say. */
		if (!plan->no_merge) {
			plan->no_merge = true;
			return 0;
		}
		why = pn_room_make(plan->cache, &want);
		if (why)
			count_refused(plan->cache);
		return why;
	default:
		return why;
	}
}

/* --- registering and publishing ------------------------------------------ */

static void count_miss(struct pn_plan *plan) PN_REQUIRES(&plan->cache->lock)
{
	struct pinion_cache_stats *stats = plan->cache->stats;

	stats->misses++;
	plan->decision = PN_DECIDED_MISS;
	if (plan->flags & PINION_PIN_BYPASS) {
		stats->misses_bypass++;
		plan->reason = PN_BECAUSE_BYPASS;
	} else if (plan->nparts > plan->nfresh) {
		stats->misses_partial++;
		plan->reason = PN_BECAUSE_PARTIAL;
	} else {
		stats->misses_new++;
		plan->reason = PN_BECAUSE_NEW;
	}
	if (plan->lacked)
		plan->reason = PN_BECAUSE_ACCESS;
}

/* Has the monitor watch; what it cannot watch is not kept. */
static void watch_fresh(struct pn_plan *plan)
{
	for (unsigned i = 0; i < plan->nfresh; i++) {
		struct pn_region *region = fresh_region(plan, i);
		struct pn_range range = pn_region_range(region);

		if (!plan->cache->subscribed || plan->flags & PINION_PIN_BYPASS)
			continue;
		region->watch = pn_monitor_watch(range.addr, range.len)
					? PN_WATCH_REFUSED
					: PN_WATCH_ON;
	}
}

int pn_miss_register(struct pn_cache *cache, struct pn_mr *const *mrs,
		     unsigned n)
{
	struct pn_room_want want = { .by_device = true, .nregions = n };
	int ret;

	for (unsigned i = 0; i < n; i++)
		want.bytes += mrs[i]->len;
	do {
		ret = pn_device_register(cache->device, mrs, n);
	} while (ret == -ENOMEM && !pn_room_make(cache, &want));
	return ret == -ENOMEM ? -ENOBUFS : ret;
}

/* One region is registered: in the index for all, or for this plan alone. */
static void settle_region(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock)
{
	bool stale = region->flags & PN_REGION_STALE ||
		     pn_release_flying(cache, pn_region_range(region));
	bool kept = !stale && !(region->flags & PN_REGION_PRIVATE) &&
		    region->watch != PN_WATCH_REFUSED;

	cache->stats->registrations++;
	cache->stats->registered_bytes += region->mr.len;
	if (cache->sink)
		pn_tell_registered(cache, region,
				   kept ? PN_DECIDED_KEPT : PN_DECIDED_DROPPED,
				   PN_BECAUSE_NOTHING);
	if (!kept)
		pn_region_die_locked(cache, region,
				     stale ? PN_BECAUSE_RELEASED
					   : PN_BECAUSE_BYPASS);
	else
		pn_region_publish_locked(cache, region);
}

static void wake_waiters(struct pn_plan *plan, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		pn_device_unblock(plan->cache->device,
				  &fresh_region(plan, i)->state);
}

/* Registers what a plan has begun and publishes it, or undoes the plan. */
static int carry_out(struct pn_plan *plan)
{
	unsigned nfresh = plan->nfresh;
	int ret;

	if (plan->cache->subscribed && !pn_monitor_check())
		pn_cache_heed_monitor(plan->cache);
	watch_fresh(plan);
	end_inherited(plan);
	ret = pn_miss_register(plan->cache, plan->fresh, plan->nfresh);
	pn_lock(&plan->cache->lock);
	pn_release_drain_locked(plan->cache);
	if (ret) {
		undo_locked(plan);
	} else {
		count_miss(plan);
		for (unsigned i = 0; i < nfresh; i++)
			settle_region(plan->cache, fresh_region(plan, i));
	}
	pn_unlock(&plan->cache->lock);
	wake_waiters(plan, nfresh);
	pn_worker_ensure(plan->cache);
	pn_worker_tell(plan->cache);
	return ret;
}

/* The cached parts of a plan were used: so many hits when that is all of it. */
static void count_parts(struct pn_plan *plan) PN_REQUIRES(&plan->cache->lock)
{
	struct pn_cache *cache = plan->cache;

	for (unsigned i = 0; i < plan->nparts; i++) {
		struct pn_region *region = plan->parts[i].region;

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
	if (plan->nparts > plan->nbuffers)
		plan->reason = PN_BECAUSE_PARTS;
	if (plan->waited)
		plan->reason = PN_BECAUSE_WAITED;
}

/* One attempt to plan all buffers; leaves nothing behind when it fails. */
static int try_plan(struct pn_plan *plan)
{
	int ret = 0;

	/* Another cache may have found out. */
	if (plan->cache->subscribed && !plan->cache->probing &&
	    pn_monitor_needs_probe())
		pn_cache_heed_monitor(plan->cache);
	pn_release_settle(plan->cache);
	pn_cache_look(plan->cache);
	pn_lock(&plan->cache->lock);
	pn_release_drain_locked(plan->cache);
	pn_pins_drain_locked(plan->cache);
	if (plan->cache->sink)
		pn_tell_others_locked(plan->cache);
	for (unsigned i = 0; i < plan->nbuffers && !ret; i++) {
		const struct iovec *b = &plan->buffers[i];

		plan->first[i] = plan->nparts;
		ret = plan_buffer(plan,
				  (struct pn_range){ (uintptr_t)b->iov_base,
						     b->iov_len });
	}
	if (ret)
		undo_locked(plan);
	else
		count_parts(plan);
	pn_unlock(&plan->cache->lock);
	plan->planned = !ret;
	return ret;
}

/* Plans again and again until nothing stands in the way. */
static int make_plan(struct pn_plan *plan)
{
	plan->pins = pn_pins_self(plan->cache);
	if (!plan->pins)
		return -ENOMEM;
	for (;;) {
		int ret = try_plan(plan);

		if (!ret)
			return 0;
		plan->waited |= ret == -EAGAIN;
		ret = overcome(plan, ret);
		if (ret)
			return ret;
	}
}

/* Does all that is left of a plan. A joined range that could not be registered
 * is tried again without joining: neighbours may be mapped differently. */
static int complete(struct pn_plan *plan)
{
	int ret = plan->planned ? 0 : make_plan(plan);
	bool merged = plan->merged;

	if (!ret && plan->nfresh)
		ret = carry_out(plan);
	if (ret != -EFAULT || !merged)
		return ret;
	plan->no_merge = true;
	ret = make_plan(plan);
	return ret || !plan->nfresh ? ret : carry_out(plan);
}

void pn_plan_run(struct pn_plan *plan)
{
	struct pn_device *device = plan->cache->device;

	plan->result = complete(plan);
	/* Whoever waits may free the plan from here on; its address is all
	 * that waking needs. */
	atomic_store(&plan->status, PN_PLAN_DONE);
	pn_device_unblock(device, &plan->status);
}

/* --- from plan to pin ---------------------------------------------------- */

static int fill_pin(struct pinion_pin *pin, const struct iovec *buffer,
		    const struct pn_part *parts, unsigned n)
{
	struct pn_parts *several;

	*pin = (struct pinion_pin){ .addr = buffer->iov_base,
				    .len = buffer->iov_len,
				    .nparts = n };
	if (n == 1) {
		pin->local_key = parts->region->mr.lkey;
		pin->remote_key = parts->region->mr.rkey;
		pin->internal[0] = (void *)parts->slot;
		pin->internal[1] = parts->region;
		return 0;
	}
	several = malloc(sizeof(*several) + n * sizeof(*parts));
	if (!several)
		return -ENOMEM;
	several->n = n;
	memcpy(several->part, parts, n * sizeof(*parts));
	pin->internal[0] = several;
	return 0;
}

static void release_parts(struct pn_cache *cache, const struct pn_part *parts,
			  unsigned n)
{
	bool dying = false;

	for (unsigned i = 0; i < n; i++) {
		pn_asymmetric_store(parts[i].slot, NULL);
		dying |= pn_asymmetric_load(&parts[i].region->state) ==
			 PN_REGION_DYING;
	}
	if (dying)
		pn_worker_ring(cache);
}

/* Turns a finished plan into pins; without memory for that, into nothing. */
static int finish(struct pn_plan *plan, struct pinion_pin *pins)
{
	unsigned i, n = plan->nbuffers;

	for (i = 0; i < n; i++) {
		unsigned first = plan->first[i];
		unsigned end = i + 1 < n ? plan->first[i + 1] : plan->nparts;

		if (fill_pin(&pins[i], &plan->buffers[i], &plan->parts[first],
			     end - first))
			break;
	}
	if (i == n)
		return 0;
	while (i--)
		if (pins[i].nparts > 1)
			free(pins[i].internal[0]);
	release_parts(plan->cache, plan->parts, plan->nparts);
	return -ENOMEM;
}

static bool arguments_ok(const struct iovec *buffers, unsigned n,
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

/* What became of a plan, for the sink. */
static void tell_plan(const struct pn_plan *plan, const struct pinion_pin *pins,
		      unsigned flags, int ret)
{
	struct pn_outcome outcome = { .flags = plan->flags | flags,
				      .decision = plan->decision,
				      .reason = plan->reason,
				      .ret = ret };

	pn_tell_pins(plan->cache, plan->buffers, plan->nbuffers, pins,
		     &outcome);
}

static int pin_buffers(struct pn_cache *cache, const struct iovec *buffers,
		       unsigned n, unsigned flags, unsigned *first,
		       struct pinion_pin *pins)
{
	struct pn_plan plan;
	int ret;

	if (cache->foreign)
		return -EPERM;
	if (!arguments_ok(buffers, n, flags))
		return -EINVAL;
	plan_init(&plan, cache, flags, buffers, n, first);
	ret = complete(&plan);
	if (!ret)
		ret = finish(&plan, pins);
	if (cache->sink)
		tell_plan(&plan, pins, 0, ret);
	plan_fini(&plan);
	pn_worker_tell(cache);
	PN_CACHE_CHECK(cache);
	return ret;
}

/* Whatever is not a plain hit comes here: also hits that need several parts or
 * that wait behind notices. */
int pn_miss_pin(struct pn_cache *cache, void *addr, size_t len, unsigned flags,
		struct pinion_pin *pin)
{
	struct iovec buffer = { addr, len };
	unsigned first;

	if (pn_resident_pin(cache, addr, len, flags, pin))
		return 0;
	return pin_buffers(cache, &buffer, 1, flags, &first, pin);
}

int pn_cache_pin_list(struct pn_cache *cache, const struct iovec *buffers,
		      unsigned n, unsigned flags, struct pinion_pin *pins)
{
	unsigned *first = malloc((n + 1) * sizeof(*first));
	int ret;

	if (!first)
		return -ENOMEM;
	ret = pin_buffers(cache, buffers, n, flags, first, pins);
	free(first);
	return ret;
}

void pn_miss_unpin(struct pn_cache *cache, struct pinion_pin *pin)
{
	struct pn_parts *several = pin->internal[0];

	/* 0: unpinned twice, or never pinned. */
	pn_debug_assert(pin->nparts);
	if (!pin->nparts)
		return;
	release_parts(cache, several->part, several->n);
	free(several);
	pin->nparts = 0;
	PN_CACHE_CHECK(cache);
}

/* --- pins that are begun now and finished later -------------------------- */

/* Holds the parts that are there for the user, whatever becomes of the plan.
 * Those for which there is no slot are there when all are. */
static int promise(struct pn_plan *plan)
{
	plan->promised = calloc(plan->nparts, sizeof(*plan->promised));
	if (plan->nparts && !plan->promised)
		return -ENOMEM;
	for (unsigned i = 0; i < plan->nparts; i++) {
		struct pn_part *part = &plan->parts[i];

		if (atomic_load(&part->region->state) == PN_REGION_PENDING)
			continue;
		plan->promised[i] = *part;
		if (hold(plan, part->region, &plan->promised[i]))
			plan->promised[i].region = NULL;
	}
	plan->npromised = plan->nparts;
	return 0;
}

static void abandon(struct pn_plan *plan)
{
	unsigned nfresh = plan->nfresh;

	pn_lock(&plan->cache->lock);
	undo_locked(plan);
	pn_unlock(&plan->cache->lock);
	wake_waiters(plan, nfresh);
}

static void end_promise(struct pn_plan *plan)
{
	for (unsigned i = 0; i < plan->npromised; i++)
		if (plan->promised[i].region)
			release_parts(plan->cache, &plan->promised[i], 1);
	free(plan->promised);
}

/* Hands a plan to the worker; the pin stands for it meanwhile. */
static int enqueue(struct pn_plan *plan, struct pinion_pin *pin)
{
	struct pn_cache *cache = plan->cache;

	*pin = (struct pinion_pin){ .addr = plan->buffer.iov_base,
				    .len = plan->buffer.iov_len,
				    .nparts = plan->nparts,
				    .reserved = 1,
				    .internal = { plan } };
	plan->decision = PN_DECIDED_LATER;
	if (cache->sink)
		tell_plan(plan, pin, PN_EVENT_STARTED, -EINPROGRESS);
	pn_lock(&cache->lock);
	pn_list_append(&cache->queue, &plan->link);
	pn_unlock(&cache->lock);
	pn_worker_ring(cache);
	return -EINPROGRESS;
}

static bool only_takes_time(int ret)
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

	if (!arguments_ok(&buffer, 1, flags))
		return -EINVAL;
	if (pn_resident_pin(cache, addr, len, flags, pin))
		return 0;
	plan = malloc(sizeof(*plan));
	if (!plan)
		return -ENOMEM;
	plan_init(plan, cache, flags, &plan->buffer, 1, &plan->first_of_one);
	plan->buffer = buffer;
	plan->no_merge = true; /* parts that are there stay usable */
	plan->pins = pn_pins_self(cache);
	ret = plan->pins ? try_plan(plan) : -ENOMEM;
	if (ret == -EAGAIN)
		pn_asymmetric_store(plan->wait.slot, NULL);
	if (only_takes_time(ret) || (!ret && plan->nfresh)) {
		ret = promise(plan);
		if (!ret)
			return enqueue(plan, pin);
		abandon(plan);
	} else if (!ret) {
		ret = finish(plan, pin);
	}
	if (cache->sink)
		tell_plan(plan, pin, PN_EVENT_STARTED, ret);
	plan_fini(plan);
	free(plan);
	return ret;
}

static void tell_ready(const struct pn_plan *plan, const struct pinion_pin *pin,
		       int ret)
{
	const struct pn_outcome outcome = { .flags = plan->flags,
					    .decision = plan->decision,
					    .reason = plan->reason,
					    .ret = ret };

	pn_tell_ready(plan->cache, pin, &outcome);
}

/* The plan is done: its outcome becomes the pin's. */
static int collect_pin(struct pinion_pin *pin)
{
	struct pn_plan *plan = pin->internal[0];
	int ret = plan->result;

	pin->nparts = pin->reserved = 0;
	if (!ret)
		ret = finish(plan, pin);
	if (plan->cache->sink)
		tell_ready(plan, pin, ret);
	end_promise(plan);
	plan_fini(plan);
	free(plan);
	return ret;
}

int pn_cache_pin_test(struct pn_cache *cache, struct pinion_pin *pin)
{
	struct pn_plan *plan = pin->internal[0];

	(void)cache;
	if (!pin->reserved)
		return pin->nparts ? 0 : -EINVAL;
	if (atomic_load(&plan->status) != PN_PLAN_DONE)
		return -EINPROGRESS;
	return collect_pin(pin);
}

int pn_cache_pin_wait(struct pn_cache *cache, struct pinion_pin *pin)
{
	struct pn_plan *plan = pin->internal[0];
	uint32_t status;
	bool mine;

	if (!pin->reserved)
		return pin->nparts ? 0 : -EINVAL;
	/* Nobody has begun it: do it here rather than wait. */
	pn_lock(&cache->lock);
	mine = take_queued_locked(cache, plan);
	pn_unlock(&cache->lock);
	if (mine)
		pn_plan_run(plan);
	while ((status = atomic_load(&plan->status)) != PN_PLAN_DONE)
		pn_device_block(cache->device, &plan->status, status);
	return collect_pin(pin);
}

static void part_of(const struct pn_part *part, struct pinion_pin_part *out)
{
	*out = (struct pinion_pin_part){ (void *)part->addr, part->len,
					 part->region->mr.lkey,
					 part->region->mr.rkey };
}

/* What was there from the beginning stays there; the rest is, when all is. */
static int part_of_plan(const struct pn_plan *plan, unsigned index,
			struct pinion_pin_part *out)
{
	const struct pn_part *part = &plan->promised[index];

	if (atomic_load(&plan->status) == PN_PLAN_DONE && !plan->result &&
	    index < plan->nparts)
		part = &plan->parts[index];
	if (!part->region)
		return -EAGAIN;
	part_of(part, out);
	return 0;
}

int pn_cache_pin_part(const struct pinion_pin *pin, unsigned index,
		      struct pinion_pin_part *out)
{
	const struct pn_parts *several = pin->internal[0];
	const struct pn_plan *plan = pin->internal[0];
	const struct pn_region *region = pin->internal[1];

	if (pin->reserved && !pin->nparts)
		return -EAGAIN; /* not even planned yet */
	if (index >= pin->nparts)
		return -EINVAL;
	if (pin->reserved)
		return part_of_plan(plan, index, out);
	if (pin->nparts > 1)
		part_of(&several->part[index], out);
	else
		*out = (struct pinion_pin_part){ pin->addr, pin->len,
						 region->mr.lkey,
						 region->mr.rkey };
	return 0;
}
