/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/series.h"

#include <stdbool.h>

#include "base/compiler.h"

#define FIRST_STEP_NS 1000

void pn_series_start(struct pn_series *series, uint64_t now_ns)
{
	*series = (struct pn_series){ .start_ns = now_ns,
				      .end_ns = now_ns,
				      .step_ns = FIRST_STEP_NS };
}

static double higher(double a, double b)
{
	return a > b ? a : b;
}

static void fold(struct pn_series *series)
{
	for (unsigned i = 0; i < PN_SERIES_POINTS; i++) {
		unsigned a = 2 * i, b = a + 1;
		bool both = b < PN_SERIES_POINTS;

		series->points[i].highest =
			both ? higher(series->points[a].highest,
				      series->points[b].highest)
			     : 0;
		series->points[i].area =
			both ? series->points[a].area + series->points[b].area
			     : 0;
	}
	series->step_ns *= 2;
}

void pn_series_add(struct pn_series *series, double value, uint64_t now_ns)
{
	while (now_ns > series->start_ns + PN_SERIES_POINTS * series->step_ns)
		fold(series);
	while (series->end_ns < now_ns) {
		uint64_t i =
			(series->end_ns - series->start_ns) / series->step_ns;
		uint64_t until = series->start_ns + (i + 1) * series->step_ns;

		if (until > now_ns)
			until = now_ns;
		series->points[i].highest =
			higher(series->points[i].highest, value);
		series->points[i].area +=
			value * (double)(until - series->end_ns);
		series->end_ns = until;
	}
}

unsigned pn_series_n(const struct pn_series *series)
{
	uint64_t ns = series->end_ns - series->start_ns;

	return (unsigned)((ns + series->step_ns - 1) / series->step_ns);
}

struct pn_point pn_series_at(const struct pn_series *series, unsigned i)
{
	uint64_t begins = i * series->step_ns;
	uint64_t left = series->end_ns - series->start_ns - begins;

	pn_assert(i < pn_series_n(series));
	/* The last point may be shorter. */
	if (left > series->step_ns)
		left = series->step_ns;
	return (struct pn_point){ (double)begins / 1e9,
				  series->points[i].highest,
				  series->points[i].area / (double)left };
}
