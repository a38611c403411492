/* SPDX-License-Identifier: BSD-2-Clause */
/* The domain: a lock, and refusals of what is not offered. */
#include <stdlib.h>

#include "fabric/fabric.h"

static int close_domain(struct fid *fid)
{
	struct pn_fi_domain *domain =
		pn_container_of(fid, struct pn_fi_domain, fid.fid);

	if (atomic_load(&domain->refs))
		return -FI_EBUSY;
	atomic_fetch_sub(&domain->fabric->refs, 1);
	pn_mutex_fini(&domain->lock);
	free(domain);
	return 0;
}

static int no_scalable(struct fid_domain *domain, struct fi_info *info,
		       struct fid_ep **ep, void *context)
{
	(void)domain, (void)info, (void)ep, (void)context;
	return -FI_ENOSYS;
}

static int no_counter(struct fid_domain *domain, struct fi_cntr_attr *attr,
		      struct fid_cntr **counter, void *context)
{
	(void)domain, (void)attr, (void)counter, (void)context;
	return -FI_ENOSYS;
}

static int no_poll_set(struct fid_domain *domain, struct fi_poll_attr *attr,
		       struct fid_poll **set)
{
	(void)domain, (void)attr, (void)set;
	return -FI_ENOSYS;
}

static int no_shared_tx(struct fid_domain *domain, struct fi_tx_attr *attr,
			struct fid_stx **stx, void *context)
{
	(void)domain, (void)attr, (void)stx, (void)context;
	return -FI_ENOSYS;
}

static int no_shared_rx(struct fid_domain *domain, struct fi_rx_attr *attr,
			struct fid_ep **ep, void *context)
{
	(void)domain, (void)attr, (void)ep, (void)context;
	return -FI_ENOSYS;
}

static int no_reg(struct fid *fid, const void *buf, size_t len, uint64_t access,
		  uint64_t offset, uint64_t key, uint64_t flags,
		  struct fid_mr **mr, void *context)
{
	(void)fid, (void)buf, (void)len, (void)access, (void)offset;
	(void)key, (void)flags, (void)mr, (void)context;
	return -FI_ENOSYS;
}

static int no_regv(struct fid *fid, const struct iovec *iov, size_t count,
		   uint64_t access, uint64_t offset, uint64_t key,
		   uint64_t flags, struct fid_mr **mr, void *context)
{
	(void)fid, (void)iov, (void)count, (void)access, (void)offset;
	(void)key, (void)flags, (void)mr, (void)context;
	return -FI_ENOSYS;
}

static int no_regattr(struct fid *fid, const struct fi_mr_attr *attr,
		      uint64_t flags, struct fid_mr **mr)
{
	(void)fid, (void)attr, (void)flags, (void)mr;
	return -FI_ENOSYS;
}

static struct fi_ops domain_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = close_domain,
};

static struct fi_ops_domain domain_ops = {
	.size = sizeof(struct fi_ops_domain),
	.av_open = pn_fi_av_open,
	.cq_open = pn_fi_cq_open,
	.endpoint = pn_fi_endpoint_open,
	.scalable_ep = no_scalable,
	.cntr_open = no_counter,
	.poll_open = no_poll_set,
	.stx_ctx = no_shared_tx,
	.srx_ctx = no_shared_rx,
};

/* Nothing of what is offered needs memory registered by the program. */
static struct fi_ops_mr mr_ops = {
	.size = sizeof(struct fi_ops_mr),
	.reg = no_reg,
	.regv = no_regv,
	.regattr = no_regattr,
};

int pn_fi_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		      struct fid_domain **out, void *context)
{
	struct pn_fi_domain *domain;

	if (!info || !info->domain_attr)
		return -FI_EINVAL;
	domain = calloc(1, sizeof(*domain));
	if (!domain)
		return -FI_ENOMEM;
	domain->fabric = pn_container_of(fabric, struct pn_fi_fabric, fid);
	atomic_fetch_add(&domain->fabric->refs, 1);
	domain->locking = info->domain_attr->threading != FI_THREAD_DOMAIN;
	pn_mutex_init(&domain->lock);
	domain->fid.fid.fclass = FI_CLASS_DOMAIN;
	domain->fid.fid.context = context;
	domain->fid.fid.ops = &domain_fid_ops;
	domain->fid.ops = &domain_ops;
	domain->fid.mr = &mr_ops;
	*out = &domain->fid;
	return 0;
}
