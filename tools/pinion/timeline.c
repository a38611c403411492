/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/timeline.h"

#include <math.h>

#include "base/clock.h"

void pn_timeline_init(struct pn_timeline *line)
{
	*line = (struct pn_timeline){ .span_ns = 1000 };
}

static void halve(struct pn_timeline *line)
{
	size_t left = (line->n + 1) / 2;

	for (size_t i = 0; i < left; i++)
		line->most[i] =
			2 * i + 1 < line->n
				? fmax(line->most[2 * i], line->most[2 * i + 1])
				: line->most[2 * i];
	line->span_ns *= 2;
	line->n = left;
}

/* Spans without a change keep the current value. */
void pn_timeline_set(struct pn_timeline *line, uint64_t t_ns, double value)
{
	while (t_ns / line->span_ns >= PN_TIMELINE_POINTS) {
		if (line->n)
			halve(line);
		else
			line->span_ns *= 2;
	}
	if (line->n && t_ns / line->span_ns < line->n - 1)
		t_ns = (line->n - 1) * line->span_ns;
	while (line->n <= t_ns / line->span_ns)
		line->most[line->n++] = line->now;
	line->now = value;
	line->most[line->n - 1] = fmax(line->most[line->n - 1], value);
}

double pn_timeline_s(const struct pn_timeline *line, size_t i)
{
	return (double)i * (double)line->span_ns / PN_NS_PER_S;
}
