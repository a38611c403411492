/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>

#include "base/index.h"

#define PAGE(n) ((uintptr_t)(n) << PN_PAGE_SHIFT)

static struct pn_range pages(size_t first, size_t n)
{
	return (struct pn_range){ PAGE(first), PAGE(n) };
}

static void an_entry_covers_its_pages_alone(void **state)
{
	struct pn_index index;

	(void)state;
	assert_ok(pn_index_init(&index));
	assert_int_equal(pn_index_get(&index, PAGE(7)), 0);
	assert_ok(pn_index_reserve(&index, pages(7, 2)));
	pn_index_set(&index, pages(7, 2), 42);
	assert_int_equal(pn_index_get(&index, PAGE(7) - 1), 0);
	assert_int_equal(pn_index_get(&index, PAGE(7)), 42);
	assert_int_equal(pn_index_get(&index, PAGE(9) - 1), 42);
	assert_int_equal(pn_index_get(&index, PAGE(9)), 0);
	pn_index_fini(&index);
}

static void ranges_cross_granules(void **state)
{
	size_t edge = PN_INDEX_LEAF_ENTRIES * 5;
	struct pn_index index;

	(void)state;
	assert_ok(pn_index_init(&index));
	assert_ok(pn_index_reserve(&index, pages(edge - 3, 6)));
	pn_index_set(&index, pages(edge - 3, 6), 1);
	assert_int_equal(pn_index_get(&index, PAGE(edge - 3)), 1);
	assert_int_equal(pn_index_get(&index, PAGE(edge + 2)), 1);
	assert_int_equal(pn_index_get(&index, PAGE(edge + 3)), 0);
	assert_int_equal(index.nleaves, 2);
	pn_index_fini(&index);
}

static void next_skips_what_is_empty(void **state)
{
	size_t far = PN_INDEX_LEAF_ENTRIES * 1000;
	struct pn_index index;

	(void)state;
	assert_ok(pn_index_init(&index));
	assert_ok(pn_index_reserve(&index, pages(far, 1)));
	pn_index_set(&index, pages(far, 1), 1);
	assert_int_equal(pn_index_next(&index, pages(1, far + 5)), PAGE(far));
	assert_false(pn_index_any(&index, pages(1, far - 1)));
	assert_true(
		pn_index_any(&index, (struct pn_range){ PAGE(far) - 1, 2 }));
	assert_false(
		pn_index_any(&index, (struct pn_range){ PAGE(far) - 1, 1 }));
	pn_index_fini(&index);
}

static void addresses_beyond_the_space_are_refused(void **state)
{
	uintptr_t end = (uintptr_t)1 << PN_INDEX_ADDRESS_BITS;
	struct pn_index index;

	(void)state;
	assert_ok(pn_index_init(&index));
	assert_int_equal(pn_index_reserve(&index, (struct pn_range){ end - 4096,
								     8192 }),
			 -ERANGE);
	assert_int_equal(pn_index_get(&index, UINTPTR_MAX), 0);
	pn_index_fini(&index);
}

/* 100,000 random settings of ranges against a plain array. */
static void random_ranges_agree_with_an_array(void **state)
{
	enum { N = 4096, STEPS = 100000 };
	size_t base = PN_INDEX_LEAF_ENTRIES - N / 2;
	static uint32_t model[N];
	uint64_t seed = test_seed();
	struct pn_index index;

	(void)state;
	assert_ok(pn_index_init(&index));
	assert_ok(pn_index_reserve(&index, pages(base, N)));
	for (unsigned step = 0; step < STEPS; step++) {
		size_t at = test_below(&seed, N);
		size_t n = 1 + test_below(&seed, N - at < 64 ? N - at : 64);
		uint32_t id = (uint32_t)test_below(&seed, 3) * step;
		size_t next;

		pn_index_set(&index, pages(base + at, n), id);
		for (size_t i = at; i < at + n; i++)
			model[i] = id;
		at = test_below(&seed, N);
		assert_int_equal(pn_index_get(&index, PAGE(base + at) + 5),
				 model[at]);
		for (next = at; next < N && !model[next];)
			next++;
		assert_int_equal(pn_index_next(&index,
					       pages(base + at, N - at)),
				 PAGE(base + next));
	}
	pn_index_fini(&index);
}

/* Of 2^64 bytes, as in "everything was released"; it would take days. */
static void a_search_through_everything_ends(void **state)
{
	struct pn_range everything = { PAGE(1), (size_t)0 - 4 * PAGE(1) };
	struct pn_index index;

	(void)state;
	assert_ok(pn_index_init(&index));
	assert_false(pn_index_any(&index, everything));
	assert_ok(pn_index_reserve(&index, pages(77, 1)));
	pn_index_set(&index, pages(77, 1), 1);
	assert_int_equal(pn_index_next(&index, everything), PAGE(77));
	pn_index_fini(&index);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_entry_covers_its_pages_alone),
		TEST(ranges_cross_granules),
		TEST(next_skips_what_is_empty),
		TEST(addresses_beyond_the_space_are_refused),
		TEST(a_search_through_everything_ends),
		TEST(random_ranges_agree_with_an_array),
	};

	return RUN_TESTS(tests);
}
