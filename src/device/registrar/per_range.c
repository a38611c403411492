/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/registrar/per_range.h"

#include <string.h>

#include "base/log.h"

int pn_registrar_per_range_deregister(
	void *arg, struct pinion_registrar_range *const *ranges, unsigned n)
{
	const struct pn_registrar_per_range *per_range = arg;
	int ret = 0;

	for (unsigned i = 0; i < n; i++) {
		ranges[i]->status = per_range->dereg(arg, ranges[i]);
		if (ranges[i]->status)
			ret = ranges[i]->status;
	}
	return ret;
}

int pn_registrar_per_range_register(
	void *arg, struct pinion_registrar_range *const *ranges, unsigned n)
{
	const struct pn_registrar_per_range *per_range = arg;
	int ret = 0;
	unsigned done = 0;

	while (!ret && done < n) {
		ret = per_range->reg(arg, ranges[done]);
		done += !ret;
	}
	if (ret && pn_registrar_per_range_deregister(arg, ranges, done))
		pn_error("registrar: memory of a failed batch of registrations "
			 "stays registered");
	return ret;
}
