/* SPDX-License-Identifier: BSD-2-Clause */
/* The calls of libibverbs and librdmacm. ibv_post_send() and
 * ibv_post_srq_recv() are calls of the adapter's driver, through a table of the
 * adapter's context: they are replaced there when a queue pair is made. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "injector_impl.h"

#undef ibv_reg_mr

#define WRAP_VERBS(type, failed, name, params, args) \
	WRAP_ERROR(FAULT_VERBS, ENOMEM, type, failed, name, params, args)
/* Those that return the errno. */
#define WRAP_ERRNO(kind, error, name, params, args) \
	WRAP_ERROR(kind, error, int, error, name, params, args)

WRAP_VERBS(struct ibv_context *, NULL, ibv_open_device,
	   (struct ibv_device * device), (device))
WRAP_VERBS(struct ibv_pd *, NULL, ibv_alloc_pd, (struct ibv_context * context),
	   (context))
WRAP_VERBS(struct ibv_comp_channel *, NULL, ibv_create_comp_channel,
	   (struct ibv_context * context), (context))
WRAP_VERBS(struct ibv_cq *, NULL, ibv_create_cq,
	   (struct ibv_context * context, int n, void *arg,
	    struct ibv_comp_channel *channel, int vector),
	   (context, n, arg, channel, vector))
WRAP_VERBS(struct ibv_srq *, NULL, ibv_create_srq,
	   (struct ibv_pd * pd, struct ibv_srq_init_attr *attr), (pd, attr))
WRAP_ERRNO(FAULT_VERBS, ENOMEM, ibv_modify_qp,
	   (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask),
	   (qp, attr, mask))

WRAP_ERROR(FAULT_REG_MR, ENOMEM, struct ibv_mr *, NULL, ibv_reg_mr,
	   (struct ibv_pd * pd, void *addr, size_t len, int access),
	   (pd, addr, len, access))
WRAP_ERROR(FAULT_REG_MR, ENOMEM, struct ibv_mr *, NULL, ibv_reg_mr_iova2,
	   (struct ibv_pd * pd, void *addr, size_t len, uint64_t iova,
	    unsigned access),
	   (pd, addr, len, iova, access))
WRAP_ERRNO(FAULT_DEREG_MR, EBUSY, ibv_dereg_mr, (struct ibv_mr * mr), (mr))

WRAP_VERBS(struct rdma_event_channel *, NULL, rdma_create_event_channel, (void),
	   ())
WRAP_VERBS(int, -1, rdma_create_id,
	   (struct rdma_event_channel * channel, struct rdma_cm_id **id,
	    void *context, enum rdma_port_space space),
	   (channel, id, context, space))
WRAP_VERBS(int, -1, rdma_bind_addr,
	   (struct rdma_cm_id * id, struct sockaddr *address), (id, address))
WRAP_VERBS(int, -1, rdma_listen, (struct rdma_cm_id * id, int backlog),
	   (id, backlog))
WRAP_VERBS(int, -1, rdma_resolve_addr,
	   (struct rdma_cm_id * id, struct sockaddr *from, struct sockaddr *to,
	    int timeout_ms),
	   (id, from, to, timeout_ms))
WRAP_VERBS(int, -1, rdma_resolve_route,
	   (struct rdma_cm_id * id, int timeout_ms), (id, timeout_ms))
WRAP_VERBS(int, -1, rdma_connect,
	   (struct rdma_cm_id * id, struct rdma_conn_param *param), (id, param))
WRAP_VERBS(int, -1, rdma_accept,
	   (struct rdma_cm_id * id, struct rdma_conn_param *param), (id, param))

/* --- calls of the driver -------------------------------------------------- */

static int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad);
static int (*post_srq_recv)(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad);

static int failing_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
			     struct ibv_send_wr **bad)
{
	if (!injector_fails(FAULT_POST, ENOMEM))
		return post_send(qp, wr, bad);
	*bad = wr;
	return ENOMEM;
}

static int failing_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
				 struct ibv_recv_wr **bad)
{
	if (!injector_fails(FAULT_POST, ENOMEM))
		return post_srq_recv(srq, wr, bad);
	*bad = wr;
	return ENOMEM;
}

static void replace_posts(struct ibv_context_ops *ops)
{
	if (ops->post_send == failing_post_send)
		return;
	post_send = ops->post_send;
	post_srq_recv = ops->post_srq_recv;
	ops->post_send = failing_post_send;
	ops->post_srq_recv = failing_post_srq_recv;
}

struct ibv_qp *__real_ibv_create_qp(struct ibv_pd *pd,
				    struct ibv_qp_init_attr *attr);
struct ibv_qp *__wrap_ibv_create_qp(struct ibv_pd *pd,
				    struct ibv_qp_init_attr *attr);

struct ibv_qp *__wrap_ibv_create_qp(struct ibv_pd *pd,
				    struct ibv_qp_init_attr *attr)
{
	if (injector_fails(FAULT_VERBS, ENOMEM))
		return NULL;
	replace_posts(&pd->context->ops);
	return __real_ibv_create_qp(pd, attr);
}
