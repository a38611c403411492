/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "base/log.h"
#include "device/verbs/iwarp.h"

#define INLINE_BYTES 256
/* How long a sender waits that found no receive buffer: 0.16 ms. */
#define RNR_TIMER    8

/* Reads in parts, reads of nothing, grants: what a record of iWARP may need on
 * the average besides its own. */
#define IWARP_REQUESTS 8

static unsigned send_requests(const struct pn_verbs_device *dev,
			      unsigned send_wrs)
{
	unsigned most = (unsigned)dev->attr.max_qp_wr;
	unsigned want = dev->is_iwarp ? IWARP_REQUESTS * send_wrs : send_wrs;

	return want < most ? want : most;
}

static uint32_t inline_bytes(const struct pn_verbs_device *dev)
{
	return (uint32_t)(dev->is_iwarp ? sizeof(struct pn_verbs_message_header)
					: dev->device.limits.inline_bytes);
}

struct ibv_qp *pn_verbs_qp_create(struct pn_verbs_device *dev,
				  unsigned send_wrs)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = dev->cq,
		.recv_cq = dev->cq,
		.srq = dev->srq,
		.cap = { .max_send_wr =
				 send_wrs ? send_requests(dev, send_wrs) : 1,
			 .max_send_sge = send_wrs ? dev->max_sge : 1,
			 .max_inline_data = send_wrs ? inline_bytes(dev) : 0 },
		.qp_type = IBV_QPT_RC,
	};

	return ibv_create_qp(dev->pd, &attr);
}

/* Adapters do not say what they can inline: ask for less and less. */
int pn_verbs_qp_probe(struct pn_verbs_device *dev)
{
	struct pn_device_limits *limits = &dev->device.limits;
	struct ibv_qp *qp = NULL;

	for (limits->inline_bytes = INLINE_BYTES; limits->inline_bytes >= 16;
	     limits->inline_bytes /= 2) {
		qp = pn_verbs_qp_create(dev, limits->queue_depth);
		if (qp)
			break;
	}
	if (!qp) {
		limits->inline_bytes = 0;
		qp = pn_verbs_qp_create(dev, limits->queue_depth);
	}
	if (!qp) {
		pn_error("verbs: %s gives no queue pair: %s; "
			 "verbs:queue_depth= asks for a smaller one",
			 dev->name, strerror(errno));
		return -errno;
	}
	ibv_destroy_qp(qp);
	/* Of iWARP, only heads are inlined; the callers' bytes are staged. */
	if (dev->is_iwarp)
		limits->inline_bytes = PN_VERBS_STAGE_INLINE;
	return 0;
}

/* What rdma_cm does not know or sets as for programs that never wait: it lets
 * a sender retry for minutes, and sleep 0.65 s for a receive buffer. */
static void adjust(const struct pn_verbs_device *dev, struct ibv_qp_attr *attr,
		   int *mask)
{
	if (attr->qp_state == IBV_QPS_INIT) {
		attr->qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			(dev->is_iwarp ? 0 : IBV_ACCESS_REMOTE_ATOMIC);
		*mask |= IBV_QP_ACCESS_FLAGS;
	}
	if (dev->is_iwarp)
		return;
	if (attr->qp_state == IBV_QPS_RTR)
		attr->min_rnr_timer = RNR_TIMER;
	if (attr->qp_state == IBV_QPS_RTS) {
		attr->timeout = (uint8_t)dev->params.ack_timeout;
		attr->retry_cnt = (uint8_t)dev->params.retries;
		attr->rnr_retry = 7; /* for ever */
	}
}

int pn_verbs_qp_modify(struct pn_verbs_device *dev, struct ibv_qp *qp,
		       struct rdma_cm_id *id, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask = 0, ret;

	if (rdma_init_qp_attr(id, &attr, &mask))
		return -errno;
	adjust(dev, &attr, &mask);
	ret = ibv_modify_qp(qp, &attr, mask);
	return ret > 0 ? -ret : ret;
}
