/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gaps -- the last times between two events, and the deadline they suggest.
 *
 * A struct pn_gaps remembers the last PN_GAPS_MAX gaps twice: in the order in
 * which they came, to forget the oldest, and sorted, to read quantiles. Storage
 * grows with use: most sites are seen a few times.
 *
 * The deadline. A buffer must be ready when the gap ends. Let d be the time at
 * which it is ready. A gap shorter than d costs what being late costs. A longer
 * gap costs what holding the buffer costs, for the time from d to its end:
 *
 *	cost(d) = late * P(gap < d) + hold * E[(gap - d)+]
 *
 * pn_gaps_deadline() returns the d of least cost, among 0 (never late) and a
 * little before each gap remembered. "A little before" is how much the gaps
 * differ from each other, at most a tenth. P counts one gap more than was
 * measured, shorter than all of them: after n gaps, the next one is the
 * shortest so far with probability 1 / (n + 1). Where the gaps agree to a
 * twentieth, being a little early usually covers a shorter gap, and the extra
 * gap counts a tenth. With fewer than PN_GAPS_FEW gaps there is no
 * distribution. The deadline is the shortest gap then, as in the paper (section
 * 4.2; helper.h names it), less 0.6 % for noise, since the next gap is often a
 * little shorter. A larger margin would hold memory while the call just before
 * still runs.
 *
 * Threads: the caller's.
 */
#ifndef PN_HELPER_GAPS_H
#define PN_HELPER_GAPS_H

#include <stdbool.h>
#include <stdint.h>

#define PN_GAPS_MAX 128
#define PN_GAPS_FEW 8

struct pn_gaps {
	uint64_t *recent; /* a ring of `capacity`; NULL: none yet */
	uint64_t *sorted; /* behind it in the same storage */
	uint16_t n, capacity, next;
};

/* All zero is an empty pn_gaps. */
void pn_gaps_fini(struct pn_gaps *gaps);

/* Remembers a gap; forgets the oldest when there are PN_GAPS_MAX, or no memory
 * for more. */
void pn_gaps_add(struct pn_gaps *gaps, uint64_t gap_ns);

/* How long after the last event to be ready. late_ns: the cost of being late;
 * hold: the cost of being ready a nanosecond too early. n must not be 0. */
uint64_t pn_gaps_deadline(const struct pn_gaps *gaps, double late_ns,
			  double hold);

/* Whether no gap is more than a tenth longer than the shortest; n must not be
 * 0.
 */
static inline bool pn_gaps_consistent(const struct pn_gaps *gaps)
{
	return (double)gaps->sorted[gaps->n - 1] <=
	       1.1 * (double)gaps->sorted[0];
}

static inline uint64_t pn_gaps_longest(const struct pn_gaps *gaps)
{
	return gaps->sorted[gaps->n - 1];
}

#endif
