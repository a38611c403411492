/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/verbs/iwarp.h"

#include <errno.h>

#include "base/log.h"
#include "base/range.h"

/* --- registered memory of the device -------------------------------------- */

int pn_verbs_confirm_byte_alloc(struct pn_verbs_device *dev)
{
	void *memory;
	int ret = pn_pages_map(PN_PAGE_BYTES, NULL, &memory);

	if (ret)
		return ret;
	dev->confirm_mr =
		ibv_reg_mr(dev->pd, memory, 1, IBV_ACCESS_REMOTE_READ);
	if (dev->confirm_mr)
		return 0;
	ret = -errno;
	pn_pages_unmap(memory, PN_PAGE_BYTES, NULL);
	return ret;
}

void pn_verbs_confirm_byte_free(struct pn_verbs_device *dev)
{
	void *memory;

	if (!dev->confirm_mr)
		return;
	memory = dev->confirm_mr->addr;
	ibv_dereg_mr(dev->confirm_mr);
	pn_pages_unmap(memory, PN_PAGE_BYTES, NULL);
}

static size_t stage_bytes(const struct pn_verbs_device *dev)
{
	/* Confirming reads write to the last stage. */
	return (dev->device.limits.queue_depth + 1) *
	       sizeof(struct pn_verbs_stage);
}

int pn_verbs_stage_alloc(struct pn_verbs_device *dev, struct pn_verbs_tx *tx)
{
	void *memory;
	int ret = pn_pages_map(stage_bytes(dev), NULL, &memory);

	if (ret)
		return ret;
	/* A read writes only to memory that is open to the peer's writes. */
	tx->stage_mr =
		ibv_reg_mr(dev->pd, memory, stage_bytes(dev),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!tx->stage_mr) {
		ret = -errno;
		pn_pages_unmap(memory, stage_bytes(dev), NULL);
		pn_error("verbs: cannot register %zu KiB for a peer: %s; raise "
			 "`ulimit -l` (RLIMIT_MEMLOCK)",
			 stage_bytes(dev) / 1024, strerror(-ret));
		return ret;
	}
	tx->stage = memory;
	return 0;
}

void pn_verbs_stage_free(struct pn_verbs_tx *tx)
{
	size_t len;

	if (!tx->stage_mr)
		return;
	len = tx->stage_mr->length;
	ibv_dereg_mr(tx->stage_mr);
	pn_pages_unmap(tx->stage, len, NULL);
}

/* --- credit that the peer grants us --------------------------------------- */

static bool has_credit(const struct pn_verbs_peer *peer)
{
	return peer->credit.generation == peer->tx.generation &&
	       peer->credit.messages != peer->tx.sent;
}

bool pn_verbs_may_post(const struct pn_verbs_peer *peer, const struct pn_op *op)
{
	unsigned reads = peer->tx.reads;

	if (op->kind == PN_OP_SEND)
		return has_credit(peer);
	/* One more is kept for a confirming read. */
	return op->kind != PN_OP_READ || !reads ||
	       reads + 2 * op->nsge < PN_VERBS_MAX_READS;
}

void pn_verbs_count_progress(struct pn_verbs_peer *peer)
{
	uint32_t progress_count = atomic_load_explicit(&peer->progress_count,
						       memory_order_relaxed);

	/* Only callers write; the service thread polls. */
	atomic_store_explicit(&peer->progress_count,
			      ((progress_count | 1) + 1) | !!peer->tx.count,
			      memory_order_relaxed);
}

/* Whether a credit is newer: of a later generation, or more of the same. */
static bool is_newer(struct pn_verbs_credit known,
		     struct pn_verbs_credit credit)
{
	int16_t later = (int16_t)(credit.generation - known.generation);

	return later > 0 ||
	       (!later && (int16_t)(credit.messages - known.messages) > 0);
}

void pn_verbs_credit_received(struct pn_verbs_device *dev,
			      struct pn_verbs_peer *peer,
			      struct pn_verbs_credit credit)
{
	if (!is_newer(peer->credit, credit))
		return;
	peer->credit = credit;
	dev->post_room |= peer->tx.post_refused;
}

/* --- credit that we grant the peer ---------------------------------------- */

/* Messages that the peer may have sent on its current queue pair and that have
 * not arrived. */
static unsigned outstanding(const struct pn_verbs_peer *peer)
{
	return (uint16_t)(peer->credits_granted - peer->credits_used);
}

/* How much can be granted. Nothing while a replaced rx waits to be destroyed:
 * its messages may not have been polled. */
static unsigned grantable(const struct pn_verbs_device *dev,
			  const struct pn_verbs_peer *peer)
{
	unsigned used = outstanding(peer) + peer->unreturned;

	if (!peer->rx || dev->retired || used >= PN_VERBS_CREDIT_WINDOW)
		return 0;
	return PN_VERBS_CREDIT_WINDOW - used;
}

struct pn_verbs_credit pn_verbs_credit_grant(struct pn_verbs_device *dev,
					     struct pn_verbs_peer *peer)
{
	struct pn_verbs_credit credit;

	peer->credits_granted += (uint16_t)grantable(dev, peer);
	credit.generation = peer->rx ? peer->rx->generation : 0;
	credit.messages = peer->credits_granted;
	atomic_store(&peer->granted_credit,
		     (uint32_t)credit.generation << 16 | credit.messages);
	return credit;
}

/* A credit message. It is inline: the adapter copies it while it is posted. */
static int send_credit(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	struct pn_verbs_tx *tx = &peer->tx;
	unsigned depth = dev->device.limits.queue_depth;
	struct pn_verbs_message_header header = {
		.is_credit = 1,
		.credit = pn_verbs_credit_grant(dev, peer),
	};
	struct ibv_sge sge = { (uintptr_t)&header, sizeof(header), 0 };
	struct ibv_send_wr wr = {
		.wr_id = pn_verbs_wr_id(tx, &tx->records[depth]),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE,
	};

	tx->records[depth].peer = peer;
	return pn_verbs_post_wr(tx, &wr);
}

static bool is_due(const struct pn_verbs_device *dev,
		   const struct pn_verbs_peer *peer)
{
	unsigned more = grantable(dev, peer);

	return peer->credit_urgent || more >= PN_VERBS_CREDIT_WINDOW / 2 ||
	       (more && !outstanding(peer));
}

void pn_verbs_credit_send_if_due(struct pn_verbs_device *dev,
				 struct pn_verbs_peer *peer)
{
	struct pn_verbs_tx *tx = &peer->tx;

	if (peer->down || !peer->rx)
		return;
	if (!dev->retired && !is_due(dev, peer))
		return;
	if (!dev->retired && tx->qp && !tx->broken && !send_credit(dev, peer))
		peer->credit_urgent = false;
	else if (pn_list_empty(&peer->credit_due))
		pn_list_append(&dev->credits_due, &peer->credit_due);
}

void pn_verbs_credit_send_pending(struct pn_verbs_device *dev)
{
	struct pn_list *pos, *tmp;

	if (dev->retired)
		return;
	pn_list_for_each_safe (pos, tmp, &dev->credits_due) {
		struct pn_verbs_peer *peer =
			pn_container_of(pos, struct pn_verbs_peer, credit_due);

		if (!peer->down && (!peer->tx.qp || peer->tx.broken))
			continue;
		pn_list_remove(pos);
		pn_verbs_credit_send_if_due(dev, peer);
	}
}

const struct pn_verbs_message_header *pn_verbs_message_parse(
	struct pn_verbs_device *dev, struct pn_verbs_rx *rx, const void *data,
	size_t len)
{
	const struct pn_verbs_message_header *header = data;

	if (len < sizeof(*header))
		return NULL;
	pn_verbs_credit_received(dev, rx->peer, header->credit);
	if (header->is_credit)
		return NULL;
	rx->peer->unreturned++;
	if (rx == rx->peer->rx)
		rx->peer->credits_used++;
	/* The sender may have no credit left. */
	pn_verbs_credit_send_if_due(dev, rx->peer);
	return header;
}

size_t pn_verbs_siw_segment_bytes(uint64_t addr, size_t len)
{
	size_t room = PN_PAGE_BYTES - addr % PN_PAGE_BYTES;

	return len <= PN_VERBS_SIW_SMALL_BYTES && len > room ? room : len;
}

/* --- confirming ----------------------------------------------------------- */

void pn_verbs_confirm_read(const struct pn_verbs_device *dev,
			   const struct pn_verbs_peer *peer,
			   struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	const struct pn_verbs_tx *tx = &peer->tx;

	sge->addr = (uintptr_t)&tx->stage[dev->device.limits.queue_depth];
	sge->length = 1;
	sge->lkey = tx->stage_mr->lkey;
	wr->next = NULL;
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_RDMA_READ;
	wr->send_flags = IBV_SEND_SIGNALED;
	wr->wr.rdma.remote_addr = peer->confirm_byte.addr;
	wr->wr.rdma.rkey = peer->confirm_byte.rkey;
}

void pn_verbs_confirm(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	struct pn_verbs_tx *tx = &peer->tx;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	if (tx->confirming || !tx->unconfirmed || tx->broken)
		return;
	pn_verbs_confirm_read(dev, peer, &wr, &sge);
	wr.wr_id = pn_verbs_wr_id(tx, tx->unconfirmed) | PN_VERBS_CONFIRM;
	if (pn_verbs_post_wr(tx, &wr)) {
		pn_verbs_teardown_begin(dev, peer, -ECANCELED);
		return;
	}
	tx->unconfirmed = NULL;
	tx->confirming = true;
}
