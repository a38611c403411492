/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A plan is a pin that did not hit, from the look-up to the finished pin.
 *
 * Life: pn_plan_init(); pn_plan_try() until nothing blocks it (miss.c); then
 * its new regions are registered and published (miss.c); pn_plan_finish() turns
 * it into pins (segments.c); pn_plan_fini(). An asynchronous pin keeps its plan
 * between these steps (async_pin.c).
 *
 * A plan belongs to the thread that made it. While it is in cache->queue it
 * belongs to nobody: the thread that takes it out of the queue carries it out.
 */
#ifndef PN_CACHE_PLAN_IMPL_H
#define PN_CACHE_PLAN_IMPL_H

#include "cache/cache_impl.h"
#include "cache/region_impl.h"

/* The part of a buffer that one region covers, and the slot that holds it. */
struct pn_segment {
	struct pn_region *region;
	pn_slot *slot;
	uintptr_t addr;
	size_t len;
};

/* pinion_pin.reserved */
enum pn_pin_kind {
	PN_PIN_PLAIN,
	PN_PIN_STARTED, /* asynchronous: internal[0] is the plan */
	PN_PIN_PRIVATE, /* some of its regions are PRIVATE */
};

/* The segments of a pin that has several; pinion_pin.internal[0]. */
struct pn_segments {
	unsigned n;
	struct pn_segment segment[];
};

enum pn_plan_status { PN_PLAN_QUEUED, PN_PLAN_RUNNING, PN_PLAN_DONE };

#define PN_PLAN_INHERITED 32	/* watches of merged neighbours, at most */
#define PN_PLAN_INLINE	  4	/* segments and regions of most plans */
#define PN_PLAN_MAX_BUSY  10000 /* yields to releases in flight */

struct pn_plan {
	/* What was asked for. */
	struct pn_cache *cache;
	struct pn_thread_slots *thread;
	unsigned flags;
	const struct iovec *buffers;
	unsigned nbuffers;
	unsigned *first; /* the index of each buffer's first segment */

	/* How to plan. */
	bool no_merge;
	bool one_use;	/* the monitor watches nothing: as with BYPASS */
	bool only_hit;	/* -ENOENT where a region would be registered */
	unsigned nbusy; /* -EBUSY so often */

	/* What an attempt has planned. */
	unsigned nsegments, max_segments;
	struct pn_segment *segments;
	unsigned nfresh, max_fresh;
	struct pn_mr **fresh; /* of PENDING regions that this plan registers */
	bool merged;	      /* a region replaces neighbours */
	bool overlaps_own;    /* the next region overlaps a fresh one */
	bool has_private;     /* some that were registered are PRIVATE */

	/* Why an attempt failed. */
	size_t need_bytes, need_regions; /* -ENOBUFS: the room that it needs */
	bool need_merged;		 /* -ENOBUFS: the plan had merged */
	struct pn_segment wait;		 /* -EAGAIN: another plan's region */

	/* Watches of regions that were merged, until the plan's region is
	 * watched. */
	struct pn_range inherited[PN_PLAN_INHERITED];
	unsigned ninherited;

	/* For counters and traces. */
	bool waited;		  /* for another thread's registration */
	bool lacked_access;	  /* a cached region allowed too little */
	uint8_t decision, reason; /* cache/trace_event.h */

	/* Of an asynchronous pin. */
	_Atomic uint32_t status; /* enum pn_plan_status */
	bool planned;		 /* pn_plan_try() succeeded */
	int result;		 /* when DONE */
	struct iovec buffer;
	unsigned first_segment;
	struct pn_list link; /* in cache->queue */
	/* Segments that the user may use before the plan is done. They are held
	 * a second time, since the plan may have to be made again. A segment
	 * without a region is not available yet. */
	struct pn_segment *available;
	unsigned navailable;

	/* The first storage of segments and fresh. */
	struct pn_segment inline_segments[PN_PLAN_INLINE];
	struct pn_mr *inline_fresh[PN_PLAN_INLINE];
};

/* Whether the regions that the plan registers are for its own use alone. */
static inline bool pn_plan_is_private(const struct pn_plan *plan)
{
	return plan->flags & PINION_PIN_BYPASS || plan->one_use;
}

/* Whether the plan waits until no release is in flight, of whatever memory,
 * instead of taking a region for released: it could not register it again. */
static inline bool pn_plan_waits_for_releases(const struct pn_plan *plan)
{
	return plan->only_hit && plan->nbusy < PN_PLAN_MAX_BUSY;
}

static inline struct pn_region *pn_plan_region(const struct pn_plan *plan,
					       unsigned i)
{
	return pn_container_of(plan->fresh[i], struct pn_region, mr);
}

/* --- plan.c --------------------------------------------------------------- */

/* What to pin. Both arrays live as long as the plan. */
struct pn_plan_buffers {
	const struct iovec *iov;
	unsigned n;
	unsigned *first; /* out: the number of each buffer's first segment */
};

void pn_plan_init(struct pn_plan *plan, struct pn_cache *cache, unsigned flags,
		  const struct pn_plan_buffers *buffers);
void pn_plan_fini(struct pn_plan *plan);

/* One attempt to plan all buffers; a failed one leaves nothing behind.
 * -EAGAIN: wait for plan->wait; -EXFULL: add slots; -ENOBUFS: make room for
 * plan->need_bytes and need_regions; -EACCES: register apart from the cache;
 * with only_hit -ENOENT: not all is registered; -EBUSY: a release is in flight,
 * perhaps of other memory. */
int pn_plan_try(struct pn_plan *plan) PN_EXCLUDES(&plan->cache->lock);

/* Clears the plan's slots; its fresh regions die. */
void pn_plan_undo_locked(struct pn_plan *plan) PN_REQUIRES(&plan->cache->lock);

/* Holds a region in a slot of the plan's thread. -EXFULL: no slot is free; the
 * caller adds slots without the lock and plans again. */
int pn_plan_hold(struct pn_plan *plan, struct pn_region *region,
		 struct pn_segment *segment);

/* Holds a region and adds it as a segment of the buffer. */
int pn_plan_add_segment(struct pn_plan *plan, struct pn_region *region,
			uintptr_t addr, size_t len);

/* Begins a region and adds the buffer's share of it as a segment. -ENOBUFS: no
 * room. */
int pn_plan_add_region(struct pn_plan *plan, struct pn_range range,
		       struct pn_range buffer, unsigned access)
	PN_REQUIRES(&plan->cache->lock);

/* There is no room for `rest` bytes in nregions. The plan's fresh regions will
 * be undone, so their bytes are needed again. */
void pn_plan_need(struct pn_plan *plan, size_t rest, size_t nregions);

/* What a new region should allow. */
unsigned pn_plan_access(const struct pn_plan *plan);

/* Returns the gap extended by the neighbours that it may merge; these die. */
struct pn_range pn_plan_merge(struct pn_plan *plan, struct pn_range gap,
			      unsigned *access) PN_REQUIRES(&plan->cache->lock);

/* Whether one mapping has all of range; the answer is traced. */
bool pn_plan_one_mapping(struct pn_plan *plan, struct pn_range range);

/* Keeps the watch of a region that is being merged until the plan's own region
 * is watched. False: PN_PLAN_INHERITED are kept already. */
bool pn_plan_inherit(struct pn_plan *plan, struct pn_region *neighbour);

/* --- single_segment.c ----------------------------------------------------- */

/* Plans a buffer where a pin has one segment. Errors as pn_plan_try(), and
 * -EINVAL: longer than the device can register. */
int pn_plan_single_segment(struct pn_plan *plan, struct pn_range buffer)
	PN_REQUIRES(&plan->cache->lock);

/* --- miss.c --------------------------------------------------------------- */

/* Pins what is not a plain hit: misses, hits of several segments, and hits
 * while cache->slow_reasons is not 0. */
int pn_miss_pin(struct pn_cache *cache, void *addr, size_t len, unsigned flags,
		struct pinion_pin *pin);
/* pn_cache_pin_hit() without a listener. */
int pn_miss_pin_hit(struct pn_cache *cache, void *addr, size_t len,
		    unsigned flags, struct pinion_pin *pin);
bool pn_miss_arguments_ok(const struct iovec *buffers, unsigned n,
			  unsigned flags);

/* Does all that is left of a plan and wakes who waits for its status; that
 * thread may free the plan at once. */
void pn_plan_run(struct pn_plan *plan);

/* Wakes who waits for the first n fresh regions: they have a new state. */
void pn_plan_wake(struct pn_plan *plan, unsigned n);

/* --- segments.c ----------------------------------------------------------- */

/* Turns a plan that was carried out into pins. -ENOMEM: nothing is pinned. */
int pn_plan_finish(struct pn_plan *plan, struct pinion_pin *pins);

/* Records how the plan ended. */
void pn_plan_trace(const struct pn_plan *plan, const struct pinion_pin *pins,
		   unsigned flags, int ret);

/* Clears the slots; tells the worker if one of the regions is DYING. */
void pn_segments_put(struct pn_cache *cache, const struct pn_segment *segments,
		     unsigned n);

/* Ends a pin of several segments, or of PRIVATE regions: `now` as of
 * pn_reclaim_put_private(). */
void pn_segments_unpin(struct pn_cache *cache, struct pinion_pin *pin,
		       bool now);

/* --- async_pin.c ---------------------------------------------------------- */

/* Takes a plan out of the queue; the caller runs it. False: somebody else has
 * taken it. */
bool pn_plan_take_locked(struct pn_cache *cache, struct pn_plan *plan)
	PN_REQUIRES(&cache->lock);

#endif
