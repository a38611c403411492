/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registering: the only calls of the device's register in the cache. Room comes
 * from the budget first (pn_cache_charge()); if the device has none either, the
 * cache reclaims and tries again (pn_register_retry()).
 */
#include <errno.h>

#include "cache/cache_impl.h"
#include "cache/reclaim_impl.h"

int pn_cache_charge(struct pn_cache *cache, size_t bytes, size_t nregions)
{
	struct pn_reclaim_request want = { .bytes = bytes,
					   .nregions = nregions };
	int ret = 0;

	pn_cache_refresh(cache);
	while (!ret && !pn_budget_charge(cache->budget, bytes, nregions)) {
		ret = pn_reclaim_step(cache, &want);
		pn_cache_refresh(cache);
	}
	return ret;
}

static size_t charged_bytes(const struct pn_mr *mr)
{
	return mr->access & PN_ACCESS_UNPINNED
		       ? 0
		       : pn_range_pages((uintptr_t)mr->addr, mr->len,
					PN_PAGE_BYTES)
				 .len;
}

/* Whether a failed batch could not be undone as a whole. */
static bool any_stays(struct pn_cache *cache, struct pn_mr *const *mrs,
		      unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (pn_device_still_registered(cache->device, mrs[i]))
			return true;
	return false;
}

/* Where a device finds registrations by address, what is still registered of
 * released memory is in the way: it is dying. */
static int register_batch(struct pn_cache *cache, struct pn_mr *const *mrs,
			  unsigned n)
{
	int ret = pn_device_register(cache->device, mrs, n);

	if (pn_likely(ret != -EBUSY))
		return ret;
	pn_reclaim_reap_all(cache);
	return pn_device_register(cache->device, mrs, n);
}

int pn_register_retry(struct pn_cache *cache, struct pn_mr *const *mrs,
		      unsigned n)
{
	struct pn_reclaim_request want = { .by_device = true, .nregions = n };
	int ret;

	for (unsigned i = 0; i < n; i++)
		want.bytes += mrs[i]->len;
	do {
		ret = register_batch(cache, mrs, n);
	} while (ret == -ENOMEM && !any_stays(cache, mrs, n) &&
		 !pn_reclaim_step(cache, &want));
	if (ret == -ENOMEM)
		pn_budget_pin_failed(cache->budget);
	return ret == -ENOMEM || ret == -EBUSY ? -ENOBUFS : ret;
}

int pn_cache_register(struct pn_cache *cache, struct pn_mr *mr)
{
	size_t bytes = charged_bytes(mr);
	int ret = pn_cache_charge(cache, bytes, 1);

	if (ret)
		return ret;
	ret = pn_register_retry(cache, &mr, 1);
	if (ret)
		pn_budget_uncharge(cache->budget, bytes, 1);
	return ret;
}

int pn_cache_register_own(struct pn_cache *cache, struct pn_mr *mr)
{
	int ret;

	if (cache->device->caps & PN_CAP_BY_ADDRESS)
		mr->access |= PN_ACCESS_OWN;
	ret = pn_cache_register(cache, mr);
	if (ret != -ENOBUFS || !(cache->device->caps & PN_CAP_UNPINNED))
		return ret;
	mr->access |= PN_ACCESS_UNPINNED;
	return pn_cache_register(cache, mr);
}

void pn_cache_deregister(struct pn_cache *cache, struct pn_mr *mr)
{
	pn_device_deregister(cache->device, &mr, 1);
	if (!pn_device_still_registered(cache->device, mr) ||
	    !pn_reclaim_adopt(cache, mr))
		pn_budget_uncharge(cache->budget, charged_bytes(mr), 1);
}
