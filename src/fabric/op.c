/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends and receives: from libfabric's many calls to two functions, and from
 * pinion's completions to entries. */
#include <stdlib.h>
#include <string.h>

#include "fabric/fabric.h"

#define POLL_BATCH 16

/* What any of the calls below asks for. */
struct work {
	const struct iovec *iov; /* or buf and len */
	size_t count;
	const void *buf;
	size_t len;
	fi_addr_t addr;
	uint64_t tag, ignore, data;
	void *context;
	uint64_t flags; /* of the operation */
	uint8_t space;
};

static struct pn_fi_ep *ep_of(struct fid_ep *fid)
{
	return pn_container_of(fid, struct pn_fi_ep, fid);
}

/* --- ops ------------------------------------------------------------------ */

struct pn_fi_op *pn_fi_op_alloc(struct pn_fi_ep *ep, enum pn_fi_way way)
{
	struct pn_list *free_one = pn_list_pop(&ep->free_ops);
	struct pn_fi_op *op =
		free_one ? pn_container_of(free_one, struct pn_fi_op, link)
			 : malloc(sizeof(*op));

	if (!op)
		return NULL;
	pn_list_init(&op->link);
	if (pn_fi_cq_reserve(ep->ways[way].cq)) {
		pn_list_insert(&ep->free_ops, &op->link);
		return NULL;
	}
	op->ep = ep;
	op->way = way;
	op->event = way == PN_FI_TX ? PN_FI_EVENT_SEND : PN_FI_EVENT_RECV;
	op->end.ended = NULL;
	op->quiet = false;
	op->copy = NULL;
	pn_list_append(&ep->active, &op->link);
	return op;
}

/* Its reservation was used or is given back by the caller. */
static void free_op(struct pn_fi_op *op)
{
	free(op->copy);
	op->copy = NULL;
	pn_list_remove(&op->link);
	pn_list_insert(&op->ep->free_ops, &op->link);
}

void pn_fi_op_drop(struct pn_fi_op *op)
{
	pn_fi_cq_unreserve(op->ep->ways[op->way].cq);
	free_op(op);
}

static void free_list(struct pn_list *list)
{
	struct pn_list *link;

	while ((link = pn_list_pop(list))) {
		struct pn_fi_op *op =
			pn_container_of(link, struct pn_fi_op, link);

		free(op->copy);
		free(op);
	}
}

void pn_fi_ops_abandon(struct pn_fi_ep *ep)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &ep->active) {
		struct pn_fi_op *op =
			pn_container_of(pos, struct pn_fi_op, link);

		pn_fi_cq_unreserve(ep->ways[op->way].cq);
	}
}

void pn_fi_ops_free(struct pn_fi_ep *ep)
{
	free_list(&ep->active);
	free_list(&ep->free_ops);
}

/* --- ends ----------------------------------------------------------------- */

static int error_of(int status)
{
	return status == -EMSGSIZE ? FI_ETRUNC : -status;
}

static struct pn_fi_entry entry_for(const struct pn_fi_op *op,
				    const struct pinion_completion *c)
{
	bool received = op->way == PN_FI_RX;
	struct pn_fi_entry entry = {
		.end = { .op_context = op->context, .flags = op->flags },
		.err = error_of(c->status),
	};

	if (!received)
		return entry;
	entry.end.len = c->len;
	entry.end.buf = op->message.buf;
	entry.end.tag = c->tag;
	entry.olen = c->message_len > c->len ? c->message_len - c->len : 0;
	entry.ep = op->ep;
	entry.peer = c->peer;
	if (c->has_data) {
		entry.end.data = c->data;
		entry.end.flags |= FI_REMOTE_CQ_DATA;
	}
	return entry;
}

/* What is left of a buffer takes the next message. False: it is used up. */
static bool receive_again(struct pn_fi_op *op, size_t used)
{
	struct pn_fi_ep *ep = op->ep;
	struct pinion_message next = op->message;
	struct pn_fi_cq *cq = ep->ways[PN_FI_RX].cq;

	next.buf = (char *)next.buf + used;
	next.len -= used;
	if (next.len < ep->min_multi_recv || !next.len || pn_fi_cq_reserve(cq))
		return false;
	if (pinion_recv(ep->endpoint, &next, NULL)) {
		pn_fi_cq_unreserve(cq);
		return false;
	}
	op->message = next;
	return true;
}

static void end_multi(struct pn_fi_end *end, const struct pinion_completion *c)
{
	struct pn_fi_op *op = pn_container_of(end, struct pn_fi_op, end);
	struct pn_fi_entry entry = entry_for(op, c);
	bool more = (!c->status || c->status == -EMSGSIZE) &&
		    receive_again(op, c->len);

	pn_fi_count(op->ep, PN_FI_EVENT_RECV, c->status);
	if (!more)
		entry.end.flags |= FI_MULTI_RECV;
	pn_fi_cq_push(op->ep->ways[PN_FI_RX].cq, &entry);
	if (!more)
		free_op(op);
}

void pn_fi_op_end(struct pn_fi_op *op, const struct pinion_completion *c)
{
	struct pn_fi_entry entry;

	pn_fi_count(op->ep, op->event, c->status);
	if (op->quiet && !c->status) {
		pn_fi_op_drop(op);
		return;
	}
	entry = entry_for(op, c);
	pn_fi_cq_push(op->ep->ways[op->way].cq, &entry);
	free_op(op);
}

int pn_fi_ep_progress(struct pn_fi_ep *ep)
{
	struct pinion_completion ends[POLL_BATCH];
	int n = pinion_poll(ep->endpoint, ends, POLL_BATCH);

	for (int i = 0; i < n; i++) {
		struct pn_fi_end *end = ends[i].user;

		if (pn_unlikely(end->ended))
			end->ended(end, &ends[i]);
		else
			pn_fi_op_end(pn_container_of(end, struct pn_fi_op, end),
				     &ends[i]);
	}
	return n < 0 ? 0 : n;
}

/* --- beginning ------------------------------------------------------------ */

/* Checks what all have in common and finds the buffer. */
static int prepare(const struct pn_fi_ep *ep, enum pn_fi_way way,
		   struct work *work)
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
static uint64_t entry_flags(const struct work *work, enum pn_fi_way way)
{
	return (work->space == PN_FI_SPACE_MSG ? FI_MSG : FI_TAGGED) |
	       (way == PN_FI_TX ? FI_SEND : FI_RECV);
}

static bool is_quiet(const struct pn_fi_ep *ep, const struct work *work,
		     enum pn_fi_way way)
{
	return ep->ways[way].selective && !(work->flags & FI_COMPLETION);
}

static struct pinion_message message_of(const struct work *work,
					struct pinion_peer *peer)
{
	return (struct pinion_message){
		.buf = (void *)(uintptr_t)work->buf,
		.len = work->len,
		.tag = work->tag,
		.ignore = work->ignore,
		.peer = peer,
		.space = work->space,
		.data = (uint32_t)work->data,
		.has_data = !!(work->flags & FI_REMOTE_CQ_DATA),
	};
}

static void describe(struct pn_fi_op *op, const struct work *work,
		     struct pinion_peer *peer)
{
	op->context = work->context;
	op->flags = entry_flags(work, op->way);
	op->quiet = is_quiet(op->ep, work, op->way);
	op->message = message_of(work, peer);
	op->message.user = &op->end;
}

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

/* What leaves before the call returns needs no op. -EAGAIN: it could not. */
static int send_now(struct pn_fi_ep *ep, const struct work *work,
		    struct pinion_peer *peer, bool quiet)
{
	struct pn_fi_cq *cq = ep->ways[PN_FI_TX].cq;
	struct pinion_message message = message_of(work, peer);
	struct pn_fi_entry entry;
	int ret;

	if (!quiet && pn_fi_cq_reserve(cq))
		return -FI_EAGAIN;
	message.at_once = PINION_AT_ONCE_ONLY;
	ret = pinion_send(ep->endpoint, &message, NULL);
	if (ret != PINION_SENT) {
		if (!quiet)
			pn_fi_cq_unreserve(cq);
		return ret;
	}
	pn_fi_count(ep, PN_FI_EVENT_SEND, 0);
	if (quiet)
		return 0;
	entry = (struct pn_fi_entry){
		.end = { .op_context = work->context,
			 .flags = entry_flags(work, PN_FI_TX) },
	};
	pn_fi_cq_push(cq, &entry);
	return 0;
}

static int send_later(struct pn_fi_ep *ep, const struct work *work,
		      struct pinion_peer *peer, bool quiet)
{
	struct pn_fi_op *op = pn_fi_op_alloc(ep, PN_FI_TX);
	int ret = 0;

	if (!op)
		return -FI_EAGAIN;
	describe(op, work, peer);
	op->quiet = quiet;
	if (work->flags & FI_INJECT)
		ret = keep_copy(op);
	if (!ret)
		ret = pinion_send(ep->endpoint, &op->message, NULL);
	if (ret)
		pn_fi_op_drop(op);
	return ret;
}

static ssize_t send_locked(struct pn_fi_ep *ep, const struct work *work,
			   bool silent)
{
	bool quiet = silent || is_quiet(ep, work, PN_FI_TX);
	struct pinion_peer *peer;
	int ret = pn_fi_peer_at(ep, work->addr, &peer);

	if (ret)
		return ret;
	ret = send_now(ep, work, peer, quiet);
	return pn_likely(ret != -FI_EAGAIN) ? ret
					    : send_later(ep, work, peer, quiet);
}

static ssize_t begin_send(struct fid_ep *fid, struct work *work, bool silent)
{
	struct pn_fi_ep *ep = ep_of(fid);
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

/* --- receiving, and looking first ----------------------------------------- */

/* Ends at once: what was found, or that nothing was. */
static ssize_t tell_peek(struct pn_fi_op *op, int found,
			 const struct pinion_completion *c)
{
	struct pinion_completion nothing = { .status = -FI_ENOMSG,
					     .tag = op->message.tag };
	struct pn_fi_entry entry = entry_for(op, found ? &nothing : c);

	entry.end.buf = NULL;
	pn_fi_cq_push(op->ep->ways[PN_FI_RX].cq, &entry);
	free_op(op);
	return 0;
}

/* Nobody wants the message. That it was longer than nothing is no error. */
static void end_unwanted(struct pn_fi_end *end,
			 const struct pinion_completion *c)
{
	struct pn_fi_op *op = pn_container_of(end, struct pn_fi_op, end);
	struct pinion_completion good = *c;

	good.status = c->status == -EMSGSIZE ? 0 : c->status;
	good.message_len = 0;
	pn_fi_op_end(op, &good);
}

/* It is received into nothing; the peek has told of it. */
static int discard(struct pn_fi_ep *ep, struct pinion_claim *claim,
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
	ret = pinion_recv_claimed(ep->endpoint, claim, &message, NULL);
	if (ret)
		pn_fi_op_drop(op);
	return ret;
}

static ssize_t peek(struct pn_fi_ep *ep, struct pn_fi_op *op,
		    const struct work *work)
{
	bool take = work->flags & (FI_CLAIM | FI_DISCARD);
	struct pinion_claim *claim = NULL;
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
			       const struct work *work)
{
	struct fi_context *context = work->context;
	struct pinion_claim *claim = context->internal[0];
	int ret;

	if (work->flags & FI_DISCARD) {
		op->message.buf = NULL;
		op->message.len = 0;
		op->end.ended = end_unwanted;
	}
	ret = pinion_recv_claimed(ep->endpoint, claim, &op->message, NULL);
	if (ret)
		pn_fi_op_drop(op);
	else
		context->internal[0] = NULL;
	return ret;
}

static ssize_t receive_locked(struct pn_fi_ep *ep, const struct work *work)
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
	op->message.has_data = 0;
	if (pn_unlikely(work->flags & FI_PEEK))
		return peek(ep, op, work);
	if (pn_unlikely(work->flags & FI_CLAIM))
		return receive_claimed(ep, op, work);
	if (work->flags & FI_MULTI_RECV)
		op->end.ended = end_multi;
	ret = pinion_recv(ep->endpoint, &op->message, NULL);
	if (ret)
		pn_fi_op_drop(op);
	return ret;
}

static ssize_t begin_receive(struct fid_ep *fid, struct work *work)
{
	struct pn_fi_ep *ep = ep_of(fid);
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

/* Receives alone: a send is on its way already. The oldest with the context. */
ssize_t pn_fi_cancel(fid_t fid, void *context)
{
	struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid.fid);
	ssize_t ret = -FI_ENOENT;
	struct pn_list *pos;

	pn_fi_lock(ep->domain);
	pn_list_for_each (pos, &ep->active) {
		struct pn_fi_op *op =
			pn_container_of(pos, struct pn_fi_op, link);

		if (op->context != context || op->way != PN_FI_RX)
			continue;
		/* One that was matched meanwhile ends as if not asked. */
		pinion_cancel_user(ep->endpoint, &op->end);
		ret = 0;
		break;
	}
	pn_fi_unlock(ep->domain);
	return ret;
}

/* --- libfabric's calls ---------------------------------------------------- */

/* What calls with flags of their own may ask for. */
#define SEND_FLAGS                                        \
	(FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | \
	 FI_TRANSMIT_COMPLETE | FI_REMOTE_CQ_DATA | FI_MORE)
#define RECV_FLAGS (FI_COMPLETION | FI_MORE)
#define PEEK_FLAGS (FI_PEEK | FI_CLAIM | FI_DISCARD)

#define TX_FLAGS(fid) (ep_of(fid)->ways[PN_FI_TX].op_flags)
#define RX_FLAGS(fid) (ep_of(fid)->ways[PN_FI_RX].op_flags)

static ssize_t t_recv(struct fid_ep *ep, void *buf, size_t len, void *desc,
		      fi_addr_t src, uint64_t tag, uint64_t ignore,
		      void *context)
{
	struct work work = { .buf = buf,
			     .len = len,
			     .addr = src,
			     .tag = tag,
			     .ignore = ignore,
			     .context = context,
			     .flags = RX_FLAGS(ep) & ~FI_MULTI_RECV };

	(void)desc;
	return begin_receive(ep, &work);
}

static ssize_t t_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc,
		       size_t count, fi_addr_t src, uint64_t tag,
		       uint64_t ignore, void *context)
{
	struct work work = { .iov = iov,
			     .count = count,
			     .addr = src,
			     .tag = tag,
			     .ignore = ignore,
			     .context = context,
			     .flags = RX_FLAGS(ep) & ~FI_MULTI_RECV };

	(void)desc;
	return begin_receive(ep, &work);
}

static ssize_t t_recvmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg,
			 uint64_t flags)
{
	struct work work = { .iov = msg->msg_iov,
			     .count = msg->iov_count,
			     .addr = msg->addr,
			     .tag = msg->tag,
			     .ignore = msg->ignore,
			     .context = msg->context,
			     .flags = flags };

	if (flags & ~(RECV_FLAGS | PEEK_FLAGS))
		return -FI_EBADFLAGS;
	return begin_receive(ep, &work);
}

static ssize_t t_send(struct fid_ep *ep, const void *buf, size_t len,
		      void *desc, fi_addr_t dest, uint64_t tag, void *context)
{
	struct work work = { .buf = buf,
			     .len = len,
			     .addr = dest,
			     .tag = tag,
			     .context = context,
			     .flags = TX_FLAGS(ep) };

	(void)desc;
	return begin_send(ep, &work, false);
}

static ssize_t t_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc,
		       size_t count, fi_addr_t dest, uint64_t tag,
		       void *context)
{
	struct work work = { .iov = iov,
			     .count = count,
			     .addr = dest,
			     .tag = tag,
			     .context = context,
			     .flags = TX_FLAGS(ep) };

	(void)desc;
	return begin_send(ep, &work, false);
}

static ssize_t t_sendmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg,
			 uint64_t flags)
{
	struct work work = { .iov = msg->msg_iov,
			     .count = msg->iov_count,
			     .addr = msg->addr,
			     .tag = msg->tag,
			     .data = msg->data,
			     .context = msg->context,
			     .flags = flags };

	if (flags & ~SEND_FLAGS)
		return -FI_EBADFLAGS;
	return begin_send(ep, &work, false);
}

static ssize_t t_inject(struct fid_ep *ep, const void *buf, size_t len,
			fi_addr_t dest, uint64_t tag)
{
	struct work work = { .buf = buf,
			     .len = len,
			     .addr = dest,
			     .tag = tag,
			     .flags = FI_INJECT };

	return begin_send(ep, &work, true);
}

static ssize_t t_senddata(struct fid_ep *ep, const void *buf, size_t len,
			  void *desc, uint64_t data, fi_addr_t dest,
			  uint64_t tag, void *context)
{
	struct work work = { .buf = buf,
			     .len = len,
			     .addr = dest,
			     .tag = tag,
			     .data = data,
			     .context = context,
			     .flags = TX_FLAGS(ep) | FI_REMOTE_CQ_DATA };

	(void)desc;
	return begin_send(ep, &work, false);
}

static ssize_t t_injectdata(struct fid_ep *ep, const void *buf, size_t len,
			    uint64_t data, fi_addr_t dest, uint64_t tag)
{
	struct work work = { .buf = buf,
			     .len = len,
			     .addr = dest,
			     .tag = tag,
			     .data = data,
			     .flags = FI_INJECT | FI_REMOTE_CQ_DATA };

	return begin_send(ep, &work, true);
}

struct fi_ops_tagged pn_fi_tagged_ops = {
	.size = sizeof(struct fi_ops_tagged),
	.recv = t_recv,
	.recvv = t_recvv,
	.recvmsg = t_recvmsg,
	.send = t_send,
	.sendv = t_sendv,
	.sendmsg = t_sendmsg,
	.inject = t_inject,
	.senddata = t_senddata,
	.injectdata = t_injectdata,
};

static ssize_t m_recv(struct fid_ep *ep, void *buf, size_t len, void *desc,
		      fi_addr_t src, void *context)
{
	struct work work = { .buf = buf,
			     .len = len,
			     .addr = src,
			     .space = PN_FI_SPACE_MSG,
			     .context = context,
			     .flags = RX_FLAGS(ep) };

	(void)desc;
	return begin_receive(ep, &work);
}

static ssize_t m_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc,
		       size_t count, fi_addr_t src, void *context)
{
	struct work work = { .iov = iov,
			     .count = count,
			     .addr = src,
			     .space = PN_FI_SPACE_MSG,
			     .context = context,
			     .flags = RX_FLAGS(ep) };

	(void)desc;
	return begin_receive(ep, &work);
}

static ssize_t m_recvmsg(struct fid_ep *ep, const struct fi_msg *msg,
			 uint64_t flags)
{
	struct work work = { .iov = msg->msg_iov,
			     .count = msg->iov_count,
			     .addr = msg->addr,
			     .space = PN_FI_SPACE_MSG,
			     .context = msg->context,
			     .flags = flags };

	if (flags & ~(RECV_FLAGS | FI_MULTI_RECV))
		return -FI_EBADFLAGS;
	return begin_receive(ep, &work);
}

static ssize_t m_send(struct fid_ep *ep, const void *buf, size_t len,
		      void *desc, fi_addr_t dest, void *context)
{
	struct work work = { .buf = buf,
			     .len = len,
			     .addr = dest,
			     .space = PN_FI_SPACE_MSG,
			     .context = context,
			     .flags = TX_FLAGS(ep) };

	(void)desc;
	return begin_send(ep, &work, false);
}

static ssize_t m_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc,
		       size_t count, fi_addr_t dest, void *context)
{
	struct work work = { .iov = iov,
			     .count = count,
			     .addr = dest,
			     .space = PN_FI_SPACE_MSG,
			     .context = context,
			     .flags = TX_FLAGS(ep) };

	(void)desc;
	return begin_send(ep, &work, false);
}

static ssize_t m_sendmsg(struct fid_ep *ep, const struct fi_msg *msg,
			 uint64_t flags)
{
	struct work work = { .iov = msg->msg_iov,
			     .count = msg->iov_count,
			     .addr = msg->addr,
			     .space = PN_FI_SPACE_MSG,
			     .data = msg->data,
			     .context = msg->context,
			     .flags = flags };

	if (flags & ~SEND_FLAGS)
		return -FI_EBADFLAGS;
	return begin_send(ep, &work, false);
}

static ssize_t m_inject(struct fid_ep *ep, const void *buf, size_t len,
			fi_addr_t dest)
{
	struct work work = { .buf = buf,
			     .len = len,
			     .addr = dest,
			     .space = PN_FI_SPACE_MSG,
			     .flags = FI_INJECT };

	return begin_send(ep, &work, true);
}

static ssize_t m_senddata(struct fid_ep *ep, const void *buf, size_t len,
			  void *desc, uint64_t data, fi_addr_t dest,
			  void *context)
{
	struct work work = { .buf = buf,
			     .len = len,
			     .addr = dest,
			     .space = PN_FI_SPACE_MSG,
			     .data = data,
			     .context = context,
			     .flags = TX_FLAGS(ep) | FI_REMOTE_CQ_DATA };

	(void)desc;
	return begin_send(ep, &work, false);
}

static ssize_t m_injectdata(struct fid_ep *ep, const void *buf, size_t len,
			    uint64_t data, fi_addr_t dest)
{
	struct work work = { .buf = buf,
			     .len = len,
			     .addr = dest,
			     .space = PN_FI_SPACE_MSG,
			     .data = data,
			     .flags = FI_INJECT | FI_REMOTE_CQ_DATA };

	return begin_send(ep, &work, true);
}

struct fi_ops_msg pn_fi_msg_ops = {
	.size = sizeof(struct fi_ops_msg),
	.recv = m_recv,
	.recvv = m_recvv,
	.recvmsg = m_recvmsg,
	.send = m_send,
	.sendv = m_sendv,
	.sendmsg = m_sendmsg,
	.inject = m_inject,
	.senddata = m_senddata,
	.injectdata = m_injectdata,
};
