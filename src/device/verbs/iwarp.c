/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/verbs/iwarp.h"

#include <errno.h>

#include "base/log.h"
#include "base/range.h"

/* --- registered memory of the device's own ------------------------------- */

int pn_verbs_confirm_byte_alloc(struct pn_verbs_device *dev)
{
	void *memory;
	int ret = pn_pages_map(PN_PAGE_BYTES, NULL, &memory);

	if (ret)
		return ret;
	dev->byte_mr = ibv_reg_mr(dev->pd, memory, 1, IBV_ACCESS_REMOTE_READ);
	if (dev->byte_mr)
		return 0;
	ret = -errno;
	pn_pages_unmap(memory, PN_PAGE_BYTES, NULL);
	return ret;
}

void pn_verbs_confirm_byte_free(struct pn_verbs_device *dev)
{
	void *memory;

	if (!dev->byte_mr)
		return;
	memory = dev->byte_mr->addr;
	ibv_dereg_mr(dev->byte_mr);
	pn_pages_unmap(memory, PN_PAGE_BYTES, NULL);
}

static size_t stage_bytes(const struct pn_verbs_device *dev)
{
	/* The last one is where confirming reads land. */
	return (dev->device.limits.queue_depth + 1) *
	       sizeof(struct pn_verbs_stage);
}

int pn_verbs_stage_alloc(struct pn_verbs_device *dev, struct pn_verbs_tx *lane)
{
	void *memory;
	int ret = pn_pages_map(stage_bytes(dev), NULL, &memory);

	if (ret)
		return ret;
	/* Where a read lands, the peer must have access. */
	lane->stage_mr =
		ibv_reg_mr(dev->pd, memory, stage_bytes(dev),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!lane->stage_mr) {
		ret = -errno;
		pn_pages_unmap(memory, stage_bytes(dev), NULL);
		pn_error("verbs: cannot register %zu KiB for a peer: %s; raise "
			 "`ulimit -l` (RLIMIT_MEMLOCK)",
			 stage_bytes(dev) / 1024, strerror(-ret));
		return ret;
	}
	lane->stage = memory;
	return 0;
}

void pn_verbs_stage_free(struct pn_verbs_tx *lane)
{
	size_t len;

	if (!lane->stage_mr)
		return;
	len = lane->stage_mr->length;
	ibv_dereg_mr(lane->stage_mr);
	pn_pages_unmap(lane->stage, len, NULL);
}

/* --- credits of ours ----------------------------------------------------- */

static bool has_credit(const struct pn_verbs_peer *peer)
{
	return peer->may_send.lane == peer->out.number &&
	       peer->may_send.messages != peer->out.sent;
}

bool pn_verbs_may_post(const struct pn_verbs_peer *peer, const struct pn_op *op)
{
	unsigned reads = peer->out.reads;

	if (op->kind == PN_OP_SEND)
		return has_credit(peer);
	/* One more is kept for confirming. */
	return op->kind != PN_OP_READ || !reads ||
	       reads + 2 * op->nsge < PN_VERBS_MAX_READS;
}

void pn_verbs_count_progress(struct pn_verbs_peer *peer)
{
	uint32_t pulse =
		atomic_load_explicit(&peer->pulse, memory_order_relaxed);

	/* Only the callers write; the service looks now and then. */
	atomic_store_explicit(&peer->pulse,
			      ((pulse | 1) + 1) | !!peer->out.count,
			      memory_order_relaxed);
}

/* Later than what is known: of a newer lane, or more. */
static bool is_news(struct pn_verbs_credit known, struct pn_verbs_credit grant)
{
	int16_t lanes = (int16_t)(grant.lane - known.lane);

	return lanes > 0 ||
	       (!lanes && (int16_t)(grant.messages - known.messages) > 0);
}

void pn_verbs_credit_received(struct pn_verbs_device *dev,
			      struct pn_verbs_peer *peer,
			      struct pn_verbs_credit grant)
{
	if (!is_news(peer->may_send, grant))
		return;
	peer->may_send = grant;
	dev->relieved |= peer->out.refused;
}

/* --- credits of the peer's ----------------------------------------------- */

/* Of its current lane, it may have sent so many that have not come. */
static unsigned outstanding(const struct pn_verbs_peer *peer)
{
	return (uint16_t)(peer->granted - peer->arrived);
}

/* What came on a lane that is gone may not have been seen while it waits to
 * be destroyed. */
static unsigned room(const struct pn_verbs_device *dev,
		     const struct pn_verbs_peer *peer)
{
	unsigned used = outstanding(peer) + peer->held;

	if (!peer->in || dev->retired || used >= PN_VERBS_CREDIT_WINDOW)
		return 0;
	return PN_VERBS_CREDIT_WINDOW - used;
}

struct pn_verbs_credit pn_verbs_credit_grant(struct pn_verbs_device *dev,
					     struct pn_verbs_peer *peer)
{
	struct pn_verbs_credit grant;

	peer->granted += (uint16_t)room(dev, peer);
	grant.lane = peer->in ? peer->in->number : 0;
	grant.messages = peer->granted;
	atomic_store(&peer->last_grant,
		     (uint32_t)grant.lane << 16 | grant.messages);
	return grant;
}

/* A message of a head alone; the adapter takes it at once. */
static int send_grant(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	struct pn_verbs_tx *lane = &peer->out;
	unsigned depth = dev->device.limits.queue_depth;
	struct pn_verbs_message_header head = {
		.is_credit = 1,
		.grant = pn_verbs_credit_grant(dev, peer),
	};
	struct ibv_sge sge = { (uintptr_t)&head, sizeof(head), 0 };
	struct ibv_send_wr wr = {
		.wr_id = pn_verbs_wr_id(lane, &lane->records[depth]),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE,
	};

	lane->records[depth].peer = peer;
	return pn_verbs_post_wr(lane, &wr);
}

static bool is_due(const struct pn_verbs_device *dev,
		   const struct pn_verbs_peer *peer)
{
	unsigned more = room(dev, peer);

	return peer->must_grant || more >= PN_VERBS_CREDIT_WINDOW / 2 ||
	       (more && !outstanding(peer));
}

void pn_verbs_credit_send_if_due(struct pn_verbs_device *dev,
				 struct pn_verbs_peer *peer)
{
	struct pn_verbs_tx *lane = &peer->out;

	if (peer->down || !peer->in)
		return;
	if (!dev->retired && !is_due(dev, peer))
		return;
	if (!dev->retired && lane->qp && !lane->broken &&
	    !send_grant(dev, peer))
		peer->must_grant = false;
	else if (pn_list_empty(&peer->owed))
		pn_list_append(&dev->owed, &peer->owed);
}

void pn_verbs_credit_send_pending(struct pn_verbs_device *dev)
{
	struct pn_list *pos, *tmp;

	if (dev->retired)
		return;
	pn_list_for_each_safe (pos, tmp, &dev->owed) {
		struct pn_verbs_peer *peer =
			pn_container_of(pos, struct pn_verbs_peer, owed);

		if (!peer->down && (!peer->out.qp || peer->out.broken))
			continue;
		pn_list_remove(pos);
		pn_verbs_credit_send_if_due(dev, peer);
	}
}

const struct pn_verbs_message_header *pn_verbs_message_parse(
	struct pn_verbs_device *dev, struct pn_verbs_rx *in, const void *data,
	size_t len)
{
	const struct pn_verbs_message_header *head = data;

	if (len < sizeof(*head))
		return NULL;
	pn_verbs_credit_received(dev, in->peer, head->grant);
	if (head->is_credit)
		return NULL;
	in->peer->held++;
	if (in == in->peer->in)
		in->peer->arrived++;
	/* It may have been the last that its sender had credit for. */
	pn_verbs_credit_send_if_due(dev, in->peer);
	return head;
}

size_t pn_verbs_siw_segment_bytes(uint64_t addr, size_t len)
{
	size_t room = PN_PAGE_BYTES - addr % PN_PAGE_BYTES;

	return len <= PN_VERBS_SIW_SMALL_BYTES && len > room ? room : len;
}

/* --- confirming ---------------------------------------------------------- */

void pn_verbs_confirm_read(const struct pn_verbs_device *dev,
			   const struct pn_verbs_peer *peer,
			   struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	const struct pn_verbs_tx *lane = &peer->out;

	sge->addr = (uintptr_t)&lane->stage[dev->device.limits.queue_depth];
	sge->length = 1;
	sge->lkey = lane->stage_mr->lkey;
	wr->next = NULL;
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_RDMA_READ;
	wr->send_flags = IBV_SEND_SIGNALED;
	wr->wr.rdma.remote_addr = peer->byte.addr;
	wr->wr.rdma.rkey = peer->byte.rkey;
}

void pn_verbs_confirm(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	struct pn_verbs_tx *lane = &peer->out;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	if (lane->confirming || !lane->uncovered || lane->broken)
		return;
	pn_verbs_confirm_read(dev, peer, &wr, &sge);
	wr.wr_id = pn_verbs_wr_id(lane, lane->uncovered) | PN_VERBS_CONFIRM;
	if (pn_verbs_post_wr(lane, &wr)) {
		pn_verbs_teardown_begin(dev, peer, -ECANCELED);
		return;
	}
	lane->uncovered = NULL;
	lane->confirming = true;
}
