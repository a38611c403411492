/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The cache without memory: every allocation of an operation fails once, the
 * first, the second and so on, until the operation succeeds. Each time it
 * returns -ENOMEM, holds nothing, and works the next time. The linker puts the
 * test in front of malloc() and similar functions. On `sim`, without a worker
 * and, except for the last test, without a monitor.
 */
#include "test.h"

#include <errno.h>
#include <sys/mman.h>

#include "allocations.h"
#include "base/log.h"
#include "cache/cache_impl.h"
#include "cache/exposed_memory.h"
#include "device/sim/sim.h"

#define PAGE   PN_PAGE_BYTES
#define NPAGES 256
#define WRITE  PINION_ACCESS_LOCAL_WRITE
#define REMOTE (PINION_ACCESS_REMOTE_WRITE | WRITE)

/* --- allocations --------------------------------------------------------- */

static unsigned fail_in; /* the one after so many fails; 0: none */

static bool test_may_allocate(void *caller)
{
	(void)caller;
	return !fail_in || --fail_in;
}

/* --- the cache ----------------------------------------------------------- */

static struct {
	struct pn_sim *sim;
	struct pn_device *device;
	struct pn_budget budget;
	struct pn_cache *cache;
	char *mem;
} f;

static int open_cache(void)
{
	const struct pn_cache_attr attr = { .device = f.device,
					    .budget = &f.budget,
					    .max_region_bytes = PAGE,
					    .no_monitor = true,
					    .no_worker = true };

	return pn_cache_open(&attr, &f.cache);
}

static int setup(void **state)
{
	(void)state;
	assert_ok(pn_sim_open("cost=none", NULL, &f.sim));
	f.device = pn_sim_device(f.sim, 0);
	pn_budget_init(&f.budget, f.device, NPAGES * PAGE, 0, 1);
	f.mem = mmap(NULL, NPAGES * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(f.mem != MAP_FAILED);
	pn_thread_self(); /* a thread without memory for that ends */
	return open_cache();
}

static int teardown(void **state)
{
	(void)state;
	pn_cache_close(f.cache);
	assert_int_equal(atomic_load(&f.budget.bytes), 0);
	assert_int_equal(atomic_load(&f.budget.regions), 0);
	pn_sim_close(f.sim);
	munmap(f.mem, NPAGES * PAGE);
	return 0;
}

static void nothing_is_held(void)
{
	pn_cache_check(f.cache);
	pn_cache_flush(f.cache);
	assert_int_equal(atomic_load(&f.budget.bytes), 0);
	assert_int_equal(atomic_load(&f.budget.regions), 0);
}

/* Fails every allocation of `act` in turn; how often `act` failed. The cache
 * takes a failure inside the device for a lack of room there, and tries again
 * if it could evict something. */
static unsigned fail_each(int (*act)(void))
{
	unsigned nfailed = 0;

	for (unsigned i = 1;; i++) {
		bool spent;
		int ret;

		fail_in = i;
		ret = act();
		spent = !fail_in;
		fail_in = 0;
		nothing_is_held();
		if (!spent) {
			assert_ok(ret);
			return nfailed;
		}
		if (ret)
			assert_true(ret == -ENOMEM || ret == -ENOBUFS);
		nfailed += !!ret;
	}
}

/* --- operations ---------------------------------------------------------- */

/* Buffers of one segment, of several, of one again, of more than a plan has
 * room for without malloc(). */
static int pin_several(void)
{
	static const unsigned npages[] = { 1, 3, 1, 12 };
	struct pinion_pin pins[PN_ARRAY_LEN(npages)];
	struct iovec list[PN_ARRAY_LEN(npages)];
	char *at = f.mem;
	int ret;

	for (unsigned i = 0; i < PN_ARRAY_LEN(list); i++) {
		list[i] = (struct iovec){ at, npages[i] * PAGE };
		at += (npages[i] + 1) * PAGE;
	}
	ret = pn_cache_pin_list(f.cache, list, PN_ARRAY_LEN(list), WRITE, pins);
	for (unsigned i = 0; !ret && i < PN_ARRAY_LEN(list); i++) {
		assert_int_equal(pins[i].nsegments, npages[i]);
		pn_cache_unpin(f.cache, &pins[i]);
	}
	return ret;
}

static void a_list_is_pinned_as_a_whole_or_not_at_all(void **state)
{
	(void)state;
	/* The list of firsts, segments and regions twice each, two pins. */
	assert_true(fail_each(pin_several) >= 7);
	nothing_is_held();
	assert_ok(pin_several());
}

static int begin_and_end(void)
{
	struct pinion_pin p;
	int ret = pn_cache_pin_start(f.cache, f.mem, 9 * PAGE, WRITE, &p);

	if (ret == -EINPROGRESS)
		ret = pn_cache_pin_wait(f.cache, &p);
	if (!ret) {
		assert_int_equal(p.nsegments, 9);
		pn_cache_unpin(f.cache, &p);
	}
	return ret;
}

static void a_pin_that_cannot_be_begun_or_ended_leaves_nothing(void **state)
{
	(void)state;
	assert_true(fail_each(begin_and_end) >= 5);
	nothing_is_held();
	assert_ok(begin_and_end());
}

/* All slots of the thread are taken, so that it needs more of them. */
static int pin_one_more(void)
{
	struct pinion_pin held[64], more;
	unsigned n = fail_in;
	int ret;

	fail_in = 0;
	for (unsigned i = 0; i < PN_ARRAY_LEN(held); i++)
		assert_ok(pn_cache_pin(f.cache, f.mem + i * PAGE, PAGE, WRITE,
				       &held[i]));
	fail_in = n;
	ret = pn_cache_pin(f.cache, f.mem + 100 * PAGE, PAGE, WRITE, &more);
	if (!ret)
		pn_cache_unpin(f.cache, &more);
	for (unsigned i = 0; i < PN_ARRAY_LEN(held); i++)
		pn_cache_unpin(f.cache, &held[i]);
	return ret;
}

static void a_pin_without_a_slot_is_refused(void **state)
{
	(void)state;
	assert_true(fail_each(pin_one_more) >= 1);
	nothing_is_held();
	assert_ok(pin_one_more());
}

static int pin_page(unsigned i, struct pinion_pin *out)
{
	return pn_cache_pin(f.cache, f.mem + i * PAGE, PAGE, WRITE, out);
}

/* Freed slots, however old, are used before new ones are added; those of other
 * threads are not. */
static void freed_slots_are_taken_first(void **state)
{
	struct pinion_pin held[NPAGES];
	unsigned n = 0;

	(void)state;
	/* Registered beforehand: then a pin wants memory for its slot alone. */
	for (unsigned i = 0; i < NPAGES; i++) {
		assert_ok(pin_page(i, &held[0]));
		pn_cache_unpin(f.cache, &held[0]);
	}
	for (; n < 100; n++) /* more slots than at first */
		assert_ok(pin_page(n, &held[n]));
	for (fail_in = 1; n < NPAGES && !pin_page(n, &held[n]); n++)
		fail_in = 1;
	assert_int_equal(n, 64 + 128);
	pn_cache_unpin(f.cache, &held[30]);
	fail_in = 1;
	assert_ok(pin_page(30, &held[30]));
	fail_in = 0;
	pn_cache_flush(f.cache);
	assert_int_equal(f.cache->stats->regions, n);
	while (n)
		pn_cache_unpin(f.cache, &held[--n]);
	nothing_is_held();
}

static int expose_one(void)
{
	struct pn_exposed_memory e;
	int ret = pn_cache_expose(f.cache, f.mem, 2 * PAGE, REMOTE, &e);

	if (!ret)
		pn_cache_unexpose(f.cache, &e);
	return ret;
}

static void an_exposure_is_whole_or_none(void **state)
{
	(void)state;
	fail_each(expose_one);
	nothing_is_held();
	assert_ok(expose_one());
}

static int open_another(void)
{
	struct pn_cache *first = f.cache;
	int ret = open_cache();

	if (!ret) {
		ret = pin_several();
		pn_cache_close(f.cache);
	}
	f.cache = first;
	return ret;
}

static void a_cache_opens_and_pins_or_leaves_nothing(void **state)
{
	(void)state;
	/* The pins above, the cache, its policy, slots. */
	assert_true(fail_each(open_another) >= 10);
	assert_ok(open_another());
}

/* A cache that is not exported keeps no table. */
static void only_an_exported_cache_knows_its_largest_regions(void **state)
{
	(void)state;
	assert_null(f.cache->largest);
}

/* --- address space ------------------------------------------------------- */

/* Of this process, in bytes; a cache reserves much more than this moves by
 * itself. */
static size_t reserved(void)
{
	return test_mapped_pages() * PAGE;
}

#define A_CACHE (PN_CACHE_MAX_REGIONS * sizeof(struct pn_region))

static void caches_too_many_leave_no_address_space_behind(void **state)
{
	static int keys[PN_THREAD_KEYS];
	struct pn_cache *first = f.cache;
	unsigned n = 0;
	size_t before;

	(void)state;
	before = reserved();
	while ((keys[n] = pn_thread_key_alloc(NULL)) >= 0)
		n++;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(open_cache(), -EMFILE);
	while (n)
		pn_thread_key_free(keys[--n]);
	f.cache = first;
	assert_true(reserved() < before + A_CACHE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_list_is_pinned_as_a_whole_or_not_at_all),
		TEST(a_pin_that_cannot_be_begun_or_ended_leaves_nothing),
		TEST(a_pin_without_a_slot_is_refused),
		TEST(an_exposure_is_whole_or_none),
		TEST(freed_slots_are_taken_first),
		TEST(a_cache_opens_and_pins_or_leaves_nothing),
		TEST(only_an_exported_cache_knows_its_largest_regions),
		TEST(caches_too_many_leave_no_address_space_behind),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
