/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * per_range -- the functions of a registrar, for transports that register one
 * range at a time.
 *
 * As pinion/registrar.h demands, registering is all or nothing, and
 * deregistering continues after a range that cannot be deregistered.
 */
#ifndef PN_DEVICE_REGISTRAR_PER_RANGE_H
#define PN_DEVICE_REGISTRAR_PER_RANGE_H

#include <pinion/registrar.h>

/* Returns 0 or a negative errno. */
typedef int pn_registrar_one_fn(void *arg,
				struct pinion_registrar_range *range);

/* The argument of such a registrar begins with it. */
struct pn_registrar_per_range {
	pn_registrar_one_fn *reg, *dereg;
};

/* The functions of the registrar. */
int pn_registrar_per_range_deregister(
	void *arg, struct pinion_registrar_range *const *ranges, unsigned n);
int pn_registrar_per_range_register(
	void *arg, struct pinion_registrar_range *const *ranges, unsigned n);

#endif
