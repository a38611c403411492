/* SPDX-License-Identifier: BSD-2-Clause */
/* The functions of libibverbs that are taken, as a program finds them. */
#include <errno.h>

#include "base/compiler.h"
#include "device/own_registration.h"
#include "preload/verbs/preload.h"

/* --- what pinion keeps, in the way -----------------------------------------
 */

/* Whether a call that failed can be tried again. Not of pinion itself, which
 * makes room in its own ways. Where nothing is kept, errno is still
 * libibverbs'. */
static bool made_room(void)
{
	if (errno != ENOMEM && errno != ENOSPC && errno != EAGAIN)
		return false;
	return !pn_own_registration() && !pn_ibv_inside() && pn_ibv_give_up();
}

/* The adapter and the RDMA cgroup count objects of all kinds together. */
#define TRY(call)                                           \
	({                                                  \
		__auto_type object_ = (call);               \
		object_ || !made_room() ? object_ : (call); \
	})

/* --- protection domains and adapters ---------------------------------------
 */

PN_PRIVATE_API struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = TRY(pn_ibv_real()->ibv_alloc_pd(context));

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

/* --- other objects ---------------------------------------------------------
 */

PN_PRIVATE_API struct ibv_comp_channel *ibv_create_comp_channel(
	struct ibv_context *context)
{
	return TRY(pn_ibv_real()->ibv_create_comp_channel(context));
}

PN_PRIVATE_API struct ibv_cq *ibv_create_cq(struct ibv_context *context,
					    int cqe, void *cq_context,
					    struct ibv_comp_channel *channel,
					    int vector)
{
	return TRY(pn_ibv_real()->ibv_create_cq(context, cqe, cq_context,
						channel, vector));
}

PN_PRIVATE_API struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
					      struct ibv_srq_init_attr *attr)
{
	return TRY(pn_ibv_real()->ibv_create_srq(pd, attr));
}

PN_PRIVATE_API struct ibv_qp *ibv_create_qp(struct ibv_pd *pd,
					    struct ibv_qp_init_attr *attr)
{
	return TRY(pn_ibv_real()->ibv_create_qp(pd, attr));
}

PN_PRIVATE_API struct ibv_ah *ibv_create_ah(struct ibv_pd *pd,
					    struct ibv_ah_attr *attr)
{
	return TRY(pn_ibv_real()->ibv_create_ah(pd, attr));
}

/* --- registering -----------------------------------------------------------
 */

static struct ibv_mr *take(const struct pn_ibv_request *request)
{
	struct ibv_mr *mr = NULL;

	if (!pn_own_registration()) {
		pn_ibv_enter();
		mr = pn_ibv_region_open(request);
		pn_ibv_leave();
	}
	return mr ? mr : TRY(pn_ibv_real_reg(request));
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
	bool ours = pn_ibv_region_is_ours(mr);
	int ret;

	if (ours) {
		pn_ibv_enter();
		ours = pn_ibv_region_change(mr, flags, &change, &ret);
		pn_ibv_leave();
	}
	return ours ? ret
		    : pn_ibv_real()->ibv_rereg_mr(mr, flags, pd, addr, len,
						  access);
}

PN_PRIVATE_API int ibv_dereg_mr(struct ibv_mr *mr)
{
	bool ours = pn_ibv_region_is_ours(mr);
	int ret;

	if (ours) {
		pn_ibv_enter();
		ours = pn_ibv_region_close(mr, &ret);
		pn_ibv_leave();
	}
	return ours ? ret : pn_ibv_real()->ibv_dereg_mr(mr);
}
