/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/turns.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/compiler.h"
#include "device/measure.h"

/* False: there are no more. */
static bool take_line(struct pn_turns *turns, unsigned player, size_t size,
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

int pn_turns_play(struct pn_turns *turns, unsigned player, const char *command)
{
	FILE *lines = popen(command, "re");
	size_t n = 0;
	int status;

	if (!lines)
		return -errno;
	while (n < PN_TURNS_SIZES && take_line(turns, player, n, lines))
		n++;
	status = pclose(lines);
	if (WIFEXITED(status) && WEXITSTATUS(status) == PN_TURNS_ABSENT)
		return -ENODEV;
	if (status || !n || (turns->nsizes && n != turns->nsizes))
		return -EIO;
	turns->nsizes = n;
	return 0;
}

struct pn_spread pn_spread_of(double *samples, size_t n)
{
	double median;

	pn_assert(n);
	median = pn_median(samples, n); /* in order from here on */
	return (struct pn_spread){ samples[0], median, samples[n - 1] };
}

struct pn_spread pn_turns_spread(struct pn_turns *turns, unsigned player,
				 size_t size, unsigned figure)
{
	return pn_spread_of(turns->samples[player][size][figure],
			    turns->nrounds);
}
