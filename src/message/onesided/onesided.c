/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests of one-sided operations: start, order and end (onesided.h). */
#include <errno.h>

#include "base/log.h"
#include "message/connection/connection.h"
#include "message/connection/packet.h"
#include "message/endpoint/request.h"
#include "message/matching/matching.h"
#include "message/onesided/onesided_impl.h"

/* --- life ----------------------------------------------------------------- */

static struct pn_tag_key key_of_put_when(const struct pn_list *link)
{
	const struct pinion_request *request =
		pn_container_of(link, const struct pinion_request, link);

	return (struct pn_tag_key){ request->peer, request->tag, 0 };
}

static struct pn_tag_key key_of_grant(const struct pn_list *link)
{
	const struct pinion_unexpected *unexpected =
		pn_container_of(link, const struct pinion_unexpected, link);

	return (struct pn_tag_key){ unexpected->peer, unexpected->wire.tag, 0 };
}

void pn_onesided_init(struct pinion_endpoint *ep)
{
	struct pn_endpoint_onesided *o = &ep->onesided;

	pn_bounce_pool_init(&o->bounce_pool);
	PN_POOL_INIT(&o->fragments, struct pn_onesided_fragment, rdma.link, 0);
	pn_list_init(&o->exposures);
	pn_list_init(&o->remotes);
	pn_tag_table_init(&o->held, key_of_put_when);
	pn_tag_table_init(&o->granted, key_of_grant);
}

void pn_onesided_fini(struct pinion_endpoint *ep)
{
	struct pn_list *link;

	/* Requests that never ended still hold pins. */
	for (uint32_t i = 0; i < ep->requests.nrequests; i++)
		pn_onesided_unpin_fragments(ep->requests.table[i]);
	while ((link = pn_tag_table_any(&ep->onesided.granted))) {
		pn_unexpected_free(ep, pn_container_of(link,
						       struct pinion_unexpected,
						       link));
		pn_tag_table_removed(&ep->onesided.granted);
	}
	pn_assert(!ep->onesided.granted.n);
	/* The buckets still hold links of requests; nobody follows them. */
	pn_tag_table_fini(&ep->onesided.held);
	pn_tag_table_fini(&ep->onesided.granted);
	pn_exposures_close(ep);
	pn_bounce_pool_close(ep);
}

void pn_onesided_init_peer(struct pinion_peer *peer)
{
	pn_list_init(&peer->onesided.order);
	pn_list_init(&peer->onesided.fenced);
}

void pn_onesided_init_request(struct pinion_request *request)
{
	pn_list_init(&request->onesided.order);
	pn_list_init(&request->onesided.fragments);
}

/* --- order ---------------------------------------------------------------- */

static void begin(struct pinion_request *request)
{
	request->onesided.unposted = true;
	request->peer->onesided.nunposted++;
	pn_onesided_advance(request);
}

/* Begins the requests behind a fence, up to the next fence that has to wait. */
static void begin_fenced(struct pinion_peer *peer)
{
	struct pn_peer_onesided *o = &peer->onesided;

	if (o->beginning_fenced)
		return;
	o->beginning_fenced = true;
	while (!pn_list_empty(&o->fenced)) {
		struct pinion_request *request =
			pn_container_of(o->fenced.next, struct pinion_request,
					link);

		if (request->onesided.fence && o->nunposted)
			break;
		pn_list_remove(&request->link);
		begin(request);
	}
	o->beginning_fenced = false;
}

void pn_onesided_posted(struct pinion_request *request)
{
	struct pinion_peer *peer = request->peer;

	if (!request->onesided.unposted)
		return;
	request->onesided.unposted = false;
	if (!--peer->onesided.nunposted)
		begin_fenced(peer);
}

static void end_flushes(struct pinion_peer *peer)
{
	struct pn_peer_onesided *o = &peer->onesided;

	if (o->ending_flushes)
		return;
	o->ending_flushes = true;
	while (!pn_list_empty(&o->order)) {
		struct pinion_request *first =
			pn_container_of(o->order.next, struct pinion_request,
					onesided.order);

		if (first->kind != PN_REQUEST_FLUSH)
			break;
		pn_request_end(first, 0);
	}
	o->ending_flushes = false;
}

/* The request ended with a fence that no operation has carried to the device:
 * the next request inherits the fence. */
static void inherit_fence(struct pinion_request *request)
{
	struct pn_peer_onesided *o = &request->peer->onesided;
	struct pinion_request *next;

	if (!request->onesided.fence)
		return;
	if (pn_list_empty(&o->fenced)) {
		o->fence = true;
		return;
	}
	next = pn_container_of(o->fenced.next, struct pinion_request, link);
	next->onesided.fence = true;
}

void pn_onesided_ended(struct pinion_request *request)
{
	struct pn_onesided *o = &request->onesided;

	pn_list_remove(&o->order);
	pn_grant_unqueue(request);
	if (o->remote)
		pn_remote_put(o->remote);
	o->remote = NULL;
	inherit_fence(request);
	pn_onesided_posted(request);
	end_flushes(request->peer);
}

/* --- starting ------------------------------------------------------------- */

/* Keys are of the peer's first rail, and local memory is registered with this
 * endpoint's first rail: one connection must join the two. It may not if the
 * peer has fewer rails and attached to another one, or lists its rails in
 * another order. */
static int check_reach(const struct pinion_peer *peer)
{
	const struct pn_connection *conn = &peer->conns[0];

	if (conn->device_peer && !conn->remote_rail)
		return 0;
	pn_error("one-sided operations go from first rail to first rail, and "
		 "the "
		 "first rails of this endpoint and its peer are not connected: "
		 "name the same rails in the same order on both sides");
	return -EHOSTUNREACH;
}

static int prepare(struct pinion_endpoint *ep, enum pn_request_kind kind,
		   struct pinion_peer *peer)
{
	/* A flush has no bytes; those of a grant go to its own buffer. First,
	 * since this releases the lock. */
	bool needs_bounce =
		kind != PN_REQUEST_FLUSH && kind != PN_REQUEST_GRANT;
	int ret = needs_bounce ? pn_bounce_pool_open(ep) : 0;

	if (!ret)
		ret = pn_peer_connect(peer);
	return ret || kind == PN_REQUEST_FLUSH ? ret : check_reach(peer);
}

int pn_onesided_start(struct pinion_endpoint *ep, enum pn_request_kind kind,
		      const struct pinion_message *what,
		      struct pinion_request **handle,
		      struct pinion_request **out)
{
	int ret = prepare(ep, kind, what->peer);
	struct pinion_request *request;

	if (ret)
		return ret;
	request = pn_request_alloc(ep, what);
	if (!request)
		return -ENOMEM;
	request->kind = kind;
	request->total = what->len;
	request->has_handle = handle;
	if (handle)
		*handle = request;
	*out = request;
	return 0;
}

void pn_onesided_record(struct pinion_request *request, unsigned kind)
{
	if (!request->ep->helper)
		return;
	request->call.copied = kind != PN_CALL_GRANT &&
			       request->onesided.path != PN_PATH_PINNED;
	pn_helper_post(request->ep->helper, &request->call, kind, request->buf,
		       request->len);
}

/* Puts a request behind those started before, and begins it unless a fence
 * holds it. */
static void enqueue(struct pinion_request *request)
{
	struct pinion_peer *peer = request->peer;
	struct pn_peer_onesided *o = &peer->onesided;

	pn_trace_request_posted(request);
	pn_list_append(&peer->requests, &request->peer_link);
	pn_list_append(&o->order, &request->onesided.order);
	if (request->kind == PN_REQUEST_FLUSH) {
		end_flushes(peer);
		return;
	}
	request->onesided.fence = o->fence;
	o->fence = false;
	if (!pn_list_empty(&o->fenced) ||
	    (request->onesided.fence && o->nunposted))
		pn_list_append(&o->fenced, &request->link);
	else
		begin(request);
}

static void set_target(struct pinion_request *request,
		       struct pinion_remote *remote, uint64_t offset)
{
	struct pn_onesided *o = &request->onesided;

	pn_remote_get(remote);
	o->remote = remote;
	o->keys = remote->keys;
	o->nkeys = remote->nkeys;
	o->at = offset;
}

int pn_endpoint_access(struct pinion_endpoint *ep, enum pn_request_kind kind,
		       const struct pinion_move *move,
		       struct pinion_request **out)
{
	struct pinion_message what = { .size = sizeof(what),
				       .buf = move->buf,
				       .len = move->len,
				       .peer = move->remote->peer,
				       .user = move->user };
	bool write = kind == PN_REQUEST_PUT;
	struct pinion_request *request;
	enum pn_path path;
	int ret;

	pn_endpoint_lock(ep);
	pn_reuse_on_send(&ep->reuse);
	path = pn_path_choose(&ep->reuse, ep->device, move->buf, move->len,
			      write);
	ret = pn_onesided_start(ep, kind, &what, out, &request);
	if (!ret) {
		struct pn_onesided *o = &request->onesided;

		set_target(request, move->remote, move->offset);
		o->op = write ? PN_OP_WRITE : PN_OP_READ;
		o->path = path;
		pn_onesided_record(request, write ? PN_CALL_PUT : PN_CALL_GET);
		ep->stats.accesses[o->path]++;
		enqueue(request);
	}
	pn_endpoint_unlock(ep);
	return ret;
}

int pn_endpoint_atomic(struct pinion_endpoint *ep, enum pn_op_kind op,
		       const struct pinion_atomic *atomic,
		       struct pinion_request **out)
{
	struct pinion_message what = { .size = sizeof(what),
				       .buf = atomic->result,
				       .len = sizeof(uint64_t),
				       .peer = atomic->remote->peer,
				       .user = atomic->user };
	struct pinion_request *request;
	int ret;

	pn_endpoint_lock(ep);
	ret = pn_onesided_start(ep, PN_REQUEST_ATOMIC, &what, out, &request);
	if (!ret) {
		struct pn_onesided *o = &request->onesided;

		set_target(request, atomic->remote, atomic->offset);
		o->op = op;
		o->path = PN_PATH_BOUNCED;
		o->operand = atomic->operand;
		o->compare = atomic->compare;
		enqueue(request);
	}
	pn_endpoint_unlock(ep);
	return ret;
}

int pn_endpoint_flush(struct pinion_endpoint *ep, struct pinion_peer *peer,
		      void *user, struct pinion_request **out)
{
	struct pinion_message what = { .size = sizeof(what),
				       .peer = peer,
				       .user = user };
	struct pinion_request *request;
	int ret;

	pn_endpoint_lock(ep);
	ret = pn_onesided_start(ep, PN_REQUEST_FLUSH, &what, out, &request);
	if (!ret)
		enqueue(request);
	pn_endpoint_unlock(ep);
	return ret;
}

int pn_endpoint_fence(struct pinion_endpoint *ep, struct pinion_peer *peer)
{
	int ret;

	pn_endpoint_lock(ep);
	ret = peer->down;
	if (!ret)
		peer->onesided.fence = true;
	pn_endpoint_unlock(ep);
	return ret;
}

/* A request can be canceled until something of it is posted: a grant until a
 * write uses it, others while a fence or a missing grant holds them. */
void pn_onesided_cancel(struct pinion_request *request)
{
	struct pn_wire wire = { .version = PN_WIRE_VERSION,
				.kind = PN_WIRE_UNGRANT,
				.from = request->id,
				.tag = request->tag };

	if (request->kind == PN_REQUEST_GRANT) {
		if (pn_packet_withdraw(request)) {
			pn_request_end(request, -ECANCELED);
			return;
		}
		request->canceling = true;
		pn_packet_send(request->peer, &wire, NULL, 0, NULL);
	} else if (!pn_list_empty(&request->link)) {
		/* Held by a fence, or for a grant. */
		pn_request_end(request, -ECANCELED);
	}
}
