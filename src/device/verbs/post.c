/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>

#include "device/validate.h"
#include "device/verbs/iwarp.h"

/* --- building a work request ---------------------------------------------- */

/* An operation as a work request. */
struct send_request {
	struct ibv_send_wr wr;
	struct ibv_sge sge[PN_VERBS_MAX_SGE];
	int preset_status; /* to report, whatever the adapter reports */
};

/* iWARP: copies the data of an inline operation. It fits: limits.inline_bytes
 * is the size of the stage. */
static void add_staged_data(struct send_request *w, const struct pn_op *op,
			    const struct pn_verbs_tx *tx,
			    struct pn_verbs_stage *stage)
{
	bool is_send = op->kind == PN_OP_SEND;
	size_t len = 0;

	for (unsigned i = 0; i < op->nsge; i++) {
		memcpy(stage->data + len, op->sge[i].addr, op->sge[i].len);
		len += op->sge[i].len;
	}
	w->sge[0] = (struct ibv_sge){
		.addr = is_send ? (uintptr_t)stage : (uintptr_t)stage->data,
		.length =
			(uint32_t)(len + (is_send ? sizeof(stage->header) : 0)),
		.lkey = tx->stage_mr->lkey,
	};
	w->wr.num_sge = w->sge[0].length ? 1 : 0;
}

static void add_inline(struct send_request *w, const struct pn_op *op)
{
	for (unsigned i = 0; i < op->nsge; i++)
		if (op->sge[i].len)
			w->sge[w->wr.num_sge++] = (struct ibv_sge){
				.addr = (uintptr_t)op->sge[i].addr,
				.length = (uint32_t)op->sge[i].len,
			};
}

static int add_segments(const struct pn_verbs_device *dev,
			struct send_request *w, const struct pn_op *op)
{
	unsigned access = op->kind == PN_OP_SEND || op->kind == PN_OP_WRITE
				  ? 0
				  : PINION_ACCESS_LOCAL_WRITE;

	for (unsigned i = 0; i < op->nsge; i++) {
		unsigned n = (unsigned)w->wr.num_sge;
		int ret;

		/* For some adapters, length 0 means 2 GiB. */
		if (!op->sge[i].len)
			continue;
		ret = pn_verbs_keys_resolve(&dev->domain->keys, &op->sge[i],
					    access, w->sge + n,
					    dev->max_sge - n);
		if (ret < 0)
			return ret;
		w->wr.num_sge += ret;
	}
	return 0;
}

static void set_atomic(struct send_request *w, const struct pn_op *op)
{
	w->wr.opcode = op->kind == PN_OP_FETCH_ADD ? IBV_WR_ATOMIC_FETCH_AND_ADD
						   : IBV_WR_ATOMIC_CMP_AND_SWP;
	w->wr.wr.atomic.remote_addr = op->remote_addr;
	w->wr.wr.atomic.rkey = (uint32_t)op->rkey;
	/* The first compare-swap of a SWAP expects the old value 0. */
	w->wr.wr.atomic.compare_add = op->kind == PN_OP_FETCH_ADD ? op->operand
				      : op->kind == PN_OP_SWAP	  ? 0
								  : op->compare;
	w->wr.wr.atomic.swap = op->operand;
}

static void set_kind(struct send_request *w, const struct pn_op *op)
{
	switch (op->kind) {
	case PN_OP_SEND:
		w->wr.opcode = IBV_WR_SEND_WITH_IMM;
		w->wr.imm_data = htonl(op->imm);
		break;
	case PN_OP_WRITE:
		w->wr.opcode = op->flags & PN_OP_IMM
				       ? IBV_WR_RDMA_WRITE_WITH_IMM
				       : IBV_WR_RDMA_WRITE;
		w->wr.imm_data = htonl(op->imm);
		break;
	case PN_OP_READ:
		w->wr.opcode = IBV_WR_RDMA_READ;
		break;
	default:
		set_atomic(w, op);
		return;
	}
	w->wr.wr.rdma.remote_addr = op->remote_addr;
	w->wr.wr.rdma.rkey = (uint32_t)op->rkey;
}

/* A key with the wrong tag is no key of this peer. The completion must keep its
 * place in the order, so a write of 0 bytes replaces the operation. */
static void refuse(struct send_request *w)
{
	w->preset_status = -EACCES;
	w->wr.opcode = IBV_WR_RDMA_WRITE;
	w->wr.wr.rdma.rkey = 0;
	w->wr.wr.rdma.remote_addr = 0;
	w->wr.num_sge = 0;
}

static void add_header(struct send_request *w, const struct pn_verbs_tx *tx,
		       struct pn_verbs_stage *stage)
{
	w->sge[w->wr.num_sge++] = (struct ibv_sge){
		.addr = (uintptr_t)&stage->header,
		.length = sizeof(stage->header),
		.lkey = tx->stage_mr->lkey,
	};
}

/* Fills the stage, except its header: post_iwarp() fills that when the message
 * is posted. */
static int add_iwarp_segments(const struct pn_verbs_device *dev,
			      struct send_request *w, const struct pn_op *op,
			      const struct pn_verbs_tx *tx,
			      struct pn_verbs_stage *stage)
{
	if (op->flags & PN_OP_INLINE) {
		add_staged_data(w, op, tx, stage);
		return 0;
	}
	if (op->kind == PN_OP_SEND)
		add_header(w, tx, stage);
	return add_segments(dev, w, op);
}

static int translate(const struct pn_verbs_device *dev,
		     const struct pn_verbs_peer *peer, const struct pn_op *op,
		     unsigned slot, struct send_request *w)
{
	int ret = 0;

	w->wr.num_sge = 0;
	w->wr.next = NULL;
	w->wr.sg_list = w->sge;
	w->wr.send_flags = op->flags & PN_OP_FENCE && !dev->software_fences
				   ? IBV_SEND_FENCE
				   : 0;
	w->preset_status = 0;
	if (pn_unlikely(dev->is_iwarp)) {
		ret = add_iwarp_segments(dev, w, op, &peer->tx,
					 &peer->tx.stage[slot]);
	} else if (op->flags & PN_OP_INLINE) {
		add_inline(w, op);
		w->wr.send_flags |= IBV_SEND_INLINE;
	} else {
		ret = add_segments(dev, w, op);
	}
	set_kind(w, op);
	if (dev->is_iwarp && op->kind == PN_OP_SEND)
		w->wr.opcode = IBV_WR_SEND;
	if (op->kind != PN_OP_SEND && w->wr.num_sge &&
	    pn_unlikely(!pn_verbs_key_matches(peer, op)))
		refuse(w);
	return ret;
}

/* --- posting -------------------------------------------------------------- */

static bool is_read(const struct pn_op *op)
{
	return op->kind != PN_OP_SEND && op->kind != PN_OP_WRITE;
}

/* Software fences: its own, or that of an operation that it must not overtake.
 */
static bool waits_for_reads(const struct pn_verbs_tx *tx,
			    const struct pn_op *op)
{
	return tx->reads && (op->flags & PN_OP_FENCE || tx->fenced);
}

static bool can_take(const struct pn_verbs_device *dev,
		     const struct pn_verbs_peer *peer, const struct pn_op *op)
{
	const struct pn_verbs_tx *tx = &peer->tx;

	return tx->qp && !tx->broken && peer->up_reported &&
	       !tx->swap_pending &&
	       tx->count < dev->device.limits.queue_depth &&
	       dev->nsends < dev->max_sends && !peer->down &&
	       !waits_for_reads(tx, op) &&
	       (!dev->is_iwarp || pn_verbs_may_post(peer, op));
}

static int check_tx(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		    const struct pn_op *op)
{
	if (pn_likely(can_take(dev, peer, op)))
		return 0;
	/* Callers may retry without polling. */
	pn_verbs_progress(dev);
	if (peer->down)
		return peer->down;
	peer->tx.post_refused = !can_take(dev, peer, op);
	/* Later operations must not overtake it. */
	if (peer->tx.post_refused && op->flags & PN_OP_FENCE)
		peer->tx.fenced = peer->tx.reads;
	return peer->tx.post_refused ? -EAGAIN : 0;
}

/* The records of unsignaled operations are freed by the next signaled one: at
 * least one in half a queue is signaled. */
static bool must_signal(const struct pn_verbs_device *dev,
			const struct pn_verbs_tx *tx)
{
	return tx->unsignalled + 1 >= dev->device.limits.queue_depth / 2;
}

static bool needs_signal(const struct pn_verbs_device *dev,
			 const struct pn_verbs_tx *tx, const struct pn_op *op,
			 const struct send_request *w)
{
	return !(op->flags & PN_OP_SILENT) || w->preset_status ||
	       op->kind == PN_OP_SWAP ||
	       (dev->software_fences && is_read(op)) || must_signal(dev, tx);
}

static void fill_record(const struct pn_verbs_device *dev,
			struct pn_verbs_record *record,
			struct pn_verbs_peer *peer, const struct pn_op *op,
			const struct send_request *w)
{
	record->peer = peer;
	record->user = op->user;
	record->status = w->preset_status;
	record->silent = op->flags & PN_OP_SILENT;
	record->swap = op->kind == PN_OP_SWAP && !w->preset_status;
	record->remote_access = op->kind != PN_OP_SEND && !w->preset_status;
	record->reads = dev->software_fences && is_read(op);
	if (pn_likely(!record->swap))
		return;
	record->operand = op->operand;
	record->guess = 0;
	record->result = op->sge[0].addr;
	record->remote_addr = op->remote_addr;
	record->rkey = (uint32_t)op->rkey;
	record->lkey = w->sge[0].lkey;
}

int pn_verbs_post_wr(struct pn_verbs_tx *tx, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int ret = ibv_post_send(tx->qp, wr, &bad);

	/* The adapter returns ENOMEM when the queue is full, and room is made
	 * by what is in flight. */
	return ret == ENOMEM && tx->count ? -EAGAIN : -ret;
}

/* A read of iWARP has one local segment: posts one read for each segment, the
 * last one signaled. The adapter takes all or none. */
static int post_reads_iwarp(struct pn_verbs_tx *tx, struct send_request *w)
{
	struct ibv_send_wr reads[2 * PN_VERBS_MAX_SGE];
	struct ibv_sge segments[2 * PN_VERBS_MAX_SGE];
	uint64_t at = w->wr.wr.rdma.remote_addr;
	int n = 0;

	for (int i = 0; i < w->wr.num_sge; n++) {
		struct ibv_sge *left = &w->sge[i];

		segments[n] = *left;
		segments[n].length =
			(uint32_t)pn_verbs_siw_segment_bytes(at, left->length);
		reads[n] = w->wr;
		reads[n].next = &reads[n + 1];
		reads[n].sg_list = &segments[n];
		reads[n].num_sge = 1;
		reads[n].send_flags = 0;
		reads[n].wr.rdma.remote_addr = at;
		at += segments[n].length;
		left->addr += segments[n].length;
		left->length -= segments[n].length;
		i += !left->length;
	}
	reads[n - 1].next = NULL;
	reads[n - 1].send_flags = IBV_SEND_SIGNALED;
	w->wr.num_sge = n;
	return pn_verbs_post_wr(tx, reads);
}

/* Splits a small segment that lies in two pages (PN_VERBS_SIW_SMALL_BYTES). */
static void split_small(struct send_request *w)
{
	size_t whole;

	if (w->wr.num_sge != 1)
		return;
	whole = pn_verbs_siw_segment_bytes(w->sge[0].addr, w->sge[0].length);
	if (whole == w->sge[0].length)
		return;
	w->sge[1] = w->sge[0];
	w->sge[1].addr += whole;
	w->sge[1].length -= (uint32_t)whole;
	w->sge[0].length = (uint32_t)whole;
	w->wr.num_sge = 2;
}

static int post_iwarp(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		      const struct pn_op *op, unsigned slot,
		      struct send_request *w)
{
	struct pn_verbs_tx *tx = &peer->tx;
	int ret;

	w->wr.send_flags = 0;
	if (w->wr.opcode == IBV_WR_RDMA_READ) {
		if (!w->wr.num_sge)
			pn_verbs_confirm_read(dev, peer, &w->wr, w->sge);
		ret = post_reads_iwarp(tx, w);
		tx->records[slot].reads = (unsigned)w->wr.num_sge;
		return ret;
	}
	split_small(w);
	if (op->kind != PN_OP_SEND)
		return pn_verbs_post_wr(tx, &w->wr);
	tx->stage[slot].header = (struct pn_verbs_message_header){
		.imm = op->imm, .credit = pn_verbs_credit_grant(dev, peer)
	};
	ret = pn_verbs_post_wr(tx, &w->wr);
	if (!ret) {
		tx->sent++;
		peer->credit_urgent = false;
	}
	return ret;
}

static int post_to_adapter(struct pn_verbs_device *dev,
			   struct pn_verbs_peer *peer, const struct pn_op *op,
			   unsigned slot, struct send_request *w)
{
	int ret;

	if (pn_likely(!dev->is_iwarp))
		return pn_verbs_post_wr(&peer->tx, &w->wr);
	ret = post_iwarp(dev, peer, op, slot, w);
	if (!ret || ret == -EAGAIN)
		return ret;
	/* The connection was lost; completions with the error follow. */
	pn_verbs_teardown_begin(dev, peer, -ECANCELED);
	return -EAGAIN;
}

static int post(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		const struct pn_op *op)
{
	struct pn_verbs_tx *tx = &peer->tx;
	struct pn_verbs_record *record;
	unsigned slot;
	struct send_request w;
	bool signaled;
	size_t len;
	int ret = pn_op_validate(&dev->device, op, &len);

	if (!ret)
		ret = check_tx(dev, peer, op);
	slot = (tx->head + tx->count) % dev->device.limits.queue_depth;
	if (!ret)
		ret = translate(dev, peer, op, slot, &w);
	if (ret)
		return ret;
	record = &tx->records[slot];
	signaled = needs_signal(dev, tx, op, &w);
	w.wr.wr_id = pn_verbs_wr_id(tx, record);
	if (signaled)
		w.wr.send_flags |= IBV_SEND_SIGNALED;
	fill_record(dev, record, peer, op, &w);
	ret = post_to_adapter(dev, peer, op, slot, &w);
	if (ret) {
		tx->post_refused = true;
		return ret;
	}
	tx->unsignalled = signaled ? 0 : tx->unsignalled + 1;
	tx->swap_pending = record->swap;
	tx->reads += record->reads;
	tx->count++;
	dev->nsends++;
	if (pn_unlikely(dev->is_iwarp) && tx->count == 1)
		pn_verbs_count_progress(peer);
	if (pn_unlikely(dev->is_iwarp && signaled)) {
		tx->unconfirmed =
			w.wr.opcode == IBV_WR_RDMA_READ ? NULL : record;
		pn_verbs_confirm(dev, peer);
	}
	return 0;
}

int pn_verbs_swap_retry(struct pn_verbs_record *record)
{
	struct pn_verbs_tx *tx = &record->peer->tx;
	struct ibv_sge sge = { (uintptr_t)record->result, 8, record->lkey };
	struct ibv_send_wr wr = { .wr_id = pn_verbs_wr_id(tx, record),
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
				  .send_flags = IBV_SEND_SIGNALED };

	record->guess = *record->result;
	wr.wr.atomic.remote_addr = record->remote_addr;
	wr.wr.atomic.rkey = record->rkey;
	wr.wr.atomic.compare_add = record->guess;
	wr.wr.atomic.swap = record->operand;
	return pn_verbs_post_wr(tx, &wr);
}

/* Whether a silent inline send needs nothing but a work request. */
static bool is_plain(const struct pn_verbs_device *dev,
		     const struct pn_verbs_peer *peer, size_t bytes)
{
	const struct pn_verbs_tx *tx = &peer->tx;

	return tx->qp && !tx->broken && peer->up_reported && !peer->down &&
	       !tx->swap_pending && !tx->fenced && !dev->is_iwarp &&
	       tx->count < dev->device.limits.queue_depth &&
	       dev->nsends < dev->max_sends &&
	       bytes <= dev->device.limits.inline_bytes;
}

static int post_plain(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		      struct ibv_send_wr *wr)
{
	struct pn_verbs_tx *tx = &peer->tx;
	unsigned slot = tx->head + tx->count;
	struct pn_verbs_record *record;
	int ret;

	slot -= slot >= dev->device.limits.queue_depth
			? dev->device.limits.queue_depth
			: 0;
	record = &tx->records[slot];
	*record = (struct pn_verbs_record){ .peer = peer, .silent = true };
	wr->wr_id = pn_verbs_wr_id(tx, record);
	if (must_signal(dev, tx))
		wr->send_flags |= IBV_SEND_SIGNALED;
	ret = pn_verbs_post_wr(tx, wr);
	if (pn_unlikely(ret)) {
		tx->post_refused = true;
		return ret;
	}
	tx->unsignalled =
		wr->send_flags & IBV_SEND_SIGNALED ? 0 : tx->unsignalled + 1;
	tx->count++;
	dev->nsends++;
	return 0;
}

int pn_verbs_send_inline(struct pn_device *device, struct pn_peer *peer,
			 const struct pn_inline_header *header,
			 const void *body, size_t len)
{
	struct pn_verbs_device *dev = pn_verbs_of(device);
	struct ibv_sge sge[2] = {
		{ .addr = (uintptr_t)header, .length = sizeof(*header) },
		{ .addr = (uintptr_t)body, .length = (uint32_t)len }
	};
	struct ibv_send_wr wr = { .sg_list = sge,
				  .num_sge = len ? 2 : 1,
				  .opcode = IBV_WR_SEND_WITH_IMM,
				  .send_flags = IBV_SEND_INLINE };
	int ret;

	pn_verbs_lock(dev);
	if (pn_unlikely(!is_plain(dev, pn_verbs_peer_of(peer),
				  sizeof(*header) + len))) {
		pn_verbs_unlock(dev);
		return pn_device_post_inline(device, peer, header, body, len);
	}
	ret = post_plain(dev, pn_verbs_peer_of(peer), &wr);
	pn_verbs_unlock(dev);
	return ret;
}

int pn_verbs_post(struct pn_device *device, struct pn_peer *peer,
		  const struct pn_op *op)
{
	struct pn_verbs_device *dev = pn_verbs_of(device);
	int ret;

	pn_verbs_lock(dev);
	ret = post(dev, pn_verbs_peer_of(peer), op);
	pn_verbs_unlock(dev);
	return ret;
}
