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
 *
 * Several rails. The receiver chooses a rail for each fragment (rail.c), pins
 * the target there alone and names it in the READY. When a way goes down, it
 * announces again, over another, what it expected over it; then it says DOWN.
 * The sender loses what it was writing there: such a fragment is LOST until it
 * is announced again or the peer's DOWN comes without that, since then it had
 * arrived. A device says PEER_DOWN only when nothing of that way can touch
 * memory any more, so a write of the old announcement never lands behind one of
 * the new. doc/design/rails.md goes through the cases.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "message/message_impl.h"

/* What a receiver may have announced at a time: the deepest pipeline, and what
 * goes by send/receive. Who announces more is out to fill our memory. */
#define MAX_FRAGMENTS (PN_RAILS_MAX * PN_PROTOCOL_MAX_DEPTH + 1)

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
	f->track = (struct pn_track){ PN_TRACK_FRAGMENT, request->ep };
	f->kind = kind;
	f->request = request;
	f->way = request->peer->way;
	f->offset = offset;
	f->len = len;
	f->posted = f->arrived = 0;
	f->inflight = f->nkeys = 0;
	f->status = 0;
	f->pinned = f->expected = f->again = false;
	pn_list_init(&f->stall);
	pn_list_append(&request->fragments, &f->link);
	request->nfragments++;
	return f;
}

/* Takes it off its request; its pin is still held. */
static void fragment_detach(struct pn_fragment *f)
{
	pn_rail_forget(f, false);
	pn_list_remove(&f->stall);
	pn_list_remove(&f->link);
	f->request->nfragments--;
}

/* The end of a detached fragment, whose request may be gone. */
static void fragment_unpin(struct pn_fragment *f)
{
	if (f->pinned)
		pn_cache_unpin(f->way->rail->cache, &f->pin);
	f->pinned = false;
}

static void fragment_free(struct pinion_endpoint *ep, struct pn_fragment *f)
{
	fragment_unpin(f);
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

/* --- giving up ------------------------------------------------------------ */

void pn_transfer_tell(struct pinion_request *request)
{
	struct pn_wire wire = { .version = PN_WIRE_VERSION,
				.kind = PN_WIRE_FAIL,
				.to = request->other,
				.from = request->id,
				.status = request->status };

	if (request->peer && request->other)
		pn_packet_send(request->peer, &wire, NULL, 0, NULL);
}

/* This side cannot go on: the other is told at its end. Not before: on another
 * rail than the packet takes, writes may be under way to a buffer that the
 * receiver would then take for free. */
static void fail(struct pinion_request *request, int status)
{
	request->tells |= !request->status;
	pn_request_end(request, status);
}

/* A write that a way has lost may land until the peer has said DOWN. */
static bool may_land(const struct pn_fragment *f)
{
	return f->kind == PN_FRAGMENT_LOST && !f->way->swept &&
	       !f->request->peer->down;
}

void pn_transfer_abandon(struct pinion_request *request)
{
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &request->fragments) {
		struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, link);

		pn_list_remove(&f->stall);
		if (!f->inflight && !may_land(f))
			fragment_drop(f);
	}
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

/* Of the keys for one rail of the other side; rails as in a MATCH. */
static struct pn_wire_key remote_part(const struct pn_wire_key *keys,
				      unsigned nkeys, uint64_t rails,
				      unsigned rail, size_t n)
{
	for (unsigned i = 0; i < nkeys; i++) {
		if (pn_wire_key_rail(rails, i) != rail)
			continue;
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

struct pn_wire_key pn_keys_at(const struct pn_wire_key *keys, unsigned nkeys,
			      size_t n)
{
	return remote_part(keys, nkeys, 0, 0, n);
}

static struct pn_wire_key remote_of(const struct pn_fragment *f)
{
	const struct pinion_request *request = f->request;

	if (f->kind == PN_FRAGMENT_WRITE)
		return pn_keys_at(f->keys, f->nkeys, f->posted);
	return remote_part(request->keys, request->nkeys, request->key_rails,
			   f->way->number, f->offset + f->posted);
}

/* Posts RDMA operations until all of the fragment is out. */
static int pump_rdma(struct pn_fragment *f, enum pn_op_kind kind)
{
	struct pinion_request *request = f->request;
	struct pn_device *device = f->way->rail->device;

	if (!f->way->up)
		return -EAGAIN;
	/* Its last operation tells the receiver that all were well. */
	while (f->posted < f->len && !f->status) {
		struct pn_sge sge = local_part_of(f);
		struct pn_wire_key to = remote_of(f);
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

/* With several rails a packet at a time: while this one copies, others wait for
 * their fragments to be begun. */
static int pump_data(struct pn_fragment *f)
{
	struct pinion_request *request = f->request;
	size_t before = f->posted;

	while (f->posted < f->len) {
		size_t at = f->offset + f->posted, len = f->len - f->posted;
		struct pn_wire wire;
		int ret;

		if (f->posted != before && request->ep->nrails > 1)
			return -EAGAIN;
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

/* What was read meanwhile may have been written, too. */
static void sender_moved(struct pinion_request *request, size_t len)
{
	request->moved += len;
	if (request->moved < request->total)
		return;
	request->moved = request->total;
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
		ret = pump_rdma(f, PN_OP_WRITE);
		break;
	case PN_FRAGMENT_READ:
		ret = pump_rdma(f, PN_OP_READ);
		break;
	case PN_FRAGMENT_LOST:
	case PN_FRAGMENT_TARGET:
		break;
	}
	/* The way is going down; PEER_DOWN will say so. */
	if (ret == -ECONNRESET && pn_way_has_others(f->way))
		ret = -EAGAIN;
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

	if (wire->nkeys + pin->nparts > PN_WIRE_MAX_KEYS)
		return false;
	for (unsigned i = 0; i < pin->nparts; i++) {
		pn_cache_pin_part(pin, i, &part);
		keys[wire->nkeys++] =
			(struct pn_wire_key){ (uintptr_t)part.addr, part.len,
					      part.remote_key };
	}
	return true;
}

/* Exposes the whole source on one rail. */
static void expose_on(struct pinion_request *request, unsigned rail,
		      struct pn_wire *wire, struct pn_wire_key *keys)
{
	struct pn_cache *cache = request->ep->rails[rail].cache;
	struct pinion_pin *pin = &request->sources[rail];
	unsigned before = wire->nkeys;

	if (pn_cache_pin(cache, request->buf, request->len,
			 access_for(request, PINION_ACCESS_REMOTE_READ), pin))
		return;
	if (!pn_keys_export(pin, wire, keys)) {
		pn_cache_unpin(cache, pin);
		return;
	}
	request->exposed |= 1U << rail;
	for (unsigned i = before; i < wire->nkeys; i++)
		wire->offset |= (uint64_t)rail << 2 * i;
}

/* read: exposes the whole source; when it comes again on each rail, so that
 * the receiver can take what is fast: registering it on all at first sight
 * would take longer than one rail does. Where there is no room, the receiver
 * finds no keys; when it finds none at all it asks for the bytes. */
static void expose_source(struct pinion_request *request, struct pn_wire *wire,
			  struct pn_wire_key *keys)
{
	struct pinion_peer *peer = request->peer;
	unsigned first = (unsigned)(peer->way->rail - request->ep->rails);
	bool known =
		request->ep->nrails > 1 &&
		pn_cache_covers(peer->way->rail->cache, request->buf,
				request->len,
				access_for(request, PINION_ACCESS_REMOTE_READ));

	if (!request->sources)
		request->sources =
			calloc(PN_RAILS_MAX, sizeof(*request->sources));
	if (!request->sources)
		return;
	for (unsigned r = 0; r < request->ep->nrails; r++)
		if (r == first || (known && peer->ways[r].up))
			expose_on(request, r, wire, keys);
}

void pn_transfer_conceal(struct pinion_request *request)
{
	for (unsigned r = 0; request->exposed >> r; r++)
		if (request->exposed >> r & 1)
			pn_cache_unpin(request->ep->rails[r].cache,
				       &request->sources[r]);
	request->exposed = 0;
}

/* early: registers the whole source while the receiver does its part. What
 * cannot be had is tried again fragment by fragment. With several rails nobody
 * knows yet which part goes over which. */
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
	wire.to = request->data;
	wire.status = pn_wire_match_status(request->space, request->has_data);
	wire.len = request->len;
	request->total = request->message_len = request->len;
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
	if (choice->direct && !pn_direct_send(request, &wire))
		return 0;
	ret = pn_packet_send(request->peer, &wire, payload, len,
			     wire.nkeys ? NULL : request);
	if (ret || whole)
		pn_request_end(request, ret);
	else if (request->shape.early && request->ep->nrails == 1)
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

/* Goes by writes over a way if it has keys and can be pinned there, else by
 * DATA. */
static void begin_sending(struct pn_fragment *f, struct pn_way *way)
{
	f->kind = f->nkeys ? PN_FRAGMENT_WRITE : PN_FRAGMENT_DATA;
	f->way = f->nkeys ? way : f->request->peer->way;
	f->posted = 0;
	f->status = 0;
	f->again = false;
	if (f->kind == PN_FRAGMENT_WRITE && way->down) {
		/* The peer does not know yet; it will announce it again. */
		f->kind = PN_FRAGMENT_LOST;
		return;
	}
	if (f->kind == PN_FRAGMENT_WRITE && !source_serves(f) &&
	    fragment_pin(f, 0)) {
		f->kind = PN_FRAGMENT_DATA;
		f->way = f->request->peer->way;
		f->request->ep->stats.copied_for_room++;
	}
	start(f);
}

static void keep_ready(struct pn_fragment *f, const struct pn_wire *wire,
		       const uint8_t *payload)
{
	f->number = (uint32_t)wire->tag;
	f->nkeys = wire->nkeys;
	memcpy(f->keys, payload, wire->nkeys * sizeof(f->keys[0]));
}

/* A fragment that the peer has announced before, over a way that went down.
 * One that is not here any more has been written, and one that goes by DATA is
 * on its way. */
static void ready_again(struct pinion_request *request,
			const struct pn_wire *wire, const uint8_t *payload,
			struct pn_way *way)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &request->fragments) {
		struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, link);

		if (f->offset != wire->offset || f->len != wire->len ||
		    (f->kind != PN_FRAGMENT_WRITE &&
		     f->kind != PN_FRAGMENT_LOST))
			continue;
		keep_ready(f, wire, payload);
		request->ep->stats.resent++;
		if (f->kind == PN_FRAGMENT_LOST) {
			begin_sending(f, way);
		} else {
			f->again = true;
			f->next_way = way;
		}
		return;
	}
}

static int on_ready(struct pinion_request *request, const struct pn_wire *wire,
		    const uint8_t *payload)
{
	struct pn_way *way = pn_way_to(request->peer, wire->protocol);
	struct pn_fragment *f;

	if (wire->nkeys && !way)
		return -EPROTO;
	if (wire->status) {
		ready_again(request, wire, payload, way);
		return 0;
	}
	if (!wire->len || wire->offset > request->total ||
	    wire->len > request->total - wire->offset ||
	    request->nfragments == MAX_FRAGMENTS)
		return -EPROTO;
	request->other = wire->from;
	f = fragment_add(request, PN_FRAGMENT_DATA, wire->offset, wire->len);
	if (!f) {
		fail(request, -ENOMEM);
		return 0;
	}
	keep_ready(f, wire, payload);
	begin_sending(f, way);
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

/* Announces a fragment of the target; without keys it asks for DATA. */
static int announce(struct pn_fragment *f)
{
	struct pinion_request *request = f->request;
	struct pn_wire_key keys[PN_WIRE_MAX_KEYS];
	struct pn_wire wire;

	packet_for(request, &wire, PN_WIRE_READY);
	f->number = pn_request_announce(request);
	wire.tag = f->number;
	wire.protocol = (uint8_t)(f->way->rail - request->ep->rails);
	wire.status = f->again;
	wire.offset = f->offset;
	wire.len = f->len;
	if (f->pinned && !pn_keys_export(&f->pin, &wire, keys))
		fragment_unpin(f);
	if (f->pinned)
		pn_rail_expect(f);
	return pn_packet_send(request->peer, &wire, keys,
			      wire.nkeys * sizeof(keys[0]), NULL);
}

/* Begins the next fragment. -EAGAIN: wait for those in flight. */
static int begin_fragment(struct pinion_request *request)
{
	struct pn_fragment *f;
	struct pn_way *way;
	size_t len;
	bool read;
	int ret = pn_rail_choose(request, &len, &way);

	if (ret)
		return ret;
	read = request->nkeys && pn_rail_readable(request, way);
	f = fragment_add(request, read ? PN_FRAGMENT_READ : PN_FRAGMENT_TARGET,
			 request->next, len);
	if (!f)
		return -ENOMEM;
	f->way = way;
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
	pn_rail_expect(f);
	start(f);
	return 0;
}

static void advance(struct pinion_request *request)
{
	while (request->next < request->total && !request->status) {
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
	pn_rail_expect_data(request);
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

/* The bytes that came with the MATCH. */
static void take_first(struct pinion_request *request, const uint8_t *payload,
		       size_t len)
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
	request->data = wire->to;
	request->has_data = wire->status & PN_WIRE_HAS_DATA;
	request->other = wire->from;
	request->message_len = wire->len;
	request->total = wire->len < request->len ? wire->len : request->len;
	request->ep->stats.received++;
	if (!wire->nkeys)
		take_first(request, payload, len);
	if (pn_likely(len == wire->len && !wire->nkeys)) {
		pn_request_end_short(request);
		return;
	}
	pn_list_append(&peer->requests, &request->peer_link);
	ret = pn_request_keep_keys(request, wire, payload);
	if (ret) {
		fail(request, ret);
		return;
	}
	if (peer->down) {
		pn_request_end(request, peer->down);
		return;
	}
	if (!request->late) {
		request->began_ns = pn_device_now(request->ep->device);
		pn_helper_need(&request->call, request->began_ns);
	}
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
		pn_rail_data(request, len);
	} else {
		f->arrived += len;
		if (f->arrived == f->len)
			fragment_drop(f);
	}
	receiver_moved(request, len);
	return 0;
}

/* A fragment of the target has its bytes. The next one is registered and
 * announced before this one is released: the sender waits for the former. The
 * last is released first: at its request's end nothing is in use any more. */
static void landed(struct pn_fragment *f)
{
	struct pinion_request *request = f->request;
	struct pinion_endpoint *ep = request->ep;

	pn_rail_forget(f, true);
	if (request->nfragments == 1 && request->next == request->total) {
		f->inflight++; /* in virtual time others may run */
		fragment_unpin(f);
		f->inflight--;
	}
	fragment_detach(f);
	receiver_moved(request, f->len);
	fragment_free(ep, f);
}

static int on_fin(struct pinion_request *request, const struct pn_wire *wire)
{
	struct pn_fragment *f = target_at(request, wire->offset);

	if (!f || !(f->pinned || f->again) || f->offset != wire->offset ||
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

/* --- ways that go down ---------------------------------------------------- */

/* Receiver: what was to come over another way is asked for again. Of a read
 * the sender has not heard before. */
static void announce_again(struct pn_fragment *f)
{
	struct pinion_request *request = f->request;
	int ret;

	pn_rail_forget(f, false);
	pn_list_remove(&f->stall);
	fragment_unpin(f);
	f->again |= f->kind == PN_FRAGMENT_TARGET;
	f->kind = PN_FRAGMENT_TARGET;
	f->status = 0;
	f->way = pn_rail_instead(request, f->len);
	if (fragment_pin(f, PINION_ACCESS_REMOTE_WRITE))
		request->ep->stats.copied_for_room++;
	request->ep->stats.resent++;
	ret = announce(f);
	if (ret)
		fail(request, ret);
}

/* Sender: all operations of a write have ended, not all well. */
static void lost(struct pn_fragment *f)
{
	struct pinion_request *request = f->request;
	size_t len = f->len;

	pn_list_remove(&f->stall);
	fragment_unpin(f);
	if (f->again) {
		begin_sending(f, f->next_way);
	} else if (f->way->swept) {
		fragment_drop(f);
		sender_moved(request, len);
	} else {
		f->kind = PN_FRAGMENT_LOST;
	}
}

/* A fragment whose way has gone; afterwards it is on another one, or LOST. */
static void take_off(struct pn_fragment *f, struct pn_way *instead)
{
	switch (f->kind) {
	case PN_FRAGMENT_WRITE:
		lost(f);
		return;
	case PN_FRAGMENT_READ:
		announce_again(f);
		return;
	case PN_FRAGMENT_TARGET:
		/* What comes by DATA is not concerned. */
		if (f->pinned && !f->arrived) {
			announce_again(f);
			return;
		}
		pn_rail_forget(f, false);
		fragment_unpin(f);
		f->way = instead;
		return;
	default:
		f->way = instead;
		if (pn_list_empty(&f->stall))
			return;
		pn_list_remove(&f->stall);
		stall(f);
	}
}

/* One that is on a way and not LOST; the device has none of them any more. */
static struct pn_fragment *next_on(struct pinion_request *request,
				   const struct pn_way *way)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &request->fragments) {
		struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, link);

		if (f->way == way && f->kind != PN_FRAGMENT_LOST &&
		    !f->inflight)
			return f;
	}
	return NULL;
}

void pn_transfer_way_down(struct pn_way *way)
{
	struct pinion_peer *peer = way->owner;
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &peer->requests) {
		struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, peer_link);
		struct pn_fragment *f;

		while (!request->ended && (f = next_on(request, way)))
			take_off(f, peer->way);
	}
}

static struct pn_fragment *next_lost(struct pinion_request *request,
				     const struct pn_way *way)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &request->fragments) {
		struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, link);

		if (f->way == way && f->kind == PN_FRAGMENT_LOST)
			return f;
	}
	return NULL;
}

void pn_transfer_swept(struct pn_way *way)
{
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &way->owner->requests) {
		struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, peer_link);
		struct pn_fragment *f;

		while (!request->ended && (f = next_lost(request, way))) {
			if (!request->status) {
				lost(f);
				continue;
			}
			fragment_drop(f);
			pn_request_end(request, request->status);
		}
	}
}

/* An operation ended so because its way does not work, not because of what it
 * was to do: a refusal says nothing of the way. */
static bool is_ways_fault(const struct pn_fragment *f)
{
	return f->status == -ECONNRESET && !f->request->status &&
	       pn_way_has_others(f->way);
}

/* Nothing was wrong with it: an operation before it was refused, and the device
 * had to start over. Of its own none was; what arrived is written once more. */
static bool is_innocent(const struct pn_fragment *f)
{
	return f->status == -ECANCELED && !f->request->status;
}

static void do_again(struct pn_fragment *f)
{
	pn_list_remove(&f->stall);
	f->status = 0;
	f->posted = 0;
	start(f);
}

/* The same of a request that has failed: it waits for the peer's DOWN. */
static bool is_lost_late(const struct pn_fragment *f)
{
	return f->status == -ECONNRESET && f->request->status &&
	       f->kind == PN_FRAGMENT_WRITE && !f->way->swept &&
	       !f->request->peer->down && pn_way_has_others(f->way);
}

static void lose_late(struct pn_fragment *f)
{
	fragment_unpin(f);
	f->kind = PN_FRAGMENT_LOST;
	pn_way_break(f->way);
}

/* PEER_DOWN comes behind the last of them and asks for what was to be read. */
static void way_failed(struct pn_fragment *f)
{
	struct pn_way *way = f->way;

	if (f->kind == PN_FRAGMENT_WRITE)
		lost(f);
	else if (way->down)
		announce_again(f);
	pn_way_break(way);
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
	if (pn_unlikely(f->status) && is_ways_fault(f)) {
		way_failed(f);
	} else if (pn_unlikely(f->status) && is_innocent(f)) {
		do_again(f);
	} else if (pn_unlikely(f->status) && is_lost_late(f)) {
		lose_late(f);
	} else if (f->status || request->status) {
		status = f->status;
		fragment_drop(f);
		fail(request, status);
	} else if (f->kind == PN_FRAGMENT_WRITE) {
		written(f);
	} else {
		landed(f);
	}
}

/* The source has been read: only one that was exposed. Writes that stood in for
 * reads have arrived; of some the device may not have told yet. */
static int on_done(struct pinion_request *request, const struct pn_wire *wire)
{
	struct pn_list *pos, *next;

	if (!request->exposed || !request->shape.read)
		return -EPROTO;
	pn_list_for_each_safe (pos, next, &request->fragments) {
		struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, link);

		if (f->kind == PN_FRAGMENT_DATA)
			return -EPROTO;
		if (f->kind == PN_FRAGMENT_LOST)
			fragment_drop(f);
	}
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
