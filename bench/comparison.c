/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/comparison.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/compiler.h"
#include "device/measure.h"

/* False: no more lines. */
static bool parse_line(struct pn_comparison *comparison, unsigned program,
		       size_t point, FILE *lines)
{
	if (fscanf(lines, "%zu", &comparison->bytes[point]) != 1)
		return false;
	for (unsigned i = 0; i < comparison->nkeys; i++)
		if (fscanf(lines, "%zu", &comparison->keys[point][i]) != 1)
			return false;
	for (unsigned i = 0; i < comparison->nfigures; i++) {
		double *to = comparison->samples[program][point][i];

		if (fscanf(lines, "%lf", &to[comparison->nrounds]) != 1)
			return false;
	}
	return true;
}

int pn_comparison_run(struct pn_comparison *comparison, unsigned program,
		      const char *command)
{
	FILE *lines = popen(command, "re");
	size_t n = 0;
	int status;

	if (!lines)
		return -errno;
	while (n < PN_COMPARISON_POINTS &&
	       parse_line(comparison, program, n, lines))
		n++;
	status = pclose(lines);
	if (WIFEXITED(status) &&
	    WEXITSTATUS(status) == PN_COMPARISON_UNAVAILABLE)
		return -ENODEV;
	if (status || !n || (comparison->npoints && n != comparison->npoints))
		return -EIO;
	comparison->npoints = n;
	return 0;
}

void pn_comparison_enter(struct pn_comparison *comparison, unsigned program,
			 double figure)
{
	comparison->npoints = 1;
	comparison->samples[program][0][0][comparison->nrounds] = figure;
}

#define SLOW (8. / 7)

static double best_loop_ns(const struct pn_comparison *comparison)
{
	double best = INFINITY;

	for (unsigned p = 0; p < PN_COMPARISON_COMMANDS; p++)
		for (size_t n = 0; n < comparison->npoints; n++) {
			const double *loop_ns =
				comparison->samples[p][n]
						   [comparison->nfigures - 1];

			for (unsigned r = 0; r < comparison->nrounds; r++)
				if (loop_ns[r] > 0 && loop_ns[r] < best)
					best = loop_ns[r];
		}
	return best;
}

unsigned pn_comparison_slow_rounds(const struct pn_comparison *comparison,
				   unsigned program, size_t point)
{
	const double *loop_ns =
		comparison->samples[program][point][comparison->nfigures - 1];
	double slow = SLOW * best_loop_ns(comparison);
	unsigned n = 0;

	for (unsigned r = 0; r < comparison->nrounds; r++)
		n += loop_ns[r] > slow;
	return n;
}

struct pn_spread pn_spread_of(double *samples, size_t n)
{
	double median;

	pn_assert(n);
	median = pn_median(samples, n); /* sorted from here on */
	return (struct pn_spread){ samples[0], median, samples[n - 1] };
}

struct pn_spread pn_comparison_spread(const struct pn_comparison *comparison,
				      unsigned program, size_t point)
{
	double copy[PN_COMPARISON_ROUNDS];

	memcpy(copy, comparison->samples[program][point][0], sizeof(copy));
	return pn_spread_of(copy, comparison->nrounds);
}

/* The next round of a subset, from r on; rounds count from 1 for people. */
static unsigned next_round(enum pn_rounds rounds, unsigned r)
{
	bool odd = r % 2 == 0;

	return r + ((rounds == PN_ROUNDS_ODD && !odd) ||
		    (rounds == PN_ROUNDS_EVEN && odd));
}

static double median_of(double *samples, size_t n)
{
	return n ? pn_median(samples, n) : NAN;
}

double pn_comparison_ratio(const struct pn_comparison *comparison,
			   unsigned program, unsigned other, size_t point,
			   enum pn_rounds rounds)
{
	const double *of = comparison->samples[program][point][0];
	const double *to = comparison->samples[other][point][0];
	double ratios[PN_COMPARISON_ROUNDS];
	size_t n = 0;

	for (unsigned r = next_round(rounds, 0); r < comparison->nrounds;
	     r = next_round(rounds, r + 1))
		ratios[n++] = of[r] / to[r];
	return median_of(ratios, n);
}

static double median_over(const double *samples, unsigned nrounds,
			  enum pn_rounds rounds)
{
	double some[PN_COMPARISON_ROUNDS];
	size_t n = 0;

	for (unsigned r = next_round(rounds, 0); r < nrounds;
	     r = next_round(rounds, r + 1))
		some[n++] = samples[r];
	return median_of(some, n);
}

double pn_comparison_median(const struct pn_comparison *comparison,
			    unsigned program, size_t point, unsigned figure)
{
	return median_over(comparison->samples[program][point][figure],
			   comparison->nrounds, PN_ROUNDS_ALL);
}

int pn_comparison_best(const struct pn_comparison *comparison, unsigned set,
		       size_t point, enum pn_rounds rounds)
{
	double least = INFINITY;
	int best = -1;

	for (unsigned p = 0; p < PN_COMPARISON_COMMANDS; p++) {
		double median = median_over(comparison->samples[p][point][0],
					    comparison->nrounds, rounds);

		if (set >> p & 1 && median < least) {
			least = median;
			best = (int)p;
		}
	}
	return best;
}
