/* SPDX-License-Identifier: BSD-2-Clause */
/* Two connected RC queue pairs of an RDMA adapter, in one process: what
 * verbs_before.c and verbs_after.c have in common. */
#ifndef VERBS_PAIR_H
#define VERBS_PAIR_H

#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pair {
	struct ibv_context *adapter;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
	union ibv_gid gid;
	uint8_t gid_index;
	uint16_t lid;
};

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(EXIT_FAILURE);
	}
}

/* Exits with 77, "skipped", where there is none. */
static struct ibv_context *open_adapter(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *adapter;
	int i = 0;

	while (list && list[i] && name &&
	       strcmp(name, ibv_get_device_name(list[i])))
		i++;
	if (!list || !list[i]) {
		puts("skipped: no RDMA adapter here");
		exit(77);
	}
	adapter = ibv_open_device(list[i]);
	need(adapter != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	return adapter;
}

/* To the other one, which is at the same port. */
static void connect_qp(struct pair *pair, struct ibv_qp *qp, uint32_t other)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags =
					    IBV_ACCESS_REMOTE_READ |
					    IBV_ACCESS_REMOTE_WRITE |
					    IBV_ACCESS_REMOTE_ATOMIC };

	need(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS),
	     "INIT");
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = other;
	attr.min_rnr_timer = 12;
	attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
	attr.ah_attr =
		(struct ibv_ah_attr){ .dlid = pair->lid,
				      .is_global = 1,
				      .port_num = 1,
				      .grh = { .dgid = pair->gid,
					       .sgid_index = pair->gid_index,
					       .hop_limit = 1 } };
	need(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 6;
	need(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC),
	     "RTS");
}

/* That of an IPv4 address, if there is one: others may not be routed yet. */
static void find_gid(struct pair *pair, int n)
{
	static const uint8_t ipv4[12] = { [10] = 0xff, [11] = 0xff };

	for (int i = n; i--;) {
		need(!ibv_query_gid(pair->adapter, 1, i, &pair->gid),
		     "ibv_query_gid");
		pair->gid_index = (uint8_t)i;
		if (!memcmp(pair->gid.raw, ipv4, sizeof(ipv4)))
			break;
	}
}

/* name: of the adapter, NULL: the first. */
static void pair_open(struct pair *pair, const char *name)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 16,
						  .max_recv_wr = 1,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	struct ibv_port_attr port;

	pair->adapter = open_adapter(name);
	pair->pd = ibv_alloc_pd(pair->adapter);
	pair->cq = ibv_create_cq(pair->adapter, 32, NULL, NULL, 0);
	need(pair->pd && pair->cq, "protection domain, completion queue");
	need(!ibv_query_port(pair->adapter, 1, &port), "port 1");
	find_gid(pair, port.gid_tbl_len < 16 ? port.gid_tbl_len : 16);
	pair->lid = port.lid;
	attr.send_cq = attr.recv_cq = pair->cq;
	for (int i = 0; i < 2; i++) {
		pair->qp[i] = ibv_create_qp(pair->pd, &attr);
		need(pair->qp[i] != NULL, "ibv_create_qp");
	}
	for (int i = 0; i < 2; i++)
		connect_qp(pair, pair->qp[i], pair->qp[!i]->qp_num);
}

/* The status of an RDMA operation of the first queue pair, when it is done. */
static enum ibv_wc_status pair_do(struct pair *pair, enum ibv_wr_opcode opcode,
				  struct ibv_sge local, void *remote,
				  uint32_t rkey)
{
	struct ibv_send_wr wr = { .sg_list = &local,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	wr.wr.rdma.remote_addr = (uintptr_t)remote;
	wr.wr.rdma.rkey = rkey;
	need(!ibv_post_send(pair->qp[0], &wr, &bad), "ibv_post_send");
	while (!(n = ibv_poll_cq(pair->cq, 1, &wc)))
		;
	need(n == 1, "ibv_poll_cq");
	return wc.status;
}

static inline void pair_write(struct pair *pair, struct ibv_sge from, void *to,
			      uint32_t rkey)
{
	enum ibv_wc_status status =
		pair_do(pair, IBV_WR_RDMA_WRITE, from, to, rkey);

	if (status != IBV_WC_SUCCESS) {
		fprintf(stderr, "write: %s\n", ibv_wc_status_str(status));
		exit(EXIT_FAILURE);
	}
}

static void pair_close(struct pair *pair)
{
	for (int i = 0; i < 2; i++)
		ibv_destroy_qp(pair->qp[i]);
	ibv_destroy_cq(pair->cq);
	need(!ibv_dealloc_pd(pair->pd), "ibv_dealloc_pd");
	ibv_close_device(pair->adapter);
}

#endif
