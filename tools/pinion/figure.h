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
 * Each figure has a *finding*: a sentence with the numbers that matter (where
 * curves differ most, from where to where a single one goes, or what saves most
 * at no price), and the point
 * of the grid where that is seen, for the picture to mark.
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
	/* the first curve is saved at the price of the second; both are times
	 * what they are without the idea */
	PN_FIGURE_TRADE = 1 << 7,
};

/* The question that a figure belongs to: its section of the page. The first
 * five are those of the papers (agreement.h). */
enum pn_question {
	PN_QUESTION_HELPER,
	PN_QUESTION_HEAP,
	PN_QUESTION_PIPELINE,
	PN_QUESTION_CACHE,
	PN_QUESTION_REUSE,
	PN_QUESTION_PROGRAM, /* of one recorded program */
	PN_QUESTIONS
};

#define PN_FIGURE_YS 4 /* keys for y, at most */

struct pn_figure_plan {
	enum pn_question question;
	const char *title;
	const char *says; /* one sentence: what the figure shows */
	const char *bench;
	const char *where[3]; /* conditions of pn_row_meets() */
	const char *x, *y;
	/* Further keys for y with the names of their curves, and the name of
	 * y's; NULL: none. */
	const char *y_name;
	struct pn_figure_y {
		const char *key, *name;
	} more[PN_FIGURE_YS - 1];
	/* Over time, rows are maxima of spans; this key has their means. */
	const char *mean;
	/* Rows may be of some of many (nodes): the key with their number. */
	const char *of;
	const char *curve[2]; /* keys; the second may be NULL */
	/* keys, or NULL: one figure for each pair of their values */
	const char *each, *each_too;
	const char *x_label, *y_label; /* with units */
	int good;	/* 1: more is better; -1: less is better; 0: neither */
	double y_scale; /* divisor of y; 0: 1 */
	unsigned style; /* enum pn_figure_style */
};

extern const struct pn_figure_plan pn_figure_plans[];
extern const size_t pn_figure_nplans;

struct pn_figure {
	const struct pn_figure_plan *plan;
	const struct pn_row *about; /* one of its rows: device, command, ... */
	char each[160];	 /* "reuse 32", "what bcast, ranks 4", or "" */
	char **commands; /* those that gave its rows */
	size_t ncommands;
	size_t nx, ncurves;
	double *xs;	/* ascending; for words: 0, 1, ... */
	char **x_words; /* the x values as text */
	char **curves;	/* names */
	double *ys;	/* [x * ncurves + curve]; NAN: no value */
	double *means;	/* the same of plan->mean; NULL: none */
	char *svg;	/* set by plot.h; NULL: no picture */
	/* What was found, a sentence, and the point that shows it. */
	char finding[512];
	size_t found_x, found_curve;
};

struct pn_figures {
	struct pn_figure *list;
	size_t n;
};

/* Makes all figures of the rows, in the order of the plans. -ENOMEM. */
int pn_figures_make(const struct pn_rows *rows, struct pn_figures *out);
/* Writes a value of the figure with its unit. Returns buf. */
const char *pn_figure_value(const struct pn_figure *figure, double y, char *buf,
			    size_t bytes);

/* Writes finding, found_x and found_curve (finding.c). */
void pn_figure_find(struct pn_figure *figure);

/* Mean over time of a curve whose points are spans. */
double pn_figure_time_mean(const struct pn_figure *figure, size_t curve);

void pn_figures_fini(struct pn_figures *figures);

#endif
