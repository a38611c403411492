/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pieces: a request's bytes on their conn (see onesided.h).
 *
 * What cannot be pinned goes through a bounce buffer, so a request slows, but
 * does not fail for want of room (rule 5); one that has fragments in flight
 * waits for these first, since a shallower pipeline is faster than copying.
 */
#include <errno.h>
#include <stdlib.h>

#include "message/connection/connection.h"
#include "message/connection/keys.h"
#include "message/connection/packet.h"
#include "message/endpoint/request.h"
#include "message/onesided/onesided_impl.h"

/* --- life of a fragment ------------------------------------------------------
 */

static struct pn_onesided_fragment *fragment_alloc(
	struct pinion_request *request, size_t len)
{
	struct pn_list *link = pn_list_pop(&request->ep->onesided.fragments);
	struct pn_onesided_fragment *p =
		link ? pn_container_of(link, struct pn_onesided_fragment, link)
		     : malloc(sizeof(*p));

	if (!p)
		return NULL;
	*p = (struct pn_onesided_fragment){
		.operation = { PN_OPERATION_ONESIDED, request->ep },
		.path = request->onesided.path,
		.request = request,
		.offset = request->transfer.next,
		.len = len
	};
	pn_list_init(&p->link);
	pn_list_init(&p->stall_link);
	return p;
}

static void fragment_free(struct pinion_endpoint *ep,
			  struct pn_onesided_fragment *p)
{
	if (p->pin.nsegments)
		pn_cache_unpin(ep->cache, &p->pin);
	if (p->bounce_buffer)
		pn_bounce_buffer_put(ep, p->bounce_buffer);
	pn_list_insert(&ep->onesided.fragments, &p->link);
}

/* Nothing is left to post of it. */
static void posted_all(struct pn_onesided_fragment *p)
{
	p->request->onesided.npending -= p->counted;
	p->counted = false;
}

static void fragment_drop(struct pn_onesided_fragment *p)
{
	posted_all(p);
	pn_list_remove(&p->stall_link);
	pn_list_remove(&p->link);
	p->request->onesided.nfragments--;
	fragment_free(p->request->ep, p);
}

/* Of a conditional write that a conn has lost nothing lands any more when the
 * peer has said DOWN: then it is told that the write has failed. */
static bool may_still_write(const struct pn_onesided_fragment *p)
{
	const struct pinion_peer *peer = p->request->peer;

	return p->lost && !peer->conns[0].down_received && !peer->down;
}

void pn_onesided_abandon(struct pinion_request *request)
{
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &request->onesided.fragments) {
		struct pn_onesided_fragment *p =
			pn_container_of(pos, struct pn_onesided_fragment, link);

		pn_list_remove(&p->stall_link);
		if (!p->inflight && !may_still_write(p))
			fragment_drop(p);
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

void pn_onesided_free_fragments(struct pinion_endpoint *ep)
{
	struct pn_list *link;

	while ((link = pn_list_pop(&ep->onesided.fragments)))
		free(pn_container_of(link, struct pn_onesided_fragment, link));
}

/* --- posting -------------------------------------------------------------- */

static bool is_write(const struct pinion_request *request)
{
	return request->kind == PN_REQUEST_PUT ||
	       request->kind == PN_REQUEST_PUT_WHEN;
}

/* Where the device finds the fragment's n-th byte, and how far that goes. */
static struct pn_sge local_at(const struct pn_onesided_fragment *p, size_t n)
{
	struct pinion_request *request = p->request;

	switch (p->path) {
	case PN_PATH_PINNED:
		return pn_pin_at(&p->pin, n);
	case PN_PATH_BOUNCED:
		return (struct pn_sge){
			p->bounce_buffer->data + n, p->len - n,
			request->ep->onesided.bounce_pool.memory.mrs[0].lkey
		};
	default:
		return (struct pn_sge){ request->buf + p->offset + n,
					p->len - n, 0 };
	}
}

/* A conditional write that is one operation tells the target by itself. One of
 * several must not: the target would believe what was refused before it. */
static void set_flags(struct pn_onesided_fragment *p, struct pn_op *op)
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

static int post_one(struct pn_onesided_fragment *p)
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
	ret = pn_device_post(device, request->peer->conns[0].device_peer, &op);
	if (ret)
		return ret;
	request->ep->noperations++;
	p->inflight++;
	p->posted += sge.len;
	o->fence = false;
	o->notified |= !!(op.flags & PN_OP_IMM);
	if (op.flags & PN_OP_INLINE)
		pn_device_consume_cpu(device,
				      (uint64_t)((double)sge.len *
						 device->costs.copy_byte_ns));
	return 0;
}

static int post_packet(struct pn_onesided_fragment *p)
{
	struct pinion_request *request = p->request;
	size_t at = p->offset + p->posted, len = p->len - p->posted;
	struct pn_wire wire = { .version = PN_WIRE_VERSION,
				.kind = PN_WIRE_DATA,
				.to = request->remote_id,
				.from = request->id,
				.offset = at };
	int ret;

	if (len > request->ep->limits.packet_bytes)
		len = request->ep->limits.packet_bytes;
	ret = pn_packet_try_send(request->peer, &wire, request->buf + at, len);
	if (!ret)
		p->posted += len;
	return ret;
}

/* Gets a bounce buffer, filled if it is to be written from. */
static int take_bounce_buffer(struct pn_onesided_fragment *p)
{
	struct pinion_request *request = p->request;
	struct pinion_endpoint *ep = request->ep;

	p->bounce_buffer = pn_bounce_buffer_get(ep, p->len);
	if (!p->bounce_buffer)
		return -EAGAIN;
	if (is_write(request))
		pn_copy(ep->device, p->bounce_buffer->data,
			request->buf + p->offset, p->len);
	ep->stats.bounced++;
	return 0;
}

/* Posts as much as goes now. Memory is exposed on the first rail alone: when
 * that is down it cannot be reached, though the peer lives. */
static int post(struct pn_onesided_fragment *p)
{
	const struct pn_connection *conn = &p->request->peer->conns[0];
	int ret = 0;

	if (!conn->up)
		return conn->down ? conn->down : -EAGAIN;
	if (p->path == PN_PATH_BOUNCED && !p->bounce_buffer)
		ret = take_bounce_buffer(p);
	while (!ret && p->posted < p->len && !p->status && !p->request->status)
		ret = p->path == PN_PATH_PACKETS ? post_packet(p) : post_one(p);
	return ret;
}

/* --- arriving ------------------------------------------------------------- */

/* The bytes of a landed get or atomic go where they are wanted. */
static void copy_out(struct pn_onesided_fragment *p)
{
	struct pinion_request *request = p->request;

	if (p->bounce_buffer && !is_write(request) && request->buf)
		pn_copy(request->ep->device, request->buf + p->offset,
			p->bounce_buffer->data, p->len);
}

static void fail(struct pinion_request *request, int status)
{
	request->sends_fail |= request->kind == PN_REQUEST_PUT_WHEN && status &&
			       !request->status;
	pn_request_end(request, status);
}

/* Looks what an operation's end, or the end of posting, means for the fragment.
 */
static void check_complete(struct pn_onesided_fragment *p)
{
	struct pinion_request *request = p->request;
	int status = p->status;

	if (p->inflight)
		return;
	if (status || request->status) {
		p->lost = status == -ECONNRESET &&
			  request->kind == PN_REQUEST_PUT_WHEN;
		if (!may_still_write(p))
			fragment_drop(p);
		fail(request, status);
		return;
	}
	if (p->posted < p->len)
		return;
	p->inflight++; /* copying may let others run */
	copy_out(p);
	p->inflight--;
	request->moved += p->len;
	fragment_drop(p);
	pn_onesided_advance(request);
}

void pn_onesided_done(struct pn_onesided_fragment *p, int status)
{
	p->inflight--;
	if (status && !p->status)
		p->status = status;
	check_complete(p);
}

static void check_posted(struct pinion_request *request)
{
	if (request->transfer.next == request->total &&
	    !request->onesided.npending)
		pn_onesided_posted(request);
}

/* -EAGAIN: there is more to post. */
static int post_and_check(struct pn_onesided_fragment *p)
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
	posted_all(p);
	/* Before it can end: those behind a fence are next. */
	check_posted(request);
	check_complete(p);
	return 0;
}

static void start(struct pn_onesided_fragment *p)
{
	struct pinion_peer *peer = p->request->peer;

	p->request->onesided.npending++;
	p->counted = true;
	if (pn_list_empty(&peer->onesided.stalled) &&
	    post_and_check(p) != -EAGAIN)
		return;
	pn_list_append(&peer->onesided.stalled, &p->stall_link);
	pn_peer_add_pending(peer);
}

bool pn_onesided_post_stalled(struct pinion_peer *peer)
{
	struct pn_list *stalled = &peer->onesided.stalled, *link;
	bool moved = false;

	/* Pumping one may end others' requests, so take them one by one. */
	while ((link = pn_list_pop(stalled))) {
		struct pn_onesided_fragment *p =
			pn_container_of(link, struct pn_onesided_fragment,
					stall_link);
		size_t before = p->posted;

		if (post_and_check(p) == -EAGAIN) {
			pn_list_insert(stalled, link);
			return moved || p->posted != before;
		}
		moved = true;
	}
	return moved;
}

/* --- cutting -------------------------------------------------------------- */

/* Pinned fragments end where the caching pipeline's fragments do, so that both
 * find each other's registrations. What is no longer than one is not cut: two
 * registrations cost more than one. */
static size_t fragment_len(const struct pinion_request *request)
{
	size_t left = request->total - request->transfer.next, most = left;
	size_t segment = request->ep->limits.segment_bytes;

	if (request->onesided.path == PN_PATH_PINNED &&
	    request->total > segment)
		most = segment -
		       (((uintptr_t)request->buf + request->transfer.next) &
			(segment - 1));
	else if (request->onesided.path == PN_PATH_BOUNCED)
		most = PN_BOUNCE_BUFFER_BYTES;
	return most < left ? most : left;
}

static int pin(struct pn_onesided_fragment *p)
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
static int without_pin(struct pn_onesided_fragment *p, int why)
{
	struct pinion_request *request = p->request;

	if (why == -ENOBUFS && !pn_list_empty(&request->onesided.fragments))
		return -EAGAIN;
	if (pn_copy_check(request->ep->device, why, request->buf + p->offset,
			  p->len, !is_write(request)))
		return -EFAULT;
	p->path = PN_PATH_BOUNCED;
	if (p->len > PN_BOUNCE_BUFFER_BYTES)
		p->len = PN_BOUNCE_BUFFER_BYTES;
	request->ep->stats.copied_no_budget++;
	return 0;
}

/* Cuts the next fragment. -EAGAIN: not now. A grant that has not come leaves
 * time: then what cannot be pinned is not cut either. */
static int cut(struct pinion_request *request,
	       struct pn_onesided_fragment **out)
{
	bool ahead = request->kind == PN_REQUEST_PUT_WHEN &&
		     !request->onesided.granted;
	struct pn_onesided_fragment *p =
		fragment_alloc(request, fragment_len(request));
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
		fragment_free(request->ep, p);
		return ret;
	}
	request->transfer.next += p->len;
	request->onesided.nfragments++;
	pn_list_append(&request->onesided.fragments, &p->link);
	*out = p;
	return 0;
}

static unsigned depth_of(const struct pinion_request *request)
{
	return request->onesided.path == PN_PATH_BOUNCED
		       ? PN_NBOUNCE_BUFFERS
		       : request->ep->limits.depth;
}

/* Cuts fragments as deep as the pipeline is; 0, -EAGAIN, or why it fails. */
static int fill_pipeline(struct pinion_request *request, bool go)
{
	struct pn_onesided *o = &request->onesided;
	int ret = 0;

	/* One of nfragments is the caller. */
	while (!ret && !request->status &&
	       request->transfer.next < request->total &&
	       o->nfragments <= depth_of(request)) {
		struct pn_onesided_fragment *p;

		ret = cut(request, &p);
		if (!ret && (go || o->granted))
			start(p);
	}
	return ret;
}

/* Whoever worked on the request looks whether it has ended meanwhile. */
static void end_if_complete(struct pinion_request *request)
{
	struct pn_onesided *o = &request->onesided;
	int ret;

	if (request->status) {
		pn_request_end(request, request->status);
		return;
	}
	if (request->moved < request->total || o->nfragments || request->ended)
		return;
	ret = request->kind == PN_REQUEST_PUT_WHEN ? pn_grant_send_fin(request)
						   : 0;
	pn_request_end(request, ret);
}

static void work(struct pinion_request *request, bool go)
{
	struct pn_onesided *o = &request->onesided;
	int ret;

	if (o->advancing)
		return;
	o->advancing = true;
	o->nfragments++;
	ret = fill_pipeline(request, go);
	o->nfragments--;
	o->advancing = false;
	if (ret && ret != -EAGAIN)
		fail(request, ret);
	else if (go || request->status)
		end_if_complete(request);
	else if (o->granted) /* while others ran */
		work(request, true);
}

void pn_onesided_advance(struct pinion_request *request)
{
	work(request, true);
}

void pn_onesided_prepare(struct pinion_request *request)
{
	work(request, false);
}

/* Without keys the bytes go by packets, whatever was prepared. */
static void switch_to_packets(struct pinion_request *request)
{
	struct pinion_endpoint *ep = request->ep;

	pn_onesided_abandon(request);
	request->transfer.next = 0;
	request->onesided.path = PN_PATH_PACKETS;
	ep->stats.copied_no_budget++;
}

/* One that fails gives up those in the list: what is still to be started is
 * kept apart. */
void pn_onesided_granted(struct pinion_request *request)
{
	struct pn_onesided *o = &request->onesided;
	struct pn_list prepared, *link;

	if (!o->nkeys && request->total)
		switch_to_packets(request);
	pn_list_init(&prepared);
	pn_list_splice(&prepared, &o->fragments);
	o->nfragments++;
	while ((link = pn_list_pop(&prepared))) {
		struct pn_onesided_fragment *p =
			pn_container_of(link, struct pn_onesided_fragment,
					link);

		pn_list_append(&o->fragments, link);
		if (request->status)
			fragment_drop(p);
		else
			start(p);
	}
	o->nfragments--;
	pn_onesided_advance(request);
}
