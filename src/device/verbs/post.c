/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>

#include "device/validate.h"
#include "device/verbs/iwarp.h"

/* --- as the adapter wants it --------------------------------------------- */

/* An operation on its way to the adapter. */
struct wire {
	struct ibv_send_wr wr;
	struct ibv_sge sge[PN_VERBS_MAX_SGE];
	int preset; /* refuse it although the adapter carries it out */
};

/* Whatever the adapter can inline, the stage can. */
static void add_staged(struct wire *w, const struct pn_op *op,
		       const struct pn_verbs_tx *lane,
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
		.length = (uint32_t)(len + (is_send ? sizeof(stage->head) : 0)),
		.lkey = lane->stage_mr->lkey,
	};
	w->wr.num_sge = w->sge[0].length ? 1 : 0;
}

static void add_inline(struct wire *w, const struct pn_op *op)
{
	for (unsigned i = 0; i < op->nsge; i++)
		if (op->sge[i].len)
			w->sge[w->wr.num_sge++] = (struct ibv_sge){
				.addr = (uintptr_t)op->sge[i].addr,
				.length = (uint32_t)op->sge[i].len,
			};
}

static int add_segments(const struct pn_verbs_device *dev, struct wire *w,
			const struct pn_op *op)
{
	unsigned access = op->kind == PN_OP_SEND || op->kind == PN_OP_WRITE
				  ? 0
				  : PINION_ACCESS_LOCAL_WRITE;

	for (unsigned i = 0; i < op->nsge; i++) {
		unsigned n = (unsigned)w->wr.num_sge;
		int ret;

		/* To some adapters, length 0 means 2 GiB. */
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

static void set_atomic(struct wire *w, const struct pn_op *op)
{
	w->wr.opcode = op->kind == PN_OP_FETCH_ADD ? IBV_WR_ATOMIC_FETCH_AND_ADD
						   : IBV_WR_ATOMIC_CMP_AND_SWP;
	w->wr.wr.atomic.remote_addr = op->remote_addr;
	w->wr.wr.atomic.rkey = (uint32_t)op->rkey;
	/* A SWAP first guesses that the old value is 0. */
	w->wr.wr.atomic.compare_add = op->kind == PN_OP_FETCH_ADD ? op->operand
				      : op->kind == PN_OP_SWAP	  ? 0
								  : op->compare;
	w->wr.wr.atomic.swap = op->operand;
}

static void set_kind(struct wire *w, const struct pn_op *op)
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

/* A key with the wrong tag cannot be of this peer. The answer must come in its
 * turn, so a write of nothing stands in for the operation. */
static void refuse(struct wire *w)
{
	w->preset = -EACCES;
	w->wr.opcode = IBV_WR_RDMA_WRITE;
	w->wr.wr.rdma.rkey = 0;
	w->wr.wr.rdma.remote_addr = 0;
	w->wr.num_sge = 0;
}

static void add_head(struct wire *w, const struct pn_verbs_tx *lane,
		     struct pn_verbs_stage *stage)
{
	w->sge[w->wr.num_sge++] = (struct ibv_sge){
		.addr = (uintptr_t)&stage->head,
		.length = sizeof(stage->head),
		.lkey = lane->stage_mr->lkey,
	};
}

/* The stage is filled, but for the head, which only a message that goes has. */
static int add_for_iwarp(const struct pn_verbs_device *dev, struct wire *w,
			 const struct pn_op *op, const struct pn_verbs_tx *lane,
			 struct pn_verbs_stage *stage)
{
	if (op->flags & PN_OP_INLINE) {
		add_staged(w, op, lane, stage);
		return 0;
	}
	if (op->kind == PN_OP_SEND)
		add_head(w, lane, stage);
	return add_segments(dev, w, op);
}

static int translate(const struct pn_verbs_device *dev,
		     const struct pn_verbs_peer *peer, const struct pn_op *op,
		     unsigned slot, struct wire *w)
{
	int ret = 0;

	w->wr.num_sge = 0;
	w->wr.next = NULL;
	w->wr.sg_list = w->sge;
	w->wr.send_flags = op->flags & PN_OP_FENCE && !dev->own_fences
				   ? IBV_SEND_FENCE
				   : 0;
	w->preset = 0;
	if (pn_unlikely(dev->is_iwarp)) {
		ret = add_for_iwarp(dev, w, op, &peer->out,
				    &peer->out.stage[slot]);
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

/* --- posting ------------------------------------------------------------- */

static bool is_read(const struct pn_op *op)
{
	return op->kind != PN_OP_SEND && op->kind != PN_OP_WRITE;
}

/* By a fence of ours: that of the operation, or one that it would overtake. */
static bool is_held_back(const struct pn_verbs_tx *lane, const struct pn_op *op)
{
	return lane->reads && (op->flags & PN_OP_FENCE || lane->fenced);
}

static bool can_take(const struct pn_verbs_device *dev,
		     const struct pn_verbs_peer *peer, const struct pn_op *op)
{
	const struct pn_verbs_tx *lane = &peer->out;

	return lane->qp && !lane->broken && peer->up_told && !lane->swapping &&
	       lane->count < dev->device.limits.queue_depth &&
	       dev->nsends < dev->max_sends && !peer->down &&
	       !is_held_back(lane, op) &&
	       (!dev->is_iwarp || pn_verbs_may_post(peer, op));
}

static int check_lane(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		      const struct pn_op *op)
{
	if (pn_likely(can_take(dev, peer, op)))
		return 0;
	/* Callers may try again and again without polling. */
	pn_verbs_progress(dev);
	if (peer->down)
		return peer->down;
	peer->out.refused = !can_take(dev, peer, op);
	/* Nothing may overtake it. */
	if (peer->out.refused && op->flags & PN_OP_FENCE)
		peer->out.fenced = peer->out.reads;
	return peer->out.refused ? -EAGAIN : 0;
}

/* The slots of operations that nobody asked about come back with the next one
 * that tells: one in a half queue does. */
static bool must_tell(const struct pn_verbs_device *dev,
		      const struct pn_verbs_tx *lane, const struct pn_op *op,
		      const struct wire *w)
{
	return !(op->flags & PN_OP_SILENT) || w->preset ||
	       op->kind == PN_OP_SWAP || (dev->own_fences && is_read(op)) ||
	       lane->unsignalled + 1 >= dev->device.limits.queue_depth / 2;
}

static void fill_record(const struct pn_verbs_device *dev,
			struct pn_verbs_record *record,
			struct pn_verbs_peer *peer, const struct pn_op *op,
			const struct wire *w)
{
	record->peer = peer;
	record->user = op->user;
	record->status = w->preset;
	record->silent = op->flags & PN_OP_SILENT;
	record->swap = op->kind == PN_OP_SWAP && !w->preset;
	record->reaches = op->kind != PN_OP_SEND && !w->preset;
	record->reads = dev->own_fences && is_read(op);
	if (pn_likely(!record->swap))
		return;
	record->operand = op->operand;
	record->guess = 0;
	record->result = op->sge[0].addr;
	record->remote_addr = op->remote_addr;
	record->rkey = (uint32_t)op->rkey;
	record->lkey = w->sge[0].lkey;
}

int pn_verbs_post_wr(struct pn_verbs_tx *lane, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int ret = ibv_post_send(lane->qp, wr, &bad);

	/* The kernel says ENOMEM where its queue is full. */
	return ret == ENOMEM ? -EAGAIN : -ret;
}

/* A read of iWARP lands in one place: one for each segment, of which the last
 * tells. They are all taken or none. */
static int hand_over_reads(struct pn_verbs_tx *lane, struct wire *w)
{
	struct ibv_send_wr reads[2 * PN_VERBS_MAX_SGE];
	struct ibv_sge parts[2 * PN_VERBS_MAX_SGE];
	uint64_t at = w->wr.wr.rdma.remote_addr;
	int n = 0;

	for (int i = 0; i < w->wr.num_sge; n++) {
		struct ibv_sge *left = &w->sge[i];

		parts[n] = *left;
		parts[n].length =
			(uint32_t)pn_verbs_siw_segment_bytes(at, left->length);
		reads[n] = w->wr;
		reads[n].next = &reads[n + 1];
		reads[n].sg_list = &parts[n];
		reads[n].num_sge = 1;
		reads[n].send_flags = 0;
		reads[n].wr.rdma.remote_addr = at;
		at += parts[n].length;
		left->addr += parts[n].length;
		left->length -= parts[n].length;
		i += !left->length;
	}
	reads[n - 1].next = NULL;
	reads[n - 1].send_flags = IBV_SEND_SIGNALED;
	w->wr.num_sge = n;
	return pn_verbs_post_wr(lane, reads);
}

/* One small segment in two pages is two. */
static void cut_small(struct wire *w)
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

static int hand_over_iwarp(struct pn_verbs_device *dev,
			   struct pn_verbs_peer *peer, const struct pn_op *op,
			   unsigned slot, struct wire *w)
{
	struct pn_verbs_tx *lane = &peer->out;
	int ret;

	w->wr.send_flags = 0;
	if (w->wr.opcode == IBV_WR_RDMA_READ) {
		if (!w->wr.num_sge)
			pn_verbs_confirm_read(dev, peer, &w->wr, w->sge);
		ret = hand_over_reads(lane, w);
		lane->records[slot].reads = (unsigned)w->wr.num_sge;
		return ret;
	}
	cut_small(w);
	if (op->kind != PN_OP_SEND)
		return pn_verbs_post_wr(lane, &w->wr);
	lane->stage[slot].head = (struct pn_verbs_message_header){
		.imm = op->imm, .grant = pn_verbs_credit_grant(dev, peer)
	};
	ret = pn_verbs_post_wr(lane, &w->wr);
	if (!ret) {
		lane->sent++;
		peer->must_grant = false;
	}
	return ret;
}

static int hand_over(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		     const struct pn_op *op, unsigned slot, struct wire *w)
{
	int ret;

	if (pn_likely(!dev->is_iwarp))
		return pn_verbs_post_wr(&peer->out, &w->wr);
	ret = hand_over_iwarp(dev, peer, op, slot, w);
	if (!ret || ret == -EAGAIN)
		return ret;
	/* The connection was dropped, and the completion is yet to come. */
	pn_verbs_teardown_begin(dev, peer, -ECANCELED);
	return -EAGAIN;
}

static int post(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		const struct pn_op *op)
{
	struct pn_verbs_tx *lane = &peer->out;
	struct pn_verbs_record *record;
	unsigned slot;
	struct wire w;
	bool tells;
	size_t len;
	int ret = pn_op_validate(&dev->device, op, &len);

	if (!ret)
		ret = check_lane(dev, peer, op);
	slot = (lane->head + lane->count) % dev->device.limits.queue_depth;
	if (!ret)
		ret = translate(dev, peer, op, slot, &w);
	if (ret)
		return ret;
	record = &lane->records[slot];
	tells = must_tell(dev, lane, op, &w);
	w.wr.wr_id = pn_verbs_wr_id(lane, record);
	if (tells)
		w.wr.send_flags |= IBV_SEND_SIGNALED;
	fill_record(dev, record, peer, op, &w);
	ret = hand_over(dev, peer, op, slot, &w);
	if (ret) {
		lane->refused = true;
		return ret;
	}
	lane->unsignalled = tells ? 0 : lane->unsignalled + 1;
	lane->swapping = record->swap;
	lane->reads += record->reads;
	lane->count++;
	dev->nsends++;
	if (pn_unlikely(dev->is_iwarp) && lane->count == 1)
		pn_verbs_count_progress(peer);
	if (pn_unlikely(dev->is_iwarp && tells)) {
		lane->uncovered =
			w.wr.opcode == IBV_WR_RDMA_READ ? NULL : record;
		pn_verbs_confirm(dev, peer);
	}
	return 0;
}

int pn_verbs_swap_retry(struct pn_verbs_device *dev,
			struct pn_verbs_record *record)
{
	struct pn_verbs_tx *lane = &record->peer->out;
	struct ibv_sge sge = { (uintptr_t)record->result, 8, record->lkey };
	struct ibv_send_wr wr = { .wr_id = pn_verbs_wr_id(lane, record),
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
				  .send_flags = IBV_SEND_SIGNALED };

	(void)dev;
	record->guess = *record->result;
	wr.wr.atomic.remote_addr = record->remote_addr;
	wr.wr.atomic.rkey = record->rkey;
	wr.wr.atomic.compare_add = record->guess;
	wr.wr.atomic.swap = record->operand;
	return pn_verbs_post_wr(lane, &wr);
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
