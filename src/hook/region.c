/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions: what the cache registers with the provider. */
#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "hook/hook.h"

/* Errors from FI_ERRNO_OFFSET on are libfabric's own. */
static int error_of(int ret)
{
	return -ret >= FI_ERRNO_OFFSET ? -EIO : ret;
}

/* Local rights beyond what was asked for harm nobody, and make one region good
 * for more MRs. FI_READ is a right of peers on iWARP: see access_of() in
 * mr.c. */
static uint64_t access_of(const struct pn_hook_domain *domain, unsigned access)
{
	uint64_t flags = FI_SEND | FI_WRITE;

	if (access & PINION_ACCESS_LOCAL_WRITE)
		flags |= domain->is_iwarp ? FI_RECV : FI_RECV | FI_READ;
	if (access & PINION_ACCESS_REMOTE_READ)
		flags |= FI_REMOTE_READ;
	if (access & PINION_ACCESS_REMOTE_WRITE)
		flags |= domain->is_iwarp ? FI_REMOTE_WRITE | FI_READ
					  : FI_REMOTE_WRITE;
	return flags;
}

static int register_one(void *arg, struct pinion_registrar_range *range)
{
	struct pn_hook_domain *domain = arg;
	struct iovec iov = { range->addr, range->len };
	struct fi_mr_attr attr = { .mr_iov = &iov,
				   .iov_count = 1,
				   .access = access_of(domain, range->access) };
	struct pn_hook_region *region = calloc(1, sizeof(*region));
	int ret;

	if (!region)
		return -ENOMEM;
	ret = domain->real_mr->regattr(&domain->fid->fid, &attr, 0,
				       &region->mr);
	if (ret) {
		free(region);
		return error_of(ret);
	}
	region->addr = range->addr;
	region->len = range->len;
	region->access = range->access;
	range->handle = region;
	range->local_key = (uintptr_t)fi_mr_desc(region->mr);
	range->remote_key = range->access & PN_HOOK_REMOTE_ACCESS
				    ? fi_mr_key(region->mr)
				    : 0;
	return 0;
}

/* A provider that closes a domain with MRs has freed them. */
static int deregister_one(void *arg, struct pinion_registrar_range *range)
{
	struct pn_hook_domain *domain = arg;
	struct pn_hook_region *region = range->handle;
	int ret = 0;

	if (!atomic_load(&domain->closed))
		ret = fi_close(&region->mr->fid);
	if (ret)
		return error_of(ret);
	free(region);
	return 0;
}

/* Other providers register addresses only. */
static bool pins(const struct fi_info *info)
{
	int mode = info->domain_attr->mr_mode;

	return mode == PN_HOOK_MR_BASIC || mode & FI_MR_ALLOCATED;
}

void pn_hook_registrar(struct pn_hook_domain *domain,
		       const struct fi_info *info, struct pinion_registrar *out)
{
	domain->per_range =
		(struct pn_registrar_per_range){ register_one, deregister_one };
	*out = (struct pinion_registrar){
		.size = sizeof(*out),
		.flags = PINION_REGISTRAR_READ_ONLY,
		.arg = domain,
		.register_ranges = pn_registrar_per_range_register,
		.deregister_ranges = pn_registrar_per_range_deregister,
		.max_registrations = info->domain_attr->mr_cnt,
		.max_pinned_bytes = pins(info) ? pn_limits_memlock() : 0,
	};
}
