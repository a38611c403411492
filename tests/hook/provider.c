/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include "provider.h"

#include <dlfcn.h>

#include <rdma/providers/fi_prov.h>

static struct provider_domain *domain_of(struct fid *fid)
{
	return pn_container_of(fid, struct provider_domain, fid.fid);
}

/* --- MRs ------------------------------------------------------------------ */

static struct provider_mr *mr_of(struct fid *fid)
{
	return pn_container_of(fid, struct provider_mr, fid.fid);
}

static int close_mr(struct fid *fid)
{
	struct provider_mr *mr = mr_of(fid);

	pthread_mutex_lock(&mr->domain->lock);
	mr->domain->nwrong += mr->closed;
	mr->domain->nlive--;
	mr->closed = true;
	pthread_mutex_unlock(&mr->domain->lock);
	return 0;
}

static int bind_mr(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)flags;
	mr_of(fid)->bound = other;
	return 0;
}

static int control_mr(struct fid *fid, int command, void *arg)
{
	(void)arg;
	if (command != FI_ENABLE)
		return -FI_ENOSYS;
	mr_of(fid)->enabled = true;
	return 0;
}

static int no_ops(struct fid *fid, const char *name, uint64_t flags, void **ops,
		  void *context)
{
	(void)fid, (void)name, (void)flags, (void)ops, (void)context;
	return -FI_ENOSYS;
}

static struct fi_ops mr_fid_ops = { .size = sizeof(struct fi_ops),
				    .close = close_mr,
				    .bind = bind_mr,
				    .control = control_mr,
				    .ops_open = no_ops };

static int reg_attr(struct fid *fid, const struct fi_mr_attr *attr,
		    uint64_t flags, struct fid_mr **out)
{
	struct provider_domain *domain = domain_of(fid);
	struct provider_mr *mr;

	if (!attr || !attr->iov_count)
		return -FI_EINVAL;
	pthread_mutex_lock(&domain->lock);
	if (domain->max_live && domain->nlive >= domain->max_live) {
		pthread_mutex_unlock(&domain->lock);
		return -FI_ENOMEM;
	}
	mr = calloc(1, sizeof(*mr));
	mr->domain = domain;
	mr->addr = attr->mr_iov->iov_base;
	mr->len = attr->mr_iov->iov_len;
	mr->access = attr->access;
	mr->flags = flags;
	mr->fid.fid.fclass = FI_CLASS_MR;
	mr->fid.fid.context = attr->context;
	mr->fid.fid.ops = &mr_fid_ops;
	mr->fid.mem_desc = mr;
	mr->fid.key = ++domain->last_key;
	mr->older = domain->newest;
	domain->newest = mr;
	domain->nregistered++;
	domain->nlive++;
	pthread_mutex_unlock(&domain->lock);
	*out = &mr->fid;
	return 0;
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

	return reg_attr(fid, &attr, flags, out);
}

static int reg(struct fid *fid, const void *buf, size_t len, uint64_t access,
	       uint64_t offset, uint64_t key, uint64_t flags,
	       struct fid_mr **out, void *context)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };

	return reg_vector(fid, &iov, 1, access, offset, key, flags, out,
			  context);
}

static struct fi_ops_mr mr_ops = { .size = sizeof(struct fi_ops_mr),
				   .reg = reg,
				   .regv = reg_vector,
				   .regattr = reg_attr };

struct provider_mr *provider_mr(struct provider_domain *domain,
				const void *desc)
{
	struct provider_mr *mr = domain->newest;

	while (mr && mr != desc)
		mr = mr->older;
	return mr;
}

bool provider_owns(struct provider_domain *domain, const struct fid_mr *mr)
{
	return provider_mr(domain, mr);
}

/* --- domains -------------------------------------------------------------- */

static int close_domain(struct fid *fid)
{
	struct provider_domain *domain = domain_of(fid);

	if (domain->nlive && !domain->closes_with_mrs)
		return -FI_EBUSY;
	domain->fabric->ndomains--;
	/* Whoever still uses them crashes. */
	domain->fid = (struct fid_domain){ 0 };
	return 0;
}

static int bind_domain(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)other;
	domain_of(fid)->bound_flags |= flags;
	return 0;
}

static int control_domain(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)arg;
	return command;
}

static int open_domain_ops(struct fid *fid, const char *name, uint64_t flags,
			   void **ops, void *context)
{
	(void)fid, (void)flags, (void)ops, (void)context;
	return strcmp(name, "known") && strcmp(name, "ofix_known") ? -FI_ENOSYS
								   : 0;
}

static struct fi_ops domain_fid_ops = { .size = sizeof(struct fi_ops),
					.close = close_domain,
					.bind = bind_domain,
					.control = control_domain,
					.ops_open = open_domain_ops };

static int open_domain(struct fid_fabric *fid, struct fi_info *info,
		       struct fid_domain **out, void *context)
{
	struct provider_domain *domain = calloc(1, sizeof(*domain));

	(void)info;
	domain->fid.fid.fclass = FI_CLASS_DOMAIN;
	domain->fid.fid.context = context;
	domain->fid.fid.ops = &domain_fid_ops;
	domain->fid.mr = domain->mr_ops = &mr_ops;
	domain->fabric = pn_container_of(fid, struct provider_fabric, fid);
	domain->fabric->ndomains++;
	pthread_mutex_init(&domain->lock, NULL);
	*out = &domain->fid;
	return 0;
}

struct provider_domain *provider_domain(struct provider_fabric *fabric,
					const struct fi_info *info)
{
	struct fi_info *own = (struct fi_info *)(uintptr_t)info;
	struct fid_domain *fid;

	assert_ok(fi_domain(&fabric->fid, own, &fid, NULL));
	return pn_container_of(fid, struct provider_domain, fid);
}

bool provider_is_hooked(const struct provider_domain *domain)
{
	return domain->fid.mr != domain->mr_ops;
}

void provider_free(struct provider_domain *domain)
{
	while (domain->newest) {
		struct provider_mr *mr = domain->newest;

		domain->newest = mr->older;
		free(mr);
	}
	assert_int_equal(domain->nwrong, 0);
	pthread_mutex_destroy(&domain->lock);
	free(domain);
}

/* --- fabrics -------------------------------------------------------------- */

static int close_fabric(struct fid *fid)
{
	struct provider_fabric *fabric =
		pn_container_of(fid, struct provider_fabric, fid.fid);

	if (fabric->ndomains)
		return -FI_EBUSY;
	fabric->fid = (struct fid_fabric){ 0 };
	return 0;
}

static struct fi_ops fabric_fid_ops = { .size = sizeof(struct fi_ops),
					.close = close_fabric };
/* Built with older headers: the table ends with trywait(). */
static struct fi_ops_fabric fabric_ops = {
	.size = offsetof(struct fi_ops_fabric, domain2),
	.domain = open_domain,
};

static struct fi_provider *hook(void)
{
	static struct fi_provider *found;
	struct fi_provider *(*ini)(void);
	void *library;

	if (found)
		return found;
	library = dlopen(getenv("HOOK_LIBRARY"), RTLD_NOW);
	if (!library)
		fail_msg("%s", dlerror());
	*(void **)&ini = dlsym(library, "fi_prov_ini");
	assert_non_null(ini);
	found = ini();
	assert_string_equal(found->name, "ofi_hook_pinion");
	assert_null(found->getinfo);
	return found;
}

void provider_open(struct provider_fabric *fabric, const char *name)
{
	struct fi_provider core = { .name = name };
	struct fi_fabric_attr attr = { .fabric = &fabric->fid };
	struct fid_fabric *out = NULL;

	*fabric = (struct provider_fabric){
		.fid = { .fid = { .fclass = FI_CLASS_FABRIC,
				  .ops = &fabric_fid_ops },
			 .ops = &fabric_ops,
			 .api_version = FI_VERSION(1, 17) },
	};
	if (!hook()->fabric(&attr, &out, &core))
		assert_ptr_equal(out, &fabric->fid);
	else
		assert_ptr_equal(fabric->fid.ops, &fabric_ops);
}

void provider_close(struct provider_fabric *fabric)
{
	assert_ok(fi_close(&fabric->fid.fid));
}
