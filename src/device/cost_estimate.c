/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/cost_estimate.h"

void pn_cost_estimate_init(struct pn_cost_estimate *estimate, double *fixed_ns,
			   double *page_ns)
{
	*estimate = (struct pn_cost_estimate){ .fixed_ns = fixed_ns,
					       .page_ns = page_ns };
	pn_mutex_init(&estimate->lock);
}

void pn_cost_estimate_fini(struct pn_cost_estimate *estimate)
{
	pn_mutex_fini(&estimate->lock);
}

static void add(struct pn_cost_estimate *estimate, double x, double y)
{
	const double keep = 1 - 1.0 / PN_COST_ESTIMATE_MEMORY;
	double w = 1 / (y * y);

	estimate->w = keep * estimate->w + w;
	estimate->x = keep * estimate->x + w * x;
	estimate->y = keep * estimate->y + w * y;
	estimate->xx = keep * estimate->xx + w * x * x;
	estimate->xy = keep * estimate->xy + w * x * y;
}

static void store(double *where, double value)
{
	__atomic_store(where, &value, __ATOMIC_RELAXED);
}

/* As pn_regression_line(): no coefficient is negative, and the slope is 0 while
 * all calls have the same size. */
static void solve(const struct pn_cost_estimate *estimate)
{
	double det = estimate->w * estimate->xx - estimate->x * estimate->x;
	double slope = 0, intercept;

	if (det > 1e-9 * estimate->w * estimate->xx)
		slope = (estimate->w * estimate->xy -
			 estimate->x * estimate->y) /
			det;
	if (slope < 0)
		slope = 0;
	intercept = (estimate->y - slope * estimate->x) / estimate->w;
	if (intercept < 0) {
		intercept = 0;
		slope = estimate->xy / estimate->xx;
	}
	store(estimate->fixed_ns, intercept);
	store(estimate->page_ns, slope);
}

/* Threads may lose a count. The upper bits of multiples of the golden ratio are
 * spread evenly, with whatever step one goes through them. */
bool pn_cost_estimate_wants(struct pn_cost_estimate *estimate)
{
	uint64_t n =
		atomic_load_explicit(&estimate->nasked, memory_order_relaxed);

	atomic_store_explicit(&estimate->nasked, n + 1, memory_order_relaxed);
	return n < PN_COST_ESTIMATE_MEMORY ||
	       !(n * UINT64_C(0x9e3779b97f4a7c15) >> 61);
}

void pn_cost_estimate_add(struct pn_cost_estimate *estimate, unsigned n,
			  size_t npages, uint64_t ns)
{
	if (!pn_try_lock(&estimate->lock))
		return;
	/* A coarse clock may not advance during a call. */
	add(estimate, (double)npages / n, (double)(ns ? ns : 1) / n);
	solve(estimate);
	pn_unlock(&estimate->lock);
}
