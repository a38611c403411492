/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * around -- rows of `pinion bench peers`: a program that registers around each
 * transfer (register_around.c), alone, under `pinion run --verbs`, and by the
 * caches of UCX and libfabric, on the same adapter in turns.
 */
#ifndef PN_BENCH_AROUND_H
#define PN_BENCH_AROUND_H

#include <stddef.h>
#include <stdint.h>

#include "tools/pinion/report.h"

struct pn_around {
	const char *adapter;
	unsigned port, gid;
	size_t rounds;
	uint64_t writes; /* of a round of the program */
};

/* Measures and prints a table of its own. Layers that are not installed are
 * named in a note. */
void pn_around_report(struct pn_report *report, const struct pn_around *around);

#endif
