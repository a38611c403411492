/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * each -- batches for transports that register ranges one by one.
 *
 * The contract of pinion/registrar.h: registering is all or nothing, and
 * deregistering goes on behind a range that cannot be deregistered.
 */
#ifndef PN_DEVICE_REGISTRAR_EACH_H
#define PN_DEVICE_REGISTRAR_EACH_H

#include <pinion/registrar.h>

/* Returns 0 or a negative errno. */
typedef int pn_registrar_one_fn(void *arg,
				struct pinion_registrar_range *range);

/* What the argument of such a registrar begins with. */
struct pn_registrar_per_range {
	pn_registrar_one_fn *reg, *dereg;
};

/* The functions of the registrar. */
int pn_registrar_per_range_deregister(
	void *arg, struct pinion_registrar_range *const *ranges, unsigned n);
int pn_registrar_per_range_register(
	void *arg, struct pinion_registrar_range *const *ranges, unsigned n);

#endif
