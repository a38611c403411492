/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * comparison -- compares programs by running them alternately, in new processes
 * each time.
 *
 * A contestant is a command that prints a line per point: the bytes, further
 * whole numbers that identify the point (nkeys of them), then its figures, all
 * of them times, less is better. Each round runs every contestant once, so that
 * all meet the same state of the machine. The placement of two
 * processes and their shared memory is random, and the speed of their cores
 * depends on other virtual machines (core_speed.h): one pair of processes is
 * one sample, however often it measures. The result is the spread of several
 * samples, and the number of samples with a slow core.
 *
 * Threads: one at a time.
 */
#ifndef PN_BENCH_COMPARISON_H
#define PN_BENCH_COMPARISON_H

#include <stddef.h>

#define PN_COMPARISON_ROUNDS   63
#define PN_COMPARISON_POINTS   256
#define PN_COMPARISON_COMMANDS 16
#define PN_COMPARISON_KEYS     2
#define PN_COMPARISON_FIGURES  3

/* Exit status of a command that cannot run here. */
#define PN_COMPARISON_UNAVAILABLE 3

struct pn_comparison {
	/* figures of a line; the last one is the loop time of the core */
	unsigned nfigures;
	unsigned nkeys; /* whole numbers behind the bytes */
	size_t npoints; /* 0: no command has run yet */
	size_t bytes[PN_COMPARISON_POINTS];
	size_t keys[PN_COMPARISON_POINTS][PN_COMPARISON_KEYS];
	unsigned nrounds; /* completed rounds */
	double samples[PN_COMPARISON_COMMANDS][PN_COMPARISON_POINTS]
		      [PN_COMPARISON_FIGURES][PN_COMPARISON_ROUNDS];
};

/* Runs a shell command in the current round (nrounds). -ENODEV: the command
 * cannot run here; -EIO: it failed and printed why. */
int pn_comparison_run(struct pn_comparison *comparison, unsigned program,
		      const char *command);

/* Enters the only figure of a command that prints none, as that of a single
 * point of no bytes; its core counts as quick. */
void pn_comparison_enter(struct pn_comparison *comparison, unsigned program,
			 double figure);

/* Number of rounds in which a command measured a point on a core whose loop
 * time exceeded the best by more than a seventh. */
unsigned pn_comparison_slow_rounds(const struct pn_comparison *comparison,
				   unsigned program, size_t point);

struct pn_spread {
	double best, median, worst;
};

/* Spread of n > 0 samples, which are reordered. */
struct pn_spread pn_spread_of(double *samples, size_t n);

/* A subset of the completed rounds: all, or every other one. */
enum pn_rounds { PN_ROUNDS_ALL, PN_ROUNDS_ODD, PN_ROUNDS_EVEN };

/* Of a command's first figure over the completed rounds, at least one. */
struct pn_spread pn_comparison_spread(const struct pn_comparison *comparison,
				      unsigned program, size_t point);

/* The median of the rounds' ratios of one command's first figure to another's.
 * NaN: no such round. */
double pn_comparison_ratio(const struct pn_comparison *comparison,
			   unsigned program, unsigned other, size_t point,
			   enum pn_rounds rounds);

/* The median of a figure (from 0) over all completed rounds, at least one. */
double pn_comparison_median(const struct pn_comparison *comparison,
			    unsigned program, size_t point, unsigned figure);

/* The command of a set (bits) with the least median of its first figure over
 * some rounds; -1: the set is empty or there is no such round. */
int pn_comparison_best(const struct pn_comparison *comparison, unsigned set,
		       size_t point, enum pn_rounds rounds);

#endif
