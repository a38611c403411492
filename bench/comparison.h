/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * comparison -- compares programs by running them alternately, in new processes
 * each time.
 *
 * A contestant is a command that prints a line per size: the bytes, then its
 * figures, all of them times, less is better. Each round runs every contestant
 * once, so that all meet the same state of the machine. The placement of two
 * processes and their shared memory is random, and the speed of their cores
 * depends on other virtual machines (core_speed.h): one pair of processes is
 * one sample, however often it measures. The result is the spread of several
 * samples, and the number of samples with a slow core.
 *
 * Threads: one at a time.
 */
#ifndef PN_BENCH_TURNS_H
#define PN_BENCH_TURNS_H

#include <stddef.h>

#define PN_COMPARISON_ROUNDS   63
#define PN_COMPARISON_SIZES    18
#define PN_COMPARISON_COMMANDS 4
#define PN_COMPARISON_FIGURES  3

/* Exit status of a command that cannot run here. */
#define PN_COMPARISON_UNAVAILABLE 3

struct pn_comparison {
	/* figures of a line; the last one is the loop time of the core */
	unsigned nfigures;
	size_t nsizes; /* 0: no command has run yet */
	size_t bytes[PN_COMPARISON_SIZES];
	unsigned nrounds; /* completed rounds */
	double samples[PN_COMPARISON_COMMANDS][PN_COMPARISON_SIZES]
		      [PN_COMPARISON_FIGURES][PN_COMPARISON_ROUNDS];
};

/* Runs a shell command in the current round (nrounds). -ENODEV: the command
 * cannot run here; -EIO: it failed and printed why. */
int pn_comparison_run(struct pn_comparison *comparison, unsigned program,
		      const char *command);

/* Number of rounds in which a command measured a size on a core whose loop time
 * exceeded the best by more than a seventh. */
unsigned pn_comparison_slow_rounds(const struct pn_comparison *comparison,
				   unsigned program, size_t size);

struct pn_spread {
	double best, median, worst;
};

/* Spread of n > 0 samples, which are reordered. */
struct pn_spread pn_spread_of(double *samples, size_t n);

/* Over the completed rounds, at least one. */
struct pn_spread pn_comparison_spread(struct pn_comparison *comparison,
				      unsigned program, size_t size,
				      unsigned figure);

#endif
