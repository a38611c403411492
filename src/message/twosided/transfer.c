/* SPDX-License-Identifier: BSD-2-Clause */
/* What both sides of a message have in common: dispatches packets to the
 * sender's or the receiver's side, and fails a request that cannot go on. */
#include <errno.h>

#include "message/matching/matching.h"
#include "message/twosided/transfer_impl.h"

/* --- in flight ------------------------------------------------------------ */

void pn_transfer_begin(struct pinion_request *request)
{
	request->transfer.in_flight = true;
	pn_load_begin(&request->ep->transfers.load);
	pn_progress_thread_began(&request->ep->progress_entry);
}

void pn_transfer_end(struct pinion_request *request)
{
	request->transfer.in_flight = false;
	pn_load_end(&request->ep->transfers.load);
	if (request->is_send)
		pn_timing_sent(request);
}

/* --- failure -------------------------------------------------------------- */

void pn_transfer_send_fail(struct pinion_request *request)
{
	struct pn_wire wire;

	pn_packet_header(request, &wire, PN_WIRE_FAIL);
	wire.status = request->status;
	if (request->peer && request->remote_id)
		pn_packet_send(request->peer, &wire, NULL, 0, NULL);
}

/* FAIL is sent when the request ends, not before: writes may be under way on
 * another rail than the packet takes, and the receiver would take its buffer
 * for free. */
void pn_transfer_fail(struct pinion_request *request, int status)
{
	request->sends_fail |= !request->status;
	pn_request_end(request, status);
}

/* --- what the peer says ----------------------------------------------------
 */

/* The sender cancels: drops the message if no receive has matched it. */
static void on_cancel(struct pinion_peer *peer, const struct pn_wire *wire)
{
	struct pn_wire gone = { .version = PN_WIRE_VERSION,
				.kind = PN_WIRE_GONE,
				.to = wire->from };
	struct pn_list *pos;

	pn_list_for_each (pos, &peer->ep->matching.unexpected.entries) {
		struct pinion_unexpected *unexpected =
			pn_container_of(pos, struct pinion_unexpected, link);

		if (unexpected->peer != peer ||
		    unexpected->wire.from != wire->from)
			continue;
		pn_unexpected_free(peer->ep, unexpected);
		pn_packet_send(peer, &gone, NULL, 0, NULL);
		return;
	}
}

void pn_transfer_send_got(struct pinion_peer *peer, uint32_t request)
{
	struct pn_wire wire = { .version = PN_WIRE_VERSION,
				.kind = PN_WIRE_GOT,
				.to = request };

	pn_packet_send(peer, &wire, NULL, 0, NULL);
}

/* The request ends now, or when the device has finished with its buffer. */
int pn_transfer_on_got(struct pinion_peer *peer, const struct pn_wire *wire)
{
	struct pinion_request *request = pn_request_find(peer, wire->to, true);

	if (!request || request->status)
		return 0;
	if (!request->awaits_got)
		return -EPROTO;
	request->awaits_got = false;
	if (request->moved == request->total)
		pn_request_end(request, 0);
	return 0;
}

static bool for_sender(enum pn_wire_kind kind)
{
	return kind == PN_WIRE_ACK || kind == PN_WIRE_READY ||
	       kind == PN_WIRE_DONE || kind == PN_WIRE_GONE;
}

/* A FAIL may be for either side. */
static struct pinion_request *addressee(struct pinion_peer *peer,
					const struct pn_wire *wire)
{
	struct pinion_request *request =
		pn_request_find(peer, wire->to,
				for_sender((enum pn_wire_kind)wire->kind));

	if (!request && wire->kind == PN_WIRE_FAIL)
		request = pn_request_find(peer, wire->to, true);
	return request;
}

int pn_transfer_packet(struct pinion_peer *peer, const struct pn_wire *wire,
		       const uint8_t *payload, size_t len)
{
	struct pinion_request *request;

	if (wire->kind == PN_WIRE_CANCEL) {
		on_cancel(peer, wire);
		return 0;
	}
	request = addressee(peer, wire);
	/* The request ended here while the packet was under way. */
	if (!request || request->status)
		return 0;
	switch (wire->kind) {
	case PN_WIRE_ACK:
		return pn_sender_ack(request, wire);
	case PN_WIRE_READY:
		return pn_sender_ready(request, wire, payload);
	case PN_WIRE_DATA:
		return pn_receiver_data(request, wire, payload, len);
	case PN_WIRE_FIN:
		return pn_receiver_fin(request, wire);
	case PN_WIRE_DONE:
		return pn_sender_done(request, wire);
	case PN_WIRE_GONE:
		if (!request->canceling)
			return -EPROTO;
		pn_request_end(request, -ECANCELED);
		return 0;
	case PN_WIRE_FAIL:
		pn_request_end(request, pn_wire_failure(wire));
		return 0;
	default:
		return -EPROTO;
	}
}
