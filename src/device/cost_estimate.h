/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cost_estimate -- estimates the cost of a call from the calls themselves: a
 * fixed cost and a cost per page.
 *
 * It is the regression of base/regression.h (relative residuals), kept as
 * running sums, so a call costs a few multiplications. Old calls fade: each new
 * one gets 1/PN_COST_ESTIMATE_MEMORY of the weight, so the estimate follows a
 * machine that becomes busy. A caller to whom reading the clock matters asks
 * pn_cost_estimate_wants() first, and then times one call in 8 only.
 *
 * Threads: any. A call during which another thread updates the estimate is not
 * counted.
 */
#ifndef PN_DEVICE_COST_ESTIMATE_H
#define PN_DEVICE_COST_ESTIMATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"

#define PN_COST_ESTIMATE_MEMORY 256

struct pn_cost_estimate {
	double *fixed_ns, *page_ns; /* the result; read by pn_cost() */
	struct pn_mutex lock;	    /* protects the sums */
	double w, x, y, xx, xy;
	_Atomic uint64_t nasked; /* pn_cost_estimate_wants() */
};

/* The estimate is stored to *fixed_ns and *page_ns. */
void pn_cost_estimate_init(struct pn_cost_estimate *estimate, double *fixed_ns,
			   double *page_ns);
void pn_cost_estimate_fini(struct pn_cost_estimate *estimate);

/* Whether the next call should be timed: all of the first
 * PN_COST_ESTIMATE_MEMORY, then one in 8, not at equal distances, since
 * programs register buffers of different sizes in turns. */
bool pn_cost_estimate_wants(struct pn_cost_estimate *estimate);

/* Adds a call for n ranges of npages in all that took ns. The estimate is for
 * one range. */
void pn_cost_estimate_add(struct pn_cost_estimate *estimate, unsigned n,
			  size_t npages, uint64_t ns);

#endif
