/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/soft/soft_impl.h"
#include "device/validate.h"

/* Sends that are queued behind another operation and copied for that. A few, so
 * that a program that computes afterwards has them sent. A stream of packets
 * waits with its poster instead, which copies each byte once; short ones cost
 * little and do not count. */
#define MAX_QUEUED_COPIES 4
#define SHORT_COPY_BYTES  1024

/* --- checks -------------------------------------------------------------- */

/* Checks that each local segment is covered by its key. */
static int check_keys(struct pn_soft_device *dev, const struct pn_op *op)
{
	unsigned access = op->kind == PN_OP_SEND || op->kind == PN_OP_WRITE
				  ? 0
				  : PINION_ACCESS_LOCAL_WRITE;

	if (op->flags & PN_OP_INLINE)
		return 0;
	for (unsigned i = 0; i < op->nsge; i++) {
		const struct pn_sge *sge = &op->sge[i];

		if (sge->len &&
		    !pn_soft_slots_covers(&dev->domain->slots, sge->lkey,
					  sge->addr, sge->len, access))
			return -EFAULT;
	}
	return 0;
}

static int check_peer(const struct pn_soft_peer *peer)
{
	switch (atomic_load_explicit(&peer->state, memory_order_acquire)) {
	case PN_SOFT_UP:
		return 0;
	case PN_SOFT_DOWN:
		return peer->status;
	default:
		return -EAGAIN;
	}
}

/* --- posting ------------------------------------------------------------- */

static bool executes_inline(const struct pn_soft_device *dev,
			    const struct pn_soft_peer *peer,
			    const struct pn_op *op, size_t len)
{
	if (peer->queued)
		return false;
	if (op->kind == PN_OP_SEND)
		return true;
	switch (dev->params.engine) {
	case PN_SOFT_INLINE:
		return true;
	case PN_SOFT_THREAD:
		return false;
	default:
		return len <= dev->params.inline_max;
	}
}

static int execute_inline(struct pn_soft_device *dev, struct pn_soft_peer *peer,
			  const struct pn_op *op, size_t len)
{
	struct pn_soft_transfer transfer = { .op = op, .len = len };
	int ret = pn_soft_completed_reserve(dev);

	if (ret)
		return ret;
	ret = pn_soft_execute(&dev->staging, peer, &transfer, SIZE_MAX);
	if (ret == -EAGAIN)
		return ret;
	if (!ret && (op->flags & PN_OP_SILENT))
		return 0;
	peer->inflight++;
	pn_soft_completed_add(dev, (struct pn_soft_completed){ peer, op->user,
							       ret });
	/* Another thread may sleep for it, or have armed the descriptor. No
	 * fence is needed: that thread set `sleeping` before it looked, under
	 * the lock that we hold. */
	pn_soft_notify_own(dev);
	return 0;
}

/* Copies the bytes of an operation that its poster may modify right afterwards.
 */
static int copy_inline(struct pn_soft_op *queued, const struct pn_op *op)
{
	char *to = queued->inline_data;

	if (!to || queued->inline_capacity < queued->transfer.len) {
		to = realloc(to,
			     queued->transfer.len ? queued->transfer.len : 1);
		if (!to)
			return -EAGAIN;
		queued->inline_data = to;
		queued->inline_capacity = queued->transfer.len;
	}
	for (unsigned i = 0; i < op->nsge; to += op->sge[i++].len)
		if (op->sge[i].len)
			memcpy(to, op->sge[i].addr, op->sge[i].len);
	queued->sge[0] = (struct pn_sge){ .addr = queued->inline_data,
					  .len = queued->transfer.len };
	queued->op.nsge = 1;
	return 0;
}

/* The caller retries when an operation in flight has ended. Without one nothing
 * would say when. */
static int no_memory(const struct pn_soft_peer *peer)
{
	return peer->inflight ? -EAGAIN : -ENOMEM;
}

static int enqueue(struct pn_soft_device *dev, struct pn_soft_peer *peer,
		   const struct pn_op *op, size_t len)
{
	bool copied = op->flags & PN_OP_INLINE && len > SHORT_COPY_BYTES;
	struct pn_soft_op *queued;
	int ret;

	if (copied && peer->queued_copies >= MAX_QUEUED_COPIES)
		return -EAGAIN;
	ret = pn_soft_engine_start(&dev->engine);
	if (ret)
		return ret;
	queued = pn_soft_engine_alloc(&dev->engine);
	if (!queued)
		return no_memory(peer);
	queued->peer = peer;
	queued->op = *op;
	queued->op.sge = queued->sge;
	queued->copied = copied;
	queued->transfer =
		(struct pn_soft_transfer){ .op = &queued->op, .len = len };
	if (op->flags & PN_OP_INLINE) {
		if (copy_inline(queued, op)) {
			pn_soft_engine_free(&dev->engine, queued);
			return no_memory(peer);
		}
	} else if (op->nsge) {
		memcpy(queued->sge, op->sge, op->nsge * sizeof(*op->sge));
	}
	peer->queued++;
	peer->queued_copies += copied;
	peer->inflight++;
	pn_soft_engine_queue(&dev->engine, queued);
	return 0;
}

static int post(struct pn_soft_device *dev, struct pn_soft_peer *peer,
		const struct pn_op *op)
{
	size_t len;
	int ret = pn_op_validate(&dev->device, op, &len);

	if (!ret)
		ret = check_peer(peer);
	if (!ret)
		ret = check_keys(dev, op);
	if (ret)
		return ret;
	if (peer->inflight >= dev->device.limits.queue_depth)
		return -EAGAIN;
	return executes_inline(dev, peer, op, len)
		       ? execute_inline(dev, peer, op, len)
		       : enqueue(dev, peer, op, len);
}

int pn_soft_post(struct pn_device *device, struct pn_peer *peer,
		 const struct pn_op *op)
{
	struct pn_soft_device *dev = pn_soft_of(device);
	int ret;

	pn_soft_enter(dev);
	ret = post(dev, pn_soft_peer_of(peer), op);
	pn_soft_leave(dev);
	return ret;
}

/* A silent send brings no completion, so it may overtake completions of
 * operations in flight, but not operations that are with the engine. */
int pn_soft_send_inline(struct pn_device *device, struct pn_peer *peer,
			const struct pn_inline_header *header, const void *body,
			size_t len)
{
	struct pn_soft_device *dev = pn_soft_of(device);
	struct pn_soft_peer *to = pn_soft_peer_of(peer);
	int ret = -EAGAIN;

	pn_soft_enter(dev);
	if (pn_unlikely(
		    atomic_load_explicit(&to->state, memory_order_acquire) !=
			    PN_SOFT_UP ||
		    to->queued || len > PN_SOFT_MAX_SEND - sizeof(*header))) {
		pn_soft_leave(dev);
		return pn_device_post_inline(device, peer, header, body, len);
	}
	if (pn_likely(pn_soft_tx_send(&to->tx, header, body, len))) {
		peer->next_send = pn_soft_tx_next(&to->tx);
		pn_soft_notify_record(to);
		ret = 0;
	}
	pn_soft_leave(dev);
	return ret;
}
