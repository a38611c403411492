/* SPDX-License-Identifier: BSD-2-Clause */
/* Comparing commands by rounds. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/comparison.h"
#include "test.h"

#define ROUNDS 5

/* The first figure of each command by round: 1 is the best in odd rounds, 2 in
 * even ones. The first round is an odd one. */
static const double figures[3][ROUNDS] = {
	{ 2, 2, 2, 2, 2 },
	{ 1, 4, 1, 4, 1 },
	{ 3, 1, 3, 1, 3 },
};

static struct pn_comparison *open_comparison(unsigned nrounds)
{
	struct pn_comparison *c = calloc(1, sizeof(*c));
	char line[128];

	assert_non_null(c);
	c->nfigures = 2;
	c->nkeys = 1;
	for (; c->nrounds < nrounds; c->nrounds++)
		for (unsigned p = 0; p < 3; p++) {
			snprintf(line, sizeof(line),
				 "echo 64 7 %g 100; echo 128 9 %g %d",
				 figures[p][c->nrounds],
				 10 * figures[p][c->nrounds],
				 c->nrounds == 1 ? 200 : 100);
			assert_ok(pn_comparison_run(c, p, line));
		}
	return c;
}

static void lines_are_points(void **state)
{
	struct pn_comparison *c = open_comparison(ROUNDS);
	struct pn_spread spread = pn_comparison_spread(c, 2, 1);

	(void)state;
	assert_int_equal(c->npoints, 2);
	assert_int_equal(c->bytes[1], 128);
	assert_int_equal(c->keys[0][0], 7);
	assert_int_equal(c->keys[1][0], 9);
	assert_true(spread.best == 10 && spread.median == 30 &&
		    spread.worst == 30);
	assert_int_equal(pn_comparison_slow_rounds(c, 0, 0), 0);
	assert_int_equal(pn_comparison_slow_rounds(c, 0, 1), 1);
	free(c);
}

/* A median of the rounds' ratios, not a ratio of medians. */
static void ratios_are_those_of_rounds(void **state)
{
	struct pn_comparison *c = open_comparison(ROUNDS);

	(void)state;
	/* A spread leaves the rounds in order. */
	pn_comparison_spread(c, 1, 0);
	assert_true(pn_comparison_ratio(c, 0, 1, 0, PN_ROUNDS_ALL) == 2);
	assert_true(pn_comparison_ratio(c, 0, 1, 0, PN_ROUNDS_ODD) == 2);
	assert_true(pn_comparison_ratio(c, 0, 1, 0, PN_ROUNDS_EVEN) == .5);
	assert_true(pn_comparison_ratio(c, 2, 1, 1, PN_ROUNDS_ALL) == 3);
	free(c);
}

static void the_best_depends_on_the_rounds(void **state)
{
	struct pn_comparison *c = open_comparison(ROUNDS);
	unsigned all = 7, others = 6;

	(void)state;
	assert_int_equal(pn_comparison_best(c, all, 0, PN_ROUNDS_ALL), 1);
	assert_int_equal(pn_comparison_best(c, others, 0, PN_ROUNDS_ODD), 1);
	assert_int_equal(pn_comparison_best(c, others, 0, PN_ROUNDS_EVEN), 2);
	assert_int_equal(pn_comparison_best(c, 1, 0, PN_ROUNDS_ALL), 0);
	assert_int_equal(pn_comparison_best(c, 0, 0, PN_ROUNDS_ALL), -1);
	free(c);
}

static void one_round_has_no_even_one(void **state)
{
	struct pn_comparison *c = open_comparison(1);

	(void)state;
	assert_true(isnan(pn_comparison_ratio(c, 0, 1, 0, PN_ROUNDS_EVEN)));
	assert_int_equal(pn_comparison_best(c, 7, 0, PN_ROUNDS_EVEN), -1);
	assert_int_equal(pn_comparison_best(c, 7, 0, PN_ROUNDS_ODD), 1);
	free(c);
}

static void commands_that_fail_are_told(void **state)
{
	struct pn_comparison *c = open_comparison(1);

	(void)state;
	assert_int_equal(pn_comparison_run(c, 0, "echo 64 7 1 1; exit 1"),
			 -EIO);
	assert_int_equal(pn_comparison_run(c, 0, "echo 64 7 1 1"), -EIO);
	assert_int_equal(pn_comparison_run(c, 0, "exit 3"), -ENODEV);
	free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(lines_are_points),
		TEST(ratios_are_those_of_rounds),
		TEST(the_best_depends_on_the_rounds),
		TEST(one_round_has_no_even_one),
		TEST(commands_that_fail_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
