/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * figure -- pictures and tables that rows of measurements make.
 *
 * A *plan* says which rows become a figure and how: whose rows (bench, and
 * conditions), what runs along x and y, what tells curves apart. The table of
 * plans is figures.c; a new figure is a row there. A *figure* is what a plan
 * made of the rows at hand: a grid of x values by curves. One plan makes
 * several figures when rows differ in the key `each`, or in device or profile:
 * what was measured on different devices never shares a picture.
 *
 * Life: pn_figures_make() -> drawn (plot.h) and written (page.h) ->
 * pn_figures_fini(). Figures point into the rows, which must outlive them.
 * Threads: the caller's.
 */
#ifndef PN_TOOLS_FIGURE_H
#define PN_TOOLS_FIGURE_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/pinion/rows.h"

enum pn_figure_style {
	PN_FIGURE_LOG_X = 1 << 0,
	PN_FIGURE_LOG_Y = 1 << 1,
	PN_FIGURE_BARS = 1 << 2,  /* x are words */
	PN_FIGURE_STEPS = 1 << 3, /* a value holds until the next */
	PN_FIGURE_BYTES_X = 1 << 4,
	PN_FIGURE_BYTES_Y = 1 << 5,
	PN_FIGURE_NO_TABLE = 1 << 6, /* curves over time: the table sums up */
};

struct pn_figure_plan {
	const char *title;
	const char *says; /* what to look for, a sentence */
	const char *bench;
	const char *where[3]; /* conditions, as pn_row_meets() */
	const char *x, *y;
	const char *curve[2]; /* keys; the second may be NULL */
	const char *each;     /* a key, or NULL */
	const char *x_label, *y_label;
	double y_scale; /* what y is divided by; 0: 1 */
	unsigned style; /* enum pn_figure_style */
};

extern const struct pn_figure_plan pn_figure_plans[];
extern const size_t pn_figure_nplans;

struct pn_figure {
	const struct pn_figure_plan *plan;
	const struct pn_row *about; /* a row of it: device, command, ... */
	char each[128];		    /* "reuse 32", or "" */
	size_t nx, ncurves;
	double *xs;	/* rising; of words: 0, 1, ... */
	char **x_words; /* how a person writes them */
	char **curves;	/* names */
	double *ys;	/* [x * ncurves + curve]; NAN: none */
	char *svg;	/* set by plot.h; NULL: no picture */
};

struct pn_figures {
	struct pn_figure *list;
	size_t n;
};

/* All figures that the rows make, in the order of the plans. -ENOMEM. */
int pn_figures_make(const struct pn_rows *rows, struct pn_figures *out);
void pn_figures_fini(struct pn_figures *figures);

#endif
