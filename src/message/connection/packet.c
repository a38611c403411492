/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets, their buffers, and the queue of a peer. packet.h tells the story.
 * The copy into a packet buffer is the copy that the papers' copy-in/copy-out
 * protocols pay for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "message/connection/connection.h"
#include "message/connection/packet.h"
#include "message/connection/wire.h"
#include "message/endpoint/endpoint.h"
#include "message/endpoint/request.h"
#include "message/onesided/onesided.h"
#include "message/twosided/transfer.h"

#define NPACKET_BUFFERS 64

static size_t buffer_bytes(const struct pinion_endpoint *ep)
{
	return sizeof(struct pn_wire) + ep->limits.packet_bytes;
}

/* A device that takes every packet inline needs no packet buffers. */
static bool needs_buffers(const struct pinion_endpoint *ep)
{
	for (unsigned r = 0; r < ep->nrails; r++)
		if (ep->rails[r].device->limits.inline_bytes < buffer_bytes(ep))
			return true;
	return false;
}

/* On every rail: a packet that one rail has lost goes over another. */
static int open_buffers(struct pinion_endpoint *ep)
{
	struct pn_endpoint_packets *packets = &ep->packets;
	size_t each = buffer_bytes(ep);
	const struct pn_pool_memory_attr attr = { .len = NPACKET_BUFFERS * each,
						  .nrails = ep->nrails };
	int ret = pn_pool_fix(&packets->buffers, NPACKET_BUFFERS);

	if (!ret)
		ret = pn_pool_memory_open(&packets->memory, ep, &attr);
	if (ret)
		return ret;
	for (unsigned i = 0; i < NPACKET_BUFFERS; i++) {
		struct pn_packet_buffer *b = pn_pool_at(&packets->buffers, i);

		b->operation =
			(struct pn_operation_context){ PN_OPERATION_PACKET,
						       ep };
		b->data = pn_pool_memory_addr(&packets->memory) + i * each;
	}
	return 0;
}

int pn_packets_open(struct pinion_endpoint *ep)
{
	struct pn_endpoint_packets *packets = &ep->packets;
	int ret;

	PN_POOL_INIT(&packets->buffers, struct pn_packet_buffer, link, 0);
	PN_POOL_INIT(&packets->unregistered, struct pn_packet_buffer, link,
		     packets->unregistered_bytes);
	PN_POOL_INIT(&packets->queued, struct pn_queued_packet, link, 0);
	ret = needs_buffers(ep) ? open_buffers(ep)
				: pn_pool_fix(&packets->buffers, 0);
	if (ret)
		pn_packets_free(ep);
	return ret;
}

void pn_packets_close(struct pinion_endpoint *ep)
{
	pn_pool_memory_close(&ep->packets.memory);
}

void pn_packets_free(struct pinion_endpoint *ep)
{
	pn_pool_fini(&ep->packets.buffers);
	pn_pool_fini(&ep->packets.unregistered);
	pn_pool_fini(&ep->packets.queued);
}

void pn_packet_buffer_put(struct pinion_endpoint *ep,
			  struct pn_packet_buffer *buffer)
{
	buffer->peer = NULL;
	pn_pool_put(buffer->unregistered ? &ep->packets.unregistered
					 : &ep->packets.buffers,
		    buffer);
}

/* Keys are not payload: they are copied also in a simulation that moves no
 * payload. */
void pn_packet_fill(struct pn_packet_buffer *buffer, const struct pn_wire *wire,
		    const void *payload, size_t len, struct pn_device *device)
{
	uint8_t *to = buffer->data + sizeof(*wire);

	memcpy(buffer->data, wire, sizeof(*wire));
	buffer->len = sizeof(*wire) + len;
	if (wire->nkeys)
		memcpy(to, payload, len);
	else if (len)
		pn_copy(device, to, payload, len);
}

static int post_buffered(const struct pn_connection *conn,
			 const struct pn_wire *wire, const void *payload,
			 size_t len)
{
	struct pinion_endpoint *ep = conn->peer->ep;
	const struct pn_rail *rail = conn->rail;
	struct pn_packet_buffer *buffer = pn_pool_get(&ep->packets.buffers);
	struct pn_sge sge;
	struct pn_op op = { .kind = PN_OP_SEND, .sge = &sge, .nsge = 1 };
	int ret;

	if (!buffer)
		return -EAGAIN;
	pn_packet_fill(buffer, wire, payload, len, ep->device);
	sge = (struct pn_sge){ buffer->data, sizeof(*wire) + len,
			       ep->packets.memory.mrs[rail->index].lkey };
	op.user = buffer;
	ret = pn_device_post(rail->device, conn->device_peer, &op);
	if (ret)
		pn_packet_buffer_put(ep, buffer);
	else
		ep->noperations++;
	return ret;
}

int pn_packet_post(const struct pn_connection *conn, const struct pn_wire *wire,
		   const void *payload, size_t len)
{
	struct pn_inline_header head;

	if (!pn_packet_is_inline(conn, len))
		return post_buffered(conn, wire, payload, len);
	head = pn_wire_head(wire);
	return pn_packet_post_inline(conn, &head, payload, len);
}

int pn_packet_try_send(struct pinion_peer *peer, const struct pn_wire *wire,
		       const void *payload, size_t len)
{
	const struct pn_connection *conn = peer->conn;

	if (!conn->up)
		return -EAGAIN;
	if (pn_unlikely(peer->sequenced))
		return pn_retransmit_send(peer, wire, payload, len);
	return pn_packet_post(conn, wire, payload, len);
}

void pn_peer_add_pending(struct pinion_peer *peer)
{
	if (pn_list_empty(&peer->pending_link))
		pn_list_append(&peer->ep->pending_peers, &peer->pending_link);
}

static int enqueue(struct pinion_peer *peer, const struct pn_wire *wire,
		   const void *payload, size_t len,
		   struct pinion_request *request)
{
	struct pn_queued_packet *packet =
		pn_pool_get(&peer->ep->packets.queued);

	if (!packet)
		return -ENOMEM;
	packet->wire = *wire;
	packet->payload = payload;
	packet->len = len;
	packet->request = request;
	if (request) {
		request->npackets++;
	} else if (len) {
		pn_assert(len <= sizeof(packet->copy));
		memcpy(packet->copy, payload, len);
		packet->payload = packet->copy;
	}
	pn_list_append(&peer->packets, &packet->link);
	pn_peer_add_pending(peer);
	peer->ep->stats.stalls++;
	return 0;
}

int pn_packet_send(struct pinion_peer *peer, const struct pn_wire *wire,
		   const void *payload, size_t len,
		   struct pinion_request *request)
{
	int ret = -EAGAIN;

	if (peer->down)
		return peer->down;
	if (pn_list_empty(&peer->packets))
		ret = pn_packet_try_send(peer, wire, payload, len);
	return ret == -EAGAIN ? enqueue(peer, wire, payload, len, request)
			      : ret;
}

bool pn_packet_withdraw(struct pinion_request *request)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &request->peer->packets) {
		struct pn_queued_packet *p =
			pn_container_of(pos, struct pn_queued_packet, link);

		if ((p->wire.kind != PN_WIRE_MATCH &&
		     p->wire.kind != PN_WIRE_GRANT) ||
		    p->wire.from != request->id)
			continue;
		if (p->request)
			request->npackets--;
		if (p->wire.kind == PN_WIRE_MATCH)
			pn_allowance_return(&request->peer->allowance, 0,
					    p->wire.status);
		pn_list_remove(pos);
		pn_pool_put(&request->ep->packets.queued, p);
		return true;
	}
	return false;
}

static bool progress_packets(struct pinion_peer *peer)
{
	struct pinion_endpoint *ep = peer->ep;
	bool moved = false;

	while (!pn_list_empty(&peer->packets)) {
		struct pn_queued_packet *p =
			pn_container_of(peer->packets.next,
					struct pn_queued_packet, link);
		struct pinion_request *request = p->request;
		int ret =
			pn_packet_try_send(peer, &p->wire, p->payload, p->len);

		if (ret == -EAGAIN)
			break;
		moved = true;
		pn_list_remove(&p->link);
		pn_pool_put(&ep->packets.queued, p);
		if (!request)
			continue;
		request->npackets--;
		/* An eager message is complete when it is posted; other
		 * messages wait for more. */
		if (ret || request->status || request->moved == request->total)
			pn_request_end(request, ret);
	}
	return moved;
}

static bool has_pending(const struct pinion_peer *peer)
{
	for (unsigned r = 0; r < peer->ep->nrails; r++) {
		const struct pn_connection *conn = &peer->conns[r];

		if (conn->hello_due ||
		    !pn_list_empty(&conn->stalled[PN_RDMA_TWOSIDED]) ||
		    !pn_list_empty(&conn->stalled[PN_RDMA_ONESIDED]))
			return true;
	}
	return peer->resend || peer->rail_deadline_ns ||
	       !pn_list_empty(&peer->packets);
}

bool pn_peer_progress(struct pinion_peer *peer)
{
	bool moved = false;

	if (pn_peer_check_deadline(peer))
		return true;
	for (unsigned r = 0; r < peer->ep->nrails; r++)
		moved |= pn_connection_send_hello(&peer->conns[r]);
	moved |= pn_retransmit_progress(peer);
	moved |= progress_packets(peer);
	for (unsigned user = 0; user < PN_RDMA_NUSERS; user++)
		for (unsigned r = 0; r < peer->ep->nrails; r++)
			moved |= pn_rdma_progress(&peer->conns[r], user);
	/* Checked last: posting may have queued something. */
	if (!has_pending(peer))
		pn_list_remove(&peer->pending_link);
	return moved;
}
