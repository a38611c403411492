/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chooses among what fi_getinfo() offers, in libfabric's order: what it thinks
 * is the fastest comes first. Providers are compared by what they can do; a
 * name only selects, and pinion's own provider is left out.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "device/fabric/fabric_impl.h"

#define API	     FI_VERSION(1, 17)
#define OWN_PROVIDER "pinion"

#define NEEDED_CAPS \
	(FI_MSG | FI_SEND | FI_RECV | FI_RMA | FI_READ | FI_REMOTE_READ)
/* What the device does if a provider asks for it. */
#define KNOWN_MR_MODE                                                       \
	(FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | \
	 FI_MR_ENDPOINT)

int pn_fabric_error(int ret)
{
	switch (ret) {
	case -FI_ETRUNC:
	case -FI_EOTHER:
	case -FI_EIO:
		return -ECONNRESET;
	default:
		return -ret >= FI_ERRNO_OFFSET ? -EIO : ret;
	}
}

static void free_hints(struct fi_info *hints)
{
	free(hints->fabric_attr->prov_name);
	free(hints->fabric_attr);
	free(hints->domain_attr);
	free(hints->ep_attr);
	free(hints->tx_attr);
	free(hints->rx_attr);
	free(hints);
}

/* Every pointer is set: a partly filled struct is of no use. */
static struct fi_info *alloc_hints(void)
{
	struct fi_info *hints = calloc(1, sizeof(*hints));

	pn_assert(hints);
	hints->fabric_attr = calloc(1, sizeof(*hints->fabric_attr));
	hints->domain_attr = calloc(1, sizeof(*hints->domain_attr));
	hints->ep_attr = calloc(1, sizeof(*hints->ep_attr));
	hints->tx_attr = calloc(1, sizeof(*hints->tx_attr));
	hints->rx_attr = calloc(1, sizeof(*hints->rx_attr));
	pn_assert(hints->fabric_attr && hints->domain_attr && hints->ep_attr &&
		  hints->tx_attr && hints->rx_attr);
	return hints;
}

/* Reliable datagrams, all else open. */
static struct fi_info *open_hints(const char *provider)
{
	struct fi_info *hints = alloc_hints();

	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = KNOWN_MR_MODE;
	if (provider[0])
		hints->fabric_attr->prov_name = strdup(provider);
	return hints;
}

/* If nobody named it, a provider must reach other hosts. */
static struct fi_info *full_hints(const char *provider)
{
	struct fi_info *hints = open_hints(provider);

	hints->caps = NEEDED_CAPS | (provider[0] ? 0 : FI_REMOTE_COMM);
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	return hints;
}

static int get_info(const struct pn_fabric_library *library,
		    struct fi_info *hints, const char *address,
		    struct fi_info **out)
{
	int ret = library->getinfo(API, address[0] ? address : NULL, NULL,
				   address[0] ? FI_SOURCE : 0, hints, out);

	free_hints(hints);
	return ret;
}

/* --- why not -------------------------------------------------------------- */

static bool is_own(const struct fi_info *info)
{
	return strstr(info->fabric_attr->prov_name, OWN_PROVIDER);
}

/* NULL: the device can use it. */
static const char *why_not(const struct fi_info *info)
{
	if (is_own(info))
		return "is pinion's own provider, which may use this device";
	if (info->ep_attr->type != FI_EP_RDM)
		return "has no reliable datagram endpoints (FI_EP_RDM); a "
		       "layer above it may: ofi_rxm, ofi_rxd";
	if ((info->caps & NEEDED_CAPS) != NEEDED_CAPS)
		return "lacks messages or fi_read() (FI_MSG, FI_RMA)";
	if (!(info->tx_attr->msg_order & FI_ORDER_SAS))
		return "keeps no order of messages (FI_ORDER_SAS)";
	if (info->domain_attr->mr_mode & ~KNOWN_MR_MODE)
		return "wants a memory registration mode that the device does "
		       "not have";
	if (info->mode & ~(FI_CONTEXT | FI_CONTEXT2))
		return "wants a mode that the device does not have";
	if (info->domain_attr->threading != FI_THREAD_SAFE)
		return "is not thread safe (FI_THREAD_SAFE)";
	return NULL;
}

static int report_library(void)
{
	pn_error("fabric: there is no libfabric.so.1 of version 1.17 or newer; "
		 "install it (Debian: libfabric1)");
	return -ENODEV;
}

/* The provider exists but does not fit, or there is none of that name. */
static int report_none(const struct pn_fabric_library *library,
		       const char *provider, const char *domain)
{
	struct fi_info *list = NULL;
	const char *why = NULL;

	if (!get_info(library, open_hints(provider), "", &list) && list) {
		why = why_not(list);
		if (!why)
			why = domain[0] ? "has no domain or address of that "
					  "name"
					: "does not reach other hosts: name "
					  "it to use it";
		pn_error("fabric: provider %s %s; `pinion info` lists what "
			 "there is",
			 list->fabric_attr->prov_name, why);
		library->freeinfo(list);
		return -ENODEV;
	}
	pn_error("fabric: libfabric has no provider '%.64s' with reliable "
		 "datagram endpoints%s; `pinion info` lists what there is",
		 provider,
		 getenv("FI_PROVIDER")
			 ? " (FI_PROVIDER is set and hides others)"
			 : "");
	return -ENODEV;
}

/* --- choosing ------------------------------------------------------------- */

static bool same_provider(const struct fi_info *a, const struct fi_info *b)
{
	return !strcmp(a->fabric_attr->prov_name, b->fabric_attr->prov_name);
}

/* Providers ignore the domain in the hints, or not. */
static bool is_usable(const struct fi_info *info, const char *domain)
{
	return !why_not(info) &&
	       (!domain[0] || !strcmp(domain, info->domain_attr->name));
}

/* The first usable entry that is not one of the first `skip` providers. */
static const struct fi_info *choose(const struct fi_info *list,
				    const char *domain, unsigned skip)
{
	const struct fi_info *last = NULL;

	for (; list; list = list->next) {
		if (!is_usable(list, domain) ||
		    (last && same_provider(list, last)))
			continue;
		if (!skip--)
			return list;
		last = list;
	}
	return NULL;
}

int pn_fabric_find(struct pn_fabric_device *dev, const char *provider,
		   unsigned skip)
{
	const struct pn_fabric_library *library;
	const char *domain = dev->params.domain;
	const struct fi_info *chosen = NULL;
	struct fi_info *list = NULL;
	int ret = pn_fabric_library_open(&library);

	if (ret)
		return report_library();
	dev->library = library;
	ret = get_info(library, full_hints(provider), dev->params.address,
		       &list);
	if (!ret)
		chosen = choose(list, domain, skip);
	ret = 0;
	if (chosen)
		dev->info = library->dupinfo(chosen);
	else if (skip)
		ret = -ENODEV;
	else
		ret = report_none(library, provider,
				  domain[0] ? domain : dev->params.address);
	library->freeinfo(list);
	return !ret && !dev->info ? -ENOMEM : ret;
}

/* --- listing -------------------------------------------------------------- */

static bool seen_before(const struct fi_info *list, const struct fi_info *info)
{
	for (; list != info; list = list->next)
		if (same_provider(list, info))
			return true;
	return false;
}

static bool in_list(const char *text, const char *word)
{
	const char *at = strstr(text, word);

	return at && (!at[strlen(word)] || at[strlen(word)] == ',');
}

/* The domains of a provider, each once. */
static void list_domains(const struct fi_info *info, char *text, size_t size)
{
	const char *provider = info->fabric_attr->prov_name;
	size_t len = 0;

	text[0] = 0;
	for (; info && len + 40 < size; info = info->next) {
		const char *name = info->domain_attr->name;

		if (strcmp(info->fabric_attr->prov_name, provider) ||
		    in_list(text, name))
			continue;
		len += (size_t)snprintf(text + len, size - len, "%s%.30s",
					len ? ", " : "domains ", name);
	}
}

static void list_one(const struct fi_info *info, pn_fact_fn *fn, void *arg)
{
	const char *why = why_not(info);
	char name[PN_FABRIC_NAME_BYTES + 8], text[512];

	snprintf(name, sizeof(name), "fabric:%.*s", PN_FABRIC_NAME_BYTES,
		 info->fabric_attr->prov_name);
	list_domains(info, text, sizeof(text));
	fn(arg, name, why ? why : text);
}

void pn_fabric_list(pn_fact_fn *fn, void *arg)
{
	const struct pn_fabric_library *library;
	struct fi_info *list = NULL;

	if (pn_fabric_library_open(&library)) {
		fn(arg, "fabric", "there is no libfabric");
		return;
	}
	if (get_info(library, open_hints(""), "", &list)) {
		fn(arg, "fabric", "libfabric has no provider");
		return;
	}
	for (const struct fi_info *info = list; info; info = info->next)
		if (!seen_before(list, info))
			list_one(info, fn, arg);
	library->freeinfo(list);
}
