/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/regression.h"

#include <errno.h>
#include <math.h>

static void residuals(const double *x, const double *y, size_t n,
		      struct pn_regression *line)
{
	double sum = 0, max = 0;

	for (size_t i = 0; i < n; i++) {
		double fitted = line->slope * x[i] + line->intercept;
		double r = fabs(y[i] - fitted) / y[i];

		sum += r;
		max = fmax(max, r);
	}
	line->mean_residual = sum / (double)n;
	line->max_residual = max;
}

int pn_regression_line(const double *x, const double *y, size_t n,
		       struct pn_regression *out)
{
	double sw = 0, sx = 0, sy = 0, sxx = 0, sxy = 0, det;
	struct pn_regression line = { 0 };

	if (!n)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		double w = 1 / (y[i] * y[i]);

		if (!(y[i] > 0))
			return -EINVAL;
		sw += w;
		sx += w * x[i];
		sy += w * y[i];
		sxx += w * x[i] * x[i];
		sxy += w * x[i] * y[i];
	}
	det = sw * sxx - sx * sx;
	/* All x equal: nothing is known about the slope. */
	if (det > 1e-12 * sw * sxx)
		line.slope = fmax(0, (sw * sxy - sx * sy) / det);
	line.intercept = (sy - line.slope * sx) / sw;
	if (line.intercept < 0) {
		line.intercept = 0;
		line.slope = sxy / sxx;
	}
	residuals(x, y, n, &line);
	*out = line;
	return 0;
}
