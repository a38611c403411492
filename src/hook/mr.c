/* SPDX-License-Identifier: BSD-2-Clause */
/* MRs of the program: pinned by the cache, or passed through. */
#include <stdlib.h>

#include "device/own_registration.h"
#include "hook/hook.h"

#define LOCAL_ACCESS  (FI_SEND | FI_RECV | FI_READ | FI_WRITE)
#define REMOTE_ACCESS (FI_REMOTE_READ | FI_REMOTE_WRITE)

/* Keys of MRs without remote access begin here, beyond those that providers
 * count from 1 and the 32 bits of adapters. */
#define FIRST_LOCAL_KEY (UINT64_C(1) << 62)

struct mr {
	struct fid_mr fid;
	struct pn_hook_domain *domain;
	struct pinion_pin pin;
};

/* --- MRs that pinion keeps ------------------------------------------------ */

static struct mr *mr_of(struct fid *fid)
{
	return pn_container_of(fid, struct mr, fid.fid);
}

static struct pn_hook_region *region_of(const struct mr *mr)
{
	return mr->pin.handle;
}

static struct fid *real_fid(struct fid *fid)
{
	return &region_of(mr_of(fid))->mr->fid;
}

static int close_mr(struct fid *fid)
{
	struct mr *mr = mr_of(fid);
	struct pn_hook_domain *domain = mr->domain;

	/* Before the region can be given up. */
	if (fi_mr_key(&mr->fid) < FIRST_LOCAL_KEY)
		atomic_store(&region_of(mr)->lent, false);
	pinion_unpin(domain->context, &mr->pin);
	free(mr);
	pn_hook_domain_put(domain);
	return 0;
}

/* What is bound to a region would count for all of its users. Counters need
 * FI_RMA_EVENT, which is passed through. */
static int bind_mr(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid, (void)other, (void)flags;
	return -FI_EINVAL;
}

static int control_mr(struct fid *fid, int command, void *arg)
{
	struct fid *real = real_fid(fid);

	return real->ops->control(real, command, arg);
}

static int open_mr_ops(struct fid *fid, const char *name, uint64_t flags,
		       void **ops, void *context)
{
	struct fid *real = real_fid(fid);

	return real->ops->ops_open(real, name, flags, ops, context);
}

static struct fi_ops mr_ops = {
	.size = sizeof(struct fi_ops),
	.close = close_mr,
	.bind = bind_mr,
	.control = control_mr,
	.ops_open = open_mr_ops,
};

/* --- what can be kept ----------------------------------------------------- */

/* iWARP: an adapter that reads into memory needs the right of peers to write
 * there, and the provider adds it. */
static unsigned access_of(const struct pn_hook_domain *domain, uint64_t access)
{
	unsigned flags = 0;

	if (access & (FI_RECV | FI_READ))
		flags |= PINION_ACCESS_LOCAL_WRITE;
	if (access & FI_REMOTE_READ)
		flags |= PINION_ACCESS_REMOTE_READ;
	if (access & FI_REMOTE_WRITE || (domain->is_iwarp && access & FI_READ))
		flags |= PINION_ACCESS_LOCAL_WRITE | PINION_ACCESS_REMOTE_WRITE;
	return flags;
}

static bool is_keepable(const struct pn_hook_domain *domain,
			const struct fi_mr_attr *attr, uint64_t flags)
{
	unsigned access = access_of(domain, attr->access);

	return !flags && attr->iov_count == 1 && attr->mr_iov &&
	       attr->mr_iov->iov_base && attr->mr_iov->iov_len &&
	       !attr->offset &&
	       !(attr->access & ~(uint64_t)(LOCAL_ACCESS | REMOTE_ACCESS)) &&
	       !(domain->has_auth_keys && attr->auth_key_size) &&
	       !(domain->has_ifaces && attr->iface != FI_HMEM_SYSTEM) &&
	       (domain->keeps_remote || !(access & PN_HOOK_REMOTE_ACCESS)) &&
	       !atomic_load(&domain->passes) && !pn_own_registration();
}

/* Peers get exactly what the program asked for. A utility provider may keep
 * MRs by key, so each has a key of its own. */
static bool borrow_key(struct pn_hook_region *region,
		       const struct pinion_pin *pin, unsigned access)
{
	return region->addr == pin->addr && region->len == pin->len &&
	       region->access == access &&
	       !atomic_exchange(&region->lent, true);
}

static bool choose_key(struct mr *mr, unsigned access)
{
	static _Atomic uint64_t last_key;
	struct pn_hook_region *region = region_of(mr);

	if (!(access & PN_HOOK_REMOTE_ACCESS)) {
		mr->fid.key = FIRST_LOCAL_KEY +
			      atomic_fetch_add_explicit(&last_key, 1,
							memory_order_relaxed);
		return true;
	}
	mr->fid.key = fi_mr_key(region->mr);
	return mr->fid.key < FIRST_LOCAL_KEY &&
	       borrow_key(region, &mr->pin, access);
}

/* Whether *out is an MR that pinion keeps. */
static bool keep(struct pn_hook_domain *domain, const struct fi_mr_attr *attr,
		 uint64_t flags, struct fid_mr **out)
{
	unsigned access = access_of(domain, attr->access);
	struct mr *mr;

	if (!is_keepable(domain, attr, flags))
		return false;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return false;
	if (pinion_pin(domain->context, attr->mr_iov->iov_base,
		       attr->mr_iov->iov_len, access, &mr->pin))
		goto free_mr;
	if (!choose_key(mr, access))
		goto unpin;
	mr->fid.fid.fclass = FI_CLASS_MR;
	mr->fid.fid.context = attr->context;
	mr->fid.fid.ops = &mr_ops;
	mr->fid.mem_desc = fi_mr_desc(region_of(mr)->mr);
	mr->domain = domain;
	atomic_fetch_add(&domain->refs, 1);
	*out = &mr->fid;
	return true;

unpin:
	pinion_unpin(domain->context, &mr->pin);
free_mr:
	free(mr);
	return false;
}

/* --- the calls ------------------------------------------------------------ */

static struct pn_hook_domain *domain_of(struct fid *fid)
{
	struct fid_domain *domain =
		pn_container_of(fid, struct fid_domain, fid);

	return pn_hook_table_owner(domain->mr);
}

/* Whether the cache had memory that the provider lacked, and has given it up.
 */
static bool makes_room(struct pn_hook_domain *domain, int error)
{
	return (error == -FI_ENOMEM || error == -FI_ENOSPC) &&
	       !pn_own_registration() && !pinion_cache_flush(domain->context);
}

static int reg_attr(struct fid *fid, const struct fi_mr_attr *attr,
		    uint64_t flags, struct fid_mr **out)
{
	struct pn_hook_domain *domain = domain_of(fid);
	int ret;

	if (attr && keep(domain, attr, flags, out))
		return 0;
	ret = domain->real_mr->regattr(fid, attr, flags, out);
	if (makes_room(domain, ret))
		ret = domain->real_mr->regattr(fid, attr, flags, out);
	return ret;
}

static int reg_vector(struct fid *fid, const struct iovec *iov, size_t count,
		      uint64_t access, uint64_t offset, uint64_t key,
		      uint64_t flags, struct fid_mr **out, void *context)
{
	struct fi_mr_attr attr = { .mr_iov = iov,
				   .iov_count = count,
				   .access = access,
				   .offset = offset,
				   .requested_key = key,
				   .context = context };
	struct pn_hook_domain *domain = domain_of(fid);
	int ret;

	if (keep(domain, &attr, flags, out))
		return 0;
	ret = domain->real_mr->regv(fid, iov, count, access, offset, key, flags,
				    out, context);
	if (makes_room(domain, ret))
		ret = domain->real_mr->regv(fid, iov, count, access, offset,
					    key, flags, out, context);
	return ret;
}

static int reg(struct fid *fid, const void *buf, size_t len, uint64_t access,
	       uint64_t offset, uint64_t key, uint64_t flags,
	       struct fid_mr **out, void *context)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };
	struct fi_mr_attr attr = { .mr_iov = &iov,
				   .iov_count = 1,
				   .access = access,
				   .offset = offset,
				   .requested_key = key,
				   .context = context };
	struct pn_hook_domain *domain = domain_of(fid);
	int ret;

	if (keep(domain, &attr, flags, out))
		return 0;
	ret = domain->real_mr->reg(fid, buf, len, access, offset, key, flags,
				   out, context);
	if (makes_room(domain, ret))
		ret = domain->real_mr->reg(fid, buf, len, access, offset, key,
					   flags, out, context);
	return ret;
}

void pn_hook_mr_ops(struct fi_ops_mr *ops)
{
	ops->reg = reg;
	ops->regv = reg_vector;
	ops->regattr = reg_attr;
}
