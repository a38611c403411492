/* SPDX-License-Identifier: BSD-2-Clause */
/* Pools of objects, and registered memory behind them, over caches on `sim`. */
#include "test.h"

#include <errno.h>
#include <string.h>

#include "device/sim/sim.h"
#include "message/endpoint/endpoint.h"
#include "message/endpoint/pool.h"

#define LEN ((size_t)10 << 12)

struct object {
	uint64_t value;
	struct pn_list link;
};

/* An endpoint as far as pools look at it: two rails with a cache each. */
static struct {
	struct pn_sim *sim;
	struct pn_budget budget;
	struct pinion_endpoint ep;
} f;

static void open_with(const char *params)
{
	struct pn_cache_attr attr = { .no_monitor = true, .no_worker = true };

	assert_ok(pn_sim_open(params, NULL, &f.sim));
	pn_budget_init(&f.budget, pn_sim_device(f.sim, 0), 4 * LEN, 0, 1);
	memset(&f.ep, 0, sizeof(f.ep));
	f.ep.nrails = 2;
	f.ep.pages.numa_node = -1;
	attr.budget = &f.budget;
	for (unsigned r = 0; r < 2; r++) {
		attr.device = pn_sim_device(f.sim, r);
		assert_ok(pn_cache_open(&attr, &f.ep.rails[r].cache));
	}
}

static void close_all(void)
{
	for (unsigned r = 0; r < 2; r++)
		pn_cache_close(f.ep.rails[r].cache);
	assert_int_equal(atomic_load(&f.budget.bytes), 0);
	pn_sim_close(f.sim);
}

static void growing_pool_returns_the_last_object_put(void **state)
{
	struct pn_pool pool;
	struct object *a, *b;

	(void)state;
	PN_POOL_INIT(&pool, struct object, link, 16);
	a = pn_pool_get(&pool);
	b = pn_pool_get(&pool);
	assert_non_null(a);
	assert_non_null(b);
	assert_int_equal(a->value, 0);
	memset(a + 1, 0xff, 16);
	a->value = 7;
	pn_pool_put(&pool, b);
	pn_pool_put(&pool, a);
	assert_ptr_equal(pn_pool_get(&pool), a);
	assert_int_equal(a->value, 7);
	assert_ptr_equal(pn_pool_get(&pool), b);
	pn_pool_put(&pool, a);
	pn_pool_put(&pool, b);
	pn_pool_fini(&pool);
}

static void fixed_pool_refuses_one_more(void **state)
{
	struct pn_pool pool;
	struct object *first;

	(void)state;
	PN_POOL_INIT(&pool, struct object, link, 0);
	assert_ok(pn_pool_fix(&pool, 3));
	first = pn_pool_get(&pool);
	assert_ptr_equal(first, pn_pool_at(&pool, 0));
	assert_ptr_equal(pn_pool_get(&pool), pn_pool_at(&pool, 1));
	assert_ptr_equal(pn_pool_get(&pool), pn_pool_at(&pool, 2));
	assert_null(pn_pool_get(&pool));
	pn_pool_put(&pool, first);
	assert_ptr_equal(pn_pool_get(&pool), first);
	pn_pool_fini(&pool);
	PN_POOL_INIT(&pool, struct object, link, 0);
	assert_ok(pn_pool_fix(&pool, 0));
	assert_null(pn_pool_get(&pool));
	pn_pool_fini(&pool);
}

static void memory_is_registered_on_each_rail(void **state)
{
	const struct pn_pool_memory_attr attr = { .len = LEN, .nrails = 2 };
	struct pn_pool_memory memory = { 0 };

	(void)state;
	open_with("nodes=2");
	assert_ok(pn_pool_memory_open(&memory, &f.ep, &attr));
	assert_true(pn_pool_memory_is_open(&memory));
	assert_ptr_equal(memory.mrs[0].addr, memory.mrs[1].addr);
	assert_int_equal(pn_pool_memory_bytes(&memory), LEN);
	assert_int_equal(atomic_load(&f.budget.bytes), 2 * LEN);
	memset(pn_pool_memory_addr(&memory), 1, LEN);
	pn_pool_memory_close(&memory);
	assert_false(pn_pool_memory_is_open(&memory));
	pn_pool_memory_close(&memory);
	close_all();
}

static void memory_that_one_rail_refuses_is_nowhere_registered(void **state)
{
	const struct pn_pool_memory_attr attr = { .len = 3 * LEN,
						  .nrails = 2,
						  .strict = true };
	struct pn_pool_memory memory = { 0 };

	(void)state;
	open_with("nodes=2");
	assert_int_equal(pn_pool_memory_open(&memory, &f.ep, &attr), -ENOBUFS);
	assert_false(pn_pool_memory_is_open(&memory));
	assert_int_equal(pn_pool_memory_bytes(&memory), 0);
	assert_int_equal(atomic_load(&f.budget.bytes), 0);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(growing_pool_returns_the_last_object_put),
		cmocka_unit_test(fixed_pool_refuses_one_more),
		cmocka_unit_test(memory_is_registered_on_each_rail),
		cmocka_unit_test(
			memory_that_one_rail_refuses_is_nowhere_registered),
	};

	return RUN_TESTS(tests);
}
