/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/hostile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "message/connection/wire.h"
#include "message/onesided/onesided.h"
#include "message/party.h"

enum { VICTIM, HONEST, HOSTILE, NRANKS };

#define SEND_BYTES 100000
#define NHONEST	   6

struct scene {
	const struct hostile_packet *packets;
	unsigned n;
	struct hostile_result *result;
};

/* --- the victim ----------------------------------------------------------- */

struct victim {
	struct party party;
	struct pinion_request *requests[HOSTILE_NREQUESTS];
	uint8_t recv[64 << 10], small[100], send[SEND_BYTES];
	uint8_t granted[64 << 10];
};

static void begin(struct victim *v, unsigned which)
{
	static const int protocols[HOSTILE_NREQUESTS] = {
		[HOSTILE_CACHED] = PN_PROTOCOL_CACHED,
		[HOSTILE_PIPELINE] = PN_PROTOCOL_PIPELINE,
		[HOSTILE_READ] = PN_PROTOCOL_READ,
		[HOSTILE_COPY] = PN_PROTOCOL_COPY,
		[HOSTILE_CANCELED] = PN_PROTOCOL_CACHED,
	};
	struct pinion_message m = { .size = sizeof(m),
				    .peer = v->party.peers[HOSTILE],
				    .tag = which,
				    .buf = v->send,
				    .len = sizeof(v->send) };
	int ret;

	if (which == HOSTILE_PUT_WHEN) {
		ret = pn_endpoint_put_when(v->party.ep, &m,
					   &v->requests[which]);
	} else if (which > HOSTILE_PUT_WHEN) {
		m.buf = v->granted;
		m.len = sizeof(v->granted);
		ret = pn_endpoint_grant(v->party.ep, &m, &v->requests[which]);
	} else if (which > HOSTILE_SHORT) {
		pn_endpoint_set_protocol(v->party.ep, protocols[which]);
		ret = pn_endpoint_send(v->party.ep, &m, &v->requests[which]);
	} else {
		m.ignore = ~UINT64_C(0);
		m.buf = which == HOSTILE_RECV ? v->recv : v->small;
		m.len = which == HOSTILE_RECV ? sizeof(v->recv)
					      : sizeof(v->small);
		ret = pn_endpoint_recv(v->party.ep, &m, &v->requests[which]);
	}
	RANK_CHECK(v->party.rank, !ret);
}

/* The honest peer exchanges messages, whatever the hostile one does. */
static void talk(struct party *party, unsigned other)
{
	size_t len[NHONEST] = { 0, 100, 3000, 30000, 70000, 200000 };
	uint8_t *buf = malloc(len[NHONEST - 1]);

	for (unsigned i = 0; buf && i < NHONEST; i++) {
		bool sends = (i ^ party->rank->rank) & 1;

		if (sends)
			pattern_fill(buf, len[i], i);
		if (sends ? party_send(party, other, buf, len[i], 1000 + i)
			  : party_recv(party, other, buf, len[i], 1000 + i))
			rank_fail(party->rank, "honest", __FILE__, __LINE__);
		if (!pattern_holds(buf, len[i], i))
			rank_fail(party->rank, "honest bytes", __FILE__,
				  __LINE__);
	}
	free(buf);
}

static void end_all(struct victim *v, struct hostile_result *result)
{
	struct pn_endpoint_stats stats;

	for (unsigned i = 0; i < HOSTILE_NREQUESTS; i++) {
		struct pinion_completion end;

		pn_endpoint_wait(v->party.ep, v->requests[i], &end);
		result->status[i] = end.status;
		result->len[i] = end.len;
	}
	pn_endpoint_query(v->party.ep, &stats);
	result->bad_packets = stats.bad_packets;
	memcpy(result->received, v->recv, sizeof(result->received));
}

static void be_victim(struct rank *rank)
{
	struct scene *scene = rank->arg;
	struct victim *v = calloc(1, sizeof(*v));
	struct party_attr attr = { .protocol = PN_PROTOCOL_CACHED };

	RANK_CHECK(rank, v);
	if (!party_open(&v->party, rank, &attr))
		return;
	for (unsigned i = 0; i < HOSTILE_NREQUESTS; i++)
		begin(v, i);
	/* Waits until MATCH and GRANT packets are sent, then cancels the last
	 * requests. */
	rank_barrier(rank);
	pn_endpoint_cancel(v->party.ep, v->requests[HOSTILE_CANCELED]);
	pn_endpoint_cancel(v->party.ep, v->requests[HOSTILE_UNGRANT]);
	pn_endpoint_set_protocol(v->party.ep, PN_PROTOCOL_CACHING_PIPELINE);
	rank_barrier(rank);
	talk(&v->party, HONEST);
	end_all(v, scene->result);
	talk(&v->party, HONEST);
	party_close(&v->party);
	free(v);
}

static void be_honest(struct rank *rank)
{
	struct party_attr attr = { .protocol = PN_PROTOCOL_PIPELINE };
	struct party party;

	if (!party_open(&party, rank, &attr))
		return;
	rank_barrier(rank);
	rank_barrier(rank);
	talk(&party, VICTIM);
	talk(&party, VICTIM);
	/* The victim may still need packets that are queued here. */
	for (unsigned i = 0; i < 100; i++) {
		party_poll(&party);
		rank_pause(rank);
	}
	party_close(&party);
}

/* --- the hostile peer ----------------------------------------------------- */

/* The victim's address as the device knows it. */
static bool meet(struct rank *rank, struct pn_peer **victim)
{
	struct pinion_address mine = { 0 }, all[NRANKS];
	struct pn_address inner = { 0 }, rails[PN_RAILS_MAX];
	unsigned nrails;

	pn_device_address(rank->device, &inner);
	pn_wire_put_address(&inner, 1, false, &mine);
	if (!rank_exchange(rank, &mine, sizeof(mine), all))
		return false;
	return !pn_wire_get_address(all[VICTIM].data, all[VICTIM].len, rails,
				    &nrails) &&
	       !pn_device_attach(rank->device, &rails[0], victim);
}

/* Polls, returns all buffers, lets time pass. */
static void idle(struct rank *rank)
{
	struct pn_completion c;

	while (pn_device_poll(rank->device, &c, 1))
		if (c.kind == PN_COMPLETION_RECV)
			pn_device_return_buffer(rank->device, &c);
	rank_pause(rank);
}

static void shoot(struct rank *rank, struct pn_peer *victim,
		  const struct hostile_packet *packet, struct pn_mr *mr)
{
	struct pn_sge sge = { mr->addr, packet->len, mr->lkey };
	struct pn_op op = { .kind = PN_OP_SEND, .sge = &sge, .nsge = 1 };

	memcpy(mr->addr, packet->data, packet->len);
	while (pn_device_post(rank->device, victim, &op) == -EAGAIN)
		idle(rank);
	/* The buffer is free again when the packet has arrived. */
	for (unsigned i = 0; i < 10; i++)
		idle(rank);
}

static void be_hostile(struct rank *rank)
{
	struct scene *scene = rank->arg;
	struct pn_mr mr = { .addr = aligned_alloc(4096, HOSTILE_MAX_PACKET),
			    .len = HOSTILE_MAX_PACKET };
	struct pn_mr *one = &mr;
	struct pn_peer *victim;

	RANK_CHECK(rank, mr.addr);
	RANK_CHECK(rank, !pn_device_register(rank->device, &one, 1));
	if (!meet(rank, &victim))
		return;
	rank_barrier(rank);
	rank_barrier(rank);
	for (unsigned i = 0; i < scene->n; i++)
		shoot(rank, victim, &scene->packets[i], &mr);
	for (unsigned i = 0; i < 200; i++)
		idle(rank);
	scene->result->detached = victim->down;
	pn_device_deregister(rank->device, &one, 1);
	free(mr.addr);
}

static void act(struct rank *rank)
{
	static void (*const parts[NRANKS])(struct rank * rank) = {
		[VICTIM] = be_victim,
		[HONEST] = be_honest,
		[HOSTILE] = be_hostile,
	};

	parts[rank->rank](rank);
}

bool hostile_run(const struct hostile_packet *packets, unsigned n,
		 struct hostile_result *result)
{
	struct scene scene = { packets, n, result };
	struct ranks run = { .how = "sim",
			     .spec = "sim:send=4K",
			     .nranks = NRANKS,
			     .fn = act,
			     .arg = &scene };

	memset(result, 0, sizeof(*result));
	return ranks_run(&run);
}
