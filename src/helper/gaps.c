/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/gaps.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

#define FIRST_CAPACITY 4

void pn_gaps_fini(struct pn_gaps *gaps)
{
	free(gaps->recent);
}

/* The index of `gap` in the sorted array, or where it belongs. */
static unsigned index_of(const struct pn_gaps *gaps, uint64_t gap)
{
	unsigned low = 0, high = gaps->n;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (gaps->sorted[middle] < gap)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Doubles the storage when it is full. `next` is 0 then, so that the oldest gap
 * is the first, unless memory was short before: then the storage stays. */
static void grow(struct pn_gaps *gaps)
{
	unsigned capacity =
		gaps->capacity ? 2u * gaps->capacity : FIRST_CAPACITY;
	uint64_t *recent;

	if (capacity > PN_GAPS_MAX || gaps->next)
		return;
	recent = malloc(2 * capacity * sizeof(*recent));
	if (!recent)
		return;
	if (gaps->n) {
		memcpy(recent, gaps->recent, gaps->n * sizeof(*recent));
		memcpy(recent + capacity, gaps->sorted,
		       gaps->n * sizeof(*recent));
	}
	free(gaps->recent);
	gaps->recent = recent;
	gaps->sorted = recent + capacity;
	gaps->capacity = (uint16_t)capacity;
	gaps->next = gaps->n;
}

static void forget_oldest(struct pn_gaps *gaps)
{
	unsigned at = index_of(gaps, gaps->recent[gaps->next]);

	gaps->n--;
	memmove(&gaps->sorted[at], &gaps->sorted[at + 1],
		(gaps->n - at) * sizeof(*gaps->sorted));
}

void pn_gaps_add(struct pn_gaps *gaps, uint64_t gap_ns)
{
	unsigned at;

	if (gaps->n == gaps->capacity)
		grow(gaps);
	if (!gaps->capacity)
		return;
	if (gaps->n == gaps->capacity)
		forget_oldest(gaps);
	at = index_of(gaps, gap_ns);
	memmove(&gaps->sorted[at + 1], &gaps->sorted[at],
		(gaps->n - at) * sizeof(*gaps->sorted));
	gaps->sorted[at] = gap_ns;
	gaps->recent[gaps->next] = gap_ns;
	gaps->n++;
	gaps->next = (uint16_t)((gaps->next + 1) % gaps->capacity);
}

/* The share of a gap by which to be early. The lower eighth instead of the
 * shortest: one odd gap says nothing about the others. */
static double margin(const struct pn_gaps *gaps)
{
	const unsigned eighth = gaps->n / 8, half = gaps->n / 2;
	double low = (double)gaps->sorted[eighth];
	double median = (double)gaps->sorted[half];
	double spread = low > 0 ? median / low - 1 : 0;

	return spread < 0.1 ? spread : 0.1;
}

/* Goes from the longest gap to the shortest. The gaps from `behind` on are not
 * shorter than the candidate; `sum` is their sum. */
uint64_t pn_gaps_deadline(const struct pn_gaps *gaps, double late_ns,
			  double hold)
{
	double early, unseen, n = gaps->n, best = 0, best_cost, sum = 0;
	unsigned behind = gaps->n;

	if (gaps->n < PN_GAPS_FEW)
		return gaps->sorted[0] - gaps->sorted[0] * 3 / 500;
	early = margin(gaps);
	unseen = early < 0.05 ? 0.1 : 1;
	best_cost = 0;
	for (unsigned i = 0; i < gaps->n; i++)
		best_cost += hold * (double)gaps->sorted[i] / n;
	for (unsigned i = gaps->n; i--;) {
		double d = (double)gaps->sorted[i] * (1 - early), cost;

		while (behind && (double)gaps->sorted[behind - 1] >= d)
			sum += (double)gaps->sorted[--behind];
		cost = late_ns * (behind + unseen) / (n + 1) +
		       hold * (sum - d * (n - behind)) / n;
		if (cost < best_cost) {
			best_cost = cost;
			best = d;
		}
	}
	return (uint64_t)best;
}
