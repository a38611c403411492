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
static bool take_line(struct pn_comparison *turns, unsigned player, size_t size,
		      FILE *lines)
{
	if (fscanf(lines, "%zu", &turns->bytes[size]) != 1)
		return false;
	for (unsigned i = 0; i < turns->nfigures; i++) {
		double *to = turns->samples[player][size][i];

		if (fscanf(lines, "%lf", &to[turns->nrounds]) != 1)
			return false;
	}
	return true;
}

int pn_comparison_run(struct pn_comparison *turns, unsigned player,
		      const char *command)
{
	FILE *lines = popen(command, "re");
	size_t n = 0;
	int status;

	if (!lines)
		return -errno;
	while (n < PN_COMPARISON_SIZES && take_line(turns, player, n, lines))
		n++;
	status = pclose(lines);
	if (WIFEXITED(status) &&
	    WEXITSTATUS(status) == PN_COMPARISON_UNAVAILABLE)
		return -ENODEV;
	if (status || !n || (turns->nsizes && n != turns->nsizes))
		return -EIO;
	turns->nsizes = n;
	return 0;
}

#define SLOW (8. / 7)

static double best_pace(const struct pn_comparison *turns)
{
	double best = INFINITY;

	for (unsigned p = 0; p < PN_COMPARISON_COMMANDS; p++)
		for (size_t n = 0; n < turns->nsizes; n++) {
			const double *paces =
				turns->samples[p][n][turns->nfigures - 1];

			for (unsigned r = 0; r < turns->nrounds; r++)
				if (paces[r] > 0 && paces[r] < best)
					best = paces[r];
		}
	return best;
}

unsigned pn_comparison_slow_rounds(const struct pn_comparison *turns,
				   unsigned player, size_t size)
{
	const double *paces = turns->samples[player][size][turns->nfigures - 1];
	double slow = SLOW * best_pace(turns);
	unsigned n = 0;

	for (unsigned r = 0; r < turns->nrounds; r++)
		n += paces[r] > slow;
	return n;
}

struct pn_spread pn_spread_of(double *samples, size_t n)
{
	double median;

	pn_assert(n);
	median = pn_median(samples, n); /* sorted from here on */
	return (struct pn_spread){ samples[0], median, samples[n - 1] };
}

struct pn_spread pn_comparison_spread(struct pn_comparison *turns,
				      unsigned player, size_t size,
				      unsigned figure)
{
	return pn_spread_of(turns->samples[player][size][figure],
			    turns->nrounds);
}
