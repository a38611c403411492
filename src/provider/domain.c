/* SPDX-License-Identifier: BSD-2-Clause */
/* Domains. A domain has the lock; calls that are not supported are refused. */
#include <stdlib.h>
#include <string.h>

#include "provider/onesided.h"

static int close_domain(struct fid *fid)
{
	struct pn_fi_domain *domain =
		pn_container_of(fid, struct pn_fi_domain, fid.fid);

	if (atomic_load(&domain->refs))
		return -FI_EBUSY;
	atomic_fetch_sub(&domain->fabric->refs, 1);
	pn_biased_fini(&domain->biased_lock);
	pn_mutex_fini(&domain->lock);
	pn_fi_mrs_fini(domain);
	free(domain);
	return 0;
}

static int no_scalable(struct fid_domain *domain, struct fi_info *info,
		       struct fid_ep **ep, void *context)
{
	(void)domain, (void)info, (void)ep, (void)context;
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

/* No events are reported. */
static int bind_domain(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid, (void)flags;
	return other->fclass == FI_CLASS_EQ ? 0 : -FI_EINVAL;
}

static struct fi_ops domain_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = close_domain,
	.bind = bind_domain,
	.control = pn_fi_no_control,
	.ops_open = pn_fi_no_ops,
};

static struct fi_ops_domain domain_ops = {
	.size = sizeof(struct fi_ops_domain),
	.av_open = pn_fi_av_open,
	.cq_open = pn_fi_cq_open,
	.endpoint = pn_fi_endpoint_open,
	.scalable_ep = no_scalable,
	.cntr_open = pn_fi_counter_open,
	.poll_open = pn_fi_poll_open,
	.stx_ctx = no_shared_tx,
	.srx_ctx = no_shared_rx,
	.query_atomic = pn_fi_query_atomic,
};

/* Asked for by the program, or by the user. */
static bool wants_thread(const struct fi_domain_attr *attr)
{
	const char *option = getenv("PINION_PROGRESS");

	return attr->control_progress == FI_PROGRESS_AUTO ||
	       attr->data_progress == FI_PROGRESS_AUTO ||
	       (option &&
		(!strcmp(option, "thread") || !strcmp(option, "auto")));
}

static void init_locks(struct pn_fi_domain *domain,
		       const struct fi_domain_attr *attr)
{
	bool one_thread = attr->threading == FI_THREAD_DOMAIN;

	domain->auto_progress = wants_thread(attr);
	domain->locking = !one_thread || domain->auto_progress;
	pn_mutex_init(&domain->lock);
	pn_biased_init(&domain->biased_lock, one_thread);
}

int pn_fi_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		      struct fid_domain **out, void *context)
{
	struct pn_fi_domain *domain;
	int mode;

	if (!info || !info->domain_attr)
		return -FI_EINVAL;
	domain = calloc(1, sizeof(*domain));
	if (!domain || pn_fi_mrs_init(domain)) {
		free(domain);
		return -FI_ENOMEM;
	}
	mode = info->domain_attr->mr_mode;
	domain->virtual_addresses = mode & (PN_FI_MR_BASIC | FI_MR_VIRT_ADDR);
	domain->prov_keys = mode & (PN_FI_MR_BASIC | FI_MR_PROV_KEY);
	pn_list_init(&domain->responding);
	domain->fabric = pn_container_of(fabric, struct pn_fi_fabric, fid);
	atomic_fetch_add(&domain->fabric->refs, 1);
	init_locks(domain, info->domain_attr);
	domain->fid.fid.fclass = FI_CLASS_DOMAIN;
	domain->fid.fid.context = context;
	domain->fid.fid.ops = &domain_fid_ops;
	domain->fid.ops = &domain_ops;
	domain->fid.mr = &pn_fi_mr_ops;
	*out = &domain->fid;
	return 0;
}
