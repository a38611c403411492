/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * regression -- the straight line y = a x + b through measured points.
 *
 * The cost of a registration is modelled as a line over pages (Wu and others
 * 2003; Ou and others 2009, section 8). Measured points span five decades,
 * so the line minimises relative residuals (weights 1/y^2): otherwise the
 * largest size decides b by itself. Both coefficients are at least zero, since
 * a cost cannot be negative.
 */
#ifndef PN_BASE_REGRESSION_H
#define PN_BASE_REGRESSION_H

#include <stddef.h>

struct pn_regression {
	double slope;	      /* a: y per x */
	double intercept;     /* b: y at x = 0 */
	double mean_residual; /* mean of |measured - fitted| / measured */
	double max_residual;
};

/* The line through n points; y[i] > 0. n == 1 gives a line of slope 0. -EINVAL:
 * n is 0 or a y is not positive. */
int pn_regression_line(const double *x, const double *y, size_t n,
		       struct pn_regression *out);

#endif
