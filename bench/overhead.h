/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recording -- what noting a transfer for the helper costs on the critical
 * path, as the paper Helper measured it (4.3, row H7): messages between two
 * processes with notes at both ends and without, and no helper that would act
 * on them.
 *
 * Messages with and without take turns one by one, so that what else the
 * machine does meets both alike: neighbours make a pair, and the median of the
 * pairs' differences is the cost. A message is timed until eight bytes answer.
 */
#ifndef PN_BENCH_RECORDING_H
#define PN_BENCH_RECORDING_H

#include <stddef.h>

#include "tools/pinion/spec.h"

struct pn_overhead {
	size_t bytes;
	double without_us, with_us; /* one message; medians */
	double percent;		    /* the median of the pairs' differences, of
				     * without_us */
	double note_ns; /* CPU time of noting one message and handing it over,
			 * measured by themselves: no noise of others */
};

/* Measures messages of recordings[i].bytes. May take seconds. */
int pn_overhead_measure(const struct pn_spec *spec,
			struct pn_overhead *recordings, size_t n);

#endif
