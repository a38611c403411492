/* SPDX-License-Identifier: BSD-2-Clause */
/* Replaces the registrars whose libraries were absent when pinion was built. */
#include <errno.h>

#include "base/log.h"
#include "device/registrar/fabric.h"
#include "device/registrar/verbs.h"

#ifndef PINION_VERBS
int pn_registrar_verbs(struct ibv_pd *pd, struct pinion_registrar *out)
{
	(void)pd, (void)out;
	pn_error("verbs: this pinion was built without libibverbs");
	return -EOPNOTSUPP;
}
#endif

#ifndef PINION_FABRIC
int pn_registrar_fabric(const struct pinion_fabric_attr *attr,
			struct pinion_registrar *out)
{
	(void)attr, (void)out;
	pn_error("fabric: this pinion was built without libfabric");
	return -EOPNOTSUPP;
}

uint64_t pn_registrar_fabric_addr(const struct pinion_pin *pin)
{
	(void)pin;
	return 0;
}
#endif
