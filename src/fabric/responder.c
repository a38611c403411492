/* SPDX-License-Identifier: BSD-2-Clause */
/* The target's side of one-sided operations: responders (see onesided.h). */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/onesided.h"

struct pn_fi_responder {
	struct pn_fi_callback end; /* first: pinion's `user` */
	struct pn_list link;	   /* in ep->responders */
	struct pn_fi_ep *ep;
	struct pn_fi_rma_request errand;
	struct pinion_peer *peer; /* whose errand it is */
	struct pn_fi_mr *mr;	  /* a user of it; or NULL */
	int refusal;		  /* of bytes that are on their way */
	uint8_t bytes[sizeof(struct pn_fi_rma_request) + PN_FI_PAYLOAD_BYTES];
	uint8_t before[PN_FI_ATOMIC_BYTES];
};

static struct pn_fi_responder *desk_of(struct pn_fi_callback *end)
{
	return pn_container_of(end, struct pn_fi_responder, end);
}

static void errand_came(struct pn_fi_callback *end,
			const struct pinion_completion *c);

/* The region's memory is not touched any more. */
static void release(struct pn_fi_responder *responder)
{
	if (responder->mr)
		responder->mr->users--;
	responder->mr = NULL;
}

static void close_desk(struct pn_fi_responder *responder)
{
	release(responder);
	pn_list_remove(&responder->link);
	free(responder);
}

/* A responder that is done waits for the next errand, or goes if enough do.
 * Without memory it goes, too; the next one has better luck. */
static void post(struct pn_fi_responder *responder)
{
	struct pn_fi_ep *ep = responder->ep;
	struct pinion_message any = { .size = sizeof(any),
				      .buf = responder->bytes,
				      .len = sizeof(responder->bytes),
				      .ignore = ~UINT64_C(0),
				      .user = &responder->end,
				      .space = PN_FI_SPACE_RMA_REQUEST };
	int ret = 0;

	release(responder);
	responder->end.ended = errand_came;
	if (ep->idle_responders < PN_FI_MIN_RESPONDERS) {
		ret = pinion_recv(ep->endpoint, &any, NULL);
		ep->idle_responders += !ret;
		if (!ret)
			return;
		pn_warn("one of %d receives for RMA and atomics is lost (%d): "
			"free memory",
			PN_FI_MIN_RESPONDERS, ret);
	}
	close_desk(responder);
}

static int open_desk(struct pn_fi_ep *ep)
{
	struct pn_fi_responder *responder = calloc(1, sizeof(*responder));

	if (!responder)
		return -FI_ENOMEM;
	responder->ep = ep;
	pn_list_init(&responder->link);
	pn_list_append(&ep->responders, &responder->link);
	post(responder);
	return 0;
}

/* --- answers -------------------------------------------------------------- */

static void answered(struct pn_fi_callback *end,
		     const struct pinion_completion *c)
{
	struct pn_fi_responder *responder = desk_of(end);

	if (responder->errand.kind == PN_FI_READ && responder->mr)
		pn_fi_count_event(responder->ep, PN_FI_EVENT_REMOTE_READ,
				  c->status);
	post(responder);
}

/* bytes stay as they are until it is sent: the region's, or the responder's. */
static void answer(struct pn_fi_responder *responder, int status, void *bytes,
		   size_t len)
{
	static const struct pinion_completion good;
	struct pinion_message m = { .size = sizeof(m),
				    .buf = bytes,
				    .len = len,
				    .tag = responder->errand.number,
				    .peer = responder->peer,
				    .user = &responder->end,
				    .space = PN_FI_SPACE_RMA_RESPONSE,
				    .data = (uint32_t)-status,
				    .flags = PINION_MESSAGE_DATA };
	int ret;

	responder->end.ended = answered;
	if (!pinion_inject(responder->ep->endpoint, &m)) {
		answered(&responder->end, &good);
		return;
	}
	ret = pinion_send(responder->ep->endpoint, &m, NULL);
	if (ret == -ENOMEM)
		pn_error("no memory to answer an RMA or atomic operation: the "
			 "peer waits for it in vain; free memory");
	if (ret) /* or nobody is there any more */
		post(responder);
}

/* --- writes --------------------------------------------------------------- */

static void tell_data(struct pn_fi_responder *responder)
{
	struct pn_fi_entry entry = {
		.end = { .flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
			 .len = responder->errand.len,
			 .data = responder->errand.data },
		.ep = responder->ep,
		.peer = responder->peer,
	};

	pn_fi_cq_push(responder->ep->ways[PN_FI_RX].cq, &entry);
}

/* Its bytes are here, or are not to be had. */
static void written(struct pn_fi_callback *end,
		    const struct pinion_completion *c)
{
	struct pn_fi_responder *responder = desk_of(end);
	bool tells = responder->errand.flags & PN_FI_REMOTE_CQ_DATA;
	int status = c->status;

	if (!status && c->len != responder->errand.len)
		status = -FI_EIO;
	if (tells && !status)
		tell_data(responder);
	else if (tells)
		pn_fi_cq_unreserve(responder->ep->ways[PN_FI_RX].cq);
	pn_fi_count_event(responder->ep, PN_FI_EVENT_REMOTE_WRITE, status);
	if (responder->mr->counter)
		pn_fi_counter_add(responder->mr->counter, status);
	release(responder);
	answer(responder, status, NULL, 0);
}

/* What nobody may write is received into nothing. */
static void refused(struct pn_fi_callback *end,
		    const struct pinion_completion *c)
{
	(void)c;
	answer(desk_of(end), desk_of(end)->refusal, NULL, 0);
}

static void receive_rest(struct pn_fi_responder *responder, uint8_t *at)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = at,
				    .len = at ? responder->errand.len : 0,
				    .tag = responder->errand.number,
				    .peer = responder->peer,
				    .user = &responder->end,
				    .space = PN_FI_SPACE_RMA_DATA };
	int ret;

	responder->end.ended = at ? written : refused;
	ret = pinion_recv(responder->ep->endpoint, &m, NULL);
	if (ret) {
		struct pinion_completion failed = { .status = ret };

		responder->end.ended(&responder->end, &failed);
	}
}

/* The program hears of it in its receiving CQ, if it has one. */
static int reserve(struct pn_fi_responder *responder)
{
	struct pn_fi_cq *cq = responder->ep->ways[PN_FI_RX].cq;

	if (!(responder->errand.flags & PN_FI_REMOTE_CQ_DATA))
		return 0;
	return cq ? pn_fi_cq_reserve(cq) : -FI_ENOCQ;
}

static void serve_write(struct pn_fi_responder *responder,
			const uint8_t *payload, uint8_t *at)
{
	const struct pinion_completion good = { .len = responder->errand.len };
	int ret = at ? reserve(responder) : -FI_EACCES;

	if (responder->errand.flags & PN_FI_DATA_FOLLOWS) {
		responder->refusal = ret;
		receive_rest(responder, ret ? NULL : at);
		return;
	}
	if (ret) {
		answer(responder, ret, NULL, 0);
		return;
	}
	if (responder->errand.len)
		memcpy(at, payload, responder->errand.len);
	written(&responder->end, &good);
}

/* --- atomics -------------------------------------------------------------- */

static void serve_atomic(struct pn_fi_responder *responder,
			 const uint8_t *payload, uint8_t *at)
{
	const struct pn_fi_rma_request *e = &responder->errand;
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
	release(responder);
	pn_fi_count_event(responder->ep,
			  r.before ? PN_FI_EVENT_REMOTE_READ
				   : PN_FI_EVENT_REMOTE_WRITE,
			  0);
	answer(responder, 0, responder->before, r.before ? e->len : 0);
}

/* --- errands -------------------------------------------------------------- */

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

static uint8_t *find(struct pn_fi_responder *responder)
{
	const struct pn_fi_rma_request *e = &responder->errand;
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

static void serve(struct pn_fi_responder *responder, const uint8_t *payload)
{
	const struct pn_fi_rma_request *e = &responder->errand;
	uint8_t *at = find(responder);

	if (e->kind == PN_FI_WRITE)
		serve_write(responder, payload, at);
	else if (!at)
		answer(responder, -FI_EACCES, NULL, 0);
	else if (e->kind == PN_FI_READ)
		answer(responder, 0, at, e->len);
	else
		serve_atomic(responder, payload, at);
}

static void take(struct pn_fi_responder *responder,
		 const struct pinion_completion *c)
{
	const uint8_t *payload;
	int ret = c->status ? c->status
			    : pn_fi_rma_request_parse(responder->bytes, c->len,
						      &responder->errand,
						      &payload);

	responder->peer = c->peer;
	if (!ret) {
		serve(responder, payload);
		return;
	}
	pn_warn("an RMA or atomic operation of a peer makes no sense (%d): use "
		"one version of pinion everywhere",
		ret);
	if (c->status)
		post(responder);
	else
		answer(responder, ret, NULL, 0);
}

/* However many of them wait for peers that do not go on, one is free for the
 * others. So a peer that is stopped takes as many responders as it has sent
 * errands, which without responders would wait as messages, and take no less.
 */
static void errand_came(struct pn_fi_callback *end,
			const struct pinion_completion *c)
{
	struct pn_fi_ep *ep = desk_of(end)->ep;

	ep->idle_responders--;
	take(desk_of(end), c);
	if (pn_unlikely(!ep->idle_responders) && open_desk(ep))
		pn_warn("no memory for a further receive for RMA and atomics: "
			"one of %d has to end first",
			PN_FI_MIN_RESPONDERS);
}

int pn_fi_responders_open(struct pn_fi_ep *ep)
{
	int ret = 0;

	for (int i = 0; i < PN_FI_MIN_RESPONDERS && !ret; i++)
		ret = open_desk(ep);
	pn_list_append(&ep->domain->serving, &ep->serving);
	return ret;
}

void pn_fi_responders_abandon(struct pn_fi_ep *ep)
{
	struct pn_list *pos;

	pn_list_remove(&ep->serving);
	pn_list_for_each (pos, &ep->responders) {
		const struct pn_fi_responder *responder =
			pn_container_of(pos, struct pn_fi_responder, link);

		if (responder->end.ended == written &&
		    responder->errand.flags & PN_FI_REMOTE_CQ_DATA)
			pn_fi_cq_unreserve(ep->ways[PN_FI_RX].cq);
	}
}

void pn_fi_responders_free(struct pn_fi_ep *ep)
{
	while (!pn_list_empty(&ep->responders))
		close_desk(pn_container_of(ep->responders.next,
					   struct pn_fi_responder, link));
}
