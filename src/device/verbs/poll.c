/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "device/verbs/connect.h"
#include "device/verbs/iwarp.h"

/* In wr_id: a receive buffer, not an operation. */
#define RECEIVE	  ((uint64_t)1 << 63)
#define POINTER	  (((uint64_t)1 << 48) - 1)
#define KEEP_FREE 4 /* of dev->done: an event and a handful more */

/* --- what poll() will say ------------------------------------------------ */

static void tell(struct pn_verbs_device *dev, struct pn_completion done)
{
	dev->done[(dev->done_head + dev->ndone++) & (dev->max_done - 1)] = done;
}

static void tell_peer(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		      enum pn_completion_kind kind, int status)
{
	tell(dev, (struct pn_completion){ .kind = kind,
					  .status = status,
					  .peer = &peer->peer });
}

/* A message is lent, and its buffer comes back by release(); an immediate has
 * said all. */
static void tell_received(struct pn_verbs_device *dev,
			  struct pn_verbs_peer *peer,
			  struct pn_verbs_receive *receive)
{
	struct pn_completion done = { .kind = PN_COMPLETION_IMM,
				      .peer = &peer->peer,
				      .len = receive->len,
				      .imm = receive->imm };

	if (pn_likely(!receive->is_imm)) {
		done.kind = PN_COMPLETION_RECV;
		done.data = receive->data;
		done.lease = receive;
	}
	tell(dev, done);
	if (receive->is_imm)
		pn_verbs_receive_post(dev, receive);
}

/* --- operations ---------------------------------------------------------- */

/* The oldest operation is over. */
static void retire(struct pn_verbs_device *dev, struct pn_verbs_tx *lane,
		   int status)
{
	struct pn_verbs_record *record = &lane->records[lane->head];

	if (++lane->head == dev->device.limits.queue_depth)
		lane->head = 0;
	lane->count--;
	lane->reads -= record->reads;
	lane->fenced &= lane->reads > 0;
	if (pn_unlikely(dev->is_iwarp))
		pn_verbs_count_progress(record->peer);
	if (pn_unlikely(lane->refused)) {
		lane->refused = false;
		dev->relieved = true;
	}
	if (record->silent && !status) {
		dev->nsends--;
		return;
	}
	tell(dev, (struct pn_completion){ .kind = PN_COMPLETION_OP,
					  .status = status,
					  .peer = &record->peer->peer,
					  .user = record->user });
}

/* A lane broke, or the peer is down: then nothing more may arrive either, so
 * that what was acknowledged is in the queue before PEER_DOWN is told. */
void pn_verbs_teardown_begin(struct pn_verbs_device *dev,
			     struct pn_verbs_peer *peer, int broken)
{
	struct ibv_qp_attr stop = { .qp_state = IBV_QPS_ERR };

	if (!peer->out.broken)
		peer->out.broken = broken;
	/* On iWARP, that is how the service comes to hear of it. */
	if (dev->is_iwarp && peer->out.qp)
		ibv_modify_qp(peer->out.qp, &stop, IBV_QP_STATE);
	if (peer->down && peer->in)
		ibv_modify_qp(peer->in->qp, &stop, IBV_QP_STATE);
	if (pn_list_empty(&peer->failing) && !peer->down_told)
		pn_list_append(&dev->failing, &peer->failing);
}

void pn_verbs_detach(struct pn_device *device, struct pn_peer *peer)
{
	struct pn_verbs_device *dev = pn_verbs_of(device);
	struct pn_verbs_peer *p = pn_verbs_peer_of(peer);

	pn_verbs_lock(dev);
	if (!p->down)
		p->down = -ECONNRESET;
	pn_verbs_teardown_begin(dev, p, p->down);
	pn_verbs_unlock(dev);
	/* Whoever sleeps tells of it. */
	pn_verbs_wake(device);
}

/* How an operation ended, and what that means for those after it. */
static int status_of(enum ibv_wc_status status, int broken)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return 0;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
		return -EACCES;
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
	case IBV_WC_MW_BIND_ERR:
		return -EFAULT;
	case IBV_WC_LOC_LEN_ERR:
		return -EINVAL;
	case IBV_WC_WR_FLUSH_ERR:
		return broken ? broken : -ECONNRESET;
	default: /* LOC_QP_OP_ERR too: rxe says so when its port is down */
		return -ECONNRESET;
	}
}

static bool swap_goes_on(struct pn_verbs_device *dev,
			 struct pn_verbs_record *record)
{
	struct pn_verbs_tx *lane = &record->peer->out;

	if (*record->result != record->guess) {
		int ret = pn_verbs_swap_retry(dev, record);

		if (!ret)
			return true;
		record->status = ret;
	}
	lane->swapping = false;
	return false;
}

static void end_operation(struct pn_verbs_device *dev, const struct ibv_wc *wc)
{
	struct pn_verbs_record *record =
		(struct pn_verbs_record *)(uintptr_t)(wc->wr_id & POINTER &
						      ~PN_VERBS_CONFIRM);
	struct pn_verbs_peer *peer = record->peer;
	struct pn_verbs_tx *lane = &peer->out;
	int status = status_of(wc->status, lane->broken);

	if (pn_unlikely(lane->epoch != wc->wr_id >> 48))
		return;
	if (pn_unlikely(dev->is_iwarp && status)) {
		/* Why, the service finds out. */
		pn_verbs_teardown_begin(dev, peer, -ECANCELED);
		return;
	}
	if (pn_unlikely(record->swap && !status && swap_goes_on(dev, record)))
		return;
	/* Those before it that were not to tell went well. */
	while (&lane->records[lane->head] != record)
		retire(dev, lane, lane->records[lane->head].status);
	retire(dev, lane, status ? status : record->status);
	if (pn_unlikely(wc->wr_id & PN_VERBS_CONFIRM)) {
		lane->confirming = false;
		pn_verbs_confirm(dev, peer);
	}
	if (pn_likely(!status))
		return;
	if (status == -ECONNRESET && !peer->down) {
		pn_info("verbs: %s: an operation ended with \"%s\": its peer "
			"is gone",
			dev->name, ibv_wc_status_str(wc->status));
		peer->down = status;
	}
	pn_verbs_teardown_begin(dev, peer,
				status == -ECONNRESET ? status : -ECANCELED);
}

/* --- messages ------------------------------------------------------------ */

void pn_verbs_receive_post(struct pn_verbs_device *dev,
			   struct pn_verbs_receive *receive)
{
	struct ibv_sge sge = { (uintptr_t)receive->buffer,
			       (uint32_t)(PN_VERBS_MAX_SEND + dev->head_bytes),
			       dev->receive_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = RECEIVE | (uintptr_t)receive,
				  .sg_list = &sge,
				  .num_sge = 1 };
	struct ibv_recv_wr *bad;
	int ret = ibv_post_srq_recv(dev->srq, &wr, &bad);

	if (ret)
		pn_error("verbs: a receive buffer is lost: %s", strerror(ret));
}

static struct pn_verbs_rx **bucket_of(struct pn_verbs_device *dev,
				      uint32_t number)
{
	return &dev->in[number % PN_VERBS_RX_BUCKETS];
}

static struct pn_verbs_rx *find_sender(struct pn_verbs_device *dev,
				       uint32_t number)
{
	for (struct pn_verbs_rx *in = *bucket_of(dev, number); in;
	     in = in->next)
		if (in->qp->qp_num == number)
			return in;
	for (struct pn_verbs_rx *in = dev->retired; in; in = in->next)
		if (in->qp->qp_num == number)
			return in;
	return NULL;
}

/* False: it was no message. */
static bool fill_receive(struct pn_verbs_device *dev, struct pn_verbs_rx *in,
			 const struct ibv_wc *wc,
			 struct pn_verbs_receive *receive)
{
	const struct pn_verbs_message_header *head;

	receive->peer = in->peer;
	receive->len = wc->byte_len - (uint32_t)dev->head_bytes;
	if (pn_likely(!dev->is_iwarp)) {
		receive->imm = ntohl(wc->imm_data);
		receive->is_imm = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
		return true;
	}
	head = pn_verbs_message_parse(dev, in, receive->buffer, wc->byte_len);
	if (head)
		receive->imm = head->imm;
	return head;
}

static void take_events(struct pn_verbs_device *dev);

static void end_receive(struct pn_verbs_device *dev, const struct ibv_wc *wc)
{
	struct pn_verbs_receive *receive =
		(struct pn_verbs_receive *)(uintptr_t)(wc->wr_id & POINTER);
	struct pn_verbs_rx *in = find_sender(dev, wc->qp_num);

	if (pn_unlikely(!in)) {
		/* The service told of its lane before it could receive. */
		take_events(dev);
		in = find_sender(dev, wc->qp_num);
	}
	if (pn_unlikely(wc->status || !in || in->peer->down_told) ||
	    pn_unlikely(!fill_receive(dev, in, wc, receive)))
		pn_verbs_receive_post(dev, receive);
	else if (pn_likely(in->peer->up_told))
		tell_received(dev, in->peer, receive);
	else
		pn_list_append(&in->peer->early, &receive->link);
}

/* --- peers coming and going ---------------------------------------------- */

static void come_up(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	struct pn_list *pos;

	if (peer->up_told || peer->down || !peer->out.qp || !peer->in)
		return;
	peer->up_told = true;
	tell_peer(dev, peer, PN_COMPLETION_PEER_UP, 0);
	while ((pos = pn_list_pop(&peer->early)))
		tell_received(dev, peer,
			      pn_container_of(pos, struct pn_verbs_receive,
					      link));
}

/* iWARP: the target refused one of what is left, and does not say which. */
static void end_refused(struct pn_verbs_device *dev, struct pn_verbs_tx *lane)
{
	bool found = false;

	while (lane->count) {
		struct pn_verbs_record *record = &lane->records[lane->head];
		bool blamed = !found && record->reaches;
		int status = blamed ? -EACCES : found ? -ECANCELED : 0;

		found |= blamed;
		retire(dev, lane, status ? status : record->status);
	}
}

static void use_lane(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		     struct ibv_qp *qp)
{
	struct pn_verbs_tx *lane = &peer->out;

	end_refused(dev, lane);
	lane->qp = qp;
	lane->next = NULL;
	lane->number = lane->next_number;
	lane->broken = 0;
	lane->unsignalled = 0;
	lane->sent = 0;
	lane->swapping = lane->confirming = false;
	lane->uncovered = NULL;
	dev->relieved |= lane->refused;
	lane->refused = false;
	come_up(dev, peer);
}

/* On iWARP the service may be faster than the completions of the lane that is
 * gone. */
static void take_out(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		     const struct pn_verbs_event *event)
{
	struct pn_verbs_tx *lane = &peer->out;
	uint32_t told =
		(uint32_t)event->grant.lane << 16 | event->grant.messages;

	if (peer->down) {
		ibv_destroy_qp(event->qp);
		return;
	}
	lane->next_number = event->number;
	/* What was granted since the hello may have been lost. */
	peer->must_grant |= told != atomic_load(&peer->last_grant);
	if (!lane->qp) {
		pn_assert(dev->is_iwarp || !lane->count);
		use_lane(dev, peer, event->qp);
	} else {
		pn_assert(dev->is_iwarp);
		if (lane->next)
			ibv_destroy_qp(lane->next);
		lane->next = event->qp;
		pn_verbs_teardown_begin(dev, peer, -ECANCELED);
	}
	if (dev->is_iwarp)
		pn_verbs_credit_send_if_due(dev, peer);
}

static void unlink_in(struct pn_verbs_device *dev, struct pn_verbs_rx *in)
{
	struct pn_verbs_rx **pos = bucket_of(dev, in->qp->qp_num);

	while (*pos != in)
		pos = &(*pos)->next;
	*pos = in->next;
}

/* Messages of a lane that goes may still be in the queue: it is destroyed when
 * that was seen empty. */
static void retire_in(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	struct pn_verbs_rx *in = peer->in;

	if (!in)
		return;
	peer->in = NULL;
	unlink_in(dev, in);
	in->next = dev->retired;
	dev->retired = in;
}

static void take_in(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		    const struct pn_verbs_event *event)
{
	struct ibv_qp *qp = event->qp;
	struct pn_verbs_rx *in = malloc(sizeof(*in));
	struct pn_verbs_rx **bucket = bucket_of(dev, qp->qp_num);

	if (peer->down || !in) {
		/* Without it the peer's sends fail, and it goes down. */
		ibv_destroy_qp(qp);
		free(in);
		return;
	}
	retire_in(dev, peer);
	*in = (struct pn_verbs_rx){
		.qp = qp, .peer = peer, .next = *bucket, .number = event->number
	};
	*bucket = in;
	peer->in = in;
	peer->granted = peer->arrived = 0;
	peer->byte = event->byte;
	come_up(dev, peer);
	if (dev->is_iwarp) {
		pn_verbs_credit_received(dev, peer, event->grant);
		pn_verbs_credit_send_if_due(dev, peer);
	}
}

static void take_event(struct pn_verbs_device *dev,
		       struct pn_verbs_event *event)
{
	struct pn_verbs_peer *peer = event->peer;

	switch (event->kind) {
	case PN_VERBS_EVENT_TX_READY:
		take_out(dev, peer, event);
		break;
	case PN_VERBS_EVENT_RX_READY:
		take_in(dev, peer, event);
		break;
	case PN_VERBS_EVENT_PEER_DOWN:
		if (!peer->down)
			peer->down = event->status;
		pn_verbs_teardown_begin(dev, peer, peer->down);
	}
}

static void take_events(struct pn_verbs_device *dev)
{
	struct pn_list *pos;

	while (atomic_load(&dev->nevents) &&
	       dev->ndone + KEEP_FREE < dev->max_done) {
		pn_lock(&dev->events_lock);
		pos = pn_list_pop(&dev->events);
		atomic_fetch_sub(&dev->nevents, 1);
		pn_unlock(&dev->events_lock);
		take_event(dev,
			   pn_container_of(pos, struct pn_verbs_event, link));
		free(pn_container_of(pos, struct pn_verbs_event, link));
	}
}

/* --- the end of lanes, the completion queue being empty ------------------- */

static void destroy_retired(struct pn_verbs_device *dev)
{
	while (dev->retired) {
		struct pn_verbs_rx *in = dev->retired;

		dev->retired = in->next;
		ibv_destroy_qp(in->qp);
		free(in);
	}
}

static void finish_peer(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	struct pn_verbs_tx *lane = &peer->out;
	struct pn_list *pos;

	if (lane->qp)
		ibv_destroy_qp(lane->qp);
	lane->qp = NULL;
	lane->epoch = (lane->epoch + 1) & 0x7fff;
	if (dev->is_iwarp && !peer->down) {
		/* What is left ends when it is known why: take_out(), or the
		 * end of the peer. */
		if (lane->next)
			use_lane(dev, peer, lane->next);
		return;
	}
	while (lane->count)
		retire(dev, lane, dev->is_iwarp ? peer->down : lane->broken);
	if (!peer->down) {
		atomic_store(&peer->wants_lane, true);
		pn_verbs_service_notify(dev);
		return;
	}
	if (lane->next)
		ibv_destroy_qp(lane->next);
	lane->next = NULL;
	dev->relieved |= lane->refused;
	retire_in(dev, peer);
	while ((pos = pn_list_pop(&peer->early)))
		pn_verbs_receive_post(dev,
				      pn_container_of(pos,
						      struct pn_verbs_receive,
						      link));
	peer->down_told = true;
	tell_peer(dev, peer, PN_COMPLETION_PEER_DOWN, peer->down);
	atomic_store(&peer->wants_end, true);
	pn_verbs_service_notify(dev);
}

static void finish_failing(struct pn_verbs_device *dev)
{
	struct pn_list *pos, *tmp;

	pn_list_for_each_safe (pos, tmp, &dev->failing) {
		struct pn_verbs_peer *peer =
			pn_container_of(pos, struct pn_verbs_peer, failing);

		if (dev->ndone + peer->out.count + KEEP_FREE > dev->max_done)
			return;
		pn_list_remove(pos);
		finish_peer(dev, peer);
	}
	destroy_retired(dev);
}

/* --- poll ---------------------------------------------------------------- */

static int take_completions(struct pn_verbs_device *dev)
{
	struct ibv_wc wc[PN_VERBS_POLL_BATCH];
	int n = ibv_poll_cq(dev->cq, PN_VERBS_POLL_BATCH, wc);

	for (int i = 0; i < n; i++)
		if (wc[i].wr_id & RECEIVE)
			end_receive(dev, &wc[i]);
		else
			end_operation(dev, &wc[i]);
	return n;
}

static bool is_ending(const struct pn_verbs_device *dev)
{
	return !pn_list_empty(&dev->failing) || dev->retired;
}

void pn_verbs_progress(struct pn_verbs_device *dev)
{
	int n;

	if (pn_unlikely(
		    atomic_load_explicit(&dev->nevents, memory_order_acquire)))
		take_events(dev);
	/* What ends waits for the queue to be empty, of which nobody tells: a
	 * sleeper would sleep on. */
	do {
		/* One completion may retire a whole queue of silent operations,
		 * but says something about one only. */
		if (dev->ndone + PN_VERBS_POLL_BATCH + KEEP_FREE >
		    dev->max_done)
			return;
		n = take_completions(dev);
	} while (pn_unlikely(n > 0 && is_ending(dev)));
	if (pn_unlikely(n == 0 && is_ending(dev)))
		finish_failing(dev);
	if (pn_unlikely(!pn_list_empty(&dev->owed)))
		pn_verbs_credit_send_pending(dev);
}

int pn_verbs_poll(struct pn_device *device, struct pn_completion *out,
		  unsigned max)
{
	struct pn_verbs_device *dev = pn_verbs_of(device);
	unsigned n = 0;

	pn_verbs_lock(dev);
	if (!dev->ndone)
		pn_verbs_progress(dev);
	while (n < max && dev->ndone) {
		out[n] = dev->done[dev->done_head];
		dev->done_head = (dev->done_head + 1) & (dev->max_done - 1);
		dev->ndone--;
		dev->nsends -= out[n++].kind == PN_COMPLETION_OP;
	}
	pn_verbs_unlock(dev);
	return (int)n;
}

void pn_verbs_release(struct pn_device *device,
		      const struct pn_completion *completion)
{
	struct pn_verbs_device *dev = pn_verbs_of(device);
	struct pn_verbs_receive *receive;

	if (completion->kind != PN_COMPLETION_RECV)
		return;
	receive = completion->lease;
	pn_verbs_lock(dev);
	pn_verbs_receive_post(dev, receive);
	if (pn_unlikely(dev->is_iwarp)) {
		receive->peer->held--;
		pn_verbs_credit_send_if_due(dev, receive->peer);
	}
	pn_verbs_unlock(dev);
}
