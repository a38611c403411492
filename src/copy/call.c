/* SPDX-License-Identifier: BSD-2-Clause */
/* What a copy is about: CUDA context, stream, kinds of memory. */
#include "copy/call_impl.h"
#include "device/cuda/gate.h"

/* The streams that need not be created belong to the current context. */
static bool is_default_stream(pn_cu_stream stream)
{
	return !stream || stream == PN_CU_STREAM_LEGACY ||
	       stream == PN_CU_STREAM_PER_THREAD;
}

/* Work of the legacy stream waits for other streams, too; asking it whether it
 * is idle says nothing about them. */
static bool is_legacy(pn_cu_stream stream)
{
	return !stream || stream == PN_CU_STREAM_LEGACY;
}

static pn_cu_result find_context(struct pn_copy_call *call,
				 pn_cu_context current)
{
	call->context = current ? current : call->copier->attr.primary;
	return is_default_stream(call->op->stream)
		       ? PN_CUDA_SUCCESS
		       : call->copier->cu->stream_get_ctx(call->op->stream,
							  &call->context);
}

pn_cu_result pn_copy_call_enter(struct pn_copy_call *call)
{
	const struct pn_cuda_driver *cu = call->copier->cu;
	pn_cu_context current = NULL;
	pn_cu_result ret = cu->ctx_get_current(&current);

	if (!ret)
		ret = find_context(call, current);
	if (!ret && call->context != current) {
		ret = cu->ctx_push_current(call->context);
		call->pushed = !ret;
	}
	if (ret)
		return ret;
	if (cu->ctx_get_id)
		cu->ctx_get_id(call->context, &call->context_id);
	/* What we do beside the copy must not disturb a capture of another
	 * thread. */
	call->capture_mode = PN_CU_STREAM_CAPTURE_MODE_RELAXED;
	cu->exchange_capture_mode(&call->capture_mode);
	return PN_CUDA_SUCCESS;
}

void pn_copy_call_leave(struct pn_copy_call *call)
{
	const struct pn_cuda_driver *cu = call->copier->cu;
	pn_cu_context popped;

	cu->exchange_capture_mode(&call->capture_mode);
	if (call->pushed)
		cu->ctx_pop_current(&popped);
}

/* --- kinds of memory ------------------------------------------------------ */

enum kind { UNPINNED, PINNED, GPU, OTHER };

static enum kind kind_of(struct pn_copier *copier, uintptr_t at)
{
	int attributes[] = { PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
			     PN_CU_POINTER_ATTRIBUTE_IS_MANAGED };
	unsigned type = 0;
	int managed = 0;
	void *out[] = { &type, &managed };

	if (copier->cu->pointer_get_attributes(2, attributes, out, at))
		return OTHER;
	if (managed)
		return OTHER;
	switch (type) {
	case 0:
		return UNPINNED;
	case PN_CU_MEMORYTYPE_HOST:
		return PINNED;
	case PN_CU_MEMORYTYPE_DEVICE:
		return GPU;
	default:
		return OTHER;
	}
}

/* Host memory of which not all is pinned by the program. */
static bool is_unpinned(struct pn_copy_call *call, struct pn_range range)
{
	uintptr_t last = range.addr + range.len - 1;

	if (pn_cuda_gate_holds(range)) {
		call->held = true;
		return true;
	}
	return kind_of(call->copier, range.addr) == UNPINNED ||
	       kind_of(call->copier, last) == UNPINNED;
}

/* Sets the direction if one end is memory of a GPU and the other unpinned. */
static bool find_direction(struct pn_copy_call *call)
{
	const struct pn_copy_op *op = call->op;
	uintptr_t dst = (uintptr_t)op->dst, src = (uintptr_t)op->src;
	bool to = kind_of(call->copier, dst) == GPU;
	uintptr_t gpu = to ? dst : src, host = to ? src : dst;

	call->direction = to ? PN_COPY_TO_GPU : PN_COPY_FROM_GPU;
	call->gpu = gpu;
	call->host = (struct pn_range){ host, op->bytes };
	return (to || kind_of(call->copier, src) == GPU) &&
	       is_unpinned(call, call->host);
}

bool pn_copy_call_is_ours(struct pn_copy_call *call)
{
	const struct pn_cuda_driver *cu = call->copier->cu;
	int capturing = 0;

	if (!find_direction(call))
		return false;
	if (cu->stream_is_capturing(call->op->stream, &capturing) || capturing)
		return false;
	call->idle = !is_legacy(call->op->stream) &&
		     !cu->stream_query(call->op->stream);
	/* The legacy stream cannot be asked; most often it is idle. */
	call->measured =
		!call->held && (call->idle || is_legacy(call->op->stream));
	return true;
}

/* --- the driver's copy ---------------------------------------------------- */

pn_cu_result pn_copy_call_driver(struct pn_copy_call *call)
{
	const struct pn_copy_op *op = call->op;
	struct pn_range dst = { (uintptr_t)op->dst, op->bytes };
	struct pn_range src = { (uintptr_t)op->src, op->bytes };
	struct pn_gate_passage passage;
	pn_cu_result ret;

	call->held = pn_cuda_gate_enter(dst, src, &passage) == PN_GATE_HELD;
	if (call->held)
		return PN_CUDA_SUCCESS;
	ret = call->copier->cu->memcpy_async((uintptr_t)op->dst,
					     (uintptr_t)op->src, op->bytes,
					     op->stream);
	pn_cuda_gate_leave(&passage);
	atomic_fetch_add_explicit(&call->copier->driver, 1,
				  memory_order_relaxed);
	return ret;
}
