/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The retransmit queue: packets that survive the failure of a rail.
 *
 * Between endpoints that both use several rails, packets are numbered, and kept
 * until the device confirms them. All take one connection, the first that is
 * alive. When it goes down, all its completions have been polled (PEER_DOWN
 * comes last), and the packets that were not confirmed are posted again, in
 * order, on the next connection. Some of these may have arrived, so the
 * receiver acts on each number once. Packets on the new connection may overtake
 * those that the receiver has not polled from the old one yet, so it keeps
 * packets that are out of order.
 *
 * A sequence number is never 0, which means: not numbered.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "message/connection/connection.h"
#include "message/connection/packet.h"
#include "message/endpoint/endpoint.h"
#include "message/matching/matching.h"

/* More than can be in flight to one peer. */
#define MAX_OUT_OF_ORDER 8192

static uint32_t after(uint32_t sequence)
{
	return sequence + 1 ? sequence + 1 : 1;
}

/* --- sending -------------------------------------------------------------- */

/* A short packet is sent inline: its copy need not be registered. */
static struct pn_packet_buffer *buffer_alloc(struct pinion_endpoint *ep,
					     size_t len)
{
	struct pn_packet_buffer *buffer;

	if (len > ep->packets.unregistered_bytes)
		return pn_pool_get(&ep->packets.buffers);
	buffer = pn_pool_get(&ep->packets.unregistered);
	if (buffer)
		*buffer = (struct pn_packet_buffer){
			.operation = { PN_OPERATION_PACKET, ep },
			.data = (uint8_t *)(buffer + 1),
			.unregistered = true
		};
	return buffer;
}

/* -ECONNRESET: the connection is going down and will be replaced soon. */
static int post_buffer(struct pn_packet_buffer *buffer)
{
	const struct pn_connection *conn = buffer->peer->conn;
	const struct pn_endpoint_packets *packets = &conn->peer->ep->packets;
	struct pn_sge sge = { buffer->data, buffer->len,
			      packets->memory.mrs[conn->rail->index].lkey };
	struct pn_op op = { .kind = PN_OP_SEND,
			    .flags = buffer->unregistered ? PN_OP_INLINE : 0,
			    .sge = &sge,
			    .nsge = 1,
			    .imm = buffer->sequence,
			    .user = buffer };
	int ret = conn->up ? pn_device_post(conn->rail->device,
					    conn->device_peer, &op)
			   : -EAGAIN;

	if (ret)
		return ret == -ECONNRESET ? -EAGAIN : ret;
	buffer->posted = true;
	buffer->peer->ep->noperations++;
	return 0;
}

int pn_retransmit_send(struct pinion_peer *peer, const struct pn_wire *wire,
		       const void *payload, size_t len)
{
	struct pinion_endpoint *ep = peer->ep;
	struct pn_packet_buffer *buffer;
	int ret;

	/* Packets that are to be posted again come first. */
	if (peer->resend)
		return -EAGAIN;
	buffer = buffer_alloc(ep, sizeof(*wire) + len);
	if (!buffer)
		return -EAGAIN;
	pn_packet_fill(buffer, wire, payload, len, ep->device);
	buffer->peer = peer;
	/* Other tasks may have sent while this one copied. */
	buffer->sequence = peer->next_sequence;
	ret = peer->resend ? -EAGAIN : post_buffer(buffer);
	if (ret) {
		pn_packet_buffer_put(ep, buffer);
		return ret;
	}
	peer->next_sequence = after(buffer->sequence);
	pn_list_append(&peer->unconfirmed, &buffer->link);
	return 0;
}

void pn_retransmit_done(struct pn_packet_buffer *buffer, int status)
{
	struct pinion_peer *peer = buffer->peer;

	buffer->posted = false;
	if (!status || peer->down) {
		pn_list_remove(&buffer->link);
		pn_packet_buffer_put(peer->ep, buffer);
	} else if (status != -ECONNRESET) {
		/* Failed because of another operation; the connection is alive.
		 */
		peer->resend = true;
		pn_peer_add_pending(peer);
	}
}

bool pn_retransmit_progress(struct pinion_peer *peer)
{
	struct pn_list *pos;
	bool moved = false;

	if (pn_likely(!peer->resend))
		return false;
	pn_list_for_each (pos, &peer->unconfirmed) {
		struct pn_packet_buffer *buffer =
			pn_container_of(pos, struct pn_packet_buffer, link);

		if (buffer->posted)
			continue;
		if (post_buffer(buffer))
			return moved;
		peer->ep->stats.resent++;
		moved = true;
	}
	peer->resend = false;
	return true;
}

/* Packets that the device still has are freed by their completions. */
void pn_retransmit_drop(struct pinion_peer *peer)
{
	struct pn_list *pos, *next;

	peer->resend = false;
	pn_list_for_each_safe (pos, next, &peer->unconfirmed) {
		struct pn_packet_buffer *buffer =
			pn_container_of(pos, struct pn_packet_buffer, link);

		if (buffer->posted && peer->ep->noperations)
			continue;
		pn_list_remove(pos);
		pn_packet_buffer_put(peer->ep, buffer);
	}
	while ((pos = peer->out_of_order.next) != &peer->out_of_order)
		pn_unexpected_free(peer->ep,
				   pn_container_of(pos,
						   struct pinion_unexpected,
						   link));
	peer->nout_of_order = 0;
}

/* --- receiving ------------------------------------------------------------ */

/* The first out-of-order packet with a larger number, or the end of the list.
 * NULL: this number is there already. */
static struct pn_list *place_of(struct pinion_peer *peer, uint32_t sequence)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &peer->out_of_order) {
		struct pinion_unexpected *unexpected =
			pn_container_of(pos, struct pinion_unexpected, link);
		int32_t behind = (int32_t)(sequence - unexpected->sequence);

		if (!behind)
			return NULL;
		if (behind < 0)
			return pos;
	}
	return pos;
}

static int hold_early(struct pinion_peer *peer, uint32_t sequence,
		      const struct pn_wire *wire, const uint8_t *payload,
		      size_t len)
{
	struct pinion_unexpected *unexpected;
	struct pn_list *place = place_of(peer, sequence);

	if (!place)
		return -EALREADY;
	if (peer->nout_of_order == MAX_OUT_OF_ORDER)
		return -EPROTO;
	unexpected = pn_unexpected_alloc(peer, wire, len);
	if (!unexpected)
		return -ENOMEM;
	unexpected->sequence = sequence;
	memcpy(unexpected->payload, payload, len);
	pn_list_append(place, &unexpected->link);
	peer->nout_of_order++;
	return -EALREADY;
}

int pn_sequence_received(struct pinion_peer *peer, uint32_t sequence,
			 const struct pn_wire *wire, const uint8_t *payload,
			 size_t len)
{
	int32_t ahead = (int32_t)(sequence - peer->expected_sequence);

	if (ahead < 0)
		return -EALREADY;
	if (ahead > 0)
		return hold_early(peer, sequence, wire, payload, len);
	peer->expected_sequence = after(sequence);
	return 0;
}

struct pinion_unexpected *pn_sequence_next(struct pinion_peer *peer)
{
	struct pinion_unexpected *unexpected;

	if (pn_list_empty(&peer->out_of_order))
		return NULL;
	unexpected = pn_container_of(peer->out_of_order.next,
				     struct pinion_unexpected, link);
	if (unexpected->sequence != peer->expected_sequence)
		return NULL;
	pn_list_remove(&unexpected->link);
	peer->nout_of_order--;
	peer->expected_sequence = after(unexpected->sequence);
	return unexpected;
}
