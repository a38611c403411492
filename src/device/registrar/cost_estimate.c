/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/registrar/cost_estimate.h"

void pn_cost_estimate_init(struct pn_cost_estimate *learn)
{
	*learn = (struct pn_cost_estimate){ .w = 0 };
	pn_mutex_init(&learn->lock);
}

void pn_cost_estimate_fini(struct pn_cost_estimate *learn)
{
	pn_mutex_fini(&learn->lock);
}

static void add(struct pn_cost_estimate *learn, double x, double y)
{
	const double keep = 1 - 1.0 / PN_COST_ESTIMATE_MEMORY;
	double w = 1 / (y * y);

	learn->w = keep * learn->w + w;
	learn->x = keep * learn->x + w * x;
	learn->y = keep * learn->y + w * y;
	learn->xx = keep * learn->xx + w * x * x;
	learn->xy = keep * learn->xy + w * x * y;
}

static void store(double *where, double value)
{
	__atomic_store(where, &value, __ATOMIC_RELAXED);
}

/* As pn_regression_line(): neither coefficient is below zero, and nothing is
 * known of the slope while all calls are of one size. */
static void solve(const struct pn_cost_estimate *learn, double *fixed,
		  double *per_page)
{
	double det = learn->w * learn->xx - learn->x * learn->x;
	double slope = 0, intercept;

	if (det > 1e-9 * learn->w * learn->xx)
		slope = (learn->w * learn->xy - learn->x * learn->y) / det;
	if (slope < 0)
		slope = 0;
	intercept = (learn->y - slope * learn->x) / learn->w;
	if (intercept < 0) {
		intercept = 0;
		slope = learn->xy / learn->xx;
	}
	store(fixed, intercept);
	store(per_page, slope);
}

void pn_cost_estimate_add(struct pn_cost_estimate *learn, unsigned n,
			  size_t npages, uint64_t ns, double *fixed,
			  double *per_page)
{
	if (!pn_try_lock(&learn->lock))
		return;
	/* A clock may stand still for as long as a call takes. */
	add(learn, (double)npages / n, (double)(ns ? ns : 1) / n);
	solve(learn, fixed, per_page);
	pn_unlock(&learn->lock);
}
