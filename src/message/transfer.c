/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bytes of a message, fragment by fragment (paper Pipeline, section 4).
 *
 * Sender: MATCH with the first bytes; on ACK the bytes up to the offset by
 * DATA; for each READY pin that part of the source, write it, tell the
 * receiver, unpin when the write has completed. Receiver: on a match send ACK,
 * pin fragments of the target up to the depth, READY for each; when one has
 * been written unpin it and go on. With `read` the sender pins all of the
 * source and says so in the MATCH; the receiver reads fragment by fragment and
 * says DONE.
 *
 * What cannot be pinned (no room, memory of a kind that the device refuses)
 * goes by DATA instead: a receiver asks for it by a READY without keys, a
 * sender just does it. So a transfer slows, but does not fail (rule 5). A
 * receiver short of room first waits for its own fragments in flight: a
 * shallower pipeline is faster than copying.
 *
 * The paper's FIN is a message of its own, sent when the write has completed;
 * on the link it stands behind the fragments posted meanwhile, and the
 * receiver learns of a fragment one whole pipeline later. Where the device can
 * notify with the write itself (PN_CAP_WRITE_IMM) the last write of a fragment
 * does: its immediate is a number that the READY gave.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "message/message_impl.h"

/* What a receiver may have announced at a time: the deepest pipeline, and what
 * goes by send/receive. Who announces more is out to fill our memory. */
#define MAX_FRAGMENTS (PN_PROTOCOL_MAX_DEPTH + 1)

/* --- fragments ------------------------------------------------------------ */

static struct pn_fragment *fragment_add(struct pinion_request *request,
					enum pn_fragment_kind kind,
					size_t offset, size_t len)
{
	struct pn_list *link = pn_list_pop(&request->ep->fragments);
	struct pn_fragment *f =
		link ? pn_container_of(link, struct pn_fragment, link)
		     : malloc(sizeof(*f));

	if (!f)
		return NULL;
	f->track = PN_TRACK_FRAGMENT;
	f->kind = kind;
	f->request = request;
	f->way = request->peer->way;
	f->offset = offset;
	f->len = len;
	f->posted = f->arrived = 0;
	f->inflight = f->nkeys = 0;
	f->status = 0;
	f->pinned = false;
	pn_list_init(&f->stall);
	pn_list_append(&request->fragments, &f->link);
	request->nfragments++;
	return f;
}

/* Takes it off its request; its pin is still held. */
static void fragment_detach(struct pn_fragment *f)
{
	pn_list_remove(&f->stall);
	pn_list_remove(&f->link);
	f->request->nfragments--;
}

/* The end of a detached fragment, whose request may be gone. */
static void fragment_free(struct pinion_endpoint *ep, struct pn_fragment *f)
{
	if (f->pinned)
		pn_cache_unpin(f->way->rail->cache, &f->pin);
	pn_list_insert(&ep->fragments, &f->link);
}

static void fragment_drop(struct pn_fragment *f)
{
	struct pinion_endpoint *ep = f->request->ep;

	fragment_detach(f);
	fragment_free(ep, f);
}

/* What a registration must allow. One that `auto` keeps serves all protocols,
 * since the next message may go by another. */
static unsigned access_for(const struct pinion_request *request,
			   unsigned access)
{
	if (!request->shape.keep)
		return access | PINION_PIN_BYPASS;
	if (request->ep->protocol != PN_PROTOCOL_AUTO)
		return access;
	return access |
	       (request->is_send ? PN_SOURCE_ACCESS : PN_TARGET_ACCESS);
}

/* What `auto` keeps of a buffer that goes whole is all of it: the next message
 * may go by a protocol that wants the first bytes, too. */
static void keep_all(struct pn_fragment *f, unsigned access)
{
	struct pinion_request *request = f->request;
	struct pn_cache *cache = f->way->rail->cache;
	struct pinion_pin pin;

	if (!pn_cache_pin(cache, request->buf, request->total,
			  access_for(request, access), &pin))
		pn_cache_unpin(cache, &pin);
}

static int fragment_pin(struct pn_fragment *f, unsigned access)
{
	struct pinion_request *request = f->request;
	bool whole = f->offset && f->offset + f->len == request->total;
	int ret;

	if (whole && request->shape.keep &&
	    f->offset <= request->ep->limits.match_bytes &&
	    request->ep->protocol == PN_PROTOCOL_AUTO)
		keep_all(f, access);
	ret = pn_cache_pin(f->way->rail->cache, request->buf + f->offset,
			   f->len, access_for(request, access), &f->pin);

	f->pinned = !ret;
	return ret;
}

void pn_transfer_abandon(struct pinion_request *request)
{
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &request->fragments) {
		struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, link);

		pn_list_remove(&f->stall);
		if (!f->inflight)
			fragment_drop(f);
	}
}

/* --- giving up ------------------------------------------------------------ */

static void tell_failure(struct pinion_request *request, int status)
{
	struct pn_wire wire = { .version = PN_WIRE_VERSION,
				.kind = PN_WIRE_FAIL,
				.to = request->other,
				.from = request->id,
				.status = status };

	if (request->peer && request->other)
		pn_packet_send(request->peer, &wire, NULL, 0, NULL);
}

/* This side cannot go on: the other is told. */
static void fail(struct pinion_request *request, int status)
{
	tell_failure(request, status);
	pn_request_end(request, status);
}

static void packet_for(struct pinion_request *request, struct pn_wire *wire,
		       enum pn_wire_kind kind)
{
	*wire = (struct pn_wire){ .version = PN_WIRE_VERSION,
				  .kind = (uint8_t)kind,
				  .to = request->other,
				  .from = request->id };
}

/* --- operations of the device --------------------------------------------- */

struct pn_sge pn_pin_at(const struct pinion_pin *pin, size_t n)
{
	struct pinion_pin_part part;

	for (unsigned i = 0; !pn_cache_pin_part(pin, i, &part); i++) {
		if (n < part.len)
			return (struct pn_sge){ (char *)part.addr + n,
						part.len - n, part.local_key };
		n -= part.len;
	}
	return (struct pn_sge){ 0 };
}

/* Where a fragment goes on: in its own pin or in the one of all the source. */
static struct pn_sge local_part_of(const struct pn_fragment *f)
{
	if (f->pinned)
		return pn_pin_at(&f->pin, f->posted);
	return pn_pin_at(&f->request->source, f->offset + f->posted);
}

struct pn_wire_key pn_keys_at(const struct pn_wire_key *keys, unsigned nkeys,
			      size_t n)
{
	for (unsigned i = 0; i < nkeys; i++) {
		if (n < keys[i].len)
			return (struct pn_wire_key){ keys[i].addr + n,
						     keys[i].len - n,
						     keys[i].rkey };
		n -= keys[i].len;
	}
	return (struct pn_wire_key){ 0 };
}

static bool notifies(const struct pn_device *device)
{
	return device->caps & PN_CAP_WRITE_IMM;
}

/* Posts RDMA operations until all of the fragment is out. */
static int pump_rdma(struct pn_fragment *f, enum pn_op_kind kind,
		     const struct pn_wire_key *keys, unsigned nkeys,
		     size_t keys_at)
{
	struct pinion_request *request = f->request;
	struct pn_device *device = f->way->rail->device;

	if (!f->way->up)
		return -EAGAIN;
	while (f->posted < f->len) {
		struct pn_sge sge = local_part_of(f);
		struct pn_wire_key to =
			pn_keys_at(keys, nkeys, keys_at + f->posted);
		struct pn_op op = { .kind = kind,
				    .sge = &sge,
				    .nsge = 1,
				    .remote_addr = to.addr,
				    .rkey = to.rkey,
				    .user = f };
		int ret;

		if (!to.len)
			return -EPROTO;
		if (sge.len > to.len)
			sge.len = to.len;
		if (sge.len > f->len - f->posted)
			sge.len = f->len - f->posted;
		if (sge.len > device->limits.max_op_bytes)
			sge.len = device->limits.max_op_bytes;
		if (kind == PN_OP_WRITE && notifies(device) &&
		    f->posted + sge.len == f->len) {
			op.flags = PN_OP_IMM;
			op.imm = f->number;
		}
		ret = pn_device_post(device, f->way->peer, &op);
		if (ret)
			return ret;
		request->ep->noperations++;
		f->inflight++;
		f->posted += sge.len;
	}
	return 0;
}

static int pump_data(struct pn_fragment *f)
{
	struct pinion_request *request = f->request;

	while (f->posted < f->len) {
		size_t at = f->offset + f->posted, len = f->len - f->posted;
		struct pn_wire wire;
		int ret;

		if (len > request->ep->limits.packet_bytes)
			len = request->ep->limits.packet_bytes;
		packet_for(request, &wire, PN_WIRE_DATA);
		wire.offset = at;
		ret = pn_packet_try(request->peer, &wire, request->buf + at,
				    len);
		if (ret)
			return ret;
		f->posted += len;
	}
	return 0;
}

/* Stays behind when the queue is full, at its peer. */
static void stall(struct pn_fragment *f)
{
	pn_list_append(&f->way->stalled, &f->stall);
	pn_peer_busy(f->request->peer);
}

static void sender_moved(struct pinion_request *request, size_t len)
{
	request->moved += len;
	if (request->moved == request->total)
		pn_request_end(request, 0);
}

int pn_fragment_pump(struct pn_fragment *f)
{
	struct pinion_request *request = f->request;
	size_t len = f->len;
	int ret = 0;

	switch (f->kind) {
	case PN_FRAGMENT_DATA:
		ret = pump_data(f);
		if (!ret) {
			fragment_drop(f);
			sender_moved(request, len);
			return 0;
		}
		break;
	case PN_FRAGMENT_WRITE:
		ret = pump_rdma(f, PN_OP_WRITE, f->keys, f->nkeys, 0);
		break;
	case PN_FRAGMENT_READ:
		ret = pump_rdma(f, PN_OP_READ, request->keys, request->nkeys,
				f->offset);
		break;
	case PN_FRAGMENT_TARGET:
		break;
	}
	if (ret && ret != -EAGAIN) {
		f->status = ret;
		if (!f->inflight)
			fragment_drop(f);
		fail(request, ret);
	}
	return ret;
}

/* Posts what it can now; the rest follows when there is room, and behind what
 * is waiting already. */
static void start(struct pn_fragment *f)
{
	if (!pn_list_empty(&f->way->stalled) || pn_fragment_pump(f) == -EAGAIN)
		stall(f);
}

/* --- what a message took, for the sender's choices (auto.h) --------------- */

#define REPORT_NS 16 /* a unit */

/* The request at the sender and the time in 16 ns, in one word. */
static void report(struct pinion_request *request)
{
	struct pinion_peer *peer = request->peer;
	uint64_t units;

	if (!request->began_ns)
		return;
	units = (pn_device_now(request->ep->device) - request->began_ns) /
		REPORT_NS;
	if (units > UINT32_MAX)
		units = UINT32_MAX;
	peer->reports[peer->nreports++ & (PN_REPORTS - 1)] =
		(uint64_t)request->other << 32 | units;
}

/* The newest report that was not told yet, or 0. */
static uint64_t take_report(struct pinion_peer *peer)
{
	uint64_t *newest =
		&peer->reports[(peer->nreports - 1) & (PN_REPORTS - 1)];
	uint64_t found = *newest;

	*newest = 0;
	if (found)
		peer->nreports--;
	return found;
}

static void hear_report(struct pinion_endpoint *ep, uint64_t word)
{
	if (word)
		pn_auto_told(ep->chooser, (uint32_t)(word >> 32),
			     (double)(word & UINT32_MAX) * REPORT_NS);
}

/* --- sender --------------------------------------------------------------- */

bool pn_keys_export(const struct pinion_pin *pin, struct pn_wire *wire,
		    struct pn_wire_key *keys)
{
	struct pinion_pin_part part;

	if (pin->nparts > PN_WIRE_MAX_KEYS)
		return false;
	for (unsigned i = 0; i < pin->nparts; i++) {
		pn_cache_pin_part(pin, i, &part);
		keys[i] = (struct pn_wire_key){ (uintptr_t)part.addr, part.len,
						part.remote_key };
	}
	wire->nkeys = (uint8_t)pin->nparts;
	return true;
}

/* read: exposes the whole source. Without room for it, the receiver finds no
 * keys and asks for the bytes. */
static void expose_source(struct pinion_request *request, struct pn_wire *wire,
			  struct pn_wire_key *keys)
{
	if (pn_cache_pin(request->ep->cache, request->buf, request->len,
			 access_for(request, PINION_ACCESS_REMOTE_READ),
			 &request->source))
		return;
	if (pn_keys_export(&request->source, wire, keys))
		request->source_pinned = true;
	else
		pn_cache_unpin(request->ep->cache, &request->source);
}

/* early: registers the whole source while the receiver does its part. What
 * cannot be had is tried again fragment by fragment. */
static void pin_early(struct pinion_request *request)
{
	/* In virtual time it may end meanwhile: it waits for us. */
	request->npackets++;
	request->source_pinned =
		!pn_cache_pin(request->ep->cache, request->buf, request->len,
			      access_for(request, 0), &request->source);
	request->npackets--;
	if (request->status || request->moved == request->total)
		pn_request_end(request, 0);
}

int pn_transfer_send(struct pinion_request *request,
		     const struct pn_choice *choice)
{
	const struct pn_protocol *row =
		pn_protocol_at((unsigned)choice->protocol);
	struct pn_wire_key keys[PN_WIRE_MAX_KEYS];
	struct pn_wire wire;
	const void *payload = request->buf;
	size_t len;
	bool whole;
	int ret;

	row->shape(&request->ep->limits, request->len, &request->shape);
	request->shape.keep = choice->keep;
	len = request->shape.match;
	packet_for(request, &wire, PN_WIRE_MATCH);
	wire.protocol = (uint8_t)choice->protocol;
	wire.tag = request->tag;
	wire.len = request->len;
	request->total = request->len;
	if (request->shape.read)
		expose_source(request, &wire, keys);
	if (wire.nkeys) {
		payload = keys;
		len = wire.nkeys * sizeof(keys[0]);
	} else {
		request->moved = len;
	}
	whole = request->moved == request->total;
	pn_list_append(&request->peer->requests, &request->peer_link);
	ret = pn_packet_send(request->peer, &wire, payload, len,
			     wire.nkeys ? NULL : request);
	if (ret || whole)
		pn_request_end(request, ret);
	else if (request->shape.early)
		pin_early(request);
	return 0;
}

static int on_ack(struct pinion_request *request, const struct pn_wire *wire)
{
	struct pn_fragment *f;

	if (wire->len > request->len || wire->offset > wire->len ||
	    request->other)
		return -EPROTO;
	hear_report(request->ep, wire->tag);
	request->other = wire->from;
	request->total = wire->len;
	if (request->moved > wire->len)
		request->moved = wire->len; /* a short receive took less */
	if (wire->offset > request->moved) {
		f = fragment_add(request, PN_FRAGMENT_DATA, request->moved,
				 wire->offset - request->moved);
		if (!f)
			fail(request, -ENOMEM);
		else
			start(f);
		return 0;
	}
	if (request->moved == request->total)
		pn_request_end(request, 0);
	return 0;
}

/* Whether all of the source is registered, with the fragment's device. */
static bool source_serves(const struct pn_fragment *f)
{
	struct pinion_request *request = f->request;

	return request->source_pinned &&
	       f->way->rail->cache == request->ep->cache;
}

static int on_ready(struct pinion_request *request, const struct pn_wire *wire,
		    const uint8_t *payload)
{
	struct pn_fragment *f;

	if (!wire->len || wire->offset > request->total ||
	    wire->len > request->total - wire->offset ||
	    request->nfragments == MAX_FRAGMENTS)
		return -EPROTO;
	request->other = wire->from;
	f = fragment_add(request,
			 wire->nkeys ? PN_FRAGMENT_WRITE : PN_FRAGMENT_DATA,
			 wire->offset, wire->len);
	if (!f) {
		fail(request, -ENOMEM);
		return 0;
	}
	f->number = (uint32_t)wire->tag;
	f->nkeys = wire->nkeys;
	memcpy(f->keys, payload, wire->nkeys * sizeof(f->keys[0]));
	if (f->kind == PN_FRAGMENT_WRITE && !source_serves(f) &&
	    fragment_pin(f, 0)) {
		f->kind = PN_FRAGMENT_DATA;
		request->ep->stats.copied_for_room++;
	}
	start(f);
	return 0;
}

/* All writes of a fragment are through. */
static void written(struct pn_fragment *f)
{
	struct pinion_request *request = f->request;
	size_t len = f->len;
	struct pn_wire wire;
	int ret = 0;

	packet_for(request, &wire, PN_WIRE_FIN);
	wire.offset = f->offset;
	wire.len = f->len;
	if (!notifies(f->way->rail->device))
		ret = pn_packet_send(request->peer, &wire, NULL, 0, NULL);
	fragment_drop(f);
	if (ret)
		fail(request, ret);
	else
		sender_moved(request, len);
}

/* --- receiver ------------------------------------------------------------- */

static void advance(struct pinion_request *request);

static void receiver_moved(struct pinion_request *request, size_t len)
{
	struct pn_wire wire;

	request->moved += len;
	if (request->moved < request->total) {
		advance(request);
		return;
	}
	report(request);
	if (request->nkeys) {
		packet_for(request, &wire, PN_WIRE_DONE);
		wire.tag = take_report(request->peer);
		pn_packet_send(request->peer, &wire, NULL, 0, NULL);
	}
	pn_request_end(request, 0);
}

/* How long the fragment that begins at request->next is. */
static size_t fragment_len(const struct pinion_request *request)
{
	size_t len = request->shape.fragment;
	size_t left = request->total - request->next;
	uintptr_t at = (uintptr_t)request->buf + request->next;

	if (request->shape.align)
		len -= at & (request->shape.align - 1) &
		       (request->shape.fragment - 1);
	return len && len < left ? len : left;
}

/* Announces a fragment of the target; without keys it asks for DATA. */
static int announce(struct pn_fragment *f)
{
	struct pinion_request *request = f->request;
	struct pn_wire_key keys[PN_WIRE_MAX_KEYS];
	struct pn_wire wire;

	packet_for(request, &wire, PN_WIRE_READY);
	f->number = pn_request_announce(request);
	wire.tag = f->number;
	wire.offset = f->offset;
	wire.len = f->len;
	if (f->pinned && !pn_keys_export(&f->pin, &wire, keys)) {
		pn_cache_unpin(f->way->rail->cache, &f->pin);
		f->pinned = false;
	}
	return pn_packet_send(request->peer, &wire, keys,
			      wire.nkeys * sizeof(keys[0]), NULL);
}

/* Begins the next fragment. -EAGAIN: wait for those in flight. */
static int begin_fragment(struct pinion_request *request)
{
	bool read = request->nkeys;
	struct pn_fragment *f =
		fragment_add(request,
			     read ? PN_FRAGMENT_READ : PN_FRAGMENT_TARGET,
			     request->next, fragment_len(request));
	int ret;

	if (!f)
		return -ENOMEM;
	ret = request->shape.fragment
		      ? fragment_pin(f, read ? PINION_ACCESS_LOCAL_WRITE
					     : PINION_ACCESS_REMOTE_WRITE)
		      : -ENOBUFS;
	if (ret == -ENOBUFS && request->nfragments > 1) {
		fragment_drop(f);
		return -EAGAIN;
	}
	if (ret) {
		request->ep->stats.copied_for_room++;
		f->kind = PN_FRAGMENT_TARGET;
	}
	request->next += f->len;
	if (f->kind == PN_FRAGMENT_TARGET)
		return announce(f);
	start(f);
	return 0;
}

static void advance(struct pinion_request *request)
{
	while (request->nfragments < request->shape.depth &&
	       request->next < request->total && !request->status) {
		int ret = begin_fragment(request);

		if (ret == -EAGAIN)
			return;
		if (ret) {
			fail(request, ret);
			return;
		}
	}
}

/* A long message was matched: say so and begin. */
static void accept_long(struct pinion_request *request)
{
	struct pn_wire wire;
	size_t offset = request->shape.offset;
	int ret = 0;

	if (offset > request->total || !request->shape.fragment)
		offset = request->total;
	if (offset < request->moved || request->nkeys)
		offset = request->moved;
	request->next = offset;
	request->due = offset - request->moved;
	packet_for(request, &wire, PN_WIRE_ACK);
	wire.offset = offset;
	wire.len = request->total;
	if (!request->nkeys) {
		wire.tag = take_report(request->peer);
		ret = pn_packet_send(request->peer, &wire, NULL, 0, NULL);
	}
	if (ret)
		fail(request, ret);
	else if (request->moved == request->total)
		receiver_moved(request, 0);
	else
		advance(request);
}

/* With `auto` the receiver leaves its target registered or not as its own
 * history says; fragments are cut accordingly. */
static void receiver_shape(struct pinion_request *request,
			   const struct pn_wire *wire)
{
	struct pinion_endpoint *ep = request->ep;
	unsigned id = wire->protocol;
	struct pn_use target = { .addr = (uintptr_t)request->buf,
				 .len = request->total,
				 .end = PN_END_TARGET };
	bool keep;

	pn_protocol_at(id)->shape(&ep->limits, wire->len, &request->shape);
	if (ep->protocol != PN_PROTOCOL_AUTO || !request->shape.fragment ||
	    !request->total)
		return;
	target.cached = pn_endpoint_covers(ep, request->buf, request->total,
					   PN_TARGET_ACCESS);
	keep = pn_auto_keep(ep->chooser, &target,
			    pn_endpoint_roomy(ep, request->total));
	if (id == PN_PROTOCOL_PIPELINE && keep)
		id = PN_PROTOCOL_CACHING_PIPELINE;
	else if (id == PN_PROTOCOL_CACHING_PIPELINE && !keep)
		id = PN_PROTOCOL_PIPELINE;
	pn_protocol_at(id)->shape(&ep->limits, wire->len, &request->shape);
	request->shape.keep = keep;
}

void pn_transfer_receive(struct pinion_request *request,
			 struct pinion_peer *peer, const struct pn_wire *wire,
			 const uint8_t *payload, size_t len)
{
	int ret;

	request->peer = peer;
	request->tag = wire->tag;
	request->other = wire->from;
	request->message_len = wire->len;
	request->total = wire->len < request->len ? wire->len : request->len;
	request->ep->stats.received++;
	pn_list_append(&peer->requests, &request->peer_link);
	ret = pn_request_keep_keys(request, wire, payload);
	if (ret) {
		fail(request, ret);
		return;
	}
	if (!wire->nkeys) {
		request->moved = len < request->total ? len : request->total;
		if (request->moved) /* else the buffer may be NULL */
			pn_copy(request->ep->device, request->buf, payload,
				request->moved);
		if (len == wire->len) {
			pn_request_end(request, 0);
			return;
		}
	}
	if (peer->down) {
		pn_request_end(request, peer->down);
		return;
	}
	if (!request->late)
		request->began_ns = pn_device_now(request->ep->device);
	receiver_shape(request, wire);
	accept_long(request);
}

/* The fragment of the target that holds an offset, or NULL. */
static struct pn_fragment *target_at(struct pinion_request *request,
				     size_t offset)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &request->fragments) {
		struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, link);

		if (f->kind == PN_FRAGMENT_TARGET &&
		    offset - f->offset < f->len)
			return f;
	}
	return NULL;
}

/* Whether these bytes were asked for and did not come yet. */
static bool data_is_due(const struct pinion_request *request,
			const struct pn_fragment *f, size_t offset, size_t len)
{
	if (f)
		return len <= f->len - f->arrived &&
		       len <= f->len - (offset - f->offset);
	return offset <= request->total && len <= request->total - offset &&
	       len <= request->due;
}

static int on_data(struct pinion_request *request, const struct pn_wire *wire,
		   const uint8_t *payload, size_t len)
{
	struct pn_fragment *f = target_at(request, wire->offset);

	if (!data_is_due(request, f, wire->offset, len))
		return -EPROTO;
	pn_copy(request->ep->device, request->buf + wire->offset, payload, len);
	if (!f) {
		request->due -= len;
	} else {
		f->arrived += len;
		if (f->arrived == f->len)
			fragment_drop(f);
	}
	receiver_moved(request, len);
	return 0;
}

/* A fragment of the target has its bytes. The next one is registered and
 * announced before this one is released: the sender waits for the former. */
static void landed(struct pn_fragment *f)
{
	struct pinion_endpoint *ep = f->request->ep;

	fragment_detach(f);
	receiver_moved(f->request, f->len);
	fragment_free(ep, f);
}

static int on_fin(struct pinion_request *request, const struct pn_wire *wire)
{
	struct pn_fragment *f = target_at(request, wire->offset);

	if (!f || !f->pinned || f->offset != wire->offset ||
	    f->len != wire->len || f->arrived)
		return -EPROTO;
	landed(f);
	return 0;
}

/* One that is not found has ended here meanwhile. */
void pn_transfer_written(struct pinion_peer *peer, uint32_t number)
{
	struct pinion_request *request = pn_request_announced(peer, number);
	struct pn_list *pos;

	if (!request || request->status)
		return;
	pn_list_for_each (pos, &request->fragments) {
		struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, link);

		if (f->kind == PN_FRAGMENT_TARGET && f->number == number &&
		    f->pinned && !f->arrived) {
			landed(f);
			return;
		}
	}
}

/* --- both ----------------------------------------------------------------- */

void pn_transfer_done(struct pn_fragment *f, int status)
{
	struct pinion_request *request = f->request;

	f->inflight--;
	if (status && !f->status)
		f->status = status;
	if (f->inflight ||
	    (!f->status && !request->status && f->posted < f->len))
		return;
	if (f->status || request->status) {
		status = f->status;
		fragment_drop(f);
		if (status && !request->status)
			tell_failure(request, status);
		pn_request_end(request, status);
	} else if (f->kind == PN_FRAGMENT_WRITE) {
		written(f);
	} else {
		landed(f);
	}
}

/* The source has been read: only one that was exposed, and nothing else of it
 * is under way. */
static int on_done(struct pinion_request *request, const struct pn_wire *wire)
{
	if (!request->source_pinned || !request->shape.read ||
	    request->nfragments)
		return -EPROTO;
	hear_report(request->ep, wire->tag);
	request->moved = request->total;
	pn_request_end(request, 0);
	return 0;
}

/* The sender wants a message back that nobody has received yet. */
static void on_cancel(struct pinion_peer *peer, const struct pn_wire *wire)
{
	struct pn_wire gone = { .version = PN_WIRE_VERSION,
				.kind = PN_WIRE_GONE,
				.to = wire->from };
	struct pn_list *pos;

	pn_list_for_each (pos, &peer->ep->unexpected) {
		struct pinion_claim *claim =
			pn_container_of(pos, struct pinion_claim, link);

		if (claim->peer != peer || claim->wire.from != wire->from)
			continue;
		pn_claim_free(peer->ep, claim);
		pn_packet_send(peer, &gone, NULL, 0, NULL);
		return;
	}
}

static bool for_sender(enum pn_wire_kind kind)
{
	return kind == PN_WIRE_ACK || kind == PN_WIRE_READY ||
	       kind == PN_WIRE_DONE || kind == PN_WIRE_GONE;
}

/* A FAIL may mean either side. */
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
	/* It ended here while the packet was on its way. */
	if (!request || request->status)
		return 0;
	switch (wire->kind) {
	case PN_WIRE_ACK:
		return on_ack(request, wire);
	case PN_WIRE_READY:
		return on_ready(request, wire, payload);
	case PN_WIRE_DATA:
		return on_data(request, wire, payload, len);
	case PN_WIRE_FIN:
		return on_fin(request, wire);
	case PN_WIRE_DONE:
		return on_done(request, wire);
	case PN_WIRE_GONE:
		if (!request->canceling)
			return -EPROTO;
		pn_request_end(request, -ECANCELED);
		return 0;
	case PN_WIRE_FAIL:
		pn_request_end(request,
			       wire->status < 0 ? wire->status : -EPROTO);
		return 0;
	default:
		return -EPROTO;
	}
}
