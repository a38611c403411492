/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets: head and payload in one send of the device.
 *
 * A packet that the device takes inline is gathered straight from where it
 * lies: one copy, by the device. Longer ones are copied into a registered
 * buffer buffer first (the copy that the papers' copy-in/out pays). When the
 * device's queue is full the packet waits at its peer, and everything behind
 * it too, so that messages match in the order they were sent.
 */
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

/* A device that takes every packet inline needs none. */
static bool needs_buffers(const struct pinion_endpoint *ep)
{
	for (unsigned r = 0; r < ep->nrails; r++)
		if (ep->rails[r].device->limits.inline_bytes < buffer_bytes(ep))
			return true;
	return false;
}

/* Those of the first n rails. */
static void deregister_buffers(struct pinion_endpoint *ep, unsigned n)
{
	while (n) {
		struct pn_rail *rail = &ep->rails[--n];

		pn_cache_deregister(rail->cache, &rail->packet_mr);
	}
}

/* On every rail: a packet that one has lost goes over another. */
static int register_buffers(struct pinion_endpoint *ep, void *memory,
			    size_t len)
{
	for (unsigned r = 0; r < ep->nrails; r++) {
		struct pn_mr *mr = &ep->rails[r].packet_mr;
		int ret;

		*mr = (struct pn_mr){ .addr = memory, .len = len };
		ret = pn_cache_register_own(ep->rails[r].cache, mr);
		if (ret) {
			deregister_buffers(ep, r);
			return ret;
		}
	}
	return 0;
}

int pn_packet_buffers_open(struct pinion_endpoint *ep,
			   const struct pn_pages_policy *pages)
{
	size_t each = buffer_bytes(ep), len = NPACKET_BUFFERS * each;
	void *memory;
	int ret;

	pn_list_init(&ep->packets.free_buffers);
	ep->packets.pages = *pages;
	if (!needs_buffers(ep))
		return 0;
	ep->packets.storage =
		calloc(NPACKET_BUFFERS, sizeof(*ep->packets.storage));
	if (!ep->packets.storage)
		return -ENOMEM;
	ret = pn_pages_map(len, pages, &memory);
	if (ret)
		goto free_storage;
	ret = register_buffers(ep, memory, len);
	if (ret)
		goto unmap;
	for (ep->packets.nbuffers = 0; ep->packets.nbuffers < NPACKET_BUFFERS;
	     ep->packets.nbuffers++) {
		struct pn_packet_buffer *b =
			&ep->packets.storage[ep->packets.nbuffers];

		b->operation =
			(struct pn_operation_context){ PN_OPERATION_PACKET,
						       ep };
		b->data = (uint8_t *)memory + ep->packets.nbuffers * each;
		pn_list_append(&ep->packets.free_buffers, &b->link);
	}
	return 0;

unmap:
	pn_pages_unmap(memory, len, pages);
free_storage:
	free(ep->packets.storage);
	ep->packets.storage = NULL;
	return ret;
}

void pn_packet_buffers_close(struct pinion_endpoint *ep)
{
	const struct pn_mr *mr = &ep->rails[0].packet_mr;

	if (!ep->packets.nbuffers)
		return;
	deregister_buffers(ep, ep->nrails);
	pn_pages_unmap(mr->addr, mr->len, &ep->packets.pages);
}

void pn_packet_buffer_put(struct pinion_endpoint *ep,
			  struct pn_packet_buffer *buffer)
{
	buffer->peer = NULL;
	pn_list_insert(buffer->unregistered ? &ep->packets.free_unregistered
					    : &ep->packets.free_buffers,
		       &buffer->link);
}

/* Keys are no payload: they are there also where none is moved. */
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
	struct pn_list *link = pn_list_pop(&ep->packets.free_buffers);
	struct pn_packet_buffer *buffer;
	struct pn_sge sge;
	struct pn_op op = { .kind = PN_OP_SEND, .sge = &sge, .nsge = 1 };
	int ret;

	if (!link)
		return -EAGAIN;
	buffer = pn_container_of(link, struct pn_packet_buffer, link);
	pn_packet_fill(buffer, wire, payload, len, ep->device);
	sge = (struct pn_sge){ buffer->data, sizeof(*wire) + len,
			       rail->packet_mr.lkey };
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

static struct pn_queued_packet *packet_alloc(struct pinion_endpoint *ep)
{
	struct pn_list *link = pn_list_pop(&ep->packets.free_queued);

	return link ? pn_container_of(link, struct pn_queued_packet, link)
		    : malloc(sizeof(struct pn_queued_packet));
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
	struct pn_queued_packet *packet = packet_alloc(peer->ep);

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
		pn_list_remove(pos);
		pn_list_insert(&request->ep->packets.free_queued, pos);
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
		pn_list_insert(&ep->packets.free_queued, &p->link);
		if (!request)
			continue;
		request->npackets--;
		/* All of an eager message is out; others wait for more. */
		if (ret || request->status || request->moved == request->total)
			pn_request_end(request, ret);
	}
	return moved;
}

/* Pumping one may end others' requests, so take them one by one. */
static bool progress_fragments(struct pn_connection *conn)
{
	struct pn_list *link;
	bool moved = false;

	while ((link = pn_list_pop(&conn->stalled))) {
		struct pn_fragment *f =
			pn_container_of(link, struct pn_fragment, stall_link);
		size_t before = f->posted;

		if (pn_fragment_post(f) == -EAGAIN) {
			pn_list_insert(&conn->stalled, link);
			return moved || f->posted != before;
		}
		moved = true;
	}
	return moved;
}

bool pn_peer_progress(struct pinion_peer *peer)
{
	bool moved = false, idle = true;

	for (unsigned r = 0; r < peer->ep->nrails; r++)
		moved |= pn_connection_send_hello(&peer->conns[r]);
	moved |= pn_retransmit_progress(peer);
	moved |= progress_packets(peer);
	for (unsigned r = 0; r < peer->ep->nrails; r++) {
		moved |= progress_fragments(&peer->conns[r]);
		idle &= pn_list_empty(&peer->conns[r].stalled) &&
			!peer->conns[r].hello_due;
	}
	moved |= pn_onesided_post_stalled(peer);
	/* Looked at last: what was pumped may have said something. */
	if (idle && pn_list_empty(&peer->packets) && !peer->resend &&
	    pn_list_empty(&peer->onesided.stalled))
		pn_list_remove(&peer->pending_link);
	return moved;
}
