/* SPDX-License-Identifier: BSD-2-Clause */
/* The target of one-sided operations: responders (onesided.h). */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/onesided.h"

struct pn_fi_responder {
	struct pn_fi_callback callback; /* first: pinion's `user` */
	struct pn_list link;		/* in ep->responders */
	struct pn_fi_ep *ep;
	struct pn_fi_rma_request request;
	struct pinion_peer *peer; /* the initiator */
	struct pn_fi_mr *mr;	  /* the region that it accesses; or NULL */
	int refusal; /* status of a write whose data is discarded */
	uint8_t bytes[sizeof(struct pn_fi_rma_request) + PN_FI_PAYLOAD_BYTES];
	uint8_t before[PN_FI_ATOMIC_BYTES];
};

static struct pn_fi_responder *responder_of(struct pn_fi_callback *callback)
{
	return pn_container_of(callback, struct pn_fi_responder, callback);
}

static void request_received(struct pn_fi_callback *callback,
			     const struct pinion_completion *c);

/* The responder does not access the region any more. */
static void put_mr(struct pn_fi_responder *responder)
{
	if (responder->mr)
		responder->mr->users--;
	responder->mr = NULL;
}

static void close_responder(struct pn_fi_responder *responder)
{
	put_mr(responder);
	pn_list_remove(&responder->link);
	free(responder);
}

/* Posts a responder for the next request. It is closed instead if enough
 * responders wait, or if there is no memory. */
static void post_responder(struct pn_fi_responder *responder)
{
	struct pn_fi_ep *ep = responder->ep;
	struct pinion_message any = { .size = sizeof(any),
				      .buf = responder->bytes,
				      .len = sizeof(responder->bytes),
				      .ignore = ~UINT64_C(0),
				      .user = &responder->callback,
				      .space = PN_FI_SPACE_RMA_REQUEST };
	int ret = 0;

	put_mr(responder);
	responder->callback.completed = request_received;
	if (ep->idle_responders < PN_FI_MIN_RESPONDERS) {
		ret = pinion_recv(ep->endpoint, &any, NULL);
		ep->idle_responders += !ret;
		if (!ret)
			return;
		pn_warn("cannot post one of %d receives for RMA and atomics "
			"(%d): free memory",
			PN_FI_MIN_RESPONDERS, ret);
	}
	close_responder(responder);
}

static int open_responder(struct pn_fi_ep *ep)
{
	struct pn_fi_responder *responder = calloc(1, sizeof(*responder));

	if (!responder)
		return -FI_ENOMEM;
	responder->ep = ep;
	pn_list_init(&responder->link);
	pn_list_append(&ep->responders, &responder->link);
	post_responder(responder);
	return 0;
}

/* --- responses ------------------------------------------------------------ */

static void response_sent(struct pn_fi_callback *callback,
			  const struct pinion_completion *c)
{
	struct pn_fi_responder *responder = responder_of(callback);

	if (responder->request.kind == PN_FI_READ && responder->mr)
		pn_fi_count_event(responder->ep, PN_FI_EVENT_REMOTE_READ,
				  c->status);
	post_responder(responder);
}

/* `bytes` must not change until the response is sent: they are the region's or
 * the responder's. */
static void send_response(struct pn_fi_responder *responder, int status,
			  void *bytes, size_t len)
{
	static const struct pinion_completion good;
	struct pinion_message m = { .size = sizeof(m),
				    .buf = bytes,
				    .len = len,
				    .tag = responder->request.number,
				    .peer = responder->peer,
				    .user = &responder->callback,
				    .space = PN_FI_SPACE_RMA_RESPONSE,
				    .data = (uint32_t)-status,
				    .flags = PINION_MESSAGE_DATA };
	int ret;

	responder->callback.completed = response_sent;
	if (!pinion_inject(responder->ep->endpoint, &m)) {
		response_sent(&responder->callback, &good);
		return;
	}
	ret = pinion_send(responder->ep->endpoint, &m, NULL);
	if (ret == -ENOMEM)
		pn_error("no memory for the response to an RMA or atomic "
			 "operation: it never completes at the peer; free "
			 "memory");
	if (ret) /* or the peer is down */
		post_responder(responder);
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
	if (has_cq_data && !status)
		push_remote_cq_data(responder);
	else if (has_cq_data)
		pn_fi_cq_unreserve(responder->ep->dirs[PN_FI_RX].cq);
	pn_fi_count_event(responder->ep, PN_FI_EVENT_REMOTE_WRITE, status);
	if (responder->mr->counter)
		pn_fi_counter_add(responder->mr->counter, status);
	put_mr(responder);
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

static void serve_write(struct pn_fi_responder *responder,
			const uint8_t *payload, uint8_t *at)
{
	const struct pinion_completion good = { .len = responder->request.len };
	int ret = at ? reserve_entry(responder) : -FI_EACCES;

	if (responder->request.flags & PN_FI_DATA_FOLLOWS) {
		responder->refusal = ret;
		receive_data(responder, ret ? NULL : at);
		return;
	}
	if (ret) {
		send_response(responder, ret, NULL, 0);
		return;
	}
	if (responder->request.len)
		memcpy(at, payload, responder->request.len);
	data_received(&responder->callback, &good);
}

/* --- atomics -------------------------------------------------------------- */

static void serve_atomic(struct pn_fi_responder *responder,
			 const uint8_t *payload, uint8_t *at)
{
	const struct pn_fi_rma_request *e = &responder->request;
	struct pn_fi_atomic_args r = {
		.type = e->type,
		.op = e->op,
		.at = at,
		.bytes = e->len,
		.operand = e->op == FI_ATOMIC_READ ? NULL : payload,
		.compare = e->kind == PN_FI_COMPARE ? payload + e->len : NULL,
		.before = e->kind == PN_FI_UPDATE ? NULL : responder->before,
	};

	pn_fi_atomic_run(&r);
	if (responder->mr->counter && e->op != FI_ATOMIC_READ)
		pn_fi_counter_add(responder->mr->counter, 0);
	put_mr(responder);
	pn_fi_count_event(responder->ep,
			  r.before ? PN_FI_EVENT_REMOTE_READ
				   : PN_FI_EVENT_REMOTE_WRITE,
			  0);
	send_response(responder, 0, responder->before, r.before ? e->len : 0);
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

static uint8_t *find_mr(struct pn_fi_responder *responder)
{
	const struct pn_fi_rma_request *e = &responder->request;
	struct pn_fi_mr *mr = pn_fi_mr_find(responder->ep->domain, e->key);
	uint8_t *at = mr && !mr->closing
			      ? pn_fi_mr_at(mr, e->addr, e->len, access_for(e))
			      : NULL;

	if (at) {
		responder->mr = mr;
		mr->users++;
	}
	return at;
}

static void run_request(struct pn_fi_responder *responder,
			const uint8_t *payload)
{
	const struct pn_fi_rma_request *e = &responder->request;
	uint8_t *at = find_mr(responder);

	if (e->kind == PN_FI_WRITE)
		serve_write(responder, payload, at);
	else if (!at)
		send_response(responder, -FI_EACCES, NULL, 0);
	else if (e->kind == PN_FI_READ)
		send_response(responder, 0, at, e->len);
	else
		serve_atomic(responder, payload, at);
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
	handle_request(responder_of(callback), c);
	if (pn_unlikely(!ep->idle_responders) && open_responder(ep))
		pn_warn("no memory for another receive for RMA and atomics: "
			"new requests wait until one of %d has ended",
			PN_FI_MIN_RESPONDERS);
}

int pn_fi_responders_open(struct pn_fi_ep *ep)
{
	int ret = 0;

	for (int i = 0; i < PN_FI_MIN_RESPONDERS && !ret; i++)
		ret = open_responder(ep);
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
