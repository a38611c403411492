/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "provider/open_mpi.h"
#include "provider/sendrecv.h"
#include "provider/vector.h"

/* Flags of the entry. */
static uint64_t entry_flags(const struct pinion_message *m, enum pn_fi_dir dir)
{
	return (m->space == PN_FI_SPACE_MSG ? FI_MSG : FI_TAGGED) |
	       (dir == PN_FI_TX ? FI_SEND : FI_RECV);
}

static bool is_unsignaled(const struct pn_fi_ep *ep, enum pn_fi_dir dir,
			  uint64_t flags)
{
	return ep->dirs[dir].selective && !(flags & FI_COMPLETION);
}

static void init_op(struct pn_fi_op *op, struct pinion_message *m,
		    void *context, uint64_t flags)
{
	op->context = context;
	op->flags = entry_flags(m, op->dir);
	op->unsignaled = is_unsignaled(op->ep, op->dir, flags);
	m->user = &op->callback;
}

/* --- buffers that do not exist -------------------------------------------- */

static bool has_no_buffer(const struct pinion_message *m)
{
	return m->len && !m->buf;
}

/* Open MPI drops the error of a call that starts a persistent request, and
 * waits forever. So the operation starts and completes with an error. */
static PN_NOINLINE int fail_without_buffer(struct pn_fi_ep *ep,
					   enum pn_fi_dir dir,
					   struct pinion_message *m,
					   void *context)
{
	struct pinion_completion failed = { .status = -EFAULT, .tag = m->tag };
	struct pn_fi_op *op = pn_fi_op_alloc(ep, dir);

	if (!op)
		return -FI_EAGAIN;
	pn_error("a %s of %zu bytes at address 0 fails; if an MPI program "
		 "uses MPI_BOTTOM: some versions of Open MPI forget the "
		 "displacements of its datatype, use 4.1.5 or newer",
		 dir == PN_FI_TX ? "send" : "receive", m->len);
	init_op(op, m, context, FI_COMPLETION);
	pn_fi_op_complete(op, &failed);
	return 0;
}

/* --- sending -------------------------------------------------------------- */

/* Copies of more than 128 bytes are made only if the message could not leave in
 * the call. */
static int copy_inject_data(struct pn_fi_op *op, struct pinion_message *m)
{
	void *copy = op->inject;

	if (m->len > sizeof(op->inject))
		copy = op->copy = malloc(m->len);
	if (!copy)
		return -FI_ENOMEM;
	if (m->len)
		memcpy(copy, m->buf, m->len);
	m->buf = copy;
	return 0;
}

/* Sends a message without an op, if it can leave before the call returns. If
 * not, must_queue() of the result is true. */
static inline int try_inject(struct pn_fi_ep *ep,
			     const struct pinion_message *m, void *context,
			     bool unsignaled)
{
	struct pn_fi_cq *cq = ep->dirs[PN_FI_TX].cq;
	int ret;

	if (!unsignaled && pn_fi_cq_reserve(cq))
		return -FI_EAGAIN;
	ret = pinion_inject(ep->endpoint, m);
	if (pn_unlikely(ret)) {
		if (!unsignaled)
			pn_fi_cq_unreserve(cq);
		return ret;
	}
	pn_fi_count_event(ep, PN_FI_EVENT_SEND, 0);
	if (!unsignaled)
		pn_fi_cq_push_sent(cq, context, entry_flags(m, PN_FI_TX));
	return 0;
}

static PN_NOINLINE int send_queued(struct pn_fi_ep *ep,
				   struct pinion_message *m, void *context,
				   uint64_t flags, bool unsignaled)
{
	struct pn_fi_op *op = pn_fi_op_alloc(ep, PN_FI_TX);
	int ret = 0;

	if (!op)
		return -FI_EAGAIN;
	init_op(op, m, context, flags);
	op->unsignaled = unsignaled;
	if (flags & FI_DELIVERY_COMPLETE)
		m->flags |= PINION_MESSAGE_DELIVERY_COMPLETE;
	if (flags & FI_INJECT)
		ret = copy_inject_data(op, m);
	if (!ret)
		ret = pinion_send(ep->endpoint, m, NULL);
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

static inline int send_locked(struct pn_fi_ep *ep, struct pinion_message *m,
			      fi_addr_t addr, void *context, uint64_t flags)
{
	bool unsignaled = is_unsignaled(ep, PN_FI_TX, flags);
	int ret = pn_fi_peer_at(ep, addr, &m->peer);

	if (pn_unlikely(ret))
		return ret;
	if (pn_unlikely(ep->long_ops))
		return -FI_EAGAIN;
	ret = pn_unlikely(flags & FI_DELIVERY_COMPLETE)
		      ? -FI_EAGAIN
		      : try_inject(ep, m, context, unsignaled);
	return pn_likely(!must_queue(ret))
		       ? ret
		       : send_queued(ep, m, context, flags, unsignaled);
}

ssize_t pn_fi_send(struct fid_ep *fid, struct pinion_message *message,
		   fi_addr_t addr, void *context, uint64_t flags)
{
	struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);
	int ret;

	if (pn_unlikely(!ep->enabled || !ep->dirs[PN_FI_TX].cq))
		return -FI_EOPBADSTATE;
	if (pn_unlikely(flags & FI_INJECT && message->len > ep->inject_bytes))
		return -FI_EINVAL;
	pn_fi_lock(ep->domain);
	ret = send_locked(ep, message, addr, context, flags);
	if (pn_unlikely(ret == -EINVAL) && has_no_buffer(message))
		ret = fail_without_buffer(ep, PN_FI_TX, message, context);
	pn_fi_unlock(ep->domain);
	return ret;
}

/* Sends several segments. What may be injected is copied on the stack. */
static int send_gathered(struct pn_fi_ep *ep, struct pinion_message *m,
			 const struct pn_fi_vector_call *call)
{
	struct pn_fi_op *op;
	int ret = pn_fi_peer_at(ep, call->addr, &m->peer);

	if (ret)
		return ret;
	op = ep->long_ops ? NULL : pn_fi_op_alloc(ep, PN_FI_TX);
	if (!op)
		return -FI_EAGAIN;
	init_op(op, m, call->context, call->flags);
	if (call->flags & FI_DELIVERY_COMPLETE)
		m->flags |= PINION_MESSAGE_DELIVERY_COMPLETE;
	ret = pn_fi_op_set_vector(op, call->iov, call->count);
	if (!ret) {
		pn_fi_gather(op->copy, call->iov, call->count);
		m->buf = op->copy;
		ret = pinion_send(ep->endpoint, m, NULL);
	}
	if (ret)
		pn_fi_op_drop(op);
	return ret;
}

/* Sets the buffer of a message that has one segment or none. */
static bool is_plain(struct pinion_message *m,
		     const struct pn_fi_vector_call *call)
{
	if (call->count > 1)
		return false;
	if (call->count) {
		m->buf = call->iov->iov_base;
		m->len = call->iov->iov_len;
	}
	return true;
}

ssize_t pn_fi_send_vector(struct fid_ep *fid, struct pinion_message *m,
			  const struct pn_fi_vector_call *call)
{
	struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);
	uint8_t copy[PN_FI_INJECT_MAX_BYTES];
	ssize_t ret;

	if (is_plain(m, call))
		return pn_fi_send(fid, m, call->addr, call->context,
				  call->flags);
	m->len = pn_fi_vector_bytes(call->iov, call->count);
	if (m->len == SIZE_MAX)
		return -FI_EINVAL;
	if (call->flags & FI_INJECT || m->len <= ep->inject_bytes) {
		if (m->len > ep->inject_bytes)
			return -FI_EINVAL;
		pn_fi_gather(copy, call->iov, call->count);
		m->buf = copy;
		return pn_fi_send(fid, m, call->addr, call->context,
				  call->flags | FI_INJECT);
	}
	if (!ep->enabled || !ep->dirs[PN_FI_TX].cq)
		return -FI_EOPBADSTATE;
	pn_fi_lock(ep->domain);
	ret = send_gathered(ep, m, call);
	pn_fi_unlock(ep->domain);
	return ret;
}

static inline int inject_to_peer(struct pn_fi_ep *ep,
				 struct pinion_message *message)
{
	int ret = pinion_inject(ep->endpoint, message);

	if (pn_unlikely(ret))
		return must_queue(ret)
			       ? send_queued(ep, message, NULL, FI_INJECT, true)
			       : ret;
	pn_fi_count_event(ep, PN_FI_EVENT_SEND, 0);
	return 0;
}

static int inject_locked(struct pn_fi_ep *ep, struct pinion_message *message,
			 fi_addr_t addr)
{
	int ret = pn_fi_peer_at(ep, addr, &message->peer);

	if (pn_unlikely(ret))
		return ret;
	return pn_unlikely(ep->long_ops) ? -FI_EAGAIN
					 : inject_to_peer(ep, message);
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
static void push_peek(struct pn_fi_op *op, const struct pinion_completion *c)
{
	struct pn_fi_entry entry = pn_fi_op_entry(op, c);

	entry.cqe.buf = NULL;
	pn_fi_cq_push(op->ep->dirs[PN_FI_RX].cq, &entry);
	pn_fi_op_free(op);
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
	message.buf = NULL;
	message.len = 0;
	message.user = &op->callback;
	ret = pinion_recv_unexpected(ep->endpoint, unexpected, &message, NULL);
	if (ret)
		pn_fi_op_drop(op);
	return ret;
}

static int peek(struct pn_fi_op *op, const struct pinion_message *m,
		uint64_t flags)
{
	bool take = flags & (FI_CLAIM | FI_DISCARD);
	struct pinion_unexpected *unexpected = NULL;
	struct pinion_completion nothing = { .status = -FI_ENOMSG,
					     .tag = m->tag };
	struct pinion_completion c;
	int found = pinion_probe(op->ep->endpoint, m, &c,
				 take ? &unexpected : NULL);

	if (!found && flags & FI_DISCARD)
		found = discard(op->ep, unexpected, m);
	else if (!found && flags & FI_CLAIM)
		((struct fi_context *)op->context)->internal[0] = unexpected;
	push_peek(op, found ? &nothing : &c);
	return 0;
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

static int receive_claimed(struct pn_fi_op *op, struct pinion_message *m,
			   uint64_t flags)
{
	struct fi_context *context = op->context;
	struct pinion_unexpected *unexpected = context->internal[0];
	int ret;

	if (op->ep->acks_claimed)
		op->callback.completed = claimed_received;
	if (flags & FI_DISCARD) {
		m->buf = NULL;
		m->len = 0;
		op->callback.completed = discarded;
	}
	ret = pinion_recv_unexpected(op->ep->endpoint, unexpected, m, NULL);
	if (ret)
		pn_fi_op_drop(op);
	else
		context->internal[0] = NULL;
	return ret;
}

#define SPECIAL_FLAGS (FI_PEEK | FI_CLAIM | FI_MULTI_RECV)

static PN_NOINLINE int receive_special(struct pn_fi_op *op,
				       struct pinion_message *m, uint64_t flags)
{
	int ret;

	if (flags & FI_PEEK)
		return peek(op, m, flags);
	if (flags & FI_CLAIM)
		return receive_claimed(op, m, flags);
	pn_fi_op_make_multi_recv(op, m);
	ret = pinion_recv(op->ep->endpoint, m, NULL);
	if (ret)
		pn_fi_op_drop(op);
	return ret;
}

static inline int receive_locked(struct pn_fi_ep *ep, struct pinion_message *m,
				 fi_addr_t addr, void *context, uint64_t flags)
{
	struct pn_fi_op *op;
	int ret = 0;

	if (ep->directed && addr != FI_ADDR_UNSPEC)
		ret = pn_fi_peer_at(ep, addr, &m->peer);
	if (pn_unlikely(ret))
		return ret;
	op = pn_fi_op_alloc(ep, PN_FI_RX);
	if (pn_unlikely(!op))
		return -FI_EAGAIN;
	init_op(op, m, context, flags);
	if (pn_unlikely(flags & SPECIAL_FLAGS))
		return receive_special(op, m, flags);
	ret = pinion_recv(ep->endpoint, m, NULL);
	if (pn_unlikely(ret))
		pn_fi_op_drop(op);
	return ret;
}

ssize_t pn_fi_receive(struct fid_ep *fid, struct pinion_message *message,
		      fi_addr_t addr, void *context, uint64_t flags)
{
	struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);
	int ret;

	if (pn_unlikely(!ep->enabled || !ep->dirs[PN_FI_RX].cq))
		return -FI_EOPBADSTATE;
	if (pn_unlikely(flags & FI_CLAIM && !context))
		return -FI_EINVAL;
	pn_fi_lock(ep->domain);
	ret = receive_locked(ep, message, addr, context, flags);
	if (pn_unlikely(ret == -EINVAL) && has_no_buffer(message))
		ret = fail_without_buffer(ep, PN_FI_RX, message, context);
	pn_fi_unlock(ep->domain);
	return ret;
}

/* The message is in the op's copy. */
static void scattered(struct pn_fi_callback *callback,
		      const struct pinion_completion *c)
{
	struct pn_fi_op *op =
		pn_container_of(callback, struct pn_fi_op, callback);
	struct pinion_completion whole = *c;

	pn_fi_op_scatter(op, c->len);
	whole.buf = NULL;
	pn_fi_op_complete(op, &whole);
}

static int receive_scattered(struct pn_fi_ep *ep, struct pinion_message *m,
			     const struct pn_fi_vector_call *call)
{
	struct pn_fi_op *op;
	int ret = 0;

	if (ep->directed && call->addr != FI_ADDR_UNSPEC)
		ret = pn_fi_peer_at(ep, call->addr, &m->peer);
	if (ret)
		return ret;
	op = pn_fi_op_alloc(ep, PN_FI_RX);
	if (!op)
		return -FI_EAGAIN;
	init_op(op, m, call->context, call->flags);
	op->callback.completed = scattered;
	ret = pn_fi_op_set_vector(op, call->iov, call->count);
	m->buf = op->copy;
	if (!ret)
		ret = pinion_recv(ep->endpoint, m, NULL);
	if (ret)
		pn_fi_op_drop(op);
	return ret;
}

ssize_t pn_fi_receive_vector(struct fid_ep *fid, struct pinion_message *m,
			     const struct pn_fi_vector_call *call)
{
	struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);
	ssize_t ret;

	if (is_plain(m, call) || call->flags & FI_PEEK)
		return pn_fi_receive(fid, m, call->addr, call->context,
				     call->flags);
	m->len = pn_fi_vector_bytes(call->iov, call->count);
	if (m->len == SIZE_MAX || call->flags & SPECIAL_FLAGS)
		return -FI_EINVAL;
	if (!ep->enabled || !ep->dirs[PN_FI_RX].cq)
		return -FI_EOPBADSTATE;
	pn_fi_lock(ep->domain);
	ret = receive_scattered(ep, m, call);
	pn_fi_unlock(ep->domain);
	return ret;
}
