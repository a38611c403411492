/* SPDX-License-Identifier: BSD-2-Clause */
/* The initiator of one-sided operations (onesided.h). */
#include <stdlib.h>
#include <string.h>

#include "fabric/onesided.h"

#define MAX_ERRNO 4095
#define FLAGS_ALL                                                   \
	(FI_COMPLETION | FI_INJECT | FI_MORE | FI_INJECT_COMPLETE | \
	 FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)

struct rma_tx_buf {
	struct pn_fi_callback callback; /* first: pinion's `user` */
	struct pn_list link; /* ep->rma_tx_bufs or ep->free_rma_tx_bufs */
	struct pn_fi_ep *ep;
	struct pn_fi_rma_request request;
	uint8_t payload[PN_FI_PAYLOAD_BYTES];
};

/* --- transmit buffers ----------------------------------------------------- */

static void free_tx_buf(struct rma_tx_buf *tx_buf)
{
	pn_list_remove(&tx_buf->link);
	pn_list_insert(&tx_buf->ep->free_rma_tx_bufs, &tx_buf->link);
}

/* If the request was not sent, the peer is down, and the receive of the
 * response reports it. */
static void request_sent(struct pn_fi_callback *callback,
			 const struct pinion_completion *c)
{
	(void)c;
	free_tx_buf(pn_container_of(callback, struct rma_tx_buf, callback));
}

static struct rma_tx_buf *alloc_tx_buf(struct pn_fi_ep *ep)
{
	struct pn_list *free_one = pn_list_pop(&ep->free_rma_tx_bufs);
	struct rma_tx_buf *tx_buf =
		free_one ? pn_container_of(free_one, struct rma_tx_buf, link)
			 : malloc(sizeof(*tx_buf));

	if (!tx_buf)
		return NULL;
	tx_buf->callback.completed = request_sent;
	tx_buf->ep = ep;
	pn_list_init(&tx_buf->link);
	pn_list_append(&ep->rma_tx_bufs, &tx_buf->link);
	return tx_buf;
}

static void free_list(struct pn_list *list)
{
	struct pn_list *link;

	while ((link = pn_list_pop(list)))
		free(pn_container_of(link, struct rma_tx_buf, link));
}

void pn_fi_rma_tx_bufs_free(struct pn_fi_ep *ep)
{
	free_list(&ep->rma_tx_bufs);
	free_list(&ep->free_rma_tx_bufs);
}

_Static_assert(offsetof(struct rma_tx_buf, payload) ==
		       offsetof(struct rma_tx_buf, request) +
			       sizeof(struct pn_fi_rma_request),
	       "a request and its payload are one message");

static void fill_tx_buf(struct rma_tx_buf *tx_buf,
			const struct pn_fi_rma_args *args, uint64_t number)
{
	struct pn_fi_rma_request *e = &tx_buf->request;
	bool follows =
		args->kind == PN_FI_WRITE && args->len > PN_FI_PAYLOAD_BYTES;
	bool data = args->flags & FI_REMOTE_CQ_DATA;
	size_t n;

	*e = (struct pn_fi_rma_request){
		.version = PN_FI_RMA_REQUEST_VERSION,
		.kind = (uint8_t)args->kind,
		.op = (uint8_t)args->op,
		.type = (uint8_t)args->type,
		.flags = (uint16_t)((follows ? PN_FI_DATA_FOLLOWS : 0) |
				    (data ? PN_FI_REMOTE_CQ_DATA : 0)),
		.number = number,
		.key = args->key,
		.addr = args->addr,
		.len = args->len,
		.data = args->data,
	};
	n = pn_fi_rma_request_payload(e);
	if (args->kind == PN_FI_COMPARE)
		memcpy(tx_buf->payload + args->len, args->compare, args->len);
	if (n)
		memcpy(tx_buf->payload, args->buf, args->len);
}

static int send_request(struct rma_tx_buf *tx_buf, struct pinion_peer *peer)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = &tx_buf->request,
				    .len = sizeof(tx_buf->request) +
					   pn_fi_rma_request_payload(
						   &tx_buf->request),
				    .peer = peer,
				    .user = &tx_buf->callback,
				    .space = PN_FI_SPACE_RMA_REQUEST };
	int ret = pinion_inject(tx_buf->ep->endpoint, &m);
	bool sent = !ret;

	if (ret)
		ret = pinion_send(tx_buf->ep->endpoint, &m, NULL);
	if (sent || ret) /* it was sent, or never will be */
		free_tx_buf(tx_buf);
	return ret;
}

/* --- completion ----------------------------------------------------------- */

/* The data of the response is the target's status. A response without data, or
 * with a value that is no errno, is invalid. */
static int response_status(const struct pn_fi_op *op,
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

static void request_ended(struct pn_fi_op *op)
{
	struct pinion_completion whole = { .status = op->status };

	if (!--op->pending)
		pn_fi_op_complete(op, &whole);
}

/* The target's status takes precedence over that of the data. */
static void response_received(struct pn_fi_callback *callback,
			      const struct pinion_completion *c)
{
	struct pn_fi_op *op =
		pn_container_of(callback, struct pn_fi_op, callback);
	int status = response_status(op, c);

	if (status)
		op->status = status;
	request_ended(op);
}

static void data_sent(struct pn_fi_callback *callback,
		      const struct pinion_completion *c)
{
	struct pn_fi_op *op =
		pn_container_of(callback, struct pn_fi_op, data_callback);

	if (!op->status)
		op->status = c->status;
	request_ended(op);
}

/* --- posting -------------------------------------------------------------- */

/* Sends data that does not fit into the transmit buffer. */
static int send_data(struct pn_fi_op *op, const struct pn_fi_rma_args *args,
		     const struct pn_fi_rma_request *request,
		     struct pinion_peer *peer)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = (void *)(uintptr_t)args->buf,
				    .len = args->len,
				    .tag = request->number,
				    .peer = peer,
				    .user = &op->data_callback,
				    .space = PN_FI_SPACE_RMA_DATA };
	int ret;

	if (!(request->flags & PN_FI_DATA_FOLLOWS))
		return 0;
	ret = pinion_send(op->ep->endpoint, &m, NULL);
	op->pending += !ret;
	return ret;
}

static int receive_response(struct pn_fi_op *op,
			    const struct pn_fi_rma_args *args, uint64_t number,
			    struct pinion_peer *peer)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = args->result,
				    .len = op->len,
				    .tag = number,
				    .peer = peer,
				    .user = &op->callback,
				    .space = PN_FI_SPACE_RMA_RESPONSE };
	int ret = pinion_recv(op->ep->endpoint, &m, NULL);

	op->pending += !ret;
	return ret;
}

/* An operation that has started completes with an entry, also if it cannot go
 * on. */
static void fail_started(struct pn_fi_op *op, int why)
{
	op->status = why;
	op->pending++;
	request_ended(op);
}

static int start(struct pn_fi_op *op, const struct pn_fi_rma_args *args,
		 struct rma_tx_buf *tx_buf, struct pinion_peer *peer)
{
	uint64_t number = tx_buf->request.number;
	int ret = send_data(op, args, &tx_buf->request, peer);

	if (ret) {
		free_tx_buf(tx_buf);
		pn_fi_op_drop(op);
		return ret;
	}
	ret = send_request(tx_buf, peer);
	if (ret && !op->pending) {
		pn_fi_op_drop(op);
		return ret;
	}
	if (!ret)
		ret = receive_response(op, args, number, peer);
	if (ret)
		fail_started(op, ret);
	return 0;
}

static void init_op(struct pn_fi_op *op, const struct pn_fi_rma_args *args)
{
	bool reads = args->kind == PN_FI_READ || args->kind == PN_FI_FETCH ||
		     args->kind == PN_FI_COMPARE;
	bool rma = args->kind == PN_FI_READ || args->kind == PN_FI_WRITE;

	op->callback.completed = response_received;
	op->data_callback.completed = data_sent;
	op->context = args->context;
	op->flags = (rma ? FI_RMA : FI_ATOMIC) | (reads ? FI_READ : FI_WRITE);
	op->event = reads ? PN_FI_EVENT_READ : PN_FI_EVENT_WRITE;
	op->len = reads ? args->len : 0;
	op->pending = 0;
	op->status = 0;
	op->unsignaled =
		args->never_signaled || (op->ep->dirs[PN_FI_TX].selective &&
					 !(args->flags & FI_COMPLETION));
}

static ssize_t post_locked(struct pn_fi_ep *ep,
			   const struct pn_fi_rma_args *args)
{
	struct pinion_peer *peer;
	struct pn_fi_op *op;
	struct rma_tx_buf *tx_buf;
	int ret = pn_fi_peer_at(ep, args->peer, &peer);

	if (ret)
		return ret;
	tx_buf = alloc_tx_buf(ep);
	if (!tx_buf)
		return -FI_EAGAIN;
	op = pn_fi_op_alloc(ep, PN_FI_TX);
	if (!op) {
		free_tx_buf(tx_buf);
		return -FI_EAGAIN;
	}
	init_op(op, args);
	fill_tx_buf(tx_buf, args, ep->next_number++);
	return start(op, args, tx_buf, peer);
}

static int validate(const struct pn_fi_ep *ep,
		    const struct pn_fi_rma_args *args)
{
	bool rma = args->kind == PN_FI_READ || args->kind == PN_FI_WRITE;
	uint64_t flags =
		FLAGS_ALL | (args->kind == PN_FI_WRITE ? FI_REMOTE_CQ_DATA : 0);

	if (!ep->enabled || !ep->dirs[PN_FI_TX].cq)
		return -FI_EOPBADSTATE;
	if (!(ep->caps & (rma ? FI_RMA : FI_ATOMIC)))
		return -FI_ENOSYS;
	if (args->flags & ~flags)
		return -FI_EBADFLAGS;
	if (!rma && !pn_fi_atomic_valid(args->kind, args->type, args->op))
		return -FI_EOPNOTSUPP;
	if (!rma && args->len > PN_FI_ATOMIC_BYTES)
		return -FI_EMSGSIZE;
	if (args->flags & FI_INJECT && args->len > PN_FI_INJECT_BYTES)
		return -FI_EINVAL;
	return 0;
}

ssize_t pn_fi_rma_post(struct fid_ep *fid, const struct pn_fi_rma_args *args)
{
	struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);
	ssize_t ret = validate(ep, args);

	if (ret)
		return ret;
	pn_fi_lock(ep->domain);
	ret = post_locked(ep, args);
	pn_fi_unlock(ep->domain);
	return ret;
}
