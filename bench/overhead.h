/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * overhead -- what recording a transfer for the helper costs on the critical
 * path, as measured in Li and others 2011 (section 4.3): messages between
 * two processes with recording at both ends and without, and no helper that
 * acts on the records.
 *
 * Messages with and without recording alternate one by one, so that other load
 * of the machine affects both alike: neighbours form a pair, and the median of
 * the differences of the pairs is the cost. A message is timed until its answer
 * of eight bytes.
 */
#ifndef PN_BENCH_RECORDING_H
#define PN_BENCH_RECORDING_H

#include <stddef.h>

#include "tools/pinion/spec.h"

struct pn_overhead {
	size_t bytes;
	double without_us, with_us; /* medians per message */
	/* median of the differences of the pairs, relative to without_us */
	double percent;
	/* CPU time of recording one message and handing the record over,
	 * measured separately */
	double record_cost_ns;
};

/* Measures messages of recordings[i].bytes. May take seconds. */
int pn_overhead_measure(const struct pn_spec *spec,
			struct pn_overhead *recordings, size_t n);

#endif
