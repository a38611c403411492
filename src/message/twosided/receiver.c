/* SPDX-License-Identifier: BSD-2-Clause */
/* The receiver's side of a message: accepts the MATCH, sends ACK, pins and
 * announces fragments of the target, or reads them, and ends those that have
 * arrived. */
#include <errno.h>

#include "message/protocol/select.h"
#include "message/twosided/transfer_impl.h"

/* --- fragments, up to the depth ------------------------------------------- */

static void advance(struct pinion_request *request);

static void receiver_moved(struct pinion_request *request, size_t len)
{
	struct pn_wire wire;

	request->moved += len;
	if (request->moved < request->total) {
		advance(request);
		return;
	}
	pn_timing_record(request);
	if (request->transfer.nkeys) {
		pn_packet_header(request, &wire, PN_WIRE_DONE);
		wire.tag = pn_timing_take(request->peer);
		pn_packet_send(request->peer, &wire, NULL, 0, NULL);
	}
	pn_request_end(request, 0);
}

int pn_receiver_send_ready(struct pn_fragment *f)
{
	struct pinion_request *request = f->rdma.request;
	struct pn_wire_key keys[PN_WIRE_MAX_KEYS];
	struct pn_wire wire;

	pn_packet_header(request, &wire, PN_WIRE_READY);
	f->number = pn_request_new_immediate(request);
	wire.tag = f->number;
	wire.protocol = (uint8_t)pn_connection_local_rail(f->rdma.conn);
	wire.status = f->again;
	wire.offset = f->rdma.offset;
	wire.len = f->rdma.len;
	if (f->rdma.pinned && !pn_keys_export(&f->rdma.pin, &wire, keys))
		pn_rdma_unpin(&f->rdma);
	if (f->rdma.pinned)
		pn_rail_expect(f);
	return pn_packet_send(request->peer, &wire, keys,
			      wire.nkeys * sizeof(keys[0]), NULL);
}

/* Begins the next fragment. -EAGAIN: wait for those in flight. */
static int begin_fragment(struct pinion_request *request)
{
	struct pn_fragment *f;
	struct pn_connection *conn;
	size_t len;
	bool read;
	int ret = pn_rail_choose(request, &len, &conn);

	if (ret)
		return ret;
	read = request->transfer.nkeys && pn_rail_can_read(request, conn);
	f = pn_fragment_add(request,
			    read ? PN_FRAGMENT_READ : PN_FRAGMENT_TARGET,
			    request->transfer.next, len);
	if (!f)
		return -ENOMEM;
	f->rdma.conn = conn;
	ret = request->transfer.shape.fragment
		      ? pn_fragment_pin(f, read ? PINION_ACCESS_LOCAL_WRITE
						: PINION_ACCESS_REMOTE_WRITE)
		      : -ENOBUFS;
	if (ret == -ENOBUFS && request->transfer.nfragments > 1) {
		pn_fragment_drop(f);
		return -EAGAIN;
	}
	if (ret) {
		ret = pn_copy_check(request->ep->device, ret,
				    request->buf + f->rdma.offset, f->rdma.len,
				    true);
		if (ret) {
			pn_fragment_drop(f);
			return ret;
		}
		request->ep->stats.copied_no_budget++;
		f->kind = PN_FRAGMENT_TARGET;
	}
	request->transfer.next += f->rdma.len;
	if (f->kind == PN_FRAGMENT_TARGET)
		return pn_receiver_send_ready(f);
	pn_rail_expect(f);
	pn_fragment_start(f);
	return 0;
}

static void advance(struct pinion_request *request)
{
	while (request->transfer.next < request->total && !request->status) {
		int ret = begin_fragment(request);

		if (ret == -EAGAIN)
			return;
		if (ret) {
			pn_transfer_fail(request, ret);
			return;
		}
	}
}

/* --- the MATCH ------------------------------------------------------------ */

/* A long message was matched: sends ACK and begins. */
static void accept_long(struct pinion_request *request)
{
	struct pn_wire wire;
	size_t offset = request->transfer.shape.offset;
	int ret = 0;

	if (offset > request->total || !request->transfer.shape.fragment)
		offset = request->total;
	if (offset < request->moved || request->transfer.nkeys)
		offset = request->moved;
	request->transfer.next = offset;
	request->transfer.data_due = offset - request->moved;
	pn_rail_expect_data(request);
	pn_packet_header(request, &wire, PN_WIRE_ACK);
	wire.offset = offset;
	wire.len = request->total;
	if (!request->transfer.nkeys) {
		wire.tag = pn_timing_take(request->peer);
		ret = pn_packet_send(request->peer, &wire, NULL, 0, NULL);
	}
	if (ret)
		pn_transfer_fail(request, ret);
	else if (request->moved == request->total)
		receiver_moved(request, 0);
	else
		advance(request);
}

/* With `auto` the receiver decides by its own history whether the target stays
 * registered; fragments are cut accordingly. */
static void receiver_shape(struct pinion_request *request,
			   const struct pn_wire *wire)
{
	struct pinion_endpoint *ep = request->ep;
	unsigned id = wire->protocol;
	struct pn_use target = { .addr = (uintptr_t)request->buf,
				 .len = request->total,
				 .end = PN_END_TARGET,
				 .unkept = !pn_cache_keeps(ep->cache) };
	bool keep;

	pn_protocol_at(id)->shape(&ep->limits, wire->len,
				  &request->transfer.shape);
	if (ep->protocol != PN_PROTOCOL_AUTO ||
	    !request->transfer.shape.fragment || !request->total)
		return;
	target.cached = pn_peer_covers(request->peer, request->buf,
				       request->total, PN_TARGET_ACCESS);
	target.dropped =
		!target.cached && pn_endpoint_was_dropped(ep, request->buf);
	keep = pn_protocol_selector_keep(
		pn_peer_selector(request->peer), &target,
		pn_endpoint_budget_allows(ep, request->total));
	if (id == PN_PROTOCOL_PIPELINE && keep)
		id = PN_PROTOCOL_CACHING_PIPELINE;
	else if (id == PN_PROTOCOL_CACHING_PIPELINE && !keep)
		id = PN_PROTOCOL_PIPELINE;
	pn_protocol_at(id)->shape(&ep->limits, wire->len,
				  &request->transfer.shape);
	request->transfer.shape.keep = keep;
}

/* Copies the bytes that came with the MATCH. */
static void copy_match_payload(struct pinion_request *request,
			       const uint8_t *payload, size_t len)
{
	request->moved = len < request->total ? len : request->total;
	if (request->moved) /* else the buffer may be NULL */
		pn_copy(request->ep->device, request->buf, payload,
			request->moved);
}

void pn_transfer_receive(struct pinion_request *request,
			 struct pinion_peer *peer, const struct pn_wire *wire,
			 const uint8_t *payload, size_t len)
{
	int ret;

	request->peer = peer;
	request->tag = wire->tag;
	request->data = pn_wire_data(wire);
	request->has_data = wire->status & PN_WIRE_HAS_DATA;
	request->remote_id = wire->from;
	request->message_len = wire->len;
	request->total = wire->len < request->len ? wire->len : request->len;
	request->ep->stats.received++;
	if (!wire->nkeys)
		copy_match_payload(request, payload, len);
	if (pn_likely(len == wire->len && !wire->nkeys)) {
		if (pn_unlikely(wire->status & PN_WIRE_LATE))
			pn_transfer_send_got(peer, wire->from);
		pn_request_end_short(request);
		return;
	}
	request->sends_got = wire->status & PN_WIRE_TELL;
	pn_list_append(&peer->requests, &request->peer_link);
	ret = pn_request_store_keys(request, wire, payload);
	if (ret) {
		pn_transfer_fail(request, ret);
		return;
	}
	if (peer->down) {
		pn_request_end(request, peer->down);
		return;
	}
	request->transfer.began_ns = pn_device_now(request->ep->device);
	/* A message to oneself is one message; its sender counts it. */
	if (!pn_connection_is_loopback(peer->conn))
		pn_transfer_begin(request);
	if (!request->was_unexpected)
		pn_helper_need(&request->call, request->transfer.began_ns);
	receiver_shape(request, wire);
	accept_long(request);
}

/* --- what arrives --------------------------------------------------------- */

/* The fragment of the target that holds an offset, or NULL. */
static struct pn_fragment *target_at(struct pinion_request *request,
				     size_t offset)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &request->transfer.fragments) {
		struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, rdma.link);

		if (f->kind == PN_FRAGMENT_TARGET &&
		    offset - f->rdma.offset < f->rdma.len)
			return f;
	}
	return NULL;
}

/* Whether these bytes were asked for and have not arrived yet. */
static bool data_is_due(const struct pinion_request *request,
			const struct pn_fragment *f, size_t offset, size_t len)
{
	if (f)
		return len <= f->rdma.len - f->arrived &&
		       len <= f->rdma.len - (offset - f->rdma.offset);
	return offset <= request->total && len <= request->total - offset &&
	       len <= request->transfer.data_due;
}

int pn_receiver_data(struct pinion_request *request, const struct pn_wire *wire,
		     const uint8_t *payload, size_t len)
{
	struct pn_fragment *f = target_at(request, wire->offset);

	if (!data_is_due(request, f, wire->offset, len))
		return -EPROTO;
	pn_copy(request->ep->device, request->buf + wire->offset, payload, len);
	if (!f) {
		request->transfer.data_due -= len;
		pn_rail_data_arrived(request, len);
	} else {
		f->arrived += len;
		if (f->arrived == f->rdma.len)
			pn_fragment_drop(f);
	}
	receiver_moved(request, len);
	return 0;
}

/* The next fragment is registered and announced before this one is unpinned,
 * since the sender waits for it. The last fragment is unpinned first: when a
 * request ends it holds nothing. */
void pn_receiver_arrived(struct pn_fragment *f)
{
	struct pinion_request *request = f->rdma.request;
	struct pinion_endpoint *ep = request->ep;

	pn_rail_expect_done(f, true);
	if (request->transfer.nfragments == 1 &&
	    request->transfer.next == request->total) {
		f->rdma.inflight++; /* other tasks may run */
		pn_rdma_unpin(&f->rdma);
		f->rdma.inflight--;
	}
	pn_fragment_detach(f);
	receiver_moved(request, f->rdma.len);
	pn_fragment_free(ep, f);
}

int pn_receiver_fin(struct pinion_request *request, const struct pn_wire *wire)
{
	struct pn_fragment *f = target_at(request, wire->offset);

	if (!f || !(f->rdma.pinned || f->again) ||
	    f->rdma.offset != wire->offset || f->rdma.len != wire->len ||
	    f->arrived)
		return -EPROTO;
	pn_receiver_arrived(f);
	return 0;
}

/* A fragment that is not found has ended here meanwhile. */
void pn_receiver_immediate(struct pinion_peer *peer, uint32_t number)
{
	struct pinion_request *request = pn_request_by_immediate(peer, number);
	struct pn_list *pos;

	if (!request || request->status)
		return;
	pn_list_for_each (pos, &request->transfer.fragments) {
		struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, rdma.link);

		if (f->kind == PN_FRAGMENT_TARGET && f->number == number &&
		    f->rdma.pinned && !f->arrived) {
			pn_receiver_arrived(f);
			return;
		}
	}
}
