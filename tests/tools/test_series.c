/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A quantity over time in a bounded number of points, compared with its full
 * history.
 */
#include "test.h"

#include <math.h>

#include "bench/series.h"

#define CHANGES 200

/* The history: values[i] until times[i]. */
struct history {
	uint64_t start, times[CHANGES];
	double values[CHANGES];
};

static void check_point(const struct history *h, const struct pn_series *series,
			unsigned i)
{
	struct pn_point point = pn_series_at(series, i);
	uint64_t from = series->start_ns + i * series->step_ns;
	uint64_t to = from + series->step_ns, since = h->start;
	double highest = 0, area = 0;

	if (to > series->end_ns)
		to = series->end_ns;
	for (unsigned k = 0; k < CHANGES; since = h->times[k++]) {
		uint64_t a = since > from ? since : from;
		uint64_t b = h->times[k] < to ? h->times[k] : to;

		if (a >= b)
			continue;
		highest = fmax(highest, h->values[k]);
		area += h->values[k] * (double)(b - a);
	}
	assert_float_equal(point.at_s, (double)(from - h->start) / 1e9, 1e-6);
	assert_float_equal(point.highest, highest, 1e-6);
	assert_float_equal(point.mean, area / (double)(to - from), 1e-3);
}

static void points_agree_with_the_full_history(void **state)
{
	uint64_t seed = test_seed();

	(void)state;
	for (unsigned round = 0; round < 50; round++) {
		/* From less than a step to hours. */
		uint64_t pace = UINT64_C(1) << test_below(&seed, 38);
		struct history h = { .start = test_below(&seed, 1000000) };
		uint64_t now = h.start;
		struct pn_series series;

		pn_series_start(&series, now);
		for (unsigned k = 0; k < CHANGES; k++) {
			now += test_below(&seed, pace);
			h.times[k] = now;
			h.values[k] = (double)test_below(&seed, 1000);
			pn_series_add(&series, h.values[k], now);
		}
		assert_true(pn_series_n(&series) <= PN_SERIES_POINTS);
		assert_int_equal(series.end_ns, now);
		for (unsigned i = 0; i < pn_series_n(&series); i++)
			check_point(&h, &series, i);
	}
}

static void at_least_half_of_the_points_are_used(void **state)
{
	struct pn_series series;

	(void)state;
	for (uint64_t ns = 1000000; ns < 1000000000000; ns = ns * 9 / 8) {
		pn_series_start(&series, 7);
		pn_series_add(&series, 1, 7 + ns);
		assert_in_range(pn_series_n(&series), PN_SERIES_POINTS / 2,
				PN_SERIES_POINTS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(points_agree_with_the_full_history),
		TEST(at_least_half_of_the_points_are_used),
	};

	return RUN_TESTS(tests);
}
