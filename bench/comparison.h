/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * turns -- programs that are compared by taking turns, new processes each time.
 *
 * A player is a command that prints a line for each size: the bytes, then its
 * figures, all times, the less the better. In every round each player has a
 * turn, so that all meet the machine as it is at that time. Where two processes
 * and what they share come to lie is chance, and how fast their cores are just
 * then another's business (core_speed.h): one pair of processes is one sample,
 * however often it measures, and what is told of several is their spread, and
 * how many had a slow core.
 *
 * Threads: the caller's.
 */
#ifndef PN_BENCH_TURNS_H
#define PN_BENCH_TURNS_H

#include <stddef.h>

#define PN_COMPARISON_ROUNDS   63
#define PN_COMPARISON_SIZES    18
#define PN_COMPARISON_COMMANDS 4
#define PN_COMPARISON_FIGURES  3

/* How a player exits that cannot play here. */
#define PN_COMPARISON_UNAVAILABLE 3

struct pn_comparison {
	unsigned nfigures; /* of a line, the last is the pace */
	size_t nsizes;	   /* 0: nobody has played yet */
	size_t bytes[PN_COMPARISON_SIZES];
	unsigned nrounds; /* that are over */
	double samples[PN_COMPARISON_COMMANDS][PN_COMPARISON_SIZES]
		      [PN_COMPARISON_FIGURES][PN_COMPARISON_ROUNDS];
};

/* Has the shell run a command, in the round after those that are over.
 * -ENODEV: it says that it cannot play; -EIO: it failed, and said why. */
int pn_comparison_run(struct pn_comparison *turns, unsigned player,
		      const char *command);

/* In how many rounds a player had a core that took longer than the best by more
 * than a seventh, when it measured a size. */
unsigned pn_comparison_slow_rounds(const struct pn_comparison *turns,
				   unsigned player, size_t size);

struct pn_spread {
	double best, median, worst;
};

/* Of n > 0 samples, which it reorders. */
struct pn_spread pn_spread_of(double *samples, size_t n);

/* Over the rounds that are over, at least one. */
struct pn_spread pn_comparison_spread(struct pn_comparison *turns,
				      unsigned player, size_t size,
				      unsigned figure);

#endif
