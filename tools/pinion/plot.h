/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * plot -- draws figures with gnuplot, as SVG that takes its colours of text and
 * axes from the page it stands in.
 *
 * One gnuplot draws all figures of a report, from a script and into files of a
 * temporary folder. Texts of rows reach the script without any character that
 * gnuplot gives a meaning to.
 * Threads: the caller's.
 */
#ifndef PN_TOOLS_PLOT_H
#define PN_TOOLS_PLOT_H

#include "tools/pinion/figure.h"

/* Sets figure->svg of each. -ENOENT: there is no gnuplot; -EIO: it failed, and
 * has said why on standard error; -ENOMEM. Figures stay without pictures. */
int pn_plot(struct pn_figures *figures);

#endif
