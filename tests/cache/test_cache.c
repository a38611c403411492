/* SPDX-License-Identifier: BSD-2-Clause */
/* The cache over `sim`, one thing at a time. */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/range.h"
#include "cache/cache.h"
#include "device/sim/sim.h"

#define PAGE	PN_PAGE_BYTES
#define NPAGES	256
#define WRITE	PINION_ACCESS_LOCAL_WRITE
#define EXPOSED PINION_ACCESS_REMOTE_WRITE

struct fixture {
	struct pn_sim *sim;
	struct pn_device *device;
	struct pn_budget budget;
	struct pn_cache *cache;
	char *mem; /* NPAGES, one mapping */
};

static struct fixture f;

static void open_with(const char *params, const char *script,
		      struct pn_cache_attr attr)
{
	assert_ok(pn_sim_open(params, script, &f.sim));
	f.device = pn_sim_device(f.sim, 0);
	pn_budget_init(&f.budget, f.device, NPAGES * PAGE, 0, 1);
	attr.device = f.device;
	attr.budget = &f.budget;
	attr.no_monitor = true;
	assert_ok(pn_cache_open(&attr, &f.cache));
	assert_ok(pn_pages_map(NPAGES * PAGE, NULL, (void **)&f.mem));
	memset(f.mem, 1, NPAGES * PAGE);
}

static void close_all(void)
{
	struct pn_pinned pinned;

	pn_cache_close(f.cache);
	assert_int_equal(atomic_load(&f.budget.bytes), 0);
	assert_int_equal(atomic_load(&f.budget.regions), 0);
	pn_device_pinned(f.device, &pinned);
	assert_int_equal(pinned.mrs, 0);
	pn_sim_close(f.sim);
	pn_pages_unmap(f.mem, NPAGES * PAGE, NULL);
}

static int setup(void **state)
{
	(void)state;
	open_with("cost=none", NULL,
		  (struct pn_cache_attr){ .no_merge = true });
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close_all();
	return 0;
}

static struct pinion_cache_stats stats(void)
{
	struct pinion_cache_stats s;

	pn_cache_check(f.cache);
	pn_cache_query(f.cache, &s);
	return s;
}

/* Pins pages [first, first + n). */
static int pin(size_t first, size_t n, struct pinion_pin *out)
{
	return pn_cache_pin(f.cache, f.mem + first * PAGE, n * PAGE, WRITE,
			    out);
}

static void touch(size_t first, size_t n)
{
	struct pinion_pin p;

	assert_ok(pin(first, n, &p));
	pn_cache_unpin(f.cache, &p);
}

static void pinning_twice_registers_once(void **state)
{
	(void)state;
	touch(3, 2);
	touch(3, 2);
	assert_int_equal(stats().registrations, 1);
	assert_int_equal(stats().hits, 1);
	assert_int_equal(stats().misses_new, 1);
	assert_int_equal(stats().bytes, 2 * PAGE);
}

static void lookup_inside_region_hits(void **state)
{
	struct pinion_pin p;

	(void)state;
	touch(3, 5);
	assert_ok(pn_cache_pin(f.cache, f.mem + 4 * PAGE + 7, PAGE + 1, WRITE,
			       &p));
	assert_int_equal(p.nsegments, 1);
	assert_int_not_equal(p.local_key, 0);
	pn_cache_unpin(f.cache, &p);
	assert_int_equal(stats().registrations, 1);
}

static void bytes_of_one_page_share_its_region(void **state)
{
	struct pinion_pin a, b;

	(void)state;
	assert_ok(pn_cache_pin(f.cache, f.mem + 10, 5, WRITE, &a));
	assert_ok(pn_cache_pin(f.cache, f.mem + 100, 5, WRITE, &b));
	assert_int_equal(a.local_key, b.local_key);
	pn_cache_unpin(f.cache, &a);
	pn_cache_unpin(f.cache, &b);
	assert_int_equal(stats().regions, 1);
}

static void intersection_registers_only_the_rest(void **state)
{
	struct pinion_pin_segment segment;
	struct pinion_pin p;

	(void)state;
	touch(2, 2);
	touch(6, 1);
	assert_ok(pin(1, 8, &p));
	assert_int_equal(p.nsegments, 5);
	for (unsigned i = 0, page = 1; i < p.nsegments; i++) {
		assert_ok(pn_cache_pin_segment(&p, i, &segment));
		assert_ptr_equal(segment.addr, f.mem + page * PAGE);
		page += (unsigned)(segment.len / PAGE);
	}
	assert_int_equal(pn_cache_pin_segment(&p, 5, &segment), -EINVAL);
	assert_int_equal(stats().registered_bytes, 8 * PAGE);
	assert_int_equal(stats().misses_partial, 1);
	pn_cache_unpin(f.cache, &p);
	touch(1, 8);
	assert_int_equal(stats().registered_bytes, 8 * PAGE);
	assert_int_equal(stats().hits, 1);
}

static void long_ranges_take_several_regions(void **state)
{
	struct pinion_pin p;

	(void)state;
	close_all();
	open_with("", NULL,
		  (struct pn_cache_attr){ .max_region_bytes = 4 * PAGE });
	assert_ok(pin(0, 10, &p));
	assert_int_equal(p.nsegments, 3);
	pn_cache_unpin(f.cache, &p);
	assert_int_equal(stats().regions, 3);
}

static void more_access_registers_anew_and_serves_both(void **state)
{
	struct pinion_pin p, q;

	(void)state;
	assert_ok(pin(0, 1, &p));
	assert_ok(pn_cache_pin(f.cache, f.mem, PAGE, EXPOSED, &q));
	assert_int_not_equal(q.remote_key, 0);
	assert_int_equal(p.remote_key, 0);
	pn_cache_unpin(f.cache, &p);
	pn_cache_unpin(f.cache, &q);
	touch(0, 1);
	assert_int_equal(stats().registrations, 2);
	assert_int_equal(stats().misses_access, 1);
	assert_int_equal(stats().regions, 1);
}

static void strict_order_is_not_served_by_a_relaxed_region(void **state)
{
	struct pinion_pin p;

	(void)state;
	assert_ok(pn_cache_pin(f.cache, f.mem, PAGE,
			       WRITE | PINION_ACCESS_RELAXED, &p));
	pn_cache_unpin(f.cache, &p);
	touch(0, 1);
	assert_int_equal(stats().registrations, 2);
	assert_ok(pn_cache_pin(f.cache, f.mem, PAGE,
			       WRITE | PINION_ACCESS_RELAXED, &p));
	pn_cache_unpin(f.cache, &p);
	assert_int_equal(stats().registrations, 2);
}

static void bypass_leaves_nothing_behind(void **state)
{
	struct pinion_pin p;

	(void)state;
	assert_ok(pn_cache_pin(f.cache, f.mem, PAGE, WRITE | PINION_PIN_BYPASS,
			       &p));
	assert_int_not_equal(p.local_key, 0);
	assert_int_equal(stats().regions, 0);
	pn_cache_unpin(f.cache, &p);
	pn_cache_flush(f.cache);
	assert_int_equal(atomic_load(&f.budget.bytes), 0);
	touch(0, 1);
	assert_int_equal(stats().hits, 0);
}

static void bad_arguments_are_refused(void **state)
{
	struct pinion_pin p;

	(void)state;
	assert_int_equal(pn_cache_pin(f.cache, NULL, 1, 0, &p), -EINVAL);
	assert_int_equal(pn_cache_pin(f.cache, f.mem, 0, 0, &p), -EINVAL);
	assert_int_equal(pn_cache_pin(f.cache, f.mem, SIZE_MAX, 0, &p),
			 -EINVAL);
	assert_int_equal(pn_cache_pin(f.cache, f.mem, 1, 1u << 21, &p),
			 -EINVAL);
	touch(0, 1);
	assert_int_equal(pn_cache_pin(f.cache, f.mem, 0, 0, &p), -EINVAL);
	assert_ok(mprotect(f.mem + 5 * PAGE, PAGE, PROT_NONE));
	assert_int_equal(pin(4, 3, &p), -EFAULT);
	assert_int_equal(stats().regions, 1);
	assert_int_equal(atomic_load(&f.budget.bytes) - stats().dying_bytes,
			 PAGE);
}

static void the_budget_is_never_exceeded(void **state)
{
	(void)state;
	pn_budget_resize(&f.budget, 8 * PAGE, 0);
	for (unsigned i = 0; i < 100; i++)
		touch(i, 3);
	assert_true(stats().peak_bytes <= 8 * PAGE);
	assert_true(stats().evictions > 0);
}

static void eviction_spares_regions_in_use(void **state)
{
	struct pinion_pin held, p;

	(void)state;
	pn_budget_resize(&f.budget, 4 * PAGE, 0);
	assert_ok(pin(0, 2, &held));
	for (unsigned i = 10; i < 30; i++)
		touch(i, 1);
	assert_ok(pin(0, 2, &p));
	assert_int_equal(p.local_key, held.local_key);
	pn_cache_unpin(f.cache, &p);
	pn_cache_unpin(f.cache, &held);
}

static void without_room_a_pin_is_refused_and_nothing_lost(void **state)
{
	struct pinion_pin held, p;

	(void)state;
	pn_budget_resize(&f.budget, 4 * PAGE, 0);
	assert_ok(pin(0, 3, &held));
	assert_int_equal(pin(10, 2, &p), -ENOBUFS);
	assert_int_equal(pin(10, 5, &p), -ENOBUFS);
	assert_int_equal(stats().refused, 2);
	touch(20, 1);
	pn_cache_unpin(f.cache, &held);
	touch(10, 4);
}

static void regions_count_as_well_as_bytes(void **state)
{
	(void)state;
	pn_budget_resize(&f.budget, 0, 3);
	for (unsigned i = 0; i < 20; i += 2)
		touch(i, 1);
	assert_int_equal(stats().regions, 3);
}

static void lru_evicts_the_oldest(void **state)
{
	(void)state;
	pn_budget_resize(&f.budget, 3 * PAGE, 0);
	touch(0, 1);
	touch(2, 1);
	touch(4, 1);
	touch(0, 1); /* again: 2 is the oldest now */
	touch(6, 1);
	touch(0, 1);
	touch(4, 1);
	assert_int_equal(stats().registrations, 4);
	touch(2, 1);
	assert_int_equal(stats().registrations, 5);
}

static void shrinking_the_budget_gives_memory_back(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 40; i += 2)
		touch(i, 1);
	pn_budget_resize(&f.budget, 5 * PAGE, 0);
	pn_cache_trim(f.cache);
	assert_true(atomic_load(&f.budget.bytes) <= 5 * PAGE);
	assert_int_equal(stats().regions, 5);
}

static void flush_evicts_all_that_is_not_in_use(void **state)
{
	struct pinion_pin held;

	(void)state;
	assert_ok(pin(0, 1, &held));
	touch(10, 5);
	pn_cache_flush(f.cache);
	assert_int_equal(stats().regions, 1);
	assert_int_equal(atomic_load(&f.budget.bytes), PAGE);
	pn_cache_unpin(f.cache, &held);
}

static void a_device_out_of_memory_makes_the_cache_evict(void **state)
{
	struct pinion_pin p;

	(void)state;
	close_all();
	open_with("limit=16K", NULL, (struct pn_cache_attr){ 0 });
	touch(0, 2);
	touch(10, 2);
	touch(20, 3);
	assert_int_equal(pin(30, 5, &p), -ENOBUFS);
	touch(40, 4);
}

static void a_failing_registration_leaves_nothing_behind(void **state)
{
	struct pinion_pin p;

	(void)state;
	close_all();
	open_with("", "fail registration 2 with EFAULT",
		  (struct pn_cache_attr){ 0 });
	touch(0, 1);
	assert_int_equal(pin(10, 1, &p), -EFAULT);
	pn_cache_flush(f.cache);
	assert_int_equal(atomic_load(&f.budget.bytes), 0);
	touch(10, 1);
}

static void released_memory_is_invalidated(void **state)
{
	(void)state;
	touch(0, 4);
	touch(8, 4);
	pn_cache_invalidate(f.cache, (uintptr_t)f.mem + PAGE, PAGE);
	touch(8, 4);
	assert_int_equal(stats().registrations, 2);
	touch(0, 4);
	assert_int_equal(stats().registrations, 3);
	assert_int_equal(stats().invalidations, 1);
}

static void a_region_in_use_dies_with_its_last_user(void **state)
{
	struct pinion_pin p, q;

	(void)state;
	assert_ok(pin(0, 1, &p));
	pn_cache_invalidate(f.cache, (uintptr_t)f.mem, PAGE);
	assert_ok(pin(0, 1, &q));
	assert_int_not_equal(p.local_key, q.local_key);
	pn_cache_flush(f.cache);
	assert_int_equal(atomic_load(&f.budget.bytes), 2 * PAGE);
	pn_cache_unpin(f.cache, &p);
	pn_cache_flush(f.cache);
	assert_int_equal(atomic_load(&f.budget.bytes), PAGE);
	pn_cache_unpin(f.cache, &q);
}

static void too_many_notices_invalidate_everything(void **state)
{
	(void)state;
	touch(0, 1);
	touch(2, 1);
	for (unsigned i = 0; i < 2000; i++)
		pn_cache_invalidate(f.cache, (uintptr_t)f.mem, PAGE);
	touch(2, 1);
	assert_int_equal(stats().overflows, 1);
	assert_int_equal(stats().registrations, 3);
}

static void unrelated_releases_change_nothing(void **state)
{
	(void)state;
	touch(0, 1);
	pn_cache_invalidate(f.cache, (uintptr_t)f.mem + 50 * PAGE, PAGE);
	pn_cache_invalidate(f.cache, 4096, (size_t)1 << 40);
	pn_cache_invalidate(f.cache, UINTPTR_MAX - 5, 100);
	touch(0, 1);
	assert_int_equal(stats().invalidations, 0);
}

static void a_list_is_pinned_by_one_batch(void **state)
{
	struct iovec list[4];
	struct pinion_pin pins[4];

	(void)state;
	touch(4, 1);
	for (unsigned i = 0; i < 4; i++)
		list[i] = (struct iovec){ f.mem + 2 * i * PAGE, PAGE };
	list[3] = list[1]; /* twice the same */
	assert_ok(pn_cache_pin_list(f.cache, list, 4, WRITE, pins));
	assert_int_equal(pins[1].local_key, pins[3].local_key);
	assert_int_equal(stats().registrations, 3);
	for (unsigned i = 0; i < 4; i++)
		pn_cache_unpin(f.cache, &pins[i]);
	list[2].iov_len = 0;
	assert_int_equal(pn_cache_pin_list(f.cache, list, 4, WRITE, pins),
			 -EINVAL);
	list[2] = (struct iovec){ f.mem, 2 * NPAGES * PAGE };
	assert_int_equal(pn_cache_pin_list(f.cache, list, 4, WRITE, pins),
			 -ENOBUFS);
	assert_int_equal(stats().regions, 3);
}

static void neighbours_grow_together_without_being_quadratic(void **state)
{
	enum { N = 64 };

	(void)state;
	close_all();
	open_with("", NULL, (struct pn_cache_attr){ 0 });
	for (unsigned i = 0; i < N; i++)
		touch(i, 1);
	if (!stats().merges) {
		print_message("this kernel cannot tell mappings apart "
			      "cheaply: nothing is merged\n");
		skip();
	}
	assert_int_equal(stats().regions, 1);
	/* log2(64) + 1 times at the most, not 64 / 2 times. */
	assert_true(stats().registered_bytes <= 7 * N * PAGE);
	touch(0, N);
	assert_int_equal(stats().hits, 1);
}

static void dying_regions_go_after_their_time(void **state)
{
	uint64_t when;

	(void)state;
	close_all();
	open_with("", NULL,
		  (struct pn_cache_attr){ .batch_age_ns = 5 * PN_NS_PER_MS });
	touch(0, 1);
	pn_cache_invalidate(f.cache, (uintptr_t)f.mem, PAGE);
	touch(10, 1);
	assert_int_equal(stats().dying_bytes, PAGE);
	when = pn_cache_step(f.cache);
	assert_true(when != PN_FOREVER);
	assert_int_equal(stats().dying_bytes, PAGE);
	pn_device_consume_cpu(f.device, 6 * PN_NS_PER_MS);
	pn_cache_step(f.cache);
	assert_int_equal(stats().dying_bytes, 0);
	assert_true(pn_cache_step(f.cache) == PN_FOREVER);
}

static void batches_pay_their_fixed_cost_once(void **state)
{
	(void)state;
	close_all();
	open_with("cost=ou2009", NULL,
		  (struct pn_cache_attr){
			  .policy = "fmrd", .batch = 8, .no_merge = true });
	pn_budget_resize(&f.budget, 8 * PAGE, 0);
	for (unsigned i = 0; i < 32; i++)
		touch(2 * i, 1);
	assert_int_equal(stats().deregister_batches, 3);
	assert_int_equal(stats().deregistrations, 24);
}

/* Memory that a pin has for itself does not wait to be deregistered. */
static void what_pins_have_for_themselves_is_no_batch(void **state)
{
	struct pinion_pin own[4];

	(void)state;
	close_all();
	open_with("cost=ou2009", NULL,
		  (struct pn_cache_attr){ .policy = "fmrd",
					  .batch = 8,
					  .batch_bytes = 16 * PAGE,
					  .no_merge = true });
	for (unsigned i = 0; i < PN_ARRAY_LEN(own); i++)
		assert_ok(pn_cache_pin(f.cache, f.mem + (100 + 4 * i) * PAGE,
				       4 * PAGE, WRITE | PINION_PIN_BYPASS,
				       &own[i]));
	assert_int_equal(stats().dying_bytes, 0);
	for (unsigned i = 0; i < 8; i++) {
		touch(2 * i, 1);
		pn_cache_invalidate(f.cache, (uintptr_t)f.mem + 2 * i * PAGE,
				    PAGE);
	}
	pn_cache_step(f.cache);
	assert_int_equal(stats().deregister_batches, 1);
	assert_int_equal(stats().deregistrations, 8);
	for (unsigned i = 0; i < PN_ARRAY_LEN(own); i++)
		pn_cache_unpin(f.cache, &own[i]);
	pn_cache_flush(f.cache);
	assert_int_equal(stats().dying_bytes, 0);
}

static void a_pin_can_be_begun_and_finished_later(void **state)
{
	struct pinion_pin_segment segment;
	struct pinion_pin p;

	(void)state;
	touch(0, 2);
	assert_ok(pn_cache_pin_start(f.cache, f.mem, PAGE, WRITE, &p));
	pn_cache_unpin(f.cache, &p);
	assert_int_equal(pn_cache_pin_start(f.cache, f.mem, 4 * PAGE, WRITE,
					    &p),
			 -EINPROGRESS);
	assert_int_equal(pn_cache_pin_test(f.cache, &p), -EINPROGRESS);
	assert_ok(pn_cache_pin_segment(&p, 0, &segment));
	assert_int_not_equal(segment.local_key, 0);
	assert_int_equal(pn_cache_pin_segment(&p, 1, &segment), -EAGAIN);
	pn_cache_step(f.cache);
	assert_ok(pn_cache_pin_segment(&p, 1, &segment));
	assert_ok(pn_cache_pin_test(f.cache, &p));
	assert_int_equal(p.nsegments, 2);
	pn_cache_unpin(f.cache, &p);
	assert_int_equal(pn_cache_pin_start(f.cache, f.mem + 9 * PAGE, 1, WRITE,
					    &p),
			 -EINPROGRESS);
	assert_ok(pn_cache_pin_wait(f.cache, &p));
	pn_cache_unpin(f.cache, &p);
}

static void revoked_keys_are_refused(void **state)
{
	struct pinion_pin p, q;

	(void)state;
	assert_ok(pn_cache_pin(f.cache, f.mem, PAGE, EXPOSED, &p));
	assert_ok(pn_cache_revoke(f.cache, (uintptr_t)f.mem, 1));
	assert_ok(pn_cache_pin(f.cache, f.mem, PAGE, EXPOSED, &q));
	assert_int_not_equal(p.remote_key, q.remote_key);
	pn_cache_unpin(f.cache, &p);
	pn_cache_unpin(f.cache, &q);
	assert_int_equal(pn_cache_revoke(f.cache, 0, 5), -EINVAL);
}

static void hundreds_of_pins_can_be_held(void **state)
{
	enum { N = 1000 };
	static struct pinion_pin pins[N];

	(void)state;
	for (unsigned i = 0; i < N; i++)
		assert_ok(pin(i % 100, 1, &pins[i]));
	for (unsigned i = 0; i < N; i++)
		pn_cache_unpin(f.cache, &pins[(i * 7) % N]);
	pn_cache_flush(f.cache);
	assert_int_equal(atomic_load(&f.budget.bytes), 0);
}

static void no_such_policy_is_refused(void **state)
{
	struct pn_cache_attr attr = { .device = f.device,
				      .budget = &f.budget,
				      .policy = "coin" };
	struct pn_cache *cache;

	(void)state;
	assert_int_equal(pn_cache_open(&attr, &cache), -EINVAL);
}

/* --- ahead of use and after it -------------------------------------------- */

static struct pn_dropped dropped;

static int drop(size_t first, size_t n)
{
	return pn_cache_drop(f.cache, (uintptr_t)f.mem + first * PAGE, n * PAGE,
			     &dropped);
}

/* What the last drop said. */
static void assert_dropped(size_t first, size_t n, unsigned access)
{
	assert_ptr_equal(dropped.range.addr, f.mem + first * PAGE);
	assert_int_equal(dropped.range.len, n * PAGE);
	assert_int_equal(dropped.access, access);
}

static int prepare(size_t first, size_t n, unsigned access)
{
	return pn_cache_prefetch(f.cache, (uintptr_t)f.mem + first * PAGE,
				 n * PAGE, access);
}

static size_t registered(void)
{
	struct pn_pinned pinned;

	pn_device_pinned(f.device, &pinned);
	return pinned.live_bytes;
}

static void dropping_deregisters_at_once(void **state)
{
	(void)state;
	touch(0, 4);
	touch(4, 4);
	touch(20, 1);
	assert_int_equal(drop(0, 8), 2);
	assert_dropped(0, 8, WRITE);
	/* Not put off until there are enough for a batch. */
	assert_int_equal(registered(), PAGE);
	assert_int_equal(stats().bytes, PAGE);
	assert_int_equal(drop(0, 8), 0);
	assert_dropped(0, 8, WRITE);
	touch(20, 1);
	assert_int_equal(stats().registrations, 3);
}

static void expose(size_t first, size_t n)
{
	struct pinion_pin p;

	assert_ok(pn_cache_pin(f.cache, f.mem + first * PAGE, n * PAGE, EXPOSED,
			       &p));
	pn_cache_unpin(f.cache, &p);
}

/* A page at an edge may be registered for the neighbour: neither are its rights
 * for the whole range, nor is it to be registered again with fewer. */
static void what_was_dropped_has_the_access_of_its_largest_region(void **state)
{
	(void)state;
	touch(0, 4);
	expose(4, 1);
	assert_int_equal(drop(0, 5), 2);
	assert_int_equal(registered(), 0);
	assert_dropped(0, 4, WRITE);

	expose(10, 1);
	touch(11, 2);
	touch(13, 3);
	assert_int_equal(drop(10, 6), 3);
	assert_dropped(11, 5, WRITE);

	touch(20, 1);
	expose(21, 4);
	assert_int_equal(drop(20, 5), 2);
	assert_dropped(21, 4, EXPOSED | WRITE);
}

static void what_sticks_out_of_the_range_is_not_dropped(void **state)
{
	(void)state;
	touch(0, 4);
	touch(4, 2);
	touch(6, 4);
	assert_int_equal(drop(1, 8), 1);
	assert_int_equal(registered(), 8 * PAGE);
	/* The pages that bytes are on belong to their range. */
	assert_int_equal(pn_cache_drop(f.cache, (uintptr_t)f.mem + 7,
				       3 * PAGE + 1, &dropped),
			 1);
	assert_int_equal(registered(), 4 * PAGE);
}

static void a_range_in_use_is_dropped_as_a_whole_or_not_at_all(void **state)
{
	struct pinion_pin p;

	(void)state;
	touch(0, 2);
	assert_ok(pin(2, 2, &p));
	assert_int_equal(drop(0, 4), -EBUSY);
	assert_int_equal(registered(), 4 * PAGE);
	pn_cache_unpin(f.cache, &p);
	assert_int_equal(drop(0, 4), 2);
	assert_int_equal(registered(), 0);
}

static void a_resident_is_not_dropped(void **state)
{
	struct pn_range range = { (uintptr_t)f.mem, 4 * PAGE };
	const struct pn_mr *mr;

	(void)state;
	assert_ok(pn_cache_resident_add(f.cache, range, WRITE, &mr));
	assert_int_equal(drop(0, 8), 0);
	assert_int_equal(registered(), 4 * PAGE);
	pn_cache_resident_remove(f.cache, mr);
}

static void what_was_prefetched_is_found(void **state)
{
	(void)state;
	assert_ok(prepare(3, 5, WRITE));
	assert_int_equal(registered(), 5 * PAGE);
	touch(3, 5);
	touch(4, 1);
	assert_int_equal(stats().registrations, 1);
	assert_int_equal(stats().hits, 2);
}

static void prefetching_again_registers_nothing(void **state)
{
	(void)state;
	touch(3, 5);
	assert_ok(prepare(3, 5, WRITE));
	assert_ok(prepare(4, 2, WRITE));
	assert_int_equal(stats().registrations, 1);
	/* What is cached in part is completed. */
	assert_ok(prepare(3, 8, WRITE));
	assert_int_equal(registered(), 8 * PAGE);
}

static void what_was_dropped_can_be_prefetched_as_it_was(void **state)
{
	struct pinion_pin p;

	(void)state;
	expose(0, 4);
	assert_int_equal(drop(0, 4), 1);
	assert_ok(prepare(0, 4, dropped.access));
	assert_ok(pn_cache_pin(f.cache, f.mem, 4 * PAGE, EXPOSED, &p));
	assert_int_not_equal(p.remote_key, 0);
	pn_cache_unpin(f.cache, &p);
	assert_int_equal(stats().registrations, 2);
	assert_int_equal(stats().hits, 1);
}

static void prefetching_takes_no_more_than_the_budget(void **state)
{
	struct pinion_pin p;

	(void)state;
	pn_budget_resize(&f.budget, 8 * PAGE, 0);
	assert_ok(pin(0, 4, &p));
	touch(10, 4);
	assert_ok(prepare(20, 4, WRITE)); /* in place of what is idle */
	assert_int_equal(registered(), 8 * PAGE);
	assert_int_equal(prepare(30, 5, WRITE), -ENOBUFS);
	pn_cache_unpin(f.cache, &p);
}

static void prefetching_can_fail_and_leaves_nothing_behind(void **state)
{
	(void)state;
	close_all();
	open_with("", "fail registration 1 with EFAULT",
		  (struct pn_cache_attr){ 0 });
	assert_int_equal(prepare(0, 4, WRITE), -EFAULT);
	assert_int_equal(registered(), 0);
	assert_ok(prepare(0, 4, WRITE));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(pinning_twice_registers_once),
		CASE(lookup_inside_region_hits),
		CASE(bytes_of_one_page_share_its_region),
		CASE(intersection_registers_only_the_rest),
		CASE(long_ranges_take_several_regions),
		CASE(more_access_registers_anew_and_serves_both),
		CASE(strict_order_is_not_served_by_a_relaxed_region),
		CASE(bypass_leaves_nothing_behind),
		CASE(bad_arguments_are_refused),
		CASE(the_budget_is_never_exceeded),
		CASE(eviction_spares_regions_in_use),
		CASE(without_room_a_pin_is_refused_and_nothing_lost),
		CASE(regions_count_as_well_as_bytes),
		CASE(lru_evicts_the_oldest),
		CASE(shrinking_the_budget_gives_memory_back),
		CASE(flush_evicts_all_that_is_not_in_use),
		CASE(a_device_out_of_memory_makes_the_cache_evict),
		CASE(a_failing_registration_leaves_nothing_behind),
		CASE(released_memory_is_invalidated),
		CASE(a_region_in_use_dies_with_its_last_user),
		CASE(too_many_notices_invalidate_everything),
		CASE(unrelated_releases_change_nothing),
		CASE(a_list_is_pinned_by_one_batch),
		CASE(neighbours_grow_together_without_being_quadratic),
		CASE(dying_regions_go_after_their_time),
		CASE(batches_pay_their_fixed_cost_once),
		CASE(what_pins_have_for_themselves_is_no_batch),
		CASE(a_pin_can_be_begun_and_finished_later),
		CASE(revoked_keys_are_refused),
		CASE(hundreds_of_pins_can_be_held),
		CASE(no_such_policy_is_refused),
		CASE(dropping_deregisters_at_once),
		CASE(what_was_dropped_has_the_access_of_its_largest_region),
		CASE(what_sticks_out_of_the_range_is_not_dropped),
		CASE(a_range_in_use_is_dropped_as_a_whole_or_not_at_all),
		CASE(a_resident_is_not_dropped),
		CASE(what_was_prefetched_is_found),
		CASE(prefetching_again_registers_nothing),
		CASE(what_was_dropped_can_be_prefetched_as_it_was),
		CASE(prefetching_takes_no_more_than_the_budget),
		CASE(prefetching_can_fail_and_leaves_nothing_behind),
	};

	return RUN_TESTS(tests);
}
