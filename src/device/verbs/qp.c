/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "base/log.h"
#include "device/verbs/iwarp.h"

#define INLINE_BYTES 256
/* After RNR the sender waits 0.16 ms. */
#define RNR_TIMER    8

/* iWARP: work requests per record, on the average: split reads, confirming
 * reads, credit messages. */
#define IWARP_REQUESTS 8

static unsigned send_requests(const struct pn_verbs_device *dev,
			      unsigned send_wrs)
{
	unsigned max = (unsigned)dev->attr.max_qp_wr;
	unsigned wanted = dev->is_iwarp ? IWARP_REQUESTS * send_wrs : send_wrs;

	return wanted < max ? wanted : max;
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

/* Adapters do not report what they can inline: try less and less. */
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
		pn_error("verbs: cannot create a queue pair on %s: %s; try a "
			 "smaller verbs:queue_depth=",
			 dev->name, strerror(errno));
		return -errno;
	}
	ibv_destroy_qp(qp);
	/* On iWARP only headers are inline; data of callers is staged. */
	if (dev->is_iwarp)
		limits->inline_bytes = PN_VERBS_STAGE_INLINE;
	return 0;
}

/* Sets what rdma_cm does not know, and replaces its defaults: with those a
 * sender retries for minutes, and waits 0.65 s after RNR. */
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
		attr->rnr_retry = 7; /* no limit */
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
