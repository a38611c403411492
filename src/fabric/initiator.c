/* SPDX-License-Identifier: BSD-2-Clause */
/* The initiator's side of one-sided operations (see onesided.h). */
#include <stdlib.h>
#include <string.h>

#include "fabric/onesided.h"

#define MAX_ERRNO 4095
#define FLAGS_ALL                                                   \
	(FI_COMPLETION | FI_INJECT | FI_MORE | FI_INJECT_COMPLETE | \
	 FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)

struct note {
	struct pn_fi_callback end; /* first: pinion's `user` */
	struct pn_list link;	   /* in ep->notes or ep->free_notes */
	struct pn_fi_ep *ep;
	struct pn_fi_rma_request errand;
	uint8_t payload[PN_FI_PAYLOAD_BYTES];
};

/* --- notes ---------------------------------------------------------------- */

static void free_note(struct note *note)
{
	pn_list_remove(&note->link);
	pn_list_insert(&note->ep->free_notes, &note->link);
}

/* If it did not leave, the peer is gone, and the answer's receive tells. */
static void note_left(struct pn_fi_callback *end,
		      const struct pinion_completion *c)
{
	(void)c;
	free_note(pn_container_of(end, struct note, end));
}

static struct note *alloc_note(struct pn_fi_ep *ep)
{
	struct pn_list *free_one = pn_list_pop(&ep->free_notes);
	struct note *note =
		free_one ? pn_container_of(free_one, struct note, link)
			 : malloc(sizeof(*note));

	if (!note)
		return NULL;
	note->end.ended = note_left;
	note->ep = ep;
	pn_list_init(&note->link);
	pn_list_append(&ep->notes, &note->link);
	return note;
}

static void free_list(struct pn_list *list)
{
	struct pn_list *link;

	while ((link = pn_list_pop(list)))
		free(pn_container_of(link, struct note, link));
}

void pn_fi_rma_tx_bufs_free(struct pn_fi_ep *ep)
{
	free_list(&ep->notes);
	free_list(&ep->free_notes);
}

/* The errand's payload lies right behind it. */
_Static_assert(offsetof(struct note, payload) ==
		       offsetof(struct note, errand) +
			       sizeof(struct pn_fi_rma_request),
	       "an errand and its payload are one message");

static void write_note(struct note *note, const struct pn_fi_rma_args *task,
		       uint64_t number)
{
	struct pn_fi_rma_request *e = &note->errand;
	bool follows =
		task->kind == PN_FI_WRITE && task->len > PN_FI_PAYLOAD_BYTES;
	bool data = task->flags & FI_REMOTE_CQ_DATA;
	size_t n;

	*e = (struct pn_fi_rma_request){
		.version = PN_FI_RMA_REQUEST_VERSION,
		.kind = (uint8_t)task->kind,
		.op = (uint8_t)task->op,
		.type = (uint8_t)task->type,
		.flags = (uint16_t)((follows ? PN_FI_DATA_FOLLOWS : 0) |
				    (data ? PN_FI_REMOTE_CQ_DATA : 0)),
		.number = number,
		.key = task->key,
		.addr = task->addr,
		.len = task->len,
		.data = task->data,
	};
	n = pn_fi_rma_request_payload(e);
	if (task->kind == PN_FI_COMPARE)
		memcpy(note->payload + task->len, task->compare, task->len);
	if (n)
		memcpy(note->payload, task->buf, task->len);
}

static int send_note(struct note *note, struct pinion_peer *peer)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = &note->errand,
				    .len = sizeof(note->errand) +
					   pn_fi_rma_request_payload(
						   &note->errand),
				    .peer = peer,
				    .user = &note->end,
				    .space = PN_FI_SPACE_RMA_REQUEST };
	int ret = pinion_inject(note->ep->endpoint, &m);
	bool sent = !ret;

	if (ret)
		ret = pinion_send(note->ep->endpoint, &m, NULL);
	if (sent || ret) /* it has left, or never will */
		free_note(note);
	return ret;
}

/* --- ends ----------------------------------------------------------------- */

/* The answer has the target's status in its data. One without is none, and an
 * errno is smaller than what a pointer may be confused with. */
static int status_of(const struct pn_fi_op *op,
		     const struct pinion_completion *c)
{
	if (c->status)
		return c->status;
	if (!(c->flags & PINION_COMPLETION_DATA) || c->data > MAX_ERRNO)
		return -FI_EIO;
	if (c->data)
		return -(int)c->data;
	return c->len == op->len ? 0 : -FI_EIO;
}

static void part_ended(struct pn_fi_op *op)
{
	struct pinion_completion whole = { .status = op->status };

	if (!--op->pending)
		pn_fi_op_complete(op, &whole);
}

/* Why the target refused says more than that it did not take bytes. */
static void answer_came(struct pn_fi_callback *end,
			const struct pinion_completion *c)
{
	struct pn_fi_op *op = pn_container_of(end, struct pn_fi_op, end);
	int status = status_of(op, c);

	if (status)
		op->status = status;
	part_ended(op);
}

static void rest_left(struct pn_fi_callback *end,
		      const struct pinion_completion *c)
{
	struct pn_fi_op *op = pn_container_of(end, struct pn_fi_op, rest);

	if (!op->status)
		op->status = c->status;
	part_ended(op);
}

/* --- beginning ------------------------------------------------------------ */

/* Bytes that do not fit into the note. */
static int send_rest(struct pn_fi_op *op, const struct pn_fi_rma_args *task,
		     const struct pn_fi_rma_request *errand,
		     struct pinion_peer *peer)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = (void *)(uintptr_t)task->buf,
				    .len = task->len,
				    .tag = errand->number,
				    .peer = peer,
				    .user = &op->rest,
				    .space = PN_FI_SPACE_RMA_DATA };
	int ret;

	if (!(errand->flags & PN_FI_DATA_FOLLOWS))
		return 0;
	ret = pinion_send(op->ep->endpoint, &m, NULL);
	op->pending += !ret;
	return ret;
}

static int receive_answer(struct pn_fi_op *op,
			  const struct pn_fi_rma_args *task, uint64_t number,
			  struct pinion_peer *peer)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = task->result,
				    .len = op->len,
				    .tag = number,
				    .peer = peer,
				    .user = &op->end,
				    .space = PN_FI_SPACE_RMA_RESPONSE };
	int ret = pinion_recv(op->ep->endpoint, &m, NULL);

	op->pending += !ret;
	return ret;
}

/* What has begun ends in the CQ, also when it cannot go on. */
static void give_up(struct pn_fi_op *op, int why)
{
	op->status = why;
	op->pending++;
	part_ended(op);
}

static int send_all(struct pn_fi_op *op, const struct pn_fi_rma_args *task,
		    struct note *note, struct pinion_peer *peer)
{
	uint64_t number = note->errand.number;
	int ret = send_rest(op, task, &note->errand, peer);

	if (ret) {
		free_note(note);
		pn_fi_op_drop(op);
		return ret;
	}
	ret = send_note(note, peer);
	if (ret && !op->pending) {
		pn_fi_op_drop(op);
		return ret;
	}
	if (!ret)
		ret = receive_answer(op, task, number, peer);
	if (ret)
		give_up(op, ret);
	return 0;
}

static void describe(struct pn_fi_op *op, const struct pn_fi_rma_args *task)
{
	bool reads = task->kind == PN_FI_READ || task->kind == PN_FI_FETCH ||
		     task->kind == PN_FI_COMPARE;
	bool rma = task->kind == PN_FI_READ || task->kind == PN_FI_WRITE;

	op->end.ended = answer_came;
	op->rest.ended = rest_left;
	op->context = task->context;
	op->flags = (rma ? FI_RMA : FI_ATOMIC) | (reads ? FI_READ : FI_WRITE);
	op->event = reads ? PN_FI_EVENT_READ : PN_FI_EVENT_WRITE;
	op->len = reads ? task->len : 0;
	op->pending = 0;
	op->status = 0;
	op->quiet = task->silent || (op->ep->ways[PN_FI_TX].selective &&
				     !(task->flags & FI_COMPLETION));
}

static ssize_t run_locked(struct pn_fi_ep *ep,
			  const struct pn_fi_rma_args *task)
{
	struct pinion_peer *peer;
	struct pn_fi_op *op;
	struct note *note;
	int ret = pn_fi_peer_at(ep, task->peer, &peer);

	if (ret)
		return ret;
	note = alloc_note(ep);
	if (!note)
		return -FI_EAGAIN;
	op = pn_fi_op_alloc(ep, PN_FI_TX);
	if (!op) {
		free_note(note);
		return -FI_EAGAIN;
	}
	describe(op, task);
	write_note(note, task, ep->next_number++);
	return send_all(op, task, note, peer);
}

static int check(const struct pn_fi_ep *ep, const struct pn_fi_rma_args *task)
{
	bool rma = task->kind == PN_FI_READ || task->kind == PN_FI_WRITE;
	uint64_t flags =
		FLAGS_ALL | (task->kind == PN_FI_WRITE ? FI_REMOTE_CQ_DATA : 0);

	if (!ep->enabled || !ep->ways[PN_FI_TX].cq)
		return -FI_EOPBADSTATE;
	if (!(ep->caps & (rma ? FI_RMA : FI_ATOMIC)))
		return -FI_ENOSYS;
	if (task->flags & ~flags)
		return -FI_EBADFLAGS;
	if (!rma && !pn_fi_atomic_valid(task->kind, task->type, task->op))
		return -FI_EOPNOTSUPP;
	if (!rma && task->len > PN_FI_ATOMIC_BYTES)
		return -FI_EMSGSIZE;
	if (task->flags & FI_INJECT && task->len > PN_FI_INJECT_BYTES)
		return -FI_EINVAL;
	return 0;
}

ssize_t pn_fi_rma_post(struct fid_ep *fid, const struct pn_fi_rma_args *task)
{
	struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);
	ssize_t ret = check(ep, task);

	if (ret)
		return ret;
	pn_fi_lock(ep->domain);
	ret = run_locked(ep, task);
	pn_fi_unlock(ep->domain);
	return ret;
}
