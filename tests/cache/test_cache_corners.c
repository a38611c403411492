/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Corners of the cache that the model found, or a reading of the code did: one
 * test each, small enough to debug. On `sim`, without a worker and without a
 * monitor, so that nothing happens that the test does not do. An argument
 * names the one test to run.
 */
#include "test.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/range.h"
#include "cache/cache_impl.h"
#include "cache/exposed_memory.h"
#include "cache/invalidate_impl.h"
#include "cache/plan_impl.h"
#include "cache/worker_impl.h"
#include "device/sim/sim.h"
#include "mover.h"

#define PAGE	PN_PAGE_BYTES
#define NPAGES	64
#define WRITE	PINION_ACCESS_LOCAL_WRITE
#define EXPOSED (PINION_ACCESS_REMOTE_WRITE | PINION_ACCESS_LOCAL_WRITE)

static struct {
	struct pn_sim *sim;
	struct pn_device *device;
	struct pn_budget budget;
	struct pn_cache *cache;
	struct mover mover;
	char *mem;
} f;

static void open_with(struct pn_cache_attr attr, size_t budget_pages)
{
	assert_ok(pn_sim_open("cost=none", NULL, &f.sim));
	f.device = pn_sim_device(f.sim, 0);
	pn_budget_init(&f.budget, f.device, budget_pages * PAGE, 0, 1);
	attr.device = f.device;
	attr.budget = &f.budget;
	attr.no_monitor = true;
	assert_ok(pn_cache_open(&attr, &f.cache));
	assert_ok(mover_open(&f.mover, f.device, NPAGES * PAGE));
	f.mem = mmap(NULL, NPAGES * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(f.mem != MAP_FAILED);
}

static void close_all(void)
{
	pn_cache_check(f.cache);
	pn_cache_close(f.cache);
	assert_int_equal(atomic_load(&f.budget.bytes), 0);
	assert_int_equal(atomic_load(&f.budget.regions), 0);
	mover_close(&f.mover);
	pn_sim_close(f.sim);
	munmap(f.mem, NPAGES * PAGE);
}

static int pin(size_t first, size_t n, unsigned flags, struct pinion_pin *out)
{
	return pn_cache_pin(f.cache, f.mem + first * PAGE, n * PAGE, flags,
			    out);
}

static void touch(size_t first, size_t n)
{
	struct pinion_pin p;

	assert_ok(pin(first, n, WRITE, &p));
	pn_cache_unpin(f.cache, &p);
}

static void release(size_t page)
{
	pn_cache_invalidate(f.cache, (uintptr_t)f.mem + page * PAGE, PAGE);
}

static uint64_t registrations(void)
{
	struct pinion_cache_stats stats;

	pn_cache_check(f.cache);
	pn_cache_query(f.cache, &stats);
	return stats.registrations;
}

/* What a peer finds that was given the key of a pin. */
static int put_with(const struct pinion_pin *p)
{
	struct pinion_pin_segment segment = { .addr = p->addr,
					      .len = p->len,
					      .local_key = p->local_key,
					      .remote_key = p->remote_key };

	return mover_move(&f.mover, MOVER_REMOTE_IN, &segment);
}

/* --- plans --------------------------------------------------------------- */

static unsigned nplans;

int __real_pn_plan_try(struct pn_plan *plan);
int __wrap_pn_plan_try(struct pn_plan *plan);

int __wrap_pn_plan_try(struct pn_plan *plan)
{
	nplans++;
	return __real_pn_plan_try(plan);
}

static unsigned plans_of_touching(size_t first, size_t n)
{
	nplans = 0;
	touch(first, n);
	return nplans;
}

static uint64_t evictions(void)
{
	struct pinion_cache_stats stats;

	pn_cache_query(f.cache, &stats);
	return stats.evictions;
}

static void a_miss_plans_once_when_nothing_blocks_it(void **state)
{
	(void)state;
	open_with((struct pn_cache_attr){ .max_region_bytes = 2 * PAGE }, 32);
	assert_int_equal(plans_of_touching(0, 8), 1);
	assert_int_equal(plans_of_touching(16, 1), 1);
	/* One that fills the gap between two regions. */
	assert_int_equal(plans_of_touching(20, 1), 1);
	assert_int_equal(plans_of_touching(16, 5), 1);
	assert_int_equal(plans_of_touching(0, 8), 1); /* several segments */
	close_all();
}

static void a_full_budget_costs_a_miss_one_more_plan(void **state)
{
	(void)state;
	for (unsigned merging = 0; merging < 2; merging++) {
		open_with((struct pn_cache_attr){ .no_merge = !merging }, 8);
		/* Every second page: there are no neighbours to merge with. */
		for (unsigned i = 0; i < 8; i++)
			touch(2 * i, 1);
		assert_int_equal(plans_of_touching(32, 1), 2);
		assert_int_equal(plans_of_touching(34, 4), 2);
		assert_int_equal(evictions(), 5);
		/* Pages 18 and 20 are cached: three gaps without room. With
		 * merging, what the gaps need without it is a plan's answer. */
		touch(18, 1);
		touch(20, 1);
		assert_int_equal(plans_of_touching(17, 5), merging ? 3 : 2);
		close_all();
	}
}

/* More of them than one batch deregisters: those that are dying make the room,
 * no others are evicted for it. */
static void reclaiming_many_small_regions_takes_no_more_than_needed(
	void **state)
{
	enum { SMALL = 1000, NEEDED = 900 };
	char *mem;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, SMALL);
	mem = mmap(NULL, 4 * SMALL * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(mem != MAP_FAILED);
	for (unsigned i = 0; i < SMALL; i++) {
		struct pinion_pin p;

		assert_ok(pn_cache_pin(f.cache, mem + 2 * i * PAGE, PAGE, WRITE,
				       &p));
		pn_cache_unpin(f.cache, &p);
	}
	nplans = 0;
	assert_ok(pn_cache_prefetch(f.cache, (uintptr_t)mem + 2 * SMALL * PAGE,
				    NEEDED * PAGE, WRITE));
	assert_int_equal(nplans, 2);
	assert_int_equal(evictions(), NEEDED);
	close_all();
	munmap(mem, 4 * SMALL * PAGE);
}

/* --- policies ------------------------------------------------------------ */

static void every_policy_drops_what_was_released(void **state)
{
	static const char *const policies[] = { "lru",	  "fmrd", "mre",
						"greedy", "keep", "cost" };

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(policies); i++) {
		open_with((struct pn_cache_attr){ .policy = policies[i],
						  .no_merge = true },
			  8);
		for (unsigned k = 0; k < 8; k++)
			touch(2 * k, 1);
		pn_cache_invalidate(f.cache, (uintptr_t)f.mem, 4 * PAGE);
		for (unsigned k = 0; k < 20; k++)
			touch(2 * k, 1);
		assert_true(registrations() >= 8 + 2);
		close_all();
	}
}

/* --- room ---------------------------------------------------------------- */

static void a_buffer_of_many_regions_without_room_is_refused(void **state)
{
	struct pinion_pin held, p;

	(void)state;
	open_with((struct pn_cache_attr){ .max_region_bytes = 2 * PAGE }, 8);
	assert_ok(pin(0, 4, WRITE, &held));
	assert_int_equal(pin(10, 5, WRITE, &p), -ENOBUFS);
	assert_int_equal(pin(10, 9, WRITE, &p), -ENOBUFS);
	assert_ok(pin(10, 4, WRITE, &p));
	pn_cache_unpin(f.cache, &p);
	pn_cache_unpin(f.cache, &held);
	close_all();
}

static void a_list_without_room_for_all_is_refused(void **state)
{
	struct iovec list[3];
	struct pinion_pin held, pins[3];

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, 4);
	for (unsigned i = 0; i < 3; i++)
		list[i] = (struct iovec){ f.mem + (10 + 2 * i) * PAGE, PAGE };
	assert_ok(pin(0, 2, WRITE, &held));
	assert_int_equal(pn_cache_pin_list(f.cache, list, 3, WRITE, pins),
			 -ENOBUFS);
	assert_ok(pn_cache_pin_list(f.cache, list, 2, WRITE, pins));
	pn_cache_unpin(f.cache, &pins[0]);
	pn_cache_unpin(f.cache, &pins[1]);
	pn_cache_unpin(f.cache, &held);
	close_all();
}

static void too_few_regions_are_refused_as_too_few_bytes_are(void **state)
{
	struct pinion_pin p;

	(void)state;
	open_with((struct pn_cache_attr){ .max_region_bytes = PAGE }, 16);
	pn_budget_resize(&f.budget, 0, 3);
	assert_int_equal(pin(10, 4, WRITE, &p), -ENOBUFS);
	touch(10, 3);
	touch(20, 3);
	close_all();
}

/* The new buffer and its neighbour together are too much, alone it is not. */
static void merging_neighbours_never_costs_a_pin(void **state)
{
	struct pinion_pin held, p;

	(void)state;
	open_with((struct pn_cache_attr){ .max_region_bytes = 0 }, 8);
	touch(0, 4);
	assert_ok(pin(20, 2, WRITE, &held));
	assert_ok(pin(4, 4, WRITE, &p));
	pn_cache_unpin(f.cache, &p);
	pn_cache_unpin(f.cache, &held);
	close_all();
}

/* --- rights of neighbours ------------------------------------------------ */

#define READABLE PINION_ACCESS_REMOTE_READ

static uint64_t merges(void)
{
	struct pinion_cache_stats stats;

	pn_cache_query(f.cache, &stats);
	return stats.merges;
}

static void touch_as(size_t first, size_t n, unsigned access)
{
	struct pinion_pin p;

	assert_ok(pin(first, n, access, &p));
	pn_cache_unpin(f.cache, &p);
}

/* Whether a region has no key that a peer could use. */
static void assert_local(const struct pinion_pin *p)
{
	struct pinion_pin_segment segment;

	for (unsigned i = 0; !pn_cache_pin_segment(p, i, &segment); i++)
		assert_int_equal(segment.remote_key, 0);
}

static void what_peers_may_access_is_not_merged_with_what_they_may_not(
	void **state)
{
	struct pinion_pin p;

	(void)state;
	open_with((struct pn_cache_attr){ .max_region_bytes = 0 }, NPAGES);
	touch_as(4, 4, EXPOSED);
	assert_ok(pin(0, 4, WRITE, &p));
	assert_local(&p);
	pn_cache_unpin(f.cache, &p);
	assert_int_equal(merges(), 0);
	/* Those of one kind are. */
	touch_as(8, 4, EXPOSED);
	assert_int_equal(merges(), 1);
	assert_ok(pin(12, 4, WRITE, &p));
	assert_local(&p);
	pn_cache_unpin(f.cache, &p);
	assert_int_equal(merges(), 1);
	close_all();
}

/* A buffer that is only sent from takes along its neighbour, which is received
 * into. */
static void what_was_merged_may_be_written_as_before(void **state)
{
	(void)state;
	open_with((struct pn_cache_attr){ .max_region_bytes = 0 }, NPAGES);
	touch_as(4, 2, WRITE);
	touch_as(0, 4, 0);
	assert_int_equal(merges(), 1);
	touch_as(4, 2, WRITE);
	assert_int_equal(registrations(), 2);
	close_all();
}

/* Pages that were writable stay so when the buffer around them becomes
 * readable; the others do not become writable. */
static void access_of_a_segment_does_not_spread_over_the_buffer(void **state)
{
	struct pinion_pin p;

	(void)state;
	open_with((struct pn_cache_attr){ .max_region_bytes = 0 }, NPAGES);
	touch_as(4, 2, EXPOSED);
	touch_as(0, 12, READABLE | WRITE);
	assert_ok(pin(4, 2, EXPOSED, &p));
	assert_ok(put_with(&p));
	pn_cache_unpin(f.cache, &p);
	assert_int_equal(registrations(), 4);
	assert_ok(pin(6, 6, READABLE | WRITE, &p));
	assert_int_equal(put_with(&p), -EACCES);
	pn_cache_unpin(f.cache, &p);
	assert_ok(pin(0, 4, READABLE | WRITE, &p));
	assert_int_equal(put_with(&p), -EACCES);
	pn_cache_unpin(f.cache, &p);
	assert_int_equal(registrations(), 4);
	close_all();
}

/* --- asynchronous pins -------------------------------------------------- */

static void a_pin_blocked_by_an_asynchronous_one_carries_it_out(void **state)
{
	struct pinion_pin begun, p;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	assert_int_equal(pn_cache_pin_start(f.cache, f.mem, 4 * PAGE, WRITE,
					    &begun),
			 -EINPROGRESS);
	assert_ok(pin(2, 4, WRITE, &p));
	assert_ok(pn_cache_pin_test(f.cache, &begun));
	assert_int_equal(registrations(), 2);
	pn_cache_unpin(f.cache, &p);
	pn_cache_unpin(f.cache, &begun);
	close_all();
}

/* Every second page is registered: these can be used at once. */
static void cached_segments_can_be_used_before_the_others(void **state)
{
	struct pinion_pin_segment segment;
	struct pinion_pin begun;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	for (unsigned i = 1; i < 6; i += 2)
		touch(i, 1);
	assert_int_equal(pn_cache_pin_start(f.cache, f.mem, 6 * PAGE, WRITE,
					    &begun),
			 -EINPROGRESS);
	assert_int_equal(begun.nsegments, 6);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(pn_cache_pin_segment(&begun, i, &segment),
				 i % 2 ? 0 : -EAGAIN);
	assert_ptr_equal(segment.addr, f.mem + 5 * PAGE);
	assert_ok(pn_cache_pin_wait(f.cache, &begun));
	assert_int_equal(registrations(), 6);
	pn_cache_unpin(f.cache, &begun);
	close_all();
}

static void two_asynchronous_pins_end_in_either_order(void **state)
{
	struct pinion_pin a, b;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	assert_int_equal(pn_cache_pin_start(f.cache, f.mem, 4 * PAGE, WRITE,
					    &a),
			 -EINPROGRESS);
	assert_int_equal(pn_cache_pin_start(f.cache, f.mem + 2 * PAGE, 4 * PAGE,
					    WRITE, &b),
			 -EINPROGRESS);
	assert_ok(pn_cache_pin_wait(f.cache, &b));
	assert_ok(pn_cache_pin_wait(f.cache, &a));
	pn_cache_unpin(f.cache, &a);
	pn_cache_unpin(f.cache, &b);
	close_all();
}

/* --- slots --------------------------------------------------------------- */

static void no_region_is_less_than_a_page(void **state)
{
	struct pinion_pin p;

	(void)state;
	open_with((struct pn_cache_attr){ .max_region_bytes = 1 }, NPAGES);
	assert_ok(pin(0, 3, WRITE, &p));
	assert_int_equal(p.nsegments, 3);
	pn_cache_unpin(f.cache, &p);
	assert_int_equal(registrations(), 3);
	close_all();
}

static void a_buffer_of_more_segments_than_free_slots_is_pinned(void **state)
{
	struct pinion_pin held[NPAGES - 4], p;

	(void)state;
	open_with((struct pn_cache_attr){ .max_region_bytes = PAGE }, NPAGES);
	for (unsigned i = 0; i < PN_ARRAY_LEN(held); i++)
		assert_ok(pin(i, 1, WRITE, &held[i]));
	assert_ok(pin(0, 20, WRITE, &p));
	assert_int_equal(p.nsegments, 20);
	pn_cache_unpin(f.cache, &p);
	for (unsigned i = 0; i < PN_ARRAY_LEN(held); i++)
		pn_cache_unpin(f.cache, &held[i]);
	close_all();
}

/* --- releases ------------------------------------------------------------ */

/* When the release begins nothing is cached there; while it is under way
 * something is registered, as merging neighbours does. */
static void nothing_is_published_while_a_release_is_in_flight(void **state)
{
	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	pn_invalidate_notice(f.cache, (uintptr_t)f.mem, 2 * PAGE,
			     PN_RELEASE_BEFORE);
	touch(1, 2);
	touch(1, 2);
	assert_int_equal(registrations(), 2);
	pn_invalidate_notice(f.cache, (uintptr_t)f.mem, 2 * PAGE,
			     PN_RELEASE_AFTER);
	touch(1, 2);
	touch(1, 2);
	assert_int_equal(registrations(), 3);
	close_all();
}

/* Who cannot tell any more what is under way keeps nothing, for good. */
static void more_releases_in_flight_than_entries_end_publishing(void **state)
{
	uintptr_t far;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	far = (uintptr_t)f.mem + 32 * PAGE;
	for (unsigned i = 0; i < PN_MAX_INFLIGHT_RELEASES; i++)
		pn_invalidate_notice(f.cache, far, PAGE, PN_RELEASE_BEFORE);
	touch(1, 2);
	touch(1, 2);
	assert_int_equal(registrations(), 1);
	pn_invalidate_notice(f.cache, far, PAGE, PN_RELEASE_BEFORE);
	for (unsigned i = 0; i <= PN_MAX_INFLIGHT_RELEASES; i++)
		pn_invalidate_notice(f.cache, far, PAGE, PN_RELEASE_AFTER);
	touch(5, 2);
	touch(5, 2);
	assert_int_equal(registrations(), 3);
	close_all();
}

/* Nothing says which notice was lost: it may have been of these pages. */
static void a_lost_notice_makes_pending_regions_stale(void **state)
{
	struct pinion_cache_stats stats;
	struct pinion_pin p;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	assert_int_equal(pn_cache_pin_start(f.cache, f.mem, PAGE, WRITE, &p),
			 -EINPROGRESS);
	touch(8, 1);
	for (unsigned i = 0; i <= PN_NOTICE_RING; i++)
		pn_invalidate_notice(f.cache, (uintptr_t)f.mem + 8 * PAGE, PAGE,
				     PN_RELEASE_AFTER);
	assert_ok(pn_cache_pin_wait(f.cache, &p));
	pn_cache_unpin(f.cache, &p);
	pn_cache_query(f.cache, &stats);
	assert_int_equal(stats.overflows, 1);
	touch(0, 1);
	assert_int_equal(registrations(), 3);
	close_all();
}

static void a_release_that_has_ended_concerns_nobody(void **state)
{
	uintptr_t mem;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	mem = (uintptr_t)f.mem;
	pn_invalidate_notice(f.cache, mem + 8 * PAGE, PAGE, PN_RELEASE_BEFORE);
	pn_cache_invalidate(f.cache, mem, 2 * PAGE);
	touch(0, 2);
	touch(0, 2);
	assert_int_equal(registrations(), 1);
	pn_invalidate_notice(f.cache, mem + 8 * PAGE, PAGE, PN_RELEASE_AFTER);
	close_all();
}

/* --- keys ---------------------------------------------------------------- */

static void keys_of_regions_that_are_dying_are_revoked(void **state)
{
	struct pinion_pin old, now;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	assert_ok(pin(0, 1, EXPOSED, &old));
	/* More access: the old region lives on for its user only. */
	assert_ok(pin(0, 1, EXPOSED | PINION_ACCESS_REMOTE_READ, &now));
	assert_ok(put_with(&old));
	assert_ok(put_with(&now));
	assert_ok(pn_cache_revoke(f.cache, (uintptr_t)f.mem, PAGE));
	assert_int_equal(put_with(&old), -EACCES);
	assert_int_equal(put_with(&now), -EACCES);
	/* Again: there is nothing left to revoke. */
	assert_ok(pn_cache_revoke(f.cache, (uintptr_t)f.mem, PAGE));
	pn_cache_unpin(f.cache, &old);
	pn_cache_unpin(f.cache, &now);
	close_all();
}

static void keys_of_bypassing_pins_are_revoked(void **state)
{
	struct pinion_pin p, far;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	assert_ok(pin(0, 2, EXPOSED | PINION_PIN_BYPASS, &p));
	assert_ok(pin(9, 1, EXPOSED | PINION_PIN_BYPASS, &far));
	assert_ok(pn_cache_revoke(f.cache, (uintptr_t)f.mem + PAGE, 1));
	assert_int_equal(put_with(&p), -EACCES);
	assert_ok(put_with(&far));
	pn_cache_unpin(f.cache, &p);
	pn_cache_unpin(f.cache, &far);
	close_all();
}

static void an_unpin_ends_all_keys_of_a_bypassing_pin(void **state)
{
	struct pinion_pin p, local, other;
	struct pinion_pin_segment segments[3];

	(void)state;
	open_with((struct pn_cache_attr){ .max_region_bytes = PAGE }, NPAGES);
	assert_ok(pin(0, 3, EXPOSED | PINION_PIN_BYPASS, &p));
	assert_ok(pin(0, 1, WRITE | PINION_PIN_BYPASS, &local));
	assert_ok(pin(0, 1, EXPOSED | PINION_PIN_BYPASS, &other));
	assert_int_equal(p.nsegments, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_ok(pn_cache_pin_segment(&p, i, &segments[i]));
	/* While it is pinned nobody else ends it. */
	pn_cache_flush(f.cache);
	assert_ok(mover_move(&f.mover, MOVER_REMOTE_IN, &segments[2]));
	pn_cache_unpin_now(f.cache, &p);
	pn_cache_check(f.cache);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(mover_move(&f.mover, MOVER_REMOTE_IN,
					    &segments[i]),
				 -EACCES);
	assert_ok(put_with(&other));
	pn_cache_unpin_now(f.cache, &local);
	pn_cache_unpin_now(f.cache, &other);
	assert_int_equal(put_with(&other), -EACCES);
	close_all();
}

/* The layers above end pins in their critical path. */
static void an_unpin_of_pinions_own_leaves_the_end_to_the_worker(void **state)
{
	struct pinion_cache_stats stats;
	struct pinion_pin p;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	pn_cache_set_stepped(f.cache, true);
	assert_ok(pin(0, 1, EXPOSED | PINION_PIN_BYPASS, &p));
	pn_cache_unpin(f.cache, &p);
	pn_cache_query(f.cache, &stats);
	assert_int_equal(stats.deregistrations, 0);
	pn_cache_step(f.cache);
	assert_int_equal(put_with(&p), -EACCES);
	close_all();
}

static int refuse_rekey(struct pn_device *device, struct pn_mr *mr)
{
	(void)device;
	(void)mr;
	return -EOPNOTSUPP;
}

/* The key of what is in use stays good, and the region lives no longer for
 * having been asked. */
static void a_device_that_cannot_rekey_keeps_the_keys_in_use(void **state)
{
	const struct pn_device_ops *real;
	struct pn_device_ops ops;
	struct pinion_pin p;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	real = f.device->ops;
	ops = *real;
	ops.rekey = refuse_rekey;
	f.device->ops = &ops;
	f.device->caps &= ~(unsigned)PN_CAP_REKEY;
	assert_ok(pin(0, 1, EXPOSED, &p));
	assert_int_equal(pn_cache_revoke(f.cache, (uintptr_t)f.mem, PAGE),
			 -EBUSY);
	assert_ok(put_with(&p));
	pn_cache_unpin(f.cache, &p);
	assert_ok(pn_cache_revoke(f.cache, (uintptr_t)f.mem, PAGE));
	assert_int_equal(atomic_load(&f.budget.bytes), 0);
	f.device->ops = real;
	close_all();
}

/* --- limits of the device ------------------------------------------------ */

/* It takes three pages and a bit: three it is. */
static void regions_are_the_whole_pages_that_the_device_takes(void **state)
{
	struct pn_cache_attr attr = { .no_monitor = true };
	struct pn_cache *cache;
	struct pinion_pin p;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	attr.device = f.device;
	attr.budget = &f.budget;
	f.device->limits.max_mr_bytes = 3 * PAGE + 101;
	assert_ok(pn_cache_open(&attr, &cache));
	assert_ok(pn_cache_pin(cache, f.mem, 7 * PAGE, WRITE, &p));
	assert_int_equal(p.nsegments, 3);
	pn_cache_check(cache);
	pn_cache_unpin(cache, &p);
	pn_cache_close(cache);
	close_all();
}

/* --- exposures ----------------------------------------------------------- */

/* The release of a page that is not exposed, next to ones that are or were,
 * concerns none. */
static void only_a_release_of_exposed_pages_ends_an_exposure(void **state)
{
	struct pn_exposed_memory a, b;
	uintptr_t mem;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	mem = (uintptr_t)f.mem;
	assert_ok(
		pn_cache_expose(f.cache, f.mem + PAGE, 2 * PAGE, EXPOSED, &a));
	assert_ok(pn_cache_expose(f.cache, f.mem + 2 * PAGE + 5, PAGE, EXPOSED,
				  &b));
	pn_cache_check(f.cache);
	pn_cache_invalidate(f.cache, mem, PAGE);
	pn_cache_invalidate(f.cache, mem + 4 * PAGE, PAGE);
	assert_int_equal(atomic_load(&f.cache->exposed.releases), 0);
	pn_cache_invalidate(f.cache, mem + 3 * PAGE, 1);
	pn_cache_revoke_released(f.cache);
	assert_int_equal(atomic_load(&a.state), PN_EXPOSED_LIVE);
	assert_int_equal(atomic_load(&b.state), PN_EXPOSED_REVOKED);
	assert_int_equal(atomic_load(&f.budget.bytes), 2 * PAGE);
	pn_cache_unexpose(f.cache, &b);
	pn_cache_check(f.cache);
	pn_cache_unexpose(f.cache, &a);
	close_all();
}

/* Parts meet on page boundaries, whatever the first byte is. */
static void a_long_exposure_has_registrations_of_whole_pages(void **state)
{
	struct pn_exposed_memory e;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	f.device->limits.max_mr_bytes = 2 * PAGE + 8;
	assert_ok(pn_cache_expose(f.cache, f.mem + 10, 5 * PAGE, EXPOSED, &e));
	assert_int_equal(e.nmrs, 3);
	assert_int_equal(e.parts[0].len, 2 * PAGE - 10);
	assert_int_equal(e.parts[1].len, 2 * PAGE);
	assert_int_equal(e.parts[2].len, PAGE + 10);
	assert_int_equal(atomic_load(&f.budget.bytes), 6 * PAGE);
	assert_int_equal(atomic_load(&f.budget.regions), 3);
	pn_cache_unexpose(f.cache, &e);
	/* Seven registrations surely do, whatever the first byte is. */
	assert_ok(pn_cache_expose(f.cache, f.mem + 10, 14 * PAGE - 1, EXPOSED,
				  &e));
	assert_int_equal(e.nmrs, 8);
	pn_cache_unexpose(f.cache, &e);
	assert_int_equal(pn_cache_expose(f.cache, f.mem, 14 * PAGE, EXPOSED,
					 &e),
			 -EINVAL);
	close_all();
}

/* More notices than the ring holds: which exposures they concern is not known,
 * so all go; but what is exposed from then on lives. */
static void after_a_flood_of_releases_new_exposures_live(void **state)
{
	struct pn_exposed_memory before, after;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	assert_ok(pn_cache_expose(f.cache, f.mem, PAGE, EXPOSED, &before));
	for (unsigned i = 0; i < PN_NOTICE_RING; i++)
		pn_cache_invalidate(f.cache, (uintptr_t)f.mem, PAGE);
	pn_cache_revoke_released(f.cache);
	assert_int_equal(atomic_load(&before.state), PN_EXPOSED_REVOKED);
	assert_ok(
		pn_cache_expose(f.cache, f.mem + PAGE, PAGE, EXPOSED, &after));
	touch(10, 1);
	pn_cache_invalidate(f.cache, (uintptr_t)f.mem, 1);
	pn_cache_revoke_released(f.cache);
	touch(10, 1);
	assert_int_equal(atomic_load(&after.state), PN_EXPOSED_LIVE);
	pn_cache_check(f.cache);
	pn_cache_unexpose(f.cache, &before);
	pn_cache_unexpose(f.cache, &after);
	close_all();
}

/* --- without membarrier --------------------------------------------------- */

static bool no_barrier;

bool __real_pn_asymmetric_init(void);
bool __wrap_pn_asymmetric_init(void);

bool __wrap_pn_asymmetric_init(void)
{
	return __real_pn_asymmetric_init() && !no_barrier;
}

/* Evicting could not see the slots of those that do not. */
static void where_the_kernel_has_no_barrier_every_pin_takes_the_lock(
	void **state)
{
	(void)state;
	no_barrier = true;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	no_barrier = false;
	assert_int_equal(atomic_load(&f.cache->slow_reasons), 1);
	touch(0, 1);
	release(0);
	touch(0, 1);
	touch(0, 1);
	assert_int_equal(registrations(), 2);
	assert_int_equal(atomic_load(&f.cache->slow_reasons), 1);
	close_all();
}

/* --- hints --------------------------------------------------------------- */

static bool covers(size_t first, size_t n, unsigned flags)
{
	return pn_cache_covers(f.cache, f.mem + first * PAGE, n * PAGE, flags);
}

static bool holds(size_t page)
{
	return pn_cache_holds(f.cache, f.mem + page * PAGE);
}

static void hints_say_what_a_pin_would_find(void **state)
{
	struct pinion_pin begun;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	assert_false(holds(2) || covers(2, 1, WRITE));
	touch(2, 2);
	touch(4, 1);
	assert_true(holds(2) && holds(3) && holds(4));
	assert_false(holds(1) || holds(5));
	assert_true(covers(2, 3, WRITE) && covers(3, 1, WRITE));
	assert_false(covers(1, 2, WRITE) || covers(4, 2, WRITE));
	assert_false(covers(2, 0, WRITE));
	assert_false(covers(2, 1, EXPOSED));
	/* Not yet registered is not registered. */
	assert_int_equal(pn_cache_pin_start(f.cache, f.mem + 8 * PAGE, PAGE,
					    WRITE, &begun),
			 -EINPROGRESS);
	assert_false(holds(8) || covers(8, 1, WRITE));
	assert_ok(pn_cache_pin_wait(f.cache, &begun));
	assert_true(holds(8) && covers(8, 1, WRITE));
	pn_cache_unpin(f.cache, &begun);
	pn_cache_invalidate(f.cache, (uintptr_t)f.mem + 4 * PAGE, 1);
	assert_false(holds(4) || covers(2, 3, WRITE));
	assert_true(holds(3) && covers(2, 2, WRITE));
	close_all();
}

/* The lock is not recursive: a hint that takes it would never return. */
static void hints_take_no_lock(void **state)
{
	bool cached, partly, uncached, lacking, held;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	touch(2, 2);
	touch(4, 1);
	pn_lock(&f.cache->lock);
	cached = covers(2, 3, WRITE);
	partly = covers(4, 2, WRITE);
	uncached = covers(8, 1, WRITE);
	lacking = covers(2, 1, EXPOSED);
	held = holds(4);
	pn_unlock(&f.cache->lock);
	assert_true(cached && held);
	assert_false(partly || uncached || lacking);
	close_all();
}

static void a_hint_holds_no_region_and_counts_as_no_use(void **state)
{
	struct pinion_pin pins[2];

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, 2);
	touch(0, 1);
	touch(2, 1);
	for (unsigned i = 0; i < 100; i++)
		assert_true(covers(0, 1, WRITE));
	/* The oldest goes, though it was asked about. */
	touch(4, 1);
	assert_false(covers(0, 1, WRITE));
	assert_true(covers(2, 1, WRITE));
	pn_cache_flush(f.cache);
	assert_int_equal(f.cache->dying.n, 0);
	assert_int_equal(atomic_load(&f.budget.bytes), 0);
	/* While the thread holds pins, too. */
	for (unsigned i = 0; i < 2; i++)
		assert_ok(pin(2 * i, 1, WRITE, &pins[i]));
	assert_true(covers(0, 1, WRITE) && covers(2, 1, WRITE));
	for (unsigned i = 0; i < 2; i++)
		pn_cache_unpin(f.cache, &pins[i]);
	close_all();
}

/* --- pins that only hit --------------------------------------------------- */

static int pin_hit(size_t first, size_t n, unsigned flags,
		   struct pinion_pin *out)
{
	return pn_cache_pin_hit(f.cache, f.mem + first * PAGE, n * PAGE, flags,
				out);
}

static void a_pin_that_only_hits_registers_nothing(void **state)
{
	struct pinion_pin p, begun;
	uint64_t before;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	touch(2, 2);
	touch(4, 1);
	before = registrations();
	assert_ok(pin_hit(2, 3, WRITE, &p));
	assert_int_equal(p.nsegments, 2);
	/* In use, as with any other pin. */
	pn_cache_flush(f.cache);
	assert_true(covers(2, 3, WRITE));
	pn_cache_unpin(f.cache, &p);
	assert_int_equal(pin_hit(1, 2, WRITE, &p), -ENOENT);
	assert_int_equal(pin_hit(4, 2, WRITE, &p), -ENOENT);
	assert_int_equal(pin_hit(8, 1, WRITE, &p), -ENOENT);
	/* What allows too little stays as it is. */
	assert_int_equal(pin_hit(2, 1, EXPOSED, &p), -ENOENT);
	assert_true(covers(2, 3, WRITE));
	/* It does not wait for what is being registered. */
	assert_int_equal(pn_cache_pin_start(f.cache, f.mem + 8 * PAGE, PAGE,
					    WRITE, &begun),
			 -EINPROGRESS);
	assert_int_equal(pin_hit(8, 1, WRITE, &p), -ENOENT);
	assert_int_equal(registrations(), before);
	assert_ok(pn_cache_pin_wait(f.cache, &begun));
	pn_cache_unpin(f.cache, &begun);
	assert_int_equal(pin_hit(2, 0, WRITE, &p), -EINVAL);
	close_all();
}

/* A look with pn_cache_covers() and a pin behind it would register the memory
 * that is just being released. */
static void a_pin_that_only_hits_does_not_bring_back_what_was_released(
	void **state)
{
	struct pinion_pin p;
	uint64_t before;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true }, NPAGES);
	touch(2, 3);
	before = registrations();
	assert_true(covers(2, 3, WRITE));
	release(3);
	assert_int_equal(pin_hit(2, 3, WRITE, &p), -ENOENT);
	assert_int_equal(registrations(), before);
	assert_false(covers(2, 1, WRITE));
	close_all();
}

/* --- the worker ----------------------------------------------------------- */

static void assert_told(void)
{
	assert_true(f.cache->dying.n > 0);
	assert_false(atomic_load(&f.cache->worker.wanted));
}

/* It would sleep, and they stay pinned, until something else happens. */
static void who_lets_regions_die_notifies_the_worker(void **state)
{
	struct pinion_pin p;

	(void)state;
	open_with((struct pn_cache_attr){ .no_merge = true,
					  .no_worker = true,
					  .batch = 64 },
		  NPAGES);
	touch(0, 8);
	touch(20, 1);
	release(0);
	assert_false(covers(0, 1, WRITE));
	assert_told();
	release(20);
	assert_ok(pin(10, 1, WRITE, &p));
	assert_told();
	release(10);
	pn_cache_unpin(f.cache, &p);
	pn_cache_revoke_released(f.cache);
	assert_told();
	close_all();
}

/* --- background_tasks
 * -------------------------------------------------------------- */

static struct {
	struct pn_background_task background_task;
	unsigned nsteps, ngives, depth;
	bool nested;
} work;

static uint64_t do_work(void *arg)
{
	(void)arg;
	work.nsteps++;
	work.nested |= work.depth++ > 0;
	if (work.nsteps < 4) {
		/* There is more to do, and somebody else asks who does it. */
		pn_cache_task_schedule(f.cache, &work.background_task, 0);
		pn_cache_step(f.cache);
		pn_tasks_shrink(f.cache);
	}
	work.depth--;
	return PN_FOREVER;
}

static size_t give_work(void *arg)
{
	(void)arg;
	work.ngives++;
	work.nested |= work.depth > 0;
	pn_tasks_shrink(f.cache); /* as whoever wants room meanwhile does */
	return 0;
}

static void a_background_task_does_one_thing_at_a_time(void **state)
{
	(void)state;
	open_with((struct pn_cache_attr){ .no_worker = true }, NPAGES);
	/* What is the cache's to set is the cache's to set. */
	memset(&work, 0xff, sizeof(work));
	work.background_task.step = do_work;
	work.background_task.shrink = give_work;
	work.background_task.shrink_round =
		1; /* which is the first round's number */
	work.nsteps = work.ngives = work.depth = 0;
	work.nested = false;
	pn_cache_task_add(f.cache, &work.background_task);
	pn_tasks_shrink(f.cache);
	assert_int_equal(work.ngives, 1);
	assert_true(pn_cache_step(f.cache) == PN_FOREVER);
	assert_int_equal(work.nsteps, 0);
	pn_cache_task_schedule(f.cache, &work.background_task, 0);
	for (unsigned i = 1; i <= 4; i++) {
		assert_true(pn_cache_step(f.cache) != PN_FOREVER);
		assert_int_equal(work.nsteps, i);
	}
	assert_true(pn_cache_step(f.cache) == PN_FOREVER);
	assert_false(work.nested);
	assert_int_equal(work.ngives, 1);
	pn_tasks_shrink(f.cache);
	pn_tasks_shrink(f.cache);
	assert_int_equal(work.ngives, 3);
	pn_cache_task_remove(f.cache, &work.background_task);
	pn_tasks_shrink(f.cache);
	assert_int_equal(work.ngives, 3);
	close_all();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_miss_plans_once_when_nothing_blocks_it),
		TEST(a_full_budget_costs_a_miss_one_more_plan),
		TEST(reclaiming_many_small_regions_takes_no_more_than_needed),
		TEST(every_policy_drops_what_was_released),
		TEST(a_buffer_of_many_regions_without_room_is_refused),
		TEST(a_list_without_room_for_all_is_refused),
		TEST(too_few_regions_are_refused_as_too_few_bytes_are),
		TEST(merging_neighbours_never_costs_a_pin),
		TEST(what_peers_may_access_is_not_merged_with_what_they_may_not),
		TEST(what_was_merged_may_be_written_as_before),
		TEST(access_of_a_segment_does_not_spread_over_the_buffer),
		TEST(a_pin_blocked_by_an_asynchronous_one_carries_it_out),
		TEST(cached_segments_can_be_used_before_the_others),
		TEST(two_asynchronous_pins_end_in_either_order),
		TEST(no_region_is_less_than_a_page),
		TEST(a_buffer_of_more_segments_than_free_slots_is_pinned),
		TEST(nothing_is_published_while_a_release_is_in_flight),
		TEST(more_releases_in_flight_than_entries_end_publishing),
		TEST(a_lost_notice_makes_pending_regions_stale),
		TEST(a_release_that_has_ended_concerns_nobody),
		TEST(keys_of_regions_that_are_dying_are_revoked),
		TEST(keys_of_bypassing_pins_are_revoked),
		TEST(an_unpin_ends_all_keys_of_a_bypassing_pin),
		TEST(an_unpin_of_pinions_own_leaves_the_end_to_the_worker),
		TEST(a_device_that_cannot_rekey_keeps_the_keys_in_use),
		TEST(regions_are_the_whole_pages_that_the_device_takes),
		TEST(only_a_release_of_exposed_pages_ends_an_exposure),
		TEST(a_long_exposure_has_registrations_of_whole_pages),
		TEST(after_a_flood_of_releases_new_exposures_live),
		TEST(where_the_kernel_has_no_barrier_every_pin_takes_the_lock),
		TEST(hints_say_what_a_pin_would_find),
		TEST(hints_take_no_lock),
		TEST(a_hint_holds_no_region_and_counts_as_no_use),
		TEST(a_pin_that_only_hits_registers_nothing),
		TEST(a_pin_that_only_hits_does_not_bring_back_what_was_released),
		TEST(who_lets_regions_die_notifies_the_worker),
		TEST(a_background_task_does_one_thing_at_a_time),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	return RUN_TESTS(tests);
}
