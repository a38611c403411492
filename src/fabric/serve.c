/* SPDX-License-Identifier: BSD-2-Clause */
/* The target's side of one-sided operations: desks (see onesided.h). */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/onesided.h"

struct pn_fi_desk {
	struct pn_fi_end end; /* first: pinion's `user` */
	struct pn_list link;  /* in ep->desks */
	struct pn_fi_ep *ep;
	struct pn_fi_errand errand;
	struct pinion_peer *peer; /* whose errand it is */
	struct pn_fi_mr *mr;	  /* a user of it; or NULL */
	int refusal;		  /* of bytes that are on their way */
	uint8_t bytes[sizeof(struct pn_fi_errand) + PN_FI_PAYLOAD_BYTES];
	uint8_t before[PN_FI_ATOMIC_BYTES];
};

static struct pn_fi_desk *desk_of(struct pn_fi_end *end)
{
	return pn_container_of(end, struct pn_fi_desk, end);
}

static void errand_came(struct pn_fi_end *end,
			const struct pinion_completion *c);

/* The region's memory is not touched any more. */
static void release(struct pn_fi_desk *desk)
{
	if (desk->mr)
		desk->mr->users--;
	desk->mr = NULL;
}

static void close_desk(struct pn_fi_desk *desk)
{
	release(desk);
	pn_list_remove(&desk->link);
	free(desk);
}

/* A desk that is done waits for the next errand, or goes if enough do. Without
 * memory it goes, too; the next one has better luck. */
static void post(struct pn_fi_desk *desk)
{
	struct pn_fi_ep *ep = desk->ep;
	struct pinion_message any = { .size = sizeof(any),
				      .buf = desk->bytes,
				      .len = sizeof(desk->bytes),
				      .ignore = ~UINT64_C(0),
				      .user = &desk->end,
				      .space = PN_FI_SPACE_ERRAND };
	int ret = 0;

	release(desk);
	desk->end.ended = errand_came;
	if (ep->desks_free < PN_FI_DESKS) {
		ret = pinion_recv(ep->endpoint, &any, NULL);
		ep->desks_free += !ret;
		if (!ret)
			return;
		pn_warn("one of %d receives for RMA and atomics is lost (%d): "
			"free memory",
			PN_FI_DESKS, ret);
	}
	close_desk(desk);
}

static int open_desk(struct pn_fi_ep *ep)
{
	struct pn_fi_desk *desk = calloc(1, sizeof(*desk));

	if (!desk)
		return -FI_ENOMEM;
	desk->ep = ep;
	pn_list_init(&desk->link);
	pn_list_append(&ep->desks, &desk->link);
	post(desk);
	return 0;
}

/* --- answers -------------------------------------------------------------- */

static void answered(struct pn_fi_end *end, const struct pinion_completion *c)
{
	struct pn_fi_desk *desk = desk_of(end);

	if (desk->errand.kind == PN_FI_READ && desk->mr)
		pn_fi_count(desk->ep, PN_FI_EVENT_REMOTE_READ, c->status);
	post(desk);
}

/* bytes stay as they are until it is sent: the region's, or the desk's. */
static void answer(struct pn_fi_desk *desk, int status, void *bytes, size_t len)
{
	static const struct pinion_completion good;
	struct pinion_message m = { .size = sizeof(m),
				    .buf = bytes,
				    .len = len,
				    .tag = desk->errand.number,
				    .peer = desk->peer,
				    .user = &desk->end,
				    .space = PN_FI_SPACE_ANSWER,
				    .data = (uint32_t)-status,
				    .flags = PINION_MESSAGE_DATA };
	int ret;

	desk->end.ended = answered;
	if (!pinion_inject(desk->ep->endpoint, &m)) {
		answered(&desk->end, &good);
		return;
	}
	ret = pinion_send(desk->ep->endpoint, &m, NULL);
	if (ret == -ENOMEM)
		pn_error("no memory to answer an RMA or atomic operation: the "
			 "peer waits for it in vain; free memory");
	if (ret) /* or nobody is there any more */
		post(desk);
}

/* --- writes --------------------------------------------------------------- */

static void tell_data(struct pn_fi_desk *desk)
{
	struct pn_fi_entry entry = {
		.end = { .flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
			 .len = desk->errand.len,
			 .data = desk->errand.data },
		.ep = desk->ep,
		.peer = desk->peer,
	};

	pn_fi_cq_push(desk->ep->ways[PN_FI_RX].cq, &entry);
}

/* Its bytes are here, or are not to be had. */
static void written(struct pn_fi_end *end, const struct pinion_completion *c)
{
	struct pn_fi_desk *desk = desk_of(end);
	bool tells = desk->errand.flags & PN_FI_HAS_DATA;
	int status = c->status;

	if (!status && c->len != desk->errand.len)
		status = -FI_EIO;
	if (tells && !status)
		tell_data(desk);
	else if (tells)
		pn_fi_cq_unreserve(desk->ep->ways[PN_FI_RX].cq);
	pn_fi_count(desk->ep, PN_FI_EVENT_REMOTE_WRITE, status);
	if (desk->mr->counter)
		pn_fi_counter_add(desk->mr->counter, status);
	release(desk);
	answer(desk, status, NULL, 0);
}

/* What nobody may write is received into nothing. */
static void refused(struct pn_fi_end *end, const struct pinion_completion *c)
{
	(void)c;
	answer(desk_of(end), desk_of(end)->refusal, NULL, 0);
}

static void receive_rest(struct pn_fi_desk *desk, uint8_t *at)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = at,
				    .len = at ? desk->errand.len : 0,
				    .tag = desk->errand.number,
				    .peer = desk->peer,
				    .user = &desk->end,
				    .space = PN_FI_SPACE_WRITTEN };
	int ret;

	desk->end.ended = at ? written : refused;
	ret = pinion_recv(desk->ep->endpoint, &m, NULL);
	if (ret) {
		struct pinion_completion failed = { .status = ret };

		desk->end.ended(&desk->end, &failed);
	}
}

/* The program hears of it in its receiving CQ, if it has one. */
static int reserve(struct pn_fi_desk *desk)
{
	struct pn_fi_cq *cq = desk->ep->ways[PN_FI_RX].cq;

	if (!(desk->errand.flags & PN_FI_HAS_DATA))
		return 0;
	return cq ? pn_fi_cq_reserve(cq) : -FI_ENOCQ;
}

static void serve_write(struct pn_fi_desk *desk, const uint8_t *payload,
			uint8_t *at)
{
	const struct pinion_completion good = { .len = desk->errand.len };
	int ret = at ? reserve(desk) : -FI_EACCES;

	if (desk->errand.flags & PN_FI_FOLLOWS) {
		desk->refusal = ret;
		receive_rest(desk, ret ? NULL : at);
		return;
	}
	if (ret) {
		answer(desk, ret, NULL, 0);
		return;
	}
	if (desk->errand.len)
		memcpy(at, payload, desk->errand.len);
	written(&desk->end, &good);
}

/* --- atomics -------------------------------------------------------------- */

static void serve_atomic(struct pn_fi_desk *desk, const uint8_t *payload,
			 uint8_t *at)
{
	const struct pn_fi_errand *e = &desk->errand;
	struct pn_fi_reduction r = {
		.type = e->type,
		.op = e->op,
		.at = at,
		.bytes = e->len,
		.operand = e->op == FI_ATOMIC_READ ? NULL : payload,
		.compare = e->kind == PN_FI_COMPARE ? payload + e->len : NULL,
		.before = e->kind == PN_FI_UPDATE ? NULL : desk->before,
	};

	pn_fi_reduce(&r);
	if (desk->mr->counter && e->op != FI_ATOMIC_READ)
		pn_fi_counter_add(desk->mr->counter, 0);
	release(desk);
	pn_fi_count(desk->ep,
		    r.before ? PN_FI_EVENT_REMOTE_READ
			     : PN_FI_EVENT_REMOTE_WRITE,
		    0);
	answer(desk, 0, desk->before, r.before ? e->len : 0);
}

/* --- errands -------------------------------------------------------------- */

static uint64_t access_for(const struct pn_fi_errand *e)
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

static uint8_t *find(struct pn_fi_desk *desk)
{
	const struct pn_fi_errand *e = &desk->errand;
	struct pn_fi_mr *mr = pn_fi_mr_find(desk->ep->domain, e->key);
	uint8_t *at = mr && !mr->closing
			      ? pn_fi_mr_at(mr, e->addr, e->len, access_for(e))
			      : NULL;

	if (at) {
		desk->mr = mr;
		mr->users++;
	}
	return at;
}

static void serve(struct pn_fi_desk *desk, const uint8_t *payload)
{
	const struct pn_fi_errand *e = &desk->errand;
	uint8_t *at = find(desk);

	if (e->kind == PN_FI_WRITE)
		serve_write(desk, payload, at);
	else if (!at)
		answer(desk, -FI_EACCES, NULL, 0);
	else if (e->kind == PN_FI_READ)
		answer(desk, 0, at, e->len);
	else
		serve_atomic(desk, payload, at);
}

static void take(struct pn_fi_desk *desk, const struct pinion_completion *c)
{
	const uint8_t *payload;
	int ret = c->status ? c->status
			    : pn_fi_errand_parse(desk->bytes, c->len,
						 &desk->errand, &payload);

	desk->peer = c->peer;
	if (!ret) {
		serve(desk, payload);
		return;
	}
	pn_warn("an RMA or atomic operation of a peer makes no sense (%d): use "
		"one version of pinion everywhere",
		ret);
	if (c->status)
		post(desk);
	else
		answer(desk, ret, NULL, 0);
}

/* However many of them wait for peers that do not go on, one is free for the
 * others. So a peer that is stopped takes as many desks as it has sent errands,
 * which without desks would wait as messages, and take no less. */
static void errand_came(struct pn_fi_end *end,
			const struct pinion_completion *c)
{
	struct pn_fi_ep *ep = desk_of(end)->ep;

	ep->desks_free--;
	take(desk_of(end), c);
	if (pn_unlikely(!ep->desks_free) && open_desk(ep))
		pn_warn("no memory for a further receive for RMA and atomics: "
			"one of %d has to end first",
			PN_FI_DESKS);
}

int pn_fi_serve(struct pn_fi_ep *ep)
{
	int ret = 0;

	for (int i = 0; i < PN_FI_DESKS && !ret; i++)
		ret = open_desk(ep);
	pn_list_append(&ep->domain->serving, &ep->serving);
	return ret;
}

void pn_fi_desks_abandon(struct pn_fi_ep *ep)
{
	struct pn_list *pos;

	pn_list_remove(&ep->serving);
	pn_list_for_each (pos, &ep->desks) {
		const struct pn_fi_desk *desk =
			pn_container_of(pos, struct pn_fi_desk, link);

		if (desk->end.ended == written &&
		    desk->errand.flags & PN_FI_HAS_DATA)
			pn_fi_cq_unreserve(ep->ways[PN_FI_RX].cq);
	}
}

void pn_fi_desks_free(struct pn_fi_ep *ep)
{
	while (!pn_list_empty(&ep->desks))
		close_desk(pn_container_of(ep->desks.next, struct pn_fi_desk,
					   link));
}
