/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/verbs/window.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define MAX_BINDS	200 /* of 256 keys */
#define BIND_TIMEOUT_NS PN_NS_PER_S

/* --- a queue pair that is connected to itself ----------------------------- */

/* On Ethernet any GID of the port will do: nothing is ever sent. */
static int find_self(struct ibv_context *context, uint8_t port,
		     const struct ibv_port_attr *port_attr,
		     struct ibv_ah_attr *out)
{
	*out = (struct ibv_ah_attr){ .port_num = port, .dlid = port_attr->lid };
	if (port_attr->link_layer != IBV_LINK_LAYER_ETHERNET)
		return 0;
	out->is_global = 1;
	out->grh.hop_limit = 1;
	for (int i = 0; i < port_attr->gid_tbl_len; i++) {
		union ibv_gid *gid = &out->grh.dgid;

		out->grh.sgid_index = (uint8_t)i;
		if (!ibv_query_gid(context, port, i, gid) &&
		    (gid->global.subnet_prefix || gid->global.interface_id))
			return 0;
	}
	return -EADDRNOTAVAIL;
}

static int move(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	return -ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE);
}

static int connect_to_self(struct ibv_qp *qp, uint8_t port,
			   const struct ibv_port_attr *port_attr)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT,
				    .port_num = port };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR,
				   .path_mtu = port_attr->active_mtu,
				   .dest_qp_num = qp->qp_num };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS };
	int ret = find_self(qp->context, port, port_attr, &rtr.ah_attr);

	if (!ret)
		ret = move(qp, init,
			   IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				   IBV_QP_ACCESS_FLAGS);
	if (!ret)
		ret = move(qp, rtr,
			   IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				   IBV_QP_MIN_RNR_TIMER);
	if (!ret)
		ret = move(qp, rts,
			   IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				   IBV_QP_MAX_QP_RD_ATOMIC);
	return ret;
}

int pn_verbs_binder_open(struct pn_verbs_binder *binder, struct ibv_pd *pd,
			 uint8_t port, const struct ibv_port_attr *attr)
{
	struct ibv_qp_init_attr init = { .cap = { .max_send_wr = 4,
						  .max_recv_wr = 1,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 },
					 .qp_type = IBV_QPT_RC };
	int ret;

	binder->cq = ibv_create_cq(pd->context, 8, NULL, NULL, 0);
	if (!binder->cq)
		return -errno;
	init.send_cq = init.recv_cq = binder->cq;
	pn_mutex_init(&binder->lock);
	binder->qp = ibv_create_qp(pd, &init);
	ret = binder->qp ? connect_to_self(binder->qp, port, attr) : -errno;
	if (ret)
		pn_verbs_binder_close(binder);
	return ret;
}

void pn_verbs_binder_close(struct pn_verbs_binder *binder)
{
	if (!binder->cq)
		return;
	if (binder->qp)
		ibv_destroy_qp(binder->qp);
	ibv_destroy_cq(binder->cq);
	pn_mutex_fini(&binder->lock);
	memset(binder, 0, sizeof(*binder));
}

/* --- windows -------------------------------------------------------------- */

static int wait_for_bind(struct pn_verbs_binder *binder)
	PN_REQUIRES(&binder->lock)
{
	uint64_t deadline_ns = pn_clock_ns() + BIND_TIMEOUT_NS;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(binder->cq, 1, &wc)))
		if (pn_clock_ns() > deadline_ns)
			return -ETIMEDOUT;
	return n < 0 || wc.status ? -EIO : 0;
}

/* A bind that is still in the queue is never executed. */
static void fail_locked(struct pn_verbs_binder *binder)
	PN_REQUIRES(&binder->lock)
{
	struct ibv_qp_attr error = { 0 };

	error.qp_state = IBV_QPS_ERR;
	(void)move(binder->qp, error, 0);
	atomic_store(&binder->failed, true);
}

static int bind_locked(struct pn_verbs_binder *binder, struct ibv_mw *mw,
		       struct ibv_mw_bind *bind) PN_REQUIRES(&binder->lock)
{
	uint32_t before = mw->rkey;
	int ret = -ibv_bind_mw(binder->qp, mw, bind);

	if (!ret) {
		ret = wait_for_bind(binder);
		if (ret)
			fail_locked(binder);
	}
	if (ret) {
		mw->rkey = before;
		pn_error("verbs: a memory window cannot be bound: %s; do "
			 "without windows",
			 strerror(-ret));
	}
	return ret;
}

static int bind_mw(struct pn_verbs_binder *binder, struct ibv_mw *mw,
		   const struct ibv_mw_bind_info *part)
{
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED,
				    .bind_info = *part };
	int ret = -EIO;

	pn_lock(&binder->lock);
	if (pn_verbs_binder_works(binder))
		ret = bind_locked(binder, mw, &bind);
	pn_unlock(&binder->lock);
	return ret;
}

static int dealloc(struct ibv_mw *mw)
{
	int error = ibv_dealloc_mw(mw);

	if (error < 0)
		error = errno ? errno : EIO;
	if (error)
		pn_error("verbs: a memory window cannot be freed, and its key "
			 "may go on working: %s",
			 strerror(error));
	return -error;
}

int pn_verbs_window_bind(struct pn_verbs_binder *binder,
			 struct pn_verbs_window *window, struct ibv_mr *mr,
			 unsigned access)
{
	return pn_verbs_window_bind_part(binder, window,
					 &(struct ibv_mw_bind_info){
						 .mr = mr,
						 .addr = (uintptr_t)mr->addr,
						 .length = mr->length,
						 .mw_access_flags = access });
}

int pn_verbs_window_bind_part(struct pn_verbs_binder *binder,
			      struct pn_verbs_window *window,
			      const struct ibv_mw_bind_info *part)
{
	bool is_new = !window->mw || window->nbinds >= MAX_BINDS;
	struct ibv_mw *mw =
		is_new ? ibv_alloc_mw(part->mr->pd, IBV_MW_TYPE_1) : window->mw;
	int ret = mw ? bind_mw(binder, mw, part) : -errno;

	/* The key that the window had ends with it. */
	if (!ret && is_new)
		ret = pn_verbs_window_free(window);
	if (ret && mw && is_new)
		dealloc(mw);
	if (ret)
		return ret;
	window->mw = mw;
	window->nbinds++;
	return 0;
}

int pn_verbs_window_free(struct pn_verbs_window *window)
{
	int ret = window->mw ? dealloc(window->mw) : 0;

	if (!ret)
		*window = (struct pn_verbs_window){ NULL, 0 };
	return ret;
}
