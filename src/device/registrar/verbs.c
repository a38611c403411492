/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/registrar/verbs.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "device/registrar/per_range.h"
#include "device/verbs_access.h"

struct domain {
	struct pn_registrar_per_range per_range;
	struct ibv_pd *pd;
	bool is_iwarp, has_atomics;
};

static int register_one(void *arg, struct pinion_registrar_range *range)
{
	const struct domain *domain = arg;
	struct ibv_mr *mr;

	if (range->access & PINION_ACCESS_REMOTE_ATOMIC && !domain->has_atomics)
		return -EOPNOTSUPP;
	mr = ibv_reg_mr(domain->pd, range->addr, range->len,
			pn_verbs_access(range->access, domain->is_iwarp));
	if (!mr)
		return pn_verbs_reg_error(errno, range->addr, range->len);
	range->handle = mr;
	range->local_key = mr->lkey;
	range->remote_key = range->access & PN_ACCESS_REMOTE ? mr->rkey : 0;
	return 0;
}

/* EBUSY: the program has bound a memory window to it. */
static int deregister_one(void *arg, struct pinion_registrar_range *range)
{
	(void)arg;
	return -ibv_dereg_mr(range->handle);
}

static void set_limits(const struct ibv_device_attr *attr, const char *adapter,
		       struct pinion_registrar *out)
{
	size_t max_mrs = pn_verbs_max_mrs(attr, adapter);

	out->max_registration_bytes = attr->max_mr_size < SIZE_MAX / 2
					      ? (size_t)attr->max_mr_size
					      : SIZE_MAX / 2;
	out->max_registrations = max_mrs == SIZE_MAX ? 0 : max_mrs;
	out->max_pinned_bytes = pn_limits_memlock();
}

int pn_registrar_verbs(struct ibv_pd *pd, struct pinion_registrar *out)
{
	struct ibv_device_attr attr;
	struct domain *domain;
	int error = ibv_query_device(pd->context, &attr);

	if (error) {
		pn_error("verbs: the adapter of the protection domain does not "
			 "report its limits: %s",
			 strerror(error));
		return -EIO;
	}
	domain = calloc(1, sizeof(*domain));
	if (!domain)
		return -ENOMEM;
	domain->per_range =
		(struct pn_registrar_per_range){ register_one, deregister_one };
	domain->pd = pd;
	domain->is_iwarp =
		pd->context->device->transport_type == IBV_TRANSPORT_IWARP;
	domain->has_atomics =
		!domain->is_iwarp && attr.atomic_cap != IBV_ATOMIC_NONE;
	*out = (struct pinion_registrar){
		.size = sizeof(*out),
		.flags = PINION_REGISTRAR_READ_ONLY,
		.arg = domain,
		.register_ranges = pn_registrar_per_range_register,
		.deregister_ranges = pn_registrar_per_range_deregister,
	};
	set_limits(&attr, ibv_get_device_name(pd->context->device), out);
	return 0;
}
