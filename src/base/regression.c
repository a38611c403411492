/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/regression.h"

#include <errno.h>
#include <math.h>

static void residuals(const double *x, const double *y, size_t n,
		      struct pn_regression *fit)
{
	double sum = 0, max = 0;

	for (size_t i = 0; i < n; i++) {
		double fitted = fit->slope * x[i] + fit->intercept;
		double r = fabs(y[i] - fitted) / y[i];

		sum += r;
		max = fmax(max, r);
	}
	fit->mean_residual = sum / (double)n;
	fit->max_residual = max;
}

int pn_regression_line(const double *x, const double *y, size_t n,
		       struct pn_regression *out)
{
	double sw = 0, sx = 0, sy = 0, sxx = 0, sxy = 0, det;
	struct pn_regression fit = { 0 };

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
		fit.slope = fmax(0, (sw * sxy - sx * sy) / det);
	fit.intercept = (sy - fit.slope * sx) / sw;
	if (fit.intercept < 0) {
		fit.intercept = 0;
		fit.slope = sxy / sxx;
	}
	residuals(x, y, n, &fit);
	*out = fit;
	return 0;
}
