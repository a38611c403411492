/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cache -- keeps memory registered between transfers.
 *
 * Nouns
 *   region  a registered range of whole pages; where a pin has one segment
 *           (single_segment.c), of bytes. Regions in the index do not overlap.
 *   pin     a caller's hold on the regions that cover its buffer: struct
 *           pinion_pin, in the caller's storage.
 *   slot    where a thread says that it uses a region. Whoever wants to
 *           deregister a region takes it out of the index, then looks into
 *           every slot (rule 2).
 *   plan    a pin that did not hit, on its way: the parts that are there and
 *           those to be registered.
 *   dying   regions out of the index, not yet deregistered: collected to be
 *           deregistered in batches, or still held by a slot.
 *   resident a region that belongs to somebody else, the heap: pins hit it like
 *           any other, but the policy does not know it, no release concerns
 *           it, and it stays until its owner takes it away (resident.c).
 *
 * Life of a region (region.c is the only place that changes its state)
 *   FREE -> PENDING   a miss puts it into the index; others wait for it
 *        -> VALID     registered; hits find it
 *        -> DYING     evicted, released, merged into another, or never
 *                     published because its memory was released meanwhile
 *        -> FREE      deregistered, when no slot holds it; when the device
 *                     refuses, it stays DYING and is tried again (reclaim.c)
 *
 * A walk through the files: hit.c is the whole of a hit; miss.c turns a miss
 * into a plan (plan.c), makes room, registers, publishes; segments.c makes a
 * pin of it (single_segment.c plans where a pin has one segment); async_pin.c
 * does the same for pins that are begun now and finished later; invalidate.c
 * takes the monitor's notices and invalidates; reclaim.c evicts and
 * deregisters; worker.c does what should not wait for the next call.
 *
 * What holds at rest
 *   Every index entry names a PENDING or VALID region that covers its page, and
 *   every such region has all its entries (private ones have none). A page that
 *   several have in part names one of them, and all are listed
 * (shared_pages.c). The budget holds exactly the bytes of PENDING, VALID and
 * DYING regions. VALID regions are known to the policy, residents excepted.
 *
 * Threads: any. cache->lock protects everything but slots, logs and the release
 * ring; it is never held while registering, deregistering, waiting or taking
 * another lock. A hit takes no lock and writes nothing that other threads read
 * but its own slot.
 * Caveat: regions belong to the process that made them; after fork() the child
 * opens its own cache.
 */
#ifndef PN_CACHE_CACHE_H
#define PN_CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pinion/cache.h>

#include "base/list.h"
#include "base/range.h"
#include "base/trace_sink.h"
#include "cache/budget.h"
#include "device/device.h"

struct pn_cache;
struct pn_policy;

/* Zero in a field means the default. */
struct pn_cache_attr {
	struct pn_device *device;
	struct pn_budget *budget;
	const char *policy;	 /* "lru" */
	size_t max_region_bytes; /* longer ranges take several regions */
	unsigned batch;		 /* victims and deregistrations at a time */
	size_t batch_bytes;	 /* dying bytes that are deregistered at once */
	uint64_t batch_age_ns;	 /* how long a region may go on dying */
	bool no_merge;	 /* never join a new region with its neighbours */
	bool no_monitor; /* releases are announced, not watched */
	bool no_worker;	 /* nobody but callers and pn_cache_step() works */
	bool alone;	 /* one thread alone ever uses it: no barriers */
	/* Its counters are on the process's board (base/stats_segment.h) and
	 * belong to this object there; NULL: they are not. */
	const void *stats_owner;
	/* Instead of `policy`; closed with the cache. */
	struct pn_policy *own_policy;
	/* Instead of asking the kernel whether one mapping holds the range. */
	bool (*is_one_mapping)(void *arg, struct pn_range range);
	void *mapping_arg;
};

/* The range of the region that has this node; for policies outside the cache
 * (own_policy). */
struct pn_policy_node;
struct pn_range pn_cache_node_range(const struct pn_policy_node *node);

/* -EINVAL: no such policy; -EMFILE: too many caches; -ENOMEM. */
int pn_cache_open(const struct pn_cache_attr *attr, struct pn_cache **out);

/* Deregisters everything. Nothing may be pinned. NULL is fine. */
void pn_cache_close(struct pn_cache *cache);

/* As pinion_pin() and its kin (pinion/cache.h); arguments are checked here. */
int pn_cache_pin(struct pn_cache *cache, void *addr, size_t len, unsigned flags,
		 struct pinion_pin *pin);
int pn_cache_pin_list(struct pn_cache *cache, const struct iovec *buffers,
		      unsigned n, unsigned flags, struct pinion_pin *pins);
int pn_cache_pin_start(struct pn_cache *cache, void *addr, size_t len,
		       unsigned flags, struct pinion_pin *pin);
int pn_cache_pin_test(struct pn_cache *cache, struct pinion_pin *pin);
int pn_cache_pin_wait(struct pn_cache *cache, struct pinion_pin *pin);
int pn_cache_pin_segment(const struct pinion_pin *pin, unsigned index,
			 struct pinion_pin_segment *out);
void pn_cache_unpin(struct pn_cache *cache, struct pinion_pin *pin);

/* Who wants to know of pins: the helper, where the program transfers by itself.
 * Called by the pinning threads, under no lock; what begin() returns comes back
 * in pinned(), with NULL when the pin failed. Pins that were begun with
 * pn_cache_pin_start() or made as a list are told when they end only. */
struct pn_pin_listener {
	void *(*begin)(struct pn_pin_listener *self, void *addr, size_t len);
	void (*pinned)(struct pn_pin_listener *self, void *note,
		       const struct pinion_pin *pin);
	/* Before the end of a pin and, if that returned something, after. */
	void *(*unpinning)(struct pn_pin_listener *self,
			   const struct pinion_pin *pin);
	void (*unpinned)(struct pn_pin_listener *self, void *note);
};

/* NULL: nobody any more. Not while other threads pin. */
void pn_cache_set_listener(struct pn_cache *cache,
			   struct pn_pin_listener *listener);

/* Whether a pin of the range would find all of it registered just now: a hint,
 * for choosing, since it may be gone the next moment. Takes the lock. Not an
 * access: the policy does not learn of it. */
bool pn_cache_covers(struct pn_cache *cache, const void *addr, size_t len,
		     unsigned flags);

/* Whether addr's page is cached just now: a rougher guess, for every operation,
 * at what pinning will cost. Takes no lock, unless releases are still to be
 * acted upon. */
bool pn_cache_holds(struct pn_cache *cache, const void *addr);

/* Drops whatever is cached in the range, as a release would. */
void pn_cache_invalidate(struct pn_cache *cache, uintptr_t addr, size_t len);

/* What to prepare again for what was dropped: the rights of the largest region,
 * from the first to the last of those that had the same. A page that a buffer
 * shares with its neighbour may have more rights, for the neighbour's sake. */
struct pn_dropped {
	struct pn_range range;
	unsigned access;
};

/* Deregisters the cached regions that lie wholly in the pages of a range, now.
 * How many; 0: none was there; -EBUSY: one of them is in use, and all stay.
 * *dropped is set if there were any. */
int pn_cache_drop(struct pn_cache *cache, uintptr_t addr, size_t len,
		  struct pn_dropped *dropped);

/* Whether releases by madvise() are told before their pages go: under
 * userfaultfd. A program that uses memory and releases it in one thread need
 * not care; whoever registers it unasked, at a moment of its own, may get the
 * old pages between the news and the end, and nobody would ever say so. */
bool pn_cache_notices_early(const struct pn_cache *cache);

/* Whether anything stays registered when it is unpinned. Not while the monitor
 * sees no release and nobody has asked for that: then every pin registers,
 * memory of residents excepted. */
bool pn_cache_keeps(const struct pn_cache *cache);

/* Registers a range for the next pin to find, which may come meanwhile and
 * waits then. Errors as pn_cache_pin(). */
int pn_cache_prefetch(struct pn_cache *cache, uintptr_t addr, size_t len,
		      unsigned access);

/* Deregisters all that is not in use. When it returns, that is out of the
 * budget, whoever was at it. */
void pn_cache_flush(struct pn_cache *cache);
int pn_cache_revoke(struct pn_cache *cache, uintptr_t addr, size_t len);

/* Takes room in the budget for others than the cache (registrations by hand,
 * heap slabs), giving up cached regions for it. -ENOBUFS: not to be had. They
 * give it back with pn_budget_uncharge(). */
int pn_cache_charge(struct pn_cache *cache, size_t bytes, size_t nregions);

/* Registers memory outside the index (by hand, or pinion's own): in the budget
 * until pn_cache_deregister(), giving up cached regions for it. May sleep.
 * -ENOBUFS: no room, in the budget or at the device; or why the device refuses.
 */
int pn_cache_register(struct pn_cache *cache, struct pn_mr *mr);

/* The same for memory that the caller alone maps and unmaps, without remote
 * access. Where there is no room it is not pinned, if the device can do without
 * (PN_CAP_UNPINNED). */
int pn_cache_register_own(struct pn_cache *cache, struct pn_mr *mr);

/* When the device cannot, the registration stays in the budget and is tried
 * again, the last time when the cache is closed; *mr can go all the same. */
void pn_cache_deregister(struct pn_cache *cache, struct pn_mr *mr);

/* Registers whole pages that the caller alone maps and unmaps, and keeps them
 * for pins of any thread until pn_cache_resident_remove(). A pin that asks for
 * more than `access` gets a registration of its own. Takes room in the budget,
 * giving up cached regions for it. *mr, with the keys, lives until then. May
 * sleep. -ENOBUFS: no room; -ENOMEM; or why the device refuses. */
int pn_cache_resident_add(struct pn_cache *cache, struct pn_range range,
			  unsigned access, const struct pn_mr **out);

/* From the return on no pin finds it, and it is deregistered: at once, or when
 * whoever still has it pinned unpins. May sleep. False: the device could not
 * deregister it, and it stays as it was; its pages must not go. */
bool pn_cache_resident_remove(struct pn_cache *cache, const struct pn_mr *mr);

/* After that, for an owner that cannot keep it: it leaves the index and is
 * tried again, the last time when the cache is closed. Its pages must stay
 * mapped. */
void pn_cache_resident_abandon(struct pn_cache *cache, const struct pn_mr *mr);

/* After the budget was resized: gives up what is over it and not in use. */
void pn_cache_trim(struct pn_cache *cache);

void pn_cache_query(struct pn_cache *cache, struct pinion_cache_stats *out);

/* Deferred work of somebody else that is done along with the cache's own, by
 * whoever calls pn_cache_step(). Storage is the owner's. */
struct pn_background_task {
	/* Does one piece of it and says when to be called again. */
	uint64_t (*step)(void *arg);
	/* Somebody wants room in the budget: gives up what is not in use;
	 * how many pieces. NULL: there is never anything. */
	size_t (*give)(void *arg);
	void *arg;
	uint64_t when_ns; /* the rest is the cache's */
	bool running;
	uint32_t asked; /* in which round for room */
	struct pn_list link;
};

void pn_cache_task_add(struct pn_cache *cache, struct pn_background_task *task);
/* Not later than when_ns. */
void pn_cache_task_schedule(struct pn_cache *cache,
			    struct pn_background_task *task, uint64_t when_ns);
/* Waits for a step under way. */
void pn_cache_task_remove(struct pn_cache *cache,
			  struct pn_background_task *task);

/* Tells the policy of the hits so far; misses do that by themselves. */
void pn_cache_sync_policy(struct pn_cache *cache);

/* Does one piece of deferred work (a batch of deregistrations that is due, a
 * pin begun with pn_cache_pin_start(), a task) if there is any, and says when
 * to call again: PN_FOREVER when nothing is waiting. */
uint64_t pn_cache_step(struct pn_cache *cache);

/* Promises to call pn_cache_step() whenever there is nothing better to do; then
 * unpinning leaves deregistration to it. */
void pn_cache_set_stepped(struct pn_cache *cache, bool stepped);

/* One more, or one less, that pins for messages: while there is one, as if
 * pn_cache_set_stepped() were promised and new regions did not swallow their
 * neighbours (pn_cache_set_merging()). */
void pn_cache_count_endpoint(struct pn_cache *cache, bool more);

/* Whether new regions swallow their neighbours, from now on. Who pins large
 * buffers piece by piece, always the same pieces, wants no joining: each piece
 * would have the ones before it registered again. */
void pn_cache_set_merging(struct pn_cache *cache, bool joins);

/* Tells the process's event sink something in the name of this cache, if there
 * is a sink; source and time are filled in. For the layers above. */
void pn_cache_trace_event(struct pn_cache *cache,
			  const struct pn_trace_event *event);

/* Checks what holds at rest; asserts. For tests, slow. */
void pn_cache_check(struct pn_cache *cache);

#endif
