/* SPDX-License-Identifier: BSD-2-Clause */
/* The functions of libibverbs that are taken, as a program finds them. */
#include <errno.h>

#include "base/compiler.h"
#include "device/own_registration.h"
#include "preload/verbs/preload.h"

/* --- protection domains and adapters ---------------------------------------
 */

PN_PRIVATE_API struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = pn_ibv_real()->ibv_alloc_pd(context);

	if (pd && !pn_own_registration())
		pn_ibv_domain_add(pd);
	return pd;
}

/* Queue pairs and the like may keep it in use: then it stays known. */
PN_PRIVATE_API int ibv_dealloc_pd(struct ibv_pd *pd)
{
	bool known = pn_ibv_domain_remove(pd);
	int ret = pn_ibv_real()->ibv_dealloc_pd(pd);

	if (known && ret)
		pn_ibv_domain_add(pd);
	return ret;
}

PN_PRIVATE_API int ibv_close_device(struct ibv_context *context)
{
	pn_ibv_adapter_remove(context);
	return pn_ibv_real()->ibv_close_device(context);
}

/* --- registering -----------------------------------------------------------
 */

/* What pinion keeps may be what stands in the way. Where nothing is, errno is
 * still libibverbs'. */
static struct ibv_mr *pass(const struct pn_ibv_request *request)
{
	struct ibv_mr *mr = pn_ibv_real_reg(request);

	if (mr || (errno != ENOMEM && errno != ENOSPC && errno != EAGAIN) ||
	    pn_own_registration() || !pn_ibv_give_up())
		return mr;
	return pn_ibv_real_reg(request);
}

static struct ibv_mr *take(const struct pn_ibv_request *request)
{
	struct ibv_mr *mr = NULL;

	if (!pn_own_registration()) {
		pn_ibv_enter();
		mr = pn_ibv_region_open(request);
		pn_ibv_leave();
	}
	return mr ? mr : pass(request);
}

PN_PRIVATE_API struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr,
					       size_t len, uint64_t iova,
					       unsigned access)
{
	return take(&(struct pn_ibv_request){ pd, addr, len, iova, access });
}

PN_PRIVATE_API struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr,
					      size_t len, uint64_t iova,
					      int access)
{
	return take(&(struct pn_ibv_request){ pd, addr, len, iova,
					      (unsigned)access });
}

PN_PRIVATE_API struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr,
					 size_t len, int access)
{
	return take(&(struct pn_ibv_request){ pd, addr, len, (uintptr_t)addr,
					      (unsigned)access });
}

PN_PRIVATE_API int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
				void *addr, size_t len, int access)
{
	const struct pn_ibv_request change = { pd, addr, len, (uintptr_t)addr,
					       (unsigned)access };
	bool ours;
	int ret;

	pn_ibv_enter();
	ours = pn_ibv_region_change(mr, flags, &change, &ret);
	pn_ibv_leave();
	return ours ? ret
		    : pn_ibv_real()->ibv_rereg_mr(mr, flags, pd, addr, len,
						  access);
}

PN_PRIVATE_API int ibv_dereg_mr(struct ibv_mr *mr)
{
	bool ours;
	int ret;

	pn_ibv_enter();
	ours = pn_ibv_region_close(mr, &ret);
	pn_ibv_leave();
	return ours ? ret : pn_ibv_real()->ibv_dereg_mr(mr);
}
