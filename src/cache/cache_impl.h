/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data that the files of the cache share, and who writes them. cache.h
 * describes the cache as a whole. The functions that the files offer each other
 * are in headers of their own: region_impl.h, thread_slots_impl.h, plan_impl.h,
 * invalidate_impl.h, reclaim_impl.h, worker_impl.h, trace_impl.h.
 */
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
	PN_REGION_STALE = 1 << 0, /* PENDING, and its memory was released */
	/* Not in the index; one pin has it. DYING once it is registered. */
	PN_REGION_PRIVATE = 1 << 1,
	PN_REGION_EVICTED = 1 << 2, /* the policy no longer knows the node */
	PN_REGION_REVOKED = 1 << 3, /* DYING, and its remote key is invalid */
	PN_REGION_LISTED = 1 << 4,  /* in cache->largest (stats_export.c) */
	PN_REGION_REGISTERED = 1 << 5, /* the device has to deregister it */
	/* Begins or ends inside a page (shared_pages.c). */
	PN_REGION_PARTIAL = 1 << 6,
	/* DYING: the device could not deregister it (reclaim.c). */
	PN_REGION_DEREG_FAILED = 1 << 7,
	/* DYING: from this bit on, the enum pn_trace_event_reason. */
	PN_REGION_WHY = 8,
};

/* What the monitor does for a region. Written by the region's plan before the
 * region is published. */
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
	_Atomic bool resident; /* registered by its owner (resident.c) */
	unsigned access_mask;  /* see pn_access_matches() */
	uint32_t id;	       /* its index in cache->regions; 0: never used */
	/* Second: under cache->lock. */
	/* DYING: link is in cache->dying.list or another of these lists. */
	struct pn_policy_node node PN_ALIGNED(PN_CACHELINE);
	uint64_t held; /* number of the last scan that found it in a slot */
	union {
		struct pn_plan *owner;	 /* PENDING: who registers it */
		uint64_t dying_since_ns; /* DYING */
		uint32_t next_free;	 /* FREE */
	};
} PN_ALIGNED(PN_CACHELINE);

_Static_assert(sizeof(struct pn_region) == 2 * PN_CACHELINE,
	       "two lines, the first for hits");
_Static_assert(offsetof(struct pn_region, node) == PN_CACHELINE,
	       "two lines, the first for hits");

/* Regions are in one array of reserved address space and never move. So a
 * number names a region, and a stale pointer still points to one. */
#define PN_CACHE_MAX_REGIONS ((uint32_t)1 << 23)

/* A page that a region covers in part (shared_pages.c). Each region has two, of
 * numbers 2 * id and 2 * id + 1. */
struct pn_edge {
	uint64_t page; /* its address */
	uint32_t next; /* with the same hash; 0: none */
};

#define PN_EDGE_HEADS_SHIFT 20

/* --- what a thread keeps for a cache ------------------------------------- */

typedef struct pn_region *_Atomic pn_slot;

#define PN_SLOTS_LOG 1024 /* entries; a power of two */

struct pn_slot_chunk {
	struct pn_slot_chunk *older;
	uint32_t nslots; /* a power of two */
	pn_slot slots[];
};

/* Allocated in the thread's first miss. When the thread ends, the object
 * becomes an orphan, since other threads may still hold pins in its slots; the
 * next new thread adopts it. Only the owner writes, except that any thread may
 * clear a slot. cache->lock protects the list of chunks, `drained`, `link` and
 * `orphan`. */
struct pn_thread_slots {
	pn_slot *next;	/* the slot to try first; one of the next */
	pn_slot *slots; /* of the newest chunk */
	uint32_t mask;
	_Atomic uint64_t log_at; /* accesses so far; a hit is one */
	struct pn_region *_Atomic log[PN_SLOTS_LOG];
	uint64_t drained; /* of log_at: the policy knows of these */
	struct pn_slot_chunk *newest;
	struct pn_cache *cache;
	struct pn_list link; /* in cache->threads */
	bool orphan;
};

/* --- the statistics segment (stats_export.c) ------------------------------ */

#define PN_LARGEST 32

struct pn_largest_row {
	uint64_t addr;
	uint64_t bytes; /* 0: the row is empty */
	uint64_t site;
	uint32_t access;
	uint32_t id; /* the region's */
	char site_name[PN_THREAD_SITE_BYTES];
};

extern const struct pn_stats_kind pn_stats_kind_cache, pn_stats_kind_pins,
	pn_stats_kind_largest;

/* --- release notices (invalidate.c) --------------------------------------- */

#define PN_NOTICE_RING		 1024
#define PN_MAX_INFLIGHT_RELEASES 256

struct pn_notice {
	_Atomic uint64_t filled; /* its number + 1, once it can be read */
	uintptr_t addr;
	size_t len;
};

/* A release between PN_RELEASE_BEFORE and PN_RELEASE_AFTER. */
struct pn_inflight_release {
	_Atomic uintptr_t thread; /* 0: the entry is free */
	_Atomic uintptr_t addr;
	_Atomic size_t len;
};

/* --- the cache ----------------------------------------------------------- */

/* Ranges that were dropped (prefetch.c), by a hash of their first page. */
#define PN_DROPPED_ROWS 256

struct pn_cache {
	/* Read by every hit: one cache line. */
	struct pn_index index; /* written under lock */
	struct pn_region *regions;
	int key;	       /* of base/thread.h */
	_Atomic bool observed; /* there is a sink or a listener */
	/* Not 0: hits take the slow path. Counts the notices that nobody has
	 * acted upon, and one more if always_slow is set. */
	_Atomic uint32_t slow_reasons;

	/* Written by pn_cache_open() alone. */
	struct pn_cache_attr attr;
	struct pn_device *device;
	struct pn_budget *budget;
	struct pn_policy *policy;	  /* called under lock */
	struct pinion_cache_stats *stats; /* written under lock */
	struct pn_largest_row *largest;	  /* likewise; NULL: not exported */
	struct pn_edge *edges;		  /* likewise; NULL: no shared pages */
	uint32_t *edge_heads;		  /* likewise */
	struct pn_subscriber subscriber;
	uint32_t process; /* that opened it (base/process.h) */
	bool subscribed;  /* the monitor reports releases */
	uint16_t source;  /* our number in traces */

	/* Switches: any thread reads them, no lock. */
	struct pn_trace_sink *_Atomic sink; /* NULL: no trace is recorded */
	struct pn_pin_listener *_Atomic listener; /* NULL: nobody listens */
	_Atomic bool always_slow; /* every pin takes the lock; stays set */
	_Atomic bool probing;	  /* every pin asks the monitor; stays set */
	_Atomic bool merging;	  /* new regions merge with neighbours */
	_Atomic bool stepped;	  /* somebody calls pn_cache_step() when idle */

	/* Under budget->sharers->lock. */
	struct pn_list sharer; /* in budget->sharers->caches */
	unsigned nreclaimers;  /* other caches' threads that reclaim here */
	bool leaving;	       /* no more of them may come */

	/* Written by release notices, without a lock. */
	struct {
		_Atomic uint64_t head PN_ALIGNED(PN_CACHELINE);
		_Atomic uint64_t tail; /* advanced under lock */
		_Atomic unsigned lost; /* notices that found the ring full */
		/* The table of releases in flight was full once: no region is
		 * published any more. */
		_Atomic bool never_publish;
		/* Entries of `inflight` that are in use, or more. */
		_Atomic unsigned ninflight;
		struct pn_notice ring[PN_NOTICE_RING];
		struct pn_inflight_release inflight[PN_MAX_INFLIGHT_RELEASES];
	} notices;

	/* Memory that peers may access (exposed_memory.h). The first three are
	 * written by notices and by who acts on them, without a lock. */
	struct {
		/* Notices that pn_cache_revoke_released() has not acted on. */
		_Atomic unsigned releases;
		_Atomic bool lost;	   /* one of notices.lost */
		_Atomic uint32_t revoking; /* 1: a thread acts on them */
		struct pn_list list;	   /* lock */
		/* How many exposures cover a page; written under lock, read by
		 * notices. */
		struct pn_index pages;
	} exposed;

	/* A leaf: no other lock is taken under it. Protects what follows, up to
	 * `tasks`; atomics there are also read without it. */
	struct pn_mutex lock PN_ALIGNED(PN_CACHELINE);
	struct pn_list threads;	   /* struct pn_thread_slots */
	struct pn_list queue;	   /* plans of asynchronous pins */
	uint64_t scan;		   /* number of the last scan of the slots */
	uint32_t free_region;	   /* head of the free list; 0: empty */
	uint32_t nregions;	   /* ever used */
	_Atomic unsigned nthreads; /* that live and have pinned */
	unsigned nendpoints;	   /* that pin for messages */
	size_t own_bytes, own_regions;	     /* charged for our regions */
	size_t others_bytes, others_regions; /* as last traced */
	size_t smallest_bytes;		     /* of `largest` */
	_Atomic uint64_t now_ns; /* at the last pn_cache_refresh() */

	/* Regions that wait to be deregistered (reclaim.c). */
	struct {
		struct pn_list list;
		_Atomic unsigned n;	   /* in the list; lock to write */
		unsigned nurgent;	   /* of all DYING regions: see
					    * pn_region_is_urgent() */
		_Atomic unsigned nheld;	   /* found in slots by the last reap */
		_Atomic unsigned nbatches; /* being deregistered; lock to
					    * write */
		_Atomic uint32_t reaped;   /* batches so far; to wait for one */
		_Atomic unsigned nwaiters; /* for `reaped` to change */
	} dying;

	/* PRIVATE regions while they are pinned: DYING, and nobody but their
	 * pin may deregister them. */
	struct pn_list lent;
	_Atomic unsigned nrekeys; /* of DYING regions, under way (revoke.c);
				   * lock to write */

	/* Regions that the device could not deregister: DYING still. */
	struct {
		struct pn_list list;
		unsigned n;
		size_t bytes;
		uint64_t retry_ns;    /* when to try again */
		uint64_t interval_ns; /* between the last two attempts */
	} failed;

	/* Background tasks of other modules (worker.c). */
	struct {
		struct pn_list list;
		_Atomic uint32_t nruns;	       /* so far; to wait for one */
		_Atomic uint32_t shrink_round; /* no lock */
	} tasks;

	/* No lock, except that `thread` and `running` are written under it. */
	struct {
		pthread_t thread;
		_Atomic bool running;
		_Atomic uint32_t doorbell; /* changes when there is work */
		_Atomic bool idle;	   /* notices ring the doorbell, too */
		_Atomic bool wanted;	   /* ring it when the lock is free */
		_Atomic bool stop;
	} worker;

	/* First page of a range, or 0; any thread, no lock. */
	_Atomic uintptr_t dropped[PN_DROPPED_ROWS];
};

_Static_assert(offsetof(struct pn_cache, attr) <= PN_CACHELINE,
	       "a hit reads one line of the cache");

/* Whether the cache is the parent's, in a forked child. A hit need not ask: the
 * kernel has wiped the pointer that a hit reads first (base/thread.h). */
static inline bool pn_cache_foreign(const struct pn_cache *cache)
{
	return !pn_process_is_current(cache->process);
}

/* Whether the registrations of the device are found by address and program
 * memory is not to be kept: code that knows nothing of pinion meets them. A
 * region then has exactly the bytes of its pin and is deregistered before the
 * unpin of its last pin returns (doc/design/cuda.md). */
static inline bool pn_cache_ends_with_pins(const struct pn_cache *cache)
{
	return cache->device->caps & PN_CAP_BY_ADDRESS &&
	       !cache->attr.keep_by_address;
}

/* Whether releases of memory are noticed, or do not matter. */
static inline bool pn_cache_watches(const struct pn_cache *cache)
{
	return !cache->subscribed || pn_monitor_watches();
}

/* Whether each pin has exactly one region, and each pin with remote access a
 * region of its own. */
static inline bool pn_cache_one_segment(const struct pn_cache *cache)
{
	return cache->device->caps & PN_CAP_ONE_SEGMENT ||
	       pn_cache_ends_with_pins(cache);
}

/* What a registration for a pin with these flags allows, at least. */
static inline unsigned pn_cache_access(const struct pn_cache *cache,
				       unsigned flags)
{
	unsigned access = flags & PINION_ACCESS_ALL;

	if (!(cache->device->caps & PN_CAP_READ_ONLY))
		access |= PINION_ACCESS_LOCAL_WRITE;
	return access;
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

/* What the budget is charged for the region. */
static inline size_t pn_region_bytes(const struct pn_region *region)
{
	return pn_region_pages(region).len;
}

/* Whether the region is deregistered as soon as nobody holds it: it was for one
 * use, its release would not be noticed, or its owner has removed it. */
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
 * PINION_PIN_BYPASS is in no region's access and so never matches. */
static inline bool pn_access_matches(const struct pn_region *region,
				     unsigned flags)
{
	return !((flags ^ region->mr.access) & region->access_mask);
}

/* The bits where a difference matters: those that the region lacks, and RELAXED
 * if the region has it. */
static inline unsigned pn_access_mask(unsigned access)
{
	return ~(access ^ (unsigned)PINION_ACCESS_RELAXED);
}

/* cache.c: reads the time, and the bytes that the kernel uncharges late, since
 * nobody may ask the device for them under the lock. */
void pn_cache_refresh(struct pn_cache *cache) PN_EXCLUDES(&cache->lock);
/* Adopts what the monitor can do now. */
void pn_cache_update_monitor(struct pn_cache *cache);

/* resident.c: pins a buffer that is in a resident region, whatever else the
 * cache is waiting for. False: it is not, or the region allows too little. */
bool pn_resident_pin(struct pn_cache *cache, void *addr, size_t len,
		     unsigned flags, struct pinion_pin *pin);

/* hints.c: pn_cache_covers() of a caller that has drained the notices. */
bool pn_hints_covers_locked(struct pn_cache *cache, struct pn_range range,
			    unsigned flags) PN_REQUIRES(&cache->lock);

/* mapping.c: whether one mapping has all of range; false when unknown. */
bool pn_mapping_is_one(struct pn_range range);

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
