/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fragments of one-sided operations: how a request is cut, and how its
 * fragments are posted and end (rdma.h). onesided.h tells the story.
 *
 * A fragment that cannot be pinned goes through a bounce buffer: a lack of
 * budget (rule 5 of CONTRIBUTING.md) slows a request but does not fail it. A
 * request that has fragments in flight waits for these first, since a shallower
 * pipeline is faster than copying.
 */
#include <errno.h>

#include "message/connection/keys.h"
#include "message/onesided/onesided_impl.h"

static const struct pn_rdma_ops onesided_ops;

/* --- life of a fragment --------------------------------------------------- */

static struct pn_onesided_fragment *fragment_of(
	const struct pn_rdma_fragment *rdma)
{
	return pn_container_of(rdma, struct pn_onesided_fragment, rdma);
}

static struct pn_onesided_fragment *fragment_at(const struct pn_list *link)
{
	return pn_container_of(link, struct pn_onesided_fragment, rdma.link);
}

static struct pn_onesided_fragment *fragment_alloc(
	struct pinion_request *request, size_t len)
{
	struct pn_onesided_fragment *f =
		pn_pool_get(&request->ep->onesided.fragments);

	if (!f)
		return NULL;
	pn_rdma_init(&f->rdma, &onesided_ops, request, request->transfer.next,
		     len);
	pn_list_init(&f->rdma.link);
	f->rdma.conn = &request->peer->conns[0];
	f->path = request->onesided.path;
	f->pending = false;
	f->bounce_buffer = NULL;
	return f;
}

static void fragment_free(struct pn_onesided_fragment *f)
{
	struct pinion_endpoint *ep = f->rdma.request->ep;

	pn_rdma_unpin(&f->rdma);
	if (f->bounce_buffer)
		pn_bounce_buffer_put(ep, f->bounce_buffer);
	pn_pool_put(&ep->onesided.fragments, f);
}

static void not_pending(struct pn_onesided_fragment *f)
{
	f->rdma.request->onesided.npending -= f->pending;
	f->pending = false;
}

static void drop(struct pn_rdma_fragment *rdma)
{
	struct pn_onesided_fragment *f = fragment_of(rdma);

	not_pending(f);
	pn_rdma_unstall(rdma);
	pn_list_remove(&rdma->link);
	rdma->request->onesided.nfragments--;
	fragment_free(f);
}

void pn_onesided_remote_down(struct pinion_peer *peer)
{
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &peer->requests) {
		struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, peer_link);

		if (request->kind == PN_REQUEST_PUT_WHEN && request->status)
			pn_request_end(request, request->status);
	}
}

void pn_onesided_unpin_fragments(struct pinion_request *request)
{
	struct pn_list *link;

	while ((link = pn_list_pop(&request->onesided.fragments))) {
		pn_rdma_unpin(&fragment_at(link)->rdma);
		pn_pool_put(&request->ep->onesided.fragments,
			    fragment_at(link));
	}
}

void pn_onesided_free_fragments(struct pinion_endpoint *ep)
{
	pn_pool_fini(&ep->onesided.fragments);
}

/* --- operations ----------------------------------------------------------- */

static bool is_write(const struct pinion_request *request)
{
	return request->kind == PN_REQUEST_PUT ||
	       request->kind == PN_REQUEST_PUT_WHEN;
}

/* Gets a bounce buffer, and fills it for a write. */
static int prepare(struct pn_rdma_fragment *rdma)
{
	struct pn_onesided_fragment *f = fragment_of(rdma);
	struct pinion_request *request = rdma->request;
	struct pinion_endpoint *ep = request->ep;

	if (f->path != PN_PATH_BOUNCED || f->bounce_buffer)
		return 0;
	f->bounce_buffer = pn_bounce_buffer_get(ep, rdma->len);
	if (!f->bounce_buffer)
		return -EAGAIN;
	if (is_write(request))
		pn_copy(ep->device, f->bounce_buffer->data,
			request->buf + rdma->offset, rdma->len);
	ep->stats.bounced++;
	return 0;
}

static struct pn_sge local_sge(const struct pn_onesided_fragment *f)
{
	const struct pn_rdma_fragment *rdma = &f->rdma;
	struct pinion_request *request = rdma->request;
	size_t left = rdma->len - rdma->posted;

	switch (f->path) {
	case PN_PATH_PINNED:
		return pn_pin_at(&rdma->pin, rdma->posted);
	case PN_PATH_BOUNCED:
		return (struct pn_sge){
			f->bounce_buffer->data + rdma->posted, left,
			request->ep->onesided.bounce_pool.memory.mrs[0].lkey
		};
	default:
		return (struct pn_sge){
			request->buf + rdma->offset + rdma->posted, left, 0
		};
	}
}

static int locate(const struct pn_rdma_fragment *rdma, struct pn_sge *local,
		  struct pn_wire_key *remote)
{
	const struct pn_onesided *o = &rdma->request->onesided;

	*local = local_sge(fragment_of(rdma));
	*remote = pn_keys_at(o->keys, o->nkeys,
			     o->at + rdma->offset + rdma->posted);
	return remote->len ? 0 : -EACCES;
}

/* A conditional write of one operation notifies the target by itself. A write
 * of several operations must not: an earlier one may have been refused. */
static void describe(const struct pn_rdma_fragment *rdma, struct pn_op *op)
{
	const struct pinion_request *request = rdma->request;
	const struct pn_onesided *o = &request->onesided;

	op->kind = o->op;
	op->operand = o->operand;
	op->compare = o->compare;
	if (fragment_of(rdma)->path == PN_PATH_INLINE)
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

static void posted(struct pn_rdma_fragment *rdma, const struct pn_op *op)
{
	struct pn_device *device = rdma->request->ep->device;
	struct pn_onesided *o = &rdma->request->onesided;

	o->fence = false;
	o->notified |= !!(op->flags & PN_OP_IMM);
	if (op->flags & PN_OP_INLINE)
		pn_device_consume_cpu(device,
				      (uint64_t)((double)op->sge->len *
						 device->costs.copy_byte_ns));
}

/* Before the fragment can end: requests behind a fence may start now. */
static void posted_all(struct pn_rdma_fragment *rdma)
{
	struct pinion_request *request = rdma->request;

	not_pending(fragment_of(rdma));
	if (request->transfer.next == request->total &&
	    !request->onesided.npending)
		pn_onesided_posted(request);
}

/* --- the end -------------------------------------------------------------- */

/* The bytes of a get or an atomic go from the bounce buffer to the program's.
 */
static void copy_out(const struct pn_onesided_fragment *f)
{
	struct pinion_request *request = f->rdma.request;

	if (f->bounce_buffer && !is_write(request) && request->buf)
		pn_copy(request->ep->device, request->buf + f->rdma.offset,
			f->bounce_buffer->data, f->rdma.len);
}

static void fail(struct pinion_request *request, int status)
{
	request->sends_fail |= request->kind == PN_REQUEST_PUT_WHEN && status &&
			       !request->status;
	pn_request_end(request, status);
}

static void ended(struct pn_rdma_fragment *rdma)
{
	struct pinion_request *request = rdma->request;
	int status = rdma->status;

	if (status || request->status) {
		/* The granter is told when nothing can arrive any more. */
		rdma->lost = status == -ECONNRESET &&
			     request->kind == PN_REQUEST_PUT_WHEN;
		if (!pn_rdma_may_still_write(rdma))
			drop(rdma);
		fail(request, status);
		return;
	}
	rdma->inflight++; /* copying may let other tasks run */
	copy_out(fragment_of(rdma));
	rdma->inflight--;
	request->moved += rdma->len;
	drop(rdma);
	pn_onesided_advance(request);
}

/* Memory is exposed on the first rail alone: when that connection is down the
 * memory cannot be reached, though the peer may live. */
static const struct pn_rdma_ops onesided_ops = {
	.user = PN_RDMA_ONESIDED,
	.prepare = prepare,
	.locate = locate,
	.describe = describe,
	.posted = posted,
	.posted_all = posted_all,
	.ended = ended,
	.drop = drop,
};

static void start(struct pn_onesided_fragment *f)
{
	f->rdma.request->onesided.npending++;
	f->pending = true;
	f->rdma.by_packets = f->path == PN_PATH_PACKETS;
	pn_rdma_start(&f->rdma);
}

/* --- cutting -------------------------------------------------------------- */

/* Pinned fragments end where those of the caching pipeline do, so that both
 * find each other's registrations. What is no longer than one segment is not
 * cut: two registrations cost more than one. */
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

/* The fragment could not be pinned. -EAGAIN: wait for those in flight; 0: it
 * goes through a bounce buffer; -EFAULT: there is no memory to copy. */
static int use_bounce_buffer(struct pn_onesided_fragment *f, int why)
{
	struct pinion_request *request = f->rdma.request;

	if (why == -ENOBUFS && !pn_list_empty(&request->onesided.fragments))
		return -EAGAIN;
	if (pn_copy_check(request->ep->device, why,
			  request->buf + f->rdma.offset, f->rdma.len,
			  !is_write(request)))
		return -EFAULT;
	f->path = PN_PATH_BOUNCED;
	if (f->rdma.len > PN_BOUNCE_BUFFER_BYTES)
		f->rdma.len = PN_BOUNCE_BUFFER_BYTES;
	request->ep->stats.copied_no_budget++;
	return 0;
}

/* A conditional write whose grant has not come has time: it is not copied. */
static int pin(struct pn_onesided_fragment *f)
{
	struct pinion_request *request = f->rdma.request;
	bool granted = request->kind != PN_REQUEST_PUT_WHEN ||
		       request->onesided.granted;
	int ret =
		pn_rdma_pin(&f->rdma,
			    is_write(request) ? 0 : PINION_ACCESS_LOCAL_WRITE);

	if (!ret || request->status)
		return ret;
	return granted ? use_bounce_buffer(f, ret) : -EAGAIN;
}

/* Cuts the next fragment. -EAGAIN: not now. */
static int next_fragment(struct pinion_request *request,
			 struct pn_onesided_fragment **out)
{
	struct pn_onesided_fragment *f =
		fragment_alloc(request, fragment_len(request));
	enum pn_path path = request->onesided.path;
	int ret = 0;

	if (!f)
		return -ENOMEM;
	if (f->path == PN_PATH_PINNED)
		ret = pin(f);
	/* Failed, or granted without keys, while other tasks ran. */
	if (request->status || request->onesided.path != path)
		ret = -EAGAIN;
	if (ret) {
		fragment_free(f);
		return ret;
	}
	request->transfer.next += f->rdma.len;
	request->onesided.nfragments++;
	pn_list_append(&request->onesided.fragments, &f->rdma.link);
	*out = f;
	return 0;
}

static unsigned depth_of(const struct pinion_request *request)
{
	return request->onesided.path == PN_PATH_BOUNCED
		       ? PN_NBOUNCE_BUFFERS
		       : request->ep->limits.depth;
}

/* Cuts as many fragments as the pipeline is deep; 0, -EAGAIN, or why the
 * request fails. */
static int fill_pipeline(struct pinion_request *request, bool start_now)
{
	struct pn_onesided *o = &request->onesided;
	int ret = 0;

	/* One of nfragments is the caller. */
	while (!ret && !request->status &&
	       request->transfer.next < request->total &&
	       o->nfragments <= depth_of(request)) {
		struct pn_onesided_fragment *f;

		ret = next_fragment(request, &f);
		if (!ret && (start_now || o->granted))
			start(f);
	}
	return ret;
}

/* Ends the request if it has failed or if everything has moved. */
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

static void advance(struct pinion_request *request, bool start_now)
{
	struct pn_onesided *o = &request->onesided;
	int ret;

	if (o->advancing)
		return;
	o->advancing = true;
	o->nfragments++; /* the request does not end meanwhile */
	ret = fill_pipeline(request, start_now);
	o->nfragments--;
	o->advancing = false;
	if (ret && ret != -EAGAIN)
		fail(request, ret);
	else if (start_now || request->status)
		end_if_complete(request);
	else if (o->granted) /* while other tasks ran */
		advance(request, true);
}

void pn_onesided_advance(struct pinion_request *request)
{
	advance(request, true);
}

void pn_onesided_prepare(struct pinion_request *request)
{
	advance(request, false);
}

/* Without keys the bytes go by packets, whatever was prepared. */
static void switch_to_packets(struct pinion_request *request)
{
	struct pinion_endpoint *ep = request->ep;

	pn_rdma_abandon(&request->onesided.fragments);
	request->transfer.next = 0;
	request->onesided.path = PN_PATH_PACKETS;
	request->call.copied = true;
	ep->stats.copied_no_budget++;
}

/* A fragment that fails abandons those in the list: fragments that are still to
 * be started are kept apart. */
void pn_onesided_granted(struct pinion_request *request)
{
	struct pn_onesided *o = &request->onesided;
	struct pn_list prepared, *link;

	if (!o->nkeys && request->total)
		switch_to_packets(request);
	pn_list_init(&prepared);
	pn_list_splice(&prepared, &o->fragments);
	o->nfragments++; /* the request does not end meanwhile */
	while ((link = pn_list_pop(&prepared))) {
		struct pn_onesided_fragment *f = fragment_at(link);

		pn_list_append(&o->fragments, link);
		if (request->status)
			drop(&f->rdma);
		else
			start(f);
	}
	o->nfragments--;
	pn_onesided_advance(request);
}
