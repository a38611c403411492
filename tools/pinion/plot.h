/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * plot -- draws figures with gnuplot, as SVG whose text and axes take their
 * colours from the surrounding page.
 *
 * One gnuplot process draws all figures of a report, from a script and into
 * files of a temporary folder. Texts from rows are stripped of characters that
 * have a meaning in gnuplot.
 * Threads: one at a time.
 */
#ifndef PN_TOOLS_PLOT_H
#define PN_TOOLS_PLOT_H

#include "tools/pinion/figure.h"

/* Sets figure->svg of each figure. -ENOENT: gnuplot is not installed; -EIO:
 * gnuplot failed and printed why on standard error; -ENOMEM. After an error,
 * figures have no pictures. */
int pn_plot(struct pn_figures *figures);

#endif
