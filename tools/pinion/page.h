/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * page -- one HTML page of figures that needs nothing else: no network, no
 * script. Light or dark as the reader's system is, black on white on paper,
 * one column on a telephone.
 *
 * Each figure says on which device and with which costs it was made, whether
 * these are emulated, on which machine, and by which command. Profiles that
 * figures used are printed in full, assumed figures marked.
 * Threads: the caller's.
 */
#ifndef PN_TOOLS_PAGE_H
#define PN_TOOLS_PAGE_H

#include <stdio.h>

#include "tools/pinion/figure.h"

struct pn_agreement; /* agreement.h */

struct pn_page {
	const char *title;
	const struct pn_rows *rows;
	const struct pn_figures *figures;
	/* What papers say beside what was found; n 0: there is none. */
	const struct pn_agreement *agreements;
	size_t nagreements;
};

/* -EIO: it could not be written. */
int pn_page_write(const struct pn_page *page, FILE *file);

#endif
