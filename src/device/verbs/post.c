/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>

#include "device/form.h"
#include "device/verbs/verbs_impl.h"

/* --- as the adapter wants it --------------------------------------------- */

/* An operation on its way to the adapter. */
struct wire {
	struct ibv_send_wr wr;
	struct ibv_sge sge[PN_VERBS_MAX_SGE];
	int preset; /* refuse it although the adapter carries it out */
};

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
		ret = pn_verbs_keys_resolve(&dev->keys, &op->sge[i], access,
					    w->sge + n, dev->max_sge - n);
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

static int translate(const struct pn_verbs_device *dev,
		     const struct pn_verbs_peer *peer, const struct pn_op *op,
		     struct wire *w)
{
	int ret = 0;

	w->wr.num_sge = 0;
	w->wr.next = NULL;
	w->wr.sg_list = w->sge;
	w->wr.send_flags = op->flags & PN_OP_FENCE ? IBV_SEND_FENCE : 0;
	w->preset = 0;
	if (op->flags & PN_OP_INLINE) {
		add_inline(w, op);
		w->wr.send_flags |= IBV_SEND_INLINE;
	} else {
		ret = add_segments(dev, w, op);
	}
	set_kind(w, op);
	if (op->kind != PN_OP_SEND && w->wr.num_sge &&
	    pn_unlikely(op->rkey >> 32 != peer->tag))
		refuse(w);
	return ret;
}

/* --- posting ------------------------------------------------------------- */

static bool can_take(const struct pn_verbs_device *dev,
		     const struct pn_verbs_peer *peer)
{
	const struct pn_verbs_lane *lane = &peer->out;

	return lane->qp && !lane->broken && peer->up_told && !lane->swapping &&
	       lane->count < dev->device.limits.queue_depth &&
	       dev->nsends < dev->max_sends && !peer->down;
}

static int check_lane(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	if (pn_likely(can_take(dev, peer)))
		return 0;
	/* Callers may try again and again without polling. */
	pn_verbs_progress(dev);
	if (peer->down)
		return peer->down;
	peer->out.refused = !can_take(dev, peer);
	return peer->out.refused ? -EAGAIN : 0;
}

static uint64_t id_of(const struct pn_verbs_lane *lane,
		      const struct pn_verbs_record *record)
{
	return (uint64_t)lane->epoch << 48 | (uintptr_t)record;
}

/* The slots of operations that nobody asked about come back with the next one
 * that tells: one in a half queue does. */
static bool must_tell(const struct pn_verbs_device *dev,
		      const struct pn_verbs_lane *lane, const struct pn_op *op,
		      const struct wire *w)
{
	return !(op->flags & PN_OP_SILENT) || w->preset ||
	       op->kind == PN_OP_SWAP ||
	       lane->unsignalled + 1 >= dev->device.limits.queue_depth / 2;
}

static void fill_record(struct pn_verbs_record *record,
			struct pn_verbs_peer *peer, const struct pn_op *op,
			const struct wire *w)
{
	record->peer = peer;
	record->user = op->user;
	record->status = w->preset;
	record->silent = op->flags & PN_OP_SILENT;
	record->swap = op->kind == PN_OP_SWAP && !w->preset;
	if (pn_likely(!record->swap))
		return;
	record->operand = op->operand;
	record->guess = 0;
	record->result = op->sge[0].addr;
	record->remote_addr = op->remote_addr;
	record->rkey = (uint32_t)op->rkey;
	record->lkey = w->sge[0].lkey;
}

static int hand_over(struct pn_verbs_lane *lane, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int ret = ibv_post_send(lane->qp, wr, &bad);

	/* The kernel says ENOMEM where its queue is full. */
	return ret == ENOMEM ? -EAGAIN : -ret;
}

static int post(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		const struct pn_op *op)
{
	struct pn_verbs_lane *lane = &peer->out;
	struct pn_verbs_record *record;
	struct wire w;
	bool tells;
	size_t len;
	int ret = pn_op_check(&dev->device, op, &len);

	if (!ret)
		ret = check_lane(dev, peer);
	if (!ret)
		ret = translate(dev, peer, op, &w);
	if (ret)
		return ret;
	record = &lane->records[(lane->head + lane->count) %
				dev->device.limits.queue_depth];
	tells = must_tell(dev, lane, op, &w);
	w.wr.wr_id = id_of(lane, record);
	if (tells)
		w.wr.send_flags |= IBV_SEND_SIGNALED;
	fill_record(record, peer, op, &w);
	ret = hand_over(lane, &w.wr);
	if (ret) {
		lane->refused = true;
		return ret;
	}
	lane->unsignalled = tells ? 0 : lane->unsignalled + 1;
	lane->swapping = record->swap;
	lane->count++;
	dev->nsends++;
	return 0;
}

int pn_verbs_swap_again(struct pn_verbs_device *dev,
			struct pn_verbs_record *record)
{
	struct pn_verbs_lane *lane = &record->peer->out;
	struct ibv_sge sge = { (uintptr_t)record->result, 8, record->lkey };
	struct ibv_send_wr wr = { .wr_id = id_of(lane, record),
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
	return hand_over(lane, &wr);
}

int pn_verbs_post(struct pn_device *device, struct pn_peer *peer,
		  const struct pn_op *op)
{
	struct pn_verbs_device *dev = pn_verbs_of(device);
	int ret;

	pn_verbs_enter(dev);
	ret = post(dev, pn_verbs_peer_of(peer), op);
	pn_verbs_leave(dev);
	return ret;
}
