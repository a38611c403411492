/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * series -- a quantity over time, in a bounded number of points.
 *
 * A point is a span of time with the maximum and the mean of the quantity. All
 * points have the same length, the step; when time runs beyond the last point,
 * neighbours are combined and the step doubles. So a run of any length fits,
 * and more than half of the points are used as soon as the run is longer than
 * the first step.
 *
 * Threads: one at a time.
 */
#ifndef PN_BENCH_SERIES_H
#define PN_BENCH_SERIES_H

#include <stdint.h>

#define PN_SERIES_POINTS 128

struct pn_series {
	uint64_t start_ns, end_ns; /* recorded time */
	uint64_t step_ns;
	struct {
		double highest, area; /* area: value times nanoseconds */
	} points[PN_SERIES_POINTS];
};

struct pn_point {
	double at_s; /* begin of the point, since the start */
	double highest, mean;
};

void pn_series_start(struct pn_series *series, uint64_t now_ns);

/* The quantity had this value from the end of the recorded time until now. */
void pn_series_add(struct pn_series *series, double value, uint64_t now_ns);

/* Number of points. */
unsigned pn_series_n(const struct pn_series *series);

/* i < pn_series_n(). */
struct pn_point pn_series_at(const struct pn_series *series, unsigned i);

#endif
