/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * page -- one self-contained HTML page of figures: no network, no script. Light
 * or dark as the reader's system, black on white in print, one column on a
 * telephone.
 *
 * Each figure names its device and cost profile, whether the costs are
 * emulated, the machine, and the command. Profiles used by figures are printed
 * in full, with assumed figures marked.
 * Threads: one at a time.
 */
#ifndef PN_TOOLS_PAGE_H
#define PN_TOOLS_PAGE_H

#include <stdio.h>

#include "tools/pinion/figure.h"

struct pn_agreement; /* agreement.h */

/* `bench` of rows with what other programs used while an experiment measured
 * time: `experiment`, `others_percent`. */
#define PN_PAGE_BUSY "reproduce"

/* An experiment that the machine cannot run. */
struct pn_left_out {
	const char *name;
	const char *rows; /* of the design */
	const char *why;
};

struct pn_page {
	const char *title;
	const struct pn_rows *rows;
	const struct pn_figures *figures;
	/* Comparison with the papers; nagreements 0: none. */
	const struct pn_agreement *agreements;
	size_t nagreements;
	const struct pn_left_out *left_out;
	size_t nleft_out;
};

/* -EIO: write error. */
int pn_page_write(const struct pn_page *page, FILE *file);

#endif
