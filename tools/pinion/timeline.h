/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * timeline -- how much there was at each time, in as many points as a picture
 * can show, whatever the length.
 *
 * Time is cut into equal spans, each of which keeps the most there was; when
 * there are too many, spans are joined two by two and last twice as long.
 * Threads: the caller's.
 */
#ifndef PN_TOOLS_TIMELINE_H
#define PN_TOOLS_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

#define PN_TIMELINE_POINTS 256

struct pn_timeline {
	double now;			 /* how much there is */
	double most[PN_TIMELINE_POINTS]; /* of each span */
	uint64_t span_ns;
	size_t n; /* spans so far; 0: nothing yet */
};

void pn_timeline_init(struct pn_timeline *line);

/* From this time on there is so much. A time before the last counts as it. */
void pn_timeline_set(struct pn_timeline *line, uint64_t t_ns, double value);

/* When the i-th span begins. */
double pn_timeline_s(const struct pn_timeline *line, size_t i);

#endif
