/* SPDX-License-Identifier: BSD-2-Clause */
/* Exposures: regions that peers reach by the device (onesided.h). The target
 * exposes a region when a peer asks for its key, and ends the exposure by
 * itself at any time: peers then send requests. */
#include <errno.h>
#include <stdlib.h>

#include "provider/onesided.h"

/* A region is exposed when 1/4 of its bytes have been moved by requests: for
 * less, pinning it costs more than it saves. All exposures of a domain may have
 * half of what the process may pin; buffers of messages need the rest. */
#define MOVED_SHARE  4
#define BUDGET_SHARE 2

struct pn_fi_exposure {
	struct pn_list mr_link; /* mr->exposures */
	struct pn_list ep_link; /* ep->exposures */
	struct pn_fi_mr *mr;
	struct pn_fi_ep *ep;
	struct pinion_exposure *exposure;
};

bool pn_fi_exposes(const struct pn_fi_ep *ep)
{
	struct pinion_device_info info = { .size = sizeof(info) };

	return ep->caps & FI_RMA && ep->rma != PN_FI_RMA_REQUEST &&
	       !ep->several_devices &&
	       !pinion_device_query(ep->context, &info) && info.pins;
}

/* --- life ----------------------------------------------------------------- */

static void end_exposure(struct pn_fi_exposure *exposure)
{
	exposure->ep->domain->exposed_bytes -= exposure->mr->len;
	pn_list_remove(&exposure->mr_link);
	pn_list_remove(&exposure->ep_link);
	pinion_exposure_close(exposure->exposure);
	free(exposure);
}

void pn_fi_unexpose_mr(struct pn_fi_mr *mr)
{
	while (!pn_list_empty(&mr->exposures))
		end_exposure(pn_container_of(mr->exposures.next,
					     struct pn_fi_exposure, mr_link));
}

void pn_fi_unexpose_ep(struct pn_fi_ep *ep)
{
	while (!pn_list_empty(&ep->exposures))
		end_exposure(pn_container_of(ep->exposures.next,
					     struct pn_fi_exposure, ep_link));
}

static unsigned access_of(const struct pn_fi_mr *mr)
{
	return (mr->access & FI_REMOTE_READ ? PINION_ACCESS_REMOTE_READ : 0) |
	       (mr->access & FI_REMOTE_WRITE ? PINION_ACCESS_REMOTE_WRITE : 0);
}

static bool was_released(const struct pn_fi_mr *mr)
{
	return pn_watched_range_check(mr->range, mr->base, mr->len, false);
}

/* Opens the exposure. The memory may be released, and other memory mapped
 * there, until the cache watches it. */
static int open_exposure(struct pn_fi_exposure *exposure)
{
	struct pn_fi_mr *mr = exposure->mr;
	int ret =
		pinion_exposure_open(exposure->ep->endpoint, mr->base, mr->len,
				     access_of(mr), &exposure->exposure);

	if (!ret && was_released(mr)) {
		pinion_exposure_close(exposure->exposure);
		ret = -FI_EACCES;
	}
	return ret;
}

static int add_exposure(struct pn_fi_ep *ep, struct pn_fi_mr *mr,
			struct pn_fi_exposure **out)
{
	struct pn_fi_exposure *exposure = malloc(sizeof(*exposure));
	int ret;

	if (!exposure)
		return -FI_ENOMEM;
	*exposure = (struct pn_fi_exposure){ .mr = mr, .ep = ep };
	ret = open_exposure(exposure);
	if (ret) {
		free(exposure);
		return ret;
	}
	pn_list_init(&exposure->mr_link);
	pn_list_init(&exposure->ep_link);
	pn_list_append(&mr->exposures, &exposure->mr_link);
	pn_list_append(&ep->exposures, &exposure->ep_link);
	ep->domain->exposed_bytes += mr->len;
	*out = exposure;
	return 0;
}

/* --- keys ----------------------------------------------------------------- */

static struct pn_fi_exposure *find_exposure(const struct pn_fi_ep *ep,
					    const struct pn_fi_mr *mr)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &mr->exposures) {
		struct pn_fi_exposure *exposure =
			pn_container_of(pos, struct pn_fi_exposure, mr_link);

		if (exposure->ep == ep)
			return exposure;
	}
	return NULL;
}

/* Whether the region may be exposed: nobody counts its operations, and its
 * release is noted. */
static bool may_expose(const struct pn_fi_ep *ep, const struct pn_fi_mr *mr)
{
	return ep->exposes && !mr->counter &&
	       !ep->events[PN_FI_EVENT_REMOTE_READ].counter &&
	       !ep->events[PN_FI_EVENT_REMOTE_WRITE].counter &&
	       pn_watched_range_detects(mr->range);
}

static bool is_in_budget(const struct pn_fi_ep *ep, size_t len)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };
	size_t most;

	if (pinion_cache_query(ep->context, &stats))
		return false;
	most = stats.max_bytes / BUDGET_SHARE;
	return len <= most && ep->domain->exposed_bytes <= most - len;
}

static int expose(struct pn_fi_ep *ep, struct pn_fi_mr *mr, uint64_t moved,
		  struct pn_fi_exposure **out)
{
	*out = find_exposure(ep, mr);
	if (*out)
		return 0;
	if (ep->rma == PN_FI_RMA_AUTO && moved < mr->len / MOVED_SHARE)
		return -FI_EAGAIN;
	return is_in_budget(ep, mr->len) ? add_exposure(ep, mr, out)
					 : -FI_ENOBUFS;
}

int pn_fi_expose(struct pn_fi_ep *ep, uint64_t key, uint64_t moved,
		 struct pn_fi_region_key *out)
{
	struct pn_fi_mr *mr = pn_fi_mr_find(ep->domain, key);
	struct pn_fi_exposure *exposure;
	int ret;

	if (!mr || mr->closing || !mr->range)
		return -FI_EACCES;
	/* First: where releases are not noted, was_released() would have the
	 * kernel allocate the whole region. */
	if (!may_expose(ep, mr))
		return -FI_EOPNOTSUPP;
	if (was_released(mr))
		return -FI_EACCES;
	ret = expose(ep, mr, moved, &exposure);
	if (ret)
		return ret;
	*out = (struct pn_fi_region_key){ .base = pn_fi_mr_base(mr),
					  .len = mr->len };
	return pinion_exposure_key(exposure->exposure, &out->exposure);
}
