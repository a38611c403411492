/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * timeline -- a quantity that changes at known times, as a series of points
 * (bench/series.h): each point has the maximum and the mean of a span of time.
 * Threads: one at a time.
 */
#ifndef PN_TOOLS_TIMELINE_H
#define PN_TOOLS_TIMELINE_H

#include "bench/series.h"

struct pn_timeline {
	double now; /* current value */
	struct pn_series series;
};

static inline void pn_timeline_init(struct pn_timeline *line)
{
	line->now = 0;
	pn_series_start(&line->series, 0);
}

/* Sets the value from this time on. A time before the last one counts as the
 * last one. */
static inline void pn_timeline_set(struct pn_timeline *line, uint64_t t_ns,
				   double value)
{
	pn_series_add(&line->series, line->now, t_ns);
	line->now = value;
}

#endif
