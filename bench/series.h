/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * series -- a quantity over time, in a bounded number of points.
 *
 * A point is a stretch of time with the highest value in it and the mean. All
 * are of one length, the step; when time runs past the last one, neighbours
 * become one and the step doubles. So a run of any length fits, and more than
 * half of the points are used as soon as it is longer than the first step.
 *
 * Threads: the caller's.
 */
#ifndef PN_BENCH_SERIES_H
#define PN_BENCH_SERIES_H

#include <stdint.h>

#define PN_SERIES_POINTS 128

struct pn_series {
	uint64_t start_ns, end_ns; /* what is known */
	uint64_t step_ns;
	struct {
		double highest, area; /* area: value times nanoseconds */
	} points[PN_SERIES_POINTS];
};

struct pn_point {
	double at_s; /* its beginning, since the start */
	double highest, mean;
};

void pn_series_start(struct pn_series *series, uint64_t now_ns);

/* It had this value from the end of what is known until now. */
void pn_series_add(struct pn_series *series, double value, uint64_t now_ns);

/* How many points there are. */
unsigned pn_series_n(const struct pn_series *series);

/* i < pn_series_n(). */
struct pn_point pn_series_at(const struct pn_series *series, unsigned i);

#endif
