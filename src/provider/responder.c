/* SPDX-License-Identifier: BSD-2-Clause */
/* The target of one-sided operations: responders (onesided.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "provider/onesided.h"
#include "provider/vector.h"

struct pn_fi_responder {
	struct pn_fi_callback callback; /* first: pinion's `user` */
	struct pn_list link;		/* in ep->responders */
	struct pn_fi_ep *ep;
	struct pn_fi_rma_request request;
	struct pinion_peer *peer; /* the initiator */
	/* The regions that it accesses, and where. */
	struct pn_fi_mr *mrs[PN_FI_IOV_LIMIT];
	struct iovec segments[PN_FI_IOV_LIMIT];
	unsigned nsegments;
	uint8_t *copy; /* of several segments; or NULL */
	int refusal;   /* status of a write whose data is discarded */
	struct pinion_message response;
	bool lost; /* the response is to be sent again */
	uint8_t bytes[sizeof(struct pn_fi_rma_request) + PN_FI_SEGMENTS_BYTES +
		      PN_FI_PAYLOAD_BYTES];
	uint8_t before[PN_FI_ATOMIC_BYTES];
};

static struct pn_fi_responder *responder_of(struct pn_fi_callback *callback)
{
	return pn_container_of(callback, struct pn_fi_responder, callback);
}

static void request_received(struct pn_fi_callback *callback,
			     const struct pinion_completion *c);

/* The responder does not access the regions any more. */
static void put_mrs(struct pn_fi_responder *responder)
{
	while (responder->nsegments)
		responder->mrs[--responder->nsegments]->users--;
	free(responder->copy);
	responder->copy = NULL;
}

/* Counters that are bound to the regions. */
static void count_write(struct pn_fi_responder *responder, int status)
{
	for (unsigned i = 0; i < responder->nsegments; i++)
		if (responder->mrs[i]->counter)
			pn_fi_counter_add(responder->mrs[i]->counter, status);
}

static void close_responder(struct pn_fi_responder *responder)
{
	put_mrs(responder);
	pn_list_remove(&responder->link);
	free(responder);
}

/* Posts a responder for the next request, behind all others. It is closed
 * instead if enough responders wait, or if there is no memory: -FI_ENOMEM,
 * which matters only to the last one (request_received()). */
static int post_responder(struct pn_fi_responder *responder)
{
	struct pn_fi_ep *ep = responder->ep;
	struct pinion_message any = { .size = sizeof(any),
				      .buf = responder->bytes,
				      .len = sizeof(responder->bytes),
				      .ignore = ~UINT64_C(0),
				      .user = &responder->callback,
				      .space = PN_FI_SPACE_RMA_REQUEST };
	int ret = 0;

	put_mrs(responder);
	responder->callback.completed = request_received;
	pn_list_remove(&responder->link);
	pn_list_append(&ep->responders, &responder->link);
	if (ep->idle_responders < PN_FI_MIN_RESPONDERS) {
		ret = pinion_recv(ep->endpoint, &any, NULL);
		ep->idle_responders += !ret;
		if (!ret)
			return 0;
	}
	close_responder(responder);
	return ret;
}

static int open_responder(struct pn_fi_ep *ep)
{
	struct pn_fi_responder *responder = calloc(1, sizeof(*responder));

	if (!responder)
		return -FI_ENOMEM;
	responder->ep = ep;
	pn_list_init(&responder->link);
	return post_responder(responder);
}

void pn_fi_lack_memory(struct pn_fi_ep *ep)
{
	if (!ep->lacks_memory)
		pn_warn("no memory for RMA or atomic operations, which wait: "
			"free memory");
	ep->lacks_memory = true;
}

/* --- responses ------------------------------------------------------------ */

static void response_sent(struct pn_fi_callback *callback,
			  const struct pinion_completion *c)
{
	struct pn_fi_responder *responder = responder_of(callback);

	/* The peer lives and waits for it. */
	responder->lost = c->status == -ENOMEM;
	if (pn_unlikely(responder->lost)) {
		pn_fi_lack_memory(responder->ep);
		return;
	}
	if (responder->request.kind == PN_FI_READ && responder->nsegments)
		pn_fi_count_event(responder->ep, PN_FI_EVENT_REMOTE_READ,
				  c->status);
	post_responder(responder);
}

static void start_response(struct pn_fi_responder *responder)
{
	const struct pinion_message *m = &responder->response;
	struct pinion_completion end = { 0 };

	if (pinion_inject(responder->ep->endpoint, m)) {
		end.status = pinion_send(responder->ep->endpoint, m, NULL);
		if (!end.status)
			return;
	}
	response_sent(&responder->callback, &end);
}

/* `bytes` must not change until the response is sent: they are the region's or
 * the responder's. */
static void send_response(struct pn_fi_responder *responder, int status,
			  void *bytes, size_t len)
{
	responder->callback.completed = response_sent;
	responder->response = (struct pinion_message){
		.size = sizeof(responder->response),
		.buf = bytes,
		.len = len,
		.tag = responder->request.number,
		.peer = responder->peer,
		.user = &responder->callback,
		.space = PN_FI_SPACE_RMA_RESPONSE,
		.data = (uint32_t)-status,
		.flags = PINION_MESSAGE_DATA,
	};
	start_response(responder);
}

bool pn_fi_responders_retry(struct pn_fi_ep *ep)
{
	struct pn_list *pos, *next;
	bool all = true;

	pn_list_for_each_safe (pos, next, &ep->responders) {
		struct pn_fi_responder *responder =
			pn_container_of(pos, struct pn_fi_responder, link);

		if (responder->lost) {
			responder->lost = false;
			start_response(responder);
		}
	}
	pn_list_for_each (pos, &ep->responders) {
		all &= !pn_container_of(pos, struct pn_fi_responder, link)
				->lost;
	}
	return (ep->idle_responders || !open_responder(ep)) && all;
}

/* --- writes --------------------------------------------------------------- */

static void push_remote_cq_data(struct pn_fi_responder *responder)
{
	struct pn_fi_entry entry = {
		.cqe = { .flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
			 .len = responder->request.len,
			 .data = responder->request.data },
		.ep = responder->ep,
		.peer = responder->peer,
	};

	pn_fi_cq_push(responder->ep->dirs[PN_FI_RX].cq, &entry);
}

/* The data of a write was received, or failed. */
static void data_received(struct pn_fi_callback *callback,
			  const struct pinion_completion *c)
{
	struct pn_fi_responder *responder = responder_of(callback);
	bool has_cq_data = responder->request.flags & PN_FI_REMOTE_CQ_DATA;
	int status = c->status;

	if (!status && c->len != responder->request.len)
		status = -FI_EIO;
	if (responder->copy && !status)
		pn_fi_scatter(responder->segments, responder->copy,
			      responder->request.len);
	if (has_cq_data && !status)
		push_remote_cq_data(responder);
	else if (has_cq_data)
		pn_fi_cq_unreserve(responder->ep->dirs[PN_FI_RX].cq);
	pn_fi_count_event(responder->ep, PN_FI_EVENT_REMOTE_WRITE, status);
	count_write(responder, status);
	put_mrs(responder);
	send_response(responder, status, NULL, 0);
}

/* The data of a refused write was received into a buffer of 0 bytes. */
static void data_discarded(struct pn_fi_callback *callback,
			   const struct pinion_completion *c)
{
	(void)c;
	send_response(responder_of(callback), responder_of(callback)->refusal,
		      NULL, 0);
}

static void receive_data(struct pn_fi_responder *responder, uint8_t *at)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = at,
				    .len = at ? responder->request.len : 0,
				    .tag = responder->request.number,
				    .peer = responder->peer,
				    .user = &responder->callback,
				    .space = PN_FI_SPACE_RMA_DATA };
	int ret;

	responder->callback.completed = at ? data_received : data_discarded;
	ret = pinion_recv(responder->ep->endpoint, &m, NULL);
	if (ret) {
		struct pinion_completion failed = { .status = ret };

		responder->callback.completed(&responder->callback, &failed);
	}
}

/* Reserves the entry of remote CQ data in the receive CQ, if there is one. */
static int reserve_entry(struct pn_fi_responder *responder)
{
	struct pn_fi_cq *cq = responder->ep->dirs[PN_FI_RX].cq;

	if (!(responder->request.flags & PN_FI_REMOTE_CQ_DATA))
		return 0;
	return cq ? pn_fi_cq_reserve(cq) : -FI_ENOCQ;
}

/* Where the data of a long operation goes, or comes from: the only segment, or
 * a copy. NULL: no memory. */
static uint8_t *whole(struct pn_fi_responder *responder)
{
	if (responder->nsegments == 1)
		return responder->segments->iov_base;
	responder->copy = malloc(responder->request.len);
	return responder->copy;
}

static void serve_write(struct pn_fi_responder *responder,
			const uint8_t *payload, bool allowed)
{
	const struct pinion_completion good = { .len = responder->request.len };
	bool follows = responder->request.flags & PN_FI_DATA_FOLLOWS;
	uint8_t *at = allowed && follows ? whole(responder) : NULL;
	int ret = !allowed	   ? -FI_EACCES
		  : follows && !at ? -FI_ENOMEM
				   : reserve_entry(responder);

	if (follows) {
		responder->refusal = ret;
		receive_data(responder, ret ? NULL : at);
		return;
	}
	if (ret) {
		send_response(responder, ret, NULL, 0);
		return;
	}
	pn_fi_scatter(responder->segments, payload, responder->request.len);
	data_received(&responder->callback, &good);
}

/* --- reads ---------------------------------------------------------------- */

/* Short data is copied: writes that follow do not change it. */
static void serve_read(struct pn_fi_responder *responder)
{
	size_t len = responder->request.len;
	uint8_t *at = len <= PN_FI_PAYLOAD_BYTES ? responder->bytes
						 : whole(responder);

	if (!at) {
		send_response(responder, -FI_ENOMEM, NULL, 0);
		return;
	}
	if (at == responder->bytes || at == responder->copy)
		pn_fi_gather(at, responder->segments, responder->nsegments);
	send_response(responder, 0, at, len);
}

/* --- atomics -------------------------------------------------------------- */

static void run_atomic(struct pn_fi_responder *responder,
		       const uint8_t *payload)
{
	const struct pn_fi_rma_request *e = &responder->request;
	size_t done = 0;

	for (unsigned i = 0; i < responder->nsegments; i++) {
		struct pn_fi_atomic_args r = {
			.type = e->type,
			.op = e->op,
			.at = responder->segments[i].iov_base,
			.bytes = responder->segments[i].iov_len,
			.operand =
				e->op == FI_ATOMIC_READ ? NULL : payload + done,
			.compare = e->kind == PN_FI_COMPARE
					   ? payload + e->len + done
					   : NULL,
			.before = e->kind == PN_FI_UPDATE
					  ? NULL
					  : responder->before + done,
		};

		pn_fi_atomic_run(&r);
		done += r.bytes;
	}
}

static void serve_atomic(struct pn_fi_responder *responder,
			 const uint8_t *payload)
{
	const struct pn_fi_rma_request *e = &responder->request;
	bool fetches = e->kind != PN_FI_UPDATE;

	run_atomic(responder, payload);
	if (e->op != FI_ATOMIC_READ)
		count_write(responder, 0);
	put_mrs(responder);
	pn_fi_count_event(responder->ep,
			  fetches ? PN_FI_EVENT_REMOTE_READ
				  : PN_FI_EVENT_REMOTE_WRITE,
			  0);
	send_response(responder, 0, responder->before, fetches ? e->len : 0);
}

/* --- exposures ------------------------------------------------------------ */

static void serve_expose(struct pn_fi_responder *responder)
{
	const struct pn_fi_rma_request *e = &responder->request;
	struct pn_fi_region_key key;
	int ret = pn_fi_expose(responder->ep, e->key, e->data, &key);

	_Static_assert(sizeof(key) <= sizeof(responder->bytes),
		       "a key replaces its request");
	if (ret) {
		send_response(responder, ret, NULL, 0);
		return;
	}
	memcpy(responder->bytes, &key, pn_fi_region_key_bytes(&key));
	send_response(responder, 0, responder->bytes,
		      pn_fi_region_key_bytes(&key));
}

/* --- requests ------------------------------------------------------------- */

static uint64_t access_for(const struct pn_fi_rma_request *e)
{
	switch (e->kind) {
	case PN_FI_WRITE:
	case PN_FI_UPDATE:
		return FI_REMOTE_WRITE;
	case PN_FI_READ:
		return FI_REMOTE_READ;
	default:
		return e->op == FI_ATOMIC_READ
			       ? FI_REMOTE_READ
			       : FI_REMOTE_READ | FI_REMOTE_WRITE;
	}
}

/* Finds the memory of one segment. */
static bool add_segment(struct pn_fi_responder *responder,
			const struct pn_fi_rma_segment *segment)
{
	struct pn_fi_mr *mr =
		pn_fi_mr_find(responder->ep->domain, segment->key);
	uint8_t *at = mr && !mr->closing
			      ? pn_fi_mr_at(mr, segment->addr, segment->len,
					    access_for(&responder->request))
			      : NULL;
	unsigned i = responder->nsegments;

	if (!at)
		return false;
	responder->mrs[i] = mr;
	responder->segments[i] = (struct iovec){ at, segment->len };
	responder->nsegments++;
	mr->users++;
	return true;
}

static bool find_segments(struct pn_fi_responder *responder,
			  const uint8_t *payload)
{
	for (unsigned i = 0; i < responder->request.nsegments; i++) {
		struct pn_fi_rma_segment segment =
			pn_fi_rma_request_segment(&responder->request, payload,
						  i);

		if (!add_segment(responder, &segment)) {
			put_mrs(responder);
			return false;
		}
	}
	return true;
}

static void run_request(struct pn_fi_responder *responder,
			const uint8_t *payload)
{
	bool allowed;

	if (responder->request.kind == PN_FI_EXPOSE) {
		serve_expose(responder);
		return;
	}
	allowed = find_segments(responder, payload);
	if (responder->request.kind == PN_FI_WRITE)
		serve_write(responder, payload, allowed);
	else if (!allowed)
		send_response(responder, -FI_EACCES, NULL, 0);
	else if (responder->request.kind == PN_FI_READ)
		serve_read(responder);
	else
		serve_atomic(responder, payload);
}

static void handle_request(struct pn_fi_responder *responder,
			   const struct pinion_completion *c)
{
	const uint8_t *payload;
	int ret = c->status ? c->status
			    : pn_fi_rma_request_parse(responder->bytes, c->len,
						      &responder->request,
						      &payload);

	responder->peer = c->peer;
	if (!ret) {
		run_request(responder, payload);
		return;
	}
	pn_warn("an RMA request of a peer is invalid (%d): use "
		"one version of pinion everywhere",
		ret);
	if (c->status)
		post_responder(responder);
	else
		send_response(responder, ret, NULL, 0);
}

/* One responder is always idle: if this one was the last, opens another, so
 * that a peer that stopped does not block others. A stopped peer occupies as
 * many responders as it sent requests. As unexpected messages these would
 * occupy no less memory. */
static void request_received(struct pn_fi_callback *callback,
			     const struct pinion_completion *c)
{
	struct pn_fi_ep *ep = responder_of(callback)->ep;

	ep->idle_responders--;
	if (pn_unlikely(c->status == -ECANCELED)) {
		ep->fence_posted = false;
		ep->fence_passed = true;
		post_responder(responder_of(callback));
	} else {
		ep->nrequests++;
		handle_request(responder_of(callback), c);
	}
	if (pn_unlikely(!ep->idle_responders) && open_responder(ep))
		pn_fi_lack_memory(ep);
}

/* A request that found no responder is an unexpected message, until a responder
 * that is posted again takes it; the next poll returns it. The last responder
 * in the list was posted last. If it can be canceled, no request is unexpected
 * any more, and its end is a fence behind those that have ended. */
bool pn_fi_requests_remain(struct pn_fi_ep *ep)
{
	struct pn_fi_responder *last =
		pn_container_of(ep->responders.prev, struct pn_fi_responder,
				link);

	if (ep->fence_passed || !ep->idle_responders ||
	    last->callback.completed != request_received)
		return false;
	if (!ep->fence_posted)
		ep->fence_posted =
			!pinion_recv_cancel(ep->endpoint, &last->callback);
	return true;
}

int pn_fi_responders_open(struct pn_fi_ep *ep)
{
	int ret = 0;

	ep->exposes = pn_fi_exposes(ep);
	while (ep->idle_responders < PN_FI_MIN_RESPONDERS && !ret)
		ret = open_responder(ep);
	if (!ret)
		pn_list_append(&ep->domain->responding, &ep->responding);
	return ret;
}

void pn_fi_responders_abandon(struct pn_fi_ep *ep)
{
	struct pn_list *pos;

	pn_list_remove(&ep->responding);
	pn_list_for_each (pos, &ep->responders) {
		const struct pn_fi_responder *responder =
			pn_container_of(pos, struct pn_fi_responder, link);

		if (responder->callback.completed == data_received &&
		    responder->request.flags & PN_FI_REMOTE_CQ_DATA)
			pn_fi_cq_unreserve(ep->dirs[PN_FI_RX].cq);
	}
}

void pn_fi_responders_free(struct pn_fi_ep *ep)
{
	while (!pn_list_empty(&ep->responders))
		close_responder(pn_container_of(ep->responders.next,
						struct pn_fi_responder, link));
}
