/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * periodic -- programs (program.h) and recorded requests on a real device, in
 * real time: registered memory over time, late requests and run time of each
 * scheme, with and without the helper.
 *
 * A program runs in two processes. The one that is measured computes (a loop
 * that uses the core for so much CPU time, so that whoever takes the core away
 * makes it longer) and communicates. The other one plays a rank whose exchanges
 * meet those of the first and does not compute: it sleeps in the device, which
 * leaves a core to the helper of the first, also on two cores. Its memory stays
 * registered. Ranks 0 and 3 meet, of cg 1 and 2: with each of them, what goes
 * to other ranks goes to the partner.
 *
 * Recorded requests are replayed as by timed_replay.h, at their times.
 *
 * Every round runs each scheme once, in new processes, in the other order every
 * second time. What is compared are ratios within a round; the figures are
 * medians.
 */
#ifndef PN_BENCH_PERIODIC_H
#define PN_BENCH_PERIODIC_H

#include <stddef.h>

#include "bench/cluster.h"
#include "tools/pinion/report.h"

struct pn_periodic_attr {
	const char *device; /* spec */
	const char *shape;  /* "": all of program.h that have four ranks */
	const char *traces; /* folder; "": programs */
	unsigned rounds;
	unsigned steps; /* iterations of a program; 0: of about 6 s */
	size_t bytes;	/* of ft: the arrays of all four ranks */
};

/* Prints a row per scheme. Errors are those of the processes. */
int pn_periodic_run(const struct pn_periodic_attr *attr,
		    struct pn_report *report);

#endif
