/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/comparison.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/compiler.h"
#include "device/measure.h"

/* False: no more lines. */
static bool parse_line(struct pn_comparison *comparison, unsigned program,
		       size_t size, FILE *lines)
{
	if (fscanf(lines, "%zu", &comparison->bytes[size]) != 1)
		return false;
	for (unsigned i = 0; i < comparison->nfigures; i++) {
		double *to = comparison->samples[program][size][i];

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
	while (n < PN_COMPARISON_SIZES &&
	       parse_line(comparison, program, n, lines))
		n++;
	status = pclose(lines);
	if (WIFEXITED(status) &&
	    WEXITSTATUS(status) == PN_COMPARISON_UNAVAILABLE)
		return -ENODEV;
	if (status || !n || (comparison->nsizes && n != comparison->nsizes))
		return -EIO;
	comparison->nsizes = n;
	return 0;
}

#define SLOW (8. / 7)

static double best_loop_ns(const struct pn_comparison *comparison)
{
	double best = INFINITY;

	for (unsigned p = 0; p < PN_COMPARISON_COMMANDS; p++)
		for (size_t n = 0; n < comparison->nsizes; n++) {
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
				   unsigned program, size_t size)
{
	const double *loop_ns =
		comparison->samples[program][size][comparison->nfigures - 1];
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

struct pn_spread pn_comparison_spread(struct pn_comparison *comparison,
				      unsigned program, size_t size,
				      unsigned figure)
{
	return pn_spread_of(comparison->samples[program][size][figure],
			    comparison->nrounds);
}
