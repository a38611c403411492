/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/open_mpi.h"
#include "fabric/sendrecv.h"

/* Checks what all calls have in common and finds the buffer. */
static int prepare(const struct pn_fi_ep *ep, enum pn_fi_dir dir,
		   struct pn_fi_msg_args *args)
{
	if (!ep->enabled || !ep->dirs[dir].cq)
		return -FI_EOPBADSTATE;
	if (args->count > 1)
		return -FI_EINVAL;
	if (args->count) {
		args->buf = args->iov->iov_base;
		args->len = args->iov->iov_len;
	}
	return 0;
}

/* Flags of the entry. */
static uint64_t entry_flags(const struct pn_fi_msg_args *args,
			    enum pn_fi_dir dir)
{
	return (args->space == PN_FI_SPACE_MSG ? FI_MSG : FI_TAGGED) |
	       (dir == PN_FI_TX ? FI_SEND : FI_RECV);
}

static bool is_unsignaled(const struct pn_fi_ep *ep,
			  const struct pn_fi_msg_args *args, enum pn_fi_dir dir)
{
	return ep->dirs[dir].selective && !(args->flags & FI_COMPLETION);
}

/* Fills it field by field: a compound literal that is built elsewhere and
 * copied would be read again before it is written. */
static void fill_message(struct pinion_message *m,
			 const struct pn_fi_msg_args *args,
			 struct pinion_peer *peer)
{
	memset(m, 0, sizeof(*m));
	m->size = sizeof(*m);
	m->buf = (void *)(uintptr_t)args->buf;
	m->len = args->len;
	m->tag = args->tag;
	m->ignore = args->ignore;
	m->peer = peer;
	m->space = args->space;
	m->data = (uint32_t)args->data;
	if (args->flags & FI_REMOTE_CQ_DATA)
		m->flags = PINION_MESSAGE_DATA;
}

static void init_op(struct pn_fi_op *op, const struct pn_fi_msg_args *args,
		    struct pinion_peer *peer)
{
	op->context = args->context;
	op->flags = entry_flags(args, op->dir);
	op->unsignaled = is_unsignaled(op->ep, args, op->dir);
	fill_message(&op->message, args, peer);
	op->message.user = &op->callback;
}

/* --- buffers that do not exist -------------------------------------------- */

static bool has_no_buffer(const struct pn_fi_msg_args *args)
{
	return args->len && !args->buf;
}

/* Open MPI drops the error of a call that starts a persistent request, and
 * waits forever. So the operation starts and completes with an error. */
static PN_NOINLINE int fail_without_buffer(struct pn_fi_ep *ep,
					   enum pn_fi_dir dir,
					   const struct pn_fi_msg_args *args)
{
	struct pinion_completion failed = { .status = -EFAULT,
					    .tag = args->tag };
	struct pn_fi_op *op = pn_fi_op_alloc(ep, dir);

	if (!op)
		return -FI_EAGAIN;
	pn_error("a %s of %zu bytes at address 0 fails; if an MPI program "
		 "uses MPI_BOTTOM: some versions of Open MPI forget the "
		 "displacements of its datatype, use 4.1.5 or newer",
		 dir == PN_FI_TX ? "send" : "receive", args->len);
	init_op(op, args, NULL);
	pn_fi_op_complete(op, &failed);
	return 0;
}

/* --- sending -------------------------------------------------------------- */

/* Copies of more than 128 bytes are made only if the message could not leave in
 * the call. */
static int copy_inject_data(struct pn_fi_op *op)
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

/* Sends a message without an op, if it can leave before the call returns. If
 * not, must_queue() of the result is true. */
static int try_inject(struct pn_fi_ep *ep, const struct pn_fi_msg_args *args,
		      struct pinion_peer *peer, bool unsignaled)
{
	struct pn_fi_cq *cq = ep->dirs[PN_FI_TX].cq;
	struct pinion_message message;
	struct pn_fi_entry entry;
	int ret;

	fill_message(&message, args, peer);
	if (!unsignaled && pn_fi_cq_reserve(cq))
		return -FI_EAGAIN;
	ret = pinion_inject(ep->endpoint, &message);
	if (ret) {
		if (!unsignaled)
			pn_fi_cq_unreserve(cq);
		return ret;
	}
	pn_fi_count_event(ep, PN_FI_EVENT_SEND, 0);
	if (unsignaled)
		return 0;
	entry = (struct pn_fi_entry){
		.cqe = { .op_context = args->context,
			 .flags = entry_flags(args, PN_FI_TX) },
	};
	pn_fi_cq_push(cq, &entry);
	return 0;
}

static int send_queued(struct pn_fi_ep *ep, const struct pn_fi_msg_args *args,
		       struct pinion_peer *peer, bool unsignaled)
{
	struct pn_fi_op *op = pn_fi_op_alloc(ep, PN_FI_TX);
	int ret = 0;

	if (!op)
		return -FI_EAGAIN;
	init_op(op, args, peer);
	op->unsignaled = unsignaled;
	if (args->flags & FI_DELIVERY_COMPLETE)
		op->message.flags |= PINION_MESSAGE_DELIVERY_COMPLETE;
	if (args->flags & FI_INJECT)
		ret = copy_inject_data(op);
	if (!ret)
		ret = pinion_send(ep->endpoint, &op->message, NULL);
	if (ret)
		pn_fi_op_drop(op);
	return ret;
}

/* Whether pinion_send() is to send a message that pinion_inject() did not take.
 */
static bool must_queue(int ret)
{
	return ret == -EAGAIN || ret == -EMSGSIZE || ret == -EOPNOTSUPP;
}

static ssize_t send_locked(struct pn_fi_ep *ep,
			   const struct pn_fi_msg_args *args,
			   bool never_signaled)
{
	bool unsignaled = never_signaled || is_unsignaled(ep, args, PN_FI_TX);
	struct pinion_peer *peer;
	int ret = pn_fi_peer_at(ep, args->addr, &peer);

	if (ret)
		return ret;
	ret = pn_unlikely(args->flags & FI_DELIVERY_COMPLETE)
		      ? -FI_EAGAIN
		      : try_inject(ep, args, peer, unsignaled);
	return pn_likely(!must_queue(ret))
		       ? ret
		       : send_queued(ep, args, peer, unsignaled);
}

ssize_t pn_fi_send(struct fid_ep *fid, struct pn_fi_msg_args *args,
		   bool never_signaled)
{
	struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);
	ssize_t ret = prepare(ep, PN_FI_TX, args);

	if (ret)
		return ret;
	if (args->flags & FI_INJECT && args->len > ep->inject_bytes)
		return -FI_EINVAL;
	pn_fi_lock(ep->domain);
	ret = send_locked(ep, args, never_signaled);
	if (pn_unlikely(ret == -EINVAL) && has_no_buffer(args))
		ret = fail_without_buffer(ep, PN_FI_TX, args);
	pn_fi_unlock(ep->domain);
	return ret;
}

static PN_NOINLINE int inject_queued(struct pn_fi_ep *ep,
				     const struct pinion_message *message)
{
	const struct pn_fi_msg_args args = {
		.buf = message->buf,
		.len = message->len,
		.tag = message->tag,
		.data = message->data,
		.space = message->space,
		.flags = FI_INJECT | (message->flags & PINION_MESSAGE_DATA
					      ? FI_REMOTE_CQ_DATA
					      : 0),
	};

	return send_queued(ep, &args, message->peer, true);
}

static inline int inject_to_peer(struct pn_fi_ep *ep,
				 const struct pinion_message *message)
{
	int ret = pinion_inject(ep->endpoint, message);

	if (pn_unlikely(ret))
		return must_queue(ret) ? inject_queued(ep, message) : ret;
	pn_fi_count_event(ep, PN_FI_EVENT_SEND, 0);
	return 0;
}

static int inject_locked(struct pn_fi_ep *ep, struct pinion_message *message,
			 fi_addr_t addr)
{
	int ret = pn_fi_peer_at(ep, addr, &message->peer);

	return pn_unlikely(ret) ? ret : inject_to_peer(ep, message);
}

ssize_t pn_fi_inject(struct fid_ep *fid, struct pinion_message *message,
		     fi_addr_t addr)
{
	struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);
	int ret;

	if (!ep->enabled || !ep->dirs[PN_FI_TX].cq)
		return -FI_EOPBADSTATE;
	if (message->len > ep->inject_bytes)
		return -FI_EINVAL;
	pn_fi_lock(ep->domain);
	ret = inject_locked(ep, message, addr);
	pn_fi_unlock(ep->domain);
	return ret;
}

/* --- receive, peek and claim ---------------------------------------------- */

/* A peek completes in the call: with the message found, or with -FI_ENOMSG. */
static ssize_t push_peek(struct pn_fi_op *op, int found,
			 const struct pinion_completion *c)
{
	struct pinion_completion nothing = { .status = -FI_ENOMSG,
					     .tag = op->message.tag };
	struct pn_fi_entry entry = pn_fi_op_entry(op, found ? &nothing : c);

	entry.cqe.buf = NULL;
	pn_fi_cq_push(op->ep->dirs[PN_FI_RX].cq, &entry);
	pn_fi_op_free(op);
	return 0;
}

/* A message was discarded. It is longer than its buffer of 0 bytes, which is no
 * error here. */
static void discarded(struct pn_fi_callback *callback,
		      const struct pinion_completion *c)
{
	struct pn_fi_op *op =
		pn_container_of(callback, struct pn_fi_op, callback);
	struct pinion_completion good = *c;

	good.status = c->status == -EMSGSIZE ? 0 : c->status;
	good.message_len = 0;
	pn_fi_op_complete(op, &good);
}

/* Receives the message into a buffer of 0 bytes. The peek has reported it. */
static int discard(struct pn_fi_ep *ep, struct pinion_unexpected *unexpected,
		   const struct pinion_message *like)
{
	struct pn_fi_op *op = pn_fi_op_alloc(ep, PN_FI_RX);
	struct pinion_message message = *like;
	int ret;

	if (!op)
		return -FI_EAGAIN;
	op->callback.completed = discarded;
	op->unsignaled = true;
	op->context = NULL;
	op->message = message;
	message.buf = NULL;
	message.len = 0;
	message.user = &op->callback;
	ret = pinion_recv_unexpected(ep->endpoint, unexpected, &message, NULL);
	if (ret)
		pn_fi_op_drop(op);
	return ret;
}

static ssize_t peek(struct pn_fi_ep *ep, struct pn_fi_op *op,
		    const struct pn_fi_msg_args *args)
{
	bool take = args->flags & (FI_CLAIM | FI_DISCARD);
	struct pinion_unexpected *unexpected = NULL;
	struct pinion_completion c;
	int found = pinion_probe(ep->endpoint, &op->message, &c,
				 take ? &unexpected : NULL);

	if (!found && args->flags & FI_DISCARD)
		found = discard(ep, unexpected, &op->message);
	else if (!found && args->flags & FI_CLAIM)
		((struct fi_context *)args->context)->internal[0] = unexpected;
	return push_peek(op, found, &c);
}

/* A claimed message was received for Open MPI, which does not acknowledge it if
 * it was sent by MPI_Ssend(): do so (open_mpi.h). */
static void claimed_received(struct pn_fi_callback *callback,
			     const struct pinion_completion *c)
{
	struct pn_fi_op *op =
		pn_container_of(callback, struct pn_fi_op, callback);
	struct pinion_message ack = { .size = sizeof(ack),
				      .peer = c->peer,
				      .space = PN_FI_SPACE_TAGGED };
	int ret = 0;

	if ((!c->status || c->status == -EMSGSIZE) && c->peer &&
	    pn_open_mpi_ack(c, &ack.tag))
		ret = inject_to_peer(op->ep, &ack);
	if (ret)
		pn_error("the sender of a message by MPI_Ssend() does not "
			 "learn that MPI_Mrecv() has received it: %s",
			 strerror(-ret));
	pn_fi_op_complete(op, c);
}

static ssize_t receive_claimed(struct pn_fi_ep *ep, struct pn_fi_op *op,
			       const struct pn_fi_msg_args *args)
{
	struct fi_context *context = args->context;
	struct pinion_unexpected *unexpected = context->internal[0];
	int ret;

	if (ep->acks_claimed)
		op->callback.completed = claimed_received;
	if (args->flags & FI_DISCARD) {
		op->message.buf = NULL;
		op->message.len = 0;
		op->callback.completed = discarded;
	}
	ret = pinion_recv_unexpected(ep->endpoint, unexpected, &op->message,
				     NULL);
	if (ret)
		pn_fi_op_drop(op);
	else
		context->internal[0] = NULL;
	return ret;
}

static ssize_t receive_locked(struct pn_fi_ep *ep,
			      const struct pn_fi_msg_args *args)
{
	struct pinion_peer *peer = NULL;
	struct pn_fi_op *op;
	int ret = 0;

	if (ep->directed && args->addr != FI_ADDR_UNSPEC)
		ret = pn_fi_peer_at(ep, args->addr, &peer);
	if (ret)
		return ret;
	op = pn_fi_op_alloc(ep, PN_FI_RX);
	if (!op)
		return -FI_EAGAIN;
	init_op(op, args, peer);
	op->message.flags = 0;
	if (pn_unlikely(args->flags & FI_PEEK))
		return peek(ep, op, args);
	if (pn_unlikely(args->flags & FI_CLAIM))
		return receive_claimed(ep, op, args);
	if (pn_unlikely(args->flags & FI_MULTI_RECV))
		pn_fi_op_make_multi_recv(op);
	ret = pinion_recv(ep->endpoint, &op->message, NULL);
	if (ret)
		pn_fi_op_drop(op);
	return ret;
}

ssize_t pn_fi_receive(struct fid_ep *fid, struct pn_fi_msg_args *args)
{
	struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);
	ssize_t ret = prepare(ep, PN_FI_RX, args);

	if (ret)
		return ret;
	if (args->flags & FI_CLAIM && !args->context)
		return -FI_EINVAL;
	pn_fi_lock(ep->domain);
	ret = receive_locked(ep, args);
	if (pn_unlikely(ret == -EINVAL) && has_no_buffer(args))
		ret = fail_without_buffer(ep, PN_FI_RX, args);
	pn_fi_unlock(ep->domain);
	return ret;
}
