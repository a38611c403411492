/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/trace/mappings.h"

#include <errno.h>
#include <stdlib.h>

void pn_mappings_fini(struct pn_mappings *mappings)
{
	free(mappings->at);
}

typedef bool touch_fn(struct pn_range mapping, struct pn_range range);

/* Removes the mappings for which touches(mapping, range) holds. */
static void forget(struct pn_mappings *mappings, touch_fn *touches,
		   struct pn_range range)
{
	size_t kept = 0;

	for (size_t i = 0; i < mappings->n; i++)
		if (!touches(mappings->at[i], range))
			mappings->at[kept++] = mappings->at[i];
	mappings->n = kept;
}

void pn_mappings_remove(struct pn_mappings *mappings, uintptr_t addr,
			size_t len)
{
	forget(mappings, pn_range_overlaps, (struct pn_range){ addr, len });
}

void pn_mappings_split(struct pn_mappings *mappings, uintptr_t addr, size_t len)
{
	forget(mappings, pn_range_covers, (struct pn_range){ addr, len });
}

int pn_mappings_add(struct pn_mappings *mappings, uintptr_t addr, size_t len)
{
	struct pn_range range = { addr, len };

	/* Mappings do not overlap: ranges that do are in the same one. A plan
	 * may ask for two of them before it uses the first answer. */
	for (size_t i = 0; i < mappings->n; i++)
		if (pn_range_overlaps(mappings->at[i], range))
			range = pn_range_hull(mappings->at[i], range);
	pn_mappings_remove(mappings, addr, len);
	if (mappings->n == mappings->capacity) {
		size_t capacity =
			mappings->capacity ? 2 * mappings->capacity : 16;
		struct pn_range *at =
			reallocarray(mappings->at, capacity, sizeof(*at));

		if (!at)
			return -ENOMEM;
		mappings->at = at;
		mappings->capacity = capacity;
	}
	mappings->at[mappings->n++] = range;
	return 0;
}

bool pn_mappings_cover(const struct pn_mappings *mappings, uintptr_t addr,
		       size_t len)
{
	struct pn_range range = { addr, len };

	for (size_t i = mappings->n; i--;)
		if (pn_range_covers(mappings->at[i], range))
			return true;
	return false;
}
