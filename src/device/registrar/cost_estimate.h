/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * learn -- what calls cost, as a line over pages, from the calls themselves.
 *
 * The line of base/regression.h (relative residuals), kept as running sums so
 * that a call costs a few multiplications. Old calls fade: each new one takes
 * 1/PN_COST_ESTIMATE_MEMORY of the weight, so that the line follows a machine
 * that becomes busy.
 *
 * Threads: any. A call that finds another thread at it is not counted.
 */
#ifndef PN_DEVICE_REGISTRAR_LEARN_H
#define PN_DEVICE_REGISTRAR_LEARN_H

#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"

#define PN_COST_ESTIMATE_MEMORY 256

struct pn_cost_estimate {
	struct pn_mutex lock;
	double w, x, y, xx, xy;
};

void pn_cost_estimate_init(struct pn_cost_estimate *learn);
void pn_cost_estimate_fini(struct pn_cost_estimate *learn);

/* A call for n ranges of npages in all took ns; the line of one range goes to
 * *fixed and *per_page, which other threads read by pn_cost(). */
void pn_cost_estimate_add(struct pn_cost_estimate *learn, unsigned n,
			  size_t npages, uint64_t ns, double *fixed,
			  double *per_page);

#endif
