/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * figure -- figures (pictures and tables) made from rows of measurements.
 *
 * A *plan* selects the rows of a figure (bench and conditions), the keys for x
 * and y, and the keys that distinguish curves. The plans are the table in
 * figures.c; a new figure is a new entry. A *figure* is the result of a plan: a
 * grid of x values by curves. One plan makes several figures if rows differ in
 * the key `each`, or in device or profile: results of different devices are
 * never in one picture.
 *
 * Life: pn_figures_make() -> drawn (plot.h) and written (page.h) ->
 * pn_figures_fini(). Figures point into the rows, which must outlive them.
 * Threads: one at a time.
 */
#ifndef PN_TOOLS_FIGURE_H
#define PN_TOOLS_FIGURE_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/pinion/rows.h"

enum pn_figure_style {
	PN_FIGURE_LOG_X = 1 << 0,
	PN_FIGURE_LOG_Y = 1 << 1,
	PN_FIGURE_BARS = 1 << 2,  /* x values are words */
	PN_FIGURE_STEPS = 1 << 3, /* a value holds until the next x */
	PN_FIGURE_BYTES_X = 1 << 4,
	PN_FIGURE_BYTES_Y = 1 << 5,
	/* curves over time: the table has summaries only */
	PN_FIGURE_NO_TABLE = 1 << 6,
};

struct pn_figure_plan {
	const char *title;
	const char *says; /* one sentence: what the figure shows */
	const char *bench;
	const char *where[3]; /* conditions of pn_row_meets() */
	const char *x, *y;
	const char *curve[2]; /* keys; the second may be NULL */
	const char *each;     /* key, or NULL: one figure per value */
	const char *x_label, *y_label;
	double y_scale; /* divisor of y; 0: 1 */
	unsigned style; /* enum pn_figure_style */
};

extern const struct pn_figure_plan pn_figure_plans[];
extern const size_t pn_figure_nplans;

struct pn_figure {
	const struct pn_figure_plan *plan;
	const struct pn_row *about; /* one of its rows: device, command, ... */
	char each[128];		    /* "reuse 32", or "" */
	size_t nx, ncurves;
	double *xs;	/* ascending; for words: 0, 1, ... */
	char **x_words; /* the x values as text */
	char **curves;	/* names */
	double *ys;	/* [x * ncurves + curve]; NAN: no value */
	char *svg;	/* set by plot.h; NULL: no picture */
};

struct pn_figures {
	struct pn_figure *list;
	size_t n;
};

/* Makes all figures of the rows, in the order of the plans. -ENOMEM. */
int pn_figures_make(const struct pn_rows *rows, struct pn_figures *out);
void pn_figures_fini(struct pn_figures *figures);

#endif
