/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * timeline -- a quantity over time, in at most PN_TIMELINE_POINTS points.
 *
 * Time is divided into equal spans; each keeps the maximum of the quantity.
 * When there are too many spans, neighbours are combined and spans last twice
 * as long.
 * Threads: one at a time.
 */
#ifndef PN_TOOLS_TIMELINE_H
#define PN_TOOLS_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

#define PN_TIMELINE_POINTS 256

struct pn_timeline {
	double now;			 /* current value */
	double most[PN_TIMELINE_POINTS]; /* maximum of each span */
	uint64_t span_ns;
	size_t n; /* number of spans */
};

void pn_timeline_init(struct pn_timeline *line);

/* Sets the value from this time on. A time before the last one counts as the
 * last one. */
void pn_timeline_set(struct pn_timeline *line, uint64_t t_ns, double value);

/* Start of the i-th span in seconds. */
double pn_timeline_s(const struct pn_timeline *line, size_t i);

#endif
