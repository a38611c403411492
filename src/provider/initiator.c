/* SPDX-License-Identifier: BSD-2-Clause */
/* The initiator of one-sided operations (onesided.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "provider/onesided.h"
#include "provider/vector.h"

#define MAX_ERRNO 4095
#define FLAGS_ALL                                                   \
	(FI_COMPLETION | FI_INJECT | FI_MORE | FI_INJECT_COMPLETE | \
	 FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)

struct rma_tx_buf {
	struct pn_fi_callback callback; /* first: pinion's `user` */
	struct pn_list link; /* ep->rma_tx_bufs or ep->free_rma_tx_bufs */
	struct pn_fi_ep *ep;
	struct pn_fi_op *op; /* NULL: a question */
	uint64_t op_number; /* the op ends before the buffer if the peer does */
	struct pinion_peer *peer;
	bool lost; /* was not sent, and is to be sent again */
	struct pn_fi_rma_request request;
	/* The list of segments, if there are several, then the payload. */
	uint8_t rest[PN_FI_SEGMENTS_BYTES + PN_FI_PAYLOAD_BYTES];
};

/* --- transmit buffers ----------------------------------------------------- */

static void free_tx_buf(struct rma_tx_buf *tx_buf)
{
	pn_list_remove(&tx_buf->link);
	pn_list_insert(&tx_buf->ep->free_rma_tx_bufs, &tx_buf->link);
}

/* The op has started, and cannot go on. It completes with an entry when its
 * receive has ended. */
static void give_up(struct pn_fi_op *op, int why)
{
	if (!op->status)
		op->status = why;
	if (op->pending) {
		pinion_recv_cancel(op->ep->endpoint, &op->callback);
		return;
	}
	op->pending++;
	pn_fi_rma_ended(op);
}

/* The request was not sent: the peer is down, or there was no memory. A request
 * whose data is on the way has no order to keep and is sent again. */
static void request_lost(struct rma_tx_buf *tx_buf, int why)
{
	bool waits = tx_buf->op && tx_buf->op->number == tx_buf->op_number;

	if (why == -ENOMEM && tx_buf->request.flags & PN_FI_DATA_FOLLOWS) {
		tx_buf->lost = true;
		pn_fi_lack_memory(tx_buf->ep);
		return;
	}
	if (waits)
		give_up(tx_buf->op, why);
	free_tx_buf(tx_buf);
}

static void request_sent(struct pn_fi_callback *callback,
			 const struct pinion_completion *c)
{
	struct rma_tx_buf *tx_buf =
		pn_container_of(callback, struct rma_tx_buf, callback);

	if (pn_unlikely(c->status))
		request_lost(tx_buf, c->status);
	else
		free_tx_buf(tx_buf);
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
	tx_buf->lost = false;
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

_Static_assert(offsetof(struct rma_tx_buf, rest) ==
		       offsetof(struct rma_tx_buf, request) +
			       sizeof(struct pn_fi_rma_request),
	       "a request and what follows are one message");

/* Returns where the payload begins. */
static uint8_t *fill_segments(struct rma_tx_buf *tx_buf,
			      const struct pn_fi_rma_args *args)
{
	struct pn_fi_rma_segment segment;

	if (tx_buf->request.nsegments < 2)
		return tx_buf->rest;
	for (size_t i = 0; i < args->ntargets; i++) {
		segment =
			(struct pn_fi_rma_segment){ args->target_list[i].addr,
						    args->target_list[i].len,
						    args->target_list[i].key };
		memcpy(tx_buf->rest + i * sizeof(segment), &segment,
		       sizeof(segment));
	}
	return tx_buf->rest + args->ntargets * sizeof(segment);
}

static void copy_operands(uint8_t *to, const void *buf, size_t len,
			  const struct pn_fi_segments *list)
{
	if (list->count)
		pn_fi_gather(to, list->iov, list->count);
	else if (len)
		memcpy(to, buf, len);
}

static void fill_tx_buf(struct rma_tx_buf *tx_buf,
			const struct pn_fi_rma_args *args, uint64_t number)
{
	struct pn_fi_rma_request *e = &tx_buf->request;
	bool follows =
		args->kind == PN_FI_WRITE && args->len > PN_FI_PAYLOAD_BYTES;
	bool data = args->flags & FI_REMOTE_CQ_DATA;
	uint8_t *payload;

	*e = (struct pn_fi_rma_request){
		.version = PN_FI_RMA_REQUEST_VERSION,
		.kind = (uint8_t)args->kind,
		.op = (uint8_t)args->op,
		.type = (uint8_t)args->type,
		.flags = (uint16_t)((follows ? PN_FI_DATA_FOLLOWS : 0) |
				    (data ? PN_FI_REMOTE_CQ_DATA : 0)),
		.nsegments = (uint16_t)(args->no_target	 ? 0
					: args->ntargets ? args->ntargets
							 : 1),
		.number = number,
		.key = args->key,
		.addr = args->addr,
		.len = args->len,
		.data = args->data,
	};
	payload = fill_segments(tx_buf, args);
	if (args->kind == PN_FI_COMPARE)
		copy_operands(payload + args->len, args->compare, args->len,
			      &args->compare_list);
	if (pn_fi_rma_request_payload(e))
		copy_operands(payload, args->buf, args->len, &args->buf_list);
}

/* On error the buffer is the caller's. */
static int send_request(struct rma_tx_buf *tx_buf)
{
	struct pinion_message m = {
		.size = sizeof(m),
		.buf = &tx_buf->request,
		.len = sizeof(tx_buf->request) +
		       pn_fi_rma_request_segments(&tx_buf->request) +
		       pn_fi_rma_request_payload(&tx_buf->request),
		.peer = tx_buf->peer,
		.user = &tx_buf->callback,
		.space = PN_FI_SPACE_RMA_REQUEST
	};

	if (pinion_inject(tx_buf->ep->endpoint, &m))
		return pinion_send(tx_buf->ep->endpoint, &m, NULL);
	free_tx_buf(tx_buf);
	return 0;
}

bool pn_fi_requests_retry(struct pn_fi_ep *ep)
{
	struct pn_list *pos, *next;
	bool all = true;
	int ret;

	pn_list_for_each_safe (pos, next, &ep->rma_tx_bufs) {
		struct rma_tx_buf *tx_buf =
			pn_container_of(pos, struct rma_tx_buf, link);

		if (!tx_buf->lost)
			continue;
		tx_buf->lost = false;
		ret = send_request(tx_buf);
		if (ret)
			request_lost(tx_buf, ret);
		all &= ret != -ENOMEM;
	}
	return all;
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

/* One of pinion's requests has ended. */
void pn_fi_rma_ended(struct pn_fi_op *op)
{
	struct pinion_completion whole = { .status = op->status };

	if (--op->pending)
		return;
	if (!op->status)
		pn_fi_op_scatter(op, op->len);
	op->ep->long_ops -= op->delays_sends;
	pn_fi_op_complete(op, &whole);
}

/* The first error is that of the operation: what fails behind it fails because
 * of it. */
static void ended_with(struct pn_fi_op *op, int status)
{
	if (!op->status)
		op->status = status;
	pn_fi_rma_ended(op);
}

static void response_received(struct pn_fi_callback *callback,
			      const struct pinion_completion *c)
{
	struct pn_fi_op *op =
		pn_container_of(callback, struct pn_fi_op, callback);

	ended_with(op, response_status(op, c));
}

static void nothing_sent(struct pn_fi_callback *callback,
			 const struct pinion_completion *c)
{
	struct pn_fi_op *op =
		pn_container_of(callback, struct pn_fi_op, data_callback);

	if (c->status)
		give_up(op, c->status);
	ended_with(op, c->status);
}

/* The data may never have left, and the target waits for it: a message of 0
 * bytes has its place, and the target answers with an error. (If the target has
 * learned of the failure already, nobody receives that message.) */
static void replace_data(struct pn_fi_op *op, const struct pinion_completion *c)
{
	struct pinion_message m = { .size = sizeof(m),
				    .tag = c->tag,
				    .peer = c->peer,
				    .user = &op->data_callback,
				    .space = PN_FI_SPACE_RMA_DATA };

	op->data_callback.completed = nothing_sent;
	if (!pinion_inject(op->ep->endpoint, &m))
		return;
	if (pinion_send(op->ep->endpoint, &m, NULL))
		give_up(op, c->status);
	else
		op->pending++;
}

static void data_sent(struct pn_fi_callback *callback,
		      const struct pinion_completion *c)
{
	struct pn_fi_op *op =
		pn_container_of(callback, struct pn_fi_op, data_callback);

	if (pn_unlikely(c->status))
		replace_data(op, c);
	ended_with(op, c->status);
}

/* --- posting -------------------------------------------------------------- */

/* Sends data that does not fit into the transmit buffer. */
static int send_data(struct pn_fi_op *op, const struct pn_fi_rma_args *args,
		     const struct pn_fi_rma_request *request,
		     struct pinion_peer *peer)
{
	struct pinion_message m = {
		.size = sizeof(m),
		.buf = op->nsegments ? op->copy : (void *)(uintptr_t)args->buf,
		.len = args->len,
		.tag = request->number,
		.peer = peer,
		.user = &op->data_callback,
		.space = PN_FI_SPACE_RMA_DATA
	};
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
				    .buf = op->nsegments ? op->copy
							 : args->result,
				    .len = op->len,
				    .tag = number,
				    .peer = peer,
				    .user = &op->callback,
				    .space = PN_FI_SPACE_RMA_RESPONSE };
	int ret = pinion_recv(op->ep->endpoint, &m, NULL);

	op->pending += !ret;
	return ret;
}

/* What can be undone comes first: the receive of the response, then the data,
 * then the request. On error nothing was sent, but the receive may be posted.
 */
static int start(struct pn_fi_op *op, const struct pn_fi_rma_args *args,
		 struct rma_tx_buf *tx_buf, struct pinion_peer *peer)
{
	int ret = receive_response(op, args, tx_buf->request.number, peer);

	if (!ret)
		ret = send_data(op, args, &tx_buf->request, peer);
	if (ret) {
		free_tx_buf(tx_buf);
		return ret;
	}
	tx_buf->op = op;
	tx_buf->op_number = op->number;
	tx_buf->peer = peer;
	ret = send_request(tx_buf);
	if (!ret)
		return 0;
	if (tx_buf->request.flags & PN_FI_DATA_FOLLOWS) {
		request_lost(tx_buf, ret);
		return 0;
	}
	free_tx_buf(tx_buf);
	return ret;
}

/* With FI_ORDER_SAW and FI_ORDER_SAR. */
static void delay_sends(struct pn_fi_op *op, const struct pn_fi_rma_args *args)
{
	op->delays_sends =
		args->len > PN_FI_PAYLOAD_BYTES &&
		(args->kind == PN_FI_WRITE ? op->ep->sends_follow_writes
					   : op->ep->sends_follow_reads);
	op->ep->long_ops += op->delays_sends;
}

static void response_canceled(struct pn_fi_callback *callback,
			      const struct pinion_completion *c)
{
	(void)c;
	pn_fi_op_drop(pn_container_of(callback, struct pn_fi_op, callback));
}

/* The operation did not start. Its receive ends with the next poll. */
static void drop_op(struct pn_fi_op *op)
{
	op->ep->long_ops -= op->delays_sends;
	if (!op->pending) {
		pn_fi_op_drop(op);
		return;
	}
	op->callback.completed = response_canceled;
	pinion_recv_cancel(op->ep->endpoint, &op->callback);
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
	delay_sends(op, args);
	op->unsignaled =
		args->never_signaled || (op->ep->dirs[PN_FI_TX].selective &&
					 !(args->flags & FI_COMPLETION));
}

/* Long data of several segments is copied, and so is a result for several. */
static int copy_lists(struct pn_fi_op *op, const struct pn_fi_rma_args *args)
{
	int ret;

	if (args->result_list.count)
		return pn_fi_op_set_vector(op, args->result_list.iov,
					   args->result_list.count);
	if (args->kind != PN_FI_WRITE || !args->buf_list.count ||
	    args->len <= PN_FI_PAYLOAD_BYTES)
		return 0;
	ret = pn_fi_op_set_vector(op, args->buf_list.iov, args->buf_list.count);
	if (!ret)
		pn_fi_gather(op->copy, args->buf_list.iov,
			     args->buf_list.count);
	return ret;
}

static int post_request(struct pn_fi_op *op, const struct pn_fi_rma_args *args,
			struct pinion_peer *peer)
{
	struct rma_tx_buf *tx_buf;

	if (copy_lists(op, args))
		return -FI_EAGAIN;
	tx_buf = alloc_tx_buf(op->ep);
	if (!tx_buf)
		return -FI_EAGAIN;
	fill_tx_buf(tx_buf, args, op->ep->next_number++);
	return start(op, args, tx_buf, peer);
}

static ssize_t post_locked(struct pn_fi_ep *ep,
			   const struct pn_fi_rma_args *args)
{
	struct pinion_peer *peer;
	struct pn_fi_op *op;
	int ret = pn_fi_peer_at(ep, args->peer, &peer);

	if (ret)
		return ret;
	op = pn_fi_op_alloc(ep, PN_FI_TX);
	if (!op)
		return -FI_EAGAIN;
	init_op(op, args);
	if (args->len >= ep->rma_min && pn_fi_device_post(op, args, peer))
		return 0;
	ret = post_request(op, args, peer);
	if (ret)
		drop_op(op);
	return ret;
}

int pn_fi_rma_ask(struct pn_fi_ep *ep, const struct pn_fi_rma_args *args,
		  struct pinion_peer *peer, uint64_t *number)
{
	struct rma_tx_buf *tx_buf = alloc_tx_buf(ep);
	int ret;

	if (!tx_buf)
		return -FI_ENOMEM;
	*number = ep->next_number++;
	fill_tx_buf(tx_buf, args, *number);
	tx_buf->op = NULL;
	tx_buf->peer = peer;
	ret = send_request(tx_buf);
	if (ret)
		free_tx_buf(tx_buf);
	return ret;
}

void pn_fi_rma_repeat(struct pn_fi_op *op)
{
	bool reads = op->event == PN_FI_EVENT_READ;
	struct pn_fi_rma_args args = { .kind = reads ? PN_FI_READ : PN_FI_WRITE,
				       .buf = op->buf,
				       .result = op->buf,
				       .len = op->len,
				       .addr = op->remote_addr,
				       .key = op->remote_key };
	int ret;

	op->callback.completed = response_received;
	op->len = reads ? args.len : 0;
	op->pending = 0;
	ret = post_request(op, &args, op->peer);
	if (ret)
		give_up(op, ret == -FI_EAGAIN ? -FI_ENOMEM : ret);
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
	if (args->flags & FI_INJECT && args->len > PN_FI_INJECT_RMA_BYTES)
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
