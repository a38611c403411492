/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mappings -- which ranges of a program's addresses were one mapping, as far as
 * its trace tells: what joining neighbours depends on.
 *
 * The trace has an answer for each time that the cache asked. The newest is
 * right; what it contradicts is forgotten. Few are ever known, so they stand in
 * an array that is searched from its end.
 */
#ifndef PN_TOOLS_TRACE_MAPPINGS_H
#define PN_TOOLS_TRACE_MAPPINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/range.h"

/* All zero: none is known. */
struct pn_mappings {
	struct pn_range *at;
	size_t n, room;
};

void pn_mappings_fini(struct pn_mappings *mappings);
/* -ENOMEM. */
int pn_mappings_add(struct pn_mappings *mappings, uintptr_t addr, size_t len);
/* The range is in no single one. */
void pn_mappings_split(struct pn_mappings *mappings, uintptr_t addr,
		       size_t len);
/* The memory went away: what overlaps is known no longer. */
void pn_mappings_remove(struct pn_mappings *mappings, uintptr_t addr,
			size_t len);
/* Whether the range is known to lie in one. */
bool pn_mappings_cover(const struct pn_mappings *mappings, uintptr_t addr,
		       size_t len);

#endif
