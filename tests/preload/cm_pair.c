/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm_pair.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(EXIT_FAILURE);
	}
}

static struct rdma_cm_id *wait_for(struct rdma_event_channel *channel,
				   enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	need(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	if (event->event != type) {
		fprintf(stderr, "%s instead of %s, status %d\n",
			rdma_event_str(event->event), rdma_event_str(type),
			event->status);
		exit(EXIT_FAILURE);
	}
	id = event->id;
	rdma_ack_cm_event(event);
	return id;
}

static void resolve(struct cm_pair *pair, struct sockaddr_in *to)
{
	struct rdma_cm_id *id;

	need(!rdma_create_id(pair->channels[0], &id, NULL, RDMA_PS_TCP),
	     "rdma_create_id");
	need(!rdma_resolve_addr(id, NULL, (struct sockaddr *)to, 5000),
	     "rdma_resolve_addr");
	wait_for(pair->channels[0], RDMA_CM_EVENT_ADDR_RESOLVED);
	need(!rdma_resolve_route(id, 5000), "rdma_resolve_route");
	wait_for(pair->channels[0], RDMA_CM_EVENT_ROUTE_RESOLVED);
	pair->ids[0] = id;
	pair->adapter = id->verbs;
}

static void make_qp(struct cm_pair *pair, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .send_cq = pair->cq,
					 .recv_cq = pair->cq,
					 .cap = { .max_send_wr = 64,
						  .max_recv_wr = 16,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 } };

	need(!rdma_create_qp(id, pair->pd, &attr), "rdma_create_qp");
}

static void connect_them(struct cm_pair *pair)
{
	struct rdma_conn_param param = { .responder_resources = 1,
					 .initiator_depth = 1,
					 .retry_count = 6,
					 .rnr_retry_count = 6 };

	make_qp(pair, pair->ids[0]);
	need(!rdma_connect(pair->ids[0], &param), "rdma_connect");
	pair->ids[1] =
		wait_for(pair->channels[1], RDMA_CM_EVENT_CONNECT_REQUEST);
	make_qp(pair, pair->ids[1]);
	need(!rdma_accept(pair->ids[1], &param), "rdma_accept");
	wait_for(pair->channels[0], RDMA_CM_EVENT_ESTABLISHED);
	wait_for(pair->channels[1], RDMA_CM_EVENT_ESTABLISHED);
}

void cm_pair_open(struct cm_pair *pair, const char *address)
{
	struct sockaddr_in at = { .sin_family = AF_INET };

	*pair = (struct cm_pair){ 0 };
	need(inet_pton(AF_INET, address, &at.sin_addr) == 1, address);
	for (int i = 0; i < 2; i++) {
		pair->channels[i] = rdma_create_event_channel();
		if (!pair->channels[i]) {
			puts("skipped: no RDMA here");
			exit(77);
		}
	}
	need(!rdma_create_id(pair->channels[1], &pair->listener, NULL,
			     RDMA_PS_TCP),
	     "rdma_create_id");
	need(!rdma_bind_addr(pair->listener, (struct sockaddr *)&at) &&
		     !rdma_listen(pair->listener, 1),
	     "rdma_listen");
	at.sin_port = rdma_get_src_port(pair->listener);
	resolve(pair, &at);
	pair->pd = ibv_alloc_pd(pair->adapter);
	pair->cq = ibv_create_cq(pair->adapter, 256, NULL, NULL, 0);
	need(pair->pd && pair->cq, "protection domain, completion queue");
	connect_them(pair);
}

int cm_pair_close(struct cm_pair *pair)
{
	int ret;

	for (int i = 0; i < 2; i++) {
		rdma_disconnect(pair->ids[i]);
		rdma_destroy_qp(pair->ids[i]);
	}
	for (int i = 0; i < 2; i++)
		rdma_destroy_id(pair->ids[i]);
	rdma_destroy_id(pair->listener);
	for (int i = 0; i < 2; i++)
		rdma_destroy_event_channel(pair->channels[i]);
	ibv_destroy_cq(pair->cq);
	ret = ibv_dealloc_pd(pair->pd);
	return ret;
}

enum ibv_wc_status cm_pair_do(struct cm_pair *pair, enum ibv_wr_opcode opcode,
			      struct ibv_sge local, const void *remote,
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
	need(!ibv_post_send(pair->ids[0]->qp, &wr, &bad), "ibv_post_send");
	while (!(n = ibv_poll_cq(pair->cq, 1, &wc)))
		;
	need(n == 1, "ibv_poll_cq");
	return wc.status;
}

struct cm_mrs cm_mrs(size_t len)
{
	struct cm_mrs mrs = { 0 };
	char line[512];
	FILE *rdma = popen("unset LD_PRELOAD; rdma resource show mr", "r");

	need(rdma != NULL, "rdma");
	while (fgets(line, sizeof(line), rdma)) {
		const char *n = strstr(line, " mrn "), *bytes, *pid;

		bytes = strstr(line, " mrlen ");
		pid = strstr(line, " pid ");
		if (!n || !bytes || !pid || atoi(pid + 5) != getpid())
			continue;
		mrs.n++;
		mrs.bytes += strtoul(bytes + 7, NULL, 10);
		if (strtoul(bytes + 7, NULL, 10) == len)
			mrs.last = strtoul(n + 5, NULL, 10) + 1;
	}
	need(!pclose(rdma), "rdma resource show mr");
	return mrs;
}

/* New memory, of a length that nothing else has: registered in any case. */
uint64_t cm_mr_number(struct ibv_pd *pd)
{
	const size_t len = 7 * 4096;
	char *memory = mmap(NULL, len, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, len, IBV_ACCESS_LOCAL_WRITE);
	uint64_t number;

	need(mr != NULL, "ibv_reg_mr");
	number = cm_mrs(len).last;
	need(number != 0, "the number of a registration");
	ibv_dereg_mr(mr);
	munmap(memory, len);
	return number;
}
