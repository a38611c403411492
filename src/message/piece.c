/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pieces: a request's bytes on their way (see onesided.h).
 *
 * What cannot be pinned goes through a bounce buffer, so a request slows, but
 * does not fail for want of room (rule 5); one that has pieces in flight waits
 * for these first, since a shallower pipeline is faster than copying.
 */
#include <errno.h>
#include <stdlib.h>

#include "message/message_impl.h"

/* --- life of a piece ------------------------------------------------------ */

static struct pn_piece *piece_alloc(struct pinion_request *request, size_t len)
{
	struct pn_list *link = pn_list_pop(&request->ep->onesided.pieces);
	struct pn_piece *p = link ? pn_container_of(link, struct pn_piece, link)
				  : malloc(sizeof(*p));

	if (!p)
		return NULL;
	*p = (struct pn_piece){ .track = { PN_TRACK_PIECE, request->ep },
				.path = request->onesided.path,
				.request = request,
				.offset = request->next,
				.len = len };
	pn_list_init(&p->link);
	pn_list_init(&p->stall);
	return p;
}

static void piece_free(struct pinion_endpoint *ep, struct pn_piece *p)
{
	if (p->pin.nsegments)
		pn_cache_unpin(ep->cache, &p->pin);
	if (p->landing)
		pn_landing_give(ep, p->landing);
	pn_list_insert(&ep->onesided.pieces, &p->link);
}

/* Nothing is left to post of it. */
static void uncount(struct pn_piece *p)
{
	p->request->onesided.npending -= p->counted;
	p->counted = false;
}

static void piece_drop(struct pn_piece *p)
{
	uncount(p);
	pn_list_remove(&p->stall);
	pn_list_remove(&p->link);
	p->request->onesided.npieces--;
	piece_free(p->request->ep, p);
}

/* Of a conditional write that a way has lost nothing lands any more when the
 * peer has said DOWN: then it is told that the write has failed. */
static bool may_land(const struct pn_piece *p)
{
	const struct pinion_peer *peer = p->request->peer;

	return p->lost && !peer->ways[0].swept && !peer->down;
}

void pn_onesided_abandon(struct pinion_request *request)
{
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &request->onesided.pieces) {
		struct pn_piece *p =
			pn_container_of(pos, struct pn_piece, link);

		pn_list_remove(&p->stall);
		if (!p->inflight && !may_land(p))
			piece_drop(p);
	}
}

void pn_onesided_swept(struct pinion_peer *peer)
{
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &peer->requests) {
		struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, peer_link);

		if (request->kind == PN_REQUEST_PUT_WHEN && request->status)
			pn_request_end(request, request->status);
	}
}

void pn_pieces_free(struct pinion_endpoint *ep)
{
	struct pn_list *link;

	while ((link = pn_list_pop(&ep->onesided.pieces)))
		free(pn_container_of(link, struct pn_piece, link));
}

/* --- posting -------------------------------------------------------------- */

static bool is_write(const struct pinion_request *request)
{
	return request->kind == PN_REQUEST_PUT ||
	       request->kind == PN_REQUEST_PUT_WHEN;
}

/* Where the device finds the piece's n-th byte, and how far that goes. */
static struct pn_sge local_at(const struct pn_piece *p, size_t n)
{
	struct pinion_request *request = p->request;

	switch (p->path) {
	case PN_PATH_PINNED:
		return pn_pin_at(&p->pin, n);
	case PN_PATH_LANDED:
		return (struct pn_sge){
			p->landing->data + n, p->len - n,
			request->ep->onesided.landings.mr.lkey
		};
	default:
		return (struct pn_sge){ request->buf + p->offset + n,
					p->len - n, 0 };
	}
}

/* A conditional write that is one operation tells the target by itself. One of
 * several must not: the target would believe what was refused before it. */
static void set_flags(struct pn_piece *p, struct pn_op *op)
{
	struct pinion_request *request = p->request;
	struct pn_onesided *o = &request->onesided;

	if (p->path == PN_PATH_INLINE)
		op->flags |= PN_OP_INLINE;
	if (o->fence)
		op->flags |= PN_OP_FENCE;
	if (request->kind == PN_REQUEST_PUT_WHEN &&
	    op->sge->len == request->total &&
	    request->ep->device->caps & PN_CAP_WRITE_IMM) {
		op->flags |= PN_OP_IMM;
		op->imm = o->number;
	}
}

static int post_one(struct pn_piece *p)
{
	struct pinion_request *request = p->request;
	struct pn_onesided *o = &request->onesided;
	struct pn_device *device = request->ep->device;
	struct pn_sge sge = local_at(p, p->posted);
	struct pn_wire_key to =
		pn_keys_at(o->keys, o->nkeys, o->at + p->offset + p->posted);
	struct pn_op op = { .kind = o->op,
			    .sge = &sge,
			    .nsge = 1,
			    .remote_addr = to.addr,
			    .rkey = to.rkey,
			    .operand = o->operand,
			    .compare = o->compare,
			    .user = p };
	int ret;

	if (!to.len)
		return -EACCES;
	if (sge.len > to.len)
		sge.len = to.len;
	if (sge.len > p->len - p->posted)
		sge.len = p->len - p->posted;
	if (sge.len > device->limits.max_op_bytes)
		sge.len = device->limits.max_op_bytes;
	set_flags(p, &op);
	ret = pn_device_post(device, request->peer->ways[0].peer, &op);
	if (ret)
		return ret;
	request->ep->noperations++;
	p->inflight++;
	p->posted += sge.len;
	o->fence = false;
	o->notified |= !!(op.flags & PN_OP_IMM);
	if (op.flags & PN_OP_INLINE)
		pn_device_charge(device,
				 (uint64_t)((double)sge.len *
					    device->costs.copy_byte_ns));
	return 0;
}

static int post_packet(struct pn_piece *p)
{
	struct pinion_request *request = p->request;
	size_t at = p->offset + p->posted, len = p->len - p->posted;
	struct pn_wire wire = { .version = PN_WIRE_VERSION,
				.kind = PN_WIRE_DATA,
				.to = request->other,
				.from = request->id,
				.offset = at };
	int ret;

	if (len > request->ep->limits.packet_bytes)
		len = request->ep->limits.packet_bytes;
	ret = pn_packet_try(request->peer, &wire, request->buf + at, len);
	if (!ret)
		p->posted += len;
	return ret;
}

/* Gets a bounce buffer, filled if it is to be written from. */
static int land(struct pn_piece *p)
{
	struct pinion_request *request = p->request;
	struct pinion_endpoint *ep = request->ep;

	p->landing = pn_landing_take(ep, p->len);
	if (!p->landing)
		return -EAGAIN;
	if (is_write(request))
		pn_copy(ep->device, p->landing->data, request->buf + p->offset,
			p->len);
	ep->stats.bounced++;
	return 0;
}

/* Posts as much as goes now. Memory is exposed on the first rail alone: when
 * that is down it cannot be reached, though the peer lives. */
static int post(struct pn_piece *p)
{
	const struct pn_way *way = &p->request->peer->ways[0];
	int ret = 0;

	if (!way->up)
		return way->down ? way->down : -EAGAIN;
	if (p->path == PN_PATH_LANDED && !p->landing)
		ret = land(p);
	while (!ret && p->posted < p->len && !p->status && !p->request->status)
		ret = p->path == PN_PATH_PACKETS ? post_packet(p) : post_one(p);
	return ret;
}

/* --- arriving ------------------------------------------------------------- */

/* The bytes of a landed get or atomic go where they are wanted. */
static void take_off(struct pn_piece *p)
{
	struct pinion_request *request = p->request;

	if (p->landing && !is_write(request) && request->buf)
		pn_copy(request->ep->device, request->buf + p->offset,
			p->landing->data, p->len);
}

static void fail(struct pinion_request *request, int status)
{
	request->tells |= request->kind == PN_REQUEST_PUT_WHEN && status &&
			  !request->status;
	pn_request_end(request, status);
}

/* Looks what an operation's end, or the end of posting, means for the piece. */
static void settle(struct pn_piece *p)
{
	struct pinion_request *request = p->request;
	int status = p->status;

	if (p->inflight)
		return;
	if (status || request->status) {
		p->lost = status == -ECONNRESET &&
			  request->kind == PN_REQUEST_PUT_WHEN;
		if (!may_land(p))
			piece_drop(p);
		fail(request, status);
		return;
	}
	if (p->posted < p->len)
		return;
	p->inflight++; /* copying may let others run */
	take_off(p);
	p->inflight--;
	request->moved += p->len;
	piece_drop(p);
	pn_pieces_advance(request);
}

void pn_onesided_done(struct pn_piece *p, int status)
{
	p->inflight--;
	if (status && !p->status)
		p->status = status;
	settle(p);
}

static void look_posted(struct pinion_request *request)
{
	if (request->next == request->total && !request->onesided.npending)
		pn_onesided_posted(request);
}

/* -EAGAIN: there is more to post. */
static int pump(struct pn_piece *p)
{
	struct pinion_request *request = p->request;
	int ret;

	p->inflight++;
	ret = post(p);
	p->inflight--;
	if (ret == -EAGAIN && !p->status && !request->status)
		return ret;
	if (ret && ret != -EAGAIN && !p->status)
		p->status = ret;
	uncount(p);
	/* Before it can end: those behind a fence are next. */
	look_posted(request);
	settle(p);
	return 0;
}

static void start(struct pn_piece *p)
{
	struct pinion_peer *peer = p->request->peer;

	p->request->onesided.npending++;
	p->counted = true;
	if (pn_list_empty(&peer->onesided.stalled) && pump(p) != -EAGAIN)
		return;
	pn_list_append(&peer->onesided.stalled, &p->stall);
	pn_peer_busy(peer);
}

bool pn_onesided_pump(struct pinion_peer *peer)
{
	struct pn_list *stalled = &peer->onesided.stalled, *link;
	bool moved = false;

	/* Pumping one may end others' requests, so take them one by one. */
	while ((link = pn_list_pop(stalled))) {
		struct pn_piece *p =
			pn_container_of(link, struct pn_piece, stall);
		size_t before = p->posted;

		if (pump(p) == -EAGAIN) {
			pn_list_insert(stalled, link);
			return moved || p->posted != before;
		}
		moved = true;
	}
	return moved;
}

/* --- cutting -------------------------------------------------------------- */

/* Pinned pieces end where the caching pipeline's fragments do, so that both
 * find each other's registrations. What is no longer than one is not cut: two
 * registrations cost more than one. */
static size_t piece_len(const struct pinion_request *request)
{
	size_t left = request->total - request->next, most = left;
	size_t segment = request->ep->limits.segment_bytes;

	if (request->onesided.path == PN_PATH_PINNED &&
	    request->total > segment)
		most = segment - (((uintptr_t)request->buf + request->next) &
				  (segment - 1));
	else if (request->onesided.path == PN_PATH_LANDED)
		most = PN_LANDING_BYTES;
	return most < left ? most : left;
}

static int pin(struct pn_piece *p)
{
	struct pinion_request *request = p->request;
	unsigned access = is_write(request) ? 0 : PINION_ACCESS_LOCAL_WRITE;
	struct pinion_pin got = { 0 };
	int ret = pn_cache_pin(request->ep->cache, request->buf + p->offset,
			       p->len, access, &got);

	if (!ret)
		p->pin = got;
	return ret;
}

/* Without a pin: wait for one (-EAGAIN), or through a bounce buffer. -EFAULT:
 * there is no memory to copy. */
static int without_pin(struct pn_piece *p, int why)
{
	struct pinion_request *request = p->request;

	if (why == -ENOBUFS && !pn_list_empty(&request->onesided.pieces))
		return -EAGAIN;
	if (pn_copy_check(request->ep->device, why, request->buf + p->offset,
			  p->len, !is_write(request)))
		return -EFAULT;
	p->path = PN_PATH_LANDED;
	if (p->len > PN_LANDING_BYTES)
		p->len = PN_LANDING_BYTES;
	request->ep->stats.copied_no_budget++;
	return 0;
}

/* Cuts the next piece. -EAGAIN: not now. A grant that has not come leaves time:
 * then what cannot be pinned is not cut either. */
static int cut(struct pinion_request *request, struct pn_piece **out)
{
	bool ahead = request->kind == PN_REQUEST_PUT_WHEN &&
		     !request->onesided.granted;
	struct pn_piece *p = piece_alloc(request, piece_len(request));
	enum pn_path path = request->onesided.path;
	int ret = 0;

	if (!p)
		return -ENOMEM;
	if (p->path == PN_PATH_PINNED) {
		ret = pin(p);
		if (ret && !request->status)
			ret = ahead ? -EAGAIN : without_pin(p, ret);
	}
	/* Failed, or granted without keys, while others ran. */
	if (request->status || request->onesided.path != path)
		ret = -EAGAIN;
	if (ret) {
		piece_free(request->ep, p);
		return ret;
	}
	request->next += p->len;
	request->onesided.npieces++;
	pn_list_append(&request->onesided.pieces, &p->link);
	*out = p;
	return 0;
}

static unsigned depth_of(const struct pinion_request *request)
{
	return request->onesided.path == PN_PATH_LANDED
		       ? PN_NLANDINGS
		       : request->ep->limits.depth;
}

/* Cuts pieces as deep as the pipeline is; 0, -EAGAIN, or why it fails. */
static int cut_all(struct pinion_request *request, bool go)
{
	struct pn_onesided *o = &request->onesided;
	int ret = 0;

	/* One of npieces is the caller. */
	while (!ret && !request->status && request->next < request->total &&
	       o->npieces <= depth_of(request)) {
		struct pn_piece *p;

		ret = cut(request, &p);
		if (!ret && (go || o->granted))
			start(p);
	}
	return ret;
}

/* Whoever worked on the request looks whether it has ended meanwhile. */
static void conclude(struct pinion_request *request)
{
	struct pn_onesided *o = &request->onesided;
	int ret;

	if (request->status) {
		pn_request_end(request, request->status);
		return;
	}
	if (request->moved < request->total || o->npieces || request->ended)
		return;
	ret = request->kind == PN_REQUEST_PUT_WHEN ? pn_grant_tell(request) : 0;
	pn_request_end(request, ret);
}

static void work(struct pinion_request *request, bool go)
{
	struct pn_onesided *o = &request->onesided;
	int ret;

	if (o->advancing)
		return;
	o->advancing = true;
	o->npieces++;
	ret = cut_all(request, go);
	o->npieces--;
	o->advancing = false;
	if (ret && ret != -EAGAIN)
		fail(request, ret);
	else if (go || request->status)
		conclude(request);
	else if (o->granted) /* while others ran */
		work(request, true);
}

void pn_pieces_advance(struct pinion_request *request)
{
	work(request, true);
}

void pn_pieces_prepare(struct pinion_request *request)
{
	work(request, false);
}

/* Without keys the bytes go by packets, whatever was prepared. */
static void by_packets(struct pinion_request *request)
{
	struct pinion_endpoint *ep = request->ep;

	pn_onesided_abandon(request);
	request->next = 0;
	request->onesided.path = PN_PATH_PACKETS;
	ep->stats.copied_no_budget++;
}

/* One that fails gives up those in the list: what is still to be started is
 * kept apart. */
void pn_pieces_release(struct pinion_request *request)
{
	struct pn_onesided *o = &request->onesided;
	struct pn_list prepared, *link;

	if (!o->nkeys && request->total)
		by_packets(request);
	pn_list_init(&prepared);
	pn_list_splice(&prepared, &o->pieces);
	o->npieces++;
	while ((link = pn_list_pop(&prepared))) {
		struct pn_piece *p =
			pn_container_of(link, struct pn_piece, link);

		pn_list_append(&o->pieces, link);
		if (request->status)
			piece_drop(p);
		else
			start(p);
	}
	o->npieces--;
	pn_pieces_advance(request);
}
