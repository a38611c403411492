/* SPDX-License-Identifier: BSD-2-Clause */
/* Domains: which keep memory, and their end. */
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "hook/hook.h"

/* --- fork() --------------------------------------------------------------- */

static struct pn_mutex lock = { PTHREAD_MUTEX_INITIALIZER };
static struct pn_list domains PN_GUARDED_BY(&lock) = { &domains, &domains };

static void before_fork(void) PN_NO_THREAD_SAFETY
{
	struct pn_list *pos;

	pn_lock(&lock);
	/* In a child of the process that opened them they do nothing. */
	pn_list_for_each (pos, &domains)
		pinion_cache_flush(
			pn_container_of(pos, struct pn_hook_domain, link)
				->context);
}

static void after_fork(void) PN_NO_THREAD_SAFETY
{
	pn_unlock(&lock);
}

/* After the first context was opened: so it runs before the handlers of
 * libpinion. */
static void watch_fork(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

static void list_domain(struct pn_hook_domain *domain)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_fork);
	pn_lock(&lock);
	pn_list_append(&domains, &domain->link);
	pn_unlock(&lock);
}

static void unlist_domain(struct pn_hook_domain *domain)
{
	pn_lock(&lock);
	pn_list_remove(&domain->link);
	pn_unlock(&lock);
}

/* --- life ----------------------------------------------------------------- */

static void free_domain(struct pn_hook_domain *domain)
{
	pn_hook_table_free(domain->mr);
	pn_hook_table_free(domain->ops);
	free(domain);
}

void pn_hook_domain_put(struct pn_hook_domain *domain)
{
	if (atomic_fetch_sub(&domain->refs, 1) > 1)
		return;
	pinion_close(domain->context);
	free_domain(domain);
}

static int close_domain(struct fid *fid)
{
	struct pn_hook_domain *domain = pn_hook_table_owner(fid->ops);
	int ret;

	pinion_cache_flush(domain->context);
	ret = domain->real_ops->close(fid);
	if (ret)
		return ret;
	atomic_store(&domain->closed, true);
	unlist_domain(domain);
	pn_hook_domain_put(domain);
	return 0;
}

/* The provider reports each registration to this event queue. */
static int bind_domain(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct pn_hook_domain *domain = pn_hook_table_owner(fid->ops);

	if (flags & PN_HOOK_REG_MR)
		atomic_store(&domain->passes, true);
	return domain->real_ops->bind(fid, other, flags);
}

/* Functions of the provider's own may take MRs of the provider's own. Those
 * named "ofix_" are between layers of libfabric (ofi_rxm opens them on verbs)
 * and take none. */
static int open_domain_ops(struct fid *fid, const char *name, uint64_t flags,
			   void **ops, void *context)
{
	struct pn_hook_domain *domain = pn_hook_table_owner(fid->ops);
	int ret = domain->real_ops->ops_open(fid, name, flags, ops, context);

	if (!ret && strncmp(name, "ofix_", 5))
		atomic_store(&domain->passes, true);
	return ret;
}

/* --- which domains -------------------------------------------------------- */

static bool is_suitable(const struct fi_info *info)
{
	int mode = info->domain_attr->mr_mode;

	if (mode == PN_HOOK_MR_BASIC)
		mode = FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
	return mode & FI_MR_PROV_KEY && mode & FI_MR_VIRT_ADDR &&
	       !(mode & (FI_MR_RAW | FI_MR_MMU_NOTIFY | FI_MR_ENDPOINT)) &&
	       info->domain_attr->control_progress <= FI_PROGRESS_MANUAL;
}

static bool is_iwarp(const struct fi_info *info)
{
	return info->ep_attr && (info->ep_attr->protocol == FI_PROTO_IWARP ||
				 info->ep_attr->protocol == FI_PROTO_IWARP_RDM);
}

/* The value of an option that is yes or no. */
static bool is_on(struct pinion_context *context, const char *name)
{
	struct pinion_config_option option = { .size = sizeof(option) };

	for (unsigned i = 0; !pinion_config_query(context, i, &option); i++)
		if (!strcmp(option.name, name))
			return !strcmp(option.value, "yes");
	return false;
}

static int open_context(struct pn_hook_domain *domain,
			const struct fi_info *info)
{
	struct pinion_registrar registrar;
	struct pinion_attr attr = { .size = sizeof(attr),
				    .registrar = &registrar };
	int ret;

	pn_hook_registrar(domain, info, &registrar);
	ret = pinion_open(&attr, &domain->context);
	if (!ret)
		domain->keeps_remote = is_on(domain->context, "keep_remote");
	return ret;
}

static bool copy_tables(struct pn_hook_domain *domain)
{
	domain->mr = pn_hook_table(domain->real_mr, sizeof(struct fi_ops_mr),
				   domain);
	domain->ops =
		pn_hook_table(domain->real_ops, sizeof(struct fi_ops), domain);
	if (!domain->mr || !domain->ops)
		return false;
	pn_hook_mr_ops(domain->mr);
	domain->ops->close = close_domain;
	domain->ops->bind = bind_domain;
	domain->ops->ops_open = open_domain_ops;
	return true;
}

void pn_hook_domain(struct fid_domain *fid, const struct fi_info *info,
		    uint32_t api_version)
{
	struct pn_hook_domain *domain;

	if (!is_suitable(info))
		return;
	domain = calloc(1, sizeof(*domain));
	if (!domain)
		return;
	domain->fid = fid;
	domain->real_mr = fid->mr;
	domain->real_ops = fid->fid.ops;
	domain->is_iwarp = is_iwarp(info);
	domain->has_auth_keys = FI_VERSION_GE(api_version, FI_VERSION(1, 5));
	domain->has_ifaces = info->caps & FI_HMEM;
	domain->refs = 1;
	/* pinion_open() says why it fails. */
	if (!copy_tables(domain) || open_context(domain, info)) {
		free_domain(domain);
		return;
	}
	list_domain(domain);
	fid->mr = domain->mr;
	fid->fid.ops = domain->ops;
}
