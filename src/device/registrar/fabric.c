/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/registrar/fabric.h"

#include <errno.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/pages.h"
#include "device/registrar/per_range.h"

/* Keys to try before the domain counts as full. */
#define MAX_KEY_TRIES 1024

/* The modes before libfabric 1.5, deprecated in libfabric 2. */
#define MR_BASIC    (1 << 0)
#define MR_SCALABLE (1 << 1)

struct domain {
	struct pn_registrar_per_range per_range;
	struct fid_domain *domain;
	struct fid_ep *endpoint; /* NULL: no FI_MR_ENDPOINT */
	uint64_t first_key; /* the first of our keys; 0: the provider chooses */
	bool virt_addr, pins, has_atomics;
};

/* --- keys ----------------------------------------------------------------- */

/* One counter for the process, so that contexts over the same domain use
 * different keys. */
static _Atomic uint64_t last_key;

/* Keys are the upper half of what mr_key_size allows, and wrap around. */
static uint64_t next_key(const struct domain *domain)
{
	uint64_t n =
		atomic_fetch_add_explicit(&last_key, 1, memory_order_relaxed);

	return domain->first_key | (n & (domain->first_key - 1));
}

static uint64_t first_key(const struct fi_info *info)
{
	size_t bytes = info->domain_attr->mr_key_size;

	if (!bytes)
		bytes = 4;
	return UINT64_C(1) << (8 * (bytes < 8 ? bytes : 8) - 1);
}

/* --- registering ---------------------------------------------------------- */

/* Errors from FI_ERRNO_OFFSET on are libfabric's own. */
static int error_of(int ret)
{
	if (ret == -FI_ENOKEY)
		return -ENOMEM;
	return -ret >= FI_ERRNO_OFFSET ? -EIO : ret;
}

static uint64_t access_of(unsigned access)
{
	uint64_t flags = FI_SEND | FI_WRITE;

	if (access & PINION_ACCESS_LOCAL_WRITE)
		flags |= FI_RECV | FI_READ;
	if (access & (PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_ATOMIC))
		flags |= FI_REMOTE_READ;
	if (access & (PINION_ACCESS_REMOTE_WRITE | PINION_ACCESS_REMOTE_ATOMIC))
		flags |= FI_REMOTE_WRITE;
	return flags;
}

static int make_mr(const struct domain *domain,
		   const struct pinion_registrar_range *range,
		   struct fid_mr **out)
{
	struct iovec iov = { range->addr, range->len };
	struct fi_mr_attr attr = { .mr_iov = &iov,
				   .iov_count = 1,
				   .access = access_of(range->access) };
	int ret = -FI_ENOKEY;

	for (unsigned i = 0; ret == -FI_ENOKEY && i < MAX_KEY_TRIES; i++) {
		if (domain->first_key)
			attr.requested_key = next_key(domain);
		ret = fi_mr_regattr(domain->domain, &attr, 0, out);
		if (!domain->first_key)
			break;
	}
	return ret;
}

static int bind_mr(const struct domain *domain, struct fid_mr *mr)
{
	int ret;

	if (!domain->endpoint)
		return 0;
	ret = fi_mr_bind(mr, &domain->endpoint->fid, 0);
	return ret ? ret : fi_mr_enable(mr);
}

/* A provider that does not pin accepts any range, so check it here. */
static int check_range(const struct domain *domain,
		       const struct pinion_registrar_range *range)
{
	if (range->access & PINION_ACCESS_REMOTE_ATOMIC && !domain->has_atomics)
		return -EOPNOTSUPP;
	if (domain->pins)
		return 0;
	return pn_pages_check(range->addr, range->len,
			      range->access & PINION_ACCESS_LOCAL_WRITE);
}

static int register_one(void *arg, struct pinion_registrar_range *range)
{
	const struct domain *domain = arg;
	struct fid_mr *mr;
	int ret = check_range(domain, range);

	if (ret)
		return ret;
	ret = make_mr(domain, range, &mr);
	if (ret)
		return error_of(ret);
	ret = bind_mr(domain, mr);
	if (ret) {
		fi_close(&mr->fid);
		return error_of(ret);
	}
	mr->fid.context = domain->virt_addr ? NULL : range->addr;
	range->handle = mr;
	range->local_key = (uintptr_t)fi_mr_desc(mr);
	range->remote_key =
		access_of(range->access) & (FI_REMOTE_READ | FI_REMOTE_WRITE)
			? fi_mr_key(mr)
			: 0;
	return 0;
}

static int deregister_one(void *arg, struct pinion_registrar_range *range)
{
	struct fid_mr *mr = range->handle;

	(void)arg;
	return error_of(fi_close(&mr->fid));
}

uint64_t pn_registrar_fabric_addr(const struct pinion_pin *pin)
{
	const struct fid_mr *mr = pin->handle;

	return (uintptr_t)pin->addr - (uintptr_t)mr->fid.context;
}

/* --- the domain ----------------------------------------------------------- */

static int mode_of(const struct fi_info *info)
{
	switch (info->domain_attr->mr_mode) {
	case MR_BASIC:
		return FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	case MR_SCALABLE:
		return 0;
	default:
		return info->domain_attr->mr_mode;
	}
}

static int refuse(const char *why)
{
	pn_error("fabric: %s", why);
	return -EOPNOTSUPP;
}

static int check_mode(const struct fi_info *info, int mode)
{
	if (mode & FI_MR_RAW)
		return refuse("the domain's keys are longer than 64 bits "
			      "(FI_MR_RAW): pins cannot hold them");
	if (mode & FI_MR_MMU_NOTIFY)
		return refuse("the domain wants to be notified of page tables "
			      "(FI_MR_MMU_NOTIFY), which pinion does not do");
	/* FI_PROGRESS_CONTROL_UNIFIED of newer versions. */
	if (info->domain_attr->control_progress > FI_PROGRESS_MANUAL)
		return refuse("the domain's control calls are not thread safe "
			      "(FI_PROGRESS_CONTROL_UNIFIED): open it with "
			      "FI_PROGRESS_AUTO");
	return 0;
}

static int check_attr(const struct pinion_fabric_attr *attr)
{
	int mode, ret;

	if (!attr->domain || !attr->info || !attr->info->domain_attr ||
	    attr->flags)
		return -EINVAL;
	mode = mode_of(attr->info);
	ret = check_mode(attr->info, mode);
	if (ret)
		return ret;
	if (!(mode & FI_MR_ENDPOINT) == !attr->endpoint)
		return 0;
	pn_error("fabric: %s",
		 attr->endpoint
			 ? "an endpoint is given, but the domain has no "
			   "FI_MR_ENDPOINT"
			 : "the domain registers memory for an endpoint "
			   "(FI_MR_ENDPOINT): give it in the attributes");
	return -EINVAL;
}

int pn_registrar_fabric(const struct pinion_fabric_attr *attr,
			struct pinion_registrar *out)
{
	const struct fi_info *info = attr->info;
	struct domain *domain;
	int mode, ret = check_attr(attr);

	if (ret)
		return ret;
	domain = calloc(1, sizeof(*domain));
	if (!domain)
		return -ENOMEM;
	mode = mode_of(info);
	domain->per_range =
		(struct pn_registrar_per_range){ register_one, deregister_one };
	domain->domain = attr->domain;
	domain->endpoint = attr->endpoint;
	domain->first_key = mode & FI_MR_PROV_KEY ? 0 : first_key(info);
	domain->virt_addr = mode & FI_MR_VIRT_ADDR;
	domain->pins = mode & FI_MR_ALLOCATED;
	domain->has_atomics = info->caps & FI_ATOMIC;
	*out = (struct pinion_registrar){
		.size = sizeof(*out),
		.flags = PINION_REGISTRAR_READ_ONLY,
		.arg = domain,
		.register_ranges = pn_registrar_per_range_register,
		.deregister_ranges = pn_registrar_per_range_deregister,
		.max_registrations = info->domain_attr->mr_cnt,
		.max_pinned_bytes = domain->pins ? pn_limits_memlock() : 0,
	};
	return 0;
}
