/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mappings -- which address ranges of a program were one mapping, as far as its
 * trace tells. The cache merges neighbouring regions only inside one mapping.
 *
 * The trace has one answer per question of the cache. The newest answer is
 * right; older ones that it contradicts are removed. Few mappings are known at
 * a time, so they are an array that is searched from its end.
 */
#ifndef PN_TOOLS_TRACE_MAPPINGS_H
#define PN_TOOLS_TRACE_MAPPINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/range.h"

/* All zero: no mapping is known. */
struct pn_mappings {
	struct pn_range *at;
	size_t n, capacity;
};

void pn_mappings_fini(struct pn_mappings *mappings);
/* The range is in a single mapping, and so are the known ones that overlap it.
 * -ENOMEM. */
int pn_mappings_add(struct pn_mappings *mappings, uintptr_t addr, size_t len);
/* The range is not in a single mapping: removes every mapping that covers it.
 */
void pn_mappings_split(struct pn_mappings *mappings, uintptr_t addr,
		       size_t len);
/* The memory was released: removes every mapping that overlaps. */
void pn_mappings_remove(struct pn_mappings *mappings, uintptr_t addr,
			size_t len);
/* Whether one known mapping covers the range. */
bool pn_mappings_cover(const struct pn_mappings *mappings, uintptr_t addr,
		       size_t len);

#endif
