/* SPDX-License-Identifier: BSD-2-Clause */
/* The sender's side of a message: MATCH, then what ACK and READY ask for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "message/protocol/select.h"
#include "message/twosided/direct.h"
#include "message/twosided/transfer_impl.h"

/* Fragments that a receiver may have announced at a time: the deepest pipeline
 * on all rails, and one that goes by send/receive. More would fill our memory.
 */
#define MAX_FRAGMENTS (PN_RAILS_MAX * PN_PROTOCOL_MAX_DEPTH + 1)

/* --- the MATCH ------------------------------------------------------------ */

/* Exposes the whole source on one rail, if the budget allows. -EFAULT: it is
 * not all mapped. */
static int expose_on(struct pinion_request *request, unsigned rail,
		     struct pn_wire *wire, struct pn_wire_key *keys)
{
	struct pn_cache *cache = request->ep->rails[rail].cache;
	struct pinion_pin *pin = &request->transfer.sources[rail];
	unsigned before = wire->nkeys;
	int ret = pn_cache_pin_no_listener(
		cache, request->buf, request->len,
		pn_fragment_access(request, cache, PINION_ACCESS_REMOTE_READ),
		pin);

	if (ret)
		return pn_copy_check(request->ep->device, ret, request->buf,
				     request->len, false);
	if (!pn_keys_export(pin, wire, keys) ||
	    (request->data >> 32 && wire->nkeys > PN_WIRE_WIDE_KEYS)) {
		wire->nkeys = (uint8_t)before;
		pn_cache_unpin(cache, pin);
		return 0;
	}
	request->transfer.exposed |= 1U << rail;
	for (unsigned i = before; i < wire->nkeys; i++)
		wire->offset |= (uint64_t)pn_connection_local_rail(
					&request->peer->conns[rail])
				<< 2 * i;
	return 0;
}

/* read: exposes the whole source. A source that is registered already is
 * exposed on every rail, so that the receiver can use all; registering a new
 * one on all rails would take longer than one rail saves. Without budget there
 * are no keys for a rail; a receiver that gets no keys at all asks for DATA.
 * -EFAULT: the source is not mapped. */
static int expose_source(struct pinion_request *request, struct pn_wire *wire,
			 struct pn_wire_key *keys)
{
	struct pinion_peer *peer = request->peer;
	unsigned first = peer->conn->rail->index;
	bool known =
		request->ep->nrails > 1 &&
		pn_cache_covers(peer->conn->rail->cache, request->buf,
				request->len,
				pn_fragment_access(request,
						   peer->conn->rail->cache,
						   PINION_ACCESS_REMOTE_READ));
	int ret = 0;

	if (!request->transfer.sources)
		request->transfer.sources =
			calloc(PN_RAILS_MAX,
			       sizeof(*request->transfer.sources));
	if (!request->transfer.sources)
		return 0;
	for (unsigned r = 0; r < request->ep->nrails && !ret; r++)
		if (r == first || (known && peer->conns[r].up))
			ret = expose_on(request, r, wire, keys);
	return ret;
}

void pn_transfer_unpin_source(struct pinion_request *request)
{
	for (unsigned r = 0; request->transfer.exposed >> r; r++)
		if (request->transfer.exposed >> r & 1)
			pn_cache_unpin(request->ep->rails[r].cache,
				       &request->transfer.sources[r]);
	request->transfer.exposed = 0;
}

/* early: registers the whole source while the receiver registers its target. If
 * that fails, it is tried again fragment by fragment. Not with several rails:
 * the rail of each fragment is not known yet. */
static void pin_early(struct pinion_request *request)
{
	/* In virtual time the request might end meanwhile; npackets keeps it.
	 */
	request->npackets++;
	request->transfer.source_pinned = !pn_cache_pin_no_listener(
		request->ep->cache, request->buf, request->len,
		pn_fragment_access(request, request->ep->cache, 0),
		&request->transfer.source);
	request->npackets--;
	if (request->status || request->moved == request->total)
		pn_request_end(request, 0);
}

static void choose_shape(struct pinion_request *request, unsigned protocol,
			 bool keep)
{
	pn_protocol_at(protocol)->shape(&request->ep->limits, request->len,
					&request->transfer.shape);
	request->transfer.shape.keep = keep;
}

static void fill_match(struct pinion_request *request, struct pn_wire *wire,
		       int protocol)
{
	pn_packet_header(request, wire, PN_WIRE_MATCH);
	wire->protocol = (uint8_t)protocol;
	wire->tag = request->tag;
	wire->to = (uint32_t)request->data;
	wire->offset = pn_wire_wide_data(request->data);
	wire->status = pn_wire_match_status(request->space, request->has_data,
					    request->data) |
		       (request->awaits_got ? PN_WIRE_TELL : 0);
	wire->len = request->len;
}

/* The peer may not keep the data of this message (allowance.h): they wait for
 * the ACK. A message of 0 bytes has no ACK, and waits for GOT. */
static PN_NOINLINE void make_late(struct pinion_request *request,
				  struct pn_wire *wire)
{
	if (wire->protocol == PN_PROTOCOL_EAGER) {
		wire->protocol = PN_PROTOCOL_COPY;
		choose_shape(request, PN_PROTOCOL_COPY, false);
	}
	request->transfer.shape.match = 0;
	request->late = true;
	request->ep->stats.late++;
	wire->status |= PN_WIRE_LATE | pn_allowance_ask(request->peer);
	if (request->len)
		return;
	request->awaits_got = true;
	wire->status |= PN_WIRE_TELL;
}

int pn_transfer_send(struct pinion_request *request,
		     const struct pn_choice *choice)
{
	struct pn_wire_key keys[PN_WIRE_MAX_KEYS];
	struct pn_wire wire;
	const void *payload = request->buf;
	size_t len, counted = 0;
	bool whole;
	int ret = 0;

	choose_shape(request, (unsigned)choice->protocol, choice->keep);
	fill_match(request, &wire, choice->protocol);
	request->total = request->message_len = request->len;
	if (request->transfer.shape.read)
		ret = expose_source(request, &wire, keys);
	if (wire.nkeys) {
		payload = keys;
		len = wire.nkeys * sizeof(keys[0]);
	} else {
		counted = pn_allowance_bytes(request->space,
					     request->transfer.shape.match);
		if (!pn_allowance_take(request->peer, counted, &wire.status))
			make_late(request, &wire);
		request->moved = len = request->transfer.shape.match;
	}
	whole = request->moved == request->total;
	if (!whole)
		pn_transfer_begin(request);
	pn_list_append(&request->peer->requests, &request->peer_link);
	if (choice->direct && !request->late && !pn_direct_send(request, &wire))
		return 0;
	if (!ret)
		ret = pn_packet_send(request->peer, &wire, payload, len,
				     wire.nkeys ? NULL : request);
	if (ret)
		pn_allowance_return(&request->peer->allowance,
				    request->late ? 0 : counted, wire.status);
	if (ret || whole)
		pn_request_end(request, ret);
	else if (request->transfer.shape.early && request->ep->nrails == 1)
		pin_early(request);
	return 0;
}

/* --- what the receiver says ----------------------------------------------- */

/* After a failover bytes may have been both read and written. */
void pn_sender_moved(struct pinion_request *request, size_t len)
{
	request->moved += len;
	if (request->moved < request->total)
		return;
	request->moved = request->total;
	pn_request_end(request, 0);
}

int pn_sender_ack(struct pinion_request *request, const struct pn_wire *wire)
{
	struct pn_fragment *f;

	if (wire->len > request->len || wire->offset > wire->len ||
	    request->remote_id)
		return -EPROTO;
	pn_timing_received(request->peer, wire->tag);
	request->remote_id = wire->from;
	request->total = wire->len;
	if (request->moved > wire->len)
		request->moved = wire->len; /* a short receive took less */
	if (wire->offset > request->moved) {
		f = pn_fragment_add(request, PN_FRAGMENT_DATA, request->moved,
				    wire->offset - request->moved);
		if (!f)
			pn_transfer_fail(request, -ENOMEM);
		else
			pn_fragment_start(f);
		return 0;
	}
	if (request->moved == request->total)
		pn_request_end(request, 0);
	return 0;
}

/* Whether the whole source is registered with the fragment's device. */
static bool source_covers(const struct pn_fragment *f)
{
	struct pinion_request *request = f->rdma.request;

	return request->transfer.source_pinned &&
	       f->rdma.conn->rail->cache == request->ep->cache;
}

/* Pins the source of a write, or has it sent by DATA. False: the memory is not
 * mapped, and the request has failed. */
static bool pin_source(struct pn_fragment *f)
{
	struct pinion_request *request = f->rdma.request;
	int ret = pn_fragment_pin(f, 0);

	if (!ret)
		return true;
	ret = pn_copy_check(request->ep->device, ret,
			    request->buf + f->rdma.offset, f->rdma.len, false);
	if (ret) {
		pn_fragment_drop(f);
		pn_transfer_fail(request, ret);
		return false;
	}
	f->kind = PN_FRAGMENT_DATA;
	f->rdma.conn = request->peer->conn;
	request->ep->stats.copied_no_budget++;
	return true;
}

void pn_sender_begin(struct pn_fragment *f, struct pn_connection *conn)
{
	f->kind = f->nkeys ? PN_FRAGMENT_WRITE : PN_FRAGMENT_DATA;
	f->rdma.conn = f->nkeys ? conn : f->rdma.request->peer->conn;
	f->rdma.posted = 0;
	f->rdma.status = 0;
	f->again = f->rdma.lost = false;
	if (f->kind == PN_FRAGMENT_WRITE && conn->down) {
		/* The peer does not know yet; it will announce again. */
		f->rdma.lost = true;
		return;
	}
	if (f->kind == PN_FRAGMENT_DATA || source_covers(f) || pin_source(f))
		pn_fragment_start(f);
}

static void store_ready(struct pn_fragment *f, const struct pn_wire *wire,
			const uint8_t *payload)
{
	f->number = (uint32_t)wire->tag;
	f->nkeys = wire->nkeys;
	memcpy(f->keys, payload, wire->nkeys * sizeof(f->keys[0]));
}

/* The peer announces a fragment again, since its connection went down. A
 * fragment that is not here any more has been written; one that goes by DATA is
 * not concerned. */
static void ready_again(struct pinion_request *request,
			const struct pn_wire *wire, const uint8_t *payload,
			struct pn_connection *conn)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &request->transfer.fragments) {
		struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, rdma.link);

		if (f->rdma.offset != wire->offset ||
		    f->rdma.len != wire->len || f->kind != PN_FRAGMENT_WRITE)
			continue;
		store_ready(f, wire, payload);
		request->ep->stats.resent++;
		if (f->rdma.lost) {
			pn_sender_begin(f, conn);
		} else {
			f->again = true;
			f->next_conn = conn;
		}
		return;
	}
}

int pn_sender_ready(struct pinion_request *request, const struct pn_wire *wire,
		    const uint8_t *payload)
{
	struct pn_connection *conn =
		pn_connection_by_rail(request->peer, wire->protocol);
	struct pn_fragment *f;

	if (wire->nkeys && !conn)
		return -EPROTO;
	if (wire->status) {
		ready_again(request, wire, payload, conn);
		return 0;
	}
	if (!wire->len || wire->offset > request->total ||
	    wire->len > request->total - wire->offset ||
	    request->transfer.nfragments == MAX_FRAGMENTS)
		return -EPROTO;
	request->remote_id = wire->from;
	f = pn_fragment_add(request, PN_FRAGMENT_DATA, wire->offset, wire->len);
	if (!f) {
		pn_transfer_fail(request, -ENOMEM);
		return 0;
	}
	store_ready(f, wire, payload);
	pn_sender_begin(f, conn);
	return 0;
}

void pn_sender_written(struct pn_fragment *f)
{
	struct pinion_request *request = f->rdma.request;
	size_t len = f->rdma.len;
	struct pn_wire wire;
	int ret = 0;

	pn_packet_header(request, &wire, PN_WIRE_FIN);
	wire.offset = f->rdma.offset;
	wire.len = f->rdma.len;
	if (!pn_transfer_notifies(f->rdma.conn->rail->device))
		ret = pn_packet_send(request->peer, &wire, NULL, 0, NULL);
	pn_fragment_drop(f);
	if (ret)
		pn_transfer_fail(request, ret);
	else
		pn_sender_moved(request, len);
}

/* The receiver has read the whole source. Writes that replaced reads have
 * arrived; the completions of some may still come. */
int pn_sender_done(struct pinion_request *request, const struct pn_wire *wire)
{
	const struct pinion_peer *peer = request->peer;
	struct pn_list *pos, *next;

	if (!request->transfer.exposed || !request->transfer.shape.read)
		return -EPROTO;
	pn_list_for_each_safe (pos, next, &request->transfer.fragments) {
		struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, rdma.link);

		if (f->kind == PN_FRAGMENT_DATA)
			return -EPROTO;
		if (f->rdma.lost)
			pn_fragment_drop(f);
	}
	request->moved = request->total;
	pn_request_end(request, 0);
	pn_timing_received(peer, wire->tag); /* it may be this one's */
	return 0;
}
