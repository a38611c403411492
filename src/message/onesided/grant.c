/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Conditional writes (Ou and others 2009, section 6: CRW and STCRW).
 *
 * The writer holds a PUT_WHEN, with its source pinned, until a GRANT with the
 * same tag arrives; or it keeps a GRANT until there is a PUT_WHEN. The granter
 * pins the target and sends its keys at once. So both sides register at the
 * same time (FRRWP), and the write begins in the progress of the writer's
 * endpoint, without the program.
 *
 *   GRANT      G -> W  tag, length, keys of the target. No keys: the target
 *                      could not be pinned, and the bytes come by DATA
 *   DATA       W -> G  bytes
 *   FIN        W -> G  all bytes have arrived. A write of one operation carries
 *                      the grant's number as immediate instead
 *   FAIL       W -> G  the write has failed: status
 *   UNGRANT    G -> W  drop the grant if no write has used it yet
 *   UNGRANTED  W -> G  the grant was dropped
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "message/connection/keys.h"
#include "message/connection/packet.h"
#include "message/connection/wire.h"
#include "message/endpoint/request.h"
#include "message/matching/matching.h"
#include "message/onesided/onesided_impl.h"

/* --- the writer's side ---------------------------------------------------- */

int pn_grant_send_fin(struct pinion_request *request)
{
	struct pn_wire wire;

	if (request->onesided.notified)
		return 0;
	pn_packet_header(request, &wire, PN_WIRE_FIN);
	wire.len = request->total;
	return pn_packet_send(request->peer, &wire, NULL, 0, NULL);
}

void pn_grant_send_fail(struct pinion_request *request)
{
	struct pn_wire wire;

	if (!request->onesided.granted)
		return;
	pn_packet_header(request, &wire, PN_WIRE_FAIL);
	wire.status = request->status;
	pn_packet_send(request->peer, &wire, NULL, 0, NULL);
}

void pn_grant_unqueue(struct pinion_request *request)
{
	if (request->onesided.held)
		pn_tag_table_removed(&request->ep->onesided.held);
	request->onesided.held = false;
}

/* A PUT_WHEN and its grant have met: the write can begin. */
static void apply_grant(struct pinion_request *request,
			const struct pn_wire *wire, const uint8_t *payload)
{
	struct pn_onesided *o = &request->onesided;
	int ret = 0;

	request->remote_id = wire->from;
	o->number = (uint32_t)wire->offset;
	o->granted = true;
	if (wire->len < request->total)
		ret = -EMSGSIZE;
	else
		ret = pn_request_store_keys(request, wire, payload);
	if (ret) {
		request->sends_fail = true;
		pn_request_end(request, ret);
		return;
	}
	o->keys = request->transfer.keys;
	o->nkeys = wire->nkeys;
	pn_onesided_granted(request);
}

static int on_grant(struct pinion_peer *peer, const struct pn_wire *wire,
		    const uint8_t *payload, size_t len)
{
	struct pinion_endpoint *ep = peer->ep;
	struct pn_tag_key key = { peer, wire->tag, 0 };
	struct pn_list *link = pn_tag_table_find(&ep->onesided.held, key);
	struct pinion_unexpected *unexpected;

	if (link) {
		struct pinion_request *request =
			pn_container_of(link, struct pinion_request, link);

		pn_list_remove(link);
		pn_grant_unqueue(request);
		apply_grant(request, wire, payload);
		return 0;
	}
	unexpected = pn_unexpected_alloc(peer, wire, len);
	if (!unexpected)
		return -ENOMEM;
	memcpy(unexpected->payload, payload, len);
	if (!pn_tag_table_add(&ep->onesided.granted, &unexpected->link))
		return 0;
	pn_unexpected_free(ep, unexpected);
	return -ENOMEM;
}

/* Uses the oldest grant with the tag of a PUT_WHEN; false: none has arrived. */
static bool use_stored_grant(struct pinion_request *request)
{
	struct pinion_endpoint *ep = request->ep;
	struct pn_tag_key key = { request->peer, request->tag, 0 };
	struct pn_list *link = pn_tag_table_find(&ep->onesided.granted, key);
	struct pinion_unexpected *unexpected;

	if (!link)
		return false;
	unexpected = pn_container_of(link, struct pinion_unexpected, link);
	pn_list_remove(link);
	pn_tag_table_removed(&ep->onesided.granted);
	apply_grant(request, &unexpected->wire, unexpected->payload);
	pn_unexpected_free(ep, unexpected);
	return true;
}

/* The source is registered at once, also before the grant arrives: that is the
 * point of a conditional write. So it is not copied, unless it is tiny. */
static void put_when(struct pinion_request *request)
{
	struct pinion_endpoint *ep = request->ep;
	struct pn_onesided *o = &request->onesided;
	int ret;

	o->op = PN_OP_WRITE;
	o->path = request->len <= PN_PATH_SMALL &&
				  pn_path_inlines(ep->device, request->len)
			  ? PN_PATH_INLINE
			  : PN_PATH_PINNED;
	pn_onesided_record(request, PN_CALL_PUT);
	pn_list_append(&request->peer->requests, &request->peer_link);
	if (use_stored_grant(request))
		return;
	ret = pn_tag_table_add(&ep->onesided.held, &request->link);
	o->held = !ret;
	if (ret)
		pn_request_end(request, ret);
	else if (o->path == PN_PATH_PINNED)
		pn_onesided_prepare(request);
}

int pn_endpoint_put_when(struct pinion_endpoint *ep,
			 const struct pinion_message *message,
			 struct pinion_request **out)
{
	struct pinion_request *request;
	int ret;

	pn_endpoint_lock(ep);
	ret = pn_onesided_start(ep, PN_REQUEST_PUT_WHEN, message, out,
				&request);
	if (!ret)
		put_when(request);
	pn_endpoint_unlock(ep);
	return ret;
}

/* The granter cancels: drops the grant if no write has used it yet. */
static void on_ungrant(struct pinion_peer *peer, const struct pn_wire *wire)
{
	struct pn_tag_table *tags = &peer->ep->onesided.granted;
	struct pn_tag_key key = { peer, wire->tag, 0 };
	struct pn_wire gone = { .version = PN_WIRE_VERSION,
				.kind = PN_WIRE_UNGRANTED,
				.to = wire->from };

	for (struct pn_list *link = pn_tag_table_find(tags, key); link;
	     link = pn_tag_table_next(tags, link)) {
		struct pinion_unexpected *unexpected =
			pn_container_of(link, struct pinion_unexpected, link);

		if (unexpected->wire.from != wire->from)
			continue;
		pn_unexpected_free(peer->ep, unexpected);
		pn_tag_table_removed(tags);
		pn_packet_send(peer, &gone, NULL, 0, NULL);
		return;
	}
}

/* --- the granter's side --------------------------------------------------- */

/* Pins the granted memory, if the budget allows, and exports its keys. -EFAULT:
 * it is not mapped. */
static int pin_granted(struct pinion_request *request, struct pn_wire *wire,
		       struct pn_wire_key *keys)
{
	struct pinion_endpoint *ep = request->ep;
	int ret =
		pn_cache_pin_no_listener(ep->cache, request->buf, request->len,
					 PINION_ACCESS_REMOTE_WRITE,
					 &request->transfer.source);

	if (ret)
		return pn_copy_check(ep->device, ret, request->buf,
				     request->len, true);
	request->transfer.source_pinned = true;
	/* Too many segments: the bytes come by DATA. */
	if (!pn_keys_export(&request->transfer.source, wire, keys))
		pn_request_unpin(request);
	return 0;
}

static void grant(struct pinion_request *request)
{
	struct pinion_endpoint *ep = request->ep;
	struct pn_wire_key keys[PN_WIRE_MAX_KEYS];
	struct pn_wire wire;
	int ret = 0;

	pn_packet_header(request, &wire, PN_WIRE_GRANT);
	wire.tag = request->tag;
	wire.len = request->len;
	request->onesided.number = pn_request_new_immediate(request);
	wire.offset = request->onesided.number;
	pn_onesided_record(request, PN_CALL_GRANT);
	if (request->len)
		ret = pin_granted(request, &wire, keys);
	request->call.copied = !wire.nkeys;
	ep->stats.copied_no_budget += request->len && !wire.nkeys;
	pn_list_append(&request->peer->requests, &request->peer_link);
	if (!ret)
		ret = pn_packet_send(request->peer, &wire, keys,
				     wire.nkeys * sizeof(keys[0]), NULL);
	if (ret)
		pn_request_end(request, ret);
}

int pn_endpoint_grant(struct pinion_endpoint *ep,
		      const struct pinion_message *message,
		      struct pinion_request **out)
{
	struct pinion_request *request;
	int ret;

	pn_endpoint_lock(ep);
	ret = pn_onesided_start(ep, PN_REQUEST_GRANT, message, out, &request);
	if (!ret)
		grant(request);
	pn_endpoint_unlock(ep);
	return ret;
}

static int on_data(struct pinion_request *request, const struct pn_wire *wire,
		   const uint8_t *payload, size_t len)
{
	if (request->transfer.source_pinned || wire->offset > request->len ||
	    len > request->len - wire->offset ||
	    len > request->len - request->moved)
		return -EPROTO;
	pn_copy(request->ep->device, request->buf + wire->offset, payload, len);
	request->moved += len;
	return 0;
}

/* All bytes have arrived, by writes or by DATA. */
static int complete_grant(struct pinion_request *request, uint64_t len)
{
	if (len > request->len ||
	    (!request->transfer.source_pinned && len != request->moved))
		return -EPROTO;
	request->moved = len;
	pn_request_end(request, 0);
	return 0;
}

static struct pinion_request *grant_at(struct pinion_peer *peer, uint32_t id)
{
	struct pinion_request *request = pn_request_by_id(peer, id);

	return request && request->kind == PN_REQUEST_GRANT ? request : NULL;
}

/* A write with the number of an earlier grant is ignored. */
void pn_grant_immediate(struct pinion_request *request, uint32_t number,
			size_t len)
{
	if (request->kind == PN_REQUEST_GRANT && !request->status &&
	    request->onesided.number == number &&
	    request->transfer.source_pinned)
		complete_grant(request, len);
}

/* --- both ----------------------------------------------------------------- */

bool pn_onesided_concerns(struct pinion_peer *peer, const struct pn_wire *wire)
{
	switch (wire->kind) {
	case PN_WIRE_GRANT:
	case PN_WIRE_UNGRANT:
	case PN_WIRE_UNGRANTED:
		return true;
	case PN_WIRE_DATA:
	case PN_WIRE_FIN:
	case PN_WIRE_FAIL:
		return grant_at(peer, wire->to);
	default:
		return false;
	}
}

/* Acts on a packet for a grant. */
static int grant_packet(struct pinion_request *request,
			const struct pn_wire *wire, const uint8_t *payload,
			size_t len)
{
	switch (wire->kind) {
	case PN_WIRE_DATA:
		return on_data(request, wire, payload, len);
	case PN_WIRE_FIN:
		return complete_grant(request, wire->len);
	case PN_WIRE_FAIL:
		pn_request_end(request, pn_wire_failure(wire));
		return 0;
	default:
		if (!request->canceling)
			return -EPROTO;
		pn_request_end(request, -ECANCELED);
		return 0;
	}
}

int pn_onesided_packet(struct pinion_peer *peer, const struct pn_wire *wire,
		       const uint8_t *payload, size_t len)
{
	struct pinion_request *request;

	if (wire->kind == PN_WIRE_GRANT)
		return on_grant(peer, wire, payload, len);
	if (wire->kind == PN_WIRE_UNGRANT) {
		on_ungrant(peer, wire);
		return 0;
	}
	request = grant_at(peer, wire->to);
	/* The request ended here while the packet was under way. */
	if (!request || request->status)
		return 0;
	return grant_packet(request, wire, payload, len);
}
