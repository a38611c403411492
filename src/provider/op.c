/* SPDX-License-Identifier: BSD-2-Clause */
/* Ops: operations in flight, from the reserved entry to the completion. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "provider/provider.h"

/* So many completions fit into a page of the stack. More are polled by the next
 * call. */
#define POLL_BATCH 48

/* --- life ----------------------------------------------------------------- */

static void free_copy(struct pn_fi_op *op)
{
	if (pn_unlikely(op->copy)) {
		free(op->copy);
		op->copy = NULL;
		op->nsegments = 0;
	}
}

bool pn_fi_op_add(struct pn_fi_ep *ep)
{
	struct pn_fi_op *op = aligned_alloc(PN_CACHELINE, sizeof(*op));

	if (!op)
		return false;
	op->ep = ep;
	op->dir = PN_FI_RX;
	op->copy = NULL;
	op->nsegments = 0;
	op->next = ep->ops;
	ep->ops = op;
	pn_fi_op_free(op);
	return true;
}

void pn_fi_op_drop(struct pn_fi_op *op)
{
	pn_fi_cq_unreserve(op->ep->dirs[op->dir].cq);
	free_copy(op);
	pn_fi_op_free(op);
}

void pn_fi_ops_abandon(struct pn_fi_ep *ep)
{
	for (struct pn_fi_op *op = ep->ops; op; op = op->next)
		if (op->number)
			pn_fi_cq_unreserve(ep->dirs[op->dir].cq);
}

void pn_fi_ops_free(struct pn_fi_ep *ep)
{
	struct pn_fi_op *next;

	for (struct pn_fi_op *op = ep->ops; op; op = next) {
		next = op->next;
		free(op->copy);
		free(op);
	}
}

static struct pn_fi_op *oldest_receive(const struct pn_fi_ep *ep,
				       const void *context)
{
	struct pn_fi_op *oldest = NULL;

	for (struct pn_fi_op *op = ep->ops; op; op = op->next)
		if (op->number && op->context == context &&
		    op->dir == PN_FI_RX &&
		    (!oldest || op->number < oldest->number))
			oldest = op;
	return oldest;
}

ssize_t pn_fi_cancel(fid_t fid, void *context)
{
	struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid.fid);
	struct pn_fi_op *op;

	pn_fi_lock(ep->domain);
	op = oldest_receive(ep, context);
	/* A receive that was matched meanwhile completes normally. */
	if (op)
		pinion_recv_cancel(ep->endpoint, &op->callback);
	pn_fi_unlock(ep->domain);
	return op ? 0 : -FI_ENOENT;
}

/* --- completion ----------------------------------------------------------- */

static int error_of(int status)
{
	return status == -EMSGSIZE ? FI_ETRUNC : -status;
}

/* The entry of a receive. */
static struct fi_cq_tagged_entry recv_entry(const struct pn_fi_op *op,
					    const struct pinion_completion *c)
{
	return (struct fi_cq_tagged_entry){
		.op_context = op->context,
		.flags = op->flags |
			 (c->flags & PINION_COMPLETION_DATA ? FI_REMOTE_CQ_DATA
							    : 0),
		.len = c->len,
		.buf = c->buf,
		.data = c->flags & PINION_COMPLETION_DATA
				? c->data | (uint64_t)c->data_high << 32
				: 0,
		.tag = c->tag,
	};
}

struct pn_fi_entry pn_fi_op_entry(const struct pn_fi_op *op,
				  const struct pinion_completion *c)
{
	if (op->dir != PN_FI_RX)
		return (struct pn_fi_entry){
			.cqe = { .op_context = op->context,
				 .flags = op->flags },
			.err = error_of(c->status),
		};
	return (struct pn_fi_entry){
		.cqe = recv_entry(op, c),
		.olen = c->message_len > c->len ? c->message_len - c->len : 0,
		.err = error_of(c->status),
		.ep = op->ep,
		.peer = c->peer,
	};
}

/* There was no memory for the entries of later messages: they are dropped. The
 * buffer belongs to pinion until the last one. */
static void discard_completion(struct pn_fi_callback *callback,
			       const struct pinion_completion *c)
{
	if (!(c->flags & PINION_COMPLETION_MORE))
		pn_fi_op_free(
			pn_container_of(callback, struct pn_fi_op, callback));
}

static void stop_multi_recv(struct pn_fi_op *op)
{
	pn_error("no memory for a completion queue: a multi-receive "
		 "buffer ends, and messages in flight into it are not "
		 "reported; free memory");
	op->callback.completed = discard_completion;
	op->number = 0; /* it has no reserved entry any more */
	pinion_recv_cancel(op->ep->endpoint, &op->callback);
}

/* One entry is reserved for the next message, as long as more may come. */
static void multi_recv_completed(struct pn_fi_callback *callback,
				 const struct pinion_completion *c)
{
	struct pn_fi_op *op =
		pn_container_of(callback, struct pn_fi_op, callback);
	struct pn_fi_cq *cq = op->ep->dirs[PN_FI_RX].cq;
	struct pn_fi_entry entry = pn_fi_op_entry(op, c);
	bool more = c->flags & PINION_COMPLETION_MORE;
	bool reserved = more && !pn_fi_cq_reserve(cq);

	entry.cqe.buf = c->buf;
	pn_fi_count_event(op->ep, PN_FI_EVENT_RECV, c->status);
	if (!(c->flags & PINION_COMPLETION_MORE))
		entry.cqe.flags |= FI_MULTI_RECV;
	pn_fi_cq_push(cq, &entry);
	if (!(c->flags & PINION_COMPLETION_MORE))
		pn_fi_op_free(op);
	else if (!reserved)
		stop_multi_recv(op);
}

/* Each message takes its part of the buffer when it is matched, so that the
 * rest keeps its place among the posted receives. */
void pn_fi_op_make_multi_recv(struct pn_fi_op *op,
			      struct pinion_message *message)
{
	op->multi_recv =
		(struct pinion_multi_recv){ .size = sizeof(op->multi_recv),
					    .min_bytes =
						    op->ep->min_multi_recv };
	message->multi_recv = &op->multi_recv;
	op->callback.completed = multi_recv_completed;
}

void pn_fi_op_complete(struct pn_fi_op *op, const struct pinion_completion *c)
{
	struct pn_fi_entry entry;

	pn_fi_count_event(op->ep, op->event, c->status);
	if (op->unsignaled && !c->status) {
		pn_fi_op_drop(op);
		return;
	}
	entry = pn_fi_op_entry(op, c);
	pn_fi_cq_push(op->ep->dirs[op->dir].cq, &entry);
	free_copy(op);
	pn_fi_op_free(op);
}

/* Writes the entry of a received message directly to the reader. False: use
 * pn_fi_op_complete(). */
static bool complete_received(struct pn_fi_op *op,
			      const struct pinion_completion *c)
{
	struct fi_cq_tagged_entry *to;

	if (pn_unlikely(op->dir != PN_FI_RX || op->unsignaled || c->status))
		return false;
	to = pn_fi_cq_reader_entry(op->ep->dirs[PN_FI_RX].cq);
	if (pn_unlikely(!to))
		return false;
	*to = recv_entry(op, c);
	pn_fi_count_event(op->ep, PN_FI_EVENT_RECV, 0);
	pn_fi_op_free(op);
	return true;
}

static void dispatch(struct pn_fi_callback *callback,
		     const struct pinion_completion *c)
{
	struct pn_fi_op *op =
		pn_container_of(callback, struct pn_fi_op, callback);

	if (pn_unlikely(callback->completed))
		callback->completed(callback, c);
	else if (!complete_received(op, c))
		pn_fi_op_complete(op, c);
}

/* Every other time: while the end of what failed again waits to be returned,
 * pinion_poll() asks no device, and no queue gets room. */
static PN_NOINLINE void retry(struct pn_fi_ep *ep)
{
	bool responders, requests;

	ep->retries = !ep->retries;
	if (ep->retries)
		return;
	responders = pn_fi_responders_retry(ep);
	requests = pn_fi_requests_retry(ep);
	ep->lacks_memory = !responders || !requests;
}

/* Requests of one-sided operations may have found no responder, and a message
 * sent behind them may have completed (FI_ORDER_SAW): they are executed before
 * the program can read that entry. The polls for them return what has ended
 * already, and ask no device for more, so they come to an end. */
int pn_fi_ep_progress(struct pn_fi_ep *ep)
{
	struct pinion_completion ends[POLL_BATCH];
	unsigned idle = ep->idle_responders;
	int n, sum = 0;

	ep->nrequests = 0;
	ep->fence_passed = false;
	do {
		n = pinion_poll(ep->endpoint, ends, sizeof(*ends), POLL_BATCH);
		for (int i = 0; i < n; i++)
			dispatch(ends[i].user, &ends[i]);
		sum += n > 0 ? n : 0;
	} while (pn_unlikely(ep->nrequests && n > 0 &&
			     (n == POLL_BATCH || ep->nrequests >= idle)) &&
		 pn_fi_requests_remain(ep));
	if (pn_unlikely(ep->lacks_memory))
		retry(ep);
	return sum;
}

/* --- the progress thread -------------------------------------------------- */

/* Empty polls, several microseconds, before the thread goes to sleep: the next
 * packet of a transfer often follows soon. */
#define THREAD_EMPTY_POLLS 64
#define THREAD_MAX_POLLS   1024

static void progress_for_a_while(struct pn_fi_ep *ep)
{
	unsigned empty = 0;

	for (unsigned i = 0; i < THREAD_MAX_POLLS; i++) {
		empty = pn_fi_ep_progress(ep) ? 0 : empty + 1;
		if (empty == THREAD_EMPTY_POLLS ||
		    pn_biased_is_wanted(&ep->domain->biased_lock))
			return;
		pn_relax();
	}
}

/* Arming refuses if there is more to do. */
int pn_fi_ep_progress_thread(void *arg)
{
	struct pn_fi_ep *ep = arg;
	struct pn_biased_lock *lock;
	int ret = -EBUSY;

	if (!atomic_load(&ep->is_open))
		return -EBUSY;
	lock = &ep->domain->biased_lock;
	if (!pn_biased_visit(lock))
		return -EBUSY;
	/* It may be closing meanwhile. */
	if (atomic_load(&ep->is_open)) {
		progress_for_a_while(ep);
		if (!pn_biased_is_wanted(lock) && !ep->lacks_memory)
			ret = pinion_endpoint_arm(ep->endpoint);
	}
	pn_biased_leave(lock);
	return ret;
}
