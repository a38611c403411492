/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Executes an operation: by the thread that posts it, or by the engine thread.
 * A send becomes a record in the peer's channel; bytes of a write, read or
 * atomic move by move.c, and the immediate follows as a record.
 */
#include <errno.h>

#include "base/cancel.h"
#include "base/limits.h"
#include "device/soft/soft_impl.h"
#include "device/validate.h"

static void put_imm(struct pn_soft_peer *peer, uint32_t imm, uint64_t len)
{
	struct pn_sge sge = { .addr = &len, .len = sizeof(len) };
	struct pn_soft_record_attr attr = { .kind = PN_SOFT_IMM,
					    .imm = imm,
					    .sge = &sge,
					    .nsge = 1,
					    .len = sizeof(len) };

	pn_soft_tx_put(&peer->tx, &attr);
	pn_soft_notify_record(peer);
}

static int execute_send(struct pn_soft_peer *peer,
			struct pn_soft_transfer *transfer)
{
	const struct pn_op *op = transfer->op;
	struct pn_soft_record_attr attr = { .kind = PN_SOFT_SEND,
					    .imm = op->imm,
					    .sge = op->sge,
					    .nsge = op->nsge,
					    .len = transfer->len };

	if (!pn_soft_tx_room(&peer->tx, transfer->len))
		return -EAGAIN;
	pn_soft_tx_put(&peer->tx, &attr);
	pn_soft_notify_record(peer);
	transfer->done = transfer->len;
	return 0;
}

static int move(struct pn_soft_staging *staging, struct pn_soft_peer *peer,
		struct pn_soft_transfer *transfer, size_t budget)
{
	if (!pn_op_is_atomic(transfer->op))
		return pn_soft_move_bytes(staging, &peer->remote, transfer,
					  budget);
	transfer->done = transfer->len;
	return pn_soft_move_atomic(staging, &peer->remote, transfer->op);
}

int pn_soft_execute(struct pn_soft_staging *staging, struct pn_soft_peer *peer,
		    struct pn_soft_transfer *transfer, size_t budget)
{
	const struct pn_op *op = transfer->op;
	bool imm = op->kind == PN_OP_WRITE && (op->flags & PN_OP_IMM);
	int ret;

	if (op->kind == PN_OP_SEND)
		return execute_send(peer, transfer);
	PN_NO_CANCEL(); /* system calls that move bytes */
	/* Checked before the first byte: there must be room after the last. */
	if (imm && !transfer->done &&
	    !pn_soft_tx_room(&peer->tx, sizeof(uint64_t)))
		return -EAGAIN;
	ret = move(staging, peer, transfer, budget);
	if (ret == -EMFILE &&
	    pn_soft_close_idle_rings(pn_soft_of(peer->peer.device)))
		ret = move(staging, peer, transfer, budget);
	if (ret == -EMFILE)
		pn_limits_explain(ret, "reach a peer's memory");
	if (!ret && imm && transfer->done == transfer->len)
		put_imm(peer, op->imm, transfer->len);
	return ret;
}
