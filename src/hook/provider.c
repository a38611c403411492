/* SPDX-License-Identifier: BSD-2-Clause */
/* The entry point of the plug-in, and fabrics. */
#include <stdlib.h>
#include <string.h>

#include <rdma/providers/fi_prov.h>

#include "hook/hook.h"

struct fabric {
	struct fi_ops_fabric *real_ops; /* the provider's tables */
	struct fi_ops *real_fid_ops;
	struct fi_ops_fabric *ops; /* ours */
	struct fi_ops *fid_ops;
};

static void free_fabric(struct fabric *fabric)
{
	pn_hook_table_free(fabric->ops);
	pn_hook_table_free(fabric->fid_ops);
	free(fabric);
}

static int close_fabric(struct fid *fid)
{
	struct fabric *fabric = pn_hook_table_owner(fid->ops);
	int ret = fabric->real_fid_ops->close(fid);

	if (!ret)
		free_fabric(fabric);
	return ret;
}

static int open_domain(struct fid_fabric *fid, struct fi_info *info,
		       struct fid_domain **out, void *context)
{
	struct fabric *fabric = pn_hook_table_owner(fid->ops);
	uint32_t api_version = fid->api_version;
	int ret = fabric->real_ops->domain(fid, info, out, context);

	if (!ret)
		pn_hook_domain(*out, info, api_version);
	return ret;
}

/* The domain of the core provider sees the registrations of the layers above
 * it. */
static bool is_layered(const char *provider)
{
	return !strncmp(provider, "ofi_", 4) || !strcmp(provider, "lnx");
}

/* libfabric passes the fabric in the attributes and its provider as the
 * context. After an error it goes on with the fabric as it was. */
static int hook_fabric(struct fi_fabric_attr *attr, struct fid_fabric **out,
		       void *context)
{
	const struct fi_provider *provider = context;
	struct fid_fabric *fid = attr->fabric;
	struct fabric *fabric;

	if (is_layered(provider->name) || !strcmp(provider->name, "pinion") ||
	    fid->ops->domain == open_domain)
		return -FI_ENODATA;
	fabric = calloc(1, sizeof(*fabric));
	if (!fabric)
		return -FI_ENOMEM;
	fabric->real_ops = fid->ops;
	fabric->real_fid_ops = fid->fid.ops;
	fabric->ops =
		pn_hook_table(fid->ops, sizeof(struct fi_ops_fabric), fabric);
	fabric->fid_ops =
		pn_hook_table(fid->fid.ops, sizeof(struct fi_ops), fabric);
	if (!fabric->ops || !fabric->fid_ops) {
		free_fabric(fabric);
		return -FI_ENOMEM;
	}
	fabric->ops->domain = open_domain;
	fabric->fid_ops->close = close_fabric;
	fid->ops = fabric->ops;
	fid->fid.ops = fabric->fid_ops;
	*out = fid;
	return 0;
}

static void cleanup(void)
{
}

static struct fi_provider provider = {
	.version = FI_VERSION(0, 1),
	.fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
	.name = "ofi_hook_pinion",
	.fabric = hook_fabric,
	.cleanup = cleanup,
};

struct fi_provider *fi_prov_ini(void);

FI_EXT_INI
{
	return &provider;
}
