/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The driver's copy of memory that is registered in part and stays so: a pin
 * covers some of it, or another copy uses it, and the budget has no room for
 * bounce buffers. The driver refuses such a range, but it copies any other
 * memory. So the CPU moves the bytes between the range and a buffer that is not
 * registered, piece by piece. Twice the work, but no copy fails for want of a
 * budget.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "copy/call_impl.h"
#include "device/cuda/gate.h"

/* As much as fits into the second cache of a core, twice. */
#define PIECE_BYTES ((size_t)256 << 10)

struct piece {
	struct pn_range dst, src;
	bool dst_held, src_held;
	char *buffer; /* a piece for each end */
};

/* The ends that are not held pass the gate; nothing is registered there until
 * the passage is left. */
static void enter(struct piece *piece, struct pn_gate_passage *passage)
{
	const struct pn_range none = { 0 };

	do {
		piece->dst_held = pn_cuda_gate_holds(piece->dst);
		piece->src_held = pn_cuda_gate_holds(piece->src);
	} while (pn_cuda_gate_enter(piece->dst_held ? none : piece->dst,
				    piece->src_held ? none : piece->src,
				    passage) == PN_GATE_HELD);
}

/* A source that is not registered has been read on return. */
static pn_cu_result copy_piece(const struct pn_copy_call *call,
			       struct piece *piece)
{
	const struct pn_cuda_driver *cu = call->copier->cu;
	char *from = piece->buffer, *to = from + PIECE_BYTES;
	struct pn_gate_passage passage;
	pn_cu_result ret;

	enter(piece, &passage);
	if (piece->src_held)
		memcpy(from, (const void *)piece->src.addr, piece->src.len);
	ret = cu->memcpy_async(piece->dst_held ? (uintptr_t)to
					       : piece->dst.addr,
			       piece->src_held ? (uintptr_t)from
					       : piece->src.addr,
			       piece->src.len, call->op->stream);
	if (!ret && (piece->dst_held || call->op->blocking))
		ret = cu->stream_synchronize(call->op->stream);
	if (!ret && piece->dst_held)
		memcpy((void *)piece->dst.addr, to, piece->dst.len);
	pn_cuda_gate_leave(&passage);
	return ret;
}

/* A graph would read and write the buffer when it is launched. */
static bool may_use_buffer(const struct pn_copy_call *call)
{
	int capturing = 0;

	return !call->copier->cu->stream_is_capturing(call->op->stream,
						      &capturing) &&
	       !capturing;
}

pn_cu_result pn_copy_call_unregistered(struct pn_copy_call *call)
{
	const struct pn_copy_op *op = call->op;
	struct piece piece = { .buffer = NULL };
	pn_cu_result ret = PN_CUDA_SUCCESS;

	if (may_use_buffer(call))
		piece.buffer = malloc(2 * PIECE_BYTES);
	if (!piece.buffer) {
		call->status = -EBUSY;
		return PN_CUDA_ERROR_UNKNOWN;
	}
	for (size_t at = 0; !ret && at < op->bytes; at += PIECE_BYTES) {
		size_t n = pn_min_size(op->bytes - at, PIECE_BYTES);

		piece.dst = (struct pn_range){ (uintptr_t)op->dst + at, n };
		piece.src = (struct pn_range){ (uintptr_t)op->src + at, n };
		ret = copy_piece(call, &piece);
	}
	free(piece.buffer);
	atomic_fetch_add(&call->copier->driver, 1);
	return ret;
}
