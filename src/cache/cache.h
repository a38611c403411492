/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cache -- keeps memory registered between transfers.
 *
 * Nouns
 *   region   a registered range of whole pages; of bytes where a pin has one
 *            segment (single_segment.c). Regions in the index do not overlap.
 *   pin      a caller's hold on the regions that cover its buffer: struct
 *            pinion_pin, in the caller's storage.
 *   segment  the part of a pinned buffer that one region covers.
 *   slot     an entry of a thread's table that names a region in use. Whoever
 *            wants to deregister a region removes it from the index first and
 *            then reads all slots.
 *   plan     a pin that did not hit, while it is made: the segments that are
 *            cached and the regions to register (plan_impl.h).
 *   dying    a region that is out of the index and not yet deregistered: it
 *            waits for a batch, or a slot holds it.
 *   resident a region that another module owns: the heap. Pins hit it like any
 *            other. The policy does not know it, releases do not concern it,
 *            and it stays until its owner removes it (resident.c).
 *
 * Life of a region (region.c alone changes the state)
 *   FREE -> PENDING   a miss enters it into the index; other pins wait for it
 *        -> VALID     registered; hits find it
 *        -> DYING     evicted, invalidated, merged into another region, or
 *                     never published because its memory was released meanwhile
 *        -> FREE      deregistered, when no slot holds it. When the device
 *                     fails, the region stays DYING and is tried again
 *                     (reclaim.c)
 *
 * The files: hit.c is all of a hit. miss.c makes a plan (plan.c, or
 * single_segment.c where a pin has one segment), makes room, registers and
 * publishes; private_pin.c does without a plan where a pin bypasses the cache
 * on a registrar; segments.c turns the plan into a pin; async_pin.c does the
 * same for pins that are started and finished later. invalidate.c takes the
 * monitor's notices and invalidates regions. reclaim.c evicts and deregisters.
 * worker.c is the service thread, for work that should not wait for the next
 * call. hints.c says what a pin would find.
 *
 * At rest
 *   Every index entry names a PENDING or VALID region that covers its page, and
 *   every such region has all its entries, except PRIVATE ones, which have
 *   none. The entry of a page that several regions cover in part names one of
 *   them, and all of them are listed (shared_pages.c). The budget is charged
 *   exactly the bytes of PENDING, VALID and DYING regions. The policy knows all
 *   VALID regions except residents.
 *
 * Threads: any. cache->lock protects all but slots, logs and the notice ring.
 * Nobody registers, deregisters, waits or takes another lock while holding it.
 * A hit takes no lock, and writes nothing that other threads read except its
 * own slot.
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
	const char *policy;	 /* NULL: "lru" */
	size_t max_region_bytes; /* a longer range takes several regions */
	unsigned batch;	       /* evictions and deregistrations in one batch */
	size_t batch_bytes;    /* so many dying bytes are a batch */
	uint64_t batch_age_ns; /* how long a dying region may wait */
	bool no_merge;	       /* never merge a new region with neighbours */
	bool no_monitor;       /* only pn_cache_invalidate() reports releases */
	bool no_worker; /* no service thread: callers and pn_cache_step() do the
			   work */
	bool alone;	/* one thread uses it: no barriers */
	/* On a device with PN_CAP_BY_ADDRESS: keep memory of the program
	 * registered between uses. Otherwise a region ends with its last pin,
	 * and has exactly the bytes of the buffer (pn_cache_ends_with_pins()).
	 */
	bool keep_by_address;
	/* The object that the counters belong to in the statistics segment
	 * (base/stats_segment.h); NULL: they are not exported. */
	const void *stats_owner;
	/* Instead of `policy`; the cache closes it. */
	struct pn_policy *own_policy;
	/* Answers whether one mapping has the range, instead of the kernel
	 * (replayed traces). NULL: the kernel is asked. */
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

/* As pinion_pin() and the calls beside it (pinion/cache.h). Arguments are
 * checked here. */
int pn_cache_pin(struct pn_cache *cache, void *addr, size_t len, unsigned flags,
		 struct pinion_pin *pin);
/* The same, but registers nothing and waits for no other thread. -ENOENT: not
 * all of the range is registered. For callers that need no registration:
 * between a look with pn_cache_covers() and a pin the regions may go, and the
 * pin would register memory that is just being released
 * (pn_cache_notices_early()). */
int pn_cache_pin_hit(struct pn_cache *cache, void *addr, size_t len,
		     unsigned flags, struct pinion_pin *pin);
int pn_cache_pin_list(struct pn_cache *cache, const struct iovec *buffers,
		      unsigned n, unsigned flags, struct pinion_pin *pins);
int pn_cache_pin_start(struct pn_cache *cache, void *addr, size_t len,
		       unsigned flags, struct pinion_pin *pin);
int pn_cache_pin_test(struct pn_cache *cache, struct pinion_pin *pin);
int pn_cache_pin_wait(struct pn_cache *cache, struct pinion_pin *pin);
int pn_cache_pin_segment(const struct pinion_pin *pin, unsigned index,
			 struct pinion_pin_segment *out);

/* Ends a pin. A registration for this pin alone (PINION_PIN_BYPASS, or memory
 * that cannot be kept) is deregistered by the worker, soon after. */
void pn_cache_unpin(struct pn_cache *cache, struct pinion_pin *pin);

/* The same, but the registration of a PINION_PIN_BYPASS with remote access is
 * deregistered before this returns, unless the device fails to: may sleep then.
 * So are all with remote access where the monitor watches nothing. Not one that
 * other pins may have found before the monitor refused its memory, or that was
 * released while pinned: the worker deregisters it soon after. */
void pn_cache_unpin_now(struct pn_cache *cache, struct pinion_pin *pin);

/* Observes pins: the helper does, where the program transfers by itself. The
 * pinning threads call it, under no lock. pinned() gets what begin() returned,
 * and NULL as the pin if it failed. Of asynchronous pins and of lists only the
 * end is reported. */
struct pn_pin_listener {
	void *(*begin)(struct pn_pin_listener *self, void *addr, size_t len);
	void (*pinned)(struct pn_pin_listener *self, void *note,
		       const struct pinion_pin *pin);
	/* Before a pin ends; unpinned() follows if this returned something. */
	void *(*unpinning)(struct pn_pin_listener *self,
			   const struct pinion_pin *pin);
	void (*unpinned)(struct pn_pin_listener *self, void *note);
};

/* NULL: no listener; not while other threads pin. A listener may come while
 * they do: it hears of the pins that begin later. */
void pn_cache_set_listener(struct pn_cache *cache,
			   struct pn_pin_listener *listener);

/* pn_cache_pin() for a layer that tells the helper of its transfers itself: the
 * listener does not hear of it. */
int pn_cache_pin_no_listener(struct pn_cache *cache, void *addr, size_t len,
			     unsigned flags, struct pinion_pin *pin);

/* Whether a pin of the range would find all of it registered at this moment: a
 * hint, for choosing. Takes no lock, unless releases are pending (hints.c says
 * when else). The policy does not count it as an access. */
bool pn_cache_covers(struct pn_cache *cache, const void *addr, size_t len,
		     unsigned flags);

/* Whether the page of addr is cached at this moment: a rougher hint, cheap
 * enough for every operation, about what pinning will cost. Takes no lock,
 * unless releases are pending. */
bool pn_cache_holds(struct pn_cache *cache, const void *addr);
/* The same, or the page is being registered. */
bool pn_cache_will_hold(struct pn_cache *cache, const void *addr);

/* Invalidates what is cached in the range, as a release does. */
void pn_cache_invalidate(struct pn_cache *cache, uintptr_t addr, size_t len);

/* What to prefetch after a drop. access: that of the largest region that was
 * dropped. range: from the first to the last dropped region with this access.
 * Regions with another access are left out: a page that a buffer shares with
 * its neighbour may have been registered with more access for the neighbour. */
struct pn_dropped {
	struct pn_range range;
	unsigned access;
};

/* Deregisters the cached regions that lie wholly in the pages of a range, now.
 * Returns how many; 0: there was none; -EBUSY: one of them is in use, and all
 * stay. *dropped is set if there were any. */
int pn_cache_drop(struct pn_cache *cache, uintptr_t addr, size_t len,
		  struct pn_dropped *dropped);

/* Whether the range that begins at addr was dropped, and nobody has asked
 * since: its memory may be the same as before. A hint: the cache remembers some
 * ranges only, and does not notice releases of memory that is not registered.
 */
bool pn_cache_was_dropped(struct pn_cache *cache, const void *addr);

/* Whether the notice of a madvise() comes before its pages go, as with
 * userfaultfd. This does not matter to a program that uses and releases memory
 * in one thread. It matters to a thread that registers the memory at a moment
 * of its own (the helper): between the notice and the end of the release it may
 * register the old pages, and no further notice comes. */
bool pn_cache_notices_early(const struct pn_cache *cache);

/* Whether regions stay registered when they are unpinned. They do not if the
 * monitor notices no release, unless the user has asked to keep regions all the
 * same; nor on a device that finds registrations by address, unless the user
 * has asked for it. If they do not, every pin registers, except in residents.
 */
bool pn_cache_keeps(const struct pn_cache *cache);

/* Registers a range for the next pin. A pin that comes meanwhile waits for the
 * registration. Errors as pn_cache_pin(). */
int pn_cache_prefetch(struct pn_cache *cache, uintptr_t addr, size_t len,
		      unsigned access);

/* Completes pending invalidations: what was released before the call, and is
 * not in use, is deregistered when it returns. For devices that find
 * registrations by address. */
void pn_cache_settle(struct pn_cache *cache);

/* Deregisters all that is not in use. On return it is out of the budget, also
 * what other threads were deregistering. */
void pn_cache_flush(struct pn_cache *cache);
int pn_cache_revoke(struct pn_cache *cache, uintptr_t addr, size_t len);

/* Charges the budget for registrations outside the cache (by hand, heap slabs),
 * and evicts cached regions if need be. The caller uncharges the budget with
 * pn_budget_uncharge(). -ENOBUFS: there is no room. */
int pn_cache_charge(struct pn_cache *cache, size_t bytes, size_t nregions);

/* Registers memory outside the index (by hand, or of pinion itself) and charges
 * the budget until pn_cache_deregister(). Evicts cached regions if need be. May
 * sleep. -ENOBUFS: no room in the budget or at the device; or the error of the
 * device. */
int pn_cache_register(struct pn_cache *cache, struct pn_mr *mr);

/* The same for memory that only the caller maps and unmaps, without remote
 * access. Where there is no room, the memory is registered unpinned if the
 * device can (PN_CAP_UNPINNED). */
int pn_cache_register_own(struct pn_cache *cache, struct pn_mr *mr);

/* If the device fails, the registration stays in the budget and is tried again,
 * the last time when the cache is closed; *mr may be freed all the same. */
void pn_cache_deregister(struct pn_cache *cache, struct pn_mr *mr);

/* Registers whole pages that only the caller maps and unmaps, for pins of any
 * thread until pn_cache_resident_remove(). A pin that asks for more than
 * `access` gets a registration of its own. Charges the budget and evicts cached
 * regions if need be. *mr, with the keys, is valid until the removal. May
 * sleep. -ENOBUFS: no room; -ENOMEM; or the error of the device. */
int pn_cache_resident_add(struct pn_cache *cache, struct pn_range range,
			  unsigned access, const struct pn_mr **out);

/* On return no pin finds the resident any more. It is deregistered at once, or
 * when the last pin of it ends. May sleep. False: the device could not
 * deregister it; the resident stays as it was, and its pages must not be
 * unmapped. */
bool pn_cache_resident_remove(struct pn_cache *cache, const struct pn_mr *mr);

/* After a failed removal, for an owner that cannot keep the resident: it leaves
 * the index and is tried again, the last time when the cache is closed. Its
 * pages must stay mapped. */
void pn_cache_resident_abandon(struct pn_cache *cache, const struct pn_mr *mr);

/* After the budget was resized: evicts what is over it and not in use. */
void pn_cache_trim(struct pn_cache *cache);

void pn_cache_query(struct pn_cache *cache, struct pinion_cache_stats *out);

/* A background task: deferred work of another module, done by whoever calls
 * pn_cache_step(). It is also a shrinker: it gives memory back to the budget
 * when others need room. The storage is the owner's. */
struct pn_background_task {
	/* Does one piece of the work. Returns when to call again. */
	uint64_t (*step)(void *arg);
	/* Somebody needs room in the budget: gives up what is not in use.
	 * Returns how many pieces. NULL: this task never has any. */
	size_t (*shrink)(void *arg);
	void *arg;
	uint64_t when_ns; /* the cache writes this and what follows */
	bool running;
	uint32_t shrink_round; /* in which it was asked last */
	struct pn_list link;
};

void pn_cache_task_add(struct pn_cache *cache, struct pn_background_task *task);
/* Runs the task at when_ns at the latest. */
void pn_cache_task_schedule(struct pn_cache *cache,
			    struct pn_background_task *task, uint64_t when_ns);
/* Waits while the task runs. */
void pn_cache_task_remove(struct pn_cache *cache,
			  struct pn_background_task *task);

/* Reports the hits so far to the policy; misses do that by themselves. */
void pn_cache_sync_policy(struct pn_cache *cache);

/* Does one piece of deferred work if there is any: a batch of deregistrations
 * that is due, an asynchronous pin, a background task. Returns when to call
 * again; PN_FOREVER: nothing is waiting. */
uint64_t pn_cache_step(struct pn_cache *cache);

/* Whether somebody calls pn_cache_step() when idle; then unpinning leaves
 * deregistration to that thread. */
void pn_cache_set_stepped(struct pn_cache *cache, bool stepped);

/* An endpoint was opened, or closed. While there is one, pn_cache_set_stepped()
 * holds and new regions do not merge with neighbours (pn_cache_set_merging()).
 */
void pn_cache_count_endpoint(struct pn_cache *cache, bool more);

/* Whether new regions merge with their neighbours from now on. Callers that pin
 * large buffers fragment by fragment, always the same fragments, want no
 * merging: each new fragment would register the fragments before it again. */
void pn_cache_set_merging(struct pn_cache *cache, bool joins);

/* Records a trace event of this cache for a layer above, if there is a sink.
 * Source and time are filled in. */
void pn_cache_trace_event(struct pn_cache *cache,
			  const struct pn_trace_event *event);

/* Checks what holds at rest; asserts. For tests, slow. */
void pn_cache_check(struct pn_cache *cache);

#endif
