/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "fabric/sendrecv.h"

/* Checks what all have in common and finds the buffer. */
static int prepare(const struct pn_fi_ep *ep, enum pn_fi_dir way,
		   struct pn_fi_msg_args *work)
{
	if (!ep->enabled || !ep->ways[way].cq)
		return -FI_EOPBADSTATE;
	if (work->count > 1)
		return -FI_EINVAL;
	if (work->count) {
		work->buf = work->iov->iov_base;
		work->len = work->iov->iov_len;
	}
	return 0;
}

/* Of the entry that an op ends with. */
static uint64_t entry_flags(const struct pn_fi_msg_args *work,
			    enum pn_fi_dir way)
{
	return (work->space == PN_FI_SPACE_MSG ? FI_MSG : FI_TAGGED) |
	       (way == PN_FI_TX ? FI_SEND : FI_RECV);
}

static bool is_quiet(const struct pn_fi_ep *ep,
		     const struct pn_fi_msg_args *work, enum pn_fi_dir way)
{
	return ep->ways[way].selective && !(work->flags & FI_COMPLETION);
}

/* Word by word: what is put together elsewhere and then copied is read again
 * before it is written. */
static void fill_message(struct pinion_message *m,
			 const struct pn_fi_msg_args *work,
			 struct pinion_peer *peer)
{
	memset(m, 0, sizeof(*m));
	m->size = sizeof(*m);
	m->buf = (void *)(uintptr_t)work->buf;
	m->len = work->len;
	m->tag = work->tag;
	m->ignore = work->ignore;
	m->peer = peer;
	m->space = work->space;
	m->data = (uint32_t)work->data;
	if (work->flags & FI_REMOTE_CQ_DATA)
		m->flags = PINION_MESSAGE_DATA;
}

static void describe(struct pn_fi_op *op, const struct pn_fi_msg_args *work,
		     struct pinion_peer *peer)
{
	op->context = work->context;
	op->flags = entry_flags(work, op->way);
	op->quiet = is_quiet(op->ep, work, op->way);
	fill_message(&op->message, work, peer);
	op->message.user = &op->end;
}

/* --- sending -------------------------------------------------------------- */

/* Longer ones than 128 bytes get here only when they could not leave at once.
 */
static int keep_copy(struct pn_fi_op *op)
{
	size_t len = op->message.len;
	void *copy = op->inject;

	if (len > sizeof(op->inject))
		copy = op->copy = malloc(len);
	if (!copy)
		return -FI_ENOMEM;
	if (len)
		memcpy(copy, op->message.buf, len);
	op->message.buf = copy;
	return 0;
}

/* What leaves before the call returns needs no op. is_for_later(): it could
 * not. */
static int send_now(struct pn_fi_ep *ep, const struct pn_fi_msg_args *work,
		    struct pinion_peer *peer, bool quiet)
{
	struct pn_fi_cq *cq = ep->ways[PN_FI_TX].cq;
	struct pinion_message message;
	struct pn_fi_entry entry;
	int ret;

	fill_message(&message, work, peer);
	if (!quiet && pn_fi_cq_reserve(cq))
		return -FI_EAGAIN;
	ret = pinion_inject(ep->endpoint, &message);
	if (ret) {
		if (!quiet)
			pn_fi_cq_unreserve(cq);
		return ret;
	}
	pn_fi_count_event(ep, PN_FI_EVENT_SEND, 0);
	if (quiet)
		return 0;
	entry = (struct pn_fi_entry){
		.end = { .op_context = work->context,
			 .flags = entry_flags(work, PN_FI_TX) },
	};
	pn_fi_cq_push(cq, &entry);
	return 0;
}

static int send_later(struct pn_fi_ep *ep, const struct pn_fi_msg_args *work,
		      struct pinion_peer *peer, bool quiet)
{
	struct pn_fi_op *op = pn_fi_op_alloc(ep, PN_FI_TX);
	int ret = 0;

	if (!op)
		return -FI_EAGAIN;
	describe(op, work, peer);
	op->quiet = quiet;
	if (work->flags & FI_DELIVERY_COMPLETE)
		op->message.flags |= PINION_MESSAGE_DELIVERY_COMPLETE;
	if (work->flags & FI_INJECT)
		ret = keep_copy(op);
	if (!ret)
		ret = pinion_send(ep->endpoint, &op->message, NULL);
	if (ret)
		pn_fi_op_drop(op);
	return ret;
}

/* Whether what could not be injected is to be sent. */
static bool is_for_later(int ret)
{
	return ret == -EAGAIN || ret == -EMSGSIZE || ret == -EOPNOTSUPP;
}

static ssize_t send_locked(struct pn_fi_ep *ep,
			   const struct pn_fi_msg_args *work, bool silent)
{
	bool quiet = silent || is_quiet(ep, work, PN_FI_TX);
	struct pinion_peer *peer;
	int ret = pn_fi_peer_at(ep, work->addr, &peer);

	if (ret)
		return ret;
	ret = pn_unlikely(work->flags & FI_DELIVERY_COMPLETE)
		      ? -FI_EAGAIN
		      : send_now(ep, work, peer, quiet);
	return pn_likely(!is_for_later(ret))
		       ? ret
		       : send_later(ep, work, peer, quiet);
}

ssize_t pn_fi_send(struct fid_ep *fid, struct pn_fi_msg_args *work, bool silent)
{
	struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);
	ssize_t ret = prepare(ep, PN_FI_TX, work);

	if (ret)
		return ret;
	if (work->flags & FI_INJECT && work->len > ep->inject_bytes)
		return -FI_EINVAL;
	pn_fi_lock(ep->domain);
	ret = send_locked(ep, work, silent);
	pn_fi_unlock(ep->domain);
	return ret;
}

static PN_NOINLINE int inject_later(struct pn_fi_ep *ep,
				    const struct pinion_message *message)
{
	const struct pn_fi_msg_args work = {
		.buf = message->buf,
		.len = message->len,
		.tag = message->tag,
		.data = message->data,
		.space = message->space,
		.flags = FI_INJECT | (message->flags & PINION_MESSAGE_DATA
					      ? FI_REMOTE_CQ_DATA
					      : 0),
	};

	return send_later(ep, &work, message->peer, true);
}

static int inject_locked(struct pn_fi_ep *ep, struct pinion_message *message,
			 fi_addr_t addr)
{
	int ret = pn_fi_peer_at(ep, addr, &message->peer);

	if (pn_unlikely(ret))
		return ret;
	ret = pinion_inject(ep->endpoint, message);
	if (pn_unlikely(ret))
		return is_for_later(ret) ? inject_later(ep, message) : ret;
	pn_fi_count_event(ep, PN_FI_EVENT_SEND, 0);
	return 0;
}

ssize_t pn_fi_inject(struct fid_ep *fid, struct pinion_message *message,
		     fi_addr_t addr)
{
	struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);
	int ret;

	if (!ep->enabled || !ep->ways[PN_FI_TX].cq)
		return -FI_EOPBADSTATE;
	if (message->len > ep->inject_bytes)
		return -FI_EINVAL;
	pn_fi_lock(ep->domain);
	ret = inject_locked(ep, message, addr);
	pn_fi_unlock(ep->domain);
	return ret;
}

/* --- receiving, and looking first ----------------------------------------- */

/* Ends at once: what was found, or that nothing was. */
static ssize_t tell_peek(struct pn_fi_op *op, int found,
			 const struct pinion_completion *c)
{
	struct pinion_completion nothing = { .status = -FI_ENOMSG,
					     .tag = op->message.tag };
	struct pn_fi_entry entry = pn_fi_op_entry(op, found ? &nothing : c);

	entry.end.buf = NULL;
	pn_fi_cq_push(op->ep->ways[PN_FI_RX].cq, &entry);
	pn_fi_op_free(op);
	return 0;
}

/* Nobody wants the message. That it was longer than nothing is no error. */
static void end_unwanted(struct pn_fi_callback *end,
			 const struct pinion_completion *c)
{
	struct pn_fi_op *op = pn_container_of(end, struct pn_fi_op, end);
	struct pinion_completion good = *c;

	good.status = c->status == -EMSGSIZE ? 0 : c->status;
	good.message_len = 0;
	pn_fi_op_complete(op, &good);
}

/* It is received into nothing; the peek has told of it. */
static int discard(struct pn_fi_ep *ep, struct pinion_unexpected *claim,
		   const struct pinion_message *like)
{
	struct pn_fi_op *op = pn_fi_op_alloc(ep, PN_FI_RX);
	struct pinion_message message = *like;
	int ret;

	if (!op)
		return -FI_EAGAIN;
	op->end.ended = end_unwanted;
	op->quiet = true;
	op->context = NULL;
	op->message = message;
	message.buf = NULL;
	message.len = 0;
	message.user = &op->end;
	ret = pinion_recv_unexpected(ep->endpoint, claim, &message, NULL);
	if (ret)
		pn_fi_op_drop(op);
	return ret;
}

static ssize_t peek(struct pn_fi_ep *ep, struct pn_fi_op *op,
		    const struct pn_fi_msg_args *work)
{
	bool take = work->flags & (FI_CLAIM | FI_DISCARD);
	struct pinion_unexpected *claim = NULL;
	struct pinion_completion c;
	int found = pinion_probe(ep->endpoint, &op->message, &c,
				 take ? &claim : NULL);

	if (!found && work->flags & FI_DISCARD)
		found = discard(ep, claim, &op->message);
	else if (!found && work->flags & FI_CLAIM)
		((struct fi_context *)work->context)->internal[0] = claim;
	return tell_peek(op, found, &c);
}

static ssize_t receive_claimed(struct pn_fi_ep *ep, struct pn_fi_op *op,
			       const struct pn_fi_msg_args *work)
{
	struct fi_context *context = work->context;
	struct pinion_unexpected *claim = context->internal[0];
	int ret;

	if (work->flags & FI_DISCARD) {
		op->message.buf = NULL;
		op->message.len = 0;
		op->end.ended = end_unwanted;
	}
	ret = pinion_recv_unexpected(ep->endpoint, claim, &op->message, NULL);
	if (ret)
		pn_fi_op_drop(op);
	else
		context->internal[0] = NULL;
	return ret;
}

static ssize_t receive_locked(struct pn_fi_ep *ep,
			      const struct pn_fi_msg_args *work)
{
	struct pinion_peer *peer = NULL;
	struct pn_fi_op *op;
	int ret = 0;

	if (ep->directed && work->addr != FI_ADDR_UNSPEC)
		ret = pn_fi_peer_at(ep, work->addr, &peer);
	if (ret)
		return ret;
	op = pn_fi_op_alloc(ep, PN_FI_RX);
	if (!op)
		return -FI_EAGAIN;
	describe(op, work, peer);
	op->message.flags = 0;
	if (pn_unlikely(work->flags & FI_PEEK))
		return peek(ep, op, work);
	if (pn_unlikely(work->flags & FI_CLAIM))
		return receive_claimed(ep, op, work);
	if (pn_unlikely(work->flags & FI_MULTI_RECV))
		pn_fi_op_make_multi_recv(op);
	ret = pinion_recv(ep->endpoint, &op->message, NULL);
	if (ret)
		pn_fi_op_drop(op);
	return ret;
}

ssize_t pn_fi_receive(struct fid_ep *fid, struct pn_fi_msg_args *work)
{
	struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);
	ssize_t ret = prepare(ep, PN_FI_RX, work);

	if (ret)
		return ret;
	if (work->flags & FI_CLAIM && !work->context)
		return -FI_EINVAL;
	pn_fi_lock(ep->domain);
	ret = receive_locked(ep, work);
	pn_fi_unlock(ep->domain);
	return ret;
}
