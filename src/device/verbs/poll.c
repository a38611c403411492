/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "device/verbs/connect.h"
#include "device/verbs/iwarp.h"

/* Set in a wr_id: it names a receive buffer, not an operation. */
#define RECEIVE	   ((uint64_t)1 << 63)
#define POINTER	   (((uint64_t)1 << 48) - 1)
/* Entries of dev->done that stay free for an event and what it leads to. */
#define KEEP_FREE  4
/* Completions that a first look takes. */
#define POLL_FIRST 8

/* --- the ring of completions ---------------------------------------------- */

static void add_completion(struct pn_verbs_device *dev,
			   struct pn_completion done)
{
	dev->done.ring[(dev->done.head + dev->done.n++) & (dev->done.max - 1)] =
		done;
}

static void complete_peer(struct pn_verbs_device *dev,
			  struct pn_verbs_peer *peer,
			  enum pn_completion_kind kind, int status)
{
	add_completion(dev, (struct pn_completion){ .kind = kind,
						    .status = status,
						    .peer = &peer->peer });
}

/* The buffer of a message is lent to the caller until return_buffer(). The
 * buffer of immediate data is posted again. */
static void complete_receive(struct pn_verbs_device *dev,
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
	add_completion(dev, done);
	if (receive->is_imm)
		pn_verbs_receive_post(dev, receive);
}

/* --- operations ----------------------------------------------------------- */

/* The oldest operation has ended. */
static void retire_operation(struct pn_verbs_device *dev,
			     struct pn_verbs_tx *tx, int status)
{
	struct pn_verbs_record *record = &tx->records[tx->head];

	if (++tx->head == dev->device.limits.queue_depth)
		tx->head = 0;
	tx->count--;
	tx->reads -= record->reads;
	tx->fenced &= tx->reads > 0;
	if (pn_unlikely(dev->is_iwarp))
		pn_verbs_count_progress(record->peer);
	if (pn_unlikely(tx->post_refused)) {
		tx->post_refused = false;
		dev->post_room = true;
	}
	if (record->silent && !status) {
		dev->nsends--;
		return;
	}
	add_completion(dev, (struct pn_completion){ .kind = PN_COMPLETION_OP,
						    .status = status,
						    .peer = &record->peer->peer,
						    .user = record->user });
}

/* When the peer is down, rx stops, too: all messages that it acknowledged are
 * then in the completion queue, before PEER_DOWN is reported. */
void pn_verbs_teardown_begin(struct pn_verbs_device *dev,
			     struct pn_verbs_peer *peer, int broken)
{
	struct ibv_qp_attr stop = { .qp_state = IBV_QPS_ERR };

	if (!peer->tx.broken)
		peer->tx.broken = broken;
	/* iWARP: the error state makes rdma_cm tell the service thread. */
	if (dev->is_iwarp && peer->tx.qp)
		ibv_modify_qp(peer->tx.qp, &stop, IBV_QP_STATE);
	if (peer->down && peer->rx)
		ibv_modify_qp(peer->rx->qp, &stop, IBV_QP_STATE);
	if (pn_list_empty(&peer->teardown) && !peer->down_reported)
		pn_list_append(&dev->teardowns, &peer->teardown);
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
	/* A thread that sleeps makes progress and reports PEER_DOWN. */
	pn_verbs_wake(device);
}

/* The status of an operation. `broken`: that of flushed operations. */
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
	default: /* LOC_QP_OP_ERR, too: rxe reports it when its port is down */
		return -ECONNRESET;
	}
}

/* True: the guess was wrong, and the next compare-swap was posted. */
static bool swap_retried(struct pn_verbs_record *record)
{
	struct pn_verbs_tx *tx = &record->peer->tx;

	if (*record->result != record->guess) {
		int ret = pn_verbs_swap_retry(record);

		if (!ret)
			return true;
		record->status = ret;
	}
	tx->swap_pending = false;
	return false;
}

static void operation_completed(struct pn_verbs_device *dev,
				const struct ibv_wc *wc)
{
	struct pn_verbs_record *record =
		(struct pn_verbs_record *)(uintptr_t)(wc->wr_id & POINTER &
						      ~PN_VERBS_CONFIRM);
	struct pn_verbs_peer *peer = record->peer;
	struct pn_verbs_tx *tx = &peer->tx;
	int status = status_of(wc->status, tx->broken);

	if (pn_unlikely(tx->epoch != wc->wr_id >> 48))
		return;
	if (pn_unlikely(dev->is_iwarp && status)) {
		/* The service thread finds out the reason. */
		pn_verbs_teardown_begin(dev, peer, -ECANCELED);
		return;
	}
	if (pn_unlikely(record->swap && !status && swap_retried(record)))
		return;
	/* The unsignaled operations before it succeeded. */
	while (&tx->records[tx->head] != record)
		retire_operation(dev, tx, tx->records[tx->head].status);
	retire_operation(dev, tx, status ? status : record->status);
	if (pn_unlikely(wc->wr_id & PN_VERBS_CONFIRM)) {
		tx->confirming = false;
		pn_verbs_confirm(dev, peer);
	}
	if (pn_likely(!status))
		return;
	if (status == -ECONNRESET && !peer->down) {
		pn_info("verbs: %s: an operation ended with \"%s\": its peer "
			"is down",
			dev->name, ibv_wc_status_str(wc->status));
		peer->down = status;
	}
	pn_verbs_teardown_begin(dev, peer,
				status == -ECONNRESET ? status : -ECANCELED);
}

/* --- messages ------------------------------------------------------------- */

void pn_verbs_receive_init(struct pn_verbs_device *dev,
			   struct pn_verbs_receive *receive, char *buffer)
{
	receive->buffer = buffer;
	receive->data = buffer + dev->header_bytes;
	receive->segment = (struct ibv_sge){ (uintptr_t)buffer,
					     (uint32_t)(PN_VERBS_MAX_SEND +
							dev->header_bytes),
					     dev->receive.mr->lkey };
	receive->wr =
		(struct ibv_recv_wr){ .wr_id = RECEIVE | (uintptr_t)receive,
				      .sg_list = &receive->segment,
				      .num_sge = 1 };
}

static PN_NOINLINE void post_returned(struct pn_verbs_device *dev)
{
	struct ibv_recv_wr *bad = NULL;
	unsigned lost = 0;
	int ret;

	dev->returned.last->next = NULL;
	ret = ibv_post_srq_recv(dev->srq, dev->returned.first, &bad);
	for (; ret && bad; bad = bad->next)
		lost++;
	if (lost)
		pn_error("verbs: cannot post %u receive buffers, which are "
			 "lost: %s",
			 lost, strerror(ret));
	dev->returned.nposted += dev->returned.n - lost;
	dev->returned.n = 0;
}

/* One call for several buffers: each call takes a lock of the adapter's driver
 * and, on some adapters, writes a doorbell. */
void pn_verbs_receive_post(struct pn_verbs_device *dev,
			   struct pn_verbs_receive *receive)
{
	if (dev->returned.n++)
		dev->returned.last->next = &receive->wr;
	else
		dev->returned.first = &receive->wr;
	dev->returned.last = &receive->wr;
	if (dev->returned.n >= dev->receive.batch ||
	    dev->returned.nposted < dev->params.receives / 2)
		post_returned(dev);
}

static struct pn_verbs_rx **bucket_of(struct pn_verbs_device *dev,
				      uint32_t qp_num)
{
	return &dev->rx_table[qp_num % PN_VERBS_RX_BUCKETS];
}

static struct pn_verbs_rx *find_sender(struct pn_verbs_device *dev,
				       uint32_t qp_num)
{
	for (struct pn_verbs_rx *rx = *bucket_of(dev, qp_num); rx;
	     rx = rx->next)
		if (rx->qp->qp_num == qp_num)
			return rx;
	for (struct pn_verbs_rx *rx = dev->retired; rx; rx = rx->next)
		if (rx->qp->qp_num == qp_num)
			return rx;
	return NULL;
}

/* False: no message for the caller. */
static bool fill_receive(struct pn_verbs_device *dev, struct pn_verbs_rx *rx,
			 const struct ibv_wc *wc,
			 struct pn_verbs_receive *receive)
{
	const struct pn_verbs_message_header *head;

	receive->peer = rx->peer;
	receive->len = wc->byte_len - (uint32_t)dev->header_bytes;
	if (pn_likely(!dev->is_iwarp)) {
		receive->imm = ntohl(wc->imm_data);
		receive->is_imm = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
		return true;
	}
	head = pn_verbs_message_parse(dev, rx, receive->buffer, wc->byte_len);
	if (head)
		receive->imm = head->imm;
	return head;
}

static void handle_events(struct pn_verbs_device *dev);

static void receive_completed(struct pn_verbs_device *dev,
			      const struct ibv_wc *wc)
{
	struct pn_verbs_receive *receive =
		(struct pn_verbs_receive *)(uintptr_t)(wc->wr_id & POINTER);
	struct pn_verbs_rx *rx = find_sender(dev, wc->qp_num);

	dev->returned.nposted--;
	if (pn_unlikely(!rx)) {
		/* RX_READY was queued before the queue pair could receive. */
		handle_events(dev);
		rx = find_sender(dev, wc->qp_num);
	}
	if (pn_unlikely(wc->status || !rx || rx->peer->down_reported) ||
	    pn_unlikely(!fill_receive(dev, rx, wc, receive)))
		pn_verbs_receive_post(dev, receive);
	else if (pn_likely(rx->peer->up_reported))
		complete_receive(dev, rx->peer, receive);
	else
		pn_list_append(&rx->peer->early, &receive->link);
}

/* --- events of the service thread ----------------------------------------- */

static void report_up_if_ready(struct pn_verbs_device *dev,
			       struct pn_verbs_peer *peer)
{
	struct pn_list *pos;

	if (peer->up_reported || peer->down || !peer->tx.qp || !peer->rx)
		return;
	peer->up_reported = true;
	complete_peer(dev, peer, PN_COMPLETION_PEER_UP, 0);
	while ((pos = pn_list_pop(&peer->early)))
		complete_receive(dev, peer,
				 pn_container_of(pos, struct pn_verbs_receive,
						 link));
}

/* iWARP: the target refused one of the operations that are left and does not
 * say which. The first with remote access is blamed. */
static void blame_refused(struct pn_verbs_device *dev, struct pn_verbs_tx *tx)
{
	bool found = false;

	while (tx->count) {
		struct pn_verbs_record *record = &tx->records[tx->head];
		bool blamed = !found && record->remote_access;
		int status = blamed ? -EACCES : found ? -ECANCELED : 0;

		found |= blamed;
		retire_operation(dev, tx, status ? status : record->status);
	}
}

static void use_tx(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		   struct ibv_qp *qp)
{
	struct pn_verbs_tx *tx = &peer->tx;

	blame_refused(dev, tx);
	tx->qp = qp;
	tx->next = NULL;
	tx->generation = tx->next_generation;
	tx->broken = 0;
	tx->unsignalled = 0;
	tx->sent = 0;
	tx->swap_pending = tx->confirming = false;
	tx->unconfirmed = NULL;
	dev->post_room |= tx->post_refused;
	tx->post_refused = false;
	report_up_if_ready(dev, peer);
}

/* On iWARP, TX_READY may arrive before the completions of the broken queue
 * pair. */
static void tx_ready(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		     const struct pn_verbs_event *event)
{
	struct pn_verbs_tx *tx = &peer->tx;
	uint32_t known = (uint32_t)event->credit.generation << 16 |
			 event->credit.messages;

	if (peer->down) {
		ibv_destroy_qp(event->qp);
		return;
	}
	tx->next_generation = event->generation;
	/* Credit that was granted after the hello may be lost. */
	peer->credit_urgent |= known != atomic_load(&peer->granted_credit);
	if (!tx->qp) {
		pn_assert(dev->is_iwarp || !tx->count);
		use_tx(dev, peer, event->qp);
	} else {
		pn_assert(dev->is_iwarp);
		if (tx->next)
			ibv_destroy_qp(tx->next);
		tx->next = event->qp;
		pn_verbs_teardown_begin(dev, peer, -ECANCELED);
	}
	if (dev->is_iwarp)
		pn_verbs_credit_send_if_due(dev, peer);
}

static void unlink_rx(struct pn_verbs_device *dev, struct pn_verbs_rx *rx)
{
	struct pn_verbs_rx **pos = bucket_of(dev, rx->qp->qp_num);

	while (*pos != rx)
		pos = &(*pos)->next;
	*pos = rx->next;
}

/* Its messages may still be in the completion queue: the queue pair is
 * destroyed when that queue was empty. */
static void retire_rx(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	struct pn_verbs_rx *rx = peer->rx;

	if (!rx)
		return;
	peer->rx = NULL;
	unlink_rx(dev, rx);
	rx->next = dev->retired;
	dev->retired = rx;
}

static void rx_ready(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		     const struct pn_verbs_event *event)
{
	struct ibv_qp *qp = event->qp;
	struct pn_verbs_rx *rx = malloc(sizeof(*rx));
	struct pn_verbs_rx **bucket = bucket_of(dev, qp->qp_num);

	if (peer->down || !rx) {
		/* The operations of the peer fail, and it goes down. */
		ibv_destroy_qp(qp);
		free(rx);
		return;
	}
	retire_rx(dev, peer);
	*rx = (struct pn_verbs_rx){ .qp = qp,
				    .peer = peer,
				    .next = *bucket,
				    .generation = event->generation };
	*bucket = rx;
	peer->rx = rx;
	peer->credits_granted = peer->credits_used = 0;
	peer->confirm_byte = event->confirm_byte;
	report_up_if_ready(dev, peer);
	if (dev->is_iwarp) {
		pn_verbs_credit_received(dev, peer, event->credit);
		pn_verbs_credit_send_if_due(dev, peer);
	}
}

static void handle_event(struct pn_verbs_device *dev,
			 struct pn_verbs_event *event)
{
	struct pn_verbs_peer *peer = event->peer;

	switch (event->kind) {
	case PN_VERBS_EVENT_TX_READY:
		tx_ready(dev, peer, event);
		break;
	case PN_VERBS_EVENT_RX_READY:
		rx_ready(dev, peer, event);
		break;
	case PN_VERBS_EVENT_PEER_DOWN:
		if (!peer->down)
			peer->down = event->status;
		pn_verbs_teardown_begin(dev, peer, peer->down);
	}
}

static void handle_events(struct pn_verbs_device *dev)
{
	struct pn_list *pos;

	while (atomic_load(&dev->events.n) &&
	       dev->done.n + KEEP_FREE < dev->done.max) {
		pn_lock(&dev->events.lock);
		pos = pn_list_pop(&dev->events.list);
		atomic_fetch_sub(&dev->events.n, 1);
		pn_unlock(&dev->events.lock);
		pn_assert(pos); /* events.n counts them, and none else pops */
		handle_event(dev,
			     pn_container_of(pos, struct pn_verbs_event, link));
		free(pn_container_of(pos, struct pn_verbs_event, link));
	}
}

/* --- teardown, when the completion queue is empty ------------------------- */

void pn_verbs_destroy_retired(struct pn_verbs_device *dev)
{
	while (dev->retired) {
		struct pn_verbs_rx *rx = dev->retired;

		dev->retired = rx->next;
		ibv_destroy_qp(rx->qp);
		free(rx);
	}
}

static void finish_teardown(struct pn_verbs_device *dev,
			    struct pn_verbs_peer *peer)
{
	struct pn_verbs_tx *tx = &peer->tx;
	struct pn_list *pos;

	if (tx->qp)
		ibv_destroy_qp(tx->qp);
	tx->qp = NULL;
	tx->epoch = (tx->epoch + 1) & 0x7fff;
	if (dev->is_iwarp && !peer->down) {
		/* The operations that are left complete when the reason is
		 * known: in tx_ready(), or when the peer is down. */
		if (tx->next)
			use_tx(dev, peer, tx->next);
		return;
	}
	while (tx->count)
		retire_operation(dev, tx,
				 dev->is_iwarp ? peer->down : tx->broken);
	if (!peer->down) {
		atomic_store(&peer->connect_wanted, true);
		pn_verbs_service_notify(dev);
		return;
	}
	if (tx->next)
		ibv_destroy_qp(tx->next);
	tx->next = NULL;
	dev->post_room |= tx->post_refused;
	retire_rx(dev, peer);
	while ((pos = pn_list_pop(&peer->early)))
		pn_verbs_receive_post(dev,
				      pn_container_of(pos,
						      struct pn_verbs_receive,
						      link));
	peer->down_reported = true;
	complete_peer(dev, peer, PN_COMPLETION_PEER_DOWN, peer->down);
	atomic_store(&peer->close_wanted, true);
	pn_verbs_service_notify(dev);
}

static void finish_teardowns(struct pn_verbs_device *dev)
{
	struct pn_list *pos, *tmp;

	pn_list_for_each_safe (pos, tmp, &dev->teardowns) {
		struct pn_verbs_peer *peer =
			pn_container_of(pos, struct pn_verbs_peer, teardown);

		if (dev->done.n + peer->tx.count + KEEP_FREE > dev->done.max)
			return;
		pn_list_remove(pos);
		finish_teardown(dev, peer);
	}
	pn_verbs_destroy_retired(dev);
}

/* --- poll ----------------------------------------------------------------- */

static PN_NOINLINE void handle_completions(struct pn_verbs_device *dev,
					   const struct ibv_wc *wc, int n)
{
	for (int i = 0; i < n; i++)
		if (wc[i].wr_id & RECEIVE)
			receive_completed(dev, &wc[i]);
		else
			operation_completed(dev, &wc[i]);
}

static int poll_cq(struct pn_verbs_device *dev)
{
	struct ibv_wc wc[PN_VERBS_POLL_BATCH];
	int n = ibv_poll_cq(dev->cq, PN_VERBS_POLL_BATCH, wc);

	handle_completions(dev, wc, n);
	return n;
}

static bool is_tearing_down(const struct pn_verbs_device *dev)
{
	return !pn_list_empty(&dev->teardowns) || dev->retired;
}

void pn_verbs_progress(struct pn_verbs_device *dev)
{
	int n;

	if (pn_unlikely(
		    atomic_load_explicit(&dev->events.n, memory_order_acquire)))
		handle_events(dev);
	/* A teardown waits until the queue is empty, which no notification
	 * reports: a thread that sleeps would not wake up. So empty it here. */
	do {
		/* A completion may retire a whole queue of silent operations
		 * but adds one entry to the ring. */
		if (dev->done.n + PN_VERBS_POLL_BATCH + KEEP_FREE >
		    dev->done.max)
			return;
		n = poll_cq(dev);
	} while (pn_unlikely(n > 0 && is_tearing_down(dev)));
	if (pn_unlikely(n == 0 && is_tearing_down(dev)))
		finish_teardowns(dev);
	if (pn_unlikely(!pn_list_empty(&dev->credits_due)))
		pn_verbs_credit_send_pending(dev);
}

/* Whether poll() has only to look into the completion queue, and no other
 * thread calls the device. */
static inline bool is_simple(struct pn_verbs_device *dev)
{
	return dev->device.single_threaded && !dev->done.n &&
	       !atomic_load_explicit(&dev->events.n, memory_order_acquire) &&
	       !is_tearing_down(dev) && pn_list_empty(&dev->credits_due);
}

static PN_NOINLINE int poll_and_return(struct pn_verbs_device *dev,
				       struct pn_completion *out, unsigned max)
{
	unsigned n = 0;

	pn_verbs_lock(dev);
	if (!dev->done.n)
		pn_verbs_progress(dev);
	while (n < max && dev->done.n) {
		out[n] = dev->done.ring[dev->done.head];
		dev->done.head = (dev->done.head + 1) & (dev->done.max - 1);
		dev->done.n--;
		dev->nsends -= out[n++].kind == PN_COMPLETION_OP;
	}
	pn_verbs_unlock(dev);
	return (int)n;
}

/* Most polls find nothing. Looking into the queue is no system call, so
 * cancellation stays as it is. */
int pn_verbs_poll(struct pn_device *device, struct pn_completion *out,
		  unsigned max)
{
	struct pn_verbs_device *dev = pn_verbs_of(device);
	struct ibv_wc wc[POLL_FIRST];
	int n;

	if (pn_unlikely(!is_simple(dev)))
		return poll_and_return(dev, out, max);
	n = ibv_poll_cq(dev->cq, POLL_FIRST, wc);
	if (pn_likely(n <= 0))
		return 0;
	pn_verbs_lock(dev);
	handle_completions(dev, wc, n);
	pn_verbs_unlock(dev);
	/* Silent operations may have ended: look for more. */
	return poll_and_return(dev, out, max);
}

void pn_verbs_return_buffer(struct pn_device *device,
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
		receive->peer->unreturned--;
		pn_verbs_credit_send_if_due(dev, receive->peer);
	}
	pn_verbs_unlock(dev);
}
