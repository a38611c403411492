/* SPDX-License-Identifier: BSD-2-Clause */
/* Progress of an endpoint: dispatches the completions of its devices, and posts
 * what waited for their queues. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "message/connection/connection.h"
#include "message/connection/packet.h"
#include "message/connection/wire.h"
#include "message/endpoint/endpoint.h"
#include "message/endpoint/request.h"
#include "message/matching/matching.h"
#include "message/onesided/onesided.h"
#include "message/twosided/direct.h"
#include "message/twosided/transfer.h"

#define POLL_BATCH 16
#define IDLE_AFTER 32 /* empty polls, until a device says otherwise */

/* --- packets -------------------------------------------------------------- */

static int receive_match(struct pinion_peer *peer, const struct pn_wire *wire,
			 const uint8_t *payload, size_t len)
{
	struct pinion_endpoint *ep = peer->ep;
	struct pinion_request *receive;

	if (!pn_protocol_at(wire->protocol))
		return -EPROTO;
	receive = pn_match_take_posted(ep, peer, wire);
	if (receive) {
		pn_transfer_receive(receive, peer, wire, payload, len);
		return 0;
	}
	return pn_match_add_unexpected(peer, wire, payload, len);
}

/* A message that came whole with its MATCH is confirmed here, a longer one at
 * its end, one of 0 bytes that is late when it is matched. */
static int on_match(struct pinion_peer *peer, const struct pn_wire *wire,
		    const uint8_t *payload, size_t len)
{
	int ret = receive_match(peer, wire, payload, len);

	if (pn_unlikely(wire->status & PN_WIRE_TELL) && !ret &&
	    len == wire->len && !wire->nkeys && !(wire->status & PN_WIRE_LATE))
		pn_transfer_send_got(peer, wire->from);
	if (pn_unlikely(wire->status & PN_WIRE_ASKS) && !ret)
		pn_allowance_asked(peer, wire->status & PN_WIRE_LATE);
	return ret;
}

/* A peer that sends garbage fails. Nothing else does. */
static void bad_packet(struct pinion_peer *peer, int why)
{
	peer->ep->stats.bad_packets++;
	if (why == -EPROTONOSUPPORT)
		pn_error("a peer speaks another version of the wire format "
			 "than %d: use one version of pinion everywhere",
			 PN_WIRE_VERSION);
	else
		pn_error("a peer sent an invalid packet (%s): its requests "
			 "fail, and its connections end",
			 strerror(-why));
	pn_peer_fail(peer, why);
}

static int on_packet(struct pinion_peer *peer, const struct pn_wire *wire,
		     const uint8_t *payload, size_t len)
{
	if (wire->kind == PN_WIRE_MATCH)
		return on_match(peer, wire, payload, len);
	if (pn_onesided_concerns(peer, wire))
		return pn_onesided_packet(peer, wire, payload, len);
	if (pn_likely(wire->kind < PN_WIRE_HELLO))
		return pn_transfer_packet(peer, wire, payload, len);
	if (wire->kind == PN_WIRE_GOT)
		return pn_transfer_on_got(peer, wire);
	if (wire->kind == PN_WIRE_KEPT)
		return pn_allowance_on_kept(peer, wire);
	if (wire->kind == PN_WIRE_ASK)
		pn_allowance_asked(peer, true);
	if (wire->kind == PN_WIRE_DOWN)
		pn_connection_remote_down(peer, wire->protocol);
	return 0;
}

static void on_imm(struct pinion_peer *peer, const struct pn_completion *c)
{
	struct pinion_request *request = pn_request_by_immediate(peer, c->imm);

	if (request && request->kind)
		pn_grant_immediate(request, c->imm, c->len);
	else
		pn_receiver_immediate(peer, c->imm);
}

/* Packets that came out of order before follow when it is their turn. */
static int on_sequenced(struct pinion_peer *peer, uint32_t sequence,
			const struct pn_wire *wire, const uint8_t *payload,
			size_t len)
{
	int ret = pn_sequence_received(peer, sequence, wire, payload, len);
	struct pinion_unexpected *unexpected;

	if (ret)
		return ret == -EALREADY ? 0 : ret;
	ret = on_packet(peer, wire, payload, len);
	while (!ret && !peer->down && (unexpected = pn_sequence_next(peer))) {
		ret = on_packet(peer, &unexpected->wire, unexpected->payload,
				unexpected->payload_len);
		pn_unexpected_free(peer->ep, unexpected);
	}
	return ret;
}

static struct pn_connection *connection_of_packet(struct pinion_endpoint *ep,
						  struct pn_peer *device_peer,
						  const struct pn_wire *wire,
						  const uint8_t *payload,
						  size_t len)
{
	struct pn_connection *conn = pn_connection_of(ep, device_peer);

	return pn_likely(conn) ? conn
			       : pn_connection_identify(ep, device_peer, wire,
							payload, len);
}

static int on_connection(struct pn_connection *conn, uint32_t sequence,
			 const struct pn_wire *wire, const uint8_t *payload,
			 size_t len)
{
	if (pn_unlikely(wire->kind == PN_WIRE_HELLO))
		return pn_connection_hello(conn, wire, payload, len);
	if (!pn_connection_accepts(conn))
		return 0;
	if (pn_unlikely(sequence))
		return on_sequenced(conn->peer, sequence, wire, payload, len);
	return on_packet(conn->peer, wire, payload, len);
}

static void on_recv(struct pinion_endpoint *ep, const struct pn_completion *c)
{
	static const struct pn_wire nothing;
	struct pn_device *device = c->peer->device;
	const uint8_t *payload = NULL;
	struct pn_wire wire;
	size_t len = 0;
	int ret = pn_wire_parse(c->data, c->len, &wire, &payload, &len);
	/* If the first packet of an unknown peer does not parse, only the
	 * device's address is known. */
	struct pn_connection *conn =
		connection_of_packet(ep, c->peer, ret ? &nothing : &wire,
				     payload, len);

	if (conn && !conn->peer->down && !conn->wrong_session) {
		if (!ret)
			ret = on_connection(conn, c->imm, &wire, payload, len);
		if (ret)
			bad_packet(conn->peer, ret);
	}
	pn_device_return_buffer(device, c);
}

/* --- the fast path for short messages ------------------------------------- */

/* A message that is complete with its MATCH, as most are. */
static inline bool is_whole(const struct pn_wire *wire, size_t len)
{
	uint32_t first;

	memcpy(&first, wire, sizeof(first));
	return first == PN_WIRE_MATCH_BY(PN_PROTOCOL_EAGER) &&
	       wire->len == len - sizeof(*wire) &&
	       !(wire->status & ~(PN_WIRE_SPACE | PN_WIRE_HAS_DATA));
}

/* The oldest posted receive, if it accepts the message and nothing else is to
 * be done than to copy the bytes and to write a completion. */
static struct pinion_request *oldest_receive_for(
	const struct pinion_endpoint *ep, const struct pn_connection *conn,
	const struct pn_wire *wire)
{
	struct pinion_request *first =
		pn_container_of(ep->matching.posted.entries.next,
				struct pinion_request, link);

	if (!conn || pn_list_empty(&ep->matching.posted.entries) || !conn->up ||
	    !pn_match_accepts(first, conn->peer, wire) ||
	    wire->len > first->len || first->has_handle || first->multi_recv)
		return NULL;
	return first;
}

static void complete_into_poll(struct pinion_endpoint *ep,
			       const struct pinion_request *receive,
			       struct pinion_peer *peer,
			       const struct pn_wire *wire)
{
	ep->poll.out[ep->poll.n++] = (struct pinion_completion){
		.flags = wire->status & PN_WIRE_HAS_DATA
				 ? PINION_COMPLETION_DATA
				 : 0,
		.peer = peer,
		.tag = wire->tag,
		.len = wire->len,
		.user = receive->user,
		.data = wire->to,
		.message_len = wire->len,
		.buf = receive->buf,
	};
}

/* The fast path, which is the receive handler of the devices: a short message
 * that a posted receive accepts, while the program polls. Copies the message
 * and writes the completion. False: nothing was done, the message takes the
 * general path. */
static bool receive_short(struct pn_receive_handler *handler,
			  struct pn_peer *device_peer, const void *data,
			  size_t len)
{
	struct pinion_endpoint *ep =
		pn_container_of(handler, struct pinion_endpoint,
				poll.receive_handler);
	const struct pn_connection *conn = device_peer->user;
	struct pinion_request *receive;
	struct pn_wire wire;

	if (len < sizeof(wire) || ep->poll.n == ep->poll.room ||
	    !pn_list_empty(&ep->requests.done))
		return false;
	memcpy(&wire, data, sizeof(wire));
	if (!is_whole(&wire, len))
		return false;
	receive = oldest_receive_for(ep, conn, &wire);
	if (!receive)
		return false;
	pn_match_unpost(&ep->matching, receive);
	if (wire.len)
		pn_copy(ep->device, receive->buf,
			(const uint8_t *)data + sizeof(wire), wire.len);
	ep->stats.received++;
	complete_into_poll(ep, receive, conn->peer, &wire);
	handler->is_full = ep->poll.n == ep->poll.room;
	receive->ended = receive->rest_is_clean = true;
	pn_request_free(receive);
	return true;
}

/* The same for a message that the device has lent: not every device calls the
 * receive handler. */
static bool receive_short_lent(struct pinion_endpoint *ep,
			       const struct pn_completion *c)
{
	if (c->kind != PN_COMPLETION_RECV || c->imm ||
	    !receive_short(&ep->poll.receive_handler, c->peer, c->data, c->len))
		return false;
	pn_device_return_buffer(c->peer->device, c);
	return true;
}

/* While no thread polls, poll.room is 0 and receive_short() refuses. */
void pn_progress_init(struct pinion_endpoint *ep)
{
	ep->poll.receive_handler.receive = receive_short;
	ep->poll.idle_after = ep->poll.idle_at = IDLE_AFTER;
	ep->poll.enabled =
		!ep->helper && !(ep->device->caps & PN_CAP_VIRTUAL_TIME);
}

/* --- completions ---------------------------------------------------------- */

static void on_op(struct pinion_endpoint *ep, const struct pn_completion *c)
{
	struct pn_operation_context *operation = c->user;

	if (pn_unlikely(operation->ep != ep)) {
		pn_endpoint_orphan_done(operation->ep);
		return;
	}
	ep->noperations--;
	if (operation->kind == PN_OPERATION_PACKET) {
		struct pn_packet_buffer *bounce = c->user;

		if (pn_unlikely(bounce->peer))
			pn_retransmit_done(bounce, c->status);
		else
			pn_packet_buffer_put(ep, bounce);
	} else if (operation->kind == PN_OPERATION_DIRECT) {
		pn_direct_done(ep, c->user, c->status);
	} else {
		pn_rdma_done(c->user, c->status);
	}
}

/* An empty packet. A connection that is no longer this endpoint's is of no
 * interest. */
static void on_bye(struct pinion_endpoint *ep, const struct pn_completion *c)
{
	struct pn_connection *conn = c->peer->user;

	if (conn && conn->peer->ep == ep)
		pn_connection_bye(conn);
	pn_device_return_buffer(c->peer->device, c);
}

static PN_NOINLINE void dispatch(struct pinion_endpoint *ep,
				 const struct pn_completion *c)
{
	struct pn_connection *conn;

	switch (c->kind) {
	case PN_COMPLETION_RECV:
		if (pn_likely(c->len))
			on_recv(ep, c);
		else
			on_bye(ep, c);
		return;
	case PN_COMPLETION_OP:
		/* An inline packet that failed has no context. PEER_DOWN
		 * follows. */
		if (c->user)
			on_op(ep, c);
		return;
	case PN_COMPLETION_PEER_UP:
		conn = pn_connection_of(ep, c->peer);
		if (conn)
			pn_connection_up(conn);
		return;
	case PN_COMPLETION_PEER_DOWN:
		conn = pn_connection_of(ep, c->peer);
		if (conn)
			pn_connection_down(conn,
					   c->status ? c->status : -ECONNRESET);
		return;
	case PN_COMPLETION_IMM:
		conn = pn_connection_of(ep, c->peer);
		if (conn && pn_connection_accepts(conn))
			on_imm(conn->peer, c);
		return;
	}
}

static bool progress_peers(struct pinion_endpoint *ep)
{
	struct pn_list *pos, *next;
	bool moved = false;

	pn_list_for_each_safe (pos, next, &ep->pending_peers) {
		struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, pending_link);

		moved |= pn_peer_progress(peer);
	}
	return moved;
}

/* Inline: most polls find nothing. */
static PN_ALWAYS_INLINE inline int poll_rail(struct pinion_endpoint *ep,
					     struct pn_device *device)
{
	struct pn_completion completions[POLL_BATCH];
	int n = pn_device_poll(device, completions, POLL_BATCH);

	for (int i = 0; pn_unlikely(i < n); i++)
		if (!receive_short_lent(ep, &completions[i]))
			dispatch(ep, &completions[i]);
	return n;
}

static PN_NOINLINE int poll_other_rails(struct pinion_endpoint *ep)
{
	int n = 0;

	for (unsigned r = 1; r < ep->nrails; r++)
		n += poll_rail(ep, ep->rails[r].device);
	return n;
}

static PN_ALWAYS_INLINE inline int progress(struct pinion_endpoint *ep)
{
	int n;

	pn_cache_revoke_released(ep->cache);
	n = poll_rail(ep, ep->device);
	if (pn_unlikely(ep->nrails > 1))
		n += poll_other_rails(ep);
	if (pn_unlikely(!pn_list_empty(&ep->pending_peers)))
		n += progress_peers(ep);
	return n;
}

int pn_endpoint_progress(struct pinion_endpoint *ep)
{
	return progress(ep);
}

/* --- pinion_poll() -------------------------------------------------------- */

/* Called when no request has ended before; those are reaped first. In virtual
 * time another task may get here while this one copies. */
static PN_ALWAYS_INLINE inline unsigned progress_and_collect(
	struct pinion_endpoint *ep, struct pinion_completion *out, unsigned max,
	bool *idle)
{
	unsigned n;
	int nevents;

	if (pn_likely(ep->poll.enabled)) {
		ep->poll.out = out;
		ep->poll.room = max;
		ep->poll.receive_handler.is_full = false;
	}
	nevents = progress(ep);
	n = ep->poll.n;
	*idle = pn_endpoint_is_idle(ep, nevents + (int)n);
	ep->poll.n = ep->poll.room = 0;
	return n;
}

/* Appends to the n completions that are there. */
static PN_NOINLINE unsigned reap_done(struct pinion_endpoint *ep,
				      struct pinion_completion *out, unsigned n,
				      unsigned max)
{
	for (; n < max && !pn_list_empty(&ep->requests.done); n++)
		pn_request_reap(pn_container_of(ep->requests.done.next,
						struct pinion_request, link),
				&out[n]);
	return n;
}

int pn_endpoint_poll(struct pinion_endpoint *ep, struct pinion_completion *out,
		     unsigned max)
{
	unsigned n = 0;
	bool idle = false;

	pn_endpoint_lock(ep);
	pn_endpoint_disarm(ep);
	if (pn_likely(pn_list_empty(&ep->requests.done)))
		n = progress_and_collect(ep, out, max, &idle);
	if (pn_unlikely(!pn_list_empty(&ep->requests.done)))
		n = reap_done(ep, out, n, max);
	if (!n)
		pn_reuse_idle(&ep->reuse, true);
	pn_endpoint_unlock(ep);
	if (pn_unlikely(idle))
		pn_endpoint_idle(ep);
	return (int)n;
}
