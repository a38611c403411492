/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * count_hook -- a hook provider for tests: counts the registrations that reach
 * a core provider. FI_HOOK="ofi_hook_count;ofi_hook_pinion" has it below
 * pinion's hook, FI_HOOK=ofi_hook_count alone under the program itself.
 *
 * One provider in a process: tables of functions are copied once.
 */
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>
#include <stdatomic.h>
#include <string.h>

static struct fi_ops_fabric *real_fabric, our_fabric;
static struct fi_ops_mr *real_mr, our_mr;
static _Atomic unsigned long nregistrations;

/* Found by name. */
__attribute__((visibility("default"))) unsigned long count_hook_registrations(
	void);

unsigned long count_hook_registrations(void)
{
	return atomic_load(&nregistrations);
}

static int reg(struct fid *fid, const void *buf, size_t len, uint64_t access,
	       uint64_t offset, uint64_t key, uint64_t flags,
	       struct fid_mr **out, void *context)
{
	atomic_fetch_add(&nregistrations, 1);
	return real_mr->reg(fid, buf, len, access, offset, key, flags, out,
			    context);
}

static int reg_vector(struct fid *fid, const struct iovec *iov, size_t count,
		      uint64_t access, uint64_t offset, uint64_t key,
		      uint64_t flags, struct fid_mr **out, void *context)
{
	atomic_fetch_add(&nregistrations, 1);
	return real_mr->regv(fid, iov, count, access, offset, key, flags, out,
			     context);
}

static int reg_attr(struct fid *fid, const struct fi_mr_attr *attr,
		    uint64_t flags, struct fid_mr **out)
{
	atomic_fetch_add(&nregistrations, 1);
	return real_mr->regattr(fid, attr, flags, out);
}

static int open_domain(struct fid_fabric *fid, struct fi_info *info,
		       struct fid_domain **out, void *context)
{
	int ret = real_fabric->domain(fid, info, out, context);

	if (ret || (real_mr && (*out)->mr != real_mr))
		return ret;
	real_mr = (*out)->mr;
	our_mr = *real_mr;
	our_mr.reg = reg;
	our_mr.regv = reg_vector;
	our_mr.regattr = reg_attr;
	(*out)->mr = &our_mr;
	return 0;
}

static int hook_fabric(struct fi_fabric_attr *attr, struct fid_fabric **out,
		       void *context)
{
	const struct fi_provider *core = context;
	struct fid_fabric *fid = attr->fabric;

	if (!strncmp(core->name, "ofi_", 4) ||
	    (real_fabric && fid->ops != real_fabric))
		return -FI_ENODATA;
	real_fabric = fid->ops;
	our_fabric = *real_fabric;
	our_fabric.domain = open_domain;
	fid->ops = &our_fabric;
	*out = fid;
	return 0;
}

static void cleanup(void)
{
}

static struct fi_provider provider = {
	.version = FI_VERSION(0, 1),
	.fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
	.name = "ofi_hook_count",
	.fabric = hook_fabric,
	.cleanup = cleanup,
};

struct fi_provider *fi_prov_ini(void);

FI_EXT_INI
{
	return &provider;
}
