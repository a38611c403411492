/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>
#include <math.h>

#include "base/list.h"
#include "base/pages.h"
#include "base/range.h"
#include "base/regression.h"

static void list_pops_in_order_of_appending(void **state)
{
	struct pn_list list, a, b;

	(void)state;
	pn_list_init(&list);
	pn_list_append(&list, &a);
	pn_list_append(&list, &b);
	assert_ptr_equal(pn_list_pop(&list), &a);
	assert_ptr_equal(pn_list_pop(&list), &b);
	assert_null(pn_list_pop(&list));
	assert_true(pn_list_empty(&list));
}

static void splicing_moves_a_whole_list_in_order(void **state)
{
	struct pn_list to, from, a, b, c;

	(void)state;
	pn_list_init(&to);
	pn_list_init(&from);
	pn_list_append(&to, &c);
	pn_list_splice(&to, &from); /* nothing */
	pn_list_append(&from, &a);
	pn_list_append(&from, &b);
	pn_list_splice(&to, &from);
	assert_true(pn_list_empty(&from));
	assert_ptr_equal(to.prev, &c);
	assert_ptr_equal(c.prev, &b);
	assert_ptr_equal(pn_list_pop(&to), &a);
	assert_ptr_equal(pn_list_pop(&to), &b);
	assert_ptr_equal(pn_list_pop(&to), &c);
	assert_null(pn_list_pop(&to));
}

static void removing_an_entry_twice_is_harmless(void **state)
{
	struct pn_list list, a;

	(void)state;
	pn_list_init(&list);
	pn_list_append(&list, &a);
	pn_list_remove(&a);
	pn_list_remove(&a);
	assert_true(pn_list_empty(&list));
}

static void ranges_that_wrap_around_are_invalid(void **state)
{
	(void)state;
	assert_true(pn_range_valid(4096, 1));
	assert_false(pn_range_valid(4096, 0));
	assert_false(pn_range_valid(0, 1));
	assert_false(pn_range_valid(UINTPTR_MAX - 10, 11));
	assert_false(pn_range_valid(4096, SIZE_MAX - 4096));
	assert_false(pn_range_valid(4096, SIZE_MAX));
}

static void range_covers_only_what_lies_inside(void **state)
{
	struct pn_range outer = { 1000, 100 };

	(void)state;
	assert_true(pn_range_covers(outer, (struct pn_range){ 1000, 100 }));
	assert_true(pn_range_covers(outer, (struct pn_range){ 1099, 1 }));
	assert_false(pn_range_covers(outer, (struct pn_range){ 1099, 2 }));
	assert_false(pn_range_covers(outer, (struct pn_range){ 999, 2 }));
	assert_false(
		pn_range_covers(outer, (struct pn_range){ 1050, SIZE_MAX }));
}

static void pages_of_a_range_are_those_it_touches(void **state)
{
	(void)state;
	assert_int_equal(pn_range_npages(4096, 4096), 1);
	assert_int_equal(pn_range_npages(4095, 2), 2);
	assert_int_equal(pn_range_npages(8191, 1), 1);
}

static void regression_finds_the_line_that_made_the_points(void **state)
{
	double x[] = { 1, 16, 256, 65536 }, y[4];
	struct pn_regression fit;

	(void)state;
	for (int i = 0; i < 4; i++)
		y[i] = 0.25 * x[i] + 16;
	assert_ok(pn_regression_line(x, y, 4, &fit));
	assert_true(fabs(fit.slope - 0.25) < 1e-9);
	assert_true(fabs(fit.intercept - 16) < 1e-6);
	assert_true(fit.max_residual < 1e-9);
}

static void regression_never_gives_a_negative_cost(void **state)
{
	double x[] = { 1, 2, 3 }, falling[] = { 30, 20, 10 };
	double steep[] = { 1, 20, 60 };
	struct pn_regression fit;

	(void)state;
	assert_ok(pn_regression_line(x, falling, 3, &fit));
	assert_true(fit.slope >= 0 && fit.intercept >= 0);
	assert_ok(pn_regression_line(x, steep, 3, &fit));
	assert_true(fit.slope >= 0 && fit.intercept >= 0);
}

static void regression_refuses_what_is_no_cost(void **state)
{
	double x = 1, zero = 0;
	struct pn_regression fit;

	(void)state;
	assert_int_equal(pn_regression_line(&x, &zero, 1, &fit), -EINVAL);
	assert_int_equal(pn_regression_line(&x, &x, 0, &fit), -EINVAL);
}

static void mapped_pages_are_aligned_and_zero(void **state)
{
	struct pn_pages_policy huge = { .huge = PN_PAGES_TRANSPARENT,
					.numa_node = -1,
					.populate = true };
	char *p;

	(void)state;
	assert_ok(pn_pages_map(3 << 20, &huge, (void **)&p));
	assert_int_equal((uintptr_t)p % PN_PAGES_HUGE_BYTES, 0);
	assert_int_equal(p[(3 << 20) - 1], 0);
	pn_pages_unmap(p, 3 << 20, &huge);
	assert_ok(pn_pages_map(1, NULL, (void **)&p));
	p[4095] = 1;
	pn_pages_unmap(p, 1, NULL);
}

static void mapping_nothing_or_everything_is_refused(void **state)
{
	struct pn_pages_policy no_node = { .numa_node = 1000 };
	void *p;

	(void)state;
	assert_int_equal(pn_pages_map(0, NULL, &p), -EINVAL);
	assert_int_equal(pn_pages_map(SIZE_MAX, NULL, &p), -EINVAL);
	assert_int_not_equal(pn_pages_map(4096, &no_node, &p), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(list_pops_in_order_of_appending),
		TEST(splicing_moves_a_whole_list_in_order),
		TEST(removing_an_entry_twice_is_harmless),
		TEST(ranges_that_wrap_around_are_invalid),
		TEST(range_covers_only_what_lies_inside),
		TEST(pages_of_a_range_are_those_it_touches),
		TEST(regression_finds_the_line_that_made_the_points),
		TEST(regression_never_gives_a_negative_cost),
		TEST(regression_refuses_what_is_no_cost),
		TEST(mapped_pages_are_aligned_and_zero),
		TEST(mapping_nothing_or_everything_is_refused),
	};

	return RUN_TESTS(tests);
}
