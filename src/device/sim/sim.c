/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/sim/sim.h"

#include <errno.h>

static int not_yet(const char *params, const struct pn_device_attr *attr,
		   struct pn_device **out)
{
	(void)params, (void)attr, (void)out;
	return -ENODEV;
}

const struct pn_device_ops pn_sim_ops = { .kind = "sim",
					  .help = "",
					  .open = not_yet };
