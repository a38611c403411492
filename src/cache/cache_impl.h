/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the cache share; see cache.h for the story. */
#ifndef PN_CACHE_IMPL_H
#define PN_CACHE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/asymmetric.h"
#include "base/index.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/process.h"
#include "base/stats_segment.h"
#include "base/thread.h"
#include "base/trace_sink.h"
#include "cache/cache.h"
#include "cache/policy/policy.h"
#include "cache/trace_event.h"
#include "monitor/monitor.h"

/* --- regions ------------------------------------------------------------- */

enum pn_region_state {
	PN_REGION_FREE,
	PN_REGION_PENDING,
	PN_REGION_VALID,
	PN_REGION_DYING,
};

enum pn_region_flag {
	PN_REGION_STALE = 1 << 0,   /* PENDING and released meanwhile */
	PN_REGION_PRIVATE = 1 << 1, /* not in the index, dies when unpinned */
	PN_REGION_EVICTED = 1 << 2, /* the policy has let go of it itself */
	PN_REGION_REVOKED = 1 << 3, /* DYING, and its remote key is refused */
	PN_REGION_LISTED = 1 << 4,  /* among the largest (stats_export.c) */
	PN_REGION_REGISTERED = 1 << 5, /* by the device, and to be ended */
	PN_REGION_PARTIAL =
		1 << 6, /* begins or ends inside a page (shared_pages.c) */
	PN_REGION_DEREG_FAILED = 1 << 7, /* DYING: could not be deregistered */
	PN_REGION_WHY = 8,		 /* DYING: from this bit on, why */
};

/* What the monitor does for a region; written by its plan before it is
 * published. */
enum pn_region_watch {
	PN_WATCH_NONE,	  /* nobody asked */
	PN_WATCH_ON,	  /* to be unwatched */
	PN_WATCH_REFUSED, /* it cannot: the region must not be kept */
};

struct pn_plan;

struct pn_region {
	/* First cache line: what a hit reads. */
	struct pn_mr mr;
	_Atomic uint32_t state;
	uint16_t flags;
	uint8_t watch;	       /* enum pn_region_watch */
	_Atomic bool resident; /* somebody else's (resident.c) */
	unsigned access_mask;  /* see pn_access_matches() */
	uint32_t id;	       /* its number, once it was used */
	/* Second: under cache->lock. */
	struct pn_policy_node node /* DYING: link is in cache->dying */
		PN_ALIGNED(PN_CACHELINE);
	uint64_t held; /* number of the last scan that found it in a slot */
	union {
		struct pn_plan *owner; /* PENDING: who registers it */
		uint64_t since_ns;     /* DYING */
		uint32_t next_free;    /* FREE */
	};
} PN_ALIGNED(PN_CACHELINE);

_Static_assert(sizeof(struct pn_region) == 2 * PN_CACHELINE,
	       "two lines, the first for hits");
_Static_assert(offsetof(struct pn_region, node) == PN_CACHELINE,
	       "two lines, the first for hits");

/* Regions live in one array of reserved address space and never move, so a
 * number names one and a stale pointer still points to a region. */
#define PN_CACHE_MAX_REGIONS ((uint32_t)1 << 23)

/* A page that a region covers in part (shared_pages.c): two for each region, 2
 * * id and the next. */
struct pn_edge {
	uint64_t page; /* its address */
	uint32_t next; /* with the same hash; 0: none */
};

#define PN_EDGE_HEADS_SHIFT 20

/* --- what a thread keeps for a cache ------------------------------------- */

typedef struct pn_region *_Atomic pn_slot;

#define PN_PINS_LOG 1024 /* entries; a power of two */

struct pn_slot_chunk {
	struct pn_slot_chunk *older;
	uint32_t nslots; /* a power of two */
	pn_slot slots[];
};

/* Born in the thread's first miss; when the thread ends it waits for another
 * one to take it over, since its slots may still be held. Only the owner
 * writes, except that any thread may clear a slot and, under cache->lock,
 * chunks and drained are the lock's. */
struct pn_pins {
	pn_slot *next;	/* slot to try first; one of those below */
	pn_slot *slots; /* of the newest chunk */
	uint32_t mask;
	_Atomic uint64_t log_at; /* accesses so far: hits, too */
	struct pn_region *_Atomic log[PN_PINS_LOG];
	uint64_t drained; /* of log_at */
	struct pn_slot_chunk *newest;
	struct pn_cache *cache;
	struct pn_list link; /* in cache->threads */
	bool orphan;
};

/* --- what the board shows (stats_export.c)
 * --------------------------------------- */

#define PN_LARGEST 32

struct pn_largest_row {
	uint64_t addr;
	uint64_t bytes; /* 0: nothing here */
	uint64_t site;
	uint32_t access;
	uint32_t id; /* the region's */
	char site_name[PN_THREAD_SITE_BYTES];
};

extern const struct pn_stats_kind pn_stats_kind_cache, pn_stats_kind_pins,
	pn_stats_kind_largest;

/* --- release notices ----------------------------------------------------- */

#define PN_NOTICE_RING		 1024
#define PN_MAX_INFLIGHT_RELEASES 256

struct pn_notice {
	_Atomic uint64_t filled; /* its number + 1, once it can be read */
	uintptr_t addr;
	size_t len;
};

/* A release between its BEFORE and its AFTER. */
struct pn_inflight_release {
	_Atomic uintptr_t thread; /* 0: free */
	_Atomic uintptr_t addr;
	_Atomic size_t len;
};

/* --- plans --------------------------------------------------------------- */

struct pn_segment {
	struct pn_region *region;
	pn_slot *slot;
	uintptr_t addr; /* the buffer's share of the region */
	size_t len;
};

enum pn_plan_status { PN_PLAN_QUEUED, PN_PLAN_RUNNING, PN_PLAN_DONE };

#define PN_PLAN_INHERITED 32 /* merges of one plan: more than log2 of any */

#define PN_PLAN_INLINE 4

struct pn_plan {
	struct pn_cache *cache;
	struct pn_pins *pins;
	unsigned flags;
	bool no_merge;
	bool unkept; /* the monitor watches nothing: for one use, as BYPASS */
	/* Watches of swallowed regions, kept until the new one stands. */
	struct pn_range inherited[PN_PLAN_INHERITED];
	unsigned ninherited;
	bool merged; /* at least one region swallowed a neighbour */
	bool waited; /* for another thread's registration */
	bool lacked; /* a cached region had too little access */
	bool apart;  /* the next region overlaps one of the plan's own */
	uint8_t decision, reason; /* cache/trace_event.h */
	unsigned nsegments, max_segments;
	struct pn_segment *parts;
	unsigned nfresh, max_fresh;
	struct pn_mr **fresh; /* PENDING regions of this plan */
	const struct iovec *buffers;
	unsigned nbuffers;
	unsigned *first; /* where each buffer's parts begin */
	/* When there was no room: how much would have got it further. */
	size_t need_bytes, need_regions;
	struct pn_segment wait; /* when another plan's region is in the way */
	/* Of a plan begun by pin_start: */
	_Atomic uint32_t status;
	bool planned; /* only carrying out is left */
	int result;
	/* What the user was told to be there: held apart, since the plan may
	 * have to be made again. No region: not there then. */
	struct pn_segment *promised;
	unsigned navailable;
	struct iovec buffer;
	unsigned first_of_one;
	struct pn_list link; /* in cache->queue */
	/* Where parts and fresh begin: most plans need no more. */
	struct pn_segment inline_segments[PN_PLAN_INLINE];
	struct pn_mr *inline_fresh[PN_PLAN_INLINE];
};

/* Parts of a pin that has several; pinion_pin.internal[0]. */
struct pn_segments {
	unsigned n;
	struct pn_segment part[];
};

/* --- the cache ----------------------------------------------------------- */

struct pn_cache {
	/* Read by every hit, written rarely. */
	struct pn_index index;
	struct pn_region *regions;
	int key;		       /* of base/thread.h */
	bool told;		       /* somebody records or listens */
	_Atomic uint32_t slow_reasons; /* notices not acted upon; one more when
					* hits are not possible at all */

	/* NULL: nobody records. Set when releases are told already. */
	struct pn_trace_sink *_Atomic sink;
	struct pn_pin_listener *listener; /* NULL: nobody listens */
	struct pn_device *device;
	struct pn_budget *budget;
	struct pn_list sharer; /* in budget->sharers, whose lock protects */
	unsigned nreclaimers;  /* who look for room here, from elsewhere */
	bool leaving;	       /* no more of them */
	struct pn_cache_attr attr;
	_Atomic bool always_slow; /* every pin takes the lock */
	_Atomic bool probing;	  /* and asks the monitor about what it found */
	uint32_t process;	  /* that made it (base/process.h) */
	_Atomic bool joins;	  /* new regions swallow their neighbours */
	_Atomic bool stepped;	  /* somebody calls pn_cache_step() when idle */
	bool subscribed;
	uint16_t source; /* our number among those who record */
	struct pn_subscriber subscriber;

	/* Written by release notices; no lock. */
	_Atomic uint64_t ring_head PN_ALIGNED(PN_CACHELINE);
	_Atomic unsigned exposed_releases; /* that pn_cache_revoke_released()
					    * has not seen
					    */
	_Atomic uint64_t ring_tail;	   /* advanced under lock */
	_Atomic unsigned ring_lost;	   /* notices that found no room */
	_Atomic uint32_t revoking;	   /* a thread refuses keys */
	_Atomic bool exposed_lost;	   /* one of them of exposed memory */
	_Atomic bool never_publish; /* lost track of releases under way */
	struct pn_notice ring[PN_NOTICE_RING];
	_Atomic unsigned ninflight; /* at least as many as are taken below */
	struct pn_inflight_release inflight[PN_MAX_INFLIGHT_RELEASES];

	/* Leaf lock: nothing else is taken under it. Protects what follows,
	 * down to `reaped`. */
	struct pn_mutex lock PN_ALIGNED(PN_CACHELINE);
	struct pn_policy *policy; /* called under the lock */
	struct pn_list threads;
	struct pn_list dying;
	struct pn_list refused;	  /* DYING, to be tried again (reclaim.c) */
	struct pn_list queue;	  /* plans begun */
	struct pn_list exposures; /* exposed_memory.h */
	struct pn_index exposed;  /* how many cover a page; read by notices */
	struct pn_edge *edges;	  /* shared_pages.c; NULL: no page is shared */
	uint32_t *edge_heads;
	struct pn_list tasks;
	uint64_t scan;		   /* number of the last slot scan */
	uint32_t free_region;	   /* 0: none */
	uint32_t nregions;	   /* ever used */
	_Atomic unsigned nthreads; /* that have pinned and live */
	unsigned nendpoints;	   /* who pin for messages */
	unsigned ndying;
	_Atomic unsigned nheld_dying; /* of them, found held by the last reap */
	unsigned nurgent;	      /* of the dying: not to wait */
	unsigned nfailed;	      /* in the list of that name */
	size_t failed_bytes;	      /* likewise, of the dying_bytes */
	uint64_t retry_ns;	      /* when to try them again */
	uint64_t retry_after_ns;      /* what is waited between two attempts */
	unsigned nreaping;	      /* batches under way */
	size_t own_bytes, own_regions;	     /* of the budget, by the cache */
	size_t others_bytes, others_regions; /* as last told to the sink */
	struct pinion_cache_stats *stats;    /* on the board */
	struct pn_largest_row *largest;	     /* likewise; NULL: not shown */
	size_t smallest_bytes;		     /* of those */
	_Atomic uint64_t now_ns;    /* at the last pn_cache_refresh() */
	_Atomic uint32_t reaped;    /* counts batches; to wait for one */
	_Atomic uint32_t task_runs; /* likewise tasks */
	_Atomic uint32_t asking;    /* rounds of asking tasks for room */

	struct {
		pthread_t thread;
		_Atomic bool running;
		_Atomic uint32_t doorbell; /* rung when there is new work */
		_Atomic bool idle;	   /* notices ring it, too */
		_Atomic bool wanted;	   /* ring it when the lock is free */
		_Atomic bool stop;
	} worker;
};

/* Whether it is the parent's, in a forked child. A hit need not ask: the kernel
 * has wiped what it looks for first (base/thread.h). */
static inline bool pn_cache_foreign(const struct pn_cache *cache)
{
	return !pn_process_is_current(cache->process);
}

static inline uint32_t pn_region_id(const struct pn_cache *cache,
				    const struct pn_region *region)
{
	return (uint32_t)(region - cache->regions);
}

static inline struct pn_range pn_region_range(const struct pn_region *region)
{
	return (struct pn_range){ (uintptr_t)region->mr.addr, region->mr.len };
}

static inline struct pn_range pn_region_pages(const struct pn_region *region)
{
	return pn_range_pages((uintptr_t)region->mr.addr, region->mr.len,
			      PN_PAGE_BYTES);
}

/* What it has of the budget. */
static inline size_t pn_region_bytes(const struct pn_region *region)
{
	return pn_region_pages(region).len;
}

/* Whether each pin has one region, and one with remote access its own. */
static inline bool pn_cache_one_segment(const struct pn_cache *cache)
{
	return cache->device->caps & PN_CAP_ONE_SEGMENT;
}

/* Whether it is deregistered as soon as nobody holds it: it was for one use,
 * its release would not be seen, or its owner has taken it away. */
static inline bool pn_region_is_urgent(const struct pn_region *region)
{
	return region->flags & PN_REGION_PRIVATE || region->resident ||
	       region->watch == PN_WATCH_REFUSED;
}

static inline struct pn_region *pn_region_of_node(const struct pn_list *link)
{
	return pn_container_of(link, struct pn_region, node.link);
}

/* Whether a region serves a pin that asks for `flags`. A pin that asks for
 * strict order cannot take a relaxed region; the reverse is fine.
 * PINION_PIN_BYPASS is in no region's access and so never fits. */
static inline bool pn_access_matches(const struct pn_region *region,
				     unsigned flags)
{
	return !((flags ^ region->mr.access) & region->access_mask);
}

/* Where a difference matters: bits that the region lacks, and RELAXED if it
 * has that. */
static inline unsigned pn_access_mask(unsigned access)
{
	return ~(access ^ (unsigned)PINION_ACCESS_RELAXED);
}

/* Whether what a plan registers is for its own use alone. */
static inline bool pn_plan_is_private(const struct pn_plan *plan)
{
	return plan->flags & PINION_PIN_BYPASS || plan->unkept;
}

/* cache.c: asks the device what must be known under the lock, where it may not
 * be asked: the time, and what the kernel is late with. */
void pn_cache_refresh(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);
/* Acts on what the monitor can do now. */
void pn_cache_update_monitor(struct pn_cache *cache);

/* region.c: the states. */
/* The first region in the index with bytes in *range, which becomes what is
 * behind it; NULL: none. Who wants all regions of some pages passes the pages.
 */
struct pn_region *pn_region_next_locked(struct pn_cache *cache,
					struct pn_range *range)
	PN_REQUIRES(&cache->lock);
struct pn_region *pn_region_alloc_locked(struct pn_cache *cache)
	PN_REQUIRES(&cache->lock);
void pn_region_free_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);
/* PENDING and in the index; -ENOMEM. Beyond the index's reach it becomes
 * private. */
int pn_region_begin_locked(struct pn_cache *cache, struct pn_region *region,
			   struct pn_range range, unsigned access,
			   struct pn_plan *owner) PN_REQUIRES(&cache->lock);
/* What every region begins with. */
void pn_region_init(struct pn_region *region, struct pn_range range,
		    unsigned access);
/* PENDING -> VALID. */
void pn_region_publish_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);
/* PENDING or VALID -> DYING, out of the index and of the policy. A resident
 * stays: it goes when its owner says so. */
void pn_region_die_locked(struct pn_cache *cache, struct pn_region *region,
			  enum pn_trace_event_reason why)
	PN_REQUIRES(&cache->lock);
void pn_region_leave_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);
/* Into the index and out of it; the pages are reserved. A page that it shares
 * goes on with another of its regions. */
void pn_region_index_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);
void pn_region_unindex_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);
/* Hits at addr, which the region covers, find it, though others share the page.
 */
void pn_region_prefer_locked(struct pn_cache *cache, struct pn_region *region,
			     uintptr_t addr) PN_REQUIRES(&cache->lock);

/* shared_pages.c: regions that cover a page in part. */
/* Which pages these are; how many. */
unsigned pn_shared_pages(const struct pn_region *region, uintptr_t pages[2]);
void pn_shared_add_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);
void pn_shared_remove_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);
/* One by one, those that are listed for a page; *edge begins as 0. */
struct pn_region *pn_shared_next_locked(struct pn_cache *cache, uintptr_t page,
					uint32_t *edge)
	PN_REQUIRES(&cache->lock);

/* stats_export.c: a region becomes VALID, and is no longer. */
void pn_largest_add_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);
void pn_largest_remove_locked(struct pn_cache *cache, struct pn_region *region)
	PN_REQUIRES(&cache->lock);

/* pins.c: slots and logs. */
struct pn_pins *pn_pins_self(struct pn_cache *cache); /* NULL: no memory */
void pn_pins_ended(void *value);
/* A free slot of the calling thread, or NULL: no memory. */
pn_slot *pn_pins_slot(struct pn_pins *pins) PN_EXCLUDES(&pins->cache->lock);
/* The same when cache->lock is held: does not grow; NULL: none is free. */
pn_slot *pn_pins_free_slot(struct pn_pins *pins);
/* Adds more slots than there were; false: no memory. */
bool pn_pins_grow(struct pn_pins *pins) PN_EXCLUDES(&pins->cache->lock);
/* Sets region->held of everything in a slot to a new cache->scan. */
void pn_pins_scan_locked(struct pn_cache *cache) PN_REQUIRES(&cache->lock);
/* Tells the policy what was accessed. */
void pn_pins_drain_locked(struct pn_cache *cache) PN_REQUIRES(&cache->lock);
/* The calling thread's log is full. */
void pn_pins_log_full(struct pn_cache *cache);
uint64_t pn_pins_hits_locked(struct pn_cache *cache) PN_REQUIRES(&cache->lock);
/* The cache is being closed: nobody holds anything any more. How many did. */
unsigned pn_pins_clear_all(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);
void pn_pins_free_all(struct pn_cache *cache);

/* invalidate.c */
void pn_invalidate_notice(void *arg, uintptr_t addr, size_t len,
			  enum pn_release_phase phase);
/* Whether there are notices to be drained. */
bool pn_invalidate_pending(struct pn_cache *cache);
/* Waits for notices that are being told just now by another thread than the one
 * that released: with userfaultfd, munmap() returns before them. */
void pn_invalidate_settle(struct pn_cache *cache);
void pn_invalidate_drain_locked(struct pn_cache *cache)
	PN_REQUIRES(&cache->lock);
/* Takes what is cached in range out of the index, residents excepted. */
void pn_invalidate_range_locked(struct pn_cache *cache, struct pn_range range)
	PN_REQUIRES(&cache->lock);
/* Whether a release that overlaps range is under way. */
bool pn_invalidate_in_flight(struct pn_cache *cache, struct pn_range range);

/* exposed_memory.c: memory is going that may be exposed. */
void pn_exposed_memory_released_locked(struct pn_cache *cache,
				       struct pn_range range)
	PN_REQUIRES(&cache->lock);

/* mapping.c: whether one mapping holds all of range; no when in doubt. */
bool pn_mapping_is_one(struct pn_range range);

/* reclaim.c */
/* Moves victims to the dying until so much would be free; how many went. */
unsigned pn_reclaim_evict_locked(struct pn_cache *cache, size_t bytes,
				 size_t nregions,
				 enum pn_trace_event_reason why)
	PN_REQUIRES(&cache->lock);
/* Deregisters the dying that nobody holds; how many. */
unsigned pn_reclaim_reap(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);
/* All of them, also what others have begun to deregister. */
void pn_reclaim_reap_all(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);
/* Waits, without the lock, until no batch is under way: one has all the dying
 * with it, the held ones too. */
void pn_reclaim_wait_batches_locked(struct pn_cache *cache)
	PN_REQUIRES(&cache->lock);
/* Takes a resident away where deregistering can fail. False: it failed, and the
 * resident is there as before. */
bool pn_reclaim_remove_resident(struct pn_cache *cache,
				struct pn_region *region)
	PN_EXCLUDES(&cache->lock);
/* Its owner goes: it is tried again with what else was refused. */
void pn_reclaim_abandon_resident(struct pn_cache *cache,
				 struct pn_region *region)
	PN_EXCLUDES(&cache->lock);
/* When to try again what could not be deregistered; PN_FOREVER: nothing. */
uint64_t pn_reclaim_retry_ns(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);
/* The cache is being closed: says what could not be deregistered. */
void pn_reclaim_log_failed(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);
/* From open to close others of the process may come and look for room in it;
 * leaving waits for those who do. */
void pn_reclaim_join(struct pn_cache *cache);
void pn_reclaim_leave(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);
struct pn_reclaim_request {
	size_t bytes, nregions;
	bool by_device;		  /* the device refused, not the budget */
	struct pn_budget *budget; /* which lacks it; pn_reclaim_step() says */
};
/* Takes one step towards room: deregisters the dying, or evicts, or waits for
 * another thread that does. 0: look again; -ENOBUFS: nothing can be done. */
int pn_reclaim_step(struct pn_cache *cache,
		    const struct pn_reclaim_request *asked)
	PN_EXCLUDES(&cache->lock);
/* Whether the dying that were not refused are as many as may be. */
bool pn_reclaim_batch_full_locked(struct pn_cache *cache)
	PN_REQUIRES(&cache->lock);
/* Whether the dying are enough, or old enough, for a batch. */
bool pn_reclaim_batch_due_locked(struct pn_cache *cache, uint64_t *when_ns)
	PN_REQUIRES(&cache->lock);

/* plan.c: a plan is made, tried until nothing stands in the way (miss.c),
 * carried out, finished into pins (segments.c), and let go of. */
/* Where each buffer's parts begin is written to first. */
void pn_plan_init(struct pn_plan *plan, struct pn_cache *cache, unsigned flags,
		  const struct iovec *buffers, unsigned n, unsigned *first);
void pn_plan_fini(struct pn_plan *plan);
static inline struct pn_region *pn_plan_region(const struct pn_plan *plan,
					       unsigned i)
{
	return pn_container_of(plan->fresh[i], struct pn_region, mr);
}
/* One attempt to plan all buffers; leaves nothing behind when it fails.
 * -EAGAIN: wait for plan->wait; -EXFULL: more slots; -ENOBUFS: room for
 * plan->need_bytes; -EACCES: register it apart from what is there. */
int pn_plan_try(struct pn_plan *plan) PN_EXCLUDES(&plan->cache->lock);
/* Gives up every hold; regions that were begun die, unregistered. */
void pn_plan_undo_locked(struct pn_plan *plan) PN_REQUIRES(&plan->cache->lock);
/* Holds a region for this thread. -EXFULL: no slot is free; the caller grows
 * them without the lock and starts over. */
int pn_plan_hold(struct pn_plan *plan, struct pn_region *region,
		 struct pn_segment *part);

/* Holds a region for the plan, as the part of a buffer. */
int pn_plan_add(struct pn_plan *plan, struct pn_region *region, uintptr_t addr,
		size_t len);
/* Begins a region and makes it a part for the buffer's share of it. -ENOBUFS:
 * no room. */
int pn_plan_begin(struct pn_plan *plan, struct pn_range range,
		  struct pn_range buffer, unsigned access)
	PN_REQUIRES(&plan->cache->lock);
/* There is no room for `rest`: what the plan has begun will be undone, so it is
 * needed again. */
void pn_plan_need(struct pn_plan *plan, size_t rest);
/* What a new region should allow. */
unsigned pn_plan_access(const struct pn_plan *plan);
/* The range grown over its neighbours, which die. */
struct pn_range pn_plan_merge(struct pn_plan *plan, struct pn_range gap,
			      unsigned *access) PN_REQUIRES(&plan->cache->lock);
/* Whether one mapping holds all of it; the sink is told. */
bool pn_plan_one_mapping(struct pn_plan *plan, struct pn_range range);
/* The region's pages become the plan's: its watch ends when the new one
 * stands. False: there is no room for one more. */
bool pn_plan_inherit(struct pn_plan *plan, struct pn_region *region);
/* single_segment.c: plans a buffer where a pin has one segment. Errors as
 * pn_plan_try(), and -EINVAL: longer than the device can register. */
int pn_plan_single_segment(struct pn_plan *plan, struct pn_range buffer)
	PN_REQUIRES(&plan->cache->lock);

/* segments.c */
/* Turns a plan that was carried out into pins; -ENOMEM: into nothing. */
int pn_plan_finish(struct pn_plan *plan, struct pinion_pin *pins);
/* What became of a plan, for the sink. */
void pn_plan_trace(const struct pn_plan *plan, const struct pinion_pin *pins,
		   unsigned flags, int ret);
/* Lets go of them; what is dying and nobody else holds, the worker reaps. */
void pn_segments_put(struct pn_cache *cache, const struct pn_segment *parts,
		     unsigned n);
/* The end of a pin of several parts. */
void pn_miss_unpin(struct pn_cache *cache, struct pinion_pin *pin);

/* async_pin.c: takes a plan that was begun and that nobody carries out yet out
 * of the queue; the caller runs it. */
bool pn_plan_take_locked(struct pn_cache *cache, struct pn_plan *plan)
	PN_REQUIRES(&cache->lock);

/* miss.c */
/* Whatever is not a plain hit: also hits that need several parts or that wait
 * behind notices. */
int pn_miss_pin(struct pn_cache *cache, void *addr, size_t len, unsigned flags,
		struct pinion_pin *pin);
bool pn_miss_arguments_ok(const struct iovec *buffers, unsigned n,
			  unsigned flags);
/* Does all that is left of a plan; whoever waits for its status is woken, and
 * may free it. */
void pn_plan_run(struct pn_plan *plan);
/* The plan's regions have a new state: of those it had begun, n. */
void pn_plan_wake(struct pn_plan *plan, unsigned n);
/* Registers all at once, giving up what it can when the device has no room.
 * -ENOBUFS: it has none even so. */
int pn_miss_register(struct pn_cache *cache, struct pn_mr *const *mrs,
		     unsigned n);

/* hit.c: a pin of which the listener is not told. */
int pn_cache_pin_no_listener(struct pn_cache *cache, void *addr, size_t len,
			     unsigned flags, struct pinion_pin *pin);

/* resident.c: pins a buffer that lies in a resident region, whatever else the
 * cache is waiting for. False: it does not, or the region grants too little. */
bool pn_resident_pin(struct pn_cache *cache, void *addr, size_t len,
		     unsigned flags, struct pinion_pin *pin);

/* trace_events.c: what the process's event sink is told. Only while there is
 * one. */
void pn_cache_trace_open(struct pn_cache *cache);
void pn_cache_trace_close(struct pn_cache *cache);
/* Outcome of pinning n buffers; ret as the call returns it. */
struct pn_outcome {
	unsigned flags;
	uint8_t decision, reason;
	int ret;
};
void pn_cache_trace_pins(struct pn_cache *cache, const struct iovec *buffers,
			 unsigned n, const struct pinion_pin *pins,
			 const struct pn_outcome *outcome);
void pn_cache_trace_ready(struct pn_cache *cache, const struct pinion_pin *pin,
			  const struct pn_outcome *outcome);
void pn_cache_trace_unpin(struct pn_cache *cache, const struct pinion_pin *pin);
void pn_cache_trace_registered(struct pn_cache *cache,
			       const struct pn_region *region,
			       enum pn_trace_event_decision decision,
			       enum pn_trace_event_reason why);
/* Any event but the time, which is that of the last pn_cache_refresh(): the
 * device is not asked. */
void pn_cache_trace(struct pn_cache *cache, struct pn_trace_event event);
/* Inside a release notice. */
void pn_cache_trace_release(struct pn_cache *cache, struct pn_range range);
/* What others have of the budget, if that has changed. */
void pn_cache_trace_others_locked(struct pn_cache *cache)
	PN_REQUIRES(&cache->lock);

/* worker.c */
/* Has everybody with tasks give up what is not in use; how many
 * pieces. */
size_t pn_tasks_shrink(struct pn_cache *cache);
void pn_worker_notify(struct pn_cache *cache);
/* Rings if something began to die since. At the end of every slow path. */
void pn_worker_notify_if_wanted(struct pn_cache *cache);
/* Something is registered that a release may concern: there is to be a worker
 * to see to it when no call comes. */
void pn_worker_ensure(struct pn_cache *cache);
/* From a notice: wakes a worker that would not look soon. */
void pn_worker_wake_idle(struct pn_cache *cache);
void pn_worker_stop(struct pn_cache *cache);

#ifdef PINION_CHECK
#define PN_CACHE_CHECK(cache) pn_cache_check(cache)
#else
#define PN_CACHE_CHECK(cache) ((void)0)
#endif

#ifdef PINION_CHECK_CLOSE
#define PN_CACHE_CHECK_CLOSE(cache) pn_cache_check(cache)
#else
#define PN_CACHE_CHECK_CLOSE(cache) ((void)0)
#endif

#endif
