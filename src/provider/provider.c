/* SPDX-License-Identifier: BSD-2-Clause */
/* The entry point of the plug-in, and fabrics. */
#include <stdlib.h>
#include <string.h>

#include "provider/provider.h"

static int close_fabric(struct fid *fid)
{
	struct pn_fi_fabric *fabric =
		pn_container_of(fid, struct pn_fi_fabric, fid.fid);

	if (atomic_load(&fabric->refs))
		return -FI_EBUSY;
	free(fabric);
	return 0;
}

/* 0: all wait objects are armed; -FI_EAGAIN: read first. */
static int trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	int ret = 0;

	(void)fabric;
	for (int i = 0; i < count && !ret; i++) {
		if (fids[i]->fclass == FI_CLASS_CQ)
			ret = pn_fi_cq_trywait(pn_container_of(fids[i],
							       struct pn_fi_cq,
							       fid.fid));
		else if (fids[i]->fclass == FI_CLASS_CNTR)
			ret = pn_fi_counter_trywait(
				pn_container_of(fids[i], struct pn_fi_counter,
						fid.fid));
		else if (fids[i]->fclass == FI_CLASS_EQ)
			ret = pn_fi_eq_trywait(
				pn_container_of(fids[i], struct fid_eq, fid));
		else
			ret = -FI_EINVAL;
	}
	return ret;
}

static int no_passive(struct fid_fabric *fabric, struct fi_info *info,
		      struct fid_pep **pep, void *context)
{
	(void)fabric, (void)info, (void)pep, (void)context;
	return -FI_ENOSYS;
}

static int no_wait_set(struct fid_fabric *fabric, struct fi_wait_attr *attr,
		       struct fid_wait **set)
{
	(void)fabric, (void)attr, (void)set;
	return -FI_ENOSYS;
}

static struct fi_ops fabric_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = close_fabric,
	.bind = pn_fi_no_bind,
	.control = pn_fi_no_control,
	.ops_open = pn_fi_no_ops,
};

static struct fi_ops_fabric fabric_ops = {
	.size = sizeof(struct fi_ops_fabric),
	.domain = pn_fi_domain_open,
	.passive_ep = no_passive,
	.eq_open = pn_fi_eq_open,
	.wait_open = no_wait_set,
	.trywait = trywait,
};

static int open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **out,
		       void *context)
{
	struct pn_fi_fabric *fabric;

	if (attr->name && strcmp(attr->name, pn_fi_provider.name))
		return -FI_ENODATA;
	fabric = calloc(1, sizeof(*fabric));
	if (!fabric)
		return -FI_ENOMEM;
	fabric->fid.fid.fclass = FI_CLASS_FABRIC;
	fabric->fid.fid.context = context;
	fabric->fid.fid.ops = &fabric_fid_ops;
	fabric->fid.ops = &fabric_ops;
	fabric->fid.api_version = attr->api_version;
	*out = &fabric->fid;
	return 0;
}

static void cleanup(void)
{
}

struct fi_provider pn_fi_provider = {
	.version = FI_VERSION(0, 1),
	.fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
	.name = "pinion",
	.getinfo = pn_fi_getinfo,
	.fabric = open_fabric,
	.cleanup = cleanup,
};

/* Whether a list in the environment has an entry. */
static bool names(const char *variable, const char *separators,
		  const char *entry)
{
	const char *list = getenv(variable);
	size_t len = strlen(entry);

	while (list && *list) {
		size_t n = strcspn(list, separators);

		if (n == len && !strncmp(list, entry, len))
			return true;
		list += n + !!list[n];
	}
	return false;
}

/* libfabric looks for FI_HOOK=pinion among all providers first, and would find
 * this one instead of ofi_hook_pinion (src/hook/). Whoever hooks other
 * providers does not need this one, unless FI_PROVIDER says so. */
static bool is_in_the_way(void)
{
	return names("FI_HOOK", ";", pn_fi_provider.name) &&
	       !names("FI_PROVIDER", ",;", pn_fi_provider.name);
}

struct fi_provider *fi_prov_ini(void);

/* A library skips providers that were written for an older version than the
 * program asks for. Structures of later versions begin as those that this
 * provider was built with, and the library allocates what it extends
 * (fi_allocinfo()); so the version of the library that loads it is the one to
 * report. */
FI_EXT_INI
{
	pn_fi_provider.fi_version = fi_version();
	return is_in_the_way() ? NULL : &pn_fi_provider;
}
